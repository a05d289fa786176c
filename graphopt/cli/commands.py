"""Commands on models (inspect, diff, reduce, convert, extract, learn-rule), and demo, completion and doctor.

Each reads its options, calls the one function that does the work, and prints what came back. Commands that have a file
of their own are registered at the end.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphopt.cli import COMPLETE, names, optimize, values
from graphopt.cli.app import Piped, app, register
from graphopt.cli.options import (
    Atol,
    Check,
    Fed,
    FixedSizes,
    Json,
    Memory,
    Model,
    Quiet,
    Repeated,
    Rtol,
    Seconds,
    Verify,
    written,
)
from graphopt.errors import StoppedError, UsageError, naming

if TYPE_CHECKING:
    from graphopt.tools.convert import Conversion
    from graphopt.tools.doctor import Finding


@register(
    app,
    examples=(
        "graphopt demo",
        "graphopt demo -o /tmp/demo",
        "graphopt explain graphopt-demo/demo.opt.onnx classes",
    ),
)
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FOLDER", help="Where to write.")] = Path(
        "graphopt-demo"
    ),
    *,
    json: Json,
    quiet: Quiet,
) -> None:
    """Optimize a small image classifier that comes with graphopt, time it beside the original, and write the page."""
    from graphopt.cli import files, progress, tables
    from graphopt.errors import ReadError
    from graphopt.tools.demo import MODEL, demonstrate, verdict
    from graphopt.web.layered import check
    from graphopt.web.runs import page_of_report

    files.check_folder("-o", output, MODEL.name)
    check()
    try:
        output.mkdir(exist_ok=True)
    except OSError as error:
        raise ReadError(f"{output}: cannot be made there ({error.strerror or error})") from None
    page = output / f"{MODEL.stem}.html"
    with progress.shown(quiet, False) as listener:
        report = demonstrate(output, listener)
        files.write_page(page_of_report(report), page)
    if json is not None:
        files.write_or_print(json, report.to_json())
    if files.is_stdout(json):
        return
    if not quiet:
        tables.show_report(report, explain=False, verbose=False, dry_run=False)
    print(f"{verdict(report)}; page: {page}")


@register(
    app,
    examples=(
        "graphopt inspect model.onnx",
        "graphopt inspect model.onnx --nodes",
        "graphopt inspect model.onnx --json -",
    ),
)
def inspect(
    models: Annotated[
        list[Path],
        typer.Argument(metavar="MODEL...", help="An ONNX file; several side by side.", show_default=False),
        Piped,
    ],
    *,
    nodes: Annotated[bool, typer.Option("--nodes", help="List the nodes instead: number, op, name, outputs.")] = False,
    layers: Annotated[
        bool,
        typer.Option("--layers", help="List the nodes with FLOPs, parameters and memory instead, by module of torch."),
    ] = False,
    depth: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Of --layers, modules alone, so deep.", show_default=False),
    ] = None,
    weights: Annotated[
        bool, typer.Option("--weights", help="List the weights instead: range, mean, deviation, zeros, NaN.")
    ] = False,
    sizes: FixedSizes,
    json: Json,
) -> None:
    """Print what a model holds: ops, sizes, types, open dimensions, opsets, and the work and memory that it takes."""
    from graphopt.cli import files, printable, results, tables
    from graphopt.tools import inspection as look

    if [nodes, layers, weights].count(True) > 1:
        raise UsageError("--nodes, --layers and --weights exclude each other")
    if depth is not None and not layers:
        raise UsageError("--depth is of --layers")
    files.check_written({"--json": json}, models)
    if nodes:
        listed = [node for model in models for node in look.list_nodes(model)]
        for node in () if results.written(json, listed) else listed:
            print(printable(str(node)))
        return
    found = []
    for model in models:
        with naming(model):
            held, size = look.inspect(model), look.layer_sizes(model, sizes.shapes, sizes.dims)
            found.append(results.InspectedModel(held, size, look.weight_statistics(model) if weights else None))
    if results.written(json, found):
        return
    if layers or weights:
        for one in found:
            if one.weights is None:
                tables.show_layer_sizes(one.size, depth)
            else:
                tables.show_weights(one.size, one.weights)
    elif len(found) == 1:
        tables.show_inspection(found[0].model, found[0].size)
    else:
        tables.show_beside([(one.model, one.size) for one in found])


@register(
    app,
    examples=(
        "graphopt diff a.onnx b.onnx",
        "graphopt diff a.onnx b.onnx --verify 10 --rtol 1e-3",
        "graphopt diff a.onnx b.onnx --input x=x.npy",
    ),
)
def diff(
    a: Annotated[Path, typer.Argument(metavar="A.onnx", show_default=False), Piped],
    b: Annotated[Path, typer.Argument(metavar="B.onnx", show_default=False), Piped],
    *,
    verify: Verify,
    rtol: Rtol,
    atol: Atol,
    input: Fed,
    memory: Memory,
    layers: Annotated[
        bool, typer.Option("--layers", help="Compare values inside, too, and tell where they first diverge.")
    ] = False,
    json: Json,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page of the layers.", show_default=False)
    ] = None,
) -> None:
    """Compare two models: their structure, their outputs on random inputs, and the values inside. Exits with 6 where
    outputs differ."""
    from graphopt.cli import files, results, tables
    from graphopt.errors import VerificationError
    from graphopt.tools import diff as comparing
    from graphopt.verify.verification import Demands, verify_as_asked

    files.check_written({"--json": json, "--html": html}, [a, b])
    most, called, drawn = values.nbytes(memory), (str(a), str(b)), values.inputs(input or ())
    structure = comparing.diff(a, b)
    compared = comparing.layers(a, b, drawn, rtol, atol) if layers or html is not None else None
    if html is not None and compared is not None:
        from graphopt.web.runs import page_of_layers

        files.write_page(page_of_layers(called, compared), html)
    if not files.is_stdout(json):
        tables.show_difference(structure)
        if compared is not None:
            tables.show_layers(compared)
    first = None if compared is None else compared.first
    try:
        demands = Demands(rtol=rtol, atol=atol)
        verification = verify_as_asked(a, b, values.draws(verify), drawn, called, most, demands=demands)
    except VerificationError as error:
        results.written(json, results.Comparison(structure, None, str(error), compared, first))
        raise
    if not results.written(json, results.Comparison(structure, verification, "", compared, first)):
        tables.show_verification("outputs", verification)


@register(
    app,
    examples=(
        "graphopt reduce model.onnx --check 'python run.py'",
        "graphopt reduce model.onnx --check './fails.sh {}' -o small.onnx",
        "graphopt reduce model.onnx --check 'python run.py' --timeout 300",
    ),
)
def reduce(
    model: Model,
    check: Check,
    *,
    output: Annotated[Path | None, written("OUT.onnx", "MODEL.reduced.onnx beside it")] = None,
    timeout: Annotated[
        float, typer.Option(metavar="S", help="Seconds that CMD may take; more counts as another failure.")
    ] = 60,
    seconds: Seconds,
    json: Json,
    quiet: Quiet,
) -> None:
    """Find the smallest model on which CMD still fails with the same exit code. Ctrl-C keeps the smallest so far."""
    from graphopt.cli import files, progress, results, tables
    from graphopt.tools.reduce import reduce_file

    values.number("--timeout", timeout, 0)
    values.number("--seconds", seconds, 0)
    path = output or files.beside(model, "reduced")
    files.check_written({"-o": path, "--json": json}, [model])
    with naming(model), files.delivered(path) as place:
        with progress.shown(quiet, False) as listener:
            reduction = reduce_file(model, check, place, timeout=timeout, seconds=seconds, listener=listener)
        if not results.written(json, reduction) and not quiet:
            tables.show_reduction(reduction, path)
    if reduction.ending == "interrupted":
        raise StoppedError(f"interrupted; the smallest model so far is in {path}")


@register(
    app,
    "completion",
    examples=(
        'eval "$(graphopt completion bash)"',
        'eval "$(graphopt completion zsh)"',
        "graphopt completion fish | source",
    ),
)
def completion(
    shell: Annotated[
        str,
        typer.Argument(
            metavar="|".join(names.SHELLS), help="The shell.", show_default=False, autocompletion=names.shells
        ),
    ],
) -> None:
    """Print the script by which a shell completes commands, options and names. It is for ~/.bashrc as eval "$(graphopt
    completion bash)", for ~/.zshrc the same with zsh, and for config.fish as `graphopt completion fish | source`."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    if shell not in names.SHELLS:
        raise UsageError(f"there is no completion for {shell!r}: expected {', '.join(names.SHELLS)}")
    print(f"# {names.SHELLS[shell]}")
    print(get_completion_script(prog_name="graphopt", complete_var=COMPLETE, shell=shell))


