"""Which of ONNX's ops ONNX Runtime has no kernel for from an opset on: ``python -m tests.bench.kernels``.

For each op and opset models of that op alone, on several types, are given to the runtime. What it prints is the table
``lacking_since`` of ``graphopt/targets/portable.toml``.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import TensorProto, defs, helper

from graphopt.target import ORT

OPSETS = range(21, 28)
"""The opsets that are asked about: those of which the runtime says that it knows them."""
DTYPES = ("float", "int64", "bool", "uint32", "uint8")
GIVEN = {"Resize": 3}
"""How many inputs an op is given, where the fewest that its schema wants do not do."""
COMMON = ("tensor(float)", "tensor(uint8)", "tensor(int64)")
"""Types of inputs that do not take the dtype asked about."""
TYPES = frozenset(TensorProto.DataType.keys())
VALUES = {"INT": 1, "INTS": [1, 1], "FLOAT": 1.0, "FLOATS": [1.0], "STRING": "linear"}
"""Attributes that an op wants: which numbers they are does not decide whether there is a kernel."""


def model(op: str, opset: int, dtype: str) -> bytes | None:
    """A model of one op on tensors of a dtype, where it takes them; None where no such call can be written."""
    try:
        schema = defs.get_schema(op, opset, "")
    except defs.SchemaError:
        return None
    attrs = {name: VALUES.get(a.type.name) for name, a in schema.attributes.items() if a.required}
    if schema.deprecated or None in attrs.values():
        return None
    if "to" in attrs:
        attrs["to"] = TensorProto.FLOAT
    if "equation" in attrs:
        attrs["equation"] = "ij->ji"
    inputs = []
    for k, formal in enumerate(schema.inputs[: GIVEN.get(op, schema.min_input)]):
        taken = [t for t in (f"tensor({dtype})", *COMMON, *sorted(formal.types)) if t in formal.types]
        kind = taken[0].removeprefix("tensor(").removesuffix(")").upper()
        if kind not in TYPES:
            return None
        inputs.append(helper.make_tensor_value_info(f"i{k}", TensorProto.DataType.Value(kind), None))
    names = [f"o{k}" for k in range(schema.min_output)]
    node = helper.make_node(op, [i.name for i in inputs], names, **attrs)
    graph = helper.make_graph([node], "g", inputs, [helper.make_empty_tensor_value_info(name) for name in names])
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=11).SerializeToString()


def has_kernel(op: str, opset: int, dtype: str) -> bool | None:
    """Whether the runtime runs an op of an opset; None where it does not say."""
    import onnxruntime
    from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    made = model(op, opset, dtype)
    if made is None:
        return None
    try:
        onnxruntime.InferenceSession(made, options, providers=["CPUExecutionProvider"])
    except NoKernel as error:
        return False if "Could not find an implementation" in str(error) else None
    except Exception:  # the call is no valid one, and that was found first
        return None
    return True


def lacking() -> Iterator[tuple[str, int]]:
    """Ops that the runtime has in an opset and no longer in later ones, and the first of these."""
    names = sorted({s.name for s in defs.get_all_schemas() if s.domain == ""})
    for op in names:
        found = {opset: {has_kernel(op, opset, dtype) for dtype in DTYPES} for opset in OPSETS}
        missing = [opset for opset, said in found.items() if False in said and True not in said]
        if missing and missing[-1] == OPSETS[-1]:
            yield op, missing[0]


if __name__ == "__main__":
    found = dict(lacking())
    print(onnx.__version__, found)
    print(f"graphopt/targets/portable.toml {'says the same' if found == ORT.lacking_since else 'differs'}")
