"""Layout transformation: a new order of the elements of a buffer in memory."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from graphopt.errors import ScheduleError
from graphopt.frozen import dataclass
from graphopt.lowering.analysis.block_refs import AnyBlock, find_block, primitive
from graphopt.lowering.analysis.dataflow import accesses_in, kept_inside, reindexed
from graphopt.lowering.analysis.regions import refreshed, simplified
from graphopt.lowering.index.arithmetic import affine, prove, simplify
from graphopt.lowering.loops.expressions import Apply, Const, Expr, Var, as_expr, equal, substitute, variables
from graphopt.lowering.loops.nest import Buffer, BufferRegion, Invoke, Nest, blocks, statements
from graphopt.lowering.loops.script import show_expr

IndexMap: TypeAlias = Callable[..., "tuple[Expr | int, ...]"] | str
"""An index map: a function of an element's indices, or the text of a lambda."""


@primitive
def transform_layout(
    nest: Nest, block: AnyBlock, buffer: str, index_map: IndexMap, pad: bool = False
) -> tuple[Nest, None]:
    """Change the layout of a buffer: the map gives the new indices of the element at some indices.

    The map splits indices (``c // 16``, ``c % 16``) and joins them (``y * 8 + x``), one to one. With ``pad`` some new
    places may stay unused. The buffer lives only while the nest runs.
    Before::

        B = alloc((4, 32), "float32")
        for i0, i1 in grid(4, 32):
            with block("B"):
                v0, v1 = axis.remap("SS", [i0, i1])
                B[v0, v1] = A[v0, v1] + 1.0
        for i2, i3 in grid(4, 32):
            with block("C"):
                v2, v3 = axis.remap("SS", [i2, i3])
                C[v2, v3] = B[v2, v3] * 2.0

    After ``s.transform_layout("B", "B", lambda n, c: (c // 16, n, c % 16))``::

        B = alloc((2, 4, 16), "float32")
        for i0, i1 in grid(4, 32):
            with block("B"):
                v0, v1 = axis.remap("SS", [i0, i1])
                B[v1 // 16, v0, v1 % 16] = A[v0, v1] + 1.0
        for i2, i3 in grid(4, 32):
            with block("C"):
                v2, v3 = axis.remap("SS", [i2, i3])
                C[v2, v3] = B[v3 // 16, v2, v3 % 16] * 2.0
    """
    stmt = find_block(nest, block).stmt
    buffers = {a.buffer.name: a.buffer for a in accesses_in(stmt)}
    if buffer not in buffers:
        raise ScheduleError(f"{stmt.name} does not use {buffer}; it uses {', '.join(sorted(buffers))}")
    old = buffers[buffer]
    kept_inside(nest, old, ", and lies as its caller laid it; use cache_read or cache_write")
    for s in statements(nest.body):
        if isinstance(s, Invoke) and any(isinstance(a, BufferRegion) and a.buffer == old for a in s.args):
            raise ScheduleError(f"{s.intrinsic} works on {buffer} as it lies; change it before")
    names, outputs = mapped(index_map)
    if len(names) != len(old.shape):
        raise ScheduleError(f"{buffer} has {len(old.shape)} axes, and the map takes {len(names)} indices")
    indices = [Var(name) for name in names]
    shape = image(dict(zip(indices, old.shape, strict=True)), outputs, pad=pad)
    if not pad and not prove(equal(_product(old.shape), _product(shape)), {}):
        raise ScheduleError(
            f"the map has more places, {' * '.join(map(show_expr, shape))}, than {old.name} has elements, "
            f"{' * '.join(map(show_expr, old.shape))}; say pad=True where that is meant"
        )
    new = Buffer(old.name, shape, old.dtype, old.scope)

    def where(at: tuple[Expr, ...]) -> tuple[Expr, ...]:
        values = dict(zip(indices, at, strict=True))
        return tuple(substitute(o, values) for o in outputs)

    changed = [b.name for b in blocks(nest.body) if any(a.buffer == old for a in accesses_in(b))]
    body = simplified(reindexed(nest.body, old, new, where), {}, changed)
    allocs = tuple(new if b == old else b for b in nest.allocs)
    return refreshed(replace(nest, body=body, allocs=allocs), changed), None


# ------------------------------------------------------------------ maps


def written_map(index_map: IndexMap) -> str:
    """The source of an index map, as traces keep it."""
    names, outputs = mapped(index_map)
    parts = [show_expr(o) for o in outputs]
    return f"lambda {', '.join(names)}: ({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def mapped(index_map: IndexMap) -> tuple[tuple[str, ...], tuple[Expr, ...]]:
    """The parameters and result of an index map; text is parsed, never executed."""
    if isinstance(index_map, str):
        return _read(index_map)
    names = tuple(inspect.signature(index_map).parameters)
    image = index_map(*(Var(name) for name in names))
    return names, tuple(as_expr(e) for e in (image if isinstance(image, tuple) else (image,)))


_OPERATORS: dict[type[ast.operator], Callable[[Expr, Expr], Expr]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}


