"""What is read off the loops of a product is what the library is told."""

from dataclasses import replace

import pytest

from graphopt.lowering.cuda.card import CARD, Card
from graphopt.lowering.cuda.dispatch import choice
from graphopt.lowering.cuda.emit import emit
from graphopt.lowering.cuda.library_calls import note
from graphopt.lowering.cuda.multiplication import multiplication_of
from graphopt.lowering.cuda.schedules import scheduled
from graphopt.lowering.emit.kernel_source import EmitError, LibraryCall
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script import read
from tests.lowering.cuda.simulated import check

LIBRARY = choice("library", {})


def product(text: str, dtype: str = "float32") -> Nest:
    """A product: the shapes of x, y and c, how far the loops a, b, m, n and the steps e run, and the statement."""
    shapes, extents, element, added = (part.strip() for part in text.split(";"))
    x, y, c = (f'Buffer[({shape},), "{dtype}"]' for shape in shapes.split(" "))
    return read(f"""
@program
def product(x: {x}, y: {y}, c: {c}):
    for i0, i1, i2, i3, i4 in grid({extents}):
        with block("c"):
            a, b, m, n, e = axis.remap("SSSSR", [i0, i1, i2, i3, i4])
            with init():
                c[{element}] = {0.0 if dtype == "float32" else 0}
            c[{element}] = c[{element}] + {added}
""")


CASES = {
    "plain": "7,5 5,6 7,6; 1, 1, 7, 6, 5; m, n; x[m, e] * y[e, n]",
    "left turned": "5,7 5,6 7,6; 1, 1, 7, 6, 5; m, n; x[e, m] * y[e, n]",
    "right turned": "7,5 6,5 7,6; 1, 1, 7, 6, 5; m, n; x[m, e] * y[n, e]",
    "other order": "7,5 5,6 6,7; 1, 1, 7, 6, 5; n, m; x[m, e] * y[e, n]",
    "batch": "3,7,5 3,5,6 3,7,6; 3, 1, 7, 6, 5; a, m, n; x[a, m, e] * y[a, e, n]",
    "rows of batches": "3,2,7,5 5,6 3,2,7,6; 3, 2, 7, 6, 5; a, b, m, n; x[a, b, m, e] * y[e, n]",
    "one matrix for all": "7,5 3,5,6 3,7,6; 3, 1, 7, 6, 5; a, m, n; x[m, e] * y[a, e, n]",
    "pixels": "7,5 3,5,2,3 3,7,2,3; 3, 7, 2, 3, 5; a, b, m, n; x[b, e] * y[a, e, m, n]",
    "a part": "9,8 5,9 7,6; 1, 1, 7, 6, 5; m, n; x[m + 1, e + 2] * y[e, n + 3]",
    "one row": "1,5 5,6 1,6; 1, 1, 1, 6, 5; m, n; x[m, e] * y[e, n]",
    "one step": "7,1 1,6 7,6; 1, 1, 7, 6, 1; m, n; x[m, e] * y[e, n]",
}
OTHERS = {
    "rows that overlap": "11 5,6 7,6; 1, 1, 7, 6, 5; m, n; x[m + e] * y[e, n]",
    "heads within rows": "3,7,2,5 3,5,2,6 3,2,7,6; 3, 2, 7, 6, 5; a, b, m, n; x[a, m, b, e] * y[a, e, b, n]",
    "the same in all steps": "7 5,6 7,6; 1, 1, 7, 6, 5; m, n; x[m] * y[e, n]",
    "no neighbours": "7,5,2 5,6 7,6; 1, 1, 7, 6, 5; m, n; x[m, e, 1] * y[e, n]",
}


def dispatched(nest: Nest, card: Card = CARD) -> Nest:
    return scheduled(nest, card, LIBRARY)


@pytest.mark.parametrize("name", CASES)
def test_the_library_computes_what_the_loops_say(name: str) -> None:
    nest = dispatched(product(CASES[name]))
    assert [type(made) for _, made in emit(nest)] == [LibraryCall]
    check(product(CASES[name]), nest)


@pytest.mark.parametrize("name", OTHERS)
def test_what_the_library_cannot_compute_is_left_to_kernels(name: str) -> None:
    assert not any(isinstance(made, LibraryCall) for _, made in emit(dispatched(product(OTHERS[name]))))


def test_integers_are_left_to_kernels() -> None:
    (_, made), *_ = emit(dispatched(product(CASES["plain"], "int32")))
    assert not isinstance(made, LibraryCall)


def test_sizes_may_be_open() -> None:
    nest = read("""
@program
def product(
    x: Buffer[("m", "k"), "float32"],
    y: Buffer[("k", "n"), "float32"],
    c: Buffer[("m", "n"), "float32"],
    m: size,
    n: size,
    k: size,
):
    for i, j, p in grid(m, n, k):
        with block("c"):
            v0, v1, v2 = axis.remap("SSR", [i, j, p])
            with init():
                c[v0, v1] = 0.0
            c[v0, v1] = c[v0, v1] + x[v0, v2] * y[v2, v1]
""")
    made = dispatched(nest)
    for sizes in ([3, 4, 5], [1, 1, 1], [2, 7, 1]):
        check(nest, made, sizes)


