"""Regions of a graph as terms of a rule: what one computes, in terms of the values that enter it.

A value from outside is a variable, the same one wherever it is read. A constant of few elements is a
literal; what becomes of others is for the caller to say. A value of the region that is read more than
once is spelled once and named (``Relu(x) as m``) on left sides, and spelled again on right sides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from graphopt.errors import RuleError, UsageError
from graphopt.frozen import dataclass
from graphopt.ir import ops
from graphopt.ir.constants import Constant
from graphopt.ir.facts import Fact
from graphopt.ir.functions import own_calls
from graphopt.ir.graph import Attr, AttrRef, Graph, Node, Value
from graphopt.ir.types import is_anonymous
from graphopt.rewrite.guards.expressions import SETS, matches_literal, named_set
from graphopt.rewrite.match.describe import name_of
from graphopt.rewrite.reading.wellformed import DEEPEST
from graphopt.rewrite.rule.notation import RESERVED
from graphopt.rewrite.rule.rule import (
    ABSENT,
    CallPattern,
    Field,
    FunctionCall,
    GuardExpr,
    IndexExpr,
    Lit,
    Literal,
    NameRef,
    Series,
    Term,
    VarPattern,
)

FEW = 8
"""Constants of rank 1 with at most this many numbers are written out: shapes, axes, pads."""
LARGEST = 2_000
"""The calls of a term at most, what is read twice counted twice."""
_OP = re.compile(r"[A-Za-z]\w*|[A-Za-z_][\w.]*::[A-Za-z_]\w*")
_RULE = re.compile(r"[A-Za-z][\w-]*")
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class GraphRegion:
    """Nodes of a graph, in order, and the values of theirs that are read outside."""

    graph: Graph
    nodes: tuple[Node, ...]
    roots: tuple[Value, ...]


def region_of(graph: Graph, ids: Iterable[int]) -> GraphRegion:
    """The region of these nodes; its roots are what others read of them, and what the graph gives."""
    inside = set(ids)
    nodes = tuple(node for node in graph.order() if node.id in inside)
    produced = [value for node in nodes for value in node.outputs]
    roots = [v for v in produced if graph.is_output(v) or any(user not in inside for user, _ in graph.users(v))]
    return GraphRegion(graph, nodes, tuple(roots))


def between(graph: Graph, first: Sequence[Node], last: Sequence[Node]) -> GraphRegion:
    """The region of all nodes on the ways from the first nodes to the last, these included.

    Raises UsageError where a last node does not depend on a first one, or a first one leads to no last one.
    """
    after = _reached([n.id for n in first], lambda id: graph.readers(id))
    before = _reached([n.id for n in last], lambda id: [v.node for v in graph.node(id).inputs if v is not None])
    for ends, reached, words in (
        (last, after, "{} does not depend on {}"),
        (first, before, "{} does not lead to {}"),
    ):
        for node in ends:
            if node.id not in reached:
                others = " or ".join(name_of(graph, n) for n in (first if ends is last else last))
                raise UsageError(f"{words.format(name_of(graph, node), others)}: a region follows the data flow")
    return region_of(graph, after & before)


def _reached(ids: Iterable[int], following: Callable[[int], Iterable[int]]) -> set[int]:
    waiting = list(ids)
    reached = set(waiting)
    while waiting:
        new = [n for n in following(waiting.pop()) if n not in reached]
        reached.update(new)
        waiting += new
    return reached


Constants = Callable[[Value, Constant, str], Term]
"""What stands for a constant that is no literal; the text is a name for a variable."""


class TermWriter:
    """Writes values of a region as terms. ``variables`` are values from outside, in the order of their appearance;
    ``attributes`` what variables stand for where an attribute is no number or text."""

    def __init__(
        self,
        region: GraphRegion,
        constants: Constants | None = None,
        variables: Mapping[Value, VarPattern] | None = None,
        shares: bool = True,
    ) -> None:
        self.region, self.graph = region, region.graph
        self.inside = {node.id for node in region.nodes}
        self.variables = dict(variables or {})
        self.attributes: dict[str, Attr] = {}
        self.constants, self.shares = constants, shares
        self.taken = {v.name for v in self.variables.values()}
        self.named: dict[Value, str] = {}
        self._check_size()

    def roots(self) -> tuple[Term, ...]:
        """The terms of the roots. Raises UsageError where the region holds what no pattern can say."""
        return tuple(self.term(root) for root in self.region.roots)

    def term(self, value: Value | None, suggested: str = "x") -> Term:
        """The term of a value; ``suggested`` is a name for it where it is a variable."""
        if value is None:
            return ABSENT
        if value in self.variables:
            return self.variables[value]
        if value in self.named:
            return VarPattern(self.named[value])
        constant = self.graph.constant_of(value)
        if constant is not None:
            literal = literal_of(constant)
            if literal is not None:
                return literal
            if self.constants is not None:
                return self.constants(value, constant, suggested)
        if value.node not in self.inside:
            return self.variable(value, suggested)
        return self.call(self.graph.node(value.node), value)

    def variable(self, value: Value, suggested: str) -> VarPattern:
        """A new variable for a value."""
        variable = self.variables[value] = VarPattern(self.free(suggested))
        return variable

    def free(self, suggested: str) -> str:
        """A name that is not in use, like the one suggested."""
        name = identifier(suggested)
        number = 1
        while (candidate := name if number == 1 else f"{name}{number}") in self.taken:
            number += 1
        self.taken.add(candidate)
        return candidate

    def call(self, node: Node, value: Value) -> CallPattern:
        """The call that makes a value."""
        self._check_op(node)
        schema = ops.schema(node.op)
        formals = [schema.input(i) if schema else None for i in range(len(node.inputs))]
        is_shared = self.shares and self._uses(value) > 1
        inputs = tuple(
            self.term(v, f.name.lower() if f is not None else "x") for v, f in zip(node.inputs, formals, strict=True)
        )
        handed = {n: a for n, a in node.attrs.items() if isinstance(a, AttrRef)}  # whatever the default is
        said = ops.canonical(node.op, node.attrs.with_(**dict.fromkeys(handed))).with_(**handed)
        attrs = tuple((n, self.attribute(node, n, a)) for n, a in said.items())
        call = CallPattern(node.op, inputs, attrs, output=value.port)
        if not is_shared:
            return call
        self.named[value] = self.free("m")
        return replace(call, name=self.named[value])

    def attribute(self, node: Node, name: str, value: Attr) -> GuardExpr:
        """An attribute as an expression: numbers and texts as they are, others as a variable."""
        expr = as_expr(value)
        if expr is None:
            expr = NameRef(self.free(name))
            self.attributes[expr.name] = value
        return expr

    def _uses(self, value: Value) -> int:
        """How often the region reads a value, or gives it."""
        return sum(user in self.inside for user, _ in self.graph.users(value)) + (value in self.region.roots)

    def _check_op(self, node: Node) -> None:
        name = name_of(self.graph, node)
        if node.bodies or node.captures:
            raise UsageError(f"{name} is {node.op}, which has bodies; rules have no notation for those")
        if not _OP.fullmatch(node.op):
            raise UsageError(f"{name} is {node.op!r}, an op that rules cannot name")

    def _check_size(self) -> None:
        """Refuse what would be deeper, or longer written out, than a rule may be."""
        depth: dict[int, int] = {}
        length: dict[int, int] = {}
        for node in self.region.nodes:
            inner = [v.node for v in node.inputs if v is not None and v.node in depth]
            depth[node.id] = 1 + max((depth[i] for i in inner), default=1)
            length[node.id] = 1 + sum(length[i] for i in inner)
        deepest = max(depth.values(), default=0)
        if deepest > DEEPEST:
            raise UsageError(f"{deepest} ops lie one behind the other; a rule takes {DEEPEST}: choose a smaller region")
        if not self.shares and sum(length[v.node] for v in self.region.roots if v.node in length) > LARGEST:
            raise UsageError(f"written out as a term this has more than {LARGEST} ops: choose something smaller")


def whole(graph: Graph) -> GraphRegion:
    """The region of everything that a graph computes; its roots are the graph's outputs in their order."""
    nodes = tuple(own_calls(graph))
    if None in graph.outputs:
        raise RuleError(f"{graph.name}: an output is missing, so that there is nothing to replace by it")
    return GraphRegion(graph, nodes, tuple(v for v in graph.outputs if v is not None))


