"""Steps of ``graphopt optimize``, one line each; each is a function of a graph, or of what the step before gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphopt.calibration.table import priced
from graphopt.errors import UsageError, VerificationError, names_its_model
from graphopt.ir import onnx_io
from graphopt.ir.graph import Graph
from graphopt.progress import Listener
from graphopt.rewrite.egraph.saturate import SaturationBudget, saturate
from graphopt.rewrite.extract.choose import extract
from graphopt.rewrite.match.journal import unsigned
from graphopt.rewrite.passes.simplify import simplify
from graphopt.rewrite.rule.rule import Soundness, soundness
from graphopt.rewrite.ruleset import Ruleset, names_of, ruleset, standard
from graphopt.run.certificate import certificate as certificate_of
from graphopt.run.certificate import of_files
from graphopt.run.derivation import Preparation
from graphopt.run.optimization import ExploredRegion, Optimization, Timed
from graphopt.run.report import MARGIN, SECONDS, Report
from graphopt.run.steps import OPTIMIZE, OwnStep, Steps, rare_collections
from graphopt.run.write_result import deliver
from graphopt.target import PORTABLE, Target
from graphopt.target import target as target_named
from graphopt.verify.verification import Demands, started_ahead

if TYPE_CHECKING:
    from graphopt.verify.inputs import Given
    from graphopt.verify.verification import Verification

ROUNDS = 3
"""How often at most what was chosen is explored again: what rules with several roots made may root another."""

RESULT = "the result"
"""What is measured under this name, beside other candidates, is what the prices that were asked for choose."""

ON_MISMATCH = ("leave-out", "refuse")
"""What is done where the result does not compute what the original does."""


def optimize_graph(
    graph: Graph,
    rules: Ruleset | None = None,
    target: Target = PORTABLE,
    policy: Soundness = Soundness.REALS,
    budget: SaturationBudget | None = None,
    step: Steps | None = None,
    timed: Timed | None = None,
    preparation: Preparation | None = None,
    growth: float | None = None,
) -> tuple[Graph, Report]:
    """An equivalent graph that costs less on the target, and what was done. The graph itself is not changed.

    Where ``timed`` knows of times, each choice is made again by the prices that it gives. ``preparation`` is what was
    done to the graph before. ``growth`` is by what share stored constants may grow at most (``allowance``).
    """
    rules = (rules or standard()).select(policy=policy, target=target, opset=graph.opset)
    step = step or Steps()
    run = Optimization(graph, rules, target, policy, budget or SaturationBudget(), step, timed, growth)
    given = graph
    graph = step("tidy", simplify, graph, rules.always, rules.passes, **run.noted)
    run.tidied = graph
    tidy = graph if graph is given else None
    for _ in range(ROUNDS):
        before = graph
        # from here equal graphs live side by side: nothing is lost by trying a rule
        for region in run.regions(graph):
            cheapest(region, run, step)
        # one graph again; names, inputs and outputs are the caller's
        folded = run.note_folding(run.explored, step("fold", run.fold, run.explored))
        graph = folded
        if folded is not tidy or run.put_off:
            graph = step("tidy", simplify, graph, rules.always, rules.passes, **run.noted)
        is_done = graph is folded or run.is_stopped
        if is_done and not run.is_worth_another_round(before, graph):
            break
    return graph, run.report(given, graph, preparation or Preparation())


def cheapest(region: ExploredRegion, run: Optimization, step: Steps) -> None:
    """Make of a region the cheapest of all graphs that the rules make equal to it."""
    graph = region.graph.copy()
    # rules that always help are tried too: what they lead to may be worth more than they are
    saturated = step("explore", saturate, graph, region.facts, run.rules.rules, run.budget, step.listen)
    extraction = step("choose", extract, saturated, run.model(graph), run.growth)
    timed = step("look up times", run.timed_model, saturated, extraction, graph) if run.timed else None
    if timed is not None:
        extraction = step("choose", extract, saturated, timed, run.growth)
    run.keep(saturated, extraction, graph)
    run.note_waiting(saturated, timed or run.model(graph), region)
    region.become(step("derive", run.derive, extraction, saturated, region))


def candidates(target: Target, by_costs: Target) -> dict[str, Target]:
    """The targets whose results are measured beside each other, by what reports call them: that by the prices that
    were asked for, that by the target's own prices, and one for any runtime."""
    others = (("analytic prices", target), ("portable", PORTABLE))
    return {RESULT: by_costs} | {name: other for name, other in others if other != by_costs}


