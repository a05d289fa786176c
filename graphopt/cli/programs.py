"""``graphopt run``, ``bench``, ``compile`` and ``show``: models compiled, run, timed, and looked into."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphopt.cli import names, values
from graphopt.cli.app import EPILOG, Model, Repeated, app
from graphopt.errors import UsageError

if TYPE_CHECKING:
    from graphopt.bench import Timing
    from graphopt.compilation import Settings
    from graphopt.compile import CompiledModel
    from graphopt.lowering.link import Part
    from graphopt.runtime.profile import Row
    from graphopt.web.page import Page

Threads = Annotated[int, typer.Option(metavar="N", min=1, help="Threads that run it.")]
Strict = Annotated[bool, typer.Option("--strict", help="A node that no kernel computes is an error.")]
Policy = Annotated[
    str, typer.Option(metavar="exact|finite|reals|approx", help="How equal to the model what it computes has to be.")
]
On = Annotated[
    str, typer.Option("--target", metavar="cpu|cuda|simulated", help="This processor, its GPU, or a simulated GPU.")
]
Dispatch = Annotated[
    str, typer.Option(metavar="auto|library|own", help="Who computes products on a GPU; auto: whoever is faster.")
]
TunedBy = Annotated[
    str, typer.Option("--tuned", metavar="auto|require|off", help="Schedules that graphopt tune found; auto: if any.")
]
Database = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Where tuned schedules are; default: the user's.", show_default=False),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print errors only.")]
Dims = Annotated[
    Repeated | None, typer.Option(metavar="NAME=N", help="Size of a named dimension; repeatable.", show_default=False)
]
Shapes = Annotated[
    Repeated | None, typer.Option(metavar="NAME=1,3,H,W", help="Fix an input's shape; repeatable.", show_default=False)
]
Pages = Annotated[
    Path | None,
    typer.Option(metavar="OUT.html", help="Write a page that shows it, for a browser.", show_default=False),
]
Inputs = Annotated[
    Repeated | None,
    typer.Option(metavar="NAME=FILE.npy|random|LOW..HIGH", help="What an input holds; repeatable.", show_default=False),
]


@app.command("run", epilog=EPILOG)
def run_model(
    model: Model,
    input: Inputs = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="OUT.npz", help="Where to write the outputs.", show_default=False),
    ] = None,
    target: On = "cpu",
    dispatch: Dispatch = "auto",
    threads: Threads = 1,
    strict: Strict = False,
    policy: Policy = "reals",
    tuned: TunedBy = "auto",
    database: Database = None,
    shape: Shapes = None,
    dim: Dims = None,
    profile: Annotated[bool, typer.Option("--profile", help="Print what each step of a run took.")] = False,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a Chrome trace of a run.", show_default=False)
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Compile a model, run it once, and print its outputs, or write them."""
    import numpy as np

    from graphopt.arrays import SUFFIX, read_array
    from graphopt.cli import files, progress
    from graphopt.runtime.output import whole
    from graphopt.runtime.profile import write_trace

    given = values.inputs(input or ())
    read = {name: Path(value) for name, value in given.items() if value.endswith(SUFFIX)}
    files.check_written({"-o": output, "--trace": trace}, [model, *read.values()])
    feeds = {name: read_array(path) for name, path in read.items()}
    sizes, shapes = values.dims(dim or ()), values.shapes(shape or ())
    candidates = None
    if not feeds or len(feeds) < len(given) or sizes or shapes:  # else the model is not read where its program is kept
        candidates = candidates_of(model, {**given, **feeds}, sizes, shapes)
    with progress.shown(quiet, False) as listener:
        compiled = compiled_model(
            model,
            quiet,
            target=target,
            dispatch=dispatch,
            threads=threads,
            strict=strict,
            policy=policy,
            tuned=tuned,
            database=database,
            listener=listener,
        )
        if candidates is None and set(feeds) != set(compiled.input_names):
            candidates = candidates_of(model, feeds, sizes, shapes)
        if candidates is not None:
            from graphopt.bench import accepted_feeds

            feeds = accepted_feeds(candidates, compiled)
        outputs = compiled(feeds)
        rows = compiled.profile(feeds) if profile or trace else ()
    if output is not None:
        with whole(output) as file:
            np.savez(file, **{name: array for name, array in outputs.items() if array is not None})
    if trace is not None:
        write_trace(rows, trace)
    if not quiet:
        show_outputs(outputs)
        if profile:
            show_profile(rows, threads)


