"""Intrinsics are known by name, and implementations compute what descriptions do."""

import pytest

from graphopt.errors import ScheduleError
from graphopt.lowering.intrinsics import tensor_intrin
from graphopt.lowering.intrinsics.tensor_intrin import (
    TensorIntrin,
    buffers_written,
    find_intrinsic,
    implementation,
    outputs_of,
    product_tile,
    register_intrinsic,
)
from graphopt.lowering.loops.expressions import Const
from graphopt.lowering.loops.nest import Buffer, BufferRegion, Invoke, Nest, Range, Store, statements
from graphopt.lowering.loops.script import read
from tests.lowering.documented import same_results


@pytest.mark.parametrize(("rows", "columns", "k"), [(1, 1, 1), (6, 16, 5), (2, 3, 4), (4, 64, 2)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_tile_of_a_product(rows, columns, k, dtype):
    tile = find_intrinsic(f"product_{rows}x{columns}_{dtype}")
    assert tile is product_tile(rows, columns, dtype)
    same_results(tile.description, tile.implementation, k=k)


def test_names():
    with pytest.raises(ScheduleError, match="there is no intrinsic tile; there are"):
        find_intrinsic("tile")
    with pytest.raises(ScheduleError, match="there is no intrinsic product_0x4_float32"):
        find_intrinsic("product_0x4_float32")


SCALE = """
@program
def scale(Y: Buffer[(4,), "float32"], X: Buffer[(4,), "float32"]):
    for i in {kind}(4):
        with block("Y"):
            v = axis.remap("S", [i])
            Y[v] = X[v] * 2.0
"""


def test_an_intrinsic_of_ones_own(monkeypatch):
    own = TensorIntrin("scale", read(SCALE.format(kind="serial")), read(SCALE.format(kind="vectorized")))
    monkeypatch.setattr(tensor_intrin, "_registered", {})
    register_intrinsic(own)
    assert find_intrinsic("scale") is own
    x, y = Buffer("x", (Const(3), Const(8))), Buffer("y", (Const(8),))
    call = Invoke(
        "scale",
        (BufferRegion(y, (Range(Const(4), Const(4)),)), BufferRegion(x, (Range(Const(2)), Range(Const(0), Const(4))))),
    )
    assert outputs_of(call) == {0}
    (store,) = [s for s in statements(implementation(call)) if isinstance(s, Store)]
    assert store.buffer == y
    assert len(store.indices) == 1
    with pytest.raises(ScheduleError, match="takes 2 arguments, and is given 1"):
        implementation(Invoke("scale", call.args[:1]))
    with pytest.raises(ScheduleError, match="is of another kind"):
        implementation(Invoke("scale", (call.args[0], Const(1))))
    whole = BufferRegion(x, (Range(Const(0), Const(3)), Range(Const(0), Const(4))))
    with pytest.raises(ScheduleError, match="the region of x has more than 1 sides"):
        implementation(Invoke("scale", (call.args[0], whole)))


def test_an_implementation_has_the_parameters_of_its_description():
    description = read(SCALE.format(kind="serial"))
    other = Nest("other", description.params[:1], description.body)
    with pytest.raises(ScheduleError, match="its implementation has other parameters"):
        TensorIntrin("scale", description, other)


def test_what_is_invoked_writes():
    nest = read("""
@program
def product(a: Buffer[(4, 5), "float32"], b: Buffer[(5, 7), "float32"], c: Buffer[(4, 7), "float32"]):
    invoke("gemm_nn_float32", c[:, :], a[:, :], b[:, :], 4, 7, 5)
""")
    assert nest.outputs == ()
    assert buffers_written(nest) == {nest.buffers[2]}
