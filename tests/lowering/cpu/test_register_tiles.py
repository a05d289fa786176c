"""Register tiles that are chosen otherwise than by rule compute the same, in the loops that were chosen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from graphopt.errors import ScheduleError
from graphopt.kernels.host import lanes, vector_bytes
from graphopt.lowering.analysis.access_analysis import REGISTERS
from graphopt.lowering.analysis.canonical_nest import chains
from graphopt.lowering.cpu.default_schedules import chosen, scheduled
from graphopt.lowering.cpu.register_tiles import IN_REGISTERS, tile_plan
from graphopt.lowering.loops.expressions import Const
from graphopt.lowering.loops.nest import For, Invoke, Nest, statements
from graphopt.lowering.loops.script import read
from tests.lowering.described import FIXED
from tests.lowering.native import Native, check

IN_TILES = {IN_REGISTERS: 1}
LANES = lanes("float32")


def product(m: str | int, n: str | int, k: int) -> Nest:
    """A product of matrices, whose rows or columns may be any number."""
    size = "".join(f", {s}: size" for s in (m, n) if isinstance(s, str))
    rows, columns = (f'"{s}"' if isinstance(s, str) else s for s in (m, n))
    return read(f"""
@program
def product(a: Buffer[({rows}, {k}), "float32"], b: Buffer[({k}, {columns}), "float32"],
            c: Buffer[({rows}, {columns}), "float32"]{size}):
    for i0, i1, i2 in grid({m}, {n}, {k}):
        with block("c"):
            v0, v1, v2 = axis.remap("SSR", [i0, i1, i2])
            with init():
                c[v0, v1] = 0.0
            c[v0, v1] = c[v0, v1] + a[v0, v2] * b[v2, v1]
""")


def loops(nest: Nest) -> Iterator[For]:
    return (s for s in statements(nest.body) if isinstance(s, For))


def extents(nest: Nest, kind: str) -> list[int]:
    """The extents of the loops of a kind that are numbers, outermost first."""
    return [int(s.extent.value) for s in loops(nest) if s.kind == kind and isinstance(s.extent, Const)]


def tiled(choices: Mapping[str, int], m: int = 40) -> Nest:
    """A product in tiles, some of which do not divide it, that computes the same."""
    nest = product(m, 5 * LANES + 3, 20)
    made, _, _ = chosen(nest, IN_TILES | choices)
    check(nest, made, pieces=(1, 3))
    return made


def test_tiles_may_be_chosen_instead_of_a_function() -> None:
    assert any(isinstance(s, Invoke) for s in statements(scheduled(product(64, 256, 64)).body))
    assert not any(isinstance(s, Invoke) for s in statements(tiled({}).body))


def test_vectors_lie_side_by_side_before_they_lie_in_several_matrices() -> None:
    """Of equally many vectors that share an operand: those of other matrices lie in other pages."""
    nest = read("""
@program
def products(a: Buffer[(12, 20), "float32"], b: Buffer[(4, 20, 512), "float32"], c: Buffer[(4, 12, 512), "float32"]):
    for i0, i1, i2, i3 in grid(4, 12, 512, 20):
        with block("c"):
            v0, v1, v2, v3 = axis.remap("SSSR", [i0, i1, i2, i3])
            with init():
                c[v0, v1, v2] = 0.0
            c[v0, v1, v2] = c[v0, v1, v2] + a[v1, v3] * b[v0, v3, v2]
