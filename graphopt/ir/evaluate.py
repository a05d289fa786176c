"""Evaluation of an op on constants, and of a graph on arrays, by ONNX's own reference implementation.

Nothing is computed that could be larger than a limit, and no value is made up where ONNX leaves it
open: integer division by zero, shifts by too much, numbers that do not fit the integers they are
cast to. A constant that is one element repeated stays that wherever the op allows it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from graphopt.errors import GraphoptError
from graphopt.ir import control_flow_eval, ops
from graphopt.ir.bounds import fact_of
from graphopt.ir.constants import BITS, Array, Constant, aligned
from graphopt.ir.contrib_semantics import MEANINGS
from graphopt.ir.corrections import CORRECTIONS
from graphopt.ir.custom_ops import Filling, added
from graphopt.ir.facts import Fact
from graphopt.ir.functions import calls
from graphopt.ir.graph import CONSTANT, Attr, Attrs, Graph
from graphopt.ir.infer import infer_node
from graphopt.ir.infer_elements import RANGES
from graphopt.ir.tolerance import is_inexact
from graphopt.ir.types import TensorType, Type
from graphopt.ir.work import OPERATIONS, effort

if TYPE_CHECKING:
    import onnx

LIMIT = 1 << 30
"""The most bytes that the outputs of one op may take, unless the caller says otherwise."""


WRITTEN_OUT = 64 << 20
"""The most bytes that one element repeated, which a file has once, may be written out to."""


class EvaluationError(GraphoptError):
    """An op that cannot be computed ahead of time: it is unknown, has no defined value, or its value is too large."""


def evaluate(
    op: str,
    attrs: Attrs,
    inputs: Sequence[Constant | None],
    n_outputs: int,
    opset: int,
    limit: int = LIMIT,
    operations: int = OPERATIONS,
) -> tuple[Constant, ...]:
    """The outputs of an op applied to constants. EvaluationError where they cannot be had within ``limit`` bytes and so
    many operations."""
    if op == CONSTANT and isinstance(value := attrs.get("value"), Constant):
        return (value,)
    if not ops.is_pure(op, attrs) or any(isinstance(a, Graph) for a in attrs.values()):
        raise EvaluationError(f"{op} is not computed ahead of time")
    try:
        facts = infer_node(op, attrs, [None if c is None else fact_of(c) for c in inputs], n_outputs, opset)
    except GraphoptError as error:
        raise EvaluationError(str(error)) from error
    if all(f.constant is not None for f in facts):
        return tuple(f.constant for f in facts if f.constant is not None)
    repeated = _repeated(op, attrs, inputs, facts)
    if repeated is not None:
        return repeated
    _check_size(op, inputs, facts, limit)
    if (number := effort(op, attrs, [None if c is None else fact_of(c) for c in inputs], facts)) > operations:
        raise EvaluationError(f"{op} takes too long ahead of time ({number} operations)")
    arrays = [None if c is None else c.array for c in inputs]
    _check_defined(op, attrs, inputs, arrays)
    return tuple(
        _as_constant(op, array, fact) for array, fact in zip(compute(op, attrs, arrays, n_outputs), facts, strict=True)
    )


def _as_constant(op: str, array: object, fact: Fact) -> Constant:
    """The array as a constant, if it is what inference said."""
    if not isinstance(array, (np.ndarray, np.generic)):
        raise EvaluationError(f"{op} does not give a tensor")
    array = np.asarray(array)
    dtype = fact.dtype or ("string" if array.dtype.kind in "OUS" else array.dtype.name)
    actual = "string" if array.dtype.kind in "OUS" else array.dtype.name
    if actual != dtype:
        raise EvaluationError(f"the reference implementation of {op} gives {actual} and not {dtype}")
    if fact.shape is not None and (
        len(fact.shape) != array.ndim
        or any(isinstance(n, int) and n != m for n, m in zip(fact.shape, array.shape, strict=True))
    ):
        raise EvaluationError(f"the reference implementation of {op} gives the shape {list(array.shape)}")
    return Constant.of(aligned(array), dtype)


# -- what is not computed


def _check_size(op: str, inputs: Sequence[Constant | None], facts: Sequence[Fact], limit: int) -> None:
    """Refuse what may be too large: by inferred size, or by a multiple of the inputs' where that is unknown.

    One element repeated is written out when it is computed with.
    """
    total = sum(c.size * BITS[c.dtype] // 8 for c in inputs if c is not None and c.splat is not None)
    if total > WRITTEN_OUT:
        raise EvaluationError(f"{op} would write one element out to {total} bytes")
    for fact in facts:
        size = fact.size
        if isinstance(size, int) and fact.dtype is not None:
            total += size * BITS.get(fact.dtype, 64) // 8
        else:
            total += 16 * sum(c.size * 8 for c in inputs if c is not None)
    if total > limit:
        raise EvaluationError(f"{op} takes or gives {total} bytes, over the limit of {limit}")


def _check_defined(op: str, attrs: Attrs, inputs: Sequence[Constant | None], arrays: Sequence[Array | None]) -> None:
    """Refuse elements for which ONNX defines no result."""
    first, second = (*inputs, None, None)[:2]
    if first is None:
        return
    a, b = arrays[0], arrays[1] if len(arrays) > 1 else None
    if op == "ReduceMean" and first.size == 0 and a is not None and _reduced(attrs, a, b).size:
        raise EvaluationError("the mean of nothing has no value")
    if op in ("Div", "Mod") and first.dtype in RANGES and b is not None:
        least = RANGES[first.dtype][0]
        if np.any(b == 0) or (least < 0 and np.any(b == -1) and np.any(a == least)):
            raise EvaluationError(f"{op} by zero, or of the least integer by -1, has no value")
    if op == "BitShift" and second is not None and b is not None and np.any(b >= BITS[second.dtype]):
        raise EvaluationError("a shift by as many bits as there are has no value")
    if op in ("Cast", "CastLike") and a is not None and first.dtype not in RANGES and first.dtype != "string":
        target = _cast_target(attrs) if second is None else second.dtype
        if target in RANGES and target != "bool":
            low, high = RANGES[target]
            values = a.astype(np.float64)
            if not ((values > low - 1) & (values < high + 1)).all():
                raise EvaluationError(f"a number that does not fit {target} has no value there")
    bias = arrays[2] if len(arrays) > 2 and op in ("Conv", "com.microsoft::FusedConv") else None
    if bias is not None and b is not None and bias.shape != b.shape[:1]:
        raise EvaluationError("a bias that has not one number for each filter has no value")
    if op == "BatchNormalization" and a is not None and a.ndim > 1:
        channels = a.shape[1:2]
        if any(p is not None and p.shape != channels for p in arrays[1:]):
            raise EvaluationError("a batch normalization with other than one number for each channel has no value")
    if op == "Einsum" and _has_unequal_letters(attrs, arrays):
        raise EvaluationError("one letter of an Einsum that stands for sizes that differ has no value")
    if op == "Pow" and first.dtype in RANGES and b is not None and np.any(b < 0):
        raise EvaluationError("a negative power of an integer has no value")


def _reduced(attrs: Attrs, array: Array, axes: Array | None) -> Array:
    """The sums of an array over the axes of a reduction."""
    over: Any = attrs.get("axes") if axes is None else axes.reshape(-1).tolist()
    if over and len({axis % array.ndim for axis in over}) < len(over):
        raise EvaluationError("a reduction over one axis twice has no value")
    return np.asarray(array.sum(tuple(over) if over else None))


def _has_unequal_letters(attrs: Attrs, arrays: Sequence[Array | None]) -> bool:
    """Whether a letter stands for two sizes; numpy lets axes of size 1 be repeated."""
    sizes: dict[str, int] = {}
    terms = str(attrs.get("equation", "")).replace(" ", "").partition("->")[0].split(",")
    for term, array in zip(terms, arrays, strict=False):
        head, dots, tail = term.partition("...")
        shape = () if array is None else array.shape
        named = [
            *zip(head, shape, strict=False),
            *(zip(tail, shape[-len(tail) :], strict=False) if dots and tail else ()),
        ]
        if any(sizes.setdefault(letter, size) != size for letter, size in named):
            return True
    return False


def _cast_target(attrs: Attrs) -> str:
    from graphopt.ir.dtypes import dtype_of

    to = attrs.get("to")
    return (dtype_of(to) if isinstance(to, int) else None) or ""


# -- one element repeated

_MOVING = frozenset(
    {"DepthToSpace", "Expand", "Flatten", "Identity", "Reshape", "ReverseSequence", "Slice", "SpaceToDepth", "Split"}
) | {"Squeeze", "Tile", "Transpose", "Unsqueeze"}  # fmt: skip
"""Ops whose outputs consist of elements of their first input."""


def _repeated(
    op: str, attrs: Attrs, inputs: Sequence[Constant | None], facts: Sequence[Fact]
) -> tuple[Constant, ...] | None:
    """The outputs where they are one element repeated because the inputs are; None where that cannot be seen."""
    shapes = [f.shape for f in facts]
    if any(s is None or not all(isinstance(n, int) for n in s) for s in shapes):
        return None
    element = _repeated_element(op, attrs, inputs)
    if element is None:
        return None
    return tuple(Constant.full(tuple(n for n in s or () if isinstance(n, int)), element) for s in shapes)


def _repeated_element(op: str, attrs: Attrs, inputs: Sequence[Constant | None]) -> Array | None:
    if op == "ConstantOfShape":
        value = attrs.get("value")
        return value.array.reshape(()) if isinstance(value, Constant) else np.zeros((), np.float32)
    given = [c for c in inputs if c is not None]
    if not any(c.splat is not None for c in given):
        return None
    if op in _MOVING:
        return given[0].splat if inputs[0] is not None else None
    if op == "Concat" and all(c.splat is not None and c.splat.tobytes() == given[0].splat.tobytes() for c in given):  # type: ignore[union-attr]
        return given[0].splat
    if op not in ops.KINDS["elementwise"] or not all(c.splat is not None or c.size == 1 for c in given):
        return None
    elements = [None if c is None else _element(c) for c in inputs]
    _check_defined(op, attrs, [None if e is None else Constant.of(e) for e in elements], elements)
    return np.asarray(compute(op, attrs, elements, 1)[0]).reshape(())


def _element(constant: Constant) -> Array:
    return np.asarray(constant.splat if constant.splat is not None else constant.array.reshape(()))


# -- the reference implementation

_MEANINGS = {**MEANINGS, **CORRECTIONS}
"""Ops that are not left to it."""


_IN_NUMPY: dict[str, Callable[..., Any]] = {
    "Abs": lambda attrs, x: np.abs(x),
    "Add": lambda attrs, x, y: x + y,
    "Div": lambda attrs, x, y: x / y,
    "Exp": lambda attrs, x: np.exp(x),
    "Gemm": lambda attrs, a, b, c=None: _gemm(attrs, a, b, c),
    "Identity": lambda attrs, x: x,
    "Log": lambda attrs, x: np.log(x),
    "MatMul": lambda attrs, a, b: np.dot(a, b) if max(a.ndim, b.ndim) <= 2 else a @ b,
    "Mul": lambda attrs, x, y: x * y,
    "Neg": lambda attrs, x: -x,
    "Relu": lambda attrs, x: np.maximum(x, 0),
    "Sqrt": lambda attrs, x: np.sqrt(x),
    "Sub": lambda attrs, x, y: x - y,
    "Transpose": lambda attrs, x: np.transpose(x, attrs.get("perm")),
}
"""What float32 and float64 numbers need most often, as the reference implementation has it, and to the last bit: that
takes longer to import than small models to optimize."""


def _gemm(attrs: Attrs, a: Array, b: Array, c: Array | None) -> Array:
    given: list[Any] = [ops.attribute("Gemm", attrs, name) for name in ("alpha", "beta", "transA", "transB")]
    alpha, beta, turn_a, turn_b = given
    product: Array = np.dot(a.T if turn_a else a, b.T if turn_b else b) * alpha
    return product if c is None or beta == 0 else product + c * beta


def _in_numpy(op: str, arrays: Sequence[Any]) -> Callable[..., Any] | None:
    """How numpy computes an op on arrays; None where the reference implementation is asked."""
    kinds = {a.dtype if isinstance(a, np.ndarray | np.generic) else None for a in arrays if a is not None}
    return _IN_NUMPY.get(op) if len(kinds) == 1 and kinds <= _PLAIN_FLOATS else None


_PLAIN_FLOATS = {np.dtype(np.float32), np.dtype(np.float64)}


def compute(op: str, attrs: Attrs, arrays: Sequence[Any], n_outputs: int) -> tuple[Any, ...]:
    """The outputs of an op without bodies on arrays (lists of them for sequences), of any size and whatever they hold.

    EvaluationError where the op is unknown, or does not take them.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            meaning, user = _MEANINGS.get(op), added(op)
            if user is not None and user.function is not None:
                outputs = _filled(op, user.function, attrs, arrays, n_outputs)
            elif meaning is not None:
                outputs = meaning(_apply if op in CORRECTIONS else _correctly, attrs, arrays)[:n_outputs]
            elif (plain := _in_numpy(op, arrays)) is not None:
                outputs = (np.asarray(plain(attrs, *arrays), arrays[0].dtype),)
            else:
                outputs = _reference(op, attrs, arrays, n_outputs)
        except Exception as error:  # whatever the Python of an op raises on these inputs
            raise EvaluationError(f"{op} cannot be computed: {str(error) or type(error).__name__}") from error
    if len(outputs) < n_outputs:
        raise EvaluationError(f"the reference implementation of {op} gives {len(outputs)} of {n_outputs} outputs")
    return outputs