def identifier(name: str) -> str:
    """A name that a variable of a rule can have, as like the given one as possible."""
    word = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "x"
    word = word if _NAME.fullmatch(word) else f"x{word}"
    return f"{word}_" if word in RESERVED or word in SETS or word == "opset" else word


def rule_name(name: str) -> str:
    """The name of a rule, as it is. RuleError where rule files cannot write it."""
    if not _RULE.fullmatch(name):
        raise RuleError(f"{name!r} is no name for a rule: it takes letters, digits, - and _, a letter first")
    return name


def literal_of(constant: Constant) -> Literal | None:
    """The literal that matches the constant, and that makes it again where one like it stood; None where none does."""
    if constant.dtype == "string" or "complex" in constant.dtype or len(constant.shape) > 1:
        return None
    if constant.size > (FEW if "int" in constant.dtype and constant.shape else 1) or not constant.size:
        return None
    numbers = tuple(_number(constant, element) for element in constant.array.reshape(-1))
    value = numbers if constant.shape else numbers[0]
    return Literal(value) if matches_literal(constant, value) else None


def _number(constant: Constant, element: object) -> int | float | bool:
    """An element as the shortest Python number that rounds to it."""
    if constant.dtype == "bool":
        return bool(element)
    return int(element) if "int" in constant.dtype else float(str(element))  # type: ignore[call-overload]


