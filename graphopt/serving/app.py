"""The server: models and files of rules in a list, one page, and runs.

It is for the person who started it. It answers only to its own names (so that no other site's name leads to it), takes
changes only from its own page, reads the folder, and writes nothing but uploads and results, to a place of its own.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from graphopt.errors import GraphoptError, ReadError, UsageError
from graphopt.rewrite.rule.rule import Soundness
from graphopt.serving.folder import RULES, ServedFolder
from graphopt.serving.runs import RunLimits, Runs
from graphopt.target import TARGETS
from graphopt.web.page import frame

HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
"""What every answer says that browsers may not do."""


class OriginGuard:
    """Refuses what another site may have sent, before an application sees it. ``hosts`` are the server's names."""

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self.app, self.hosts = app, {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or let the application answer, with HEADERS."""

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refused = self.refusal(Request(scope)) if scope["type"] == "http" else None
        await (refused or self.app)(scope, receive, tell)

    def refusal(self, request: Request) -> Response | None:
        """The answer to what another site may have sent; None where nothing speaks against it."""
        if _name(request.headers.get("host", "")) not in self.hosts:
            return refused(400, "this server has no such name: graphopt serve --name gives it one")
        return _refusal(request)


def _name(host: str) -> str | None:
    """The name in a Host header, without the port and the brackets of an address; None where it is none."""
    try:
        parts = urlsplit(f"//{host}")
        return parts.hostname if parts.netloc == host and "@" not in host else None
    except ValueError:
        return None


def _refusal(request: Request) -> Response | None:
    if request.method in ("GET", "HEAD"):
        return None
    origin = request.headers.get("origin")
    own_origin = f"{request.url.scheme}://{request.headers.get('host', '')}"
    site = request.headers.get("sec-fetch-site", "same-origin")
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if (origin is not None and origin != own_origin) or site not in ("same-origin", "none"):
        return refused(403, "this comes from another site")
    if kind not in ("application/json", "application/octet-stream"):
        return refused(415, "expected application/json, or application/octet-stream for an upload")
    return None


def refused(status: int, why: str) -> Response:
    """The answer to what is not done."""
    return JSONResponse({"error": why}, status)


REQUEST: Final = 1 << 19
"""Bytes of a request to run (rules, and what to run them on), and of a file of rules."""
LOOK: Final = 0.5
"""Seconds after which it is looked again whether a client and the server are still there."""
PATIENCE: Final = 30.0
"""Seconds for which the next part of a request may take to come."""
CHECK: Final = 30
"""Seconds that a check may take: it runs while somebody types."""
KNOWN: Final = 1000
"""Rules of which it is kept what came of their check: those of several texts."""
POLICIES: Final = tuple(s.value for s in Soundness)
CHOICES: Final = {"policy": POLICIES, "language": ("rules", "python"), "with": ("all", "mine")}
"""What a request may say where not every text will do; beside the target."""
_RULES: Final = ("rules", "language")
_RUN: Final = ("name", *_RULES, "with", "target", "policy")
ASKED: Final = {
    "draw": ("name",),
    "check": _RULES,
    "prove": (*_RULES, "rule"),
    "run": _RUN,
    "explain": (*_RUN, "rule"),
}
"""What each task is asked with; see ``serving.tasks``."""
RESULTS: Final = {"result.onnx": "application/octet-stream", "page.html": "text/html"}
"""What may be had of a run that has ended, and as what."""
NO_CODE: Final = (
    "rules in Python are programs, and this server runs none: graphopt serve --allow-code lets all who reach it run "
    "theirs as you"
)

T = TypeVar("T")


@cache
def targets() -> tuple[str, ...]:
    """Targets for which there are models to look at."""
    return tuple(t.name for t in TARGETS.values() if t.makes_models)


def application(
    folder: ServedFolder, hosts: list[str], limits: RunLimits | None = None, target_files: Sequence[Path] = ()
) -> Starlette:
    """The server's application, which answers to these host names and to no other, with the targets of these files
    beside those that come with graphopt. ``state.ends`` says whether the server is about to end, and runs with it."""
    answers = _Answers(folder, limits or RunLimits(), target_files)
    server = Starlette(
        routes=[
            Route("/", answers.index),
            Route("/api/files", answers.files),
            Route("/api/rules", answers.rules),
            Route("/api/words", answers.words),
            Route("/api/results/{key}/{file}", answers.result),
            Route("/api/upload", answers.upload, methods=["PUT"]),
            *(Route(f"/api/{task}", partial(answers.perform, task), methods=["POST"]) for task in ASKED),
        ],
        middleware=[Middleware(OriginGuard, hosts=hosts)],
        exception_handlers={GraphoptError: _failed, TimeoutError: _late},
        lifespan=answers.lifespan,
    )
    server.state.ends = lambda: False
    return server


class _Answers:
    """What the server answers to each address."""

    def __init__(self, folder: ServedFolder, limits: RunLimits, target_files: Sequence[Path]) -> None:
        self.folder, self.limits, self.runs = folder, limits, Runs(limits)
        self.vocabulary: dict[str, Any] | None = None
        self.known: dict[str, dict[str, Any]] = {}
        """What came of the checks of rules, by what they claim; the oldest first."""
        self.targets = {name: name for name in targets()} | {str(path): str(path.resolve()) for path in target_files}
        """What stands for each target in a request to run, by the name that the page shows."""

    @asynccontextmanager
    async def lifespan(self, server: Starlette) -> AsyncIterator[None]:
        """Within it the server answers."""
        await asyncio.to_thread(self.runs.prepare)
        yield

    async def index(self, request: Request) -> Response:
        """The page, in which a script asks for everything else."""
        return HTMLResponse(frame("graphopt serve", "", ("editor", "serve"), "'self'"))

    async def files(self, request: Request) -> Response:
        """What there is to choose from, and how large an upload may be."""
        models = await asyncio.to_thread(self.folder.models)
        rules = await asyncio.to_thread(self.folder.rules)
        return JSONResponse(
            {
                "models": [{"name": m.name, "bytes": m.bytes} for m in models],
                "rules": [r.name for r in rules],
                "upload": self.limits.upload,
                "targets": [*self.targets],
                "policies": POLICIES,
                "code": self.folder.code,
            }
        )

    async def rules(self, request: Request) -> Response:
        """The text of a file of rules."""
        path = await asyncio.to_thread(self.folder.find, request.query_params.get("name", ""), RULES)
        if path.bytes > REQUEST:
            return refused(413, f"{path.name} has more than {REQUEST} bytes")
        text = await asyncio.to_thread(path.path.read_text, "utf-8", "replace")
        return JSONResponse({"rules": text})

    async def words(self, request: Request) -> Response:
        """The vocabulary of rules, which the first who asks waits for."""
        if self.vocabulary is None:
            status, found = await self.runs.answer({"task": "words", "folder": str(self.folder.scratch)})
            if status != 200 or "error" in found:
                return refused(503, found["error"])
            self.vocabulary = found
        return JSONResponse(self.vocabulary)

    async def perform(self, task: str, request: Request) -> Response:
        """What a task gives."""
        body = await _body(request)
        if body is None:
            return refused(413, f"the rules take more than {REQUEST} bytes")
        wanted = _wanted(task, body, self.targets)
        if wanted.get("language") == "python" and not self.folder.code:
            return refused(403, NO_CODE)
        if "name" in wanted:
            found = await asyncio.to_thread(self.folder.find, wanted["name"])
            wanted["model"] = str(found.path)
        if task == "check":
            wanted |= {"known": self.known, "seconds": min(CHECK, self.limits.seconds)}
        with self.folder.workplace() as place:
            wanted |= {"task": task, "folder": str(place), "root": str(self.folder.root)}
            answer = await _unless_gone(request, self.runs.answer(wanted))
            if answer is None:
                return refused(503, "the server has ended")
            status, told = answer
            for row in told.get("checks", ()):
                self.note(row)
            if task == "run" and "error" not in told:
                files = {path.name: path.stat().st_size for path in place.iterdir()}
                told = {**told, "result": {"key": self.folder.keep(place), "files": files}}
        return JSONResponse(told, status)

    def note(self, row: Mapping[str, Any]) -> None:
        """Keep what came of the check of a rule, so that it is not checked again while others are typed."""
        if row["state"] in ("right", "wrong"):
            self.known.pop(row["key"], None)
            self.known[row["key"]] = {name: row[name] for name in ("state", "compared", "problem")}
            while len(self.known) > KNOWN:
                self.known.pop(next(iter(self.known)))

    async def result(self, request: Request) -> Response:
        """A file that a run left: the model, or the page."""
        key, file = request.path_params["key"], request.path_params["file"]
        if file not in RESULTS:
            return refused(404, f"results are {' and '.join(RESULTS)}")
        path = await asyncio.to_thread(self.folder.result, key, file)
        headers = {"Content-Disposition": "attachment"}  # the page says as what
        return FileResponse(path, media_type=RESULTS[file], headers=headers)

    async def upload(self, request: Request) -> Response:
        """Keep a model that is sent; the name comes back under which it is served."""
        path = self.folder.place()
        try:
            with open(path, "xb") as file:
                async for part in _parts(request):
                    file.write(part)
                    if file.tell() > self.limits.upload:
                        break
                size = file.tell()
            if 0 < size <= self.limits.upload:
                return JSONResponse({"name": self.folder.take(request.query_params.get("name", "model"), path)})
        except TimeoutError:  # which is an OSError, too
            path.unlink(missing_ok=True)
            raise
        except OSError as error:
            path.unlink(missing_ok=True)
            return refused(507, f"the upload cannot be kept ({error.strerror})")
        except ClientDisconnect:
            path.unlink(missing_ok=True)
            return refused(400, "the upload broke off")  # which nobody reads
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        path.unlink(missing_ok=True)
        return refused(413 if size else 400, f"an upload has 1 to {self.limits.upload} bytes")


def _wanted(task: str, body: bytes, targets: Mapping[str, str]) -> dict[str, Any]:
    """What a task is asked for, by one of these targets. UsageError where it cannot be understood."""
    fields = ASKED[task]
    try:
        request = json.loads(body)
        wanted = {name: request[name] for name in fields}
        if not all(isinstance(v, str) for v in wanted.values()):
            raise TypeError
        for value in wanted.values():
            value.encode()  # half of a surrogate pair is no text
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UsageError(f"{task} takes {', '.join(fields)}, all text") from None
    for name, values in {**CHOICES, "target": targets}.items():
        if name in wanted and wanted[name] not in values:
            raise UsageError(f"{name}: expected one of {', '.join(values)}")
    return {**wanted, "target": targets[wanted["target"]]} if "target" in wanted else wanted


async def _body(request: Request) -> bytes | None:
    """What a request holds; None where that is more than it may."""
    content = bytearray()
    async for part in _parts(request):
        content += part
        if len(content) > REQUEST:
            return None
    return bytes(content)


async def _parts(request: Request) -> AsyncIterator[bytes]:
    """The parts of what a request holds. TimeoutError where the next does not come."""
    stream = request.stream()
    while True:
        async with asyncio.timeout(PATIENCE):
            part = await anext(stream, None)
        if part is None:
            return
        yield part


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


async def _late(request: Request, error: Exception) -> Response:
    return refused(408, f"nothing came for {PATIENCE:g} s")


async def _failed(request: Request, error: Exception) -> Response:
    return refused(404 if isinstance(error, ReadError) else 400, str(error))


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens. UsageError where it cannot."""
    try:
        return _listening(host, port)
    except OSError as error:
        raise UsageError(f"--host {host} --port {port}: cannot listen there ({error.strerror or error})") from None


def _listening(host: str, port: int) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(64)
    except OSError:
        listener.close()
        raise
    return listener
