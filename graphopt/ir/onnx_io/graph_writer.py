"""Graph writer: how each node and constant of one graph is spelled, and what each value is called. Apart from the model
around it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from typing import Any

import numpy as np
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    NodeProto,
    ValueInfoProto,
)

from graphopt.errors import InvalidModelError
from graphopt.frozen import dataclass
from graphopt.ir import forms, ops
from graphopt.ir.caches import PASTS
from graphopt.ir.constants import Constant
from graphopt.ir.facts import NOTHING, Fact
from graphopt.ir.graph import CONSTANT, INPUT, Attr, AttrRef, Attrs, Graph, Node, Value
from graphopt.ir.infer import infer
from graphopt.ir.onnx_io.attributes import KIND, kind_name, kind_of, octets
from graphopt.ir.onnx_io.names import ValueNames
from graphopt.ir.onnx_io.source import GraphSource, NodeSource
from graphopt.ir.onnx_io.store import TensorStore
from graphopt.ir.onnx_io.tensors import Stored
from graphopt.ir.onnx_io.types import write_type
from graphopt.ir.onnx_io.words import write_entries
from graphopt.ir.types import TensorType, axis_name, symbol

INITIALIZERS = ("initializer", "sparse_initializer")
"""The forms of constants that stay in the model even if nobody reads them."""

SPLAT = 1024
"""A repeated element that takes more bytes than this written out is written as a ConstantOfShape."""

ALIGNMENT = 4096
"""Tensors in a data file start at multiples of a memory page, so that they can be mapped."""


@dataclass(slots=True)
class _Spelling:
    """How a node will be written."""

    op: str
    inputs: list[Value | None]
    attrs: Attrs
    proto: NodeProto | None = None
    """The model's node, where it is as it was read."""


