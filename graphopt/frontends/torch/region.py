"""Region of ATen calls that runs compiled; calls in it without a translation stay with torch. Apart from ``backend`` by
size."""

from __future__ import annotations

import operator
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

import graphopt
from graphopt.compile import CompiledModel, ReferenceWarning
from graphopt.errors import GraphoptError, TranslationError, UsageError
from graphopt.frontends.torch.table import Table
from graphopt.frontends.torch.tensors import array_of, dtype_name, tensor_of
from graphopt.frontends.torch.translation import Translation, label_of, shape_of
from graphopt.frozen import dataclass
from graphopt.ir.graph import Value
from graphopt.lowering.module.builder import GraphBuilder

CHANGES = 2
"""How often a weight may have changed between calls and be taken for a constant all the same."""


@dataclass(frozen=True)
class BackendSettings:
    """How the graphs of one call of torch.compile are compiled."""

    table: Table
    options: dict[str, Any]
    """Those of ``graphopt.compile``."""
    weights: dict[int, tuple[str, torch.Tensor]] = field(default_factory=dict)
    """Parameters and buffers by their ids, with their names: constants, as long as nobody changes them."""


class LeftToTorchWarning(UserWarning):
    """A graph that torch runs itself."""


@dataclass(frozen=True)
class _Ready:
    """What runs a region, and of each weight that is a constant in it: its place among the arguments, its version and
    its address."""

    run: Callable[..., Any]
    held: tuple[tuple[int, int, int], ...] = ()

    def changed(self, arguments: Sequence[Any]) -> list[int]:
        """The places of the weights that have changed since."""
        return [
            position
            for position, version, address in self.held
            if arguments[position]._version != version or arguments[position].data_ptr() != address
        ]


class TorchRegion:
    """A function of tensors: compiled when it is first called, and again where a weight has changed since."""

    def __init__(self, module: fx.GraphModule, settings: BackendSettings) -> None:
        self._module, self._settings = module, settings
        self._lock = threading.Lock()
        self._changes: Counter[int] = Counter()
        """How often each weight has changed."""
        self._ready: _Ready | None = None

    def __call__(self, *arguments: Any) -> Any:
        """What the graph gives, as torch would."""
        ready = self._ready
        if ready is None or ready.changed(arguments):
            with self._lock:
                ready = self._ready
                changed = [] if ready is None else ready.changed(arguments)
                self._changes.update(changed)
                if ready is None or changed:
                    ready = self._ready = self._made(arguments)
        return ready.run(*arguments)

    def _made(self, arguments: Sequence[Any]) -> _Ready:
        """What runs the graph from now on."""
        nodes = [n for n in self._module.graph.nodes if n.op == "call_function"]
        foreign = {n for n in nodes if self._settings.table.find(n.target) is None}
        if not foreign:
            weights = self._weights(arguments)
            try:
                program = TorchProgram(self._module, self._settings, arguments, weights)
                foreign = program.left_over(nodes)
                if not foreign:
                    return _Ready(program, tuple((k, arguments[k]._version, arguments[k].data_ptr()) for k in weights))
            except GraphoptError as error:
                foreign = {n for n in nodes if n is getattr(error, "node", None)}
                if not foreign:
                    warnings.warn(f"torch runs this graph itself: {error}", LeftToTorchWarning, stacklevel=4)
        return _Ready(self._in_parts(foreign) if foreign else self._module.forward)  # parts see to weights themselves

    def _weights(self, arguments: Sequence[Any]) -> dict[int, str]:
        """The names of the weights that are to be constants, by their places among the arguments."""
        names = [self._settings.weights.get(id(given), ("", None))[0] for given in arguments]
        return {
            position: name
            for position, name in enumerate(names)
            if name and self._changes[position] <= CHANGES and not arguments[position].is_inference()
        }

    def _in_parts(self, foreign: Collection[fx.Node]) -> Callable[..., Any]:
        """The graph with everything but the foreign calls in regions of their own."""
        names = {n.name for n in foreign}
        graph = fx.Graph()
        graph.output(graph.graph_copy(self._module.graph, {}))
        twin = fx.GraphModule(self._module, graph)
        partitioner = CapabilityBasedPartitioner(twin, _Support(names), allows_single_node_partition=False)
        fused = partitioner.fuse_partitions(partitioner.propose_partitions())
        for name, part in list(fused.named_children()):
            if name.startswith("fused_") and isinstance(part, fx.GraphModule):
                setattr(fused, name, _RegionPart(TorchRegion(part, self._settings)))
        return fused.forward  # type: ignore[no-any-return]


class _Support(OperatorSupportBase):  # type: ignore[misc]
    def __init__(self, foreign: Collection[str]) -> None:
        self._foreign = foreign

    def is_node_supported(self, submodules: Any, node: fx.Node) -> bool:
        if node.op != "call_function":
            return False
        if node.target is operator.getitem:
            return self.is_node_supported(submodules, node.args[0])
        return node.name not in self._foreign


class _RegionPart(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, region: TorchRegion) -> None:
        super().__init__()
        self._region = region

    def forward(self, *arguments: Any) -> Any:
        return self._region(*arguments)


