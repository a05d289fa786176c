"""Shows what a run is doing: one changing line on a terminal, or, if asked for, a line for each step."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from graphopt.progress import Event, Listener


@contextmanager
def shown(quiet: bool, verbose: bool) -> Iterator[Listener | None]:
    """A listener that shows events on stderr while the context lasts; None where there is nothing to show."""
    on_terminal = sys.stderr.isatty() and not quiet
    if not on_terminal and not verbose:
        yield None
        return
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    if not on_terminal:
        yield lambda event: _log(console.print, event)
        return
    with console.status("starting") as status:

        def listen(event: Event) -> None:
            status.update(_line(event))
            if verbose:
                _log(console.print, event)

        yield listen


def _log(write: object, event: Event) -> None:
    if event.seconds is not None and callable(write):
        write(f"{event.step}: {event.seconds:.2f} s", markup=False)


def _line(event: Event) -> str:
    from rich.markup import escape

    parts = [escape(event.step)]
    if event.iteration is not None:
        parts.append(f"round {event.iteration}")
    if event.size is not None:
        parts.append(f"{event.size:,} e-nodes")
    if event.cost is not None:
        parts.append(f"best {duration(event.cost)}")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """Seconds in the unit that reads best."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
