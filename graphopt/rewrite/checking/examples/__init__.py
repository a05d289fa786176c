"""Examples of rules: small graphs in which the left side of a rule occurs, made from the rule alone.

Root first, every call is asked what its operands should be (``samplers``); operands that the pattern
leaves open become inputs or constants of what they should be. Guards are read for hints (dtypes,
ranks, constness, numbers), and where the finished graph fails a guard that is an equation, the
equation is solved for one of its parts and the graph is made again. Examples that violate a guard
are near others in which it holds: what it speaks of is changed until it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle, islice, product
from math import prod
from random import Random
from typing import Any

import numpy as np

from graphopt.errors import GraphoptError
from graphopt.frozen import dataclass
from graphopt.ir import ops
from graphopt.ir.blocked import blocked, unblocked
from graphopt.ir.constants import Array, Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Attr, Attrs, Graph, Header, Value
from graphopt.ir.infer import infer
from graphopt.ir.types import TensorType
from graphopt.rewrite.checking.examples.arrays import array, as_dtype, numpy_dtype
from graphopt.rewrite.checking.examples.draft import ExampleDraft
from graphopt.rewrite.checking.examples.hints import Hints
from graphopt.rewrite.checking.examples.pattern import ConcreteCall, Leaf, LiteralLeaf, Tree, variants
from graphopt.rewrite.checking.examples.sample import Misfit, StaticShape, Want
from graphopt.rewrite.checking.examples.samplers import DRAWN
from graphopt.rewrite.checking.examples.solving import WAYS, repair, settle
from graphopt.rewrite.guards import expressions
from graphopt.rewrite.match.build import Refused, replacements
from graphopt.rewrite.match.matcher import Match, matches
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.rule.notation import show_expr
from graphopt.rewrite.rule.rule import FunctionCall, GuardExpr, Lit, NameRef, Rule, Series, calls, subexpressions

BASES = 8
"""In the neighbourhood of so many graphs that satisfy a guard those are looked for that do not."""
REPAIRS = 4
"""How often an attempt is changed to satisfy its guards, or as often as there are guards where these are more."""
WEIGHTS = 4096
"""Constants of so many elements are never all zeros or ones: few graphs have any, which zeros would tell nothing of."""


SMALL = tuple(shape for rank in range(4) for shape in product((1, 2, 0, 3)[: 4 if rank < 3 else 2], repeat=rank))
"""The shapes that results are asked to have one after another, beside those that are drawn."""


@dataclass(frozen=True)
class Example:
    """A graph in which a rule matches, with the match, and what the graph's inputs should be."""

    graph: Graph
    match: Match
    wants: Mapping[str, Want]
    facts: Mapping[Value, Fact] | None = None
    """What is known of the graph's values, where it has been inferred."""

    def draw(
        self, generator: np.random.Generator, way: str, shapes: Mapping[str, StaticShape] | None = None
    ) -> dict[str, Array]:
        """Arrays for the inputs: ``plain``, ``positive``, ``finite``, ``special`` or ``masked`` ones; of other
        shapes if given. Images in blocks hold zeros beyond their last channel."""
        wants = {name: replace(want, shape=(shapes or {}).get(name, want.shape)) for name, want in self.wants.items()}
        drawn = {name: array(generator, want, way) for name, want in wants.items()}
        for node in self.graph.nodes():
            if node.op == "graphopt::Unblock" and (name := self.graph.names.get(node.inputs[0], "")) in drawn:  # type: ignore[arg-type]
                image, channels = drawn[name], node.attrs["channels"]
                drawn[name] = blocked(unblocked(image)[:, :channels], image.shape[-1]).astype(image.dtype)
        return drawn


