"""``graphopt convert``: the model in another floating-point dtype, and what that costs in precision."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphopt.cli import values
from graphopt.cli.app import EPILOG, app
from graphopt.cli.options import Fed, Model, Quiet, Repeated, written

if TYPE_CHECKING:
    from graphopt.tools.convert import Conversion


@app.command("convert", epilog=EPILOG)
def convert(
    model: Model,
    to: Annotated[
        str, typer.Option(metavar="float16|bfloat16|float32", help="The dtype to compute in.", show_default=False)
    ],
    output: Annotated[Path | None, written("OUT.onnx", "MODEL.DTYPE.onnx beside it")] = None,
    keep: Annotated[
        Repeated | None,
        typer.Option(metavar="OP|NODE", help="What stays as it is: an op or a node; repeatable.", show_default=False),
    ] = None,
    io: Annotated[
        bool, typer.Option("--io/--keep-io", help="Change the types of inputs and outputs too, or keep them.")
    ] = False,
    samples: Annotated[
        int, typer.Option(metavar="N", min=0, help="Random inputs to measure ranges and errors on.")
    ] = 1,
    input: Fed = None,
    quiet: Quiet = False,
) -> None:
    """Write the model in another dtype, but for the ops that need theirs, and a table of errors by output."""
    from graphopt.cli import files, progress
    from graphopt.tools.convert import convert as run

    place = output or model.with_name(f"{model.stem}.{to}.onnx")
    files.check_written({"-o": place}, [model])
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
    if not quiet:
        _show(model, place, done)


def _show(model: Path, place: Path, done: Conversion) -> None:
    """What was converted, what was not, and the errors."""
    from rich.markup import escape
    from rich.table import Table

    from graphopt.cli.tables import console, show_warnings

    show_warnings(done.warnings)
    out = console()
    out.print(f"[bold]{escape(str(model))}[/] -> {escape(str(place))}", soft_wrap=True)
    out.print(f"{done.converted} ops in {done.dtype}, {sum(done.kept.values())} not, {done.casts} casts added")
    for reason, count in done.kept.items():
        out.print(f"  {count} x {escape(reason)}", highlight=False)
    if done.bytes_before is not None and done.bytes_after is not None:
        out.print(f"bytes {done.bytes_before:,} -> {done.bytes_after:,}")
    if done.errors:
        table = Table("output", "largest error", "mean error", "of its largest", box=None, header_style="bold")
        for e in done.errors:
            table.add_row(escape(e.name), f"{e.largest:.3g}", f"{e.mean:.3g}", f"{e.relative:.2%}")
        out.print(table)
