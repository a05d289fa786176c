"""Soundness check of rules: the test of a rule is made from the rule itself.

From the left side small graphs are made in which the rule matches; the rule must fire on some, and
both sides, computed by ONNX's reference implementation on random tensors, must agree as the rule's
soundness class says. The same is tried once more with sizes that the rule does not know, and a rule
that always runs must come to an end on its own result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from random import Random
from time import process_time
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np

from graphopt.errors import GraphoptError, InvalidModelError, RuleError
from graphopt.frozen import dataclass
from graphopt.ir import evaluate, infer, ops
from graphopt.ir.blocked import beyond
from graphopt.ir.constants import Array, Constant
from graphopt.ir.graph import CONSTANT, INPUT, Graph, Value
from graphopt.ir.infer_products import NO_PIXELS
from graphopt.ir.onnx_io import to_proto
from graphopt.ir.tolerance import error, is_inexact
from graphopt.ir.types import Size, TensorType, symbol, unranked
from graphopt.rewrite.checking.examples import Example, examples, violations
from graphopt.rewrite.match.build import Refused, replacements
from graphopt.rewrite.match.describe import describe
from graphopt.rewrite.match.matcher import matches
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.passes.simplify import simplify
from graphopt.rewrite.rule.rule import GuardExpr, Rule, RuleStage, Soundness
from graphopt.verify.double import evaluated
from graphopt.verify.runtimes import EngineError, onnxruntime_version, open_in_onnxruntime

TRIES = 1500
"""How many graphs are drawn at most, to find those in which a rule fires."""
SETTLED = 150
"""How many more are drawn after the first one in which the rule fires."""
LOOKED_AT = 1000
"""Among so many elements that differ one is looked for that is too far apart by itself."""
FEW = 16
"""How many elements an input may have to be shown in a counterexample."""
DRAWS = {
    Soundness.EXACT: ("plain", "positive", "special", "special"),
    Soundness.FINITE: ("plain", "positive", "finite", "finite"),
    Soundness.REALS: ("plain", "plain", "positive"),
    Soundness.APPROX: ("plain",),
}
"""With which kinds of numbers a rule of each class is tried."""


APPLICATIONS = 24
"""How often a rule that always runs may apply to what it made of one small graph."""
STEPS = frozenset({"int8", "uint8"})
"""Dtypes of quantized numbers: one that is rounded where it is half a step off goes either way."""
UNITS = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
"""How far rounding moves a number at most, as a share of it, by dtype that is coarser than single precision."""
REFUSALS = (AssertionError, IndexError, ValueError)
"""What ONNX's reference implementation raises on operands that do not fit, and not for what it lacks."""
OPERATIONS = 10**10
"""So many operations one call of an example may take, ten times what is done ahead: some rules want large images."""
LACKING = ("NOT_IMPLEMENTED", "is not a registered function/op")
"""What ONNX Runtime says of ops that it has no kernel for, which is no fault of a rule."""
SIZES = (1, 2, 0, 3)
"""What symbols stand for, one after another, where a rule is tried with sizes that it does not know."""


@dataclass(frozen=True)
class Depth:
    """How thoroughly rules are checked: in how many graphs, and in how many of those with open sizes."""

    instances: int
    open: int
    seeds: int = 1
    tries: int = TRIES
    axes: tuple[int, ...] = ()
    """How long all axes of a graph are, one graph after another, beside those that are drawn: runtimes have other code
    for what fills vectors of the processor."""
    runtime: str = ""
    """The runtime that computes both sides, with its version; ONNX's reference implementation where none is named."""
    seconds: float = inf
    """How long it may take, in seconds of processors: what was tried by then counts."""


QUICK = Depth(16, 3)
DEEP = Depth(120, 40, 3)
VECTORS = (17,)
"""Lengths of axes that fill vectors and leave a rest."""


def in_runtime(depth: Depth) -> Depth:
    """The same graphs and more, in ONNX Runtime with its own optimizations off, which has to do as a rule's class says
    as well as the reference. Raises MissingDependencyError where it is not installed."""
    return replace(depth, open=0, axes=VECTORS, runtime=onnxruntime_version())