FINISHED = """
@program
def finished(
    x: Buffer[(7, 5), "float32"],
    y: Buffer[(5, 6), "float32"],
    b: Buffer[(6,), "float32"],
    c: Buffer[(7, 6), "float32"],
):
    t = alloc((7, 6), "float32")
    for m, n, e in grid(7, 6, 5):
        with block("t"):
            v0, v1, v2 = axis.remap("SSR", [m, n, e])
            with init():
                t[v0, v1] = 0.0
            t[v0, v1] = t[v0, v1] + x[v0, v2] * y[v2, v1]
    for i, j in grid(7, 6):
        with block("c"):
            v0, v1 = axis.remap("SS", [i, j])
            c[v0, v1] = max(t[v0, v1] + b[v1], 0.0)
"""


def test_what_follows_is_done_by_the_library_where_it_can() -> None:
    nest = read(FINISHED)
    apart, together = dispatched(nest), dispatched(nest, Card(has_epilogues=True))
    assert len(emit(apart)) == 2
    ((_, made),) = emit(together)
    assert isinstance(made, LibraryCall)
    assert dict(made.attributes)["epilogue"] == "relu"
    check(nest, apart)
    check(nest, together)


def test_halves_are_rounded_once() -> None:
    nest = read("""
@program
def halves(x: Buffer[(7, 5), "float16"], y: Buffer[(5, 6), "float16"], c: Buffer[(7, 6), "float16"]):
    t = alloc((7, 6), "float32")
    for m, n, e in grid(7, 6, 5):
        with block("t"):
            v0, v1, v2 = axis.remap("SSR", [m, n, e])
            with init():
                t[v0, v1] = 0.0
            t[v0, v1] = t[v0, v1] + cast(x[v0, v2], "float32") * cast(y[v2, v1], "float32")
    for i, j in grid(7, 6):
        with block("c"):
            v0, v1 = axis.remap("SS", [i, j])
            c[v0, v1] = cast(t[v0, v1], "float16")
""")
    made = dispatched(nest)
    assert [type(m) for _, m in emit(made)] == [LibraryCall]
    check(nest, made)


def finished(dtype: str, element: str, result: str, bias: str = "float32") -> Nest:
    """A product of operands of a dtype, summed up in float32, and an element of what follows."""
    return read(f"""
@program
def finished(
    x: Buffer[(7, 5), "{dtype}"], y: Buffer[(5, 6), "{dtype}"], b: Buffer[(6,), "{bias}"], c: Buffer[(7, 6), "{result}"]
):
    t = alloc((7, 6), "{dtype if dtype == "float64" else "float32"}")
    for m, n, e in grid(7, 6, 5):
        with block("t"):
            v0, v1, v2 = axis.remap("SSR", [m, n, e])
            with init():
                t[v0, v1] = 0.0
            t[v0, v1] = t[v0, v1] + {"x[v0, v2] * y[v2, v1]" if dtype != "float16" else WIDENED}
    for i, j in grid(7, 6):
        with block("c"):
            v0, v1 = axis.remap("SS", [i, j])
            c[v0, v1] = {element}
""")


WIDENED = 'cast(x[v0, v2], "float32") * cast(y[v2, v1], "float32")'


@pytest.mark.parametrize(
    "nest",
    [
        finished("float32", 'cast(cast(t[v0, v1], "float16"), "float32")', "float32"),
        finished("float16", 'cast(cast(cast(t[v0, v1], "float16"), "float32") + b[v1], "float16")', "float16"),
        finished("float64", "max(t[v0, v1] + b[v1], 0.0)", "float64", "float64"),
    ],
    ids=["rounded by the model", "a bias of another type", "double precision"],
)
def test_the_library_does_nothing_that_the_model_does_not_say(nest: Nest) -> None:
    made = dispatched(nest, Card(has_epilogues=True))
    assert [type(m) for _, m in emit(made)][-1] is not LibraryCall
    check(nest, made)


def test_a_note_where_there_is_no_product_is_refused() -> None:
    nest = read("""
@program
def plain(x: Buffer[(7,), "float32"], y: Buffer[(7,), "float32"]):
    for i in serial(7):
        y[i] = x[i]
""")
    noted = replace(nest, body=replace(nest.body, notes=(note("gemm"),)))
    assert multiplication_of(noted.body) is None
    with pytest.raises(EmitError, match="drop the note"):
        emit(noted)


@pytest.mark.parametrize("is_allowed", [False, True])
def test_operands_are_rounded_to_tf32_only_where_that_is_allowed(is_allowed: bool) -> None:
    ((_, made),) = emit(dispatched(product(CASES["plain"]), Card(is_approximate=is_allowed)))
    assert isinstance(made, LibraryCall)
    assert dict(made.attributes).get("tf32", False) is is_allowed
