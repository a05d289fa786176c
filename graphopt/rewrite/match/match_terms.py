"""Matching of pattern terms against values of a graph, with backtracking wherever there is a choice.

The choices are the operand orders of commutative ops, alternatives, and which inputs of a variadic op
a starred variable takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphopt.ir import ops
from graphopt.ir.constants import Constant
from graphopt.ir.graph import CONSTANT, INPUT, Node, Value
from graphopt.rewrite.guards import expressions, op_match
from graphopt.rewrite.guards.bindings import Bindings, is_several
from graphopt.rewrite.match.build import family
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.rule.notation import show_number
from graphopt.rewrite.rule.rule import AnyOf, CallPattern, Literal, Term, VarPattern, calls

ValueBindings = Bindings[Value]


class TermMatcher:
    """Matches terms in one workspace. ``reasons``, if given, collects failures with how far the match had come."""

    def __init__(self, space: Workspace, reasons: list[tuple[int, str]] | None = None) -> None:
        self.space = space
        self.graph = space.graph
        self.reasons = reasons
        self.is_asked_why = reasons is not None
        """Whether somebody wants to know why a match fails: to say so takes longer than to see it."""
        self.depth = 0
        self.place = "the root"

    def fail(self, reason: str, depth: int | None = None) -> None:
        """Note why a match fails."""
        if self.reasons is not None:
            self.reasons.append((self.depth if depth is None else depth, reason))

    def term(
        self, term: Term, value: Value | None, bindings: ValueBindings, index: int | None
    ) -> Iterator[ValueBindings]:
        """Bindings under which the term is this value. ``index``: the position within a family, if in one."""
        match term:
            case VarPattern():
                bound = self._variable(term, value, bindings, index)
                if bound is not None:
                    yield bound
            case _ if value is None:
                self.fail("an input that the rule wants is absent")
            case Literal(wanted):
                if self._literal(wanted, value):
                    yield bindings
            case AnyOf(options=options):
                for option in options:
                    yield from self.term(option, value, bindings, index)
            case CallPattern():
                yield from self._call(term, value, bindings, index)
            case _:
                self.fail("computed constants stand only in right sides")

    def _variable(
        self, var: VarPattern, value: Value | None, bindings: ValueBindings, index: int | None
    ) -> ValueBindings | None:
        name = var.name
        if name == "_":
            if value is not None:
                self.fail(f"{self._says(value)} stands where the rule wants no input")
            return bindings if value is None else None
        if value is None and not var.optional:
            self.fail(f"{name} is absent")
            return None
        if var.starred and index is not None and value is not None:
            return self._member(name, value, bindings, index)
        if name in bindings.values:
            if self._same(bindings.values[name], value):
                return bindings
            if self.is_asked_why:
                self.fail(f"{self._says(value)} is not the same value as {name}")
            return None
        bound = bindings.copy()
        bound.values[name] = value
        return bound

    def _member(self, name: str, value: Value, bindings: ValueBindings, index: int) -> ValueBindings | None:
        """Bind value number ``index`` of a starred variable."""
        members = bindings.values.get(name, ())
        assert is_several(members)
        if index < len(members):
            if self._same(members[index], value):
                return bindings
            self.fail(f"{self._says(value)} is not the same value as {name}")
            return None
        bound = bindings.copy()
        bound.values[name] = (*members, value)
        return bound

    def _same(self, a: object, b: object) -> bool:
        """Whether two values are one, or constants with equal elements."""
        if a == b:
            return True
        if not (isinstance(a, Value) and isinstance(b, Value)):
            return False
        left, right = self.graph.constant_of(a), self.graph.constant_of(b)
        if left is None or right is None:
            return False
        return left == right or ((left.dtype, left.shape) == (right.dtype, right.shape) and left.digest == right.digest)

    def _literal(self, wanted: int | float | bool | tuple[int, ...] | tuple[float, ...], value: Value) -> bool:
        constant = self.space.constant(value)
        if constant is None:
            if self.is_asked_why:
                self.fail(f"{self._says(value)} is not a constant, the rule wants {_written(wanted)}")
            return False
        if not expressions.matches_literal(constant, wanted):
            if self.is_asked_why:
                self.fail(f"{self._says(value)} is {_elements(constant)}, the rule wants {_written(wanted)}")
            return False
        return True

    def _call(
        self, call: CallPattern, value: Value, bindings: ValueBindings, index: int | None
    ) -> Iterator[ValueBindings]:
        node = self.graph.node(value.node)
        bound = self._head(call, node, value, bindings, index)
        if bound is None:
            return
        self.depth += 1
        for inner in self._inputs(call, node, bound, index):
            attrs = ops.canonical(node.op, node.attrs)
            reason = op_match.check(call, node.op, attrs, self._rank(node), inner, self.space) if call.attrs else None
            if reason is None:
                yield inner
            else:
                self.fail(reason)
        self.depth -= 1

    def _head(
        self, call: CallPattern, node: Node, value: Value, bindings: ValueBindings, index: int | None
    ) -> ValueBindings | None:
        """Check the op, and bind what can be bound before the inputs: op variable, name, and plain attributes."""
        if not call.is_variable and node.op != call.op:
            if self.is_asked_why:
                kind = {INPUT: "an input of the graph", CONSTANT: "a constant"}.get(node.op, node.op)
                self.fail(f"{self._says(value)} is {kind}, the rule wants {call.op}")
            return None
        if value.port != call.output:
            self.fail(f"output {value.port} of {node.op} is used, the rule wants output {call.output}")
            return None
        bound = bindings
        if call.name is not None:
            named = self._variable(VarPattern(call.name, starred=index is not None), value, bound, index)
            if named is None:
                return None
            bound = named
        if call.is_variable and (node.n_outputs != 1 or node.captures or node.op == CONSTANT):
            self.fail(f"{node.op} cannot stand for {call.op}")
            return None
        if bound is bindings:
            bound = bindings.copy()
        reason = op_match.bind(call, node.op, ops.canonical(node.op, node.attrs), self._rank(node), bound)
        if reason is not None:
            self.fail(reason)
            return None
        return bound

    def _rank(self, node: Node) -> int | None:
        """The rank of the first input, on which some default attributes depend."""
        return self.space.fact(node.inputs[0]).rank if node.inputs and node.inputs[0] is not None else None

    # -- inputs

    def _inputs(
        self, call: CallPattern, node: Node, bindings: ValueBindings, index: int | None
    ) -> Iterator[ValueBindings]:
        if node.captures:
            self.fail(f"{node.op} has bodies that capture values")
            return
        start = None if call.is_variable else ops.variadic_input(node.op)
        commutative = ops.is_commutative(node.op)
        if start is not None:
            terms, values = call.inputs[:start], node.inputs[:start]
            for bound in self._fixed(terms, values, bindings, index, node):
                yield from self._variadic(call.inputs[start:], node.inputs[start:], bound, index, commutative, node)
            return
        yield from self._fixed(call.inputs, node.inputs, bindings, index, node)
        if commutative and len(call.inputs) == 2 == len(node.inputs) and node.inputs[0] != node.inputs[1]:
            yield from self._fixed(call.inputs, node.inputs[::-1], bindings, index, node)

    def _fixed(
        self,
        terms: Sequence[Term],
        values: Sequence[Value | None],
        bindings: ValueBindings,
        index: int | None,
        node: Node,
    ) -> Iterator[ValueBindings]:
        """Terms and inputs one by one; missing terms and missing inputs at the end are absent."""
        if len(values) > len(terms):
            self.fail(f"{node.op} has {len(values)} inputs, the rule wants {len(terms)}")
            return
        yield from self._sequence(terms, [*values, *[None] * (len(terms) - len(values))], bindings, index, node, 0)

    def _sequence(
        self,
        terms: Sequence[Term],
        values: Sequence[Value | None],
        bindings: ValueBindings,
        index: int | None,
        node: Node,
        start: int,
    ) -> Iterator[ValueBindings]:
        for position in range(start, len(terms)):
            term, value = terms[position], values[position]
            self._look(node, value)
            if isinstance(term, VarPattern):  # of these there is one way at most, which takes no generator
                bound = self._variable(term, value, bindings, index)
                if bound is None:
                    return
                bindings = bound
            elif isinstance(term, Literal) and value is not None:
                if not self._literal(term.value, value):
                    return
            else:
                for bound in self.term(term, value, bindings, index):
                    yield from self._sequence(terms, values, bound, index, node, position + 1)
                return
        yield bindings

    def _variadic(
        self,
        terms: Sequence[Term],
        values: Sequence[Value | None],
        bindings: ValueBindings,
        index: int | None,
        commutative: bool,
        node: Node,
    ) -> Iterator[ValueBindings]:
        """Terms against any number of inputs: starred variables and families take as many as fit."""
        if not terms:
            if values:
                self.fail(f"{node.op} has {len(values)} inputs more than the rule wants")
            else:
                yield bindings
            return
        term, rest = terms[0], terms[1:]
        stars = family(term)
        if len(values) > len(terms) and not any(map(family, terms)):  # before each order of the inputs is tried
            self.fail(f"{node.op} has {len(values) - len(terms)} inputs more than the rule wants")
            return
        if commutative and not stars:
            for i, value in enumerate(values):
                self._look(node, value)
                for bound in self.term(term, value, bindings, index):
                    yield from self._variadic(rest, [*values[:i], *values[i + 1 :]], bound, index, True, node)
            return
        if commutative and rest and not all(family(t) for t in rest):  # single terms choose first
            yield from self._variadic([*rest, term], values, bindings, index, True, node)
            return
        if not stars:
            if not values:
                self.fail(f"{node.op} has too few inputs")
                return
            self._look(node, values[0])
            for bound in self.term(term, values[0], bindings, index):
                yield from self._variadic(rest, values[1:], bound, index, commutative, node)
            return
        for n in [len(values)] if not rest else range(len(values) + 1):
            for bound in self._several(term, values[:n], bindings, 0):
                yield from self._variadic(rest, values[n:], bound, index, commutative, node)

    def _several(
        self, term: Term, values: Sequence[Value | None], bindings: ValueBindings, position: int
    ) -> Iterator[ValueBindings]:
        """A starred variable, or each member of a family, against these values."""
        names = starred_names(term)
        if position == 0:
            if isinstance(term, VarPattern):
                present = tuple(v for v in values if v is not None)
                before = bindings.values.get(term.name)
                if len(present) < len(values):
                    self.fail(f"an input of {term.name} is absent")
                elif before is None:
                    bound = bindings.copy()
                    bound.values[term.name] = present
                    yield bound
                elif is_several(before) and len(before) == len(present) and all(map(self._same, before, present)):
                    yield bindings
                return
            if not values:
                return
            bindings = bindings.copy()
            for name in names:
                bindings.values.setdefault(name, ())
        if position == len(values):
            if all(len(m) == len(values) for n in names if is_several(m := bindings.values[n])):
                yield bindings
            return
        for bound in self.term(term, values[position], bindings, position):
            yield from self._several(term, values, bound, position + 1)

    # -- words

    def _says(self, value: Value | None) -> str:
        """The value in words: its name, or where it is read."""
        if value is None:
            return "nothing"
        return self.graph.names.get(value, self.place)

    def _look(self, node: Node, value: Value | None) -> None:
        """Remember which input is looked at, for the words of a failure."""
        if self.reasons is not None:
            self.place = f"input {node.inputs.index(value) if value in node.inputs else len(node.inputs)} of {node.op}"


def starred_names(term: Term) -> list[str]:
    """What each member of a family binds for itself: its starred variables, and the names of its calls."""
    return [*family(term), *call_names((term,))]


def call_names(terms: Sequence[Term]) -> list[str]:
    """The names that calls give their values."""
    return list(dict.fromkeys(c.name for t in terms for c in calls(t) if c.name is not None))


def _written(wanted: object) -> str:
    if isinstance(wanted, tuple):
        return f"[{', '.join(map(_written, wanted))}]"
    return show_number(wanted)  # type: ignore[arg-type]


def _elements(constant: Constant) -> str:
    if constant.size == 1:
        return str(constant.array.reshape(-1)[0])
    return f"{constant.dtype}{list(constant.shape)}"