@dataclass(frozen=True)
class CheckReport:
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
    is_late: bool = False
    """Whether time was up before all was tried."""

    def __str__(self) -> str:
        found = "agrees" if self.problem is None else "is wrong"
        tried = f"{self.compared} random inputs of {self.fired} graphs{', when time was up' * self.is_late}"
        return f"{self.rule.name} {found}, on {tried}{f': {self.problem}' if self.problem else ''}"


def check_rule(rule: Rule, seed: int = 0, depth: Depth = QUICK, violated: GuardExpr | None = None) -> CheckReport:
    """Whether the rule fires, and whether both its sides agree wherever it does. The same report for the same seed.

    Where a guard is given, which the rule lacks, only graphs that violate it are looked at."""
    reports = [_Check(rule, seed + i, depth, violated).run() for i in range(depth.seeds)]
    failed = next((r for r in reports if r.problem is not None), None)
    if failed is not None and (failed.fired or not any(r.fired for r in reports)):
        return failed
    fired, compared = sum(r.fired for r in reports), sum(r.compared for r in reports)
    late = any(r.is_late for r in reports)
    return CheckReport(rule, fired, compared, max(r.worst for r in reports), None, late)


class _Check:
    """One check of a rule: the numbers drawn, and what came of them so far."""

    def __init__(self, rule: Rule, seed: int, depth: Depth, violated: GuardExpr | None) -> None:
        self.rule, self.depth, self.violated = rule, depth, violated
        self.random = Random(f"{seed} {crc32(rule.name.encode())}")
        self.numpy = np.random.default_rng(self.random.getrandbits(32))
        self.fired = self.compared = 0
        self.worst = 0.0
        self.until = process_time() + depth.seconds
        self.is_late = False

    def is_over(self) -> bool:
        """Whether time is up."""
        self.is_late |= process_time() > self.until
        return self.is_late

    def run(self) -> CheckReport:
        reasons: Counter[str] = Counter()
        tries = max(self.depth.tries, 12 * self.depth.instances)
        left = tries
        drawn = (
            examples(self.rule, self.random, tries, self.depth.axes)
            if self.violated is None
            else violations(self.rule, self.violated, self.random, tries)
        )
        for example in drawn:
            left -= 1
            if self.fired == self.depth.instances or left < 0 or self.is_over():
                break
            other = example if isinstance(example, str) else applied(example)
            if isinstance(example, str) or isinstance(other, str):
                reasons[str(other)] += 1
                continue
            self.fired += 1
            problem = self.compare(example, other) or self.follow(other)
            if problem is None and self.fired <= self.depth.open:
                problem = self.open_sizes(example)
            if problem is not None:
                return self.report(problem)
            if self.compared:
                left = min(left, max(SETTLED, 10 * self.depth.instances))
        if self.is_late:
            return self.report(None)
        if not self.fired:
            often = "; ".join(f"{reason} ({n} times)" for reason, n in reasons.most_common(3))
            return self.report(f"the rule fired on none of {tries} graphs made from its left side: {often}")
        lacking = None if self.compared else "both sides could not be compared on any of the graphs in which it fires"
        return self.report(lacking)

    def report(self, problem: str | None) -> CheckReport:
        return CheckReport(self.rule, self.fired, self.compared, self.worst, problem, self.is_late)

    def compare(
        self, example: Example, other: Graph, shapes: Mapping[str, tuple[int, ...]] | None = None
    ) -> str | None:
        """The first draw on which both sides differ, in words."""
        ways = draws(self.rule.soundness, example.graph)
        run = in_onnxruntime if self.depth.runtime else in_reference
        left, right = run(example.graph), run(other)
        for way in ways if shapes is None else ways[:2]:
            if self.compared and self.is_over():
                break
            try:
                inputs = example.draw(self.numpy, way, shapes)
            except (ValueError, MemoryError):  # no array can be that large or have that many axes
                continue
            off = difference(example, other, inputs, self.rule.soundness, left, right, self.violated is not None)
            if off is None:
                continue
            self.compared += 1
            if off[0] > 1 and run is in_reference and self.agree_in_runtime(example, other, inputs):
                continue
            self.worst = max(self.worst, off[0])
            if off[0] > 1:
                return counterexample(example, other, off[1])
        return None

    def agree_in_runtime(self, example: Example, other: Graph, inputs: Mapping[str, Array]) -> bool:
        """Whether both sides of a strict rule are equal in ONNX Runtime, by which its class goes. In numpy the bits of
        sums and powers also depend on where in memory their operands lie."""
        if self.rule.soundness not in (Soundness.EXACT, Soundness.FINITE):
            return False
        try:
            left, right = in_onnxruntime(example.graph), in_onnxruntime(other)
        except ImportError:
            return False
        off = difference(example, other, inputs, self.rule.soundness, left, right)
        return off is not None and off[0] <= 1

    def open_sizes(self, example: Example) -> str | None:
        """The same where the rule does not know sizes: equal ones are one symbol, or all are different ones."""
        for shared in (True, False):
            open_example = _opened(example, shared, self.rule)
            if open_example is None:
                continue
            opened_example, names, other = open_example
            for fixed in (None, *SIZES):
                shapes = sized(opened_example, {name: size if fixed is None else fixed for name, size in names.items()})
                problem = None if shapes is None else self.compare(opened_example, other, shapes)
                if problem is not None:
                    return f"{problem} (with sizes that the rule does not know)"
        return None

    def follow(self, graph: Graph) -> str | None:
        """What is wrong with a rule that always runs if it goes on and on applying to what it made."""
        if self.rule.stage is not RuleStage.ALWAYS or self.fired > 2:
            return None
        try:
            simplify(graph, (self.rule,), (), limit=APPLICATIONS)
        except RuleError:
            return f"rewriting does not end: the rule applies to its own result {APPLICATIONS} times and more"
        except GraphoptError:
            return None
        return None


