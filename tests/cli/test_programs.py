"""``graphopt run``, ``bench``, ``compile`` and ``show`` on a small model, and what bad input gets."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

from graphopt.cli import run
from graphopt.cli.program_tables import calls_of, show_calls
from graphopt.ir import onnx_io
from graphopt.ir.text import parse

W = np.arange(12, dtype=np.float32).reshape(4, 3)
X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


@pytest.fixture
def model(tmp_path: Path) -> str:
    """``y = Relu(x @ w + 1)``."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="the product"),
        helper.make_node("Add", ["a", "one"], ["b"]),
        helper.make_node("Relu", ["b"], ["y"], name="the relu"),
    ]
    weights = [numpy_helper.from_array(W, "w"), numpy_helper.from_array(np.ones(3, np.float32), "one")]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])
    made = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], weights), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    save(made, tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", X)
    return str(tmp_path / "m.onnx")


def test_run(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, trace = tmp_path / "out.npz", tmp_path / "trace.json"
    given = f"x={tmp_path / 'x.npy'}"
    assert run(["run", model, "--input", given, "-o", str(out), "--trace", str(trace), "--profile"]) == 0
    np.testing.assert_allclose(np.load(out)["y"], np.maximum(X @ W + 1, 0), rtol=1e-5)
    events = json.loads(trace.read_text())["traceEvents"]
    assert any("the relu" in e["args"]["nodes"] for e in events)
    printed = capsys.readouterr().out
    assert "float32[2, 3]" in printed
    assert "GFLOP/s" in printed
    assert run(["run", model, "--input", given, "-o", "/proc/out.npz"]) == 3
    assert "/proc/out.npz: cannot write there" in capsys.readouterr().err


def test_run_on_random_numbers(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", model, "--input", "x=random", "--dim", "n=5", "--strict"]) == 0
    assert "float32[5, 3]" in capsys.readouterr().out
    assert run(["run", model, "--input", "x=random", "--shape", "x=6,4"]) == 0
    assert "float32[6, 3]" in capsys.readouterr().out
    for command in (["run"], ["bench", "--seconds", "0"]):
        assert run([*command, model, "--input", "x=random", "--shape", "x=6,5"]) == 2
        assert "'x'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "nothing is given for the input 'x'"),
        (["--input", "x=random", "--input", "q=random"], "no input 'q'"),
        (["--input", "x={wide}"], "float64[2, 4], and float32[n, 4] is expected"),
        (["--input", "x={long}"], "size 5 along axis 1"),
        (["--input", "x={flat}"], "float32[n, 4] is expected"),
        (["--input", "x={x}", "-o", "{x}"], "would overwrite"),
        (["--input", "q=random"], "there is no input 'q'; there is x"),
        (["--input", "q={x}"], "there is no input 'q'; there is x"),
        (["--input", "x=1..inf"], "both ends, and what lies between them, have to be finite"),
        (["--input", "x=0..1e308"], "input 'x' is float32, which holds no 1e+308"),
        (["--input", "x={x}", "--input", "q={x}"], "no input 'q'"),
        (["--input", "x={x}", "--dim", "m=2"], "no dimension of an input is called 'm'; there is n"),
    ],
)
def test_run_refuses_what_does_not_fit(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    files = {"wide": X.astype(np.float64), "long": np.zeros((2, 5), np.float32), "flat": X.reshape(-1), "x": X}
    for name, array in files.items():
        np.save(tmp_path / f"{name}.npy", array)
    paths = {name: str(tmp_path / f"{name}.npy") for name in files}
    assert run(["run", model, *(o.format(**paths) for o in options)]) == 2
    assert said in capsys.readouterr().err


def test_strict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, None)
    nodes = [helper.make_node("SplitToSequence", ["x"], ["s"], name="the parts")]
    nodes.append(helper.make_node("SequenceLength", ["s"], ["y"], name="their number"))
    graph = helper.make_graph(nodes, "g", [x], [y])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "z.onnx")
    model = str(tmp_path / "z.onnx")
    assert run(["run", model, "--input", "x=random"]) == 0
    assert "the parts (SplitToSequence) runs in ONNX Runtime" in capsys.readouterr().err
    assert run(["run", model, "--input", "x=random", "--strict"]) == 10
    assert "'the parts'" in capsys.readouterr().err


