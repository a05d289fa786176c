"""The server: a list of models, one page, and runs, each in a process of its own.

It is for the person who started it. It answers only to its own names (so that no other site's name leads to it), takes
changes only from its own page, reads the folder, and writes nothing but uploads, to a place of its own.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from graphopt.errors import GraphoptError, ReadError
from graphopt.serving.folder import Folder
from graphopt.web.page import frame

if TYPE_CHECKING:
    from starlette.requests import Request

REQUEST: Final = 1 << 19
"""Bytes of a request to run: rules, and what to run them on."""
WAITING: Final = 8
"""Runs that wait; one more is refused."""
TARGETS: Final = ("portable", "ort")
POLICIES: Final = ("exact", "finite", "reals", "approx")
HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}

Answer = Callable[["Request"], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Limits:
    """What strangers' input may take: bytes of an upload, seconds of a run, runs at once."""

    upload: int = 256 << 20
    seconds: int = 120
    at_once: int = 2


class Runs:
    """The runs that are under way: a few at once, some waiting, each ended when it takes too long."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.waiting = 0
        self._free = asyncio.Semaphore(limits.at_once)
        self._processes: set[asyncio.subprocess.Process] = set()

    async def answer(self, request: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        """The status and the answer of a run."""
        if self.waiting >= WAITING:
            return 429, {"error": "too many runs are waiting: try again when one has ended"}
        self.waiting += 1
        try:
            await self._free.acquire()
        finally:
            self.waiting -= 1
        try:
            return await self._run({**request, "seconds": self.limits.seconds})
        finally:
            self._free.release()

    async def _run(self, request: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "graphopt.serving.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        self._processes.add(process)
        try:
            given = json.dumps(request).encode()
            out, errors = await asyncio.wait_for(process.communicate(given), self.limits.seconds)
        except TimeoutError:
            return 200, {"error": f"the run was ended after {self.limits.seconds} s"}
        finally:
            self._processes.discard(process)
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            last = errors.decode(errors="replace").strip().rpartition("\n")[2]
            return 200, {"error": f"the process of the run ended: {last or f'signal {-process.returncode}'}"}
        found = json.loads(out)
        return 200, found

    async def end(self) -> None:
        """End what is under way."""
        for process in list(self._processes):
            if process.returncode is None:
                process.kill()
                await process.wait()


def application(folder: Folder, hosts: list[str], limits: Limits | None = None) -> Starlette:
    """The server's application, which answers to these host names and to no other."""
    bounds = limits or Limits()
    runs = Runs(bounds)

    async def index(request: Request) -> Response:
        return HTMLResponse(frame("graphopt serve", "", ("serve",), "'self'"))

    async def models(request: Request) -> Response:
        found = await asyncio.to_thread(folder.models)
        limit = {"upload": bounds.upload, "targets": TARGETS, "policies": POLICIES}
        return JSONResponse({"models": [{"name": m.name, "bytes": m.bytes} for m in found], **limit})

    async def run(request: Request) -> Response:
        body = await _body(request, REQUEST)
        if body is None:
            return _refused(413, f"the rules take more than {REQUEST} bytes")
        try:
            asked = json.loads(body)
            wanted = {k: asked[k] for k in ("name", "rules", "with", "target", "policy")}
            if not all(isinstance(v, str) for v in wanted.values()):
                raise TypeError
        except (ValueError, KeyError, TypeError, RecursionError):
            return _refused(400, "a run has a name, rules, with, target and policy, all text")
        if wanted["target"] not in TARGETS or wanted["policy"] not in POLICIES:
            return _refused(400, f"targets are {', '.join(TARGETS)}; policies {', '.join(POLICIES)}")
        try:
            path = await asyncio.to_thread(folder.find, wanted["name"])
        except ReadError as error:
            return _refused(404, str(error))
        status, found = await runs.answer({**wanted, "model": str(path)})
        return JSONResponse(found, status)

    async def upload(request: Request) -> Response:
        place = folder.place()
        taken = 0
        try:
            with open(place, "xb") as file:
                async for part in request.stream():
                    taken += len(part)
                    if taken > bounds.upload:
                        break
                    file.write(part)
            if 0 < taken <= bounds.upload:
                return JSONResponse({"name": folder.take(request.query_params.get("name", "model"), place)})
        except OSError as error:
            place.unlink(missing_ok=True)
            return _refused(507, f"the upload cannot be kept ({error.strerror})")
        except BaseException:  # the client went away
            place.unlink(missing_ok=True)
            raise
        place.unlink(missing_ok=True)
        return _refused(413 if taken else 400, f"an upload has 1 to {bounds.upload} bytes")

    async def failed(request: Request, error: Exception) -> Response:
        return _refused(400, str(error))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await runs.end()

    return Starlette(
        routes=[
            Route("/", index),
            Route("/api/models", models),
            Route("/api/run", run, methods=["POST"]),
            Route("/api/upload", upload, methods=["PUT"]),
        ],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False),
            Middleware(BaseHTTPMiddleware, dispatch=_guard),
        ],
        exception_handlers={GraphoptError: failed},
        lifespan=lifespan,
    )


async def _guard(request: Request, answer: Answer) -> Response:
    """What changes something has to come from this server's own page; every answer says what browsers may not do."""
    if request.method not in ("GET", "HEAD"):
        origin = request.headers.get("origin")
        own = f"{request.url.scheme}://{request.headers.get('host', '')}"
        site = request.headers.get("sec-fetch-site", "same-origin")
        kind = request.headers.get("content-type", "").partition(";")[0].strip()
        if (origin is not None and origin != own) or site not in ("same-origin", "none"):
            return _refused(403, "this comes from another site")
        if kind not in ("application/json", "application/octet-stream"):
            return _refused(415, "expected application/json, or application/octet-stream for an upload")
    response = await answer(request)
    response.headers.update(HEADERS)
    return response


def _refused(status: int, why: str) -> Response:
    return JSONResponse({"error": why}, status, dict(HEADERS))


async def _body(request: Request, most: int) -> bytes | None:
    """What a request holds; None where that is more than it may."""
    found = bytearray()
    async for part in request.stream():
        found += part
        if len(found) > most:
            return None
    return bytes(found)
