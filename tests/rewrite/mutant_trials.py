"""Trials of mutants: the graphs on which the mutants of a rule are judged, and what comes of each.

Graphs are drawn in which the rule applies, and others near them that violate one guard and nothing else; both also
with sizes, or ranks, that are not known. Guards that say where the rule pays are left out: without them it is as true,
and graphs may be small. Where a mutant's sides differ on symbols, small graphs are gone through one after another. A
mutant is *killed* where it does not read, where its sides differ (over the reals: in double precision too), where its
right side is ill-typed as the rule's own never is, or where it does not apply to a graph to which the rule does. It is
*equivalent* where a solver shows that its guards say as much, where no other op takes what an op variable does, or
where it is proved as the rule is. A guard that the rule says asks only where it pays is one of *profitability*, and
nothing may be wrong where it is violated. Everything else has *survived*.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, product
from random import Random
from zlib import crc32

import numpy as np

from graphopt.errors import GraphoptError
from graphopt.ir.constants import Array
from graphopt.ir.graph import Graph
from graphopt.rewrite.checking.check import (
    SETTLED,
    SIZES,
    TRIES,
    Depth,
    applied,
    check_rule,
    compute,
    counterexample,
    difference,
    draws,
    in_onnxruntime,
    opened,
    sized,
)
from graphopt.rewrite.checking.examples import Example, examples, violations
from graphopt.rewrite.checking.examples.draft import ExampleDraft
from graphopt.rewrite.guards import expressions
from graphopt.rewrite.match.matcher import matches
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.rule.notation import show_rule
from graphopt.rewrite.rule.rule import (
    Field,
    FunctionCall,
    GuardExpr,
    NameRef,
    Rule,
    Soundness,
    calls,
    subexpressions,
)
from graphopt.rewrite.rule.rule_digest import content
from graphopt.verify.double import evaluated
from graphopt.verify.runtimes import EngineError
from tests.rewrite.guard_implication import implied
from tests.rewrite.mutant_proofs import TRIED, proved, same, unequal
from tests.rewrite.mutants import Mutant

WORTH = frozenset({"is_const", "uses", "smaller", "opset"})
"""What guards speak of that say where a rule pays, and not where it is true, though they do not stand in ``pays``."""
MAGNITUDES = frozenset({"absorbs", "bounded", "cancels", "mergeable", "moderate", "overflows"})
"""Functions of guards that keep rounding and range as people expect them, which the class of the rule does not ask."""
FITS, PLACES, VIOLATIONS = 16, 32, 24
"""In how many graphs a rule is to apply, in how many its guards are to hold, and how many are to violate one guard."""
WORTHY = 4
"""In how many more a rule is to apply where it pays too, where it has guards that say so."""
UNEQUAL = 100
"""On how many of the small graphs on which symbols differ numbers are tried."""
RUNS = 6
"""In how many of them ONNX Runtime computes both sides, where nothing else was found."""
COARSE = 1e-6
"""By such a share of the largest element, in double precision, no sides are apart that are equal over the reals."""
FEW = 4
"""In how many of the graphs in which a rule applies each size is not known, once and alone."""
HEADS = 8
"""At least so many times as many where the guard says which ops a variable may be: others are many, and many agree."""
NO_KERNEL = "it cannot be computed"
"""How it begins what ONNX Runtime says where it has no kernel for dtypes."""
FLAGS = frozenset({
    "allowzero", "ceil_mode", "count_include_pad", "exclusive", "interleaved", "is_causal", "keepdims",
    "largest", "reverse", "saturate", "select_last_index", "transA", "transB", "unidirectional",
})  # fmt: skip
"""Attributes that are 0 or 1, by the specification of each op that has them."""
SHAPES = frozenset({"rank", "shape", "size"})
"""What guards ask of shapes."""


@dataclass(frozen=True)
class Outcome:
    """What came of a mutant: ``killed``, ``equivalent``, ``profitability`` or ``survived``, and why."""

    mutant: Mutant
    fate: str
    why: str


class Place:
    """A graph in which the left side of a rule occurs, and the numbers on which both sides are compared there."""

    def __init__(
        self, example: Example, seed: int, names: Mapping[str, int] | None = None, ways: tuple[str, ...] = ()
    ) -> None:
        self.example, self.names, self.ways = example, names or {}, ways
        self.soundness = example.match.rule.soundness
        self.space = Workspace(example.graph, example.facts)
        self.seed = seed
        self._outputs: dict[int, list[Array] | GraphoptError] = {}

    @cached_property
    def draws(self) -> list[dict[str, Array]]:
        """Numbers for the inputs; where sizes have names, with each of them another size too."""
        generator = np.random.default_rng(self.seed)
        drawn = []
        for name, size in product(self.names, SIZES):
            if shapes := sized(self.example, {**self.names, name: size}):
                drawn.append(self.example.draw(generator, "plain", shapes))
        for way in (*draws(self.soundness, self.example.graph), *self.ways):
            with suppress(ValueError, MemoryError):  # no array can be that large or have that many axes
                drawn.append(self.example.draw(generator, way))
        return drawn

    @property
    def is_valid(self) -> bool:
        """Whether the left side has a value."""
        with suppress(Exception):
            return any(self.left(inputs) is not None for inputs in self.draws[:1])
        return False

    def left(self, inputs: Mapping[str, Array]) -> list[Array]:
        """What the left side computes; of numbers that were drawn once only."""
        if not any(inputs is drawn for drawn in self.draws):
            return compute(self.example.graph, inputs)
        if id(inputs) not in self._outputs:
            try:
                self._outputs[id(inputs)] = compute(self.example.graph, inputs)
            except GraphoptError as error:
                self._outputs[id(inputs)] = error
        outputs = self._outputs[id(inputs)]
        if isinstance(outputs, GraphoptError):
            raise outputs
        return outputs

    def holds(self, guard: GuardExpr) -> bool:
        """Whether a guard holds here."""
        return expressions.holds(guard, self.example.match.bindings, self.space) is None

    def made(self, rule: Rule) -> Graph | str:
        """The graph with the right side of a rule that has the same left side, or why that does not fit."""
        other = applied(replace(self.example, match=replace(self.example.match, rule=rule)))
        if isinstance(other, str):
            return other
        for node in other.nodes():
            for name in FLAGS & set(node.attrs):
                if node.attrs[name] not in (0, 1, None):
                    return f"{name} of {node.op} is {node.attrs[name]}, and has to be 0 or 1"
        return other

    def in_runtime(self, other: Graph) -> str | None:
        """What ONNX Runtime makes of another right side on the first draw, where it computes the left side: what it
        says where it refuses it, how the results differ, or nothing. Raises EngineError where it refuses the left,
        and where it would compute with nothing, at which some of its kernels end the process."""
        left, right = in_onnxruntime(self.example.graph), in_onnxruntime(other)
        for inputs in self.draws[:1]:
            if not all(array.size for array in inputs.values()):
                raise EngineError("nothing is computed of nothing")
            try:
                left(inputs)
            except GraphoptError as refusal:
                raise EngineError(str(refusal)) from None
            off = difference(self.example, other, inputs, self.soundness, left, right)
            if off is None:
                try:
                    right(inputs)
                except GraphoptError as refusal:
                    return str(refusal)
            elif off[0] > 1:
                return counterexample(self.example, other, off[1])
        return None

    def apart(self, other: Graph) -> list[float]:
        """How far another right side is from the left one in double precision, by draw: as a share of the largest
        element."""
        found = []
        for inputs in self.draws:
            with suppress(GraphoptError, ValueError), np.errstate(all="ignore"):
                want, got = _in_double(self.example.graph, inputs), _in_double(other, inputs)
                off = float(np.abs(want - got).max(initial=0.0) / np.abs(want).max(initial=0.0))
                found.append(off if np.isfinite(off) else 0.0)
        return found

    def matched(self, rule: Rule) -> bool:
        """Whether another rule applies at the same outputs."""
        outputs = self.space.graph.outputs
        for match in matches(rule, self.space, self.space.graph.producer(outputs[0])):  # type: ignore[arg-type]
            if list(match.roots) == outputs and not isinstance(applied(replace(self.example, match=match)), str):
                return True
        return False

    def compared(self, other: Graph) -> tuple[int, str | None]:
        """On how many draws both sides were compared, and the first on which they differ, in words."""
        count = 0
        for inputs in self.draws:
            try:
                self.left(inputs)
            except GraphoptError:
                pass
            except Exception:  # what an evaluator fails on is no valid graph
                continue
            try:
                off = difference(self.example, other, inputs, self.soundness, self.left, is_in_range=True)
            except Exception as error:
                return count, f"fails with {type(error).__name__}: {error}"
            if off is not None and off[0] > 1 and not self.agree_in_runtime(other, inputs):
                return count, counterexample(self.example, other, off[1])
            count += off is not None
        return count, None

    def agree_in_runtime(self, other: Graph, inputs: Mapping[str, Array]) -> bool:
        """Whether both sides of a strict rule are equal in ONNX Runtime, by which its class goes: what NaN is as an
        integer, say, is numpy's."""
        if self.soundness not in (Soundness.EXACT, Soundness.FINITE):
            return False
        try:
            left, right = in_onnxruntime(self.example.graph), in_onnxruntime(other)
        except ImportError:
            return False
        off = difference(self.example, other, inputs, self.soundness, left, right)
        return off is not None and off[0] <= 1


