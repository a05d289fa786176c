"""What index arithmetic says is true of every value of the variables, and it says enough of tiled programs."""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from graphopt.lowering.index.arithmetic import affine, bounds, cover, prove, simplify
from graphopt.lowering.loops.expressions import (
    Apply,
    Const,
    Expr,
    Load,
    Var,
    apply,
    as_expr,
    cast,
    maximum,
    minimum,
    select,
    variables,
)
from graphopt.lowering.loops.nest import Buffer, BufferRegion, Range

Values = Mapping[str, int]
I, J, K, F, O, N, M = (Var(name) for name in "ijkfonm")  # noqa: E741
RUN: Mapping[str, str] = {
    "add": "({} + {})",
    "sub": "({} - {})",
    "mul": "({} * {})",
    "floordiv": "({} // {})",
    "mod": "({} % {})",
    "min": "min({}, {})",
    "max": "max({}, {})",
    "neg": "(-{})",
    "abs": "abs({})",
    "lt": "({} < {})",
    "le": "({} <= {})",
    "gt": "({} > {})",
    "ge": "({} >= {})",
    "eq": "({} == {})",
    "ne": "({} != {})",
    "select": "({1} if {0} else {2})",
}


def source(expr: Expr) -> str:
    """The expression in Python."""
    if isinstance(expr, Const):
        return str(expr.value)
    if isinstance(expr, Var):
        return expr.name
    assert isinstance(expr, Apply)
    return RUN[expr.fn].format(*map(source, expr.args))


@lru_cache(maxsize=1000)
def function(expr: Expr) -> Callable[..., int]:
    """The expression as a function of the variables by name."""
    made: Callable[..., int] = eval(f"lambda i=0, j=0, k=0, n=0, m=0: {source(expr)}")
    return made


def value(expr: Expr, at: Values) -> int:
    """What an expression is, computed plainly."""
    return function(expr)(**at)


def points(extents: Mapping[Var, Expr]) -> Iterator[Values]:
    """Every value of the variables while all loops run, for small sizes."""
    for n, m in product((0, 1, 2, 5), repeat=2):
        at: list[dict[str, int]] = [{"n": n, "m": m}]
        for var, extent in extents.items():
            at = [{**a, var.name: k} for a in at for k in range(value(extent, a))]
        yield from at


