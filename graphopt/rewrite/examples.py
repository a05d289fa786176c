"""Small graphs in which the left side of a rule occurs, made from the rule alone.

Root first, every call is asked what its operands should be (``samples.py``); operands that the
pattern leaves open become inputs or constants of what they should be. Guards are read for hints
(dtypes, ranks, constness, numbers), and where the finished graph fails a guard that is an equation,
the equation is solved for one of its parts and the graph is made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import ml_dtypes
import numpy as np

from graphopt.errors import GraphoptError
from graphopt.ir import ops
from graphopt.ir.constants import Array, Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Attr, Attrs, Graph, Header, Value
from graphopt.ir.infer import infer
from graphopt.ir.types import TensorType
from graphopt.rewrite import expressions
from graphopt.rewrite.bindings import Bindings
from graphopt.rewrite.match import Match, matches
from graphopt.rewrite.rule import (
    AnyOf,
    Apply,
    Call,
    Each,
    Expr,
    Field,
    Item,
    Lit,
    Literal,
    Ref,
    Rule,
    Series,
    Term,
    Var,
    calls,
)
from graphopt.rewrite.samples import Misfit, Operand, Sample, Want, sampler_of
from graphopt.rewrite.workspace import Workspace

LARGEST = 32
"""Axes are at most this long."""
FLOATS = ("float32", "float32", "float32", "float64")
COMMON = ("float32", "float32", "float32", "int64", "int32", "float64", "bool", "float16")


@dataclass(frozen=True)
class Example:
    """A graph in which a rule matches, with the match, and arrays for the graph's inputs."""

    graph: Graph
    match: Match
    draw: Callable[[np.random.Generator, str], dict[str, Array]]
    """Arrays for the inputs: ``plain`` numbers, ``positive`` ones, or ``special`` ones (NaN, infinities, zeros)."""


def examples(rule: Rule, random: Random, tries: int) -> Iterator[Example | str]:
    """Graphs in which the rule matches; for each try that is none, the reason."""
    hints = Hints.of(rule)
    for _ in range(tries):
        try:
            yield _Draft(rule, hints, random).example()
        except (Misfit, GraphoptError) as error:
            yield str(error)


# -- hints


@dataclass
class Hints:
    """What the guards of a rule say about what is worth trying."""

    dtypes: dict[str, frozenset[str]] = field(default_factory=dict)
    constants: set[str] = field(default_factory=set)
    variables: set[str] = field(default_factory=set)
    single: set[str] = field(default_factory=set)
    bounded: set[str] = field(default_factory=set)
    heads: dict[str, tuple[str, ...]] = field(default_factory=dict)
    ranks: list[int] = field(default_factory=list)
    rank_of: dict[str, int] = field(default_factory=dict)
    numbers: list[float] = field(default_factory=list)
    strings: list[str] = field(default_factory=list)
    opset: int = ops.LATEST

    @staticmethod
    def of(rule: Rule) -> Hints:
        """The hints of a rule."""
        hints = Hints()
        for guard in rule.where:
            hints._guard(guard)
        for expr in (*rule.where, *_expressions(rule)):
            hints._mentions(expr)
        hints.constants -= hints.variables
        return hints

    def _guard(self, guard: Expr) -> None:
        match guard:
            case Apply("and", parts):
                for part in parts:
                    self._guard(part)
            case Apply("not", (Field(Ref(name), "is_const"),)):
                self.variables.add(name)
            case Field(Ref(name), "is_const"):
                self.constants.add(name)
            case Apply("in", (Field(Ref(name), "dtype"), Ref(kind))):
                self.dtypes[name] = expressions.named_set(kind)
            case Apply("in", (Field(Ref(name), "dtype"), Series(items))):
                self.dtypes[name] = frozenset(str(i.value) for i in items if isinstance(i, Lit))
            case Apply("or", (Apply("in", (Field(Ref(name), "dtype"), Ref(a))), Apply("in", (Field(), Ref(b))))):
                self.dtypes[name] = expressions.named_set(a) | expressions.named_set(b)
            case Apply("==", (Field(Ref(name), "dtype"), Lit(value))):
                self.dtypes[name] = frozenset([str(value)])
            case Apply("in", (Ref(name), Ref(kind))):
                self.heads[name] = tuple(sorted(expressions.named_set(kind)))
            case Apply("in", (Ref(name), Series(items))):
                self.heads[name] = tuple(str(i.value) for i in items if isinstance(i, Lit))
            case Apply("==", (Ref(name), Lit(str(value)))):
                self.heads[name] = (value,)
            case Apply("==", (Field(Ref(name), "size"), Lit(1))):
                self.single.add(name)
            case Apply("==", (Field(Ref(name), "rank"), Lit(int(rank)))):
                self.rank_of[name] = rank
            case Apply("<", (Ref("opset"), Lit(int(limit)))):
                self.opset = limit - 1
            case Apply("<=", (Ref("opset"), Lit(int(limit)))):
                self.opset = limit

    def _mentions(self, expr: Expr) -> None:
        match expr:
            case Field(Ref(name), "value" | "scalar" | "elements"):
                self.constants.add(name)
            case Field(Ref(name), "low" | "high"):
                self.bounded.add(name)
            case Apply("==" | ">=" | ">" | "<=" | "<", (Field(_, "rank"), Lit(int(rank)))):
                self.ranks += [rank] * 3
            case Lit(str(text)):
                self.strings.append(text)
            case Lit(int() | float() as number) if not isinstance(number, bool):
                self.numbers.append(number)
            case Apply("/", (Lit(float(a)), Lit(float(b)))):
                self.numbers.append(a / b)
        for part in _parts(expr):
            self._mentions(part)