def _in_double(graph: Graph, inputs: Mapping[str, Array]) -> Array:
    """All elements of the outputs of a graph, computed in double precision."""
    wanted = [v for v in graph.outputs if v is not None]
    found = evaluated(graph, {v: inputs[graph.names[v]] for v in graph.inputs}, wanted)
    return np.concatenate([np.asarray(found[v]).astype(np.float64).ravel() for v in wanted])


@dataclass
class Seen:
    """What was seen of a mutant on graphs that violate a guard: on how many its sides agree, and what was refused."""

    violated: int = 0
    agreed: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    places: list[tuple[Place, Graph]] = field(default_factory=list)
    """Where nothing is wrong, with the graph that the right side makes."""


class Trial:
    """The graphs on which the mutants of one rule are judged. With more effort they are more, and proofs are tried."""

    def __init__(self, rule: Rule, effort: int = 1) -> None:
        self.rule, self.effort = rule, effort
        self.random = Random(crc32(content(rule).encode()))
        self.bases: list[ExampleDraft] = []
        self.fitting: list[Place] = []
        """Graphs in which the rule applies."""
        self.refusals: set[str] = set()
        """Why its right side is refused in others in which its guards hold."""
        self.lacking: set[str] = set()
        """For what on its right side ONNX Runtime has no kernel."""
        self.ways: tuple[str, ...] = ()
        """With which other numbers both its sides agree."""
        self.truth = without_worth(rule)
        self._find(self.truth, FITS * effort, PLACES * effort)
        if rule.pays:
            self._find(rule, len(self.fitting) + WORTHY * effort, WORTHY * effort)

    def _find(self, rule: Rule, fits: int, places: int) -> None:
        """Look for graphs in which a rule applies until there are so many, and in so many of which its guards hold."""
        left, seen = TRIES, 0
        for example in examples(rule, self.random, TRIES, bases=self.bases):
            left -= 1
            if left < 0 or (len(self.fitting) >= fits and seen >= places):
                break
            if isinstance(example, str):
                continue
            seen += 1
            place = self.place(example)
            other = place.made(rule)
            if isinstance(other, str):
                if place.is_valid:
                    self.refusals.add(kind_of(other))
            elif len(self.fitting) < fits:
                self.fitting.append(place)
                left = min(left, SETTLED * self.effort)
        if any(node.op == "IsNaN" for place in self.fitting[:1] for node in place.example.graph.nodes()):
            masked = [Place(place.example, place.seed, ways=("masked",)) for place in self.fitting]
            if all(
                place.compared(other)[1] is None for place in masked if not isinstance(other := place.made(rule), str)
            ):
                self.fitting, self.ways = masked, ("masked",)

    def place(self, example: Example) -> Place:
        return Place(example, self.random.getrandbits(32), ways=self.ways)

    def outcomes(self, mutants: Iterable[Mutant]) -> Iterator[Outcome]:
        """What comes of each mutant."""
        by_guard: dict[GuardExpr | None, list[Mutant]] = {}
        for mutant in mutants:
            by_guard.setdefault(mutant.guard, []).append(mutant)
        for guard, group in by_guard.items():
            read: dict[Mutant, Rule] = {}
            for mutant in group:
                try:
                    (other,) = parse_rules(show_rule(mutant.rule), strict=True)
                    read[mutant] = replace(without_worth(other), name=self.rule.name)
                except GraphoptError as error:
                    yield Outcome(mutant, "killed", f"does not read: {error}")
            if guard is not None:
                yield from self._of_guard(guard, list(read))
                continue
            for mutant, other in read.items():
                try:
                    yield self._of_right(mutant, other) if other.lhs == self.rule.lhs else self._of_left(mutant, other)
                except Exception as error:
                    yield Outcome(mutant, "killed", f"fails with {type(error).__name__}: {error}")

    def _of_guard(self, guard: GuardExpr, mutants: list[Mutant]) -> Iterator[Outcome]:
        lacking = replace(self.truth, where=tuple(g for g in self.truth.where if g != guard))
        if {p.name for p in subexpressions(guard) if isinstance(p, Field)} == {"uses"}:
            yield from (Outcome(m, "profitability", "who else reads a value changes nothing") for m in mutants)
            return
        asks_of_op = self._asks_of_op(guard)
        effort = max(self.effort, HEADS if asks_of_op else 1)
        narrower = {m for m in mutants if self._is_narrower(m)}
        waiting = {mutant: Seen() for mutant in mutants}
        near: list[Place] = []
        tries, looked = effort * TRIED, 0
        for example in violations(lacking, guard, self.random, tries, self.bases):
            if all(self._is_seen(seen, looked, mutant in narrower, effort) for mutant, seen in waiting.items()):
                break
            if isinstance(example, str):
                continue
            looked += 1
            near.append(self.place(example))
            yield from self._at(near[-1], lacking, waiting)
        for mutant in [m for m, seen in waiting.items() if m.given is not None and not seen.violated]:
            if mutant in narrower or mutant.given is None:
                continue
            other = replace(lacking, where=(*lacking.where, mutant.given))
            for example in violations(other, guard, self.random, tries, self.bases):
                if mutant not in waiting or self._is_seen(waiting[mutant], 0, False, effort):
                    break
                if not isinstance(example, str):
                    yield from self._at(self.place(example), lacking, waiting)
        asked = {p.name for p in subexpressions(guard) if isinstance(p, Field)}
        called = {p.function for p in subexpressions(guard) if isinstance(p, FunctionCall)}
        # where a right side is refused, the rule's own may be, which wants numbers as well
        for place in self._of_open_sizes(lacking, guard, near) if asks_of_op or asked & SHAPES else ():
            if called & {"known", "is_known"} or not isinstance(place.made(lacking), str):
                yield from self._at(place, lacking, waiting)
        for mutant, seen in waiting.items():
            yield self._of_seen(mutant, seen, mutant in narrower)

    def _of_open_sizes(self, lacking: Rule, guard: GuardExpr, near: Sequence[Place]) -> Iterator[Place]:
        """The graphs in which the rule applies, and others near them, with symbols for sizes or with no ranks, where
        those violate a guard; and a few with a symbol for one size alone, which may be 1 beside others."""
        ways = [(place, how, "") for place in (*self.fitting[:FITS], *near[:FITS]) for how in (True, False, None)]
        ways += [(place, False, name) for place in self.fitting[:FEW] for name in opened(place.example, False)[1]]
        for place, shared, alone in ways:
            graph, names = opened(place.example, shared, alone)
            with suppress(GraphoptError):
                space = Workspace(graph)
                for match in matches(lacking, space, graph.producer(graph.outputs[0])):  # type: ignore[arg-type]
                    example = Example(graph, match, place.example.wants)
                    place = Place(example, self.random.getrandbits(32), names)
                    if list(match.roots) == graph.outputs and not place.holds(guard):
                        yield place
                        break

    def _at(self, place: Place, lacking: Rule, waiting: dict[Mutant, Seen]) -> Iterator[Outcome]:
        """What comes of those mutants of a guard that apply to a graph that violates it, where they are wrong there."""
        met = [m for m in waiting if m.given is None or m.guard in self.rule.pays or place.holds(m.given)]
        if not met:
            return
        other = place.made(lacking)
        count, problem = (0, None) if isinstance(other, str) else place.compared(other)
        for mutant in met:
            seen = waiting[mutant]
            seen.violated += 1
            if isinstance(other, str):
                seen.refused[kind_of(other)] += place.is_valid
            elif problem is not None:
                del waiting[mutant]
                yield Outcome(mutant, "killed", f"differs: {problem}")
            else:
                seen.agreed += count > 0
                seen.places.append((place, other))

    @cached_property
    def is_of_runtime(self) -> bool:
        """Whether ONNX Runtime computes the right side of the rule wherever it was tried, as it does the left."""
        count = 0
        for place in self.fitting:
            other = place.made(self.rule)
            with suppress(EngineError):
                problem = other if isinstance(other, str) else place.in_runtime(other)
                if problem is not None and not problem.startswith(NO_KERNEL):
                    return False
                self.lacking |= {kind_of(problem)} if problem else set()
                count += problem is None
            if count == RUNS:
                break
        return count > 0

    def _in_runtime(self, places: Iterable[tuple[Place, Graph]]) -> str | None:
        """What ONNX Runtime has against one of these right sides, where it has nothing against the rule's own."""
        try:
            if not self.is_of_runtime:
                return None
            count = 0
            for place, other in places:
                with suppress(EngineError):
                    if (problem := place.in_runtime(other)) and kind_of(problem) not in self.lacking:
                        return problem
                    count += 1
                if count == RUNS:
                    break
        except ImportError:
            pass
        return None

    def _is_seen(self, seen: Seen, looked: int, is_narrower: bool, effort: int) -> bool:
        """Whether enough was seen of a mutant with which nothing is wrong yet; less of one that is killed anyway."""
        enough = effort * VIOLATIONS
        return looked >= enough // 4 if is_narrower else seen.violated >= enough or seen.agreed >= enough // 2

    def _asks_of_op(self, guard: GuardExpr) -> bool:
        heads = {c.op for side in self.rule.lhs for c in calls(side) if c.is_variable}
        return any(isinstance(p, NameRef) and p.name in heads for p in subexpressions(guard))

    def _is_narrower(self, mutant: Mutant) -> bool:
        if mutant.guard is None or mutant.given is None:
            return False
        return any(p.holds(mutant.guard) and not p.holds(mutant.given) for p in self.fitting)

    def _of_seen(self, mutant: Mutant, seen: Seen, is_narrower: bool) -> Outcome:
        """What comes of a mutant of a guard whose sides agree wherever it was violated."""
        assert mutant.guard is not None
        if is_narrower:
            return Outcome(mutant, "killed", "lost: it does not apply to a graph to which the rule does")
        if why := implied(mutant.rule, mutant.guard):
            return Outcome(mutant, "equivalent", why)
        new = Counter({kind: n for kind, n in seen.refused.items() if kind not in self.refusals})
        if 2 * new.total() >= seen.violated > 0:
            return Outcome(mutant, "killed", f"ill-typed: {new.most_common(1)[0][0]}")
        if problem := self._in_runtime(seen.places):
            return Outcome(mutant, "killed", f"ONNX Runtime: {problem}")
        fate, why = self._proved(without_worth(mutant.rule))
        if fate == "equivalent" and self._asks_of_op(mutant.guard):
            fate = ""  # a proof takes one op for many
        if fate:
            return Outcome(mutant, fate, why)
        if not seen.violated:
            return Outcome(mutant, "survived", "no graph was found that violates it and nothing else")
        where = f"where it is violated, on {seen.violated} graphs"
        why = f"both sides agree {where}" if seen.agreed else f"the right side is refused {where}"
        is_declared = mutant.guard in self.rule.pays or _is_of_worth(mutant.guard)
        return Outcome(mutant, "profitability" if is_declared else "survived", why)

    def _proved(self, rule: Rule) -> tuple[str, str]:
        """The fate of a mutant that is proved, or is wrong on some small graph, and why; else empty."""
        fate, why = proved(rule)
        for example in islice(unequal(rule), 0 if fate else UNEQUAL):
            place = self.place(example)
            if not isinstance(other := place.made(rule), str) and (problem := place.compared(other)[1]):
                return "killed", f"differs: {problem}"
        return fate, why

    def _of_right(self, mutant: Mutant, read: Rule) -> Outcome:
        refused = ""
        for place in self.fitting:
            other = place.made(read)
            if isinstance(other, str):
                refused = refused or other
                continue
            _, problem = place.compared(other)
            if problem is not None:
                return Outcome(mutant, "killed", f"differs: {problem}")
        if refused:
            return Outcome(mutant, "killed", f"lost: its right side is refused where the rule's fits: {refused}")
        return self._of_rest(mutant, read)

    def _coarse(self, read: Rule) -> float:
        """By how much a right side is apart from the left one in double precision where the rule's own is not."""
        for place in self.fitting:
            own, other = place.made(self.rule), place.made(read)
            if not isinstance(own, str) and not isinstance(other, str):
                off = max(place.apart(other), default=0.0)
                if off > max(COARSE, 100 * max(place.apart(own), default=0.0)):
                    return off
        return 0.0

    def _of_left(self, mutant: Mutant, read: Rule) -> Outcome:
        if any(not place.matched(read) for place in self.fitting):
            return Outcome(mutant, "killed", "lost: it does not apply to a graph to which the rule does")
        return self._of_rest(mutant, read)

    def _of_rest(self, mutant: Mutant, read: Rule) -> Outcome:
        """What comes of a mutant whose sides agree wherever the rule applies."""
        if read.soundness is Soundness.REALS and read.lhs == self.rule.lhs and (off := self._coarse(read)):
            return Outcome(mutant, "killed", f"differs: by {off:.1g} of the largest element, in double precision")
        report = check_rule(read, 1, Depth(8 * self.effort, 2, tries=TRIED * self.effort))
        if report.problem is not None:
            return Outcome(mutant, "killed", f"differs: {report.problem}" if report.compared else report.problem)
        made = ((place, other) for place in self.fitting if not isinstance(other := place.made(read), str))
        if read.lhs == self.rule.lhs and (problem := self._in_runtime(made)):
            return Outcome(mutant, "killed", f"ONNX Runtime: {problem}")
        fate, why = self._proved(read)
        if not fate and read.lhs == self.rule.lhs:
            fate, why = same(self.rule, read)
        why = why or f"both sides agree on {report.fired} graphs, {report.compared} draws"
        return Outcome(mutant, fate or "survived", why)


