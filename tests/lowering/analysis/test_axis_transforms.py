from graphopt.lowering.analysis.axis_transforms import following, with_axes_redrawn
from graphopt.lowering.analysis.canonical_nest import Chain, chains
from graphopt.lowering.loops.expressions import Const
from graphopt.lowering.loops.nest import Nest
from tests.lowering.described import FIXED, SYMBOLIC, depth_to_space


def chains_of(nest: Nest) -> tuple[Chain, ...]:
    found = chains(nest)
    assert found is not None
    return found


def extents(chain: Chain) -> list[object]:
    return [a.extent.value if isinstance(a.extent, Const) else a.extent for a in chain.axes]


def test_groups_are_an_axis_of_their_own_and_neighbours_one() -> None:
    first, *rest = chains_of(FIXED["grouped_convolution"]())
    drawn, others = with_axes_redrawn(first, rest)
    assert extents(drawn) == [2, 3, 5, 45, 4]
    assert [extents(c) for c in others] == [[2, 3, 5, 45]]
    image, channel, points = drawn.block.reads[0], drawn.spatial[2].var, drawn.spatial[3].var
    read = [a for a in drawn.accesses if a.buffer == image.buffer]
    assert not any(a.varies(channel) for a in read)
    assert [s.number for a in read if (s := a.stride(points)) is not None] == [1]


def test_axes_stay_that_conditions_use() -> None:
    first, *rest = chains_of(FIXED["convolution"]())
    assert with_axes_redrawn(first, rest) == (first, tuple(rest))


def test_sizes_that_are_not_known_are_no_hindrance() -> None:
    first, *rest = chains_of(SYMBOLIC["any_across"]())
    assert with_axes_redrawn(first, rest) == (first, tuple(rest))


def test_what_becomes_space_is_followed_on_the_axes_of_the_depth() -> None:
    first, last = chains_of(depth_to_space())
    drawn = following(last, first)
    assert [a.extent for a in drawn.axes] == [a.extent for a in first.spatial]
    assert following(first, first) is first
    (flat, *others) = chains_of(FIXED["grouped_convolution"]())
    assert [following(c, flat) for c in others] == others
