"""Dispatch by pattern: regions of a graph that match one go to a library, or to a user's function, as one call."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from graphopt.errors import RuleError, UsageError
from graphopt.ir import ops
from graphopt.ir.annotations import is_primitive, primitive
from graphopt.ir.custom_ops import added
from graphopt.ir.functions import calls
from graphopt.ir.graph import Attr, Attrs, Graph, Node, Value
from graphopt.ir.infer import infer
from graphopt.ir.infer_nests import NEST
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.lower.embedded_programs import attributes, inputs_of
from graphopt.lowering.module.module import DOMAIN, External, Module, opened
from graphopt.lowering.module.passes import ModulePass, Pass
from graphopt.lowering.module.subgraph import extracted
from graphopt.rewrite.guards.bindings import is_several
from graphopt.rewrite.match.matcher import Match, footprint, matches, root_ops
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.rule.rule import Rule, Term, variables


def fuse_by_pattern(patterns: Mapping[str, str | Nest], name: str = "fuse_by_pattern") -> Pass:
    """A pass that puts one call in the place of each region that a pattern matches, the first of the patterns first.

    A pattern is written as the left side of a rule, with its guards (``Relu(Add(MatMul(x, w), b)) where w.rank == 2``).
    What takes the region's place is the registered function of the name, or a tensor program. It gets the pattern's
    variables as inputs, in order of appearance (``_`` is absent), and the attributes that the pattern binds as its own:
    ``Gemm(x, w, b, alpha=a)`` gives it ``a``. That it computes what the region does is the user's word. A region stays
    where something else of it is read outside, or where it has effects.

    Raises RuleError for a pattern that cannot be read, and UsageError for a function that is not registered.
    """
    rules = [(_read(pattern), to) for pattern, to in patterns.items()]
    for rule, to in rules:
        if isinstance(to, str):
            user = added(External(to).op)
            if user is None or user.function is None:
                raise UsageError(f"{to} is not registered: graphopt.register({to!r}, function)")
        elif len(inputs_of(to)) != len(variables(rule.lhs[0])) or len(to.outputs) != 1:
            raise UsageError(f"{to.name} has to take what the variables of its pattern are, and give one result")

    def fused(graph: Graph) -> Graph:
        return _Fuser(graph, rules).run()

    return Pass(name, fused)


class RunLibraryDispatch(ModulePass):
    """Regions that match a pattern become calls of libraries' functions: ``fuse_by_pattern`` on a module, which has the
    functions and programs that are called from then on. It raises what that does.

    >>> @graphopt.register("my.product")
    ... def product(x, w, out):
    ...     np.matmul(x, w, out=out)
    >>> print(passes.RunLibraryDispatch({"MatMul(x, w)": "my.product"})(dense))
    graph main (ir 10, opset 23)
    x: float32[n, 4]
    w: float32[4, 2]
    %0: float32[n, 2] = my::product(x, w)
    %1: float32[n, 2] = Relu(%0)
    return %1 as y
    <BLANKLINE>
    external my.product
    """

    def __init__(self, patterns: Mapping[str, str | Nest]) -> None:
        self.patterns = dict(patterns)
        self.fuse = fuse_by_pattern(patterns, self.name)

    def change(self, module: Module) -> Module:
        """The module with calls in place of regions."""
        changed = self.fuse(module)
        if changed is module:
            return module
        there = {node.op for _, graph in changed.graphs() for node in calls(graph)}
        for to in self.patterns.values():
            if isinstance(to, str) and External(to).op in there:
                user = added(External(to).op)
                changed.setdefault(to, External(to, user is not None and user.effects))
        return changed.without_carried()


class FuseOpsByPattern(ModulePass):
    """Regions that match a pattern become graph functions by the pattern's name, which the graph calls instead:
    ``FuseOpsByPattern({"dense": "Add(MatMul(x, w), b)"})``, the first of the patterns first.

    Patterns are written as for ``fuse_by_pattern``. A function's first inputs are the pattern's variables, in order of
    appearance. Functions are ``primitive``: ``FuseTensorPrograms`` makes one program of each; a ``primitive`` function
    is looked into no more. Raises RuleError for a pattern that cannot be read.

    >>> print(passes.FuseOpsByPattern({"product": "Relu(MatMul(x, w))"})(dense))
    graph main (ir 10, opset 23, module 1)
    x: float32[n, 4]
    w: float32[4, 2]
    %0: float32[n, 2] = module::product(x, w)
    return %0 as y
    <BLANKLINE>
    graph product (ir 10, opset 23, primitive)
    x0: float32[n, 4]
    x1: float32[4, 2]
    %0: float32[n, 2] = MatMul(x0, x1)
    %1: float32[n, 2] = Relu(%0)
    return %1 as y
    """

    def __init__(self, patterns: Mapping[str, str]) -> None:
        self.rules = [(_read(pattern), name) for name, pattern in patterns.items()]

    def change(self, module: Module) -> Module:
        """The module with functions for regions."""
        for name, graph in list(module.graphs()):
            if not is_primitive(graph):
                module[name] = opened(_Fuser(graph, self.rules, module).run())
        return module


def _read(pattern: str) -> Rule:
    """The rule of which the pattern is the left side; its right side is nothing that is ever built."""
    left, where, guards = pattern.partition(" where ")
    guarded = f"\n    where {guards}" if where else ""
    rules = parse_rules(f"# handed over [A1] approx\npattern: {left} => {{0}}{guarded}\n", "<pattern>")
    if len(rules) != 1 or len(rules[0].lhs) != 1:
        raise RuleError(f"{pattern!r} is several patterns, and one with one root is expected")
    return rules[0]


class _Fuser:
    """One run over one graph."""

    def __init__(self, graph: Graph, rules: Sequence[tuple[Rule, str | Nest]], module: Module | None = None) -> None:
        """With a ``module``, what is named are functions of it that regions become."""
        self.given, self.rules, self.module = graph, rules, module

    def run(self) -> Graph:
        space = Workspace(self.given.copy(), infer(self.given))
        for rule, to in self.rules:
            wanted = root_ops(rule)
            for node in reversed(space.graph.order()):
                if node.id in space.graph and (wanted is None or node.op in wanted):
                    self.at(space, rule, to, node)
        return space.graph if space.edits else self.given

    def at(self, space: Workspace, rule: Rule, to: str | Nest, node: Node) -> None:
        """Hand over the region with this root, if there is one."""
        for match in matches(rule, space, node):
            region = footprint(space.graph, match)
            if self.is_closed(space.graph, match, region):
                self.replace(space, match, to, node, region)
                return

    def is_closed(self, graph: Graph, match: Match, region: Collection[int]) -> bool:
        """Whether nobody reads anything of the region but its root, and nothing in it has effects."""
        (root,) = match.roots
        for id in region:
            node = graph.node(id)
            if not ops.is_pure(node.op, node.attrs):
                return False
            for value in node.outputs:
                if value != root and (graph.is_output(value) or any(u not in region for u, _ in graph.users(value))):
                    return False
        return True

    def replace(self, space: Workspace, match: Match, to: str | Nest, node: Node, region: Collection[int]) -> None:
        (root,) = match.roots
        inputs, fact = tuple(_bound(match, match.rule.lhs[0])), space.fact(root)
        if self.module is not None and isinstance(to, str):
            op, inputs = self.function(space, self.module, to, root, inputs, region)
            attrs = Attrs()
        else:
            op, attrs = (External(to).op, Attrs(dict(_attrs(match)))) if isinstance(to, str) else (NEST, attributes(to))
        (value,) = space.add(op, inputs, attrs, origin=node.origin)
        if fact.type is not None:
            space.graph.types[value] = fact.type
            space.facts[value] = fact
        space.replace(root, value)
        space.drop_orphans()

    def function(
        self,
        space: Workspace,
        module: Module,
        name: str,
        root: Value,
        bound: tuple[Value | None, ...],
        region: Collection[int],
    ) -> tuple[str, tuple[Value | None, ...]]:
        """The op of the function that a region becomes, and what it takes."""
        nodes = [n for n in space.graph.order() if n.id in region]
        facts = {v: space.fact(v) for n in nodes for v in (*n.inputs, *n.outputs) if v is not None}
        first = [v for v in bound if v is not None]
        part, inputs = extracted(space.graph, facts, nodes, [root], name, lambda v: v not in first, first)
        return f"{DOMAIN}::{module.add(primitive(part))}", tuple(inputs)


def _bound(match: Match, pattern: Term) -> Iterator[Value | None]:
    """What the variables of the pattern stand for, in order of appearance."""
    for var in variables(pattern):
        bound = match.bindings.values.get(var.name)
        yield from bound if is_several(bound) else (bound,)


def _attrs(match: Match) -> Iterator[tuple[str, Attr]]:
    """The attributes that the pattern binds, by its names for them."""
    for name, value in sorted(match.bindings.attrs.items()):
        if isinstance(value, Attrs):
            yield from value.items()
        elif value is not None:
            yield name, value
