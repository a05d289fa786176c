"""One call tunes programs, modules and models."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphopt
from graphopt.benchmark.tuner import TunedModel
from graphopt.errors import MissingDependencyError, ScheduleError, UsageError
from graphopt.ir import onnx_io
from graphopt.ir.text import parse
from graphopt.lowering.loops import compute as te
from graphopt.lowering.loops.nest import BY_RULE, Nest
from graphopt.lowering.module.module import Module
from graphopt.tuning import Evolution, TunedNest
from graphopt.tuning.record import Candidate, Outcome
from tests.tuning.made_up import MadeUp, by_luck, illegal, tiles, times_as_fast
from tests.tuning.nests import product

X = np.random.default_rng(0).standard_normal((5, 24)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((24, 40)).astype(np.float32)


def linear(x: Any, w: Any) -> Any:
    k = te.reduce_axis(x.shape[1])
    return te.compute((x.shape[0], w.shape[1]), lambda i, j: te.sum(x[i, k.var] * w[k.var, j], k))


def module() -> Module:
    """A graph of a program and two ops, and a program that nobody calls."""
    b = graphopt.GraphBuilder()
    x = b.input("x", "float32", ("n", 24))
    h = b.emit_compute(linear, [x, W], name="linear")
    b.output("y", b.emit("Softmax", [b.emit("MatMul", [h, W.T.copy()])]))
    made = b.build()
    made["alone"] = product()
    return made


def expected() -> Any:
    logits = X @ W @ W.T
    e = np.exp(logits - logits.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def tuned(model: Any, executor: MadeUp | None = None, **options: Any) -> Any:
    return graphopt.tune(model, **{"search": "random", "executor": executor or MadeUp(), **options})


def test_a_program_in_one_line() -> None:
    found = tuned(product(), space=tiles, trials=4)
    assert isinstance(found, TunedNest)
    assert len(found.trials) == 4
    assert tuned(product(), space=[tiles], trials=4).trace == found.trace
    assert tuned(product(), space=[tiles], trials=4, seed=1).trace != found.trace


def test_a_module_has_the_best_schedules_put_in(tmp_path: Path) -> None:
    database = tmp_path / "t.sqlite"
    before = module()
    found = tuned(before, MadeUp(lambda c: times_as_fast(1.5)), trials=12, n=5, database=database)
    assert isinstance(found, TunedModel)
    assert before == module()
    by_name = {name: nest for nest in found.nests for name in (*nest.nodes, nest.before.name)}
    assert found.module["alone"] == by_name["alone"].nest != before["alone"]
    assert len(found.trials) == sum(len(n.trials) for n in found.nests) > 0
    assert found.database == database
    linear = found.module["linear"]
    assert isinstance(linear, Nest)
    # within the model it is timed in earnest, and given up where it is slower there
    assert linear == (before["linear"] if BY_RULE in linear.notes else by_name["linear"].nest)
    model = graphopt.compile(found.module, database=database)
    np.testing.assert_allclose(model(X)["y"], expected(), atol=1e-4)
    assert str(found).startswith("the module: ")
    assert str(found).endswith(f"kept in {database}")
    assert all(name in str(found) for name in ("linear", "alone", "Softmax"))


def test_what_gains_nothing_stays_to_be_scheduled_by_default(tmp_path: Path) -> None:
    found = tuned(module(), MadeUp(lambda c: times_as_fast(1.0)), trials=6, n=5, database=tmp_path / "t.sqlite")
    assert found.module["linear"] == module()["linear"]  # it may be fused with others
    assert found.module["alone"] != module()["alone"]  # it would run as it was written
    assert found.ending == "trials"


def test_a_program_that_is_scheduled_by_hand_is_left_as_it_is(tmp_path: Path) -> None:
    s = graphopt.Schedule(product())
    i, *_ = s.get_loops(s.get_block("c"))
    s.parallel(i)
    by_hand = Module({"mine": s.nest})
    with pytest.raises(UsageError, match="the module has nothing to tune"):
        tuned(by_hand, database=tmp_path / "t.sqlite")
    by_hand["other"] = product(8, 8, 8)
    found = tuned(by_hand, trials=3, database=tmp_path / "t.sqlite")
    assert found.module["mine"] == by_hand["mine"]
    assert [nest.before.name for nest in found.nests] == ["other"]
    assert found.seconds == found.nests[0].seconds


def test_a_model_is_tuned_like_a_module(tmp_path: Path) -> None:
    path, database = tmp_path / "m.onnx", tmp_path / "t.sqlite"
    graph = parse("x: float32[n, 24]\nw = float32[24, 40]{0.25, ...}\ny = Relu(MatMul(x, w))\nreturn y")
    onnx_io.save(graph, path)
    for model in (str(path), graph):
        found = tuned(model, MadeUp(lambda c: times_as_fast(1.5)), trials=3, sizes={"n": 5}, database=database)
        assert isinstance(found, TunedModel)
        assert (len(found.trials), str(found).split(":")[0]) == (3, "the model")
        assert {n.sizes[0][1] for n in found.nests} == {5}
        made = graphopt.compile(found.module, database=database, tuned="require")
        want = np.maximum(X @ np.full((24, 40), 0.25, np.float32), 0)
        if graph is model:
            np.testing.assert_allclose(made(X)["y"], graphopt.compile(graph, tuned="off")(X)["y"], atol=1e-4)
        assert made(X)["y"].shape == want.shape


def test_graphs_that_are_called_by_none_are_tuned_each(tmp_path: Path) -> None:
    text = "x: float32[n, 8]\ny = Softmax(x)\nreturn y"
    both = Module({"prefill": parse(text), "decode": parse(text.replace("n, 8", "1, 8"))})
    executor = MadeUp()
    found = tuned(both, executor, trials=6, n=7, database=tmp_path / "t.sqlite")
    assert {c.workload.sizes for c in executor.asked} == {(("n0", 7),), ()}
    assert len(found.trials) == 6
    assert found.seconds > 0


def test_a_space_may_be_for_some_of_a_module_alone(tmp_path: Path) -> None:
    both = module()
    found = tuned(both, space=tiles, trials=6, n=5, database=tmp_path / "t.sqlite")  # a graph has no block c
    assert {nest.before.name for nest in found.nests if nest.trials} == {"alone"}
    with pytest.raises(ScheduleError, match="no search space has a schedule of"):
        tuned(both, space=illegal, trials=6, n=5, database=tmp_path / "t.sqlite")


def test_an_interruption_gives_what_was_found(tmp_path: Path) -> None:
    executor = MadeUp()

    def interrupted(candidate: Candidate) -> Outcome:
        if len(executor.asked) == 3:
            raise KeyboardInterrupt
        return by_luck(candidate)

    executor.answer = interrupted
    found = tuned(module(), executor, trials=12, n=5, database=tmp_path / "t.sqlite")
    assert found.ending == "interrupted"
    assert [nest.before.name for nest in found.nests] == ["alone"]


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: tuned(module(), k=3), "the model has no open size k: its open sizes are n"),
        (lambda: tuned(product(), trails=3), "product has no open size trails"),
        (lambda: tuned(product(), trials=-1), "trials=-1: a budget is a number from 0 on"),
        (lambda: tuned(product(), seconds=float("nan")), "seconds=nan: a budget"),
        (lambda: tuned(product(), space=3), "space=3 is no search space: give a function of a Schedule"),
        (lambda: tuned(product(), space=[]), "is no search space"),
        (lambda: tuned(product(), inputs={"a": "random"}), "leave inputs out"),
        (lambda: tuned(product(), search="evo"), "no search is called 'evo'; there are evolution, random, exhaustive"),
        (lambda: tuned(product(), search=Evolution), "is no search strategy"),
        (lambda: tuned(product(), target="tpu"), "tpu"),
    ],
)
def test_a_mistake_is_one_line(call: Callable[[], Any], line: str) -> None:
    with pytest.raises(UsageError, match=line) as error:
        call()
    assert "\n" not in str(error.value)


def test_without_lightgbm_a_model_of_ones_own_guides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(MissingDependencyError, match="or search at random"):
        tuned(product(), search="evolution")

    class Flat:
        def fit(self, rows: Any, goals: Any) -> None:
            pass

        def predict(self, rows: Any) -> Any:
            return np.zeros(len(rows))

    search = Evolution(population=4, mutation=0.6, crossover=0.2)
    assert len(tuned(product(), space=tiles, search=search, cost_model=Flat(), trials=20).trials) == 20
