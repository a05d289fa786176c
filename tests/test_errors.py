"""Errors that know only the node at fault name the model's file too, whoever reads it."""

from collections.abc import Callable
from pathlib import Path

import pytest

import graphopt
from graphopt.compile import linked_for
from graphopt.errors import InvalidModelError, LimitError, UsageError, naming, nearest, nearest_or_some
from graphopt.ir import onnx_io
from graphopt.ir.text import parse
from graphopt.run.settings import Settings


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A model that adds integers to floats."""
    onnx_io.save(parse("x: float32[3]\nw = int64[3]{1, 2, 3}\ny = Add(x, w)\nreturn y"), tmp_path / "mixed.onnx")
    return tmp_path / "mixed.onnx"


@pytest.mark.parametrize(
    "use",
    [
        lambda model: graphopt.optimize(model, output=model.with_name("out.onnx")),
        lambda model: graphopt.optimize(model=model, output=model.with_name("out.onnx")),
        lambda model: graphopt.compile(model, cache=False),
        lambda model: linked_for(model, Settings()),
    ],
)
def test_an_invalid_model_is_named(mixed: Path, use: Callable[[Path], object]) -> None:
    with pytest.raises(InvalidModelError, match=f"^{mixed}: node 'y': Add of float32.* and int64"):
        use(mixed)
    assert [file.name for file in mixed.parent.iterdir()] == ["mixed.onnx"]


@pytest.mark.parametrize("kind", [InvalidModelError, LimitError])
def test_names_are_said_once_and_of_files_only(kind: type[Exception]) -> None:
    for model, said in (("a.onnx", "a.onnx: node 'y'"), (b"model", "node 'y'"), (None, "node 'y'")):
        with pytest.raises(kind, match=f"^{said}$"), naming(model):
            raise kind("node 'y'")
    with pytest.raises(kind, match=r"^a\.onnx: empty$"), naming(Path("a.onnx")):
        raise kind("a.onnx: empty")
    with pytest.raises(UsageError, match=r"^no$"), naming("a.onnx"):
        raise UsageError("no")


def test_the_nearest_are_told_else_some_and_how_many() -> None:
    assert nearest("Rellu", ["Relu", "Selu", "Conv"]) == "; did you mean Relu or Selu?"
    assert nearest("xyz", ["Relu"]) == ""
    assert nearest_or_some("Rellu", ["Relu", "Conv"]) == "; did you mean Relu?"
    for known, said in ([], "there is none"), (["a"], "there is a"), (["b", "a"], "there are b, a"):
        assert nearest_or_some("xyz", known) == f"; {said}"
    assert nearest_or_some("xyz", map(str, range(300))) == "; there are 300: 0, 1, 2, 3, 4, 5, 6, 7, ..."
