"""Instances of a rule's left side: operands of small shapes, attributes, and operands that say where elements go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, islice, permutations, product
from random import Random
from typing import Any

import numpy as np

from graphopt.errors import GraphoptError
from graphopt.ir import ops
from graphopt.ir.bounds import fact_of
from graphopt.ir.constants import Constant
from graphopt.ir.dtypes import CODES
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Attrs
from graphopt.ir.infer import infer_node
from graphopt.ir.types import TensorType
from graphopt.proof.evidence import right_expressions
from graphopt.proof.symbolic_ops import PARAMETERS
from graphopt.proof.symbols import Opaque, integer
from graphopt.rewrite.checking.examples.arrays import numpy_dtype
from graphopt.rewrite.checking.examples.hints import Hints
from graphopt.rewrite.checking.examples.pattern import ConcreteCall, ConcretePattern, Leaf, LiteralLeaf, Tree
from graphopt.rewrite.checking.examples.sample import Misfit
from graphopt.rewrite.guards import expressions
from graphopt.rewrite.guards.bindings import Bindings, Head
from graphopt.rewrite.rule.rule import (
    CallPattern,
    Each,
    Field,
    FunctionCall,
    Lit,
    NameRef,
    Rule,
    Series,
    calls,
    subexpressions,
    variables,
)

WORK = 32000
"""How many steps are taken on the way to them: calls that are looked at,"""
INFERENCE = 8
"""and of so many steps each whose types are inferred, which is done once."""
REPRESENTATIVES = {"unary": "Abs", "binary": "Pow", "reduce": "ReduceL1", "elementwise": "Abs"}
"""The op that stands for an op variable of a kind."""


class TooMany(Exception):  # noqa: N818
    """There are more instances than are looked at."""


ELEMENTS = frozenset({"value", "scalar", "low", "high", "elements", "small"})
"""What guards ask of elements."""


def parameters_of(rule: Rule) -> set[str]:
    """The variables that say where elements go."""
    return {
        v.name
        for side in rule.lhs
        for call in calls(side)
        for i, term in enumerate(call.inputs)
        if i in parameter_places(call.op, call.is_variable)
        for v in variables(term)
    }


def parameter_places(op: str, is_variable: bool = False) -> tuple[int, ...]:
    """Which operands of an op say where elements go."""
    if op in ops.KINDS["reduce"]:
        return (1,)
    return PARAMETERS.get(op, (1, 2, 3) if is_variable else ())


class _Scripted(Random):
    """Makes the choices of writing a pattern out: as many as there are stars, everything there."""

    stars = 1

    def randint(self, a: int, b: int) -> int:
        return min(max(self.stars, a), b)

    def random(self) -> float:
        return 0.0

    def choice(self, seq: Any) -> Any:
        return seq[0]


def pattern_of(rule: Rule, stars: int) -> ConcretePattern | None:
    """The left side with as many values for each star; None where it cannot be written so."""
    hints = Hints.of(rule)
    for name, options in list(hints.heads.items()):
        stand_in = next((REPRESENTATIVES[k] for k in REPRESENTATIVES if set(ops.KINDS[k]) == set(options)), options[0])
        hints.heads[name] = (stand_in,)
    random = _Scripted(0)
    random.stars = stars
    try:
        pattern = ConcretePattern(rule, hints, random, min(hints.opset, ops.LATEST))
    except Misfit:
        return None
    written: dict[CallPattern, list[ConcreteCall]] = {}
    for step in pattern.steps:
        written.setdefault(replace(step.call, output=0, name=None), []).append(step)
    for alike in written.values():  # several outputs of one call
        for step in alike:
            step.n_outputs = max(s.n_outputs for s in alike)
    return pattern


@dataclass(frozen=True)
class InstancePlan:
    """What operands and attributes are in one instance, as far as it is settled."""

    facts: dict[str, Fact] = field(default_factory=dict)
    attrs: dict[str, Any] = field(default_factory=dict)
    steps: dict[int, tuple[Attrs, tuple[Fact, ...]]] = field(default_factory=dict)

    def with_fact(self, key: str, fact: Fact) -> InstancePlan:
        """The plan with an operand settled."""
        return replace(self, facts={**self.facts, key: fact})


_ANY_NUMBER = {("scale", "Attention"), ("scale", "com.microsoft::MultiHeadAttention")}
"""Attributes that are numbers though their default is none."""


class Plans:
    """All instances of a pattern of one rank, of given sizes."""

    def __init__(self, rule: Rule, pattern: ConcretePattern, rank: int, sizes: Sequence[int] = ()) -> None:
        self.rule, self.pattern, self.rank, self.sizes = rule, pattern, rank, sizes
        self.work = 0
        self.named: dict[float, str] = {}
        """Numbers that stand for any number, by what has them."""
        self.handed_on = handed_on(rule)
        self._shapes: dict[tuple[str, str], list[tuple[int, ...]]] = {}
        self._types: dict[Any, tuple[Fact, ...] | None] = {}
        self._constants: dict[str, Fact] = {}
        self.hints = pattern.hints
        self.names = {leaf.key: leaf.name for leaf in _leaves(pattern)}
        self._keys: dict[str, list[str]] = {}
        for key, name in self.names.items():
            self._keys.setdefault(name, []).append(key)
        self._named = {s.call.name: s for s in pattern.steps if s.call.name is not None}
        self._same_dtype: dict[str, list[str]] = {}
        for guard in rule.where:
            match guard:
                case FunctionCall("==", (Field(NameRef(one), "dtype"), Field(NameRef(other), "dtype"))):
                    self._same_dtype.setdefault(one, []).append(other)
                    self._same_dtype.setdefault(other, []).append(one)
        self._guards: dict[str, list[tuple[Any, set[str]]]] = {}
        for guard in map(_of_each, rule.where):
            names = _names(guard) - expressions.SETS - {"opset"}
            for name in names if not _mentions_use(guard) else ():
                self._guards.setdefault(name, []).append((guard, names))

    def all(self) -> Iterator[InstancePlan]:
        """The plans whose largest rank is this one, and whose guards hold as far as types say."""
        for plan in self._roots(self.pattern.roots, InstancePlan()):
            ranks = [f.rank or 0 for f in plan.facts.values()]
            if max(ranks, default=0) == self.rank and self._may_hold(plan):
                yield plan

    def _roots(self, roots: Sequence[Tree], plan: InstancePlan) -> Iterator[InstancePlan]:
        if not roots:
            yield plan
            return
        for first, _ in self._visit(roots[0], plan, None):
            yield from self._roots(roots[1:], first)

    def _may_hold(self, plan: InstancePlan) -> bool:
        bindings, queries = self._scope(plan)
        return all(_mentions_use(guard) or expressions.is_true(guard, bindings, queries) for guard in self.rule.where)

    def _is_open(self, plan: InstancePlan, name: str) -> bool:
        """Whether all guards that speak of a name, and else of what is settled, hold."""
        ready = [(g, n) for g, names in self._guards.get(name, ()) if (n := self._settled(g, names, plan))]
        if not ready:
            return True
        self._step_taken(len(ready))
        bindings, queries = self._scope(plan)
        for guard, count in ready:
            values = {n: v[:count] if type(v) is tuple else v for n, v in bindings.values.items()}
            if not expressions.is_true(guard, replace(bindings, values=values), queries):
                return False
        return True

    def _settled(self, guard: Any, names: set[str], plan: InstancePlan) -> int:
        """Of how many values of the starred variables that a guard names it can be asked by now; 0 if of none."""
        counts = []
        for name in names:
            keys = self._keys.get(name)
            if keys is None:
                if not (name in plan.attrs or (name in self._named and id(self._named[name]) in plan.steps)):
                    return 0
            elif keys == [name]:
                if name not in plan.facts:
                    return 0
            else:
                known = sum(key in plan.facts for key in keys)
                if known < len(keys) and not _is_of_any_number(guard):
                    return 0
                counts.append(known)
        return min(counts, default=1)

    def _scope(self, plan: InstancePlan) -> tuple[Bindings[Any], _Asked]:
        """What guards are asked of."""
        queries = _Asked(plan.facts, self.pattern.opset)
        bindings = self.bindings(plan)
        for name, step in self._named.items():
            if id(step) in plan.steps:
                key = f"step {name}"
                queries.facts = {**queries.facts, key: plan.steps[id(step)][1][step.call.output]}
                bindings.values[name] = key
        return bindings, queries

    def no_bindings(self, attrs: dict[str, Any]) -> Bindings[Any]:
        """What names of attributes stand for, and no others."""
        return Bindings({}, dict(attrs), {})

    def no_operands(self) -> _Asked:
        """No operands."""
        return _Asked({})

    def bindings(self, plan: InstancePlan) -> Bindings[Any]:
        """What names stand for."""
        values: dict[str, Any] = {}
        for key in plan.facts:
            name = self.names.get(key, key)
            if key != name:
                values[name] = (*values.get(name, ()), key)
            else:
                values[name] = key
        heads = {
            s.call.op: Head(s.op, plan.steps[id(s)][0])
            for s in self.pattern.steps
            if s.call.is_variable and id(s) in plan.steps
        }
        return Bindings(values, dict(plan.attrs), heads)

    def _visit(
        self, tree: Tree | None, plan: InstancePlan, dtype: str | None
    ) -> Iterator[tuple[InstancePlan, Fact | None]]:
        match tree:
            case None:
                yield plan, None
            case LiteralLeaf(value):
                name = dtype or (
                    "int64" if isinstance(value, int | tuple) and not isinstance(value, bool) else "float32"
                )
                name = "bool" if isinstance(value, bool) else name
                yield plan, fact_of(Constant.of(np.asarray(value).astype(name), name))
            case Leaf(key):
                if key in plan.facts:
                    yield plan, plan.facts[key]
                    return
                if tree.name in self.handed_on:
                    for rank in (0, 1):
                        numbers = np.full((1,) * rank, self.any_number(key), numpy_dtype(self.dtype(tree.name, dtype)))
                        fact = fact_of(Constant.of(numbers, self.dtype(tree.name, dtype)))
                        yield plan.with_fact(key, fact), fact
                    return
                for shape in self.shapes(tree.name, self.dtype(tree.name, dtype)):
                    fact = Fact(TensorType(self.dtype(tree.name, dtype), shape), tree.name in self.hints.constants)
                    extended = plan.with_fact(key, fact)
                    if self._is_open(extended, tree.name):
                        yield extended, fact
            case ConcreteCall():
                yield from self._step(tree, plan, dtype)

    def any_number(self, name: str) -> float:
        """A number that stands for any number, and that no rule has."""
        known = {n: number for number, n in self.named.items()}
        number = known.get(name, 0.37109375 + len(self.named) / 1024)
        self.named[number] = name
        return number

    def shapes(self, name: str, dtype: str) -> list[tuple[int, ...]]:
        """The shapes of an operand for which the guards on its type alone hold; a size that they name is one."""
        if (name, dtype) not in self._shapes:
            own = [g for g in self.rule.where if _names(g) == {name} and not _mentions_use(g)]
            own = [g for g in own if all(p.name in _OF_TYPES for p in subexpressions(g) if isinstance(p, Field))]
            named = {p.value for g in own if _is_equation(g) for p in subexpressions(g) if isinstance(p, Lit)}
            if any(step.op == "DepthToSpace" for step in self.pattern.steps):
                named.add(4)  # channels that its blocks divide
            sizes = sorted({*self.sizes, *(n for n in named if type(n) is int and max(self.sizes) < n <= LANES)})
            kept = []
            for shape in (s for r in range(self.rank + 1) for s in product(sizes, repeat=r)):
                if sum(n > max(self.sizes) for n in shape) > 1:
                    continue
                asked = _Asked({name: Fact(TensorType(dtype, shape), name in self.hints.constants)})
                bindings: Bindings[Any] = Bindings({name: name}, {}, {})
                if all(expressions.is_true(g, bindings, asked) for g in own):
                    kept.append(shape)
            self._shapes[name, dtype] = kept
        return self._shapes[name, dtype]

    def targets(self, rank: int) -> Iterator[tuple[int, ...]]:
        """All shapes up to a rank."""
        for r in range(rank + 1):
            yield from product(self.sizes, repeat=r)

    def dtype(self, name: str, wish: str | None) -> str:
        """The dtype of an operand that the pattern leaves open."""
        allowed = self.hints.dtypes.get(name)
        for other in self._same_dtype.get(name, ()) if allowed is None else ():
            allowed = self.hints.dtypes.get(other, allowed)
        wish = wish or "float32"
        return wish if allowed is None or wish in allowed else sorted(allowed)[0]

    def _step(
        self, step: ConcreteCall, plan: InstancePlan, dtype: str | None
    ) -> Iterator[tuple[InstancePlan, Fact | None]]:
        if id(step) in plan.steps:
            yield plan, plan.steps[id(step)][1][step.call.output]
            return
        places = parameter_places(step.op)
        data = [i for i in range(len(step.inputs)) if i not in places]
        for settled, facts in self._inputs(step, data, plan, {}, dtype):
            for attributed, attrs in self._attrs(step, settled, facts):
                for whole, facts_known in self._parameters(step, places, attributed, facts, attrs):
                    given = [facts_known.get(i) for i in range(len(step.inputs))]
                    types = self._inferred(step, attrs, given)
                    if types is None:
                        continue
                    done = replace(whole, steps={**whole.steps, id(step): (attrs, types)})
                    if step.call.name is None or self._is_open(done, step.call.name):
                        yield done, types[step.call.output]

    def _step_taken(self, weight: int) -> None:
        self.work += weight
        if self.work > WORK:
            raise TooMany(f"more than {WORK} steps of rank {self.rank}")

    def _constant(self, value: Any) -> Fact:
        """An operand that says where elements go."""
        key = repr(value)
        if key not in self._constants:
            self._constants[key] = fact_of(Constant.of(np.asarray(value, np.int64)))
        return self._constants[key]

    def _inferred(self, step: ConcreteCall, attrs: Attrs, given: list[Fact | None]) -> tuple[Fact, ...] | None:
        """The types of a call's results; None where its operands do not fit. What was asked before is no work."""
        key = step.op, attrs, step.n_outputs, tuple(given)
        self._step_taken(1 if key in self._types else INFERENCE)
        if key not in self._types:
            try:
                self._types[key] = infer_node(step.op, attrs, given, step.n_outputs, self.pattern.opset)
            except (GraphoptError, ValueError):
                self._types[key] = None
        return self._types[key]

    def _inputs(
        self,
        step: ConcreteCall,
        places: Sequence[int],
        plan: InstancePlan,
        facts: dict[int, Fact | None],
        dtype: str | None,
    ) -> Iterator[tuple[InstancePlan, dict[int, Fact | None]]]:
        if not places:
            yield plan, facts
            return
        i, *rest = places
        wish = self.wish(step.op, i, facts)
        letter = ops.input_constraint(step.op, i)
        if dtype is not None and not facts and letter == ops.output_constraint(step.op, step.call.output) == "T":
            wish = dtype  # what takes the result says of which dtype it is
        for settled, fact in self._visit(step.inputs[i], plan, wish):
            known = {**facts, i: fact}
            if fit(step.op, known):
                yield from self._inputs(step, rest, settled, known, dtype)

    def wish(self, op: str, index: int, facts: dict[int, Fact | None]) -> str:
        """The dtype that an operand should have beside others."""
        letter = ops.input_constraint(op, index)
        if letter.startswith("tensor("):
            return ops.dtype_name(letter)
        schema = ops.schema(op)
        dtype = next(
            (f.dtype for i, f in facts.items() if f is not None and ops.input_constraint(op, i) == letter), None
        )
        if dtype is not None:
            return dtype
        allowed = schema.allowed.get(letter, frozenset()) if schema else frozenset()
        return next((d for d in ("float32", "int64", "bool", "int8") if not allowed or d in allowed), "float32")

    # -- attributes

    def _attrs(
        self, step: ConcreteCall, plan: InstancePlan, facts: dict[int, Fact | None]
    ) -> Iterator[tuple[InstancePlan, Attrs]]:
        shape = next((f.shape for f in facts.values() if f is not None), ()) or ()
        waiting = [(plan, Attrs())]
        for name, expr in step.call.attrs:
            extended = []
            for settled, attrs in waiting:
                default = ops.attribute(step.op, Attrs(), name) if ops.schema(step.op) else None
                is_any = isinstance(default, float) or (name, step.op) in _ANY_NUMBER
                if isinstance(expr, NameRef) and expr.name not in settled.attrs and is_any:
                    if not is_handed_on(self.rule, expr.name):
                        raise Opaque(f"what is computed from the attribute {name} of {step.op}")
                    number = self.any_number(f"attribute {expr.name}")
                    given = {**settled.attrs, expr.name: number}
                    extended.append((replace(settled, attrs=given), attrs.with_(**{name: number})))
                elif isinstance(expr, NameRef) and expr.name not in settled.attrs:
                    for value in attribute_options(step.op, name, tuple(shape), step):  # type: ignore[arg-type]
                        extended.append(
                            (replace(settled, attrs={**settled.attrs, expr.name: value}), attrs.with_(**{name: value}))
                        )
                else:
                    try:
                        value = expressions.evaluate(expr, Bindings({}, dict(settled.attrs), {}), _Asked({}))
                    except expressions.Unknown:
                        raise Opaque(f"the attribute {name} of {step.op}") from None
                    extended.append((settled, attrs.with_(**{name: value})))  # type: ignore[arg-type]
            waiting = extended
        schema = ops.schema(step.op)
        for name in schema.required if schema else ():
            if name not in dict(step.call.attrs):
                waiting = [
                    (settled, attrs.with_(**{name: value}))
                    for settled, attrs in waiting
                    for value in attribute_options(step.op, name, tuple(shape), step)  # type: ignore[arg-type]
                ]
        written = [expr.name for _, expr in step.call.attrs if isinstance(expr, NameRef)]
        for settled, attrs in waiting:
            if all(self._is_open(settled, name) for name in written):
                yield settled, ops.canonical(step.op, attrs)

    # -- operands that say where to

    def _parameters(
        self,
        step: ConcreteCall,
        places: Sequence[int],
        plan: InstancePlan,
        facts: dict[int, Fact | None],
        attrs: Attrs,
    ) -> Iterator[tuple[InstancePlan, dict[int, Fact | None]]]:
        trees = {i: step.inputs[i] for i in places if i < len(step.inputs) and step.inputs[i] is not None}
        open_ones = [i for i, t in trees.items() if isinstance(t, Leaf) and t.key not in plan.facts]
        input_facts = dict(facts)
        for i, tree in trees.items():
            if i not in open_ones:
                plans = list(islice(self._visit(tree, plan, "int64"), 2))
                if len(plans) != 1:
                    raise Opaque(f"what {step.op} is told by a computation")
                plan, input_facts[i] = plans[0]
        x = input_facts.get(0)
        shape = () if x is None else x.shape or ()
        if open_ones and not all(isinstance(n, int) for n in shape):
            raise Opaque(f"an operand of {step.op} whose size is not known")
        values = {
            i: f.constant.array.reshape(-1).tolist()
            for i, f in input_facts.items()
            if f is not None and f.constant is not None
        }
        for option in parameter_values(step, tuple(shape), open_ones, values, attrs, self):  # type: ignore[arg-type]
            self._step_taken(1)
            extended, all_known = plan, dict(input_facts)
            for i, value in option.items():
                leaf = trees[i]
                assert isinstance(leaf, Leaf)
                fact = self._constant(value)
                extended, all_known[i] = extended.with_fact(leaf.key, fact), fact
            if all(self._is_open(extended, trees[i].name) for i in option):  # type: ignore[union-attr]
                yield extended, all_known


