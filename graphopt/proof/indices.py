"""Proofs of rules that move elements, for all tensors up to a rank: each small instance once, its elements symbols.

The left side is written out in every way: every small shape of its operands, every permutation, axis, slice and the
like. Where the rule fires both sides are computed on symbols, so that one instance stands for all elements. Attributes
that a rule hands on as they are (``**rest``) have their defaults, and an op variable is one op of its kind, which the
computation on symbols knows nothing of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
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
from graphopt.ir.graph import Attrs, Graph, Header, Value
from graphopt.ir.infer import infer_node
from graphopt.ir.types import TensorType
from graphopt.proof.evidence import right_expressions
from graphopt.proof.scalars import headed
from graphopt.proof.symbols import PARAMETERS, Algebra, Opaque, compute, integer, is_computable
from graphopt.rewrite.checking.check import applied
from graphopt.rewrite.checking.examples import Example
from graphopt.rewrite.checking.examples.arrays import numpy_dtype
from graphopt.rewrite.checking.examples.hints import Hints
from graphopt.rewrite.checking.examples.pattern import ConcreteCall, ConcretePattern, Leaf, LiteralLeaf, Tree, variants
from graphopt.rewrite.checking.examples.sample import Misfit
from graphopt.rewrite.guards import expressions
from graphopt.rewrite.guards.bindings import Bindings, Head
from graphopt.rewrite.match.matcher import matches
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.rule.rule import (
    Field,
    FunctionCall,
    Lit,
    NameRef,
    Rule,
    Soundness,
    calls,
    subexpressions,
    variables,
)

LIMIT = 500
"""How many instances are written out at most for one way of writing a rule and one rank; of ranks with more, none."""
WORK = 4000
"""How many calls are looked at on the way to them."""
WEIGHT = 4
"""The work that one instance is counted as."""
DEEPEST = 4
SIZES = ((0, 1, 2, 3, 4), (0, 1, 2), (1, 2, 3), (1, 2))
"""The sizes of axes: of each rank the first of these that has few enough instances, all of which can be computed."""
STARS = (1, 2, 3)
"""How many values a starred variable stands for."""
REPRESENTATIVES = {"unary": "Abs", "binary": "Pow", "reduce": "ReduceL1", "elementwise": "Abs"}
"""The op that stands for an op variable of a kind."""


@dataclass(frozen=True)
class Bounded:
    """What came of it: ``index`` or ``reals``, up to which rank; else why not."""

    kind: str | None
    scope: str = ""
    why: str = ""
    work: int = 0


def prove(rule: Rule, limit: int = LIMIT) -> Bounded:
    """The proof of a rule for all small tensors, or why there is none."""
    values = _decisive(rule)
    if values:
        return Bounded(None, why=f"the right side is computed from the elements of {', '.join(sorted(values))}")
    opaque = {c.op for t in (*rule.lhs, *rule.rhs) for c in calls(t) if not c.is_variable and not is_computable(c.op)}
    if opaque:
        return Bounded(None, why=f"{', '.join(sorted(opaque))} is not computed on symbols")
    kinds = ["index"] + (["reals"] if rule.soundness in (Soundness.REALS, Soundness.APPROX) else [])
    # without the guards that ask for elements, which are symbols, more is proved than is claimed
    parameters = _parameters(rule)
    loose = replace(rule, where=tuple(g for g in rule.where if not _asked_elements(g) - parameters))
    why = ""
    for kind in kinds:
        reached: list[tuple[int, ...]] = []
        work = 0
        for rank in range(1, DEEPEST + 1):
            try:
                sizes, instances = _largest(loose, rank, kind == "reals", limit)
            except (_TooMany, Opaque, _Different) as unproved:
                why = why if isinstance(unproved, _TooMany) and why else str(unproved)
                if not isinstance(unproved, _TooMany):
                    reached = []
                break
            work += WEIGHT * instances
            reached.append(sizes)
        while reached and not reached[-1]:
            reached.pop()
        if len(reached) > 1 or (reached and not why):
            spans = ", ".join(f"{s[0]} to {s[-1]}" if s else "none" for s in reached)
            return Bounded(kind, f"rank <= {len(reached)}, sizes {spans}", work=work)
    return Bounded(None, why=why or "no small instance fires")


def _largest(rule: Rule, rank: int, is_real: bool, limit: int) -> tuple[tuple[int, ...], int]:
    """The sizes at which both sides agree on all instances of this rank, and how many instances there are.

    No sizes where the rule fires on none. Raises what is in the way at the fewest, and where the sides differ at any.
    """
    operands = len({v.name for t in rule.lhs for v in variables(t)} - _parameters(rule))
    fired, instances = _all_of_rank(rule, rank, SIZES[-1], is_real, limit)
    for sizes in SIZES[:-1]:
        if len(sizes) ** (rank * operands) > 4 * limit:
            continue
        with suppress(_TooMany, Opaque):
            more, count = _all_of_rank(rule, rank, sizes, is_real, limit)
            return (sizes if more else ()), count
    return (SIZES[-1] if fired else ()), instances


class _TooMany(Exception):  # noqa: N818
    """There are more instances than are looked at."""


class _Different(Exception):  # noqa: N818
    """Symbols differ; over numbers both sides may still be equal."""


def _decisive(rule: Rule) -> set[str]:
    """The operands from whose elements the right side is computed, beyond those that say where elements go."""
    written = [e for side in rule.lhs for call in calls(side) for _, e in call.attrs]
    queried = {name for expr in (*written, *right_expressions(rule)) for name in _asked_elements(expr)}
    return queried - _parameters(rule) - handed_on(rule)


def _asked_elements(expr: Any) -> set[str]:
    """The operands whose elements an expression asks for."""
    fields = [p for p in subexpressions(expr) if isinstance(p, Field) and p.name in ELEMENTS]
    return {part.of.name for part in fields if isinstance(part.of, NameRef)}


ELEMENTS = frozenset({"value", "scalar", "low", "high", "elements", "small"})
"""What guards ask of elements."""


def _parameters(rule: Rule) -> set[str]:
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


def _all_of_rank(rule: Rule, rank: int, sizes: Sequence[int], is_real: bool, limit: int) -> tuple[bool, int]:
    """Whether the rule fires on instances of this rank, and both sides agree on all of them, which are counted."""
    fired, instances = False, 0
    for written in (w for variant in variants(rule) for w in headed(variant)):
        for stars in STARS if any(v.starred for t in rule.lhs for v in variables(t)) else (1,):
            pattern = pattern_of(written, stars)
            if pattern is None:
                continue
            plans = Plans(written, pattern, rank, sizes)
            for count, plan in enumerate(plans.all()):
                if count == limit:
                    raise _TooMany(f"more than {limit} instances of rank {rank}")
                fired = _agrees(rule, pattern, plan, Algebra(is_real, plans.named)) or fired
                instances += 1
    return fired, instances


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
        return ConcretePattern(rule, hints, random, ops.LATEST)
    except Misfit:
        return None


@dataclass(frozen=True)
class _InstancePlan:
    """What operands and attributes are in one instance, as far as it is settled."""

    facts: dict[str, Fact] = field(default_factory=dict)
    attrs: dict[str, Any] = field(default_factory=dict)
    steps: dict[int, tuple[Attrs, tuple[Fact, ...]]] = field(default_factory=dict)

    def with_fact(self, key: str, fact: Fact) -> _InstancePlan:
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
        self.hints = pattern.hints
        self.names = {leaf.key: leaf.name for leaf in _leaves(pattern)}

    def all(self) -> Iterator[_InstancePlan]:
        """The plans whose largest rank is this one, and whose guards hold as far as types say."""
        for plan in self._roots(self.pattern.roots, _InstancePlan()):
            ranks = [f.rank or 0 for f in plan.facts.values()]
            if max(ranks, default=0) == self.rank and self._may_hold(plan):
                yield plan

    def _roots(self, roots: Sequence[Tree], plan: _InstancePlan) -> Iterator[_InstancePlan]:
        if not roots:
            yield plan
            return
        for first, _ in self._visit(roots[0], plan, None):
            yield from self._roots(roots[1:], first)

    def _may_hold(self, plan: _InstancePlan) -> bool:
        queries = _Asked(plan.facts)
        bindings = self.bindings(plan)
        for i, step in enumerate(self.pattern.steps):
            if step.call.name is not None and id(step) in plan.steps:
                key = f"step {i}"
                queries.facts = {**queries.facts, key: plan.steps[id(step)][1][step.call.output]}
                bindings.values[step.call.name] = key
        return all(
            expressions.holds(guard, bindings, queries) is None or _mentions_use(guard) for guard in self.rule.where
        )

    def no_bindings(self, attrs: dict[str, Any]) -> Bindings[Any]:
        """What names of attributes stand for, and no others."""
        return Bindings({}, dict(attrs), {})

    def no_operands(self) -> _Asked:
        """No operands."""
        return _Asked({})

    def bindings(self, plan: _InstancePlan) -> Bindings[Any]:
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
        self, tree: Tree | None, plan: _InstancePlan, dtype: str | None
    ) -> Iterator[tuple[_InstancePlan, Fact | None]]:
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
                    yield plan.with_fact(key, fact), fact
            case ConcreteCall():
                yield from self._step(tree, plan)

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
            sizes = sorted({*self.sizes, *(n for n in named if type(n) is int and max(self.sizes) < n <= LANES)})
            kept = []
            for shape in (s for r in range(self.rank + 1) for s in product(sizes, repeat=r)):
                if sum(n > max(self.sizes) for n in shape) > 1:
                    continue
                asked = _Asked({name: Fact(TensorType(dtype, shape), name in self.hints.constants)})
                bindings: Bindings[Any] = Bindings({name: name}, {}, {})
                if all(expressions.holds(g, bindings, asked) is None for g in own):
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
        wish = wish or "float32"
        return wish if allowed is None or wish in allowed else sorted(allowed)[0]

    def _step(self, step: ConcreteCall, plan: _InstancePlan) -> Iterator[tuple[_InstancePlan, Fact | None]]:
        if id(step) in plan.steps:
            yield plan, plan.steps[id(step)][1][step.call.output]
            return
        places = parameter_places(step.op)
        data = [i for i in range(len(step.inputs)) if i not in places]
        for settled, facts in self._inputs(step, data, plan, {}):
            for attributed, attrs in self._attrs(step, settled, facts):
                for whole, facts_known in self._parameters(step, places, attributed, facts, attrs):
                    given = [facts_known.get(i) for i in range(len(step.inputs))]
                    self.work += 1
                    if self.work > WORK:
                        raise _TooMany(f"more than {WORK} calls of rank {self.rank}")
                    try:
                        types = infer_node(step.op, attrs, given, step.n_outputs, ops.LATEST)
                    except (GraphoptError, ValueError):
                        continue
                    yield replace(whole, steps={**whole.steps, id(step): (attrs, types)}), types[step.call.output]

    def _inputs(
        self, step: ConcreteCall, places: Sequence[int], plan: _InstancePlan, facts: dict[int, Fact | None]
    ) -> Iterator[tuple[_InstancePlan, dict[int, Fact | None]]]:
        if not places:
            yield plan, facts
            return
        i, *rest = places
        for settled, fact in self._visit(step.inputs[i], plan, self.wish(step.op, i, facts)):
            yield from self._inputs(step, rest, settled, {**facts, i: fact})

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
        return next((d for d in ("float32", "int64", "bool") if not allowed or d in allowed), "float32")

    # -- attributes

    def _attrs(
        self, step: ConcreteCall, plan: _InstancePlan, facts: dict[int, Fact | None]
    ) -> Iterator[tuple[_InstancePlan, Attrs]]:
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
        for settled, attrs in waiting:
            yield settled, ops.canonical(step.op, attrs)

    # -- operands that say where to

    def _parameters(
        self,
        step: ConcreteCall,
        places: Sequence[int],
        plan: _InstancePlan,
        facts: dict[int, Fact | None],
        attrs: Attrs,
    ) -> Iterator[tuple[_InstancePlan, dict[int, Fact | None]]]:
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
            extended, all_known = plan, dict(input_facts)
            for i, value in option.items():
                leaf = trees[i]
                assert isinstance(leaf, Leaf)
                fact = fact_of(Constant.of(np.asarray(value, np.int64)))
                extended, all_known[i] = extended.with_fact(leaf.key, fact), fact
            yield extended, all_known


def _mentions_use(guard: Any) -> bool:
    """Whether a guard speaks of more than types and elements, so that it is left to the match."""
    if isinstance(guard, FunctionCall) and guard.function == "in":
        return True
    return any(isinstance(p, Field) and p.name == "uses" for p in subexpressions(guard))


class _Asked:
    """Facts by key, for guards."""

    opset = ops.LATEST

    def __init__(self, facts: dict[str, Fact]) -> None:
        self.facts = facts

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
                } - _parameters(rule)
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


# -- instances


def _agrees(rule: Rule, pattern: ConcretePattern, plan: _InstancePlan, algebra: Algebra) -> bool:
    """Whether the rule fires on an instance. Raises _Different where both sides are not the same there."""
    instance = _instance(pattern, plan)
    if instance is None:
        return False
    graph, symbolic = instance
    try:
        space = Workspace(graph)
    except GraphoptError:
        return False
    for match in matches(rule, space, graph.producer(graph.outputs[0])):  # type: ignore[arg-type]
        if list(match.roots) != graph.outputs:
            continue
        other = applied(Example(graph, match, {}))
        if isinstance(other, str):
            continue
        try:
            want = compute(graph, algebra, symbolic)
        except ValueError:  # sizes that must agree do not
            continue
        try:
            got = compute(other, algebra, symbolic)
        except ValueError as error:
            raise _Different(f"the right side has no value: {error}") from error
        for a, b in zip(want, got, strict=True):
            if a.shape != b.shape or not np.array_equal(a, b):
                raise _Different("symbols differ")
        return True
    return False


def _instance(pattern: ConcretePattern, plan: _InstancePlan) -> tuple[Graph, dict[Value, str]] | None:
    """The graph of a plan, and which of its values are symbols; None where two roots are one."""
    graph = Graph(header=Header(opsets=(("", ops.LATEST), ("com.microsoft", 1))))
    symbolic: dict[Value, str] = {}
    leaves: dict[str, Value] = {}
    steps: dict[int, int] = {}

    def leaf(key: str) -> Value:
        if key not in leaves:
            fact = plan.facts[key]
            if fact.constant is not None:
                leaves[key] = graph.add_constant(fact.constant)
            elif fact.is_const:
                shape = fact.shape or ()
                count = int(np.prod(shape)) if shape else 1  # type: ignore[arg-type]
                elements = (np.arange(count) + 2).reshape(shape).astype(fact.dtype or "float32")  # type: ignore[arg-type]
                leaves[key] = graph.add_constant(Constant.of(elements))
                symbolic[leaves[key]] = key
            else:
                assert fact.type is not None
                leaves[key] = graph.add_input(key, fact.type)
                symbolic[leaves[key]] = key
        return leaves[key]

    def value(tree: Tree | None, dtype: str | None) -> Value | None:
        match tree:
            case None:
                return None
            case Leaf(key):
                return leaf(key)
            case LiteralLeaf(number):
                name = dtype or (
                    "int64" if isinstance(number, int | tuple) and not isinstance(number, bool) else "float32"
                )
                name = "bool" if isinstance(number, bool) else name
                return graph.add_constant(Constant.of(np.asarray(number).astype(name), name))
        if id(tree) not in steps:
            attrs, facts = plan.steps[id(tree)]
            wish = next((f.dtype for k, f in plan.facts.items() if f.constant is None), None)
            inputs = tuple(
                value(t, "int64" if i in parameter_places(tree.op) else wish) for i, t in enumerate(tree.inputs)
            )
            steps[id(tree)] = graph.add(tree.op, inputs, attrs, len(facts)).id
        return Value(steps[id(tree)], tree.call.output)

    for i, root in enumerate(pattern.roots):
        graph_root = value(root, None)
        if graph_root is None or graph_root in graph.outputs:
            return None
        graph.add_output(f"y{i}", graph_root)
    return graph, symbolic
