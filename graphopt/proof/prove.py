"""Evidence for a rule: proofs are tried from the strongest on, then the check; what refutes it is shown as a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from graphopt.errors import GraphoptError
from graphopt.ir import ops
from graphopt.ir.constants import Constant
from graphopt.ir.dtypes import CODES
from graphopt.ir.graph import Attrs, Graph, Header, Value
from graphopt.ir.op_table import ops_where
from graphopt.ir.text import show
from graphopt.ir.types import TensorType
from graphopt.proof.evidence import Evidence
from graphopt.proof.symbolic_ops import MOVING
from graphopt.rewrite.checking.check import CheckReport, applied, check_rule, difference
from graphopt.rewrite.checking.examples import Example
from graphopt.rewrite.checking.examples.arrays import numpy_dtype
from graphopt.rewrite.checking.examples.hints import Hints
from graphopt.rewrite.match.matcher import matches
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.rule.rule import (
    CallPattern,
    FunctionCall,
    Lit,
    Literal,
    NameRef,
    Rule,
    Series,
    Term,
    VarPattern,
    calls,
)

if TYPE_CHECKING:
    from graphopt.proof.scalars import Counterexample

ARITHMETIC = ops_where(group=("arithmetic", "comparison", "logic", "bits"))
"""The ops of arithmetic, comparisons, choices, truth values and integers."""

SIMPLE_NUMBERS: dict[str, tuple[Any, ...]] = {
    "float": (1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, 5.0, 0.0, -0.0, float("inf"), float("-inf"), float("nan")),
    "int": (1, -1, 2, -2, 3, -3, 0),
    "uint": (1, 2, 3, 0),
    "bool": (True, False),
}
"""Numbers that a counterexample has where it can, simplest first; a zero is late, of which too much is true."""

SIMPLE_TRIALS = 200
"""How many combinations of simple numbers are tried."""


@dataclass(frozen=True)
class ProofResult:
    """What came of proving a rule: its evidence, or the counterexample that refutes it; and why there is no proof."""

    rule: Rule
    evidence: Evidence | None
    why: str = ""
    counterexample: str | None = None


def find_evidence(
    rule: Rule, milliseconds: int = 4000, check: Callable[[Rule], CheckReport] = check_rule
) -> ProofResult:
    """The strongest evidence for a rule. Raises MissingDependencyError where z3 is not installed."""
    found = proof_of(rule, milliseconds)
    if found.evidence is not None or found.counterexample is not None:
        return found
    report = check(rule)
    checked = None if report.problem else Evidence("checked", f"{report.fired} graphs", why=found.why)
    return ProofResult(rule, checked, found.why, report.problem)


def proof_of(rule: Rule, milliseconds: int = 4000) -> ProofResult:
    """The strongest proof of a rule, or why there is none, and maybe what refutes it."""
    from graphopt.proof import indices, scalars, sizes

    proof = scalars.prove(rule, milliseconds)
    if proof.kind is not None:
        return ProofResult(rule, Evidence(proof.kind, ", ".join(proof.dtypes), proof.work))
    if proof.counterexample is not None:
        shown = demonstrate(rule, proof.counterexample)
        if shown is not None:
            return ProofResult(rule, None, proof.why, shown)
    bounded = None
    for prove in (sizes.prove, indices.prove):
        bounded = prove(rule)
        if bounded.kind is not None:
            return ProofResult(rule, Evidence(bounded.kind, bounded.scope, bounded.work))
    assert bounded is not None
    return ProofResult(rule, None, bounded.why if "does not act on each element" in proof.why else proof.why)


_THEORIES: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("control and others", lambda op: op in ops.IMPURE or op in ops.KINDS["control"] | ops.KINDS["sequence"]),
    ("layout", lambda op: op.startswith("graphopt::")),
    ("quantization", lambda op: any(part in op for part in ("Quantize", "QLinear", "QGemm", "Integer"))),
    ("convolution", lambda op: "Conv" in op or op in ops.KINDS["pool"] or op in ("Resize", "Upsample")),
    (
        "normalization",
        lambda op: op in ops.KINDS["normalization"] or "Softmax" in op or "Norm" in op or "Attention" in op,
    ),
    ("sums and products over axes", lambda op: op in ops.KINDS["product"] | ops.KINDS["reduce"] or op == "CumSum"),
    ("moves of elements", lambda op: op in ops.KINDS["movement"] or op in MOVING),
    ("one element", lambda op: op in ops.KINDS["elementwise"]),
)
"""The theories that ops need, the furthest from arithmetic first."""


def theory_of(rule: Rule) -> str:
    """The theory that a rule needs: the furthest that an op on one of its sides does.

    An op variable stands for ops on one element, but for one of another kind that its guard names.
    """
    used = {c.op for side in (*rule.lhs, *rule.rhs) for c in calls(side) if not c.is_variable}
    for guard in rule.where:
        match guard:
            case FunctionCall("in", (NameRef(), Series(items))):
                used |= {str(i.value) for i in items if isinstance(i, Lit) and ops.schema(str(i.value))}
            case FunctionCall("in", (NameRef(), NameRef(kind))) if kind in ops.KINDS:
                used |= set(ops.KINDS[kind])
    for name, needs in _THEORIES:
        if any(map(needs, used)):
            return name
    return "one element" if not used else _THEORIES[0][0]


def theories(findings: Iterable[tuple[Rule, Evidence | None]]) -> dict[str, tuple[int, int, int]]:
    """By theory: how many rules there are, how many of them are proved, and how many for all sizes."""
    pairs = list(findings)
    counts = {}
    for name in [*(n for n, _ in reversed(_THEORIES))]:
        own = [e for r, e in pairs if theory_of(r) == name]
        proved = [e for e in own if e is not None and e.is_proof]
        counts[name] = len(own), len(proved), sum(e.is_of_all_sizes for e in proved)
    return counts


def is_arithmetic(rule: Rule) -> bool:
    """Whether both sides use only the ops of ``ARITHMETIC``."""
    used = [c.op for side in (*rule.lhs, *rule.rhs) for c in calls(side)]
    return bool(used) and all(op in ARITHMETIC or _stands_for_arithmetic(rule, op) for op in used)


def _stands_for_arithmetic(rule: Rule, op: str) -> bool:
    for guard in rule.where:
        match guard:
            case FunctionCall("in", (NameRef(name), Series(items))) if name == op:
                return all(isinstance(i, Lit) and i.value in ARITHMETIC for i in items)
    return False


def figures(findings: Iterable[tuple[Rule, Evidence | None]]) -> str:
    """How many rules are proved: of those of arithmetic, and of all."""
    pairs = list(findings)
    proved = [rule for rule, evidence in pairs if evidence is not None and evidence.is_proof]
    arithmetic = [rule for rule, _ in pairs if is_arithmetic(rule)]
    among = sum(map(is_arithmetic, proved))
    share = f" ({100 * among // len(arithmetic)} %)" if arithmetic else ""
    return (
        f"{among} of {len(arithmetic)} rules of arithmetic, comparisons, choices, truth values and integers alone are "
        f"proved{share}; {len(proved)} of all {len(pairs)}"
    )


def demonstrate(rule: Rule, counterexample: Counterexample) -> str | None:
    """The model, the inputs and what both sides give there; None where the rule does not fire, or both sides agree.

    Simple numbers are tried before the solver's: they are easier to follow, and which numbers a solver finds depends on
    all that its process has asked it before.
    """
    for numbers in (*_simple(counterexample), counterexample.numbers):
        for shape in ((), (1,)):
            try:
                shown = _shown(rule, replace(counterexample, numbers=numbers), shape)
            except (GraphoptError, ValueError, KeyError, _Unshown):
                continue
            if shown is not None:
                return shown
    return None


def _simple(counterexample: Counterexample) -> list[dict[str, Any]]:
    """Simple numbers for a counterexample's variables, the simplest together first."""
    names = [n for n in counterexample.dtypes if n in counterexample.numbers]
    choices = [SIMPLE_NUMBERS[_kind(counterexample.dtypes[n])] for n in names]
    by_simplicity = sorted(product(*(range(len(c)) for c in choices)), key=lambda ranks: (sum(ranks), ranks))
    return [
        counterexample.numbers | {n: c[rank] for n, c, rank in zip(names, choices, ranks, strict=True)}
        for ranks in by_simplicity[:SIMPLE_TRIALS]
    ]