@names_its_model
@rare_collections
def optimize(
    model: Any,
    *,
    output: str | Path | None = None,
    rules: Ruleset | str | Path | Sequence[str | Path] | None = None,
    only: str | Sequence[str] = (),
    without: str | Sequence[str] = (),
    target: str | Target = "portable",
    policy: str | Soundness = "reals",
    opset: int | None = None,
    freeze: bool = False,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    budget: SaturationBudget | None = None,
    growth: float | None = None,
    verify: int | str = 1,
    inputs: Mapping[str, Given] | None = None,
    on_mismatch: str = "leave-out",
    memory: int | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    journal: str | Path | None = None,
    certificate: str | Path | None = None,
    reproducer: str | Path | None = None,
    costs: str | Path = "auto",
    measure: bool | float = False,
    margin: float = MARGIN,
    signed: bool = True,
    return_report: bool = False,
    listener: Listener | None = None,
    steps: Mapping[str, OwnStep] | None = None,
) -> Any:
    """An equivalent model that runs faster, of the kind that was given; the argument is not changed.

    ``model`` is bytes, an ``onnx.ModelProto``, an ``onnx_ir.Model``, a ``torch.onnx.ONNXProgram``, a ``Graph``, a
    ``Module``, of which the graph comes back, or a path, which needs ``output`` and gives it back. ``rules`` are a
    ``Ruleset``, or files, modules or packages of rules added to the standard set; ``only`` and ``without`` name rules
    or families. ``shapes`` (of inputs, by name) and ``dims`` (by symbol) fix open dimensions, ``opset`` converts
    first, ``freeze`` folds initializers that a caller could override. ``growth`` is by what share stored weights may
    grow at most: by default by 0.1, and by up to 10 MB where that saves 5 % of the modelled time.
    ``journal`` is the file for the rewrites, for ``graphopt.tools.explanation``; ``certificate`` is the file for what
    the result rests on, for ``graphopt certify``. ``costs`` are ``"analytic"``, ``"measured"`` (``graphopt
    calibrate``), ``"auto"`` (measured if there are some), or a database of prices. ``measure`` times results beside
    the original, for so many seconds (True: 30), and keeps what is not slower, within ``margin``. Metadata of nodes
    names the rewrite that made them (``graphopt: RULE #NUMBER``) unless ``signed`` is False. ``verify`` is a number of
    random inputs on which both models are compared, ``"off"``, ``"require"``, or ``"full"``; ``inputs`` are values for
    them, ``rtol`` and ``atol`` how far outputs may be apart by element (by default by dtype), and ``memory`` is how
    many bytes that may take (by default four times the model's and 1 GiB). Where they differ, the rule that did it is
    found and left out (``on_mismatch="leave-out"``), or the result is refused (``"refuse"``, and always with
    ``"require"``); then ``reproducer`` is the file for a small model on which that rule is wrong by itself.
    ``return_report`` returns the report, too. ``steps`` replace steps by name (``run.steps``).

    Raises the exceptions of ``graphopt.errors``, and writes nothing then.
    """
    target = target_named(target, makes_models=True)
    if not target.makes_models:
        raise UsageError(f"the target {target.name} makes programs, no ONNX models: use graphopt compile")
    policy, by_costs, rules = soundness(policy), priced(target, costs), ruleset(rules)
    selection = names_of(only), names_of(without), policy
    if on_mismatch not in ON_MISMATCH:
        raise UsageError(f"on_mismatch={on_mismatch!r}: expected {' or '.join(ON_MISMATCH)}")
    rules.check(*selection[:2])  # names that do not exist are told before anything is read
    if isinstance(model, str | Path) and output is None:
        raise UsageError("optimizing a file needs output=, the path to write")
    step, preparation = Steps(listener, OPTIMIZE, steps), Preparation(opset, freeze, shapes or {}, dims or {})
    is_file = isinstance(model, str | Path)
    if not is_file:  # the modules of kernels are not imported for a file
        from graphopt.lowering.module.module import Module

        model = model.graph() if isinstance(model, Module) else model
    read = step("read", onnx_io.load, model)
    bytes_before = onnx_io.bytes_on_disk(model, read) if is_file else None
    graph = prepared = read if preparation == Preparation() else step("prepare", preparation.prepared, read)
    targets = candidates(target, by_costs.target) if measure else {RESULT: by_costs.target}
    if growth is not None and not growth >= 0:
        raise UsageError(f"growth={growth}: expected a share of the weights, 0.1 for 10 %")
    with started_ahead(verify) as interpreter:
        results: dict[str, tuple[Graph, Report]] = {}
        for name, priced_for in targets.items():
            selected = rules.select(*selection, priced_for, prepared.opset)
            results[name] = optimize_graph(
                prepared, selected, priced_for, policy, budget, step, None, preparation, growth
            )
        graph, report = results[RESULT]
        original = preparation.fixed(read)
        if measure:
            from graphopt.run.measure import fastest  # with the runtimes, which nothing else here needs

            seconds = SECONDS if measure is True else measure
            graph, report = step(
                "measure", fastest, results, original, prepared, read, inputs, margin, seconds, by_costs.target
            )
        assert report.derivation is not None
        derivation = report.derivation.of(model, graph)
        source = Path(model) if is_file and original is read else original
        demands = Demands(policy.value, rtol, atol)
        place = None if reproducer is None else Path(reproducer)

        def beside(written: Path, verified: Verification) -> dict[Path, str]:
            if verified.status not in ("verified", "off"):
                from graphopt.run.leave_out import check_undecided

                check_undecided(read, derivation, inputs)
            texts = {} if journal is None else {Path(journal): derivation.to_json()}
            if certificate is not None:
                made = of_files(certificate_of(derivation, verified), model if is_file else None, written)
                texts[Path(certificate)] = made.to_json(derivation)
            return texts

        def delivered() -> tuple[Any, Verification, int | None]:
            shown = graph if signed else unsigned(graph)
            return deliver(step, model, source, shown, output, verify, inputs, beside, memory, demands, interpreter)

        try:
            result, verified, size = delivered()
        except VerificationError as error:
            from graphopt.run.leave_out import Search, mended, report_without

            refused = on_mismatch == "refuse" or verify == "require"
            search = Search(read, source, verify, inputs, memory, demands, place)
            graph, derivation, left_out = step("leave out", mended, search, derivation, error, refused)
            report = report_without(report, graph, derivation, left_out, by_costs.target)
            result, verified, size = delivered()
    graph = graph if signed else unsigned(graph)
    report = replace(
        report,
        certificate=certificate_of(derivation, verified),
        model=str(model) if is_file else graph.name,
        output=None if output is None else str(output),
        steps=tuple(step.done),
        bytes_before=bytes_before,
        bytes_after=size,
        verification=verified,
        derivation=derivation,
        graphs=(prepared, graph),
        prices=by_costs.prices,
        warnings=(*report.warnings, *filter(None, (by_costs.warning,))),
    )
    return (result, report) if return_report else result
