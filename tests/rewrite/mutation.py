"""Mutants of the standard rules: each is a rule with one thing wrong, and some check must see it.

Run as a script it makes the mutants of every rule, checks them, and writes what came of them to ``mutation.json``:

    python -m tests.rewrite.mutation [--jobs 2] [--write] [--again] [--kinds KIND...] [--data FILE] [--least 0.9]
        [FILE_OR_NAME...]

What was judged of rules that have not changed since is not judged again; ``--again`` judges the mutants that survived
again. ``--data`` is another file to keep that in, and with ``--least`` it is an error if a smaller share is killed.

Of a guard that is dropped or changed, graphs are drawn that violate it and nothing else. A mutant is *killed* where it
does not read, never fires, or where its sides differ. It is *equivalent* where a solver shows that its guards say as
much, or where it is proved as the rule is. A guard that asks only where the rule pays is one of *profitability*, and
both sides have to agree where it is violated. Everything else is a *survivor*.

A rule that has changed has to hold where the guards that it once needed are violated (``relapse``), so that one that
lost a guard cannot be written down as right by judging it again.
"""

from __future__ import annotations

import json
import re
import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

from graphopt.errors import GraphoptError
from graphopt.ir import ops
from graphopt.proof.evidence import right_expressions
from graphopt.rewrite.checking.check import TRIES, CheckReport, Depth, applied, check_rule, chosen
from graphopt.rewrite.checking.examples import Example, examples
from graphopt.rewrite.guards.expressions import SETS, named_set
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.rule.notation import show_expr, show_rule, show_term
from graphopt.rewrite.rule.rule import (
    AnyOf,
    CallPattern,
    Computed,
    Each,
    Field,
    FunctionCall,
    GuardExpr,
    IndexExpr,
    Lit,
    Literal,
    NameRef,
    Rule,
    Series,
    Term,
    VarPattern,
    subexpressions,
)
from graphopt.rewrite.rule.rule_digest import content
from graphopt.saving import beside

DATA = Path(__file__).with_name("mutation.json")
KINDS = ("dropped", "guard", "constant", "attribute", "operand")
"""What is wrong with a mutant: a guard is dropped or another, or something on a side is."""
RAREST = 100
"""No rule is taken to be rarer than to fire on one of so many graphs: judging has to end."""
WORTH = frozenset({"is_const", "uses", "smaller", "opset"})
"""What guards speak of that say where a rule pays, and not where it is true."""
MAGNITUDES = frozenset({"absorbs", "bounded", "cancels", "mergeable", "moderate"})
"""Functions of guards that keep rounding and range as people expect them, which the class of the rule does not ask."""
TOLD = (
    (r"conv-(transpose-)?(add|mul)|mul-conv|batch-norm|term-|factor-", r"\[0\] for|^`\(0,\) \+ fill|^`\(1, 0\) \+ fill",
     "0 copies a size of what is one number for each filter; where it is another the types differ: refused"),
    (r"conv-(add|mul)", r"w\.rank - 2", "one axis fewer broadcasts alike where it fits, else it is refused"),
    (r"add-conv", r"without auto_pad", "without pads VALID and NOTSET, which the guard admits, are the same"),
    (r"conv", r"Conv without [*][*]", "other strides and dilations give another type: refused"),
    (r"", r"keepdims=2", "any number but 0 keeps the axes"),
    (r"nan-guard", r"Softmax without axis", "the guard says that the axis is the last one, which is the default"),
    (r"lrn-", r"band\(x\.shape\[2\]", "a band of another size does not fit the channels: refused"),
    (r"complex-product", r"Concat\(Neg\(d\), c", "of the second root's product only the other half is taken"),
    (r"mul-conv-depthwise", r"Conv\(Mul\(w", "with image and kernel of one shape a product is all that is left"),
)  # fmt: skip
"""Mutants of which a person has found why they are as true as the rule: rules, changes and the reason."""
RELAXED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}


