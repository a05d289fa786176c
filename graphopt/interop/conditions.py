"""Guards of the ways on which a condition holds, as short as they can be said."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.rewrite.rule.rule import Apply, Expr, Field, Item, Lit, Series, joined, subexpressions


def one_of(alternatives: Sequence[tuple[Expr, ...]]) -> tuple[Expr, ...]:
    """What holds where any of the conjunctions does: what is in all of them, and the alternatives of the rest."""
    merged = list(dict.fromkeys(_merged(one) for one in alternatives))
    shared = [e for e in merged[0] if all(e in other for other in merged)]
    rest = [tuple(e for e in one if e not in shared) for one in merged]
    if all(rest):
        shared += _either(rest)
    return tuple(e for e in shared if not _is_implied(e, shared))


def _merged(conjunction: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The conjunction, with one comparison in the place of one of a sequence's length and one of each element."""
    equal = {e.arguments[0]: e.arguments[1] for e in conjunction if isinstance(e, Apply) and e.function == "=="}
    for left, right in list(equal.items()):
        if not (isinstance(left, Apply) and left.function == "len" and isinstance(right, Lit)):
            continue
        sequence = left.arguments[0]
        items: list[Expr] = [Item(sequence, Lit(i)) for i in range(right.value)]  # type: ignore[arg-type]
        if all(isinstance(equal.get(i), Lit) for i in items):
            compared: list[Expr] = [left, *items]
            parts: set[Expr] = {Apply("==", (e, equal[e])) for e in compared}
            whole = Apply("==", (sequence, Series(tuple(equal[i] for i in items))))
            conjunction = (*(e for e in conjunction if e not in parts), whole)
    return conjunction


def _either(rest: Sequence[tuple[Expr, ...]]) -> tuple[Expr, ...]:
    """That one of the conjunctions holds; where all say what one thing equals, that it is among these."""
    if len(rest) == 1:
        return rest[0]
    single = [one[0] for one in rest if len(one) == 1 and isinstance(one[0], Apply) and one[0].function == "=="]
    if len(single) == len(rest) and len({e.arguments[0] for e in single}) == 1:
        return (Apply("in", (single[0].arguments[0], Series(tuple(e.arguments[1] for e in single)))),)
    return (joined("or", tuple(joined("and", one) for one in rest)),)


def _is_implied(expr: Expr, others: Sequence[Expr]) -> bool:
    """Whether that a rank is known, as a guard says, is also asked by another, which does not hold where it is not."""
    if not (isinstance(expr, Apply) and expr.function == ">=" and isinstance(expr.arguments[0], Field)):
        return False
    of = expr.arguments[0].of
    asked = [e for other in others if other != expr and _is_asked_whole(other) for e in subexpressions(other)]
    return any(isinstance(e, Field) and e.of == of and e.name in ("rank", "shape") for e in asked)


def _is_asked_whole(expr: Expr) -> bool:
    """Whether a guard looks at all of its parts."""
    return not any(isinstance(e, Apply) and e.function in ("or", "and", "if", "in") for e in subexpressions(expr))
