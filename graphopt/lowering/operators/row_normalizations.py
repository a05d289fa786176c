"""Row normalization: LayerNorm and RMSNorm, and their forms fused with sums and embeddings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphopt.lowering.loops.compute import Requirement, Tensor, compute, require
from graphopt.lowering.loops.expressions import INDEX, Expr, as_expr, cast
from graphopt.lowering.operators.elements import broadcast, inputs_fitting, integer, label, number, operand, widened
from graphopt.lowering.operators.normalizations import inverse_root, mean_of, moments
from graphopt.lowering.operators.operation import LoweringTable, NotLowered, Operation
from graphopt.lowering.operators.reductions import normalized


def _kept(op: Operation, k: int, statistic: Tensor | None) -> Tensor:
    """A statistic as the k-th output, in which the axes that it lacks are 1; zeros where there is none."""
    shape, dtype = op.shape(k), op.dtype(k)
    if statistic is None:
        return compute(shape, lambda *at: as_expr(0, dtype), dtype, "zeros")
    return compute(shape, lambda *at: cast(statistic[at[: statistic.rank]], dtype), dtype, statistic.name)


def _given(op: Operation, outputs: Sequence[Tensor]) -> Sequence[Tensor]:
    return outputs[: len(op.outputs)]


def _rows(
    op: Operation, x: Tensor, first: int, scale: int, shift: int | None, centered: bool
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Rows from an axis on with variance (or mean square) one, scaled and shifted; means and inverse deviations."""
    axes, dtype, epsilon = range(first, x.rank), op.dtype(), number(op, "epsilon")

    def element(*at: Expr) -> Expr:
        return widened(x[at])

    def squared(*at: Expr) -> Expr:
        return element(*at) * element(*at)

    mean, variance = moments(x.shape, axes, element) if centered else (None, mean_of(x.shape, axes, squared, "square"))
    inverse = inverse_root(variance, epsilon)

    def normal(*at: Expr) -> Expr:
        centered = element(*at) if mean is None else element(*at) - mean[at[:first]]
        value = centered * inverse[at[:first]] * cast(operand(op, scale, x.shape, at), inverse.dtype)
        moved = shift is not None and op.has(shift)
        return cast(value + cast(operand(op, shift or 0, x.shape, at), inverse.dtype) if moved else value, dtype)

    fits = inputs_fitting(op, (scale,) if shift is None else (scale, shift), x.shape)
    return compute(x.shape, normal, dtype, label(op), fits), mean, inverse


def _layer(op: Operation) -> Sequence[Tensor]:
    x = op.input(0)
    y, mean, inverse = _rows(op, x, normalized(integer(op, "axis"), x.rank), 1, 2, centered=True)
    return [y, *(_kept(op, k, s) for k, s in enumerate((mean, inverse), 1) if k < len(op.outputs))]


def _rms(op: Operation) -> Sequence[Tensor]:
    x = op.input(0)
    y, _, inverse = _rows(op, x, normalized(integer(op, "axis"), x.rank), 1, None, centered=False)
    return [y, *(_kept(op, k, inverse) for k in range(1, len(op.outputs)))]


def _skip(centered: bool) -> Callable[[Operation], Sequence[Tensor]]:
    """Rows of a sum: the sum itself is the last output."""
    bias = 4 if centered else 3

    def describe(op: Operation) -> Sequence[Tensor]:
        x, dtype = op.input(0), op.dtype()

        def element(*at: Expr) -> Expr:
            terms = [operand(op, k, x.shape, at) for k in (0, 1, bias) if op.has(k)]
            total = widened(terms[0])
            for term in terms[1:]:
                total = total + widened(term)
            return cast(total, dtype)

        total = compute(x.shape, element, dtype, "sum", inputs_fitting(op, (1, bias), x.shape))
        y, mean, inverse = _rows(op, total, x.rank - 1, 2, 3 if centered else None, centered)
        statistics = [_kept(op, k, s) for k, s in enumerate((mean, inverse), 1) if k < len(op.outputs)]
        return _given(op, [y, *statistics, total])

    return describe


def _embedding(op: Operation) -> Sequence[Tensor]:
    """Rows of a sum of embeddings: of words, of positions, and of segments."""
    if op.has(7):
        raise NotLowered("a mask of EmbedLayerNormalization is not counted by a nest")
    ids, words, places, dtype = op.input(0), op.input(2), op.input(3), op.dtype()
    shape = op.shape()

    def position(row: Expr, column: Expr) -> Expr:
        return cast(broadcast(op.input(8), shape[:2], (row, column)), INDEX) if op.has(8) else column

    def element(row: Expr, column: Expr, k: Expr) -> Expr:
        total = widened(words[cast(ids[row, column], INDEX), k]) + widened(places[position(row, column), k])
        if op.has(1) and op.has(4):
            total = total + widened(op.input(4)[cast(op.input(1)[row, column], INDEX), k])
        return cast(total, dtype)

    def inside(number: Callable[[Expr, Expr], Expr], table: Tensor) -> Requirement:
        def holds(row: Expr, column: Expr) -> Expr:
            return (number(row, column) >= 0) & (number(row, column) < table.shape[0])

        return require(shape[:2], holds, "EmbedLayerNormalization: an index is out of range")

    requirements = [inside(lambda row, column: cast(ids[row, column], INDEX), words), inside(position, places)]
    if op.has(1) and op.has(4):
        requirements.append(inside(lambda row, column: cast(op.input(1)[row, column], INDEX), op.input(4)))
    total = compute(shape, element, dtype, "sum", requirements)
    y, _, _ = _rows(op, total, 2, 5, 6, centered=True)
    return _given(op, [y, *(_kept(op, 1, None) for _ in op.outputs[1:2]), total])


TABLE: LoweringTable = {
    "LayerNormalization": _layer,
    "RMSNormalization": _rms,
    "SimplifiedLayerNormalization": _rms,
    "com.microsoft::EmbedLayerNormalization": _embedding,
    "com.microsoft::SkipLayerNormalization": _skip(centered=True),
    "com.microsoft::SkipSimplifiedLayerNormalization": _skip(centered=False),
}
