"""Attention: softmax of masked scores of queries and keys, multiplied by the values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from graphopt.frozen import dataclass
from graphopt.ir.dtypes import dtype_of
from graphopt.lowering.loops import compute as t
from graphopt.lowering.loops.compute import Requirement, Tensor, compute, require
from graphopt.lowering.loops.expressions import (
    FLOATS,
    INDEX,
    Const,
    Expr,
    apply,
    cast,
    conjunction,
    const,
    equal,
    maximum,
    minimum,
    select,
)
from graphopt.lowering.operators.attention_tiles import Reach, Tiled
from graphopt.lowering.operators.elements import (
    broadcast,
    decayed,
    fitting,
    inputs_fitting,
    integer,
    label,
    number,
    required,
    wide,
    widened,
)
from graphopt.lowering.operators.indices import matching
from graphopt.lowering.operators.operation import LoweringTable, NotLowered, Operation
from graphopt.lowering.operators.products import product
from graphopt.lowering.operators.reductions import over

DOMAIN = "com.microsoft::"


@dataclass(frozen=True)
class Heads:
    """A tensor as [batch, heads, length, size], where its heads may lie side by side in its last axis."""

    tensor: Tensor
    heads: Expr
    size: Expr
    start: Expr
    """Where the first head begins in the last axis."""

    @classmethod
    def of(cls, tensor: Tensor, heads: int) -> Heads:
        """The tensor, of four axes or of three with so many heads in the last."""
        if tensor.rank == 4:
            return cls(tensor, tensor.shape[1], tensor.shape[3], Const(0))
        if tensor.rank != 3 or heads < 1:
            raise NotLowered(f"attention to a tensor of rank {tensor.rank} with {heads} heads")
        return cls(tensor, Const(heads), tensor.shape[2] // heads, Const(0))

    @property
    def shape(self) -> tuple[Expr, ...]:
        """Batch, heads, length, size."""
        length = self.tensor.shape[2] if self.tensor.rank == 4 else self.tensor.shape[1]
        return self.tensor.shape[0], self.heads, length, self.size

    def __call__(self, b: Expr, h: Expr, i: Expr, d: Expr) -> Expr:
        """An element."""
        if self.tensor.rank == 4:
            return self.tensor[b, h, i, d]
        return self.tensor[b, i, self.start + h * self.size + d]

    def behind(self, past: Tensor | None, name: str, at: Callable[[Expr], Expr] | None = None) -> Heads:
        """The same as a tensor of four axes, behind those of the past where there are any: behind as many of them as
        ``at`` says of a batch, with zeros behind that."""
        if past is None:
            if self.tensor.rank == 4:
                return self
            return Heads.of(compute(self.shape, self, self.tensor.dtype, name), 0)
        before = past.shape[2]
        b, h, length, d = self.shape

        def element(b: Expr, h: Expr, i: Expr, d: Expr) -> Expr:
            if at is None:
                return select(i < before, past[b, h, i, d], self(b, h, i - before, d))
            first = at(b)
            rest = select(i < first + length, self(b, h, i - first, d), Const(0.0, past.dtype))
            return select(i < minimum(first, before), past[b, h, i, d], rest)

        return Heads.of(compute((b, h, before + length, d), element, self.tensor.dtype, name), 0)


Bias = Callable[[Expr, Expr, Expr, Expr], tuple[list[Expr], list[Expr]]]
"""Of a batch, head, query and key: what must hold for the query to see the key, and what is added to their score."""


@dataclass(frozen=True)
class Attended:
    """Results and intermediates of attention, each ``[batch, heads, queries, keys]``."""

    scores: Tensor
    capped: Tensor
    masked: Tensor
    shares: Tensor
    y: Tensor
    """[batch, queries, heads, size]."""


def _factor(scale: float | None, size: Expr, dtype: str) -> Expr:
    """The factor of scores: one over the root of the head size by default."""
    if scale:
        return const(scale, dtype)
    if scale is None and isinstance(size, Const) and size.value:
        return const(size.value**-0.5, dtype)
    return 1.0 / apply("sqrt", cast(size, dtype))


def _capped(value: Expr, softcap: float) -> Expr:
    return apply("tanh", value / softcap) * softcap if softcap else value


def _biased(value: Expr, bias: Bias, at: Sequence[Expr]) -> Expr:
    """The score with what is added to it; minus infinity for a key that is not seen."""
    conditions, added = bias(*at)
    for more in added:
        value = value + cast(widened(more), value.dtype)
    return select(conjunction(*conditions), value, const(-inf, value.dtype))


def attended(
    op: Operation,
    q: Heads,
    k: Heads,
    v: Heads,
    scale: float | None,
    bias: Bias,
    softcap: float = 0.0,
    precision: str | None = None,
    requirements: Sequence[Requirement] = (),
    reach: Reach | None = None,
) -> Tensor:
    """The first output of attention, of which nothing else is asked for: in tiles where that is possible."""
    inner = wide(q.tensor.dtype)
    factor = _factor(scale, q.size, inner)

    def score(product: Expr, at: tuple[Expr, Expr, Expr, Expr]) -> Expr:
        return _biased(_capped(product, softcap), bias, at)

    tiles = Tiled(q, k, v, factor, score, reach, requirements)
    if (precision or inner) != inner or op.dtype() != q.tensor.dtype or not (op.is_for_host and tiles.is_possible):
        return as_output(op, attend(q, k, v, scale, bias, softcap, precision, requirements).y)
    shape, size = op.shape(), v.size

    def head_index(b: Expr, h: Expr, i: Expr, d: Expr) -> tuple[Expr, ...]:
        return (b, i, h * size + d) if len(shape) == 3 else (b, h, i, d)

    return tiles.written(label(op), shape, head_index)


def attend(
    q: Heads,
    k: Heads,
    v: Heads,
    scale: float | None,
    bias: Bias,
    softcap: float = 0.0,
    precision: str | None = None,
    requirements: Sequence[Requirement] = (),
) -> Attended:
    """Attention of queries to as many or fewer heads of keys and values. ``precision`` is that of the shares."""
    inner = wide(q.tensor.dtype)
    batch, heads, queries, size = q.shape
    keys = k.shape[2]
    shape = (batch, heads, queries, keys)
    factor = _factor(scale, size, inner)

    def head(h: Expr) -> Expr:
        return h if k.heads == heads else h // (heads // k.heads)

    def products(b: Expr, h: Expr, i: Expr, j: Expr) -> t.ReduceStage:
        d = t.reduce_axis(size)
        return t.sum(widened(q(b, h, i, d.var)) * widened(k(b, head(h), j, d.var)), d)

    total = compute(shape, products, name="scores", requirements=requirements)
    scores = compute(shape, lambda *at: total[at] * factor, inner, "scaled")
    capped = scores
    if softcap:
        capped = compute(shape, lambda *at: _capped(scores[at], softcap), inner, "capped")
    hidden = compute(shape, lambda *at: _biased(capped[at], bias, at), inner, "masked")
    shares = _shares(hidden, precision or inner, inner)

    def weighed(b: Expr, i: Expr, h: Expr, d: Expr) -> t.ReduceStage:
        j = t.reduce_axis(keys)
        return t.sum(shares[b, h, i, j.var] * widened(v(b, head(h), j.var, d)), j)

    y = compute((batch, queries, heads, v.shape[3]), weighed, name="attended")
    return Attended(scores, capped, hidden, shares, y)


def _shares(x: Tensor, precision: str, dtype: str) -> Tensor:
    """The softmax along the last axis; zeros where all of a row is minus infinity."""
    rows = (3,)
    soft = wide(precision)

    def element(*at: Expr) -> Expr:
        value: Expr = x[at]
        return cast(value if precision == value.dtype else cast(value, precision), soft)

    largest = over(x.shape, rows, element, t.max, "largest")

    def exponential(*at: Expr) -> Expr:
        most = largest[at[:3]]
        return decayed(element(*at) - select(equal(most, -inf), 0, most))

    total = over(x.shape, rows, exponential, t.sum, "total")

    def share(*at: Expr) -> Expr:
        whole = total[at[:3]]
        return cast(exponential(*at) / select(equal(whole, 0), 1, whole), dtype)

    return compute(x.shape, share, dtype, "shares")


def as_output(op: Operation, y: Tensor, port: int = 0) -> Tensor:
    """Attended values [batch, queries, heads, size] as the op's output."""
    shape, dtype, size = op.shape(port), op.dtype(port), y.shape[3]
    if len(shape) == 3:
        return compute(shape, lambda b, i, n: cast(y[b, i, n // size, n % size], dtype), dtype, label(op))
    return compute(shape, lambda b, h, i, d: cast(y[b, i, h, d], dtype), dtype, label(op))


def _given(op: Operation, outputs: Sequence[Tensor]) -> list[Tensor]:
    """The tensors as the op's outputs, as many as it has, in their dtypes."""
    results = []
    for k, tensor in enumerate(outputs[: len(op.outputs)]):
        dtype = op.dtype(k)
        same = tensor.dtype == dtype and tensor.stage is not None
        results.append(tensor if same else _cast(tensor, dtype))
    return results


def _cast(tensor: Tensor, dtype: str) -> Tensor:
    return compute(tensor.shape, lambda *at: cast(tensor[at], dtype), dtype, tensor.name)


# -- ONNX's op


def _attention(op: Operation) -> Sequence[Tensor]:
    groups = integer(op, "kv_num_heads") if op.attr("kv_num_heads") is not None else 0
    q = Heads.of(op.input(0), integer(op, "q_num_heads") if op.attr("q_num_heads") is not None else 0)
    past = [op.input(k) if op.has(k) else None for k in (4, 5)]
    k, v = (Heads.of(op.input(n), groups) for n in (1, 2))
    present = len(op.outputs) > 1
    if present or past[0] is not None:
        k, v = k.behind(past[0], "keys"), v.behind(past[1], "values")
    lengths = op.input(6) if op.has(6) else None
    queries, offset = q.shape[2], Const(0) if past[0] is None else past[0].shape[2]
    sides = [_window(op, name) for name in ("left_window_size", "right_window_size")]
    causal, mask = bool(integer(op, "is_causal")), op.input(3) if op.has(3) else None
    whole = (*q.shape[:3], k.shape[2])

    def behind(b: Expr) -> Expr:
        return offset if lengths is None else cast(lengths[b], INDEX) - queries

    def bias(b: Expr, h: Expr, i: Expr, j: Expr) -> tuple[list[Expr], list[Expr]]:
        offset = behind(b)
        conditions, added = [], []
        if causal:
            conditions.append(j <= i + offset)
        if sides[0] >= 0:
            conditions.append(i + offset - j <= sides[0])
        if sides[1] >= 0:
            conditions.append(j - i - offset <= sides[1])
        if lengths is not None:
            conditions.append(j < cast(lengths[b], INDEX))
        if mask is not None:
            seen, more = _masked(mask, whole, (b, h, i, j))
            conditions += seen
            added += more
        return conditions, added

    softcap, precision = op.attr("softcap"), op.attr("softmax_precision")
    cap = float(softcap) if isinstance(softcap, (int, float)) else 0.0
    soft = dtype_of(precision) if isinstance(precision, int) and precision else None
    if soft is not None and soft not in FLOATS:
        raise NotLowered(f"softmax in {soft}")
    scale = op.attr("scale")
    fits = _matching(op, q, k, v)
    if mask is not None:
        fits += fitting(op.op, mask.shape[:-1], whole[:3])
    given = float(scale) if isinstance(scale, (int, float)) else None
    if len(op.outputs) < 4:
        reach = (lambda b, i: i + behind(b) + 1) if causal else None
        y = attended(op, q, k, v, given, bias, cap, soft, fits, reach)
        return _given(op, [y, k.tensor, v.tensor])
    result = attend(q, k, v, given, bias, cap, soft, fits)
    mode = integer(op, "qk_matmul_output_mode")
    seen = (result.scores, result.capped, result.masked, result.shares)[mode]
    return _given(op, [as_output(op, result.y), k.tensor, v.tensor, seen])


def _window(op: Operation, name: str) -> int:
    """The number of keys that a query sees to one side; -1 for no bound."""
    size = op.attr(name)
    return size if isinstance(size, int) else -1


def _matching(op: Operation, q: Heads, k: Heads, v: Heads) -> list[Requirement]:
    """The requirements of as many keys as values, each as long as a query, where that is not known."""
    fits = matching(op, (k.shape[0], v.shape[0], k.shape[3]), (q.shape[0], q.shape[0], q.shape[3]))
    return fits + matching(op, v.shape[1:3], k.shape[1:3])


def _masked(mask: Tensor, whole: Sequence[Expr], at: Sequence[Expr]) -> tuple[list[Expr], list[Expr]]:
    """The mask of a key: conditions to be seen, and terms to add; keys beyond the mask are not seen."""
    keys, j = mask.shape[-1], at[3]
    held = broadcast(mask, (*whole[:3], keys), at)
    seen = held if mask.dtype == "bool" else apply("ne", widened(held), -inf)
    if keys != whole[3]:
        seen = select(j < keys, seen, Const(False, "bool"))
    return [seen], [] if mask.dtype == "bool" else [held]


# -- ONNX Runtime's ops


def _bias_of(op: Operation, k: int, causal: bool, whole: Sequence[Expr]) -> Bias:
    """The bias of ONNX Runtime's ops: the k-th input is added, and causal queries stand behind other keys."""
    mask = op.input(k) if op.has(k) else None

    def bias(b: Expr, h: Expr, i: Expr, j: Expr) -> tuple[list[Expr], list[Expr]]:
        conditions = [j <= i + whole[3] - whole[2]] if causal else []
        return conditions, [] if mask is None else [broadcast(mask, whole, (b, h, i, j))]

    return bias


def _reach_of(causal: bool, whole: Sequence[Expr]) -> Reach | None:
    """The number of keys that causal queries may see."""
    return (lambda b, i: i + whole[3] - whole[2] + 1) if causal else None


def _scale(op: Operation) -> float | None:
    scale = op.attr("scale")
    return float(scale) if isinstance(scale, (int, float)) and scale else None


def _refuse(op: Operation, *inputs: int) -> None:
    for k in inputs:
        if op.has(k):
            raise NotLowered(f"{op.op} with its input {k}")


def _multi_head(op: Operation) -> Sequence[Tensor]:
    """Queries, keys and values may have biases, one behind the other."""
    _refuse(op, 4, 8, 9)
    if len(op.outputs) > 3:
        raise NotLowered(f"{op.op} that gives its scores")
    heads, parts = integer(op, "num_heads"), [op.input(k) for k in range(3)]
    if op.has(3):
        bias, start, moved = op.input(3), Const(0), list[Tensor]()
        for part in parts:
            if part.rank != 3:
                raise NotLowered(f"{op.op} with biases of heads")
            moved.append(_moved(part, bias, start))
            start = start + part.shape[2]  # type: ignore[assignment]
        parts = moved
    q, k, v = (Heads.of(p, heads) for p in parts)
    past = [op.input(n) if op.has(n) else None for n in (6, 7)]
    if len(op.outputs) > 1 or past[0] is not None:
        k, v = k.behind(past[0], "keys"), v.behind(past[1], "values")
    whole = (*q.shape[:3], k.shape[2])
    causal = bool(integer(op, "unidirectional"))
    fits = [*_matching(op, q, k, v), *inputs_fitting(op, (5,), whole)]
    added, reach = _bias_of(op, 5, causal, whole), _reach_of(causal, whole)
    y = attended(op, q, k, v, _scale(op), added, requirements=fits, reach=reach)
    return _given(op, [y, k.tensor, v.tensor])


def _moved(x: Tensor, bias: Tensor, start: Expr) -> Tensor:
    return compute(x.shape, lambda b, i, n: x[b, i, n] + bias[start + n], x.dtype, "moved")


def _packed(op: Operation) -> Sequence[Tensor]:
    """One product makes queries, keys and values."""
    _refuse(op, 3, 4, 6)
    if len(op.outputs) > 1:
        raise NotLowered(f"{op.op} that gives its keys and values")
    x, w, heads, sizes = op.input(0), op.input(1), integer(op, "num_heads"), op.attr("qkv_hidden_sizes")
    third = w.shape[1] // 3
    widths = [Const(s) for s in sizes if isinstance(s, int)] if isinstance(sizes, tuple) and sizes else [third] * 3
    projected = product(x, w, (*x.shape[:2], w.shape[1]), op.dtype(), "projected")
    if op.has(2):
        projected = _moved(projected, op.input(2), Const(0))
    start: Expr = Const(0)
    parts = []
    for width in widths:
        parts.append(Heads(projected, Const(heads), width // heads, start))
        start = start + width
    q, k, v = parts
    whole = (*q.shape[:3], k.shape[2])
    causal = bool(integer(op, "unidirectional"))
    added, fits = _bias_of(op, 5, causal, whole), inputs_fitting(op, (5,), whole)
    return [attended(op, q, k, v, _scale(op), added, requirements=fits, reach=_reach_of(causal, whole))]


def _group_query(op: Operation) -> Sequence[Tensor]:
    """Sequences may be of different lengths: what is new stands behind what each has, and nothing behind that."""
    _refuse(op, *range(7, 10), *range(11, 17))
    if len(op.outputs) > 3 or integer(op, "local_window_size") == 0:
        raise NotLowered(f"{op.op} with a window of no keys, or that gives its scores")
    for name in ("smooth_softmax", "sliding_window_cache"):
        if op.attr(name) not in (None, 0, -1):
            raise NotLowered(f"{op.op} with {name}")
    groups = integer(op, "kv_num_heads")
    q, k, v = Heads.of(op.input(0), integer(op, "num_heads")), *(Heads.of(op.input(n), groups) for n in (1, 2))
    past, queries = [op.input(n) if op.has(n) else None for n in (3, 4)], q.shape[2]
    held, total = op.input(5), op.input(6)
    begins = equal(cast(total[(Const(0),) * total.rank], INDEX), queries)

    def behind(b: Expr) -> Expr:
        at = (b,) if held.rank == 1 else (b, Const(0))
        return select(begins, Const(0), cast(held[at], INDEX) + 1 - queries)

    k, v = k.behind(past[0], "keys", behind), v.behind(past[1], "values", behind)
    whole, mask = (*q.shape[:3], k.shape[2]), op.input(10) if op.has(10) else None

    def fits_in(b: Expr) -> Expr:
        last = behind(b) + queries
        return equal(last, whole[3]) if past[0] is None else conjunction(behind(b) >= 0, last <= whole[3])

    def longest(*at: Expr) -> Expr:
        return equal(cast(total[at], INDEX), whole[3])

    message = f"{op.op}: sequences of different lengths"
    fits = [require((q.shape[0],), fits_in, message), *_matching(op, q, k, v)]
    if past[0] is not None and len(op.outputs) > 1:
        other = f"{op.op}: the cache does not grow by what is new, as its outputs' shapes say"
        fits.append(require(total.shape, longest, other))
    if mask is not None:
        fits += fitting(op.op, mask.shape[:-1], whole[:3])
    causal, window = bool(integer(op, "causal")), integer(op, "local_window_size")

    def bias(b: Expr, h: Expr, i: Expr, j: Expr) -> tuple[list[Expr], list[Expr]]:
        place = i + behind(b)
        conditions = [j <= place if causal else j < behind(b) + queries]
        conditions += [] if window < 0 else [place - j < window]
        seen, added = ([], []) if mask is None else _masked(mask, whole, (b, h, i, j))
        return [*conditions, *seen], added

    def reach(b: Expr, i: Expr) -> Expr:
        return behind(b) + (i + 1 if causal else queries)

    y = attended(op, q, k, v, _scale(op), bias, number(op, "softcap"), None, fits, reach)
    return _given(op, [y, k.tensor, v.tensor])


# -- positions as angles


def _rotated(op: Operation, cos: int, sin: int, positions: int) -> Tensor:
    """Pairs of elements of each head, turned by the angles of their position; the k-th inputs hold what is named."""
    x, c, s = op.input(0), op.input(cos), op.input(sin)
    half, length = c.shape[-1], x.shape[2] if x.rank == 4 else x.shape[1]
    heads = integer(op, "num_heads") if op.attr("num_heads") is not None else 0
    if op.op.startswith(DOMAIN):
        if number(op, "scale") != 1.0 or integer(op, "is_packed_batching"):
            raise NotLowered(f"{op.op} that is scaled or packed")
        if x.rank == 3 and not heads:  # without heads, all of a head is turned
            heads = _whole(op, x.shape[2], half)
    given, inner = Heads.of(x, heads), wide(x.dtype)
    interleaved, checked = bool(integer(op, "interleaved")), list[Requirement]()
    places = op.input(positions) if op.has(positions) else None

    def position(b: Expr, i: Expr) -> Expr:
        assert places is not None
        return cast(places[0], INDEX) + i if places.rank == 1 else cast(places[b, i], INDEX)

    if places is not None:
        shape = (Const(1), length) if places.rank == 1 else places.shape
        inside = [
            require(shape, lambda b, i: conjunction(position(b, i) >= 0, position(b, i) < c.shape[0]), _range(op))
        ]
        checked += inside

    def angle(table: Tensor, b: Expr, i: Expr, pair: Expr) -> Expr:
        if places is None:
            return cast(table[b, i, pair], inner)
        return cast(table[minimum(maximum(position(b, i), 0), table.shape[0] - 1), pair], inner)

    def turned(b: Expr, h: Expr, i: Expr, d: Expr) -> Expr:
        # x * cos - y * sin, x * sin + y * cos: neighbours go in one vector, with a sign; halves in vectors of their own
        pair = d // 2 if interleaved else d % half
        cosine, sine = angle(c, b, i, pair), angle(s, b, i, pair)
        if interleaved:
            own, other = widened(given(b, h, i, d)), widened(given(b, h, i, d + 1 - d % 2 * 2))
            value = own * cosine + other * (cast(d % 2 * 2 - 1, inner) * sine)
        else:
            one, other = widened(given(b, h, i, pair)), widened(given(b, h, i, pair + half))
            value = select(d >= half, one * sine + other * cosine, one * cosine - other * sine)
        whole = given.size == half * 2
        return cast(value if whole else select(d < half * 2, value, widened(given(b, h, i, d))), x.dtype)

    def element(*at: Expr) -> Expr:
        if x.rank == 4:
            return turned(*at)
        b, i, n = at
        return turned(b, n // given.size, i, n % given.size)

    checked += required(half * 2 <= given.size, f"{op.op}: there are more angles than pairs")
    return compute(x.shape, element, x.dtype, label(op), checked)


def _range(op: Operation) -> str:
    return f"{op.op}: a position has no angles"


def _whole(op: Operation, width: Expr, half: Expr) -> int:
    if not isinstance(width, Const) or not isinstance(half, Const):
        raise NotLowered(f"how many heads {op.op} has is not known")
    return int(width.value) // (2 * int(half.value))


TABLE: LoweringTable = {
    "Attention": _attention,
    "RotaryEmbedding": lambda op: _rotated(op, 1, 2, 3),
    DOMAIN + "Attention": _packed,
    DOMAIN + "GroupQueryAttention": _group_query,
    DOMAIN + "MultiHeadAttention": _multi_head,
    DOMAIN + "RotaryEmbedding": lambda op: _rotated(op, 2, 3, 1),
}
