"""What ``import graphopt`` offers."""

import subprocess
import sys

import pytest

import graphopt


def python(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout


def test_every_public_name_is_there() -> None:
    assert all(getattr(graphopt, name) is not None for name in graphopt.__all__)
    assert dir(graphopt) == sorted(set(graphopt.__all__))
    with pytest.raises(AttributeError, match="module 'graphopt' has no attribute 'nonsense'"):
        graphopt.nonsense  # noqa: B018


def test_public_modules_are_attributes() -> None:
    names = ("errors", "nn", "runtime", "schedule", "script", "tuning")
    assert set(names) <= set(dir(graphopt))
    assert python(f"import graphopt\nprint(*(getattr(graphopt, n).__name__ for n in {names}))").split() == [
        f"graphopt.{name}" for name in names
    ]


def test_importing_is_light() -> None:
    heavy = {"numpy", "onnx", "networkx", "egglog", "typer"}
    assert not heavy & set(python("import sys, graphopt; print(*sys.modules)").split())


@pytest.mark.parametrize("first", ["import graphopt.optimize", "from graphopt.optimize import optimize_graph", "pass"])
def test_optimize_is_the_function_whatever_was_imported_first(first: str) -> None:
    assert python(f"{first}\nimport graphopt\nprint(graphopt.optimize.__name__, callable(graphopt.optimize))") == (
        "optimize True\n"
    )
