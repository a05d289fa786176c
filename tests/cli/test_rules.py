import shutil
import sys
from pathlib import Path

import onnx
import onnx.parser
import pytest

from graphopt.cli import run
from graphopt.proof import evidence, prove
from graphopt.rewrite.rule.rule import Rule
from graphopt.rewrite.ruleset import Ruleset, standard, standard_folder


def save(path: Path, body: str) -> str:
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g (float[n,3] x) {body}'), path)
    return str(path)


def test_a_pair_of_models_is_written_checked_and_applied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left = save(tmp_path / "relu-relu.onnx", "=> (float[n,3] y) { a = Relu(x)  y = Relu(a) }")
    right = save(tmp_path / "relu.onnx", "=> (float[n,3] y) { y = Relu(x) }")
    rules = str(tmp_path / "pair.rules")
    assert run(["rules", "pair", left, right, "--soundness", "exact", "--family", "A22", "--always", "-o", rules]) == 0
    assert run(["rules", "check", rules, "--no-cache"]) == 0
    out = str(tmp_path / "out.onnx")
    assert run(["optimize", left, "-o", out, "--rules", rules, "--only", "relu_relu", "-q"]) == 0
    assert len(onnx.load(out).graph.node) == 1
    assert run(["rules", "pair", left, right, "--soundness", "exact"]) == 0
    assert "relu_relu:  Relu(Relu(x))  =>  Relu(x)" in capsys.readouterr().out


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left = save(tmp_path / "l.onnx", "=> (float[n,3] y) { y = Relu(x) }")
    right = save(tmp_path / "r.onnx", "=> (float[n,3] y, float[n,3] z) { y = Relu(x)  z = Neg(x) }")
    assert run(["rules", "pair", left, right, "--soundness", "exact"]) == 7
    assert "the sides have 1 and 2 outputs" in capsys.readouterr().err


def test_an_interrupt_keeps_the_evidence_of_rules_that_were_not_proved_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = standard().rules[:3]
    shutil.copy(standard_folder() / evidence.FILE, tmp_path / evidence.FILE)
    monkeypatch.setattr("graphopt.rewrite.ruleset.standard", lambda: Ruleset((first, second, third)))
    monkeypatch.setattr("graphopt.rewrite.ruleset.standard_folder", lambda: tmp_path)
    known = evidence.read(tmp_path / evidence.FILE)

    def found(rule: Rule, *_: object) -> prove.ProofResult:
        if rule is second:
            raise KeyboardInterrupt
        return prove.ProofResult(rule, known[evidence.key(rule)])

    monkeypatch.setattr(prove, "find_evidence", found)
    assert run(["rules", "prove", "--update", "--no-cache", "-q"]) == 130
    assert set(evidence.read(tmp_path / evidence.FILE)) == {evidence.key(r) for r in (first, second, third)}


def python_rules(path: Path) -> Path:
    path.write_text(
        "from graphopt import ops, rule\n\n\n@rule(family='A22', exact=True)\ndef twice_relu(x):\n"
        "    'A second Relu is needless.'\n    return ops.Relu(ops.Relu(x)).becomes(ops.Relu(x))\n"
    )
    return path


def test_rules_in_python_go_wherever_files_of_rules_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = save(tmp_path / "m.onnx", "=> (float[n,3] y) { a = Relu(x)  y = Relu(a) }")
    python_rules(tmp_path / "mine.py")
    (tmp_path / "deep").mkdir()
    python_rules(tmp_path / "deep" / "rules.py").with_name("__init__.py").write_text("")
    for given in ("mine.py", "deep.rules"):
        where = "mine.py:4" if given == "mine.py" else "rules.py:4"
        assert run(["rules", "check", given, "--no-cache"]) == 0
        assert f"{where}: twice-relu ok" in capsys.readouterr().out
        assert run(["rules", "prove", given, "--no-cache"]) == 0
        assert f"{where}: twice-relu: exact, proved ieee" in capsys.readouterr().out
        assert run(["rules", "show", given]) == 0
        assert "twice-relu:  Relu(Relu(x))  =>  Relu(x)" in capsys.readouterr().out
        assert run(["rules", "try", given, model, "y"]) == 0
        assert "twice-relu: applies" in capsys.readouterr().out
        only = ["--rules", given, "--only", "twice-relu"]
        assert run(["optimize", model, "-o", "out.onnx", *only, "--explain"]) == 0
        assert "twice-relu [A22] at " in capsys.readouterr().out
        assert "twice-relu:  Relu(Relu(x))" in Path("out.journal.json").read_text()  # what replays needs no Python
        assert run(["explain", model, "--rule", "twice-relu", "--rules", given]) == 0
        assert "twice-relu: acts at 0 places" in capsys.readouterr().out
    check = f"{sys.executable} -c 'import onnx, sys; sys.exit(len(onnx.load(sys.argv[1]).graph.node) < 2)'"
    assert run(["bisect", model, "--check", check, "--rules", "mine.py"]) == 0
    assert "begins to fail with this rewrite" in capsys.readouterr().out


