"""Statements are found by name and replaced where they stand."""

from dataclasses import replace

import pytest

from graphopt.errors import ScheduleError
from graphopt.lowering.analysis.block_refs import (
    INLINE,
    BlockRef,
    LoopRef,
    extents_around,
    find_block,
    find_loop,
    find_place,
    free_name,
    get_loop,
    names_in,
    primitive,
    replaced,
)
from graphopt.lowering.loops.nest import Seq
from graphopt.lowering.loops.script import read, show

NEST = read("""
@program
def stages(X: Buffer[(8,), "float32"], Y: Buffer[(8,), "float32"], Z: Buffer[(8,), "float32"]):
    for i in serial(8):
        with block("Y"):
            vi = axis.spatial(8, i)
            Y[vi] = X[vi]
    for j in serial(8):
        if j < 4:
            with block("Z"):
                vj = axis.spatial(8, j)
                Z[vj] = Y[vj]
        else:
            with block("W"):
                vw = axis.spatial(8, j)
                Z[vw] = 0.0
""")


def test_a_place_without_statements_goes() -> None:
    alone = replaced(NEST, find_block(NEST, "Y"), None)
    assert "for i in" not in show(alone)
    assert not isinstance(alone.body, Seq)
    kept = replaced(alone, find_block(alone, "Z"), None)
    assert "if not j < 4" in show(kept) or "if j >= 4" in show(kept)
    kept = replaced(alone, find_block(alone, "W"), None)
    assert "if j < 4:" in show(kept)
    assert "else" not in show(kept)
    with pytest.raises(ScheduleError, match="nothing of the program would be left"):
        replaced(kept, find_loop(kept, "j"), None)


def test_a_statement_takes_the_place_of_another() -> None:
    site = find_block(NEST, "Z")
    other = replace(site.stmt, name="V")
    assert show(replaced(NEST, site, other)) == show(NEST).replace('"Z"):', '"V"):')


def test_a_name_is_that_of_a_block_or_else_of_a_loop() -> None:
    assert find_place(NEST, "Y").stmt == find_block(NEST, BlockRef("Y")).stmt
    assert find_place(NEST, "j").stmt == find_loop(NEST, LoopRef("j")).stmt
    with pytest.raises(ScheduleError, match="there is no loop Q"):
        find_place(NEST, "Q")
    with pytest.raises(ScheduleError, match="there is no loop 3; the loops are "):
        find_loop(NEST, 3)  # type: ignore[arg-type]
    assert get_loop(NEST, INLINE.name) == INLINE


def test_extents_around_a_place_begin_with_the_outermost() -> None:
    site = find_block(NEST, "Z")
    assert [v.name for v in extents_around((*site.above, site.stmt))] == ["j", "vj"]


def test_a_free_name_is_taken_from_then_on() -> None:
    taken = names_in(NEST)
    assert taken == {"X", "Y", "Z", "W", "i", "j", "vi", "vj", "vw"}
    assert [free_name(taken, "i") for _ in range(2)] == ["i_1", "i_2"]


def test_errors_begin_with_the_primitive() -> None:
    @primitive
    def bend() -> None:
        raise ScheduleError("i: it is stiff")

    with pytest.raises(ScheduleError, match=r"^bend: i: it is stiff$"):
        bend()