def _parts(expr: Expr) -> tuple[Expr, ...]:
    match expr:
        case Apply(_, items) | Series(items):
            return items
        case Field(of) | Each(of):
            return (of,)
        case Item(of, index, stop):
            return tuple(e for e in (of, index, stop) if e is not None)
    return ()


def _expressions(rule: Rule) -> Iterator[Expr]:
    """The expressions on the right side and in attributes of the left."""
    waiting: list[Term] = [*rule.lhs, *rule.rhs]
    while waiting:
        term = waiting.pop()
        match term:
            case Call(inputs=inputs, attrs=attrs):
                waiting.extend(inputs)
                yield from (e for _, e in attrs)
            case AnyOf(options):
                waiting.extend(options)
            case _:
                if hasattr(term, "expr"):
                    yield term.expr


# -- the pattern, written out


@dataclass(eq=False)
class Leaf:
    """An operand that the pattern leaves open."""

    key: str
    name: str


@dataclass(eq=False)
class Number:
    """A literal of the pattern."""

    value: Any
    want: Want = field(default_factory=Want)


@dataclass(eq=False)
class Step:
    """A call of the pattern, with everything starred written out."""

    call: Call
    op: str
    inputs: list[Leaf | Number | Step | None]
    attrs: dict[str, Attr] = field(default_factory=dict)
    n_outputs: int = 1
    drawn: bool = False
    value: Value | None = None
    graph: Graph | None = None


Tree = Leaf | Number | Step


