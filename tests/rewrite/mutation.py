"""Mutants of the standard rules: each is a rule with one thing wrong, and some check must see it.

Run as a script it makes every mutant of every rule, checks it, and writes what came of it to ``mutation.json``:

    python -m tests.rewrite.mutation [--jobs 2] [--write] [--again] [--data FILE] [--least 0.95] [FILE_OR_NAME...]

Rules that have not changed since are not judged again; ``--again`` looks longer at the mutants that survived.
``--data`` is another file to keep that in, and with ``--least`` it is an error if a smaller share is killed.

A mutant is *killed* where it does not read, never fires, or where its sides differ. One that survives is *equivalent*
where it is as true as the rule: it is proved, what was changed is a matter of worth and not of truth, no graph could be
found that tells the two apart, or the rule holds beyond a guard that was relaxed, on many graphs. Everything else is a
*survivor*.
"""

from __future__ import annotations

import json
import re
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

from graphopt.errors import GraphoptError
from graphopt.ir import ops
from graphopt.rewrite.checking.check import TRIES, Depth, applied, check_rule, chosen
from graphopt.rewrite.checking.examples import Example, examples
from graphopt.rewrite.match.matcher import matches
from graphopt.rewrite.match.workspace import Workspace
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
    subexpressions,
)
from graphopt.rewrite.rule.rule_digest import content
from graphopt.saving import beside

DATA = Path(__file__).with_name("mutation.json")
MOST = 7
"""How many mutants of one rule are judged."""
MANY = 50
"""On how many draws both sides must agree for a guard to be called stricter than the truth."""
WORTH = frozenset({"is_const", "uses", "smaller", "opset"})
"""What guards speak of that say where a rule pays, and not where it is true."""
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
    dropped: GuardExpr | None = None
    """The guard, or part of one, that was taken away or turned round."""


@dataclass(frozen=True)
class Outcome:
    """What came of a mutant: ``killed``, ``equivalent`` or ``survived``, and why."""

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
        yield Mutant(replace(rule, where=before + after), f"without `{show_expr(guard)}`", guard)
        for other in _changed(guard):
            yield Mutant(replace(rule, where=(*before, other, *after)), f"`{show_expr(other)}` as guard {i + 1}", guard)


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
            for other, what in _mutated(term, side == "rhs"):
                changed = (*terms[:i], other, *terms[i + 1 :])
                yield Mutant(replace(rule, **{side: changed}), f"{what} on the {'left' if side == 'lhs' else 'right'}")


def _mutated(term: Term, is_right: bool) -> Iterator[tuple[Term, str]]:
    match term:
        case Literal(bool(value)):
            yield Literal(not value), f"{not value} for {value}"
        case Literal(int(value) | float(value)):
            yield Literal(value + 1), f"{value + 1} for {value}"
        case Literal(tuple(value)) if value:
            other = (value[0] + 1, *value[1:])
            yield Literal(other), f"{list(other)} for {list(value)}"
        case Computed(expr, like):
            for changed in _changed(expr):
                yield Computed(changed, like), f"`{show_expr(changed)}` for `{show_expr(expr)}`"
        case AnyOf(options):
            for i, option in enumerate(options):
                for changed_term, what in _mutated(option, is_right):
                    yield AnyOf((*options[:i], changed_term, *options[i + 1 :])), what
        case CallPattern():
            yield from _mutated_call(term, is_right)


def _mutated_call(call: CallPattern, is_right: bool) -> Iterator[tuple[Term, str]]:
    inputs = call.inputs
    if len(inputs) >= 2 and inputs[0] != inputs[1] and not (call.op[0].isupper() and ops.is_commutative(call.op)):
        swapped = replace(call, inputs=(inputs[1], inputs[0], *inputs[2:]))
        yield swapped, f"{show_term(swapped)} for {show_term(call)}"
    for i, (name, expr) in enumerate(call.attrs):
        rest = (*call.attrs[:i], *call.attrs[i + 1 :])
        if is_right:
            yield replace(call, attrs=rest), f"{call.op} without {name}"
        for changed in _changed(expr):
            given = (*call.attrs[:i], (name, changed), *call.attrs[i + 1 :])
            yield replace(call, attrs=given), f"{call.op} with {name}={show_expr(changed)}"
    if is_right and call.rest is not None:
        yield replace(call, rest=None), f"{call.op} without **{call.rest}"
    for i, part in enumerate(inputs):
        for other, what in _mutated(part, is_right):
            yield replace(call, inputs=(*inputs[:i], other, *inputs[i + 1 :])), what


