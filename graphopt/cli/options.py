"""Options that several commands take, each declared once: its type, help and default.

What is always given together stands in a class, which a command takes whole (``app.register``).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from graphopt.cli import names, values
from graphopt.cli.app import Default, Piped
from graphopt.frozen import dataclass

if TYPE_CHECKING:
    from graphopt.run.settings import Settings
    from graphopt.run.steps import OwnStep

Repeated = list[str]

# -- files

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file; - is stdin.", show_default=False), Piped]
Models = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[MODEL|FOLDER]...", help="ONNX files, and folders of them.", show_default=False),
    Default(),
]
Rules = Annotated[
    Repeated | None,
    typer.Argument(
        metavar="[NAME|FILE]...",
        help="Rules, families, files of rules (.rules, .py, .onnx), modules, packages; default: all standard rules.",
        show_default=False,
    ),
    Default(),
]
RuleFiles = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE|MODULE|PACKAGE",
        help="More rules: of a file (.rules, .py, which is run, pairs of functions in .onnx), or of a module or "
        "package of Python; repeatable.",
        show_default=False,
    ),
    Default(),
]
Journal = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The journal; default: OUT.journal.json beside OUT.", show_default=False),
    Default(),
]
Json = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the result as JSON (- is stdout).", show_default=False),
    Default(),
]
PageFile = Annotated[
    Path | None,
    typer.Option(metavar="OUT.html", help="Write an HTML report.", show_default=False),
    Default(),
]


def written(metavar: str, default: str = "") -> Any:
    """The option for the file to write, and what that is where it is not given."""
    help = f"Where to write; default: {default}." if default else "Where to write."
    if metavar.endswith(".onnx"):
        help = f"{help[:-1]}; - is stdout."
    return typer.Option("-o", "--output", metavar=metavar, help=help, show_default=False)


# -- what is made, and how equal that is

Runtime = Annotated[
    str,
    typer.Option(
        metavar=names.one_of(*names.target_names(makes_models=True), "FILE.toml"),
        help="What will run the model: any runtime, ONNX Runtime on CPU (ort), or another target (graphopt target "
        "list).",
        autocompletion=names.model_targets,
    ),
    Default("portable"),
]
Policy = Annotated[
    str,
    typer.Option(
        metavar="exact|finite|reals|approx",
        help="How equal the result is: bitwise; for finite inputs; over the reals; approximately.",
    ),
    Default("reals"),
]
Verify = Annotated[
    str,
    typer.Option(
        metavar="N|off|require|full",
        help="Compare on N random inputs, for at most 2 minutes; require: fail unless verified; full: all kinds of "
        "inputs, all parts in float64, for at most an hour.",
    ),
    Default("1"),
]
Memory = Annotated[
    str | None,
    typer.Option(
        metavar="N[K|M|G|T]B",
        help="How much memory running a model may take; default: 4 times its bytes and 1 GiB.",
        show_default=False,
    ),
    Default(),
]
Rtol = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        min=0,
        help="How far outputs may be apart by element: atol + rtol * |original|; default: by dtype.",
        show_default=False,
    ),
    Default(),
]
Atol = Annotated[
    float | None, typer.Option(metavar="SIZE", min=0, help="The same in absolute size.", show_default=False), Default()
]
Check = Annotated[
    str,
    typer.Option(
        metavar="CMD",
        help="A shell command that fails on the model; {} is its file, by default the last argument.",
        show_default=False,
    ),
]

# -- inputs and their sizes

Fed = Annotated[
    Repeated | None,
    typer.Option(
        metavar="NAME=FILE.npy|NAME=LOW..HIGH",
        help="Values of an input: a file, or a range to sample; repeatable.",
        show_default=False,
    ),
    Default(),
]
Inputs = Annotated[
    Repeated | None,
    typer.Option(
        metavar="NAME=FILE.npy|random|LOW..HIGH",
        help="Values of an input: a file, random, or a range to sample; repeatable.",
        show_default=False,
    ),
    Default(),
]


@dataclass(frozen=True, kw_only=True)
class FixedSizes:
    """Sizes that open dimensions of inputs are fixed to."""

    shape: Annotated[
        Repeated | None,
        typer.Option(metavar="NAME=1,3,H,W", help="Fix an input's shape; repeatable.", show_default=False),
    ] = None
    dim: Annotated[
        Repeated | None,
        typer.Option(
            metavar="NAME=N",
            help="Fix a dimension by its name, or by input and axis where it has none (x.0=1); repeatable.",
            show_default=False,
        ),
    ] = None

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes by input."""
        return values.shapes(self.shape or ())

    @property
    def dims(self) -> dict[str, int]:
        """Sizes by the name of the dimension."""
        return values.dims(self.dim or ())


