"""Drafts of examples: what every operand and attribute of a written-out pattern is, drawn from the root up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from random import Random
from typing import Any

from graphopt.ir import ops
from graphopt.ir.constants import BITS, Constant
from graphopt.ir.facts import NOTHING, Fact
from graphopt.ir.graph import Attr
from graphopt.rewrite.checking.examples.hints import Hints
from graphopt.rewrite.checking.examples.pattern import ConcreteCall, ConcretePattern, Leaf, LiteralLeaf, Tree
from graphopt.rewrite.checking.examples.sample import Misfit, Sample, SampleOperand, StaticShape, Want
from graphopt.rewrite.checking.examples.samplers import sampler_of
from graphopt.rewrite.guards import expressions
from graphopt.rewrite.guards.bindings import Bindings
from graphopt.rewrite.rule.rule import CallPattern, GuardExpr, NameRef, Rule, Term, calls

FLOATS = ("float32", "float32", "float32", "float64")
COMMON = ("float32", "float32", "float32", "int64", "int32", "float64", "bool", "float16")
"""Dtypes, the more often the likelier."""
MOSTLY = 0.9
"""How often what is drawn is what a right side takes."""
OPSETS = (24, 23, 22, 21, 20, 18, 17, 16, 14, 13, 12)
"""Opsets of examples beside the newest."""


class ExampleDraft:
    """One attempt at an example: what its operands (``leaves``) and attributes should be.

    ``shape`` is what the shape of the result should be, if it is not to be drawn, and ``even`` how long all axes are.
    """

    def __init__(
        self, rule: Rule, hints: Hints, random: Random, shape: StaticShape | None = None, even: int | None = None
    ) -> None:
        self.rule, self.hints, self.random, self.shape = rule, hints, random, shape
        self.opset = min(hints.opset, random.choice(_opsets(rule, random)))
        self.even = even or (random.choice((2, 3, 4)) if random.random() < 0.25 else None)
        self.pattern = ConcretePattern(rule, hints, random, self.opset)
        self.attrs: dict[str, Attr | None] = {}
        self.leaves: dict[str, Want] = {}
        self.pinned: dict[str, Want] = {}
        """Operands that a guard has given a shape."""
        self.bounds: dict[str, tuple[int, int]] = {}
        """The bounds of operands that have others than an activation's."""
        self.constness: dict[str, bool] = {}
        """Which operands are constants, of those of which it is said."""
        self._rests: dict[str, dict[str, Attr | None]] = {}
        several = len(self.pattern.roots) != len(rule.rhs)  # of a starred one
        made = [rule.rhs[0]] * len(self.pattern.roots) if several else rule.rhs
        self._dtypes = [self._root_dtype(root, term) for root, term in zip(self.pattern.roots, made, strict=True)]
        self._draw_roots()

    def copy(self) -> ExampleDraft:
        """A draft of the same, to be changed; both draw from the same source."""
        draft = copy(self)
        draft.leaves, draft.attrs, draft.bounds = dict(self.leaves), dict(self.attrs), dict(self.bounds)
        draft.constness, draft.pinned = dict(self.constness), {}
        draft.pattern = self.pattern.copy()
        return draft

    def substitute_dtype(self, old: str | None, new: str) -> None:
        """Give a dtype to all operands and numbers that have another."""
        for key, want in self.leaves.items():
            if want.dtype == old:
                self.leaves[key] = replace(want, dtype=new)
        for number in (t for step in self.pattern.steps for t in step.inputs if isinstance(t, LiteralLeaf)):
            if number.want.dtype == old:
                number.want = replace(number.want, dtype=new)

    def alike(self, key: str) -> tuple[set[str], frozenset[str] | None]:
        """The operands that have one dtype with this one, as ops say, and the dtypes that all of those ops take."""
        groups: list[tuple[set[object], frozenset[str] | None]] = []
        for step in self.pattern.steps:
            schema = ops.schema(step.op)
            parts = [(ops.output_constraint(step.op, step.call.output), (id(step), step.call.output))]
            for i, tree in enumerate(step.inputs):
                part: object = tree.key if isinstance(tree, Leaf) else id(tree)
                if isinstance(tree, ConcreteCall):
                    part = (id(tree), tree.call.output)
                parts.append((ops.input_constraint(step.op, i), part))  # type: ignore[arg-type]
            for letter in dict.fromkeys(letter for letter, _ in parts if not _is_type(letter)):
                held: set[object] = {part for other, part in parts if other == letter}
                allowed = schema.allowed.get(letter) if schema else None
                for group in [g for g in groups if g[0] & held]:
                    groups.remove(group)
                    held |= group[0]
                    allowed = group[1] if allowed is None else allowed & group[1] if group[1] is not None else allowed
                groups.append((held, allowed))
        for held, allowed in groups:
            if key in held:
                return {k for k in held if isinstance(k, str)}, allowed
        return {key}, None

    def below(self, name: str) -> list[str]:
        """The operands that the call of a name is made of."""
        found: list[str] = []
        waiting: list[Tree | None] = [step for step in self.pattern.steps if step.call.name == name]
        while waiting:
            match waiting.pop():
                case Leaf(key):
                    found.append(key)
                case ConcreteCall(inputs=inputs):
                    waiting += inputs
        return found

    def substitute_size(self, old: int, new: int) -> None:
        """Give all axes of one length another, and what operands say of them."""
        for key, want in self.leaves.items():
            if want.shape is not None and old in want.shape and want.value is None:
                self.leaves[key] = replace(want, shape=_substituted(want.shape, old, new))
            elif isinstance(want.value, tuple | int) and not isinstance(want.value, bool):
                self.leaves[key] = replace(want, value=_substituted(want.value, old, new))

    def redraw(self) -> None:
        """Draw everything again around the operands that guards have pinned down."""
        self.leaves = dict(self.pinned)
        self.pinned = {}
        self.attrs, self._rests = {}, {}
        for step in self.pattern.steps:
            step.drawn = False
            step.attrs = {}
        self._draw_roots()

    def _root_dtype(self, root: Tree, made: Term) -> str:
        """A dtype of a root that both sides may have, mostly."""
        taken = _dtypes_of(root)
        hinted = self.hints.dtypes.values()
        dtypes = [d for d in COMMON if (not taken or d in taken) and all(d in s for s in hinted)]
        schema = None if not isinstance(made, CallPattern) or made.is_variable else ops.schema(made.op)
        if schema is not None and isinstance(made, CallPattern) and self.random.random() < MOSTLY:
            allowed = schema.allowed.get(ops.output_constraint(made.op, made.output), dtypes)
            dtypes = [d for d in dtypes if d in allowed] or dtypes
        return self.random.choice(dtypes or list(FLOATS))

    def _draw_roots(self) -> None:
        for root, dtype in zip(self.pattern.roots, self._dtypes, strict=True):
            ranks = [*self.hints.ranks, 1, 2, 2, 3, 4, 4]
            shape = self.shape
            if shape is None and self.random.random() >= 0.15:
                shape = tuple(self._size() for _ in range(self.random.choice(ranks)))
            self._draw(root, Want(shape, dtype))

    def _size(self) -> int:
        if self.even is None and self.hints.lengths and self.random.random() < 0.25:
            return self.random.choice(self.hints.lengths)
        return self.even or self.random.choice((1, 2, 2, 3, 3, 4))

    def _draw(self, tree: Tree | None, want: Want) -> None:
        """Settle what a part of the pattern is, given what it should be."""
        match tree:
            case Leaf():
                self._leaf(tree, want)
            case LiteralLeaf():
                tree.want = want
            case ConcreteCall():
                self._call(tree, want)

    def _leaf(self, leaf: Leaf, want: Want) -> None:
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

    def _call(self, step: ConcreteCall, want: Want) -> None:
        operands = [self._operand(tree) for tree in step.inputs]

        if step.drawn:
            return
        schema = ops.schema(step.op)
        step.drawn = True
        rank = self.hints.rank_of.get(step.call.name or "")
        if rank is not None and rank > 0 and want.shape is not None and want.value is None:
            want = replace(want, shape=_of_rank(want.shape, rank))
        step.want = want
        wants = self._wants(step, operands)
        letters: dict[str, str] = {}
        result = ops.output_constraint(step.op, step.call.output)
        if want.dtype is not None and (schema is None or want.dtype in schema.allowed.get(result, (want.dtype,))):
            letters[result] = want.dtype
        for i, operand in enumerate(operands):
            if operand is not None and operand.dtype is not None:
                letters[ops.input_constraint(step.op, i)] = operand.dtype
        for i, (tree, wanted) in enumerate(zip(step.inputs, wants, strict=False)):
            letter = ops.input_constraint(step.op, i)
            allowed = schema.allowed.get(letter, frozenset()) if schema else frozenset()
            dtype = letters.get(letter) or self._hinted(tree, allowed, wanted.dtype)
            if dtype is None or (allowed and dtype not in allowed):
                dtype = self._dtype(allowed, wanted.dtype)
            if letters.setdefault(letter, dtype) != dtype and not _is_type(letter):
                raise Misfit("dtypes do not agree")
            self._draw(tree, replace(wanted, dtype=dtype))

    def _wants(self, step: ConcreteCall, operands: Sequence[SampleOperand | None]) -> list[Want]:
        """What the operands of a call should be."""

        def attr(name: str, default: Any, choose: Callable[[], Any]) -> Any:
            if schema is None or name not in schema.defaults:
                return default
            value = self._attribute(step, name, default, choose)
            if value is not None:
                step.attrs[name] = value
            return value

        schema = ops.schema(step.op)
        sample = Sample(
            self.random,
            step.op,
            step.want,
            operands,
            attr,
            self.hints.ranks,
            self.hints.strings,
            step.call.output,
            step.n_outputs,
            self.even,
        )
        wants = sampler_of(step.op, ops.kind(step.op))(sample)
        return [*wants, *[Want()] * (len(step.inputs) - len(wants))]

    def told(self, step: ConcreteCall) -> list[str]:
        """The operands that tell a call alone what to do: a shape, repeats, axes."""
        return [
            key
            for key in step.leaves
            if self.leaves[key].value is not None and sum(key in other.leaves for other in self.pattern.steps) == 1
        ]

    def refit(self, step: ConcreteCall, shapes: Sequence[StaticShape | None]) -> None:
        """Draw what a call is told again, now that it is known what shapes its other operands have."""
        told, operands = self.told(step), [self._operand(tree) for tree in step.inputs]
        for i, (tree, shape) in enumerate(zip(step.inputs, shapes, strict=True)):
            operand = operands[i]
            if isinstance(tree, Leaf) and tree.key in told:
                operands[i] = SampleOperand()
            elif operand is not None:
                operands[i] = replace(operand, shape=shape)
        for tree, want in zip(step.inputs, self._wants(step, operands), strict=False):
            if isinstance(tree, Leaf) and tree.key in told:
                self.leaves[tree.key] = replace(self.leaves[tree.key], shape=want.shape, value=want.value)

    def _hinted(self, tree: Tree | None, allowed: frozenset[str], wish: str | None) -> str | None:
        """The wish for an operand's dtype, or one that the guards want where it is none of those."""
        hinted = self.hints.dtypes.get(tree.name) if isinstance(tree, Leaf) else None
        if hinted is None or wish in hinted or not hinted & allowed:
            return wish
        return self.random.choice(sorted(hinted & allowed))

    def _dtype(self, allowed: frozenset[str], wish: str | None) -> str:
        if wish is not None and wish in allowed:
            return wish
        options = [d for d in COMMON if d in allowed] or sorted(d for d in allowed if d in BITS)
        return self.random.choice(options) if options else "float32"

    def _operand(self, tree: Tree | None) -> SampleOperand | None:
        """What is settled of an operand."""
        match tree:
            case None:
                return None
            case LiteralLeaf(value):
                return SampleOperand(value)
            case Leaf(key):
                want = self.leaves.get(key)
                return SampleOperand() if want is None else SampleOperand(want.value, want.shape, want.dtype)
            case ConcreteCall(op=op):
                return SampleOperand(op=op)

    def _attribute(self, step: ConcreteCall, name: str, default: Any, choose: Callable[[], Any]) -> Any:
        """What the pattern says of an attribute; a draw where it may be any."""
        pattern = dict(step.call.attrs)
        if name in pattern:
            return self._mentioned(pattern[name], name, default, choose)
        schema = ops.schema(step.op)
        if schema is None or name not in schema.defaults:
            return default
        rest = step.call.op if step.call.is_variable else step.call.rest
        if rest is not None:
            drawn = self._rests.setdefault(rest, {})
            if name not in drawn:
                drawn[name] = choose() if self.random.random() < 0.6 or name in schema.required else None
            return default if drawn[name] is None else drawn[name]
        return choose() if name in schema.required else default

    def _mentioned(self, expr: GuardExpr, name: str, default: Any, choose: Callable[[], Any]) -> Any:
        if isinstance(expr, NameRef):
            if expr.name not in self.attrs:
                value = choose()
                pool = [n for n in self.hints.numbers if isinstance(n, float)]
                if isinstance(value, float) and pool and self.random.random() < 0.5:
                    value = self.random.choice(pool)
                self.attrs[expr.name] = value
            return self.attrs[expr.name]
        return self.evaluated(expr, default)

    def evaluated(self, expr: GuardExpr, default: Any) -> Any:
        """The value of an expression that rests on attributes alone; the default where it rests on more."""
        bindings: Bindings[Any] = Bindings({}, dict(self.attrs), {})
        try:
            value = expressions.evaluate(expr, bindings, _NoOperands(self.opset))
        except expressions.Unknown:
            return default
        return tuple(value) if isinstance(value, list) else value