def draws(soundness: Soundness, graph: Graph) -> tuple[str, ...]:
    """With which kinds of numbers a rule of a class is tried on a graph."""
    elementwise = all(n.op in (INPUT, CONSTANT) or n.op in ops.KINDS["elementwise"] for n in graph.nodes())
    return (*DRAWS[soundness], "extreme") if elementwise else DRAWS[soundness]


def chosen(arguments: Sequence[str | Path]) -> list[Rule]:
    """The rules that arguments mean, all standard ones without any. An argument is a file of rules or of Python, a
    module, the name of a standard rule or family, or else of an installed package.

    Raises RuleError for a file without rules, where a name is a standard rule's, and for a name that means nothing.
    """
    from graphopt.rewrite.ruleset import Ruleset, standard, standard_folder

    if not arguments:
        return list(standard().rules)
    sources = {a: Ruleset.from_files([a], strict=True) for a in arguments if _is_source(a)}
    for source, ruleset in sources.items():
        if not ruleset.rules:
            raise RuleError(f"{source}: holds no rules")
    named = {a: standard().named(str(a)) for a in arguments if a not in sources}
    is_standard = {a: a in named or Path(a).resolve().parent == standard_folder() for a in arguments}
    standard() + [rule for a in sources if not is_standard[a] for rule in sources[a].rules]  # names are unique
    Ruleset(tuple(rule for ruleset in sources.values() for rule in ruleset.rules))
    rules = (rule for a in arguments for rule in (sources | named)[a].rules)
    return list(dict.fromkeys(rules))


def _is_source(argument: str | Path) -> bool:
    """Whether rules are to be read, and not those of a standard name, which has no dot in it."""
    from graphopt.rewrite.reading.modules import names_of, packages
    from graphopt.rewrite.ruleset import standard

    if isinstance(argument, Path) or "." in argument or Path(argument).is_file():
        return True
    return not standard().has(argument) and any(argument in names_of(entry) for entry in packages())