def test_rules_of_installed_packages_are_listed_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, text in (("acme_good", python_rules(tmp_path / "x.py").read_text()), ("acme_broken", "RULES = 1 / 0")):
        (tmp_path / f"{name}.py").write_text(text)
        (info := tmp_path / f"{name}-1.0.dist-info").mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[graphopt.rules]\n{name.removeprefix('acme_')} = {name}\n")
    assert run(["rules", "list"]) == 0
    printed = capsys.readouterr()
    (line,) = (line for line in printed.out.splitlines() if line.startswith("twice-relu"))
    assert "acme-good: acme_good.py:4" in line
    assert "acme_broken.py:1: ZeroDivisionError" in printed.err
    for name in ("good", "acme-good"):
        assert run(["rules", "check", name]) == 0
        assert "twice-relu ok" in capsys.readouterr().out
    model = save(tmp_path / "m.onnx", "=> (float[n,3] y) { a = Relu(x)  y = Relu(a) }")
    assert (
        run(["optimize", model, "-o", str(tmp_path / "out.onnx"), "--rules", "acme-good", "--only", "twice-relu"]) == 0
    )
    assert len(onnx.load(tmp_path / "out.onnx").graph.node) == 1
    assert run(["optimize", model, "-o", str(tmp_path / "out.onnx"), "--rules", "broken"]) == 7
    assert "acme_broken.py:1: ZeroDivisionError: division by zero" in capsys.readouterr().err


def test_rules_are_exported_to_pairs_of_functions_and_to_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = save(tmp_path / "m.onnx", "=> (float[n,3] y) { a = Relu(x)  y = Relu(a) }")
    python_rules(tmp_path / "mine.py")
    (tmp_path / "more.rules").write_text(
        "# a root [H4] reals\nroot:  Sqrt(Mul(x, x))  =>  x\n    where x.low >= 0\n"
        "# any op [H4] exact\nany:  f(Neg(Neg(x)))  =>  f(x)\n    where f in unary\n"
    )
    assert run(["rules", "export", "mine.py", "more.rules", "-o", "pairs.onnx"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "left out: any: f stands for any op",
        "root: only graphopt reads: where x.low >= 0",
        "2 rules written, 1 with guards in metadata; 1 left out",
    ]
    assert run(["rules", "check", "pairs.onnx"]) == 0
    assert "pairs.onnx: twice-relu ok" in capsys.readouterr().out
    assert run(["optimize", model, "-o", "out.onnx", "--rules", "pairs.onnx", "--only", "twice-relu", "-q"]) == 0
    assert len(onnx.load("out.onnx").graph.node) == 1
    assert run(["rules", "export", "pairs.onnx", "-o", "text.rules"]) == 0
    assert Ruleset.from_files(["text.rules"]) == Ruleset.from_files(["pairs.onnx"])
    assert run(["rules", "export", "more.rules", "-o", "text.txt"]) == 2
    assert run(["rules", "export", "pairs.onnx", "-o", "pairs.onnx"]) == 2
    assert run(["optimize", model, "-o", "out.onnx", "--rules", "m.onnx"]) == 7
    assert "m.onnx: holds no rules" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["check", "prove"])
def test_the_rules_are_not_overwritten_by_what_is_found(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.rules"
    file.write_text("# twice is once      [A22] exact\nmy-relu: Relu(Relu(x)) => Relu(x)\n")
    assert run(["rules", command, str(file), "--json", str(file)]) == 2
    assert "which is an input" in capsys.readouterr().err
    assert file.read_text().endswith("my-relu: Relu(Relu(x)) => Relu(x)\n")
