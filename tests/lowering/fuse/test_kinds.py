import pytest

from graphopt.lowering.fuse.kinds import FusionKind, is_repeated, kind_of, loads_of, work
from graphopt.lowering.loops import compute
from graphopt.lowering.loops.compute import Tensor, placeholder, reduce_axis
from graphopt.lowering.loops.expressions import apply

X = placeholder((4, 5))
B = placeholder((5,))
C = placeholder((4, 1))
K = reduce_axis(5)
W = placeholder((5, 3))

KINDS: dict[str, tuple[Tensor, FusionKind]] = {
    "the same place": (compute.compute((4, 5), lambda i, j: X[i, j] + 1.0), FusionKind.ELEMENTWISE),
    "an axis left out": (compute.compute((4, 5), lambda i, j: X[i, j] + B[j]), FusionKind.BROADCAST),
    "the first element of an axis": (compute.compute((4, 5), lambda i, j: X[i, j] + C[i, 0]), FusionKind.BROADCAST),
    "axes turned": (compute.compute((5, 4), lambda i, j: X[j, i]), FusionKind.INJECTIVE),
    "a shift": (compute.compute((4, 4), lambda i, j: X[i, j + 1]), FusionKind.INJECTIVE),
    "a sum": (compute.compute((4,), lambda i: compute.sum(X[i, K.var], K)), FusionKind.REDUCTION),
    "a product of matrices": (
        compute.compute((4, 3), lambda i, j: compute.sum(X[i, K.var] * W[K.var, j], K)),
        FusionKind.ANCHOR,
    ),
    "a product with a vector": (
        compute.compute((4,), lambda i: compute.sum(X[i, K.var] * B[K.var], K)),
        FusionKind.ANCHOR,
    ),
    "squares of distances": (
        compute.compute((4,), lambda i: compute.sum((X[i, K.var] - C[i, 0]) * (X[i, K.var] - C[i, 0]), K)),
        FusionKind.REDUCTION,
    ),
}


@pytest.mark.parametrize("case", KINDS)
def test_kinds(case: str) -> None:
    tensor, want = KINDS[case]
    assert kind_of([tensor]) == want


def test_a_procedure_is_opaque() -> None:
    (made,) = compute.procedure([("y", (4,), "float32")], [B], lambda y: compute.loop(4, lambda i: _store(y, i)))
    assert kind_of([made]) == FusionKind.OPAQUE


def _store(y: Tensor, i: object) -> object:
    from graphopt.lowering.loops.nest import Store

    return Store(y, (i,), B[i])  # type: ignore[arg-type, index]


def test_several_stages_are_as_heavy_as_the_heaviest() -> None:
    total = compute.compute((4,), lambda i: compute.sum(X[i, K.var], K))
    made = compute.compute((4, 5), lambda i, j: X[i, j] / total[i])
    assert kind_of([made]) == FusionKind.REDUCTION


def test_what_is_loaded_at_several_points() -> None:
    made = compute.compute((4, 5), lambda i, j: X[i, j] + B[j])
    assert made.stage is not None
    assert [is_repeated(load, made.stage) for load in loads_of(made.stage)] == [False, True]  # type: ignore[arg-type]
    alone = compute.compute((1, 5), lambda i, j: B[j])
    assert alone.stage is not None
    assert not any(is_repeated(load, alone.stage) for load in loads_of(alone.stage))  # type: ignore[arg-type]


def test_work_grows_with_what_is_applied() -> None:
    x = X[0, 0]
    assert work(x) == 0
    assert work(x) < work(x + 1.0) < work(x / 2.0) < work(apply("exp", x))
