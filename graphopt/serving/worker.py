"""Worker process of one task: a request in, an answer out.

Models and rules come from strangers. What they cost is bounded here, and whatever they break is this process.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from graphopt.errors import GraphoptError
from graphopt.runtime.limits import confine, memory_of


def serve(answers: Connection, request: Mapping[str, Any]) -> None:
    """Send the answer to a request as JSON, and end: what the task gives, or ``error`` with its place. What else is
    printed goes nowhere."""
    os.setsid()  # so that all that this starts is ended with it
    sink = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(sink, stream)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    model = Path(request.get("model", ""))
    confine(memory_of(model.stat().st_size if model.is_file() else 0, request["memory"]), int(request["seconds"]))
    answers.send_bytes(json.dumps(answer(request), allow_nan=False).encode())


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a request, whose ``task`` is one of ``serving.tasks.TASKS``. ``folder`` is for what it writes, and
    the current one from here on."""
    from graphopt.serving.tasks import TASKS, complaint

    os.chdir(request["folder"])
    try:
        return TASKS[request["task"]](request)
    except GraphoptError as error:
        said = str(error).replace(request["model"], request["name"]) if "model" in request else str(error)
        return complaint(said)
    except MemoryError:
        return {"error": "the model, or what was made of it, does not fit the memory that a run may take"}
    except Exception as error:
        return {"error": f"the process of the run ended: {type(error).__name__}: {' '.join(str(error).split())}"}
