"""Progress of a run: one changing line on a terminal or, with --verbose, a line for each step."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from graphopt.display import duration
from graphopt.progress import Event, Listener

if TYPE_CHECKING:
    from rich.console import Console


@contextmanager
def shown(quiet: bool, verbose: bool) -> Iterator[Listener | None]:
    """A listener that shows events on stderr while the context lasts; None where there is nothing to show."""
    is_on_terminal = sys.stderr.isatty() and not quiet
    if not is_on_terminal and not verbose:
        yield None
        return
    from graphopt.cli.console import console as console_on
    from graphopt.cli.console import on_terminal

    if not is_on_terminal:
        yield lambda event: _log(console_on(stderr=True).print, event)
        return
    line, console = _Line(), on_terminal(stderr=True)
    with _changing(console) as show:

        def listen(event: Event) -> None:
            show(line.after(event))
            if verbose:
                _log(console.print, event)

        yield listen


@contextmanager
def _changing(console: Console) -> Iterator[Callable[[str], None]]:
    """A line of a terminal that says what it is called with, and for how long the command has been at work."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=None)
        yield lambda text: progress.update(task, description=text)


@contextmanager
def counted(quiet: bool) -> Iterator[Callable[[str | int], None]]:
    """What shows, on a terminal, the name of the model that is at work and the how-manieth it is.

    It is called with a number of models first, then with each name.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from graphopt.cli.console import on_terminal

    console = on_terminal(stderr=True)
    total = done = 0
    with _changing(console) as show:

        def tell(what: str | int) -> None:
            nonlocal total, done
            if isinstance(what, int):
                total, done = what, 0
                return
            done += 1
            name = what.replace("[", r"\[")
            show(f"{name} ({done} of {total}, {(done - 1) / max(total, 1):.0%} done)")

        yield tell


class _Line:
    """The line that changes: the step that is running, and the last that was said of the e-graph, the cost and the
    share that is done."""

    def __init__(self) -> None:
        self.size: int | None = None
        self.cost: float | None = None
        self.share: float | None = None

    def after(self, event: Event) -> str:
        """The line, now that this has happened."""
        self.size = event.size or self.size
        self.cost = event.cost or self.cost
        self.share = self.share if event.share is None else event.share
        parts = [event.step.replace("[", r"\[")]
        if event.iteration is not None:
            parts.append(f"round {event.iteration}")
        if self.size is not None:
            parts.append(f"{self.size:,} e-nodes")
        if self.cost is not None:
            parts.append(f"best cost {duration(self.cost)}")
        if self.share is not None:
            parts.append(f"{self.share:.0%} done")
        return ", ".join(parts)


def _log(write: object, event: Event) -> None:
    if event.seconds is not None and callable(write):
        write(f"{event.step}: {event.seconds:.2f} s", markup=False)
