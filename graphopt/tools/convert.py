"""Conversion of a model to another floating-point dtype, except for ops that would lose too much precision.

Every op runs in the new dtype unless there is a reason against it: the op's definition does not take it,
it adds up long axes or works on indices, its numbers leave the dtype's range on sample inputs, or the user
says so. Between the two sides stand casts, one for each value and dtype; what only moves numbers stays on
the side that its operand is on.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import ml_dtypes
import numpy as np

from graphopt.errors import GraphoptError, UsageError, VerificationError, nearest
from graphopt.frozen import dataclass
from graphopt.ir import onnx_io, ops
from graphopt.ir.constants import Array
from graphopt.ir.dtypes import ALIASES, dtype_of
from graphopt.ir.facts import Fact
from graphopt.ir.functions import own_calls
from graphopt.ir.graph import CONSTANT, INPUT, Graph, Node, Value
from graphopt.ir.infer import infer
from graphopt.ir.op_table import ops_where
from graphopt.ir.types import TensorType
from graphopt.ir.work import excess, most_operations, most_seconds, sparse_bytes
from graphopt.rewrite.passes.functions import INLINE
from graphopt.rewrite.passes.precision import MOVING, SOURCES, DtypeConversion, moves
from graphopt.rewrite.passes.simplify import simplify
from graphopt.rewrite.rule.rule import Soundness
from graphopt.rewrite.ruleset import standard
from graphopt.run.steps import Steps
from graphopt.run.write_result import deliver
from graphopt.runtime.limits import memory_of
from graphopt.target import ops as names
from graphopt.verify.inputs import DISTRIBUTIONS, check_inputs, draw, given, ranges, sizes
from graphopt.verify.runtimes import EngineError, Feeds, open_model

if TYPE_CHECKING:
    from graphopt.progress import Listener
    from graphopt.verify.inputs import Given

WIDE = ops_where(is_wide=True)
"""Ops that half precision does not serve."""

INDICES = names("Range OneHot NonMaxSuppression Resize Upsample")
"""Ops whose float operands may be sizes and positions."""

LARGEST = {"float16": 32768.0, "bfloat16": 1e38}
"""The magnitude up to which numbers go to a dtype: well below its largest, since other inputs give other numbers."""
LEAST = {"float16": 1e-6}
"""Below this magnitude, numbers of a dtype have few bits left."""


@dataclass(frozen=True)
class OutputError:
    """How far an output is from the original's on the sample inputs."""

    name: str
    largest: float
    """The largest difference of an element."""
    mean: float
    """The mean difference."""
    relative: float
    """The largest difference, as a share of the output's largest magnitude."""


@dataclass(frozen=True)
class Conversion:
    """What a conversion did."""

    dtype: str
    converted: int
    """How many nodes run in the new dtype."""
    kept: Mapping[str, int]
    """How many do not, by reason."""
    casts: int
    """How many casts were added."""
    errors: tuple[OutputError, ...] = ()
    """By output; none where no sample inputs could be run, which a warning says."""
    warnings: tuple[str, ...] = ()
    bytes_before: int | None = None
    bytes_after: int | None = None


