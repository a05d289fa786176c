"""Uniform lanes: vector loops in granules within which a condition is the same for all lanes.

Where images of 24 channels are joined in blocks of 16, what a lane reads is chosen by its channel; but of eight
lanes in a row all choose the same, and read side by side. One choice serves eight lanes, without masks.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd, prod

from graphopt.lowering.analysis.axis_transforms import redrawn, with_axis_split
from graphopt.lowering.analysis.canonical_nest import Access, Chain
from graphopt.lowering.index.arithmetic import polynomial
from graphopt.lowering.index.comparisons import is_inequality, positive
from graphopt.lowering.index.polynomials import Polynomial
from graphopt.lowering.loops.expressions import INDEX, Apply, Const, Expr, Var, apply, variables, walk
from graphopt.lowering.loops.nest import expressions, map_expressions, statements

LEAST = 4
"""Lanes of the smallest piece."""
REPEATS = (2, 4, 8)
"""How many neighbouring lanes may share what they read, at no more than a shuffle."""


def in_granules(chain: Chain) -> Chain | None:
    """The element-wise block with its last axis in pieces in which all lanes go one way, largest pieces first; the axis
    of the pieces, where there are several, comes before that of their lanes. None where lanes go one way already, or no
    pieces make them. What neighbours do in turns no pieces change."""
    last = chain.axes[-1]
    if not isinstance(last.extent, Const) or not (torn := _choices(chain, last.var) + _apart(chain, last.var)):
        return None
    size, best = int(last.extent.value), None
    for width in _widths(chain, last.var, size):
        parts = (Const(size // width), Const(width))
        split = with_axis_split(chain, len(chain.spatial) - 1, parts) if width < size else chain
        lane = split.axes[-1].var
        uniform = _steadied(split, lane, width)
        if not _choices(uniform, lane) and (left := _apart(uniform, lane)) < torn:
            best, torn = uniform, left
        if not torn:
            break
    return best


def _widths(chain: Chain, lane: Var, size: int) -> list[int]:
    """Lanes that a piece may have, most first: the whole halved again and again, and what the whole has in common with
    that by which the lane is divided (a row that is repeated, as in Tile, is a piece) and with the places where lanes
    begin to choose another way, of which pieces are a divisor."""
    widths = {size >> k for k in range(size.bit_length()) if size % (1 << k) == 0}
    parts = (e for s in statements(chain.block.body) for whole in expressions(s) for e in walk(whole))
    borders = 0
    for part in parts:
        if not isinstance(part, Apply) or lane not in variables(part):
            continue
        if part.fn in ("floordiv", "mod") and lane in variables(part.args[0]):
            inner = (e for e in walk(part.args[0]) if isinstance(e, Apply) and e.fn == "floordiv")
            divisors = [d.value for d in (part.args[1], *(e.args[1] for e in inner)) if isinstance(d, Const)]
            widths |= {gcd(size, int(prod(divisors[:k]))) for k in range(1, len(divisors) + 1)}
        elif is_inequality(part):
            borders = gcd(borders, _border(part, lane))
    widths.add(gcd(size, borders))
    return sorted((width for width in widths if width >= LEAST and borders % width == 0), reverse=True)


def _border(comparison: Apply, lane: Var) -> int:
    """What divides all lanes at which a comparison begins to come out otherwise; 0 where more than that decides."""
    parts = positive(comparison).split(lane)
    if parts is None or parts[0].number not in (1, -1):
        return 0
    first = {product: times for product, times in parts[1].terms.items() if product}
    return gcd(parts[1].terms.get((), 0) + (parts[0].number == -1), *first.values())


def _steadied(chain: Chain, lane: Var, width: int) -> Chain:
    """The chain with what is alike for so many lanes said once."""
    body = map_expressions(chain.block.body, lambda e: _steady(e, lane, width))
    return redrawn(Chain(chain.loops, replace(chain.block, body=body)), chain.axes, {})


def _choices(chain: Chain, lane: Var) -> int:
    """How often lanes choose."""
    parts = (e for s in statements(chain.block.body) for whole in expressions(s) for e in walk(whole))
    return sum(isinstance(e, Apply) and e.fn == "select" and lane in variables(e.args[0]) for e in parts)


def _apart(chain: Chain, lane: Var) -> int:
    """How often lanes do not read or write in steps of one size."""
    varying = (a for a in chain.accesses if a.varies(lane))
    return sum(a.stride(lane) is None and not _is_repeated(a, lane) for a in varying)


def _is_repeated(access: Access, lane: Var) -> bool:
    """Whether some neighbouring lanes at a time read one element, and the next the one behind it."""
    terms = polynomial(access.indices[-1]).terms if access.indices else {}
    wide = [(p, n) for p, n in terms.items() if any(lane in variables(a) for a in p)]
    return (
        not access.is_write
        and not any(lane in variables(i) for i in access.indices[:-1])
        and len(wide) == 1
        and wide[0][1] == 1
        and isinstance(atom := wide[0][0][0], Apply)
        and len(wide[0][0]) == 1
        and atom.fn == "floordiv"
        and atom.args[0] == lane
        and atom.args[1] in [Const(n) for n in REPEATS]
    )


def _steady(expr: Expr, lane: Var, width: int) -> Expr | None:
    """A comparison, or a division, that comes out alike for so many lanes, without the lane."""
    if not isinstance(expr, Apply) or lane not in variables(expr) or expr.args[0].dtype != INDEX:
        return None
    if is_inequality(expr):
        parts = positive(expr).split(lane)
        if parts is None or parts[0].number not in (1, -1):
            return None
        wanted = 0 if parts[0].number == 1 else width - 1
        return apply("ge", parts[1].expr(), 0) if _rest(parts[1], width) == wanted else None
    if expr.fn in ("floordiv", "mod") and isinstance(divisor := expr.args[1], Const) and divisor.value % width == 0:
        parts = polynomial(expr.args[0]).split(lane)
        if parts is None or parts[0].number != 1 or _rest(parts[1], width) != 0:
            return None
        first = apply(expr.fn, parts[1].expr(), divisor)
        return first if expr.fn == "floordiv" else first + lane
    return None


def _rest(p: Polynomial, width: int) -> int | None:
    """The remainder of the sum by the width, whatever its variables are; None where it depends on them."""
    if any(times % width for product, times in p.terms.items() if product):
        return None
    return p.terms.get((), 0) % width