class GraphWriter:
    """Writes one graph, body or function; a body's last inputs are the values ``captured`` of the graph ``outer``."""

    def __init__(
        self,
        store: TensorStore,
        graph: Graph,
        fresh: ValueNames,
        outer: GraphWriter | None = None,
        captured: Sequence[Value] = (),
    ) -> None:
        self.store, self.graph, self.fresh, self.outer = store, graph, fresh, outer
        n_formal = len(graph.inputs) - len(captured)
        self.formal = graph.inputs[:n_formal]
        self.captured = dict(zip(graph.inputs[n_formal:], captured, strict=True))
        self.is_read = isinstance(graph.origin.extra, GraphSource)
        self.source = graph.origin.extra if isinstance(graph.origin.extra, GraphSource) else GraphSource(GraphProto())
        self.is_function = False
        self.domains: set[str] = outer.domains if outer is not None else set()
        """The domains of nodes that are spelled anew."""
        self.made: dict[Value, Constant] = {}
        self._made_by: dict[Constant, Value] = {}
        self.spelled: dict[int, _Spelling] = {}
        self.names: dict[Value, str] = {}
        self.scope: AbstractSet[str] = outer.visible if outer is not None else frozenset()
        """The names that a body sees around it: one that it gave anew would hide a value, which ONNX forbids."""
        renamed = {n: fresh.fresh(n) for n in graph.output_names if n in self.scope and not self._gave_outer(n)}
        self.output_names = [renamed.get(name, name) for name in graph.output_names]
        self.copies: list[tuple[str, Value]] = []
        """Outputs that need an Identity: the output's name, and the value."""
        self.by_name = {name: value for value, name in graph.names.items()}
        self.order = graph.order()

    # -- the graph as a whole

    def write_graph(self, proto: GraphProto) -> None:
        """Fill an empty message."""
        graph = self.graph
        before = self.source.proto if isinstance(self.source.proto, GraphProto) else GraphProto()
        if graph.name or before.HasField("name"):
            proto.name = graph.name
        if graph.origin.doc or before.HasField("doc_string"):
            proto.doc_string = graph.origin.doc
        write_entries(graph.origin.metadata, proto.metadata_props)
        # before IR 4 initializers had to be listed as inputs, which a body cannot do without changing its arity
        as_nodes = graph.header.ir_version < 4 and self.outer is not None
        self._spell(as_nodes)
        self._name()
        self._write_nodes(proto.node, as_nodes)
        initialized = self._write_initializers(proto, before, as_nodes)
        self._write_inputs(proto, before, initialized)
        for old, name, value in zip(graph.output_names, self.output_names, graph.outputs, strict=True):
            assert value is not None
            self._write_info(proto.output.add(), name, value, self.source.outputs.get(old))
        self._write_value_info(proto, before)
        written = set(self.names.values()) | set(self.output_names)
        for annotation in before.quantization_annotation:
            if {annotation.tensor_name, *(p.value for p in annotation.quant_parameter_tensor_names)} <= written:
                proto.quantization_annotation.add().CopyFrom(annotation)

    def write_function(self, proto: FunctionProto) -> None:
        """Fill in inputs, outputs, nodes and types."""
        self.is_function = True
        self._spell(as_nodes=True)
        self._name()
        proto.input.extend(self.names[value] for value in self.graph.inputs)
        proto.output.extend(self.graph.output_names)
        self._write_nodes(proto.node, as_nodes=True)
        self._write_value_info(proto, self.source.proto)

    # -- deciding how everything is spelled

    def _spell(self, as_nodes: bool) -> None:
        for node in self.order:
            if node.op == CONSTANT:
                spelling = self._spell_constant(node)
                if spelling is not None:
                    self.spelled[node.id] = spelling
            elif node.op != INPUT:
                self.spelled[node.id] = self._spell_node(node)
        read = {v for spelling in self.spelled.values() for v in spelling.inputs if v is not None}
        read |= {v for node in self.order for v in self._captures(node)}
        read |= {v for v in self.graph.outputs if v is not None}
        for node in self.order:
            if node.op == CONSTANT and node.id not in self.spelled and node.outputs[0] in read:
                self._spell_new_constant(node, as_nodes)
        self.read = read

    def _captures(self, node: Node) -> tuple[Value, ...]:
        return tuple(v for v in node.inputs[len(node.inputs) - node.captures :] if v is not None)

    def _spell_node(self, node: Node) -> _Spelling:
        inputs = node.inputs[: len(node.inputs) - node.captures]
        source = node.origin.extra if isinstance(node.origin.extra, NodeSource) else None
        if source is not None and (kept := self._kept_inputs(node, inputs, source)) is not None:
            return _Spelling(node.op, kept, node.attrs, source.proto)
        call = forms.OpsetCall(node.op, inputs, node.attrs, self._n_used(node))
        if (node.op, node.origin.overload) not in self.graph.functions:
            try:
                call = forms.write(call, self.graph.opset, self._make, self.fact)
            except forms.Unwritable as reason:
                raise InvalidModelError(f"{node.op} cannot be written in opset {self.graph.opset}: {reason}") from None
        schema = ops.schema(call.op, self.graph.opset)
        missing = schema.min_inputs - len(call.inputs) if schema is not None else 0  # a Loop has two, if only by ""
        return _Spelling(call.op, [*call.inputs, *[None] * missing], call.attrs)

    def _n_used(self, node: Node) -> int:
        """How many outputs of the node are needed: the last ones may be optional and read by nobody."""
        used = node.n_outputs
        while used > 1 and ops.is_optional(node.op, used - 1) and not self.graph.n_uses(node.outputs[used - 1]):
            used -= 1
        return used

    def _kept_inputs(
        self, node: Node, inputs: tuple[Value | None, ...], source: NodeSource
    ) -> list[Value | None] | None:
        """The inputs of the model's node, if it still says what the graph's does."""
        if (node.op, node.n_outputs) != (source.op, len(source.proto.output)) or not self._is_current(source):
            return None
        if node.attrs != source.attrs or len(inputs) != len(source.places):
            return None
        kept: list[Value | None] = [None] * len(source.proto.input)
        for value, source_place in zip(inputs, source.places, strict=True):
            if (value is None) != (source_place is None):
                return None
            if isinstance(source_place, int):
                kept[source_place] = value
            elif self.graph.constant_of(value) != source_place:
                return None
        for position, name, constant in source.dropped:
            value = self.by_name.get(name)
            if self.graph.constant_of(value) != constant:
                return None
            kept[position] = value
        return kept

    def _is_current(self, source: NodeSource) -> bool:
        """Whether the op has the same form in the graph's opset as in the opset that the node was read from."""
        opset = self.graph.opset
        return opset == source.opset or _since(source.proto, opset) == _since(source.proto, source.opset)

    def _make(self, constant: Constant) -> Value:
        """A constant that only the written form needs."""
        if constant not in self._made_by:
            value = Value(-1 - len(self.made))
            self.made[value] = constant
            self._made_by[constant] = value
        return self._made_by[constant]

    def fact(self, value: Value) -> Fact:
        """What is known of a value."""
        constant = self.made.get(value) or self.graph.constant_of(value)
        if constant is not None:
            return Fact(TensorType(constant.dtype, constant.shape), True, constant)
        return self._facts.get(value, NOTHING)

    @cached_property
    def axes(self) -> frozenset[str]:
        """What sizes are called by axes of the model's inputs."""
        if self.outer is not None:
            return self.outer.axes
        types = ((self.graph.names.get(value, ""), self.graph.types.get(value)) for value in self.formal)
        shapes = ((name, t.shape) for name, t in types if isinstance(t, TensorType) and isinstance(t.shape, tuple))
        names = ((axis_name(name, axis), size) for name, shape in shapes for axis, size in enumerate(shape))
        return frozenset(name for name, size in names if size == symbol(name))

    @cached_property
    def _facts(self) -> dict[Value, Fact]:
        """What inference knows; taken only where the form of an old opset depends on it."""
        captured = {inner: self.outer.fact(value) for inner, value in self.captured.items() if self.outer is not None}
        try:
            return infer(self.graph, captured)
        except InvalidModelError:
            return {value: Fact(type) for value, type in self.graph.types.items()}

    def _spell_constant(self, node: Node) -> _Spelling | None:
        """A constant that the model has as a node, as it was; None for all others."""
        source = node.origin.extra
        if not isinstance(source, NodeSource) or node.attrs != source.attrs:
            return None
        inputs = self._kept_inputs(node, (), source)
        return None if inputs is None else _Spelling(node.op, inputs, node.attrs, source.proto)

    def _spell_new_constant(self, node: Node, as_nodes: bool) -> None:
        """A constant as a ConstantOfShape or a Constant node, where it is not to be an initializer."""
        constant = self.graph.constant_of(node.outputs[0])
        assert constant is not None
        if self._is_splat(constant):
            assert constant.splat is not None
            shape = self._make(Constant.of(np.array(constant.shape, np.int64)))
            value = Constant.of(constant.splat.reshape(1))
            self.spelled[node.id] = _Spelling("ConstantOfShape", [shape], Attrs(value=value))
        elif as_nodes and (self.is_function or node.origin.form not in INITIALIZERS):
            self.spelled[node.id] = _Spelling(CONSTANT, [], node.attrs)

    def _is_splat(self, constant: Constant) -> bool:
        if constant.splat is None or constant.size * constant.splat.itemsize <= SPLAT:
            return False
        schema = ops.schema("ConstantOfShape", self.graph.opset)
        return schema is not None and constant.dtype in schema.allowed[schema.outputs[0].constraint]

    # -- names

    def _gave_outer(self, output: str) -> bool:
        """Whether the model has a body that makes nothing of this name, and gives what has it outside."""
        proto = self.source.proto
        made = {name for node in proto.node for name in node.output}
        return self.is_read and output not in made | {i.name for i in getattr(proto, "initializer", ())}

    @cached_property
    def visible(self) -> AbstractSet[str]:
        """The names that bodies of nodes see, once values have names."""
        return {*self.names.values(), *self.output_names} | self.scope

    def _name(self) -> None:
        graph, names = self.graph, self.names
        names.update(
            (inner, self.outer.names[value]) for inner, value in self.captured.items() if self.outer is not None
        )
        used = {*names.values(), *self.output_names}
        outputs = [(n, v) for n, v in zip(self.output_names, graph.outputs, strict=True) if v is not None]
        for value in self.formal:
            name = graph.names.get(value, "")
            self._take(value, name, "input", used, keep=self.outer is None or (name, value) in outputs)
        names.update((v, n) for n, v in outputs if v not in names and graph.names.get(v) == n)
        for name, value in dict.fromkeys(outputs):  # one output may be named twice
            if names.setdefault(value, name) != name:
                self.copies.append((name, value))
        for node in self.order:
            if node.op == INPUT or (node.op == CONSTANT and not self._is_written(node)):
                continue
            missing = self._missing(node)
            stem = _stem(node.op)
            for value in self._written(node):
                if value not in names and value.port not in missing:
                    self._take(value, graph.names.get(value, ""), stem, used)
        for value in self.made:
            self._take(value, "", "constant", used)

    def _take(self, value: Value, wanted: str, stem: str, used: set[str], keep: bool = False) -> None:
        """Name a value as wanted, or anew where the name is taken."""
        if not wanted or ((wanted in used or wanted in self.scope) and not keep):
            wanted = self.fresh.fresh(stem)
        used.add(wanted)
        self.names[value] = wanted

    def _is_written(self, node: Node) -> bool:
        return node.id in self.spelled or node.origin.form in INITIALIZERS or node.outputs[0] in self.read

    def _written(self, node: Node) -> tuple[Value, ...]:
        """The outputs of the node in the model: those that it has, and those that are carried on from its inputs."""
        count = max((node.n_outputs, *(port + 1 for port in self._carried(node))))
        return tuple(Value(node.id, port) for port in range(count))

    def _carried(self, node: Node) -> set[int]:
        """The outputs that are written whether they are read or not: without those for the past that it has, ONNX
        Runtime refuses attention, or reads keys that nobody wrote."""
        spelling = self.spelled.get(node.id)
        if spelling is None or spelling.proto is not None:
            return set()
        pasts = enumerate(PASTS.get(spelling.op, ()), start=1)
        return {port for port, k in pasts if k < len(spelling.inputs) and spelling.inputs[k] is not None}

    def _missing(self, node: Node) -> set[int]:
        """The outputs that the model leaves out; of a node spelled anew, the optional ones that nobody reads."""
        spelling = self.spelled.get(node.id)
        absent = {v.port for v in node.outputs if v not in self.read}
        if not absent or spelling is None:
            return set()
        if spelling.proto is not None:
            return {port for port in absent if not spelling.proto.output[port]}
        return {port for port in absent if ops.is_optional(node.op, port)} - self._carried(node)

    # -- nodes

    def _write_nodes(self, into: Any, as_nodes: bool) -> None:
        if as_nodes:
            for value, constant in self.made.items():
                proto = into.add(op_type=CONSTANT, output=[self.names[value]])
                self.write_attribute(proto.attribute.add(), CONSTANT, "value", constant)
        names = self._node_names()
        for node in self.order:
            spelling = self.spelled.get(node.id)
            if spelling is not None:
                self._write_node(node, spelling, names.get(node.id, node.origin.name), into.add())
        for name, value in self.copies:
            into.add(op_type="Identity", name=name if self.is_read else "", input=[self.names[value]], output=[name])

    def _node_names(self) -> dict[int, str]:
        """The names of nodes that a graph has beside those that it was read with: that of what they were made from, or
        of what they make, and no two alike. In a graph that was not read, nodes may be without."""
        nodes = [node for node in self.order if node.id in self.spelled and node.op != CONSTANT]
        if not self.is_read:
            nodes = [node for node in nodes if node.origin.name]
        taken = {node.origin.name for node in nodes if node.origin.extra is not None}
        names: dict[int, str] = {}
        turns: dict[str, int] = {}
        for node in nodes:
            if node.origin.extra is not None:
                continue
            name = base = node.origin.name or next((self.names[v] for v in node.outputs if v in self.names), node.op)
            while name in taken:
                turns[base] = turns.get(base, 0) + 1
                name = f"{base}_{turns[base]}"
            taken.add(name)
            names[node.id] = name
        return names

    def _write_node(self, node: Node, spelling: _Spelling, name: str, proto: NodeProto) -> None:
        outputs = [self.names.get(value, "") for value in self._written(node)]
        if spelling.proto is not None:
            self._copy_node(node, spelling.proto, proto)
        else:
            self._spell_out(node, spelling, proto)
            while outputs and not outputs[-1]:
                outputs.pop()
        _set_list(proto.input, ["" if value is None else self.names[value] for value in spelling.inputs])
        _set_list(proto.output, outputs)
        origin = node.origin
        if proto.name != name:
            proto.name = name
        if proto.doc_string != origin.doc:
            proto.doc_string = origin.doc
        write_entries(origin.metadata, proto.metadata_props)

    def _copy_node(self, node: Node, before: NodeProto, proto: NodeProto) -> None:
        proto.CopyFrom(before)
        for attribute in proto.attribute:
            if attribute.type in _NESTED and not attribute.ref_attr_name and node.origin.form != "ConstantOfShape":
                value = node.attrs["value" if node.op == CONSTANT else attribute.name]
                self._fill(attribute, value, self._captures(node))

    def _spell_out(self, node: Node, spelling: _Spelling, proto: NodeProto) -> None:
        domain, op, _ = ops.split(spelling.op)
        proto.op_type = op
        if domain:
            proto.domain = domain
            self.domains.add(domain)
        if node.origin.overload:
            proto.overload = node.origin.overload
        source = node.origin.extra
        before = source.proto if isinstance(source, NodeSource) and source.proto.op_type == op else NodeProto()
        likes = {attribute.name: attribute for attribute in before.attribute}
        for name in in_order_of(likes, spelling.attrs):
            attribute, value = proto.attribute.add(), spelling.attrs[name]
            self.write_attribute(attribute, spelling.op, name, value, likes.get(name), self._captures(node))

    # -- attributes

    def write_attribute(
        self,
        proto: AttributeProto,
        op: str,
        name: str,
        value: Attr,
        like: AttributeProto | None = None,
        captured: Sequence[Value] = (),
    ) -> None:
        """Fill an empty message; ``like`` is the attribute of that name in the model."""
        proto.name = name
        proto.type = kind_of(op, name, value, self.graph.opset, like)
        if like is not None and like.doc_string:
            proto.doc_string = like.doc_string
        if isinstance(value, AttrRef):
            proto.ref_attr_name = value.name
            return
        try:
            self._fill(proto, value, captured)
        except (AttributeError, TypeError, ValueError):
            if proto.type in (KIND.GRAPH, KIND.GRAPHS):
                raise  # what is wrong in a body is not wrong with its type
            wanted = kind_name(proto.type).lower()
            raise InvalidModelError(f"{op}: attribute {name!r} is {wanted}, which {value!r} does not fit") from None

    def _fill(self, proto: AttributeProto, value: Any, captured: Sequence[Value]) -> None:
        """Put a value into the field of the attribute's type, in place of what is there."""
        proto.ClearField(_FIELDS[proto.type])
        # one case for each of the types of ``onnx.AttributeProto.AttributeType``: the reverse of ``read_attribute``
        match proto.type:
            case KIND.FLOAT:
                proto.f = float(value)
            case KIND.INT:
                proto.i = int(value)
            case KIND.STRING:
                proto.s = octets(value)
            case KIND.FLOATS:
                proto.floats.extend(map(float, value))
            case KIND.INTS:
                proto.ints.extend(map(int, value))
            case KIND.STRINGS:
                proto.strings.extend(map(octets, value))
            case KIND.TENSOR:
                self.store.tensor(value, proto.t)
            case KIND.TENSORS:
                for item in value:
                    self.store.tensor(item, proto.tensors.add())
            case KIND.SPARSE_TENSOR:
                self.store.sparse(value, proto.sparse_tensor)
            case KIND.SPARSE_TENSORS:
                for item in value:
                    self.store.sparse(item, proto.sparse_tensors.add())
            case KIND.GRAPH:
                self._write_body(value, proto.g, captured)
            case KIND.GRAPHS:
                for item in value:
                    self._write_body(item, proto.graphs.add(), captured)
            case KIND.TYPE_PROTO:
                write_type(value, proto.tp)
            case KIND.TYPE_PROTOS:
                for item in value:
                    write_type(item, proto.type_protos.add())

    def _write_body(self, body: Graph, proto: GraphProto, captured: Sequence[Value]) -> None:
        GraphWriter(self.store, body, self.fresh, self, captured).write_graph(proto)

    # -- what stands beside the nodes

    def _write_initializers(self, proto: GraphProto, before: GraphProto, as_nodes: bool) -> dict[str, Constant]:
        """Write the constants that are no nodes; they come back by name."""
        dense: dict[str, Constant] = {}
        sparse: dict[str, Constant] = {}
        for node in self.order:
            (value,) = node.outputs if node.op in (INPUT, CONSTANT) else (None,)
            constant = node.attrs.get("default" if node.op == INPUT else "value") if value else None
            if value is None or not isinstance(constant, Constant) or node.id in self.spelled:
                continue
            if node.op == CONSTANT and not self._is_written(node):
                continue
            was_sparse = isinstance(constant.source, Stored) and constant.source.parts is not None
            (sparse if was_sparse and node.origin.form != "initializer" else dense)[self.names[value]] = constant
        if not as_nodes:
            dense.update((self.names[value], constant) for value, constant in self.made.items())
        position = {tensor.name: index for index, tensor in enumerate(before.initializer)}
        for name in sorted(dense, key=lambda name: position.get(name, len(position))):
            self.store.tensor(dense[name], proto.initializer.add(), name)
        for name, constant in sparse.items():
            self.store.sparse(constant, proto.sparse_initializer.add(), name)
        return dense

    def _write_inputs(self, proto: GraphProto, before: GraphProto, initialized: dict[str, Constant]) -> None:
        formal = {self.names[v]: v for v in self.formal}
        for info in before.input:
            if info.name in formal:
                self._write_info(proto.input.add(), info.name, formal.pop(info.name), info)
            elif info.name in initialized and self.graph.header.ir_version < 4 and _fits(info, initialized[info.name]):
                proto.input.add().CopyFrom(info)
        for name, value in formal.items():
            self._write_info(proto.input.add(), name, value, None)
        if self.graph.header.ir_version < 4 and self.outer is None:
            listed = {info.name for info in proto.input}
            for name, constant in initialized.items():
                if name not in listed:
                    write_type(TensorType(constant.dtype, constant.shape), proto.input.add(name=name).type)

    def _write_info(self, into: ValueInfoProto, name: str, value: Value, like: ValueInfoProto | None) -> None:
        type = self.graph.types.get(value)
        if type is None and like is None and self.outer is None:
            type = self.fact(value).type
        if like is not None:
            into.CopyFrom(like)
        if into.name != name:
            into.name = name
        if type is not None and (like is None or self.source.types.get(like.name) != type):
            into.ClearField("type")
            write_type(type, into.type, self.axes)

    def _write_value_info(self, proto: GraphProto | FunctionProto, before: GraphProto | FunctionProto) -> None:
        if not before.value_info:
            return
        values = {name: value for value, name in self.names.items()}
        for info in before.value_info:
            if info.name in values:
                self._write_info(proto.value_info.add(), info.name, values[info.name], info)