def fit(op: str, facts: dict[int, Fact | None]) -> bool:
    """Whether the operands of a call that are known so far have shapes that its others and attributes may fit."""
    shapes: dict[int, tuple[Any, ...]] = {i: f.shape for i, f in facts.items() if f is not None and f.shape is not None}
    x = shapes.get(0, ())
    vectors: dict[int, Any] = {}
    match op.rpartition("::")[2]:
        case "QuantizeLinear" | "DequantizeLinear":
            scale = shapes.get(1, ())
            return shapes.get(2, scale) == scale and (len(scale) > 1 or all(n == 1 or n in x for n in scale))
        case "BatchNormalization" | "InstanceNormalization" | "GroupNormalization":
            vectors = dict.fromkeys(range(1, 5), x[1:2])
        case "Conv" | "FusedConv" | "ConvTranspose":
            if len(x) < 3 or len(shapes.get(1, x)) != len(x):
                return False
            if op == "ConvTranspose":
                return len(shapes.get(2, (1,))) == 1
            vectors = {2: shapes.get(1, ())[:1]}
    return all(shapes[i] == vector for i, vector in vectors.items() if i in shapes)


def _of_each(guard: Any) -> Any:
    """An equation of two sequences as one of each of their elements."""
    match guard:
        case FunctionCall("==", (Each(left), Each(right))):
            return FunctionCall("==", (left, right))
    return guard


