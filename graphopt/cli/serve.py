"""``graphopt serve``: a folder of models in the browser. The one module that imports uvicorn."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from graphopt.cli import values
from graphopt.cli.app import app, register
from graphopt.cli.options import Memory
from graphopt.errors import MissingDependencyError, UsageError

LOCAL = ("127.0.0.1", "localhost", "::1")
OPEN = (
    "warning: there is no password: who reaches this address can read the models of the folder and run rules on them; "
    "other machines are answered under names that --name gives"
)
CODE = "warning: --allow-code: who reaches this address can run any program as you"
CONNECTIONS = 64
"""So many clients are answered at once; others are told to come back."""


@register(
    app,
    "serve",
    examples=(
        "graphopt serve nets/",
        "graphopt serve nets/ --port 0 --target mine.toml",
        "graphopt serve nets/ --allow-code",
    ),
)
def serve(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder of ONNX files.", show_default=False)],
    *,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="Address to listen on; any other than this can be reached from other machines."
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="Port; 0 is any that is free.")] = 8722,
    name: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="Another host name to accept; repeatable.", show_default=False),
    ] = None,
    target: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE.toml", help="The file of a target to choose from, too; repeatable.", show_default=False
        ),
    ] = None,
    upload: Annotated[int, typer.Option(metavar="MB", min=1, help="Size limit of uploads.")] = 256,
    seconds: Annotated[int, typer.Option(metavar="S", min=1, help="Time limit of a run.")] = 120,
    memory: Memory,
    allow_code: Annotated[
        bool,
        typer.Option("--allow-code", help="Take rules in Python, too: whoever reaches the server runs code as you."),
    ] = False,
) -> None:
    """Show a folder of models in the browser: write rules, see them checked, run them. Ends with Ctrl-C."""
    try:
        import uvicorn

        from graphopt.serving.app import application
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn"):
            raise
        raise MissingDependencyError("serve needs starlette and uvicorn: pip install 'graphopt[serve]'") from None
    from graphopt.serving.app import listening
    from graphopt.serving.folder import ServedFolder
    from graphopt.serving.runs import RunLimits
    from graphopt.target import read
    from graphopt.web.layered import check as check_pages

    check_pages()
    for path in target or ():
        if not read(path).makes_models:
            raise UsageError(f"--target {path} makes programs, no ONNX models, and serve shows models")
    with tempfile.TemporaryDirectory(prefix="graphopt-serve-") as scratch:
        served = ServedFolder(folder, Path(scratch), allow_code)
        with listening(host, port) as socket:
            named = f"[{host}]" if ":" in host else host
            print(f"http://{named}:{socket.getsockname()[1]}/ shows {folder}; Ctrl-C ends it", flush=True)
            if host not in LOCAL:
                print(OPEN, file=sys.stderr)
            if allow_code:
                print(CODE, file=sys.stderr)
            limits = RunLimits(upload << 20, seconds, memory=values.nbytes(memory))
            shown = application(served, [*LOCAL, host, *(name or ())], limits, target or ())
            server = uvicorn.Server(
                uvicorn.Config(
                    shown,
                    log_level="warning",
                    access_log=False,
                    timeout_graceful_shutdown=5,
                    limit_concurrency=CONNECTIONS,
                )
            )
            shown.state.ends = lambda: server.should_exit
            try:
                server.run(sockets=[socket])
            except KeyboardInterrupt:  # which is how it ends
                return
