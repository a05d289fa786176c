"""Every answer says what browsers may not do, whoever gives it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("starlette")

from starlette.responses import PlainTextResponse

from graphopt.serving.guard import HEADERS, Guard


def asked(method: str, **headers: str) -> tuple[int, dict[str, str]]:
    """The status and the headers that come back through the guard."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    named = {"host": "localhost:8722", **{k.replace("_", "-"): v for k, v in headers.items()}}
    scope = {
        "type": "http", "method": method, "path": "/", "query_string": b"", "scheme": "http",
        "headers": [(k.encode(), v.encode()) for k, v in named.items()],
    }  # fmt: skip
    asyncio.run(Guard(PlainTextResponse("done"), ["localhost", "::1", "Mine.example"])(scope, receive, send))
    return sent[0]["status"], {k.decode(): v.decode() for k, v in sent[0]["headers"]}


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "[::1]:8722", "mine.example:80"])
def test_it_answers_to_its_own_names(host: str) -> None:
    assert asked("GET", host=host)[0] == 200


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "localhost.evil.example", "evil.example@localhost", "localhost/x", "[::1", "[::2]:80", "::1"],
)
def test_it_answers_to_no_others(host: str) -> None:
    assert asked("GET", host=host)[0] == 400


def test_its_own_page_changes_things() -> None:
    kinds = {"content_type": "application/json; charset=utf-8"}
    assert asked("POST", **kinds)[0] == 200  # a program that is no browser
    assert asked("POST", origin="http://localhost:8722", sec_fetch_site="same-origin", **kinds)[0] == 200
    assert asked("POST", origin="http://localhost:8723", **kinds)[0] == 403
    assert asked("POST", origin="https://localhost:8722", **kinds)[0] == 403


def test_every_answer_has_the_headers() -> None:
    for status, headers in (asked("GET"), asked("POST"), asked("DELETE", origin="http://evil.example")):
        assert headers.items() >= {k.lower(): v for k, v in HEADERS.items()}.items(), status