@dataclass(frozen=True)
class Mutant:
    """A rule with one thing changed, and what was."""

    rule: Rule
    change: str
    kind: str
    dropped: GuardExpr | None = None
    """The guard, or part of one, that was taken away or turned round."""


@dataclass(frozen=True)
class Outcome:
    """What came of a mutant: ``killed``, ``equivalent``, ``profitability`` or ``survived``, and why."""

    mutant: Mutant
    fate: str
    why: str


# -- making mutants


def mutants(rule: Rule) -> list[Mutant]:
    """All mutants of a rule, each content once."""
    made: dict[Rule, Mutant] = {}
    for mutant in (*_of_guards(rule), *_of_terms(rule)):
        if mutant.rule != rule:
            made.setdefault(mutant.rule, mutant)
    return list(made.values())


def _of_guards(rule: Rule) -> Iterator[Mutant]:
    for i, guard in enumerate(rule.where):
        before, after = rule.where[:i], rule.where[i + 1 :]
        yield Mutant(replace(rule, where=before + after), f"without `{show_expr(guard)}`", "dropped", guard)
        for other in _changed(guard):
            changed = replace(rule, where=(*before, other, *after))
            yield Mutant(changed, f"`{show_expr(other)}` as guard {i + 1}", "guard", guard)


def _changed(expr: GuardExpr) -> Iterator[GuardExpr]:
    """The expression with one operator, number or order of arguments changed."""
    match expr:
        case FunctionCall(function, arguments):
            if function in RELAXED:
                yield FunctionCall(RELAXED[function], arguments)
            if function == "not":
                yield arguments[0]
            if function in ("and", "or") and len(arguments) > 1:
                for i in range(len(arguments)):
                    rest = (*arguments[:i], *arguments[i + 1 :])
                    yield rest[0] if len(rest) == 1 else FunctionCall(function, rest)
            if function not in (*RELAXED, "and", "or", "+", "*", "near", "in", "disjoint") and len(arguments) == 2:
                yield FunctionCall(function, (arguments[1], arguments[0]))
            for i, part in enumerate(arguments):
                for other in _changed(part):
                    yield FunctionCall(function, (*arguments[:i], other, *arguments[i + 1 :]))
        case Lit(bool(value)):
            yield Lit(not value)
        case Lit(int(value) | float(value)):
            yield Lit(value + 1)
        case Series(items):
            for i, part in enumerate(items):
                for other in _changed(part):
                    yield Series((*items[:i], other, *items[i + 1 :]))
        case IndexExpr(of, index, stop, slice):
            for other in _changed(of):
                yield IndexExpr(other, index, stop, slice)
            if index is not None:
                for other in _changed(index):
                    yield IndexExpr(of, other, stop, slice)
        case Field(of, name):
            for other in _changed(of):
                yield Field(other, name)
        case Each(body):
            for other in _changed(body):
                yield Each(other)


def _of_terms(rule: Rule) -> Iterator[Mutant]:
    for side in ("lhs", "rhs"):
        terms: tuple[Term, ...] = getattr(rule, side)
        for i, term in enumerate(terms):
            for other, what, kind in _mutated(term, side == "rhs"):
                changed = replace(rule, **{side: (*terms[:i], other, *terms[i + 1 :])})
                yield Mutant(changed, f"{what} on the {'left' if side == 'lhs' else 'right'}", kind)


def _mutated(term: Term, is_right: bool) -> Iterator[tuple[Term, str, str]]:
    match term:
        case Literal(bool(value)):
            yield Literal(not value), f"{not value} for {value}", "constant"
        case Literal(int(value) | float(value)):
            yield Literal(value + 1), f"{value + 1} for {value}", "constant"
        case Literal(tuple(value)) if value:
            other = (value[0] + 1, *value[1:])
            yield Literal(other), f"{list(other)} for {list(value)}", "constant"
        case Computed(expr, like):
            for changed in _changed(expr):
                yield Computed(changed, like), f"`{show_expr(changed)}` for `{show_expr(expr)}`", "constant"
        case AnyOf(options):
            for i, option in enumerate(options):
                for changed_term, what, kind in _mutated(option, is_right):
                    yield AnyOf((*options[:i], changed_term, *options[i + 1 :])), what, kind
        case CallPattern():
            yield from _mutated_call(term, is_right)


