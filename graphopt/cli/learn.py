"""``graphopt learn-rule``: a rule whose left side is a region of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphopt.cli import names
from graphopt.cli.app import EPILOG, app
from graphopt.cli.options import Model, written
from graphopt.errors import naming


@app.command("learn-rule", epilog=EPILOG)
def learn_rule(
    model: Model,
    nodes: Annotated[
        str,
        typer.Option(
            metavar="A..B",
            help="The region: from node A along the data's way to node B, or one node. Nodes are called by name, by "
            "the name of a value that they make, or by number (%7; graphopt inspect --nodes); several with commas.",
            show_default=False,
            autocompletion=names.nodes,
        ),
    ],
    name: Annotated[str, typer.Option(metavar="NAME", help="What the rule is called.")] = "learned",
    output: Annotated[Path | None, written("FILE.rules", "stdout")] = None,
) -> None:
    """Write a rule whose left side is a region of a model, with its guards; the right side is yours to write."""
    import sys

    from graphopt.cli import files
    from graphopt.interop.learned import learn_rule as learn

    files.check_written({"-o": output}, [model])
    with naming(model):
        found = learn(model, nodes, name)
    files.write_or_print(output, found.text)
    places = f"{found.places} place{'s' if found.places > 1 else ''}"
    print(f"the left side matches {places} of {model}; write the right side in the place of the ?", file=sys.stderr)
