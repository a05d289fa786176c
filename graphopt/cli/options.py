"""Arguments and options that several commands take, each declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from graphopt.cli import names

Repeated = list[str]

# -- files

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file.", show_default=False)]
Models = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[MODEL|FOLDER]...", help="ONNX files, and folders of them.", show_default=False),
]
Rules = Annotated[
    Repeated | None,
    typer.Argument(
        metavar="[NAME|FILE]...", help="Rules, families or rule files; default: all standard rules.", show_default=False
    ),
]
RuleFiles = Annotated[
    list[Path] | None, typer.Option(metavar="FILE", help="More rules; repeatable.", show_default=False)
]
Journal = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The journal; default: OUT.journal.json beside OUT.", show_default=False),
]
Json = Annotated[Path | None, typer.Option(metavar="FILE", help="Write it as JSON (- is stdout).", show_default=False)]
PageFile = Annotated[
    Path | None,
    typer.Option(metavar="OUT.html", help="Write a page that shows it, for a browser.", show_default=False),
]


def written(metavar: str, default: str = "") -> Any:
    """The option for the file to write, and what that is where it is not given."""
    help = f"Where to write; default: {default}." if default else "Where to write."
    return typer.Option("-o", "--output", metavar=metavar, help=help, show_default=False)


# -- what is made, and how equal that is

Runtime = Annotated[
    str,
    typer.Option(
        metavar="portable|ort|NAME|FILE.toml",
        help="Who will run it: any runtime, ONNX Runtime on CPU, or another of graphopt target list, or a file.",
        autocompletion=names.targets,
    ),
]
Policy = Annotated[
    str,
    typer.Option(
        metavar="exact|finite|reals|approx",
        help="How equal to the model: bit by bit; if inputs are finite; over the reals; nearly.",
    ),
]
Verify = Annotated[
    str,
    typer.Option(
        metavar="N|off|require",
        help="Compare on N random inputs, for 2 minutes at most; require: all but verified is an error.",
    ),
]
Check = Annotated[
    str,
    typer.Option(
        metavar="CMD",
        help="A shell command that fails; {} in it is the model's file, else the file comes last.",
        show_default=False,
    ),
]

# -- inputs and their sizes

Fed = Annotated[
    Repeated | None,
    typer.Option(
        metavar="NAME=FILE.npy|NAME=LOW..HIGH", help="What is fed to an input; repeatable.", show_default=False
    ),
]
Inputs = Annotated[
    Repeated | None,
    typer.Option(metavar="NAME=FILE.npy|random|LOW..HIGH", help="What an input holds; repeatable.", show_default=False),
]
Shapes = Annotated[
    Repeated | None, typer.Option(metavar="NAME=1,3,H,W", help="Fix an input's shape; repeatable.", show_default=False)
]
Dims = Annotated[
    Repeated | None, typer.Option(metavar="NAME=N", help="Fix a named dimension; repeatable.", show_default=False)
]

# -- programs

On = Annotated[
    str,
    typer.Option(
        "--target",
        metavar="cpu|cuda|simulated|FILE.toml",
        help="This processor, its GPU, a simulated GPU, or what a file says.",
        autocompletion=names.targets,
    ),
]
Threads = Annotated[int, typer.Option(metavar="N", min=1, help="Threads that run it.")]
Strict = Annotated[bool, typer.Option("--strict", help="A node that no kernel computes is an error.")]
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

# -- steps

PrintAfter = Annotated[
    Repeated | None,
    typer.Option(
        "--print-after", metavar="STEP", help="Print what a step gives, on stderr; repeatable.", show_default=False
    ),
]
PrintBetween = Annotated[bool, typer.Option("--print-between", help="Print what each step gives, on stderr.")]

# -- talk

Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print errors only.")]
NoProgress = Annotated[bool, typer.Option("-q", "--quiet", help="No progress.")]
