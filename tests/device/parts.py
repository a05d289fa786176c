"""Parts of the bench, each in a process of its own: what a kernel breaks there, or what never ends, costs that part."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path

from tests.device.table import Line

ROOT = Path(__file__).parents[2]


class Part:
    """A process that measures, and writes a line of JSON for each line of the table; ``share`` is the part of the time
    that it may take, ``case`` what it is called in the table."""

    def __init__(self, name: str, share: float, arguments: list[str], folder: Path, case: str = "") -> None:
        self.name, self.share, self.case = name, share, case
        self.file = folder / f"{name}{case}.lines"
        self.command = [sys.executable, "-m", "tests.device.bench", "--part", name, "--into", str(self.file)]
        self.command += arguments
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self, niceness: int = 0) -> None:
        """Start it, unless it has begun."""
        if self._process is None:
            nicer = partial(os.nice, niceness) if niceness else None
            self._process = subprocess.Popen(
                self.command, cwd=ROOT, stdin=subprocess.PIPE, stdout=sys.stderr, preexec_fn=nicer
            )

    def wait(self, seconds: float) -> int | None:
        """Say that it is its turn, and wait for its end; the exit code, None where it did not end in time."""
        self.begin()
        process = self._process
        assert process is not None
        assert process.stdin is not None
        try:
            process.stdin.close()  # what it reads ends
            return process.wait(max(0.0, seconds))
        except (BrokenPipeError, subprocess.TimeoutExpired):
            return process.poll()
        finally:
            self.stop()

    def stop(self) -> None:
        """End it, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def finished(part: Part, seconds: float) -> list[Line]:
    """The lines that a part wrote within so many seconds."""
    code = part.wait(seconds)
    lines = [Line(**json.loads(text)) for text in part.file.read_text().splitlines()] if part.file.exists() else []
    if code is None:
        lines.append(Line(part.name, part.case, "no time was left for more", "", ""))
    elif code:
        lines.append(Line(part.name, part.case, f"failed: its process ended with {code}", "", ""))
    return lines


def kept(lines: Iterable[Line], name: str, into: Path) -> None:
    """Write lines into a file as they come; an error becomes one of them."""
    with into.open("w") as file:
        try:
            for line in lines:
                file.write(json.dumps(asdict(line)) + "\n")
                file.flush()
        except Exception as error:
            traceback.print_exc()
            file.write(json.dumps(asdict(failed(name, error))) + "\n")


def failed(name: str, error: Exception) -> Line:
    """What the table says of an error."""
    return Line(name, "", f"failed: {type(error).__name__}: {' '.join(str(error).split())[:200]}", "", "")