def convert(
    model: Any,
    *,
    to: str,
    output: str | Path | None = None,
    keep: Sequence[str] = (),
    io: bool = False,
    samples: int = 1,
    inputs: Mapping[str, Given] | None = None,
    listener: Listener | None = None,
) -> tuple[Any, Conversion]:
    """The model in another dtype (``float16``, ``bfloat16`` or ``float32``, or ``fp16`` and the like), of the kind that
    was given, and what was done; the argument is never changed.

    ``keep`` names ops and nodes that stay as they are. Inputs and outputs keep their types unless ``io``. On
    ``samples`` random inputs (``inputs`` says what some of them hold) the ranges of numbers are measured before,
    and the errors of the outputs after. Raises the exceptions of ``graphopt.errors``.
    """
    to = ALIASES.get(to, to)
    if to not in SOURCES:
        raise UsageError(f"--to {to}: expected one of {', '.join(SOURCES)}")
    step = Steps(listener)
    graph = step("read", onnx_io.load, model)
    graph = simplify(graph, (), (INLINE,))
    _check_names(graph, keep)
    feeds = step("draw", _feeds, graph, samples, inputs or {})
    widths = step("measure ranges", _measured, graph, feeds) if to in LARGEST else {}
    converted_graph, done = step("convert", converted, graph, to, keep, io, widths)
    errors = step("compare", _errors, graph, converted_graph, feeds)
    if not errors:
        done = replace(done, warnings=(*done.warnings, "no sample inputs could be run: ranges and errors are unknown"))
    result, _, size = deliver(step, model, graph, converted_graph, output, "off", None)
    before = Path(model).stat().st_size if isinstance(model, str | Path) else None
    return result, replace(done, errors=errors, bytes_before=before, bytes_after=size)


def _check_names(graph: Graph, keep: Sequence[str]) -> None:
    there = {n.op for n in graph.nodes()} | set(graph.names.values()) | {n.origin.name for n in graph.nodes()}
    for name in keep:
        if name not in there and ops.schema(name) is None:
            raise UsageError(f"--keep {name}: the model has no such op, node or value{nearest(name, there - {''})}")


def converted(
    graph: Graph,
    to: str,
    keep: Sequence[str] = (),
    io: bool = False,
    widths: Mapping[Value, float] | None = None,
) -> tuple[Graph, Conversion]:
    """The graph in another dtype, and what was done. ``widths`` are the largest magnitudes of its values."""
    work = _Converting(graph, to, frozenset(keep), io, widths or {})
    work.run()
    rules = standard().select(policy=Soundness.EXACT)
    casts = [rule for rule in rules.always if rule.family.startswith(("C2", "G"))]
    simplified = simplify(work.graph, casts, rules.passes)
    added = sum(n.op == "Cast" for n in simplified.nodes()) - sum(n.op == "Cast" for n in graph.nodes())
    kept = dict(sorted(work.kept.items(), key=lambda pair: (-pair[1], pair[0])))
    warnings = []
    if work.saturated:
        warnings.append(f"{work.saturated} weights beyond {to}'s range are its largest number now")
    return simplified, Conversion(to, work.count, kept, max(added, 0), (), tuple(warnings))