def _mutated_call(call: CallPattern, is_right: bool) -> Iterator[tuple[Term, str, str]]:
    inputs = call.inputs
    if len(inputs) >= 2 and inputs[0] != inputs[1] and not (call.op[0].isupper() and ops.is_commutative(call.op)):
        swapped = replace(call, inputs=(inputs[1], inputs[0], *inputs[2:]))
        yield swapped, f"{show_term(swapped)} for {show_term(call)}", "operand"
    for i, (name, expr) in enumerate(call.attrs):
        rest = (*call.attrs[:i], *call.attrs[i + 1 :])
        if is_right:
            yield replace(call, attrs=rest), f"{call.op} without {name}", "attribute"
        for changed in _changed(expr):
            given = (*call.attrs[:i], (name, changed), *call.attrs[i + 1 :])
            yield replace(call, attrs=given), f"{call.op} with {name}={show_expr(changed)}", "attribute"
    if is_right and call.rest is not None:
        yield replace(call, rest=None), f"{call.op} without **{call.rest}", "attribute"
    for i, part in enumerate(inputs):
        for other, what, kind in _mutated(part, is_right):
            yield replace(call, inputs=(*inputs[:i], other, *inputs[i + 1 :])), what, kind


# -- judging them


def judge(rule: Rule, mutant: Mutant, effort: int = 1) -> Outcome:
    """What comes of a mutant of a rule. With more effort, more graphs are
    looked at, and proofs are tried."""
    try:
        (read,) = parse_rules(show_rule(mutant.rule), strict=True)
        problem = _problem(rule, replace(read, name=rule.name), mutant, effort)
    except GraphoptError as error:
        return Outcome(mutant, "killed", f"does not read: {error}")
    except Exception as error:
        return Outcome(mutant, "killed", f"fails with {type(error).__name__}: {error}")
    if isinstance(problem, str):
        return Outcome(mutant, "killed", problem.split("  ")[0][:80])
    if mutant.dropped is not None and (why := implied(mutant.rule, mutant.dropped)):
        return Outcome(mutant, "equivalent", why)
    if mutant.dropped is not None and _is_of_worth(mutant.dropped) and problem.compared:
        return Outcome(mutant, "profitability", f"both sides agree where it is violated, on {_seen(problem)}")
    if effort > 1:
        fate, why = _proved(mutant.rule)
        if fate:
            return Outcome(mutant, fate, why)
    if mutant.dropped is not None and not problem.fired:
        return Outcome(mutant, "survived", "the right side is refused wherever it is violated in what was drawn")
    told = (why for names, changes, why in TOLD if re.search(names, rule.name) and re.search(changes, mutant.change))
    if mutant.dropped is None and not problem.compared:
        return Outcome(mutant, "survived", next(told, "both sides are never compared"))
    where = "where it is violated, on " if mutant.dropped is not None else "on "
    return Outcome(mutant, "survived", next(told, f"both sides agree {where}{_seen(problem)}"))


def _problem(rule: Rule, read: Rule, mutant: Mutant, effort: int) -> CheckReport | str:
    """What is wrong with a mutant, or the report of the last check, in which nothing is: of graphs that violate the
    guard that it lacks, and of any on which it fires."""
    tries = effort * (150 + 3 * min(_rarity(rule), RAREST))
    if mutant.dropped is None:
        for seed, depth in enumerate((Depth(6, 1, tries=tries), Depth(20 * effort, 2, tries=2 * tries))):
            report = check_rule(read, seed, depth)
            if report.problem is not None:
                return report.problem
        return report
    problem, report = violation(read, mutant.dropped, Depth(12 * effort, 2, tries=tries))
    if problem is not None:
        return problem
    if mutant.kind == "guard":
        plain = check_rule(read, 0, Depth(6, 1, tries=tries))
        if plain.problem is not None:
            return plain.problem
    return report


