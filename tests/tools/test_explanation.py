"""Where nodes come from, where rules act, which rewrite is to blame, and the result without it: also as commands."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import graphopt
from graphopt.cli import run
from graphopt.errors import InvalidModelError, UsageError
from graphopt.ir import onnx_io
from graphopt.ir.text import parse
from graphopt.rewrite.egraph.saturate import SaturationBudget
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.ruleset import Ruleset
from graphopt.run.derivation import journal_path, read_derivation
from graphopt.target import target
from graphopt.tools.explanation import bisect, explain_node, explain_rule, revert

SWISH = """x: float32[2, 4]
    a = Relu(Relu(x))
    b = Add(a, 3.0)
    c = Clip(b, 0.0, 6.0)
    d = Mul(a, c)
    y = Div(d, 6.0)
    z = Abs(x)
    w = Div(x, 6.0)
    return y, z, w"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "in.onnx"
    onnx_io.save(parse(SWISH), path)
    return path


@pytest.fixture
def result(model: Path) -> Path:
    path = model.with_name("out.onnx")
    assert run(["optimize", str(model), "-o", str(path), "-q"]) == 0
    return path


def ops(path: Path) -> list[str]:
    return sorted(n.op for n in onnx_io.load(path).nodes() if n.op not in ("Input", "Constant"))


def blames(op: str, tmp_path: Path) -> str:
    """A command that fails on models with the op."""
    script = tmp_path / "check.py"
    script.write_text(
        f"import sys, onnx\nsys.exit(any(n.op_type == {op!r} for n in onnx.load(sys.argv[1]).graph.node))\n"
    )
    return f"{sys.executable} {script} {{}}"


def test_a_node_is_traced_back_to_the_original(result: Path) -> None:
    origins = explain_node(result, "y")
    assert origins.op == "HardSwish"
    assert [e.rule for e in origins.chain][-1].startswith("hard-swish")
    assert all(n.id in {e.id for e in origins.chain} for e in origins.chain for n in origins.chain if n.id in e.needs)
    assert explain_node(result, "z").chain == ()