# -- judging them


def judge(rule: Rule, mutant: Mutant) -> Outcome:
    """What comes of a mutant of a rule."""
    try:
        (read,) = parse_rules(show_rule(mutant.rule), strict=True)
    except GraphoptError as error:
        return Outcome(mutant, "killed", f"does not read: {error}")
    if mutant.dropped is not None and _is_of_worth(mutant.dropped):
        return Outcome(mutant, "equivalent", "the guard says where the rule pays, and not where it is true")
    tries = 100 + 5 * _rarity(rule)
    try:
        for seed, depth in enumerate((Depth(6, 1, tries=tries), Depth(20, 2, tries=2 * tries))):
            report = check_rule(read, seed, depth)
            if report.problem is not None:
                return Outcome(mutant, "killed", report.problem.split("  ")[0][:80])
    except Exception as error:
        return Outcome(mutant, "killed", f"fails with {type(error).__name__}: {error}")
    why = _equivalence(rule, mutant)
    if why is not None:
        return Outcome(mutant, "equivalent", why)
    return judge_again(rule, mutant)


def judge_again(rule: Rule, mutant: Mutant) -> Outcome:
    """What comes of a mutant that seemed to survive when many more graphs are looked at."""
    (read,) = parse_rules(show_rule(mutant.rule), strict=True)
    try:
        report = check_rule(read, 2, Depth(80, 8, tries=2000 + 10 * _rarity(rule)))
    except Exception as error:
        return Outcome(mutant, "killed", f"fails with {type(error).__name__}: {error}")
    if report.problem is not None:
        return Outcome(mutant, "killed", report.problem.split("  ")[0][:80])
    proof = _proof(mutant.rule)
    if proof is not None:
        return Outcome(mutant, "equivalent", f"as true as the rule: {proof}")
    agreed = f"both sides agree on all of {report.fired} graphs on which it fires, {report.compared} draws"
    told = (why for names, changes, why in TOLD if re.search(names, rule.name) and re.search(changes, mutant.change))
    if reason := next(told, None):
        return Outcome(mutant, "equivalent", f"{reason}; {agreed}")
    if mutant.dropped is not None and report.compared >= MANY:
        return Outcome(mutant, "equivalent", f"the rule holds beyond its guard: {agreed}")
    return Outcome(mutant, "survived", agreed)


@cache
def _rarity(rule: Rule) -> int:
    """How many graphs are drawn until the rule fires on one."""
    for count, example in enumerate(examples(rule, Random(3), TRIES)):
        if isinstance(example, Example) and not isinstance(applied(example), str):
            return count
    return TRIES


def _equivalence(rule: Rule, mutant: Mutant) -> str | None:
    """Why a mutant is as true as the rule."""
    more, fired = _beyond(rule, mutant.rule)
    if fired and not more:
        return f"fires on none of {fired} graphs on which the rule does not, and makes the same there"
    proof = _proof(mutant.rule)
    if proof is not None:
        return f"as true as the rule: {proof}"
    return None


def _is_of_worth(guard: GuardExpr) -> bool:
    """Whether all that a guard asks is a matter of worth."""
    asked = {p.name for p in subexpressions(guard) if isinstance(p, Field)}
    asked |= {p.function for p in subexpressions(guard) if isinstance(p, FunctionCall) and p.function in WORTH}
    asked |= {p.name for p in subexpressions(guard) if isinstance(p, NameRef) and p.name in WORTH}
    return bool(asked) and asked - {"size", "rank", "shape"} <= WORTH and bool(asked & WORTH)


