"""Type inference: what is known of every value of a graph without running it.

``infer_node`` looks at one op: the types of its outputs with symbolic sizes, the elements of small
integer tensors (so that shape arithmetic computes itself), bounds, and whether all is constant. Ops
without an inference of their own fall back on onnx's. ``infer`` does a whole graph in order, bodies
of If, Loop and Scan and calls of local functions included.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from itertools import combinations
from math import copysign
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import checker, defs, helper, numpy_helper, shape_inference

from graphopt.errors import SENSELESS, InvalidModelError, words_of
from graphopt.frozen import dataclass
from graphopt.ir import ops
from graphopt.ir.bfloat import BFLOAT
from graphopt.ir.bounds import fact_of, fact_of_type, infer_bounds, of_dtype
from graphopt.ir.call import OpCall
from graphopt.ir.composites import COMPOSITES, body_of
from graphopt.ir.constants import BITS, SMALL, Constant
from graphopt.ir.custom_ops import Added, Outputs, added, is_extended, output_types
from graphopt.ir.dtypes import CODES, dtype_of
from graphopt.ir.facts import NOTHING, Fact
from graphopt.ir.graph import CONSTANT, INPUT, AttrRef, Attrs, Function, Graph, Node, Value
from graphopt.ir.infer_blocked import BLOCKED
from graphopt.ir.infer_bodies import LOOPS, InferBodied, infer_function, infer_if, infer_loop, infer_scan, states_of
from graphopt.ir.infer_elements import KnownElements, infer_elements
from graphopt.ir.infer_indexing import INDEXING
from graphopt.ir.infer_nests import NESTS
from graphopt.ir.infer_products import PRODUCTS
from graphopt.ir.infer_sequences import SEQUENCES
from graphopt.ir.infer_shapes import ELEMENTWISE, Types, spell
from graphopt.ir.infer_views import VIEWS, squeezed
from graphopt.ir.tabular import TABULAR
from graphopt.ir.types import (
    OptionalType,
    Real,
    SequenceType,
    Size,
    TensorType,
    Type,
    Unranked,
    fresh_number,
    fresh_symbol,
    is_anonymous,
    is_open_size,
    symbols,
    unranked,
)
from graphopt.ir.winograd import WINOGRAD

LocalFunctions: TypeAlias = Mapping[tuple[str, str], Function]

INFERENCES = {
    **ELEMENTWISE,
    **PRODUCTS,
    **VIEWS,
    **INDEXING,
    **SEQUENCES,
    **BFLOAT,
    **BLOCKED,
    **WINOGRAD,
    **TABULAR,
    **NESTS,
}
"""How to infer the types of an op's outputs."""

BODIED: dict[str, InferBodied] = {"If": infer_if, "Loop": infer_loop, "Scan": infer_scan}
"""How to infer what an op with bodies gives."""


def infer_node(op: str, attrs: Attrs, inputs: Sequence[Fact | None], n_outputs: int, opset: int) -> tuple[Fact, ...]:
    """What is known of the outputs of an op applied to inputs of which facts are known.

    Raises InvalidModelError where the inputs do not fit together.
    """
    if op == CONSTANT and isinstance(value := attrs.get("value"), Constant):
        return (fact_of(value),)
    if is_extended() or not (all(map(_is_plain, inputs)) and all(type(a) in _PLAIN_ATTRS for a in attrs.values())):
        return _infer_node(op, attrs, inputs, n_outputs, opset)
    signs = tuple([copysign(1.0, bound) for f in inputs if f is not None for bound in (f.low, f.high)])
    # -0.0 equals 0.0, which it is not
    call = (op, INFERENCES.get(op), attrs, tuple(inputs), signs, n_outputs, opset)
    known = _known.get(call)
    if known is None:
        facts = _infer_node(op, attrs, inputs, n_outputs, opset)
        if all(map(_is_plain, facts)):
            if len(_known) == MOST_KNOWN:
                _known.clear()
            _known[call] = facts
        return facts
    # other values than the last time, which equal facts do not make one
    return tuple([Fact(f.type, f.is_const, None, None, f.low, f.high) for f in known])


MOST_KNOWN = 10_000
"""Of so many calls at most it is known what inference said of them."""
_known: dict[tuple[Hashable, ...], tuple[Fact, ...]] = {}
"""What was inferred of calls whose facts are plain: of most models the same few again and again."""
_PLAIN_ATTRS = {int, float, str, bytes, tuple}


