"""Pragmas: notes on loops, blocks and programs that say how their code is generated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from graphopt.errors import ScheduleError
from graphopt.lowering.loops.expressions import Const
from graphopt.lowering.loops.nest import Block, For, If, Nest, Note, Seq, Stmt, inner, statements, with_inner

PREFIX: Final = "pragma_"
MAX_STEP: Final = "pragma_auto_unroll_max_step"
EXPLICIT: Final = "pragma_unroll_explicit"


def check_pragma(key: str, value: Note) -> None:
    """Checks a note, where it is a pragma. ScheduleError for one that does not exist, or has no such value."""
    if not key.startswith(PREFIX):
        return
    if key == MAX_STEP:
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ScheduleError(f"{key} is a number of statements, at least 0, and not {value!r}")
    elif key == EXPLICIT:
        if value != 1:
            raise ScheduleError(f"{key} is 1, and not {value!r}: loops that are unrolled are always written out")
    else:
        raise ScheduleError(f"there is no pragma {key!r}; there are {MAX_STEP} and {EXPLICIT}")


def refuse_pragmas(stmt: Stmt) -> None:
    """Raises ScheduleError where a loop or block has a pragma, for what writes them anew."""
    for s in statements(stmt):
        if isinstance(s, For | Block) and (keys := [key for key, _ in s.notes if key.startswith(PREFIX)]):
            name = s.var.name if isinstance(s, For) else s.name
            raise ScheduleError(
                f"{name} has the pragma {keys[0]}, and the default schedule writes loops anew: annotate the program "
                "(the block root), or what is scheduled already"
            )


def unrolled(nest: Nest) -> Nest:
    """The nest with serial loops unrolled as pragmas say: those that are no more statements than
    ``pragma_auto_unroll_max_step`` when written out, within what has that note. ScheduleError for other pragmas."""
    # As TVM's pass UnrollLoop with explicit unrolling, from the innermost loops out.
    body, _ = _unrolled(nest.body, _limit(nest.notes, 0))
    return nest if body is nest.body else replace(nest, body=body)


def _limit(notes: Iterable[tuple[str, Note]], outer: int) -> int:
    """The number of statements up to which loops are unrolled."""
    for key, value in notes:
        check_pragma(key, value)
        if key == MAX_STEP:
            outer = int(value)  # type: ignore[arg-type]  # as it was checked
    return outer


def _unrolled(stmt: Stmt, limit: int) -> tuple[Stmt, int | None]:
    """The statement, and how many statements it is when written out; None where a loop stays one."""
    if isinstance(stmt, For | Block):
        limit = _limit(stmt.notes, limit)
    below = [_unrolled(child, limit) for child in inner(stmt)]
    if any(a is not b for a, (b, _) in zip(inner(stmt), below, strict=True)):
        stmt = with_inner(stmt, tuple(child for child, _ in below))
    counts = [count for _, count in below]
    steps = None if None in counts else sum(n for n in counts if n is not None)
    if isinstance(stmt, Seq | If | Block):
        return stmt, steps
    if not isinstance(stmt, For):
        return stmt, 1
    if stmt.kind == "vectorized":
        return stmt, steps
    if steps is None or not isinstance(stmt.extent, Const) or stmt.kind not in ("serial", "unrolled"):
        return stmt, None
    extent = int(stmt.extent.value)
    steps *= extent
    if stmt.kind == "serial" and (not limit or max(steps, extent) > limit):
        return stmt, None
    return stmt if stmt.kind == "unrolled" else replace(stmt, kind="unrolled"), steps
