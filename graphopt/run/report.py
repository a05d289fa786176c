"""Report of a run of the optimizer: the value behind the table, ``--json`` and ``--explain``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from graphopt.display import HIDDEN, Displayed, encoded, shortened
from graphopt.frozen import dataclass
from graphopt.verify.verification import Verification

if TYPE_CHECKING:
    from graphopt.ir.graph import Graph
    from graphopt.rewrite.egraph.egraph_snapshot import SaturationRound
    from graphopt.run.attentions import Attentions
    from graphopt.run.certificate import Certificate
    from graphopt.run.derivation import Derivation
    from graphopt.run.leave_out import LeftOut
    from graphopt.target import Target

SCHEMA = 1
"""The version of the report's JSON: grows when a field changes its meaning or goes away."""

SECONDS = 30.0
"""How long to measure, unless it is said otherwise; what is being measured then comes to its end."""
MARGIN = 0.02
"""By what part a result may seem slower than the original and still count as not slower: what noise can do."""


TRUSTED = 10.0
"""Up to which ratio modelled costs are told: beyond it, what a call costs outside of its ops decides, which no price
says."""


def modelled(ratio: float) -> str:
    """How many times as fast a result is by modelled costs.

    >>> from graphopt.run.report import modelled
    >>> modelled(1.5), modelled(41.3)
    ('1.50x', 'over 10x')
    """
    return f"{ratio:.2f}x" if ratio <= TRUSTED else f"over {TRUSTED:g}x"


@dataclass(frozen=True, slots=True)
class Speedup:
    """How many times as fast a result is as the original: as measured where that was done, else as modelled.

    >>> from graphopt.run.report import Speedup
    >>> str(Speedup(1.5, is_measured=True)), str(Speedup(41.3, is_measured=False))
    ('measured 1.50x', 'modelled over 10x')
    """

    ratio: float
    is_measured: bool

    @property
    def kind(self) -> str:
        """``measured`` or ``modelled``."""
        return "measured" if self.is_measured else "modelled"

    @property
    def text(self) -> str:
        """The number."""
        return f"{self.ratio:.2f}x" if self.is_measured else modelled(self.ratio)

    def __str__(self) -> str:
        return f"{self.kind} {self.text}"


