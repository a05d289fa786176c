"""A schedule finds loops and blocks by name, and hands on what its primitives give."""

import pytest

from graphopt.errors import ScheduleError, UsageError
from graphopt.lowering.analysis.block_refs import BlockRef, LoopRef
from graphopt.lowering.loops.script import read, show
from graphopt.lowering.schedule.schedule import Schedule, TracedInt
from tests.lowering.documented import same_results

CHAIN = """
@program
def chain(X: Buffer[(8, 4), "float32"], Y: Buffer[(8,), "float32"], Z: Buffer[(8,), "float32"]):
    T = alloc((8, 4), "float32")
    for i in serial(8):
        for j in serial(4):
            with block("T"):
                vi, vj = axis.remap("SS", [i, j])
                T[vi, vj] = X[vi, vj] * 2.0
        for k in serial(4):
            with block("Y"):
                ui, uk = axis.remap("SR", [i, k])
                with init():
                    Y[ui] = 0.0
                Y[ui] = Y[ui] + T[ui, uk]
    for o in serial(4):
        with block("outer"):
            vo = axis.spatial(4, o)
            for p in serial(2):
                with block("Z"):
                    vz = axis.spatial(8, vo * 2 + p)
                    Z[vz] = Y[vz] + 1.0
"""


@pytest.fixture
def s() -> Schedule:
    return Schedule(read(CHAIN))


def test_blocks_and_loops_are_found(s: Schedule) -> None:
    assert s.get_block("Y") == BlockRef("Y")
    assert s.get_loops("Y") == (LoopRef("i"), LoopRef("k"))
    assert s.get_loops("Z") == (LoopRef("p"),)  # up to the block around it
    assert s.get_child_blocks(LoopRef("i")) == (BlockRef("T"), BlockRef("Y"))
    assert s.get_child_blocks(BlockRef("outer")) == (BlockRef("Z"),)
    assert s.get_parent_block(BlockRef("Z")) == BlockRef("outer")
    assert s.get_parent_block(LoopRef("p")) == BlockRef("outer")
    assert s.get_parent_block(BlockRef("T")) is None


