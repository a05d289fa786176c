"""The table of proofs in ``proof.md``: what the standard rules need to be proved, and how many are."""

from pathlib import Path

from graphopt.proof.evidence import evidence_of
from graphopt.proof.prove import theories
from graphopt.rewrite.ruleset import standard

PAGE = Path(__file__).resolve().parents[1] / "proof.md"
START, END = "<!-- theories: written by docs.generators -->", "<!-- end of theories -->"


def page() -> str:
    """The page with the table of what is proved now."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    return f"{before}{START}\n{_table()}{END}{rest.partition(END)[2]}"


def _table() -> str:
    counts = theories((rule, evidence_of(rule)) for rule in standard().rules)
    totals = tuple(map(sum, zip(*counts.values(), strict=True)))
    rows = [*counts.items(), ("all", totals)]
    lines = ["| theory | rules | proved | of these for all sizes |", "|---|---|---|---|"]
    lines += [f"| {name} | {' | '.join(map(str, numbers))} |" for name, numbers in rows]
    return "\n".join(lines) + "\n"