def examples(
    rule: Rule, random: Random, tries: int, axes: Sequence[int] = (), bases: list[ExampleDraft] | None = None
) -> Iterator[Example | str]:
    """Graphs in which the rule matches; for each try that is none, the reason.

    Every alternative and every optional input gets its turn, present and absent, and so does every small shape; without
    ``axes``, that is, else two of three graphs have all axes of one of these lengths. ``bases`` takes some of the
    drafts in which the right side fits, for ``violations``.
    """
    written = [(variant, Hints.of(variant)) for variant in variants(rule)]
    small = cycle(SMALL)
    for i, (variant, hints) in zip(range(tries), cycle(written), strict=False):
        turn = i // len(written)
        shape = next(small) if turn % 2 and turn < 2 * len(SMALL) and not axes else None
        even = axes[turn // 2 % len(axes)] if axes and turn % 3 else None
        yield _tried(partial(_drawn, rule, None, bases, variant, hints, random, shape, even))


def violations(
    rule: Rule, guard: GuardExpr, random: Random, tries: int, bases: list[ExampleDraft] | None = None
) -> Iterator[Example | str]:
    """Graphs in which a rule matches that lacks a guard, and which violate that guard; for each try that is none, the
    reason.

    Some are drawn from both sides as they are. Most are near a graph in which the guard holds as well: a few things
    that it speaks of are changed, so that the others go on to hold. ``bases`` are such graphs where there are some.
    """
    free = cycle([(variant, _otherwise(Hints.of(variant), variant, guard)) for variant in variants(rule)])
    guarded = replace(rule, where=(*rule.where, guard))
    bound = cycle([(variant, Hints.of(variant)) for variant in variants(guarded)])
    near: list[ExampleDraft] = [] if bases is None else bases
    is_full = bool(near)
    for i in range(tries):
        if i % 4 == 0:
            yield _tried(partial(_drawn, rule, guard, None, *next(free), random))
        elif is_full or len(near) == BASES or (near and i % 4 != 1):
            yield _tried(partial(_neighbour, random.choice(near), rule, guard))
        else:
            held = _tried(partial(_drawn, guarded, None, near, *next(bound), random))
            yield held if isinstance(held, str) else "the guard holds"


def _otherwise(hints: Hints, rule: Rule, guard: GuardExpr) -> Hints:
    """Hints for graphs that violate a guard: words that it has; of an op variable, that it stands for an op beyond
    those; of a rank, that there is an axis more or fewer."""
    hints.ranks += [
        n + more for n in set(Hints.of(replace(rule, where=(guard,))).ranks) for more in (-1, 1) if n + more
    ]
    hints.strings += [
        part.value for part in subexpressions(guard) if isinstance(part, Lit) and isinstance(part.value, str)
    ]
    match guard:
        case FunctionCall("in", (NameRef(name), NameRef() | Series())):
            bound = Hints.of(replace(rule, where=(guard,))).heads.get(name, ())
            if name in {call.op for side in rule.lhs for call in calls(side) if call.is_variable}:
                hints.heads[name] = tuple(op for op in DRAWN if op not in bound)
    return hints


def _refusal(example: Example) -> str | None:
    """Why the right side does not fit."""
    match = example.match
    try:
        replacements(match.rule, match.bindings, match.roots, Workspace(example.graph.copy(), example.facts))
    except Refused as refused:
        return str(refused)
    return None


def _tried(make: Callable[[], Example | str]) -> Example | str:
    """The example, or why there is none."""
    try:
        return make()
    except (Misfit, GraphoptError) as error:
        return str(error)
    except (ValueError, MemoryError, OverflowError) as error:  # from numpy: no array has such axes or elements
        return f"no such arrays can be made ({error})"


def _drawn(rule: Rule, violated: GuardExpr | None, bases: list[ExampleDraft] | None, *drawn: Any) -> Example:
    draft = ExampleDraft(*drawn)
    example = _example(draft, rule, violated)
    if bases is not None and _refusal(example) is None:
        if len(bases) < BASES:
            bases.append(draft)
        elif draft.random.random() < 0.5:
            bases[draft.random.randrange(BASES)] = draft
    return example


def _example(draft: ExampleDraft, rule: Rule, violated: GuardExpr | None = None) -> Example:
    """The example that a draft makes. Raises Misfit where it makes none."""
    reason = ""
    for _ in range(1 + max(REPAIRS, len(rule.where))):
        space, wants = _fitted(draft)
        if found := list(islice(_matches(rule, space, violated), WAYS)):
            return Example(space.graph, draft.random.choice(found), wants, space.facts)
        reason, changed = repair(draft, space, violated)
        if not changed:
            break
    raise Misfit(reason)


def _fitted(draft: ExampleDraft) -> tuple[Workspace, dict[str, Want]]:
    """The graph of a draft and its inputs. Where it does not fit, everything is drawn again around what guards have
    pinned down, and then operands are made what guards ask of them."""
    try:
        return workspace_of(draft)
    except (Misfit, GraphoptError):
        if draft.pinned:
            draft.redraw()
        elif not settle(draft):
            raise
    try:
        return workspace_of(draft)
    except (Misfit, GraphoptError):
        if not settle(draft):
            raise
    return workspace_of(draft)


def _neighbour(base: ExampleDraft, rule: Rule, violated: GuardExpr) -> Example:
    """An example near that of a draft. Raises Misfit where there is none."""
    draft = base.copy()
    space, _ = workspace_of(draft)
    repair(draft, space, violated)
    draft.rule = replace(draft.rule, where=rule.where)
    for _ in range(1 + REPAIRS):
        space, wants = _fitted(draft)
        if found := list(islice(_matches(rule, space, violated), WAYS)):
            return Example(space.graph, draft.random.choice(found), wants, space.facts)
        if not repair(draft, space)[1]:
            break
    raise Misfit(f"nothing near violates `{show_expr(violated)}` alone")


def _matches(rule: Rule, space: Workspace, violated: GuardExpr | None) -> Iterator[Match]:
    """Where the rule matches at all outputs, and the guard does not hold."""
    outputs = space.graph.outputs
    for match in matches(rule, space, space.graph.producer(outputs[0])):  # type: ignore[arg-type]
        if list(match.roots) == outputs and (
            violated is None or expressions.holds(violated, match.bindings, space) is not None
        ):
            yield match


def workspace_of(draft: ExampleDraft) -> tuple[Workspace, dict[str, Want]]:
    """The graph with what is known of its values, and what its inputs should be. Raises Misfit or InvalidModelError
    where it does not fit."""
    making = _Making(draft)
    for i, root in enumerate(draft.pattern.roots):
        value = making.make(root)
        assert value is not None
        if value in making.graph.outputs:
            raise Misfit("two roots are one value")
        making.graph.add_output(f"y{i}", value)
    return Workspace(making.graph, infer(making.graph, known=making.facts)), making.inputs


class _Making:
    """One graph in the making."""

    def __init__(self, draft: ExampleDraft) -> None:
        self.draft, self.hints, self.random = draft, draft.hints, draft.random
        self.graph = Graph(header=Header(opsets=(("", draft.opset), ("com.microsoft", 1))))
        self.numpy = np.random.default_rng(draft.random.getrandbits(32))
        self.inputs: dict[str, Want] = {}
        self.facts: dict[Value, Fact] = {}
        self._leaves: dict[str, Value] = {}

    def make(self, tree: Tree | None) -> Value | None:
        """The value of a part of the pattern."""
        match tree:
            case None:
                return None
            case Leaf(key):
                if key not in self._leaves:
                    self._leaves[key] = self._leaf(tree)
                return self._leaves[key]
            case LiteralLeaf():
                return self._number(tree)
        if tree.value is not None and tree.graph is self.graph:
            return tree.value
        tree.value, tree.graph = self._step(tree), self.graph
        return tree.value

    def _number(self, number: LiteralLeaf) -> Value:
        value, want = number.value, number.want
        dtype = want.dtype or ("int64" if isinstance(value, int) else "float32")
        elements = as_dtype(value, dtype)
        if want.shape and not isinstance(value, tuple) and self.random.random() < 0.3:
            elements = elements.reshape((1,))
        return self.graph.add_constant(Constant.of(elements, dtype))

    def _step(self, step: ConcreteCall) -> Value:
        """The value of a call. Where its operands do not fit, what one of them says of the result is drawn again."""
        operands = [self.make(t) for t in step.inputs]
        first = self.graph.next_id
        try:
            return self._applied(step, operands)
        except (Misfit, GraphoptError):
            if first in self.graph:
                self.graph.remove(first)
            told = self.draft.told(step)
            if not told or any(self.graph.constant_of(self._leaves[key]) is None for key in told):
                raise
        for key in told:
            self.graph.remove(self._leaves.pop(key).node)
        self.draft.refit(step, [None if v is None or v.node not in self.graph else self._sizes(v) for v in operands])
        return self._applied(step, [self.make(t) for t in step.inputs])

    def _applied(self, step: ConcreteCall, operands: Sequence[Value | None]) -> Value:
        attrs = ops.canonical(step.op, self._attrs(step))
        facts = [None if v is None else self.fact(v) for v in operands]
        reason = ops.refusal(step.op, attrs, facts, self.draft.opset)
        if reason is not None:
            raise Misfit(reason)
        if step.op in ops.QUANTIZING and not _is_scaled(attrs, facts):
            raise Misfit("scales or zero points that do not fit")  # which inference does not look at
        node = self.graph.add(step.op, tuple(operands), attrs, step.n_outputs)
        self.facts = infer(self.graph, known=self.facts)
        return Value(node.id, step.call.output)

    def fact(self, value: Value) -> Fact:
        """What is known of a value."""
        if value not in self.facts:
            self.facts = infer(self.graph, known=self.facts)
        return self.facts[value]

    def _sizes(self, value: Value) -> StaticShape | None:
        """The shape of a value, where all of it is known."""
        shape = self.fact(value).shape or ()
        sizes = tuple(n for n in shape if isinstance(n, int))
        return sizes if len(sizes) == self.fact(value).rank else None

    def _attrs(self, step: ConcreteCall) -> Attrs:
        attrs = dict(step.attrs)
        for name, expr in step.call.attrs:
            if isinstance(expr, NameRef):
                if expr.name not in self.draft.attrs:
                    self.draft.attrs[expr.name] = ops.attribute(step.op, Attrs(), name)
                value = self.draft.attrs[expr.name]
            else:
                value = self.draft.evaluated(expr, attrs.get(name))
            attrs.pop(name, None)
            if value is not None:
                attrs[name] = value
        schema = ops.schema(step.op)
        return Attrs(
            {n: _as_default(v, schema.defaults.get(n) if schema else None) for n, v in attrs.items() if v is not None}
        )

    def _leaf(self, leaf: Leaf) -> Value:
        key, name = leaf.key, leaf.name
        want = self.draft.leaves[key]
        shape, dtype = want.shape or (), want.dtype or "float32"
        is_const = name in self.hints.constants or (want.value is not None and name not in self.hints.variables)
        is_const = self.draft.constness.get(key, is_const)
        if name not in self.hints.variables and self.random.random() < 0.1 and key not in self.draft.constness:
            is_const = True
        if is_const:
            return self.graph.add_constant(Constant.of(self._elements(want), dtype))
        self.inputs[key] = want
        value = self.graph.add_input(key, TensorType(dtype, shape))
        bounds = self.draft.bounds.get(name)
        return self._bounded(value, dtype, bounds) if bounds or name in self.hints.bounded else value

    def _elements(self, want: Want) -> Array:
        shape, dtype = want.shape or (), want.dtype or "float32"
        if want.value is not None:
            elements = np.asarray(want.value)
            single = elements.size == 1 and all(n == 1 for n in shape)
            with np.errstate(invalid="ignore", over="ignore"):
                return elements.reshape(shape if single else elements.shape).astype(numpy_dtype(dtype))
        ways = ("plain", "positive", "extreme") if dtype in ("int8", "uint8") else ("plain", "positive")
        drawn = array(self.numpy, want, self.random.choice(ways))
        pool = self.hints.numbers
        if drawn.size == 1 and pool and want.low is None and self.random.random() < 0.5:
            with np.errstate(invalid="ignore", over="ignore"):
                return np.full(drawn.shape, self.random.choice(pool)).astype(drawn.dtype)
        if 0 < drawn.size < WEIGHTS and want.low is None and self.random.random() < 0.15:
            return np.full(drawn.shape, self.random.choice((0, 1))).astype(drawn.dtype)
        return drawn

    def _bounded(self, value: Value, dtype: str, bounds: tuple[int, int] | None) -> Value:
        """The input with bounds: those that it should have, or what an activation makes of it."""
        op = "Clip" if bounds else self.random.choice(("Relu", "Sigmoid", "Abs", "Neg", "Clip"))
        if dtype in ("int32", "int64") or op == "Clip":
            ends = (np.asarray(v, numpy_dtype(dtype)) for v in bounds or (0, 1))
            low, high = (self.graph.add_constant(Constant.of(end, dtype)) for end in ends)
            return Value(self.graph.add("Clip", (value, low, high)).id)
        if op == "Neg":
            return Value(self.graph.add("Neg", (Value(self.graph.add("Relu", (value,)).id),)).id)
        return Value(self.graph.add(op, (value,)).id)


def _is_scaled(attrs: Attrs, facts: Sequence[Fact | None]) -> bool:
    """Whether a tensor has one scale, one along its axis, or one for each block, and as many zero points."""
    shape, scales, *zeros = [None if fact is None else fact.shape for fact in facts]
    if shape is None or scales is None:
        return False
    block, axis = attrs.get("block_size", 0), attrs.get("axis", 1)
    if any(zero is not None and prod(zero) != prod(scales) for zero in zeros):
        return False
    if not scales or scales == (1,):
        return not block
    if not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
        return False
    if not isinstance(block, int) or not block:
        return scales == (shape[axis],)
    return tuple(scales) == tuple(-(-n // block) if i == axis % len(shape) else n for i, n in enumerate(shape))


def _as_default(value: Attr, default: Attr | None) -> Attr:
    """A whole number as a float where the attribute is one."""
    return float(value) if isinstance(default, float) and isinstance(value, int) else value
