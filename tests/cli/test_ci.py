import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from graphopt.cli import run
from graphopt.ir import onnx_io
from graphopt.ir.text import parse

TWICE = "x: float32[2, 3]\nt = Transpose(x)\nu = Transpose(t)\ny = Relu(u)\nreturn y"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets").mkdir()
    for name in ("a", "b"):
        onnx_io.save(parse(TWICE), tmp_path / "nets" / f"{name}.onnx")
    np.savez(tmp_path / "x.npz", x=np.ones((2, 3), np.float32))
    (tmp_path / "graphopt.toml").write_text(
        "output = 'out'\n[checks]\nmin-speedup = 1.5\n[[models]]\nmodel = 'nets'\ninputs = 'x.npz'\n"
    )
    return tmp_path


def test_a_recipe_is_run_resumed_and_told(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "nets" / "bad.onnx").write_bytes(b"garbage")
    assert run(["ci", "--junit", "j.xml", "--json", "s.json"]) == 3
    out, err = capsys.readouterr()
    assert "3 models, 1 failed" in out
    assert "graphopt: bad.onnx: " in err
    suite = ElementTree.parse("j.xml").getroot()
    assert (suite.get("name"), suite.get("tests"), suite.get("failures"), suite.get("errors")) == (
        "graphopt",
        "3",
        "1",
        "0",
    )
    assert [case.get("name") for case in suite.findall("testcase") if case.find("failure") is not None] == ["bad.onnx"]
    assert {"a.onnx", "a.journal.json", "a.certificate.json"} <= {file.name for file in (place / "out").iterdir()}
    assert run(["certify", "nets/a.onnx", "out/a.onnx", "out/a.certificate.json"]) == 0
    (place / "nets" / "bad.onnx").unlink()
    onnx_io.save(parse(TWICE.replace("Relu", "Abs")), place / "nets" / "b.onnx")
    capsys.readouterr()
    assert run(["ci", "--json", "s.json"]) == 0
    assert [(m["model"], m["is_kept"]) for m in json.loads((place / "s.json").read_text())["models"]] == [
        ("a.onnx", True),
        ("b.onnx", False),
    ]
    assert run(["ci", "--fresh", "-q", "--json", "s.json"]) == 0
    assert not any(m["is_kept"] for m in json.loads((place / "s.json").read_text())["models"])


def test_what_does_not_hold_fails_though_the_result_was_kept(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = place / "graphopt.toml"
    assert run(["ci"]) == 0
    recipe.write_text(recipe.read_text().replace("1.5", "50"))
    assert run(["ci", "graphopt.toml", "--junit", "j.xml"]) == 9
    assert "as fast, modelled, and 50x are asked" in capsys.readouterr().err
    failure = ElementTree.parse("j.xml").getroot().find("testcase/failure")
    assert failure is not None
    assert (failure.tag, failure.get("type")) == ("failure", "exit code 9")


def test_the_mean_is_that_of_what_was_measured(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    recipe = place / "graphopt.toml"
    recipe.write_text(
        recipe.read_text().replace("[checks]\nmin-speedup = 1.5", "[options]\nmeasure = 0.2\nmargin = 50")
    )
    assert run(["ci", "--junit", "j.xml"]) == 0
    assert re.search(
        r"^2 models, 0 failed; measured [\d.]+x in the geometric mean$", capsys.readouterr().out, re.MULTILINE
    )
    names = [found.get("name") for found in ElementTree.parse("j.xml").getroot().iter("property")]
    assert names == ["measured speedup"] * 3


def test_what_makes_no_sense_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ci", "absent.toml"]) == 3
    assert run(["ci", "--junit", "graphopt.toml"]) == 2
    assert run(["ci", "--junit", "nets/a.onnx"]) == 2
    (place / "graphopt.toml").write_text("[[models]]\nmodl = 'nets'\n")
    capsys.readouterr()
    assert run(["ci"]) == 3
    assert "models[0].modl: expected a known key; did you mean model" in capsys.readouterr().err


def test_a_recipe_is_done_by_a_cluster_and_checked_here(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    distributed = pytest.importorskip("distributed")
    (place / "scores_of_test.py").write_text(
        "def least(run, data):\n    import numpy as np\n    return min(run(np.load(data))['y'].min(), 9)\n"
    )
    recipe = place / "graphopt.toml"
    recipe.write_text(recipe.read_text() + "metric = { function = 'scores_of_test:least', data = 'x.npz' }\n")
    with distributed.LocalCluster(1, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster:
        address = cluster.scheduler_address.removeprefix("tcp://")
        assert run(["ci", "--executor", f"dask://{address}"]) == 0
    assert capsys.readouterr().out.count("1 -> 1") == 2
    assert (place / "out" / "b.certificate.json").is_file()