def _kind(dtype: str) -> str:
    """Whether numbers of a dtype are floats, signed or unsigned integers, or truth values."""
    return "float" if "float" in dtype else dtype.rstrip("0123456789")


class _Unshown(Exception):  # noqa: N818 - not an error: another way is tried
    """The term cannot be made a graph."""


def _shown(rule: Rule, counterexample: Counterexample, shape: tuple[int, ...]) -> str | None:
    model = _Model(counterexample, shape)
    for i, term in enumerate(counterexample.rule.lhs):
        model.graph.add_output(f"y{i}", model.value(term))
    space = Workspace(model.graph)
    root = model.graph.producer(model.graph.outputs[0])  # type: ignore[arg-type]
    for match in matches(rule, space, root):
        if list(match.roots) != model.graph.outputs:
            continue
        example = Example(model.graph, match, {})
        other = applied(example)
        if isinstance(other, str):
            continue
        off = difference(example, other, model.inputs, rule.soundness)
        if off is not None and off[0] > 1:
            return f"{show(model.graph)}with {off[1]}"
    return None


class _Model:
    """The left side as a graph on numbers."""

    def __init__(self, counterexample: Counterexample, shape: tuple[int, ...]) -> None:
        self.found, self.shape = counterexample, shape
        self.hints = Hints.of(counterexample.rule)
        self.graph = Graph(header=Header(opsets=(("", ops.LATEST), ("com.microsoft", 1))))
        self.inputs: dict[str, Any] = {}
        self._values: dict[str, Value] = {}

    def value(self, term: Term, dtype: str | None = None) -> Value | None:
        """The value of a term."""
        match term:
            case VarPattern("_"):
                return None
            case VarPattern(name):
                if name not in self._values:
                    self._values[name] = self._leaf(name)
                return self._values[name]
            case Literal(number) if not isinstance(number, tuple):
                return self.graph.add_constant(Constant.of(np.asarray(number, numpy_dtype(dtype or "float32"))))
            case CallPattern() if not term.is_variable and term.output == 0:
                return self._call(term, dtype)
        raise _Unshown

    def _call(self, call: CallPattern, dtype: str | None) -> Value:
        inferred = self._dtype(call.inputs)
        attrs = {n: self._attr(e, dtype) for n, e in call.attrs}
        inputs = tuple(self.value(t, inferred) for t in call.inputs)
        return Value(self.graph.add(call.op, inputs, ops.canonical(call.op, Attrs(attrs))).id)

    def _attr(self, expr: Any, dtype: str | None) -> Any:
        if isinstance(expr, NameRef) and expr.name in self.found.numbers:
            return float(self.found.numbers[expr.name])
        if isinstance(expr, NameRef) and dtype is not None:
            return CODES[dtype]
        raise _Unshown

    def _dtype(self, terms: Iterable[Term]) -> str | None:
        """The dtype of the first variable in some terms."""
        for term in terms:
            if isinstance(term, VarPattern) and term.name in self.found.dtypes:
                return self.found.dtypes[term.name]
            if isinstance(term, CallPattern):
                inner = self._dtype(term.inputs)
                if inner is not None:
                    return inner
        return None

    def _leaf(self, name: str) -> Value:
        dtype = self.found.dtypes[name]
        number = self.found.numbers.get(name)
        with np.errstate(over="ignore"):
            element = np.asarray(0 if number is None else number)
            if dtype[0] == "i" and element.dtype.kind in "iu" and element > np.iinfo(dtype).max:
                element = element - (1 << np.iinfo(dtype).bits)
            array = element.astype(numpy_dtype(dtype)).reshape(self.shape)
        if name in self.hints.constants or name in self.hints.bounded:
            return self.graph.add_constant(Constant.of(array))
        self.inputs[name] = array
        return self.graph.add_input(name, TensorType(dtype, self.shape))