def violation(rule: Rule, guard: GuardExpr, depth: Depth) -> tuple[str | None, CheckReport]:
    """A graph that violates a guard that the rule lacks, on which both sides differ, in words; and the report."""
    report = check_rule(rule, 0, depth, guard)
    return (report.problem if report.compared else None), report


def relapse(rule: Rule, needed: list[str]) -> str | None:
    """What is wrong with a rule where guards that it once needed are violated. One that speaks of what the rule has no
    more has nothing to say."""
    for text in needed:
        if any(show_expr(guard) == text for guard in rule.where):
            continue
        try:
            written = show_rule(replace(rule, where=())).rstrip()
            (other,) = parse_rules(f"{written}\n    where {text}", strict=True)
        except GraphoptError:
            continue
        problem, _ = violation(rule, other.where[0], Depth(12, 2, tries=150 + 3 * min(_rarity(rule), RAREST)))
        if problem is not None:
            return f"{rule.name} needs `{text}`: {problem}"
    return None


def relapses(rules: Iterable[Rule]) -> Iterator[str]:
    """What is wrong with those of these rules that have changed since their mutants were judged."""
    known = stored()
    for rule in rules:
        entry = known.get(rule.name, {})
        if entry and entry["content"] != content(rule) and (problem := relapse(rule, entry["needed"])):
            yield problem


def _seen(report: CheckReport) -> str:
    return f"{report.fired} graphs, {report.compared} draws"


@cache
def _rarity(rule: Rule) -> int:
    """How many graphs are drawn until the rule fires on one."""
    for count, example in enumerate(examples(rule, Random(3), TRIES)):
        if isinstance(example, Example) and not isinstance(applied(example), str):
            return count
    return TRIES


def _is_of_worth(guard: GuardExpr) -> bool:
    """Whether all that a guard asks is a matter of worth, or of magnitudes."""
    while isinstance(guard, FunctionCall) and guard.function == "not":
        (guard,) = guard.arguments
    if isinstance(guard, FunctionCall) and guard.function in MAGNITUDES:
        return True
    asked = {p.name for p in subexpressions(guard) if isinstance(p, Field)}
    asked |= {p.function for p in subexpressions(guard) if isinstance(p, FunctionCall) and p.function in WORTH}
    asked |= {p.name for p in subexpressions(guard) if isinstance(p, NameRef) and p.name in WORTH}
    return bool(asked) and asked - {"size", "rank", "shape"} <= WORTH and bool(asked & WORTH)


def _proved(rule: Rule) -> tuple[str, str]:
    """The fate of a mutant that is proved, or of which a solver's model shows that it is wrong, and why; else empty."""
    from graphopt.proof import indices, scalars
    from graphopt.proof.prove import demonstrate

    try:
        found = scalars.prove(rule, 1000)
        if found.kind is not None:
            return "equivalent", f"as true as the rule: proved {found.kind}"
        if found.counterexample is not None and (shown := demonstrate(rule, found.counterexample)):
            return "killed", f"a solver's model: {shown}"
        bounded = indices.prove(rule, 80)
    except Exception:  # a proof that fails is none
        return "", ""
    return ("equivalent", f"as true as the rule: proved {bounded.kind} ({bounded.scope})") if bounded.kind else ("", "")


