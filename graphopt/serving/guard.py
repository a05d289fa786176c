"""Who may change something: this server's own page, and no other site's that a browser shows."""

from __future__ import annotations

from typing import Final

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
    """Refuses what another site may have sent, before an application sees it."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or let the application answer, with HEADERS."""

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refused = _refusal(Request(scope)) if scope["type"] == "http" else None
        await (refused or self.app)(scope, receive, tell)


def _refusal(request: Request) -> Response | None:
    """The answer to what another site may have sent."""
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
