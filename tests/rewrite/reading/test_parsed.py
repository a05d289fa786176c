"""Rules that were parsed before are read as they were, and anything else is parsed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from graphopt.ir import contrib, op_table, ops
from graphopt.rewrite import guards
from graphopt.rewrite.reading import parse
from graphopt.rewrite.reading import parsed as module_of_cache
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.reading.parsed import parsed
from graphopt.rewrite.rule.rule import Rule
from graphopt.rewrite.ruleset import standard_folder
from graphopt.runtime import disk_cache

TEXT = "# why  [H1] reals\none:  Add(x, 0.0)  =>  x\n    where x.rank in (1, 2)\n"


def plainly(rule: Rule) -> str:
    """A rule's text: equal values of different types differ here; a set, printed in any order, is left to ``==``."""
    return repr(replace(rule, targets=frozenset()))


def test_all_standard_rules_are_read_as_they_were_parsed(tmp_path: Path) -> None:
    for file in sorted(standard_folder().glob("*.rules")):
        text = file.read_text()
        rules = parse_rules(text, file.name)
        assert parsed(text, file.name, lambda rules=rules: rules, tmp_path) == rules  # type: ignore[misc]
        again = parsed(text, file.name, lambda: pytest.fail("parsed again"), tmp_path)
        assert [plainly(r) for r in again] == [plainly(r) for r in rules]


def test_another_text_or_name_is_parsed(tmp_path: Path) -> None:
    calls: list[str] = []

    def read(text: str, name: str) -> list[Rule]:
        calls.append(name)
        return []

    for text, name in [("a", "x"), ("a", "x"), ("b", "x"), ("a", "y")]:
        parsed(text, name, lambda text=text, name=name: read(text, name), tmp_path)  # type: ignore[misc]
    assert calls == ["x", "x", "y"]


def test_rules_are_parsed_again_where_ops_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a rule is read by: the grammar, the schemas of ops, and the sets that they are in."""
    read: set[Path] = set()
    monkeypatch.setattr(disk_cache, "digest_of_code", lambda sources, packages=(): read.update(sources) or "")
    rests_on = [Path(str(module.__file__)) for module in (parse, guards, ops, op_table, contrib)]
    module_of_cache._sources.__wrapped__()
    assert [file for file in rests_on if not any(file.is_relative_to(source) for source in read)] == []


@pytest.mark.parametrize("damage", ["", "{", "[1]", '[{"Rule": []}]', '[{"Nothing": [1]}]', '{"set": [1]}', "[[[["])
def test_what_is_damaged_is_parsed(damage: str, tmp_path: Path) -> None:
    rules = parse_rules(TEXT, "x")
    parsed("text", "x", lambda: rules, tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_text(damage)
    assert parsed("text", "x", lambda: rules, tmp_path) == rules


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("")
    assert parsed("text", "x", list, place) == []