def _is_plain(fact: Fact | None) -> bool:
    """Whether a type in which no size is open is all that is known, and bounds: nothing needs a symbol."""
    if fact is None:
        return True
    if fact.constant is not None or fact.elements is not None or fact.reals is not None:
        return False
    if not isinstance(fact.type, TensorType) or isinstance(fact.type.shape, Unranked):
        return False
    return all(type(size) is int for size in fact.type.shape)


def _infer_node(op: str, attrs: Attrs, inputs: Sequence[Fact | None], n_outputs: int, opset: int) -> tuple[Fact, ...]:
    """The same, of a call that was not seen before."""
    if any(isinstance(a, AttrRef) for a in attrs.values()):
        return (NOTHING,) * n_outputs
    call = OpCall(op, attrs, inputs, n_outputs, opset, infer_node)
    function, user = INFERENCES.get(op), added(op)
    if user is not None and user.outputs is not None:
        function = partial(_by_user, user.outputs)
    if op in COMPOSITES:
        function = _by_body
    try:
        if (not inputs or inputs[0] is None) and not ops.may_lack(op, 0):
            raise ValueError("its first input is missing")
        types = list(function(call) if function else _by_onnx(call))[:n_outputs]
        types += [None] * (n_outputs - len(types))
        return _facts(call, user, types, infer_elements(call, types))
    except SENSELESS as error:  # a mistake in the model ends here, whatever Python makes of it
        raise InvalidModelError(complaint(call, words_of(error))) from error


def _facts(
    call: OpCall, user: Added | None, types: Sequence[Type | None], elements: Sequence[KnownElements]
) -> tuple[Fact, ...]:
    """What is known of the outputs, given their types and the elements that are known."""
    op, attrs, inputs = call.op, call.attrs, call.inputs
    is_run = user is not None and user.function is not None  # what a user's function gives is not asked beforehand
    is_computed = ops.is_pure(op, attrs) and op != INPUT and op not in ops.KEPT and not is_run
    is_const = is_computed and all(f is None or f.is_const for f in inputs)
    return tuple(
        _fact(call, port, type, elements[port], is_const and type is not None) for port, type in enumerate(types)
    )


def _fact(call: OpCall, port: int, type: Type | None, known: KnownElements, is_const: bool) -> Fact:
    if not isinstance(type, TensorType):
        return NOTHING if type is None else Fact(type)
    reals = tuple(e for e in known or () if isinstance(e, Real))
    elements = None if known is None or reals else tuple(e for e in known if not isinstance(e, Real))
    if elements is not None and all(isinstance(e, int) for e in elements):
        assert isinstance(type.shape, tuple)
        array = np.array(elements, np.dtype(type.dtype)).reshape(type.shape)  # type: ignore[arg-type]
        return fact_of(Constant.of(array))
    low, high = infer_bounds(call, type.dtype, port)
    return Fact(type, is_const, None, elements, low, high, reals or None)


def _by_user(outputs: Outputs, call: OpCall) -> Types:
    """What the user says of an op of theirs."""
    return output_types(outputs, [None if f is None else f.type for f in call.inputs], dict(call.attrs))


def _by_body(call: OpCall) -> Types:
    """What the body of a composite op gives."""
    body = body_of(call.op, call.attrs, call.inputs)
    if body is None:
        return _by_onnx(call) or [_by_schema(call, port) for port in range(call.n_outputs)]
    given = {value: fact for value, fact in zip(body.inputs, call.inputs, strict=False) if fact is not None}
    facts = infer(body, given)
    return [None if value is None else facts[value].type for value in body.outputs]


def complaint(call: OpCall, reason: str) -> str:
    """What is wrong with a call, with the types of its inputs."""
    operands = [
        "nothing" if f is None else f"{f.dtype or '?'}{spell(call.any_shape(i))}" for i, f in enumerate(call.inputs)
    ]
    return f"{call.op} of {' and '.join(operands)}: {reason}"


# -- onnx's own inference, for ops without one of ours


