"""``graphopt serve`` as a user starts it: it says where it is, answers there, and ends with Ctrl-C."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from graphopt.cli import run


@pytest.mark.parametrize(("host", "options"), [("127.0.0.1", []), ("0.0.0.0", []), ("127.0.0.1", ["--allow-code"])])
def test_it_serves_until_ctrl_c(tmp_path: Path, host: str, options: list[str]) -> None:
    pytest.importorskip("uvicorn")
    (tmp_path / "a.onnx").write_bytes(b"model")
    environment = {"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "graphopt", "serve", str(tmp_path), "--host", host, "--port", "0", *options]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        told = server.stdout.readline()
        found = re.match(rf"http://{re.escape(host)}(:\d+/) shows ", told)
        assert found, told
        with urllib.request.urlopen(f"http://127.0.0.1{found[1]}api/files") as answer:
            assert b"a.onnx" in answer.read()
        server.send_signal(signal.SIGINT)
        assert server.wait(20) == 0
        said = server.stderr.read()
        assert ("no password" in said) is (host == "0.0.0.0")
        assert ("--allow-code" in said) is bool(options)
    assert [p.name for p in tmp_path.iterdir()] == ["a.onnx"]


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("uvicorn")
    assert run(["serve", str(tmp_path / "none")]) == 2
    assert "is no folder" in capsys.readouterr().err
    assert run(["serve", str(tmp_path), "--host", "203.0.113.1", "--port", "0"]) == 2
    assert "cannot listen there" in capsys.readouterr().err
    (tmp_path / "mine.toml").write_text('device = "tpu"\n[prices]\nlike = "ort"\nsource = "assumed"\n')
    assert run(["serve", str(tmp_path), "--port", "0", "--target", str(tmp_path / "mine.toml")]) == 3
    assert "mine.toml: device: expected" in capsys.readouterr().err
    (tmp_path / "mine.toml").write_text('[ops]\nlike = "cpu"\n[prices]\nlike = "cpu"\nsource = "assumed"\n')
    assert run(["serve", str(tmp_path), "--port", "0", "--target", str(tmp_path / "mine.toml")]) == 2
    assert "makes programs, no ONNX models" in capsys.readouterr().err


def test_without_its_packages_they_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert run(["serve", str(tmp_path)]) == 8
    assert "graphopt[serve]" in capsys.readouterr().err


def test_nothing_is_imported_from_the_folder_in_which_it_is_started(tmp_path: Path) -> None:
    """Where someone else's files lie: a module there is not taken for one of ours or of Python's."""
    pytest.importorskip("uvicorn")
    for name in ("graphopt", "signal", "socket", "json", "numpy", "onnx"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'a').write({name!r})\n")
    as_installed = "import sys; sys.path.remove(''); from graphopt.cli import main; main()"  # as the script does
    command = [sys.executable, "-c", as_installed, "serve", ".", "--port", "0"]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=tmp_path) as server:
        assert server.stdout is not None
        address = server.stdout.readline().split()[0]
        body = b'{"rules": "# r  [A22] exact\\nr: Relu(Relu(x)) => Relu(x)", "language": "rules"}'
        headers = {"content-type": "application/json"}
        asked = urllib.request.Request(f"{address}api/check", data=body, headers=headers)
        with urllib.request.urlopen(asked, timeout=120) as answer:
            assert b'"right"' in answer.read()
        server.send_signal(signal.SIGINT)
    assert not (tmp_path / "imported").exists(), (tmp_path / "imported").read_text()
