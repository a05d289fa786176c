from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import defs, helper, parser

from graphopt.ir.constants import Constant
from graphopt.ir.facts import NOTHING, Fact
from graphopt.ir.forms import CHANGES, WRITTEN, OpsetCall, is_bound, read, writable, write
from graphopt.ir.graph import NOWHERE, Attr, AttrRef, Attrs, Graph
from graphopt.ir.onnx_io import load, to_proto
from graphopt.ir.types import Size, TensorType, symbol

N = symbol("N")


def forget(graph: Graph) -> Graph:
    """The graph without the records of how the model spelled it."""
    twin = graph.copy()
    for node in list(twin.nodes()):
        twin.update(node.id, origin=replace(node.origin, extra=None))
    return twin


def calls(proto: onnx.ModelProto) -> list[tuple[str, int, dict[str, object]]]:
    """The ops of the nodes, how many inputs they have, and their attributes; not what an allocator might note."""
    return [
        (
            n.op_type,
            len(n.input),
            {a.name: helper.get_attribute_value(a) for a in n.attribute if a.name != "consumed_inputs"},
        )
        for n in proto.graph.node
    ]


OLD = {
    # the opset, and calls of x: float[2, 1, 4] that are written differently in the newest one
    5: [
        "Add<broadcast = 1>(x, v)",
        "Sub(x, x)",
        "Relu<consumed_inputs = [0]>(x)",
        'Cast<to = "FLOAT16">(x)',
        "Dropout<is_test = 1, ratio = 0.25>(x)",
        "Clip<max = 1.0, min = 0.0>(x)",
        "Concat<axis = 1>(x, x)",
        "Gemm<broadcast = 1, transB = 1>(m, m, v)",
        "GlobalLpPool<p = 3>(x)",
        "PRelu(x, s)",
        "Sum(x, x)",
    ],
    1: ["GlobalLpPool<p = 3.0>(x)", "LpPool<kernel_shape = [2], p = 1.0>(x)", "Reshape<shape = [8]>(x)"],
    8: [
        "Squeeze<axes = [1]>(x)",
        "Unsqueeze<axes = [1, 3]>(x)",
        "ReduceMax<axes = [0, 2], keepdims = 0>(x)",
        "ReduceSum(x)",
        "ReduceLogSumExp<axes = [1]>(x)",
        "Slice<axes = [2], ends = [3], starts = [1]>(x)",
        "Slice<ends = [1], starts = [0]>(x)",
        'Pad<mode = "reflect", pads = [0, 0, 1, 0, 0, 1]>(x)',
        "Pad<pads = [0, 0, 1, 0, 0, 1], value = 2.5>(x)",
        "Clip<min = 0.0>(x)",
        "Clip(x)",
        "TopK<axis = 2, k = 3>(x)",
        "Split<axis = 2, split = [1, 3]>(x)",
        'Upsample<mode = "linear", scales = [1.0, 1.0, 2.0]>(x)',
        "Softmax<axis = 2>(x)",
        "LogSoftmax<axis = 2>(x)",
        "Dropout<ratio = 0.25>(x)",
    ],
    10: [
        'Resize<mode = "nearest">(x, up)',
        'Resize<mode = "linear">(x, down)',
        "TopK<axis = 2>(x, k)",
        "Scatter<axis = 1>(x, i, x)",
        "Slice(x, k, k)",
        "QuantizeLinear(x, s, z)",
    ],
    11: [
        "Resize(x, none, up)",
        'Resize<coordinate_transformation_mode = "asymmetric">(x, none, none, sizes)',
        "Softmax<axis = -1>(x)",
        "Clip(x, zero)",
        "Clip(x, , zero)",
        "Split<axis = 2, split = [2, 2]>(x)",
        "DepthToSpace<blocksize = 1>(q)",
    ],
    16: ["ReduceMean<axes = [-1]>(x)", "ReduceL2(x)", 'GridSample<mode = "bicubic">(q, g)'],
    17: ["DFT<axis = 1>(d)", "Split<axis = 2>(x, sizes2)"],
}