def test_what_is_not_there_is_said(result: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no node is called 'nowhere'"):
        explain_node(result, "nowhere")
    other = tmp_path / "other.onnx"
    onnx_io.save(parse("x: float32[4] y = Neg(Neg(x)) z = Relu(x) return y, z"), other)
    graphopt.optimize(other, output=tmp_path / "o.onnx", verify="off", journal=tmp_path / "other.json")
    with pytest.raises(InvalidModelError, match=r"which the journal other\.onnx lacks"):
        explain_node(result, "y", tmp_path / "other.json")


def test_a_rule_tells_where_it_acts_and_what_it_lacks(model: Path) -> None:
    found = explain_rule(model, "hard-swish-div", target=target("ort"))
    assert [e.site for e in found.fired] == ["y"]
    reasons = {why: sites for why, sites in found.misses.items() if "w" in sites}
    assert reasons


def test_a_rule_that_is_not_on_says_so(model: Path) -> None:
    found = explain_rule(model, "winograd")
    assert "not on for target portable" in next(iter(found.misses))


def test_the_rewrite_to_blame_is_found(model: Path, tmp_path: Path) -> None:
    culprit = bisect(model, blames("HardSwish", tmp_path))
    assert culprit.entry.rule.startswith("hard-swish")
    with pytest.raises(UsageError, match=r"fails on .* itself"):
        bisect(model, blames("Clip", tmp_path))
    with pytest.raises(UsageError, match="nothing to find"):
        bisect(model, blames("Conv", tmp_path))


def test_a_rewrite_is_taken_back(model: Path, result: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    number = explain_node(result, "y").chain[-1].id
    again = tmp_path / "again.onnx"
    done = revert(model, result, [f"#{number}"], again, verify="require")
    assert done.verification.status == "verified"
    assert "HardSwish" not in ops(again)
    assert ops(again).count("Relu") == 1
    assert number in read_derivation(journal_path(again)).without
    assert run(["revert", str(model), str(again), "relu-holds", "-o", str(tmp_path / "more.onnx"), "-q"]) == 0
    assert ops(tmp_path / "more.onnx").count("Relu") == 2


def test_the_commands_print_entries(
    model: Path, result: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", str(result), "y"]) == 0
    assert "hard-swish" in capsys.readouterr().out
    assert run(["explain", str(result), "z"]) == 0
    assert "as it was in the original" in capsys.readouterr().out
    assert run(["explain", str(model), "--rule", "relu-holds"]) == 0
    assert "acts at 1 place, of 2 where its left side is\n" in capsys.readouterr().out
    assert run(["bisect", str(model), "--check", blames("HardSwish", tmp_path), "-q"]) == 0
    assert "begins to fail" in capsys.readouterr().out
    assert run(["explain", str(result)]) == 2
    assert run(["explain", str(model), "y"]) == 0
    journal_path(result).unlink()
    assert run(["explain", str(result), "y"]) == 3
    assert "graphopt optimize writes one beside its result" in capsys.readouterr().err


# -- why did it not fire?


@dataclass(frozen=True)
class Planted:
    """A rule, the model in which it does not fire at ``y``, and why."""

    rule: str
    model: str
    why: str
    where: str = "y"
    options: Mapping[str, Any] = field(default_factory=dict)


SQUARE = "[A1] reals\nrule: Mul(x, x) => Pow(x, 2.0)"
HARD_SWISH = """x: float32[2, 64]
    b = Add(x, 3.0)
    c = Clip(b, 0.0, 6.0)
    d = Mul(x, c)
    y = Div(d, 6.0)
    return y"""

PLANTED = {
    "rank": Planted(
        "[A1] reals\nrule: Add(MatMul(x, w), b) => Gemm(x, w, b)\n    where x.rank == 2",
        "x: float32[2, 3, 4] w: float32[4, 5] b: float32[5] m = MatMul(x, w) y = Add(m, b) return y",
        "`x` has rank 3, the rule wants 2",
    ),
    "a constant": Planted(
        "[A1] reals\nrule: Div(x, c) => Mul(x, Reciprocal(c))\n    where c.is_const",
        "x: float32[4] c: float32[4] y = Div(x, c) return y",
        "`c` is not a constant",
    ),
    "used elsewhere": Planted(
        "[A1] reals\nrule: Relu(Neg(x) as n) => Min(x, 0.0)\n    where n.uses == 1",
        "x: float32[4] n = Neg(x) y = Relu(n) z = Abs(n) return y, z",
        "`n` is used 2 times, the rule wants 1",
    ),
    "an output": Planted(
        "[A1] reals\nrule: Relu(Neg(x) as n) => Min(x, 0.0)\n    where n.uses == 1",
        "x: float32[4] n = Neg(x) y = Relu(n) z = Abs(x) return y, z, n",
        "`n` is used 2 times, the rule wants 1",
    ),
    "needed all the same": Planted(
        "[A1] reals\nrule: Relu(Neg(x)) => Abs(Neg(Abs(Abs(x))))",
        "x: float32[4] n = Neg(x) y = Relu(n) return y, n",
        "costs more: .* for the model, .* without it .* for what it replaces; n is needed all the same.",
    ),
    "the opset": Planted(
        "[H8] reals\nrule: Mul(x, HardSigmoid(x, alpha=a)) => HardSwish(x)\n"
        "# one op [H8] reals\n"
        "first: Div(Mul(x, Clip(Add(x, 3.0), 0.0, 6.0)), 6.0) => Mul(x, HardSigmoid(x, alpha=1 / 6))",
        f"graph old (ir 8, opset 11) {HARD_SWISH}",
        "HardSwish needs opset 14, the model has 11",
    ),
    "the price": Planted(
        SQUARE, "x: float32[4] y = Mul(x, x) return y", r"costs more: .* for the model, .* without it \(.* for it, .*"
    ),
    "the target": Planted(
        "[A1] reals\nrule: Mul(x, Sigmoid(x)) => com.microsoft::QuickGelu(x, alpha=1.0)",
        "x: float32[4] s = Sigmoid(x) y = Mul(x, s) return y",
        "rule is not on for target portable and policy reals: portable takes no com.microsoft::QuickGelu",
    ),
    "whom it is for": Planted(
        "[A1] reals for ort\nrule: Mul(x, x) => Pow(x, 2.0)",
        "x: float32[4] y = Mul(x, x) return y",
        "rule is not on for target portable and policy reals: it is for ort",
    ),
    "the policy": Planted(
        "[A1] approx\nrule: Tanh(x) => x",
        "x: float32[4] y = Tanh(x) return y",
        "rule is not on for target portable and policy reals: it is approx, which --policy reals does not admit",
    ),
    "a size": Planted(
        "[A1] reals\nrule: Add(x, z) => Sub(x, Neg(z))\n    where x.shape[0] == z.shape[0]",
        "x: float32[N, 4] z: float32[M, 4] y = Add(x, z) return y",
        r"x\.shape\[0\] is N, which is not known to be M",
    ),
    "a type": Planted(
        "[A1] reals\nrule: Concat(x, z, axis=0) => Concat(Neg(Neg(x)), z, axis=0)\n    where x.dtype in float",
        "x: int64[4] z: int64[4] y = Concat(x, z, axis=0) return y",
        "`x` has dtype int64, the rule wants float",
    ),
    "an attribute": Planted(
        "[A1] reals\nrule: Relu(Softmax(x, axis=0)) => Softmax(x, axis=0)",
        "x: float32[2, 4] s = Softmax(x, axis=1) y = Relu(s) return y",
        "attribute axis of Softmax is 1, the rule wants 0",
    ),
    "the order": Planted(
        "[A1] reals\nrule: Sub(x, Relu(x)) => Min(x, 0.0)",
        "x: float32[4] r = Relu(x) y = Sub(r, x) return y",
        "an operand is an input of the graph, the rule wants Relu",
    ),
    "another came first": Planted(
        "[A1] reals\nrule: Relu(Relu(Abs(x))) => Abs(x)\n# first [A1] reals always\nfirst: Relu(Relu(x)) => Relu(x)",
        "x: float32[4] a = Abs(x) r = Relu(a) y = Relu(r) return y",
        r"first \(#\d+\) acted there first",
    ),
    "the limit on e-nodes": Planted(
        "[A1] reals\nrule: Max(a, b) => Where(Less(a, b), b, a)\n# many [A1] reals\nmore: Abs(x) => Max(x, Neg(x))",
        "x: float32[4] y = Abs(x) return y",
        "held back by the budget: exploration stopped at its limit on iterations",
        options={"budget": SaturationBudget(iters=1)},
    ),
    "enough of it": Planted(
        "[A1] reals\nrule: Neg(x) => Sub(0.0, x)",
        "x: float32[4] a = Neg(x) b = Abs(a) y = Neg(b) return y",
        r"held back by the budget: there is enough of it \(builds=1\)",
        options={"budget": SaturationBudget(builds=1)},
    ),
}


@pytest.mark.parametrize("case", PLANTED.values(), ids=PLANTED)
def test_it_is_told_why_a_rule_did_not_fire(case: Planted) -> None:
    rules = Ruleset(tuple(parse_rules(f"# {case.rule}\n", "planted.rules")))
    found = explain_rule(parse(case.model), "rule", rules, **case.options)
    assert case.where not in [e.site for e in found.fired]
    why = [why for why, sites in found.misses.items() if case.where in sites]
    assert why, found.misses
    assert re.fullmatch(case.why, why[0])


def test_operands_in_the_other_order_are_the_same() -> None:
    rules = Ruleset(tuple(parse_rules("# one op [A1] reals\nrule: Add(x, Neg(y)) => Sub(x, y)\n", "planted.rules")))
    found = explain_rule(parse("x: float32[4] a: float32[4] n = Neg(a) y = Add(n, x) return y"), "rule", rules)
    assert [e.site for e in found.fired] == ["y"]
    assert found.places == 1


def test_a_guard_on_what_may_be_nan_is_told() -> None:
    masked = """s: float32[2, 2]
        m = float32[2, 2]{0.0, 0.0, -inf, -inf}
        a = Add(s, m)
        p = Softmax(a)
        n = IsNaN(p)
        y = Where(n, 0.0, p)
        return y"""
    found = explain_rule(parse(masked), "nan-guard-mask")
    assert not found.fired
    (why,) = [why for why, sites in found.misses.items() if "y" in sites]
    assert "blanks" in why


def test_a_bisection_that_ends_early_tells_what_is_left(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, early = (bisect(model, blames("HardSwish", tmp_path), seconds=seconds) for seconds in (None, 0))
    assert (whole.ending, whole.others) == ("", ())
    assert early.ending == "time"
    assert whole.entry in (*early.others, early.entry)
    assert run(["bisect", str(model), "--check", blames("HardSwish", tmp_path), "--seconds", "0", "-q"]) == 0
    assert "when time was up, it was one of these" in capsys.readouterr().out