class TorchProgram:
    """A graph, translated and compiled, between torch's tensors on both sides."""

    def __init__(
        self, module: fx.GraphModule, settings: BackendSettings, arguments: Sequence[Any], weights: dict[int, str]
    ) -> None:
        builder = GraphBuilder("torch")
        translation = Translation(builder, settings.table)
        placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        self._fed: list[tuple[int, bool]] = []
        """The arguments that the program takes, and whether each is a tensor."""
        values = self._inputs(builder, translation, placeholders, arguments, weights)
        translated = translation.run(module, values)
        (tree,) = (n.args[0] for n in module.graph.nodes if n.op == "output")
        self._is_one = isinstance(tree, fx.Node)
        results = [translated] if self._is_one else list(translated)
        nodes = [tree] if self._is_one else list(tree)
        places = {n: k for k, n in enumerate(placeholders)}
        self._results: list[_Result] = []
        for k, (node, value) in enumerate(zip(nodes, results, strict=True)):
            if node in places:
                self._results.append(_Result(argument=places[node]))
            elif isinstance(value, Value):
                builder.output(f"output_{k}", value)
                self._results.append(_Result(f"output_{k}", *_form(node.meta["val"])))
            else:
                self._results.append(_Result(constant=value))
        self._compiled: CompiledModel | None = None
        if builder.graph.outputs:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ReferenceWarning)
                self._compiled = graphopt.compile(builder.build().graph(), **{"cache": True, **settings.options})

    def _inputs(
        self,
        builder: GraphBuilder,
        translation: Translation,
        placeholders: Sequence[fx.Node],
        arguments: Sequence[Any],
        weights: dict[int, str],
    ) -> list[Any]:
        """What stands for each argument: an input, a constant, a size of an input, or what is no tensor itself."""
        values: list[Any] = [None] * len(placeholders)
        sizes: dict[str, tuple[Value, int]] = {}
        for k, node in enumerate(placeholders):
            example = node.meta.get("val")
            if k in weights:
                values[k] = translation.writer.constant(arguments[k], weights[k])
            elif isinstance(example, torch.Tensor) and node.users:
                try:
                    dtype = dtype_name(example.dtype)
                except ValueError as error:
                    raise TranslationError(f"{node.name}: {error}", next(iter(node.users))) from None
                values[k] = builder.input(node.name, dtype, shape_of(example.shape, {}))
                self._fed.append((k, True))
                for axis, size in enumerate(example.shape):
                    if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                        sizes.setdefault(str(size.node.expr), (values[k], axis))
        for k, node in enumerate(placeholders):
            example = node.meta.get("val")
            if isinstance(example, torch.SymInt) and node.users:
                if str(example.node.expr) in sizes:
                    values[k] = translation.writer.size(*sizes[str(example.node.expr)])
                else:
                    values[k] = builder.input(node.name, "int64", ())
                    self._fed.append((k, False))
            elif not isinstance(example, torch.Tensor):
                values[k] = arguments[k] if values[k] is None else values[k]
        return values

    def left_over(self, nodes: Sequence[fx.Node]) -> set[fx.Node]:
        """The calls of which something is no kernel: torch runs them faster."""
        try:
            unlowered = () if self._compiled is None else self._compiled.report.unlowered
        except UsageError:  # what it becomes depends on the elements of inputs
            return set()
        slow = {node.name for node in unlowered}
        return {n for n in nodes if label_of(n) in slow}

    def __call__(self, *arguments: Any) -> Any:
        """The graph's results, in memory of their own."""
        outputs: dict[str, Any] = {}
        if self._compiled is not None:
            feeds = [
                array_of(arguments[k]) if tensor else np.asarray(arguments[k], np.int64) for k, tensor in self._fed
            ]
            outputs = self._compiled(feeds)
        results = [result.of(outputs, arguments) for result in self._results]
        return results[0] if self._is_one else results


@dataclass(frozen=True)
class _Result:
    """Where one result comes from, and in which order of its axes torch lays it out."""

    name: str = ""
    is_number: bool = False
    order: tuple[int, ...] | None = None
    argument: int | None = None
    constant: Any = None

    def of(self, outputs: dict[str, Any], arguments: Sequence[Any]) -> Any:
        if self.argument is not None:
            return arguments[self.argument]
        if not self.name:
            return self.constant
        if self.is_number:
            return outputs[self.name].item()
        tensor = tensor_of(outputs[self.name])
        if self.order is None:
            return tensor
        back = [self.order.index(axis) for axis in range(tensor.dim())]
        return tensor.permute(self.order).contiguous().permute(back)


def _form(example: Any) -> tuple[bool, tuple[int, ...] | None]:
    """Whether a result is a number, and the order of its axes in memory where it is not the usual one."""
    if not isinstance(example, torch.Tensor):
        return True, None
    sizes, strides = ([_hint(n) for n in numbers] for numbers in (example.shape, example.stride()))
    if any(n is None for n in (*sizes, *strides)) or 0 in sizes:
        return False, None
    wide = [k for k, n in enumerate(sizes) if n != 1]
    if sorted(wide, key=lambda k: -strides[k]) == wide:
        return False, None
    return False, tuple(sorted(range(len(sizes)), key=lambda k: -strides[k]))


def _hint(size: Any) -> Any:
    return size if isinstance(size, int) else size.node.hint
