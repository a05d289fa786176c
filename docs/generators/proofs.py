"""The tables of proofs in ``proof.md``: what rules need to be proved, how many are, and why the others are not."""

from collections import Counter
from pathlib import Path

from graphopt.proof.evidence import evidence_of
from graphopt.proof.prove import theories
from graphopt.rewrite.ruleset import standard

PAGE = Path(__file__).resolve().parents[1] / "proof.md"
REASONS = {
    "differ": "the two sides are different terms: the prover lacks an identity, or what a guard says of elements",
    "fires": "its guards or attributes ask for what no small instance has",
    "more than": "too many small instances",
    "from the elements": "the right side is computed from elements of constants",
    "attribute": "no few values stand for all of an attribute",
    "operand": "no few values stand for all of an operand that says where elements go",
}
"""What is in the way of a proof, by a part of the reason that is kept."""
OTHER = "an op that has no meaning in terms"


def page() -> str:
    """The page with the tables of what is proved now."""
    text = PAGE.read_text(encoding="utf-8")
    for name, table in (("theories", _table()), ("reasons", _reasons())):
        start, end = f"<!-- {name}: written by docs.generators -->", f"<!-- end of {name} -->"
        before, _, rest = text.partition(start)
        text = f"{before}{start}\n{table}{end}{rest.partition(end)[2]}"
    return text


def _reasons() -> str:
    kept = [e for rule in standard().rules if (e := evidence_of(rule)) is not None and not e.is_proof]
    counts = Counter(next((said for part, said in REASONS.items() if part in e.why), OTHER) for e in kept)
    lines = ["| why there is no proof | rules |", "|---|---|"]
    return "\n".join([*lines, *(f"| {said} | {count} |" for said, count in counts.most_common())]) + "\n"


def _table() -> str:
    counts = theories((rule, evidence_of(rule)) for rule in standard().rules)
    totals = tuple(map(sum, zip(*counts.values(), strict=True)))
    rows = [*counts.items(), ("all", totals)]
    lines = ["| theory | rules | proved | of these for all sizes |", "|---|---|---|---|"]
    lines += [f"| {name} | {' | '.join(map(str, numbers))} |" for name, numbers in rows]
    return "\n".join(lines) + "\n"
