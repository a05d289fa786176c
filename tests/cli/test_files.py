import gzip
import io
import os
import re
import subprocess
import sys
import tempfile
from base64 import b64decode
from importlib.util import find_spec
from pathlib import Path

import pytest

from graphopt.cli import run
from graphopt.cli.files import check_written, write_text
from graphopt.errors import ReadError, UsageError
from graphopt.ir import onnx_io
from graphopt.ir.text import parse


def test_new_and_old_files_may_be_written(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.write_text("old")
    check_written({"-o": old, "--json": tmp_path / "new"}, [tmp_path / "model"])
    check_written({"-o": old, "--json": None}, [])
    check_written({"-o": old, "--json": Path("-")}, [])


def test_what_is_no_place_for_a_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/null")
    for path, message in [
        (Path("/dev/null"), "cannot be replaced"),
        (tmp_path / "link", "cannot be replaced"),
        (tmp_path / "pipe", "cannot be replaced"),
        (tmp_path, "is a folder"),
        (tmp_path / "no" / "x", "does not exist"),
        (tmp_path / ("x" * 1000), "not a name for a file"),
    ]:
        with pytest.raises(UsageError, match=f"^-o .*{message}"):
            check_written({"-o": path}, [])


def test_no_input_and_no_other_output_is_overwritten(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.write_text("model")
    (tmp_path / "link").symlink_to(model)
    for path in (model, tmp_path / "link", tmp_path / "." / "model"):
        with pytest.raises(UsageError, match="which is an input"):
            check_written({"-o": path}, [tmp_path / "rules", model])
    with pytest.raises(UsageError, match=r"--json .* would overwrite .* which -o writes"):
        check_written({"-o": tmp_path / "new", "--json": tmp_path / "new"}, [model])
    with pytest.raises(UsageError, match="-o and --json both name stdout"):
        check_written({"-o": Path("-"), "--html": None, "--json": Path("-")}, [model])


def test_a_text_that_cannot_be_written_is_a_read_error(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="Is a directory"):
        write_text(tmp_path, "")


@pytest.mark.parametrize("words", ["extract --outputs y", "convert --to float16", "optimize", "reduce --cmd true"])
def test_a_folder_is_no_model_whose_name_a_result_could_have(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run([words.split()[0], ".", *words.split()[1:]]) in (2, 3)
    assert "internal error" not in capsys.readouterr().err


def test_a_model_comes_from_stdin_and_its_result_goes_to_stdout(tmp_path: Path) -> None:
    onnx_io.save(parse("x: float32[2]\ny = Relu(Relu(x))\nreturn y"), tmp_path / "m.onnx")
    program = "import sys; from graphopt.cli import main; main(sys.argv[1:])"

    def piped(*arguments: str, given: bytes) -> tuple[bytes, str]:
        command = [sys.executable, "-c", program, *arguments]
        done = subprocess.run(command, input=given, capture_output=True, check=True, cwd=tmp_path)
        return done.stdout, done.stderr.decode()

    model = (tmp_path / "m.onnx").read_bytes()
    result, told = piped("optimize", "-", "--verify", "off", given=model)
    assert [node.op for node in onnx_io.load(result).nodes()].count("Relu") == 1
    assert "modelled cost" in told
    converted, _ = piped("convert", "m.onnx", "--to", "fp16", "--samples", "0", "-o", "-", given=b"")
    assert b"float32" in piped("inspect", "-", given=converted)[0]
    part, _ = piped("extract", "-", "--inputs", "y", "--outputs", "y", given=result)
    assert part
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def test_stdout_takes_one_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx_io.save(parse("x: float32[2]\ny = Relu(x)\nreturn y"), tmp_path / "m.onnx")
    for words in ("optimize", "convert --to fp16", "extract --outputs y"):
        command, *options = words.split()
        assert run([command, str(tmp_path / "m.onnx"), *options, "-o", "-", "--json", "-"]) == 2
        assert "both name stdout" in capsys.readouterr().err


def test_terminals_give_and_take_no_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx_io.save(parse("x: float32[2]\ny = Relu(x)\nreturn y"), tmp_path / "m.onnx")
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    assert run(["inspect", "-"]) == 2
    assert "stdin, which is a terminal" in capsys.readouterr().err
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run(["optimize", str(tmp_path / "m.onnx"), "-o", "-", "--verify", "off"]) == 2
    assert "stdout is a terminal" in capsys.readouterr().err


FALSE = f"{sys.executable} -c 'import sys; sys.exit(1)'"
PAGES = pytest.mark.skipif(find_spec("fast_sugiyama") is None, reason="lays out no graphs")
FROM_STDIN = [
    pytest.param(
        ["optimize", "-", "-o", "o.onnx", "--certificate", "c.json", "--report", "p.html", "--json", "r.json"],
        0,
        marks=PAGES,
    ),
    (["optimize", "-", "--check", "--verify", "off"], 9),
    (["inspect", "-", "--json", "r.json"], 0),
    (["inspect", "-", "m.onnx"], 0),
    (["inspect", "-", "--layers", "--nodes"], 2),
    pytest.param(["diff", "-", "m.onnx", "--html", "p.html", "--json", "r.json"], 0, marks=PAGES),
    (["explain", "-", "nowhere"], 2),
    (["egraph", "-", "--html", "p.html", "--json", "r.json"], 0),
    (["bisect", "-", "--check", FALSE], 2),
    (["reduce", "-", "--check", FALSE, "-o", "o.onnx", "--json", "r.json"], 0),
    (["convert", "-", "--to", "fp16", "--samples", "0", "-o", "o.onnx"], 0),
    (["extract", "-", "--outputs", "nowhere", "-o", "o.onnx"], 2),
    (["run", "-", "--input", "x=random", "--json", "r.json"], 0),
    (["show", "-", "--json", "r.json"], 0),
    (["rules", "try", "relu-holds", "-", "nowhere"], 2),
]


@pytest.mark.parametrize(("words", "code"), FROM_STDIN)
def test_what_came_through_stdin_is_called_by_its_dash_everywhere(
    words: list[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx_io.save(parse("x: float32[2]\ny = Relu(Relu(x))\nreturn y"), "m.onnx")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path("m.onnx").read_bytes())))
    assert run(words) == code
    told = [*capsys.readouterr()]
    for file in tmp_path.iterdir():
        content = file.read_bytes()
        packed = re.search(rb'id="data">([^<]+)<', content)
        told += [content.decode(errors="replace"), gzip.decompress(b64decode(packed[1])).decode() if packed else ""]
    for text in told:
        assert "stdin" not in text
        assert tempfile.gettempdir() + "/graphopt" not in text


def test_a_page_goes_to_stdout_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("fast_sugiyama")
    monkeypatch.chdir(tmp_path)
    onnx_io.save(parse("x: float32[2]\ny = Relu(Relu(x))\nreturn y"), "m.onnx")
    fast = ["--verify", "off"]
    for words, printed in (
        (["optimize", "m.onnx", "--dry-run", "--report", "-", *fast], "modelled cost"),
        (["egraph", "m.onnx", "--html", "-"], "nothing to choose"),
        (["diff", "m.onnx", "m.onnx", "--html", "-", *fast], "structure   equal"),
    ):
        assert run(words) == 0
        out, err = capsys.readouterr()
        assert out.startswith("<!doctype html>")
        assert out.rstrip().endswith("</html>")
        assert printed in err
    assert run(["inspect", "m.onnx"]) == 0
    assert "Relu" in capsys.readouterr().out
    (tmp_path / "r.toml").write_text("[options]\nverify = 'off'\n[[models]]\nmodel = 'm.onnx'\n")
    assert run(["ci", "r.toml", "--junit", "-"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("<?xml")
    assert "1 model, 0 failed" in err


@pytest.mark.parametrize(
    "words",
    [
        "optimize m.onnx --journal -",
        "optimize m.onnx --certificate -",
        "run m.onnx -o -",
        "run m.onnx --trace -",
        "db export -o -",
    ],
)
def test_what_no_stdout_takes_is_refused(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx_io.save(parse("x: float32[2]\ny = Relu(x)\nreturn y"), "m.onnx")
    assert run(words.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("- is not possible: what it writes goes into a file; name one")
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]