class _Converting(DtypeConversion):
    """One graph on its way to another dtype, as far as its ops keep their precision."""

    def __init__(
        self,
        graph: Graph,
        to: str,
        keep: frozenset[str],
        io: bool,
        widths: Mapping[Value, float],
        facts: Mapping[Value, Fact] | None = None,
    ) -> None:
        super().__init__(graph, to, io, facts)
        self.keep, self.widths = keep, widths
        self.indices = _indices(graph) if to != "float32" else set()
        self.alone: set[int] = set()
        if to != "float32":
            self.alone = self._alone()

    def inside(self, body: Graph, facts: Mapping[Value, Fact]) -> Self:
        """The same of a body: what goes in and comes out of it keeps its type."""
        return type(self)(body, self.to, self.keep, False, {}, facts)

    def reason(self, node: Node) -> str | None:
        """Why the node stays as it is: empty where there is nothing to convert; None where nothing is against it."""
        if not self._has_floats(node):
            return ""
        names = {node.op, node.origin.name, *(self.graph.names.get(v, "") for v in node.outputs)}
        if named := sorted(names & self.keep):
            return f"{named[0]}: asked for"
        if node.bodies:
            return f"{node.op}: converted inside"
        if self.to == "float32":
            return None
        if node.op in WIDE:
            return f"{node.op}: wants single precision"
        if node.id in self.indices:
            return "sizes and positions"
        if self._is_quantized(node):
            return "between dequantized and quantized numbers"
        first = node.inputs[0] if node.inputs else None
        stays = first is not None and first in self.facts and self.facts[first].dtype in self.sources
        if stays and moves(node) and self.original.constant_of(first) is None:
            return ""
        if node.id in self.alone:
            return "between ops that stay"
        limit, least = LARGEST.get(self.to), LEAST.get(self.to, 0.0)
        for value in (*node.inputs, *node.outputs):
            if limit is None or value is None or value not in self.widths:
                continue
            high = self.widths[value]
            if not high <= limit:
                return f"{node.op}: numbers beyond {limit:g}"
            if 0 < high < least:
                return f"{node.op}: numbers below {least:g}"
        return None

    def _is_quantized(self, node: Node) -> bool:
        """Whether runtimes may have the node compute with integers: it reads dequantized numbers, or is quantized."""
        reads = (self.original.node(v.node).op for v in node.inputs if v is not None)
        return any(map(_quantizes, (*reads, *(self.original.node(r).op for r in self.original.readers(node.id)))))

    def _alone(self) -> set[int]:
        """Elementwise nodes that no way over others like them leads from to an op that is worth converting."""
        light: set[int] = set()
        waiting: list[Node] = []
        for node in self.original.order():
            if node.op in (INPUT, CONSTANT):
                if self.io and node.op == INPUT:
                    waiting.append(node)
            elif _is_light(node) and self.original.constant_of(node.inputs[0] if node.inputs else None) is None:
                light.add(node.id)
            elif self._has_floats(node) and self.reason(node) is None and self._plan(node, True, self.before):
                waiting.append(node)
        while waiting:
            node = waiting.pop()
            near = {v.node for v in node.inputs if v is not None} | set(self.original.readers(node.id))
            waiting += [self.original.node(n) for n in sorted(near & light)]
            light -= near
        return light


def _is_light(node: Node) -> bool:
    """Whether the node does so little work that casts around it cost more."""
    return ops.kind(node.op) in ("unary", "binary", "elementwise") or moves(node)


def _quantizes(op: str) -> bool:
    return op in ("DequantizeLinear", "QuantizeLinear", "DynamicQuantizeLinear")


def _indices(graph: Graph) -> set[int]:
    """Nodes on floats that become integers, sizes or positions: elementwise ones that such ops read."""
    positions: set[int] = set()
    for node in reversed(graph.order()):
        if ops.kind(node.op) not in ("unary", "binary", "elementwise") and node.op not in ("Cast", *MOVING):
            continue
        for reader in (graph.node(r) for v in node.outputs for r, _ in graph.users(v)):
            to = reader.attrs.get("to")
            is_integer = reader.op == "Cast" and isinstance(to, int) and "int" in (dtype_of(to) or "")
            if is_integer or reader.op in INDICES or reader.id in positions:
                positions.add(node.id)
    return positions


# -- sample inputs


def _feeds(graph: Graph, samples: int, inputs: Mapping[str, Given]) -> list[dict[str, Any]]:
    """Inputs on which the model runs, with no more memory and operations than verification would take; none where there
    are none, and where only those that are given could tell when it ends."""
    check_inputs(graph, inputs)
    bounds_given = {name: given(value) for name, value in inputs.items()}
    sampled: list[dict[str, Any]] = []
    if not samples or (most_seconds(graph) is not None and not inputs):
        return sampled
    bounds, memory, operations = ranges(graph), memory_of(sparse_bytes(graph)), most_operations(graph, is_asked=False)
    candidates = [chosen for chosen in sizes(graph, {}) if not excess(graph, chosen, memory, operations)]
    if not candidates:
        return sampled
    with tempfile.TemporaryDirectory(prefix="graphopt-") as folder:
        try:
            run = open_model(_written(graph, folder))[0]
        except EngineError:
            return sampled
        for number in range(samples):
            for chosen, kind in ((c, k) for c in candidates for k in range(DISTRIBUTIONS)):
                try:
                    feeds = draw(graph, chosen, bounds, bounds_given, number, kind)
                    run(feeds)
                except (EngineError, ValueError):
                    continue
                sampled.append(feeds)
                break
    return sampled