def check_files(
    paths: Sequence[str | Path], check: Callable[[Rule], CheckReport] = check_rule
) -> Iterator[CheckReport]:
    """The reports of the rules of these files or names, each once it has passed its check. Raises RuleError for the
    first that fails it, and as ``chosen`` does."""
    for rule in chosen(paths):
        report = check(rule)
        if report.problem is not None:
            raise RuleError(f"{rule.source}: {rule.name}: {report.problem}")
        yield report


def applied(example: Example) -> Graph | str:
    """The graph with the rule applied, or why the right side does not fit."""
    match = example.match
    space = Workspace(example.graph.copy(), example.facts)
    first = space.graph.next_id
    try:
        values = replacements(match.rule, match.bindings, match.roots, space)
    except Refused as refused:
        return str(refused)
    if list(values) == list(match.roots):
        return "the right side is the left side"
    for old, new in zip(match.roots, values, strict=True):
        space.replace(old, new, first)
    return space.graph


def opened(example: Example, shared: bool | None, alone: str = "") -> tuple[Graph, dict[str, int]]:
    """The graph of an example with symbols for sizes, and what they stood for: equal ones are one symbol if ``shared``,
    else all are different ones, of which there is only ``alone`` if that is given. Sizes of one stay, so that what
    broadcasts goes on broadcasting. Where ``shared`` is None, not even the ranks of the inputs are known."""
    graph = example.graph.copy()
    names: dict[str, int] = {}
    for value in graph.inputs:
        type_ = graph.types[value]
        assert isinstance(type_, TensorType)
        if shared is None:
            graph.types[value] = TensorType(type_.dtype, unranked())
            continue
        shape: list[Size] = []
        for axis, size in enumerate(_sizes(type_)):
            name = f"n{size}" if shared else f"{graph.names[value]}_{axis}"
            if isinstance(size, int) and size > 1 and alone in ("", name):
                names[name] = size
            shape.append(symbol(name) if name in names else size)
        graph.types[value] = TensorType(type_.dtype, tuple(shape))
    return graph, names


def _opened(example: Example, shared: bool, rule: Rule) -> tuple[Example, dict[str, int], Graph] | None:
    """The example with symbols for sizes, what they stood for, and its right side; None where the rule
    does not fire."""
    graph, names = opened(example, shared)
    if not names:
        return None
    try:
        space = Workspace(graph)
        roots = graph.outputs
        for match in matches(rule, space, graph.producer(roots[0])):  # type: ignore[arg-type]
            if list(match.roots) == roots:
                open_example = Example(graph, match, example.wants)
                other = applied(open_example)
                return None if isinstance(other, str) else (open_example, names, other)
    except (GraphoptError, ValueError):
        pass
    return None


def _sizes(type_: TensorType) -> tuple[Size, ...]:
    assert isinstance(type_.shape, tuple)
    return type_.shape


def sized(example: Example, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]] | None:
    """The shapes of the inputs where symbols have these values; None where the graph is not valid then."""
    shapes: dict[str, tuple[int, ...]] = {}
    graph = example.graph.copy()
    for value in graph.inputs:
        type_ = graph.types[value]
        assert isinstance(type_, TensorType)
        shape = tuple(n if isinstance(n, int) else sizes[str(n)] for n in _sizes(type_))
        graph.types[value] = TensorType(type_.dtype, shape)
        shapes[graph.names[value]] = shape
    try:
        infer.infer(graph)
    except (GraphoptError, ValueError):
        return None
    return shapes


# -- comparing


Computation: TypeAlias = Callable[[Mapping[str, Array]], list[Array]]
"""The outputs of a graph on arrays. Raises EvaluationError where an op has no value on them."""


