"""Tables that commands print on stdout. Imported by a command when it prints."""

from __future__ import annotations

from collections import Counter
from math import isinf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphopt.cli import count_of, printable
from graphopt.cli.console import Table, console, escape
from graphopt.display import duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from graphopt.cli.results import ListedRule
    from graphopt.run.certificate import Certificate, Certified
    from graphopt.run.report import Measured, Race, Report
    from graphopt.tools.alternatives_report import Alternative, ProgramChoice
    from graphopt.tools.diff import Difference, LayerComparison
    from graphopt.tools.egraph import ExploredGraph
    from graphopt.tools.inspection import Inspection, LayerSize, ModelSize, WeightStatistics
    from graphopt.tools.reduce import ReducedModel
    from graphopt.verify.verification import Verification

NO_NOTES: Mapping[str, Sequence[str]] = {}


def show_warnings(lines: Iterable[str], notes: Mapping[str, Sequence[str]] = NO_NOTES) -> None:
    """Warnings, on stderr, each with the notes that there are to it."""
    messages = console(stderr=True)
    for line in lines:
        messages.print(f"[yellow]warning:[/] {escape(printable(line))}", soft_wrap=True)
        for note in notes.get(line, ()):
            messages.print(f"  {escape(printable(note))}", soft_wrap=True)


def show_report(report: Report, *, explain: bool, verbose: bool, dry_run: bool, statistics: bool = False) -> None:
    """The table at the end of a run; warnings go to stderr."""
    show_warnings(report.warnings, report.notes)
    out = console()
    where = "nothing written (dry run)" if dry_run else f"-> {escape(printable(report.output or ''))}"
    out.print(f"[bold]{escape(printable(report.model))}[/] {where}", soft_wrap=True)
    if report.measured is not None:
        for line in _measured(report.measured):
            out.print(line, soft_wrap=True)
    out.print(_changes(report))
    for line in _prices(report):
        out.print(line, soft_wrap=True)
    if verbose:
        out.print(_counts("rule", "applied", report.by_rule()))
    if explain:
        _explain(out, report)
    steps = ", ".join(f"{escape(s.name)} {s.seconds:.2f}" for s in report.steps if s.seconds >= 0.005 or verbose)
    out.print(f"seconds     {report.seconds:.2f}" + (f"  ({steps})" if steps else ""))
    if (exploration := report.exploration) is not None:
        clock = "" if exploration.reproducible else "; another run may differ, because the clock stopped this one"
        ends = {"saturated": "saturated", "put off": "saturated, except for matches put off"}
        end = ends.get(exploration.stop, f"stopped by the limit on {escape(exploration.stop)}")
        rounds = "one round" if exploration.iterations == 1 else f"{exploration.iterations} rounds"
        out.print(f"explored    {end} after {rounds}, {exploration.nodes:,} e-nodes{clock}", soft_wrap=True)
        if exploration.put_off:
            rules = ", ".join(
                f"{rule} {count}" if count else f"{rule} (too wide)" for rule, count in exploration.put_off
            )
            out.print(f"put off     matches of {escape(rules)}", soft_wrap=True)
    if report.attentions is not None and report.attentions.told:
        out.print(f"attention   {escape(printable(report.attentions.told))}", soft_wrap=True)
    if report.waiting:
        (opset, count), *others = report.waiting
        more = "".join(f", {n} more for --opset {newer}" for newer, n in others)
        waits = "one rewrite waits" if count == 1 else f"{count} rewrites wait"
        out.print(f"waiting     {waits} for --opset {opset}{more}", soft_wrap=True)
    if report.verification is not None:
        out.print(f"checked     {_verified(report.verification)}", soft_wrap=True)
    if report.certificate is not None and report.certificate.rewrites:
        out.print(_rests_on(report.certificate), soft_wrap=True)
    if statistics:
        out.print(_statistics(report))


def _prices(report: Report) -> Iterator[str]:
    """By which prices a result was chosen."""
    at = escape(report.priced_at)
    if report.prices != "analytic" or at:
        yield f"prices      {escape(report.prices)}" + (f"; sizes count as {at}" if at else "")