def _filled(
    op: str, function: Filling, attrs: Attrs, arrays: Sequence[Array | None], n_outputs: int
) -> tuple[Array, ...]:
    """What a user's function leaves in arrays of the types that are told of it."""
    facts = infer_node(
        op, attrs, [None if a is None else fact_of(Constant.of(a)) for a in arrays], n_outputs, ops.LATEST
    )
    outputs = []
    for fact in facts:
        shape = [n for n in fact.shape or () if isinstance(n, int)]
        if fact.dtype is None or fact.shape is None or len(shape) < len(fact.shape):
            raise EvaluationError(f"nothing tells how large what {op} gives is: register it with outputs=")
        outputs.append(np.zeros(shape, getattr(ml_dtypes, fact.dtype, fact.dtype)))
    function(*arrays, *outputs, **attrs)
    return tuple(outputs)


def _apply(op: str, inputs: Sequence[Array | None], n_outputs: int = 1, **attrs: Attr) -> tuple[Array, ...]:
    return _reference(op, Attrs(attrs), inputs, n_outputs)


def _correctly(op: str, inputs: Sequence[Array | None], n_outputs: int = 1, **attrs: Attr) -> tuple[Array, ...]:
    """An op that another is made of, which is corrected as it is by itself."""
    if op not in CORRECTIONS:
        return _apply(op, inputs, n_outputs, **attrs)
    return CORRECTIONS[op](_apply, Attrs(attrs), inputs)[:n_outputs]


