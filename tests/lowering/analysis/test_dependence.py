"""An owner tells from the indices of an element which iteration of a loop it belongs to, and no other."""

from collections.abc import Mapping
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphopt.errors import ScheduleError
from graphopt.lowering.analysis import dependence
from graphopt.lowering.analysis.dependence import at, owner, regions
from graphopt.lowering.index.arithmetic import ranges_over
from graphopt.lowering.index.ranges import ranges
from graphopt.lowering.loops.expressions import Const, Expr, Var, substitute
from graphopt.lowering.loops.nest import Block, blocks
from graphopt.lowering.loops.script import read
from graphopt.lowering.schedule.schedule import Schedule

I, J, F, N, M, O = (Var(name) for name in "ijfnmo")  # noqa: E741
TOLD: list[tuple[Mapping[Var, Expr | int], list[Expr], Expr | None]] = [
    ({I: 8, J: 4}, [I * 4 + J], at(0) // 4),
    ({I: 8, J: 4}, [J, I], at(1)),
    ({I: 8, J: 4}, [J * 8 + I], at(0) % 8),
    ({I: 8, J: 5}, [I * 4 + J], None),  # neighbours overlap
    ({I: 8, J: 4}, [I // 2], None),
    ({I: 8, J: 4}, [I // 2, I % 2 + J * 2], at(0) * 2 + at(1) % 2),
    ({I: N, J: M}, [I * M + J], at(0) // M),
    ({I: 8, J: 4}, [O * 32 + I * 4 + J], (at(0) - O * 32) // 4),
    ({I: 8, J: 4}, [I + J], None),
    ({I: 8, J: 4}, [I * I], None),
]


@pytest.mark.parametrize(("running", "indices", "expected"), TOLD)
def test_owners_of_tiles(running: Mapping[Var, Expr | int], indices: list[Expr], expected: Expr | None) -> None:
    exprs = {v: e if isinstance(e, Expr) else Const(e) for v, e in running.items()}
    assert owner(I, indices, exprs, ranges_over({O: 4, **exprs})) == expected


PARTS = st.sampled_from([I, J, F, I * 3, J * 2, F * 6, F // 4, F % 4, F // 4 * 3, F % 4 * 2, (F * 3 + I) // 2, I % 2])
INDEX = st.lists(PARTS, min_size=1, max_size=3).map(lambda parts: sum(parts, Const(0)))


@given(st.lists(INDEX, min_size=1, max_size=3), st.sampled_from([I, J, F]))
@settings(max_examples=150, deadline=None)
def test_an_owner_is_right_at_every_element(indices: list[Expr], wanted: Var) -> None:
    extents = {I: Const(3), J: Const(2), F: Const(8)}
    told = owner(wanted, indices, extents, ranges_over(extents))
    if told is None:
        return
    nothing = ranges(())
    for point in product(range(3), range(2), range(8)):
        values: dict[Var, Expr] = {v: Const(k) for v, k in zip((I, J, F), point, strict=True)}
        element: dict[Var, Expr] = {at(k): substitute(e, values) for k, e in enumerate(indices)}
        assert nothing.simplified(substitute(told, element)) == values[wanted]


def test_blocks_that_declare_nothing_have_the_regions_of_their_statements() -> None:
    text = """
@program
def rows(X: Buffer[(8, 6), "float32"], Y: Buffer[(8, 6), "float32"]):
    for i in serial(8):
        with block("Y"):
            v = axis.spatial(8, i)
            reads()
            writes()
            for j in serial(6):
                Y[v, j] = X[v, j]
"""
    (block,) = blocks(read(text).body)
    bare = Block(block.name, block.axes, block.values, block.body)
    ((read_region,), (written,)) = regions(bare)
    assert [r.extent for r in (*read_region.ranges, *written.ranges)] == [Const(1), Const(6)] * 2


def test_loops_that_reach_beyond_a_buffer_use_what_is_written_to_its_end() -> None:
    s = Schedule(
        read("""
@program
def f(a: Buffer[(24,), "float32"], y: Buffer[(3, 24), "float32"]):
    near = alloc((24,), "float32", scope="local")
    for i in serial(3):
        for j in serial(24):
            with block("near"):
                v0 = axis.remap("S", [j])
                near[v0] = a[v0]
        for k, l in grid(2, 14):
            with block("y"):
                v1 = axis.remap("S", [i])
                v2 = axis.spatial(24, k * 14 + l)
                where(k * 14 + l < 24)
                y[v1, v2] = near[v2]
""")
    )
    s.parallel("i")
    assert "parallel(3)" in s.script()


DIGITS = """
@program
def digits(X: Buffer[("n", 3, "(m + 31) // 32", "(n + 31) // 32"), "float32"], Y: Buffer[("n", 3, "(m + 31) // 32", "(n + 31) // 32"), "float32"], n: size, m: size):
    for i, j, k, l in grid(n, 3, (m + 31) // 32, (n + 31) // 32):
        with block("Y"):
            vi, vj, vk, vl = axis.remap("SSSS", [i, j, k, l])
            Y[vi, vj, vk, vl] = X[vi, vj, vk, vl]
"""  # noqa: E501


def test_all_digits_of_a_number_tell_it(monkeypatch: pytest.MonkeyPatch) -> None:
    s = Schedule(read(DIGITS))
    fused = s.fuse("i", "j", "k", "l")
    monkeypatch.setattr(dependence, "owner", lambda *_: pytest.fail("there is nothing to search for"))
    s.parallel(fused)


@pytest.mark.parametrize("lost", ["f % 6", "f // 6 % 4", "f // 24"])
def test_a_digit_that_is_lost_leaves_iterations_alike(lost: str) -> None:
    vi, vj, vk = (digit if digit != lost else "0" for digit in ("f % 6", "f // 6 % 4", "f // 24"))
    text = f"""
@program
def digits(X: Buffer[(6, 4, 5), "float32"], Y: Buffer[(6, 4, 5), "float32"]):
    for f in serial(120):
        with block("Y"):
            vi = axis.spatial(6, {vi})
            vj = axis.spatial(4, {vj})
            vk = axis.spatial(5, {vk})
            Y[vi, vj, vk] = X[vi, vj, vk]
"""
    with pytest.raises(ScheduleError, match="the same elements of Y in several of its iterations"):
        Schedule(read(text)).parallel("f")
