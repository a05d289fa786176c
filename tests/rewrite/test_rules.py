"""Every standard rule fires on examples of its own left side, and both its sides agree there."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from graphopt.ir.evaluate import run
from graphopt.ir.onnx_io import to_proto
from graphopt.ir.text import parse
from graphopt.optimize import optimize
from graphopt.rewrite.checking.check import DEEP, QUICK, CheckReport, Depth, check_rule, in_runtime
from graphopt.rewrite.checking.verdicts import Verdicts
from graphopt.rewrite.rule.rule import Rule, Soundness, calls
from graphopt.rewrite.ruleset import standard

VERDICTS = Verdicts()
"""What earlier runs found, kept by the content of rules and by all that a check rests on."""
STRICT = [rule for rule in standard().rules if rule.soundness in (Soundness.EXACT, Soundness.FINITE)]
"""Those of which every bit counts."""
FEW = Depth(2, 0)
"""In how many graphs they are asked of ONNX Runtime by default."""
MANY = Depth(24, 0)
THERE = [rule for rule in standard().rules if not rule.targets or "ort" in rule.targets]
"""Those whose results ONNX Runtime is to take."""
WRITING = [rule for rule in THERE if any("com.microsoft" in str(c.op) for term in rule.rhs for c in calls(term))]
"""Those of them that write ops of ONNX Runtime's own."""


@pytest.mark.parametrize("rule", standard().rules, ids=lambda rule: rule.name)
def test_both_sides_of_the_rule_agree(rule: Rule) -> None:
    problem = VERDICTS.check(rule).problem
    assert problem is None, f"{rule.source}: {problem}"


@pytest.mark.slow
@pytest.mark.parametrize("rule", standard().rules, ids=lambda rule: rule.name)
def test_both_sides_of_the_rule_agree_on_many_more(rule: Rule) -> None:
    problem = check_rule(rule, depth=DEEP).problem
    assert problem is None, f"{rule.source}: {problem}"


def _agree_in_onnxruntime(rule: Rule, report: CheckReport) -> None:
    """What ONNX Runtime computes of both sides is equal bit by bit, where it has kernels for both."""
    assert report.fired, rule.name
    assert not report.compared or report.problem is None, f"{rule.source}: {report.problem}"


@pytest.mark.parametrize("rule", STRICT, ids=lambda rule: rule.name)
def test_strict_rules_hold_in_onnxruntime(rule: Rule) -> None:
    pytest.importorskip("onnxruntime")
    _agree_in_onnxruntime(rule, VERDICTS.check(rule, depth=in_runtime(FEW)))


@pytest.mark.slow
@pytest.mark.parametrize("rule", STRICT, ids=lambda rule: rule.name)
def test_strict_rules_hold_in_onnxruntime_on_many_more(rule: Rule) -> None:
    pytest.importorskip("onnxruntime")
    _agree_in_onnxruntime(rule, check_rule(rule, depth=in_runtime(QUICK)))


@pytest.mark.parametrize("rule", WRITING, ids=lambda rule: rule.name)
def test_onnxruntime_takes_what_is_written_for_it(rule: Rule) -> None:
    """Where it runs the left side; whether both agree is what the reference says."""
    pytest.importorskip("onnxruntime")
    problem = VERDICTS.check(rule, depth=in_runtime(FEW)).problem
    assert "refuses" not in (problem or ""), f"{rule.source}: {problem}"


@pytest.mark.slow
@pytest.mark.parametrize("rule", THERE, ids=lambda rule: rule.name)
def test_onnxruntime_takes_what_rules_write(rule: Rule) -> None:
    pytest.importorskip("onnxruntime")
    problem = check_rule(rule, depth=in_runtime(MANY)).problem
    assert "refuses" not in (problem or ""), f"{rule.source}: {problem}"


def test_most_strict_rules_are_asked_of_onnxruntime() -> None:
    pytest.importorskip("onnxruntime")
    asked = [rule for rule in STRICT if VERDICTS.check(rule, depth=in_runtime(FEW)).compared]
    assert len(asked) >= 0.8 * len(STRICT)


@pytest.mark.parametrize(("end", "is_whole"), [(2**63 - 1, True), (8, True), (6, False)])
def test_only_slices_of_all_rows_and_columns_are_space_to_depth(end: int, is_whole: bool) -> None:
    ends = f"[{end}, {end}], [2, 3], [2, 2]"
    parts = " ".join(
        f"{p} = Slice(x, [{i}, {j}], {ends})" for p, (i, j) in zip("abcd", product((0, 1), (0, 1)), strict=True)
    )
    graph = parse(f"x: float32[1, 3, 8, 8] {parts} y = Concat(a, b, c, d, axis=1) return y")
    assert any(node.op == "SpaceToDepth" for node in optimize(graph, verify="off").nodes()) == is_whole


ROTATED = """graph rotated (ir 9, opset 17)
x: float32[b, 4, s, 16]
positions: float32[b, s, 1]
angles = Unsqueeze(Mul(positions, {frequencies}), [1])
twice = Concat(angles, angles, axis=-1)
turned = Concat(Neg(Slice(x, [8], [16], [3])), Slice(x, [0], [8], [3]), axis=-1)
y = Add(Mul(x, Cos(twice)), Mul(turned, Sin(twice)))
return y
"""


def test_the_angles_of_each_sequence_are_the_table_of_a_rotary_embedding() -> None:
    session = pytest.importorskip("onnxruntime").InferenceSession
    graph = parse(ROTATED.format(frequencies=[10.0 ** -(k / 8) for k in range(8)]))
    found = optimize(graph, target="ort", verify="off")
    ops = [node.op for node in found.nodes()]
    assert "com.microsoft::RotaryEmbedding" in ops
    assert "Neg" not in ops
    engine, rng = session(to_proto(found).SerializeToString()), np.random.default_rng(0)
    for b, s in ((1, 1), (2, 3), (3, 2), (1, 5), (5, 1), (4, 64)):
        x = rng.standard_normal((b, 4, s, 16)).astype(np.float32)
        positions = rng.integers(0, 100, (b, s, 1)).astype(np.float32)
        feeds = {"x": x, "positions": positions}
        want = run(graph, feeds)["y"]
        np.testing.assert_allclose(engine.run(None, feeds)[0], want, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(run(found, feeds)["y"], want, rtol=1e-4, atol=1e-4)