def _reference(op: str, attrs: Attrs, arrays: Sequence[Array | None], n_outputs: int) -> tuple[Any, ...]:
    from onnx import helper
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import RuntimeContextError

    domain, name, version = ops.split(op)
    inputs = [f"i{i}" if a is not None else "" for i, a in enumerate(arrays)]
    node = helper.make_node(name, inputs, [f"o{i}" for i in range(n_outputs)], domain=domain)
    node.attribute.extend(_attribute(op, key, value) for key, value in attrs.items())
    feeds = {f"i{i}": a for i, a in enumerate(arrays) if a is not None}
    try:
        if version is None:
            return tuple(ReferenceEvaluator(node).run(None, feeds))
    except RuntimeContextError:  # an op that is defined by a function which depends on the types of its inputs
        pass
    values = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(n) for n in node.output]
    graph = helper.make_graph([node], "op", values, outputs)
    opsets = {"": ops.LATEST, domain: version or (1 if domain else ops.LATEST)}
    return tuple(ReferenceEvaluator(graph, opsets=opsets).run(None, feeds))


def _attribute(op: str, name: str, value: Attr) -> onnx.AttributeProto:
    from onnx import helper, numpy_helper

    if isinstance(value, Constant):
        return helper.make_attribute(name, numpy_helper.from_array(value.array))
    kind = ops.attribute_kind(op, name)
    return helper.make_attribute(name, value, attr_type=kind)


