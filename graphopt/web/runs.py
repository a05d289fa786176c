"""Pages made from an optimizer's report and from a compiled model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from graphopt.web.kernels import kernels
from graphopt.web.page import Page
from graphopt.web.rewriting import rewriting

if TYPE_CHECKING:
    from graphopt.benchmark.bench import EngineTiming
    from graphopt.benchmark.ceilings import Ceilings
    from graphopt.program.compiled_model import Compiled
    from graphopt.run.report import Report
    from graphopt.runtime.profile import ProfileRow
    from graphopt.tools.diff import LayerComparison
    from graphopt.tools.egraph import ExploredGraph


def page_of_report(report: Report, egraphs: Sequence[ExploredGraph] = ()) -> Page:
    """The page of a run of the optimizer, with the e-graphs of the run where they are given. MissingDependencyError
    where nothing lays graphs out."""
    facts = [("model", report.model), ("target", report.target), ("policy", report.policy)]
    if report.measured is not None:
        race = report.measured.race
        ratio = f"{race.ratio:.2f}x [{race.low:.2f}-{race.high:.2f}]"
        facts.append(("measured", f"{ratio} beside the original, {report.measured.kept} kept"))
    facts.append(("prices", report.prices))
    facts += [("written to", report.output)] if report.output else []
    if report.waiting:
        facts.append(("waiting", ", ".join(f"{count} for opset {opset}" for opset, count in report.waiting)))
    if report.attentions is not None and report.attentions.told:
        facts.append(("attention", report.attentions.told))
    if report.priced_at:
        facts.append(("priced at", report.priced_at))
    return Page(
        PurePath(report.model).name or "model",
        "optimize",
        tuple(facts),
        rewriting(report),
        egraphs=tuple(egraphs),
        steps=tuple((s.name, s.seconds) for s in report.steps),
        warnings=report.warnings,
    )


def page_of_egraphs(model: str, target: str, policy: str, told: Sequence[ExploredGraph]) -> Page:
    """The page of the e-graphs of a model."""
    facts = (("model", model), ("target", target), ("policy", policy))
    return Page(PurePath(model).name or "model", "egraph", facts, egraphs=tuple(told))


def page_of_layers(models: tuple[str, str], compared: LayerComparison) -> Page:
    """The page of the values inside two models."""
    facts = [("A", models[0]), ("B", models[1]), ("computed in", compared.engine)]
    facts += [("sizes", ", ".join(f"{n}={size}" for n, size in compared.sizes.items()))] if compared.sizes else []
    title = " and ".join(PurePath(model).name or "model" for model in models)
    return Page(title, "diff", tuple(facts), layers=compared)


def page_of_program(
    model: str,
    compiled: Compiled,
    *,
    kind: str = "compile",
    target: str = "cpu",
    rows: Sequence[ProfileRow] = (),
    ceilings: Ceilings | None = None,
    sizes: Mapping[str, int] | None = None,
    timings: Sequence[EngineTiming] = (),
    threads: int = 1,
) -> Page:
    """The page of a compiled model: what was rewritten, its kernels, and what is known of a run of it: a profile and
    the machine's ceilings, the sizes of open dimensions, how long runs took here and in other engines."""
    report = compiled.report.rewriting
    rewrites = None if report is None else rewriting(report)
    drawing = rewrites.pictures[0].after if rewrites is not None and rewrites.pictures else None
    section = kernels(
        compiled.linked,
        compiled.program,
        drawing=drawing,
        rows=rows,
        ceilings=ceilings,
        sizes=sizes,
        timings=timings,
    )
    facts = [("model", model), ("target", target), ("threads", str(threads))]
    facts += [("sizes", ", ".join(f"{name}={size}" for name, size in sizes.items()))] if sizes else []
    return Page(
        PurePath(model).name or "model",
        kind,
        tuple(facts),
        rewrites,
        section,
        steps=tuple((s.name, s.seconds) for s in compiled.report.steps),
        warnings=compiled.report.warnings,
    )
