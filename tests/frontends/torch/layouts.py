"""What layers and operators of torch give through graphs, for sizes of a batch and layouts in memory."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnxruntime
import pytest

import graphopt
from graphopt.ir.onnx_io import to_proto
from graphopt.ir.tolerance import error

torch: Any = pytest.importorskip("torch")

LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda x: x.mT.contiguous().mT if x.ndim > 1 else x,
    "channels last": lambda x: x.movedim(1, -1).contiguous().movedim(-1, 1) if x.ndim > 2 else x,
}
"""The same elements, elsewhere in memory."""


def check(module: Any, inputs: tuple[Any, ...], *others: tuple[Any, ...]) -> list[tuple[str, str]]:
    """Hold a module as a compiled program, and as an optimized graph in ONNX Runtime, to torch itself.

    ``others`` are further inputs, for which the first axis of each is open if torch leaves it so. Gives the nodes that
    the program leaves to the reference evaluator: op and reason.
    """
    open_axes = tuple({0: torch.export.Dim.AUTO} if x.ndim else {} for x in inputs) if others else None
    graph = graphopt.from_torch(module, inputs, dynamic_shapes=_by_argument(module, open_axes))
    takes_any = all(graph.types[v].shape[0] != x.shape[0] for v, x in zip(graph.inputs, inputs, strict=True) if x.ndim)
    compiled = graphopt.compile(graph, verify=False)
    optimized = to_proto(graphopt.optimize(graph, verify=False))
    session = onnxruntime.InferenceSession(optimized.SerializeToString())
    names = [graph.names[v] for v in graph.inputs]
    for given in (inputs, *(others if takes_any else ())):
        wanted = list(_results(module, given))
        compare("compile", compiled(*given).values(), wanted)
        feeds = {name: x.contiguous().numpy() for name, x in zip(names, given, strict=True)}
        compare("optimize", session.run(None, feeds), wanted)
    return [(op, why) for _, op, why, _ in compiled.report.unlowered]


def is_taken(module: Any, inputs: tuple[Any, ...]) -> bool:
    """Whether torch itself takes the inputs."""
    try:
        module(*inputs)
    except (RuntimeError, ValueError, IndexError):
        return False
    return True


def _by_argument(module: Any, axes: Any) -> Any:
    if axes is None:
        return None
    parameters = inspect.signature(module.forward).parameters.values()
    return axes if not any(p.kind is p.VAR_POSITIONAL for p in parameters) else (axes,)


def _results(module: Any, inputs: tuple[Any, ...]) -> Iterator[Any]:
    with torch.no_grad():
        for result in torch.utils._pytree.tree_leaves(module(*inputs)):
            if result is not None:
                yield result.numpy()


def compare(door: str, found: Any, wanted: list[Any]) -> None:
    """Hold what a door gives to what torch does."""
    found = list(found)
    assert len(found) == len(wanted), door
    for k, (got, want) in enumerate(zip(found, wanted, strict=True)):
        got, want = np.asarray(got), np.asarray(want)
        kinds = f"{got.dtype}{got.shape} for {want.dtype}{want.shape}"
        assert error(want, got) <= 1, f"{door}: result {k}, {kinds}, is wrong by {error(want, got):.3g} tolerances"
