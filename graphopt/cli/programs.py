"""``graphopt run``, ``bench``, ``compile`` and ``show``: models compiled, run, timed, and looked into."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphopt.cli import names, values
from graphopt.cli.app import EPILOG, app
from graphopt.cli.options import (
    Database,
    Dims,
    Dispatch,
    Inputs,
    Model,
    On,
    PageFile,
    Policy,
    PrintAfter,
    PrintBetween,
    Quiet,
    Shapes,
    Strict,
    Threads,
    TunedBy,
    written,
)
from graphopt.errors import UsageError, nearest

if TYPE_CHECKING:
    from graphopt.benchmark.bench import Timing
    from graphopt.compile import CompiledModel
    from graphopt.run.settings import Settings
    from graphopt.run.steps import OwnStep
    from graphopt.web.page import Page


@app.command("run", epilog=EPILOG)
def run_model(
    model: Model,
    input: Inputs = None,
    output: Annotated[Path | None, written("OUT.npz")] = None,
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
    print_after: PrintAfter = None,
    print_between: PrintBetween = False,
    quiet: Quiet = False,
) -> None:
    """Compile a model, run it once, and print its outputs, or write them."""
    import numpy as np

    from graphopt.cli import files, progress
    from graphopt.cli.program_tables import show_outputs, show_profile
    from graphopt.runtime.profile import write_trace
    from graphopt.saving import whole
    from graphopt.verify.arrays import SUFFIX, read_array

    given, steps = values.inputs(input or ()), values.printed(print_after, print_between, "compile")
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
            steps=steps,
        )
        if candidates is None and set(feeds) != set(compiled.input_names):
            candidates = candidates_of(model, feeds, sizes, shapes)
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
    report: PageFile = None,
) -> None:
    """Time runs of a model on random inputs, here and in other engines, which take turns."""
    from graphopt.benchmark.bench import bench
    from graphopt.benchmark.roofline import check_picture
    from graphopt.cli import files, progress
    from graphopt.cli.program_tables import show_timings
    from graphopt.cli.tables import show_warnings
    from graphopt.compile import ReferenceWarning
    from graphopt.web.layered import check as check_pages
    from graphopt.web.page import write_page

    counts = values.counts("--threads", threads)
    if roofline is not None:
        check_picture(roofline)
    if report is not None:
        check_pages()
    files.check_written({"--roofline": roofline, "--report": report}, [model])
    fed: dict[str, Any] = {
        "inputs": values.inputs(input or ()),
        "shapes": values.shapes(shape or ()),
        "dims": values.dims(dim or ()),
    }
    schedules: dict[str, Any] = {"tuned": tuned, "database": database}
    with progress.shown(False, False) as listener, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ReferenceWarning)
        found = {
            count: bench(
                model,
                against=[name for name in against.split(",") if name],
                threads=count,
                seconds=seconds,
                listener=listener,
                **fed,
                **schedules,
            )
            for count in counts
        }
        if roofline is not None:
            draw_roofline(model, roofline, counts[0], fed, **schedules)
        if report is not None:
            write_page(page_of_run(model, counts[0], fed, found[counts[0]], **schedules), report)
    show_warnings(sorted({str(w.message) for w in caught}))
    for count, timings in found.items():
        if len(found) > 1:
            print(f"{count} thread{'s' * (count > 1)}")
        show_timings(timings)


@app.command("compile", epilog=EPILOG)
def compile_model(
    model: Model,
    output: Annotated[Path, written("DIR")],
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
    report: PageFile = None,
    print_after: PrintAfter = None,
    print_between: PrintBetween = False,
    quiet: Quiet = False,
) -> None:
    """Compile a model into a folder that graphopt.runtime.load reads, which needs numpy and nothing else.

    For cuda, the folder has the source, PTX and machine code of its kernels, and a report of what these take: that
    needs no GPU.
    """
    from graphopt.cli import files, progress
    from graphopt.rewrite.extract.cost import counted_at
    from graphopt.runtime.saved import MANIFEST, is_part
    from graphopt.target import target as target_named
    from graphopt.web.layered import check as check_pages
    from graphopt.web.page import write_page
    from graphopt.web.runs import page_of_program

    steps = values.printed(print_after, print_between, "compile")
    if not target_named(target).device.is_host:
        from graphopt.cli.device import write_kernels
        from graphopt.tools.device_code import REPORT

        if report is not None:
            raise UsageError("--report takes programs for cpu: those for a GPU have a report in their folder")
        files.check_folder("-o", output, REPORT)
        settings = settings_of(target, dispatch, policy, tuned, database, shape, dim, strict, steps)
        write_kernels(model, output, settings, capability, quiet)
        return
    files.check_folder("-o", output, MANIFEST, is_part)
    if report is not None:
        files.check_written({"--report": report}, [model])
        check_pages()
    with progress.shown(quiet, False) as listener:
        compiled = compiled_model(
            model,
            quiet,
            target=target,
            strict=strict,
            policy=policy,
            tuned=tuned,
            database=database,
            shapes=values.shapes(shape or ()),
            dims=values.dims(dim or ()),
            cache=report is None,
            listener=listener,
            steps=steps,
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
            metavar="NODE", help="Print the source of its kernels.", show_default=False, autocompletion=names.nodes
        ),
    ] = None,
    target: On = "cpu",
    dispatch: Dispatch = "auto",
    policy: Policy = "reals",
    tuned: TunedBy = "auto",
    database: Database = None,
    shape: Shapes = None,
    dim: Dims = None,
    print_after: PrintAfter = None,
    print_between: PrintBetween = False,
) -> None:
    """Print the calls that a model becomes, or how one of its nodes is computed."""
    from graphopt.cli.program_tables import show_parts
    from graphopt.cli.tables import show_warnings
    from graphopt.compile import linked_for
    from graphopt.lowering.loops.script_print import show

    steps = values.printed(print_after, print_between, "compile")
    with warnings.catch_warnings(record=True) as caught:
        linked = linked_for(model, settings_of(target, dispatch, policy, tuned, database, shape, dim, steps=steps))
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
    from graphopt.ir import onnx_io
    from graphopt.tools.inspection import heirs

    if name in there:
        return {name}
    if found := heirs(onnx_io.load(model), name, there):
        print(f"graphopt: {name!r} became part of {', '.join(map(repr, found))}", file=sys.stderr)
        return {*found}
    hint = nearest(name, there) or f"; graphopt show {model} lists those that kernels do"
    raise UsageError(f"no kernel computes a node {name!r}{hint}")


def settings_of(
    target: str,
    dispatch: str,
    policy: str,
    tuned: str,
    database: Path | None,
    shape: Sequence[str] | None,
    dim: Sequence[str] | None,
    strict: bool = False,
    steps: Mapping[str, OwnStep] | None = None,
) -> Settings:
    """The settings that options say. UsageError for what there is not."""
    from graphopt.run.settings import Settings, dispatch_of, tuned_of
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
        steps=steps or {},
    )


def candidates_of(
    model: Path, given: Mapping[str, Any], sizes: Mapping[str, int], shapes: Mapping[str, Sequence[int]]
) -> Iterator[dict[str, Any]]:
    """What a model may be run on, for what is given of its inputs. UsageError where something has to be given."""
    from graphopt.benchmark.bench import random_feeds
    from graphopt.ir import onnx_io
    from graphopt.verify.inputs import check_inputs

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
    from graphopt.cli.tables import show_warnings
    from graphopt.compile import ReferenceWarning, compile

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ReferenceWarning)
        compiled = compile(model, **options)
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


def page_of_run(model: Path, threads: int, fed: Mapping[str, Any], timings: Sequence[Timing], **schedules: Any) -> Page:
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
