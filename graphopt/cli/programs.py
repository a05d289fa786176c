"""``graphopt run``, ``bench``, ``compile`` and ``show``: models compiled, run, timed and printed."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphopt.cli import count_of, names, values
from graphopt.cli.app import Without, app, register
from graphopt.cli.options import (
    Compilation,
    FixedSizes,
    Inputs,
    Json,
    Memory,
    Model,
    On,
    PageFile,
    Printing,
    Quiet,
    Schedules,
    written,
)
from graphopt.errors import CompilationError, ReadError, UsageError, nearest

if TYPE_CHECKING:
    from graphopt.benchmark.bench import EngineTiming
    from graphopt.compile import CompiledModel
    from graphopt.run.settings import Settings
    from graphopt.web.page import Page


@register(
    app,
    "run",
    examples=(
        "graphopt run model.onnx --input x=x.npy",
        "graphopt run model.onnx --input x=random --dim batch=8 --profile",
        "graphopt run model.onnx --input x=0..1 -o outputs.npz",
    ),
)
def run_model(
    model: Model,
    *,
    input: Inputs,
    memory: Memory,
    seconds: Annotated[float, typer.Option(metavar="S", min=0, help="How long running may take.")] = 120,
    output: Annotated[Path | None, written("OUT.npz")] = None,
    compilation: Annotated[Compilation, Without("capability")],
    sizes: FixedSizes,
    profile: Annotated[bool, typer.Option("--profile", help="Print the time of each step.")] = False,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a Chrome trace of a run.", show_default=False)
    ] = None,
    printing: Printing,
    json: Json,
    quiet: Quiet,
) -> None:
    """Compile a model, run it once, and print its outputs, or write them."""
    import numpy as np

    from graphopt.cli import files, progress, results
    from graphopt.cli.program_tables import show_outputs, show_profile, summary_of
    from graphopt.runtime.limits import limited, memory_of
    from graphopt.runtime.profile import write_trace
    from graphopt.saving import whole
    from graphopt.verify.arrays import SUFFIX, read_array

    given, steps = values.inputs(input or ()), printing.steps("compile")
    values.number("--seconds", seconds)
    most = values.nbytes(memory)
    read = {name: Path(value) for name, value in given.items() if value.endswith(SUFFIX)}
    written = {"-o": output, "--trace": trace, "--json": json}
    files.check_written(written, [model, *read.values()], piped=("--json",))
    feeds = {name: read_array(path) for name, path in read.items()}
    candidates, limits = None, (most, seconds)
    if not feeds or len(feeds) < len(given) or sizes.dims or sizes.shapes:  # else a kept program needs no model read
        candidates = candidates_of(model, {**given, **feeds}, sizes, limits)
    with progress.shown(quiet, False) as listener:
        compiled = compiled_model(model, quiet, **compilation.keywords, memory=most, listener=listener, steps=steps)
        if candidates is None and set(feeds) != set(compiled.input_names):
            candidates = candidates_of(model, feeds, sizes, limits)
        with limited(memory_of(compiled.constant_bytes, most), seconds):
            if candidates is not None:
                from graphopt.benchmark.bench import accepted_feeds

                feeds = accepted_feeds(candidates, compiled)
            outputs = compiled(feeds)
            rows = compiled.profile(feeds) if profile or trace else ()
    if output is not None:
        with whole(output) as file:
            np.savez(file, **{name: array for name, array in outputs.items() if array is not None})
    if trace is not None:
        write_trace(rows, trace)
    summaries = tuple(summary_of(name, array) for name, array in outputs.items())
    if not results.written(json, results.ProgramRun(summaries, tuple(rows) if profile else ())) and not quiet:
        show_outputs(summaries)
        if profile:
            show_profile(rows, compilation.threads)


@register(
    app,
    "bench",
    examples=(
        "graphopt bench model.onnx --against ort,openvino",
        "graphopt bench model.onnx --dim batch=8 --threads 1,2",
        "graphopt bench model.onnx --report bench.html --seconds 20",
    ),
)
def bench_model(
    model: Model,
    *,
    against: Annotated[
        str, typer.Option(metavar="ort,openvino,untuned", help="Engines to compare with.", show_default=False)
    ] = "",
    threads: Annotated[
        str, typer.Option(metavar="N[,M...]", help="Number of threads; several: one after the other.")
    ] = "1",
    seconds: Annotated[float, typer.Option(metavar="S", min=0, help="How long to measure.")] = 5,
    target: On,
    schedules: Schedules,
    input: Inputs,
    sizes: FixedSizes,
    roofline: Annotated[
        Path | None,
        typer.Option(metavar="FILE.svg|FILE.png", help="Draw kernels beside the machine's limits.", show_default=False),
    ] = None,
    report: PageFile,
    json: Json,
) -> None:
    """Time runs of a model on random inputs, in graphopt and in other engines, in turns."""
    from graphopt.benchmark.bench import bench
    from graphopt.benchmark.roofline import check_picture
    from graphopt.cli import files, progress, results
    from graphopt.cli.program_tables import show_timings
    from graphopt.cli.tables import show_warnings
    from graphopt.compile import ReferenceWarning
    from graphopt.web.layered import check as check_pages

    counts = values.counts("--threads", threads)
    if roofline is not None:
        check_picture(roofline)
    if report is not None:
        check_pages()
    files.check_written({"--roofline": roofline, "--report": report, "--json": json}, [model])
    fed: dict[str, Any] = {"inputs": values.inputs(input or ()), "shapes": sizes.shapes, "dims": sizes.dims}
    how = {"target": target, **vars(schedules)}
    with progress.shown(False, False) as listener, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ReferenceWarning)
        timings_by_threads = {
            count: bench(
                model,
                against=[name for name in against.split(",") if name],
                threads=count,
                seconds=seconds,
                listener=listener,
                **fed,
                **how,
            )
            for count in counts
        }
        if roofline is not None:
            draw_roofline(model, roofline, counts[0], fed, **how)
        if report is not None:
            files.write_page(page_of_run(model, counts[0], fed, timings_by_threads[counts[0]], **how), report)
    show_warnings(sorted({str(w.message) for w in caught}))
    if results.written(json, [results.BenchRun(n, tuple(timings)) for n, timings in timings_by_threads.items()]):
        return
    for count, timings in timings_by_threads.items():
        if len(timings_by_threads) > 1:
            print(count_of(count, "thread"))
        show_timings(timings)


@register(
    app,
    "compile",
    examples=(
        "graphopt compile model.onnx -o model.prog",
        "graphopt compile model.onnx -o model.prog --dim batch=1 --strict",
        "graphopt compile model.onnx -o model.cuda --target cuda --capability 9.0",
    ),
)
def compile_model(
    model: Model,
    *,
    output: Annotated[Path, written("DIR")],
    memory: Memory,
    compilation: Annotated[Compilation, Without("threads")],
    sizes: FixedSizes,
    report: PageFile,
    printing: Printing,
    json: Json,
    quiet: Quiet,
) -> None:
    """Compile a model into a folder that graphopt.runtime.load reads, which needs numpy and nothing else.

    For cuda, the folder has the source, PTX and machine code of its kernels, and a report of what these take: that
    needs no GPU.
    """
    from graphopt.cli import files, progress, results
    from graphopt.cli.tables import show_verification
    from graphopt.rewrite.extract.cost import counted_at
    from graphopt.runtime.saved import MANIFEST, is_part
    from graphopt.target import target
    from graphopt.web.layered import check as check_pages
    from graphopt.web.runs import page_of_program

    steps = printing.steps("compile")
    if not target(compilation.target, makes_models=False).device.is_host:
        from graphopt.tools.device_code import REPORT

        if report is not None:
            raise UsageError("--report takes programs for cpu: those for a GPU have a report in their folder")
        files.check_folder("-o", output, REPORT)
        files.check_written({"--json": json}, [model])
        settings = compilation.settings(sizes, steps)
        write_kernels(model, output, settings, compilation.capability or "9.0", quiet, json)
        return
    if compilation.capability is not None:
        raise UsageError(f"--capability is of a GPU: leave it out for the target {compilation.target}")
    files.check_folder("-o", output, MANIFEST, is_part)
    files.check_written({"--report": report, "--json": json}, [model])
    if report is not None:
        check_pages()
    with progress.shown(quiet, False) as listener:
        fixed: dict[str, Any] = {"shapes": sizes.shapes, "dims": sizes.dims}
        how = {
            **compilation.keywords,
            **fixed,
            "memory": values.nbytes(memory),
            "cache": report is None,
            "listener": listener,
            "steps": steps,
        }
        compiled = compiled_model(model, quiet, **how)
        compiled.save(output)
    if report is not None:
        counted = dict(dict.fromkeys(compiled.compiled.program.symbols, 1), **counted_at(compiled.graph))
        files.write_page(page_of_program(str(model), compiled.compiled, sizes=counted), report)
    size = sum(f.stat().st_size for f in output.iterdir() if f.is_file())
    made_of = (compiled.report.kernels, compiled.report.calls, size, compiled.report.verification)
    if not results.written(json, results.WrittenProgram(str(output), *made_of)) and not quiet:
        made = f"{count_of(compiled.report.kernels, 'kernel')}, {count_of(compiled.report.calls, 'call')}"
        print(f"{output}: {size:,} bytes, {made}")
        show_verification("checked", compiled.report.verification)


@register(
    app,
    "show",
    examples=(
        "graphopt show model.onnx",
        "graphopt show model.onnx --loops NODE",
        "graphopt show model.onnx --source NODE --target cuda",
    ),
)
def show_model(
    model: Model,
    *,
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
            metavar="NODE", help="Print the source of its kernels.", show_default=False, autocompletion=names.nodes
        ),
    ] = None,
    compilation: Annotated[Compilation, Without("capability", "threads", "strict", "verify")],
    sizes: FixedSizes,
    printing: Printing,
    json: Json,
) -> None:
    """Print the calls that a model becomes, or how one of its nodes is computed."""
    from graphopt.cli import files, results
    from graphopt.cli.program_tables import calls_of, show_calls
    from graphopt.cli.tables import show_warnings
    from graphopt.compile import linked_for
    from graphopt.lowering.loops.script_print import show

    steps = printing.steps("compile")
    files.check_written({"--json": json}, [model])
    if json is not None and (loops is not None or source is not None):
        raise UsageError("--json lists calls: leave out --loops and --source")
    with warnings.catch_warnings(record=True) as caught:
        linked = linked_for(model, compilation.settings(sizes, steps))
    show_warnings([str(w.message) for w in caught])
    parts = linked.parts
    if loops is None and source is None:
        found = calls_of(parts)
        if not results.written(json, found):
            show_calls(found)
        return
    name = loops if loops is not None else source
    meant = _computed(model, name or "", {n for p in parts for n in p.nodes})
    computing = [p for p in parts if not meant.isdisjoint(p.nodes)]
    for nest in dict.fromkeys(linked.nests[n] for n in sorted(meant) if n in linked.nests) if loops is not None else ():
        print(f"# before it is scheduled\n{show(nest)}\n# as it runs")
    for part in computing:
        print(show(part.nest) if source is None else part.source)


def _computed(model: Path, name: str, there: Collection[str]) -> set[str]:
    """The nodes that kernels compute which are meant by a name: that node, or what it became part of, which is said on
    stderr. UsageError where there is none."""
    from graphopt.ir import onnx_io
    from graphopt.tools.inspection import heirs

    if name in there:
        return {name}
    if replacements := heirs(onnx_io.load(model), name, there):
        print(f"graphopt: {name!r} became part of {', '.join(map(repr, replacements))}", file=sys.stderr)
        return {*replacements}
    hint = nearest(name, there) or f"; graphopt show {model} lists those that kernels do"
    raise UsageError(f"no kernel computes a node {name!r}{hint}")


def write_kernels(
    model: Path, folder: Path, settings: Settings, capability: str, quiet: bool, json: Path | None = None
) -> None:
    """Write what a model's kernels become for a compute capability, and print it."""
    from rich.table import Table

    from graphopt.cli import printable, progress, results
    from graphopt.cli.console import console
    from graphopt.tools.device_code import capability_of, device_code, lines, write

    device = settings.target.device
    if not (device.has_blocks and device.has_machine_code):
        raise UsageError(f"programs for {device.name} ({settings.target.name}) are not written: expected cpu or cuda")
    wanted = capability_of(capability)
    with progress.shown(quiet, False):
        compiled = device_code(model, settings, wanted)
        if settings.strict and compiled.host:
            raise CompilationError(
                f"the host would compute {', '.join(compiled.host)}, and --strict allows no such way"
            )
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise ReadError(f"{folder}: cannot be made there ({error.strerror or error})") from None
        write(compiled, folder)
    counts = len(compiled.kernels), len(compiled.kernels) + len(compiled.library) + len(compiled.host)
    made = results.WrittenProgram(str(folder), *counts, architecture=compiled.architecture)
    if results.written(json, made) or quiet:
        return
    table = Table("kernel", "threads", "registers", "spilled", "local", "shared", "nodes", box=None)
    for row in lines(compiled.kernels):
        table.add_row(*map(printable, row))
    console().print(table)
    print(
        f"{folder}: {count_of(len(compiled.kernels), 'kernel')} for {compiled.architecture}, "
        f"{count_of(len(compiled.library), 'call')} of the library, {count_of(len(compiled.host), 'step')} of the host"
    )


