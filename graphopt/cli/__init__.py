"""The command line: arguments in, one exit code out, and never a traceback on the terminal."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import NoReturn

EXIT_CODES = {
    0: "ok",
    1: "internal error; the traceback is in the file that the message names",
    2: "wrong usage",
    3: "a file cannot be read",
    4: "invalid model",
    5: "over a limit of size, depth or memory",
    6: "verification failed, or `diff` found different outputs",
    7: "a rule or rule file is wrong, or no rule has that name",
    8: "something that is needed is not installed",
}
"""What the exit codes mean."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    gc.set_threshold(200_000, 20, 100)  # graphs are many small objects that live as long as the command
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run the command line; the exit code comes back, and what went wrong is one line on stderr."""
    import typer

    from graphopt.cli.commands import app
    from graphopt.errors import GraphoptError, LimitError

    # the parent of every error in arguments, which typer does not export
    usage_error = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
    try:
        code = app(args=list(arguments), prog_name="graphopt", standalone_mode=False)
    except GraphoptError as error:
        return _fail(str(error), error.exit_code)
    except usage_error as error:  # type: ignore[misc]
        return _fail(f"{error.format_message()} (see graphopt --help)", 2)
    except MemoryError:
        return _fail(
            "out of memory: the model, or what was made of it, does not fit this machine", LimitError.exit_code
        )
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted; nothing was written", 130)
    except Exception:
        return _fail(f"internal error, please report it with the file {_store_traceback()}", 1)
    return code if isinstance(code, int) else 0


def _fail(message: str, code: int) -> int:
    """Print the message as one line, whatever names from a model it holds; the code comes back."""
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)
    print(f"graphopt: {line}", file=sys.stderr)
    return code


def _store_traceback() -> str:
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile("w", prefix="graphopt-error-", suffix=".txt", delete=False) as file:
        file.write(f"{sys.argv}\n{sys.version}\n{traceback.format_exc()}")
    return file.name