def _beyond(rule: Rule, mutant: Rule) -> tuple[int, int]:
    """On how many graphs the mutant fires and the rule does not, or makes something else; and on how many it fires."""
    more = fired = 0
    for example in examples(mutant, Random(7), 60 + 5 * _rarity(rule)):
        if fired == 20 or more:
            break
        if not isinstance(example, Example):
            continue
        made = applied(example)
        if isinstance(made, str):
            continue
        fired += 1
        space = Workspace(example.graph)
        root = example.graph.producer(example.graph.outputs[0])  # type: ignore[arg-type]
        others = [
            applied(Example(example.graph, found, example.wants))
            for found in matches(rule, space, root)
            if list(found.roots) == example.graph.outputs
        ]
        more += not any(not isinstance(other, str) and other.key() == made.key() for other in others)
    return more, fired


def _proof(rule: Rule) -> str | None:
    try:
        from graphopt.proof import indices, scalars
    except GraphoptError:
        return None
    try:
        found = scalars.prove(rule, 1000)
        if found.kind is not None:
            return f"proved {found.kind}"
        bounded = indices.prove(rule, 80)
    except Exception:  # a proof that fails is none
        return None
    return None if bounded.kind is None else f"proved {bounded.kind} ({bounded.scope})"


# -- all of them


@cache
def rules_by_name() -> dict[str, Rule]:
    """The standard rules."""
    return {rule.name: rule for rule in chosen([])}


def judge_rule(name: str) -> tuple[str, dict[str, Any]]:
    """The name of a standard rule, and what came of its mutants: how many were killed, and why others were not."""
    rule = rules_by_name()[name]
    made: dict[str, Any] = {"content": content(rule), "killed": 0, "equivalent": {}, "survived": {}}
    for mutant in chosen_mutants(rule):
        outcome = judge(rule, mutant)
        if outcome.fate == "killed":
            made["killed"] += 1
        else:
            made[outcome.fate][mutant.change] = outcome.why
    return name, made


def chosen_mutants(rule: Rule) -> list[Mutant]:
    """The mutants that are judged: all, or of a rule with very many some of each kind, the same ones every time."""
    every = mutants(rule)
    return every if len(every) <= MOST else [every[i * len(every) // MOST] for i in range(MOST)]


def judge_survivors(entry: tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """The entry of a rule once the mutants that survived have been judged again."""
    name, made = entry
    rule = rules_by_name()[name]
    known = {m.change: m for m in mutants(rule)}
    for change in list(made["survived"]):
        del made["survived"][change]
        outcome = judge_again(rule, known[change])
        if outcome.fate == "killed":
            made["killed"] += 1
        else:
            made[outcome.fate][change] = outcome.why
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


def share_killed(data: dict[str, dict[str, Any]]) -> float:
    """The share of mutants that are killed, of those that are not equivalent to their rule."""
    killed = sum(entry["killed"] for entry in data.values())
    survived = sum(len(entry["survived"]) for entry in data.values())
    return killed / max(killed + survived, 1)


def figures(data: dict[str, dict[str, Any]]) -> str:
    """How many mutants there are, and what came of them."""
    killed, equivalent, survived = (
        sum(entry["killed"] if fate == "killed" else len(entry[fate]) for entry in data.values())
        for fate in ("killed", "equivalent", "survived")
    )
    return (
        f"{killed + equivalent + survived} mutants of {len(data)} rules: {killed} killed, {equivalent} equivalent, "
        f"{survived} survived; {100 * share_killed(data):.1f} % of those that are not equivalent are killed"
    )


def main(arguments: list[str]) -> None:
    """Judge the mutants of the rules that are named, or of all; those of rules that are as they were stay judged."""
    parser = ArgumentParser(prog="python -m tests.rewrite.mutation")
    parser.add_argument("what", nargs="*", metavar="FILE_OR_NAME")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--least", type=float, default=0.0)
    options = parser.parse_args(arguments)
    data = current(stored(options.data))
    names = [rule.name for rule in chosen(options.what) if options.what or rule.name not in data]
    again = [(name, entry) for name, entry in data.items() if entry["survived"]]
    with get_context("spawn").Pool(options.jobs) as pool:
        judged = pool.imap_unordered(judge_survivors, again) if options.again else None
        for name, entry in judged or pool.imap_unordered(judge_rule, names):
            data[name] = entry
            for change, why in entry["survived"].items():
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
