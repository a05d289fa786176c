"""Evidence for each rule, the strongest that there is, stored beside the rules by the rule's content.

``ieee``: proved for all IEEE floats (and machine integers and truth values), bit by bit. ``reals``: proved over the
real numbers. ``index``: proved for all tensors of small shapes, whatever their elements are. ``checked``: both sides
agreed on all random tensors that were tried.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from graphopt.rewrite.rule.rule import Rule
from graphopt.rewrite.rule.rule_digest import content
from graphopt.rewrite.ruleset import standard_folder

KINDS = ("ieee", "reals", "index", "checked")
FILE = "evidence.json"


@dataclass(frozen=True)
class Evidence:
    """What is known of a rule: one of ``KINDS``, and for what it is known (dtypes, ranks)."""

    kind: str
    scope: str = ""

    @property
    def is_proof(self) -> bool:
        """Whether it is more than checks."""
        return self.kind != "checked"

    def __str__(self) -> str:
        if self.kind == "index":
            return f"proved index ({self.scope})"
        scope = f" ({self.scope})" if self.scope else ""
        return f"proved {self.kind}{scope}" if self.is_proof else "checked"

    @property
    def brief(self) -> str:
        """Without the dtypes."""
        return str(self) if self.kind == "index" else f"proved {self.kind}" if self.is_proof else "checked"


def evidence_of(rule: Rule) -> Evidence | None:
    """The evidence that is kept of a rule; None where its content is new."""
    return kept().get(content(rule))


@cache
def kept() -> Mapping[str, Evidence]:
    """All evidence that ships with the standard rules, by the content of the rule."""
    file = standard_folder() / FILE
    return read(file) if file.is_file() else {}


def read(file: Path) -> dict[str, Evidence]:
    """The evidence in a file, by the content of the rule."""
    entries = json.loads(file.read_text(encoding="utf-8"))
    return {key: Evidence(entry["evidence"], entry.get("scope", "")) for key, entry in entries.items()}


def written(proved: Iterable[tuple[Rule, Evidence | None]]) -> str:
    """The text of a file of evidence, in order of the rules' names."""
    entries = {}
    for rule, evidence in sorted(proved, key=lambda pair: pair[0].name):
        if evidence is None:
            continue
        entry = {"rule": rule.name, "evidence": evidence.kind}
        entries[content(rule)] = {**entry, "scope": evidence.scope} if evidence.scope else entry
    lines = [f"  {json.dumps(key)}: {json.dumps(entry)}" for key, entry in entries.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"
