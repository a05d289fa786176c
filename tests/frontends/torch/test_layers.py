"""torch's own layers of transformers give what torch does, of a batch of one or more, by either door."""

from __future__ import annotations

from typing import Any

import pytest

import graphopt
from graphopt.ir.evaluate import run
from tests.frontends.torch.compiled import backend, close, torch

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
