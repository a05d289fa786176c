"""Alternatives of a program's choices: layouts, libraries and ops in the e-graph, then fusions.

Of each value that an op of weight makes, the e-graph held several ways to compute it: the plain op,
one on blocks of channels, a product, another op. Each is told with what it costs by itself on the
target, and changes of layout as what they are, costs apart. Fusions are told with what the nodes
would cost one by one: a call more for each, and what lies between them written and read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from graphopt.calibration.table import priced
from graphopt.frozen import dataclass
from graphopt.ir import onnx_io
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Graph, Value
from graphopt.ir.infer import infer
from graphopt.lowering.analysis.canonical_nest import chains
from graphopt.lowering.cpu.library_dispatch import called_product, ways
from graphopt.lowering.cpu.weight_packing import laid_out
from graphopt.lowering.cuda.dispatch import compared
from graphopt.lowering.fuse.groups import Group, group
from graphopt.lowering.fuse.nests import write
from graphopt.lowering.link.passes import needed
from graphopt.lowering.lower.lower import NeedsValues, lower
from graphopt.optimize import optimize_graph
from graphopt.platforms import card_of, equipped
from graphopt.rewrite.egraph.egraph_snapshot import ENode, Saturated
from graphopt.rewrite.extract.choose import Extraction
from graphopt.rewrite.extract.cost import CostModel, stated_sizes
from graphopt.rewrite.extract.terms import Terms
from graphopt.rewrite.match.describe import name_of
from graphopt.rewrite.rule.rule import soundness
from graphopt.run.observer import Watch
from graphopt.target import CPU, Target, ops

BLOCK, UNBLOCK = "graphopt::Block", "graphopt::Unblock"

WEIGHTY = ops(
    "Conv ConvTranspose Gemm MatMul com.microsoft::FusedMatMul graphopt::MixedMatMul graphopt::BlockedConv "
    "graphopt::BlockedConvTranspose graphopt::BlockedWinogradConv MaxPool AveragePool graphopt::BlockedMaxPool "
    "graphopt::BlockedAveragePool GlobalAveragePool ReduceMean Resize Concat Softmax LayerNormalization "
    "BatchNormalization InstanceNormalization LRN Transpose LSTM GRU RNN Attention Gelu com.microsoft::Gelu "
    "com.microsoft::SkipLayerNormalization HardSwish Swish com.microsoft::QuickGelu"
)
"""Ops that are worth telling of: what elementwise arithmetic becomes is in the report of rewrites."""
PRODUCTS = ops("Gemm MatMul com.microsoft::FusedMatMul graphopt::MixedMatMul")
"""Ops that are products of matrices, whatever their operands lie in."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """One way to have a value: what computes it, where, and modelled seconds by itself."""

    what: str
    how: str
    """``blocks``, ``library``, ``plain``, for fusions ``together`` and ``apart``, for products of matrices the function
    that computes one: ``gemm`` of the library, for convolutions its ``convolution``, or our own ``product``."""
    seconds: float


@dataclass(frozen=True, slots=True)
class ProgramChoice:
    """What was chosen to make a value, and what else there was, the cheapest first."""

    kind: str
    """``layout``, ``library``, ``op``, ``reorder``, ``fusion`` or ``product``."""
    value: str
    chosen: Alternative
    others: tuple[Alternative, ...]


def choices(model: Any, target: Target = CPU, policy: str = "reals") -> tuple[ProgramChoice, ...]:
    """The choices made for a model (a path, bytes, a model proto, or a ``Graph``), the dearest first.

    What a repeated block became is told once. Raises what reading and optimizing raise.
    """
    graph = model if isinstance(model, Graph) else onnx_io.load(model)
    target = equipped(priced(target).target)
    watch = Watch()
    optimized, _ = optimize_graph(graph, target=target, policy=soundness(policy), step=watch)
    model_of_cost = CostModel(target, stated_sizes(graph))
    by_value: dict[tuple[str, str], ProgramChoice] = {}
    for seen in watch.seen:
        for choice in _of_terms(Terms(seen.saturated, seen.model), seen.extraction):
            by_value.setdefault((choice.chosen.what if choice.kind == "reorder" else "", choice.value), choice)
    nests = [*_of_nests(optimized, model_of_cost, policy)]
    last = ("fusion", "product")
    return tuple(
        sorted([*by_value.values(), *nests], key=lambda c: (c.kind in last, c.kind, -c.chosen.seconds, c.value))
    )


# -- terms


def _of_terms(terms: Terms, extraction: Extraction) -> Iterator[ProgramChoice]:
    """What was chosen among the e-nodes of each value, in blocks or not."""
    saturated, chosen = terms.saturated, extraction.choice
    blocks = {  # from a value to the class of its form in blocks
        node.children[0]: c for c, nodes in terms.working.items() for node in nodes if node.op == BLOCK
    }
    names = {c: _name(saturated, c) for c in terms.working}
    for c in terms.working:
        name = names[c]
        if name is None:
            continue
        extracted = {
            c: terms.working[c],
            **({blocks[c]: terms.working[blocks[c]]} if blocks.get(c) in terms.working else {}),
        }
        costliest, others = None, []
        for k, nodes in extracted.items():
            for node in nodes:
                if node.op in (BLOCK, UNBLOCK):
                    if chosen.get(k) == node:
                        way = Alternative(node.op, "", terms.cost(k, node).seconds)
                        yield ProgramChoice("reorder", name, way, ())
                    continue
                way = _alternative(terms, k, node)
                if chosen.get(k) == node:
                    costliest = way if costliest is None or way.seconds > costliest.seconds else costliest
                else:
                    others.append(way)
        others = _distinct(others, costliest)
        if costliest is not None and others and any(w.what in WEIGHTY for w in (costliest, *others)):
            yield ProgramChoice(_kind(costliest, others), name, costliest, tuple(others))


def _name(saturated: Saturated, c: int) -> str | None:
    """What the graph calls a class; None for those that rules made."""
    original = saturated.originals.get(c)
    if original is None or original.node is None or original.n_outputs != 1 or original.op == "<output>":
        return None
    node = saturated.graph.node(original.node)
    return name_of(saturated.graph, node, 0)


def _alternative(terms: Terms, c: int, node: ENode) -> Alternative:
    return Alternative(node.op, _how(terms, c, node), terms.cost(c, node).seconds)


def _how(terms: Terms, c: int, node: ENode) -> str:
    facts = [None if n is None else terms.saturated.facts[n] for n in node.children]
    if node.op in PRODUCTS:
        return "library"
    if any(f is not None and _is_blocked(terms, n) for f, n in zip(facts, node.children, strict=True)) or (
        node.op.startswith("graphopt::")
    ):
        return "blocks"
    return "library" if _is_pointwise(node, facts) else "plain"


def _is_blocked(terms: Terms, c: int | None) -> bool:
    return c is not None and any(n.op in (BLOCK, "graphopt::BlockedConv") for n in terms.working.get(c, ()))


def _is_pointwise(node: ENode, facts: list[Fact | None]) -> bool:
    weights = facts[1] if len(facts) > 1 else None
    if node.op != "Conv" or weights is None or weights.shape is None:
        return False
    strides = node.attrs.get("strides")
    moves = isinstance(strides, tuple) and any(s != 1 for s in strides)
    return node.attrs.get("group", 1) == 1 and not moves and all(n == 1 for n in weights.shape[2:])


def _distinct(ways: list[Alternative], chosen: Alternative | None) -> list[Alternative]:
    """The cheapest of each sort, but for that which was taken."""
    best: dict[tuple[str, str], Alternative] = {}
    for way in sorted(ways, key=lambda w: (w.seconds, w.what)):
        if chosen is None or (way.what, way.how) != (chosen.what, chosen.how):
            best.setdefault((way.what, way.how), way)
    return list(best.values())


def _kind(chosen: Alternative, others: list[Alternative]) -> str:
    ways = {chosen.how, *(w.how for w in others)}
    return "layout" if "blocks" in ways and len(ways) > 1 else "library" if "library" in ways else "op"


# -- nests


def _of_nests(graph: Graph, model: CostModel, policy: str) -> Iterator[ProgramChoice]:
    """Of the groups of nodes that one nest computes, those of several nodes, and those that are a product of matrices;
    none where what they are depends on elements of inputs."""
    facts = infer(graph)
    try:
        lowered = lower(graph, facts)
    except NeedsValues:
        return
    for fusion_group in group(graph, facts, lowered, needed(graph, lowered, facts)):
        if len(fusion_group.members) > 1:
            yield _fusion(graph, fusion_group, facts, model)
        yield from _product(graph, fusion_group, facts, model.target, policy)


def _product(
    graph: Graph, fusion_group: Group, facts: Mapping[Value, Fact], target: Target, policy: str
) -> Iterator[ProgramChoice]:
    """Which function computes the product of matrices that a group is, where it is one that a call computes."""
    written = write(graph, facts, fusion_group)
    if target.device.has_blocks:
        prices = target.prices.products
        yield from _told(graph, fusion_group, compared(written.nest, card_of(prices, policy), prices))
        return
    reads = zip(written.nest.buffers, written.inputs, strict=False)
    laid = laid_out(written.nest, [b for b, v in reads if graph.constant_of(v) is not None])
    nest = written.nest if laid is None else laid.nest
    parts = chains(nest)
    product = None if parts is None else called_product(parts, nest)
    if product is not None:
        yield from _told(graph, fusion_group, ways(product, target.prices.products))


def _told(graph: Graph, fusion_group: Group, seconds: Mapping[str, float]) -> Iterator[ProgramChoice]:
    """The choice of who computes the product that a group is, where several could."""
    if seconds:
        what = "+".join(m.node.op for m in fusion_group.members)
        first, *others = sorted((Alternative(what, *way) for way in seconds.items()), key=lambda w: w.seconds)
        yield ProgramChoice("product", name_of(graph, fusion_group.sink.node, 0), first, tuple(others))


def _fusion(graph: Graph, fusion_group: Group, facts: Mapping[Value, Fact], model: CostModel) -> ProgramChoice:
    nodes = [m.node for m in fusion_group.members]
    together = (
        sum(
            model.cost(
                n.op, n.attrs, [None if v is None else facts[v] for v in n.inputs], [facts[v] for v in n.outputs]
            ).seconds
            for n in nodes
        )
        - (len(nodes) - 1) * model.target.prices.node
    )
    between = sum(model.moving(2 * model.nbytes(facts[n.outputs[0]])) for n in nodes[:-1])
    apart = together + (len(nodes) - 1) * model.target.prices.node + between
    what = "+".join(n.op for n in nodes)
    return ProgramChoice(
        "fusion",
        name_of(graph, nodes[-1], 0),
        Alternative(what, "together", together),
        (Alternative(what, "apart", apart),),
    )