@register(
    app,
    "convert",
    examples=(
        "graphopt convert model.onnx --to fp16",
        "graphopt convert model.onnx --to bf16 --keep Softmax",
        "graphopt convert model.onnx --to fp16 --io -o half.onnx",
    ),
)
def convert(
    model: Model,
    to: Annotated[
        str,
        typer.Option(
            metavar="float16|bfloat16|float32",
            help="The dtype to compute in; fp16, bf16 and fp32 say the same.",
            show_default=False,
        ),
    ],
    *,
    output: Annotated[Path | None, written("OUT.onnx", "MODEL.DTYPE.onnx beside it")] = None,
    keep: Annotated[
        Repeated | None,
        typer.Option(metavar="OP|NODE", help="An op or node to leave as it is; repeatable.", show_default=False),
    ] = None,
    io: Annotated[
        bool, typer.Option("--io/--keep-io", help="Change the types of inputs and outputs too, or keep them.")
    ] = False,
    samples: Annotated[
        int, typer.Option(metavar="N", min=0, help="Random inputs to measure ranges and errors on.")
    ] = 1,
    input: Fed,
    json: Json,
    quiet: Quiet,
) -> None:
    """Write the model in another dtype, except for ops that need their own, and print the error of each output."""
    from graphopt.cli import files, progress, results
    from graphopt.ir.dtypes import ALIASES
    from graphopt.tools.convert import convert as run

    to = ALIASES.get(to, to)
    path = output or files.beside(model, to)
    files.check_written({"-o": path, "--json": json}, [model])
    with files.delivered(path) as place:
        with progress.shown(quiet, False) as listener:
            _, done = run(
                model,
                to=to,
                output=place,
                keep=keep or (),
                io=io,
                samples=samples,
                inputs=values.inputs(input or ()),
                listener=listener,
            )
        if not results.written(json, done) and not quiet:
            _show_conversion(model, path, done)