@app.command("bench", epilog=EPILOG)
def bench_model(
    model: Model,
    against: Annotated[
        str, typer.Option(metavar="ort,openvino,untuned", help="Engines to compare with.", show_default=False)
    ] = "",
    threads: Annotated[str, typer.Option(metavar="N[,M...]", help="Threads that run it; several: in turn.")] = "1",
    seconds: Annotated[float, typer.Option(metavar="S", min=0, help="How long to measure.")] = 5,
    tuned: TunedBy = "auto",
    database: Database = None,
    input: Inputs = None,
    shape: Shapes = None,
    dim: Dims = None,
    roofline: Annotated[
        Path | None,
        typer.Option(metavar="FILE.svg|FILE.png", help="Draw kernels beside the machine's limits.", show_default=False),
    ] = None,
    report: Pages = None,
) -> None:
    """Time runs of a model on random inputs, here and in other engines, which take turns."""
    from graphopt.bench import bench
    from graphopt.cli import files, progress
    from graphopt.compile import ReferenceWarning
    from graphopt.roofline import check_picture
    from graphopt.web.layered import check as check_pages
    from graphopt.web.page import write_page

    counts = values.counts("--threads", threads)
    if roofline is not None:
        check_picture(roofline)
    if report is not None:
        check_pages()
    files.check_written({"--roofline": roofline, "--report": report}, [model])
    with progress.shown(False, False) as listener, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ReferenceWarning)
        found = {
            count: bench(
                model,
                against=[name for name in against.split(",") if name],
                threads=count,
                seconds=seconds,
                inputs=values.inputs(input or ()),
                shapes=values.shapes(shape or ()),
                dims=values.dims(dim or ()),
                tuned=tuned,
                database=database,
                listener=listener,
            )
            for count in counts
        }
        if roofline is not None:
            given = values.inputs(input or ()), values.dims(dim or ()), values.shapes(shape or ())
            draw_roofline(model, roofline, counts[0], *given, tuned=tuned, database=database)
        if report is not None:
            given = values.inputs(input or ()), values.dims(dim or ()), values.shapes(shape or ())
            page = page_of_run(model, counts[0], *given, timings=found[counts[0]], tuned=tuned, database=database)
            write_page(page, report)
    show_warnings(sorted({str(w.message) for w in caught}))
    for count, timings in found.items():
        if len(found) > 1:
            print(f"{count} thread{'s' * (count > 1)}")
        show_timings(timings)


@app.command("compile", epilog=EPILOG)
def compile_model(
    model: Model,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Where to write.", show_default=False)],
    target: On = "cpu",
    capability: Annotated[
        str, typer.Option(metavar="M.N", help="The compute capability that kernels for a GPU are compiled for.")
    ] = "9.0",
    dispatch: Dispatch = "auto",
    strict: Strict = False,
    policy: Policy = "reals",
    tuned: TunedBy = "auto",
    database: Database = None,
    shape: Shapes = None,
    dim: Dims = None,
    report: Pages = None,
    quiet: Quiet = False,
) -> None:
    """Compile a model into a folder that graphopt.runtime.load reads, which needs numpy and nothing else.

    For cuda, the folder has the source, PTX and machine code of its kernels, and a report of what these take: that
    needs no GPU.
    """
    from graphopt.cli import files, progress
    from graphopt.rewrite.cost import counted_at
    from graphopt.runtime.saved import MANIFEST
    from graphopt.web.layered import check as check_pages
    from graphopt.web.page import write_page
    from graphopt.web.runs import page_of_program

    if target != "cpu":
        from graphopt.cli.device import write_kernels
        from graphopt.device_code import REPORT

        if report is not None:
            raise UsageError("--report takes programs for cpu: those for a GPU have a report in their folder")
        files.check_folder("-o", output, REPORT)
        settings = settings_of(target, dispatch, policy, tuned, database, shape, dim, strict)
        write_kernels(model, output, settings, capability, quiet)
        return
    files.check_folder("-o", output, MANIFEST)
    if report is not None:
        files.check_written({"--report": report}, [model])
        check_pages()
    with progress.shown(quiet, False) as listener:
        compiled = compiled_model(
            model,
            quiet,
            strict=strict,
            policy=policy,
            tuned=tuned,
            database=database,
            shapes=values.shapes(shape or ()),
            dims=values.dims(dim or ()),
            cache=report is None,
            listener=listener,
        )
        compiled.save(output)
    if report is not None:
        sizes = dict(dict.fromkeys(compiled.compiled.program.symbols, 1), **counted_at(compiled.graph))
        write_page(page_of_program(str(model), compiled.compiled, sizes=sizes), report)
    if not quiet:
        size = sum(f.stat().st_size for f in output.iterdir() if f.is_file())
        print(f"{output}: {size:,} bytes, {compiled.report.kernels} kernels, {compiled.report.calls} calls")


