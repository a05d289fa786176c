"""Backend of torch.compile: torch cuts programs into graphs, and those for inference are compiled here. torch finds it
as an entry point.

torch itself traces, guards, specializes sizes and undoes in-place operations and views (AOTAutograd); what needs
gradients, or is not on the processor, runs in torch as it would without torch.compile.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func

import graphopt
from graphopt.errors import UsageError
from graphopt.frontends.torch.operators import STANDARD
from graphopt.frontends.torch.region import BackendSettings, LeftToTorchWarning, TorchRegion
from graphopt.frontends.torch.table import Table
from graphopt.frontends.torch.translation import decompositions

_NOT_FOR_GRAPHS = {"model", "shapes", "dims", "pipeline", "schedules", "listener"}
"""What ``graphopt.compile`` takes that a graph of torch's has no names for."""


def backend(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """What runs a graph that torch.compile cut out: ``torch.compile(model, backend="graphopt", options={...})``.

    Options are those of ``graphopt.compile``, and a ``table`` of entries for what graphopt does not know; ``threads``
    are torch's own where they are not given, and programs are kept. Raises UsageError for others.
    """
    settings = _settings(options or {}, mode)
    tensors = [x for x in [*inputs, *module.parameters(), *module.buffers()] if isinstance(x, torch.Tensor)]
    why = _reason_to_leave(tensors)
    if why:
        warnings.warn(f"torch runs this graph itself: {why}", LeftToTorchWarning, stacklevel=2)
        return module.forward  # type: ignore[no-any-return]
    settings.weights.update(_weights(module, inputs))

    def compiled(graph: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        return make_boxed_func(TorchRegion(graph, settings))  # type: ignore[no-any-return]

    prepare = aot_autograd(
        fw_compiler=_left, inference_compiler=compiled, decompositions=decompositions(settings.table)
    )
    return prepare(module, inputs)  # type: ignore[no-any-return]


def _left(graph: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
    return make_boxed_func(graph.forward)  # type: ignore[no-any-return]


def _settings(options: Mapping[str, Any], mode: str | None) -> BackendSettings:
    if mode is not None:
        raise UsageError(f"the backend graphopt has no modes, and mode={mode!r} is given: use options={{...}}")
    names = [name for name in inspect.signature(graphopt.compile).parameters if name not in _NOT_FOR_GRAPHS]
    unknown = sorted(set(options) - {*names, "table"})
    if unknown:
        raise UsageError(f"the backend graphopt has no option {unknown[0]!r}: there are {', '.join([*names, 'table'])}")
    chosen = {"threads": torch.get_num_threads(), **options}
    table = chosen.pop("table", Table())
    if not isinstance(table, Mapping):
        raise UsageError(f"the option table is a graphopt.frontends.torch.Table, not {type(table).__name__}")
    return BackendSettings(STANDARD | table, chosen)


def _reason_to_leave(tensors: Sequence[torch.Tensor]) -> str:
    """Why torch has to run a graph of these tensors; "" where it has not."""
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return "it may need gradients; for inference, call the model within torch.no_grad() or torch.inference_mode()"
    devices = sorted({t.device.type for t in tensors} - {"cpu"})
    if devices:
        return f"its tensors are on {', '.join(devices)}, and this backend takes those of the processor"
    return "" if all(t.layout is torch.strided for t in tensors) else "its tensors are sparse"


def _weights(module: fx.GraphModule, inputs: Sequence[Any]) -> dict[int, tuple[str, torch.Tensor]]:
    """The parameters and buffers of the user's modules by their ids, with their dotted names."""
    weights: dict[int, tuple[str, torch.Tensor]] = {}
    for name, held in [*module.named_parameters(), *module.named_buffers()]:
        weights[id(held)] = name, held
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    for node, given in zip(placeholders, inputs, strict=False):
        is_held = isinstance(given, torch.nn.Parameter) or hasattr(given, "_dynamo_static_input_type")
        if isinstance(given, torch.Tensor) and is_held:
            weights[id(given)] = _dotted(node), given
    return weights


def _dotted(node: fx.Node) -> str:
    """The user's name of what a placeholder stands for, as in ``layer.0.weight``."""
    source: Any = getattr(node, "_dynamo_source", None)
    name = "" if source is None else source.name if isinstance(source.name, str) else source.name()
    parts = re.findall(r"\['([^']+)'\]|\.([A-Za-z]\w*)", name)
    dotted = [a or b for a, b in parts]
    return ".".join(dotted[1:]) or node.name