def _written(graph: Graph, folder: str) -> str:
    path = str(Path(folder) / "model.onnx")
    onnx_io.save(graph, path)
    return path


def _measured(graph: Graph, feeds: Sequence[Feeds]) -> dict[Value, float]:
    """The largest magnitude of each float that the model computes on these inputs."""
    facts = infer(graph)
    watched = [v for n in own_calls(graph) for v in n.outputs if _is_float(facts[v])]
    probe = graph.copy()
    seen = {v: i for i, v in enumerate(probe.outputs) if v is not None}
    for value in watched:
        if value not in seen:
            seen[value] = len(probe.outputs)
            name = probe.names.setdefault(value, f"graphopt_{value.node}_{value.port}")
            probe.add_output(name, value)
            declared = facts[value].type
            if declared is not None:
                probe.types[value] = declared
    widths: dict[Value, float] = {}
    if not feeds:
        return widths
    try:
        with tempfile.TemporaryDirectory(prefix="graphopt-") as folder:
            run = open_model(_written(probe, folder))[0]
            for inputs in feeds:
                results = run(inputs)
                for value in watched:
                    array = results[seen[value]]
                    if isinstance(array, np.ndarray) and array.size:
                        largest = float(np.abs(array).max())
                        widths[value] = max(widths.get(value, 0.0), largest)
    except (EngineError, GraphoptError):
        return widths
    return widths


def _is_float(fact: Fact) -> bool:
    return fact.dtype == "float32"


def _errors(before: Graph, after: Graph, feeds: Sequence[Feeds]) -> tuple[OutputError, ...]:
    """How far the outputs are apart on these inputs; nothing where the original does not run.

    Raises VerificationError where nothing runs the result.
    """
    types = {after.names[v]: t for v in after.inputs if isinstance(t := after.types.get(v), TensorType)}
    worst: dict[str, OutputError] = {}
    try:
        with tempfile.TemporaryDirectory(prefix="graphopt-") as folder:
            want = [open_model(_written(before, folder))[0](f) for f in feeds]
            try:
                run = open_model(_written(after, folder))[0]
                got = [run({name: _cast_to(types, name, a) for name, a in f.items()}) for f in feeds]
            except EngineError as error:
                why = f"the converted model does not run ({error}); --keep what is at fault"
                raise VerificationError(why) from None
    except EngineError:
        return ()
    for outputs, others in zip(want, got, strict=True):
        for name, a, b in zip(before.output_names, outputs, others, strict=True):
            if not isinstance(a, np.ndarray) or (a.dtype.kind not in "fiub" and "float" not in a.dtype.name):
                continue
            difference = _error(name, a.astype(np.float64), b.astype(np.float64))
            if name not in worst or difference.largest > worst[name].largest:
                worst[name] = difference
    return tuple(worst.values())


def _cast_to(types: Mapping[str, TensorType], name: str, array: Any) -> Any:
    if not isinstance(array, np.ndarray) or name not in types or "float" not in array.dtype.name:
        return array
    return array.astype(np.dtype(getattr(ml_dtypes, types[name].dtype, types[name].dtype)))


def _error(name: str, want: Array, got: Array) -> OutputError:
    with np.errstate(invalid="ignore"):
        apart = np.abs(want - got)
    apart = np.where((want == got) | (np.isnan(want) & np.isnan(got)), 0.0, apart)
    apart = np.where(np.isnan(apart), np.inf, apart)
    finite = np.abs(want[np.isfinite(want)])
    scale = float(finite.max(initial=0.0))
    largest = float(apart.max(initial=0.0))
    mean = float(apart.mean()) if apart.size else 0.0
    return OutputError(name, largest, mean, largest / scale if scale else largest)
