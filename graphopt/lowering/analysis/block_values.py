"""Values of blocks: what a block makes of the elements that it writes, as one expression for each, and its reduction.

Statements in a row, branches and predicates become selections; what an element was before is a variable. A reduction is
taken apart into the function that combines, and what it combines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from graphopt.frozen import dataclass
from graphopt.lowering.index.arithmetic import prove
from graphopt.lowering.loops.accumulation import HORIZONTAL, identity
from graphopt.lowering.loops.compute import ReduceStage
from graphopt.lowering.loops.expressions import (
    Apply,
    Const,
    Expr,
    Load,
    Var,
    apply,
    children,
    conjunction,
    rewrite,
    select,
    substitute,
    variables,
    walk,
)
from graphopt.lowering.loops.nest import TRUE, Axis, Block, Buffer, If, Seq, Stmt, Store, statements
from graphopt.lowering.loops.script_print import show_expr


class NotRaised(Exception):  # noqa: N818  it is an answer, not an error
    """Why a program is not raised to tensor expressions."""


@dataclass(frozen=True)
class BlockValues:
    """What a block makes of the elements that it writes, at a point of its axes."""

    indices: Mapping[Buffer, tuple[Expr, ...]]
    """Where it writes each buffer, in the order of the first stores."""
    before: Mapping[Buffer, Var]
    """The variables that stand for what these elements were before."""
    values: Mapping[Buffer, Expr]
    """What they are after."""
    read: frozenset[Buffer]
    """The buffers of which it reads what was there before."""
    starts: Mapping[Buffer, Expr]
    """What the init puts there; nothing where there is no init."""
    begins: Expr = TRUE
    """Where the init runs at all."""


def values_of(block: Block, loops: Mapping[Var, Expr]) -> BlockValues:
    """The values of a block whose loops are these of its axes. NotRaised where a formula cannot say them."""
    indices: dict[Buffer, tuple[Expr, ...]] = {}
    for store in (s for part in (block.body, block.init) if part is not None for s in statements(part)):
        if isinstance(store, Store):
            where = tuple(substitute(i, loops) for i in store.indices)
            if indices.setdefault(store.buffer, where) != where:
                raise NotRaised(f"it writes several elements of {store.buffer.name}")
    point = _Point(indices, loops)
    predicate = substitute(block.predicate, loops)
    point.run(block.body, point.seen(predicate))
    starts: Mapping[Buffer, Expr] = {}
    begins: Expr = TRUE
    if block.init is not None:
        start = _Point(indices, loops)
        start.run(block.init, TRUE)
        starts = start.values
        reduce = {a.var for a in block.of_kind("reduce")}
        if start.read or set(starts) != set(indices) or any(variables(e) & reduce for e in starts.values()):
            raise NotRaised("its init does not say what each element starts from")
        begins = _beginning(block, predicate)
    if set(point.values) != set(indices):
        raise NotRaised("its init writes what its body does not")
    return BlockValues(indices, point.before, point.values, frozenset(point.read), starts, begins)


def _beginning(block: Block, predicate: Expr) -> Expr:
    """Where the first step of a reduction runs, which is where its init does."""
    reduce = {a.var: Const(0) for a in block.of_kind("reduce")}
    if variables(predicate).isdisjoint(reduce):
        return predicate
    first = substitute(predicate, reduce)
    if not prove(first, {a.var: a.extent for a in block.of_kind("spatial")}):
        raise NotRaised(f"its init does not run where {show_expr(first)} does not hold")
    return TRUE


class _Point:
    """The elements of one point, statement by statement."""

    def __init__(self, indices: Mapping[Buffer, tuple[Expr, ...]], loops: Mapping[Var, Expr]) -> None:
        self.indices, self.loops = indices, loops
        self.before = {b: Var(f"_before{k}", b.dtype) for k, b in enumerate(indices)}
        self.values: dict[Buffer, Expr] = {}
        self.read: set[Buffer] = set()

    def seen(self, expr: Expr) -> Expr:
        """The expression with what the statements so far made of the elements."""

        def load(e: Expr) -> Expr | None:
            if not isinstance(e, Load) or e.buffer not in self.indices:
                return None
            if e.indices != self.indices[e.buffer]:
                raise NotRaised(f"it reads other elements of {e.buffer.name} than it writes")
            if e.buffer in self.values:
                return self.values[e.buffer]
            self.read.add(e.buffer)
            return self.before[e.buffer]

        return rewrite(substitute(expr, self.loops), load)

    def run(self, stmt: Stmt, condition: Expr) -> None:
        match stmt:
            case Store(buffer, _, value):
                after = self.seen(value)
                if condition != TRUE:
                    after = select(condition, after, self.values.get(buffer, self.before[buffer]))
                self.values[buffer] = after
            case Seq(stmts):
                for s in stmts:
                    self.run(s, condition)
            case If(chosen, then, otherwise):
                chosen = self.seen(chosen)
                self.run(then, conjunction(condition, chosen))
                if otherwise is not None:
                    self.run(otherwise, conjunction(condition, apply("not", chosen)))
            case _:
                raise NotRaised(f"no formula says what its {type(stmt).__name__.lower()} does")


# ------------------------------------------------------------------ reductions


@dataclass(frozen=True)
class Combined:
    """A reduction of a block: a stage for each buffer in order, and the functions that combine two results."""

    stage: ReduceStage
    functions: tuple[str | None, ...]
    """By which function two results are one; None where that is not known."""


def combined(
    axes: Sequence[Axis], buffers: Sequence[Buffer], found: BlockValues, starts: Sequence[Expr | None]
) -> Combined:
    """The reduction of a block. ``starts`` are the constants that elements start from, where they do.

    NotRaised where it is none by which steps can be taken in any order.
    """
    own = [found.before[b] for b in buffers]
    values = [found.values[b] for b in buffers]
    accumulators = tuple(Var(f"_acc{k}", v.dtype) for k, v in enumerate(own))
    new = tuple(Var(f"_step{k}", v.dtype) for k, v in enumerate(own))
    terms = [_term(value, v) for value, v in zip(values, own, strict=True)]
    plain = [t for t in terms if t is not None and variables(t[1]).isdisjoint(own)]
    if len(plain) == len(terms):
        functions = tuple(fn for fn, _ in plain)
        folded = tuple(Apply(fn, (a, s), s.dtype) for fn, a, s in zip(functions, accumulators, new, strict=True))
        identities = tuple(identity(fn, v.dtype) for fn, v in zip(functions, own, strict=True))
        return Combined(
            ReduceStage(tuple(axes), tuple(s for _, s in plain), identities, accumulators, new, folded), functions
        )
    steps = [_step(value, v, own) for value, v in zip(values, own, strict=True)]
    at = {s: Var(n.name, n.dtype) for s, n in zip(steps, new, strict=True)}
    named = dict(zip(own, accumulators, strict=True))
    rules = tuple(substitute(_exchanged(value, at), named) for value in values)
    known = {*accumulators, *new}
    if len(at) < len(steps) or any(not variables(r) <= known or _loads(r) for r in rules):
        raise NotRaised("its steps are no values that are combined with what was there before")
    first = [s for s in starts if isinstance(s, Const)]
    if len(first) < len(starts):
        raise NotRaised("it reduces by a function of its own, and does not start from constants")
    return Combined(
        ReduceStage(tuple(axes), tuple(steps), tuple(first), accumulators, new, rules), (None,) * len(buffers)
    )


def _term(value: Expr, own: Var) -> tuple[str, Expr] | None:
    """The commutative function by which a value accumulates, and the term; None for any other value."""
    match value:
        case Apply(fn="select", args=(condition, then, rest)) if rest == own and own not in variables(condition):
            inner = _term(then, own)
            return inner and (inner[0], select(condition, inner[1], identity(inner[0], own.dtype)))
        case Apply(fn="sub", args=(a, b)) if own not in variables(b):
            if a == own:
                return "add", -b
            inner = _term(a, own)
            return ("add", inner[1] - b) if inner is not None and inner[0] == "add" else None
        case Apply(fn=fn, args=(a, b)) if fn in HORIZONTAL:
            for one, other in ((a, b), (b, a)):
                if own in variables(other):
                    continue
                if one == own:
                    return fn, other
                inner = _term(one, own)
                if inner is not None and inner[0] == fn:
                    return fn, apply(fn, inner[1], other)
    return None


def _step(value: Expr, own: Var, all_own: Iterable[Var]) -> Expr:
    """What takes an element's place, or is combined with it: the other branch, or the other operand."""
    stack = [value]
    while stack:
        e = stack.pop()
        operands = e.args[1:] if isinstance(e, Apply) and e.fn == "select" else children(e)
        if isinstance(e, Apply) and own in operands:
            others = [o for o in operands if variables(o).isdisjoint(all_own)]
            if len(others) == 1:
                return others[0]
        if isinstance(e, Apply):
            stack += [o for o in reversed(operands) if own in variables(o)]
    raise NotRaised("its steps are no values that are combined with what was there before")


def _exchanged(expr: Expr, values: Mapping[Expr, Var]) -> Expr:
    """The expression with parts replaced by variables, the largest first."""
    if expr in values:
        return values[expr]
    if isinstance(expr, Apply):
        args = tuple(_exchanged(a, values) for a in expr.args)
        return expr if args == expr.args else Apply(expr.fn, args, expr.type)
    return expr


def _loads(expr: Expr) -> bool:
    return any(isinstance(e, Load) for e in walk(expr))