def in_order_of(before: Mapping[str, object], names: Iterable[str]) -> list[str]:
    """The names that were there before in their old order, then the others."""
    present = list(names)
    return [name for name in before if name in present] + [name for name in present if name not in before]


def _set_list(field: Any, names: list[str]) -> None:
    if list(field) != names:
        del field[:]
        field.extend(names)


def _since(proto: NodeProto, opset: int) -> int | None:
    """The version of the op that an opset has."""
    schema = ops.schema(proto.op_type, opset) if proto.domain in ("", "ai.onnx") else None
    return schema.since if schema is not None else None


def _stem(op: str) -> str:
    return ops.split(op)[1]


_FIELDS = {
    KIND.FLOAT: "f", KIND.INT: "i", KIND.STRING: "s", KIND.TENSOR: "t", KIND.GRAPH: "g", KIND.FLOATS: "floats",
    KIND.INTS: "ints", KIND.STRINGS: "strings", KIND.TENSORS: "tensors", KIND.GRAPHS: "graphs",
    KIND.SPARSE_TENSOR: "sparse_tensor", KIND.SPARSE_TENSORS: "sparse_tensors", KIND.TYPE_PROTO: "tp",
    KIND.TYPE_PROTOS: "type_protos",
}  # fmt: skip

_NESTED = {KIND.TENSOR, KIND.GRAPH, KIND.TENSORS, KIND.GRAPHS, KIND.SPARSE_TENSOR, KIND.SPARSE_TENSORS}
"""Attributes whose tensors have to be written again, since their bytes may only be marked."""


def _fits(info: ValueInfoProto, constant: Constant) -> bool:
    """Whether what a model declares of a name is true of the constant that has it now: names are given anew."""
    declared, own = info.type.tensor_type, ValueInfoProto()
    write_type(TensorType(constant.dtype, constant.shape), own.type)
    sizes = [d.dim_value for d in own.type.tensor_type.shape.dim]
    if declared.elem_type != own.type.tensor_type.elem_type:
        return False
    if not declared.HasField("shape"):
        return True
    dims = declared.shape.dim
    pairs = zip(dims, sizes, strict=False)
    return len(dims) == len(sizes) and all(not d.HasField("dim_value") or d.dim_value == n for d, n in pairs)