def difference(
    example: Example,
    other: Graph,
    inputs: Mapping[str, Array],
    soundness: Soundness,
    left: Computation | None = None,
    right: Computation | None = None,
    is_in_range: bool = False,
) -> tuple[float, str] | None:
    """How far both sides are apart in units of the tolerance, in words; None where the left side has no value. Both are
    computed by ONNX's reference implementation unless it is said how. ``is_in_range``: where the left side has a
    value, operands that do not fit on the right side are not to blame on the draw."""
    left, right = left or in_reference(example.graph), right or in_reference(other)
    try:
        want = left(inputs)
    except GraphoptError:
        return None
    if soundness in (Soundness.REALS, Soundness.APPROX) and not any(_has_value(a) for a in want):
        return None
    try:
        got = right(inputs)
    except GraphoptError as problem:
        if NO_PIXELS in str(problem):
            return None  # no runtime convolves such an image, and what makes one is no less right
        if "has no value" in str(problem) and not any(a.size for a in want):
            return None  # a mean of nothing reaches no element where there is none
        is_lacking = "reference implementation" in str(problem) or "cannot be computed" in str(problem)
        is_wrong = isinstance(problem.__cause__, REFUSALS) or "duplicate value" in str(problem)
        is_unfit = is_in_range and is_wrong and any(a.size for a in want)
        if is_lacking and not is_unfit:
            return None  # what the evaluator lacks is not the rule's fault
        return inf, f"the right side cannot be computed: {problem}"
    worst = (0.0, "")
    seen = False
    steps = any(n.op == "QuantizeLinear" for n in example.graph.nodes())
    for at, (a, b) in enumerate(zip(want, got, strict=True)):
        off = _steps_apart(a, b, soundness) if steps and a.dtype.name in STEPS else _apart(a, b, soundness)
        seen = seen or off is not None
        if off is not None and off > 1 and soundness in (Soundness.REALS, Soundness.APPROX):
            off /= max(1.0, 4 * _sensitivity(left, inputs, want, soundness, _unit(other))) if off < inf else 1.0
            if off > 1 and _is_as_near(example.graph, inputs, at, a, b, soundness):
                off = 1.0
        if off is not None and off > worst[0]:
            worst = off, f"{_shown(inputs)} gives {_first_difference(a, b, soundness)}" if off > 1 else ""
    return worst if seen else None


def _has_value(array: Array) -> bool:
    """Whether an array has no elements, or one that is a number."""
    return array.dtype.kind != "f" or not array.size or bool(np.isfinite(array).any())


def _is_as_near(
    graph: Graph, inputs: Mapping[str, Array], output: int, want: Array, got: Array, soundness: Soundness
) -> bool:
    """Whether the right side is as near to what the left side is in double precision as the left side itself is."""
    given = {v: inputs[graph.names[v]] for v in graph.inputs}
    wanted = [v for v in graph.outputs if v is not None]
    try:
        truth = np.asarray(evaluated(graph, given, wanted)[wanted[output]]).astype(want.dtype)
    except GraphoptError:
        return False
    rounding, off = _apart(truth, want, soundness), _apart(truth, got, soundness)
    return rounding is not None and off is not None and off < inf and off <= max(rounding, 1.0)


def _unit(graph: Graph) -> float:
    """How far rounding moves a number at most, as a share of it, in the coarsest of the dtypes that the graph computes
    in; 0 where that is single or double precision."""
    return max(UNITS.get(fact.dtype or "", 0.0) for fact in infer.infer(graph).values())


def _sensitivity(
    left: Computation, inputs: Mapping[str, Array], want: list[Array], soundness: Soundness, unit: float
) -> float:
    """How far, in units of the tolerance, the left side moves when its inputs do: by one unit in the last place, or,
    this way and that, by a share of themselves."""
    worst, rng = 0.0, np.random.default_rng(0)
    many = 4 if unit or soundness is Soundness.APPROX else 1  # few draws show how far rounded terms add up
    for to in (inf, -inf) * many:
        moved = {}
        for name, a in inputs.items():
            if a.dtype.kind == "f":
                a = np.where(np.isfinite(a), np.nextafter(a, np.asarray(to, a.dtype)), a)
                share = 1 + unit * rng.choice([-1, 1], a.shape)  # which is one in so narrow a dtype itself
                with np.errstate(over="ignore"):
                    a = (a.astype(np.float64) * share).astype(a.dtype) if unit else a
            moved[name] = a
        try:
            pairs = zip(want, left(moved), strict=True)
        except GraphoptError:
            continue
        weakest = soundness if unit else Soundness.REALS
        worst = max(worst, *(off for a, b in pairs if (off := _apart(a, b, weakest)) is not None and off < inf), 0.0)
    return worst