def as_expr(value: Attr) -> GuardExpr | None:
    """An attribute as an expression; None where there is no notation for it."""
    if isinstance(value, AttrRef):
        return NameRef(value.name)
    if isinstance(value, int | float | str):
        return Lit(value)
    if isinstance(value, tuple):
        items = [as_expr(v) for v in value]
        return None if None in items else Series(tuple(i for i in items if i is not None))
    return None


@dataclass(frozen=True, slots=True)
class RegionGuard:
    """A guard of a rule, and why it is there."""

    expr: GuardExpr
    why: str


def guards_on(variables: Mapping[str, Fact]) -> list[RegionGuard]:
    """What is known of the types of variables as guards: dtype, rank, each size, and which open sizes are one.

    Of constants it is also that they are constants.
    """
    guards: list[RegionGuard] = []
    seen: dict[object, GuardExpr] = {}
    for name, fact in variables.items():
        ref = NameRef(name)
        if fact.is_const:
            guards.append(
                RegionGuard(Field(ref, "is_const"), "seen here: keep it where the right side computes with it")
            )
        if fact.dtype is not None:
            guards.append(RegionGuard(_is(Field(ref, "dtype"), Lit(fact.dtype)), _any_float(name, fact.dtype)))
        if fact.shape is None:
            continue
        guards.append(
            RegionGuard(_is(Field(ref, "rank"), Lit(len(fact.shape))), "seen here: drop it if any rank will do")
        )
        for axis, size in enumerate(fact.shape):
            here = IndexExpr(Field(ref, "shape"), Lit(axis))
            if isinstance(size, int):
                guards.append(RegionGuard(_is(here, Lit(size)), "seen here: drop it if any size will do"))
            elif size not in seen:
                seen[size] = here
            else:
                called = "" if is_anonymous(size) else f", {size}"
                guards.append(RegionGuard(_is(here, seen[size]), f"one open size{called}: drop it if they may differ"))
    return guards


def _any_float(name: str, dtype: str) -> str:
    weaker = f"`{name}.dtype in float` takes all floats" if dtype in named_set("float") else "drop it if any will do"
    return f"seen here: {weaker}"


def _is(left: GuardExpr, right: GuardExpr) -> GuardExpr:
    return FunctionCall("==", (left, right))
