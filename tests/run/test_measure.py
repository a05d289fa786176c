"""What is written runs as fast as the original: by a clock that a test sets."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import onnx
import pytest

import graphopt
from graphopt.errors import MissingDependencyError, VerificationError
from graphopt.ir.graph import Graph
from graphopt.ir.onnx_io import load, to_bytes
from graphopt.ir.text import parse
from graphopt.rewrite.match.journal import Action, Entry
from graphopt.run.measure import ORIGINAL, MeasuredCandidate, Verdict, interval, measure, regions
from graphopt.verify.runtimes import EngineError

OPS = ("Abs", "Neg", "Ceil", "Floor", "Sign", "Exp", "Tanh", "Erf")


def chain(*ops: str) -> Graph:
    """A graph that applies these ops in turn."""
    lines, last = ["x: float32[n, 3]"], "x"
    for i, op in enumerate(ops):
        lines.append(f"v{i} = {op}({last})")
        last = f"v{i}"
    return parse("\n".join([*lines, f"return {last}"]))


@dataclass
class Machine:
    """A clock that moves while models run: a model takes the sum of what its ops cost, more or less."""

    costs: Mapping[str, float]
    jitter: float = 0.0
    refused: frozenset[str] = frozenset()
    now: float = 0.0
    feeds: list[Mapping[str, Any]] = field(default_factory=list)
    runs: int = 0
    noise: Random = field(default_factory=lambda: Random(0))

    def clock(self) -> float:
        return self.now

    def open(self, path: Path, feeds: Mapping[str, Any], threads: int) -> Callable[[], None]:
        ops = [node.op_type for node in onnx.load(path).graph.node]
        self.feeds.append(feeds)
        if self.refused & set(ops):
            raise EngineError("cannot run it")
        seconds = sum(self.costs.get(op, 0.001) for op in ops)

        def run() -> None:
            self.runs += 1
            self.now += seconds * self.noise.uniform(1 - self.jitter, 1 + self.jitter)

        return run


def judge(machine: Machine, original: Graph, candidates: Sequence[MeasuredCandidate], **options: Any) -> Verdict:
    return measure(original, candidates, opened=machine.open, clock=machine.clock, stopwatch=machine.clock, **options)


def test_what_is_faster_is_kept() -> None:
    found = judge(Machine({"Exp": 0.03, "Abs": 0.01}), chain("Exp"), [MeasuredCandidate("new", chain("Abs"))])
    assert found.candidate is not None
    assert found.candidate.name == found.measured.kept == "new"
    assert found.measured.race.ratio == pytest.approx(3.0)
    assert found.measured.race.low <= 3.0 <= found.measured.race.high


def test_what_is_slower_is_not_written() -> None:
    found = judge(Machine({"Exp": 0.03, "Abs": 0.01}), chain("Abs"), [MeasuredCandidate("new", chain("Exp"))])
    assert found.candidate is None
    assert found.graph.nodes is not None
    assert found.measured.kept == ORIGINAL
    assert found.measured.races[0].ratio == pytest.approx(1 / 3)


@pytest.mark.parametrize(("slower", "kept"), [(1.01, True), (1.05, False)])
def test_what_is_slower_by_less_than_the_margin_is_kept(slower: float, kept: bool) -> None:
    machine = Machine({"Abs": 0.03, "Exp": 0.03 * slower})
    found = judge(machine, chain("Abs"), [MeasuredCandidate("new", chain("Exp"))], margin=0.02)
    assert (found.candidate is not None) is kept


def test_noise_that_falls_on_both_decides_nothing() -> None:
    machine = Machine({"Exp": 0.011, "Abs": 0.010}, jitter=0.2)
    found = judge(machine, chain("Exp"), [MeasuredCandidate("new", chain("Abs"))])
    assert found.candidate is not None
    assert found.measured.race.ratio == pytest.approx(1.1, rel=0.05)


def test_of_several_the_best_is_kept_and_the_first_among_equals() -> None:
    machine = Machine({"Exp": 0.04, "Abs": 0.02, "Neg": 0.01, "Ceil": 0.0099})
    candidates = [MeasuredCandidate(op, chain(op)) for op in ("Abs", "Neg", "Ceil")]
    found = judge(machine, chain("Exp"), candidates)
    assert found.measured.kept == "Neg"
    assert [race.name for race in found.measured.races] == ["Abs", "Neg", "Ceil"]


def test_equal_candidates_run_once() -> None:
    found = judge(
        Machine({}), chain("Exp"), [MeasuredCandidate("a", chain("Abs")), MeasuredCandidate("b", chain("Abs"))]
    )
    assert [race.name for race in found.measured.races] == ["a"]


def test_a_candidate_that_the_runtime_refuses_is_out() -> None:
    machine = Machine({"Exp": 0.03}, refused=frozenset({"Abs"}))
    found = judge(
        machine, chain("Exp"), [MeasuredCandidate("bad", chain("Abs")), MeasuredCandidate("good", chain("Neg"))]
    )
    assert found.measured.kept == "good"
    assert found.measured.races[0].refusal == "cannot run it"


def test_an_original_that_the_runtime_refuses_is_one_line() -> None:
    with pytest.raises(VerificationError, match="cannot run it") as error:
        judge(Machine({}, refused=frozenset({"Exp"})), chain("Exp"), [])
    assert "\n" not in str(error.value)


def test_open_dimensions_are_those_that_costs_count() -> None:
    machine = Machine({"Exp": 0.03})
    found = judge(machine, chain("Exp"), [MeasuredCandidate("new", chain("Abs"))])
    assert found.measured.sizes == {"n": 1}
    assert machine.feeds[-1]["x"].shape == (1, 3)


def test_time_that_is_up_decides_by_what_is_known() -> None:
    machine = Machine({"Exp": 3.0, "Abs": 2.0})
    found = judge(machine, chain("Exp"), [MeasuredCandidate("new", chain("Abs"))], seconds=0.1)
    assert found.measured.kept == "new"
    assert found.measured.race.turns == 7


def test_the_interval_is_that_of_the_sign_test() -> None:
    assert interval([1.0, 2.0, 3.0]) == (1.0, 3.0)
    assert interval([float(n) for n in range(1, 16)]) == (4.0, 12.0)
    assert interval([float(n) for n in range(1, 8)]) == (1.0, 7.0)
    low, high = interval([float(n) for n in range(101)])
    assert 35 < low < 50 < high < 65


# -- regions


def entry(id: int, *needs: int, action: Action = Action.REWRITE) -> Entry:
    return Entry(id, action, rule=f"rule {id}", needs=needs)


def test_rewrites_that_need_each_other_are_one_region() -> None:
    entries = [entry(0), entry(1, 0), entry(2), entry(3, action=Action.PASS), entry(4, 2, action=Action.PASS)]
    entries += [Entry(5, Action.CHOOSE, needs=(0, 2))]
    assert regions(entries) == [(0, 1), (2, 4)]
    assert regions([*entries, entry(6, 1, 4)]) == [(0, 1, 2, 4, 6)]


@dataclass
class Steps:
    """A derivation whose n-th rewrite puts another op in the n-th place."""

    before: tuple[str, ...]
    after: tuple[str, ...]

    @property
    def entries(self) -> list[Entry]:
        return [entry(i) for i in range(len(self.before))]

    def apply(self, graph: Graph, without: Collection[int] = ()) -> Any:
        ops = [b if i in without else a for i, (b, a) in enumerate(zip(self.before, self.after, strict=True))]
        return Done(chain(*ops))


@dataclass
class Done:
    graph: Graph
    lost: tuple[Entry, ...] = ()


def ops(graph: Graph) -> list[str]:
    return [node.op_type for node in onnx.load_model_from_string(to_bytes(graph)).graph.node]


@pytest.mark.parametrize("slow", [(), (0,), (3,), (1, 2), (0, 1, 2, 3)])
def test_the_regions_that_slow_the_model_down_are_taken_back(slow: tuple[int, ...]) -> None:
    before = ("Abs", "Neg", "Ceil", "Floor")
    after = ("Sign", "Exp", "Tanh", "Erf")
    costs = dict.fromkeys(before, 0.020) | {op: 0.2 if i in slow else 0.010 for i, op in enumerate(after)}
    steps = Steps(before, after)
    machine = Machine(costs, jitter=0.01)
    found = judge(machine, chain(*before), [MeasuredCandidate("new", steps.apply(Graph()).graph, steps)], seconds=1000)
    if len(slow) == 4:
        assert found.candidate is None
        assert found.measured.kept == ORIGINAL
        return
    assert set(found.taken_back) == set(slow)
    assert found.measured.taken_back == slow
    assert ops(found.graph) == [b if i in slow else a for i, (b, a) in enumerate(zip(before, after, strict=True))]
    assert found.measured.race.ratio > 1
    assert not found.measured.undecided


def test_what_time_does_not_suffice_for_is_taken_back() -> None:
    before, after = ("Abs", "Neg", "Ceil", "Floor"), ("Sign", "Exp", "Tanh", "Erf")
    steps = Steps(before, after)
    machine = Machine({**dict.fromkeys(before, 0.02), **dict.fromkeys(after, 0.2)})
    found = judge(machine, chain(*before), [MeasuredCandidate("new", chain(*after), steps)], seconds=0.001)
    assert found.candidate is None
    assert found.measured.undecided


# -- the whole


@pytest.fixture
def model() -> bytes:
    pytest.importorskip("onnxruntime")
    return to_bytes(
        parse(
            "x: float32[n, 9]\ny = Div(Mul(x, Clip(Add(x, 3.0), 0.0, 6.0)), 6.0)\nz = Transpose(Transpose(y))\nreturn z"
        )
    )


def test_optimize_measures_with_a_runtime(model: bytes) -> None:
    result, report = graphopt.optimize(model, measure=0.2, return_report=True)
    assert report.measured is not None
    assert report.measured.sizes["n"] > 0
    assert report.measured.races
    kept = [r.id for r in report.rewrites]
    assert not set(kept) & set(report.measured.taken_back)
    assert load(result)
    assert '"measured": {' in report.to_json()


def test_a_result_that_is_slower_leaves_the_model_as_it_was(model: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine({}, jitter=0.0)

    def opened(path: Path, feeds: Mapping[str, Any], threads: int) -> Callable[[], None]:
        seconds = 1.0 if path.parent.name == ORIGINAL else 2.0

        def run() -> None:
            machine.now += seconds

        return run

    known = graphopt.run.measure.measure.__kwdefaults__
    fake = {**known, "opened": opened, "clock": machine.clock, "stopwatch": machine.clock}
    monkeypatch.setattr(graphopt.run.measure.measure, "__kwdefaults__", fake)
    result, report = graphopt.optimize(model, measure=1e6, return_report=True)
    assert report.measured.kept == ORIGINAL
    assert report.rewrites == ()
    assert result == to_bytes(load(model))
    assert report.ops_before == report.ops_after


def test_without_a_runtime_measuring_is_an_error(model: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(MissingDependencyError, match="pip install"):
        graphopt.optimize(model, measure=True)


def test_of_a_result_the_part_that_is_slower_is_taken_back(model: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine({"HardSigmoid": 5.0, "HardSwish": 5.0, "Transpose": 0.5})
    known = graphopt.run.measure.measure.__kwdefaults__
    fake = {**known, "opened": machine.open, "clock": machine.clock, "stopwatch": machine.clock}
    monkeypatch.setattr(graphopt.run.measure.measure, "__kwdefaults__", fake)
    result, report = graphopt.optimize(model, measure=1e6, return_report=True)
    made = ops(load(result))
    assert "Transpose" not in made
    assert "HardSwish" not in made
    assert "HardSigmoid" not in made
    assert report.measured.taken_back
    assert report.measured.kept == "the result"
    assert report.derivation.without
    assert ops(report.derivation.apply(load(model)).graph) == made
    assert report.verification.status == "verified"