def _by_onnx(call: OpCall) -> list[Type | None]:
    """What onnx infers; sizes that it does not know are fresh symbols.

    Where sizes are symbolic, onnx is asked a second time with unlikely numbers in their place, since many of its
    inferences compute with 0 where they are not told a number: only what both answers agree on is believed.
    """
    unknown = [_by_schema(call, port) for port in range(call.n_outputs)]
    domain, name, version = ops.split(call.op)
    if any(isinstance(a, _NOT_PLAIN) for a in call.attrs.values()):
        return unknown
    try:
        schema = defs.get_schema(name, version or ops.LATEST, domain)
    except defs.SchemaError:
        return []
    names = [f"i{i}" if fact is not None else "" for i, fact in enumerate(call.inputs)]
    node = onnx.NodeProto(op_type=name, domain=domain, input=names, output=[f"o{i}" for i in range(call.n_outputs)])
    for key, value in call.attrs.items():
        plain = numpy_helper.from_array(value.array) if isinstance(value, Constant) else value
        node.attribute.append(helper.make_attribute(key, plain, attr_type=ops.attribute_kind(call.op, key)))
    facts = {n: f for n, f in zip(names, call.inputs, strict=True) if f is not None}
    numbers: dict[Size, int] = {}
    types = _ask_onnx(schema, node, facts, {}, numbers)
    if numbers:
        checked = _ask_onnx(schema, node, facts, numbers, {})
        if not any(checked):  # it asks sizes to be equal that have two names
            for one, other in combinations(numbers, 2):
                same = {**numbers, other: numbers[one]}
                if any(checked := _ask_onnx(schema, node, facts, same, {})):
                    numbers = same
                    break
        types = [_confirmed(t, c, numbers) for t, c in zip(types, checked, strict=True)]
    return [u if t is None else t for t, u in zip(types, unknown, strict=True)]


_NOT_PLAIN = (Graph, TensorType, SequenceType, OptionalType)


def _ask_onnx(
    schema: Any, node: onnx.NodeProto, facts: dict[str, Fact], given: dict[Size, int], noted: dict[Size, int]
) -> list[Type | None]:
    """onnx's answer, with the numbers given for symbolic sizes; others are noted with a number for each."""
    types = {n: _to_proto(f.type, given, noted) for n, f in facts.items()}
    protos = {n: proto for n, proto in types.items() if proto is not None}
    if len(protos) < len(types):
        return [None] * len(node.output)
    data = {n: t for n, f in facts.items() if (t := _small_tensor(f)) is not None}
    imports = [helper.make_opsetid("", ops.LATEST)]
    if node.domain:
        imports.append(helper.make_opsetid(node.domain, schema.since_version))
    try:
        inferred = shape_inference.infer_node_outputs(schema, node, protos, data, opset_imports=imports)
    except (shape_inference.InferenceError, checker.ValidationError, RuntimeError, ValueError):
        inferred = {}
    sizes = {f"s{number}": size for size, number in noted.items()}
    return [_from_proto(inferred[n], sizes) if n in inferred else None for n in node.output]


def _confirmed(type: Type | None, checked: Type | None, numbers: dict[Size, int]) -> Type | None:
    """The type with those sizes that numbers in place of symbols agree with; all others are fresh symbols."""
    if not isinstance(type, TensorType) or isinstance(type.shape, Unranked):
        return type
    shape = checked.shape if isinstance(checked, TensorType) and isinstance(checked.shape, tuple) else ()
    if len(shape) != len(type.shape):
        return TensorType(type.dtype, tuple(fresh_symbol() for _ in type.shape))
    return TensorType(
        type.dtype,
        tuple(s if numbers.get(s, s) == c else fresh_symbol() for s, c in zip(type.shape, shape, strict=True)),
    )


def _by_schema(call: OpCall, port: int) -> Type | None:
    """A tensor of unknown shape, where the schema settles the dtype."""
    dtype = call.out_dtype(port)
    return TensorType(dtype, unranked()) if dtype in BITS or dtype == "string" else None


def _small_tensor(fact: Fact) -> onnx.TensorProto | None:
    if fact.constant is None or fact.constant.size > SMALL:
        return None
    return numpy_helper.from_array(fact.constant.array)


