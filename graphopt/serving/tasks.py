"""Tasks of a worker process: a model drawn, rules checked, proved, run and explained. Each takes a request, as
``serving.app`` has read it, and gives what the page shows.

Rules are text in the notation, which is data, or Python, which runs as any program does and comes here only where the
owner of the machine allows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import join
from time import process_time
from typing import Any, Final

from graphopt.calibration.table import priced
from graphopt.display import encoded
from graphopt.errors import RuleError
from graphopt.frozen import dataclass
from graphopt.ir import onnx_io
from graphopt.optimize import candidates, optimize
from graphopt.rewrite.checking.check import QUICK, check_rule
from graphopt.rewrite.reading.modules import importing_from, rules_of_file
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.rule.rule import Rule
from graphopt.rewrite.rule.rule_digest import content
from graphopt.rewrite.ruleset import Ruleset, standard
from graphopt.target import target as target_named
from graphopt.tools.egraph import Kept
from graphopt.tools.explanation import RuleExplanation, explain_rule
from graphopt.tools.rule_evidence import prove
from graphopt.tools.vocabulary import vocabulary
from graphopt.web.page import data, write_page
from graphopt.web.playground import WrittenRules, drawn_model, fired, line_of, misses
from graphopt.web.runs import page_of_report

Request = Mapping[str, Any]
Answer = dict[str, Any]

PYTHON: Final = "python"
"""The language of rules that run; the other is the notation."""
FILES: Final = {"rules": "your.rules", PYTHON: "your_rules.py"}
"""What messages call the rules that were sent, by their language."""
ALONE: Final = "mine"
"""The rules that were sent, without the standard ones."""
RESULT, PAGE = "result.onnx", "page.html"
"""What a run leaves in its folder: the model that it made, and the page of it."""
EACH: Final = 1.0
"""Seconds of the processor that the check of a rule may take,"""
SLICE: Final = 3.0
"""and after so many in all, those that are left wait for another request."""
MOST: Final = 200
"""Rules of a text that are checked while it is typed."""
_PLACE: Final = re.compile(rf"(?:{'|'.join(map(re.escape, FILES.values()))}):(?:(\d+):)?(?:(\d+):)? (.*)", re.S)


@dataclass(frozen=True, slots=True)
class CheckedRule:
    """What is known of a rule: ``right`` with the number of random inputs, ``wrong`` with a counterexample, ``late``
    where there was no time for any input, ``waiting``, or ``beyond`` the first so many. ``key`` is a digest of what the
    rule claims."""

    rule: str
    line: int | None
    key: str
    state: str
    compared: int = 0
    problem: str = ""


def rules_of(request: Request) -> list[Rule]:
    """The rules that were sent. RuleError where they make no sense."""
    file = FILES[request["language"]]
    if request["language"] != PYTHON:
        return parse_rules(request["rules"], file)
    Path(file).write_text(request["rules"], encoding="utf-8")
    with importing_from(request["root"], first=False):
        return rules_of_file(Path(file))


def complaint(message: str) -> Answer:
    """An error as the page shows it, with the line and column where it is one in the rules."""
    match = _PLACE.match(message)
    if match is None:
        return {"error": message}
    if match[1] is None:
        return {"error": match[3]}
    return {"error": match[3], "line": int(match[1]), "column": int(match[2] or 1)}


def drawn(request: Request) -> Answer:
    """A model, before anything ran."""
    return {"model": encoded(drawn_model(onnx_io.load(request["model"])))}


def checked(request: Request) -> Answer:
    """What comes of each rule on random tensors. ``known`` has what came of rules before, by their keys."""
    rules, known = rules_of(request), dict(request["known"])
    until = process_time() + SLICE
    rows = []
    for number, rule in enumerate(rules):
        key = content(rule)
        if key not in known and number < MOST and process_time() < until:
            known[key] = _verdict(rule)
        unknown = {"state": "waiting" if number < MOST else "beyond"}
        rows.append(CheckedRule(rule.name, line_of(rule), key, **known.get(key, unknown)))
    return {"checks": encoded(rows)}


def _verdict(rule: Rule) -> Answer:
    report = check_rule(rule, depth=replace(QUICK, seconds=EACH))
    state = "wrong" if report.problem is not None else "right" if report.compared else "late"
    return {"state": state, "compared": report.compared, "problem": report.problem or ""}


def proved(request: Request) -> Answer:
    """The strongest evidence for a rule, or what refutes it."""
    evidence = prove(_named(rules_of(request), request["rule"]))
    if evidence.evidence is None:
        return {"refuted": evidence.counterexample}
    return {"evidence": f"{evidence.evidence}{f'; no proof: {evidence.why}' if evidence.why else ''}"}


def _named(rules: Sequence[Rule], name: str) -> Rule:
    for rule in rules:
        if rule.name == name:
            return rule
    raise RuleError(f"no rule is called {name!r} here")


def _all_rules(request: Request, mine: Sequence[Rule]) -> Ruleset:
    return Ruleset(tuple(mine)) if request["with"] == ALONE else standard() + Ruleset(tuple(mine))


def run(request: Request) -> Answer:
    """What rules do to a model: the page of the run, and in the folder of the task the result and the same page."""
    mine = rules_of(request)
    target = target_named(request["target"], makes_models=True)
    kept = Kept(candidates(target, priced(target).target))
    _, report = optimize(
        request["model"],
        output=RESULT,
        rules=_all_rules(request, mine),
        target=target,
        policy=request["policy"],
        memory=request["memory"],
        return_report=True,
        steps=kept.steps(),
    )
    report = replace(report, model=request["name"], output=None)
    rows, until = list(fired(mine, report)), 2 * process_time()
    for k, row in enumerate(rows):
        if not row.kept and process_time() < until:  # others are explained when somebody asks
            rows[k] = replace(row, misses=misses(_explanation(request, mine, row.rule)))
    written = WrittenRules(request["rules"], request["language"], _command(request, mine), tuple(rows))
    page = replace(page_of_report(report, kept.told(report)), written=written)
    write_page(page, Path(PAGE))
    return {"page": data(page)}


def _command(request: Request, mine: Sequence[Rule]) -> str:
    """The command that does the same."""
    model = request["name"].rpartition("/")[2].rpartition(": ")[2]
    words = ["graphopt", "optimize", model, "-o", f"{Path(model).stem}.opt.onnx"]
    words += ["--rules", FILES[request["language"]]] if mine else []
    words += [word for rule in mine for word in ("--only", rule.name)] if request["with"] == ALONE else []
    return join([*words, "--target", request["target"], "--policy", request["policy"]])


def explained(request: Request) -> Answer:
    """Why a rule did nothing where it might have."""
    return {"misses": encoded(misses(_explanation(request, rules_of(request), request["rule"])))}


def _explanation(request: Request, mine: Sequence[Rule], name: str) -> RuleExplanation:
    _named(mine, name)
    target = target_named(request["target"], makes_models=True)
    return explain_rule(request["model"], name, _all_rules(request, mine), target, request["policy"])


def words(request: Request) -> Answer:
    """The vocabulary of rules."""
    return encoded(vocabulary())  # type: ignore[no-any-return]


TASKS: Final[Mapping[str, Callable[[Request], Answer]]] = {
    "draw": drawn,
    "check": checked,
    "prove": proved,
    "run": run,
    "explain": explained,
    "words": words,
}
"""Who does what is asked for."""
