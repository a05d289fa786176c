"""Pages of the standard rules, made from the rules themselves: one for each rule file.

A page has the reason, class, stage and proof of each rule, and its terms where they fit on a line, by families, with
the other optimizers that have them; ``README.md`` says what holds for all pages. Guards and longer terms are left to
``graphopt rules show``. ``graphopt rules docs`` writes the pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from graphopt.proof.evidence import evidence_of
from graphopt.rewrite.guards.functions import FUNCTIONS
from graphopt.rewrite.rule.notation import show_term
from graphopt.rewrite.rule.rule import FunctionCall, Rule, RuleStage, Soundness, subexpressions
from graphopt.rewrite.ruleset import standard
from graphopt.tools.catalogue import catalogue, ids

CLASSES = {
    Soundness.EXACT: "bit by bit, NaN, infinities and signed zeros included",
    Soundness.FINITE: "bit by bit, as long as no input is NaN or infinite",
    Soundness.REALS: "over the real numbers; rounding may differ",
    Soundness.APPROX: "nearly; only where that is asked for",
}
TOOLS = {
    "OS": "onnxscript", "OP": "onnxoptimizer", "OX": "onnxsim", "SL": "onnxslim", "RT": "ONNX Runtime",
    "RP": "ONNX Runtime's transformers optimizer", "YO": "yobx", "NN": "nncase", "TV": "TVM Relax",
    "TE": "TENSAT and TASO", "LU": "Luminal", "IN": "PyTorch Inductor", "XL": "XLA", "TG": "tinygrad",
}  # fmt: skip
WIDTH = 110
"""A rule that is wider is left to its file, which breaks its lines."""
PLAIN = {"in", "and", "or", "not", "neg", "len", "min", "max", "all", "any"}
"""Functions of guards that need no explanation."""


HEAD = """\
# The standard rules

A page for each file of rules, made by `graphopt rules docs`. Patterns are in the [notation of
rules](../../rules/README.md). Rules stand under their first **family** of rewrites (`H6`), with the other optimizers
that have it. An entry says why the rule pays, then

* its **class**, which `--policy` selects by: how equal both sides are;
* *proved*, if it is more than checked on random tensors ([evidence](../proof.md) of `graphopt rules prove`, and why
  others are not); *rank 3*: up to that rank;
* *unguarded*, if it has no conditions, such as dtypes or constants;
* its **stage**: *always* rules are applied wherever they match; the others go into the e-graph, where extraction
  chooses by cost; and the targets, for rules of some targets only;
* further families.

`graphopt rules show NAME` prints a rule as its file writes it, with guards, evidence, and the terms that are too long
for a line here. `graphopt explain` says [why a rule did not fire](../explaining.md#why-did-my-rule-not-fire).

| class | both sides are equal |
|---|---|
"""


def pages() -> dict[str, str]:
    """The pages by file name: one for each rule file, and ``README.md`` with what holds for all of them."""
    page_of: dict[str, str] = {}
    rows = ["| page | rules | proved |", "|---|---|---|"]
    for source, group in groupby(standard().rules, lambda rule: rule.source.partition(":")[0]):
        rules = list(group)
        name = Path(source).stem
        page_of[f"{name}.md"] = _page(source, rules)
        proved = sum(1 for rule in rules if (evidence := evidence_of(rule)) is not None and evidence.is_proof)
        rows.append(f"| [{name}]({name}.md) | {len(rules)} | {proved} |")
    classes = [f"| `{kind.value}` | {meaning} |" for kind, meaning in CLASSES.items()]
    page_of["README.md"] = HEAD + "\n".join([*classes, "", *rows, "", *_functions(), ""])
    return page_of


def write(folder: Path) -> list[Path]:
    """Write all pages into a folder, and take away those of rule files that are gone; what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    page_of = pages()
    for old in folder.glob("*.md"):
        if old.name not in page_of:
            old.unlink()
    for name, text in page_of.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in sorted(page_of)]


def _page(source: str, rules: list[Rule]) -> str:
    known, families = list(catalogue()), dict[str, list[Rule]]()
    for rule in rules:
        families.setdefault(next((id for id in ids(rule.family) if id in catalogue()), ""), []).append(rule)
    lines = [
        f"# {Path(source).stem}",
        "",
        f"The rules of [{source}](../../{source}); [how to read them](README.md).",
        "",
    ]
    for family, members in sorted(families.items(), key=lambda item: known.index(item[0]) if item[0] else len(known)):
        lines += _family(family) if family else ["## Without a family", ""]
        for rule in members:
            lines += _section(rule)
    return "\n".join(lines)


def _family(id: str) -> Iterator[str]:
    """The heading of a family's rules, and who else has it."""
    name, who = catalogue()[id].name, list(_who(id))
    yield f"## {name[:1].upper()}{name[1:]}"
    yield ""
    yield f"{id}{', also in ' if who else ''}{', '.join(who)}."
    yield ""


def _section(rule: Rule) -> Iterator[str]:
    """What is said of one rule; what holds for most, no stage but the e-graph and no more than checks, is not said."""
    evidence, (_, *others) = evidence_of(rule), (*ids(rule.family), "")
    rank = f" ({evidence.scope.replace('<= ', '')})" if evidence and evidence.scope.startswith("rank") else ""
    proof = f", proved{rank}" if evidence is not None and evidence.is_proof else ""
    unguarded = "" if rule.where else ", unguarded"
    stage = ", always" if rule.stage is RuleStage.ALWAYS else ""
    target = f", for {', '.join(sorted(rule.targets))}" if rule.targets else ""
    also = "".join(f", {id}" for id in others if id)
    said = f"`{rule.soundness.value}`{proof}{unguarded}{stage}{target}{also}."
    yield from (f"### {rule.name}", "", f"{rule.reason[:1].upper()}{rule.reason[1:]}. {said}", "")
    left, right = ("; ".join(map(show_term, side)) for side in (rule.lhs, rule.rhs))
    if len(line := f"    {left}  =>  {right}") <= WIDTH:
        yield from (line, "")


def _who(id: str) -> Iterator[str]:
    """The other optimizers that have a family of rewrites."""
    who = catalogue()[id].who
    if who == "all":
        yield "all"
    yield from (TOOLS[code] for code in re.findall(r"[A-Z]{2}", who) if code in TOOLS)


def _functions() -> Iterator[str]:
    """The functions that guards of the standard rules call, and what each gives."""
    called = {
        p.function
        for rule in standard().rules
        for guard in rule.where
        for p in subexpressions(guard)
        if isinstance(p, FunctionCall) and p.function.isidentifier()
    }
    meaning = dict[str, str]()
    for name in sorted((called & set(FUNCTIONS)) - PLAIN):
        doc = (FUNCTIONS[name].__doc__ or "").strip().split("\n")[0].rstrip(".")
        meaning[name] = f"{doc[:1].lower()}{doc[1:]}".replace("``", "`")
    values = [name for name, said in meaning.items() if not said.startswith("whether ")]
    yield from ("## Functions of guards", "", *(f"* `{name}`: {meaning[name]}" for name in values))
    yield from ("", "These are true if:", "")
    yield from (f"* `{name}`: {meaning[name].removeprefix('whether ')}" for name in meaning if name not in values)