def _to_proto(type: Type | None, given: dict[Size, int], noted: dict[Size, int]) -> onnx.TypeProto | None:
    """The type as onnx wants it. A symbolic size is the number given for it, or is noted and gets a name."""
    match type:
        case TensorType(dtype, shape):
            if dtype not in CODES:
                return None
            if isinstance(shape, Unranked):
                return helper.make_tensor_type_proto(CODES[dtype], None)
            spelled: list[int | str] = []
            for size in shape:
                if isinstance(size, int) or size in given:
                    spelled.append(given.get(size, size))  # type: ignore[arg-type]
                else:
                    spelled.append(f"s{noted.setdefault(size, FIRST_NUMBER + 12 * len(noted))}")
            return helper.make_tensor_type_proto(CODES[dtype], spelled)
        case SequenceType(element) | OptionalType(element):
            inner = _to_proto(element, given, noted)
            make = (
                helper.make_sequence_type_proto if isinstance(type, SequenceType) else helper.make_optional_type_proto
            )
            return None if inner is None else make(inner)
    return None


FIRST_NUMBER = 100_003
"""Stands for the first symbolic size; others follow in steps of 12."""


def _from_proto(proto: Any, sizes: dict[str, Size]) -> Type | None:
    match proto.WhichOneof("value"):
        case "tensor_type":
            dtype = dtype_of(proto.tensor_type.elem_type)
            if dtype is None:
                return None
            if not proto.tensor_type.HasField("shape"):
                return TensorType(dtype, unranked())
            return TensorType(dtype, tuple(_size_from_proto(d, sizes) for d in proto.tensor_type.shape.dim))
        case "sequence_type":
            element = _from_proto(proto.sequence_type.elem_type, sizes)
            return None if element is None else SequenceType(element)
        case "optional_type":
            element = _from_proto(proto.optional_type.elem_type, sizes)
            return None if element is None else OptionalType(element)
    return None


def _size_from_proto(dim: Any, sizes: dict[str, Size]) -> Size:
    if dim.HasField("dim_value"):
        return int(dim.dim_value)
    return sizes[dim.dim_param] if dim.dim_param in sizes else fresh_symbol()


# -- graphs


def infer(
    graph: Graph,
    facts: Mapping[Value, Fact] | None = None,
    is_model: bool = False,
    known: Mapping[Value, Fact] | None = None,
) -> dict[Value, Fact]:
    """What is known of every value of a graph.

    Types that the model declares complete what inference does not know, but for sizes that go after what an input
    holds: of these a file says what they were in one run. ``facts`` is more knowledge of the graph's inputs, and
    ``known`` what was inferred before, when the graph had fewer nodes. Raises InvalidModelError, naming the node, where
    shapes do not fit together; of a model, as ``is_model`` says, where dtypes do not either: while a graph is
    rewritten, and in forms of our own, they need not. What was inferred of a graph stays with it and its copies: only
    what has changed since, and what follows from that, is inferred anew.
    """
    return _Walk(graph.functions, is_model).graph(graph, facts or {}, known or {})


def infer_with_bodies(graph: Graph, facts: Mapping[Value, Fact]) -> tuple[dict[Value, Fact], BodyWalks]:
    """The same, and what is known within bodies, each as it was walked through last."""
    walk = _Walk(graph.functions)
    return walk.graph(graph, facts, {}), walk.walks


@dataclass(frozen=True, slots=True)
class Inferred:
    """What was inferred of a graph, and from what: its nodes, what is known of its inputs, the types that it declares,
    its functions and opset."""

    version: object
    facts: Mapping[Value, Fact]
    given: Mapping[Value, Fact]
    nodes: Mapping[int, Node]
    types: Mapping[Value, Type]
    functions: LocalFunctions
    opset: int

    def is_of(self, graph: Graph) -> bool:
        """Whether it may hold of the nodes of a graph that are still the same."""
        return (self.opset, self.functions) == (graph.opset, graph.functions) and not is_extended()

    def is_all_of(self, graph: Graph, given: Mapping[Value, Fact]) -> bool:
        """Whether a graph of which it may hold has not changed at all."""
        return self.version is graph.version and self.types == graph.types and self.given == given

    def says(self, node: Node, inputs: Sequence[Fact | None], declared: Mapping[Value, Type]) -> bool:
        """Whether it says what would be inferred of a node: of the same inputs, with the same declared types."""
        if self.nodes.get(node.id) is not node:
            return False
        for value, fact in zip(node.inputs, inputs, strict=True):
            if value is not None and fact is not self.facts[value]:
                return False
        return all(declared.get(v) == self.types.get(v) for v in node.outputs)


NOTHING_INFERRED = Inferred(None, {}, {}, {}, {}, {}, 0)