def _measured(measured: Measured) -> Iterator[str]:
    sizes = ", ".join(f"{escape(name)}={n}" for name, n in measured.sizes.items())
    at = f" at {sizes}" if sizes else ""
    if measured.kept == "original":
        yield f"measured    [yellow]the original is kept[/]: nothing is as fast{at}"
    else:
        part = f", {count_of(len(measured.taken_back), 'rewrite')} taken back" if measured.taken_back else ""
        yield f"measured    {_race(measured.race)}{at}: {escape(measured.kept)} is kept{part}"
    if len(measured.races) > 1 or measured.kept == "original" or measured.taken_back:
        for race in measured.races:
            yield f"              {escape(race.name)}: {(race.refusal and escape(race.refusal)) or _race(race)}"
    if measured.undecided:
        yield "              time was up before all rewrites were tried; the rest is taken back"


def _race(race: Race) -> str:
    return f"{race.ratio:.3f}x as fast as the original [{race.low:.3f}, {race.high:.3f}] in {race.turns} turns".replace(
        "[", r"\["
    )


def _statistics(report: Report) -> Table:
    """A line for each rule that was tried and each pass that acted, by time; most often refused for what reason."""
    table = Table("rule", "family", "stage")
    for name in ("tried", "fired", "kept", "ms"):
        table.add_column(name, justify="right")
    table.add_column("most often refused because")
    for use in report.rules:
        counts = [str(n or "") for n in (use.tried, use.fired, use.kept)]
        time = f"{1e3 * use.seconds:.1f}" if use.seconds else ""
        why = f"{use.reasons[0][0]} ({use.reasons[0][1]} of {use.refused})" if use.reasons else ""
        table.add_row(escape(use.rule), use.family, use.stage, *counts, time, escape(why))
    sums = [sum(getattr(use, name) for use in report.rules) for name in ("tried", "fired", "kept")]
    table.add_row("all", "", "", *map(str, sums), f"{1e3 * sum(u.seconds for u in report.rules):.1f}", "", style="bold")
    return table


def _explain(out: Any, report: Report) -> None:
    """Each rewrite with the terms before and after; native passes, which tidy up after them, by number."""
    tidied: Counter[str] = Counter()
    for rewrite in report.rewrites:
        if not rewrite.after:
            tidied[rewrite.rule] += 1
            continue
        site = printable(rewrite.site)
        out.print(f"{rewrite.rule} [{rewrite.family}] at {site}", markup=False, style="bold", soft_wrap=True)
        before, after = printable(rewrite.before), printable(rewrite.after)
        out.print(f"  - {before}\n  + {after}", markup=False, soft_wrap=True)
    if tidied:
        counts = ", ".join(f"{name} {count}" for name, count in tidied.most_common())
        out.print(f"and native passes: {counts}", markup=False, soft_wrap=True)


def _changes(report: Report) -> Table:
    """Op counts, file size and modelled cost, before and after. Ops whose number stays are summed up in one row."""
    from graphopt.run.report import modelled

    table = Table("")
    for name in ("before", "after"):
        table.add_column(name, justify="right")
    table.add_column("")
    before, after = report.ops_before, report.ops_after
    table.add_row("ops", str(sum(before.values())), str(sum(after.values())), "", style="bold")
    same = 0
    for op in sorted({*before, *after}, key=lambda op: (after.get(op, 0) - before.get(op, 0), op)):
        old, new = before.get(op, 0), after.get(op, 0)
        if old == new:
            same += old
        else:
            table.add_row(f"  {escape(op)}", str(old or ""), str(new or ""), f"{new - old:+d}")
    if same and before != after:
        table.add_row("  all others", str(same), str(same), "")
    if report.bytes_before and report.bytes_after:
        change = 100 * (report.bytes_after / report.bytes_before - 1)
        table.add_row("file", size(report.bytes_before), size(report.bytes_after), f"{change:+.1f} %")
    if report.cost_before and report.cost_after:
        ratio = "" if report.measured is not None else modelled(report.cost_before / report.cost_after)
        table.add_row("modelled cost", duration(report.cost_before), duration(report.cost_after), ratio)
    elif report.cost_after:
        table.add_row("modelled cost", "unknown", duration(report.cost_after), "")
    return table


def _verified(verification: Verification) -> str:
    """What verification found, its status in colour."""
    status, space, told = str(verification).partition(" ")
    if verification.status == "off":
        return escape(f"{status}{space}{told}")
    word = status.removesuffix(":")
    colour = "green" if verification.is_verified else "yellow"
    return f"[{colour}]{word}[/]{escape(status.removeprefix(word) + space + told)}"


