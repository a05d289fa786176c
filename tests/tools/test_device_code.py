import json
from pathlib import Path

import pytest

from graphopt.cli import run
from graphopt.errors import UsageError
from graphopt.run.settings import Settings
from graphopt.target import CUDA
from graphopt.tools.device_code import capability_of, device_code, lines, write
from tests.test_platforms import perceptron

pytest.importorskip("numba_cuda", reason="kernels for GPUs need numba-cuda: pip install 'graphopt[cuda13]'")
pytestmark = pytest.mark.usefixtures("linker")


def test_kernels_are_compiled_where_there_is_no_gpu(tmp_path: Path) -> None:
    made = device_code(perceptron(), Settings(target=CUDA, dispatch="library"), (8, 0))
    assert made.library == ("Gemm+Relu", "MatMul")
    assert not made.host
    assert all(".target sm_80" in k.ptx and k.machine.registers > 0 for k in made.kernels)
    write(made, tmp_path)
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["architecture"] == "sm_80"
    assert [k["name"] for k in report["kernels"]] == [row[0] for row in lines(made.kernels)]
    assert {f.suffix for f in tmp_path.iterdir()} == {".py", ".ptx", ".cubin", ".json"}


def test_the_command_says_what_kernels_take(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.onnx").write_bytes(perceptron())
    args = ["compile", str(tmp_path / "m.onnx"), "--target", "cuda", "--dispatch", "library", "-o", str(tmp_path / "d")]
    assert run(args) == 0
    assert "kernels for sm_90, 2 calls of the library, 0 steps of the host" in capsys.readouterr().out
    assert (tmp_path / "d" / "k0.ptx").exists()


@pytest.mark.parametrize("text", ["90", "sm_90", "7.5", "9.0a"])
def test_a_capability_is_a_number_with_one_place(text: str) -> None:
    with pytest.raises(UsageError, match="compute capability"):
        capability_of(text)