def speedup(measured: float | None, before: float | None, after: float | None) -> Speedup | None:
    """That of what was measured, and of modelled costs before and after; None where neither is known."""
    if measured:
        return Speedup(measured, is_measured=True)
    return Speedup(before / after, is_measured=False) if before and after else None


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step of the pipeline. ``ops`` counts the nodes of the graph that it left, where it left one."""

    name: str
    seconds: float
    ops: int | None = None


@dataclass(frozen=True, slots=True)
class AppliedRewrite:
    """A rule applied at one place. ``site`` is the name of the value rewritten; ``before`` and ``after`` are terms."""

    rule: str
    family: str
    site: str
    before: str
    after: str
    id: int = 0
    """Its number in the journal."""
    nodes: tuple[int, int] = (0, 0)
    """How many ops the two sides are."""
    gain: float | None = None
    """What the right side is cheaper by: modelled seconds."""
    needs: tuple[int, ...] = ()
    """The rewrites that made or changed what this one matched."""


@dataclass(frozen=True, slots=True)
class RuleUse:
    """What became of a rule or native pass."""

    rule: str
    family: str
    stage: str
    """``always``, ``explore``, or ``native`` for a pass."""
    tried: int
    """Places where its left side fits, but for the guards; not counted for passes."""
    fired: int
    """How often it made something new."""
    kept: int
    """How often it has a part in the result."""
    seconds: float
    refused: int = 0
    reasons: tuple[tuple[str, int], ...] = ()
    """The most frequent reasons why it was refused, with how often."""


@dataclass(frozen=True, slots=True)
class Exploration:
    """How equality saturation ended. ``reproducible`` is False where a time limit stopped it."""

    nodes: int
    classes: int
    iterations: int
    stop: str
    reproducible: bool = True
    rounds: tuple[SaturationRound, ...] = ()
    """How it grew, from before the first round on."""
    put_off: tuple[tuple[str, int], ...] = ()
    """The rules of which something was put off, with how many matches were, because one class had enough of the rule; 0
    where it would have taken too long to find all of its matches."""


@dataclass(frozen=True, slots=True)
class Race:
    """How a model ran beside another: how many times as fast (median of so many turns), in which 95 % interval."""

    name: str
    ratio: float = 1.0
    low: float = 1.0
    high: float = 1.0
    turns: int = 0
    before: float = 0.0
    """Seconds of the other model, which for candidates is the original."""
    after: float = 0.0
    refusal: str = ""
    """Why the runtime did not run it, where it did not."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What running candidates beside the original showed."""

    kept: str
    """The candidate that was kept, or ``original``."""
    race: Race
    """How what was written ran beside the original."""
    races: tuple[Race, ...] = ()
    """How each candidate as a whole did."""
    margin: float = 0.0
    """By what part a model may seem slower and count as not slower."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """What open dimensions of the inputs were."""
    threads: int = 1
    taken_back: tuple[int, ...] = ()
    """The rewrites, by number, that were taken back because the model is faster without them."""
    regions: int = 0
    """How many groups of rewrites there were to take back, where there was a need to."""
    undecided: bool = False
    """Whether time was up before all groups were tried; those that were not are taken back."""


@dataclass(frozen=True, slots=True, repr=False)
class Report(Displayed):
    """Everything that one run did. Costs are modelled seconds of one inference on the target; sizes are in bytes.

    >>> from graphopt.optimize import optimize_graph
    >>> report = optimize_graph(graph)[1]
    >>> isinstance(report, graphopt.Report), report.by_rule()
    (True, {})
    >>> report.priced_at
    'n=1'
    >>> "rules" in report.to_json()
    True
    """

    model: str
    target: str
    policy: str
    output: str | None = None
    steps: tuple[StepReport, ...] = ()
    ops_before: Mapping[str, int] = field(default_factory=dict)
    ops_after: Mapping[str, int] = field(default_factory=dict)
    bytes_before: int | None = None
    bytes_after: int | None = None
    cost_before: float | None = None
    """None, too, where sizes depend on values in the original that are known in the result."""
    cost_after: float | None = None
    exploration: Exploration | None = None
    """All explorations together."""
    explorations: tuple[Exploration, ...] = ()
    """Each by itself: those of bodies and of the main graph, in every round of the pipeline."""
    waiting: tuple[tuple[int, int], ...] = ()
    """By opset, at how many places nothing but that is needed for something cheaper (``graphopt explain --rule``)."""
    rewrites: tuple[AppliedRewrite, ...] = ()
    rules: tuple[RuleUse, ...] = ()
    """The rules that were tried and the passes that acted, those that took longest first."""
    verification: Verification | None = None
    left_out: tuple[LeftOut, ...] = ()
    """Rewrites that made the result wrong, which is without them."""
    certificate: Certificate | None = None
    """What the result rests on."""
    prices: str = "analytic"
    """What modelled costs go by: the target's own prices, or measured ones, with a digest of the table."""
    counted_at: Mapping[str, int] = field(default_factory=dict)
    """What open dimensions count as in modelled costs."""
    profiles: tuple[tuple[Mapping[str, int], float], ...] = ()
    """Where a cache grows: what they count as instead, in decode and in prefill, and the weights of the two."""
    attentions: Attentions | None = None
    """How many attentions of the result are one op, and why others are not."""
    measured: Measured | None = None
    warnings: tuple[str, ...] = ()
    derivation: Derivation | None = field(default=None, metadata={HIDDEN: True})
    """What was done, so that it can be done again; not part of the JSON."""
    graphs: tuple[Graph, Graph] | None = field(default=None, compare=False, repr=False, metadata={HIDDEN: True})
    """What the rules saw first, and the result; not part of the JSON."""
    priced_by: Target | None = field(default=None, compare=False, repr=False, metadata={HIDDEN: True})
    """The target by whose prices the result was chosen; not part of the JSON."""

    def __repr__(self) -> str:
        before, after = sum(self.ops_before.values()), sum(self.ops_after.values())
        return f"<Report {shortened(self.model)}: {before} ops, {after} after, for {self.target}>"

    @property
    def seconds(self) -> float:
        """The time that all steps took."""
        return sum(step.seconds for step in self.steps)

    @property
    def priced_at(self) -> str:
        """What open dimensions count as in modelled costs, as text."""
        common = {n: size for n, size in self.counted_at.items() if not any(n in sizes for sizes, _ in self.profiles)}
        parts = [_sizes(common), " or ".join(_sizes(sizes) for sizes, _ in self.profiles)]
        return "; ".join(filter(None, parts))

    @property
    def notes(self) -> dict[str, tuple[str, ...]]:
        """What to look at beside some of the warnings, a line each."""
        return {str(left_out): left_out.notes for left_out in self.left_out}

    def by_rule(self) -> dict[str, int]:
        """How often each rule was applied, the most frequent first."""
        counts: dict[str, int] = {}
        for rewrite in self.rewrites:
            counts[rewrite.rule] = counts.get(rewrite.rule, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def to_json(self) -> str:
        """The report as JSON, with the version of its schema."""
        return json.dumps({"schema": SCHEMA, **encoded(self), "seconds": self.seconds}, indent=2) + "\n"


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sorted(sizes.items()))