def _rests_on(certificate: Certificate) -> str:
    """How many rewrites rest on what, and the weakest of them."""
    counts, *weakest = str(certificate).splitlines()
    link = f"\nweakest     {escape(printable(weakest[0].partition(': ')[2]))}" if weakest else ""
    return f"rests on    {counts}{link}"


NAMED_PLACES = 3
"""How many rewrites are named for which one thing is said of their checks."""


def show_certified(certified: Certified) -> None:
    """What a certificate that holds rests on."""
    out, certificate = console(), certified.certificate
    if certificate.verification is not None:
        out.print(f"outputs     {_verified(certificate.verification)}, as the certificate says", soft_wrap=True)
    out.print(_rests_on(certificate), soft_wrap=True)
    words = {"checked": "agree at their place", "rounding": "differ by rounding", "unchecked": "could not be run"}
    counts = ", ".join(f"{count} {words[status]}" for status, count in sorted(certified.statuses.items()))
    largest = f", largest difference {certified.error:.2g} of the tolerance" if certified.error else ""
    out.print(f"places      {counts or 'none'}{largest}", soft_wrap=True)
    reasons: dict[str, list[str]] = {}
    for rewrite in certificate.rewrites:
        check = certified.places[rewrite.id]
        if check.status != "checked":
            reasons.setdefault(check.why, []).append(str(rewrite))
    for why, rewrites in reasons.items():  # one input that fits nowhere is the reason of all
        named = ", ".join(rewrites[:NAMED_PLACES])
        more = f" and {count_of(len(rewrites) - NAMED_PLACES, 'other')}" if len(rewrites) > NAMED_PLACES else ""
        out.print(f"  {escape(printable(f'{named}{more}: {why}'))}", soft_wrap=True)


def show_inspection(inspection: Inspection, model_size: ModelSize | None = None) -> None:
    """What a model holds, and what it takes."""
    out = console()
    opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in inspection.opsets)
    producer = f", made by {escape(inspection.producer)}" if inspection.producer else ""
    versions = f"IR {inspection.ir_version}, opset {escape(opsets)}"
    out.print(f"[bold]{escape(inspection.model)}[/]  {size(inspection.bytes)}, {versions}{producer}")
    ports = Table("", "name", "type")
    for kind, values in (("input", inspection.inputs), ("output", inspection.outputs)):
        for name, type in values:
            ports.add_row(kind, escape(name), escape(type))
    out.print(ports)
    if inspection.dimensions:
        out.print(f"open dimensions: {escape(', '.join(inspection.dimensions))}")
    out.print(_counts("op", f"{sum(inspection.ops.values())}", inspection.ops))
    constants = Table("constants", "", "")
    for dtype, (number, count) in inspection.constants.items():
        constants.add_row(escape(dtype), str(number), size(count))
    out.print(constants)
    if model_size is not None:
        out.print(f"takes       {_takes(model_size)}", soft_wrap=True)


def _takes(model_size: ModelSize) -> str:
    """The work and memory of a model in words."""
    sizes = ", ".join(f"{name}={n}" for name, n in model_size.sizes.items())
    at = f", at {escape(printable(sizes))}" if sizes else ""
    counts = f"{prefixed(model_size.flops)}FLOPs, {prefixed(model_size.parameters)}parameters"
    return f"{counts}, {size(model_size.weights)} of weights, {size(model_size.peak)} of other values at most{at}"


def prefixed(number: float) -> str:
    """A number with the prefix of its unit that reads best, and a space."""
    for prefix in ("", "k", "M", "G"):
        if number < 1000:
            return f"{number:.3g} {prefix}"
        number /= 1000
    return f"{number:.3g} T"


