"""``CONTRIBUTING.md`` names files, tests and commands that there are."""

from __future__ import annotations

import re
import shlex
import tomllib

import pytest

from tests.pages import ROOT, blocks, look_up

PAGE = ROOT / "CONTRIBUTING.md"

pytestmark = pytest.mark.skipif(not PAGE.is_file(), reason="the page is in a checkout only")


def quoted() -> list[str]:
    """What stands in backquotes, but for the fences."""
    text = re.sub(r"^```.*?^```$", "", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`]+)`", text)


def test_the_files_are_there() -> None:
    files = [words for words in quoted() if re.fullmatch(r"(?!graphopt/a/|tests/a/)[\w.]+/[\w./]*|[\w-]+\.md", words)]
    assert len(files) > 25
    assert [file for file in files if not (ROOT / file).exists()] == []


def test_the_commands_are_there() -> None:
    usage = [(line, PAGE.name) for block in blocks(PAGE) for line in block.text.splitlines()]
    inline = [(words, PAGE.name) for words in quoted() if words.startswith("graphopt ")]
    for command, where in [*usage, *inline]:
        look_up(command.partition("#")[0].strip(), where)


def test_the_stages_are_there() -> None:
    stages = tomllib.loads((ROOT / ".ci" / "stages.toml").read_text(encoding="utf-8"))
    lines = [line for block in blocks(PAGE) for line in block.text.splitlines()] + quoted()
    named = {word for line in lines if line.startswith(".ci/full") for word in shlex.split(line, comments=True)[1:]}
    assert named - {"list", "--fresh"} <= stages.keys()


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("graphopt/lowering/operators/elementwise.py", "TABLE"),
        ("graphopt/target/data.py", "DEVICES"),
        ("graphopt/target/reading.py", "RUNTIMES"),
        ("tests/lowering/schedule/test_loop_transforms.py", "PRIMITIVES"),
        ("tests/test_corpus.py", "TARGETS"),
    ],
)
def test_the_names_to_add_to_are_there(file: str, name: str) -> None:
    assert f"`{name}`" in PAGE.read_text(encoding="utf-8")
    assert re.search(rf"^{name}\b.* = ", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
