"""Both sides of a rewrite agree at its place where the rule is right, and differ where it is wrong."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from graphopt.ir import work
from graphopt.ir.text import parse
from graphopt.optimize import optimize_graph
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.ruleset import standard
from graphopt.run import local_checks
from graphopt.run.local_checks import LocalCheck, check_places

NET = """x: float32[3, 4] w: float32[4, 4]
    h = Relu(Relu(MatMul(x, w)))
    s = Sin(h)
    y = Neg(Neg(Add(s, x)))
    return y"""
BRANCHES = """c: bool[] x: float32[3, 4]
    y = If(c | x, then_branch={ q: ? r = Exp(Neg(Neg(q))) return r }, else_branch={ q: ? r = Cos(q) return r })
    return y"""


def checks_of(text: str, rules: str = "") -> dict[str, LocalCheck]:
    """The gravest check of each rule that was applied."""
    pytest.importorskip("onnxruntime")
    graph = parse(text)
    _, report = optimize_graph(graph, standard() + parse_rules(rules, "wrong.rules") if rules else None)
    checks = check_places(graph, report.derivation)
    by_rule: dict[str, LocalCheck] = {}
    for entry in report.derivation.rewrites:
        if entry.rule not in by_rule or checks[entry.id].status != "checked":
            by_rule[entry.rule] = checks[entry.id]
    return by_rule


@pytest.mark.parametrize("text", [NET, BRANCHES])
def test_right_rewrites_agree(text: str) -> None:
    checks = checks_of(text)
    assert {"relu-relu", "neg-neg"} & checks.keys()
    assert {check.status for check in checks.values()} == {"checked"}


def test_the_wrong_one_of_several_differs() -> None:
    checks = checks_of(NET, "# not true  [C1] exact always\nwrong:  Sin(x)  =>  Cos(x)\n")
    assert {rule for rule, check in checks.items() if check.status != "checked"} == {"wrong"}
    assert checks["wrong"].status == "differs"
    assert "times the tolerance" in checks["wrong"].why


def test_what_earlier_rewrites_made_is_what_later_ones_are_checked_on() -> None:
    wrong = "# not true  [C1] exact always\nwrong:  Sin(x)  =>  Softplus(x)\n"
    right = "# true  [C1] reals always\nright:  Softplus(x)  =>  Log(Add(1.0, Exp(x)))\n"
    checks = checks_of(NET, wrong + right)
    assert checks["wrong"].status == "differs"
    assert checks["right"].status == "checked"


def test_a_branch_that_is_not_taken_is_checked_too() -> None:
    rule = "# not true  [C1] exact always\nwrong:  {}(x)  =>  Sqrt(x)\n"
    for op in ("Exp", "Cos"):
        assert checks_of(BRANCHES, rule.format(op))["wrong"].status == "differs"


def test_noise_excuses_no_rule_that_claims_equal_bits() -> None:
    chaos = "x: float32[4, 16] y = Sin(Mul(x, 1e9)) return y"
    rule = "# not true  [C1] {} always\nwrong:  Sin(x)  =>  Cos(x)\n"
    assert checks_of(chaos, rule.format("exact"))["wrong"].status == "differs"
    assert checks_of(chaos, rule.format("reals"))["wrong"].status == "rounding"


def test_what_there_is_no_time_for_is_unchecked_and_says_why() -> None:
    graph = parse(NET)
    _, report = optimize_graph(graph)
    checks = check_places(graph, report.derivation, seconds=0.0)
    assert {check.status for check in checks.values()} == {"unchecked"}
    assert "longer than 0 s" in next(iter(checks.values())).why


def test_the_process_that_checks_has_a_limit_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_checks, "memory_of", lambda model_bytes: 0)
    checks = checks_of(NET)
    assert {check.status for check in checks.values()} == {"unchecked"}
    assert all("memory" in check.why.lower() or "ended" in check.why for check in checks.values()), checks


def test_sizes_that_the_original_ran_with_are_tried_first(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    graph = parse("x: float32[n, 3] y = Reshape(Neg(Neg(x)), [21]) z = Exp(Exp(y)) return z")
    _, report = optimize_graph(graph)
    tried = []
    monkeypatch.setattr(local_checks, "Interpreter", lambda name: answers_here)
    monkeypatch.setattr(local_checks, "confine", lambda memory: None)
    monkeypatch.setattr(work, "excess", lambda graph, sizes, *most: tried.append(sizes) or "")
    checks = check_places(graph, report.derivation, accepted=[{"n": 7}])
    assert {check.status for check in checks.values()} == {"checked"}
    assert tried == [{"n": 7}]


def answers_here(folder: Path, seconds: float) -> subprocess.CompletedProcess[bytes]:
    local_checks.answer(str(folder))
    return subprocess.CompletedProcess([], 0, b"", b"")
