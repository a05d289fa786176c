"""A model is tuned as a whole: what is faster by itself alone is given up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import graphopt
from graphopt.benchmark.tune import give_up, harmful, tasks_of
from graphopt.calibration.schedule_tables import setting_here
from graphopt.compile import CompiledModel
from graphopt.errors import UsageError
from graphopt.ir import onnx_io
from graphopt.ir.text import parse
from graphopt.platforms import platform_of
from graphopt.rewrite.extract.workload import OpWorkload as Call
from graphopt.target import SIMULATION
from graphopt.tuning import Budget
from graphopt.tuning.database import Records
from graphopt.tuning.record import Candidate, Outcome, Record
from graphopt.tuning.session import Progress, Task
from graphopt.tuning.tuned_prices import nests
from tests.benchmark.test_active_measurement import PLAIN, by_layout, pointwise
from tests.tuning.made_up import MadeUp, times_as_fast
from tests.tuning.products import by_rows, product


@dataclass
class Row:
    nodes: tuple[str, ...]
    seconds: float


@dataclass
class Model:
    """A model whose nodes take so long."""

    rows: Sequence[Row]

    def profile(self, feeds: Any) -> Sequence[Row]:
        return self.rows


def compiled(**seconds: float) -> CompiledModel:
    return cast(CompiledModel, Model([Row((name,), spent) for name, spent in seconds.items()]))


def record(width: int, gain: float) -> Record:
    return Record(by_rows(product(), width), setting_here(), Outcome((1.0,) * 5, (gain,) * 5))


def progress(best: Record | None, *nodes: str) -> Progress:
    return Progress(Task(product(), nodes=nodes), best=best)


def test_what_is_slower_within_the_model_is_harmful() -> None:
    tasks = [progress(record(8, 2.0), "a"), progress(record(8, 2.0), "b"), progress(None, "c")]
    found = harmful(tasks, compiled(a=1.0, b=1.0, c=1.0), compiled(a=0.5, b=1.5, c=9.0), {})
    assert found == {1: "slow: within the model it takes 1.50 times as long as the default schedule"}


def test_what_is_slower_now_and_then_is_not_harmful() -> None:
    turns = iter([0.9, 1.1, 1.1] * 3)

    @dataclass
    class Noisy(Model):
        def profile(self, feeds: Any) -> Sequence[Row]:
            return [Row(("a",), next(turns))]

    assert not harmful([progress(record(8, 2.0), "a")], compiled(a=1.0), cast(CompiledModel, Noisy(())), {})


def test_the_next_best_is_tried_and_at_last_none(tmp_path: Path) -> None:
    with Records(tmp_path / "t.sqlite", write=True) as records:
        for width, gain in ((8, 2.0), (16, 3.0), (32, 1.5)):
            records.keep(record(width, gain))
        task = progress(records.best(product(), setting_here()), "a")

        def best() -> tuple[Candidate | None, ...]:
            kept = records.best(product(), setting_here())
            return tuple(r and r.candidate for r in (task.best, kept))

        give_up({0: "slow: 1.20 times"}, [task], records, is_last=False)
        assert best() == (by_rows(product(), 8),) * 2
        give_up({0: "slow: 1.10 times"}, [task], records, is_last=True)
        assert best() == (None, None)
        assert task.problems == {"slow": 3}
        problems = {r.candidate: r.outcome.problem for r in records.history(product(), setting_here())}
    assert "1.20 times" in problems[by_rows(product(), 16)]
    assert "1.10 times" in problems[by_rows(product(), 8)]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    graph = parse("x: float32[n, 24]\nw = float32[24, 40]{0.25, ...}\ny = Relu(MatMul(x, w))\nreturn y")
    onnx_io.save(graph, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_what_was_found_is_compiled(model: Path, tmp_path: Path) -> None:
    database = tmp_path / "t.sqlite"
    executor = MadeUp(lambda candidate: times_as_fast(1.5))
    done = graphopt.tune_model(
        str(model), database, Budget(trials=3), executor=executor, search="random", dims={"n": 5}, seconds=0.01
    )
    assert done.report.trials == 3
    assert {n for c in executor.asked for _, n in c.workload.sizes} == {5}
    assert len(done.before) == len(done.after) > 0
    assert done.speedup is not None
    assert done.speedup > 0
    made = graphopt.compile(str(model), database=database, tuned="require", cache=False)
    x = np.linspace(-1, 1, 7 * 24, dtype=np.float32).reshape(7, 24)
    want = graphopt.compile(str(model), tuned="off")({"x": x})["y"]
    rounding = 24 * np.finfo(np.float32).eps * 24 * 0.25  # of sums of as many terms, none above a quarter, in any order
    np.testing.assert_allclose(made({"x": x})["y"], want, rtol=1e-4, atol=rounding)


def test_a_model_is_tuned_for_a_device(tmp_path: Path) -> None:
    path, database = tmp_path / "m.onnx", tmp_path / "t.sqlite"
    onnx_io.save(parse("x: float32[3, 6]\ny = Softmax(x)\nreturn y"), path)
    there = platform_of(SIMULATION).machine()
    executor = MadeUp(lambda candidate: replace(times_as_fast(1.5), machine=there))
    done = graphopt.tune_model(
        str(path), database, Budget(trials=2), executor=executor, search="random", target="simulated", seconds=0.01
    )
    assert {c.target for c in executor.asked} == {"simulated"}
    (task,) = done.report.tasks
    assert task.best is None or task.best.setting.machine == there
    made = graphopt.compile(str(path), target="simulated", database=database, tuned="require" if task.best else "auto")
    x = np.linspace(-1, 1, 18, dtype=np.float32).reshape(3, 6)
    np.testing.assert_allclose(made({"x": x})["y"], graphopt.compile(str(path), tuned="off")({"x": x})["y"], rtol=1e-5)


def test_the_nests_are_those_of_what_times_choose(tmp_path: Path) -> None:
    path, database = tmp_path / "m.onnx", tmp_path / "t.sqlite"
    path.write_bytes(pointwise())
    graphopt.tune_choices(path, database, executor=MadeUp(by_layout(plain=1e-6, blocked=1.0)))
    executor = MadeUp(lambda candidate: times_as_fast(1.0))
    done = graphopt.tune_model(path, database, Budget(trials=1), executor=executor, search="random", seconds=0.01)
    (task,) = done.report.tasks
    assert (task.task.workload,) == nests(Call.parse(PLAIN))
    assert done.after


def test_nodes_are_chosen_by_name(model: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no nest computes a node 'nothing'; there are "):
        graphopt.tune_model(str(model), tmp_path / "t.sqlite", nodes=["nothing"], executor=MadeUp(), search="random")


def test_equal_nests_are_one_task() -> None:
    plain = graphopt.compile(
        parse("x: float32[n, 6, 8]\ny = Softmax(Softmax(x))\nreturn y"), optimize=False, tuned="off"
    )
    (task,) = tasks_of(plain, {"x": np.zeros((3, 6, 8), np.float32)})
    assert task.times == 2
    assert len(task.nodes) == 2
    assert [n for _, n in task.workload.sizes] == [3]


@pytest.mark.parametrize("is_faster", [True, False])
def test_a_model_that_is_slower_keeps_its_default_schedules(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_faster: bool
) -> None:
    runs = [[2.0] * 3, [1.0] * 3]
    monkeypatch.setattr(graphopt.benchmark.tune, "turns", lambda *_: runs if is_faster else runs[::-1])
    monkeypatch.setattr(graphopt.benchmark.tune, "harmful", lambda *_: {})
    executor, database = MadeUp(lambda candidate: times_as_fast(1.5)), tmp_path / "t.sqlite"
    done = graphopt.tune_model(
        str(model), database, Budget(trials=2), executor=executor, search="random", dims={"n": 5}
    )
    assert done.is_kept == is_faster
    (task,) = done.report.tasks
    with Records(database) as records:
        best = records.best(task.task.workload, setting_here())
    assert (best is not None) == (task.best is not None) == is_faster


def test_who_interrupts_does_not_wait_for_runs_of_the_model(model: Path, tmp_path: Path) -> None:
    def interrupt(candidate: Candidate) -> Outcome:
        raise KeyboardInterrupt

    done = graphopt.tune_model(
        str(model), tmp_path / "t.sqlite", Budget(trials=3), executor=MadeUp(interrupt), search="random", dims={"n": 5}
    )
    assert done.report.ending == "interrupted"
    assert done.before == done.after == ()
    assert done.speedup is None
