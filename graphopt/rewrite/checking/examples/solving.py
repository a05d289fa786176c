"""Equation solving for guards: one of the terms of a failing equation is changed so that it holds, or one of those of a
guard that is to be violated. It is apart from drawing, which never looks at guards as equations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from math import prod
from typing import Any

import numpy as np

from graphopt.ir import ops
from graphopt.ir.constants import BITS, Constant
from graphopt.ir.dtypes import CODES
from graphopt.ir.graph import Graph, Header, Value
from graphopt.ir.types import TensorType
from graphopt.rewrite.checking.examples.arrays import WHOLE, as_dtype, special
from graphopt.rewrite.checking.examples.draft import COMMON, OPSETS, ExampleDraft
from graphopt.rewrite.checking.examples.samplers import DRAWN
from graphopt.rewrite.guards import expressions
from graphopt.rewrite.guards.bindings import Bindings
from graphopt.rewrite.match.matcher import matches
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.rule.notation import show_expr
from graphopt.rewrite.rule.rule import (
    Each,
    Field,
    FunctionCall,
    GuardExpr,
    IndexExpr,
    Lit,
    NameRef,
    Series,
    subexpressions,
)

EARLIEST = min(OPSETS)
LARGEST = 128
"""Axes are at most this long."""
WAYS = 4
"""In so many ways a pattern with starred variables is read."""
SIMPLE = (0.0, 1.0, -1.0, 0.5, 3.0)
"""Numbers of which rules ask."""
MAGNITUDES = (1e30, -1e30, 1.0, 1e-30)
"""Numbers so far apart that sums and products of them lose one."""
TOLD = ("Expand", "Reshape", "Tile")
"""Ops that an operand tells which shape their result has."""
BEYOND = {"<": 1, "<=": 1, ">": -1, ">=": -1}
"""On which side of a limit a comparison does not hold."""


def repair(draft: ExampleDraft, space: Workspace, violated: GuardExpr | None = None) -> tuple[str, bool]:
    """Change what was drawn so that a failing guard may hold, or else one that is to be violated may not; what is wrong
    with it, and whether anything was changed."""
    plain = replace(draft.rule, where=())
    root = space.graph.outputs[0]
    assert root is not None
    ways = islice(matches(plain, space, space.graph.producer(root)), WAYS)
    found = [match for match in ways if list(match.roots) == space.graph.outputs]
    if found:
        match = draft.random.choice(found)
        for guard in draft.rule.where:
            reason = expressions.holds(guard, match.bindings, space)
            if reason is not None:
                return reason, _Solver(draft, match.bindings, space).solve(guard)
        if violated is not None:
            return f"`{show_expr(violated)}` holds", _Solver(draft, match.bindings, space).violate(violated)
    return "the left side does not match", False


def settle(draft: ExampleDraft) -> bool:
    """Change the operands of a draft so that what guards say of them alone may hold; whether anything was changed. That
    needs no graph in which the operands fit."""
    changed = False
    solver = _of_operands(draft)
    for guard in draft.rule.where:
        if expressions.holds(guard, solver.bindings, solver.space) is not None and solver.solve(guard):
            changed, solver = True, _of_operands(draft)
    return changed


def _of_operands(draft: ExampleDraft) -> _Solver:
    """A solver that knows nothing but the operands of a draft."""
    graph = Graph(header=Header(opsets=(("", draft.opset), ("com.microsoft", 1))))
    values: dict[str, Value | tuple[Value, ...] | None] = {}
    for key, want in draft.leaves.items():
        type_ = TensorType(want.dtype or "float32", want.shape or ())
        elements = None if want.value is None else as_dtype(want.value, type_.dtype)
        if elements is not None and elements.shape == type_.shape:
            values[key] = graph.add_constant(Constant.of(elements, type_.dtype))
        else:
            values[key] = graph.add_input(key, type_)
    return _Solver(draft, Bindings(values, dict(draft.attrs), {}), Workspace(graph))


class _Solver:
    """Solves the guards of one draft that matches but for them."""

    def __init__(self, draft: ExampleDraft, bindings: Bindings[Value], space: Workspace) -> None:
        self.draft, self.bindings, self.space = draft, bindings, space

    def solve(self, guard: GuardExpr) -> bool:
        """Change what was drawn so that the guard may hold; whether anything was changed."""
        try:
            return self._solve(guard)
        except expressions.Unknown:
            return False

    def _solve(self, guard: GuardExpr) -> bool:
        match guard:
            case FunctionCall("and" | "or", parts):
                failing = [p for p in parts if expressions.holds(p, self.bindings, self.space) is not None]
                self.draft.random.shuffle(failing)
                return any(self.solve(p) for p in failing)
            case FunctionCall("==" | "near", (left, right)):
                return self._equate(left, right) or self._equate(right, left)
            case FunctionCall(">" | ">=" | "<" | "<=" as comparison, (left, right)):
                step = {">": 1, ">=": 0, "<": -1, "<=": 0}[comparison]
                step -= BEYOND[comparison] * self.draft.random.choice((0, 0, 1, 2))
                return self._equate(left, right, step) or self._equate(right, left, -step)
            case FunctionCall("!=", (Field(NameRef(name), "dtype"), Lit())) if name in self.draft.leaves:
                self._vary_dtype(name)
                return True
            case FunctionCall("in", (left, Series(items))) if items:
                return self._equate(left, self.draft.random.choice(items))
            case FunctionCall("is_last", (Field(NameRef(name), "value"), rank)) if name in self.draft.leaves:
                last = expressions.evaluate(rank, self.bindings, self.space)
                return isinstance(last, int) and self._assign_leaf(
                    name, "value", (self.draft.random.choice((-1, last - 1)),)
                )
            case FunctionCall("divides", (Field(NameRef(name), "period"), size)) if name in self.draft.leaves:
                return self._repeat(name, size)
            case FunctionCall("divides", (step, size)):
                return self._align(step, size)
            case FunctionCall("same", (Each(Field(NameRef(name), "shape")),)):
                leaves = [f"{name}.{i}" for i in range(self.draft.pattern.counts.get(name, 0))]
                done = [self._assign_leaf(key, "shape", self.draft.leaves[leaves[0]].shape) for key in leaves[1:]]
                return any(done)
            case FunctionCall("is_line", shapes):
                across = self.draft.random.randrange(2)
                done = [self._narrow(shape, across) for shape in shapes]
                return any(done)
            case FunctionCall("is_bias_scale", (Field(NameRef(name), "value"), *factors)) if name in self.draft.leaves:
                return self._scale_bias(name, factors)
            case Field(NameRef(name), "causal") if name in self.draft.leaves:
                return self._blank_out(name)
            case FunctionCall("blanks", (Field(NameRef(name)),)) if name in self.draft.leaves:
                return self._fill(name, -np.inf)
            case FunctionCall("per_channel", (Field(NameRef(name), "shape"), rank)) if name in self.draft.leaves:
                axes = expressions.evaluate(rank, self.bindings, self.space)
                channels = max(self.draft.leaves[name].shape or (1,))
                return (
                    isinstance(axes, int)
                    and axes > 1
                    and self._assign_leaf(name, "shape", (channels, *(1,) * (axes - 2)))
                )
            case FunctionCall(
                "all", (Each(FunctionCall("==", (IndexExpr(Field(NameRef(name), "shape"), index), size))),)
            ):
                count = self.draft.pattern.counts.get(name, 0)
                wanted = expressions.evaluate(size, self.bindings, self.space)
                done = [self._assign_size(f"{name}.{i}", index, wanted) for i in range(count) if index is not None]
                return any(done)
            case FunctionCall(
                "all",
                (
                    Each(
                        FunctionCall(
                            "==",
                            (FunctionCall("%", (IndexExpr(Field(NameRef(name), "shape"), index, None), step)), rest),
                        )
                    ),
                ),
            ):
                return index is not None and self._align_each(name, index, step, rest)
        return False

    def violate(self, guard: GuardExpr) -> bool:
        """Change what was drawn so that the guard may not hold any more; whether anything was changed."""
        match guard:
            case FunctionCall("not", (part,)) if self.solve(part):
                return True
            case FunctionCall(comparison, (left, right)) if comparison in BEYOND and self.draft.random.random() < 0.5:
                more = BEYOND[comparison] * self.draft.random.choice((0, 1, 1, 4))
                if self._equate(left, right, more) or self._equate(right, left, -more):
                    return True
            case FunctionCall("==", (left, right)) if self.draft.random.random() < 0.5:
                more = self.draft.random.choice((-1, 1, 2))
                if self._equate(left, right, more) or self._equate(right, left, more):
                    return True
            case FunctionCall("has_step", (Field(NameRef(name), "value" | "scalar" as fact),)) if (
                name in self.draft.leaves and self.draft.random.random() < 0.5
            ):
                held = self.draft.leaves[name]
                elements = self._drawn(held.shape or (), (0.0, 1e-40))
                return self._assign_leaf(name, fact, _tuple(elements))
        parts = [p for p in subexpressions(guard) if isinstance(p, Field | NameRef)]
        self.draft.random.shuffle(parts)
        changed = any(map(self._vary, parts))
        if self.draft.random.random() < 0.3:  # what is one for the guard may be several operands
            changed |= any(map(self._vary, reversed(parts)))
        return changed

    def _vary(self, part: GuardExpr) -> bool:
        """Change an attribute, or a fact of an operand, to something near it; or of all operands that are alike."""
        draft, random = self.draft, self.draft.random
        match part:
            case NameRef(name) if draft.attrs.get(name) is not None:
                value = draft.attrs[name]
                draft.attrs[name] = self._near(value)
                return draft.attrs[name] != value
            case NameRef(name):
                return self._vary_head(name)
            case Field(NameRef(name), fact):
                leaves = [key for key in draft.leaves if key.partition(".")[0] == name]
                if not leaves and fact in ("rank", "shape", "size"):
                    leaves = [key for key in draft.below(name) if key in draft.leaves]
                if not leaves:
                    return False
                key = random.choice(leaves)
                want = draft.leaves[key]
                shape = want.shape or ()
                match fact:
                    case "is_const":
                        draft.constness[key] = name not in draft.hints.constants
                    case "dtype":
                        self._vary_dtype(key)
                    case "rank" | "shape" | "size" if isinstance(want.value, tuple) and random.random() < 0.3:
                        return self._assign_leaf(key, "value", self._near(want.value))  # what a shape comes from
                    case "rank" | "shape" | "size" if random.random() < 0.5 and shape:
                        draft.substitute_size(random.choice(shape), random.choice((1, 2, 3, 4, 5)))
                    case "rank" | "shape" | "size" if random.random() < 0.3:
                        self._vary_rank(len(shape))
                    case "rank" | "shape" | "size":
                        changed = self._near_shape(shape)
                        for k in self._alike(key, shape):
                            value = _spread(draft.leaves[k].value, changed)
                            draft.leaves[k] = replace(draft.leaves[k], shape=changed, value=value)
                    case "low" | "high" if "float" in (want.dtype or "") and random.random() < 0.3:
                        draft.leaves[key] = replace(want, value=self._drawn(shape, MAGNITUDES), low=None, high=None)
                    case "low" | "high":
                        low = random.choice((-40, -3, -2, -1, 0, 1, 2))
                        high = low + random.choice((0, 1, 2, 5, 40))
                        draft.bounds[name] = low, high
                        draft.leaves[key] = replace(want, value=None, low=low, high=high)
                    case "numbers":
                        draft.leaves[key] = replace(want, value=self._drawn(shape, MAGNITUDES))
                        draft.constness[key] = True
                    case "value" | "scalar" | "elements" if random.random() < 0.2:
                        draft.constness[key] = False
                    case "value" | "scalar" if want.dtype in WHOLE and len(shape) < 2 and random.random() < 0.3:
                        draft.leaves[key] = replace(
                            want, value=self._drawn(shape, tuple(special(want.dtype or "").tolist()))
                        )
                    case "value" | "scalar" | "elements" if want.value is not None:
                        return self._assign_leaf(key, "value", self._near(want.value))
                    case "value" | "scalar" | "elements" if "float" in (want.dtype or "") and len(shape) < 3:
                        draft.leaves[key] = replace(want, value=self._drawn(shape, SIMPLE))
                    case "value" | "scalar" | "elements":
                        return True
                    case _:
                        return False
                return True
        return False

    def _vary_dtype(self, key: str) -> None:
        """Give an operand another dtype, and all that have to have the same one."""
        draft, random = self.draft, self.draft.random
        held = draft.leaves[key].dtype
        alike, allowed = draft.alike(key)
        options = sorted((allowed or frozenset()) & BITS.keys() - {held})
        if not options or random.random() < 0.5:
            draft.substitute_dtype(held, random.choice(COMMON))
            return
        dtype = random.choice(options)
        for other in alike & draft.leaves.keys():
            draft.leaves[other] = replace(draft.leaves[other], dtype=dtype)

    def _vary_rank(self, rank: int) -> None:
        """Give all operands of a rank one axis more, or one fewer."""
        draft, random = self.draft, self.draft.random
        i, size = random.randint(0, rank), random.choice((1, 2, 3))
        is_less = rank > 0 and random.random() < 0.6
        for key, want in draft.leaves.items():
            shape = want.shape
            if shape is not None and len(shape) == rank and want.value is None:
                cut = min(i, rank - 1) if is_less else i
                changed = (*shape[:cut], *shape[cut + 1 :]) if is_less else (*shape[:cut], size, *shape[cut:])
                draft.leaves[key] = replace(want, shape=changed)

    def _vary_head(self, name: str) -> bool:
        """Let an op variable stand for another op."""
        steps = [step for step in self.draft.pattern.steps if step.call.is_variable and step.call.op == name]
        options = [op for op in DRAWN if all(self.draft.pattern.takes(op, step.call) for step in steps)]
        if not steps or not options:
            return False
        op = self.draft.random.choice(options)
        schema = ops.schema(op)
        for step in steps:
            step.op = op
            step.attrs = {n: v for n, v in step.attrs.items() if schema is not None and n in schema.defaults}
            for required in schema.required if schema is not None else ():
                step.attrs.setdefault(required, 0)
        return True

    def _drawn(self, shape: tuple[int, ...], options: tuple[float, ...]) -> Any:
        """Elements of a shape, each one of the options."""
        return np.asarray(self.draft.random.choices(options, k=prod(shape))).reshape(shape).tolist()

    def _near(self, value: Any) -> Any:
        """A value near another: one of its numbers is a little more or less, or two of them are swapped."""
        random = self.draft.random
        match value:
            case bool():
                return not value
            case int():
                return value + random.choice((1, -1))
            case float():
                return value + random.choice((1.0, -1.0, 0.5))
            case tuple() if len(value) > 1 and random.random() < 0.3:
                i, k = random.sample(range(len(value)), 2)
                swapped = list(value)
                swapped[i], swapped[k] = value[k], value[i]
                return tuple(swapped)
            case tuple() if value:
                i = random.randrange(len(value))
                return (*value[:i], self._near(value[i]), *value[i + 1 :])
        return value

    def _alike(self, key: str, shape: tuple[int, ...]) -> list[str]:
        """An operand, or all of its shape: those of one of its calls, or of all."""
        draft, way = self.draft, self.draft.random.random()
        alike = [k for k, want in draft.leaves.items() if want.shape == shape]
        if way < 0.3:
            return [key]
        calls = [keys for step in draft.pattern.steps if key in (keys := step.leaves)]
        return [k for k in alike if k in draft.random.choice(calls)] if calls and way < 0.7 else alike

    def _near_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape with one axis of another size, one axis more or one fewer; or one of as many elements."""
        random = self.draft.random
        i = random.randint(0, len(shape))
        way = random.random()
        if not shape and way < 0.8:  # as many as another operand has along an axis
            sizes = [n for want in self.draft.leaves.values() for n in want.shape or () if n > 1]
            return (random.choice(sizes),) if sizes else (1,)
        if len(shape) > 1 and way >= 0.9:
            i, k = random.sample(range(len(shape)), 2)
            return tuple(1 if a == i else shape[i] * shape[k] if a == k else n for a, n in enumerate(shape))
        if shape and way >= 0.8:  # the same elements in other places
            return (*shape[i:], *shape[:i]) if len(shape) > 1 else (*shape, 1)
        if way < 0.2 or not shape:
            return (*shape[:i], random.choice((1, 2, 3)), *shape[i:])
        i = min(i, len(shape) - 1)
        return (*shape[:i], *(() if way < 0.4 else (random.choice((1, 2, 3, 4, 5)),)), *shape[i + 1 :])

    def _narrow(self, shape: GuardExpr, across: int) -> bool:
        """Make one axis of a shape one pixel long."""
        sizes = expressions.evaluate(shape, self.bindings, self.space)
        if not isinstance(sizes, tuple) or len(sizes) <= across:
            return False
        return self._assign(shape, (*sizes[:across], 1, *sizes[across + 1 :]))

    def _repeat(self, name: str, size: GuardExpr) -> bool:
        """Make the rows of a constant repeat after so many elements."""
        shape = self.draft.leaves[name].shape or ()
        period = expressions.evaluate(size, self.bindings, self.space)
        if not isinstance(period, int) or period <= 0 or not shape or shape[-1] % period:
            return False
        drawn = np.asarray(self._drawn((*shape[:-1], period), SIMPLE)).reshape((*shape[:-1], period))
        repeated = np.concatenate([drawn] * (shape[-1] // period), axis=-1) if shape[-1] else drawn[..., :0]
        self.draft.leaves[name] = replace(self.draft.leaves[name], value=repeated.tolist())
        return True

    def _scale_bias(self, name: str, factors: Sequence[GuardExpr]) -> bool:
        """Give a bias the scale that a product has."""
        first, second = (
            np.asarray(expressions.evaluate(f, self.bindings, self.space), np.float64).reshape(-1) for f in factors
        )
        if 1 not in (first.size, second.size) and first.size != second.size:
            return False
        scales = first * second
        held = self.draft.leaves[name]
        value = tuple(scales.tolist()) if scales.size > 1 or held.shape else scales.item()
        self._assign_along(name, value)
        return True

    def _assign_along(self, name: str, value: Any) -> None:
        """Give an operand elements, and as many to those that have its shape in the same call."""
        held = self.draft.leaves[name]
        shape = np.shape(value)
        for step in self.draft.pattern.steps:
            for key in step.leaves if name in step.leaves else ():
                want = self.draft.leaves[key]
                if key != name and want.shape == held.shape != shape and want.value is not None:
                    first = np.asarray(want.value).reshape(-1)[:1].tolist() or [0]
                    elements = np.full(shape, first[0]).tolist()
                    self.draft.leaves[key] = replace(want, shape=shape, value=_tuple(elements))
        self.draft.leaves[name] = replace(held, shape=shape, value=value)

    def _blank_out(self, name: str) -> bool:
        """Make a mask one that lets no row see what comes after it."""
        want = self.draft.leaves[name]
        shape = want.shape or ()
        if len(shape) < 2:
            return False
        n = shape[-2] if shape[-2] > 1 or self.draft.random.random() < 0.5 else shape[-1]
        lower = np.tril(np.ones((n, n), bool))
        mask = lower if want.dtype == "bool" else np.where(lower, 0.0, -np.inf)
        whole = np.broadcast_to(mask, (*shape[:-2], n, n))
        self.draft.leaves[name] = replace(want, shape=whole.shape, value=whole.tolist())
        self.draft.constness[name] = True
        return True

    def _fill(self, name: str, number: float) -> bool:
        """Make an operand a constant of one number, or one of its rows."""
        want = self.draft.leaves[name]
        shape = want.shape or ()
        elements = np.full(shape, number)
        if len(shape) > 1 and number == -np.inf and self.draft.random.random() < 0.5:
            elements[..., 1:, :] = 0.0
        self.draft.leaves[name] = replace(want, value=elements.tolist(), low=None, high=None)
        self.draft.constness[name] = True
        return True

    def _align(self, step: GuardExpr, size: GuardExpr) -> bool:
        """Make a size a multiple of another."""
        try:
            part, whole = (expressions.evaluate(e, self.bindings, self.space) for e in (step, size))
        except expressions.Unknown:
            return False
        if not (isinstance(part, int) and isinstance(whole, int) and part > 0):
            return False
        return self._assign(size, max(whole + -whole % part, part))

    def _align_each(self, name: str, index: GuardExpr, step: GuardExpr, rest: GuardExpr) -> bool:
        """Make one axis of each value of a starred variable longer, until it leaves that rest."""
        axis, size, left = (expressions.evaluate(e, self.bindings, self.space) for e in (index, step, rest))
        if not (isinstance(axis, int) and isinstance(size, int) and isinstance(left, int)):
            return False
        changed = False
        for i in range(self.draft.pattern.counts.get(name, 0)):
            shape = self.draft.leaves[f"{name}.{i}"].shape or ()
            if -len(shape) <= axis < len(shape):
                aligned = shape[axis] + (left - shape[axis]) % size
                changed |= self._assign_size(f"{name}.{i}", index, aligned or size)
        return changed

    def _equate(self, left: GuardExpr, right: GuardExpr, more: int = 0) -> bool:
        """Make one side of a comparison what the other is, or a little more; of what is no whole number by a factor."""
        try:
            value: Any = expressions.evaluate(right, self.bindings, self.space)
            if more and isinstance(value, float) and value > 0 and self.draft.random.random() < 0.5:
                return self._assign(left, value * 2.0**more)
            return self._assign(left, value + more if more else value)
        except (expressions.Unknown, TypeError):
            return False

    def _assign(self, target: GuardExpr, value: Any) -> bool:
        """Make an expression have a value by changing one of the things it is made of."""
        match target:
            case NameRef("opset") if isinstance(value, int) and EARLIEST <= value <= ops.LATEST:
                self.draft.opset = value
                return True
            case NameRef(name) if name in self.draft.attrs:
                self.draft.attrs[name] = value
                return True
            case Field(NameRef(name), "shape" | "rank" | "value" | "scalar" | "elements" | "dtype" as fact) if (
                name in self.draft.leaves
            ):
                return self._assign_leaf(name, fact, value)
            case Field(NameRef(name), "shape") if isinstance(value, tuple):
                return self._tell(name, value)
            case Field(NameRef(name), "low" | "high" | "row_high") if (
                name in self.draft.leaves and isinstance(value, float) and abs(value) > LARGEST
            ):
                return self._fill(name, value)
            case Field(NameRef(name), "low" | "high" as fact) if name in self.draft.leaves:
                return self._assign_end(name, fact, value)
            case FunctionCall("flat", (Field(NameRef(name), "value"),)) if name in self.draft.leaves and isinstance(
                value, tuple
            ):
                shape = self.draft.leaves[name].shape or ()
                fitting = shape if prod(shape) == len(value) else (len(value),)
                elements = np.asarray(value).reshape(fitting).tolist()
                self.draft.leaves[name] = replace(self.draft.leaves[name], shape=fitting, value=elements)
                return True
            case Each(body) | Series((Each(body),)) if isinstance(value, tuple):
                return self._assign_each(body, value)
            case Series((part,)) if isinstance(value, tuple) and len(value) == 1:
                return self._assign(part, value[0])
            case IndexExpr(Field(NameRef(name), "shape"), index, None, False) if (
                name in self.draft.leaves and index is not None
            ):
                return self._assign_size(name, index, value)
            case IndexExpr(Field(NameRef(name), "shape"), start, stop, True) if (
                name in self.draft.leaves and isinstance(value, tuple)
            ):
                shape = self.draft.leaves[name].shape or ()
                ends = (
                    None if e is None else expressions.evaluate(e, self.bindings, self.space) for e in (start, stop)
                )
                first, last, _ = slice(*ends).indices(len(shape))
                return self._assign_leaf(name, "shape", (*shape[:first], *value, *shape[max(first, last) :]))
            case IndexExpr(Field(NameRef(name), "value" | "shape" as fact), Lit(0), None, False) if (
                name in self.draft.leaves
            ):
                return self._assign_leaf(name, fact, (value,))
            case FunctionCall("len", (Field(NameRef(name), "value"),)) if name in self.draft.leaves:
                held = self.draft.leaves[name].value
                if not isinstance(held, tuple) or not 0 <= value < len(held):
                    return False
                self.draft.leaves[name] = replace(self.draft.leaves[name], value=held[:value], shape=(value,))
                return True
            case FunctionCall("product", (part,)) if isinstance(value, int):
                factors = expressions.evaluate(part, self.bindings, self.space)
                if isinstance(factors, tuple) and factors:
                    longest = max(range(len(factors)), key=factors.__getitem__)
                    rest = prod(n for i, n in enumerate(factors) if i != longest)
                    if rest and value % rest == 0:
                        changed = (*factors[:longest], value // rest, *factors[longest + 1 :])
                        return self._assign(part, changed)
            case FunctionCall("axis", (part, rank)) if isinstance(value, int):
                axes = expressions.evaluate(rank, self.bindings, self.space)
                return isinstance(axes, int) and self._assign(part, self.draft.random.choice((value, value - axes)))
            case FunctionCall("dtype", (part,)) if value in CODES:
                return self._assign(part, CODES[value])
            case FunctionCall("range", (part,)) if isinstance(value, tuple):
                return self._assign(part, len(value))
            case FunctionCall("+", (left, right)) if isinstance(value, tuple):
                return self._assign_parts(left, right, value)
            case FunctionCall("%", (left, right)):
                held, step = (expressions.evaluate(e, self.bindings, self.space) for e in (left, right))
                if isinstance(held, int) and isinstance(step, int) and isinstance(value, int) and step > 0:
                    return self._assign(left, max(held - held % step + value, value or step))
            case FunctionCall("//", (left, right)) if isinstance(value, int):
                divisor = expressions.evaluate(right, self.bindings, self.space)
                return isinstance(divisor, int) and self._assign(left, value * divisor)
            case FunctionCall("*" | "+" as operator, (left, right)):
                for part, other in ((right, left), (left, right)):
                    try:
                        operand = expressions.evaluate(other, self.bindings, self.space)
                        wanted = value / operand if operator == "*" else value - operand
                    except (expressions.Unknown, TypeError, ZeroDivisionError):
                        continue
                    if self._assign(part, wanted):
                        return True
        return False

    def _tell(self, name: str, shape: tuple[int, ...]) -> bool:
        """Tell a call of this name which shape its result is to have."""
        if not all(isinstance(n, int) and 0 <= n <= LARGEST for n in shape):
            return False
        for step in self.draft.pattern.steps:
            if step.call.name == name and step.op in TOLD and (told := self.draft.told(step)):
                step.want = replace(step.want, shape=shape)
                self.draft.leaves[told[0]] = replace(self.draft.leaves[told[0]], shape=(len(shape),), value=shape)
                return True
        return False

    def _assign_end(self, name: str, fact: str, value: Any) -> bool:
        """Give an operand its least or largest element; where the other end is known, it stays."""
        other = self._end(name, "high" if fact == "low" else "low")
        low, high = (value, max(other, value)) if fact == "low" else (min(other, value), value)
        want = self.draft.leaves[name]
        if not -LARGEST <= low <= high <= LARGEST:
            return False
        self.draft.bounds[name] = int(low), int(high)
        size = prod(want.shape or ())
        is_const = self.draft.constness.get(name, name in self.draft.hints.constants)
        elements = [low, high, *self.draft.random.choices((low, high), k=max(size - 2, 0))][:size]
        held = np.asarray(elements).reshape(want.shape or ()).tolist() if is_const and size <= LARGEST else None
        self.draft.leaves[name] = replace(want, value=held, low=int(low), high=int(high))
        return True

    def _end(self, name: str, fact: str) -> Any:
        """The least or largest element of an operand, where it is a number; else 0."""
        try:
            end: Any = expressions.evaluate(Field(NameRef(name), fact), self.bindings, self.space)
        except expressions.Unknown:
            return 0
        return end if abs(end) <= LARGEST else 0

    def _assign_each(self, body: GuardExpr, values: tuple[Any, ...]) -> bool:
        """Give each value of a starred variable its part."""
        single = False
        if isinstance(body, IndexExpr) and body.index == Lit(0):
            body, single = body.of, True
        if not isinstance(body, Field) or not isinstance(body.of, NameRef):
            return False
        name, fact = body.of.name, body.name
        if self.draft.pattern.counts.get(name) != len(values):
            return False
        for i, value in enumerate(values):
            self._assign_leaf(f"{name}.{i}", fact, (value,) if single else value)
        return True

    def _assign_size(self, name: str, index: GuardExpr, size: Any) -> bool:
        """Give one axis of an operand a size."""
        axis = expressions.evaluate(index, self.bindings, self.space)
        shape = list(self.draft.leaves[name].shape or ())
        if not isinstance(axis, int) or not isinstance(size, int) or not -len(shape) <= axis < len(shape):
            return False
        if not 0 <= size <= LARGEST:
            return False
        shape[axis] = size
        return self._assign_leaf(name, "shape", tuple(shape))

    def _assign_parts(self, left: GuardExpr, right: GuardExpr, value: tuple[Any, ...]) -> bool:
        """Give both parts of a sum of sequences what they need."""
        try:
            cut = len(expressions.evaluate(left, self.bindings, self.space))  # type: ignore[arg-type]
        except (expressions.Unknown, TypeError):
            return False
        done = [self._assign(left, value[:cut]), self._assign(right, value[cut:])]
        return any(done)

    def _assign_leaf(self, name: str, fact: str, value: Any) -> bool:
        """Give an operand a fact."""
        want = self.draft.leaves[name]
        match fact:
            case "shape":
                if not all(isinstance(n, int) and 0 <= n <= LARGEST for n in value):
                    return False
                self.draft.leaves[name] = self.draft.pinned[name] = replace(want, shape=tuple(value), value=None)
            case "rank":
                shape = want.shape or ()
                self.draft.leaves[name] = replace(
                    want, shape=(1,) * (value - len(shape)) + shape[max(len(shape) - value, 0) :]
                )
            case "dtype":
                for key in self.draft.alike(name)[0] & self.draft.leaves.keys():
                    self.draft.leaves[key] = replace(self.draft.leaves[key], dtype=value)
                self.draft.leaves[name] = replace(want, dtype=value)
            case _:
                self.draft.leaves[name] = replace(want, value=value)
        return True


def _spread(value: Any, shape: tuple[int, ...]) -> Any:
    """A number as several along one axis that differ; None of anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or len(shape) != 1:
        return None
    return tuple(value + i if isinstance(value, int) else value * (i + 1) for i in range(shape[0]))


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
