"""The server: models and files of rules in a list, one page, and runs.

It is for the person who started it. It answers only to its own names (so that no other site's name leads to it), takes
changes only from its own page, reads the folder, and writes nothing but uploads, to a place of its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from functools import cache
from typing import Any, Final, TypeVar

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from graphopt.errors import GraphoptError, ReadError, UsageError
from graphopt.rewrite.rule.rule import Soundness
from graphopt.serving.folder import RULES, Folder
from graphopt.serving.guard import Guard, refused
from graphopt.serving.runs import Limits, Runs
from graphopt.target import TARGETS
from graphopt.web.page import frame

REQUEST: Final = 1 << 19
"""Bytes of a request to run (rules, and what to run them on), and of a file of rules."""
LOOK: Final = 0.5
"""Seconds after which it is looked again whether a client and the server are still there."""
POLICIES: Final = tuple(s.value for s in Soundness)

T = TypeVar("T")


@cache
def targets() -> tuple[str, ...]:
    """Targets for which there are models to look at."""
    return tuple(t.name for t in TARGETS.values() if t.makes_models)


def application(folder: Folder, hosts: list[str], limits: Limits | None = None) -> Starlette:
    """The server's application, which answers to these host names and to no other. ``state.ends`` says whether the
    server is about to end, and runs with it."""
    answers = _Answers(folder, limits or Limits())
    made = Starlette(
        routes=[
            Route("/", answers.index),
            Route("/api/files", answers.files),
            Route("/api/rules", answers.rules),
            Route("/api/run", answers.run, methods=["POST"]),
            Route("/api/upload", answers.upload, methods=["PUT"]),
        ],
        middleware=[Middleware(Guard, hosts=hosts)],
        exception_handlers={GraphoptError: _failed},
    )
    made.state.ends = lambda: False
    return made


class _Answers:
    """What the server answers to each address."""

    def __init__(self, folder: Folder, limits: Limits) -> None:
        self.folder, self.limits, self.runs = folder, limits, Runs(limits)

    async def index(self, request: Request) -> Response:
        """The page, in which a script asks for everything else."""
        return HTMLResponse(frame("graphopt serve", "", ("serve",), "'self'"))

    async def files(self, request: Request) -> Response:
        """What there is to choose from, and how large an upload may be."""
        models = await asyncio.to_thread(self.folder.models)
        rules = await asyncio.to_thread(self.folder.rules)
        return JSONResponse(
            {
                "models": [{"name": m.name, "bytes": m.bytes} for m in models],
                "rules": [r.name for r in rules],
                "upload": self.limits.upload,
                "targets": targets(),
                "policies": POLICIES,
            }
        )

    async def rules(self, request: Request) -> Response:
        """The text of a file of rules."""
        found = await asyncio.to_thread(self.folder.find, request.query_params.get("name", ""), RULES)
        if found.bytes > REQUEST:
            return refused(413, f"{found.name} has more than {REQUEST} bytes")
        text = await asyncio.to_thread(found.path.read_text, "utf-8", "replace")
        return JSONResponse({"rules": text})

    async def run(self, request: Request) -> Response:
        """What some rules do to a model."""
        body = await _body(request)
        if body is None:
            return refused(413, f"the rules take more than {REQUEST} bytes")
        wanted = _wanted(body)
        found = await asyncio.to_thread(self.folder.find, wanted["name"])
        answer = await _unless_gone(request, self.runs.answer({**wanted, "model": str(found.path)}))
        return refused(503, "the server has ended") if answer is None else JSONResponse(answer[1], answer[0])

    async def upload(self, request: Request) -> Response:
        """Keep a model that is sent; the name comes back under which it is served."""
        place = self.folder.place()
        try:
            with open(place, "xb") as file:
                async for part in request.stream():
                    file.write(part)
                    if file.tell() > self.limits.upload:
                        break
                taken = file.tell()
            if 0 < taken <= self.limits.upload:
                return JSONResponse({"name": self.folder.take(request.query_params.get("name", "model"), place)})
        except OSError as error:
            place.unlink(missing_ok=True)
            return refused(507, f"the upload cannot be kept ({error.strerror})")
        except BaseException:  # the client went away
            place.unlink(missing_ok=True)
            raise
        place.unlink(missing_ok=True)
        return refused(413 if taken else 400, f"an upload has 1 to {self.limits.upload} bytes")


def _wanted(body: bytes) -> dict[str, str]:
    """What a run is asked for. UsageError where it is not put so that it can be understood."""
    try:
        asked = json.loads(body)
        wanted = {k: asked[k] for k in ("name", "rules", "with", "target", "policy")}
        if not all(isinstance(v, str) for v in wanted.values()):
            raise TypeError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UsageError("a run has a name, rules, with, target and policy, all text") from None
    if wanted["target"] not in targets() or wanted["policy"] not in POLICIES:
        raise UsageError(f"targets are {', '.join(targets())}; policies {', '.join(POLICIES)}")
    return wanted


async def _body(request: Request) -> bytes | None:
    """What a request holds; None where that is more than it may."""
    found = bytearray()
    async for part in request.stream():
        found += part
        if len(found) > REQUEST:
            return None
    return bytes(found)


async def _unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """What some work gives. It is ended, and None comes back, where the client goes away before, or the server ends."""
    task = asyncio.create_task(work)
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=LOOK)
            if not task.done() and (request.app.state.ends() or await request.is_disconnected()):
                return None
        return task.result()
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _failed(request: Request, error: Exception) -> Response:
    return refused(404 if isinstance(error, ReadError) else 400, str(error))
