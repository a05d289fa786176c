"""The bench runs, from end to end, where there is no GPU: on a simulated one, with few numbers."""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, save_model
from onnx.reference import ReferenceEvaluator

from graphopt.verify.runtimes import EngineError
from tests.device import bench
from tests.device.given import weighted
from tests.device.machine import Simulated
from tests.device.models import model
from tests.device.parts import Part, finished, kept
from tests.device.table import Line, markdown

SEEN = {
    "kernels": {
        "copy",
        "elementwise, one input",
        "elementwise, two inputs",
        "norm of rows",
        "softmax of rows",
        "transpose",
    },
    "products": {"dispatched product", "our own product"},
    "ladder": {"ladder"},
    "launches": {"launch, in a graph"},
}


@pytest.mark.parametrize("part", bench.PARTS)
def test_each_part_runs_without_a_gpu(part: str) -> None:
    lines = list(bench.lines_of(part, Simulated(), None))
    assert {line.what for line in lines} == SEEN[part]


def test_a_model_is_measured_when_it_is_its_turn(tmp_path: Path) -> None:
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", value[:1], value[1:])
    path, waits = tmp_path / "small.onnx", []
    save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), path)

    def absent(path: Path, feeds: object) -> Any:
        raise EngineError("not installed")

    def wrong(path: Path, feeds: object) -> Any:
        raise RuntimeError("no\nCUDA")

    def right(path: Path, feeds: dict[str, Any]) -> Any:
        return lambda: [np.maximum(feeds["x"], 0)]

    def other(path: Path, feeds: dict[str, Any]) -> Any:
        return lambda: [feeds["x"] + 1]

    engines = {"absent": absent, "wrong": wrong, "right": right, "other": other}
    alone, *beside = model(Simulated(), path, lambda: waits.append(True), engines)
    assert (alone.what, alone.case, alone.share, waits) == ("model", "small", None, [True])
    assert [line.beside for line in beside] == list(engines)
    assert [line.theirs for line in beside[:2]] == ["not installed", "RuntimeError: no CUDA"]
    assert beside[2].ours.endswith("as exact as expected")
    assert "of the tolerance" in beside[3].ours


def test_the_bench_runs_its_parts_as_processes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code = bench.main(["--simulated", str(tmp_path / "none.onnx"), "--only", "launches", "model"])
    said = capfd.readouterr().out
    assert code == 1
    assert "| launch, in a graph " in said
    assert "failed: ReadError" in said


def part(name: str, source: str, folder: Path) -> Part:
    """A part that is this program."""
    made = Part(name, 1.0, [], folder, case="case")
    kept([Line(name, "first", "1", "", "")], name, made.file)
    made.command = [sys.executable, "-c", source]
    return made


def test_a_part_that_breaks_or_never_ends_keeps_what_it_has(tmp_path: Path) -> None:
    broken = part("broken", "import os; os.abort()", tmp_path)
    assert [line.ours for line in finished(broken, 60)] == ["1", "failed: its process ended with -6"]
    endless = part("endless", "import time; time.sleep(1000)", tmp_path)
    begin = time.monotonic()
    assert [line.ours for line in finished(endless, 0.1)] == ["1", "no time was left for more"]
    assert time.monotonic() - begin < 60
    waiting = part("waiting", "import sys; assert sys.stdin.readline() == ''", tmp_path)
    waiting.begin(niceness=1)
    assert [line.ours for line in finished(waiting, 60)] == ["1"]


def test_an_error_is_a_line_of_the_table(tmp_path: Path) -> None:
    def lines() -> object:
        yield Line("this", "that", "1", "", "", 0.5, 1.0)
        raise ValueError("no\nway")

    made = part("wrong", "", tmp_path)
    kept(lines(), "wrong", made.file)  # type: ignore[arg-type]
    found = finished(made, 60)
    assert [line.ours for line in found] == ["1", "failed: ValueError: no way"]
    assert markdown("Title", found).splitlines()[-2].split("|")[6:9] == [" 0.50  ", " 1.00 ", " **no** "]


def test_weights_of_one_number_become_random_ones() -> None:
    node = helper.make_node
    nodes = [
        node("ConstantOfShape", ["wide"], ["w"], value=numpy_helper.from_array(np.ones(1, np.float32))),
        node("MatMul", ["x", "w"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 16]) for n in "xy")
    held = helper.make_tensor_value_info("wide", TensorProto.INT64, [2])
    shape = numpy_helper.from_array(np.array([16, 16]), "wide")
    made = weighted(helper.make_model(helper.make_graph(nodes, "g", [x, held], [y], [shape])))
    onnx.checker.check_model(made)
    assert [i.name for i in made.graph.input] == ["x"]
    assert [i.name for i in made.graph.initializer] == ["w"]
    (found,) = ReferenceEvaluator(made).run(None, {"x": np.ones((2, 16), np.float32)})
    assert found.std() > 0.1
