"""``graphopt extract``: a part of a model as a model."""

from __future__ import annotations

from collections.abc import Container, Iterable
from pathlib import Path
from typing import Annotated

import typer

from graphopt.cli import names
from graphopt.cli.app import EPILOG, app
from graphopt.cli.options import Model, Quiet, Repeated, written
from graphopt.errors import UsageError, naming


@app.command("extract", epilog=EPILOG)
def extract(
    model: Model,
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
    quiet: Quiet = False,
) -> None:
    """Write the part of a model between given values, with the types and weights that it has."""
    from graphopt.cli import files, tables
    from graphopt.ir.onnx_io import load
    from graphopt.tools.inspection import inspect
    from graphopt.tools.submodel import extract as cut
    from graphopt.tools.submodel import named_values

    place = output or model.with_name(f"{model.stem}.part.onnx")
    files.check_written({"-o": place}, [model])
    graph = load(model)
    known = named_values(graph)
    starts, ends = _split(inputs or (), known), _split(outputs or (), known)
    if not starts and not ends:
        raise UsageError("nothing to cut at: give --inputs, --outputs, or both")
    with naming(model):
        cut(graph, starts, ends, output=place)
    if not quiet:
        tables.show_inspection(inspect(place))


def _split(options: Iterable[str], known: Container[str]) -> list[str]:
    """The names; an option is split at commas where it is no name as a whole."""
    return [n for option in options for n in ([option] if option in known else option.split(",")) if n]