def candidates_of(
    model: Path, given: Mapping[str, Any], sizes: FixedSizes, limits: tuple[int | None, float]
) -> Iterator[dict[str, Any]]:
    """What a model may be run on, for what is given of its inputs. UsageError where something has to be given,
    LimitError where its inputs and outputs alone take more bytes than a run may, or all its operations more seconds."""
    from graphopt.benchmark.bench import check_run, random_feeds
    from graphopt.ir import onnx_io
    from graphopt.runtime.limits import memory_of
    from graphopt.verify.inputs import check_inputs

    memory, seconds = memory_of(onnx_io.bytes_of(model), limits[0]), limits[1]
    graph = onnx_io.load(model)
    hints = ", --memory allows more", ", --seconds allows more"
    check_run(model, graph, sizes.dims, sizes.shapes, memory, seconds, hints)
    check_inputs(graph, given)
    for value in graph.inputs:
        name = graph.names[value]
        if name not in given and "default" not in graph.producer(value).attrs:
            raise UsageError(
                f"nothing is given for the input {name!r}: --input {name}=FILE.npy, or --input {name}=random"
            )
    return ({name: feeds[name] for name in given} for feeds in random_feeds(graph, given, sizes.dims, sizes.shapes))


def compiled_model(model: Path, quiet: bool, **options: Any) -> CompiledModel:
    """The model compiled, with warnings about nodes that no kernel computes on stderr."""
    from graphopt.cli.tables import show_warnings
    from graphopt.compile import ReferenceWarning, compile

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ReferenceWarning)
        compiled: CompiledModel = compile(model, **options)
    if not quiet:
        show_warnings([str(w.message) for w in caught])
    return compiled