def show_layer_sizes(model_size: ModelSize, depth: int | None = None) -> None:
    """A line for each layer, with its share of the work, below one for each module that layers come from; modules alone
    to a ``depth``, where that is given."""
    from graphopt.ir.name_scopes import grouped, own_name

    out, layers = console(), model_size.layers
    out.print(f"[bold]{escape(printable(model_size.model))}[/]  {_takes(model_size)}", soft_wrap=True)
    table = Table("layer", "op", "output")
    for name in ("FLOPs", "share", "parameters", "weights", "output bytes"):
        table.add_column(name, justify="right")
    whole = model_size.flops or 1.0
    inside: dict[tuple[str, ...], list[LayerSize]] = {}
    for layer in layers:
        for length in range(1, len(layer.scopes) + 1):
            inside.setdefault(layer.scopes[:length], []).append(layer)

    def add_row(name: str, indent: int, of: Sequence[LayerSize], op: str, type: str, style: str = "") -> None:
        flops, parameters, weights, activations = (
            sum(getattr(layer, field) for layer in of) for field in ("flops", "parameters", "weights", "activations")
        )
        table.add_row(
            *(escape(printable(text)) for text in ("  " * indent + name, op, type)), prefixed(flops),
            f"{flops / whole:.1%}", f"{parameters:,}" if parameters else "", size(weights) if weights else "",
            size(activations), style=style,
        )  # fmt: skip

    for path, members in grouped([layer.scopes for layer in layers]):
        if path and (depth is None or len(path) <= depth):
            add_row(own_name(path), len(path) - 1, inside[path], f"{len(inside[path])} ops", "", "bold")
        for layer in (layers[k] for k in members) if depth is None else ():
            add_row(layer.name, len(path), [layer], layer.op, layer.type)
    out.print(table)


def show_weights(model_size: ModelSize, weights: Sequence[WeightStatistics]) -> None:
    """A line for each constant, the largest first."""
    out = console()
    lost = sum(w.lost for w in weights)
    out.print(f"[bold]{escape(printable(model_size.model))}[/]  {size(model_size.weights)} of weights", soft_wrap=True)
    table = Table("weight", "type")
    for name in ("bytes", "smallest", "largest", "mean", "deviation", "zeros", "NaN, inf"):
        table.add_column(name, justify="right")
    for w in weights:
        numbers = ("" if n is None else f"{n:.4g}" for n in (w.smallest, w.largest, w.mean, w.deviation))
        table.add_row(
            escape(printable(w.name)), w.type, size(w.bytes), *numbers, f"{w.zeros:.1%}", str(w.lost or ""),
            style="yellow" * bool(w.lost),
        )  # fmt: skip
    out.print(table)
    if lost:
        out.print(f"[yellow]{count_of(lost, 'element')} of weights NaN or infinite[/]")


def show_beside(found: Sequence[tuple[Inspection, ModelSize]]) -> None:
    """Several models, a column for each."""
    table = Table("")
    for inspection, _ in found:
        table.add_column(escape(printable(inspection.model)), justify="right")
    rows = {
        "file": [size(i.bytes) for i, _ in found],
        "opset": [", ".join(f"{d or 'ai.onnx'} {v}" for d, v in i.opsets) for i, _ in found],
        "ops": [str(sum(i.ops.values())) for i, _ in found],
        "FLOPs": [prefixed(s.flops).strip() for _, s in found],
        "parameters": [prefixed(s.parameters).strip() for _, s in found],
        "weights": [size(s.weights) for _, s in found],
        "other values": [size(s.peak) for _, s in found],
    }
    for name, cells in rows.items():
        table.add_row(name, *map(escape, map(printable, cells)), style="bold" * (name == "ops"))
    for op in sorted(
        {op for i, _ in found for op in i.ops}, key=lambda op: (-max(i.ops.get(op, 0) for i, _ in found), op)
    ):
        table.add_row(f"  {escape(printable(op))}", *(str(i.ops.get(op, "")) for i, _ in found))
    console().print(table)


def show_difference(difference: Difference | None) -> None:
    """How the structures of two models differ."""
    out = console()
    if difference is None:
        out.print("structure   equal")
        return
    out.print(f"structure   differs: {escape(difference.first)}", soft_wrap=True)
    if difference.ops:
        table = Table("op")
        for name in ("A", "B"):
            table.add_column(name, justify="right")
        for op, (a, b) in difference.ops.items():
            table.add_row(escape(op), str(a or ""), str(b or ""))
        out.print(table)


AROUND = 5
"""Layers that are listed before and after the first that diverges, beside the worst."""