def _is_of_any_number(guard: Any) -> bool:
    """Whether a guard that holds of several values holds of the first of them."""
    is_same = isinstance(guard, FunctionCall) and guard.function == "same"
    return is_same or not any(isinstance(p, Each | NameRef) for p in _whole(guard))


def _whole(guard: Any) -> Iterator[Any]:
    """The parts of an expression that speak of all values at once: ``each``, and names that are asked for no fact."""
    parts = list(subexpressions(guard))
    asked = [p.of for p in parts if isinstance(p, Field)]
    yield from (p for p in parts if isinstance(p, Each) or (isinstance(p, NameRef) and not any(p is a for a in asked)))


def _mentions_use(guard: Any) -> bool:
    """Whether a guard speaks of more than types, attributes and elements, so that it is left to the match."""
    match guard:
        case FunctionCall("in", (NameRef(), Series(items))):
            return any(isinstance(i, Lit) and isinstance(i.value, str) for i in items)
        case FunctionCall("in", (NameRef(), _)):
            return True
    return any(isinstance(p, Field) and p.name == "uses" for p in subexpressions(guard))


class _Asked:
    """Facts by key, for guards."""

    def __init__(self, facts: dict[str, Fact], opset: int = ops.LATEST) -> None:
        self.facts, self.opset = facts, opset

    def fact(self, value: Any) -> Fact:
        return self.facts[value]

    def constant(self, value: Any) -> Constant | None:
        return self.facts[value].constant

    def uses(self, value: Any) -> int | None:
        return None


