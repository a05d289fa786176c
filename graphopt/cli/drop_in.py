"""Command lines of onnxsim and onnxslim: ``graphopt IN.onnx OUT.onnx`` with their options. Imported when used.

Not in ``--help``; ``docs/coming-from/`` lists what each option does here. An option that asks for what is
not done here is refused with one line.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from graphopt.errors import UsageError

if TYPE_CHECKING:
    from graphopt.run.report import Report

_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "": 1}


def is_asked(arguments: Sequence[str], commands: Collection[str]) -> bool:
    """Whether the arguments begin with a model, or with options before one, where a command would stand."""
    if not arguments or arguments[0] in commands:
        return False
    if arguments[0].startswith("-"):
        return any(a.endswith(".onnx") for a in arguments)
    return arguments[0].endswith(".onnx") or Path(arguments[0]).is_file()


def optimize(arguments: Sequence[str]) -> int:
    """Do what onnxsim or onnxslim does when it is called so; the exit code comes back."""
    from graphopt.cli import tables

    parsed = _parser().parse_intermixed_args(arguments)
    if parsed.inspect:
        from graphopt.tools.inspection import inspect

        for model in parsed.models:
            tables.show_inspection(inspect(model))
        return 0
    report = _optimize(parsed, *_places(parsed))
    tables.show_report(report, explain=False, verbose=parsed.verbose, dry_run=False)
    return 0


def _places(arguments: argparse.Namespace) -> tuple[Path, Path, int]:
    """The model, the file to write, and how many random inputs onnxsim was asked to check."""
    from graphopt.cli import files

    models = arguments.models
    draws = int(models.pop()) if len(models) == 3 and models[2].isdecimal() else 0
    if len(models) != 2:
        raise UsageError(f"expected IN.onnx OUT.onnx, found {len(models)} of {', '.join(models)}; see graphopt --help")
    source, written = map(Path, models)
    files.check_written({"OUT.onnx": written}, [])
    return source, written, draws


def _optimize(arguments: argparse.Namespace, source: Path, written: Path, draws: int) -> Report:
    import tempfile

    from graphopt.cli import progress
    from graphopt.errors import naming
    from graphopt.interop import drop_in
    from graphopt.ir.onnx_io import load, save
    from graphopt.optimize import optimize as run
    from graphopt.tools.convert import convert

    graph = load(source)
    with tempfile.TemporaryDirectory(prefix="graphopt-") as folder, naming(source):
        given: Any = drop_in.part(graph, arguments.inputs, arguments.outputs, arguments.unused_output)
        options = drop_in.command_options(given, vars(arguments), draws)
        cut = source if given is graph else Path(folder) / source.name
        if given is not graph:
            save(given, cut)
        limit = _bytes(arguments.external_data_threshold)
        is_direct = arguments.dtype is None and limit is None and not arguments.save_as_external_data
        path = written if is_direct else Path(folder) / f"optimized-{written.name}"
        with progress.shown(False, arguments.verbose) as listener:
            report: Report = run(cut, output=path, return_report=True, listener=listener, **options)[1]
        if arguments.dtype is not None:
            converted = Path(folder) / f"converted-{written.name}"
            convert(path, to=drop_in.DTYPES[arguments.dtype], io=True, output=converted)
            path = converted
        if not is_direct:
            external = arguments.save_as_external_data or (limit is not None and (report.bytes_after or 0) > limit)
            save(load(path), written, external=external)
    return replace(report, model=str(source), output=str(written))


def _bytes(text: str | None) -> int | None:
    """What ``100MB`` means in bytes."""
    if text is None:
        return None
    unit = text.lstrip("0123456789.")
    try:
        return int(float(text.removesuffix(unit)) * _UNITS[unit.strip().upper()])
    except (ValueError, KeyError):
        raise UsageError(f"--external-data-threshold {text}: expected a size such as 100MB") from None


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are ours."""

    def error(self, message: str) -> NoReturn:
        """Raise UsageError: unknown options are those that ask for what is not done here."""
        unknown = message.removeprefix("unrecognized arguments: ")
        if unknown != message:
            raise UsageError(f"{unknown}: graphopt does nothing of the kind; leave it out (see docs/coming-from)")
        raise UsageError(f"{message} (see docs/coming-from, and graphopt --help for our own commands)")


def _parser() -> argparse.ArgumentParser:
    """The options of both programs that have a meaning here. Those that need nothing are read and have no effect."""
    from graphopt.interop.drop_in import DTYPES

    parser = _Parser(prog="graphopt", add_help=False, allow_abbrev=False)
    add = parser.add_argument
    add("models", nargs="*")
    for option in ("--overwrite-input-shape", "--input-shape", "--input-shapes"):
        add(option, dest="shapes", nargs="+", action="extend", default=[])
    for option in ("--test-input-shape", "--model-check-inputs"):
        add(option, dest="test_inputs", nargs="+", action="extend", default=[])
    add("--input-data-path", dest="test_inputs", nargs="+", action="extend")
    for option in ("--skip-optimization", "--skip-optimizer"):
        add(option, dest="skip_optimization", nargs="*")
    for option in ("--unused-output", "--inputs", "--outputs", "--skip-optimizations", "--skip-fusion-patterns"):
        add(option, nargs="+", default=[])
    add("--input-fill", choices=("random", "ones", "zeros", "arange"), default="random")
    add("--dtype", choices=tuple(DTYPES))
    add("--target-opset")
    add("--external-data-threshold")
    for option in ("--no-large-tensor", "--size-threshold"):
        add(option, nargs="?", help=argparse.SUPPRESS)
    for option in (
        *("--skip-fuse-bn", "--mutable-initializer", "--save-as-external-data", "--model-check", "--inspect"),
        *("--verbose", "--enable-fuse-bn", "--skip-shape-inference", "--no-shape-infer", "--dynamic-input-shape"),
        *("--include-subgraph", "--no-certify", "--skip-schema-import", "--inline-functions"),
    ):
        add(option, action="store_true")
    return parser