SIZES = (N, M, N + 1, N * M, (N + 3) // 4)
EXTENTS = st.tuples(
    st.sampled_from([Const(1), Const(3), Const(6), *SIZES]),
    st.sampled_from([Const(2), Const(4), N, minimum(4, N - I)]),
    st.sampled_from([Const(1), Const(4), M]),
).map(lambda extents: dict(zip((I, J, K), extents, strict=True)))
DIVISORS = st.sampled_from([Const(2), Const(3), Const(4), Const(6), N + 1, M + 2])
LEAVES = st.one_of(st.sampled_from([I, J, K, N, M]), st.integers(-9, 9).map(Const))


def combined(parts: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    comparisons = st.builds(apply, st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"]), parts, parts)
    return st.one_of(
        st.builds(apply, st.sampled_from(["add", "sub", "add"]), parts, parts),
        st.builds(
            lambda a, n: a * n, parts, st.sampled_from([Const(2), Const(3), Const(4), Const(-1), Const(6), N, M])
        ),
        st.builds(apply, st.sampled_from(["floordiv", "mod"]), parts, DIVISORS),
        st.builds(apply, st.sampled_from(["min", "max"]), parts, parts),
        st.builds(apply, st.just("abs"), parts),
        st.builds(select, comparisons, parts, parts),
    )


INDICES = st.recursive(LEAVES, combined, max_leaves=7)
CONDITIONS = st.builds(apply, st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"]), INDICES, INDICES)
quick = settings(max_examples=150, deadline=None)


@given(INDICES, EXTENTS)
@example((I * 4 + J) // 6 * 6 + (I * 4 + J) % 6, {I: Const(8), J: Const(4), K: Const(1)})
@quick
def test_simpler_is_equal(expr: Expr, extents: Mapping[Var, Expr]) -> None:
    simple = simplify(expr, extents)
    for at in points(extents):
        assert value(simple, at) == value(expr, at)
    assert simplify(simple, extents) == simple


@given(CONDITIONS, EXTENTS)
@quick
def test_what_is_proved_holds_and_conditions_stay_equal(condition: Expr, extents: Mapping[Var, Expr]) -> None:
    sure, simple = prove(condition, extents), simplify(condition, extents)
    for at in points(extents):
        holds = value(condition, at)
        assert holds or not sure
        assert value(simple, at) == holds


@given(INDICES, EXTENTS, st.sets(st.sampled_from([I, J, K]), min_size=1))
@quick
def test_bounds_hold_every_value(expr: Expr, extents: Mapping[Var, Expr], inner: set[Var]) -> None:
    inner_extents = {v: e for v, e in extents.items() if v in inner and not variables(e) & (extents.keys() - inner)}
    around = {v: e for v, e in extents.items() if v not in inner_extents}
    found = bounds(expr, inner_extents, around)
    if found is None:
        return
    assert not (variables(found[0]) | variables(found[1])) & inner_extents.keys()
    for at in points(extents):
        assert value(found[0], at) <= value(expr, at) <= value(found[1], at)


@given(INDICES, EXTENTS, st.sets(st.sampled_from([I, J, K])))
@quick
def test_a_linear_form_is_equal(expr: Expr, extents: Mapping[Var, Expr], over: set[Var]) -> None:
    found = affine(expr, over, extents)
    if found is None:
        return
    assert not over & {v for e in (found.offset, *found.coefficients.values()) for v in variables(e)}
    for at in points(extents):
        total = value(found.offset, at) + sum(value(c, at) * at[v.name] for v, c in found.coefficients.items())
        assert total == value(expr, at)


@given(st.lists(st.tuples(INDICES, st.integers(1, 3)), min_size=1, max_size=3), EXTENTS)
@quick
def test_a_cover_holds_every_region(parts: list[tuple[Expr, int]], extents: Mapping[Var, Expr]) -> None:
    buffer = Buffer("A", (Const(1 << 20),))
    regions = [BufferRegion(buffer, (Range(start, Const(n)),)) for start, n in parts]
    inner = {v: e for v, e in extents.items() if v != I and I not in variables(e)}
    around = {v: e for v, e in extents.items() if v not in inner}
    (side,) = cover(regions, inner, around).ranges
    assert not variables(side.start) & inner.keys()
    assert not variables(side.extent) & extents.keys()
    if side.extent == buffer.shape[0]:
        return
    for at in points(extents):
        start, end = value(side.start, at), value(side.start, at) + value(side.extent, at)
        assert all(start <= value(e, at) and value(e, at) + n <= end for e, n in parts)


TILED = {I: 8, J: 4}
FORMS: list[tuple[Expr, Mapping[Var, Expr | int], Expr | int]] = [
    ((I * 4 + J) // 4, TILED, I),
    ((I * 4 + J) % 4, TILED, J),
    (I // 4 * 4 + I % 4, TILED, I),
    (F // 12 * 12 + F // 4 % 3 * 4 + F % 4, {F: 100}, F),
    ((I * 4 + J) // 6 * 6 + (I * 4 + J) % 6, TILED, I * 4 + J),
    ((I * N + J) // N, {I: M, J: N}, I),
    ((I * N + J) % N, {I: M, J: N}, J),
    (((I * N + J) * M + K) // (N * M), {I: O, J: N, K: M}, I),
    ((I * (N + 1) + J) // (N + 1), {I: M, J: N + 1}, I),
    (F // M * M + F % M, {F: N * M}, F),
    (J + I * 4, TILED, I * 4 + J),
    (N - 1 - I, {I: N}, N - I - 1),
    (I % 16 // 4, {I: 100}, I // 4 % 4),
    (I // 2 // 3, {I: 100}, I // 6),
    (I * 6 % 4, {I: 100}, I * 3 % 2 * 2),
    (I - I // 4 * 4, {I: 100}, I % 4),
    (I % 12 % 4, {I: 100}, I % 4),
    (minimum(N, I * 4 + 4), {I: N // 4}, I * 4 + 4),
    (maximum(N - 1, 0), {I: N}, N - 1),
    (maximum(minimum(I, 7), 0), {I: 8}, I),
    (apply("abs", I - 7), {I: 8}, -I + 7),
    (minimum(apply("abs", I + 2), 18 - apply("abs", I + 2)), {I: 8}, I + 2),
    (select(I * 4 + J < 32, I, J), TILED, I),
    (I + J, {I: 1, J: 8}, J),
    # a window that slides over padded rows: the halo comes out of the difference
    ((I * 8 + J * 2 + K - 1) - (I * 8 + J * 2 - 1), {I: 4, J: 4, K: 3}, K),
]


@pytest.mark.parametrize(("expr", "extents", "expected"), FORMS)
def test_forms_of_tiled_programs(expr: Expr, extents: Mapping[Var, Expr | int], expected: Expr | int) -> None:
    assert simplify(expr, extents) == as_expr(expected)


CONDITIONS_OF_TILES: list[tuple[Expr, Mapping[Var, Expr | int], bool]] = [
    (F // M < N, {F: N * M}, True),
    (F % M < M, {F: N * M}, True),
    (I * 4 + J < 32, TILED, True),
    (I * 4 + J < 31, TILED, False),
    (I * 4 + J < N * 4, {I: N, J: 4}, True),
    (I * 8 + J < N, {I: (N + 7) // 8, J: 8}, False),
    ((N + 7) // 8 * 8 >= N, {}, True),
    (N // 8 * 8 <= N, {}, True),
    (N // 8 * 8 > N - 8, {}, True),
    (N >= 1, {}, False),
    (N >= 1, {I: N}, True),
    (N >= 1, {I: (N + 7) // 8}, True),
    (N * M >= N, {I: M}, True),
    (minimum(4, N - I * 4) <= 4, {I: N}, True),
    (I * 3 // 2 < 12, {I: 8}, True),
    ((I + 1) * 3 // 2 >= I, {I: N}, True),
]


@pytest.mark.parametrize(("condition", "extents", "expected"), CONDITIONS_OF_TILES)
def test_conditions_of_tiles(condition: Expr, extents: Mapping[Var, Expr | int], expected: bool) -> None:
    assert prove(condition, extents) is expected


def test_what_a_condition_says_is_written_shortly() -> None:
    assert simplify(I - 1 >= 0, {I: 8}) == (I >= 1)
    assert simplify(N > I * 8 + J, {I: (N + 7) // 8, J: 8}) == (I * 8 + J < N)
    assert simplify(I * 4 + J < M * 4, {I: N, J: 4}) == (I < M)


def test_bounds_of_windows_and_resizes() -> None:
    assert bounds(O * 8 + I * 2 + J - 1, {I: 4, J: 3}, {O: N}) == (O * 8 - 1, O * 8 + 7)
    assert bounds((O * 4 + I) // 2, {I: 4}, {O: 10}) == (O * 2, O * 2 + 1)
    assert bounds(minimum(maximum(I + J - 1, 0), N - 1), {I: N, J: 3}) == (Const(0), N - 1)
    assert bounds(Load(Buffer("A", (N,), "int64"), (I,)), {I: N}) is None


def test_a_cover_is_as_large_as_the_windows_need() -> None:
    buffer = Buffer("A", (Const(64), N))
    window = BufferRegion(buffer, (Range(O * 8 + I * 2 + J), Range(K)))
    assert cover([window], {I: 4, J: 3, K: N}, {O: 4}).ranges == (Range(O * 8, Const(9)), Range(Const(0), N))
    # the tile of a resize by 3/2 starts anywhere: the box is large enough for each
    resized = BufferRegion(buffer, (Range((O * 3 + I) // 2), Range(Const(0))))
    assert cover([resized], {I: 4}, {O: 4}).ranges[0] == Range(O * 3 // 2, Const(3))
    shifted = [BufferRegion(buffer, (Range(I + d), Range(Const(0)))) for d in (1, 0, 2)]
    assert cover(shifted, {I: 8}).ranges[0] == Range(Const(0), Const(10))


def test_a_linear_form_gives_the_stride() -> None:
    found = affine((I * N + J) * 4 + K % 4, [J, I], {I: M, J: N, K: 100})
    assert found is not None
    assert dict(found.coefficients) == {J: Const(4), I: N * 4}
    assert found.offset == K % 4
    assert affine(I // 4, [I], {I: 100}) is None
    assert affine(I * J, [I, J]) is None
    assert affine(I * J, [I]) is not None


def test_loaded_integers_wrap_around() -> None:
    held = Buffer("A", (N,), "int64")[I]
    for expr in ((held * 4) // 4, held + 1 > held, minimum(held + 1, held)):
        assert simplify(expr, {I: N}) == expr
    assert simplify(held + 1 - held, {I: N}) == Const(1)


def test_indices_within_values_are_simplified() -> None:
    buffer = Buffer("A", (Const(32),))
    expr = cast(buffer[(I * 4 + J) // 4] * 2.0, "float64")
    assert simplify(expr, TILED) == cast(buffer[I] * 2.0, "float64")
    kept = buffer[I] * 2.0
    assert simplify(kept, TILED) is kept
