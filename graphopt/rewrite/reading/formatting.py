"""Formatter of rule files: what they say stays, comments too; spaces and line breaks are the same everywhere.

A rule stands on one line where it fits; else its right side begins a line of its own, and what is still too
long goes on after a comma or an ``and``. A rule with a comment inside stays as it was written.
"""

from __future__ import annotations

import re

from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.rule.notation import show_body
from graphopt.rewrite.rule.rule import Rule

WIDTH = 120
INDENT = " " * 4


def format_rules(text: str, filename: str = "<rules>") -> str:
    """The same rules and comments, formatted. RuleError where the text is no rule file."""
    lines = [_comment(line) for line in text.splitlines()]
    rules = parse_rules(text, filename)
    starts = [int(rule.source.rpartition(":")[2]) - 1 for rule in rules]
    formatted: list[str] = lines[: starts[0]] if rules else lines
    ends = [*starts[1:], len(lines)] if rules else []
    for rule, start, end in zip(rules, starts, ends, strict=True):
        written = lines[start:end]
        after = _after(written)
        body = written[:after]
        if start == end or starts.count(start) > 1 or any("#" in line for line in body):
            formatted += written  # two rules on a line, or a comment inside
        else:
            formatted += [*_rule(rule), *written[after:]]
    result = re.sub(r"\n{3,}", "\n\n", "\n".join(formatted)).strip("\n") + "\n"
    assert parse_rules(result, filename) == rules, f"{filename}: formatting would change a rule"
    return result


def _comment(line: str) -> str:
    """The line without spaces at its end, and with one after its ``#``."""
    stripped = line.strip()
    if not stripped.startswith("#"):
        return line.rstrip()
    return re.sub(r"^#(?=[^\s#])", "# ", stripped)


def _after(lines: list[str]) -> int:
    """How many lines the rule takes that begins at the first; blank lines and comments after it are not its own."""
    count = len(lines)
    while count and (not lines[count - 1] or lines[count - 1].startswith("#")):
        count -= 1
    return count


def _rule(rule: Rule) -> list[str]:
    left, right, where = show_body(rule)
    line = f"{rule.name}:  {left}  =>  {right}"
    sides = [line] if len(line) <= WIDTH else [*wrapped(f"{rule.name}:  {left}"), *wrapped(f"{INDENT}=>  {right}")]
    return sides + (wrapped(f"{INDENT}where {where}") if where else [])


def wrapped(line: str) -> list[str]:
    """The line, broken after commas and before ``and`` where it is too long."""
    lines = [""]
    for piece in re.findall(r'(?:"(?:\\.|[^"\\])*"|.)+?(?:,(?= )|(?= and )|$)', line):
        if lines[-1] and len(lines[-1]) + len(piece) > WIDTH:
            lines.append(2 * INDENT + piece.lstrip())
        else:
            lines[-1] += piece
    return lines