def infer_in_graph(
    graph: Graph, node: Node, inputs: Sequence[Fact | None], functions: LocalFunctions
) -> Sequence[Fact]:
    """What is known of the outputs of a node of a graph, bodies and calls of local functions included.

    Raises InvalidModelError, naming the node, where the inputs do not fit together.
    """
    return _Walk(functions).node(graph, node, inputs)


def infer_states(node: Node, body: Graph, facts: Mapping[Value, Fact]) -> dict[Value, Fact]:
    """What holds in every round of the states that a Loop or Scan carries along, by the inputs of its body. The types
    that these are declared with hold in the first round."""
    if node.op not in LOOPS:
        return {}
    walk = _Walk(body.functions)
    walk.bodied(node, BODIED[node.op], [None if v is None else facts.get(v) for v in node.inputs])
    known = walk.walks[id(body)][0] if id(body) in walk.walks else {}
    return {v: known[v] for v in body.inputs[states_of(node)] if v in known}


BodyWalks: TypeAlias = "dict[int, tuple[dict[Value, Fact], dict[Value, Fact]]]"
"""Of each body, by identity: what its inputs were known to be, and what followed of all its values."""

_SIZES_ALONE = frozenset({"Shape", "Size"})
"""Ops that ask for the sizes of their input and for none of its elements."""
MOST_ELEMENTS = 1 << 63
"""No tensor has more elements: nobody can count them."""


def label_of(graph: Graph, node: Node) -> str:
    """What a message calls a node: by its name, else by that of what it gives."""
    return node.origin.name or next((graph.names[v] for v in node.outputs if v in graph.names), str(node.id))


