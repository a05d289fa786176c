"""``graphopt doctor`` prints what was found, for people and for programs."""

import json
from collections.abc import Iterator

import pytest

from graphopt.cli import run
from graphopt.tools import doctor


def found(advice: str) -> Iterator[tuple[str, str, str]]:
    yield "kernel", "[bold]right[/]", advice


@pytest.mark.parametrize(("advice", "code"), [("", 0), ("report all of this", 6)])
def test_what_was_found_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], advice: str, code: int
) -> None:
    topics = {"versions": lambda: [("python", "3", "")], doctor.SELF_TEST: lambda: found(advice)}
    monkeypatch.setattr(doctor, "TOPICS", topics)
    assert run(["doctor"]) == code
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[:3] == ["versions", "  python               3", "self-test"]
    assert lines[3] == "  kernel               [bold]right[/]"
    assert ("-> report all of this" in printed.out) == bool(advice)
    assert ("graphopt: the self-test failed" in printed.err) == bool(advice)
    assert run(["doctor", "--json"]) == code
    assert json.loads(capsys.readouterr().out) == [
        {"topic": "versions", "name": "python", "found": "3", "advice": ""},
        {"topic": "self-test", "name": "kernel", "found": "[bold]right[/]", "advice": advice},
    ]
