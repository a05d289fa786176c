"""Writes ``COVERED.txt``: for each family of rewrites that acts on the corpus, a rule, model, target and policy.

    python tests/corpus/covered.py

Of all models, few are taken that show all families, so that ``tests/tools/test_coverage.py``, which optimizes
those and compares, takes seconds. Families that were there before and are lost are named on stderr.
"""

from __future__ import annotations

import sys
from pathlib import Path

from graphopt.tools.coverage import Coverage, Firing, cover, find_models

CORPUS = Path(__file__).resolve().parent
LIST = CORPUS / "COVERED.txt"
HEADER = """\
# Families of rewrites that act on the models of this folder, each with a rule, model, target and policy that show it.
# Written by `python tests/corpus/covered.py`, asserted by tests/tools/test_coverage.py.
"""


def models() -> list[tuple[str, Path]]:
    """The models of the corpus, by their path in it."""
    return [(path.relative_to(CORPUS).as_posix(), path) for path in find_models([CORPUS])]


def read() -> list[list[str]]:
    """The lines: family, rule, model, target, policy."""
    lines = LIST.read_text(encoding="utf-8").splitlines() if LIST.exists() else []
    return [line.split() for line in lines if line and not line.startswith("#")]


def witnesses(found: Coverage) -> list[Firing]:
    """One firing for each family, from as few runs as can be: the run that shows most families that are left, first."""
    runs: dict[tuple[str, str, str], dict[str, Firing]] = {}
    for firing in found.firings:
        runs.setdefault((firing.model, firing.target, firing.policy), {}).setdefault(firing.family, firing)
    kept: dict[str, Firing] = {}
    while left := set(found.on_models) - kept.keys():
        best = max(runs.values(), key=lambda shown: len(left & shown.keys()))
        kept |= {family: best[family] for family in left & best.keys()}
    return [kept[family] for family in found.on_models]


def main() -> None:
    before = {line[0] for line in read()}
    found = cover(models(), told=lambda name: print(name, file=sys.stderr))
    for name, why in found.failed.items():
        print(f"failed: {name}: {why}", file=sys.stderr)
    rows = [(f.family, f.rule, f.model, f.target, f.policy) for f in witnesses(found)]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = ["  ".join(t.ljust(w) for t, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    LIST.write_text(HEADER + "\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(rows)} families; lost: {sorted(before - {row[0] for row in rows})}", file=sys.stderr)


if __name__ == "__main__":
    main()