def _leaves(pattern: ConcretePattern) -> Iterator[Leaf]:
    waiting: list[Tree | None] = list(pattern.roots)
    while waiting:
        match waiting.pop():
            case Leaf() as leaf:
                yield leaf
            case ConcreteCall(inputs=inputs):
                waiting += inputs


def handed_on(rule: Rule) -> frozenset[str]:
    """Constants whose one number becomes an attribute of the right side as it is, so that it may be any number.

    Guards may speak of it, since they are assumed; where anything is computed from it, it is none of them.
    """
    handed: set[str] = set()
    for side in rule.rhs:
        for call in calls(side):
            for _, expr in call.attrs:
                names = {
                    p.of.name
                    for p in subexpressions(expr)
                    if isinstance(p, Field) and isinstance(p.of, NameRef) and p.name in ELEMENTS
                } - parameters_of(rule)
                match expr:
                    case Field(NameRef(name), "scalar"):
                        handed.add(name)
                    case _ if names:
                        return frozenset()
    return frozenset(handed)


def is_handed_on(rule: Rule, name: str) -> bool:
    """Whether the right side takes an attribute as it is, and computes nothing from it."""
    for expr in right_expressions(rule):
        if any(p == NameRef(name) for p in subexpressions(expr)) and expr != NameRef(name):
            return False
    return True


