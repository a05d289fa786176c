"""Constant folding: constants are computed before the model runs, as long as the model does not grow by it.

Sizes are inferred before anything is computed. While rewriting goes on, only results that are small
or no larger than what they replace are computed (``FOLD``); at the end ``fold_within`` computes the
rest as far as a budget of bytes allows. One repeated element stays one element.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from graphopt.ir.constants import Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import CONSTANT, INPUT, Graph, Node, Value
from graphopt.ir.work import OPERATIONS, stored_bytes
from graphopt.rewrite.match.evaluation import (
    SMALL_BYTES,
    OperationBudget,
    compute,
    cost_ahead,
    is_exact,
    is_foldable,
    is_one_element,
    is_splat_result,
    may_be_exact,
    ones_of,
    output_bytes,
    result_bytes,
)
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.passes.native import NativePass
from graphopt.rewrite.rule.rule import Soundness

WORK_LIMIT = 64 << 20
"""The most bytes that one computed constant may take while rewriting goes on."""
ALIVE, ALIVE_TIMES = 128 << 20, 2
"""At the end, so many bytes and so many times what the model stores may be computed and still needed at once."""
GROWTH = 10 << 20
"""By how many bytes a model may grow, or a tenth of what it stores where that is more."""


def fold_known(space: Workspace, node: Node) -> bool:
    """Replace integer vectors whose elements are known (shapes, and what is computed from them) by constants."""
    if node.op in (INPUT, CONSTANT):
        return False
    before = space.edits
    for value in node.outputs:
        fact = space.fact(value)
        constant = fact.constant or _from_elements(fact)
        if constant is not None and constant.nbytes <= SMALL_BYTES and _is_read(space, value):
            space.replace(value, space.make_constant(constant))
    return space.edits != before


def _is_read(space: Workspace, value: Value) -> bool:
    return space.graph.is_used(value.node) and bool(space.uses(value))


def _from_elements(fact: Fact) -> Constant | None:
    elements = fact.elements
    if elements is None or fact.shape is None or not all(isinstance(e, int) for e in elements):
        return None
    if fact.dtype not in ("int64", "int32", "bool") or fact.shape not in ((), (len(elements),)):
        return None
    return Constant.of(np.array(elements, dtype=fact.dtype).reshape(fact.shape), fact.dtype)


def fold(space: Workspace, node: Node, exactly: bool = False) -> bool:
    """Compute a node whose inputs are constants where the result is small or no larger than what it replaces; if
    ``exactly``, only where every runtime gives the same bits."""
    inputs: list[Constant | None] = []
    for value in node.inputs:
        constant = space.graph.constant_of(value)
        if constant is None and value is not None:
            return False
        inputs.append(constant)
    if not is_foldable(node) or not space.graph.is_used(node.id):
        return False
    size = output_bytes(node, [space.fact(v) for v in node.outputs], inputs)
    if size is None or size > max(SMALL_BYTES, min(WORK_LIMIT, _freed(space.graph, node))):
        return False
    space.ahead = space.ahead or OperationBudget.of(space.graph)
    if not space.ahead.takes(node, space.fact, ones_of(inputs)):
        return False
    results = compute(node, inputs, space.opset)
    if results is None or (exactly and not is_exact(node, inputs, results)):
        return False
    before = space.edits
    for value, constant in zip(node.outputs, results, strict=True):
        if space.graph.n_uses(value):
            space.replace(value, space.make_constant(constant))
    return space.edits != before


def _freed(graph: Graph, node: Node) -> int:
    """The bytes of the constants that nobody else reads."""
    total = 0
    for value in dict.fromkeys(node.inputs):
        constant = graph.constant_of(value)
        if value is not None and constant is not None and graph.readers(value.node) == [node.id]:
            total += 0 if graph.is_output(value) else constant.nbytes
    return total


def fold_within(
    graph: Graph, limit: int | None = None, exactly: bool = False, ahead: OperationBudget | None = None
) -> Graph:
    """The graph with everything computed that rests on constants alone, as long as it stores at most ``limit`` bytes;
    if ``exactly``, only that for which every runtime gives the same bits.

    Without a limit that is a tenth more than it stores now, and at least 10 MB more. What does not fit stays as it is;
    the same graph comes back where nothing was computed. Bodies come first. ``ahead`` is what it may take, by default
    as much as the graph may.
    """
    ahead = ahead or OperationBudget.of(graph)
    stored = stored_bytes(graph)
    limit = stored + max(GROWTH, stored // 10) if limit is None else limit
    graph = _fold_bodies(graph, limit - stored, exactly, ahead)
    stored = stored_bytes(graph)
    space = Workspace(graph.copy())
    room = limit - stored
    static = _static(space, max(WORK_LIMIT, stored + room), exactly)
    wanted = [n for n in static if _is_frontier(space.graph, n, static)]
    if not wanted:
        return graph
    freed = sum(c.nbytes for c in _only_read_by(space.graph, static))
    if sum(static[n] for n in wanted) - freed > room:
        wanted = _affordable(wanted, static, room)
    _compute_all(space, wanted, static, exactly, ahead)
    while (node := space.next()) is not None:
        if node.op != INPUT and not space.graph.is_used(node.id):
            space.remove(node.id)
    return space.graph if space.edits else graph


def _fold_bodies(graph: Graph, room: int, exactly: bool, ahead: OperationBudget) -> Graph:
    """The graph with the bodies of its nodes folded, which may grow by so many bytes together."""
    edited = graph
    for node in graph.order():
        bodies: dict[str, Graph] = {}
        for name, body in node.bodies.items():
            stored = stored_bytes(body)
            folded = fold_within(body, stored + room, exactly, ahead)
            if folded is not body:
                bodies[name] = folded
                room -= max(0, stored_bytes(folded) - stored)
        if bodies:
            edited = graph.copy() if edited is graph else edited
            edited.update(node.id, attrs=node.attrs.with_(**bodies))
    return edited


def _static(space: Workspace, largest: int, exactly: bool) -> dict[int, int]:
    """The nodes that rest on constants alone and can be computed, in order, with the bytes of their results."""
    bytes_of: dict[int, int] = {}
    ones: dict[Value, bool] = {}
    for node in space.graph.order():
        values = [v for v in node.inputs if v is not None]
        constants = [space.graph.constant_of(v) for v in values]
        for value, constant in zip(values, constants, strict=True):
            if constant is not None:
                ones[value] = is_one_element(constant)
        are_static = all(c is not None or v.node in bytes_of for v, c in zip(values, constants, strict=True))
        if not are_static or not is_foldable(node):
            continue
        if exactly and not may_be_exact(node, [space.fact(v).dtype for v in (*values, *node.outputs)]):
            continue
        inputs = [None if v is None else ones[v] for v in node.inputs]
        read = sum(c.nbytes if c is not None else bytes_of[v.node] for v, c in zip(values, constants, strict=True))
        results = [space.fact(v) for v in node.outputs]
        size = result_bytes(node, results, inputs, read)
        if size is None or size > largest:
            continue
        given = [None if v is None else space.fact(v) for v in node.inputs]
        if cost_ahead(node.op, node.attrs, given, results, inputs) <= OPERATIONS:
            bytes_of[node.id] = size
            ones.update(dict.fromkeys(node.outputs, is_splat_result(node.op, node.n_outputs, inputs)))
    return bytes_of


def _is_frontier(graph: Graph, id: int, static: dict[int, int]) -> bool:
    """Whether anybody reads the node's results who is not computed ahead too."""
    return any(graph.is_output(v) for v in graph.node(id).outputs) or any(r not in static for r in graph.readers(id))


