from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphopt.errors import ReadError, UsageError, VerificationError
from graphopt.ir import onnx_io
from graphopt.ir.text import parse
from graphopt.rewrite.egraph.saturate import SaturationBudget
from graphopt.tools.batch import BatchOutcome
from graphopt.tools.recipe import Metric, Recipe, Requirements, check, read_recipe, value_of

RELU = "x: float32[2, 3]\ny = Relu(x)\nreturn y"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "nets" / "inner").mkdir(parents=True)
    for name in ("a", "inner/b"):
        onnx_io.save(parse(RELU), tmp_path / "nets" / f"{name}.onnx")
    onnx_io.save(parse(RELU.replace("Relu", "Abs")), tmp_path / "abs.onnx")
    (tmp_path / "data").mkdir()
    for number in range(2):
        np.savez(tmp_path / "data" / f"{number}.npz", x=np.full((2, 3), 1.0 - 2 * number, np.float32))
    (tmp_path / "mine.rules").write_text("# a reason [H4] reals\nmine:  Relu(Relu(x))  =>  Relu(x)\n")
    return tmp_path


def read(folder: Path, text: str) -> Recipe:
    (folder / "graphopt.toml").write_text(text)
    return read_recipe(folder / "graphopt.toml")


def test_a_recipe_names_models_targets_options_and_checks(folder: Path) -> None:
    recipe = read(
        folder,
        """
        targets = ["ort", "portable"]
        [options]
        policy = "exact"
        growth = 5
        rules = ["mine.rules"]
        budget = { nodes = 100, seconds = 1.5 }
        [checks]
        max-growth = 10
        min-speedup = 1.5
        rtol = 1e-3
        [[models]]
        model = "nets"
        inputs = "data"
        [[models]]
        model = "abs.onnx"
        targets = ["ort"]
        options = { policy = "finite", on-mismatch = "refuse" }
        checks = { min-speedup = 1 }
        inputs = { x = "0..1" }
        """,
    )
    assert [job.name for job in recipe.jobs] == [
        "a.onnx for ort",
        "inner/b.onnx for ort",
        "a.onnx for portable",
        "inner/b.onnx for portable",
        "abs.onnx for ort",
    ]
    first, last = recipe.jobs[0], recipe.jobs[-1]
    assert first.output == folder / "optimized" / "ort" / "a.onnx"
    assert (first.journal, first.certificate) == (True, True)
    rules, budget = first.options["rules"], first.options["budget"]
    assert "mine" in {rule.name for rule in rules.rules}
    assert budget == SaturationBudget(nodes=100, seconds=1.5)
    assert (first.options["policy"], first.options["growth"], first.options["target"]) == ("exact", 0.05, "ort")
    assert (first.options["rtol"], "atol" in first.options) == (1e-3, False)
    assert first.options["inputs"]["x"][0, 0] == 1
    assert recipe.requirements[first.name] == Requirements(folder / "data", 10, 1.5)
    assert (last.options["policy"], last.options["on_mismatch"]) == ("finite", "refuse")
    assert last.options["inputs"] == {"x": "0..1"}
    assert recipe.requirements[last.name] == Requirements(None, 10, 1)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "models: expected tables"),
        ("x = \n", "is no TOML: .*line 1"),
        ("[[models]]\nmodel = 'nets'\n[option]", "option: expected a known key; did you mean options"),
        ("[[models]]\nmodel = 'nets'\n[models.options]\npolicies = 'exact'", r"models\[0\].options.policies: .*policy"),
        ("[[models]]\nmodel = 'nets'\noptions.opset = true", "options.opset: expected a whole number, not True"),
        ("[[models]]\nmodel = 'nets'\noptions.growth = 'much'", "options.growth: expected a number, not 'much'"),
        ("[[models]]\nmodel = 'nets'\noptions.rules = ['no.rules']", "options.rules: .*no.rules: cannot be read"),
        ("[[models]]\nmodel = 'nets'\nchecks.min-speedup = -1", "checks.min-speedup: expected a number of at least 0"),
        ("[[models]]\nmodel = 'nets'\nmetric.function = 'f'", "metric.function: expected MODULE:FUNCTION"),
        ("[[models]]\nmodel = 'nets'\nmetric = {function = 'm:f', data = 'no'}", "metric.data: expected a file"),
        ("[[models]]\nmodel = 'nets'\ninputs = 'nets'", "inputs: .*nets: holds no arrays"),
        ("[[models]]\nmodel = 'nets'\n[[models]]\nmodel = 'nets/a.onnx'", "a.onnx is there before"),
        ("[[models]]\ntargets = ['ort']", r"models\[0\].model: expected a file"),
        ("targets = 'ort'\n[[models]]\nmodel = 'nets'", "targets: expected a list of texts, not 'ort'"),
    ],
)
def test_all_that_is_wrong_is_told_with_its_key(folder: Path, text: str, told: str) -> None:
    with pytest.raises(ReadError, match=told) as error:
        read(folder, text)
    assert str(folder / "graphopt.toml") in str(error.value)


