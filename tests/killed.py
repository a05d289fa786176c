"""Processes that are killed at a moment that is chosen: before or after a step that others can see."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SCRIPT = """
import os, sys

def counted(function):
    def call(*arguments, **options):
        global left
        for moment in (0, 1):
            left -= 1
            if left < 0:
                os._exit(9)
            if moment == 0:
                result = function(*arguments, **options)
        return result
    return call

names = {}
exec(sys.argv[1], names)
for line in sys.stdin:
    left = int(line)
    if (process := os.fork()) == 0:
        for name in ("replace", "fsync", "unlink"):
            setattr(os, name, counted(getattr(os, name)))
        exec(sys.argv[2], names)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
"""


@contextmanager
def killed(before: str, statements: str) -> Iterator[Callable[[int], bool]]:
    """Python statements that run, after others, in a process for each call, which is killed where it is about to
    replace, sync or remove a file, or has just done so, for the time that is given; whether that did not come to pass.
    """
    with subprocess.Popen(
        [sys.executable, "-c", _SCRIPT, before, statements], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked, told = process.stdin, process.stdout

        def is_done(moment: int) -> bool:
            print(moment, file=asked, flush=True)
            code = int(told.readline())
            assert code in (0, 9)
            return code == 0

        yield is_done
