"""Runtime of compiled programs, which needs numpy and the standard library alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

    from graphopt.runtime.program import Program


def load(folder: str | os.PathLike[str], threads: int | None = None) -> Program:
    """The program that ``Program.save`` wrote into a folder; raises ``ReadError`` where none can run here."""
    from graphopt.runtime import saved

    return saved.load(folder, threads)
