"""Who is answered: whoever calls this server by its own name (so that no other site's name leads to it); and who may
change something: its own page, and no other site's that a browser shows."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
"""What every answer says that browsers may not do."""


class Guard:
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
    own = f"{request.url.scheme}://{request.headers.get('host', '')}"
    site = request.headers.get("sec-fetch-site", "same-origin")
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if (origin is not None and origin != own) or site not in ("same-origin", "none"):
        return refused(403, "this comes from another site")
    if kind not in ("application/json", "application/octet-stream"):
        return refused(415, "expected application/json, or application/octet-stream for an upload")
    return None


def refused(status: int, why: str) -> Response:
    """The answer to what is not done."""
    return JSONResponse({"error": why}, status)