class _Draft:
    """One attempt at an example."""

    def __init__(self, rule: Rule, hints: Hints, random: Random) -> None:
        self.rule, self.hints, self.random = rule, hints, random
        self.opset = min(hints.opset, random.choice((ops.LATEST, ops.LATEST, ops.LATEST, 21, 17)))
        self.even = random.choice((2, 3)) if random.random() < 0.25 else None
        self.counts: dict[str, int] = {}
        self.present: dict[str, bool] = {}
        self.heads: dict[str, str] = {}
        self.attrs: dict[str, Attr | None] = {}
        self.rests: dict[str, dict[str, Attr | None]] = {}
        self.leaves: dict[str, Want] = {}
        self.widest: dict[str, int] = {}
        self.named: dict[str, Step] = {}
        self.steps: list[Step] = []
        self.pinned: dict[str, Want] = {}
        self.calls = {c.name: c for term in rule.lhs for c in calls(term) if c.name is not None}
        self.roots = [tree for term in rule.lhs for tree in self.written_out(term)]

    # -- writing out

    def written_out(self, term: Term) -> list[Tree]:
        """The roots that a term stands for."""
        stars = _stars(term)
        if not stars:
            tree = self.tree(term, None)
            return [] if tree is None else [tree]
        n = self.counts.setdefault(stars[0], self.random.randint(2, 3))
        for name in stars:
            self.counts[name] = n
        return [t for i in range(n) if (t := self.tree(term, i)) is not None]

    def tree(self, term: Term, index: int | None) -> Tree | None:
        match term:
            case Var("_"):
                return None
            case Var(name, optional, starred):
                if name in self.calls:
                    return self.named.get(name) or self.step(self.calls[name], index)
                if optional and not self.present.setdefault(name, self.random.random() < 0.6):
                    return None
                return Leaf(f"{name}.{index}" if starred else name, name)
            case Literal(value):
                return Number(value)
            case AnyOf(options):
                return self.tree(self.random.choice(options), index)
            case Call():
                return self.step(term, index)
        raise Misfit("a computed constant on the left")

    def step(self, call: Call, index: int | None) -> Step:
        op = call.op
        if call.is_variable:
            options = [o for o in self.hints.heads.get(op, ("Relu", "Neg", "Abs")) if self.takes(o, len(call.inputs))]
            if not options:
                raise Misfit(f"no op for {op}")
            op = self.heads.setdefault(op, self.random.choice(options))
        start = ops.variadic_input(op)
        inputs: list[Tree | None] = []
        for i, term in enumerate(call.inputs):
            stars = _stars(term) if start is not None and i >= start else ()
            if stars and index is None:
                alone = len(call.inputs) - start == 1 if start is not None else True
                least = 0 if isinstance(term, Var) and not alone else 1
                n = self.counts.get(stars[0]) or self.random.randint(least, 3 if alone else 2)
                self.counts.update(dict.fromkeys(stars, n))
                inputs += [self.tree(term, k) for k in range(n)]
            else:
                inputs.append(self.tree(term, index))
        while inputs and inputs[-1] is None:
            inputs.pop()
        several = ops.max_outputs(op) is None
        n_outputs = self.random.randint(call.output + 1, 3) if several else call.output + 1
        step = Step(call, op, inputs, n_outputs=n_outputs)
        self.steps.append(step)
        if call.name is not None:
            return self.named.setdefault(call.name, step)
        return step

    def takes(self, op: str, n: int) -> bool:
        schema = ops.schema(op, self.opset)
        if schema is None or schema.max_inputs is None:
            return schema is not None
        return schema.min_inputs <= n <= schema.max_inputs

    # -- drawing

    def example(self) -> Example:
        """The example. Raises Misfit where this attempt makes none."""
        self.draw_roots()
        return self.matched()

    def draw_roots(self) -> None:
        for root in self.roots:
            dtypes = [d for d in COMMON if all(d in s for s in self.hints.dtypes.values())] or list(FLOATS)
            ranks = [*self.hints.ranks, 1, 2, 2, 3, 4, 4]
            shape = tuple(self.size() for _ in range(self.random.choice(ranks)))
            self.draw(root, Want(None if self.random.random() < 0.15 else shape, self.random.choice(dtypes)))

    def redraw(self) -> None:
        """Draw everything again around the operands that guards have pinned down."""
        self.leaves = dict(self.pinned)
        self.pinned = {}
        self.attrs, self.rests = {}, {}
        for step in self.steps:
            step.drawn = False
            step.attrs = {}
        self.draw_roots()

    def matched(self) -> Example:
        """The example, once everything is drawn."""
        reason = ""
        for _ in range(5):
            try:
                graph, inputs = self.graph()
            except (Misfit, GraphoptError):
                if not self.pinned:
                    raise
                self.redraw()
                graph, inputs = self.graph()
            space = Workspace(graph)
            node = graph.node(graph.outputs[0].node)  # type: ignore[union-attr]
            for found in matches(self.rule, space, node):
                if list(found.roots) == graph.outputs:
                    return Example(graph, found, inputs)
            reason, changed = self.repaired(space, graph)
            if not changed:
                break
        raise Misfit(reason)

    def size(self) -> int:
        return self.even or self.random.choice((1, 2, 2, 3, 3, 4))

    def draw(self, tree: Tree | None, want: Want) -> None:
        """Settle what a part of the pattern is, given what it should be."""
        match tree:
            case Leaf():
                self.leaf(tree, want)
            case Number():
                tree.want = want
            case Step():
                self.call(tree, want)

    def leaf(self, leaf: Leaf, want: Want) -> None:
        rank = len(want.shape or ())
        self.widest[leaf.key] = rank
        if leaf.key in self.leaves:
            return
        shape = want.shape
        if shape is None:
            shape = tuple(
                self.random.choice((1, 2, 3)) for _ in range(self.random.choice((*self.hints.ranks, 1, 2, 3)))
            )
        if leaf.name in self.hints.single:
            shape = (1,) * self.random.randint(0, max(len(shape), 1))
            want = replace(want, value=None) if isinstance(want.value, tuple) and len(want.value) != 1 else want
        wanted = self.hints.rank_of.get(leaf.name)
        if wanted == 0 and isinstance(want.value, tuple) and want.value:
            want, shape = replace(want, value=want.value[0]), ()
        elif wanted == 1 and want.value is not None and not isinstance(want.value, tuple):
            want, shape = replace(want, value=(want.value,)), (1,)
        elif wanted is not None and wanted != len(shape) and want.value is None:
            shape = (*shape[-wanted:],) if wanted < len(shape) and wanted else (1,) * (wanted - len(shape)) + shape
            shape = shape if wanted else ()
        dtype = want.dtype
        allowed = self.hints.dtypes.get(leaf.name)
        if dtype is None or (allowed is not None and dtype not in allowed):
            options = [d for d in COMMON if allowed is None or d in allowed] or sorted(allowed or ())
            dtype = self.random.choice(options)
        self.leaves[leaf.key] = replace(want, shape=shape, dtype=dtype)

    def call(self, step: Step, want: Want) -> None:
        known = [self.operand(tree) for tree in step.inputs]

        def attr(name: str, default: Any, choose: Callable[[], Any]) -> Any:
            if schema is None or name not in schema.defaults:
                return default
            value = self.attribute(step, name, default, choose)
            if value is not None:
                step.attrs[name] = value
            return value

        schema = ops.schema(step.op)
        if step.drawn:
            return
        step.drawn = True
        sample = Sample(
            self.random,
            step.op,
            want,
            known,
            attr,
            self.hints.ranks,
            self.hints.strings,
            step.call.output,
            step.n_outputs,
            self.even,
        )
        wants = sampler_of(step.op, ops.kind(step.op))(sample)
        wants = [*wants, *[Want()] * (len(step.inputs) - len(wants))]
        letters: dict[str, str] = {}
        result = ops.output_constraint(step.op, step.call.output)
        if want.dtype is not None and (schema is None or want.dtype in schema.allowed.get(result, (want.dtype,))):
            letters[result] = want.dtype
        for i, operand in enumerate(known):
            if operand is not None and operand.dtype is not None:
                letters[ops.input_constraint(step.op, i)] = operand.dtype
        for i, (tree, wanted) in enumerate(zip(step.inputs, wants, strict=False)):
            letter = ops.input_constraint(step.op, i)
            allowed = schema.allowed.get(letter, frozenset()) if schema else frozenset()
            dtype = letters.get(letter) or wanted.dtype
            if dtype is None or (allowed and dtype not in allowed):
                dtype = self.dtype(allowed, wanted.dtype)
            if letters.setdefault(letter, dtype) != dtype and not _is_type(letter):
                raise Misfit("dtypes do not agree")
            self.draw(tree, replace(wanted, dtype=dtype))

    def dtype(self, allowed: frozenset[str], wish: str | None) -> str:
        if wish is not None and wish in allowed:
            return wish
        options = [d for d in COMMON if d in allowed] or sorted(d for d in allowed if "(" not in d)
        return self.random.choice(options) if options else "float32"

    def operand(self, tree: Tree | None) -> Operand | None:
        """What is settled of an operand."""
        match tree:
            case None:
                return None
            case Number(value):
                return Operand(value)
            case Leaf(key):
                want = self.leaves.get(key)
                return Operand() if want is None else Operand(want.value, want.shape, want.dtype)
            case _:
                return Operand()

    def attribute(self, step: Step, name: str, default: Any, choose: Callable[[], Any]) -> Any:
        """What the pattern says of an attribute; a draw where it may be any."""
        pattern = dict(step.call.attrs)
        if name in pattern:
            return self.mentioned(pattern[name], name, default, choose)
        known = ops.schema(step.op)
        if known is None or name not in known.defaults:
            return default
        rest = step.call.op if step.call.is_variable else step.call.rest
        if rest is not None:
            drawn = self.rests.setdefault(rest, {})
            if name not in drawn:
                drawn[name] = choose() if self.random.random() < 0.6 or name in known.required else None
            return default if drawn[name] is None else drawn[name]
        return choose() if name in known.required else default

    def mentioned(self, expr: Expr, name: str, default: Any, choose: Callable[[], Any]) -> Any:
        if isinstance(expr, Ref):
            if expr.name not in self.attrs:
                value = choose()
                pool = [n for n in self.hints.numbers if isinstance(n, float)]
                if isinstance(value, float) and pool and self.random.random() < 0.5:
                    value = self.random.choice(pool)
                self.attrs[expr.name] = value
            return self.attrs[expr.name]
        return self.evaluated(expr, default)

    def evaluated(self, expr: Expr, default: Any) -> Any:
        bindings: Bindings[Any] = Bindings({}, dict(self.attrs), {})
        try:
            value = expressions.evaluate(expr, bindings, _Nothing(self.opset))
        except expressions.Unknown:
            return default
        return tuple(value) if isinstance(value, list) else value

    # -- making the graph

    def graph(self) -> tuple[Graph, Callable[[np.random.Generator, str], dict[str, Array]]]:
        """The graph, and how to draw arrays for its inputs."""
        graph = Graph(header=Header(opsets=(("", self.opset), ("com.microsoft", 1))))
        made: dict[str, Value] = {}
        facts: dict[Value, Fact] = {}
        numpy = np.random.default_rng(self.random.getrandbits(32))
        inputs: dict[str, Want] = {}
        for i, root in enumerate(self.roots):
            value = self.make(root, graph, made, facts, numpy, inputs)
            assert value is not None
            if value in graph.outputs:
                raise Misfit("two roots are one value")
            graph.add_output(f"y{i}", value)

        def draw(generator: np.random.Generator, way: str) -> dict[str, Array]:
            return {name: array(generator, want, way) for name, want in inputs.items()}

        return graph, draw

    def make(
        self,
        tree: Tree | None,
        graph: Graph,
        made: dict[str, Value],
        facts: dict[Value, Fact],
        numpy: np.random.Generator,
        inputs: dict[str, Want],
    ) -> Value | None:
        match tree:
            case None:
                return None
            case Leaf(key, name):
                if key not in made:
                    made[key] = self.make_leaf(key, name, graph, numpy, inputs)
                return made[key]
            case Number(value, want):
                dtype = want.dtype or ("int64" if isinstance(value, int) else "float32")
                rank = self.random.choice((0, 0, 1)) if not isinstance(value, tuple) and (want.shape or ()) else 0
                elements = _as_dtype(value, dtype)
                return graph.add_constant(Constant.of(elements.reshape((1,) * rank) if rank else elements, dtype))
        if tree.value is not None and tree.graph is graph:
            return tree.value
        operands = [self.make(t, graph, made, facts, numpy, inputs) for t in tree.inputs]
        attrs = ops.canonical(tree.op, self.final_attrs(tree, graph, operands))
        node = graph.add(tree.op, tuple(operands), attrs, tree.n_outputs)
        found = infer(graph)  # small graphs: what does not fit is found as soon as it is there
        known = [None if v is None else found[v] for v in operands]
        reason = ops.refusal(tree.op, attrs, known, self.opset)
        if reason is not None:
            raise Misfit(reason)
        tree.value, tree.graph = Value(node.id, tree.call.output), graph
        return tree.value

    def final_attrs(self, step: Step, graph: Graph, operands: Sequence[Value | None]) -> Attrs:
        attrs = dict(step.attrs)
        for name, expr in step.call.attrs:
            if isinstance(expr, Ref):
                if expr.name not in self.attrs:
                    self.attrs[expr.name] = ops.attribute(step.op, Attrs(), name)
                value = self.attrs[expr.name]
            else:
                value = self.evaluated(expr, attrs.get(name))
            attrs.pop(name, None)
            if value is not None:
                attrs[name] = value
        known = ops.schema(step.op)
        return Attrs(
            {n: _as_default(v, known.defaults.get(n) if known else None) for n, v in attrs.items() if v is not None}
        )

    def make_leaf(
        self, key: str, name: str, graph: Graph, numpy: np.random.Generator, inputs: dict[str, Want]
    ) -> Value:
        want = self.leaves[key]
        shape, dtype = want.shape or (), want.dtype or "float32"
        is_const = name in self.hints.constants or (want.value is not None and name not in self.hints.variables)
        if name not in self.hints.variables and self.random.random() < 0.1:
            is_const = True
        if is_const:
            return graph.add_constant(Constant.of(self.elements(want, numpy), dtype))
        inputs[key] = want
        value = graph.add_input(key, TensorType(dtype, shape))
        return self.wrapped(graph, value, dtype) if name in self.hints.bounded else value

    def elements(self, want: Want, numpy: np.random.Generator) -> Array:
        shape, dtype = want.shape or (), want.dtype or "float32"
        if want.value is not None:
            elements = np.asarray(want.value)
            single = elements.size == 1 and all(n == 1 for n in shape)
            return elements.reshape(shape if single else elements.shape).astype(_numpy_dtype(dtype))
        drawn = array(numpy, want, self.random.choice(("plain", "positive")))
        pool = self.hints.numbers
        if drawn.size == 1 and pool and want.low is None and self.random.random() < 0.5:
            return np.full(drawn.shape, self.random.choice(pool)).astype(drawn.dtype)
        if drawn.size and want.low is None and self.random.random() < 0.15:
            return np.full(drawn.shape, self.random.choice((0, 1))).astype(drawn.dtype)
        return drawn

    def wrapped(self, graph: Graph, value: Value, dtype: str) -> Value:
        """The input with bounds: what an activation makes of it."""
        op = self.random.choice(("Relu", "Sigmoid", "Abs", "Neg", "Clip"))
        if dtype in ("int32", "int64") or op == "Clip":
            low, high = (graph.add_constant(Constant.of(np.asarray(v, _numpy_dtype(dtype)), dtype)) for v in (0, 1))
            return Value(graph.add("Clip", (value, low, high)).id)
        if op == "Neg":
            return Value(graph.add("Neg", (Value(graph.add("Relu", (value,)).id),)).id)
        return Value(graph.add(op, (value,)).id)

    # -- solving guards

    def repaired(self, space: Workspace, graph: Graph) -> tuple[str, bool]:
        """Change what was drawn so that a failing guard may hold; why it fails, and whether anything was changed."""
        plain = replace(self.rule, where=())
        node = graph.node(graph.outputs[0].node)  # type: ignore[union-attr]
        for found in matches(plain, space, node):
            if list(found.roots) != graph.outputs:
                continue
            for guard in self.rule.where:
                reason = expressions.holds(guard, found.bindings, space)
                if reason is not None:
                    return reason, self.solve(guard, found.bindings, space)
        return "the left side does not match", False

    def solve(self, guard: Expr, bindings: Bindings[Value], space: Workspace) -> bool:
        match guard:
            case Apply("and" | "or", parts):
                failing = [p for p in parts if expressions.holds(p, bindings, space) is not None]
                return any(self.solve(p, bindings, space) for p in failing)
            case Apply("==" | "near", (left, right)):
                return self.equate(left, right, bindings, space) or self.equate(right, left, bindings, space)
            case Apply(">" | ">=" | "<" | "<=" as comparison, (left, right)):
                step = {">": 1, ">=": 0, "<": -1, "<=": 0}[comparison]
                return self.equate(left, right, bindings, space, step) or self.equate(
                    right, left, bindings, space, -step
                )
        return False

    def equate(self, left: Expr, right: Expr, bindings: Bindings[Value], space: Workspace, more: int = 0) -> bool:
        """Make one side of a comparison what the other is, or a little more."""
        try:
            value: Any = expressions.evaluate(right, bindings, space)
            return self.assign(left, value + more if more else value, bindings, space)
        except (expressions.Unknown, TypeError):
            return False

    def assign(self, target: Expr, value: Any, bindings: Bindings[Value], space: Workspace) -> bool:
        """Make an expression have a value by changing one of the things it is made of."""
        match target:
            case Ref(name) if name in self.attrs:
                self.attrs[name] = value
                return True
            case Field(Ref(name), "shape" | "rank" | "value" | "scalar" | "elements" | "dtype" as fact) if (
                name in self.leaves
            ):
                return self.assign_leaf(name, fact, value)
            case Each(body) | Series((Each(body),)) if isinstance(value, tuple):
                return self.assign_each(body, value)
            case Series((part,)) if isinstance(value, tuple) and len(value) == 1:
                return self.assign(part, value[0], bindings, space)
            case Item(Field(Ref(name), "shape"), index, None) if name in self.leaves and index is not None:
                return self.assign_size(name, index, value, bindings, space)
            case Item(Field(Ref(name), "value" | "shape" as fact), Lit(0), None) if name in self.leaves:
                return self.assign_leaf(name, fact, (value,))
            case Apply("range", (part,)) if isinstance(value, tuple):
                return self.assign(part, len(value), bindings, space)
            case Apply("+", (left, right)) if isinstance(value, tuple):
                return self.assign_parts(left, right, value, bindings, space)
            case Apply("*" | "+" as operator, (left, right)):
                for part, other in ((right, left), (left, right)):
                    try:
                        known = expressions.evaluate(other, bindings, space)
                        wanted = value / known if operator == "*" else value - known
                    except (expressions.Unknown, TypeError, ZeroDivisionError):
                        continue
                    if self.assign(part, wanted, bindings, space):
                        return True
        return False

    def assign_each(self, body: Expr, values: tuple[Any, ...]) -> bool:
        """Give each value of a starred variable its part."""
        single = False
        if isinstance(body, Item) and body.index == Lit(0):
            body, single = body.of, True
        if not isinstance(body, Field) or not isinstance(body.of, Ref):
            return False
        name, fact = body.of.name, body.name
        if self.counts.get(name) != len(values):
            return False
        for i, value in enumerate(values):
            self.assign_leaf(f"{name}.{i}", fact, (value,) if single else value)
        return True

    def assign_size(self, name: str, index: Expr, size: Any, bindings: Bindings[Value], space: Workspace) -> bool:
        """Give one axis of an operand a size."""
        axis = expressions.evaluate(index, bindings, space)
        shape = list(self.leaves[name].shape or ())
        if not isinstance(axis, int) or not isinstance(size, int) or not -len(shape) <= axis < len(shape):
            return False
        if not 0 <= size <= LARGEST:
            return False
        shape[axis] = size
        return self.assign_leaf(name, "shape", tuple(shape))

    def assign_parts(
        self, left: Expr, right: Expr, value: tuple[Any, ...], bindings: Bindings[Value], space: Workspace
    ) -> bool:
        """Give both parts of a sum of sequences what they need."""
        try:
            cut = len(expressions.evaluate(left, bindings, space))  # type: ignore[arg-type]
        except (expressions.Unknown, TypeError):
            return False
        done = [self.assign(left, value[:cut], bindings, space), self.assign(right, value[cut:], bindings, space)]
        return any(done)

    def assign_leaf(self, name: str, fact: str, value: Any) -> bool:
        want = self.leaves[name]
        match fact:
            case "shape":
                if not all(isinstance(n, int) and 0 <= n <= LARGEST for n in value):
                    return False
                self.leaves[name] = self.pinned[name] = replace(want, shape=tuple(value), value=None)
            case "rank":
                shape = want.shape or ()
                self.leaves[name] = replace(
                    want, shape=(1,) * (value - len(shape)) + shape[max(len(shape) - value, 0) :]
                )
            case "dtype":
                self.leaves[name] = replace(want, dtype=value)
            case _:
                self.leaves[name] = replace(want, value=value)
        return True


