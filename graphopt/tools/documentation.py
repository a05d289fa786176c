"""Pages of the standard rules, made from the rules themselves: one for each rule file.

A page has each rule's reason, its two sides, family, stage, class, evidence and guards; the head of the page says which
other optimizers have its families, and ``README.md`` what holds for all pages. ``graphopt rules docs`` writes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from graphopt.proof.evidence import evidence_of
from graphopt.rewrite.guards.functions import FUNCTIONS
from graphopt.rewrite.rule.notation import show_expr, show_term
from graphopt.rewrite.rule.rule import (
    Field,
    FunctionCall,
    GuardExpr,
    Lit,
    NameRef,
    Rule,
    RuleStage,
    Series,
    Soundness,
    subexpressions,
)
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
KINDS = {
    "unary": "any op on each element of one tensor", "binary": "any op on two tensors that broadcasts",
    "elementwise": "any op on each element", "reduce": "any reduction", "movement": "any op that moves elements",
    "zero_preserving": "any op on each element that makes 0 of 0",
    "finite_at_zero": "any op on each element that makes another finite number of 0",
    "rising": "any op on each element that grows strictly with it",
}  # fmt: skip
DTYPES = {
    "float": "floats", "int": "signed integers", "uint": "unsigned integers", "number": "numeric",
    "bool": "booleans",
}  # fmt: skip
OPERATORS = {"<": "below ", "<=": "at most ", ">": "above ", ">=": "at least ", "==": "", "!=": "not "}
PLAIN = {"in", "and", "or", "not", "neg", "len", "min", "max", "all", "any"}
"""Functions of guards that need no explanation."""


HEAD = """\
# The standard rules

A page for each file of rules, made from the rules: `graphopt rules docs` makes them anew. Patterns are in the
[notation of rules](../../rules/README.md). Above a rule is why it pays; below it stand

* its **families** of rewrites (`H6`), named at the head of each page together with the other optimizers that have them;
* its **stage**: *always* rules are applied wherever they match, *explored* rules go into the e-graph, where
  extraction chooses by cost; and the targets, for rules of some targets only;
* how **equal** both sides are, the class that `--policy` selects by, and the [evidence](../proof.md) for it, as
  `graphopt rules prove` writes it;
* its **guards**, as conditions on what the pattern's variables stand for: *constant*, a *number* (one element), the
  dtype or rank, *read once* (nothing else reads it), or an expression.

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
    families = sorted(
        {id for rule in rules for id in ids(rule.family) if id in catalogue()}, key=list(catalogue()).index
    )
    rows = [f"| {id} | {catalogue()[id].name} | {', '.join(_who(id))} |" for id in families]
    head = [
        f"# {Path(source).stem}",
        "",
        f"The rules of [{source}](../../{source}); [how to read them](README.md).",
        "",
        *(["| family | rewrites | also in |", "|---|---|---|", *rows, ""] if rows else []),
    ]
    return "\n".join([*head, *(_section(rule) for rule in rules)])


def _section(rule: Rule) -> str:
    """All that is said of one rule."""
    stage = "always" if rule.stage is RuleStage.ALWAYS else "explored"
    target = f" for {', '.join(sorted(rule.targets))}" if rule.targets else ""
    terms = [[show_term(t) for t in side] for side in (rule.lhs, rule.rhs)]
    lines = [
        f"## {rule.name}",
        "",
        f"{rule.reason[:1].upper()}{rule.reason[1:]}.",
        "",
        "```",
        *terms[0],
        "  =>",
        *terms[1],
        "```",
        "",
        f"{', '.join(ids(rule.family)) or 'No family'}; {stage}{target}; `{rule.soundness.value}`, "
        f"{evidence_of(rule) or 'no evidence yet'}.",
    ]
    conditions = "; ".join(_conditions(part for guard in rule.where for part in _conjuncts(guard)))
    return "\n".join([*lines, *([f"Where {conditions}."] if conditions else []), ""])


def _who(id: str) -> Iterator[str]:
    """The other optimizers that have a family of rewrites."""
    who = catalogue()[id].who
    if who == "all":
        yield "all"
    yield from (TOOLS[code] for code in re.findall(r"[A-Z]{2}", who) if code in TOOLS)


# -- guards in words


def _conjuncts(guard: GuardExpr) -> Iterator[GuardExpr]:
    match guard:
        case FunctionCall("and", parts):
            for part in parts:
                yield from _conjuncts(part)
        case _:
            yield guard


def _conditions(guards: Iterable[GuardExpr]) -> Iterator[str]:
    """Guards, those on single variables by variable; variables of equal conditions together."""
    single, others = dict[str, list[str]](), list[str]()
    for guard in guards:
        match _of_one(guard):
            case (name, condition):
                single.setdefault(name, []).append(condition)
            case None:
                others.append(_words(guard))
    together = dict[str, list[str]]()
    for name, conditions in single.items():
        together.setdefault(", ".join(conditions), []).append(f"`{name}`")
    for condition, names in together.items():
        yield f"{', '.join(names)}: {condition}"
    yield from others


def _words(guard: GuardExpr) -> str:
    match guard, _of_one(guard):
        case FunctionCall("or", parts), _:
            return ", or ".join(map(_words, parts))
        case _, (name, condition):
            return f"`{name}`: {condition}"
    return f"`{show_expr(guard)}`"


def _of_one(guard: GuardExpr) -> tuple[str, str] | None:
    """The variable that a guard is about and the condition on it, where there are words for that."""
    match guard:
        case Field(NameRef(name), "is_const"):
            return name, "constant"
        case FunctionCall("not", (Field(NameRef(name), "is_const"),)):
            return name, "not constant"
        case FunctionCall("in", (Field(NameRef(name), "dtype"), NameRef(kind))) if kind in DTYPES:
            return name, DTYPES[kind]
        case FunctionCall("in", (NameRef(name), NameRef(kind))) if kind in KINDS:
            return name, KINDS[kind]
        case FunctionCall("in", (NameRef(name), Series(items))) if all(isinstance(i, Lit) for i in items):
            return name, " or ".join(str(i.value) for i in items if isinstance(i, Lit))
        case FunctionCall("==", (Field(NameRef(name), "dtype"), Lit(value))):
            return name, str(value)
        case FunctionCall("==", (Field(NameRef(name), "size"), Lit(1))):
            return name, "number"
        case FunctionCall("==", (Field(NameRef(name), "uses"), Lit(1))):
            return name, "read once"
        case FunctionCall(operator, (Field(NameRef(name), "rank"), Lit(rank))) if operator in OPERATORS:
            return name, f"rank {OPERATORS[operator]}{rank}"
        case FunctionCall(operator, (NameRef("opset"), Lit(opset))) if operator in OPERATORS:
            return "opset", f"{OPERATORS[operator]}{opset}"
    return None


def _functions() -> Iterator[str]:
    """The functions that guards of the standard rules call, and what each gives."""
    called = {
        p.function
        for rule in standard().rules
        for guard in rule.where
        for p in subexpressions(guard)
        if isinstance(p, FunctionCall) and p.function.isidentifier()
    }
    yield from ("| function of guards | gives |", "|---|---|")
    for name in sorted((called & set(FUNCTIONS)) - PLAIN):
        doc = (FUNCTIONS[name].__doc__ or "").strip().split("\n")[0].rstrip(".")
        yield f"| `{name}` | {doc.replace('``', '`').replace('|', chr(92) + '|')} |"