def _names(guard: Any) -> set[str]:
    return {p.name for p in subexpressions(guard) if isinstance(p, NameRef)}


def _is_equation(guard: Any) -> bool:
    return isinstance(guard, FunctionCall) and guard.function == "=="


_OF_TYPES = ("shape", "rank", "size", "dtype", "is_const")
"""What guards ask of types."""
LANES = 16
"""The largest size that is taken because a guard names it."""


def attribute_options(op: str, name: str, shape: tuple[int, ...], step: ConcreteCall) -> list[Any]:
    """The values that an attribute is tried with."""
    # Bounded exhaustive enumeration, as in Alloy (Jackson: Software Abstractions, "small scope hypothesis"): a case for
    # each attribute, with all values that differ for a tensor of this shape, or the few by which an op's cases differ.
    rank = len(shape)
    match name:
        case "perm":
            return [*permutations(range(rank))]
        case "axis" if op == "Flatten":
            return [*range(rank + 1)]
        case "axis":
            return [*range(rank), -1] if rank else []
        case "keepdims" | "transA" | "transB" | "noop_with_empty_axes" | "select_last_index" | "transBatchA":
            return [0, 1]
        case "mode" if op == "Pad":
            return ["constant", "edge"]
        case "mode" if op == "DepthToSpace":
            return ["DCR", "CRD"]
        case "blocksize":
            return [2]
        case "to" | "output_dtype" if op != "QuantizeLinear":
            return [CODES[d] for d in ("float32", "float16", "float64", "int64", "int32", "uint8", "bool")]
        case "start":
            return [*range(-rank, rank + 1)]
        case "end":
            return [None, *range(-rank, rank + 1)]
        case "is_causal" | "interleaved" | "count_include_pad":
            return [0, 1]
        case "num_groups":
            return [1, 2]
        case "batch_dims" | "storage_order" | "ceil_mode" | "allowzero":
            return [0]
        case "group":
            return [1, 2]
        case "strides" | "dilations":
            return [None, (2,) * max(rank - 2, 0)]
        case "pads":
            return [None, (1, 0) * max(rank - 2, 0)]
        case "auto_pad":
            return ["NOTSET", "VALID"]
        case "kernel_shape" if op in ops.KINDS["pool"] or op.startswith("graphopt::"):
            return [(n,) * max(rank - 2 - op.startswith("graphopt::"), 0) for n in (1, 2)]
        case "kernel_shape":
            return [None]
        case "num_outputs":
            return [step.n_outputs]
        case "size" if op.startswith("graphopt::"):
            return [2]
        case "channels" if op == "graphopt::Unblock":
            blocks, lanes = (shape[1], shape[-1]) if rank > 2 else (0, 0)
            return [*range((blocks - 1) * lanes + 1, blocks * lanes + 1)]
        case "num_heads":
            return [1, 2]
    raise Opaque(f"the attribute {name} of {op}")