def _show_conversion(model: Path, path: Path, done: Conversion) -> None:
    """What was converted, what was not, and the errors."""
    from rich.table import Table

    from graphopt.cli.console import console, escape
    from graphopt.cli.tables import show_warnings

    show_warnings(done.warnings)
    out = console()
    out.print(f"[bold]{escape(str(model))}[/] -> {escape(str(path))}", soft_wrap=True)
    out.print(f"{done.converted} ops in {done.dtype}, {sum(done.kept.values())} not, {done.casts} casts added")
    for reason, count in done.kept.items():
        out.print(f"  {count} x {escape(reason)}")
    if done.bytes_before is not None and done.bytes_after is not None:
        out.print(f"bytes {done.bytes_before:,} -> {done.bytes_after:,}")
    if done.errors:
        table = Table("output", "largest error", "mean error", "of its largest", box=None, header_style="bold")
        for e in done.errors:
            table.add_row(escape(e.name), f"{e.largest:.3g}", f"{e.mean:.3g}", f"{e.relative:.2%}")
        out.print(table)


@register(
    app,
    "doctor",
    examples=(
        "graphopt doctor",
        "graphopt doctor --json doctor.json",
        "graphopt doctor > report.txt",
    ),
)
def doctor(*, json: Json) -> None:
    """Report versions, processor, libraries and folders, what to do where one is missing or slow, and whether a kernel
    runs.

    Paste it into a bug report. Exits with 6 where the self-test fails.
    """
    from graphopt.cli import files, results
    from graphopt.errors import VerificationError
    from graphopt.runtime import disk_cache
    from graphopt.tools.doctor import examine, is_well

    files.check_written({"--json": json}, [])
    disk_cache.root()
    findings = list(examine())
    if not results.written(json, findings):
        _print_findings(findings)
    if not is_well(findings):
        raise VerificationError("the self-test failed: report what is printed above")