def implied(rule: Rule, guard: GuardExpr) -> str | None:
    """Why a guard holds wherever those of a rule do and its right side can be made, as a solver shows it: what is no
    arithmetic is a variable. Whose elements are asked of is a constant, and ops take the dtypes that ONNX says."""
    import z3

    words: dict[str, int] = {}
    axioms: list[Any] = []

    def number(value: str) -> Any:
        return z3.RealVal(-(10**6) - words.setdefault(value, len(words)))

    def term(expr: GuardExpr) -> Any:
        match expr:
            case Lit(str(value)):
                return number(value)
            case Lit(int() | float() as value) if not isinstance(value, bool) and abs(value) < 10**6:
                return z3.RealVal(repr(value))
            case FunctionCall("+" | "-" | "*" as operator, (left, right)):
                a, b = term(left), term(right)
                return a + b if operator == "+" else a - b if operator == "-" else a * b
            case Field(_, "rank" | "size") | IndexExpr(Field(_, "shape"), _, None, False):
                size = z3.Int(show_expr(expr))
                axioms.append(size >= 0)
                return z3.ToReal(size)
        return z3.Real(show_expr(expr))

    def truth(expr: GuardExpr) -> Any:
        match expr:
            case FunctionCall("and", parts):
                return z3.And(*map(truth, parts))
            case FunctionCall("or", parts):
                return z3.Or(*map(truth, parts))
            case FunctionCall("not", (part,)):
                return z3.Not(truth(part))
            case FunctionCall("==" | "!=" | "<" | "<=" | ">" | ">=" as comparison, (left, right)):
                a, b = term(left), term(right)
                made = {"==": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}
                return made[comparison]
            case FunctionCall("in", (of, Series(items))) if all(isinstance(i, Lit) for i in items):
                return z3.Or(*(term(of) == term(i) for i in items))
            case FunctionCall("in", (of, NameRef(kind))) if kind in SETS:
                return z3.Or(*(term(of) == number(name) for name in sorted(named_set(kind))))
        return z3.Bool(show_expr(expr))

    needed = [p for e in (*_plain(rule.where), *right_expressions(rule)) for p in subexpressions(e)]
    for part in needed:
        if isinstance(part, Field) and isinstance(part.of, NameRef) and part.name in ("value", "scalar"):
            axioms.append(truth(Field(part.of, "is_const")))
            if part.name == "scalar":
                axioms.append(term(Field(part.of, "size")) == 1)
    for guarded in rule.where:
        match guarded:
            case FunctionCall("==", (Field(of, "shape"), Series(items))) if not any(isinstance(i, Each) for i in items):
                axioms.append(term(Field(of, "rank")) == len(items))
    for name, dtypes in _dtypes(rule):
        dtype = term(Field(NameRef(name), "dtype"))
        axioms.append(z3.Or(*(dtype == number(d) for d in sorted(dtypes))))

    solver = z3.Solver()
    solver.set("timeout", 500)
    solver.add(*map(truth, rule.where), z3.Not(truth(guard)))
    solver.add(*axioms)
    return "z3: its guards hold only where the rule's do" if solver.check() == z3.unsat else None


def _plain(guards: Iterable[GuardExpr]) -> Iterator[GuardExpr]:
    """Guards all of whose parts have to be known to hold."""
    for guard in guards:
        if not any(isinstance(p, FunctionCall) and p.function in ("and", "or", "not") for p in subexpressions(guard)):
            yield guard


def _dtypes(rule: Rule) -> Iterator[tuple[str, frozenset[str]]]:
    """The variables that are operands of ops, and the dtypes that these take."""
    waiting: list[Term] = [*rule.lhs, *rule.rhs]
    while waiting:
        term = waiting.pop()
        if not isinstance(term, CallPattern):
            continue
        waiting += term.inputs
        schema = None if term.is_variable else ops.schema(term.op)
        for i, operand in enumerate(term.inputs):
            allowed = schema.allowed.get(ops.input_constraint(term.op, i)) if schema else None
            if allowed and isinstance(operand, VarPattern):
                yield operand.name, allowed


# -- all of them


@cache
def rules_by_name() -> dict[str, Rule]:
    """The standard rules."""
    return {rule.name: rule for rule in chosen([])}