def parameter_values(
    step: ConcreteCall, shape: tuple[int, ...], wanted: list[int], values: dict[int, Any], attrs: Attrs, plans: Plans
) -> Iterator[dict[int, Any]]:
    """The values that open operands which say where elements go are tried with."""
    # Bounded exhaustive enumeration, as for attributes: a case for each kind of op. Only values that ONNX allows for
    # the shape are made, and results whose rank is beyond the plans' are left out.
    if not wanted:
        yield {}
        return
    op, rank, most = step.op, len(shape), plans.rank
    total = int(np.prod(shape)) if shape else 1
    if op in ops.KINDS["reduce"] or op == "Squeeze":
        if op == "Squeeze":
            options = [a for a in _subsets(rank, 2) if all(shape[i] == 1 for i in a)]
        else:
            options = _subsets(rank, 3)
        yield from (
            {1: a} for a in (*options, *((-1,) for _ in range(rank > 0 and (op != "Squeeze" or shape[-1] == 1))))
        )
    elif op == "Unsqueeze":
        yield from ({1: a} for n in (1, 2) if rank + n <= most + 1 for a in combinations(range(rank + n), n))
        yield {1: (-1,)}
    elif op == "Reshape":
        for target in plans.targets(most):
            if (int(np.prod(target)) if target else 1) == total:
                yield {1: target}
                if len(target) > 1:
                    yield {1: (-1, *target[1:])}
    elif op == "Expand":
        for target in plans.targets(min(most, rank + 1)):
            if len(target) >= rank and all(
                n in (1, m) for n, m in zip(reversed(shape), reversed(target), strict=False)
            ):
                yield {1: target}
    elif op == "Tile":
        yield from ({1: r} for r in product((1, 2), repeat=rank))
    elif op == "Split":
        axis = integer(attrs, "axis", 0)
        if rank and -rank <= axis < rank:
            yield from ({1: p} for p in product(range(shape[axis] + 1), repeat=step.n_outputs) if sum(p) == shape[axis])
    elif op == "Gather":
        axis = integer(attrs, "axis", 0)
        if rank and -rank <= axis < rank:
            n = shape[axis]
            yield from ({1: i} for i in (*range(n), -1))
            yield from ({1: i} for length in (1, 2, 3) for i in product(range(n), repeat=length))
            yield {1: ((0, n - 1), (n - 1, 0))}
    elif op == "GatherND" and rank and min(shape):
        yield from ({1: [[i]]} for i in range(shape[0]))
        if rank > 1:
            yield {1: [[0, shape[1] - 1], [shape[0] - 1, 0]]}
    elif op == "Pad" and 1 in wanted:
        axes = values.get(3, range(rank)) if 3 not in wanted else range(rank)
        for pads in islice(product((0, 1), repeat=2 * len(axes)), 256):
            yield {1: pads, **({3: tuple(axes)} if 3 in wanted else {})}
    elif op == "Slice":
        yield from _slices(shape, wanted, values)
    else:
        raise Opaque(f"the operands of {op}")


