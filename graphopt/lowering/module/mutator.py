"""Mutator: changed copies of graphs and modules, by a method for each op, one for each kind of op, one for all others.

A node goes to the method that it goes to in a ``Visitor``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any, Final, TypeAlias, overload

from graphopt.errors import UsageError
from graphopt.ir.annotations import in_region, region_of
from graphopt.ir.annotations import primitive as as_primitive
from graphopt.ir.graph import CONSTANT, NO_ATTRS, Attrs, Graph, Node, Value
from graphopt.ir.infer_nests import NEST
from graphopt.ir.types import TensorType
from graphopt.ir.visitor import check_methods, method
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.lower.embedded_programs import attributes
from graphopt.lowering.module.builder import GraphBuilder, ValueLike
from graphopt.lowering.module.module import DOMAIN, External, Module, opened
from graphopt.lowering.module.tensor_functions import TensorFunction


class Delete:
    """The type of ``DELETE``."""


DELETE: Final = Delete()
"""What a mutator's method returns to delete a node that nobody reads."""

Result: TypeAlias = Node | Value | tuple[Value, ...] | Delete


class Mutator:
    """Makes a changed copy of a graph, or of a module. Subclass it and write ``visit_...`` methods.

    A method returns the node to keep it, the node with changes (``dataclasses.replace``) to put that
    in its place, a value (a tuple where the node has several outputs) that its readers read from now
    on, or ``DELETE``. New nodes are made by ``emit``, ``call`` and ``emit_compute``, as a ``GraphBuilder`` makes them,
    or by ``add`` as they are. Bodies of nodes are mutated before the nodes
    that own them. A node that is replaced is removed unless new nodes read it; others that lose their last
    reader stay. New nodes are in the dataflow region of the node that they are made for.

    >>> class WithoutRelu(passes.Mutator):
    ...     def visit_Relu(self, node):
    ...         return node.inputs[0]
    ...
    ...     def visit_other(self, node):
    ...         return node
    >>> print(WithoutRelu()(dense))
    graph main (ir 10, opset 23)
    x: float32[n, 4]
    w: float32[4, 2]
    %0: float32[n, 2] = MatMul(x, w)
    return %0 as y
    >>> WithoutRelu().mutate_module(dense)
    <Module of main>
    >>> class Scheduled(passes.Mutator):
    ...     def visit_MatMul(self, node):
    ...         program = te.nest("ones", outputs=[te.compute((4, 2), lambda i, j: 1.0, name="y")])
    ...         print(self.add_function(program), self.type(node.outputs[0]), repr(self.builder))
    ...         return node
    >>> Scheduled()(dense)
    ones float32[n, 2] <GraphBuilder of <Graph main: 2 nodes>>
    <Module of main, ones>
    >>> class Unread(passes.Mutator):
    ...     def visit_other(self, node):
    ...         return passes.DELETE if not self.graph.is_used(node.id) else node
    >>> Unread()(dense) is dense
    True
    """

    graph: Graph
    """The graph: the one given until something changes, then the copy."""
    module: Module | None = None
    """The module that the graph is in, changed so far; None where a graph is mutated by itself."""
    _builder: GraphBuilder | None = None
    _version: object = None
    """That of the graph as the builder saw it."""

    @overload
    def __call__(self, given: Graph) -> Graph: ...
    @overload
    def __call__(self, given: Module) -> Module: ...
    def __call__(self, given: Graph | Module) -> Graph | Module:
        """The changed graph or module; the very one that was given where nothing changed.

        In a module each graph function is mutated, but not those that methods add to it.
        """
        return self.mutate(given) if isinstance(given, Graph) else self.mutate_module(given)

    def mutate_module(self, given: Module, chosen: Callable[[Graph], Callable[[Node], bool]] | None = None) -> Module:
        """The changed module; ``chosen`` gives what it is in ``mutate``, for each graph."""
        self.module = module = Module(given)
        try:
            for name, graph in list(given.graphs()):
                if (changed := self.mutate(graph, None if chosen is None else chosen(graph))) is not graph:
                    module[name] = opened(changed)
        finally:
            self.module = None
        is_changed = list(module) != list(given) or any(module[name] is not given[name] for name in given)
        return module if is_changed else given

    def mutate(self, graph: Graph, chosen: Callable[[Node], bool] | None = None) -> Graph:
        """The changed graph; the very one that was given where nothing changed.

        Where there is a ``chosen``, methods are called for those nodes only, and for all in their bodies. UsageError
        for a method that no op goes to, though its name is like one of theirs.
        """
        check_methods(type(self), graph)
        self.graph = self._given = graph
        for id in [node.id for node in graph.order()]:
            if id in self.graph and (chosen is None or chosen(self.graph.node(id))):
                self._bodies(self.graph.node(id))
                node, mark = self.graph.node(id), self.graph.next_id
                self._apply(node, method(self, node)(node), mark)
                self._stay_within(region_of(node), mark)
        return self.graph

    def add(
        self, op: str, inputs: tuple[Value | None, ...], attrs: Attrs = NO_ATTRS, n_outputs: int = 1
    ) -> tuple[Value, ...]:
        """The outputs of a new node."""
        return self._own().add(op, inputs, attrs, n_outputs).outputs

    def emit(
        self, op: str, inputs: Sequence[ValueLike] = (), attrs: Mapping[str, Any] | None = None, **more: Any
    ) -> Any:
        """The output of a new node that applies an ONNX op, or a tuple of several; as ``GraphBuilder.emit`` in all."""
        return self.builder.emit(op, inputs, attrs, **more)

    def emit_compute(self, function: TensorFunction, inputs: Sequence[ValueLike], **more: Any) -> Any:
        """The output of a tensor function (``self.emit_compute(tensor.softmax, [x], axis=1)``), or a tuple of several.

        It is a program of the module; without one, the node carries it. As ``GraphBuilder.emit_compute`` in all.
        """
        builder = self.builder
        made = builder.emit_compute(function, inputs, **more)
        if self.module is None:
            node = self.graph.node((made if isinstance(made, Value) else made[0]).node)
            program = builder.module[node.op.removeprefix(f"{DOMAIN}::")]
            assert isinstance(program, Nest)
            self.graph.update(node.id, op=NEST, attrs=attributes(program))
        return made

    def call(self, name: str, inputs: Sequence[ValueLike] = (), **more: Any) -> Any:
        """The output of a function of the module, or else of a registered one (``GraphBuilder.call``), or a tuple of
        several. UsageError where there is none of the name, or it does not take these inputs."""
        if self.module is not None and name in self.module and not isinstance(self.module[name], External):
            return self.builder.emit(f"{DOMAIN}::{name}", inputs, **more)
        return self.builder.call(name, inputs, **more)

    def add_function(self, function: Graph | Nest, name: str = "", *, primitive: bool = False) -> str:
        """Adds a function to the module by its name, or ``name``, and gives the name by which to ``call`` it: a number
        is put behind one that is taken; a function that is there already is not added again.

        A graph that is ``primitive`` is to become one tensor program (``FuseTensorPrograms``). UsageError where no
        module is mutated.
        """
        if self.module is None:
            raise UsageError(
                f"{type(self).__name__} adds a function, and was given a graph: call it on a module, as in "
                f"{type(self).__name__}()(module)"
            )
        return self.module.add(as_primitive(function) if primitive and isinstance(function, Graph) else function, name)

    @property
    def builder(self) -> GraphBuilder:
        """A builder of the graph, to which it adds nodes."""
        self._own()
        return self._looking()

    def type(self, value: Value) -> TensorType:
        """The type of a value. UsageError where it is no tensor, or none of the graph's."""
        return self._looking().type(value)

    def visit_other(self, node: Node) -> Result:
        """A node for which there is no method is kept."""
        return node

    def _own(self) -> Graph:
        if self.graph is self._given:
            self.graph = self.graph.copy()
        return self.graph

    def _looking(self) -> GraphBuilder:
        """A builder that knows the types of the graph as it is."""
        if self._builder is None or self._builder.graph is not self.graph or self._version is not self.graph.version:
            self._builder, self._version = GraphBuilder.over(self.graph, self.module), self.graph.version
        return self._builder

    def _bodies(self, node: Node) -> None:
        changed = {name: new for name, body in node.bodies.items() if (new := copy(self).mutate(body)) is not body}
        if changed:
            self._own().update(node.id, attrs=node.attrs.with_(**changed))

    def _apply(self, node: Node, result: Result, mark: int) -> None:
        match result:
            case Node():
                if result != node:
                    changes = {
                        name: getattr(result, name) for name in ("op", "inputs", "attrs", "n_outputs", "captures")
                    }
                    self._own().update(node.id, **changes)
            case Delete():
                self._own().remove(node.id)
            case tuple():
                self._replace(node, (result,) if isinstance(result, Value) else result, mark)
            case _:
                raise TypeError(
                    f"{method(self, node).__qualname__} returned {result!r} for node {node.id} ({node.op}): expected "
                    "the node, a value to put in its place, or DELETE"
                )

    def _stay_within(self, region: str, mark: int) -> None:
        """Let nodes made since ``mark`` be in the dataflow region of the node that they were made for."""
        if region:
            for made in [n for n in self.graph.since(mark) if n.op != CONSTANT]:
                self._own().update(made.id, origin=in_region(made.origin, region))

    def _replace(self, node: Node, values: tuple[Value, ...], mark: int) -> None:
        """Let others read the values; nodes made since ``mark`` keep what they were made to read."""
        if len(values) != node.n_outputs:
            raise TypeError(f"{len(values)} values cannot replace the {node.n_outputs} outputs of node {node.id}")
        if values == node.outputs:
            return
        graph = self._own()
        added = list(graph.since(mark))
        for old, new in zip(node.outputs, values, strict=True):
            if old in graph.types:
                graph.types.setdefault(new, graph.types[old])
            graph.replace(old, new)
        for new_node in added:
            graph.update(new_node.id, inputs=new_node.inputs)
        if not graph.is_used(node.id):
            graph.remove(node.id)