def judge_rule(task: tuple[str, dict[str, Any], tuple[str, ...], int]) -> tuple[str, dict[str, Any]]:
    """The name of a standard rule, and its entry once the mutants of some kinds have been judged: how many were killed,
    and why others were not. With ``effort`` above 1, those are judged again that survived."""
    name, entry, kinds, effort = task
    rule = rules_by_name()[name]
    made: dict[str, Any] = {"content": content(rule), "needed": [], **entry}
    for kind in kinds:
        of_kind = [m for m in mutants(rule) if m.kind == kind]
        old = made.get(kind, {}) if effort > 1 else {}
        fates = {fate: dict(old.get(fate, {})) for fate in ("equivalent", "profitability", "survived")}
        killed = old.get("killed", 0)
        for mutant in of_kind:
            if old and fates["survived"].pop(mutant.change, None) is None:
                continue
            outcome = judge(rule, mutant, effort)
            if outcome.fate != "killed":
                fates[outcome.fate][mutant.change] = outcome.why
                continue
            killed += 1
            if kind == "dropped" and mutant.dropped is not None:
                made["needed"] = sorted({*made["needed"], show_expr(mutant.dropped)})
        made[kind] = {"killed": killed, **{fate: whys for fate, whys in fates.items() if whys}}
    return name, made


def stored(file: Path = DATA) -> dict[str, dict[str, Any]]:
    """What came of the mutants of each rule when it was last judged."""
    found: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found


def current(data: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What is stored of rules that are as they were."""
    return {
        name: data[name] for name, rule in rules_by_name().items() if data.get(name, {}).get("content") == content(rule)
    }


def counts(data: dict[str, dict[str, Any]], kinds: tuple[str, ...] = KINDS) -> Counter[str]:
    """How many mutants of some kinds there are of each fate."""
    found: Counter[str] = Counter()
    for made in (entry[kind] for entry in data.values() for kind in kinds if kind in entry):
        found["killed"] += made["killed"]
        found.update({fate: len(made.get(fate, {})) for fate in ("equivalent", "profitability", "survived")})
    return found


def share_killed(data: dict[str, dict[str, Any]], kinds: tuple[str, ...] = KINDS) -> float:
    """The share of mutants that are killed, of those that are neither equivalent nor lack a guard of profitability."""
    found = counts(data, kinds)
    return found["killed"] / max(found["killed"] + found["survived"], 1)


def figures(data: dict[str, dict[str, Any]]) -> str:
    """How many mutants there are of each kind, and what came of them."""
    lines = []
    for what, kinds in (("all", KINDS), *((kind, (kind,)) for kind in KINDS)):
        found = counts(data, kinds)
        fates = ", ".join(f"{found[fate]} {fate}" for fate in ("killed", "equivalent", "profitability", "survived"))
        rules = sum(any(kind in entry for kind in kinds) for entry in data.values())
        killed = 100 * share_killed(data, kinds)
        lines.append(f"{what}: {found.total()} mutants of {rules} rules: {fates}; {killed:.1f} % of the others killed")
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    """Judge the mutants of the rules that are named, or of all; those of rules that are as they were stay judged."""
    parser = ArgumentParser(prog="python -m tests.rewrite.mutation")
    parser.add_argument("what", nargs="*", metavar="FILE_OR_NAME")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--least", type=float, default=0.0)
    options = parser.parse_args(arguments)
    data = current(stored(options.data))
    rules = chosen(options.what)
    for problem in relapses(rules):
        sys.exit(problem)
    effort = 4 if options.again else 1
    tasks = []
    for rule in rules:
        entry = data.get(rule.name, {})
        judged = {kind for kind in KINDS if kind in entry}
        survived = {kind for kind in judged if entry[kind].get("survived")}
        kinds = tuple(k for k in options.kinds if (k in survived if options.again else k not in judged or options.what))
        if kinds:
            tasks.append((rule.name, entry, kinds, effort))
    with get_context("spawn").Pool(options.jobs) as pool:
        for name, entry in pool.imap_unordered(judge_rule, tasks):
            data[name] = entry
            for change, why in ((c, w) for kind in KINDS for c, w in entry.get(kind, {}).get("survived", {}).items()):
                print(f"{name}: {change}: survived: {why}", flush=True)
            if options.write:
                text = json.dumps(data, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
                with beside(options.data, durable=False) as file:
                    file.write(text.encode())
    print(figures(data))
    if share_killed(data) < options.least:
        sys.exit(
            f"{100 * share_killed(data):.1f} % of the mutants are killed, and {100 * options.least:g} % have to be"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