def _read(text: str) -> tuple[tuple[str, ...], tuple[Expr, ...]]:
    wrong = ScheduleError(f"{text!r} is no map of indices, such as 'lambda n, c: (n, c // 16, c % 16)'")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise wrong from None
    if not isinstance(tree, ast.Lambda):
        raise wrong
    names = tuple(a.arg for a in tree.args.args)

    def expr(node: ast.expr) -> Expr:
        match node:
            case ast.Name(id=name) if name in names:
                return Var(name)
            case ast.Constant(value=int() as n) if not isinstance(n, bool):
                return Const(n)
            case ast.BinOp(left=a, op=op, right=b) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](expr(a), expr(b))
        raise wrong

    return names, tuple(map(expr, tree.body.elts if isinstance(tree.body, ast.Tuple) else [tree.body]))


# ------------------------------------------------------------------ which maps keep elements apart


@dataclass(frozen=True, slots=True)
class _Digit:
    """``base // step % extent``; without ``extent``, all that the division leaves."""

    base: Expr
    step: int = 1
    extent: int | None = None


def image(extents: Mapping[Var, Expr], outputs: Sequence[Expr], *, pad: bool) -> tuple[Expr, ...]:
    """The extents of the results of a map of indices; raises ScheduleError where elements may meet.

    Results are sums of digits: each index (or a row-major sum of several) is taken apart into digits that together say
    all of it, and each result puts digits together so that each of their values is another sum. With ``pad`` parts are
    as long as they are written: ``c % 16`` is 16 long though ``c`` may end at 8.
    """
    digits: dict[Var, _Digit] = {}
    forms = [_with_digits(output if pad else simplify(output, extents), digits) for output in outputs]
    sizes = _sizes(extents, digits)
    return tuple(_reach(form, sizes, show_expr(output)) for form, output in zip(forms, outputs, strict=True))


def _product(extents: Sequence[Expr]) -> Expr:
    total: Expr = Const(1)
    for extent in extents:
        total = total * extent
    return total


def _with_digits(expr: Expr, digits: dict[Var, _Digit]) -> Expr:
    """The expression with a variable for each digit in it, each of its own."""
    if isinstance(expr, Apply) and expr.fn in ("add", "sub", "mul"):
        a, b = (_with_digits(x, digits) for x in expr.args)
        return a + b if expr.fn == "add" else a - b if expr.fn == "sub" else a * b
    if isinstance(expr, Const) or not variables(expr):
        return expr
    var = Var(f"_{len(digits)}")
    digits[var] = _digit(expr)
    return var


def _digit(expr: Expr) -> _Digit:
    if isinstance(expr, Apply) and expr.fn in ("floordiv", "mod") and isinstance(expr.args[1], Const):
        inner, n = _digit(expr.args[0]), int(expr.args[1].value)
        if inner.extent is None or (n > 0 and inner.extent % n == 0):
            if expr.fn == "mod":
                return replace(inner, extent=n)
            return replace(inner, step=inner.step * n, extent=None if inner.extent is None else inner.extent // n)
    return _Digit(expr)


def _sizes(extents: Mapping[Var, Expr], digits: Mapping[Var, _Digit]) -> dict[Var, Expr]:
    """The extents of the digits; raises ScheduleError where those of an index do not say all of it, each once."""
    # A mixed radix number system: sorted by their steps, the digits of an index must follow on each other without gap
    # or overlap, and reach its end; so the map is injective.
    sizes: dict[Var, Expr] = {}
    left = set(extents)
    for base in dict.fromkeys(d.base for d in digits.values()):
        whole = _reach(base, {v: extents[v] for v in variables(base) if v in extents}, show_expr(base), dense=True)
        if not variables(base) & left:
            raise ScheduleError(f"the map uses {show_expr(base)} in several ways")
        left -= variables(base)
        reach = 1
        same_base = sorted(((v, d) for v, d in digits.items() if d.base == base), key=lambda d: d[1].step)
        for k, (var, digit) in enumerate(same_base):
            last = k + 1 == len(same_base)
            if digit.step != reach or (digit.extent is None and not last):
                raise ScheduleError(f"the map does not tell all of {show_expr(base)} apart, or parts of it twice")
            rest = simplify((whole + (digit.step - 1)) // digit.step, {})
            sizes[var] = rest if digit.extent is None else Const(digit.extent)
            reach = digit.step * (digit.extent or 1)
            if last and digit.extent is not None and not prove(rest <= digit.extent, {}):
                raise ScheduleError(f"the map forgets a part of {show_expr(base)}")
    if forgotten := [v.name for v in extents if v in left and extents[v] != Const(1)]:
        raise ScheduleError(f"the map forgets {forgotten[0]}")
    return sizes


def _reach(form: Expr, sizes: Mapping[Var, Expr], shown: str, *, dense: bool = False) -> Expr:
    """The number of values of a sum of digits, from 0 on; raises ScheduleError where several sums are the same, or with
    ``dense``, where some value is no sum."""
    vars = [v for v in sizes if v in variables(form)]
    linear = affine(form, vars)
    if linear is None or linear.offset != Const(0):
        raise ScheduleError(f"{shown} of the map is no sum of parts of indices")
    reach: Expr = Const(1)
    steps = [(c, v) for v, c in linear.coefficients.items() if sizes[v] != Const(1)]
    for step, var in sorted(steps, key=lambda s: int(s[0].value) if isinstance(s[0], Const) else 1 << 62):
        if not prove(step >= reach, {}) or (dense and simplify(step - reach, {}) != Const(0)):
            raise ScheduleError(f"{shown} of the map is the same for several indices, or leaves gaps")
        reach = simplify(reach + step * (sizes[var] - 1), {})
    return reach