@app.command("show", epilog=EPILOG)
def show_model(
    model: Model,
    loops: Annotated[
        str | None,
        typer.Option(
            metavar="NODE",
            help="Print the loops that compute a node.",
            show_default=False,
            autocompletion=names.nodes,
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            metavar="NODE",
            help="Print the source of its kernels.",
            show_default=False,
            autocompletion=names.nodes,
        ),
    ] = None,
    target: On = "cpu",
    dispatch: Dispatch = "auto",
    policy: Policy = "reals",
    tuned: TunedBy = "auto",
    database: Database = None,
    shape: Shapes = None,
    dim: Dims = None,
) -> None:
    """Print the calls that a model becomes, or how one of its nodes is computed."""
    from graphopt.lowering.script_print import show
    from graphopt.pipeline import linked_for

    with warnings.catch_warnings(record=True) as caught:
        linked = linked_for(model, settings_of(target, dispatch, policy, tuned, database, shape, dim))
    show_warnings([str(w.message) for w in caught])
    parts = linked.parts
    if loops is None and source is None:
        show_parts(parts)
        return
    name = loops if loops is not None else source
    meant = _computed(model, name or "", {n for p in parts for n in p.nodes})
    found = [p for p in parts if not meant.isdisjoint(p.nodes)]
    for nest in dict.fromkeys(linked.nests[n] for n in sorted(meant) if n in linked.nests) if loops is not None else ():
        print(f"# before it is scheduled\n{show(nest)}\n# as it runs")
    for part in found:
        print(show(part.nest) if source is None else part.source)


def _computed(model: Path, name: str, there: Collection[str]) -> set[str]:
    """The nodes that kernels compute which are meant by a name: that node, or what it became part of, which is said on
    stderr. UsageError where there is none."""
    from graphopt.inspection import heirs
    from graphopt.ir import onnx_io

    if name in there:
        return {name}
    if found := heirs(onnx_io.load(model), name, there):
        print(f"graphopt: {name!r} became part of {', '.join(map(repr, found))}", file=sys.stderr)
        return {*found}
    near = get_close_matches(name, sorted(there), 3)
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    raise UsageError(f"no kernel computes a node {name!r}: {hint}graphopt show {model} lists those that kernels do")


def settings_of(
    target: str,
    dispatch: str,
    policy: str,
    tuned: str,
    database: Path | None,
    shape: Sequence[str] | None,
    dim: Sequence[str] | None,
    strict: bool = False,
) -> Settings:
    """The settings that options say. UsageError for what there is not."""
    from graphopt.compilation import Settings, dispatch_of, tuned_of
    from graphopt.target import target as target_named

    return Settings(
        strict=strict,
        target=target_named(target),
        shapes=values.shapes(shape or ()),
        dims=values.dims(dim or ()),
        dispatch=dispatch_of(dispatch),
        policy=policy,
        tuned=tuned_of(tuned),
        database=database,
    )


def candidates_of(
    model: Path, given: Mapping[str, Any], sizes: Mapping[str, int], shapes: Mapping[str, Sequence[int]]
) -> Iterator[dict[str, Any]]:
    """What a model may be run on, for what is given of its inputs. UsageError where something has to be given."""
    from graphopt.bench import check_inputs, random_feeds
    from graphopt.ir import onnx_io

    graph = onnx_io.load(model)
    check_inputs(graph, given)
    for value in graph.inputs:
        name = graph.names[value]
        if name not in given and "default" not in graph.producer(value).attrs:
            raise UsageError(
                f"nothing is given for the input {name!r}: --input {name}=FILE.npy, or --input {name}=random"
            )
    return ({name: feeds[name] for name in given} for feeds in random_feeds(graph, given, sizes, shapes))


def compiled_model(model: Path, quiet: bool, **options: Any) -> CompiledModel:
    """The model compiled, with warnings about what runs by reference on stderr."""
    from graphopt.compile import ReferenceWarning, compile

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ReferenceWarning)
        compiled = compile(model, **options)
    if not quiet:
        show_warnings([str(w.message) for w in caught])
    return compiled


def draw_roofline(
    model: Path,
    picture: Path,
    threads: int,
    given: Mapping[str, Any],
    dims: Mapping[str, int],
    shapes: Mapping[str, Sequence[int]],
    **schedules: Any,
) -> None:
    """The roofline of a run on the inputs that ``bench`` takes; ``schedules`` says which are gone by."""
    from graphopt.bench import accepted_feeds, profile, random_feeds
    from graphopt.ceilings import measure
    from graphopt.compile import compile
    from graphopt.ir import onnx_io
    from graphopt.roofline import draw

    candidates = random_feeds(onnx_io.load(model), given, dims, shapes)
    feeds = accepted_feeds(candidates, compile(model, threads=threads, **schedules))
    draw(profile(model, feeds, threads=threads, **schedules), measure(threads), picture, model.stem)