def _subsets(rank: int, most: int) -> list[tuple[int, ...]]:
    return [a for n in range(1, min(rank, most) + 1) for a in combinations(range(rank), n)]


END = 2**63 - 1


def _slices(shape: tuple[int, ...], wanted: list[int], values: dict[int, Any]) -> Iterator[dict[int, Any]]:
    rank = len(shape)
    if 3 in wanted:
        options: list[tuple[int, ...]] = [(a,) for a in range(rank)]
        options += ([(0, 1)] if rank > 1 else []) + ([(-1,)] if rank else [])
    else:
        options = [tuple(values[3])] if 3 in values else [tuple(range(min(rank, 1)))]
    for axes in options:
        if not axes or any(not -rank <= a < rank for a in axes):
            continue
        parts = [[*_ranges(shape[a], rank, 4 in wanted or 4 in values)] for a in axes]
        if 3 in wanted and (len(axes) > 1 or axes[0] < 0):  # any axis is said in the one way, and its ends in all
            parts = [p[1:2] for p in parts]
        for chosen in product(*parts):
            choices = {
                1: tuple(c[0] for c in chosen),
                2: tuple(c[1] for c in chosen),
                3: axes,
                4: tuple(c[2] for c in chosen),
            }
            if all(i in wanted or list(choices[i]) == list(values[i]) for i in (1, 2, 4) if i in wanted or i in values):
                yield {i: choices[i] for i in wanted}


def _ranges(n: int, rank: int, with_steps: bool) -> Iterator[tuple[int, int, int]]:
    """Starts, ends and steps on an axis of this size: all of one axis, and of more those by which cases differ."""
    if rank == 1:
        for start in range(n + 1):
            for end in (*range(start, n + 1), END):
                yield start, end, 1
    else:
        yield from ((0, END, 1), (1, END, 1), (0, 1, 1))
    yield from ((-1, END, 1), (0, -1, 1))
    if with_steps:
        yield from ((0, END, 2), (1, END, 2), (-1, -END, -1), (n - 1, -END, -2))
