"""Differences of two models: of their structure, and of the values inside, layer by layer."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphopt.errors import GraphoptError, InvalidModelError, UsageError
from graphopt.frozen import dataclass
from graphopt.ir.functions import is_called, own_calls
from graphopt.run.steps import count_ops

if TYPE_CHECKING:
    from graphopt.ir.facts import Fact
    from graphopt.ir.graph import Graph, Value
    from graphopt.verify.inputs import Given

AT_ONCE = 256 << 20
"""Bytes of inner values that are kept at a time; a model with more of them runs several times."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference of two graphs in words, and the ops of which they have different numbers."""

    first: str
    ops: dict[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Layer:
    """A value that both models have, and how far it is apart."""

    name: str
    """In the first model,"""
    other: str
    """and in the second."""
    ops: tuple[str, str]
    """What makes it in each."""
    by: str
    """Why the two are taken to be one: the same ``op`` of values that go together, the ``name``, the ``journal`` of the
    second model, or what reads them (``readers``)."""
    error: float
    """The largest difference in units of the tolerance: up to 1 is right, infinite is another shape or dtype, or
    another place of NaN and infinity."""
    absolute: float
    relative: float
    """The largest difference, and as a share of the largest magnitude."""

    @property
    def diverges(self) -> bool:
        """Whether the values are further apart than the tolerance."""
        return not self.error <= 1


@dataclass(frozen=True, slots=True)
class LayerComparison:
    """The values that both models have, in the order in which the second computes them."""

    layers: tuple[Layer, ...]
    engine: str
    sizes: Mapping[str, int]
    unpaired: tuple[int, int]
    """How many values that are computed in the first and in the second model have no partner."""

    @property
    def first(self) -> Layer | None:
        """The first layer that diverges; None where none does."""
        return next((layer for layer in self.layers if layer.diverges), None)


def diff(a: str | Path, b: str | Path) -> Difference | None:
    """How two model files differ in structure; None where they do not."""
    from graphopt.ir.onnx_io import load
    from graphopt.ir.structure import same

    graphs = load(a), load(b)
    first = same(*graphs)
    if first is None:
        return None
    counts = [count_ops(graph) for graph in graphs]
    ops = {op: (counts[0].get(op, 0), counts[1].get(op, 0)) for op in sorted({*counts[0], *counts[1]})}
    return Difference(first, {op: pair for op, pair in ops.items() if pair[0] != pair[1]})


def layers(
    a: str | Path,
    b: str | Path,
    inputs: Mapping[str, Given] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
) -> LayerComparison:
    """Compare the values inside two models, on random inputs that both take, or on those that are given.

    Values go together by what makes them, by their names, and by the journal beside ``b`` where there is one. They are
    held to the tolerance of their dtype, or to |b - a| <= atol + rtol * |a|. Raises UsageError where a model does not
    run, or has other inputs or outputs.
    """
    from graphopt.ir.onnx_io import load

    first, second = load(a), load(b)
    names = [sorted(g.names[v] for v in g.inputs) for g in (first, second)]
    if names[0] != names[1] or first.output_names != second.output_names:
        raise UsageError(f"{a} and {b} have other inputs or outputs: layers of one model are compared with another's")
    pairs = pairs_of(first, second, b)
    sizes, feeds = _feeds(first, Path(a), inputs or {})
    compared: list[Layer] = []
    engines: dict[str, None] = {}
    for group in _groups(first, list(pairs)):
        (engine, values), (other, others) = (
            _run(graph, [pair[side] for pair in group], feeds, name)
            for side, (graph, name) in enumerate(((first, a), (second, b)))
        )
        engines |= {engine: None, other: None}
        for pair, x, y in zip(group, values, others, strict=True):
            compared.append(_layer(first, second, pair, pairs[pair], _apart(x, y, rtol, atol)))
    met = [{pair[side] for pair in pairs} for side in (0, 1)]
    unpaired = [
        sum(v not in seen for node in own_calls(g) for v in node.outputs)
        for g, seen in zip((first, second), met, strict=True)
    ]
    return LayerComparison(tuple(compared), " and ".join(engines), sizes, (unpaired[0], unpaired[1]))


def pairs_of(a: Graph, b: Graph, path: str | Path) -> dict[tuple[Value, Value], str]:
    """The values of two graphs that go together, in the order of the second, and by what; ``path`` is its file."""
    from graphopt.verify.pairs import facts_of, paired

    structure, facts = paired(a, b), (facts_of(a), facts_of(b))
    by_name = {name: value for value, name in a.names.items()}
    by_journal = _by_journal(by_name, b, path)
    required = {w: v for v, w in zip(a.outputs, b.outputs, strict=True) if v is not None and w is not None}
    found: dict[tuple[Value, Value], str] = {}
    for w in (value for node in own_calls(b) for value in node.outputs):
        named = by_name.get(b.names.get(w, ""))
        ways = [
            ("op", structure.of.get(w) if w in structure.same else None), ("name", required.get(w, named)),
            ("journal", by_journal.get(w)), ("readers", structure.of.get(w)),
        ]  # fmt: skip
        for by, v in ways:
            if v is not None and is_called(a, v) and _may_agree(facts[0].get(v), facts[1].get(w)):
                found[v, w] = by
                break
    return found


def _by_journal(by_name: Mapping[str, Value], b: Graph, path: str | Path) -> dict[Value, Value]:
    """Values of a result, and those of its original in whose place a rewrite put them."""
    from graphopt.ir.graph import Value
    from graphopt.rewrite.match.journal import SIGNATURE
    from graphopt.run.derivation import journal_path, read_derivation

    sites: dict[str, str] = {}
    with suppress(GraphoptError):
        sites = {entry.signature: entry.site for entry in read_derivation(journal_path(path)).rewrites}
    last = {dict(node.origin.metadata).get(SIGNATURE): Value(node.id) for node in own_calls(b)}
    return {w: by_name[sites[s]] for s, w in last.items() if s in sites and sites[s] in by_name}


def _may_agree(x: Fact | None, y: Fact | None) -> bool:
    """Whether two values are tensors, of one rank and dtype as far as that is known."""
    from graphopt.ir.types import TensorType

    types = [None if fact is None else fact.type for fact in (x, y)]
    if not all(isinstance(type_, TensorType) for type_ in types) or x is None or y is None:
        return False
    return x.dtype == y.dtype and (x.rank is None or y.rank is None or x.rank == y.rank)


def _feeds(graph: Graph, path: Path, inputs: Mapping[str, Given]) -> tuple[dict[str, int], dict[str, object]]:
    """Inputs on which the model runs, and the sizes that were drawn for them."""
    from graphopt.verify.inputs import check_inputs, draw, given, ranges, sizes
    from graphopt.verify.runtimes import EngineError, open_model

    check_inputs(graph, inputs)
    fixed = {name: given(value) for name, value in inputs.items()}
    refusal = "it has no inputs that can be drawn"
    try:
        run, _ = open_model(path)
    except EngineError as error:
        raise InvalidModelError(f"{path}: does not run ({error})") from None
    known = ranges(graph)
    for chosen in sizes(graph, {}):
        try:
            feeds = draw(graph, chosen, known, fixed, 0, 0)
            run(feeds)
        except (EngineError, ValueError) as error:
            refusal = str(error)
        else:
            return chosen, feeds
    raise UsageError(f"{path}: does not run on random inputs ({refusal}); --input can give others")


def _groups(graph: Graph, pairs: Sequence[tuple[Value, Value]]) -> Iterator[list[tuple[Value, Value]]]:
    """The pairs in groups whose values fit ``AT_ONCE``, as far as their sizes are known."""
    from graphopt.rewrite.extract.cost import CostModel, stated_sizes
    from graphopt.target import PORTABLE
    from graphopt.verify.pairs import facts_of

    model, facts = CostModel(PORTABLE, stated_sizes(graph)), facts_of(graph)
    group: list[tuple[Value, Value]] = []
    taken = 0.0
    for pair in pairs:
        size = model.nbytes(facts.get(pair[0]))
        if group and taken + size > AT_ONCE:
            yield group
            group, taken = [], 0.0
        group.append(pair)
        taken += size
    if group:
        yield group


def _run(graph: Graph, values: Sequence[Value], feeds: Mapping[str, object], name: str | Path) -> tuple[str, list[Any]]:
    """What some values are, and the engine that computed them."""
    from graphopt.ir.onnx_io import save_for_now
    from graphopt.verify.inside import excerpt
    from graphopt.verify.runtimes import EngineError, open_model

    part = excerpt(graph, values)
    there = {part.names[v] for v in part.inputs}
    with tempfile.TemporaryDirectory(prefix="graphopt-") as folder:
        path = Path(folder) / "part.onnx"
        try:
            save_for_now(part, path)
            run, engine = open_model(path)
            return engine, run({n: x for n, x in feeds.items() if n in there})
        except EngineError as error:
            raise UsageError(f"{name}: does not run with its inner values as outputs ({error})") from None


def _apart(x: Any, y: Any, rtol: float | None, atol: float | None) -> tuple[float, float, float]:
    """How far two values are apart: in units of the tolerance, absolute, and as a share of the largest magnitude."""
    from graphopt.ir.tolerance import error, is_inexact

    if not (isinstance(x, np.ndarray) and isinstance(y, np.ndarray)):
        return (0.0, 0.0, 0.0) if x is y is None else (inf, inf, inf)
    units = error(x, y)
    if units == inf and (x.dtype != y.dtype or x.shape != y.shape):
        return inf, inf, inf
    if not is_inexact(x):
        return units, 0.0 if units == 0 else inf, 0.0 if units == 0 else inf
    wide = np.complex128 if x.dtype.kind == "c" else np.float64
    one, two = x.astype(wide), y.astype(wide)
    with np.errstate(all="ignore"):
        far, most = np.abs(one - two), np.abs(one)
    both = np.isfinite(one) & np.isfinite(two)
    absolute = float(far.max(initial=0.0, where=both))
    scale = float(most.max(initial=0.0, where=np.isfinite(one)))
    if isfinite(units) and (rtol is not None or atol is not None):
        allowed = (atol or 0.0) + (rtol or 0.0) * most
        with np.errstate(all="ignore"):
            shares = np.where(far > 0, far / allowed, 0.0)
        units = float(shares.max(initial=0.0, where=both))
    return units, absolute, absolute / scale if scale else absolute and inf


def _layer(a: Graph, b: Graph, pair: tuple[Value, Value], by: str, apart: tuple[float, float, float]) -> Layer:
    from graphopt.rewrite.match.describe import name_of

    (v, w), nodes = pair, (a.producer(pair[0]), b.producer(pair[1]))
    names = name_of(a, nodes[0], v.port), name_of(b, nodes[1], w.port)
    return Layer(*names, (nodes[0].op, nodes[1].op), by, *apart)