def _only_read_by(graph: Graph, static: dict[int, int]) -> list[Constant]:
    """The constants that nobody else reads."""
    unshared: list[Constant] = []
    for node in graph.nodes():
        constant = graph.constant_of(Value(node.id)) if node.op == CONSTANT else None
        readers = graph.readers(node.id)
        if (
            constant is not None
            and readers
            and all(r in static for r in readers)
            and not graph.is_output(Value(node.id))
        ):
            unshared.append(constant)
    return unshared


def _affordable(wanted: list[int], static: dict[int, int], room: int) -> list[int]:
    """The smallest results first, as many as there is room for."""
    chosen: list[int] = []
    for id in sorted(wanted, key=lambda n: (static[n], n)):
        room -= static[id]
        if room < 0:
            break
        chosen.append(id)
    return sorted(chosen)


def _compute_all(
    space: Workspace, wanted: list[int], static: dict[int, int], exactly: bool, ahead: OperationBudget
) -> None:
    """Compute the wanted nodes, with what they need, and put constants in their place."""
    needed = set(wanted)
    waiting = list(wanted)
    while waiting:
        for value in space.graph.node(waiting.pop()).inputs:
            if value is not None and value.node in static and value.node not in needed:
                needed.add(value.node)
                waiting.append(value.node)
    results: dict[Value, Constant] = {}
    unread = {id: sum(reader in needed for reader in space.graph.readers(id)) for id in needed}
    kept, alive, most = set(wanted), 0, ALIVE + ALIVE_TIMES * stored_bytes(space.graph)
    for id in _one_by_one(space.graph, wanted, needed):
        node = space.graph.node(id)
        inputs = [None if v is None else results.get(v) or space.graph.constant_of(v) for v in node.inputs]
        is_ready = all(c is not None or v is None for c, v in zip(inputs, node.inputs, strict=True))
        if is_ready and alive + static[id] <= most and ahead.takes(node, space.fact, ones_of(inputs)):
            alive += static[id]
            outputs = compute(node, inputs, space.opset)
            if not exactly or (outputs is not None and is_exact(node, inputs, outputs)):
                results.update(zip(node.outputs, outputs or (), strict=False))
        for source in {v.node for v in node.inputs if v is not None and v.node in needed}:
            unread[source] -= 1
            if not unread[source] and source not in kept and Value(source) in results:
                alive -= static[source]
                for value in space.graph.node(source).outputs:
                    results.pop(value, None)
    for id in wanted:
        for value in space.graph.node(id).outputs:
            if value in results and space.uses(value):
                space.replace(value, space.make_constant(results[value]))


