"""``graphopt compile --target cuda``: the kernels of a model as files, and a table of what they take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from graphopt.errors import CompilationError, ReadError, UsageError

if TYPE_CHECKING:
    from graphopt.run.settings import Settings


def write_kernels(model: Path, folder: Path, settings: Settings, capability: str, quiet: bool) -> None:
    """Write what a model's kernels become for a compute capability, and print it."""
    from rich.table import Table

    from graphopt.cli import printable, progress
    from graphopt.cli.tables import console
    from graphopt.tools.device_code import capability_of, device_code, lines, write

    device = settings.target.device
    if not (device.has_blocks and device.has_machine_code):
        raise UsageError(f"programs for {settings.target.name} are not written: expected cpu or cuda")
    wanted = capability_of(capability)
    with progress.shown(quiet, False):
        made = device_code(model, settings, wanted)
        if settings.strict and made.host:
            raise CompilationError(f"the host would compute {', '.join(made.host)}, and --strict allows no such way")
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise ReadError(f"{folder}: cannot be made there ({error.strerror or error})") from None
        write(made, folder)
    if quiet:
        return
    table = Table("kernel", "threads", "registers", "spilled", "local", "shared", "nodes", box=None)
    for row in lines(made.kernels):
        table.add_row(*map(printable, row))
    console().print(table)
    print(
        f"{folder}: {len(made.kernels)} kernels for {made.architecture}, "
        f"{len(made.library)} calls of the library, {len(made.host)} steps of the host"
    )