HEAD = (
    "agraph (float[2, 1, 4] x, float[1] v, float[2] r, float[2, 2] m, float[1, 1, 2, 2] q, float[1, 2, 2, 2] g, "
    "int64[2, 1, 4] i, float[1, 4, 2] d) => (y) <float[1] s = {0.5}, float[3] up = {1, 1, 2}, "
    "float[3] down = {1, 1, 0.5}, int64[1] k = {1}, uint8[1] z = {0}, int64[3] sizes = {2, 1, 8}, "
    "int64[2] sizes2 = {1, 3}, float zero = {0}>"
)


def model(call: str, opset: int) -> onnx.ModelProto:
    outputs = "y, z0" if "Split" in call or "TopK" in call else "y"
    proto = parser.parse_model(f'<ir_version: 4, opset_import: ["" : {opset}]> {HEAD} {{ {outputs} = {call} }}')
    proto.graph.initializer.append(helper.make_tensor("none", onnx.TensorProto.FLOAT, [0], []))
    return proto


CASES = [pytest.param(call, opset, id=f"{call}-{opset}") for opset, calls in OLD.items() for call in calls]


@pytest.mark.parametrize(("call", "opset"), CASES)
def test_reading_and_writing_undo_each_other(call: str, opset: int) -> None:
    proto = model(call, opset)
    graph = load(proto)
    assert not any("@" in n.op for n in graph.nodes())
    assert calls(to_proto(forget(graph))) == calls(proto)


@pytest.mark.parametrize(("call", "opset"), CASES)
def test_what_is_read_is_valid_in_the_newest_opset(call: str, opset: int) -> None:
    graph = forget(load(model(call, opset)))
    graph.origin = NOWHERE
    graph.header = replace(graph.header, ir_version=10, opsets=(("", 21),))
    onnx.checker.check_model(to_proto(graph), full_check=False)


@pytest.mark.parametrize(
    ("call", "opset", "op"),
    [
        ("Softmax<axis = 1>(x)", 12, "Softmax"),  # [2, 1, 4]: flattening at 1 keeps more than one axis
        ("Softmax(x)", 8, "Softmax"),
        ("Add<axis = 0, broadcast = 1>(x, r)", 6, "Add"),
        ("Dropout(x)", 6, "Dropout"),
        ("BatchNormalization<spatial = 0>(x, v, v, v, v)", 8, "BatchNormalization"),
        ("PRelu(x, d)", 6, "PRelu"),
        ('Resize<mode = "nearest">(x, down)', 10, "Resize"),
        ("Tile(x, k, k)", 5, "Tile"),
        ("Pad<paddings = [0, 0, 1, 0, 0, 1]>(x)", 1, "Pad"),
        ('Upsample<height_scale = 2.0, width_scale = 2.0>(q)', 1, "Upsample"),
        ("GroupNormalization<num_groups = 1>(q, v, v)", 18, "GroupNormalization"),
    ],
)  # fmt: skip
def test_what_has_no_newest_form_keeps_its_own(call: str, opset: int, op: str) -> None:
    proto = model(call, opset)
    graph = load(proto)
    (found,) = [n for n in graph.nodes() if n.op not in ("Input", "Constant")]
    assert found.op == f"{op}@{defs.get_schema(op, opset).since_version}"
    assert is_bound(found.op)
    assert calls(to_proto(forget(graph))) == calls(proto)
    assert writable(found.op, found.attrs, [NOTHING], 24) is not None


def test_only_the_caller_knows_what_a_reference_says() -> None:
    call = OpsetCall("Squeeze", (0,), Attrs(axes=AttrRef("axes", 7)), 1)
    assert read(call, 11, len, lambda _: NOTHING) == replace(call, op="Squeeze@11")  # type: ignore[arg-type]


def test_ops_of_other_domains_are_left_alone() -> None:
    call = OpsetCall("com.microsoft::Squeeze", (0,), Attrs(axes=(1,)), 1)
    assert read(call, 11, len, lambda _: NOTHING) is call  # type: ignore[arg-type]
    assert write(call, 11, len, lambda _: NOTHING) is call  # type: ignore[arg-type]


