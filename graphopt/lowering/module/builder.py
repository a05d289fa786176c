"""Graph builder: graphs made in Python, op by op, with tensor functions and external functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from graphopt.display import Displayed
from graphopt.errors import InvalidModelError, UsageError, nearest_or_some
from graphopt.frozen import dataclass
from graphopt.ir import ops
from graphopt.ir.annotations import free_region, in_region, region_of
from graphopt.ir.bounds import fact_of, fact_of_type
from graphopt.ir.constants import Array, Constant
from graphopt.ir.custom_ops import added, output_types
from graphopt.ir.dtypes import CODES
from graphopt.ir.facts import Fact
from graphopt.ir.graph import NOWHERE, Attr, Attrs, Graph, Header, Node, Origin, Value
from graphopt.ir.infer import infer, infer_in_graph, infer_node
from graphopt.ir.infer_nests import NEST
from graphopt.ir.types import Size, TensorType, Type, symbol, symbols
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.lower.embedded_programs import attributes
from graphopt.lowering.module.module import DOMAIN, MAIN, External, Module
from graphopt.lowering.module.parameters import Params, arrays_of, bind, check_names
from graphopt.lowering.module.tensor_functions import TensorFunction, program_of

ValueLike: TypeAlias = "Value | Array | float | int | bool | None"
"""An argument of a call: a value of the graph, an array or a number that becomes a constant, or nothing."""
ShapeLike: TypeAlias = "Sequence[Size | str]"
OPSET = 21
"""The opset that graphs are made for where nobody asks for another."""


@dataclass(frozen=True, slots=True)
class DataflowRegion:
    """A dataflow region, as a predicate of nodes: ``region(node)``. Passes keep it; it is printed, and saved."""

    number: str

    def __call__(self, node: Node) -> bool:
        """Whether the node is in the region."""
        return region_of(node) == self.number


class GraphBuilder(Displayed):
    """Builder of a graph function of a module. ``build`` gives the finished module.

    What is called takes ``Value``s that the builder gave, and arrays and numbers, which become constants. ``module`` is
    one that has functions already: ``emit("module::f", [x])`` calls the function ``f`` of it.

    >>> one = builder.constant(np.ones(4, np.float32), "one")
    >>> builder.fact(one).rank, builder.type(one)
    (1, TensorType(dtype='float32', shape=(4,)))
    >>> graphopt.GraphBuilder.over(graph.copy())
    <GraphBuilder of <Graph main: 1 node>>
    """

    def __init__(self, name: str = MAIN, *, module: Module | None = None, opset: int = OPSET) -> None:
        if not isinstance(opset, int) or not 1 <= opset <= ops.LATEST:
            raise UsageError(f"the opset is a number from 1 to {ops.LATEST}, not {opset!r}")
        self.graph = Graph(name, Header(opsets=(("", opset),)))
        self.module = Module(None if module is None else module.functions)
        self._facts: dict[Value, Fact] = {}
        self._labels: set[str] = set()
        self._region: DataflowRegion | None = None

    is_code = True

    def __repr__(self) -> str:
        return f"<GraphBuilder of {self.graph!r}>"

    def __str__(self) -> str:
        """The module so far."""
        return Module({**self.module, self.graph.name: self.graph}).script()

    @classmethod
    def over(cls, graph: Graph, module: Module | None = None) -> GraphBuilder:
        """A builder that adds to a graph itself, and functions to the module itself, where there is one."""
        builder = cls(graph.name)
        builder.graph, builder.module = graph, Module() if module is None else module
        builder._facts = infer(graph)
        builder._labels = {node.origin.name for node in graph.nodes()}
        return builder

    # -- inputs and outputs

    def input(self, name: str, dtype: str | TensorType = "float32", shape: ShapeLike = ()) -> Value:
        """Adds an input, of a dtype and shape, or of a type. A size is a number, or a name for a symbolic one."""
        if name in self.graph.names.values():
            raise UsageError(f"there is an input {name!r} already")
        type = dtype if isinstance(dtype, TensorType) else _type(dtype, shape)
        value = self.graph.add_input(name, type)
        self._facts[value] = fact_of_type(type)
        return value

    def constant(self, array: Any, name: str = "") -> Value:
        """Adds a constant."""
        constant = array if isinstance(array, Constant) else Constant.of(np.asarray(array))
        value = self.graph.add_constant(constant, name)
        self._facts[value] = fact_of(constant)
        return value

    def output(self, name: str, value: Value) -> None:
        """Marks a value as an output of the graph."""
        if name in self.graph.output_names:
            raise UsageError(f"there is an output {name!r} already")
        self.fact(value)
        self.graph.add_output(name, value)

    def bind_params(self, params: Params) -> None:
        """Replaces inputs by constants: arrays by the inputs' names, or a file of them (as ``Module.bind_params``).

        UsageError for a name that is no input's, or an array that does not fit its type, ReadError for a file that
        cannot be read.
        """
        arrays = arrays_of(params)
        check_names(arrays, [self.graph])
        for value, constant in bind(self.graph, arrays).items():
            self._facts[value] = fact_of(constant)

    # -- calls

    def emit(
        self,
        op: str,
        inputs: Sequence[ValueLike] = (),
        attrs: Mapping[str, Any] | None = None,
        *,
        n_outputs: int = 1,
        name: str = "",
    ) -> Any:
        """Adds an ONNX op in its newest form, and gives its output (a tuple where ``n_outputs`` is not 1). ``name`` is
        the node's.

        Raises UsageError where the op does not take these inputs or attributes, and InvalidModelError where they do
        not fit together.
        """
        values, given = self._values(inputs), Attrs({n: _attr(a) for n, a in (attrs or {}).items()})
        facts = [None if v is None else self.fact(v) for v in values]
        domain, _, short = op.rpartition("::")
        if domain == DOMAIN:
            return self._function(short, values, facts, name)
        refused = ops.misuse(op, len(values), n_outputs, tuple(given), ops.LATEST) or ops.refusal(
            op, given, facts, self.graph.opset
        )
        if refused:
            raise UsageError(f"{op} is not called so: {refused}")
        return self._made(op, values, given, n_outputs, None, name)

    def emit_compute(
        self, function: TensorFunction, inputs: Sequence[ValueLike], *, name: str = "", **arguments: Any
    ) -> Any:
        """Adds a tensor function: ``function`` makes tensors (``graphopt.te``, ``graphopt.tensor``) from placeholders,
        and gets the further arguments: ``emit_compute(tensor.softmax, [x], axis=1)``.

        It becomes a program of the module, by the function's name or ``name``. Gives a tuple where it makes several.
        UsageError where the function cannot take these values.
        """
        values = self._values(inputs)
        nest = program_of(function, [None if v is None else self.fact(v) for v in values], name, arguments)
        return self.emit(f"{DOMAIN}::{self.module.add(nest)}", inputs=[v for v in values if v is not None])

    def call(
        self,
        name: str,
        inputs: Sequence[ValueLike] = (),
        *,
        out_shape: ShapeLike | list[ShapeLike] | None = None,
        out_dtype: str | Sequence[str] | None = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> Any:
        """The output of a registered function; ``out_shape`` is its shape (a list of shapes where it has several
        outputs, or none), and ``out_dtype`` the dtype where it is not the first input's.

        Without a shape, what the function was registered with tells the types. Raises UsageError where nothing does.
        """
        values, given = self._values(inputs), Attrs({n: _attr(a) for n, a in (attrs or {}).items()})
        user = added(External(name).op)
        if user is None or user.function is None:
            raise UsageError(f"{name} is not registered: graphopt.register({name!r}, function)")
        types = None
        if out_shape is not None:
            types = self._declared(values, out_shape, out_dtype)
        elif user.outputs is None:
            raise UsageError(
                f"nothing tells the type of what {name} gives: say out_shape=, or register it with outputs="
            )
        else:
            n = _number_of_outputs(
                name, user.outputs, [None if v is None else self.fact(v).type for v in values], given
            )
        external = External(name, user.effects)
        self.module[name] = external
        return self._made(external.op, values, given, n if types is None else len(types), types, "")

    @contextmanager
    def dataflow(self) -> Iterator[DataflowRegion]:
        """A context manager: what is called within is a dataflow region, which it gives: ``my_pass.on(region)``.

        Calls with effects may stand in it; as everywhere, they are made in order.
        """
        if self._region is not None:
            raise UsageError("a dataflow region cannot be opened within another")
        region = self._region = DataflowRegion(free_region(self.graph))
        try:
            yield region
        finally:
            self._region = None

    # -- looking

    def fact(self, value: Value) -> Fact:
        """The facts of a value. UsageError for a value of another graph."""
        if value not in self._facts:
            raise UsageError(f"{value} is no value of this builder's graph")
        return self._facts[value]

    def type(self, value: Value) -> TensorType:
        """The type of a value. UsageError where it is no tensor."""
        type = self.fact(value).type
        if not isinstance(type, TensorType):
            raise UsageError(f"{value} is {type or 'of unknown type'}, and no tensor")
        return type

    def build(self) -> Module:
        """The module, with the graph in it. InvalidModelError where the graph has no outputs."""
        if not self.graph.outputs:
            raise InvalidModelError(f"the graph {self.graph.name!r} has no output: name one with output(name, value)")
        self.module[self.graph.name] = self.graph.copy()
        self.module.check()
        return self.module

    # -- how

    def _values(self, inputs: Sequence[ValueLike]) -> list[Value | None]:
        first = next((v for v in inputs if isinstance(v, Value)), None)
        dtype = None if first is None else self.fact(first).dtype
        values: list[Value | None] = []
        for given in inputs:
            if given is None or isinstance(given, Value):
                values.append(given)
                if given is not None:
                    self.fact(given)
            else:
                is_number = isinstance(given, bool | int | float)
                values.append(self.constant(np.asarray(given, dtype) if is_number and dtype else given))
        return values

    def _function(self, name: str, values: list[Value | None], facts: list[Fact | None], label: str) -> Any:
        """A call of a function of the module."""
        if name not in self.module:
            raise UsageError(f"the module has no function {name!r}{nearest_or_some(name, self.module)}")
        function = self.module[name]
        if isinstance(function, External):
            raise UsageError(f"{name} is an external function: call({function.name!r}, inputs)")
        if isinstance(function, Nest):
            attrs, n = attributes(function), len(function.outputs)
            results: Sequence[Fact] = infer_node(NEST, attrs, facts, n, self.graph.opset)
        else:
            graph = self.module.graph(name)
            by_input = {v: f for v, f in zip(graph.inputs, facts, strict=True) if f is not None}
            inferred = infer(graph, by_input)
            results = [inferred[v] for v in graph.outputs if v is not None]
        return self._made(f"{DOMAIN}::{name}", values, Attrs(), len(results), [f.type for f in results], label or name)

    def _made(
        self,
        op: str,
        values: Sequence[Value | None],
        attrs: Attrs,
        n_outputs: int,
        types: Sequence[Type | None] | None,
        name: str,
    ) -> Any:
        """The outputs of a new node of these types; of those that are inferred where none are given."""
        origin = in_region(
            Origin(name=self._label(name)) if name else NOWHERE, "" if self._region is None else self._region.number
        )
        node = self.graph.add(op, tuple(values), attrs, n_outputs, origin=origin)
        if types is None:
            try:
                inputs = [None if v is None else self.fact(v) for v in node.inputs]
                facts = infer_in_graph(self.graph, node, inputs, self.graph.functions)
            except InvalidModelError:
                self.graph.remove(node.id)
                raise
        else:
            facts = [Fact() if t is None else fact_of_type(t) for t in types]
        for value, fact in zip(node.outputs, facts, strict=True):
            self._facts[value] = fact
            if fact.type is not None:
                self.graph.types[value] = fact.type
        domain = ops.split(op)[0]
        opsets = dict(self.graph.header.opsets)
        if domain and domain not in opsets:
            self.graph.header = replace(self.graph.header, opsets=(*self.graph.header.opsets, (domain, 1)))
        return node.outputs[0] if n_outputs == 1 else node.outputs

    def _label(self, wanted: str) -> str:
        label, k = wanted, 1
        while label in self._labels:
            label, k = f"{wanted}_{k}", k + 1
        self._labels.add(label)
        return label

    def _declared(
        self, values: Sequence[Value | None], shape: ShapeLike | list[ShapeLike], dtype: str | Sequence[str] | None
    ) -> list[TensorType]:
        # Three checks, then types: as many dtypes as shapes, and no symbol that is not a size of a value before.
        shapes = shape if isinstance(shape, list) else [shape]
        first = next((v for v in values if v is not None), None)
        if dtype is None and first is None:
            raise UsageError("a call without inputs needs an out_dtype")
        one = self.type(first).dtype if dtype is None and first is not None else dtype
        dtypes = [one] * len(shapes) if isinstance(one, str) else list(one or ())
        if len(dtypes) != len(shapes):
            raise UsageError(f"there are {len(shapes)} shapes of outputs, and {len(dtypes)} dtypes")
        types = [_type(d, s) for d, s in zip(dtypes, shapes, strict=True)]
        declared = {n for f in self._facts.values() for s in f.shape or () for n in symbols(s)}
        for name in sorted(
            n for t in types for s in fact_of_type(t).shape or () for n in symbols(s) if n not in declared
        ):
            raise UsageError(f"nothing tells the size {name!r}{nearest_or_some(name, sorted(declared))}")
        return types


def _number_of_outputs(name: str, outputs: Callable[..., Any], types: Sequence[Type | None], attrs: Attrs) -> int:
    try:
        return len(output_types(outputs, types, dict(attrs)))
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None


def _type(dtype: str, shape: ShapeLike) -> TensorType:
    """A type that a user gives; UsageError where it is none."""
    if dtype not in CODES:
        raise UsageError(f"no dtype is called {dtype!r}: there are {', '.join(sorted(CODES))}")
    if isinstance(shape, str) or not isinstance(shape, Sequence):
        raise UsageError(f"a shape is a sequence of sizes, as in ('n', 64), not {shape!r}")
    return TensorType(dtype, tuple(map(_size, shape)))


def _size(size: Size | str) -> Size:
    if isinstance(size, int) and size < 0:
        raise UsageError(f"a size is 0 or more, not {size}; a name stands for one that is open")
    return symbol(size) if isinstance(size, str) else size


def _attr(value: Any) -> Attr:
    """A user's attribute in the form that nodes hold."""
    if isinstance(value, np.ndarray | np.generic):
        return Constant.of(np.asarray(value))
    if isinstance(value, list | tuple):
        return tuple(_attr(v) for v in value)  # type: ignore[misc]
    return value  # type: ignore[no-any-return]
