"""Coverage of families of rewrites on real models: which rule of a family fires, on which model, where."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from graphopt.display import encoded
from graphopt.errors import GraphoptError
from graphopt.frozen import dataclass
from graphopt.ir import onnx_io
from graphopt.ir.graph import Graph
from graphopt.ir.suite import suite
from graphopt.optimize import optimize_graph
from graphopt.rewrite.egraph.saturate import SaturationBudget
from graphopt.rewrite.match.matcher import root_ops
from graphopt.rewrite.rule.rule import Rule, Soundness
from graphopt.rewrite.ruleset import Ruleset, standard
from graphopt.target import Target
from graphopt.target import target as target_named
from graphopt.tools.catalogue import catalogue, ids
from graphopt.tools.convert import converted

CONVERSIONS = {"float16": "G1", "float32": "G2"}
"""What ``graphopt convert`` is tried to, and the family that this is."""
SITES = 3
"""How many places are told of each rule on each model."""
BUDGET = SaturationBudget(nodes=3_000, iters=10, seconds=30)
"""What exploration may spend on one model: enough to see which rules act."""
SCHEMA = 1
"""The version of the JSON."""


@dataclass(frozen=True, slots=True)
class Firing:
    """A rule or native pass that had a part in the result of one model for one target."""

    family: str
    rule: str
    model: str
    target: str
    policy: str
    count: int
    sites: tuple[str, ...]
    """The first few values that it rewrote."""
    in_suite: bool = False
    """Whether the model is one of ONNX's own test cases, which are counted apart."""


@dataclass(frozen=True)
class Coverage:
    """What acted where. Every list of families is in the catalogue's order."""

    firings: tuple[Firing, ...]
    failed: Mapping[str, str] = field(default_factory=dict)
    """Models that could not be optimized, and why."""

    @property
    def on_models(self) -> tuple[str, ...]:
        """Families of which a rule acted on a model."""
        return self._families(f.family for f in self.firings if not f.in_suite)

    @property
    def on_suite(self) -> tuple[str, ...]:
        """Families of which a rule acted on ONNX's test cases alone."""
        families = self._families(f.family for f in self.firings)
        return tuple(id for id in families if id not in self.on_models)

    @property
    def apart(self) -> tuple[str, ...]:
        """Families that graphopt does, but that leave no trace in a report."""
        acted = {f.family for f in self.firings}
        return tuple(f.id for f in catalogue().values() if f.apart and f.id not in acted)

    @property
    def missing(self) -> tuple[str, ...]:
        """All other families."""
        covered = {*self.on_models, *self.on_suite, *self.apart}
        return tuple(id for id in catalogue() if id not in covered)

    def of(self, family: str) -> tuple[Firing, ...]:
        """What acted of one family, models first."""
        firings = [f for f in self.firings if f.family == family]
        return tuple(sorted(firings, key=lambda f: (f.in_suite, f.model, f.rule, f.target)))

    def to_json(self) -> str:
        """All of it as JSON, with the version of its schema."""
        lists = {name: getattr(self, name) for name in ("on_models", "on_suite", "apart", "missing")}
        ordered = replace(self, firings=tuple(f for id in catalogue() for f in self.of(id)))
        content = {"schema": SCHEMA, "families": len(catalogue()), **lists, **encoded(ordered)}
        return json.dumps(content, indent=2) + "\n"

    @staticmethod
    def _families(families: Iterable[str]) -> tuple[str, ...]:
        acted = set(families)
        return tuple(id for id in catalogue() if id in acted)


def cover(
    models: Iterable[tuple[str, Any]],
    targets: Sequence[str | Target] = ("portable", "ort"),
    rules: Ruleset | None = None,
    *,
    budget: SaturationBudget = BUDGET,
    in_suite: bool = False,
    told: Callable[[str], object] = lambda _: None,
) -> Coverage:
    """Which families act on these models: names, each with what ``onnx_io.load`` takes.

    Each is optimized for each target, with the rules that are always admitted and, where rules of class
    ``approx`` may find a place in it, once more with those; and it is converted to other dtypes, which counts with
    the dtype for a target. ``told`` is called with each name before its turn.
    """
    firings: list[Firing] = []
    failed: dict[str, str] = {}
    for name, model in models:
        told(name)
        try:
            graph = onnx_io.load(model)
            firings += _conversions(name, graph, in_suite)
            for target in targets:
                target = target_named(target)
                for policy in _policies(graph, rules or standard(), target):
                    firings += _firings(name, graph, target, policy, rules, budget, in_suite)
        except GraphoptError as error:
            failed[name] = str(error)
        except (
            Exception
        ) as error:  # one model that shows a mistake of graphopt's own must not hide what the others show
            failed[name] = f"internal error ({type(error).__name__}: {error})"
    return Coverage(tuple(firings), failed)


def cover_suite(
    targets: Sequence[str | Target] = ("portable", "ort"), *, told: Callable[[str | int], object] = lambda _: None
) -> Coverage:
    """Which families act on ONNX's own backend tests. ``told`` is called with their number first."""
    cases = list(suite())
    told(len(cases))
    return cover(cases, targets, in_suite=True, told=told)


def joined(parts: Sequence[Coverage]) -> Coverage:
    """Several counts as one."""
    failed = {name: why for part in parts for name, why in part.failed.items()}
    return Coverage(tuple(f for part in parts for f in part.firings), failed)


def find_models(sources: Iterable[Path]) -> list[Path]:
    """The ONNX files that are named, and all that are in or below the folders that are named, in order."""
    return [p for source in sources for p in (sorted(source.rglob("*.onnx")) if source.is_dir() else [source])]


def _conversions(name: str, graph: Graph, in_suite: bool) -> Iterator[Firing]:
    """What ``graphopt convert`` does to the model, without running it."""
    for dtype, family in CONVERSIONS.items():
        _, done = converted(graph, dtype)
        if done.converted:
            policy = "approx" if dtype == "float16" else "exact"
            yield Firing(family, "convert", name, dtype, policy, done.converted, (), in_suite)


def _policies(graph: Graph, rules: Ruleset, target: Target) -> Iterator[Soundness]:
    yield Soundness.REALS
    more = [r for r in rules.select(policy=Soundness.APPROX, target=target).rules if r.soundness is Soundness.APPROX]
    if any(_may_root(rule, graph) for rule in more):
        yield Soundness.APPROX


def _may_root(rule: Rule, graph: Graph) -> bool:
    roots = root_ops(rule)
    return roots is None or any(node.op in roots for node in graph.nodes())


def _firings(
    name: str,
    graph: Graph,
    target: Target,
    policy: Soundness,
    rules: Ruleset | None,
    budget: SaturationBudget,
    in_suite: bool,
) -> list[Firing]:
    _, report = optimize_graph(graph, rules, target, policy, budget)
    sites: dict[tuple[str, str], list[str]] = {}
    for rewrite in report.rewrites:
        for family in ids(rewrite.family):
            sites.setdefault((family, rewrite.rule), []).append(rewrite.site)
    return [
        Firing(
            family, rule, name, target.name, policy.value, len(places), tuple(dict.fromkeys(places))[:SITES], in_suite
        )
        for (family, rule), places in sites.items()
    ]
