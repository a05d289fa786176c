"""Branches of If, and ranks by what reads them: what both branches do is done once, before the If or after it; a branch
that no reader could take is never taken, and neither is an open size 1 where readers of a Squeeze need its axis.

One of the two branches runs whatever the condition is, so nothing is computed that was not computed before, and what
stands outside can be rewritten together with its neighbours.

A reader of a value may take one rank alone: an LSTM reads tensors of three axes, a convolution as many as its
weights have. A branch that gives another rank is one that the model fails on, so wherever the model has a value the
other branch was taken, and the condition is known. Scripted recurrent layers, which look at the rank of their input,
are made of such Ifs, and so are functions that index by a vector here and by a matrix there. A Squeeze of all axes
says as little of its rank where a batch is open.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations, islice

import numpy as np

from graphopt.errors import InvalidModelError
from graphopt.ir import ops
from graphopt.ir.constants import Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import CONSTANT, INPUT, Graph, Node, Value
from graphopt.ir.infer import infer, infer_in_graph
from graphopt.ir.infer_bodies import branches
from graphopt.ir.types import TensorType, Type
from graphopt.rewrite.match.workspace import Workspace, facts_within
from graphopt.rewrite.passes.native import NativePass
from graphopt.rewrite.passes.splice import outside


def hoist_heads(space: Workspace, node: Node) -> bool:
    """Compute in front of an If what both branches compute from the same captured values and constants."""
    yes, no = _branches(node)
    if yes is None or no is None or not node.captures:
        return False
    twins = _twins(node, yes, no)
    if not twins:
        return False
    outer: dict[Value, Value | None] = dict(zip(yes.inputs, node.inputs[1:], strict=True))
    for mine in twins:
        inputs = [outside(space, yes, outer, v) for v in mine.inputs]
        outer.update(zip(mine.outputs, space.add(mine.op, inputs, mine.attrs, mine.n_outputs), strict=True))
    edited = {"then_branch": yes.copy(), "else_branch": no.copy()}
    added: list[Value | None] = []
    for mine, its in twins.items():
        for a, b in zip(mine.outputs, its.outputs, strict=True):
            for body, value in ((edited["then_branch"], a), (edited["else_branch"], b)):
                body.replace(value, body.add_input(f"captured {len(body.inputs)}", body.types.get(value)))
            added.append(outer[a])
    for mine, its in reversed(twins.items()):
        edited["then_branch"].remove(mine.id)
        edited["else_branch"].remove(its.id)
    space.update(
        node.id,
        inputs=node.inputs + tuple(added),
        attrs=node.attrs.with_(**edited),
        captures=node.captures + len(added),
    )
    return True


def _branches(node: Node) -> tuple[Graph | None, Graph | None]:
    yes, no = (node.attrs.get(name) for name in ("then_branch", "else_branch"))
    return (yes, no) if node.op == "If" and isinstance(yes, Graph) and isinstance(no, Graph) else (None, None)


def _twins(node: Node, yes: Graph, no: Graph) -> dict[Node, Node]:
    """Nodes of the first branch that compute what nodes of the second do, from what both know, in order."""
    keys: list[dict[Value, Hashable]] = [
        {v: ("captured", outer) for v, outer in zip(body.inputs, node.inputs[1:], strict=True)} for body in (yes, no)
    ]
    first_branch: dict[Hashable, Node] = {}
    twins: dict[Node, Node] = {}
    for inner in yes.order():
        key = _key(yes, inner, keys[0])
        if key is not None and key not in first_branch:  # of equal nodes the first alone, which is the one that moves
            first_branch[key] = inner
            keys[0].update({v: (key, v.port) for v in inner.outputs})
    for inner in no.order():
        key = _key(no, inner, keys[1])
        twin = None if key is None else first_branch.pop(key, None)
        if twin is not None:
            twins[twin] = inner
            keys[1].update({v: (key, v.port) for v in inner.outputs})
    order = {id: i for i, id in enumerate(n.id for n in yes.order())}
    return dict(sorted(twins.items(), key=lambda pair: order[pair[0].id]))


def _key(body: Graph, node: Node, keys: dict[Value, Hashable]) -> Hashable:
    """What a node computes, in terms of captured values and constants; None where it reads something else."""
    if node.op in (INPUT, CONSTANT) or node.bodies or not ops.is_pure(node.op, node.attrs):
        return None
    read = [None if v is None else keys.get(v) or _constant_key(body, v) for v in node.inputs]
    if any(r is None and v is not None for r, v in zip(read, node.inputs, strict=True)):
        return None
    if all(v is None or v not in keys for v in node.inputs):
        return None
    return node.op, ops.canonical(node.op, node.attrs), tuple(read), node.n_outputs, node.origin.overload


def _constant_key(body: Graph, value: Value) -> Hashable:
    constant = body.constant_of(value)
    return None if constant is None else ("constant", constant.dtype, constant.shape, constant.digest)


def sink_tails(space: Workspace, node: Node) -> bool:
    """Do after an If what both branches do last to one of their results."""
    yes, no = _branches(node)
    if yes is None or no is None:
        return False
    for port, (a, b) in enumerate(zip(yes.outputs, no.outputs, strict=True)):
        if a is None or b is None or not space.uses(node.outputs[port]):
            continue
        last, its = yes.node(a.node), no.node(b.node)
        at = _differs(node, yes, no, last, its)
        if at is None or yes.n_uses(a) != 1 or no.n_uses(b) != 1:
            continue
        if _type(space, node, yes, last.inputs[at]) == _type(space, node, no, its.inputs[at]) is not None:
            _sink(space, node, port, at, last, its)
            return True
    return False


def _type(space: Workspace, node: Node, body: Graph, value: Value | None) -> Type | None:
    """What is known of the type of a value of a branch: behind the If nothing more is known than of both."""
    facts = infer(body, facts_within(node, body, space.facts))
    return None if value is None or value not in facts else facts[value].type


def _differs(node: Node, yes: Graph, no: Graph, last: Node, its: Node) -> int | None:
    """The one input in which the last nodes of two branches differ, where they are alike in all else."""
    if last.n_outputs > 1 or last.op in (INPUT, CONSTANT) or last.bodies or not ops.is_pure(last.op, last.attrs):
        return None
    if (last.op, last.origin.overload, len(last.inputs)) != (its.op, its.origin.overload, len(its.inputs)):
        return None
    if ops.canonical(last.op, last.attrs) != ops.canonical(its.op, its.attrs):
        return None
    captured = [dict(zip(body.inputs, node.inputs[1:], strict=True)) for body in (yes, no)]
    differing = [
        i
        for i, (v, w) in enumerate(zip(last.inputs, its.inputs, strict=True))
        if _shared(yes, captured[0], v) is None or _shared(yes, captured[0], v) != _shared(no, captured[1], w)
    ]
    if len(differing) != 1 or last.inputs[differing[0]] is None or its.inputs[differing[0]] is None:
        return None
    return differing[0]


def _shared(body: Graph, captured: dict[Value, Value | None], value: Value | None) -> Hashable:
    """A captured value or constant, in terms that hold outside; None for what the branch computes."""
    if value is None:
        return "absent"
    return ("captured", captured[value]) if value in captured else _constant_key(body, value)


def _sink(space: Workspace, node: Node, port: int, at: int, last: Node, its: Node) -> None:
    """Move the last node of both branches behind the If; ``at`` is the input that the branches still compute."""
    edited: dict[str, Graph] = {}
    for name, end in (("then_branch", last), ("else_branch", its)):
        body = node.bodies[name].copy()
        body.outputs[port] = end.inputs[at]
        body.output_names[port] = f"{body.output_names[port]} before"
        body.remove(end.id)
        edited[name] = body
    yes = node.bodies["then_branch"]
    outer: dict[Value, Value | None] = dict(zip(yes.inputs, node.inputs[1:], strict=True))
    results = space.add("If", node.inputs, node.attrs.with_(**edited), node.n_outputs, node.captures, node.origin)
    inputs = [results[port] if i == at else outside(space, yes, outer, v) for i, v in enumerate(last.inputs)]
    result = space.add(last.op, inputs, last.attrs, origin=last.origin)[0]
    for i, old in enumerate(node.outputs):
        space.replace(old, result if i == port else results[i])


HEADS = NativePass(
    "common-head",
    "what both branches compute from the same values is computed once, in front of them",
    "O2",
    visit=hoist_heads,
    ops=frozenset({"If"}),
)
TAILS = NativePass(
    "common-tail",
    "what both branches do last is done once, behind them, where its neighbours can take it up",
    "O2",
    visit=sink_tails,
    ops=frozenset({"If"}),
)


LOOKED = 64
"""How many nodes behind an If are asked whether they could take what a branch gives."""


def decide_by_type(space: Workspace, node: Node) -> bool:
    """Make the condition of an If a constant where its readers can take what one branch gives, and not the other."""
    condition = node.inputs[0] if node.op == "If" else None
    if condition is None or space.fact(condition).is_const:
        return False
    if all(space.fact(value).rank is not None for value in node.outputs):
        return False
    possible = {name: _can_be_taken(space, node, body) for name, body in node.bodies.items()}
    if all(possible.values()) or not any(possible.values()):
        return False
    decided = space.make_constant(Constant.of(np.full(_shape(space, condition), possible["then_branch"])))
    space.replace(condition, decided)
    return True


def _shape(space: Workspace, condition: Value) -> tuple[int, ...]:
    """The shape of a condition: of one element, in whatever rank the model has it."""
    return (1,) * (space.fact(condition).rank or 0)


def _can_be_taken(space: Workspace, node: Node, body: Graph) -> bool:
    """Whether what reads an If could take what a branch gives: types are inferred as if it were always taken."""
    facts = infer(body, facts_within(node, body, space.facts))
    given = zip(node.outputs, body.outputs, strict=True)
    # not what is constant: the branch is one of two
    return _is_taken(space, {value: Fact(facts[inner].type) for value, inner in given if inner in facts})


def _is_taken(space: Workspace, given: Mapping[Value, Fact]) -> bool:
    """Whether what reads values could take what they are assumed to be."""
    assumed = dict(given)
    readers = (reader for reader in space.graph.order() if any(v in assumed for v in reader.inputs))
    for reader in islice(readers, LOOKED):
        inputs = [None if v is None else assumed.get(v, space.fact(v)) for v in reader.inputs]
        if not _is_run(space.graph, reader, inputs):
            continue
        try:
            found = infer_in_graph(space.graph, reader, inputs, space.graph.functions)
        except InvalidModelError:
            return False
        assumed |= {v: fact for v, fact in zip(reader.outputs, found, strict=True) if fact != space.fact(v)}
    return True


def _is_run(graph: Graph, reader: Node, inputs: Sequence[Fact | None]) -> bool:
    """Whether all that is inferred of a reader is run whenever the reader is."""
    if reader.op != "If":
        return not _has_inner_nodes(graph, reader)
    taken = branches(reader, inputs[0])
    return len(taken) == 1 and not any(_has_inner_nodes(graph, node) for node in taken[0].nodes())


def _has_inner_nodes(graph: Graph, node: Node) -> bool:
    """Whether a node has bodies, or calls a function."""
    return bool(node.bodies) or (node.op, node.origin.overload) in graph.functions


DEMAND = NativePass(
    "only-branch",
    "a branch whose result no reader can take is never taken",
    "O1",
    visit=decide_by_type,
    ops=frozenset({"If"}),
)


OPEN = 3
"""Up to how many open sizes a Squeeze is asked what becomes of its result where they are 1."""


def name_axes(space: Workspace, node: Node) -> bool:
    """Name the axes of a Squeeze of all axes of size 1, of some open sizes: where these are 1 or not, readers can take
    what it gives in one case alone."""
    x, *axes = node.inputs
    shape = None if x is None else space.fact(x).shape
    dtype = space.fact(node.outputs[0]).dtype
    is_told = any(v is not None for v in axes) or space.fact(node.outputs[0]).rank is not None
    if x is None or shape is None or dtype is None or is_told:
        return False
    known = {i for i, size in enumerate(shape) if size == 1}
    sizes = [i for i, size in enumerate(shape) if not isinstance(size, int)]
    if not 0 < len(sizes) <= OPEN:
        return False
    ways = []
    for count in range(len(sizes) + 1):
        for ones in combinations(sizes, count):
            left = tuple(size for i, size in enumerate(shape) if i not in known and i not in ones)
            made = Fact(TensorType(dtype, left))
            if _is_taken(space, {node.outputs[0]: made}):
                ways.append(sorted(known.union(ones)))
    if len(ways) != 1:
        return False
    named = x
    if ways[0]:  # none that are named are all
        named = space.add("Squeeze", (x, space.make_constant(Constant.of(np.array(ways[0], np.int64)))))[0]
    space.replace(node.outputs[0], named)
    return True


NAMED = NativePass(
    "squeezed-axes",
    "a Squeeze of all axes is one of those that its readers leave it",
    "D1",
    visit=name_axes,
    ops=frozenset({"Squeeze"}),
    makes=frozenset({"Squeeze"}),
)
