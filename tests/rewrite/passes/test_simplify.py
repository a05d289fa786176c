"""Rules and passes run to a fixed point, and leave names, inputs and outputs alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib import import_module

import pytest

from graphopt.errors import RuleError, words_of
from graphopt.ir.graph import Graph, Node, Value
from graphopt.ir.infer import infer
from graphopt.ir.text import parse, show
from graphopt.rewrite.derivations.replay import replay
from graphopt.rewrite.match.build import constant_of, replacements
from graphopt.rewrite.match.describe import describe
from graphopt.rewrite.match.journal import Journal
from graphopt.rewrite.match.match_terms import ValueBindings
from graphopt.rewrite.match.statistics import Statistics
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.passes import PASSES, NativePass
from graphopt.rewrite.passes.simplify import PLACES, simplify
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.rule.rule import Rule


def rules(*texts: str) -> list[Rule]:
    return parse_rules("\n".join(f"# why [A1] reals always\nr{i}: {t}\n" for i, t in enumerate(texts)))


def simplified(text: str, *texts: str) -> str:
    return show(simplify(parse(text), rules(*texts))).split("\n", 1)[1].strip()


NEG = "Neg(Neg(x)) => x"


def test_rules_run_until_none_applies() -> None:
    source = "x: float32[2] y = Neg(Neg(Neg(Neg(Neg(x))))) return y"
    assert simplified(source, NEG) == "x: float32[2]\ny = Neg(x)\nreturn y"


def test_a_rewrite_below_lets_another_apply_above() -> None:
    source = "x: float32[2, 3] y = Neg(Transpose(Transpose(Neg(x)))) return y"
    turn = "Transpose(Transpose(x, perm=p), perm=q) => Transpose(x, perm=compose(p, q))"
    none = "Transpose(x, perm=p) => x where is_identity(p)"
    assert simplified(source, NEG, turn, none) == "x: float32[2, 3]\nreturn x as y"


def test_what_is_not_changed_comes_back() -> None:
    graph = parse("x: float32[2] y = Neg(x) return y")
    assert simplify(graph, rules(NEG)) is graph
    again = simplify(parse("x: float32[2] y = Neg(Neg(Neg(x))) return y"), rules(NEG))
    assert simplify(again, rules(NEG)) is again


def test_the_graph_itself_is_not_changed() -> None:
    graph = parse("x: float32[2] y = Neg(Neg(x)) return y")
    before = show(graph)
    assert simplify(graph, rules(NEG)) is not graph
    assert show(graph) == before


def test_names() -> None:
    graph = simplify(
        parse("x: float32[2] h = Neg(x) y = Relu(h) return y, h"),
        rules("Relu(x) => Max(x, 0.0)", "Neg(x) => Sub(0.0, x)"),
    )
    assert graph.output_names == ["y", "h"]
    assert "h = Sub(" in show(graph)
    assert "y = Max(h" in show(graph)


def test_bodies_are_simplified_too() -> None:
    source = """c: bool[] x: float32[2]
        y = If(c | x, then_branch={ q: ? r = Neg(Neg(q)) return r }, else_branch={ q: ? r = Abs(q) return r })
        return y"""
    made = show(simplify(parse(source), rules(NEG)))
    assert "Neg" not in made
    assert "Abs" in made


def test_bodies_know_what_they_capture() -> None:
    source = """c: bool[] x: float32[2, 3]
        y = If(c | x, then_branch={ q: ? s = Shape(q) return s },
            else_branch={ q: ? s = Shape(Transpose(q)) return s })
        return y"""
    made = show(simplify(parse(source)))
    assert "Shape" not in made
    assert "[2, 3]" in made


def test_the_journal() -> None:
    journal = Journal()
    graph = parse("x: float32[2] a = Neg(x) b = Neg(a) y = Relu(b) d = Abs(x) return y")
    simplify(graph, rules(NEG), journal=journal)
    assert [(e.rule, e.site, e.before, e.after) for e in journal.rewrites] == [
        ("unused-node", "d", "Abs(x)", ""),
        ("r0", "b", "Neg(Neg(x))", "x"),
    ]


def test_what_a_rule_leaves_unread_goes_with_it_whatever_else_runs() -> None:
    text = "x: float32[2] a = Neg(x) b = Neg(a) y = Relu(b) d = Abs(x) return y"
    journal = Journal()
    result = simplify(parse(text), rules(NEG), (), journal=journal)
    assert [n.op for n in result.order() if n.op != "Input"] == ["Relu", "Abs"]
    assert [e.rule for e in journal.rewrites] == ["r0"]
    again = replay(parse(text), list(journal), {r.name: r for r in rules(NEG)}, {})
    assert show(again.graph) == show(result)


def test_rules_that_undo_each_other_are_an_error() -> None:
    graph = parse("x: float32[2] y: float32[2] z = Sub(x, y) return z")
    turn = rules("Sub(a, b) => Add(a, Neg(b))", "Add(a, Neg(b)) => Sub(a, b)")
    with pytest.raises(RuleError, match=r"does not end .* most often applied: r0, r1;"):
        simplify(graph, turn, limit=50)


def test_a_rule_that_makes_what_it_applies_to_is_an_error() -> None:
    graph = parse("x: float32[2] y = Relu(x) return y")
    with pytest.raises(RuleError, match="most often applied: r0;"):
        simplify(graph, rules("Relu(x) => Relu(Relu(x))"), limit=50)


def test_two_branches_of_a_chain_keep_what_others_read() -> None:
    source = "x: float32[2] a = Neg(x) b = Neg(a) y = Add(a, b) return y"
    assert simplified(source, NEG) == "x: float32[2]\na = Neg(x)\ny = Add(a, x)\nreturn y"


def test_a_long_chain_takes_linear_time() -> None:
    def chain(n: int) -> float:
        graph = parse("x: float32[2, 3] return x")
        value = graph.inputs[0]
        for i in range(n):
            value = graph.add(("Identity", "Neg")[i % 2], (value,)).outputs[0]
        graph.outputs = [value]
        start = time.process_time()
        made = simplify(graph, rules(NEG, "Identity(x) => x"))
        assert len(made) == 0
        return time.process_time() - start

    small = min(chain(500) for _ in range(3))
    assert chain(4000) < 8 * small * 3 + 0.2


def test_describe() -> None:
    graph = parse("x: float32[2] y = Clip(Neg(x), _, 6.0) z = Relu(y) return z")
    assert describe(graph, graph.outputs[0]) == "Relu(Clip(Neg(x), _, 6.0))"
    assert describe(graph, graph.outputs[0], depth=1) == "Relu(y)"


def test_facts_follow_edits() -> None:
    graph: Graph = parse("x: float32[12] s: int64[2] y = Reshape(x, s) z = Relu(y) return z")
    space = Workspace(graph.copy(), infer(graph))
    relu = space.graph.producer(space.graph.outputs[0])  # type: ignore[arg-type]
    reshape = space.graph.producer(relu.inputs[0])  # type: ignore[arg-type]
    space.update(reshape.id, inputs=(reshape.inputs[0], space.make_constant(constant_of((3, 4), None))))
    assert str(space.fact(relu.outputs[0]).type) == "float32[3, 4]"


@pytest.mark.parametrize("wrong", [IndexError("tuple index out of range"), ZeroDivisionError(), KeyError("q")])
@pytest.mark.parametrize("kind", ["visit", "sweep"])
def test_a_pass_in_which_something_goes_wrong_is_left_out(wrong: Exception, kind: str) -> None:
    """Half of an edit may be done by then: nothing of it stays, other passes act, and the journal says just that."""

    def fail(space: Workspace, node: Node | None = None) -> bool:
        if node is None or node.op == "Relu":
            space.replace(space.graph.outputs[0], space.graph.inputs[0])  # type: ignore[arg-type]
            raise wrong
        return False

    graph = parse("x: float32[2] y = Relu(Neg(Neg(x))) return y")
    act = {"visit": NativePass("odd", "", "A1", visit=fail), "sweep": NativePass("odd", "", "A1", sweep=fail)}[kind]
    rules = parse_rules("# twice the negative [H3] exact always\ndouble-neg: Neg(Neg(x)) => x")
    journal, statistics = Journal(), Statistics()
    result = simplify(graph, rules, (act, *PASSES), journal=journal, statistics=statistics)
    assert result.key() == parse("x: float32[2] y = Relu(x) return y").key()
    assert [entry.rule for entry in journal.rewrites] == ["double-neg"]
    where = "node 'y' (Relu)" if kind == "visit" else "graph "
    assert f"odd was left out, since it failed at {where}" in statistics.failed["odd"]
    assert type(wrong).__name__ in statistics.failed["odd"]
    with pytest.warns(UserWarning, match="odd was left out"):
        assert simplify(graph, rules, (act,)).key() == result.key()


def test_a_rule_or_pass_is_left_out_where_it_fails_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    module, made = import_module("graphopt.rewrite.passes.simplify"), replacements
    wrong = ZeroDivisionError("integer division or modulo by zero")

    def fails(rule: Rule, bindings: ValueBindings, roots: Sequence[Value], builder: Workspace) -> list[Value]:
        builder.make_constant(constant_of(1.0, "float32"))  # half of an edit
        if builder.graph.names.get(roots[0]) == "y":
            raise wrong
        return made(rule, bindings, roots, builder)

    monkeypatch.setattr(module, "replacements", fails)
    statistics, journal = Statistics(), Journal()
    graph = parse("x: float32[2] y = Neg(Neg(x)) z = Neg(Neg(Relu(x))) return y, z")
    result = simplify(graph, rules("Neg(Neg(x)) => x"), (), journal=journal, statistics=statistics)
    assert result.key() == parse("x: float32[2] y = Neg(Neg(x)) z = Relu(x) return y, z").key()
    assert [entry.rule for entry in journal.rewrites] == ["r0"]
    assert statistics.failed == {"r0": f"r0 was left out, since it failed at node 'y' (Neg): {words_of(wrong)}"}


def test_a_pass_that_fails_everywhere_is_left_out_after_a_few_places() -> None:
    places: list[int] = []

    def fail(space: Workspace, node: Node) -> bool:
        places.append(node.id)
        raise KeyError(node.op)

    calls = " ".join(f"y{i} = Relu(x{i})" for i in range(20))
    inputs = " ".join(f"x{i}: float32[2]" for i in range(20))
    graph = parse(f"{inputs} {calls} return {', '.join(f'y{i}' for i in range(20))}")
    statistics = Statistics()
    assert simplify(graph, (), (NativePass("odd", "", "A1", visit=fail),), statistics=statistics) is graph
    assert len(set(places)) == PLACES
