from graphopt.ir.text import parse
from graphopt.rewrite.match.matcher import matches
from graphopt.rewrite.match.statistics import RuleStatistics, Statistics
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.ruleset import standard


def test_explorations_add_up() -> None:
    statistics = Statistics()
    statistics.add({"a": RuleStatistics(3, 1, {"no": 2}, 0.5)})
    statistics.add({"a": RuleStatistics(2, 2, {"no": 1, "never": 1}, 0.25), "b": RuleStatistics()})
    assert statistics.of("a") == RuleStatistics(5, 3, {"no": 3, "never": 1}, 0.75)
    assert statistics.of("b") == RuleStatistics()


def test_matches_are_counted_though_they_are_given_up() -> None:
    graph = parse("x: float32[2, 3]\na = Ceil(x)\ny = Ceil(a)\nreturn y")
    (rule,) = standard().named("idempotent").rules
    statistics = Statistics()
    found = statistics.watched(rule, matches(rule, Workspace(graph), graph.node(graph.outputs[0].node)))
    assert any(match.rule is rule for match in found)
    del found
    assert statistics.of(rule.name).tried == 1
    assert statistics.of(rule.name).seconds > 0
