"""The server: who may ask, what it refuses, and that strangers' input stays within bounds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import PlainTextResponse

from graphopt.errors import UsageError
from graphopt.ir import onnx_io
from graphopt.serving import app as serving
from graphopt.serving.app import ASKED, HEADERS, NO_CODE, REQUEST, OriginGuard, application, listening
from graphopt.serving.folder import ServedFolder
from graphopt.serving.runs import RunLimits, Runs
from tests.web.models import small

pytest.importorskip("starlette")


HOST = "127.0.0.1"
RULES = "# two are one  [A22] exact\nmine: Relu(Relu(x)) => Relu(x)\n"
CODE = "from graphopt import ops, rule\n"
JSON = {"content-type": "application/json"}
BYTES = {"content-type": "application/octet-stream"}


class Client:
    """Asks an application, as a browser would, without a network; one that `leaves` does so when all is said, or before
    that where it `breaks_off`; one that `stalls` says no more, and stays."""

    def __init__(self, app: Any, leaves: bool = False, breaks_off: bool = False, stalls: bool = False) -> None:
        self.app, self.leaves, self.breaks_off, self.stalls = app, leaves or breaks_off, breaks_off, stalls

    def __call__(
        self, method: str, path: str, body: bytes | Iterator[bytes] = b"", **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        return asyncio.run(self.ask(method, path, body, headers))

    async def ask(
        self, method: str, path: str, body: bytes | Iterator[bytes], headers: dict[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        parts = [body] if isinstance(body, bytes) else body
        said: Iterator[dict[str, Any]] = chain(
            ({"type": "http.request", "body": p, "more_body": True} for p in parts),
            [] if self.breaks_off or self.stalls else [{"type": "http.request"}],
        )
        sent: list[dict[str, Any]] = []
        named = {"host": HOST, **{k.replace("_", "-"): v for k, v in headers.items()}}
        where, _, query = path.partition("?")
        scope = {
            "type": "http", "method": method, "path": where, "raw_path": where.encode(), "query_string": query.encode(),
            "headers": [(k.encode(), v.encode()) for k, v in named.items()], "http_version": "1.1", "scheme": "http",
            "server": (HOST, 80), "client": (HOST, 1), "root_path": "", "app": self.app,
        }  # fmt: skip

        async def receive() -> dict[str, Any]:
            message = next(said, None)
            if message is None and not self.leaves:
                await asyncio.Event().wait()
            return message or {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        got = {k.decode(): v.decode() for k, v in sent[0]["headers"]}
        return sent[0]["status"], got, b"".join(m.get("body", b"") for m in sent[1:])


def served(folder: Path, code: bool) -> Client:
    """A server of a folder, with and without Python."""
    (folder / "models").mkdir()
    (folder / "scratch").mkdir()
    onnx_io.save(small(), folder / "models" / "m<img>.onnx")
    (folder / "models" / "mine.rules").write_text(RULES)
    (folder / "models" / "mine.py").write_text(CODE)
    shown = ServedFolder(folder / "models", folder / "scratch", code)
    return Client(application(shown, ["127.0.0.1", "localhost"], RunLimits(upload=1000, seconds=600, at_once=1)))


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return served(tmp_path, code=False)


def asked(**changes: object) -> bytes:
    given = {"name": "m<img>.onnx", "rules": "", "with": "mine", "target": "portable", "policy": "reals"}
    return json.dumps({"language": "rules", **given, **changes}).encode()


def test_the_page_and_the_models(client: Client) -> None:
    status, headers, body = client("GET", "/")
    assert status == 200
    assert headers["x-frame-options"] == "DENY"
    assert b"connect-src 'self'" in body
    status, _, body = client("GET", "/api/files")
    found = json.loads(body)
    assert [m["name"] for m in found["models"]] == ["m<img>.onnx"]
    assert (found["rules"], found["upload"], found["code"]) == (["mine.rules"], 1000, False)
    assert "portable" in found["targets"]


def test_the_file_of_a_target_is_one_to_run_for(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[ops]\nsource = "assumed"\n"ai.onnx" = "Relu"\n[prices]\nlike = "ort"\nsource = "assumed"\n')
    onnx_io.save(small(), tmp_path / "m<img>.onnx")
    client = Client(application(ServedFolder(tmp_path, tmp_path), ["127.0.0.1"], target_files=[file]))
    assert str(file) in json.loads(client("GET", "/api/files")[2])["targets"]
    status, _, body = client("POST", "/api/run", asked(target=str(file)), **{"content-type": "application/json"})
    assert status == 200, body
    assert ["target", "mine"] in json.loads(body)["page"]["facts"]
    other = asked(target=str(tmp_path / "other.toml"))
    assert client("POST", "/api/run", other, **{"content-type": "application/json"})[0] == 400


def test_files_of_rules_are_read(client: Client) -> None:
    status, _, body = client("GET", "/api/rules?name=mine.rules")
    assert (status, json.loads(body)) == (200, {"rules": RULES})
    for name in ("../mine.rules", "m<img>.onnx", "/etc/passwd", "big.rules", "mine.py"):
        status, _, body = client("GET", f"/api/rules?name={name}")
        assert status == 404
        assert json.loads(body)["error"]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "169.254.169.254", ""])
def test_other_names_of_this_machine_are_refused(client: Client, host: str) -> None:
    assert client("GET", "/api/files", host=host)[0] == 400


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example", "content-type": "application/json"},
        {"origin": "null", "content-type": "application/json"},
        {"sec-fetch-site": "cross-site", "content-type": "application/json"},
        {"sec-fetch-site": "same-site", "content-type": "application/json"},
        {"content-type": "text/plain"},
        {"content-type": "multipart/form-data"},
        {},
    ],
)
def test_other_sites_change_nothing(client: Client, headers: dict[str, str]) -> None:
    for task in ASKED:
        assert client("POST", f"/api/{task}", asked(), **headers)[0] in (403, 415)
    assert client("PUT", "/api/upload?name=x", b"x", **headers)[0] in (403, 415)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[1]", 400),
        (b"[" * 100_000, 400),
        (asked(name=3), 400),
        (asked(target="cuda"), 400),
        (asked(policy="../x"), 400),
        (asked(language="perl"), 400),
        (asked(**{"with": "none"}), 400),
        (asked(rules="\ud800"), 400),
        (asked(name="../m.onnx"), 404),
        (asked(name="/etc/passwd"), 404),
        (asked(rules="x" * REQUEST), 413),
    ],
)
def test_what_makes_no_sense_is_refused(client: Client, body: bytes, status: int) -> None:
    got, _, answer = client("POST", "/api/run", body, **JSON)
    assert got == status, answer
    assert json.loads(answer)["error"]


def test_a_run(client: Client, tmp_path: Path) -> None:
    status, _, body = client("POST", "/api/run", asked(rules=RULES), origin="http://127.0.0.1", **JSON)
    assert status == 200
    found = json.loads(body)
    assert found["page"]["written"]["fired"][0]["kept"] == 1
    status, _, body = client("POST", "/api/run", asked(rules="mine: Relu(("), **JSON)
    assert json.loads(body)["line"] == 1
    for file, kind in (("result.onnx", "application/octet-stream"), ("page.html", "text/html; charset=utf-8")):
        status, headers, body = client("GET", f"/api/results/{found['result']['key']}/{file}")
        assert (status, headers["content-type"], len(body)) == (200, kind, found["result"]["files"][file])
        assert headers["content-disposition"].startswith("attachment")
    for place in (f"{found['result']['key']}/your.rules", "..%2f/result.onnx", "0/result.onnx", "%2e%2e/mine.rules"):
        assert client("GET", f"/api/results/{place}")[0] == 404
    assert len(list((tmp_path / "scratch").iterdir())) == 1  # what failed has left nothing


@pytest.mark.parametrize("task", [task for task, fields in ASKED.items() if "rules" in fields])
def test_python_runs_only_where_the_owner_allows_it(client: Client, task: str, tmp_path: Path) -> None:
    sign = tmp_path / "it-ran"
    code = f"open({str(sign)!r}, 'w')\nfrom graphopt import ops, rule\n"
    body = asked(language="python", rules=code, rule="mine")
    status, _, told = client("POST", f"/api/{task}", body, **JSON)
    error = json.loads(told)["error"]
    assert (status, error) == (403, NO_CODE)
    assert "--allow-code" in error
    assert "\n" not in error
    status, _, told = client("POST", f"/api/{task}", asked(rules=code, rule="mine"), **JSON)  # as a file of rules
    assert "error" in json.loads(told)
    assert not sign.exists()


def test_python_runs_where_the_owner_allows_it(tmp_path: Path) -> None:
    client = served(tmp_path, code=True)
    found = json.loads(client("GET", "/api/files")[2])
    assert (found["rules"], found["code"]) == (["mine.py", "mine.rules"], True)
    assert json.loads(client("GET", "/api/rules?name=mine.py")[2]) == {"rules": CODE}
    sign = tmp_path / "it-ran"
    code = f"open({str(sign)!r}, 'w')\n"
    status, _, body = client("POST", "/api/check", asked(language="python", rules=code), **JSON)
    assert status == 200
    assert "holds no rules" in json.loads(body)["error"]
    assert sign.exists()


def test_what_came_of_a_check_is_known_the_next_time(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    asks: list[dict[str, Any]] = []

    async def answer(self: Runs, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        asks.append(request)
        about = {"rule": "r", "line": 1, "compared": 3, "problem": ""}
        return 200, {"checks": [{**about, "key": str(k), "state": s} for k, s in enumerate(("right", "waiting"))]}

    monkeypatch.setattr(Runs, "answer", answer)
    monkeypatch.setattr(serving, "KNOWN", 1)
    for _ in range(2):
        client("POST", "/api/check", asked(), **JSON)
    assert asks[1]["known"] == {"0": {"state": "right", "compared": 3, "problem": ""}}
    assert asks[0]["seconds"] == serving.CHECK


def test_what_does_not_come_is_not_waited_for(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "PATIENCE", 0.05)
    for method, path, kind in (("POST", "/api/run", JSON), ("PUT", "/api/upload?name=x", BYTES)):
        asking = Client(client.app, stalls=True)
        status, _, body = asking(method, path, b"x", **kind)
        assert (status, json.loads(body)["error"]) == (408, "nothing came for 0.05 s")
    assert not list((tmp_path / "scratch").iterdir())


def test_words_are_asked_for_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    asks: list[object] = []

    async def answer(self: Runs, request: object) -> tuple[int, dict[str, Any]]:
        asks.append(request)
        return (200, {"ops": []}) if len(asks) > 1 else (200, {"error": "it failed"})

    monkeypatch.setattr(Runs, "answer", answer)
    assert [client("GET", "/api/words")[0] for _ in range(3)] == [503, 200, 200]
    assert len(asks) == 2


def test_uploads_within_bounds_are_kept(client: Client, tmp_path: Path) -> None:
    model = (tmp_path / "models" / "m<img>.onnx").read_bytes()
    status, _, body = client("PUT", "/api/upload?name=../../<b>.onnx", model, **BYTES)
    assert status == 200
    assert json.loads(body)["name"] == "uploaded: ../../<b>.onnx"
    assert not (tmp_path.parent / "<b>.onnx").exists()
    for size in (0, 1001):
        assert client("PUT", "/api/upload?name=x", bytes(size), **BYTES)[0] in (400, 413)
    endless = (bytes(100) for _ in range(10_000))
    assert client("PUT", "/api/upload?name=x", endless, **BYTES)[0] == 413
    assert sum(1 for _ in endless) > 9_000  # which it did not read to the end
    assert len(list((tmp_path / "scratch").iterdir())) == 1


def test_an_upload_that_breaks_off_leaves_nothing(client: Client, tmp_path: Path) -> None:
    asking = Client(client.app, breaks_off=True)
    status, _, body = asking("PUT", "/api/upload?name=x", bytes(500), **BYTES)
    assert (status, json.loads(body)["error"]) == (400, "the upload broke off")
    assert not list((tmp_path / "scratch").iterdir())


def test_only_so_many_runs_wait(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphopt.serving.runs.WAITING", 1)
    statuses: list[int] = []

    async def slow(self: Runs, request: object) -> dict[str, Any]:
        while statuses.count(429) < 2:
            await asyncio.sleep(0.01)
        return {}

    monkeypatch.setattr(Runs, "_run", slow)

    async def one() -> None:
        statuses.append((await client.ask("POST", "/api/run", asked(), dict(JSON)))[0])

    async def all_at_once() -> None:
        await asyncio.wait_for(asyncio.gather(*(one() for _ in range(4))), 60)

    asyncio.run(all_at_once())
    assert sorted(statuses) == [200, 200, 429, 429]


@pytest.mark.parametrize("leaves", [True, False])
def test_a_run_ends_when_nobody_waits_for_it_and_with_the_server(
    client: Client, leaves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[bool] = []

    async def endless(self: Runs, request: object) -> dict[str, Any]:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)
        return {}

    monkeypatch.setattr(Runs, "_run", endless)
    client.app.state.ends = lambda: not leaves
    assert Client(client.app, leaves)("POST", "/api/run", asked(), **JSON)[0] == 503
    assert ended == [True]


pytest.importorskip("starlette")


def answered(method: str, **headers: str) -> tuple[int, dict[str, str]]:
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
    asyncio.run(OriginGuard(PlainTextResponse("done"), ["localhost", "::1", "Mine.example"])(scope, receive, send))
    return sent[0]["status"], {k.decode(): v.decode() for k, v in sent[0]["headers"]}


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "[::1]:8722", "mine.example:80"])
def test_it_answers_to_its_own_names(host: str) -> None:
    assert answered("GET", host=host)[0] == 200


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "localhost.evil.example", "evil.example@localhost", "localhost/x", "[::1", "[::2]:80", "::1"],
)
def test_it_answers_to_no_others(host: str) -> None:
    assert answered("GET", host=host)[0] == 400


def test_its_own_page_changes_things() -> None:
    kinds = {"content_type": "application/json; charset=utf-8"}
    assert answered("POST", **kinds)[0] == 200  # a program that is no browser
    assert answered("POST", origin="http://localhost:8722", sec_fetch_site="same-origin", **kinds)[0] == 200
    assert answered("POST", origin="http://localhost:8723", **kinds)[0] == 403
    assert answered("POST", origin="https://localhost:8722", **kinds)[0] == 403


def test_every_answer_has_the_headers() -> None:
    for status, headers in (answered("GET"), answered("POST"), answered("DELETE", origin="http://evil.example")):
        assert headers.items() >= {k.lower(): v for k, v in HEADERS.items()}.items(), status


def test_a_port_is_taken_once() -> None:
    with listening("127.0.0.1", 0) as socket:
        port = socket.getsockname()[1]
        with pytest.raises(UsageError, match=f"--port {port}: cannot listen there .*in use"):
            listening("127.0.0.1", port)
    with pytest.raises(UsageError, match="cannot listen there"):
        listening("no-such-host.invalid", 0)
