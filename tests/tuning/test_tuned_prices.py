"""Times of nests choose between ops and layouts, where they say something of all that there is to choose from."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.calibration.schedule_tables import setting_here
from graphopt.compile import linked_for, prepared
from graphopt.ir import onnx_io
from graphopt.ir.graph import Graph
from graphopt.optimize import optimize_graph
from graphopt.program import program_cache
from graphopt.rewrite.extract.workload import OpWorkload as Call
from graphopt.run.settings import Settings
from graphopt.run.steps import Steps
from graphopt.target import CPU, Target
from graphopt.tuning.database import Records
from graphopt.tuning.record import Candidate, Outcome, Record, Timed
from graphopt.tuning.tuned_prices import DOUBT, TunedPrices, fitted, nests

BLOCKED = "graphopt::BlockedConv"


def convolution() -> bytes:
    """A convolution, which computes in blocks of channels by prices, with a follower."""
    w = np.random.default_rng(0).standard_normal((64, 32, 3, 3), np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Sigmoid", ["c"], ["y"]),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, c, n, n])
        for name, c, n in (("x", 32, 28), ("y", 64, 14))
    ]
    graph = helper.make_graph(nodes, "convolution", ends[:1], ends[1:], [numpy_helper.from_array(w, "w")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


@pytest.fixture(scope="module")
def graph() -> Graph:
    return onnx_io.load(convolution())


class Asked:
    """Knows of no times, and keeps what it is asked."""

    def __call__(self, target: Target, calls: Sequence[str], chosen: Sequence[str]) -> Target:
        self.calls, self.chosen = list(calls), list(chosen)
        return target

    def of(self, op: str) -> str:
        """The call of an op."""
        return next(text for text in self.calls if Call.parse(text).op == op)


@pytest.fixture(scope="module")
def asked(graph: Graph) -> Asked:
    asked = Asked()
    assert BLOCKED in chosen_for(graph, asked)
    return asked


def chosen_for(graph: Graph, timed: object) -> set[str]:
    """The ops that are chosen by these times."""
    found, _ = optimize_graph(graph, target=CPU, timed=timed)  # type: ignore[arg-type]
    return {node.op for node in found.nodes()}


def said(text: str) -> float:
    """What prices say that a call takes."""
    paces, _ = fitted(CPU, {text: 1.0})
    return 1.0 / paces[Call.parse(text).op]


@pytest.fixture(scope="module")
def every(asked: Asked) -> list[str]:
    """The calls that compute the convolution in one way or another."""
    return [text for text in asked.calls if "Conv" in Call.parse(text).op]


def times(ratios: dict[str, float], gain: float = 1.0) -> dict[str, Timed | None]:
    """Made-up times: so many times what prices say, by default; a best schedule gains."""
    return {text: Timed(r * said(text) / gain, r * said(text)) for text, r in ratios.items()}


def test_calls_and_the_chosen_ones_are_asked_for(asked: Asked) -> None:
    assert set(asked.chosen) < set(asked.calls)
    assert {Call.parse(text).op for text in asked.chosen} >= {BLOCKED, "graphopt::Block", "graphopt::Unblock"}
    assert {Call.parse(text).op for text in asked.calls} >= {"Conv", "Sigmoid"}


@pytest.mark.parametrize("ratio", [0.01, 100.0])
@pytest.mark.parametrize("op", ["Conv", BLOCKED])
def test_what_alone_was_timed_says_nothing_of_the_others(graph: Graph, asked: Asked, op: str, ratio: float) -> None:
    assert BLOCKED in chosen_for(graph, TunedPrices({}, dict(times({asked.of(op): ratio}))))


def test_prices_that_are_off_by_one_factor_choose_the_same(graph: Graph, every: list[str]) -> None:
    assert BLOCKED in chosen_for(graph, TunedPrices({}, times(dict.fromkeys(every, 50.0))))


def test_times_of_all_ways_choose(graph: Graph, asked: Asked, every: list[str]) -> None:
    slow = dict.fromkeys(every, 100.0)
    found = chosen_for(graph, TunedPrices({}, times(slow | {asked.of("Conv"): 1.0})))
    assert "Conv" in found
    assert BLOCKED not in found
    assert BLOCKED in chosen_for(graph, TunedPrices({}, times(slow | {asked.of(BLOCKED): 1.0})))


def test_what_is_gained_by_tuning_counts(graph: Graph, asked: Asked, every: list[str]) -> None:
    known = times(dict.fromkeys(every, 1.0))
    assert BLOCKED in chosen_for(graph, TunedPrices({}, dict(known)))
    assert "Conv" in chosen_for(graph, TunedPrices({}, known | times({asked.of("Conv"): 1.0}, gain=100.0)))


def test_paces_lie_between_those_of_an_op_and_of_all(asked: Asked) -> None:
    one, other = asked.of("Conv"), asked.of(BLOCKED)
    paces, spread = fitted(CPU, {one: 2 * said(one), other: 8 * said(other)})
    assert paces[""] == pytest.approx(4, rel=0.1)  # the price of calling is not timed
    assert 2 < paces["Conv"] < paces[""] < paces[BLOCKED] < 8
    assert 1 < spread < 4
    assert fitted(CPU, {}) == ({"": 1.0}, pytest.approx(DOUBT))


def test_what_was_chosen_is_only_given_up_by_more_than_the_doubt(asked: Asked) -> None:
    text = asked.of("Conv")
    known = TunedPrices({}, dict(times({text: 1.0})))
    target = known(CPU, asked.calls, asked.chosen)
    (blocked,) = (t for t in asked.chosen if Call.parse(t).op == BLOCKED)
    assert target.measured == {text: pytest.approx(said(text))}
    assert target.paces[blocked] < 1 < target.paces[""]
    other = known.priced(CPU, asked.calls, asked.chosen, doubt=-1.0)
    assert other.paces[blocked] > 1 > other.paces[""]
    assert other.paces[blocked] * target.paces[blocked] == pytest.approx(other.paces[""] * target.paces[""])


@pytest.mark.parametrize("text", [0, 1])
def test_a_call_becomes_the_nests_that_it_is_in_a_model(asked: Asked, text: int) -> None:
    # the blocked ops of the program have no followers, so that each is a nest of its own
    found, _ = optimize_graph(onnx_io.load(plain_convolution()), target=CPU)
    linked = linked_for(found, Settings(optimize=False, tuned="off"))
    op = (BLOCKED, "graphopt::Unblock")[text]
    asked = Asked()
    optimize_graph(onnx_io.load(plain_convolution()), target=CPU, timed=asked)
    (call,) = (Call.parse(t) for t in asked.chosen if Call.parse(t).op == op)
    assert nests(call)
    assert {nest.nest for nest in nests(call)} <= {work.nest for work in linked.work}


def plain_convolution() -> bytes:
    """The same without a follower."""
    model = onnx_io.load(convolution())
    model.outputs[0] = model.producer(model.outputs[0]).inputs[0]  # type: ignore[index]
    return onnx_io.to_bytes(model)


def test_followers_are_not_timed(asked: Asked) -> None:
    call = Call.parse(next(text for text in asked.calls if Call.parse(text).op == "Sigmoid"))
    known = {nest: Timed(1.0, 1.0) for nest in nests(call)}
    assert known
    assert TunedPrices(known).timed(call.text(), CPU) is None
    assert TunedPrices(known).timed(call.text(), replace(CPU, within=frozenset())) == Timed(1.0, 1.0)


# -- compiling with a database


@pytest.fixture
def database(tmp_path: Path, every: list[str], asked: Asked) -> Path:
    """Where the plain convolution takes next to nothing, and all else long."""
    path = tmp_path / "tuning.sqlite"
    keep(path, {text: 100.0 * said(text) for text in every} | {asked.of("Conv"): said(asked.of("Conv"))})
    return path


def keep(path: Path, seconds: dict[str, float], machine: str | None = None) -> None:
    """Records of calls, whose nests share what the calls take."""
    with Records(path, write=True) as records:
        for text, total in seconds.items():
            own = nests(Call.parse(text))
            for nest in own:
                outcome = Outcome((total / len(own),), (total / len(own),), machine=setting_here().machine)
                records.keep(Record(Candidate(nest, "[]"), setting_here(1, machine), outcome))


def test_a_database_chooses_the_layout(database: Path, tmp_path: Path) -> None:
    def ops(**options: object) -> set[str]:
        graph = prepared(convolution(), Settings(**options), Steps())[0]  # type: ignore[arg-type]
        return {node.op for node in graph.nodes()}

    assert BLOCKED in ops(tuned="off")
    assert BLOCKED not in ops(database=database)
    assert BLOCKED in ops(database=database, tuned="off")
    assert BLOCKED in ops(database=database, costs="analytic")
    assert BLOCKED in ops(database=database, threads=2)


def test_programs_are_kept_by_the_times_that_they_go_by(database: Path, asked: Asked) -> None:
    def place() -> object:
        return program_cache.place_of(convolution(), Settings(database=database))

    before = place()
    assert before == place()
    keep(database, {asked.of("Conv"): 1e-9}, "another machine")
    assert before == place()
    keep(database, {asked.of("Conv"): 1e-9})
    assert before != place()
