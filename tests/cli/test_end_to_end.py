"""The command line with everything behind it: models in, models out, and what bad input gets."""

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphopt
from graphopt.cli import run
from tests.cli.test_results import check

N = helper.make_node


def proto(nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray] | None = None) -> onnx.ModelProto:
    """A model from x to y."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
        [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


GOOD = proto([N("Relu", ["x"], ["a"]), N("Relu", ["a"], ["b"]), N("Identity", ["b"], ["y"])])
BAD = {
    "cycle": (proto([N("Add", ["x", "y"], ["a"]), N("Relu", ["a"], ["y"])]).SerializeToString(), 4),
    "undefined value": (proto([N("Add", ["x", "nowhere"], ["y"])]).SerializeToString(), 4),
    "duplicated value": (proto([N("Relu", ["x"], ["y"]), N("Abs", ["x"], ["y"])]).SerializeToString(), 4),
    "shape that does not fit": (
        proto([N("MatMul", ["x", "w"], ["y"])], {"w": np.ones((3, 4), "f4")}).SerializeToString(),
        4,
    ),
    "empty": (b"", 3),
    "garbage": (b"\x00garbage\xff" * 10, 3),
    "truncated": (GOOD.SerializeToString()[:-20], 3),
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "in.onnx"
    path.write_bytes(GOOD.SerializeToString())
    return path


def ops(path: Path) -> list[str]:
    return [n.op_type for n in onnx.load(path).graph.node]


def test_a_model_becomes_smaller_and_is_checked(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    assert run(["optimize", str(model), "--verify", "require"]) == 0
    out, err = capsys.readouterr()
    assert ops(model.with_name("in.opt.onnx")) == ["Relu"]
    assert re.search(r"ops +3 +1", out)
    assert re.search(r"verified on 2 random inputs \(.*n=.*; .*\) in ONNX Runtime, no difference", out)
    assert err == ""
    assert model.read_bytes() == GOOD.SerializeToString()


def test_in_place(model: Path) -> None:
    assert run(["optimize", str(model), "--in-place", "-q", "--verify", "off"]) == 0
    assert ops(model) == ["Relu"]
    assert sorted(p.name for p in model.parent.iterdir()) == ["in.journal.json", "in.onnx"]


def test_a_dry_run_leaves_no_trace(model: Path) -> None:
    assert run(["optimize", str(model), "--dry-run", "--verify", "off"]) == 0
    assert [p.name for p in model.parent.iterdir()] == ["in.onnx"]


def test_explain_names_what_was_applied(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["optimize", str(model), "--explain", "--verify", "off"]) == 0
    out = capsys.readouterr().out
    assert "\n  - Relu(a)\n  + a\n" in out


def test_dimensions_are_fixed(model: Path) -> None:
    assert run(["optimize", str(model), "--dim", "n=7", "-q"]) == 0
    (dim, _) = onnx.load(model.with_name("in.opt.onnx")).graph.input[0].type.tensor_type.shape.dim
    assert dim.dim_value == 7


def test_a_wrong_rule_is_caught_and_nothing_is_written(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    rules = model.with_name("my.rules")
    rules.write_text("# wrong                                        [C1] exact always\nnot-so:  Relu(x)  =>  Abs(x)\n")
    told = model.with_name("told.json")
    given = ["optimize", str(model), "--rules", str(rules), "--on-mismatch", "refuse"]
    assert run([*given, "--json", str(told)]) == 6
    out, err = capsys.readouterr()
    assert out == ""
    line, rule, reproducer, command = err.splitlines()
    assert re.fullmatch(
        r"graphopt: the result is wrong: value 'b' inside of the result differs .*not-so at a \(#1\).*", line
    )
    assert rule == f"  rule        not-so ({rules}:2) at a, #1 of the journal"
    small = model.with_name("in.opt.reproducer.onnx")
    assert reproducer == f"  reproducer  {small}"
    assert command == f"  next        graphopt rules try {rules} {small} a"
    assert sorted(p.name for p in model.parent.iterdir()) == ["in.onnx", small.name, "my.rules", "told.json"]
    check(told.read_text(), "optimize --on-mismatch refuse")
    assert json.loads(told.read_text())["rewrite"]["command"] == command.removeprefix("  next        ")
    assert run(["rules", "try", str(rules), str(small), "a", "--json", str(told)]) == 6
    check(told.read_text(), "rules try")
    assert "graphopt: not-so at a: " in capsys.readouterr().err
    small.unlink()
    assert run([*given, "--dry-run"]) == 6
    assert "reproducer" not in capsys.readouterr().err
    assert not small.exists()


def test_what_was_left_out_is_told_with_its_reproducer(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    rules = model.with_name("my.rules")
    rules.write_text("# wrong                                        [C1] exact always\nnot-so:  Relu(x)  =>  Abs(x)\n")
    folder, small = model.with_name("all"), model.with_name("in.opt.reproducer.onnx")
    folder.mkdir()
    (folder / "a.onnx").write_bytes(model.read_bytes())
    for given in ([str(model), "-q"], [str(model)]):
        assert run(["optimize", *given, "--rules", str(rules)]) == 0
        lines = capsys.readouterr().err.splitlines()
        at = next(k for k, line in enumerate(lines) if line.endswith("left out"))
        assert lines[at + 2] == f"  reproducer  {small}"
        assert lines[at + 3] == f"  next        graphopt rules try {rules} {small} a"
    out = folder.with_name("out")
    assert run(["optimize", str(folder), "-o", str(out), "--rules", str(rules)]) == 0
    assert f"  reproducer  {out / 'a.reproducer.onnx'}" in capsys.readouterr().err.splitlines()
    assert run(["optimize", str(folder), "-o", str(out), "--rules", str(rules), "--on-mismatch", "refuse"]) == 6
    assert f"  reproducer  {out / 'a.reproducer.onnx'}" in capsys.readouterr().err.splitlines()


def test_from_python_the_kind_of_model_stays(model: Path) -> None:
    data = GOOD.SerializeToString()
    result = graphopt.optimize(data, verify="off")
    assert isinstance(result, bytes)
    assert [n.op_type for n in onnx.load_from_string(result).graph.node] == ["Relu"]
    found, report = graphopt.optimize(GOOD, verify="off", return_report=True)
    assert isinstance(found, onnx.ModelProto)
    assert report.ops_after == {"Relu": 1}
    assert GOOD.SerializeToString() == data
    output = model.with_name("o.onnx")
    assert graphopt.optimize(model, output=output, verify="off") == output
    assert ops(output) == ["Relu"]


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_model_is_one_line_and_writes_nothing(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, code = BAD[kind]
    path = tmp_path / "bad.onnx"
    path.write_bytes(content)
    assert run(["optimize", str(path)]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("graphopt: ")
    assert "bad.onnx" in err
    assert err.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["bad.onnx"]


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--only", "no-such-rule"], 7, "unknown rule or family no-such-rule"),
        (["--without", "relu-rel"], 7, "unknown rule or family relu-rel"),
        (["--target", "ortt"], 2, "did you mean ort?"),
        (["--policy", "sloppy"], 2, "no policy is called 'sloppy'"),
        (["--dim", "m=3"], 2, "m"),
        (["--shape", "q=3,4"], 2, "q"),
        (["--shape", "x=3,5"], 2, "x"),
        (["--input", "z=0..1"], 2, "there is no input 'z'; there is x"),
        (["--verify", "some"], 2, "expected a number of random inputs, off, require, or full"),
        (["--rules", "missing.rules"], 3, "missing.rules"),
    ],
)
def test_a_bad_option_is_one_line_and_writes_nothing(
    options: list[str], code: int, message: str, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["optimize", str(model), *options]) == code
    out, err = capsys.readouterr()
    assert message in err
    assert err.count("\n") == 1
    assert out == ""
    assert [p.name for p in model.parent.iterdir()] == ["in.onnx"]


def test_a_bad_rule_file_names_line_and_column(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = model.with_name("bad.rules")
    rules.write_text("# a reason      [C1] exact\nname: Relu(x) => => x\n")
    for arguments in (["optimize", str(model), "--rules", str(rules)], ["rules", "check", str(rules)]):
        assert run(arguments) == 7
        assert re.search(r"bad\.rules:2:18: ", capsys.readouterr().err)


def test_rules_can_be_listed_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 200
    names = [line.split()[0] for line in lines[1:]]
    for name in ("constant-folding", names[-1], "K1"):
        assert run(["rules", "show", name]) == 0
        assert f"[{name}]" in (out := capsys.readouterr().out) or f"{name}:" in out
    assert run(["rules", "show", "nonsense"]) == 7


def test_every_shown_rule_can_be_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "show", "C2"]) == 0
    text = capsys.readouterr().out
    file = tmp_path / "shown.rules"
    file.write_text("\n".join(re.sub(r"^([a-z0-9-]+):", r"my-\1:", line) for line in text.splitlines()))
    assert run(["rules", "check", str(file)]) == 0
    assert capsys.readouterr().out.count(" ok\n") == text.count("=>")


def test_the_model_of_the_readme_is_verified(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    light = Path(onnx.__path__[0]) / "backend/test/data/light/light_inception_v1.onnx"
    _, report = graphopt.optimize(light, output=tmp_path / "out.onnx", return_report=True)
    assert report.verification.status == "verified", report.verification.reason
