import pytest

from graphopt.lowering.cuda.card import CARD, SIMULATED
from graphopt.lowering.cuda.emit import emit
from graphopt.lowering.cuda.schedules import scheduled
from graphopt.lowering.emit.kernel_source import EmitError
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script import read
from graphopt.lowering.schedule.schedule import Schedule
from tests.lowering.cuda.simulated import check, launch
from tests.lowering.described import FIXED
from tests.lowering.native import random_arrays


def program(body: str, head: str = 'x: Buffer[(8, 16), "float32"], y: Buffer[(8, 16), "float32"]') -> Nest:
    return read(f"@program\ndef kernel_of({head}):\n{body}")


PLAIN = """
    for i, j in grid(8, 16):
        with block("y"):
            v0, v1 = axis.remap("SS", [i, j])
            y[v0, v1] = x[v0, 15 - v1] + 1.0
"""


def test_the_source_names_blocks_and_threads() -> None:
    nest = scheduled(FIXED["flat"](), CARD)
    ((_, made),) = emit(nest)
    assert "block_x()" in made.kernel.source
    assert "load4(x, " in made.kernel.source
    assert "store4(y, " in made.kernel.source
    assert made.block == (256, 1, 1)
    assert "numba" not in made.kernel.source


def test_what_threads_share_is_waited_for() -> None:
    nest = program("""
    s = alloc((16,), "float32", scope="shared")
    for b in bind("blockIdx.x", 8):
        for i in bind("threadIdx.x", 16):
            s[i] = x[b, i] + 1.0
        for j in bind("threadIdx.x", 16):
            y[b, j] = s[15 - j]
""")
    check(program(PLAIN), nest)
    ((_, made),) = emit(nest)
    assert made.kernel.source.count("barrier()") == 1
    assert "shared(16, float32)" in made.kernel.source


def test_local_buffers_are_registers_of_each_thread() -> None:
    nest = program("""
    r = alloc((4, 4), "float32", scope="local")
    for b in bind("blockIdx.x", 8):
        for i in bind("threadIdx.x", 4):
            for k in unrolled(4):
                r[i, k] = x[b, 15 - (i * 4 + k)]
        for j in bind("threadIdx.x", 4):
            for m in unrolled(4):
                y[b, j * 4 + m] = r[j, m] + 1.0
""")
    check(program(PLAIN), nest)
    ((_, made),) = emit(nest)
    assert "r_3 = " in made.kernel.source
    assert "barrier" not in made.kernel.source


def test_what_is_another_threads_is_no_register() -> None:
    nest = program("""
    r = alloc((16,), "float32", scope="local")
    for b in bind("blockIdx.x", 8):
        for i in bind("threadIdx.x", 16):
            r[i] = x[b, i]
        for j in bind("threadIdx.x", 16):
            y[b, j] = r[15 - j] + 1.0
""")
    with pytest.raises(EmitError, match="let it be shared"):
        emit(nest)


def test_outside_of_the_loops_over_threads_one_thread_works() -> None:
    nest = program("""
    s = alloc((1,), "float32", scope="shared")
    for b in bind("blockIdx.x", 8):
        s[0] = 0.0
        for k in serial(3):
            s[0] = s[0] + 1.0
        for j in bind("threadIdx.x", 16):
            y[b, j] = x[b, 15 - j] + (s[0] - 2.0)
""")
    check(program(PLAIN), nest)


def test_threads_beyond_a_loop_rest() -> None:
    nest = program("""
    for b in bind("blockIdx.x", 8):
        for i in bind("threadIdx.x", 5):
            y[b, i] = x[b, 15 - i] + 1.0
        for j in bind("threadIdx.x", 11):
            y[b, 5 + j] = x[b, 10 - j] + 1.0
""")
    check(program(PLAIN), nest)


def test_each_statement_is_a_kernel() -> None:
    nest = program("""
    t = alloc((8, 16), "float32")
    for b in bind("blockIdx.x", 8):
        for i in bind("threadIdx.x", 16):
            t[b, i] = x[b, i] + 1.0
    for c in bind("blockIdx.x", 8):
        for j in bind("threadIdx.x", 16):
            y[c, j] = t[c, 15 - j]
""")
    check(program(PLAIN), nest)
    assert [[b.name for b in made.buffers] for _, made in emit(nest)] == [["x", "t"], ["y", "t"]]


def test_threads_do_not_combine_into_one_element() -> None:
    nest = read("""
@program
def total(x: Buffer[(64,), "float32"], y: Buffer[(1,), "float32"]):
    for i in bind("threadIdx.x", 64):
        with block("y"):
            v0 = axis.spatial(1, 0)
            v1 = axis.reduce(64, i)
            with init():
                y[v0] = 0.0
            y[v0] = y[v0] + x[v1]
""")
    with pytest.raises(EmitError, match="rfactor"):
        emit(nest)


def test_a_check_that_fails_says_which() -> None:
    nest = program(
        """
    for b in bind("blockIdx.x", 1):
        for t in bind("threadIdx.x", 8):
            check(i[t] < 8, "an index is out of range")
            y[t] = x[i[t]]
""",
        'x: Buffer[(8,), "float32"], i: Buffer[(8,), "int64"], y: Buffer[(8,), "float32"]',
    )
    x, i, y = random_arrays(nest)
    i[:] = range(8)
    launch(nest, [x, i, y])
    assert (x == y).all()
    i[3] = 8
    with pytest.raises(IndexError, match="out of range"):
        launch(nest, [x, i, y])


@pytest.mark.parametrize("name", ["flat", "half", "bytes_and_truths", "padded", "joined", "scalar", "empty"])
def test_elements_are_what_the_nest_says(name: str) -> None:
    nest = FIXED[name]()
    check(nest, scheduled(nest, SIMULATED))


def test_what_threads_share_has_room() -> None:
    nest = program("""
    s = alloc((16384,), "float32", scope="shared")
    for b in bind("blockIdx.x", 8):
        for i in bind("threadIdx.x", 16):
            s[i] = x[b, i]
        for j in bind("threadIdx.x", 16):
            y[b, j] = s[j]
""")
    with pytest.raises(EmitError, match="65536 bytes, and 49152 is the most"):
        emit(nest)


def test_products_are_rounded_by_themselves_where_nothing_is_contracted() -> None:
    nest = program(PLAIN.replace("+ 1.0", "* x[v0, v1] + 1.0"))
    ((_, exact),) = emit(scheduled(nest, CARD), contract=False)
    assert "product(" in exact.kernel.source
    ((_, free),) = emit(scheduled(nest, CARD))
    assert "product(" not in free.kernel.source


def test_lanes_under_one_condition_access_memory_together() -> None:
    """A split that does not divide leaves a condition on the block, which all lanes of a vector share."""
    nest = read("""
@program
def doubled(x: Buffer[(10, 20), "float32"], y: Buffer[(10, 20), "float32"]):
    for i, j in grid(10, 20):
        with block("y"):
            v0, v1 = axis.remap("SS", [i, j])
            y[v0, v1] = x[v0, v1] * 2.0
""")
    s = Schedule(nest)
    units, lanes = s.split(s.fuse(*s.get_loops("y")), [None, 4])
    s.vectorize(lanes)
    block, thread = s.split(units, [None, 32])
    s.bind(block, "blockIdx.x")
    s.bind(thread, "threadIdx.x")
    check(nest, s.nest)
    ((_, made),) = emit(s.nest)
    assert "load4(x, " in made.kernel.source
    assert "store4(y, " in made.kernel.source
    assert made.kernel.source.count("if ") == 1
