"""The bench runs, from end to end, where there is no GPU: on a simulated one, with few numbers."""

from pathlib import Path

import pytest
from onnx import TensorProto, helper, save_model

from tests.device import bench, kernels
from tests.device.table import Line, markdown


def test_the_bench_runs_without_a_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", value[:1], value[1:])
    path = tmp_path / "small.onnx"
    save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), path)
    monkeypatch.setattr(kernels, "LAUNCHES", 3)
    monkeypatch.setattr(bench, "warmed", lambda machine, paths, patience: set(paths))  # by processes of its own
    code = bench.main(["--simulated", str(path)])
    said = capsys.readouterr().out
    assert code == 0, said
    for what in (
        "launch, in a graph",
        "copy",
        "transpose",
        "norm of rows",
        "dispatched product",
        "our own product",
        "ladder",
    ):
        assert f"| {what} " in said
    assert "| small " in said


def test_a_section_that_fails_is_told_of_and_the_rest_goes_on() -> None:
    def wrong() -> list[Line]:
        raise ValueError("no\nway")

    def right() -> list[Line]:
        return [Line("this", "that", "1", "", "", 0.5, 1.0)]

    lines = list(bench.measured([wrong, right], end=float("inf")))
    assert [line.ours for line in lines] == ["failed: ValueError: no way", "1"]
    assert [line.ours for line in bench.measured([right, right], end=0.0)] == ["1", "no time was left for more"] * 2
    assert markdown("Title", lines).splitlines()[-1].split("|")[6:9] == [" 0.50  ", " 1.00 ", " **no** "]