def _steps_apart(want: Array, got: Array, soundness: Soundness) -> float | None:
    """The same of quantized numbers, which rounding takes one step apart, and an approximation a few."""
    if soundness in (Soundness.EXACT, Soundness.FINITE) or want.dtype != got.dtype or want.shape != got.shape:
        return _apart(want, got, soundness)
    off = float(np.abs(want.astype(np.float64) - got.astype(np.float64)).max(initial=0.0))
    return off / 4 if soundness is Soundness.APPROX else off


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


def in_reference(graph: Graph) -> Computation:
    """The graph in ONNX's reference implementation."""
    return partial(compute, graph)


def in_onnxruntime(graph: Graph) -> Computation:
    """The graph in ONNX Runtime, op by op."""
    try:
        run = open_in_onnxruntime(to_proto(graph).SerializeToString(), threads=1)
    except (EngineError, InvalidModelError) as refusal:
        refused = str(refusal)

        def run(inputs: Mapping[str, Any]) -> list[Any]:
            raise EngineError(refused)

    def computed(inputs: Mapping[str, Array]) -> list[Array]:
        try:
            return run(inputs)
        except EngineError as error:
            is_lacking = isinstance(error, MemoryError) or any(words in str(error) for words in LACKING)
            why = "it cannot be computed" if is_lacking else "ONNX Runtime refuses it"
            raise evaluate.EvaluationError(f"{why}: {error}") from None

    return computed


def compute(graph: Graph, inputs: Mapping[str, Array]) -> list[Array]:
    """The outputs of a graph on arrays, op by op. Raises EvaluationError where an op has no value on them, as what
    leaves blocks of channels has none of images that are not filled up with zeros."""
    if any(not ops.is_pure(n.op) or ops.kind(n.op) == "sequence" for n in graph.nodes()):
        outputs = evaluate.run(graph, dict(inputs))
        return [outputs[name] for name in graph.output_names]
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
            results = evaluate.evaluate(node.op, node.attrs, given, node.n_outputs, graph.opset, operations=OPERATIONS)
            values.update(zip(node.outputs, results, strict=True))
            if node.op == "graphopt::Unblock" and _holds_beyond(given[0], node.attrs["channels"]):
                raise evaluate.EvaluationError("lanes beyond the last channel hold something else than zeros")
    return [values[v].array for v in graph.outputs if v is not None]


def _holds_beyond(image: Constant | None, channels: Any) -> bool:
    return image is not None and bool(beyond(image.array, channels).any())


# -- words


def counterexample(example: Example, other: Graph, what: str) -> str:
    """Both sides, the inputs' types and what is wrong, in one line."""
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
    unequal = np.argwhere(_unequal(want, got))
    looked_at = [tuple(map(int, index)) for index in unequal[:LOOKED_AT]]

    def is_apart(index: tuple[int, ...]) -> bool:
        return (_apart(np.asarray(want[index]), np.asarray(got[index]), soundness) or 0.0) > 1

    index = next(filter(is_apart, looked_at), looked_at[0])
    differ = f"{len(unequal)} of {want.size} elements differ"
    return f"{want[index]} at {list(index)}, the right side {got[index]} there ({differ})"


def _unequal(want: Array, got: Array) -> Array:
    """Which elements are not equal, the signs of zeros included, where NaN is equal to NaN."""
    if not is_inexact(want):
        return np.asarray(want != got)
    a, b = want.astype(np.float64), got.astype(np.float64)
    nan = np.isnan(a) & np.isnan(b)
    return np.asarray(~nan & ((a != b) | (np.signbit(a) != np.signbit(b))))