# -- programs

On = Annotated[
    str,
    typer.Option(
        "--target",
        metavar=names.one_of(*names.target_names(makes_models=False), "FILE.toml"),
        help="The CPU, an NVIDIA GPU, a simulated GPU, or the target of a file.",
        autocompletion=names.program_targets,
    ),
    Default("cpu"),
]
Threads = Annotated[int, typer.Option(metavar="N", min=1, help="Number of threads."), Default(1)]
Database = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Database of tuned schedules; default: the user's.", show_default=False),
    Default(),
]


@dataclass(frozen=True, kw_only=True)
class Schedules:
    """Which tuned schedules a program is compiled by."""

    tuned: Annotated[
        str,
        typer.Option(
            metavar="auto|require|off", help="Use schedules found by graphopt tune; auto: where there are some."
        ),
    ] = "auto"
    database: Database


@dataclass(frozen=True, kw_only=True)
class Compilation:
    """How a model is compiled."""

    target: On
    capability: Annotated[
        str | None,
        typer.Option(
            metavar="M.N",
            help="Compute capability of the GPU that kernels are compiled for; default: 9.0.",
            show_default=False,
        ),
    ] = None
    dispatch: Annotated[
        str,
        typer.Option(
            metavar="auto|library|own", help="What computes matrix products on a GPU; auto: the faster of the two."
        ),
    ] = "auto"
    threads: Threads
    strict: Annotated[bool, typer.Option("--strict", help="Fail where a node has no kernel.")] = False
    policy: Policy
    verify: Verify
    schedules: Schedules

    @property
    def keywords(self) -> dict[str, Any]:
        """These options as ``graphopt.compile`` takes them."""
        keywords = {**vars(self), **vars(self.schedules), "verify": values.draws(self.verify)}
        return {name: value for name, value in keywords.items() if name not in ("capability", "schedules")}

    def settings(self, sizes: FixedSizes, steps: Mapping[str, OwnStep]) -> Settings:
        """These options as settings. UsageError for what there is not."""
        from graphopt.run.settings import Settings, dispatch_of, tuned_of
        from graphopt.target import target

        checked = {
            "target": target(self.target, makes_models=False),
            "dispatch": dispatch_of(self.dispatch),
            "tuned": tuned_of(self.schedules.tuned),
        }
        return Settings(**{**self.keywords, **checked}, shapes=sizes.shapes, dims=sizes.dims, steps=steps)


@dataclass(frozen=True, kw_only=True)
class Printing:
    """Which steps print what they give."""

    print_after: Annotated[
        Repeated | None,
        typer.Option(metavar="STEP", help="Print what a step gives, on stderr; repeatable.", show_default=False),
    ] = None
    print_between: Annotated[bool, typer.Option("--print-between", help="Print what each step gives, on stderr.")] = (
        False
    )

    def steps(self, pipeline: Literal["optimize", "compile"]) -> Mapping[str, OwnStep]:
        """The steps of a pipeline that print. UsageError where one does not exist."""
        if not self.print_after and not self.print_between:
            return {}
        from graphopt.run.printing import print_after
        from graphopt.run.steps import COMPILE, OPTIMIZE

        steps = OPTIMIZE if pipeline == "optimize" else COMPILE
        return print_after(steps if self.print_between else self.print_after or (), steps)


# -- many models

Executor = Annotated[
    str | None,
    typer.Option(
        metavar="dask://HOST:PORT", help="A Dask cluster whose workers optimize the models.", show_default=False
    ),
    Default(),
]

# -- messages

Seconds = Annotated[
    float | None,
    typer.Option(metavar="S", help="Stop after so long, with what was found until then.", show_default=False),
    Default(),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print errors only."), Default(False)]
NoProgress = Annotated[bool, typer.Option("-q", "--quiet", help="Show no progress."), Default(False)]
