"""Costs of e-nodes: the classes of a saturated e-graph as extraction sees them, and the constants that each stores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property

from graphopt.ir import ops
from graphopt.ir.constants import Constant
from graphopt.ir.dtypes import HALVES
from graphopt.ir.facts import NOTHING, Fact
from graphopt.ir.graph import CONSTANT, INPUT, Attrs, Graph, Value
from graphopt.ir.work import OPERATIONS
from graphopt.rewrite.egraph.egraph_snapshot import PROJECTION, ENode, Saturated
from graphopt.rewrite.egraph.provenance import Provenance
from graphopt.rewrite.extract.cost import Cost, CostModel
from graphopt.rewrite.extract.dag import Option, needed, settle
from graphopt.rewrite.extract.fusions import FusionGroup, fusions
from graphopt.rewrite.match.evaluation import cost_ahead, is_one_element

LARGE = 1 << 20
"""Bytes of a constant from which on it may be worth to store what it is computed from instead."""

CONSTANT_BYTES = 16
"""About what a constant takes that is one element repeated."""


class Terms:
    """Reads a saturated e-graph under a cost model; everything is computed once.

    ``restrict`` gives those of a choice alone: one e-node for each class, the graph that was chosen.
    """

    def __init__(self, saturated: Saturated, cost_model: CostModel) -> None:
        self.saturated = saturated
        self.cost_model = cost_model
        self.is_open = True
        self.classes = saturated.classes
        self.constants = self._constants()
        self._sources_of: dict[int, tuple[int, ...]] = {}
        self.constant_bytes = {c: self._bytes(c) for c in self.constants}
        self.working = {c: self.ordered(c) for c in self.classes if c not in self.constants}
        """The e-nodes of each class that is computed when the model runs, that of the graph first."""
        self.fused: Mapping[int, Sequence[FusionGroup]] = fusions(
            cost_model.target, self.working, saturated.facts, saturated.graph.opset, self._readers()
        )
        """What the target makes of several e-nodes by itself, by the class that this computes."""
        self._costs: dict[tuple[int, bool], Cost] = {}

    def _readers(self) -> Counter[int]:
        """How many nodes of the graph that was explored, and of its outputs, read each class."""
        nodes = [c for node in self.saturated.originals.values() for c in node.children]
        return Counter(c for c in (*nodes, *self.saturated.roots) if c is not None)

    def restrict(self, choice: Mapping[int, ENode]) -> Terms:
        """The terms of a choice."""
        twin = copy(self)
        twin.is_open = False
        twin.classes = {c: (choice[c],) for c in sorted(choice)}
        twin.working = {c: [node] for c, (node,) in twin.classes.items() if c not in self.constants}
        twin.fused = {
            c: [f for f in self.fused[c] if all(choice.get(p) == node for p, node in f.parts)]
            for c in twin.working
            if c in self.fused
        }
        return twin

    def only(self, nodes: Mapping[int, ENode]) -> Terms:
        """The terms without the alternatives to these e-nodes of classes that are computed when the model runs."""
        twin = copy(self)
        twin.classes = {**self.classes, **{c: (node,) for c, node in nodes.items()}}
        twin.working = {c: [nodes[c]] if c in nodes else found for c, found in self.working.items()}
        twin.fused = {
            c: [f for f in found if all(nodes.get(p, node) == node for p, node in f.parts)]
            for c, found in self.fused.items()
        }
        return twin

    def roots(self) -> tuple[int, ...]:
        """The classes that the outputs are, each once."""
        return tuple(dict.fromkeys(c for c in self.saturated.roots if c is not None))

    def ordered(self, c: int) -> list[ENode]:
        """The e-nodes of a class, that of the graph first."""
        original = self.saturated.originals.get(c)
        return sorted(self.classes[c], key=lambda n: (original is None or n.id != original.id, n.id))

    def stored(self, node: ENode) -> int:
        """Bytes of the constants that the e-node reads; those of what is still to be computed count twice, for what the
        graph has lies in its file already, unless that stays an expression of what others read."""
        return sum(map(self._weight, {c for c in node.children if c is not None}))

    def _weight(self, c: int) -> int:
        taken = self.constant_bytes.get(c, 0)
        if not taken or self.constants[c].op == CONSTANT:
            return taken
        sources = self._sources(c) if taken > LARGE else ()
        return 0 if sources and self._read.issuperset(sources) else 2 * taken

    @cached_property
    def _read(self) -> frozenset[int]:
        """The constants that nodes of the graph that was explored read as they are."""
        nodes = (node for c, node in self.saturated.originals.items() if c in self.working)
        return frozenset(n for node in nodes for n in node.children if n is not None)

    def stored_by(self, choice: Mapping[int, ENode]) -> int:
        """Bytes of the constants that the working nodes of a choice read, each once. One that is computed from others
        stays an expression where that stores less: the transpose of tied weights takes nothing beside them."""
        read = {c for c in self.saturated.roots if c is not None}
        for c, node in choice.items():
            if c not in self.constant_bytes:
                read.update(n for n in node.children if n is not None)
        read &= self.constant_bytes.keys()
        computed = {c for c in read if self.constants[c].op != CONSTANT}
        stored = read - computed
        for c in sorted(computed):
            sources = self._sources(c)
            more = sum(self.constant_bytes[s] for s in sources if s not in stored)
            stored.update(sources if sources and more < self.constant_bytes[c] else (c,))
        return sum(self.constant_bytes[c] for c in stored)

    def complete(self, choice: Mapping[int, ENode]) -> dict[int, ENode] | None:
        """The choice with its constants, as far as the outputs need it, in topological order; None where it is
        circular."""
        options = {
            c: Option(0.0, tuple(n for n in node.children if n is not None), node)
            for c, node in {**choice, **self.constants}.items()
        }
        completed = needed(options, self.roots())
        return None if completed is None else {c: _node(option) for c, option in completed.items()}

    def _constants(self) -> dict[int, ENode]:
        """For each class that is computed ahead, from constants alone, the e-node that makes it: a constant where there
        is one, else the fewest ops, what the graph has before what rules made. What takes more than may be done ahead
        is computed in every run, and priced so."""
        classes = self.classes
        constant = {c for c in classes if self.saturated.facts[c].is_const}
        options = {
            c: tuple(
                Option(float(node.op != CONSTANT), tuple(n for n in node.children if n is not None), node)
                for node in self.ordered(c)
                if constant.issuperset(n for n in node.children if n is not None) and self._is_done_ahead(c, node)
            )
            for c in classes
            if c in constant
        }
        settled = settle(options)
        return {c: _node(settled[c]) for c in sorted(settled)}

    def _is_done_ahead(self, c: int, node: ENode) -> bool:
        """Whether a call of constants takes no more than folding does for one (``fold_within``)."""
        if node.op in (PROJECTION, INPUT, CONSTANT):
            return True
        inputs = [None if n is None else self.saturated.facts[n] for n in node.children]
        ones = [f if f is None else f.constant is not None and is_one_element(f.constant) for f in inputs]
        return cost_ahead(node.op, node.attrs, inputs, self.saturated.outputs(node, c), ones) <= OPERATIONS

    def _bytes(self, c: int) -> int:
        """Bytes that the class takes as a stored constant: that of its smallest form, or of what it is computed from,
        where it is so much more that it stays an expression."""
        fact = self.saturated.facts[c]
        sizes = [fact.constant.nbytes] if fact.constant is not None else [int(self.cost_model.nbytes(fact))]
        for node in self.classes[c]:
            value = node.attrs.get("value")
            if node.op == "ConstantOfShape":
                sizes.append(CONSTANT_BYTES)
            elif node.op == CONSTANT and isinstance(value, Constant):
                sizes.append(value.nbytes)
        sources = self._sources(c) if min(sizes) > LARGE else ()
        return min([*sizes, sum(map(self._bytes, sources))]) if sources else min(sizes)

    def _sources(self, c: int) -> tuple[int, ...]:
        """The constants of the graph and of rules that a class is computed from, where it is computed; none where it
        may not stay an expression, since runtimes would compute it anew in each run."""
        if (known := self._sources_of.get(c)) is None:
            known = self._sources_of[c] = self._found_sources(c)
        return known

    def _found_sources(self, c: int) -> tuple[int, ...]:
        if self.constants[c].op == CONSTANT:
            return ()
        sources: dict[int, None] = {}
        waiting, seen = [c], {c}
        while waiting:
            at = waiting.pop()
            if not self._is_folded_when_loaded(at):
                return ()
            for n in self.constants[at].children:
                if n is None or n in seen:
                    continue
                seen.add(n)
                if self.constants[n].op == CONSTANT:
                    sources[n] = None
                else:
                    waiting.append(n)
        return tuple(sources)

    def _is_folded_when_loaded(self, c: int) -> bool:
        """Whether runtimes compute a class of constants when they load the model: of half precision they have kernels
        for what moves elements alone, and convert the operands of others in each run."""
        op = self.constants[c].op
        return self.saturated.facts[c].dtype not in HALVES or ops.kind(op) == "movement" or op in ("Cast", PROJECTION)

    def cost(self, c: int, node: ENode, blocked: bool = False) -> Cost:
        """What an e-node of a class costs by itself."""
        cost = self._costs.get((node.id, blocked))
        if cost is None:
            facts = self.saturated.facts
            inputs = [None if n is None else facts[n] for n in node.children]
            outputs = self.saturated.outputs(node, c)
            free = node.op in (PROJECTION, INPUT)
            cost = Cost() if free else self.cost_model.cost(node.op, node.attrs, inputs, outputs, blocked)
            self._costs[node.id, blocked] = cost
        return cost


def _node(option: Option) -> ENode:
    assert isinstance(option.meaning, ENode)
    return option.meaning


def calls(saturated: Saturated, cost_model: CostModel, nodes: Mapping[int, Sequence[ENode]]) -> list[str]:
    """The calls that some e-nodes of classes are, as tables of measured times know them, each once; without what is
    computed from constants alone."""
    texts: dict[str, None] = {}
    for c in nodes:
        for node in () if saturated.facts[c].is_const else nodes[c]:
            if node.op in (PROJECTION, INPUT, CONSTANT):
                continue
            inputs = [None if n is None else saturated.facts[n] for n in node.children]
            if (text := cost_model.call(node.op, node.attrs, inputs, len(saturated.outputs(node, c)))) is not None:
                texts[text] = None
    return list(texts)


def as_classes(graph: Graph, facts: Mapping[Value, Fact]) -> Saturated:
    """A graph as classes of one e-node each: what it costs is what extraction pays for it."""
    classes: dict[int, tuple[ENode, ...]] = {}
    facts_of: dict[int, Fact] = {}
    names: dict[Value, int] = {}

    def add(op: str, attrs: Attrs, children: tuple[int | None, ...], n_outputs: int, node: int, fact: Fact) -> int:
        name = len(classes)
        classes[name] = (ENode(name, op, attrs, children, n_outputs, node),)
        facts_of[name] = fact
        return name

    for node in graph.order():
        children = tuple(None if v is None else names[v] for v in node.inputs)
        output_facts = [facts.get(v, NOTHING) for v in node.outputs]
        if node.n_outputs == 1:
            names[node.outputs[0]] = add(node.op, node.attrs, children, 1, node.id, output_facts[0])
            continue
        whole = Fact(is_const=all(f.is_const for f in output_facts))
        parent = add(node.op, node.attrs, children, node.n_outputs, node.id, whole)
        for value, fact in zip(node.outputs, output_facts, strict=True):
            names[value] = add(PROJECTION, Attrs(index=value.port), (parent,), 1, node.id, fact)
    return Saturated(
        graph,
        classes,
        facts_of,
        tuple(None if v is None else names[v] for v in graph.outputs),
        names,
        {c: output_facts[0] for c, output_facts in classes.items()},
        Provenance(),
        {},
        "saturated",
        0,
        len(classes),
    )
