"""Blocks of tiles compute what their blocks did."""

import pytest

from graphopt.lowering.analysis.block_refs import BlockRef
from graphopt.lowering.loops.script import read
from graphopt.lowering.schedule.blockize import blockize
from graphopt.lowering.schedule.schedule import Schedule
from tests.lowering.documented import check, refused, same_results


def test_documented():
    check(blockize)


PRODUCT = """
@program
def product(A: Buffer[({n}, 5), "float32"], B: Buffer[(5, 7), "float32"], C: Buffer[({n}, 7), "float32"]):
    for i, j, k in grid({n}, 7, 5):
        with block("C"):
            vi, vj, vk = axis.remap("SSR", [i, j, k])
            with init():
                C[vi, vj] = 0.0
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""


@pytest.mark.parametrize("n", [1, 6, 8])
@pytest.mark.parametrize("at", ["i_1", "j_1", "k_1", "k_0", "j_0", "i_0"])
def test_tiles_of_every_depth(n, at):
    nest = read(PRODUCT.format(n=n))
    s = Schedule(nest)
    s.split("i", [None, 2])
    s.split("j", [None, 3])
    s.split("k", [None, 2])
    outer = s.blockize(at)
    assert s.get_child_blocks(outer)[-1] == BlockRef("C")
    same_results(nest, s.nest)


def test_the_start_stays_within_a_tile_of_the_whole_reduction():
    nest = read(PRODUCT.format(n=4))
    s = Schedule(nest)
    s.blockize("k")
    assert "C_init" not in s.script()
    same_results(nest, s.nest)


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        (["s.fuse('i', 'j')", "s.split('i_j', [None, 4])", "s.blockize('i_j_1')"], "is no sum of a part by the loops"),
        (["s.decompose_reduction('C', 'k')", "s.blockize('i')"], "j holds more than one block and its loops"),
        (
            ["s.split('i', [None, 4])", "s.reorder('i_1', 'j', 'k', 'i_0')", "s.blockize('i_0')"],
            "vi: tiles of 5 do not begin at multiples of that",
        ),
        (["s.blockize('x')"], "there is no loop x"),
    ],
)
def test_what_is_no_tile(calls, message):
    assert message in refused(PRODUCT.format(n=8), *calls)
