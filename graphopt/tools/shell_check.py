"""Shell command of the user as the judge of models: whether it succeeds on one."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from graphopt.errors import UsageError
from graphopt.ir.graph import Graph

NOT_RUN: dict[int | None, str] = {126: "the file may not be executed", 127: "there is no such command"}
"""The exit codes by which a shell says that it could not run a command."""


def check_is_command(command: str) -> None:
    """UsageError where there is no command."""
    if not command.strip():
        raise UsageError("--check is empty: give a command that fails on the model")


def check_can_run(command: str, code: int | None) -> None:
    """UsageError where the exit code says that the shell could not run the command."""
    if code in NOT_RUN:
        raise UsageError(f"--check {command!r} cannot be run ({NOT_RUN[code]})")


def failing(command: str, candidate: Path, timeout: float) -> Callable[[Graph], bool]:
    """Whether the command fails on a graph, which is written to ``candidate`` for it.

    ``{}`` in the command is the file; without it, the file is added as last argument. To take longer
    than ``timeout`` seconds is to fail. UsageError where the command cannot be run.
    """

    def fails(graph: Graph) -> bool:
        from graphopt.ir.onnx_io import save

        save(graph, candidate)
        code = exit_code(command, candidate, timeout)
        check_can_run(command, code)
        return code != 0

    return fails


def exit_code(command: str, file: Path, timeout: float) -> int | None:
    """What the command returns on the file; None where it takes too long."""
    check_is_command(command)
    name = shlex.quote(os.fspath(file))
    line = command.replace("{}", name) if "{}" in command else f"{command} {name}"
    process = subprocess.Popen(
        line,
        shell=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