class _Nothing:
    """Operands of which nothing is known."""

    def __init__(self, opset: int) -> None:
        self.opset = opset

    def fact(self, value: Any) -> Fact:
        return Fact()

    def constant(self, value: Any) -> Constant | None:
        return None

    def uses(self, value: Any) -> int | None:
        return None


def _stars(term: Term) -> tuple[str, ...]:
    from graphopt.rewrite.build import family

    return family(term)


def _as_dtype(value: Any, dtype: str) -> Array:
    try:
        with np.errstate(invalid="ignore"):
            elements = np.asarray(value).astype(_numpy_dtype(dtype))
    except (OverflowError, ValueError) as error:
        raise Misfit(str(error)) from error
    if not np.array_equal(elements.astype(np.float64), np.asarray(value, np.float64)) and "float" not in dtype:
        raise Misfit(f"{value} is no {dtype}")
    return elements


def _is_type(letter: str) -> bool:
    return "(" in letter or not letter


def _as_default(value: Any, default: Any) -> Any:
    """A whole number as a float where the attribute is one."""
    return float(value) if isinstance(default, float) and isinstance(value, int) else value


def _numpy_dtype(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name)) if name != "string" else np.dtype(object)


SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 3.0e38, -3.0e38, 1e-42, 0.5)
"""What floats in exact comparisons are made of."""


