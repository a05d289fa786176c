"""Models of a few hundred bytes that would take all memory, or for ever, end with their exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from graphopt.ir import onnx_io
from graphopt.ir.text import parse

GREAT = 2**40
DOUBLES = "x: float32[8] y = Loop(40, _, x, body={ i: ? go: ? s: ? t = Concat(s, s, axis=0) return go, t }) return y"
MOST = 512 << 20

MEASURED = """
import pathlib, resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
pathlib.Path("peak").write_text(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)
"""
"""Runs a command and writes the peak of its memory: the tests' own process has had other children."""


def ended(folder: Path, text: str, *words: str) -> tuple[int, str]:
    """How a command on a model ended, whose processes may have no more memory than all such models need."""
    onnx_io.save(parse(text), folder / "m.onnx")
    command = [sys.executable, "-m", "graphopt", words[0], "m.onnx", *words[1:]]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *command], cwd=folder, capture_output=True, text=True, timeout=100, check=False
    )
    assert int((folder / "peak").read_text()) << 10 < MOST
    return done.returncode, done.stderr


@pytest.mark.parametrize("text", [f"x: float32[1] y = Tile(x, [{GREAT}]) return y", DOUBLES], ids=["Tile", "Loop"])
def test_a_model_too_large_to_verify_is_written_and_told(text: str, tmp_path: Path) -> None:
    code, said = ended(tmp_path, text, "optimize", "-o", "o.onnx", "-q")
    assert (code, (tmp_path / "o.onnx").exists()) == (0, True)
    assert "unverified" in said
    assert "--memory allows more" in said
    assert ended(tmp_path, text, "optimize", "-o", "p.onnx", "-q", "--verify", "require")[0] == 6
    assert not (tmp_path / "p.onnx").exists()


def test_a_model_too_large_to_run_is_refused_before_it_is_compiled(tmp_path: Path) -> None:
    text = f"x: float32[1] y = Tile(x, [{GREAT}]) return y"
    code, said = ended(tmp_path, text, "run", "--input", "x=random")
    assert code == 5
    assert f"take {4 * GREAT + 4} bytes" in said


@pytest.mark.parametrize(
    "text",
    [
        f"x: float32[1] e = Expand(x, [{GREAT}]) y = ReduceSum(e, keepdims=0) return y",
        f"x: float32[8] y = Loop({2**62}, _, x, body={{ i: ? go: ? s: float32[8] t = Neg(s) return go, t }}) return y",
    ],
    ids=["sum", "loop"],
)
@pytest.mark.parametrize("command", [("run", "--input", "x=random"), ("bench",)], ids=["run", "bench"])
def test_a_run_of_too_many_operations_is_refused_before_it_is_compiled(
    text: str, command: tuple[str, ...], tmp_path: Path
) -> None:
    code, said = ended(tmp_path, text, *command)
    assert code == 5
    assert ("--seconds allows more" in said) == (command[0] == "run")
    assert "operations, and may take 120 s" in said


@pytest.mark.parametrize("command", ["compile", "diff"])
def test_sparse_constants_are_not_written_out(command: str, tmp_path: Path) -> None:
    graph = parse("x: float32[1] y = Add(x, s) return y".replace("s)", "float32[2]{1.0, 2.0})"))
    made = onnx_io.to_proto(graph)
    made.graph.ClearField("initializer")
    for node in [n for n in made.graph.node if n.op_type == "Constant"]:
        made.graph.node.remove(node)
    add = made.graph.node[0]
    add.input[1] = "s"
    values = onnx.numpy_helper.from_array(np.array([1.0], np.float32), "s")
    at = onnx.numpy_helper.from_array(np.array([5], np.int64), "at")
    made.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, at, [2**30]))
    made.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(made, tmp_path / "s.onnx")
    arguments = ["compile", "s.onnx", "-o", "p"] if command == "compile" else ["diff", "s.onnx", "s.onnx"]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, sys.executable, "-m", "graphopt", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert int((tmp_path / "peak").read_text()) << 10 < MOST
    if command == "compile":
        assert done.returncode == 5
        assert f"its constants take {4 << 30} bytes" in done.stderr
    else:
        assert done.returncode == 0
        assert "structure   equal" in done.stdout


def test_a_run_takes_no_more_than_it_may(tmp_path: Path) -> None:
    text = "x: float32[4] y = Expand(x, [16777216, 4]) return y"
    code, said = ended(tmp_path, text, "run", "--input", "x=random", "--memory", "64MB")
    assert code == 5
    assert "may take 67108864;" in said


def test_a_run_that_does_not_end_is_stopped(tmp_path: Path) -> None:
    text = """n: int64[], x: float32[1]
        y = Loop(n, bool[]{true}, x, body={ i: int64[] c: bool[] s: ? t = Mul(s, 2.0) return c, t })
        return y"""
    np.save(tmp_path / "n.npy", np.array(2**62))
    code, said = ended(
        tmp_path, text, "run", "--input", f"n={tmp_path / 'n.npy'}", "--input", "x=random", "--seconds=1"
    )
    assert code == 5
    assert "--seconds allows more" in said


def test_memory_is_a_number_of_bytes(tmp_path: Path) -> None:
    for wrong in ("", "0", "much", "-1GB", "1.5GB"):
        code, said = ended(tmp_path, DOUBLES, "run", f"--memory={wrong}", "--input", "x=random")
        assert code == 2
        assert "expected a number of bytes" in said