class _Walk:
    """A walk through a graph, its bodies and its local functions, which may be nested so that they never end."""

    ROOM = 100_000
    """Nodes within bodies and functions that are looked at; the outputs of what comes after are unknown."""
    DEPTH = 40
    """How deep bodies and functions are looked into."""

    def __init__(self, functions: LocalFunctions, is_model: bool = False) -> None:
        self.functions, self.is_model = functions, is_model
        self.room = self.ROOM
        self.depth = 0
        self.walks: BodyWalks = {}
        self.open: set[str] = set()
        """The symbols of elements and sizes that go after what inputs of the model hold."""

    def graph(
        self, graph: Graph, facts: Mapping[Value, Fact], known: Mapping[Value, Fact] = MappingProxyType({})
    ) -> dict[Value, Fact]:
        last = graph.inferred if isinstance(graph.inferred, Inferred) else NOTHING_INFERRED
        last = last if not self.depth and last.is_of(graph) else NOTHING_INFERRED
        if last.is_all_of(graph, facts) and not known and not self.is_model:
            return dict(last.facts)
        facts_of = dict(known)
        given: set[Value] = set()  # values whose elements go after those of inputs
        given_open: set[str] = set()  # the sizes that inputs leave open, of which nothing but a run says more
        try:
            order = graph.order()
        except ValueError as error:
            raise InvalidModelError(str(error)) from error
        for node in order:
            if Value(node.id) in known:
                continue
            values, declared = node.outputs, {}
            if node.op != CONSTANT:
                declared = {v: graph.types[v] for v in values if v in graph.types}
            inputs = [None if v is None else facts_of[v] for v in node.inputs]
            is_known = node.op != INPUT and last.says(node, inputs, declared)
            if is_known:
                self.check(graph, node, inputs)
                outputs: Sequence[Fact] = [last.facts[value] for value in values]
            else:
                outputs = [facts.get(Value(node.id), NOTHING)] if node.op == INPUT else self.node(graph, node, inputs)
            is_given = Value(node.id) not in facts if node.op == INPUT else not given.isdisjoint(node.inputs)
            if is_given and node.op not in _SIZES_ALONE:
                given.update(values)
            is_open = node.op != INPUT and self.is_open(node, inputs, given)
            if is_open:
                came_in = {s for f in inputs if f is not None for s in _anonymous(f.shape)}
                self.open |= {s for f in outputs for s in _anonymous(f.shape)} - came_in
            has_open_rank = any(map(_has_open_rank, inputs))
            try:
                for value, fact in zip(values, outputs, strict=True):
                    if not is_known:
                        fact = _opened(fact) if has_open_rank else fact
                        stated = declared.get(value)
                        if stated is not None:
                            stated = _unnumbered(stated) if is_open else stated
                            fact = squeezed(fact, stated, inputs[0]) if node.op == "Squeeze" else fact
                            # bodies are declared with the sizes of their first round
                            kept = given_open if node.op != INPUT else _anonymous(fact.shape)
                            fact = _completed(fact, stated, inputs or outputs, kept)
                        fact = _numbered(fact)
                        _check_size(graph, node, fact)
                        old = last.facts.get(value)
                        fact = old if old is not None and old == fact else fact
                    facts_of[value] = fact
                    if node.op == INPUT:
                        given_open |= _anonymous(fact.shape)
                    if value in given:
                        self.open |= _anonymous(fact.elements)
            except SENSELESS as error:
                what = f"its types, {', '.join(f'{f.type}' for f in outputs)}, make no sense"
                raise InvalidModelError(f"node {label_of(graph, node)!r}: {what}: {words_of(error)}") from error
        if not (known or self.depth or is_extended()):
            nodes, types, functions = {node.id: node for node in order}, dict(graph.types), dict(graph.functions)
            graph.inferred = Inferred(graph.version, dict(facts_of), dict(facts), nodes, types, functions, graph.opset)
        if self.is_model:
            _check_outputs(graph, facts_of)
        return facts_of

    def is_open(self, node: Node, inputs: Sequence[Fact | None], given: Set[Value]) -> bool:
        """Whether sizes of what a node gives, unless they are inferred, go after what inputs of the model hold."""
        if any(k < len(inputs) and node.inputs[k] in given for k in ops.sizes_from(node.op)):
            return True
        return bool(self.open) and any(not self.open.isdisjoint(_anonymous(f.shape)) for f in inputs if f is not None)

    def node(self, graph: Graph, node: Node, inputs: Sequence[Fact | None]) -> Sequence[Fact]:
        function = self.functions.get((node.op, node.origin.overload))
        self.check(graph, node, inputs)
        try:
            if node.op in BODIED:
                return self.bodied(node, BODIED[node.op], inputs)
            if function is not None:
                return self.bodied(node, partial(infer_function, function), inputs)
            return infer_node(node.op, node.attrs, inputs, node.n_outputs, graph.opset)
        except InvalidModelError as error:
            raise InvalidModelError(f"node {label_of(graph, node)!r}: {error}") from error

    def check(self, graph: Graph, node: Node, inputs: Sequence[Fact | None]) -> None:
        """Raise InvalidModelError where inputs in a model are of different types that have to be of one."""
        if not self.is_model or node.op in BODIED or (node.op, node.origin.overload) in self.functions:
            return
        mixed = ops.mixture(node.op, tuple([None if f is None else f.dtype for f in inputs]))
        if mixed is not None:
            call = OpCall(node.op, node.attrs, inputs, node.n_outputs, graph.opset, infer_node)
            raise InvalidModelError(f"node {label_of(graph, node)!r}: {complaint(call, mixed)}")

    def bodied(self, node: Node, function: InferBodied, inputs: Sequence[Fact | None]) -> Sequence[Fact]:
        try:
            outputs = function(node, inputs, self.body)
        except SENSELESS as error:
            raise InvalidModelError(f"the inputs or outputs of {node.op} and its bodies do not fit together") from error
        if len(outputs) != node.n_outputs:
            raise InvalidModelError(f"{node.op} has {node.n_outputs} outputs, its bodies give {len(outputs)}")
        return outputs

    def body(self, body: Graph, given: Sequence[Fact | None]) -> list[Fact]:
        """What is known of the outputs of a body, from its inputs."""
        self.room -= len(body)
        if self.room < 0 or self.depth == self.DEPTH:
            return [NOTHING] * len(body.outputs)
        self.depth += 1
        input_facts = {value: fact for value, fact in zip(body.inputs, given, strict=False) if fact is not None}
        inner = self.graph(body, input_facts)
        self.walks[id(body)] = input_facts, inner
        self.depth -= 1
        return [NOTHING if v is None else inner[v] for v in body.outputs]


def _check_size(graph: Graph, node: Node, fact: Fact) -> None:
    """Raise InvalidModelError where a tensor has more elements than can be counted."""
    if (fact.count or 0) > MOST_ELEMENTS:
        what = f"{node.op} of rank {fact.rank} has more than 2**63 elements"
        raise InvalidModelError(f"node {label_of(graph, node)!r}: {what}")


