"""Calibration measures what the optimizer asks for, once."""

from pathlib import Path
from typing import Any

import onnx
import pytest

from graphopt.benchmark.calibrate import asked, calibrate, clear, summary
from graphopt.calibration.store import TimesDatabase
from graphopt.errors import UsageError
from graphopt.ir.onnx_io import save
from graphopt.ir.text import parse
from graphopt.rewrite.extract.workload import OpWorkload
from graphopt.target import CPU, ORT, PORTABLE
from graphopt.verify.runtimes import ProfiledKernel
from tests.calibration.fakes import FakeProfiler


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    save(parse("x: float32[4, 8]\ny = Div(Mul(x, Clip(Add(x, 3.0), 0.0, 6.0)), 6.0)\nreturn y"), path)
    return path


def test_what_rules_make_is_asked_for_too(model: Path) -> None:
    ops = {OpWorkload.parse(text).op for text in asked(model, ORT)}
    assert {"Add", "Clip", "Mul", "Div", "HardSwish", "HardSigmoid"} <= ops


def test_a_model_is_measured_once(model: Path, tmp_path: Path) -> None:
    database = tmp_path / "times.sqlite"
    told: list[object] = []
    first = calibrate([model], ORT, database, FakeProfiler(lambda node: 1e-5), told=told.append)
    assert first.measured > 4
    assert (first.known, first.left) == (0, 0)
    assert told[0] == told.index(0) - 1 == first.measured + first.refused
    again = calibrate([model], ORT, database, FakeProfiler(lambda node: 1e-5))
    assert (again.measured, again.known) == (0, first.measured + first.refused)


def test_what_seems_far_too_slow_is_measured_again(model: Path, tmp_path: Path) -> None:
    paces = {"Clip": [1.0, 1e-3]}

    def price(node: onnx.NodeProto) -> float:
        return paces.get(node.op_type, [1e-5])[0]

    class Calming(FakeProfiler):
        def profile(self, *args: Any) -> list[list[ProfiledKernel]]:
            runs = super().profile(*args)
            if any(k.op == "Clip" for k in runs[0]) and len(paces["Clip"]) > 1:
                paces["Clip"].pop(0)
            return runs

    database = tmp_path / "times.sqlite"
    calibrate([model], ORT, database, Calming(price))
    with TimesDatabase(database) as store:
        times = store.times(store.settings()[0])
    (clip,) = [time.seconds for text, time in times.items() if OpWorkload.parse(text).op == "Clip"]
    assert clip is not None
    assert clip < 1e-2


def test_time_that_is_up_leaves_the_rest(model: Path, tmp_path: Path) -> None:
    ticks = iter(range(1000))
    found = calibrate(
        [model],
        ORT,
        tmp_path / "times.sqlite",
        FakeProfiler(lambda node: 1e-5),
        seconds=2.5,
        clock=lambda: float(next(ticks)),
    )
    assert found.measured + found.refused == 2
    assert found.left > 0


def test_a_killed_calibration_keeps_what_it_has(model: Path, tmp_path: Path) -> None:
    class StopError(Exception):
        pass

    def tell(what: object) -> None:
        if isinstance(what, str) and "Mul" in what:
            raise StopError

    database = tmp_path / "times.sqlite"
    with pytest.raises(StopError):
        calibrate([model], ORT, database, FakeProfiler(lambda node: 1e-5), told=tell)
    with TimesDatabase(database) as store:
        assert store.times(store.settings()[0])


def test_the_summary_and_its_end(model: Path, tmp_path: Path) -> None:
    database = tmp_path / "times.sqlite"
    done = calibrate([model], ORT, database, FakeProfiler(lambda node: 1e-5))
    (part,) = summary(database).parts
    assert part.setting == done.setting
    assert sum(row.measured for row in part.rows) == done.measured
    assert "ort" in part.fits
    assert clear(database) == done.measured + done.refused
    assert summary(database).parts == ()


def test_a_target_without_a_runtime_cannot_be_calibrated(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--target ort"):
        calibrate([], PORTABLE, tmp_path / "times.sqlite")


def test_what_runs_within_other_loops_is_not_measured(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    save(parse("x: float32[4, 8]\ny = Softmax(Relu(Transpose(x, perm=[1, 0])))\nreturn y"), path)
    ops = {OpWorkload.parse(text).op for text in asked(path, CPU)}
    assert {"Softmax", "Transpose"} <= ops
    assert not ops & CPU.within
    found = calibrate([path], CPU, tmp_path / "times.sqlite")
    assert found.measured >= 2
    assert found.setting.runtime.startswith("graphopt ")
