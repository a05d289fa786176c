"""Mutants of the standard rules: each is a rule with one thing wrong, and some check must see it.

Run as a script it makes the mutants of every rule, checks them, and writes what came of them to ``mutation.json``:

    python -m tests.rewrite.mutation [--jobs 2] [--write] [--again [EFFORT]] [--narrower] [--kinds KIND...]
        [--data FILE] [--least 0.9] [FILE_OR_NAME...]

What was judged of rules that have not changed since is not judged again; ``--again`` judges the mutants that survived
once more, on so many times as many graphs. ``--data`` is another file to keep that in, and with ``--least`` it is an
error if a smaller share is killed.

A mutant is judged on graphs (``mutant_trials``), and on more of them, twice, while it survives (``LOOKS``).

A rule that has changed has to hold where the guards that it once needed are violated, and to apply where it did
(``relapse``), so that one that was edited wrong cannot be written down as right by judging it again.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from graphopt.errors import GraphoptError
from graphopt.rewrite.checking.check import chosen
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.rule.notation import show_expr, show_rule
from graphopt.rewrite.rule.rule import Rule, RuleStage
from graphopt.saving import beside
from tests.rewrite.mutant_trials import Outcome, Trial, judge
from tests.rewrite.mutants import Mutant, mutants

DATA = Path(__file__).with_name("mutation.json")
FATES = ("equivalent", "profitability", "survived")
"""What may come of a mutant that is not killed."""
KINDS = ("dropped", "guard", "constant", "attribute", "operand")
"""What is wrong with a mutant: a guard is dropped or another, or something on a side is."""
LOOKS = (1, 4, 16)
"""Mutants are judged on so many times as many graphs, one after another, while they survive."""


def relapse(rule: Rule, was: str, needed: Iterable[str], is_narrower: bool = False) -> str | None:
    """What is wrong with a rule where guards that it once needed are violated, or where it applied as it was. A guard
    that speaks of what the rule has no more has nothing to say. ``is_narrower``: it may apply to less."""
    for text in needed:
        if any(show_expr(guard) == text for guard in rule.where):
            continue
        try:
            written = show_rule(replace(rule, where=())).rstrip()
            (other,) = parse_rules(f"{written}\n    where {text}", strict=True)
        except GraphoptError:
            continue
        (guard,) = other.where
        outcome = judge(replace(rule, where=(*rule.where, guard)), Mutant(rule, "", "dropped", guard))
        if outcome.fate == "killed":
            return f"{rule.name} needs `{text}`: {outcome.why}"
    try:
        (old,) = parse_rules(was, strict=True)
    except GraphoptError:
        return None
    if not is_narrower and any(not place.matched(rule) for place in Trial(old).fitting):
        return f"{rule.name} applies to less than it did; --narrower takes that as it is meant"
    return None


def relapses(rules: Iterable[Rule], is_narrower: bool = False) -> Iterator[str]:
    """What is wrong with those of these rules that have changed since their mutants were judged."""
    known = stored()
    for rule in rules:
        entry = known.get(rule.name, {})
        if entry and entry["rule"] != text_of(rule):
            problem = relapse(rule, entry["rule"], entry["needed"], is_narrower)
            if problem is not None:
                yield problem


def text_of(rule: Rule) -> str:
    """A rule as it is written, without what does not matter to its truth."""
    plain = replace(rule, name="r", reason="why", family="A1", pays=())
    return show_rule(replace(plain, stage=RuleStage.EXPLORE, targets=frozenset()))


# -- all of them


@cache
def rules_by_name() -> dict[str, Rule]:
    """The standard rules."""
    return {rule.name: rule for rule in chosen([])}


def judge_rule(task: tuple[str, dict[str, Any], tuple[str, ...], int | None]) -> tuple[str, dict[str, Any]]:
    """The name of a standard rule, and its entry once the mutants of some kinds have been judged: how many were killed,
    and why others were not. With an effort, only those that survived are judged again."""
    name, entry, kinds, effort = task
    rule = rules_by_name()[name]
    made: dict[str, Any] = {"needed": [], **entry, "rule": text_of(rule)}
    judged: list[Mutant] = []
    changes = {m.change for m in mutants(rule)}
    for kind in kinds:
        old = made.get(kind, {}) if effort else {}
        made[kind] = {fate: dict(old.get(fate, {})) for fate in FATES} | {"killed": Counter(old.get("killed", {}))}
        survived = made[kind]["survived"] = {c: why for c, why in made[kind]["survived"].items() if c in changes}
        judged += (m for m in mutants(rule) if m.kind == kind and (not old or survived.pop(m.change, None) is not None))
    outcomes: dict[Mutant, Outcome] = {}
    for look in (effort,) if effort else LOOKS:
        if left := [m for m in judged if m not in outcomes or outcomes[m].fate == "survived"]:
            outcomes |= {outcome.mutant: outcome for outcome in Trial(rule, look).outcomes(left)}
    for mutant, outcome in outcomes.items():
        if outcome.fate != "killed":
            made[mutant.kind][outcome.fate][mutant.change] = outcome.why
            if mutant.kind == "dropped" and mutant.guard is not None and outcome.fate != "survived":
                made["needed"] = [guard for guard in made["needed"] if guard != show_expr(mutant.guard)]
            continue
        made[mutant.kind]["killed"][outcome.why.partition(": ")[0][:40]] += 1
        if mutant.kind == "dropped" and mutant.guard is not None:
            made["needed"] = sorted({*made["needed"], show_expr(mutant.guard)})
    for kind in kinds:
        made[kind] = {fate: found for fate, found in made[kind].items() if found}
    return name, made


def stored(file: Path = DATA) -> dict[str, dict[str, Any]]:
    """What came of the mutants of each rule when it was last judged."""
    found: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found


def current(data: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What is stored of rules that are as they were."""
    return {
        name: data[name] for name, rule in rules_by_name().items() if data.get(name, {}).get("rule") == text_of(rule)
    }


def counts(data: dict[str, dict[str, Any]], kinds: tuple[str, ...] = KINDS) -> Counter[str]:
    """How many mutants of some kinds there are of each fate."""
    found: Counter[str] = Counter()
    for made in (entry[kind] for entry in data.values() for kind in kinds if kind in entry):
        found["killed"] += sum(made.get("killed", {}).values())
        found.update({fate: len(made.get(fate, {})) for fate in FATES})
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
        fates = ", ".join(f"{found[fate]} {fate}" for fate in ("killed", *FATES))
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
    parser.add_argument("--again", type=int, nargs="?", const=LOOKS[-1], metavar="EFFORT")
    parser.add_argument("--narrower", action="store_true")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--least", type=float, default=0.0)
    options = parser.parse_args(arguments)
    data = current(stored(options.data))
    rules = chosen(options.what)
    for problem in relapses(rules, options.narrower):
        sys.exit(problem)
    tasks = []
    for rule in rules:
        entry = data.get(rule.name, {})
        judged = {kind for kind in KINDS if kind in entry}
        survived = {kind for kind in judged if entry[kind].get("survived")}
        kinds = tuple(k for k in options.kinds if (k in survived if options.again else k not in judged or options.what))
        if kinds:
            tasks.append((rule.name, entry, kinds, options.again))
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        running = {pool.submit(judge_rule, task): task[0] for task in tasks}
        for done in as_completed(running):
            try:
                name, entry = done.result()
            except BrokenProcessPool:
                left = ", ".join([name for job, name in running.items() if not job.done() or job.exception()][:3])
                sys.exit(f"a process ended while it judged one of {left}, ...; what is judged is kept")
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
