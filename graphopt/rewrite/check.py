"""The soundness check of rules: no one writes a test for a rule, it is made from the rule itself.

From the left side small graphs are made in which the rule matches; the rule must fire on some, and
both sides, computed by ONNX's reference implementation on random tensors, must agree as the rule's
soundness class says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import numpy as np

from graphopt.errors import GraphoptError, RuleError
from graphopt.ir import evaluate, ops
from graphopt.ir.constants import Array, Constant
from graphopt.ir.graph import CONSTANT, INPUT, Graph, Value
from graphopt.rewrite.build import Refused, replacements
from graphopt.rewrite.examples import Example, examples
from graphopt.rewrite.rule import Rule, Soundness
from graphopt.rewrite.simplify import describe
from graphopt.rewrite.workspace import Workspace
from graphopt.tolerance import error

TRIES = 1500
"""How many graphs are drawn at most, to find those in which a rule fires."""
SETTLED = 150
"""How many more are drawn after the first one in which the rule fires."""
FEW = 16
"""How many elements an input may have to be shown in a counterexample."""
DRAWS = {
    Soundness.EXACT: ("plain", "positive", "special", "special"),
    Soundness.FINITE: ("plain", "positive", "finite", "finite"),
    Soundness.REALS: ("plain", "plain", "positive"),
    Soundness.APPROX: ("plain",),
}
"""With which kinds of numbers a rule of each class is tried."""


@dataclass(frozen=True)
class Report:
    """What came of the check of a rule."""

    rule: Rule
    fired: int
    """How many graphs were found in which the rule fires."""
    compared: int
    """On how many draws of numbers both sides were compared."""
    worst: float
    """The largest error, in units of the tolerance: up to 1 is right."""
    problem: str | None
    """What is wrong with the rule, with a counterexample; None where nothing was found."""


def check_rule(rule: Rule, seed: int = 0, instances: int = 12) -> Report:
    """Whether the rule fires, and whether both its sides agree wherever it does. The same report for the same seed."""
    random = Random(f"{seed} {crc32(rule.name.encode())}")
    numpy = np.random.default_rng(random.getrandbits(32))
    reasons: Counter[str] = Counter()
    fired = compared = 0
    worst = 0.0
    left = TRIES
    for example in examples(rule, random, TRIES):
        left -= 1
        if fired == instances or left < 0:
            break
        if isinstance(example, str):
            reasons[example] += 1
            continue
        other = _fired(example)
        if isinstance(other, str):
            reasons[other] += 1
            continue
        if not fired:
            left = min(left, SETTLED)
        fired += 1
        for way in DRAWS[rule.soundness]:
            try:
                inputs = example.draw(numpy, way)
            except (ValueError, MemoryError):  # no array can be that large or have that many axes
                continue
            off = _difference(example, other, inputs, rule.soundness)
            if off is None:
                continue
            compared += 1
            worst = max(worst, off[0])
            if off[0] > 1:
                return Report(rule, fired, compared, worst, _counterexample(example, other, off[1]))
    if not fired:
        often = "; ".join(f"{reason} ({n} times)" for reason, n in reasons.most_common(3))
        return Report(rule, 0, 0, 0.0, f"the rule fired on none of {TRIES} graphs made from its left side: {often}")
    problem = None if compared else "both sides could not be compared on any of the graphs in which the rule fires"
    return Report(rule, fired, compared, worst, problem)


def check_files(paths: Iterable[str | Path]) -> Iterator[Rule]:
    """The rules of these files, each once it has passed its check.

    Raises RuleError for the first that does not, for a file without rules, and where a name is a standard rule's.
    """
    from graphopt.rewrite.ruleset import Ruleset, standard, standard_folder

    files = [Path(path) for path in paths]
    read = {file: Ruleset.from_files([file], strict=True) for file in files}
    for file, found in read.items():
        if not found.rules:
            raise RuleError(f"{file}: holds no rules")
    own = [rule for file in files for rule in read[file].rules if file.resolve().parent != standard_folder()]
    standard() + own  # names are unique
    for rule in Ruleset(tuple(rule for file in files for rule in read[file].rules)).rules:
        problem = check_rule(rule).problem
        if problem is not None:
            raise RuleError(f"{rule.source}: {rule.name}: {problem}")
        yield rule


def _fired(example: Example) -> Graph | str:
    """The graph with the rule applied, or why the right side does not fit."""
    found = example.match
    space = Workspace(example.graph.copy())
    first = space.graph.next_id
    try:
        made = replacements(found.rule, found.bindings, found.roots, space)
    except Refused as refused:
        return str(refused)
    if list(made) == list(found.roots):
        return "the right side is the left side"
    for old, new in zip(found.roots, made, strict=True):
        space.replace(old, new, first)
    return space.graph


# -- comparing


def _difference(
    example: Example, other: Graph, inputs: Mapping[str, Array], soundness: Soundness
) -> tuple[float, str] | None:
    """How far both sides are apart in units of the tolerance, in words; None where the left side has no value."""
    try:
        want = compute(example.graph, inputs)
    except GraphoptError:
        return None
    try:
        got = compute(other, inputs)
    except GraphoptError as problem:
        if "reference implementation" in str(problem) or "cannot be computed" in str(problem):
            return None  # what the evaluator lacks is not the rule's fault
        return inf, f"the right side cannot be computed: {problem}"
    found = (0.0, "")
    seen = False
    for a, b in zip(want, got, strict=True):
        off = _apart(a, b, soundness)
        seen = seen or off is not None
        if off is not None and off > found[0]:
            found = off, f"{_shown(inputs)} gives {_first_difference(a, b, soundness)}"
    return found if seen else None


def _apart(want: Array, got: Array, soundness: Soundness) -> float | None:
    """How far one result is from another; None where the class says nothing about it."""
    if want.dtype != got.dtype or want.shape != got.shape:
        return inf
    if want.size == 0:
        return 0.0
    if want.dtype.kind in "biuOSU":
        return 0.0 if np.array_equal(want, got) else inf
    if soundness in (Soundness.EXACT, Soundness.FINITE):
        return 0.0 if _same_bits(want, got) else inf
    finite = np.isfinite(want.astype(np.float64))
    if not finite.any():
        return None
    if not np.isfinite(got.astype(np.float64)[finite]).all():
        return inf
    single = np.float32 if want.dtype == np.float64 else want.dtype  # attributes are stored in single precision
    off = error(want[finite].astype(single), got[finite].astype(single))
    return off / 100 if soundness is Soundness.APPROX else off


def _same_bits(want: Array, got: Array) -> bool:
    """Whether both are equal bit by bit, whatever NaN a NaN is."""
    a, b = want.astype(np.float64), got.astype(np.float64)
    nan = np.isnan(a)
    return bool(
        np.array_equal(nan, np.isnan(b))
        and np.array_equal(a[~nan], b[~nan])
        and np.array_equal(np.signbit(a[~nan]), np.signbit(b[~nan]))
    )


def compute(graph: Graph, inputs: Mapping[str, Array]) -> list[Array]:
    """The outputs of a graph on arrays, op by op. Raises EvaluationError where an op has no value on them."""
    if any(not ops.is_pure(n.op) or ops.kind(n.op) == "sequence" for n in graph.nodes()):
        found = evaluate.run(graph, dict(inputs))
        return [found[name] for name in graph.output_names]
    values: dict[Value, Constant] = {}
    for node in graph.order():
        if node.op == INPUT:
            value = Value(node.id)
            values[value] = Constant.of(inputs[graph.names[value]])
        elif node.op == CONSTANT:
            constant = graph.constant_of(Value(node.id))
            assert constant is not None
            values[Value(node.id)] = constant
        elif graph.is_used(node.id):
            given = [None if v is None else values[v] for v in node.inputs]
            made = evaluate.evaluate(node.op, node.attrs, given, node.n_outputs, graph.opset)
            values.update(zip(node.outputs, made, strict=True))
    return [values[v].array for v in graph.outputs if v is not None]


# -- words


def _counterexample(example: Example, other: Graph, what: str) -> str:
    before = ", ".join(describe(example.graph, v) for v in example.graph.outputs)
    after = ", ".join(describe(other, v) for v in other.outputs)
    types = ", ".join(f"{example.graph.names[v]}: {example.graph.types[v]}" for v in example.graph.inputs)
    return f"{before}  =>  {after}  with {types}: {what}"


def _shown(inputs: Mapping[str, Array]) -> str:
    """The inputs, those that are too large to read left out."""
    return ", ".join(f"{name} = {_brief(array)}" for name, array in inputs.items() if array.size <= FEW) or "it"


def _brief(array: Array) -> str:
    return np.array2string(array, max_line_width=10**6, precision=7).replace("\n", "")


def _first_difference(want: Array, got: Array, soundness: Soundness) -> str:
    """The first elements that are too far apart, or how the arrays differ in kind."""
    if want.dtype != got.dtype or want.shape != got.shape:
        return f"{want.dtype}{list(want.shape)}, the right side {got.dtype}{list(got.shape)}"
    if want.size == 1:
        return f"{want.item()!r}, the right side {got.item()!r}"
    pairs = [(want[index], got[index], index) for index in np.ndindex(want.shape)]
    unequal = [p for p in pairs if not _is_equal(p[0], p[1])]
    apart = [p for p in unequal if (_apart(np.asarray(p[0]), np.asarray(p[1]), soundness) or 0.0) > 1]
    a, b, index = (apart or unequal)[0]
    return f"{a} at {list(index)}, the right side {b} there ({len(unequal)} of {want.size} elements differ)"


def _is_equal(a: Any, b: Any) -> bool:
    """Whether two elements are equal, the signs of zeros included, and NaN to NaN."""
    if isinstance(a, np.inexact):
        return _same_bits(np.asarray(a), np.asarray(b))
    return bool(a == b)
