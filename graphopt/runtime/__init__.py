"""Runtime of compiled programs, which needs numpy and the standard library alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from graphopt.runtime.executable import Executable
    from graphopt.runtime.host import HostFunction
    from graphopt.runtime.program import Program


def load(
    folder: str | os.PathLike[str], threads: int | None = None, functions: Mapping[str, HostFunction] | None = None
) -> Program | Executable:
    """The program that ``save`` wrote into a folder; where it has several, all by name, as an ``Executable``.

    ``functions`` are the external functions that it calls, by name (``{"env.linear": f}``), where this process has not
    registered them. Raises ``ReadError`` where none can run here, and ``UsageError`` where a function is missing.
    """
    from graphopt.runtime import saved

    return saved.load_all(folder, threads, functions=functions)