def test_bench(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    assert run(["bench", model, "--against", "ort", "--seconds", "0.1", "--threads", "1,2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1 thread"
    assert lines[4] == "2 threads"
    lines = lines[1:]
    assert lines[1].split()[-1].endswith("%")
    assert lines[1].split()[0] == "graphopt"
    assert lines[2].split()[0] == "ort"
    assert "x" in lines[2]
    assert "WRONG" not in lines[2]


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--against", "tvm"], 2, "no engine is called 'tvm'"),
        (["--input", "q=random"], 2, "no input 'q'"),
    ],
)
def test_bench_refuses(
    model: str, capsys: pytest.CaptureFixture[str], options: list[str], code: int, said: str
) -> None:
    assert run(["bench", model, *options]) == code
    assert said in capsys.readouterr().err


def test_bench_says_what_is_not_installed(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "openvino", None)
    assert run(["bench", model, "--against", "openvino"]) == 8
    assert "openvino" in capsys.readouterr().err


def test_compile(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from graphopt.runtime.saved import load

    assert run(["compile", model, "-o", str(tmp_path / "p")]) == 0
    assert "bytes" in capsys.readouterr().out
    np.testing.assert_allclose(load(tmp_path / "p")({"x": X})["y"], np.maximum(X @ W + 1, 0), rtol=1e-5)
    assert run(["compile", model, "-o", str(tmp_path / "p")]) == 0  # over the same program
    (tmp_path / "p" / "manifest.json").rename(tmp_path / "p" / ".manifest.json-0123456789abcdef")  # as kills leave it
    assert run(["compile", model, "-o", str(tmp_path / "p")]) == 0
    assert len(list((tmp_path / "p").iterdir())) == 3
    for place, said in (
        (model, "a file is there"),
        (str(tmp_path), "the folder holds something else"),
        (str(tmp_path / "no" / "p"), f"the folder {tmp_path / 'no'} does not exist"),
    ):
        before = sorted(tmp_path.iterdir())
        assert run(["compile", model, "-o", place]) == 2
        assert said in capsys.readouterr().err
        assert sorted(tmp_path.iterdir()) == before


def test_what_does_not_fit_into_memory_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    large = tmp_path / "large.onnx"
    onnx_io.save(parse("x: float32[n] y = Add(x, Expand(x, int64[1]{1099511627776})) return y"), large)
    onnx_io.save(parse("x: float32[n] y = Relu(x) return y"), tmp_path / "open.onnx")
    assert run(["run", str(tmp_path / "open.onnx"), "--input", "x=random", "--dim", f"n={1 << 50}"]) == 5
    assert f"input 'x' would be float32[{1 << 50}], for which there is no memory" in capsys.readouterr().err
    assert run(["run", str(large), "--input", "x=random", "--dim", "n=1"]) == 5
    said = capsys.readouterr().err
    assert "out of memory: its inputs and outputs take" in said
    assert "'y' is float32[1099511627776]; --dim and --shape give smaller sizes" in said


def test_show(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", model]) == 0
    assert capsys.readouterr().out.splitlines()[:1] == ["call  kernel  nodes"]
    assert run(["show", model, "--loops", "the relu"]) == 0
    before, _, after = capsys.readouterr().out.partition("# as it runs\n")
    assert before.startswith("# before it is scheduled\n@program")
    assert after.startswith("@program")
    assert before.partition("\n")[2] != after
    assert run(["show", model, "--source", "the relu"]) == 0
    assert "def kernel(" in capsys.readouterr().out
    assert run(["show", model, "--source", "the product"]) == 0  # rewritten, with what adds to it, which has its name
    out, err = capsys.readouterr()
    assert "def kernel(" in out
    assert not err
    assert run(["show", model, "--source", "a"]) == 0
    out, err = capsys.readouterr()
    assert "def kernel(" in out
    assert err == "graphopt: 'a' became part of 'the product'\n"
    assert run(["show", model, "--loops", "nowhere"]) == 2
    assert f"no kernel computes a node 'nowhere'; graphopt show {model} lists" in capsys.readouterr().err
    assert run(["show", model, "--loops", "the relo"]) == 2
    assert "did you mean the relu or the product?" in capsys.readouterr().err


def test_a_call_of_many_nodes_is_one_line_without_padding(capsys: pytest.CaptureFixture[str]) -> None:
    many = SimpleNamespace(nodes=tuple(f"node_{k}" for k in range(500)), source="source")
    show_calls(calls_of([many, SimpleNamespace(nodes=("last",), source="source")]))  # type: ignore[list-item]
    assert capsys.readouterr().out.splitlines()[1:] == [f"0     k0      {', '.join(many.nodes)}", "1     k0      last"]


def test_a_second_run_on_files_imports_nothing_heavy(model: str, tmp_path: Path) -> None:
    given = f"x={tmp_path / 'x.npy'}"
    assert run(["run", model, "--input", given, "-q"]) == 0
    program = (
        f"import sys; from graphopt.cli import run; code = run(['run', {model!r}, '--input', {given!r}, '-q']); "
        "print(code, *sys.modules)"
    )
    code, *modules = subprocess.check_output([sys.executable, "-c", program], text=True).split()
    assert code == "0"
    assert not {"onnx", "onnx_ir", "egglog", "networkx", "scipy", "numba", "graphopt.ir"} & set(modules)


def test_a_roofline(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", model, "--seconds", "0", "--roofline", str(tmp_path / "roof.svg")]) == 0
    assert "<svg" in (tmp_path / "roof.svg").read_text()
    assert run(["bench", model, "--roofline", str(tmp_path / "roof.txt")]) == 2
    assert ".svg" in capsys.readouterr().err


def test_what_steps_give_is_printed(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", model, "--print-after", "schedule", "--print-after", "plan-memory"]) == 0
    told = capsys.readouterr()
    assert [line for line in told.err.splitlines() if line.startswith("# after")] == [
        "# after Schedule",
        "# after PlanMemory",
    ]
    assert "@program" in told.err
    assert "# after" not in told.out
    assert run(["compile", model, "-o", str(tmp_path / "program"), "--print-between", "-q"]) == 0
    steps = [line for line in capsys.readouterr().err.splitlines() if line.startswith("# after")]
    assert "# after tidy" in steps
    assert steps[-4:] == ["# after PlanMemory", "# after compile", "# after load", "# after verify"]
    assert run(["optimize", model, "--print-after", "fold", "-o", str(tmp_path / "o.onnx"), "--verify", "off"]) == 0
    assert "# after fold\ngraph g" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "show", "compile", "optimize"])
def test_a_step_that_there_is_not_gets_one_line(
    command: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    into = ["-o", str(tmp_path / "out")] if command in ("compile", "optimize") else []
    assert run([command, model, "--print-after", "foldd", *into]) == 2
    assert capsys.readouterr().err == "graphopt: there is no step 'foldd'; did you mean fold?\n"