def test_models_and_targets_have_to_be_there(folder: Path) -> None:
    for text, told in (("model = 'no/*.onnx'", "no models in"), ("model = 'nets'\ntargets = ['toaster']", "toaster")):
        with pytest.raises(UsageError, match=rf"graphopt\.toml: .*{told}"):
            read(folder, f"[[models]]\n{text}")
    with pytest.raises(ReadError, match="cannot be read as a recipe: No such file"):
        read_recipe(folder / "absent.toml")


DONE = BatchOutcome(
    "a.onnx", bytes_before=100, bytes_after=120, cost_before=2.0, cost_after=1.0, verification="verified"
)


@pytest.mark.parametrize(
    ("needs", "more", "code", "told"),
    [
        (Requirements(max_growth=20), {}, 0, ""),
        (Requirements(max_growth=19), {}, 5, "larger by 20.0 %, and at most 19 % are allowed"),
        (Requirements(min_speedup=2), {}, 0, ""),
        (Requirements(min_speedup=2.5), {}, 9, "2.00x as fast, modelled, and 2.5x are asked"),
        (Requirements(min_speedup=2), {"measured": 1.25}, 9, "1.25x as fast, measured, and 2x are asked"),
        (Requirements(max_growth=0, min_speedup=3), {}, 5, "; 2.00x"),
    ],
)
def test_size_and_speed(folder: Path, needs: Requirements, more: dict[str, Any], code: int, told: str) -> None:
    (job, *_) = read(folder, "[[models]]\nmodel = 'nets'").jobs
    outcome = check(job, replace(DONE, **more), needs)
    assert outcome.exit_code == code
    assert told in outcome.error


def test_tolerances_hold_on_samples_too(folder: Path) -> None:
    text = "[[models]]\nmodel = 'abs.onnx'\ninputs = 'data'\nchecks = { atol = 1e-5 }"
    recipe = read(folder, text)
    (job,) = recipe.jobs
    job.output.parent.mkdir()
    onnx_io.save(parse("x: float32[2, 3]\nz = Abs(x)\ny = Mul(z, 1.0000001)\nreturn y"), job.output)
    assert recipe.check(job, DONE).exit_code == 0
    outcome = recipe.check(replace(job, options={**job.options, "atol": 1e-9}), DONE)
    assert outcome.exit_code == 6
    assert "atol 1e-09" in outcome.error


def test_results_agree_on_every_sample(folder: Path) -> None:
    (job,) = read(folder, "[[models]]\nmodel = 'nets/a.onnx'\ninputs = 'data'").jobs
    job.output.parent.mkdir()
    job.output.write_bytes((folder / "abs.onnx").read_bytes())  # which is right where numbers are positive
    outcome = check(job, DONE, Requirements(folder / "data"))
    assert outcome.exit_code == 6
    assert outcome.error.startswith("on 1.npz: the result is wrong")
    job.output.write_bytes(job.model.read_bytes())
    assert check(job, DONE, Requirements(folder / "data")) == DONE


SCORES = """
def mean(run, data):
    import numpy as np
    return np.mean([run({"x": np.load(file)["x"]})["y"].mean() for file in sorted(data.glob("*.npz"))])

def wrong(run, data):
    return "good"

def failing(run, data):
    return 1 / 0
"""


def test_a_metric_may_fall_by_so_much(folder: Path) -> None:
    (folder / "metrics_of_test.py").write_text(SCORES)
    text = "metric = {function = 'metrics_of_test:mean', data = 'data', max-loss = 0.25}"
    recipe = read(folder, f"[[models]]\nmodel = 'abs.onnx'\n{text}")
    (job,) = recipe.jobs
    job.output.parent.mkdir()
    job.output.write_bytes((folder / "nets" / "a.onnx").read_bytes())
    outcome = recipe.check(job, DONE)
    assert (outcome.exit_code, outcome.metric_before, outcome.metric_after) == (6, 1.0, 0.5)
    assert outcome.error == "metrics_of_test:mean falls from 1 to 0.5"
    metric = recipe.requirements[job.name].metric
    assert metric is not None
    assert check(job, DONE, Requirements(metric=replace(metric, max_loss=0.5))).exit_code == 0
    before = recipe.rests_on()
    (folder / "metrics_of_test.py").write_text(f"{SCORES}# changed\n")
    assert recipe.rests_on() != before


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("metrics_of_test2:wrong", "expected a number, found 'good'"),
        ("metrics_of_test2:failing", r"metrics_of_test2\.py:10: ZeroDivisionError: division by zero"),
        ("metrics_of_test2:absent", "AttributeError"),
        ("no_such_metrics:f", "ModuleNotFoundError: No module named 'no_such_metrics'"),
    ],
)
def test_a_metric_that_fails_is_one_line(folder: Path, function: str, told: str) -> None:
    (folder / "metrics_of_test2.py").write_text(SCORES)
    with pytest.raises(VerificationError, match=told):
        value_of(Metric(function, None, 0.0, folder), folder / "abs.onnx")
