"""Einsum: operands are contracted pairwise, over the axes that no later operand and no output needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from graphopt.frozen import dataclass
from graphopt.lowering.loops import compute as t
from graphopt.lowering.loops.compute import Tensor, compute
from graphopt.lowering.loops.expressions import Const, Expr, cast, const, equal, select
from graphopt.lowering.operators.elements import label, required, text, wide
from graphopt.lowering.operators.operation import LoweringTable, NotLowered, Operation
from graphopt.lowering.operators.products import rounded

ELLIPSIS = "..."


@dataclass(frozen=True)
class LabelledTensor:
    """A tensor and the label of each of its axes; equal labels in one operand are its diagonal."""

    tensor: Tensor
    labels: tuple[str, ...]

    def at(self, where: Mapping[str, Expr], extents: Mapping[str, Expr]) -> Expr:
        """The element at the labels' indices; axes of one element are repeated."""
        return self.tensor[
            tuple(
                _index(size, extents[name], where[name])
                for name, size in zip(self.labels, self.tensor.shape, strict=True)
            )
        ]


def _index(size: Expr, whole: Expr, index: Expr) -> Expr:
    if size == Const(1):
        return Const(0)
    return index if size == whole or isinstance(size, Const) else select(equal(size, 1), 0, index)


def einsum(op: Operation) -> Tensor:
    """Sums of products over the labels that the result lacks."""
    tensors, dtype = [op.input(k) for k in range(len(op.inputs))], op.dtype()
    terms, result = labels_of(text(op, "equation"), [x.rank for x in tensors])
    operands = [LabelledTensor(x, term) for x, term in zip(tensors, terms, strict=True)]
    extents, fits = _extents(op, operands)
    inner = wide(dtype)
    current, *rest = operands
    if not rest:
        return rounded(_contracted([current], result, extents, inner, label(op), fits), dtype)
    for k, other in enumerate(rest):
        last = k == len(rest) - 1
        needed = {name for operand in rest[k + 1 :] for name in operand.labels} | {*result}
        kept = [name for name in dict.fromkeys((*current.labels, *other.labels)) if name in needed]
        labels = result if last else tuple(kept)
        product = _contracted([current, other], labels, extents, inner, label(op), fits if k == 0 else [])
        current = LabelledTensor(product, labels)
    return rounded(current.tensor, dtype)


def _contracted(
    operands: Sequence[LabelledTensor],
    result: tuple[str, ...],
    extents: Mapping[str, Expr],
    dtype: str,
    name: str,
    fits: Sequence[t.Requirement],
) -> Tensor:
    """The product of operands, summed over the labels that the result lacks."""
    summed = [n for n in dict.fromkeys(n for o in operands for n in o.labels) if n not in result]
    if Const(0) in (extents[n] for n in summed):
        return compute([extents[n] for n in result], lambda *at: const(0, dtype), dtype, name, fits)

    def element(*at: Expr) -> Expr | t.ReduceStage:
        steps = {n: t.reduce_axis(extents[n]) for n in summed}
        where = dict(zip(result, at, strict=True)) | {n: s.var for n, s in steps.items()}
        value = cast(operands[0].at(where, extents), dtype)
        for other in operands[1:]:
            value = value * cast(other.at(where, extents), dtype)
        return t.sum(value, *steps.values()) if steps else value

    return compute([extents[n] for n in result], element, None if summed else dtype, name, fits)


def _extents(op: Operation, operands: Sequence[LabelledTensor]) -> tuple[dict[str, Expr], list[t.Requirement]]:
    """The length of each label's axis, and the requirements that all axes of a label are that long, or 1."""
    extents: dict[str, Expr] = {}
    fits: list[t.Requirement] = []
    for operand in operands:
        for name, size in zip(operand.labels, operand.tensor.shape, strict=True):
            extent = extents.get(name)
            if extent is None or extent == Const(1):
                extents[name] = size
            elif size not in (extent, Const(1)):
                if isinstance(size, Const) and not isinstance(extent, Const):
                    extents[name] = size
                both = equal(extent, size) | equal(size, 1) | equal(extent, 1)
                if isinstance(extent, Const) or isinstance(size, Const):
                    fits += required(both, f"{op.op}: axes named {name!r} differ in length")
                else:  # which of the two is repeated shows only at run time
                    extents[name] = select(equal(extent, 1), size, extent)
                    fits += required(both, f"{op.op}: axes named {name!r} differ in length")
    return extents, fits


def labels_of(equation: str, ranks: Sequence[int]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """The labels of each operand's axes and of the result's. The axes of an ellipsis are counted from the last.

    Raises NotLowered where the equation does not fit the ranks.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise NotLowered(f"Einsum of {len(ranks)} operands by {equation!r}")
    operands = [_labels(term, rank) for term, rank in zip(terms, ranks, strict=True)]
    many = max(([sum(n.startswith(ELLIPSIS) for n in labels) for labels in operands]), default=0)
    dots = tuple(f"{ELLIPSIS}{k}" for k in range(many, 0, -1))
    if arrow:
        before, ellipsis, after = right.partition(ELLIPSIS)
        result = (*before, *(dots if ellipsis else ()), *after)
    else:
        uses = Counter(n for labels in operands for n in labels)
        result = (*dots, *sorted(n for n, count in uses.items() if count == 1 and n not in dots))
    if not {*result} <= {n for labels in operands for n in labels} or len({*result}) < len(result):
        raise NotLowered(f"Einsum by {equation!r}, whose result has labels of its own")
    return operands, result


def _labels(term: str, rank: int) -> tuple[str, ...]:
    before, ellipsis, after = term.partition(ELLIPSIS)
    many = rank - len(before) - len(after)
    if many < 0 or (many and not ellipsis):
        raise NotLowered(f"Einsum's {term!r} for an operand of rank {rank}")
    return (*before, *(f"{ELLIPSIS}{k}" for k in range(many, 0, -1)), *after)


TABLE: LoweringTable = {"Einsum": einsum}