def show_layers(compared: LayerComparison) -> None:
    """The first layer that diverges with those around it, and the layers that are furthest apart."""
    out, layers, first = console(), compared.layers, compared.first
    sizes = ", ".join(f"{name}={size}" for name, size in compared.sizes.items())
    at = f" ({escape(printable(sizes))})" if sizes else ""
    others = f"{compared.unpaired[0]} and {compared.unpaired[1]} values have no partner"
    apart = sum(layer.diverges for layer in layers)
    out.print(
        f"layers      {len(layers)} compared in {escape(compared.engine)}{at}, {apart} diverge; {others}",
        soft_wrap=True,
    )
    if first is None:
        shown = sorted(range(len(layers)), key=lambda k: (-layers[k].error, k))[:AROUND]
    else:
        position = layers.index(first)
        words = "is of another kind" if isinf(first.error) else f"{first.error:.3g} times the tolerance"
        out.print(
            f"[yellow]diverges[/]    first at {escape(printable(first.name))} ({escape(first.ops[1])}): {words}",
            soft_wrap=True,
        )
        shown = list(range(max(0, position - AROUND), min(len(layers), position + AROUND + 1)))
    table = Table("value", "in B", "ops", "by")
    for name in ("of tolerance", "absolute", "relative"):
        table.add_column(name, justify="right")
    for k in shown:
        layer = layers[k]
        other = "" if layer.other == layer.name else layer.other
        ops = layer.ops[0] if layer.ops[0] == layer.ops[1] else " -> ".join(layer.ops)
        cells = (layer.name, other, ops, layer.by)
        numbers = (f"{n:.3g}" for n in (layer.error, layer.absolute, layer.relative))
        table.add_row(*(escape(printable(c)) for c in cells), *numbers, style="yellow" * layer.diverges)
    out.print(table)


TOLD = 20
"""Classes of an e-graph in its table: those whose choice was closest."""


def show_egraphs(told: Sequence[ExploredGraph]) -> None:
    """The closest choices of each e-graph, with why they were made."""
    out = console()
    if not told:
        out.print("nothing to choose: every class has one member")
    for number, graph in enumerate(told, 1):
        sizes = f"{graph.nodes:,} e-nodes in {graph.total:,} classes, {graph.choices:,} with a choice"
        prices = f"{duration(graph.seconds)} chosen, {duration(graph.original)} as it was"
        out.print(f"[bold]e-graph {number}[/]   {sizes}; {prices}", soft_wrap=True)
        table = Table("value", "members", "chosen", "why")
        needed = [c for c in graph.classes if c.chosen is not None]
        for c in sorted(needed, key=lambda c: (c.margin, c.number))[:TOLD]:
            cells = (c.name, str(len(c.members) + c.omitted), c.members[c.chosen or 0].op, c.why)
            table.add_row(*(escape(printable(cell)) for cell in cells))
        out.print(table)
        if len(needed) > TOLD:
            out.print(f"and {len(needed) - TOLD} more; --html shows all")


def show_choices(choices: Sequence[ProgramChoice]) -> None:
    """Each choice with what it costs as modelled, and what else there was."""
    table = Table("", "value", "chosen", "instead of")
    for choice in choices:
        others = ", ".join(map(_way, choice.others))
        table.add_row(choice.kind, escape(printable(choice.value)), _way(choice.chosen), others)
    console().print(table)
    kinds = Counter(choice.kind for choice in choices)
    console().print(", ".join(f"{count} by {kind}" for kind, count in sorted(kinds.items())) or "nothing to choose")


def _way(way: Alternative) -> str:
    how = f" ({way.how})" if way.how else ""
    return escape(f"{way.what}{how} {duration(way.seconds)}")


def show_verification(title: str, verification: Verification) -> None:
    """What verification found, in one line."""
    console().print(f"{title:<11} {_verified(verification)}", soft_wrap=True)


def show_reduction(reduction: ReducedModel, output: Path) -> None:
    """What reducing left."""
    out = console()
    tried = count_of(reduction.tries, "trial")
    early = ", when time was up" if reduction.ending == "time" else ""
    nodes = f"{reduction.nodes_before} nodes -> {reduction.nodes_after}"
    out.print(f"{nodes}, in {tried}{early}: {escape(str(output))}", soft_wrap=True)
    out.print(_counts("op", "", reduction.ops))


def show_rules(rules: Sequence[ListedRule]) -> None:
    """One line for each native pass and each rule."""
    rows = [("rule", "family", "class", "evidence", "stage", "from", "reason")]
    rows += [(r.name, r.families, r.soundness, r.evidence, r.stage, r.origin, r.reason) for r in rules]
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    for row in rows:
        print(*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[-1], sep="  ")


def _counts(name: str, total: str, counts: dict[str, int]) -> Table:
    table = Table(name)
    table.add_column(total, justify="right")
    for key, count in counts.items():
        table.add_row(escape(key), str(count))
    return table


def size(count: float) -> str:
    """Bytes in the unit that reads best."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}" if unit != "B" else f"{count:.0f} B"
        count /= 1000
    return f"{count:.3g} GB"