""")
    check(nest, scheduled(nest), pieces=(1, 3))
    (chain,) = chains(nest) or ()
    matrix, _, vector = chain.spatial
    plan = tile_plan(chain, vector) or {}
    assert plan[matrix.var] == 1
    assert plan[vector.var] > LANES


def test_tiles_that_are_done_together_are_loops_of_a_piece() -> None:
    """The last piece is moved back as a whole."""
    alone = {"width 0": 4, "width 1": LANES}
    together = alone | {"times 0": 8, "times 1": 2}
    assert not {8, 2} & set(extents(tiled(alone), "serial"))
    assert [n for n in extents(tiled(together), "serial") if n in (8, 2)] == [8, 2]
    assert [n for n in extents(tiled(together | {"turned": 1}), "serial") if n in (8, 2)] == [2, 8]


def test_there_is_an_order_where_several_axes_have_tiles_together() -> None:
    with pytest.raises(ScheduleError, match="turned is one of 0, and not 1"):
        tiled({"turned": 1})


def test_steps_are_written_out() -> None:
    assert extents(tiled({"width 0": 2, "steps 0": 5}), "unrolled").count(5) == 1


def copies(made: Nest, buffer: str) -> list[tuple[int, ...]]:
    """The shapes of the copies of a buffer."""
    sizes = [b.shape for b in made.allocs if b.name.startswith(f"{buffer}_")]
    return [tuple(int(n.value) for n in shape if isinstance(n, Const)) for shape in sizes]


@pytest.mark.parametrize("order", [0, 1])
def test_the_part_of_an_operand_that_a_piece_reads_is_copied(order: int) -> None:
    choices = {"width 0": 4, "times 0": 2, "width 1": 2 * LANES, "times 1": 2, "turned": order}
    assert not copies(tiled(choices), "a")
    assert copies(tiled(choices | {"packed": 1}), "a") == [(8, 20)]
    assert copies(tiled(choices | {"packed": 2}), "b") == [(2, 20, 2 * LANES)]


def test_columns_of_a_tile_lie_side_by_side_in_a_copy() -> None:
    nest = FIXED["transposed_product"]()
    made, _, _ = chosen(nest, IN_TILES | {"packed": 1})
    check(nest, made)
    assert copies(made, "b") == [(1, 33, LANES)]


@pytest.mark.parametrize("packed", [0, 1, 2])
def test_rows_of_any_number_are_tiled_where_they_suffice(packed: int) -> None:
    nest = product("m", 5 * LANES, 12)
    made = Native(chosen(nest, IN_TILES | {"width 0": 3, "times 0": 2, "packed": packed})[0])
    for size in (1, 5, 6, 7, 40):
        check(nest, made, [size])


@pytest.mark.parametrize("choices", [{}, {"width 1": 2 * LANES, "times 1": 2, "packed": 2}])
def test_vectors_along_an_axis_of_any_size_are_shorter_where_it_is(choices: Mapping[str, int]) -> None:
    nest = product(12, "n", 12)
    made, offered, _ = chosen(nest, IN_TILES | choices)
    assert "width 1" in offered
    assert extents(made, "vectorized").count(LANES) > 2
    runs = Native(made)
    for size in (0, 1, 3, LANES // 4, LANES - 1, LANES, 2 * LANES + 1, 5 * LANES):
        check(nest, runs, [size])


def windows(stride: int) -> Nest:
    """Sums over padded windows of three by three, on images of any size."""
    row, column = (f"{stride} * v{k} + v{k + 2} - 1" for k in (0, 1))
    return read(f"""
@program
def windows(x: Buffer[("h", "w"), "float32"], k: Buffer[(3, 3), "float32"], y: Buffer[("p", "q"), "float32"],
            h: size, w: size, p: size, q: size):
    for i0, i1, i2, i3 in grid(p, q, 3, 3):
        with block("y"):
            v0, v1, v2, v3 = axis.remap("SSRR", [i0, i1, i2, i3])
            with init():
                y[v0, v1] = 0.0
            y[v0, v1] = y[v0, v1] + select({row} >= 0 and {row} < h and {column} >= 0 and {column} < w,
                                           x[{row}, {column}], 0.0) * k[v2, v3]
""")


@pytest.mark.parametrize("stride", [1, 2])
def test_steps_across_vectors_have_bounds_and_those_along_them_masks_of_their_own(stride: int) -> None:
    nest = windows(stride)
    made, offered, _ = chosen(nest, {})
    assert 3 in offered["steps 1"]
    assert 3 in extents(made, "unrolled")
    assert 3 not in extents(made, "serial")
    runs = Native(made)
    for h, w in ((0, 5), (5, 0), (1, 1), (2, 3), (7, LANES + 3), (4, 2 * LANES), (3, 5 * LANES + 1)):
        check(nest, runs, [h, w, -(-h // stride), -(-w // stride)])


@pytest.mark.parametrize("vectors", [1, 2, 3, 4])
def test_as_many_results_may_be_chosen_as_there_are_registers_for(vectors: int) -> None:
    nest = product(64, 16 * LANES, 64)
    by_rule, *_ = [n for n in chosen(nest, IN_TILES)[1]["width 0"] if n > 1]
    _, offered, _ = chosen(nest, IN_TILES | {"width 1": vectors * LANES})
    most = REGISTERS[vector_bytes()] // vectors - 1
    assert max(offered["width 0"]) <= max(most, by_rule)
    assert max(offered["width 0"]) > most // 2


def test_pieces_with_conditions_at_the_ends_of_an_axis_are_written_out() -> None:
    """Masks are known in each, and whole in most vectors."""
    width = 3 * LANES + LANES // 2
    nest = read(f"""
@program
def depthwise(x: Buffer[(4, {width}), "float32"], k: Buffer[(4, 7), "float32"], y: Buffer[(4, {width}), "float32"]):
    for i0, i1, i2 in grid(4, {width}, 7):
        with block("y"):
            v0, v1, v2 = axis.remap("SSR", [i0, i1, i2])
            with init():
                y[v0, v1] = 0.0
            y[v0, v1] = y[v0, v1] + k[v0, v2] * select(0 <= v1 + v2 - 3 and v1 + v2 - 3 < {width},
                                                       x[v0, v1 + v2 - 3], 0.0)
""")
    made = scheduled(nest)
    check(nest, made)
    along = [s for s in loops(made) if isinstance(s.extent, Const) and s.var.name.startswith("o")]
    assert along
    assert all(s.kind == "unrolled" for s in along)
