"""The server: models and files of rules in a list, one page, and runs.

It is for the person who started it. It answers only to its own names (so that no other site's name leads to it), takes
changes only from its own page, reads the folder, and writes nothing but uploads, to a place of its own.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Collection, Coroutine, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
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
POLICIES: Final = tuple(s.value for s in Soundness)

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
            Route("/api/run", answers.run, methods=["POST"]),
            Route("/api/upload", answers.upload, methods=["PUT"]),
        ],
        middleware=[Middleware(OriginGuard, hosts=hosts)],
        exception_handlers={GraphoptError: _failed},
    )
    server.state.ends = lambda: False
    return server


class _Answers:
    """What the server answers to each address."""

    def __init__(self, folder: ServedFolder, limits: RunLimits, target_files: Sequence[Path]) -> None:
        self.folder, self.limits, self.runs = folder, limits, Runs(limits)
        self.targets = {name: name for name in targets()} | {str(path): str(path.resolve()) for path in target_files}
        """What stands for each target in a request to run, by the name that the page shows."""

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
                "targets": [*self.targets],
                "policies": POLICIES,
            }
        )

    async def rules(self, request: Request) -> Response:
        """The text of a file of rules."""
        path = await asyncio.to_thread(self.folder.find, request.query_params.get("name", ""), RULES)
        if path.bytes > REQUEST:
            return refused(413, f"{path.name} has more than {REQUEST} bytes")
        text = await asyncio.to_thread(path.path.read_text, "utf-8", "replace")
        return JSONResponse({"rules": text})

    async def run(self, request: Request) -> Response:
        """What some rules do to a model."""
        body = await _body(request)
        if body is None:
            return refused(413, f"the rules take more than {REQUEST} bytes")
        wanted = _wanted(body, self.targets)
        path = await asyncio.to_thread(self.folder.find, wanted["name"])
        answer = await _unless_gone(request, self.runs.answer({**wanted, "model": str(path.path)}))
        return refused(503, "the server has ended") if answer is None else JSONResponse(answer[1], answer[0])

    async def upload(self, request: Request) -> Response:
        """Keep a model that is sent; the name comes back under which it is served."""
        path = self.folder.place()
        try:
            with open(path, "xb") as file:
                async for part in request.stream():
                    file.write(part)
                    if file.tell() > self.limits.upload:
                        break
                size = file.tell()
            if 0 < size <= self.limits.upload:
                return JSONResponse({"name": self.folder.take(request.query_params.get("name", "model"), path)})
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


def _wanted(body: bytes, targets: Mapping[str, str]) -> dict[str, str]:
    """What a run is asked for, by one of these targets. UsageError where it cannot be understood."""
    try:
        request = json.loads(body)
        wanted = {k: request[k] for k in ("name", "rules", "with", "target", "policy")}
        if not all(isinstance(v, str) for v in wanted.values()):
            raise TypeError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UsageError("a run has a name, rules, with, target and policy, all text") from None
    if wanted["target"] not in targets or wanted["policy"] not in POLICIES:
        raise UsageError(f"targets are {', '.join(targets)}; policies {', '.join(POLICIES)}")
    return {**wanted, "target": targets[wanted["target"]]}


async def _body(request: Request) -> bytes | None:
    """What a request holds; None where that is more than it may."""
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > REQUEST:
            return None
    return bytes(content)


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