def _opsets(rule: Rule, random: Random) -> Sequence[int]:
    """The opsets to choose from, the more often the likelier: mostly those that have the ops of the right side."""
    options = (ops.LATEST, ops.LATEST, ops.LATEST, *OPSETS)
    made = {call.op for term in rule.rhs for call in calls(term) if not call.is_variable}
    having = [opset for opset in options if all(ops.schema(op, opset) is not None for op in made)]
    return having if having and random.random() < MOSTLY else options


def _of_rank(shape: StaticShape, rank: int) -> StaticShape:
    """As many elements in so many axes."""
    while len(shape) > rank:
        shape = (*shape[:-2], shape[-2] * shape[-1])
    return shape + (1,) * (rank - len(shape))


def _dtypes_of(tree: Tree) -> frozenset[str]:
    """The dtypes that a result may have as all calls take them that it comes from in its own dtype; empty if any."""
    schema = ops.schema(tree.op) if isinstance(tree, ConcreteCall) else None
    if schema is None or not isinstance(tree, ConcreteCall):
        return frozenset()
    letter = ops.output_constraint(tree.op, tree.call.output)
    taken = frozenset(schema.allowed.get(letter, ()))
    for i, operand in enumerate(tree.inputs):
        if operand is not None and ops.input_constraint(tree.op, i) == letter:
            below = _dtypes_of(operand)
            taken = taken & below if taken and below else taken or below
    return taken


def _substituted(value: Any, old: int, new: int) -> Any:
    """The value with one whole number for another."""
    if isinstance(value, tuple):
        return tuple(_substituted(v, old, new) for v in value)
    return new if value == old and isinstance(value, int) else value


class _NoOperands:
    """Operands of which nothing is known."""

    def __init__(self, opset: int) -> None:
        self.opset = opset

    def fact(self, value: Any) -> Fact:
        """Nothing is known."""
        return NOTHING

    def constant(self, value: Any) -> Constant | None:
        """No elements."""
        return None

    def uses(self, value: Any) -> int | None:
        """No uses."""
        return None


def _is_type(letter: str) -> bool:
    return "(" in letter or not letter
