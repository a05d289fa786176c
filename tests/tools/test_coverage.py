"""Families that act on the corpus still do; ``python tests/corpus/covered.py`` writes the list anew."""

import json
from pathlib import Path

import pytest

from graphopt.cli import run
from graphopt.ir import onnx_io
from graphopt.ir.text import parse
from graphopt.tools.catalogue import catalogue
from graphopt.tools.coverage import CONVERSIONS, Coverage, Firing, cover, find_models, joined
from tests.corpus.covered import CORPUS, models, read, witnesses

COVERED = read()


@pytest.mark.parametrize("model", sorted({line[2] for line in COVERED}))
def test_what_acted_still_acts(model: str) -> None:
    lines = [line for line in COVERED if line[2] == model]
    found = cover([(model, CORPUS / model)], sorted({line[3] for line in lines} - CONVERSIONS.keys()))
    acted = {(f.family, f.target, f.policy) for f in found.firings}
    lost = [" ".join(line) for line in lines if (line[0], line[3], line[4]) not in acted]
    assert not found.failed
    assert not lost, "no longer rewritten (mend it, or run python tests/corpus/covered.py and say why it went)"


@pytest.mark.slow
def test_the_list_is_complete() -> None:
    found = cover(models())
    assert not found.failed
    assert set(found.on_models) == {line[0] for line in COVERED}


def test_the_list_names_families_once() -> None:
    named = [line[0] for line in COVERED]
    assert named == [id for id in catalogue() if id in named]


TEXT = """
x: float32[2, 3]
a = Ceil(x)
b = Ceil(a)
y = Add(b, 0.0)
return y
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "models" / "inner" / "m.onnx"
    path.parent.mkdir(parents=True)
    onnx_io.save(parse(TEXT), path)
    return path


def test_what_acts_is_found_with_rule_and_place(model: Path) -> None:
    found = cover([("m", model)], ["portable"])
    (firing,) = found.of("A22")
    assert (firing.model, firing.target, firing.policy, firing.count) == ("m", "portable", "reals", 1)
    assert firing.sites
    assert "A22" in found.on_models
    assert "K1" in found.missing
    assert "A20" in found.apart
    assert len(found.on_models) + len(found.on_suite) + len(found.apart) + len(found.missing) == 222


def test_a_model_that_fails_does_not_stop_the_others(tmp_path: Path, model: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    found = cover([("broken", broken), ("m", model)], ["portable"])
    assert list(found.failed) == ["broken"]
    assert "A22" in found.on_models


def test_the_suite_is_counted_apart() -> None:
    def firing(family: str, in_suite: bool) -> Firing:
        return Firing(family, "rule", "model", "portable", "reals", 1, ("y",), in_suite)

    found = joined([Coverage((firing("C1", False),)), Coverage((firing("C1", True), firing("D1", True)))])
    assert (found.on_models, found.on_suite) == (("C1",), ("D1",))
    assert [f.in_suite for f in found.of("C1")] == [False, True]


def test_few_runs_show_all_families() -> None:
    found = [
        Firing("C1", "r", "a", "portable", "reals", 1, ()),
        Firing("C1", "r", "b", "portable", "reals", 1, ()),
        Firing("D1", "r", "b", "portable", "reals", 1, ()),
    ]
    assert [(f.family, f.model) for f in witnesses(Coverage(tuple(found)))] == [("C1", "b"), ("D1", "b")]


def test_models_are_found_in_folders(tmp_path: Path, model: Path) -> None:
    assert find_models([tmp_path]) == [model]
    assert find_models([model]) == [model]


def test_the_command_lists_what_acted_and_what_is_missing(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["rules", "coverage", str(tmp_path), "--target", "portable"]) == 0
    out = capsys.readouterr().out
    assert "A22     idempotent ops" in out
    assert "not covered: B1 known shape" in out
    assert "of 222 families on models, 0 more on ONNX's tests alone" in out


def test_the_command_writes_json(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "coverage", str(model), "--target", "portable", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "A22" in found["on_models"]
    assert {f["family"] for f in found["firings"]} == set(found["on_models"])


def test_the_command_needs_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "coverage", str(tmp_path)]) == 2
    assert "name ONNX files or folders" in capsys.readouterr().err
