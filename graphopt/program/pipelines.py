"""Named pipelines, for ``graphopt.compile(model, pipeline=...)`` and to start one's own from."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from graphopt.calibration.table import priced
from graphopt.errors import UsageError
from graphopt.ir.graph import Graph
from graphopt.lowering.module.passes import FUSE, SCHEDULE, Pass, Pipeline
from graphopt.optimize import optimize_graph
from graphopt.rewrite.passes.simplify import simplify
from graphopt.target import TARGETS, Target
from graphopt.target import target as target_named


def tidy(graph: Graph) -> Graph:
    """The graph with its local functions expanded and its constants computed, and no rules applied."""
    return simplify(graph)


def optimizing(target: str | Target) -> Pass:
    """The pass that rewrites graphs for a target by the standard rules."""
    # targets that come with graphopt are read when they are used
    given = target if target in TARGETS else target_named(target)
    return Pass("optimize", partial(_optimized, given))


def _optimized(target: str | Target, graph: Graph) -> Graph:
    return optimize_graph(graph, target=priced(target_named(target)).target)[0]


TIDY = Pass("tidy", tidy)

PIPELINES: Mapping[str, Pipeline] = {
    p.name: p
    for p in (
        Pipeline("zero", (TIDY, SCHEDULE)),
        Pipeline("default", (optimizing("cpu"), FUSE, SCHEDULE)),
        *(Pipeline(name, (optimizing(name), FUSE, SCHEDULE)) for name in TARGETS),
    )
}
"""``zero`` has a nest for each node of the model as it is; ``default`` is what ``compile`` does; the others rewrite the
model for the target of their name."""


def pipeline_named(name: str) -> Pipeline:
    """The pipeline of a name. UsageError where there is none.

    >>> print(graphopt.pipeline_named("zero"))
    zero: tidy, schedule
    """
    if name not in PIPELINES:
        raise UsageError(f"no pipeline is called {name!r}: there are {', '.join(PIPELINES)}")
    return PIPELINES[name]