def test_producers_and_consumers(s: Schedule) -> None:
    assert s.get_producers("Y") == (BlockRef("T"),)
    assert s.get_consumers("T") == (BlockRef("Y"),)
    assert s.get_producers("T") == s.get_consumers("Z") == ()


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda s: s.get_block("W"), "there is no block W; the blocks are T, Y, outer, Z"),
        (lambda s: s.get_loop("x"), "there is no loop x; the loops are i, j, k, o, p"),
        (lambda s: s.get_loops("W"), "there is no block W"),
        (
            lambda s: s.compute_inline("root"),
            "root is .* as a whole, and no block in it; the blocks are T",
        ),
    ],
)
def test_what_is_not_there_is_named(s: Schedule, ask, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        ask(s)


def test_references_stay_valid_while_other_parts_change(s: Schedule) -> None:
    y = s.get_block("Y")
    i, k = s.get_loops(y)
    s.split("j", [None, 2])
    s.split(i, [2, None])
    assert s.get_loops(y) == (LoopRef("i_0"), LoopRef("i_1"), k)
    with pytest.raises(ScheduleError, match="there is no loop i"):
        s.unroll(i)


def test_new_loops_take_names_that_are_free(s: Schedule) -> None:
    first = s.split("j", [None, 2])
    second = s.split(first[0], [None, 1])
    assert [x.name for x in (*first, *second)] == ["j_0", "j_1", "j_0_0", "j_0_1"]
    assert s.fuse(*second).name == "j_0_0_j_0_1"
    assert s.add_unit_loop("T").name == "unit"
    assert s.add_unit_loop("Y").name == "unit_1"


def test_an_error_leaves_the_nest_and_the_trace_as_they_were(s: Schedule) -> None:
    s.split("j", [None, 2])
    nest, trace = s.nest, s.trace
    with pytest.raises(ScheduleError):
        s.parallel("k")
    assert s.nest is nest
    assert s.trace == trace


def test_drawn_numbers_are_numbers_that_know_their_step(s: Schedule) -> None:
    tile = s.sample_perfect_tile("i", 2)
    assert all(isinstance(f, TracedInt) for f in tile)
    assert tile[0] * tile[1] == 8
    assert type(tile[0] * 2) is int


def test_arguments_that_a_trace_cannot_keep_are_refused(s: Schedule) -> None:
    with pytest.raises(ScheduleError, match="a trace cannot keep"):
        s.annotate("T", "note", {1})


def test_a_copy_goes_on_by_itself(s: Schedule) -> None:
    tile = s.sample_perfect_tile("i", 2)
    block = s.get_block("T")
    other = s.copy()
    assert other.nest is s.nest
    assert other.trace == s.trace
    drawn = [x.sample_perfect_tile("j", 2) for x in (s, other)]
    assert drawn[0] == drawn[1]  # the same state of the generator
    before = s.nest
    loops = other.split("i", tile)
    other.annotate(block, "note", 1)
    assert s.nest is before
    assert "split" not in s.trace.script()
    again = other.copy()
    again.unroll(loops[1])
    for x in (other, again):
        replayed = x.trace.replay(read(CHAIN))
        assert replayed.nest == x.nest
        assert f"s.split('i', [{', '.join(['v0', 'v1'])}])" in x.trace.script()
    later = s.sample_perfect_tile("k", 2)  # a number that the copy does not know is one like any other
    other.split("k", later)
    assert f"s.split('k', [{later[0]}, {later[1]}])" in other.trace.script()


def test_wanted_decisions_are_those_of_copies_too() -> None:
    s = Schedule(read(CHAIN), wanted=[(4, 2), (1, 4)])
    assert s.sample_perfect_tile("i", 2) == (4, 2)
    other = s.copy()
    assert s.sample_perfect_tile("j", 2) == other.sample_perfect_tile("j", 2) == (1, 4)


def test_seeds_of_forks_differ_and_are_those_of_the_seed(s: Schedule) -> None:
    seeds = [s.fork_seed() for _ in range(4)]
    assert len(set(seeds)) == 4
    assert all(isinstance(seed, int) and 0 <= seed < 1 << 31 for seed in seeds)
    assert seeds == [x for twin in [Schedule(read(CHAIN))] for x in [twin.fork_seed() for _ in range(4)]]
    assert not s.trace.steps


def test_output_blocks_are_those_that_write_parameters(s: Schedule) -> None:
    assert s.get_output_blocks() == (BlockRef("Y"), BlockRef("outer"))


def test_show_is_the_script(s: Schedule) -> None:
    assert read(s.script()) == s.nest


def test_a_schedule_is_one_of_a_nest() -> None:
    with pytest.raises(UsageError, match="a schedule is one of a nest, as a module holds it by name, not of 3"):
        Schedule(3)  # type: ignore[arg-type]


def test_the_root_block_is_the_program() -> None:
    s = Schedule(read(CHAIN))
    root = s.get_block("root")
    assert s.get_child_blocks(root) == tuple(map(s.get_block, ("T", "Y", "outer")))
    assert s.get_loops(root) == ()
    assert s.get_parent_block(root) is None
    s.annotate(root, "unroll.depth", 64)
    assert dict(s.nest.notes) == {"unroll.depth": 64}
    assert 'notes({"unroll.depth": 64})' in show(s.nest)
    assert read(show(s.nest)) == s.nest
    assert s.trace.replay(read(CHAIN)).nest == s.nest
    s.unannotate(root, "unroll.depth")
    assert s.nest == read(CHAIN)
    with pytest.raises(ScheduleError, match="the program has no note 'x'; it has none"):
        s.unannotate("root", "x")


def test_predicates_are_those_of_loops() -> None:
    text = """
@program
def some(A: Buffer[(6, 4), "float32"], B: Buffer[(6,), "float32"]):
    for i, j in grid(6, 4):
        with block("B"):
            v, w = axis.remap("SR", [i, j])
            where(v < 4 and v != 1)
            with init():
                B[v] = 0.0
            B[v] = B[v] + A[v, w]
"""
    nest = read(text)
    for call in ("s.blockize('j')", "s.decompose_reduction('B', 'i')", "s.rfactor('j')", "s.cache_write('B')"):
        s = Schedule(nest)
        assert "where(i < 4 and i != 1)" in show(s.nest)
        eval(call, {"s": s})
        same_results(nest, s.nest)
        assert s.trace.replay(nest).nest == s.nest
