from graphopt.lowering.analysis.canonical_nest import Chain, chains
from graphopt.lowering.cpu.reduction_bounds import clipped
from graphopt.lowering.loops.expressions import Const, Var, substitute
from graphopt.lowering.loops.nest import Nest
from tests.lowering.described import any_convolution, over_windows

H, W = Var("h"), Var("w")


def first(nest: Nest) -> Chain:
    found = chains(nest)
    assert found is not None
    return found[0]


def test_bounds_hold_just_where_windows_are_inside_the_image() -> None:
    kernel, stride, pad, dilation = 4, 3, 5, 2
    chain = first(over_windows((H, W), (1, kernel), (1, stride), (0, pad, 0, pad), (1, dilation)))
    clip = clipped(chain)
    assert clip is not None
    along, steps = chain.spatial[3], chain.reduced[1]
    middle = clip.interior(along, {a.var: int(a.extent.value) for a in chain.reduced if isinstance(a.extent, Const)})
    assert middle is not None
    for width in range(1, 30):
        extent = (width + 2 * pad - (dilation * (kernel - 1) + 1)) // stride + 1
        wholes = []
        for at in range(extent):
            places = [at * stride + k * dilation - pad for k in range(kernel)]
            inside = [k for k, place in enumerate(places) if 0 <= place < width]
            start, end = (substitute(e, {W: Const(width)}) for e in clip.steps(steps, {along.var: Const(at)}))
            assert isinstance(start, Const)
            assert isinstance(end, Const)
            assert list(range(int(start.value), int(end.value))) == inside
            wholes += [at] if len(inside) == kernel else []
        begin, stop = (substitute(e, {W: Const(width)}) for e in middle)
        assert isinstance(begin, Const)
        assert isinstance(stop, Const)
        assert list(range(int(begin.value), int(stop.value))) == wholes


def test_windows_without_edges_have_no_bounds() -> None:
    clip = clipped(first(any_convolution()))
    assert clip is not None
    assert clip.bounds == ()