# -- whole graphs


def run(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of a graph on arrays, by name, op by op in ONNX's reference implementation."""
    return runner(graph)(inputs)


def runner(graph: Graph) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """A function that computes the outputs of a graph on arrays, both by name: ``run``, prepared once.

    EvaluationError where the reference implementation does not take the graph.
    """
    from onnx.reference import ReferenceEvaluator

    from graphopt.ir.onnx_io import to_proto

    mute = [n.id for n in graph.nodes() if not n.n_outputs]  # the reference evaluator takes no node without outputs
    if mute:
        graph = graph.copy()
        for id in mute:
            graph.remove(id)
    proto = to_proto(graph)
    imported = {entry.domain for entry in proto.opset_import}
    for domain in sorted({ops.split(op)[0] for op in MEANINGS} - imported):
        proto.opset_import.add(domain=domain, version=1)
    called = {n.op for each in (graph, *(f.body for f in graph.functions.values())) for n in calls(each)}
    users = {op for op in called if (user := added(op)) is not None and user.function is not None}
    known = [*_contrib_ops(), *control_flow_eval.classes(), *map(_op_run, sorted(users))]

    class Evaluator(ReferenceEvaluator):
        """Each function gets an evaluator of this class, which onnx does not tell of ops that it does not know."""

        def __init__(self, proto: Any, **settings: Any) -> None:
            super().__init__(proto, **{**settings, "new_ops": known})

    try:
        evaluator = Evaluator(proto)
    except Exception as error:  # whatever its constructor raises of ops and attributes that it does not take
        raise EvaluationError(f"the reference implementation does not take the graph: {_first_line(error)}") from error

    declared = [None if v is None else graph.types.get(v) for v in graph.outputs]

    def compute(inputs: Mapping[str, Any]) -> dict[str, Any]:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            made = map(_as_declared, evaluator.run(None, dict(inputs)), declared)
            return dict(zip(graph.output_names, made, strict=True))

    return compute


def _as_declared(value: Any, declared: Type | None) -> Any:
    """Floats in the type that the graph declares: numpy's own rules widen them on the way in some ops (Adam)."""
    if not isinstance(declared, TensorType) or not isinstance(value, np.ndarray | np.generic):
        return value
    from graphopt.ir.text.elements import numpy_dtype  # with the text of graphs

    is_other = is_inexact(np.asarray(value)) and "float" in declared.dtype and value.dtype.name != declared.dtype
    return value.astype(numpy_dtype(declared.dtype)) if is_other else value


def _first_line(error: Exception) -> str:
    """What an error says, without the lists that follow."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


@cache
def _contrib_ops() -> tuple[type, ...]:
    """ONNX Runtime's own ops as the reference evaluator wants to have them."""
    return tuple(_op_run(op) for op in _MEANINGS)


def _op_run(op: str) -> type:
    """An op that ``compute`` knows, as the reference evaluator wants to have it."""
    from onnx.reference.op_run import OpRun

    def run(self: Any, *arrays: Array | None, **given: Any) -> tuple[Array, ...]:
        named: dict[str, Any] = {a.name: getattr(self, a.name) for a in self.onnx_node.attribute}
        attrs = Attrs({n: _plain(v) for n, v in named.items()})
        n_outputs = len(self.onnx_node.output)
        if op in _MEANINGS:
            return _MEANINGS[op](_apply if op in CORRECTIONS else _correctly, attrs, arrays)[:n_outputs]
        return compute(op, attrs, arrays, n_outputs)

    domain, name, _ = ops.split(op)
    return type(name, (OpRun,), {"op_domain": domain, "_run": run})


def _plain(value: Any) -> Any:
    """An attribute as graphs hold it: onnx's numpy numbers would draw what they meet down to their own precision."""
    if isinstance(value, list):
        return tuple(map(_plain, value))
    if isinstance(value, np.ndarray):
        return Constant.of(value)
    return value.item() if isinstance(value, np.generic) else value
