"""Block kinds: matrix products, products of a matrix and a vector, windows, other reductions, and element-wise blocks.

The kinds have the names of the rules of default schedules that are for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from graphopt.lowering.analysis.canonical_nest import Chain
from graphopt.lowering.loops.accumulation import factors
from graphopt.lowering.loops.expressions import Const, Load, variables
from graphopt.lowering.loops.nest import Axis

BlockKind: TypeAlias = Literal["Matmul", "GEMV", "Convolution", "Reduction", "ElementWise"]

WANTED: Final[dict[BlockKind, str]] = {
    "Matmul": "no product of matrices",
    "GEMV": "no product of a matrix and a vector",
    "Convolution": "no windows",
    "Reduction": "no plain reduction",
}
"""What a nest lacks whose first reduction is of another kind."""
FOUND: Final[dict[BlockKind, str]] = {
    "Matmul": "multiplies two matrices",
    "GEMV": "multiplies a matrix by a vector",
    "Convolution": "has an index of both a spatial and a reduction axis",
    "Reduction": "does not sum up products over axes of their own",
}
"""What a reduction of a kind does."""


def kind_of(chain: Chain) -> BlockKind:
    """The kind of a block."""
    if chain.block.init is None:
        return "ElementWise"
    spatial, reduced = ({a.var for a in _long(axes)} for axes in (chain.spatial, chain.reduced))
    written = {s.buffer for s in chain.stores}
    for access in chain.accesses:
        if access.buffer not in written and any(
            found & spatial and found & reduced for found in map(variables, access.indices)
        ):
            return "Convolution"
    store = chain.stores[0]
    operands = factors(Load(store.buffer, store.indices), store.value) if len(chain.stores) == 1 else None
    if operands is None:
        return "Reduction"
    in_x, in_y = (spatial & variables(e) for e in operands)
    own = bool(in_x - in_y) + bool(in_y - in_x)
    return "Matmul" if own == 2 else "GEMV" if own else "Reduction"


def head_of(chains: Sequence[Chain]) -> Chain | None:
    """The first block that reduces."""
    return next((c for c in chains if c.block.init is not None), None)


def unlike(chains: Sequence[Chain], kind: BlockKind) -> str | None:
    """Why blocks do not have a first reduction of a kind; None where they do."""
    head = head_of(chains)
    if head is None:
        names = ", ".join(repr(c.block.name) for c in chains)
        subject = f"block {names} has" if len(chains) == 1 else f"blocks {names} have"
        return f"{'no reduction' if kind == 'Reduction' else 'no contraction'}: {subject} no reduction axis"
    found = kind_of(head)
    return None if found == kind else f"{WANTED[kind]}: block {head.block.name!r} {FOUND[found]}"


def not_element_wise(chain: Chain) -> str | None:
    """Why a block does not compute element by element; None where it does."""
    name = chain.block.name
    return None if chain.block.init is None else f"not element by element: block {name!r} has a reduction axis"


def _long(axes: Sequence[Axis]) -> list[Axis]:
    """The axes with more than one point."""
    return [a for a in axes if a.extent != Const(1)]