# -- what cannot be written


def tensor(*shape: Size, dtype: str = "float32") -> Fact:
    return Fact(TensorType(dtype, shape))


def known(*elements: Any, dtype: Any = np.int64) -> Fact:
    constant = Constant.of(np.array(elements, dtype))
    return Fact(TensorType(constant.dtype, constant.shape), True, constant)


X = tensor(N, 4)


@pytest.mark.parametrize(
    ("op", "attrs", "inputs", "opset", "reason"),
    [
        ("Squeeze", {}, [X, known(1)], 11, None),
        ("Squeeze", {}, [X, tensor(1, dtype="int64")], 13, None),
        ("Squeeze", {}, [X, tensor(1, dtype="int64")], 12, "axes of Squeeze must be constant before opset 13"),
        ("Squeeze", {}, [X, known(-1)], 10, None),
        ("Squeeze", {}, [NOTHING, known(-1)], 10, "no negative axes in opset 10, and the rank is not known"),
        ("ReduceMean", {}, [X, known(1)], 17, None),
        ("ReduceMean", {"noop_with_empty_axes": 1}, [X], 17, "reduces all axes where none is given"),
        ("ReduceMean", {"noop_with_empty_axes": 1}, [X, known(1)], 17, None),
        ("ReduceSum", {"noop_with_empty_axes": 1}, [X], 13, None),
        ("Clip", {}, [X, known(0.1, dtype=np.float32)], 6, None),
        ("Clip", {}, [X, known(0.1, dtype=np.float64)], 6, "single precision"),
        ("Clip", {}, [X, tensor()], 10, "min of Clip must be constant before opset 11"),
        ("Softmax", {"axis": 1}, [X], 12, None),
        ("Softmax", {"axis": -1}, [NOTHING], 11, None),
        ("Softmax", {"axis": -1}, [NOTHING], 10, "rank is not known"),
        ("Softmax", {"axis": 0}, [X], 12, "axis that is not the last one needs opset 13"),
        ("Softmax", {"axis": 1}, [tensor(N, 4, 1, 1)], 12, None),
        ("Split", {"num_outputs": 2}, [tensor(4)], 17, None),
        ("Split", {"num_outputs": 3}, [tensor(4)], 17, None),
        ("Split", {"num_outputs": 2}, [tensor(2 * N)], 17, None),
        ("Split", {"num_outputs": 2}, [tensor(N)], 17, "may be uneven needs opset 18"),
        ("Slice", {}, [X, known(0), known(1), known(0), known(1)], 9, None),
        ("Slice", {}, [X, known(0), known(1), known(0), known(2)], 9, "no steps before opset 10"),
        ("Dropout", {}, [X, known(0.5, dtype=np.float32), known(False, dtype=bool)], 10, None),
        ("Dropout", {}, [X, known(0.5, dtype=np.float32), known(True, dtype=bool)], 10, "no training_mode"),
        ("BatchNormalization", {"training_mode": 0}, [tensor(N, 4, 2)] + [tensor(4)] * 4, 9, None),
        ("BatchNormalization", {"training_mode": 1}, [tensor(N, 4, 2)] + [tensor(4)] * 4, 9, "training_mode"),
        ("Gemm", {}, [X, tensor(4, 4)], 10, "Gemm needs its input C in opset 10"),
        ("Gemm", {}, [X, tensor(4, 4), tensor(4)], 6, None),
        ("Add", {}, [X, X], 6, None),
        ("Add", {}, [X, tensor(4)], 6, None),
        ("Add", {}, [tensor(4), X], 6, "broadcasts only its second operand"),
        ("Add", {}, [NOTHING, X], 6, "the shapes are not known"),
        ("Max", {}, [X, X], 7, None),
        ("Max", {}, [X, tensor(4)], 7, "Max does not broadcast before opset 8"),
        ("Resize", {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
         [X, None, known(1.0, 2.0, dtype=np.float32)], 9, None),
        ("Resize", {}, [X, None, known(1.0, 2.0, dtype=np.float32)], 10, "can only enlarge, by asymmetric"),
        ("Resize", {}, [X, None, known(1.0, 2.0, dtype=np.float32)], 11, None),
        ("Resize", {"antialias": 1}, [X, None, known(1.0, 2.0, dtype=np.float32)], 13, "no attribute antialias"),
        ("Resize", {"coordinate_transformation_mode": "half_pixel_symmetric"}, [X, None, None, known(1)], 18,
         "from opset 19"),
        ("ScatterElements", {}, [X, X, X], 10, None),
        ("ScatterElements", {"reduction": "add"}, [X, X, X], 10, "no reduction before opset 16"),
        ("ScatterElements", {"reduction": "max"}, [X, X, X], 16, "has reduction max from opset 18 on"),
        ("Concat", {"axis": -1}, [X, X], 9, None),
        ("Concat", {"axis": -1}, [NOTHING, X], 9, "no negative axis"),
        ("GroupNormalization", {"num_groups": 2}, [X, X, X], 20, "means something else before opset 21"),
        ("DequantizeLinear", {}, [X, tensor(4), tensor(4)], 10, "one scale for the whole tensor"),
        ("DequantizeLinear", {}, [X, tensor(), tensor()], 10, None),
        ("MaxPool", {"ceil_mode": 1, "kernel_shape": (2,)}, [X], 8, "no attribute ceil_mode in opset 8"),
        ("Pad", {}, [X, known(0, 0, 1, 1), None, known(1)], 17, "at most 3 inputs in opset 17"),
        ("Gelu", {}, [X], 19, "Gelu is not in opset 19"),
        ("Relu", {}, [X], 6, None),
        ("custom::Op", {}, [X], 1, None),
    ],
)  # fmt: skip
def test_what_an_opset_can_say(
    op: str, attrs: dict[str, Attr], inputs: list[Fact | None], opset: int, reason: str | None
) -> None:
    found = writable(op, Attrs(attrs), inputs, opset)
    if reason is None:
        assert found is None
    else:
        assert found is not None
        assert reason in found
        assert "\n" not in found


# -- the table


def changes_of_schemas() -> Iterator[tuple[str, int, str]]:
    """What onnx changed in the form of its ops, but for what was only added."""
    history: dict[str, dict[int, Any]] = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "":
            history.setdefault(schema.name, {})[schema.since_version] = schema
    for name, versions in sorted(history.items()):
        for old, new in zip(sorted(versions), sorted(versions)[1:], strict=False):
            before, after = versions[old], versions[new]
            if after.deprecated:
                continue
            for attribute, form in before.attributes.items():
                now = after.attributes.get(attribute)
                if attribute != "consumed_inputs" and (
                    now is None or now.type != form.type or now.default_value != form.default_value
                ):
                    yield name, new, attribute
            if len(after.inputs) < len(before.inputs):
                yield name, new, "inputs"


EXPECTED = {
    ("Clip", 6): "min and max are written out by default, and say nothing there",
    ("GRU", 3): "all before opset 7 keep their form",
    ("Split", 2): "all before opset 2 keep their form",
}


def test_every_change_that_onnx_made_has_a_line() -> None:
    missing = [
        (op, opset, what)
        for op, opset, what in changes_of_schemas()
        if not any(change.before >= opset for change in CHANGES.get(op, ())) and (op, opset) not in EXPECTED
    ]
    assert missing == []


def test_lines_name_opsets_in_which_the_op_changed() -> None:
    for op, changes in CHANGES.items():
        versions = {s.since_version for s in defs.get_all_schemas_with_history() if s.name == op and s.domain == ""}
        newest = {s.since_version for s in defs.get_all_schemas_with_history() if s.name == "Resize"}
        for change in changes:
            assert change.before in versions or (op == "Upsample" and change.before in newest), (op, change.before)
    assert set(WRITTEN) == set(CHANGES) | {"ScatterElements"}
