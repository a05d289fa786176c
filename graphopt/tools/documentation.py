"""Documentation of the standard rules, generated from them: one page for each rule file. ``docs.generators`` calls it,
too.

A page says of each rule what it matches, what becomes of it, why that pays, where it is true and how strongly, and who
else has it. ``graphopt rules docs`` writes the pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from graphopt.proof.evidence import evidence_of
from graphopt.rewrite.guards.functions import FUNCTIONS
from graphopt.rewrite.rule.notation import show_expr, show_term
from graphopt.rewrite.rule.rule import Apply, Expr, Field, Lit, Ref, Rule, Series, Soundness, Stage, subexpressions
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
    "float": "floats", "int": "signed integers", "uint": "unsigned integers", "number": "numbers",
    "bool": "truth values",
}  # fmt: skip
OPERATORS = {"<": "below", "<=": "at most", ">": "above", ">=": "at least", "==": "", "!=": "not"}


def pages() -> dict[str, str]:
    """The pages by file name: one for each rule file, and ``README.md`` that lists them."""
    page_of: dict[str, str] = {}
    rows = ["| page | rules | proved |", "|---|---|---|"]
    for source, group in groupby(standard().rules, lambda rule: rule.source.partition(":")[0]):
        rules = list(group)
        name = Path(source).stem
        page_of[f"{name}.md"] = _page(source, rules)
        proved = sum(1 for rule in rules if (evidence := evidence_of(rule)) is not None and evidence.is_proof)
        rows.append(f"| [{name}]({name}.md) | {len(rules)} | {proved} |")
    head = (
        "# The standard rules\n\nMade from the rules by `graphopt rules docs`; not to be edited. The notation is "
        "explained in [rules/README.md](../../rules/README.md), the evidence in [proof.md](../proof.md).\n\n"
    )
    page_of["README.md"] = head + "\n".join(rows) + "\n"
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
    head = f"# {Path(source).stem}\n\nThe rules of [{source}](../../{source}).\n"
    return "\n".join([head, *(_section(rule) for rule in rules)])


def _section(rule: Rule) -> str:
    """All that is said of one rule."""
    stage = "always applied" if rule.stage is Stage.ALWAYS else "explored, and chosen by cost"
    target = f", for {' and '.join(sorted(rule.targets))} only" if rule.targets else ""
    families = "; ".join(f"{id} {catalogue()[id].name}" if id in catalogue() else id for id in ids(rule.family))
    lines = [
        f"## {rule.name}",
        "",
        f"{rule.reason[:1].upper()}{rule.reason[1:]}.",
        "",
        "```",
        *(show_term(t) for t in rule.lhs),
        "  =>",
        *(show_term(t) for t in rule.rhs),
        "```",
        "",
        f"* Kind: {families or 'none'}; {stage}{target}",
        f"* Equal {CLASSES[rule.soundness]} (`{rule.soundness.value}`); evidence: {evidence_of(rule) or 'none yet'}",
    ]
    guards = [words for guard in rule.where for words in _conjuncts(guard)]
    if guards:
        lines.append("* Where " + "; ".join(guards))
    who = list(dict.fromkeys(_who(rule)))
    if who:
        lines.append(f"* Also known to {', '.join(who)}")
    return "\n".join([*lines, ""])


def _who(rule: Rule) -> Iterator[str]:
    for id in ids(rule.family):
        if id not in catalogue():
            continue
        who = catalogue()[id].who
        if who == "all":
            yield "all optimizers of the field"
        for code in re.findall(r"[A-Z]{2}", who):
            if code in TOOLS:
                yield TOOLS[code]


# -- guards in words


def _conjuncts(guard: Expr) -> Iterator[str]:
    match guard:
        case Apply("and", parts):
            for part in parts:
                yield from _conjuncts(part)
        case _:
            yield _words(guard)


def _words(guard: Expr) -> str:
    """A guard in words, as far as there are some, else as it is written with what its functions mean."""
    match guard:
        case Field(Ref(name), "is_const"):
            return f"`{name}` is a constant"
        case Apply("not", (Field(Ref(name), "is_const"),)):
            return f"`{name}` is no constant"
        case Apply("in", (Field(Ref(name), "dtype"), Ref(kind))) if kind in DTYPES:
            return f"`{name}` holds {DTYPES[kind]}"
        case Apply("in", (Ref(name), Ref(kind))) if kind in KINDS:
            return f"`{name}` is {KINDS[kind]}"
        case Apply("in", (Ref(name), Series(items))) if all(isinstance(i, Lit) for i in items):
            options = [str(i.value) for i in items if isinstance(i, Lit)]
            return f"`{name}` is {' or '.join(options)}"
        case Apply("==", (Field(Ref(name), "dtype"), Lit(value))):
            return f"`{name}` is {value}"
        case Apply("==", (Field(Ref(name), "size"), Lit(1))):
            return f"`{name}` is one number"
        case Apply("==", (Field(Ref(name), "uses"), Lit(1))):
            return f"nothing else reads `{name}`"
        case Apply(operator, (Field(Ref(name), "rank"), Lit(rank))) if operator in OPERATORS:
            return f"`{name}` has rank {OPERATORS[operator]} {rank}".replace("  ", " ")
        case Apply(operator, (Ref("opset"), Lit(opset))) if operator in OPERATORS:
            return f"the opset is {OPERATORS[operator]} {opset}".replace("  ", " ")
        case Apply("or", parts):
            return ", or ".join(map(_words, parts))
    return f"`{show_expr(guard)}`{_meanings(guard)}"


def _meanings(guard: Expr) -> str:
    """What the functions mean that a guard calls."""
    called = dict.fromkeys(
        p.function for p in subexpressions(guard) if isinstance(p, Apply) and p.function.isidentifier()
    )
    meanings = []
    for name in called:
        if name in FUNCTIONS and name not in ("in", "and", "or", "not", "neg", "len", "min", "max", "all", "any"):
            doc = (FUNCTIONS[name].__doc__ or "").strip().split("\n")[0].rstrip(".")
            meanings.append(f"`{name}`: {doc[:1].lower()}{doc[1:]}")
    return f" ({'; '.join(meanings)})" if meanings else ""
