"""Evidence of rules where it is kept: that of the standard rules beside them, that of a user's rules beside their file.

Both are files of one form, which ``graphopt rules prove --update`` writes, by a digest of all that evidence rests on:
a rule that changed has none there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from graphopt.errors import ReadError
from graphopt.proof import evidence
from graphopt.proof.evidence import Evidence
from graphopt.rewrite import ruleset
from graphopt.rewrite.rule.rule import Rule

SUFFIX = ".evidence.json"
"""What the file beside a user's is called: ``mine.evidence.json`` beside ``mine.rules``."""


def evidence_of(rule: Rule, others: Iterable[Path] = ()) -> Evidence | None:
    """The evidence that is kept of a rule: with the standard rules, beside the file that it is written in, or in one of
    the ``others``; None where the rule, what it calls or the prover is new."""
    found = evidence.evidence_of(rule)
    own = None if found is not None else file_of(rule)
    for file in (*([] if own is None else [kept_beside(own)]), *others) if found is None else ():
        found = found or kept_in(file).get(evidence.key(rule))
    return found


def file_of(rule: Rule) -> Path | None:
    """The file in which a user's rule is written; None for standard rules, and for those of modules and packages."""
    file = Path(rule.source.rpartition(":")[0] or rule.source)
    return file if file.is_file() and not _is_standard(rule) else None


def kept_beside(file: Path) -> Path:
    """Where the evidence of the rules in a file is kept."""
    return file.with_suffix(SUFFIX)


def kept_with(rule: Rule) -> Path | None:
    """Where the evidence of a rule is kept; None where there is no place for it."""
    if _is_standard(rule):
        return ruleset.standard_folder() / evidence.FILE
    file = file_of(rule)
    return None if file is None else kept_beside(file)


def kept_in(file: Path) -> Mapping[str, Evidence]:
    """All evidence in a file, by key; none where it is not there. Raises ReadError where the file is another one."""
    try:
        return _kept(file, file.stat().st_mtime_ns) if file.is_file() else {}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ReadError(f"{file}: is not evidence as graphopt rules prove --update writes it") from None
    except OSError as error:
        raise ReadError(f"{file}: cannot be read ({error.strerror})") from None


def _is_standard(rule: Rule) -> bool:
    return any(known.name == rule.name and known == rule for known in ruleset.standard().rules)


@lru_cache(32)
def _kept(file: Path, changed: int) -> Mapping[str, Evidence]:
    return evidence.read(file)
