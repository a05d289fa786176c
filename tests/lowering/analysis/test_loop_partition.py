from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphopt.lowering.analysis.canonical_nest import chains
from graphopt.lowering.analysis.loop_partition import affine_segments, chosen_segments
from graphopt.lowering.cpu.default_schedules import scheduled
from graphopt.lowering.emit.kernel_source import emit
from graphopt.lowering.index.arithmetic import simplify
from graphopt.lowering.loops import compute as t
from graphopt.lowering.loops.expressions import Const, Expr, Var, apply, substitute
from graphopt.lowering.loops.script import read
from tests.lowering.described import padded_by_itself
from tests.lowering.native import check

AXIS = Var("j")
BENT = st.recursive(
    st.one_of(st.just(AXIS), st.integers(-90, 90).map(Const)),
    lambda parts: st.one_of(
        st.builds(apply, st.sampled_from(["add", "sub", "min", "max"]), parts, parts),
        st.builds(apply, st.sampled_from(["floordiv", "mod"]), parts, st.integers(2, 90).map(Const)),
        st.builds(lambda part, times: part * times, parts, st.integers(-3, 3)),
        st.builds(apply, st.just("abs"), parts),
    ),
    max_leaves=6,
)


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
@pytest.mark.parametrize(
    ("size", "front", "behind", "segments"),
    [
        (100, 3, 5, [3, 100, 5]),
        (100, 3, 0, [3, 100]),
        (100, 0, 99, [100, 99]),
        (9000, 50, 700, [50, 9000, 700]),
        (20, 1, 1, [22]),
        (1, 0, 0, [1]),
    ],
)
def test_an_axis_is_cut_where_an_index_bends(
    mode: str, size: int, front: int, behind: int, segments: list[int]
) -> None:
    nest = padded_by_itself(size, front, behind, mode)
    found = chains(nest)
    assert found is not None
    made = [int(n.value) for _, n in affine_segments(found[0], found[0].axes[-1]) if isinstance(n, Const)]
    assert sum(made) == sum(segments)
    # the element at which an index bends may belong to either segment
    assert all(abs(a - b) <= 1 for a, b in zip(made, segments, strict=True))
    source = emit(scheduled(nest)).kernel.source
    assert len(segments) == 1 or not any(word in source for word in ("abs(", "gather"))
    for rows in (0, 1, 3):
        check(nest, scheduled(nest), [rows])


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_segments_of_one_long_row_are_cut_into_chunks(mode: str) -> None:
    nest = padded_by_itself(40_000, 100, 77, mode, rows=1)
    source = emit(made := scheduled(nest)).kernel.source
    assert not any(word in source for word in ("abs(", "gather"))
    check(nest, made, [])


@given(BENT, st.integers(1, 120))
@settings(max_examples=200, deadline=None)
def test_segments_are_the_axis_and_affine(index: Expr, size: int) -> None:
    x = t.placeholder((1,))
    nest = t.nest("bent", [x], [t.compute((size,), lambda j: x[substitute(index, {AXIS: j})], name="z")])
    (chain,) = chains(nest) or ()
    parts = affine_segments(chain, chain.axes[-1])
    read: list[int] = []
    for part, length in parts:
        (store,), (access,) = part.stores, [a for a in part.accesses if not a.is_write]
        at, (var,) = access.indices[0], [a.var for a in part.axes]
        values = [at_point(at, var, k) for k in range(at_point(length, var, 0))]
        assert len(parts) == 1 or len({b - a for a, b in pairwise(values)}) < 2
        assert [at_point(store.indices[0], var, k) for k in range(len(values))] == [
            len(read) + k for k in range(len(values))
        ]
        read += values
    assert read == [at_point(index, AXIS, k) for k in range(size)]


def at_point(index: Expr, var: Var, point: int) -> int:
    """An index at a point of its axis."""
    found = substitute(index, {var: Const(point)})
    made = found if isinstance(found, Const) else simplify(found, {})
    assert isinstance(made, Const)
    return int(made.value)


JOINED = read(
    """
@program
def joined(
    x: Buffer[("r", "n"), "float32"], y: Buffer[("r", "m"), "float32"], z: Buffer[("r", "n + m * 2 + 3"), "float32"],
    r: size, n: size, m: size
):
    for i, j in grid(r, n + m * 2 + 3):
        with block("z"):
            vi, vj = axis.remap("SS", [i, j])
            z[vi, vj] = select(
                vj < n + m,
                select(vj < n, x[vi, vj], y[vi, vj - n]) * 2.0,
                select(vj < n + m * 2, y[vi, vj - (n + m)], 1.5) + 1.0
            )
"""
)


@pytest.mark.parametrize("sizes", [[1, 5, 7], [3, 0, 40], [2, 40, 0], [2, 0, 0], [0, 4, 4], [1, 9001, 4097], [2, 1, 1]])
def test_an_axis_of_open_size_is_cut_where_choices_turn(sizes: list[int]) -> None:
    found = chains(JOINED)
    assert found is not None
    assert len(chosen_segments(found[0], found[0].axes[-1])) == 4
    made = scheduled(JOINED)
    assert "select" not in str(made)
    check(JOINED, made, sizes)


def test_an_axis_stays_whole_where_choices_rest_on_elements() -> None:
    nest = read(
        """
@program
def kept(x: Buffer[("n",), "float32"], k: Buffer[(1,), "int64"], z: Buffer[("n",), "float32"], n: size):
    for i in serial(n):
        with block("z"):
            vi = axis.spatial(n, i)
            z[vi] = select(vi < k[0], x[vi], 0.0)
"""
    )
    found = chains(nest)
    assert found is not None
    assert len(chosen_segments(found[0], found[0].axes[-1])) == 1
