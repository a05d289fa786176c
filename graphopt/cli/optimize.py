"""``graphopt optimize``: its options, and a run on one model with what is written beside the result."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphopt.cli import names, values
from graphopt.cli.app import Piped, app, register
from graphopt.cli.options import (
    Atol,
    Executor,
    Fed,
    FixedSizes,
    Memory,
    PageFile,
    Policy,
    Printing,
    Quiet,
    Repeated,
    Rtol,
    RuleFiles,
    Runtime,
    Verify,
    written,
)
from graphopt.errors import UsageError, VerificationError, naming
from graphopt.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphopt.run.report import Report
    from graphopt.tools.egraph import ExploredGraph


@dataclass(frozen=True, kw_only=True)
class OptimizeOptions:
    """The options of the command."""

    output: Annotated[
        Path | None, written("OUT.onnx|FOLDER", "MODEL.opt.onnx beside it; several models need a folder")
    ] = None
    target: Runtime
    opset: Annotated[int | None, typer.Option(metavar="N", help="Convert to this opset first.")] = None
    rules: RuleFiles
    only: Annotated[
        Repeated | None,
        typer.Option(
            metavar="FAMILY|RULE",
            help="Only these rules; repeatable.",
            show_default=False,
            autocompletion=names.rules,
        ),
    ] = None
    without: Annotated[
        Repeated | None,
        typer.Option(
            metavar="FAMILY|RULE", help="Not these rules; repeatable.", show_default=False, autocompletion=names.rules
        ),
    ] = None
    policy: Policy
    freeze: Annotated[bool, typer.Option("--freeze", help="Fold initializers that callers could override.")] = False
    sizes: FixedSizes
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="nodes=N,rows=N,builds=N,members=N,iters=N,seconds=S,unroll=N",
            help="Limits of equality saturation, and of the nodes that a loop is unrolled to (256).",
            show_default=False,
        ),
    ] = None
    growth: Annotated[
        float | None,
        typer.Option(
            metavar="PERCENT",
            min=0,
            help="Let weights grow by no more; by default by 10 %, and by 10 MB for 5 % of modelled time.",
            show_default=False,
        ),
    ] = None
    verify: Verify
    on_mismatch: Annotated[
        str,
        typer.Option(
            metavar="leave-out|refuse",
            help="Where outputs differ: leave out the rule that did it, or write nothing, as with --verify require.",
        ),
    ] = "leave-out"
    rtol: Rtol
    atol: Atol
    input: Fed
    memory: Memory
    costs: Annotated[
        str,
        typer.Option(
            metavar="auto|analytic|measured|FILE",
            help="Prices of the cost model: measured where available, the target's, or those of graphopt calibrate.",
        ),
    ] = "auto"
    measure: Annotated[
        bool, typer.Option("--measure", help="Time the result against the original, and take back what is slower.")
    ] = False
    measure_seconds: Annotated[float, typer.Option(metavar="S", min=0, help="How long to measure.")] = 30
    margin: Annotated[
        float, typer.Option(metavar="PERCENT", min=0, help="Slowdown that counts as measurement noise.")
    ] = 2
    in_place: Annotated[bool, typer.Option("--in-place", help="Allow writing over MODEL itself.")] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Do everything but write.")] = False
    journal: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where to write the journal, for explain and revert; default: OUT.journal.json.",
            show_default=False,
        ),
    ] = None
    no_journal: Annotated[bool, typer.Option("--no-journal", help="Write no journal.")] = False
    certificate: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write what the result rests on, for graphopt certify.", show_default=False),
    ] = None
    unsigned: Annotated[
        bool, typer.Option("--unsigned", help="Do not record in the metadata of nodes which rewrite made them.")
    ] = False
    json: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the report, or the summary, as JSON (- is stdout).", show_default=False
        ),
    ] = None
    report: PageFile
    baseline: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Compare with the summary of an earlier run.", show_default=False),
    ] = None
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Write nothing; exit with 9 where a result would be faster than its MODEL by more than --margin.",
        ),
    ] = False
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Keep what an earlier run of several models finished, where model and options are the same.",
        ),
    ] = False
    executor: Executor
    fail_if_slower: Annotated[
        float | None,
        typer.Option(
            metavar="PERCENT",
            help="Exit with 9 where a result is slower by more than this than in the baseline, or else its original.",
            show_default=False,
        ),
    ] = None
    explain: Annotated[bool, typer.Option("--explain", help="List each rewrite: rule, site, before, after.")] = False
    stats: Annotated[
        bool, typer.Option("--stats", help="List each rule: matches tried, fired, kept, and the time that it took.")
    ] = False
    printing: Printing
    quiet: Quiet
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Print each step and how often each rule acted.")] = (
        False
    )

    def keywords(self) -> dict[str, Any]:
        """What ``graphopt.optimize`` takes of them. UsageError for what it cannot take."""
        from graphopt.rewrite.egraph.saturate import SaturationBudget

        return {
            "rules": self.rules or None,
            "only": self.only or (),
            "without": self.without or (),
            "target": self.target,
            "policy": self.policy,
            "opset": self.opset,
            "freeze": self.freeze,
            "shapes": self.sizes.shapes,
            "dims": self.sizes.dims,
            "budget": None if self.budget is None else SaturationBudget(**values.budget(self.budget)),
            "growth": None if self.growth is None else self.growth / 100,
            "verify": values.draws(self.verify),
            "on_mismatch": self.on_mismatch,
            "rtol": self.rtol,
            "atol": self.atol,
            "inputs": values.inputs(self.input or ()),
            "memory": values.nbytes(self.memory),
            "costs": self.costs,
            "measure": self.measure and self.measure_seconds,
            "margin": self.margin / 100,
            "signed": not self.unsigned,
        }


@register(
    app,
    examples=(
        "graphopt optimize model.onnx",
        "graphopt optimize model.onnx -o fast.onnx --target ort --measure",
        "graphopt optimize nets/ -o fast/ --json summary.json",
    ),
)
def optimize(
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL|FOLDER|PATTERN...",
            help="An ONNX file; - is stdin. Several, a folder or a quoted pattern ('nets/*.onnx') give one summary.",
            show_default=False,
        ),
        Piped,
    ],
    options: OptimizeOptions,
) -> int:
    """Write an equivalent model that runs faster, and a table of what changed."""
    from graphopt.cli import batch

    values.number("--fail-if-slower", options.fail_if_slower)
    if options.quiet and options.verbose:
        raise UsageError("--quiet and --verbose exclude each other")
    if options.journal and options.no_journal:
        raise UsageError("--journal and --no-journal exclude each other")
    keywords = options.keywords()
    if batch.is_asked(models, options):
        return batch.optimize_several(models, keywords, options)
    if steps := options.printing.steps("optimize"):
        keywords["steps"] = steps
    return optimize_one(models[0], keywords, options)


def optimize_one(model: Path, keywords: dict[str, Any], options: OptimizeOptions) -> int:
    """Optimize a model, write it and what the options say of the run, and print what changed; 0 comes back."""
    from dataclasses import replace

    from graphopt.cli import files, progress, results
    from graphopt.optimize import optimize
    from graphopt.run.derivation import journal_path, reproducer_path

    output = options.output or (model if options.in_place else files.beside(model, "opt"))
    is_replaced = _is_model(output, model)
    if is_replaced and not options.in_place:
        raise UsageError(f"{output} is the input itself: give another -o, or --in-place to write over it")
    read = [*([] if is_replaced else [model]), *(options.rules or ()), *map(Path, keywords["inputs"].values())]
    files.check_written({"-o": output}, read)
    is_kept = not (options.no_journal or options.dry_run)
    journal = (options.journal or (None if files.is_stdout(output) else journal_path(output))) if is_kept else None
    certificate = None if options.dry_run else options.certificate
    written = {"--json": options.json, "--journal": journal, "--certificate": certificate, "--report": options.report}
    files.check_written({"-o": output, **written}, read)
    reproducer = None if options.dry_run or files.is_stdout(output) else reproducer_path(output)
    if reproducer in read:  # which may be one of an earlier run
        reproducer = None
    kept = None
    if options.report is not None:
        from graphopt.calibration.table import priced
        from graphopt.optimize import candidates
        from graphopt.target import target
        from graphopt.tools.egraph import Kept
        from graphopt.web.layered import check

        check()
        asked = target(options.target, makes_models=True)
        kept = Kept(candidates(asked, priced(asked, options.costs).target))
        keywords = {**keywords, "steps": kept.steps(keywords.get("steps"))}
    with (
        tempfile.TemporaryDirectory(prefix="graphopt-") as scratch,
        naming(model),
        files.delivered(Path(scratch) / "model.onnx" if options.dry_run else output) as path,
    ):
        try:
            with progress.shown(options.quiet, options.verbose) as listener:
                _, report = optimize(
                    model,
                    output=path,
                    journal=journal,
                    certificate=certificate,
                    reproducer=reproducer,
                    return_report=True,
                    listener=listener,
                    **keywords,
                )
        except VerificationError as error:
            results.written(options.json, results.RefusedResult(str(model), str(error), error.exit_code, error.rewrite))
            raise
        _show(replace(report, output=str(output)), output, options, () if kept is None else kept.told(report))
    return 0


def _show(report: Report, output: Path, options: OptimizeOptions, egraphs: Sequence[ExploredGraph]) -> None:
    """Write and print what was done."""
    from graphopt.cli import files

    if options.json is not None:
        files.write_or_print(options.json, report.to_json())
    if options.report is not None:
        from graphopt.web.runs import page_of_report

        files.write_page(page_of_report(report, egraphs), options.report)
    if options.quiet:
        warnings = [str(left_out) for left_out in report.left_out]
        if report.verification is not None and report.verification.reason:
            warnings.insert(0, f"{output} is {report.verification.status}: {report.verification.reason}")
        if not warnings:
            return
    from graphopt.cli import tables  # which take time to import

    if options.quiet:
        tables.show_warnings(warnings, report.notes)
        return
    tables.show_report(
        report,
        explain=options.explain,
        statistics=options.stats,
        verbose=options.verbose,
        dry_run=options.dry_run,
    )


def _is_model(output: Path, model: Path) -> bool:
    return output == model or (output.exists() and model.exists() and output.samefile(model))
