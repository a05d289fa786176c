"""Parts of models are cut out, rules are learnt from them, and the machine is described, from the command line."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx.parser
import pytest

from graphopt.cli import run
from graphopt.tools import doctor
from tests.cli.test_results import check

README = Path(__file__).parents[2] / "README.md"


def test_the_command_of_the_readme_ends_with_what_is_gained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in ("onnxruntime", "fast_sugiyama"):
        pytest.importorskip(package)
    first = next(line for line in README.read_text().splitlines() if line.startswith("    "))
    command = first.rpartition(" && .venv/bin/graphopt ")[2].split()
    monkeypatch.chdir(tmp_path)
    assert run(command) == 0
    told = capsys.readouterr().out.splitlines()[-1]
    page = r"graphopt-demo/demo\.html"
    found = re.fullmatch(rf"(.*)x as fast in ONNX Runtime, measured here; outputs equal to 1e-\d+; page: {page}", told)
    assert found
    assert float(found[1]) > 1.2  # twice, but the machine may be busy
    assert (tmp_path / "graphopt-demo" / "demo.html").read_text().startswith("<!doctype html>")
    assert {n.op_type for n in onnx.load(tmp_path / "graphopt-demo" / "demo.opt.onnx").graph.node} >= {"HardSwish"}
    assert run([*command, "--json", "-"]) == 0  # over what it wrote itself
    check(capsys.readouterr().out, "demo")


def test_a_demonstration_goes_into_a_folder_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("x")
    assert run(["demo", "-o", str(tmp_path)]) == 2
    assert "holds something else" in capsys.readouterr().err


@pytest.fixture
def branching(tmp_path: Path) -> Path:
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[n,3] x) => (float[n,3] y, float[n,3] z)
        { a = Relu(x)  b = Sqrt(a)  y = Mul(b, b)  z = Neg(a) }"""
    )
    onnx.save(proto, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_a_part_is_written(branching: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["extract", str(branching), "--inputs", "a", "--outputs", "y,z"]) == 0
    proto = onnx.load(branching.with_name("m.part.onnx"))
    assert [n.op_type for n in proto.graph.node] == ["Sqrt", "Mul", "Neg"]
    assert [i.name for i in proto.graph.input] == ["a"]
    assert "Sqrt" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to cut at"),
        (["--inputs", "", "--outputs", ","], "nothing to cut at"),
        (["--inputs", "nonsense"], "the model has no value 'nonsense'"),
        (["--inputs", "b", "--outputs", "z"], "'b': not needed to compute 'z'"),
    ],
)
def test_mistakes_are_one_line(
    branching: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["extract", str(branching), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not branching.with_name("m.part.onnx").exists()
    assert run(["extract", str(branching), "--inputs", "a", "-o", str(branching)]) == 2


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[n,3] x) => (float[n,3] y)
        { [first] a = Relu(x)  b = Sqrt(a)  [last] y = Mul(b, b) }"""
    )
    onnx.save(proto, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_a_learnt_rule_optimizes_its_model_once_it_has_a_right_side(
    chain: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = chain.with_name("mine.rules")
    assert run(["learn-rule", str(chain), "--nodes", "first..last", "--name", "square", "-o", str(rules)]) == 0
    assert "the left side matches 1 place of" in capsys.readouterr().err
    assert run(["rules", "check", str(rules)]) == 7
    assert "expected a term" in capsys.readouterr().err
    text = rules.read_text().replace("=>  ?", "=>  Relu(x)").replace("# exact\n", "# [H15] reals\n")
    rules.write_text(text)
    assert run(["rules", "check", str(rules), "--no-cache"]) == 0
    out = chain.with_name("out.onnx")
    assert run(["optimize", str(chain), "-o", str(out), "--rules", str(rules), "--only", "square", "-q"]) == 0
    assert [n.op_type for n in onnx.load(out).graph.node] == ["Relu"]


def test_it_goes_to_stdout_and_names_are_suggested(chain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["learn-rule", str(chain), "--nodes", "b"]) == 0
    assert "learned:  Sqrt(x)" in capsys.readouterr().out
    assert run(["learn-rule", str(chain), "--nodes", "first..lst"]) == 2
    assert "did you mean last" in capsys.readouterr().err


def test_inspect_lists_nodes(chain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(chain), "--nodes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[0].endswith("Relu  first  ->  a: float32[n, 3]")


def found(advice: str) -> Iterator[tuple[str, str, str]]:
    yield "kernel", "[bold]right[/]", advice


@pytest.mark.parametrize(("advice", "code"), [("", 0), ("report all of this", 6)])
def test_what_was_found_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], advice: str, code: int
) -> None:
    topics = {"versions": lambda: [("python", "3", "")], doctor.SELF_TEST: lambda: found(advice)}
    monkeypatch.setattr(doctor, "TOPICS", topics)
    assert run(["doctor"]) == code
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[:3] == ["versions", "  python               3", "self-test"]
    assert lines[3] == "  kernel               [bold]right[/]"
    assert ("-> report all of this" in printed.out) == bool(advice)
    assert ("graphopt: the self-test failed" in printed.err) == bool(advice)
    assert run(["doctor", "--json", "-"]) == code
    assert json.loads(capsys.readouterr().out) == [
        {"topic": "versions", "name": "python", "found": "3", "advice": ""},
        {"topic": "self-test", "name": "kernel", "found": "[bold]right[/]", "advice": advice},
    ]


def test_doctor_refuses_an_empty_name_of_the_cache(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GRAPHOPT_CACHE", "")
    assert run(["doctor"]) == 2
    assert capsys.readouterr() == ("", "graphopt: GRAPHOPT_CACHE is empty: name a folder, or unset it\n")
