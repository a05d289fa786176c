import json
from pathlib import Path

import pytest

from graphopt.cli import run
from graphopt.ir import onnx_io
from graphopt.ir.text import parse

FAST = ["--verify", "off", "--no-journal"]


@pytest.fixture
def nets(tmp_path: Path) -> Path:
    folder = tmp_path / "nets"
    (folder / "inner").mkdir(parents=True)
    for name, text in (("a", "y = Relu(x)"), ("inner/b", "t = Transpose(x)\nu = Transpose(t)\ny = Relu(u)")):
        onnx_io.save(parse(f"x: float32[2, 3]\n{text}\nreturn y"), folder / f"{name}.onnx")
    return folder


def test_a_folder_gives_one_summary(nets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, summary = tmp_path / "out", tmp_path / "s.json"
    assert run(["optimize", str(nets), "-o", str(out), "--json", str(summary), "--target", "ort", *FAST]) == 0
    assert sorted(p.relative_to(out).as_posix() for p in out.rglob("*.*")) == ["a.onnx", "inner/b.onnx"]
    shown = capsys.readouterr().out
    assert "inner/b.onnx  3 -> 1" in shown
    assert "2 models, 0 failed" in shown
    content = json.loads(summary.read_text())
    assert [(m["model"], m["ops_after"]) for m in content["models"]] == [("a.onnx", 1), ("inner/b.onnx", 1)]
    assert (content["target"], content["exit_code"]) == ("ort", 0)


def test_journals_are_kept_beside_each(nets: Path, tmp_path: Path) -> None:
    assert run(["optimize", str(nets), "-o", str(tmp_path / "out"), "--verify", "off", "-q"]) == 0
    assert (tmp_path / "out" / "inner" / "b.journal.json").is_file()


def test_the_worst_exit_code_is_that_of_all(nets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (nets / "bad.onnx").write_bytes(b"garbage")
    assert run(["optimize", str(nets), "-o", str(tmp_path / "out"), "--json", "-", *FAST]) == 3
    out, err = capsys.readouterr()
    assert [m["exit_code"] for m in json.loads(out)["models"]] == [0, 3, 0]
    assert "graphopt: bad.onnx: " in err
    assert "3 models, 1 failed" in err
    assert (tmp_path / "out" / "inner" / "b.onnx").is_file()


def test_a_dry_run_writes_nothing(nets: Path, tmp_path: Path) -> None:
    assert run(["optimize", str(nets / "*.onnx"), "-o", str(tmp_path / "out"), "--dry-run", "-q", *FAST]) == 0
    assert not (tmp_path / "out").exists()


def test_one_model_can_be_compared_too(nets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, summary = str(nets / "inner" / "b.onnx"), tmp_path / "s.json"
    assert (
        run(["optimize", model, "-o", str(tmp_path / "b.onnx"), "--fail-if-slower", "0", "--json", str(summary), *FAST])
        == 0
    )
    earlier = json.loads(summary.read_text())
    again = ["optimize", model, "-o", str(tmp_path / "b.onnx"), "--baseline", str(summary), *FAST]
    assert run([*again, "--fail-if-slower", "5"]) == 0
    earlier["models"][0]["cost_after"] /= 2
    summary.write_text(json.dumps(earlier))
    capsys.readouterr()
    assert run([*again, "--fail-if-slower", "5"]) == 9
    out, err = capsys.readouterr()
    assert "+100.0 %" in out
    assert "graphopt: b.onnx: slower by 100.0 %" in err
    assert run(again) == 0
    assert run([*again, "--target", "ort"]) == 2


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["NETS"], "several models need -o"),
        (["NETS", "-o", "NETS"], "would overwrite an input"),
        (["NETS", "-o", "NETS/out", "--in-place"], "--in-place takes one model"),
        (["NETS", "-o", "NETS/out", "--explain"], "--explain takes one model"),
        (["NETS/a.onnx", "5", "--certificate", "NETS/c"], "a.onnx, 5\n"),  # the 5 was meant for the option before it
    ],
)
def test_what_makes_no_sense_is_refused(
    nets: Path, arguments: list[str], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["optimize", *(a.replace("NETS", str(nets)) for a in arguments)]) == 2
    assert what in capsys.readouterr().err


def test_a_check_finds_what_is_not_optimized(nets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    twin = tmp_path / "twin" / "b.onnx"
    twin.parent.mkdir()
    twin.write_bytes((nets / "inner" / "b.onnx").read_bytes())
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.onnx")}
    check = ["optimize", "--check", "--verify", "off"]
    assert run([*check, str(nets / "a.onnx"), str(nets / "inner" / "b.onnx"), str(twin)]) == 9
    out, err = capsys.readouterr()
    assert "3 models, 2 failed" in out
    assert f"graphopt: {twin}: is not optimized: it would be " in err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()} == before
    assert run(["optimize", str(twin), "--in-place", "--verify", "off", "-q"]) == 0
    assert run([*check, str(nets / "a.onnx"), str(twin)]) == 0
    assert run([*check, str(nets)]) == 9
    assert run([*check, str(nets), "--margin", "100"]) == 0
    for more in (["-o", str(tmp_path / "o")], ["--in-place"], ["--resume"], ["--executor", "dask://h:1"]):
        assert run([*check, str(twin), *more]) == 2


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--resume", "--dry-run"], "--resume and --dry-run exclude each other"),
        (["--executor", "dask://h:1", "--dry-run"], "--executor brings results"),
    ],
)
def test_what_excludes_each_other(
    arguments: list[str], what: str, nets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["optimize", str(nets), "-o", str(tmp_path / "out"), *arguments]) == 2
    assert what in capsys.readouterr().err


def test_one_model_cannot_be_resumed(nets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["optimize", str(nets / "a.onnx"), "-o", str(tmp_path / "o.onnx"), "--resume"]) == 2
    assert "--resume takes several models" in capsys.readouterr().err