def array(generator: np.random.Generator, want: Want, way: str) -> Array:
    """Elements for a value."""
    shape, dtype = want.shape or (), want.dtype or "float32"
    target = _numpy_dtype(dtype)
    if dtype == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    if dtype == "string":
        return np.asarray(generator.choice(["a", "b", ""], shape), dtype=object)
    low, high = want.low, want.high
    if "float" not in dtype and "complex" not in dtype:
        least = 0 if dtype.startswith("u") else -4
        bounds = (int(least if low is None else low), int(5 if high is None else high))
        whole = generator.integers(bounds[0], max(bounds[1], bounds[0]) + 1, shape)
        return np.where((whole == 0) & (low is None), 3, whole).astype(target).reshape(shape)
    if low is not None or high is not None:
        return generator.uniform(0 if low is None else low, 1 if high is None else high, shape).astype(target)
    drawn: Array = np.asarray(generator.normal(0, 1.5, shape))
    if way == "positive":
        drawn = np.abs(drawn) + 0.05
    elif way in ("special", "finite"):
        pool = np.asarray(SPECIAL if way == "special" else [v for v in SPECIAL if np.isfinite(v)])
        with np.errstate(over="ignore"):
            odd = generator.choice(pool, shape)
        drawn = np.where(generator.random(shape) < 0.6, odd, drawn)
    with np.errstate(over="ignore"):
        return np.asarray(drawn).astype(target).reshape(shape)