def _one_by_one(graph: Graph, wanted: list[int], needed: set[int]) -> list[int]:
    """The needed nodes in an order in which each wanted one comes as soon as what it needs is there."""
    order: dict[int, None] = {}
    for goal in wanted:
        waiting = [goal]
        while waiting:
            missing = [v.node for v in graph.node(waiting[-1]).inputs if v is not None and v.node in needed]
            missing = [id for id in dict.fromkeys(missing) if id not in order]
            if missing:
                waiting.append(missing[0])
            else:
                order.setdefault(waiting.pop())
    return list(order)


FOLD = NativePass(
    "constant-folding",
    "what rests on constants alone is computed once, now",
    "A17,D9",
    Soundness.REALS,
    visit=fold,
)
FOLD_EXACTLY = NativePass(
    "exact-folding",
    "what rests on constants alone is computed once, now, where every runtime gives the same bits",
    "A17,A18,D9",
    visit=partial(fold, exactly=True),
)


KINDS = {
    "B1": frozenset({"Shape"}),
    "B2": frozenset({"Gather"}),
    "B3": frozenset({"Slice", "Split"}),
    "B8": frozenset({"Size", "Range", "ConstantOfShape"}),
    "B13": frozenset({"ScatterND", "ScatterElements"}),
}
"""The ops of the families that are about one kind of op."""
OTHERS = frozenset().union(*KINDS.values())


def fold_others(space: Workspace, node: Node) -> bool:
    """``fold_known``, of ops that no family is about."""
    return node.op not in OTHERS and fold_known(space, node)


KNOWN = (
    NativePass(
        "known-shape",
        "the shape of a tensor of known sizes is a constant",
        "B1",
        visit=fold_known,
        ops=KINDS["B1"],
    ),
    NativePass(
        "known-size",
        "one size of a shape is a constant where it is known",
        "B2",
        visit=fold_known,
        ops=KINDS["B2"],
    ),
    NativePass(
        "known-sizes",
        "some sizes of a shape are a constant where they are known",
        "B3",
        visit=fold_known,
        ops=KINDS["B3"],
    ),
    NativePass(
        "known-range",
        "sizes, ranges and fills of known extent are constants",
        "B8",
        visit=fold_known,
        ops=KINDS["B8"],
    ),
    NativePass(
        "scattered-sizes",
        "a shape of which some sizes are overwritten is a constant",
        "B13",
        visit=fold_known,
        ops=KINDS["B13"],
    ),
    NativePass(
        "known-elements",
        "what is computed from shapes is known before the model runs",
        "A19",
        visit=fold_others,
    ),
)
