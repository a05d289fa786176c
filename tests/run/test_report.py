import json
import math
from pathlib import Path

import pytest

import graphopt
from graphopt.run.report import TRUSTED, AppliedRewrite, Exploration, Report, StepReport, modelled
from graphopt.verify.verification import Verification

REPORT = Report(
    "in.onnx",
    "portable",
    "reals",
    output="out.onnx",
    steps=(StepReport("infer", 0.5, 7), StepReport("explore", 1.25)),
    ops_before={"Relu": 2, "Add": 1},
    ops_after={"Relu": 1, "Add": 1},
    bytes_before=1000,
    bytes_after=900,
    cost_before=2e-3,
    cost_after=1e-3,
    exploration=Exploration(120, 80, 3, "saturated"),
    rewrites=(
        AppliedRewrite("relu-relu", "A22", "y", "Relu(Relu(x))", "Relu(x)"),
        AppliedRewrite("no-op", "C1", "z", "Add(x, 0.0)", "x"),
        AppliedRewrite("relu-relu", "A22", "w", "Relu(Relu(v))", "Relu(v)"),
    ),
    verification=Verification("verified", "", "ONNX Runtime", 1, 0.01, 0.3),
    warnings=("a warning",),
)


def test_json_holds_everything() -> None:
    found = json.loads(REPORT.to_json())
    assert found["schema"] == 1
    assert found["seconds"] == 1.75
    assert found["steps"][0] == {"name": "infer", "seconds": 0.5, "ops": 7}
    assert found["ops_after"] == {"Relu": 1, "Add": 1}
    assert found["exploration"]["stop"] == "saturated"
    assert found["rewrites"][1]["rule"] == "no-op"
    assert found["verification"]["status"] == "verified"


def test_json_of_an_empty_report() -> None:
    found = json.loads(Report("m", "ort", "exact").to_json())
    assert found["exploration"] is None
    assert found["rewrites"] == []
    assert found.keys() & {"derivation", "graphs"} == set()


def test_numbers_that_are_not_finite_are_null_in_json() -> None:
    text = Report("m", "ort", "exact", cost_before=math.inf, cost_after=math.nan).to_json()
    found = json.loads(text, parse_constant=pytest.fail)
    assert (found["cost_before"], found["cost_after"]) == (None, None)


def test_rules_are_counted_the_most_frequent_first() -> None:
    assert list(REPORT.by_rule().items()) == [("relu-relu", 2), ("no-op", 1)]


def test_modelled_gains_that_no_model_can_tell_are_no_numbers() -> None:
    assert [modelled(ratio) for ratio in (0.98, 2.0, 10.0, 41.3)] == ["0.98x", "2.00x", "10.00x", "over 10x"]
    script = Path(graphopt.__file__).parent / "web" / "static" / "overview.js"
    assert f"const TRUSTED = {TRUSTED:g};" in script.read_text(encoding="utf-8")