def _print_findings(findings: list[Finding]) -> None:
    from graphopt.cli import printable
    from graphopt.cli.console import console, escape

    out = console()
    topic = ""
    for finding in findings:
        if finding.topic != topic:
            topic = finding.topic
            out.print(f"[bold]{escape(topic)}[/]")
        name, text = (escape(printable(t)) for t in (finding.name, finding.found))
        out.print(f"  {name:<20} {text}", soft_wrap=True)
        if finding.advice:
            out.print(f"  {'':<20} [yellow]-> {escape(printable(finding.advice))}[/]", soft_wrap=True)


@register(
    app,
    "extract",
    examples=(
        "graphopt extract model.onnx --outputs features",
        "graphopt extract model.onnx --inputs a,b --outputs c -o part.onnx",
        "graphopt extract model.onnx --inputs features --quiet",
    ),
)
def extract(
    model: Model,
    *,
    inputs: Annotated[
        Repeated | None,
        typer.Option(
            metavar="NAME[,NAME]...",
            help="Values to cut at, which become inputs; default: the model's own that are needed. Repeatable.",
            show_default=False,
            autocompletion=names.nodes,
        ),
    ] = None,
    outputs: Annotated[
        Repeated | None,
        typer.Option(
            metavar="NAME[,NAME]...",
            help="Values that become outputs; default: all outputs that the inputs lead to. Repeatable.",
            show_default=False,
            autocompletion=names.nodes,
        ),
    ] = None,
    output: Annotated[Path | None, written("OUT.onnx", "MODEL.part.onnx beside it")] = None,
    json: Json,
    quiet: Quiet,
) -> None:
    """Write the part of a model between given values, with the types and weights that it has."""
    from graphopt.cli import files, results, tables
    from graphopt.ir.onnx_io import load
    from graphopt.tools.inspection import inspect
    from graphopt.tools.submodel import extract as cut
    from graphopt.tools.submodel import named_values

    path = output or files.beside(model, "part")
    files.check_written({"-o": path, "--json": json}, [model])
    graph = load(model)
    value_names = named_values(graph)
    starts, ends = _split(inputs or (), value_names), _split(outputs or (), value_names)
    if not starts and not ends:
        raise UsageError("nothing to cut at: give --inputs, --outputs, or both")
    with naming(model), files.delivered(path) as place:
        cut(graph, starts, ends, output=place)
        found = inspect(place)
        if not results.written(json, found) and not quiet:
            tables.show_inspection(found)


def _split(options: Iterable[str], value_names: Container[str]) -> list[str]:
    """The names; an option is split at commas where it is no name as a whole."""
    return [n for option in options for n in ([option] if option in value_names else option.split(",")) if n]


@register(
    app,
    "learn-rule",
    examples=(
        "graphopt learn-rule model.onnx --nodes conv..relu",
        "graphopt learn-rule model.onnx --nodes %3..%7 --name my-swish",
        "graphopt learn-rule model.onnx --nodes softmax -o mine.rules",
    ),
)
def learn_rule(
    model: Model,
    nodes: Annotated[
        str,
        typer.Option(
            metavar="A..B",
            help="The region: from node A along the data flow to node B, or one node: by name, by the name of a "
            "value, or by number (%7; graphopt inspect --nodes); several with commas.",
            show_default=False,
            autocompletion=names.nodes,
        ),
    ],
    name: Annotated[str, typer.Option(metavar="NAME", help="Name of the rule.")] = "learned",
    output: Annotated[Path | None, written("FILE.rules", "stdout")] = None,
) -> None:
    """Write a rule whose left side is a region of a model, with its guards; the right side is yours to write."""
    import sys

    from graphopt.cli import files
    from graphopt.interop.learned import learn_rule as learn

    files.check_written({"-o": output}, [model])
    with naming(model):
        learned = learn(model, nodes, name)
    files.write_or_print(output, learned.text)
    places = f"{learned.places} place{'s' if learned.places > 1 else ''}"
    print(f"the left side matches {places} of {model}; write the right side in the place of the ?", file=sys.stderr)


__all__ = ["app", "optimize"]

from graphopt.cli import (  # noqa: E402, F401
    ci,
    database,
    journal_commands,
    programs,
    rules,
    serve,
    targets,
    tune,
)