def _check_outputs(graph: Graph, facts: Mapping[Value, Fact]) -> None:
    """Raise InvalidModelError where an output is declared to hold other elements than are computed."""
    for name, value in zip(graph.output_names, graph.outputs, strict=True):
        if value is None:
            continue
        declared, inferred = graph.types.get(value), facts[value].type
        if not isinstance(declared, TensorType) or not isinstance(inferred, TensorType):
            continue
        if declared.dtype != inferred.dtype:
            raise InvalidModelError(
                f"output {name!r} is declared {declared.dtype}, and {graph.node(value.node).op} gives {inferred.dtype}"
            )


def _completed(fact: Fact, declared: Type, inputs: Sequence[Fact | None] = (), kept: Set[str] = frozenset()) -> Fact:
    """The fact, with what is declared where inference knows nothing; what is inferred wins where both speak, and sizes
    of the symbols in ``kept`` stay as they are: exporters write there what they were in one run."""
    if fact is NOTHING:
        return fact_of_type(declared)
    given = {name for f in inputs if f is not None for size in f.shape or () for name in symbols(size)}
    type = _completed_type(fact.type, declared, given, kept)
    if type is fact.type:
        return fact
    low, high = of_dtype(type.dtype) if isinstance(type, TensorType) else (fact.low, fact.high)
    return replace(fact, type=type, low=max(fact.low, low), high=min(fact.high, high))


def _completed_type(type: Type | None, declared: Type, given: Set[str], kept: Set[str]) -> Type | None:
    match type, declared:
        case None, _:
            return declared
        case TensorType(), TensorType():
            if type.dtype != declared.dtype or isinstance(declared.shape, Unranked):
                return type
            if isinstance(type.shape, Unranked):
                return type if type.shape.is_open else declared
            if len(type.shape) != len(declared.shape):
                return type
            sizes = tuple(_completed_size(s, d, given, kept) for s, d in zip(type.shape, declared.shape, strict=True))
            return type if sizes == type.shape else TensorType(type.dtype, sizes)
        case SequenceType(element), SequenceType(other):
            inner = _completed_type(element, other, given, kept)
            return type if inner is element or inner is None else SequenceType(inner)
        case OptionalType(element), OptionalType(other):
            inner = _completed_type(element, other, given, kept)
            return type if inner is element or inner is None else OptionalType(inner)
    return type


def _has_open_rank(fact: Fact | None) -> bool:
    """Whether a tensor has another rank in another run."""
    shape = fact.type.shape if fact is not None and isinstance(fact.type, TensorType) else ()
    return isinstance(shape, Unranked) and shape.is_open


def _opened(fact: Fact) -> Fact:
    """The fact of what is made of a tensor whose rank is open: its own is, unless it is inferred."""
    if not isinstance(fact.type, TensorType) or not isinstance(fact.type.shape, Unranked):
        return fact
    return replace(fact, type=TensorType(fact.type.dtype, replace(fact.type.shape, is_open=True)))


def _unnumbered(declared: Type) -> Type:
    """A declared type without the sizes that are numbers: names hold in every run."""
    if not isinstance(declared, TensorType) or isinstance(declared.shape, Unranked):
        return declared
    return TensorType(declared.dtype, tuple(fresh_symbol() if isinstance(s, int) else s for s in declared.shape))


def _anonymous(sizes: Sequence[Size] | None) -> set[str]:
    """The symbols in sizes or elements that nobody named."""
    return {name for size in sizes or () for name in symbols(size) if name.startswith("?")}


def _completed_size(size: Size, declared: Size, given: Set[str], kept: Set[str]) -> Size:
    """A size that nobody named gets the declared name, unless it is open, or came in: to know that says more."""
    if not is_anonymous(size) or is_open_size(size) or is_anonymous(declared) or symbols(size) <= kept:
        return size
    return declared if isinstance(declared, int) or not symbols(size) <= given else size


def _numbered(fact: Fact) -> Fact:
    """The fact, with a number of its own for each unknown element of a small integer tensor.

    So equal elements stay provably equal: two Reshapes by the same vector have the same shape.
    """
    if fact.elements is not None or not isinstance(fact.type, TensorType) or fact.type.dtype not in ("int64", "int32"):
        return fact
    shape, size = fact.type.shape, fact.size
    if not isinstance(shape, tuple) or len(shape) > 1 or not isinstance(size, int) or size > SMALL:
        return fact
    return replace(fact, elements=tuple(fresh_number() for _ in range(size)))
