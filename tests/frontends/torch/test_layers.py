"""Every layer of torch.nn gives what it does in torch, whatever the batch and the layout, by either door."""

from __future__ import annotations

from typing import Any

import pytest

import graphopt
import graphopt.errors
from graphopt.ir.evaluate import run
from tests.frontends.torch.compiled import backend, close, torch
from tests.frontends.torch.layers import FAILING, NEVER_EMPTY, ROWS, WITHOUT, Row
from tests.frontends.torch.layouts import LAYOUTS, check, is_taken

pytestmark = pytest.mark.usefixtures("programs")  # torch has compiled nothing when a test begins

SIZES = {"a batch of one": (1, 16, 64, 4), "a batch": (2, 3, 8, 2), "a word": (1, 1, 8, 2)}


def layer_of(kind: str, batch_first: bool, batch: int, words: int, width: int, heads: int) -> tuple[Any, tuple]:
    torch.manual_seed(0)
    layer: Any = getattr(torch.nn, f"Transformer{kind}Layer")(width, heads, 2 * width, batch_first=batch_first).eval()
    shapes = [(batch, words + k, width) if batch_first else (words + k, batch, width) for k in (0, 2)]
    return layer, tuple(torch.randn(shape) for shape in shapes[: 1 if kind == "Encoder" else 2])


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kind", ["Encoder", "Decoder"])
def test_layers_of_transformers(kind: str, batch_first: bool, sizes: tuple[int, int, int, int]) -> None:
    layer, inputs = layer_of(kind, batch_first, *sizes)
    graph = graphopt.from_torch(layer, inputs)
    names = {graph.names[v]: x.numpy() for v, x in zip(graph.inputs, inputs, strict=True)}
    (got,) = run(graphopt.optimize(graph), names).values()
    with torch.no_grad():
        assert close(torch.from_numpy(got), layer(*inputs))


@pytest.mark.parametrize("kind", ["Encoder", "Decoder"])
def test_compiled_layers_of_transformers(kind: str) -> None:
    layer, inputs = layer_of(kind, True, 1, 4, 8, 2)
    with torch.no_grad():
        assert close(torch.compile(layer, backend=backend)(*inputs), layer(*inputs))


def test_every_class_of_torch_has_a_row() -> None:
    classes = {name for name in dir(torch.nn) if _is_module(getattr(torch.nn, name))}
    assert classes == {row.layer for row in ROWS} | WITHOUT.keys()
    assert not {row.layer for row in ROWS} & WITHOUT.keys()


def _is_module(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, torch.nn.Module)


def ways(row: Row) -> list[str]:
    """How a row is exported: with an open batch, with one of 1, and with inputs that lie otherwise in memory."""
    apart = [name for name, laid in LAYOUTS.items() if any(laid(x).stride() != x.stride() for x in row.inputs(3))]
    return ["open", "one", *apart]


def case(row: Row, way: str) -> Any:
    fault = FAILING.get(row.layer) or FAILING.get(str(row))
    marks = [pytest.mark.xfail(strict=True, reason=fault)] if fault else []
    return pytest.param(row, way, id=f"{row}-{way}", marks=marks)


def check_row(row: Row, way: str) -> None:
    inputs = row.inputs(1 if way == "one" else 3)
    layer = row.build(row.inputs(3))
    if way == "open":
        others = [row.inputs(n) for n in (1, 5, 0) if n or not row.layer.endswith(tuple(NEVER_EMPTY))]
        check(layer, inputs, *(given for given in others if is_taken(layer, given)))
    else:
        check(layer, tuple(LAYOUTS[way](x) for x in inputs) if way in LAYOUTS else inputs)


@pytest.mark.slow
@pytest.mark.parametrize(("row", "way"), [case(row, way) for row in ROWS for way in ways(row)])
def test_layers(row: Row, way: str) -> None:
    check_row(row, way)


QUICK = ("AdaptiveMaxPool1d", "Bilinear", "CircularPad1d", "RReLU")


@pytest.mark.parametrize("layer", QUICK)
def test_a_layer_with_an_open_batch(layer: str) -> None:
    check_row(next(row for row in ROWS if row.layer == layer), "open")


def test_what_torch_cannot_decompose_is_refused() -> None:
    row = next(row for row in ROWS if row.layer == "CrossMapLRN2d")
    with pytest.raises(graphopt.errors.UsageError, match="torch cannot decompose CrossMapLRN2d"):
        graphopt.from_torch(row.build(row.inputs(3)), row.inputs(3))