def draw_roofline(model: Path, picture: Path, threads: int, fed: Mapping[str, Any], **schedules: Any) -> None:
    """The roofline of a run on the inputs that ``random_feeds`` makes of ``fed``, by these schedules."""
    from graphopt.benchmark.bench import accepted_feeds, profile, random_feeds
    from graphopt.benchmark.ceilings import measure
    from graphopt.benchmark.roofline import draw
    from graphopt.compile import compile
    from graphopt.ir import onnx_io

    candidates = random_feeds(onnx_io.load(model), **fed)
    feeds = accepted_feeds(candidates, compile(model, threads=threads, **schedules))
    draw(profile(model, feeds, threads=threads, **schedules), measure(threads), picture, model.stem)


def page_of_run(
    model: Path, threads: int, fed: Mapping[str, Any], timings: Sequence[EngineTiming], **schedules: Any
) -> Page:
    """The page of a compiled model, of these timings, and of runs on the inputs that ``random_feeds`` makes."""
    from graphopt.benchmark.bench import accepted_feeds, profiled, random_feeds
    from graphopt.benchmark.ceilings import measure
    from graphopt.compile import compile
    from graphopt.ir import onnx_io
    from graphopt.web.runs import page_of_program

    compiled = compile(model, threads=threads, cache=False, **schedules)
    feeds = accepted_feeds(random_feeds(onnx_io.load(model), **fed), compiled)
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
