"""GroupQueryAttention (com.microsoft) in ops of its parts: what splits one input and turns queries and keys, what
writes keys and values into a buffer that does not grow (``past_present_share_buffer``), and what keeps them as integers
of few bits.

Nothing is lost by that: what an op before attention gives is written where attention reads it, turned keys, in few
bits, are what a cache holds, and a buffer that the program keeps is written where it lies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphopt.ir.caches import PASTS
from graphopt.ir.constants import Constant
from graphopt.ir.dtypes import CODES
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Attrs, Graph, Node, Value
from graphopt.ir.infer import infer
from graphopt.ir.types import TensorType

GROUPED, ROTARY = "com.microsoft::GroupQueryAttention", "com.microsoft::RotaryEmbedding"
LENGTHS, TOTAL, COS, SIN, POSITIONS, BIAS, STEPS = 5, 6, 7, 8, 9, 10, (12, 13)
"""Inputs behind the past: how long each sequence is, less one, and the longest; the angles, and of which positions they
are; what is added to scores; the steps in which keys and values are kept."""
PRESENT, SCORES = 1, 3
"""Of attention the outputs that are the keys of the past with those that are new, and its scores."""


def with_parts_apart(graph: Graph) -> Graph:
    """The graph with such attention of queries, keys and values that come apart and turned, and of buffers of one
    length that are written before; itself without any."""
    found = [
        n for n in graph.order() if n.op == GROUPED and (_is_packed(n) or n.attrs.get("do_rotary") or _is_in_steps(n))
    ]
    buffered = [n for n in graph.order() if n.op == GROUPED and _shares_buffer(graph, n)]
    facts = infer(graph) if found or buffered else {}
    graph = graph.copy() if found or buffered else graph
    for node in found:
        _apart(graph, node, facts)
    for node in buffered:
        _buffered(graph, node.id, facts)
    return graph


def _is_packed(node: Node) -> bool:
    return node.inputs[1] is None


def _is_in_steps(node: Node) -> bool:
    return all(_input(node, k) is not None for k in STEPS)


def _input(node: Node, k: int) -> Value | None:
    return node.inputs[k] if k < len(node.inputs) else None


def _shares_buffer(graph: Graph, node: Node) -> bool:
    """Whether the keys that are present are said to be as many as those of the past: then new ones are written into the
    room that the past leaves."""
    past = _input(node, PASTS[GROUPED][0])
    before = None if past is None else graph.types.get(past)
    after = graph.types.get(Value(node.id, PRESENT)) if node.n_outputs > PRESENT else None
    return isinstance(before, TensorType) and before == after and before.rank == 4


def numbers(graph: Graph, *held: int) -> Value:
    """A vector of numbers."""
    return graph.add_constant(Constant.of(np.array(held, np.int64)))


def _call(graph: Graph, op: str, *inputs: Value | None, **attrs: Any) -> Value:
    return graph.add(op, inputs, Attrs(attrs)).outputs[0]


def _number(graph: Graph, held: int, dtype: str = "float32") -> Value:
    return graph.add_constant(Constant.of(np.array(held, dtype)))


def with_heads(graph: Graph, x: Value, heads: int) -> Value:
    """Heads that lie side by side in the last axis, as the axis before that of time."""
    apart = _call(graph, "Reshape", x, numbers(graph, 0, 0, heads, -1))
    return _call(graph, "Transpose", apart, perm=(0, 2, 1, 3))


def without_heads(graph: Graph, x: Value) -> Value:
    """Heads side by side in the last axis."""
    turned = _call(graph, "Transpose", x, perm=(0, 2, 1, 3))
    return _call(graph, "Reshape", turned, numbers(graph, 0, 0, -1))


def _apart(graph: Graph, node: Node, facts: Mapping[Value, Fact]) -> None:
    heads, groups = node.attrs.get("num_heads"), node.attrs.get("kv_num_heads")
    x = node.inputs[0]
    shape = None if x is None else facts[x].shape
    if x is None or shape is None or len(shape) != 3 or not isinstance(heads, int) or not isinstance(groups, int):
        return
    q, k, v = node.inputs[:3]
    if _is_packed(node):
        width = shape[2]
        if not isinstance(width, int) or width % (heads + 2 * groups):
            return
        size = width // (heads + 2 * groups)
        sizes = numbers(graph, heads * size, groups * size, groups * size)
        q, k, v = graph.add("Split", (x, sizes), Attrs(axis=-1), 3).outputs
    if node.attrs.get("do_rotary"):
        angles = _input(node, COS), _input(node, SIN)
        positions = _input(node, POSITIONS)
        positions = _positions(graph, node, q) if positions is None else positions
        turned = node.attrs.get("rotary_interleaved", 0)
        q, k = (
            _call(graph, ROTARY, part, positions, *angles, interleaved=turned, num_heads=count)
            for part, count in ((q, heads), (k, groups))
        )
    rest = tuple(None if k in (COS, SIN, POSITIONS) else value for k, value in enumerate(node.inputs))[3:]
    attrs = node.attrs.with_(do_rotary=None, rotary_interleaved=None)
    graph.update(node.id, inputs=(q, k, v, *rest), attrs=attrs)
    counts = [facts[step].size for n in STEPS if (step := _input(node, n)) is not None]
    is_known = len(counts) == len(STEPS) and None not in counts and k is not None and v is not None
    if is_known and node.n_outputs <= SCORES and not _shares_buffer(graph, node):
        _keep_steps(graph, graph.node(node.id), groups, [count == 1 for count in counts])


def _keep_steps(graph: Graph, node: Node, groups: int, is_one: Sequence[bool]) -> None:
    """Let attention read keys and values that come from what is kept of them, of which a step may be one for all."""
    is_packed = node.attrs.get("kv_cache_bit_width") == 4
    read: list[Value] = []
    for port in (1, 2):
        new, past, step = (_input(node, n) for n in (port, PASTS[GROUPED][port - 1], STEPS[port - 1]))
        assert new is not None
        assert step is not None
        step = _call(graph, "Reshape", step, numbers(graph, 1, 1 if is_one[port - 1] else groups, 1, -1))
        kept = _in_steps(graph, with_heads(graph, new, groups), step, is_packed)
        kept = kept if past is None else _call(graph, "Concat", past, kept, axis=2)
        if port < node.n_outputs:
            graph.replace(Value(node.id, port), kept)
        read.append(_of_steps(graph, kept, step, is_packed))
    rest = tuple(None if k in (*PASTS[GROUPED], *STEPS) else value for k, value in enumerate(node.inputs))[3:]
    attrs = node.attrs.with_(k_quant_type=None, v_quant_type=None, kv_cache_bit_width=None)
    graph.update(node.id, inputs=(node.inputs[0], *read, *rest), attrs=attrs, n_outputs=1)


def _in_steps(graph: Graph, x: Value, step: Value, is_packed: bool) -> Value:
    """Numbers in steps, as int8; or as nibbles that are 8 more, the first of two neighbours in the lower half."""
    low, high = (-8, 7) if is_packed else (-128, 127)
    whole = _call(graph, "Round", _call(graph, "Div", x, step))
    steps = _call(graph, "Clip", whole, _number(graph, low), _number(graph, high))
    if not is_packed:
        return _call(graph, "Cast", steps, to=CODES["int8"])
    nibbles = _call(graph, "Cast", _call(graph, "Sub", steps, _number(graph, low)), to=CODES["uint8"])
    ends, axes, paces = numbers(graph, np.iinfo(np.int64).max), numbers(graph, -1), numbers(graph, 2)
    lower, upper = (_call(graph, "Slice", nibbles, numbers(graph, start), ends, axes, paces) for start in (0, 1))
    return _call(graph, "Add", lower, _call(graph, "Mul", upper, _number(graph, 16, "uint8")))


def _of_steps(graph: Graph, kept: Value, step: Value, is_packed: bool) -> Value:
    """The numbers that are kept so."""
    if not is_packed:
        return _call(graph, "Mul", _call(graph, "Cast", kept, to=CODES["float32"]), step)
    lower = _call(graph, "BitwiseAnd", kept, _number(graph, 15, "uint8"))
    upper = _call(graph, "BitShift", kept, _number(graph, 4, "uint8"), direction="RIGHT")
    halves = [_call(graph, "Unsqueeze", half, numbers(graph, -1)) for half in (lower, upper)]
    nibbles = _call(graph, "Reshape", _call(graph, "Concat", *halves, axis=-1), numbers(graph, 0, 0, 0, -1))
    steps = _call(graph, "Sub", _call(graph, "Cast", nibbles, to=CODES["float32"]), _number(graph, 8))
    return _call(graph, "Mul", steps, step)


def _lengths(graph: Graph, node: Node, q: Value | None) -> tuple[Value, Value]:
    """How many keys each sequence has, [batch], and how many queries. Sequences that begin are as long as the longest
    of them: what follows their last token is not seen by those before it."""
    count = _call(graph, "Reshape", _call(graph, "Shape", q, start=1, end=2), numbers(graph))
    held, total = (_call(graph, "Cast", _input(node, k), to=CODES["int64"]) for k in (LENGTHS, TOTAL))
    begins = _call(graph, "Equal", _call(graph, "Reshape", total, numbers(graph)), count)
    each = _call(graph, "Add", _call(graph, "Reshape", held, numbers(graph, -1)), _number(graph, 1, "int64"))
    return _call(graph, "Where", begins, count, each), count


def _positions(graph: Graph, node: Node, q: Value | None) -> Value:
    """The places of queries, [batch, length]: those at the end of each sequence."""
    lengths, count = _lengths(graph, node, q)
    steps = _call(graph, "Range", _number(graph, 0, "int64"), count, _number(graph, 1, "int64"))
    first = _call(graph, "Sub", lengths, count)
    return _call(graph, "Add", _call(graph, "Reshape", first, numbers(graph, -1, 1)), steps)


MEANT = frozenset({"num_heads", "kv_num_heads", "scale", "softcap", "local_window_size", "causal"})
"""Attributes of which something comes in ``Attention``."""


def _buffered(graph: Graph, number: int, facts: Mapping[Value, Fact]) -> None:
    """Attention to a buffer into which keys and values were written, each sequence's behind its own."""
    node = graph.node(number)
    groups, window = (node.attrs.get(name) for name in ("kv_num_heads", "local_window_size"))
    q, *new = (_input(node, k) for k in range(3))
    heads = node.attrs.get("num_heads")
    others = {k for k, v in node.attrs.items() if k not in MEANT and v not in (0, -1, b"NONE")}
    is_plain = not others and all(_input(node, k) is None for k in range(COS, len(node.inputs)) if k != BIAS)
    if q is None or not is_plain or node.n_outputs > SCORES or not isinstance(heads, int) or window == 0:
        return
    ranks = [facts[v].rank if v in facts else 3 for v in new if v is not None]
    if ranks != [3, 3] or not isinstance(groups, int):
        return
    lengths, count = _lengths(graph, node, q)
    first = _call(graph, "Sub", lengths, count)
    written = [
        _call(graph, "TensorScatter", _input(node, k), with_heads(graph, x, groups), first, axis=2)
        for k, x in zip(PASTS[GROUPED], new, strict=True)
        if x is not None
    ]
    attrs = Attrs(is_causal=node.attrs.get("causal", 1), softcap=node.attrs.get("softcap", 0.0))
    attrs = attrs.with_(scale=node.attrs.get("scale") or None)
    attrs = attrs.with_(left_window_size=window - 1) if isinstance(window, int) and window > 0 else attrs
    apart = with_heads(graph, q, heads)
    given = (apart, *written, _input(node, BIAS), None, None, lengths)
    y = without_heads(graph, graph.add("Attention", given, attrs).outputs[0])
    for port, value in enumerate((y, *written)):
        if port < node.n_outputs:
            graph.replace(Value(node.id, port), value)
    graph.remove(node.id)
