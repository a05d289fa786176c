"""Graph reader: inputs, constants, nodes with their bodies, and outputs of one ONNX graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, TypeProto

from graphopt.errors import InvalidModelError
from graphopt.frozen import dataclass
from graphopt.ir import forms
from graphopt.ir.constants import Constant
from graphopt.ir.facts import Fact, meet
from graphopt.ir.graph import (
    INPUT,
    NO_ATTRS,
    Attr,
    AttrRef,
    Attrs,
    Function,
    Graph,
    Header,
    Node,
    Origin,
    Value,
    trimmed,
)
from graphopt.ir.infer import infer_node
from graphopt.ir.onnx_io.attributes import declared, kind_name
from graphopt.ir.onnx_io.order import label, ordered, reads
from graphopt.ir.onnx_io.source import GraphSource, InputSource, NodeSource
from graphopt.ir.onnx_io.tensors import Storage, read_sparse, read_tensor
from graphopt.ir.onnx_io.types import read_inputs, read_type
from graphopt.ir.onnx_io.words import check_text, origin_of
from graphopt.ir.ops import is_optional, misuse
from graphopt.ir.types import OpaqueType, Type

_ZERO = Constant.of(np.zeros(1, np.float32))

CONSTANT_ATTRIBUTES = {
    "value": AttributeProto.TENSOR, "value_float": AttributeProto.FLOAT, "value_floats": AttributeProto.FLOATS,
    "value_int": AttributeProto.INT, "value_ints": AttributeProto.INTS, "value_string": AttributeProto.STRING,
    "value_strings": AttributeProto.STRINGS, "sparse_value": AttributeProto.SPARSE_TENSOR,
}  # fmt: skip
"""How a Constant node may spell its elements."""

_READERS: dict[str, Callable[[Any, Storage, str], Constant]] = {
    "initializer": read_tensor,
    "sparse_initializer": read_sparse,
}


@dataclass(frozen=True, slots=True)
class ModelContext:
    """What is the same for all graphs of a model while it is read."""

    where: str
    storage: Storage
    header: Header
    functions: dict[tuple[str, str], Function]
    local: frozenset[tuple[str, str]]
    """The local functions, as (op, overload): their calls are no calls of ONNX's ops."""


def op_name(domain: str, name: str) -> str:
    """The op as graphs name it."""
    return name if domain in ("", "ai.onnx") else f"{domain}::{name}"