def _is_of_worth(guard: GuardExpr) -> bool:
    """Whether all that a guard asks is a matter of worth, or of magnitudes."""
    while isinstance(guard, FunctionCall) and guard.function == "not":
        (guard,) = guard.arguments
    if isinstance(guard, FunctionCall) and guard.function in MAGNITUDES:
        return True
    asked = {p.name for p in subexpressions(guard) if isinstance(p, Field)}
    asked |= {p.function for p in subexpressions(guard) if isinstance(p, FunctionCall) and p.function in WORTH}
    asked |= {p.name for p in subexpressions(guard) if isinstance(p, NameRef) and p.name in WORTH}
    return bool(asked) and asked - {"size", "rank", "shape"} <= WORTH and bool(asked & WORTH)


def kind_of(refusal: str) -> str:
    """Why a right side is refused, without the sizes and dtypes of the one graph in which it is."""
    result = re.match(r"the right side is ([\w.]+)\[.*, the left side ([\w.]+)\[", refusal)
    if result is not None:
        return "the result has another " + ("shape" if result[1] == result[2] else "dtype")
    return re.sub(r"\w*\[[^\]]*\]|\b(b?float|u?int|bool)\d*\b|-?\d+|`[^`]*`", "#", refusal)[:80]


def without_worth(rule: Rule) -> Rule:
    """A rule wherever it is true: without the guards that say where it pays, which may ask for large graphs."""
    return replace(rule, where=tuple(g for g in rule.where if g not in rule.pays), pays=())


def judge(rule: Rule, mutant: Mutant, effort: int = 1) -> Outcome:
    """What comes of a mutant of a rule."""
    (outcome,) = Trial(rule, effort).outcomes([mutant])
    return outcome
