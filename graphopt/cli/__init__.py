"""The command line: arguments in, one exit code out, and never a traceback on the terminal."""

from __future__ import annotations

import errno
import gc
import os
import re
import signal
import sys
from collections.abc import Iterable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from io import StringIO, TextIOWrapper
from typing import Any, NoReturn

COMPLETE = "_GRAPHOPT_COMPLETE"
"""The environment variable by which a shell asks what may come next."""
_ALONE = "optimize"
"""The command that is imported without the others; they come after it in help either way."""
INTERRUPTED = 130
UNREAD = 141

EXIT_CODES = {
    0: "ok",
    1: "internal error; the traceback is in the file that the message names",
    2: "wrong usage",
    3: "a file cannot be read or written",
    4: "invalid model",
    5: "over a limit of size, depth or memory",
    6: "verification failed, or `diff` found different outputs",
    7: "a rule or rule file is wrong, or no rule has that name",
    8: "a required package is not installed",
    9: "a result is slower than --fail-if-slower or a recipe allows, or --check found what is not optimized",
    10: "a kernel does not compile, or a node has none though --strict or saving needs one",
    11: "a compiled program failed at a step",
    12: "a step of a schedule is not allowed",
    13: "a GPU is missing, cannot run the program, or is out of memory",
    14: "a certificate does not hold",
    INTERRUPTED: "interrupted by Ctrl-C or SIGTERM; only what tune had measured was written",
    UNREAD: "the reader of the output, a pager or `head`, closed it",
}
"""What the exit codes mean."""

_CONTROL = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069]")
"""Control characters, and those that turn the direction of what follows."""
_NO_PLACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EROFS}
"""What systems say where nothing can be written."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C, so that nothing temporary stays behind
    sys.stdout = sys.stdout or StringIO()  # a caller may have closed them
    sys.stderr = sys.stderr or StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal that cannot show µ or a model's names
            stream.reconfigure(errors="backslashreplace")
    gc.set_threshold(200_000, 20, 100)  # graphs are many small objects that live as long as the command
    code = run(sys.argv[1:] if arguments is None else arguments)
    try:
        sys.stdout.flush()
    except OSError:  # which run has told of; without this, the interpreter would do so once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    gc.freeze()  # else the interpreter looks through all graphs once more when it ends, which can take seconds
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run the command line; the exit code comes back, and what went wrong is one line on stderr.

    Whatever is printed meanwhile, no control character of a name reaches the terminal.
    """
    with redirect_stdout(Harmless(sys.stdout)), redirect_stderr(Harmless(sys.stderr)):
        return _run(arguments)


def _run(arguments: Sequence[str]) -> int:
    from graphopt.errors import GraphoptError, LimitError, MissingDependencyError, ReadError

    try:
        import typer

        from graphopt.cli import drop_in
        from graphopt.cli.app import app

        import_module("graphopt.cli." + (_ALONE if list(arguments[:1]) == [_ALONE] else "commands"))
        if COMPLETE in os.environ:
            from typer.completion import completion_init  # type: ignore[attr-defined]

            completion_init()
    except ImportError as error:
        return _fail(_missing(error), MissingDependencyError.exit_code)

    # the parent of every error in arguments, which typer does not export
    usage_error = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
    try:
        if drop_in.is_asked(arguments, _commands(app)):
            code = drop_in.optimize(arguments)
        else:
            is_bare = not arguments or list(arguments) in [[group.name] for group in app.registered_groups]
            given = [*arguments, *(["--help"] if is_bare else [])]
            code = app(args=given, prog_name="graphopt", standalone_mode=False)
        if code == INTERRUPTED:  # typer's word for KeyboardInterrupt
            raise KeyboardInterrupt
        sys.stdout.flush()
    except GraphoptError as error:
        return _fail(str(error), error.exit_code, getattr(error, "__notes__", ()))
    except usage_error as error:  # type: ignore[misc]
        return _fail(f"{error.format_message()} (see {_command(error)} --help)", 2)
    except MemoryError as error:
        what = str(error) or "the model, or what was made of it, does not fit this machine"
        return _fail(f"out of memory: {what}; --dim and --shape give smaller sizes", LimitError.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted; nothing was written", INTERRUPTED)
    except (BrokenPipeError, SystemExit) as error:
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):  # typer's and rich's
            raise
        return UNREAD
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _NO_PLACE:
            return _fail(f"{error.filename or 'the output'} cannot be written: {error.strerror}", ReadError.exit_code)
        if isinstance(error, ImportError) and _package(error) != "graphopt":
            return _fail(_missing(error), MissingDependencyError.exit_code)
        import traceback

        return _fail(f"internal error, please report it with the file {store_traceback(traceback.format_exc())}", 1)
    return code if isinstance(code, int) else 0


def _commands(app: Any) -> set[str]:
    """The names of all commands and groups of commands."""
    commands = {c.name or c.callback.__name__ for c in app.registered_commands}
    return commands | {group.name for group in app.registered_groups}


def _command(error: Any) -> str:
    """The command whose arguments are wrong."""
    context = getattr(error, "ctx", None)
    return context.command_path if context is not None else "graphopt"


def _fail(message: str, code: int, notes: Iterable[str] = ()) -> int:
    """Print the message as one line, whatever names from a model it holds, and the notes below it; the code comes
    back."""
    with suppress(OSError):  # the code still tells
        print(f"graphopt: {printable(message)}", *(f"  {printable(note)}" for note in notes), sep="\n", file=sys.stderr)
    return code


def count_of(number: int, noun: str) -> str:
    """So many of them, in words: ``1 model``, ``2 models``."""
    return f"{number} {noun}{'s' * (number != 1)}"


def printable(message: str) -> str:
    """The message as one line that any terminal shows."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)


def harmless(text: str) -> str:
    """The text with what a terminal would obey spelled out, but for tabs and ends of lines."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class Harmless:
    """A stream in front of ``stream``, into which only harmless text goes."""

    def __init__(self, stream: Any) -> None:
        self.stream: Any = stream.stream if isinstance(stream, Harmless) else stream

    def write(self, text: str) -> int:
        """Write the text."""
        return int(self.stream.write(harmless(text)))

    def writelines(self, lines: Iterable[str]) -> None:
        """Write all of them."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _missing(error: ImportError) -> str:
    return f"the package {_package(error)} cannot be imported ({error}): install it, for example with pip"


def _package(error: ImportError) -> str:
    """The package that was wanted, of whatever module in it."""
    return (error.name or "graphopt").partition(".")[0]


def store_traceback(trace: str) -> str:
    """The name of a new file that holds the traceback and how graphopt was called."""
    import tempfile

    with tempfile.NamedTemporaryFile("w", prefix="graphopt-error-", suffix=".txt", delete=False) as file:
        file.write(f"{sys.argv}\n{sys.version}\n{trace}")
    return file.name