class GraphReader:
    """Reads one graph, function or body."""

    def __init__(self, model: ModelContext, where: str, parent: GraphReader | None) -> None:
        self.model, self.where, self.parent = model, where, parent
        self.proto: GraphProto | FunctionProto = GraphProto()
        self.graph = Graph(header=model.header, functions=model.functions)
        self.values: dict[str, Value] = {}
        self.captures: dict[str, Value] = {}
        self.declared: dict[str, Type] = {}
        self.facts: dict[Value, Fact] = {}
        self.facts_to = 0

    # -- the graph as a whole

    def read(self, proto: GraphProto | FunctionProto) -> Graph:
        """The closed graph; what it captures is in ``captures``."""
        graph = self.graph
        source = GraphSource(proto)
        graph.name, graph.origin = proto.name, origin_of(proto, f"{self.where}the graph", extra=source)
        check_text(f"{self.where}the graph", graph.name)
        self._declare(proto)
        self.proto = proto
        if isinstance(proto, FunctionProto):
            for name in proto.input:
                self._define(name, graph.add_input(name), "input")
        else:
            self._read_inputs(proto, source)
        for node in ordered(proto.node, self.where):
            self._read_node(node)
        self._read_outputs(proto, source)
        source.types.update((name, type) for name, type in self.declared.items() if name in self.values)
        graph.types.update((self.values[name], type) for name, type in source.types.items())
        return graph

    def _read_inputs(self, proto: GraphProto, source: GraphSource) -> None:
        source.inputs.update((info.name, info) for info in proto.input)
        if len(source.inputs) < len(proto.input):
            raise InvalidModelError(f"{self.where}two inputs have the same name")
        constants = [(t.name, t, "initializer") for t in proto.initializer]
        constants += [(t.values.name, t, "sparse_initializer") for t in proto.sparse_initializer]
        overridable = self.model.header.ir_version >= 4
        defaults: dict[str, Attrs] = {}
        inner: dict[str, tuple[Constant, str]] = {}
        for name, tensor, form in constants:
            where = f"{self.where}initializer {name!r}"
            if name in inner or name in defaults:
                raise InvalidModelError(f"{where} is defined twice")
            constant = _READERS[form](tensor, self.model.storage, where)
            if overridable and name in source.inputs:
                defaults[name] = Attrs(default=constant)
            else:
                inner[name] = constant, form
        for name in source.inputs:
            if name not in inner:
                self._define(name, self.graph.add_input(name, None, defaults.get(name, NO_ATTRS)), "input")
        for name, (constant, form) in inner.items():
            self._define(name, self.graph.add_constant(constant, name, Origin(form=form)), "initializer")

    def _declare(self, proto: GraphProto | FunctionProto) -> None:
        """Note the types that the model states; what it says of an input goes before what it says of an output."""
        infos = (
            proto.value_info if isinstance(proto, FunctionProto) else (*proto.value_info, *proto.output, *proto.input)
        )
        for info in infos:
            type = read_type(info.type) if info.HasField("type") else None
            if type is not None:
                self.declared[info.name] = type
        if self.parent is None and isinstance(proto, GraphProto):
            self.declared.update((name, type) for name, type in read_inputs(proto.input) if type is not None)

    def _read_outputs(self, proto: GraphProto | FunctionProto, source: GraphSource) -> None:
        if isinstance(proto, FunctionProto):
            for name in proto.output:
                check_text(self.where, name)
                self.graph.add_output(name, self.values.get(name))
            return
        source.outputs.update((info.name, info) for info in proto.output)
        for info in proto.output:
            self.graph.add_output(info.name, self.find(info.name, "the graph's output"))

    @cached_property
    def read_names(self) -> set[str]:
        """The names of values that some node reads, or the caller."""
        names = {name for node in self.proto.node for name in reads(node)}
        outputs = self.proto.output if isinstance(self.proto, FunctionProto) else [o.name for o in self.proto.output]
        return names.union(outputs)

    # -- names

    def _define(self, name: str, value: Value, what: str) -> None:
        check_text(f"{self.where}{what}", name)
        if name in self.values:
            raise InvalidModelError(f"{self.where}{what}: value {name!r} is defined twice")
        self.values[name] = value

    def find(self, name: str, what: str) -> Value:
        """The value with this name."""
        value = self._look_up(name)
        if value is None:
            raise InvalidModelError(f"{self.where}{what}: value {name!r} is not defined")
        return value

    def _look_up(self, name: str) -> Value | None:
        """The value with this name; one from outside becomes a capture."""
        if (value := self.values.get(name)) is not None or (value := self.captures.get(name)) is not None:
            return value
        if self.parent is None or not self.parent.has(name):
            return None
        return self.capture(name)

    def has(self, name: str) -> bool:
        """Whether the name is visible here."""
        if name in self.values or name in self.captures:
            return True
        return self.parent is not None and self.parent.has(name)

    def capture(self, name: str) -> Value:
        """An input of this body that stands for a value from outside."""
        if name not in self.captures:
            value = self.graph.add_input(name)
            self.captures[name] = value
            self.graph.inputs.remove(value)
        return self.captures[name]

    # -- nodes

    def _read_node(self, proto: NodeProto) -> None:
        what = label(proto)
        check_text(f"{self.where}{what}", proto.domain, proto.op_type, proto.overload)
        op = op_name(proto.domain, proto.op_type)
        is_local = (op, proto.overload) in self.model.local
        if not is_local:
            names = [attribute.name for attribute in proto.attribute]
            check_text(f"{self.where}{what}", *names)
            problem = misuse(op, len(proto.input), len(proto.output), names, self.graph.opset)
            if problem is not None:
                raise InvalidModelError(f"{self.where}{what}: {problem}")
        attrs, captures = self._read_attributes(proto, "" if is_local else op, what)
        named = tuple(self.find(name, what) if name else None for name in proto.input)
        if not is_local and op == "Constant" and not attrs:
            raise InvalidModelError(f"{self.where}{what}: it has none of {', '.join(CONSTANT_ATTRIBUTES)}")
        if not is_local and op == "Constant" and self._read_constant(proto, attrs, named, what):
            return
        if not is_local and op == "ConstantOfShape" and self._read_splat(proto, attrs, named, what):
            return
        form = forms.OpsetCall(op, trimmed(op, named), Attrs(attrs) if attrs else NO_ATTRS, self._n_used(proto))
        if not is_local:
            form = forms.read(form, self.graph.opset, self._make, self.fact)
        places = self._places(form.inputs, named)
        captured = tuple(self.find(name, what) for name in captures)
        dropped = self._dropped(form.inputs, named, proto)
        source = NodeSource(proto, form.op, form.attrs, places, self.graph.opset, dropped)
        origin = origin_of(proto, f"{self.where}{what}", "", source)
        node = self.graph.add(
            form.op, form.inputs + captured, form.attrs, len(proto.output), captures=len(captured), origin=origin
        )
        for name, value in zip(proto.output, node.outputs, strict=True):
            if name:
                self._define(name, value, what)
                self.graph.names[value] = name

    def _n_used(self, proto: NodeProto) -> int:
        """How many outputs the node needs: the last ones may be optional, and have names that nobody reads."""
        used = len(proto.output)
        while used > 1 and is_optional(proto.op_type, used - 1, self.graph.opset):
            if proto.output[used - 1] in self.read_names:
                break
            used -= 1
        return used

    def _make(self, constant: Constant) -> Value:
        """A constant that the model spells as an attribute."""
        return self.graph.add_constant(constant)

    def _places(self, inputs: tuple[Value | None, ...], named: tuple[Value | None, ...]) -> tuple[InputSource, ...]:
        if inputs == named[: len(inputs)]:
            return tuple(None if value is None else index for index, value in enumerate(inputs))
        left = list(enumerate(named))
        places: list[InputSource] = []
        for value in inputs:
            same = next((pair for pair in left if pair[1] == value), None)
            if value is None or same is None:
                places.append(self.graph.constant_of(value))
            else:
                left.remove(same)
                places.append(same[0])
        return tuple(places)

    def _dropped(
        self, inputs: tuple[Value | None, ...], named: tuple[Value | None, ...], proto: NodeProto
    ) -> tuple[tuple[int, str, Constant], ...]:
        if inputs == named[: len(inputs)]:
            return ()
        gone = [(i, self.graph.constant_of(v)) for i, v in enumerate(named) if v is not None and v not in inputs]
        return tuple((i, proto.input[i], constant) for i, constant in gone if constant is not None)

    def _read_constant(
        self, proto: NodeProto, attrs: dict[str, Attr], inputs: tuple[Value | None, ...], what: str
    ) -> bool:
        """Read a Constant node in any of its spellings; False where its elements are not known here."""
        if len(attrs) != 1 or inputs or len(proto.output) != 1:
            return False
        ((form, value),) = attrs.items()
        if isinstance(value, AttrRef) or CONSTANT_ATTRIBUTES.get(form) != proto.attribute[0].type:
            return False
        constant = value if isinstance(value, Constant) else _constant(form, value)
        self._add_constant(proto, constant, form, (), what)
        return True

    def _read_splat(
        self, proto: NodeProto, attrs: dict[str, Attr], inputs: tuple[Value | None, ...], what: str
    ) -> bool:
        """Read a ConstantOfShape whose shape is known as the constant that it is."""
        shape = self.graph.constant_of(inputs[0]) if len(inputs) == 1 else None
        value = attrs.get("value", _ZERO)
        if (
            shape is None
            or shape.dtype != "int64"
            or len(shape.shape) != 1
            or shape.size > 64
            or len(proto.output) != 1
        ):
            return False
        if not isinstance(value, Constant) or value.size != 1 or value.dtype == "string" or attrs.keys() - {"value"}:
            return False
        sizes = tuple(map(int, shape.array))
        if any(n < 0 for n in sizes):
            raise InvalidModelError(f"{self.where}{what}: shape {list(sizes)} has a negative dimension")
        constant = Constant.full(sizes, value.array.reshape(()))
        self._add_constant(proto, constant, "ConstantOfShape", ((0, proto.input[0], shape),), what)
        return True

    def _add_constant(
        self, proto: NodeProto, constant: Constant, form: str, dropped: tuple[tuple[int, str, Constant], ...], what: str
    ) -> None:
        value = self.graph.add_constant(constant, proto.output[0])
        node = self.graph.producer(value)
        source = NodeSource(proto, node.op, node.attrs, (), self.graph.opset, dropped)
        origin = origin_of(proto, f"{self.where}{what}", form, source)
        self.graph.update(node.id, origin=origin)
        self._define(proto.output[0], value, what)

    # -- facts

    def fact(self, value: Value) -> Fact:
        """What is known of a value while the graph is read: only old forms of ops ask, and not often."""
        for node in self.graph.since(self.facts_to):
            self.facts.update(zip(node.outputs, self._infer(node), strict=True))
        self.facts_to = self.graph.next_id
        return self.facts[value]

    def _infer(self, node: Node) -> Sequence[Fact]:
        declared = [Fact(self.declared.get(self.graph.names.get(value, ""))) for value in node.outputs]
        if node.op == INPUT:
            name = self.graph.names[node.outputs[0]]
            captured = name in self.captures and self.parent is not None
            return [self.parent.fact(self.parent.find(name, "")) if captured and self.parent else declared[0]]
        if node.bodies or (node.op, node.origin.overload) in self.model.local:
            return declared
        inputs = [None if value is None else self.facts[value] for value in node.inputs]
        try:
            inferred = infer_node(node.op, node.attrs, inputs, node.n_outputs, self.graph.opset)
        except InvalidModelError:  # whoever infers the whole model says so better
            return declared
        return [meet(fact, stated) for fact, stated in zip(inferred, declared, strict=True)]

    # -- attributes

    def _read_attributes(self, proto: NodeProto, op: str, what: str) -> tuple[dict[str, Attr], tuple[str, ...]]:
        """The attributes, and the names that the bodies among them capture."""
        bodies: list[GraphReader] = []
        attrs: dict[str, Attr] = {}
        for attribute in proto.attribute:
            if attribute.name in attrs:
                raise InvalidModelError(f"{self.where}{what}: attribute {attribute.name!r} is given twice")
            wanted = declared(op, attribute.name, self.graph.opset)
            if wanted is not None and attribute.type != wanted:
                raise InvalidModelError(
                    f"{self.where}{what}: attribute {attribute.name!r} is {kind_name(attribute.type)}, "
                    f"the op wants {kind_name(wanted)}"
                )
            attrs[attribute.name] = self.read_attribute(attribute, what, bodies)
        captures = tuple(dict.fromkeys(name for body in bodies for name in body.captures))
        for body in bodies:
            body.graph.inputs += [body.capture(name) for name in captures]
        return attrs, captures

    def read_attribute(self, proto: AttributeProto, what: str, bodies: list[GraphReader] | None = None) -> Attr:
        """An attribute's value; readers of the bodies in it are appended to ``bodies``."""
        if proto.ref_attr_name:
            check_text(f"{self.where}{what}", proto.name, proto.ref_attr_name)
            return AttrRef(proto.ref_attr_name, proto.type)
        kind = AttributeProto
        where = f"{self.where}{what}: attribute {proto.name!r}"
        check_text(where, proto.name)
        storage = self.model.storage

        def body(graph: GraphProto) -> Graph:
            reader = GraphReader(self.model, f"{where}: ", self)
            read = reader.read(graph)
            if bodies is not None:
                bodies.append(reader)
            return read

        def type_of(message: TypeProto) -> Type:
            type = read_type(message)
            return type if type is not None else OpaqueType(message.SerializeToString(deterministic=True))

        # one case for each of the types of ``onnx.AttributeProto.AttributeType``, those of one value first
        match proto.type:
            case kind.FLOAT:
                return float(proto.f)
            case kind.INT:
                return int(proto.i)
            case kind.STRING:
                return _text(proto.s)
            case kind.TENSOR:
                return read_tensor(proto.t, storage, where)
            case kind.GRAPH:
                return body(proto.g)
            case kind.SPARSE_TENSOR:
                return read_sparse(proto.sparse_tensor, storage, where)
            case kind.TYPE_PROTO:
                return type_of(proto.tp)
            case kind.FLOATS:
                return tuple(map(float, proto.floats))
            case kind.INTS:
                return tuple(map(int, proto.ints))
            case kind.STRINGS:
                return tuple(map(_text, proto.strings))
            case kind.TENSORS:
                return tuple(read_tensor(t, storage, where) for t in proto.tensors)
            case kind.GRAPHS:
                return tuple(map(body, proto.graphs))
            case kind.SPARSE_TENSORS:
                return tuple(read_sparse(t, storage, where) for t in proto.sparse_tensors)
            case kind.TYPE_PROTOS:
                return tuple(map(type_of, proto.type_protos))
        raise InvalidModelError(f"{where} has no type")


def _text(raw: bytes) -> str | bytes:
    """A string; bytes where it is not UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _constant(form: str, value: Attr) -> Constant:
    """The constant that a Constant node spells as a plain number, string or list."""
    if "string" in form:
        array = np.empty(len(value) if isinstance(value, tuple) else (), dtype=object)
        array[...] = value
        return Constant.of(array)
    return Constant.of(np.array(value, dtype=np.float32 if "float" in form else np.int64))