def page_of_run(
    model: Path,
    threads: int,
    given: Mapping[str, Any],
    dims: Mapping[str, int],
    shapes: Mapping[str, Sequence[int]],
    *,
    timings: Sequence[Timing],
    **schedules: Any,
) -> Page:
    """The page of a compiled model and of runs of it on the inputs that ``bench`` takes."""
    from graphopt.bench import accepted_feeds, profiled, random_feeds
    from graphopt.ceilings import measure
    from graphopt.compile import compile
    from graphopt.ir import onnx_io
    from graphopt.web.runs import page_of_program

    compiled = compile(model, threads=threads, cache=False, **schedules)
    feeds = accepted_feeds(random_feeds(onnx_io.load(model), given, dims, shapes), compiled)
    return page_of_program(
        str(model),
        compiled.compiled,
        kind="bench",
        rows=profiled(compiled, feeds),
        ceilings=measure(threads),
        sizes=compiled.sizes(feeds),
        timings=timings,
        threads=threads,
    )


def show_warnings(lines: Sequence[str]) -> None:
    """Warnings, on stderr."""
    from rich.markup import escape

    from graphopt.cli import printable
    from graphopt.cli.tables import console

    talk = console(stderr=True)
    for line in lines:
        talk.print(f"[yellow]warning:[/] {escape(printable(line))}", soft_wrap=True)


def show_outputs(outputs: Mapping[str, Any]) -> None:
    """What came out: dtype, shape and range of each output."""
    import numpy as np
    from rich.markup import escape
    from rich.table import Table

    from graphopt.cli import printable
    from graphopt.cli.tables import console

    table = Table("output", "type", "least", "mean", "largest", box=None, header_style="bold")
    for name, array in outputs.items():
        kind, numbers = type(array).__name__, ["", "", ""]
        if isinstance(array, np.ndarray):
            kind = f"{array.dtype.name}[{', '.join(map(str, array.shape))}]"
            if array.size and array.dtype.kind in "biuf":
                wide = array.astype(np.float64)
                numbers = [f"{n:.4g}" for n in (wide.min(), wide.mean(), wide.max())]
        table.add_row(escape(printable(name)), escape(kind), *numbers)
    console().print(table)


def show_profile(rows: Sequence[Row], threads: int) -> None:
    """The steps of a run that took longest first, with their rates and the part of the time that this machine needs
    at the least."""
    from rich.markup import escape
    from rich.table import Table

    from graphopt.ceilings import measure
    from graphopt.cli import printable
    from graphopt.cli.progress import duration
    from graphopt.cli.tables import console

    ceilings = measure(threads)
    whole = sum(r.seconds for r in rows) or 1.0
    table = Table("step", "nodes", "time", "share", "GFLOP/s", "GB/s", "of limit", box=None, header_style="bold")
    for row in sorted(rows, key=lambda r: -r.seconds):
        spent = max(row.seconds, 1e-9)
        rates = [f"{n / spent / 1e9:.1f}" if row.is_native and n else "" for n in (row.flops, row.bytes)]
        rates.append(f"{ceilings.least([row]) / spent:.0%}" if row.is_native else "")
        nodes = row.nodes[0] + (f" +{len(row.nodes) - 1}" if len(row.nodes) > 1 else "") if row.nodes else ""
        label = row.label if row.is_native else f"{row.label} (Python)"
        table.add_row(
            escape(label), escape(printable(nodes)), duration(row.seconds), f"{row.seconds / whole:.1%}", *rates
        )
    console().print(table)


def show_timings(timings: Sequence[Timing]) -> None:
    """A line for each engine."""
    from rich.table import Table

    from graphopt.cli.progress import duration
    from graphopt.cli.tables import console

    columns = ("engine", "median", "p90", "runs", "ready in", "ratio", "error", "of limit")
    table = Table(*columns, box=None, header_style="bold")
    for t in timings:
        wrong = "" if t.error is None else f"{t.error:.2g}" + (" WRONG" if t.error > 1 else "")
        limit = "" if t.limit is None else f"{t.limit:.0%}"
        ratio = f"{t.ratio:.2f}x" if t.error is not None or t is not timings[0] else ""
        table.add_row(
            t.engine, duration(t.median), duration(t.p90), str(t.runs), duration(t.ready), ratio, wrong, limit
        )
    console().print(table)


def show_parts(parts: Sequence[Part]) -> None:
    """A line for each call; nodes, of which there may be many, come last."""
    from graphopt.cli import printable

    kernels: dict[str, int] = {}
    print("call  kernel  nodes")
    for number, part in enumerate(parts):
        kernel = f"k{kernels.setdefault(part.source, len(kernels))}"
        print(f"{number:<4}  {kernel:<6}  {printable(', '.join(part.nodes))}")
