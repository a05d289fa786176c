from itertools import count

import pytest

from graphopt.lowering.cpu.default_schedules import scheduled
from graphopt.lowering.emit.kernel_source import emit
from graphopt.lowering.emit.loop_invariants import IndexNames
from graphopt.lowering.emit.statement_text import Text
from graphopt.lowering.index.arithmetic import polynomial
from graphopt.lowering.loops import compute as t
from graphopt.lowering.loops.expressions import Apply, Expr, Load, Var, cast, maximum, minimum
from graphopt.lowering.loops.nest import Buffer, Nest
from tests.lowering.native import check

N, K, J = Var("n"), Var("i"), Var("j")


def value(expr: Expr) -> Text:
    if isinstance(expr, Load):
        return Text(f"x[{value(expr.indices[0]).text}]")
    return Text(expr.name if isinstance(expr, Var) else str(expr.value))  # type: ignore[attr-defined]


def applied(expr: Apply) -> Text:
    sign = {"floordiv": "//", "mod": "%"}[expr.fn]
    return Text(f"{value(expr.args[0]).text} {sign} {value(expr.args[1]).text}", 6)


def written(*indices: Expr, plain: bool = True) -> list[str]:
    """What is written where ``i`` and, within, ``j`` run up to ``n``, and indices are used in the innermost loop."""
    lines: list[str] = []
    kept = frozenset() if not plain else _names([], indices, frozenset()).used_once()
    _names(lines, indices, kept)
    return lines


def _names(lines: list[str], indices: tuple[Expr, ...], plain: frozenset[object]) -> IndexNames:
    number = count()
    names = IndexNames(lines, lambda letter: f"{letter}{next(number)}", value, applied, [N], plain)  # type: ignore[arg-type]
    lines.append("    for i:")
    with names.loop(K, 2):
        lines.append("        for j:")
        with names.loop(J, 3):
            for index in indices:
                lines.append("            use " + names.sum(polynomial(index)).text)
    return names


def test_what_outer_loops_decide_has_a_name_there() -> None:
    found = written(K * 12 + J * 3 + 1, K * 12 + J * 3 + 2, K * 12 + J * 5)
    assert found == [
        "    for i:",
        "        p0 = i * 12",
        "        for j:",
        "            p1 = p0 + j * 3",
        "            use p1 + 1",
        "            use p1 + 2",
        "            use p0 + j * 5",
    ]


def test_sums_that_are_used_once_stay_where_they_are() -> None:
    assert written(K * 12 + J * 3)[2:] == ["            use i * 12 + j * 3"]


def test_divisions_leave_loops_even_if_they_are_used_once() -> None:
    assert written(N // 3 + J, K % N + J * 2) == [
        "    p0 = n // 3",
        "    for i:",
        "        p1 = i % n",
        "        for j:",
        "            use p0 + j",
        "            use p1 + j * 2",
    ]


def test_divisions_by_what_changes_in_each_step_stay() -> None:
    assert written(J % N)[2:] == ["            use j % n"]


def test_what_is_looked_up_may_not_be_there_outside_of_the_loops() -> None:
    index = Buffer("index", (N,), "int64")
    assert written(index[K] * 3 + K + 1, index[K] * 3 + K + 2)[2:] == [
        "            use i + x[i] * 3 + 1",
        "            use i + x[i] * 3 + 2",
    ]


def test_variables_of_no_loop_have_no_names() -> None:
    other = Var("other")
    assert written(other * 3 + K, other * 3 + K)[2:] == ["            use i + other * 3"] * 2


@pytest.mark.parametrize(
    ("index", "source"),
    [
        (N * 0, "0"),
        (K * -2, "-i * 2"),
        (3 - K, "-i + 3"),
        (N * K * 2 - J, "i * n * 2 - j"),
        (3 - J % N, "-(j % n) + 3"),
    ],
)
def test_signs(index: Expr, source: str) -> None:
    assert written(index)[-1].removeprefix("            use ") == source


def test_no_loop_over_pixels_divides() -> None:
    h, w = Var("h"), Var("w")
    x = t.placeholder((2, 3, h, w, 16))
    y = t.compute((2, 3, h * 2, w * 2, 16), lambda n, c, i, j, k: x[n, c, i // 2, j // 2, k], name="y")
    nest = t.nest("enlarged", [x], [y], [h, w])
    made = scheduled(nest)
    source = emit(made).kernel.source
    inside = source[source.index("for i") :]
    assert "% (" not in inside
    assert inside.count("// 2") == 1
    for size in ([1, 1], [3, 5], [0, 2], [4, 0]):
        check(nest, made, size)


def test_names_in_the_heads_of_loops_use_none_of_a_line() -> None:
    x = t.placeholder((8,))
    n = Var("n")

    def element(i: Var, j: Var) -> Expr:
        below = Apply("floor", (cast(i, "float64") / 1.25,), "float64")
        at = maximum(minimum(cast(below, "int64"), 7), 0)
        return x[at] * cast(below, "float32") + x[at] + cast(j, "float32")

    nest = t.nest("looked_up", [x], [t.compute((n, n), element, name="y")], [n])
    for size in (1, 5):
        check(nest, nest, [size])


def test_kernels_are_given_quotients_in_place_of_sizes_that_they_have_no_other_use_for() -> None:
    m = Var("m")

    def turned(by: int, height: Var) -> Nest:
        shape = height, (N + (by - 1)) // by
        x, w = t.placeholder(shape), t.placeholder((N,), name="w")
        y = t.compute(shape[::-1], lambda i, j: x[j, i] * w[0], name="y")
        return t.nest("turned", [x, w], [y], list(dict.fromkeys([height, N])))

    made = [scheduled(turned(by, m)) for by in (2, 3)]
    first, second = map(emit, made)
    assert first.kernel == second.kernel
    assert first.sizes[:-1] == second.sizes[:-1] == (m,)
    assert (first.sizes[-1], second.sizes[-1]) == ((N + 1) // 2, (N + 2) // 3)
    for nest, by in zip(made, (2, 3), strict=True):
        check(turned(by, m), nest, [5, 36])
    both = emit(scheduled(turned(2, N)))
    assert N in both.sizes
    check(turned(2, N), scheduled(turned(2, N)), [37])
