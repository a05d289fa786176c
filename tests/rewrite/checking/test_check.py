"""The check of rules passes what is sound and catches what is not, the traps that shipped elsewhere among it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from time import process_time

import pytest

from graphopt.errors import RuleError
from graphopt.rewrite.checking.check import DEEP, QUICK, CheckReport, check_files, check_rule, in_runtime
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.ruleset import standard


def checked(text: str, soundness: str = "exact", seed: int = 0) -> CheckReport:
    return check_rule(parse_rules(f"# why [A1] {soundness}\nr: {text}")[0], seed)


@pytest.mark.parametrize(
    ("text", "soundness"),
    [
        ("Neg(Neg(x)) => x", "exact"),
        ("Transpose(Transpose(x, perm=p), perm=q) => Transpose(x, perm=compose(p, q))", "exact"),
        ("Add(x, 0.0) => x", "reals"),
        ("Sum(x, y) => Add(x, y)", "exact"),  # signs of zero, which the reference loses
        ("Add(Add(x, c), d) => Add(x, Add(c, d)) where c.is_const and d.is_const and x.dtype in float", "reals"),
        ("Concat(Relu(a*), axis=k) => Relu(Concat(a*, axis=k))", "exact"),
        ("f(Transpose(x, perm=p)) => Transpose(f(x), perm=p) where f in unary", "exact"),
        ("MatMul(x, a*) => Split(MatMul(x, Concat(a*, axis=1)), {[each a.shape[1]]}, axis=1) where a.rank == 2",
         "reals"),
        ("Add(MatMul(x, w), b) => Gemm(x, w, b) where x.rank == 2 and w.rank == 2 and b.shape == (w.shape[1],)",
         "reals"),
        ("Slice(x, s, e, a) => x where x.rank == 3 and s.value == (0,) and e.value == (x.shape[a.value[0]],)", "exact"),
        ('Conv(Pad(x, p), w, pads=q, auto_pad="NOTSET", **c) => Conv(x, w, pads=joined_pads(p.value, q, x.rank), **c) '
         "where pads_space_only(p.value)", "exact"),
        ('Sub(x, y) => Cast(Sub(Cast(x, to=16), Cast(y, to=16)), to=1) where x.dtype == "float32"', "approx"),
        ("ArgMax(Sqrt(Sigmoid(x)), axis=k, keepdims=1) => ArgMax(Sigmoid(x), axis=k, keepdims=1)", "reals"),
        ("GlobalAveragePool(x) => ReduceMean(x, [2], keepdims=1) where x.rank == 3", "reals"),
    ],
)  # fmt: skip
def test_sound_rules_pass(text: str, soundness: str) -> None:
    report = checked(text, soundness)
    assert report.problem is None, report.problem
    assert report.fired == QUICK.instances


@pytest.mark.parametrize(
    ("text", "soundness"),
    [
        ("Add(x, 0.0) => x", "exact"),
        ("Mul(x, 0.0) => Sub(x, x)", "finite"),
        ("Clip(Clip(x, a, b), c, d) => Clip(x, Max(a, c), Min(b, d)) where a.is_const and b.is_const and c.is_const "
         "and d.is_const", "reals"),
        ("Max(x, 0.0) => Abs(x)", "reals"),
        ("Max(Min(x, hi), lo) => Clip(x, lo, hi) where lo.rank == 0 and hi.rank == 0", "reals"),
        ("Transpose(Transpose(x, perm=p), perm=q) => Transpose(x, perm=compose(q, p))", "exact"),
        ("Exp(Log(x)) => x", "exact"),
        ('Relu(x) => Cast(Cast(Mul(Relu(x), 1.1), to=16), to=1) where x.dtype == "float32"', "approx"),
        ("Log(Exp(x)) => x", "exact"),
        ("Sub(x, y) => Sub(y, x) where x.shape == y.shape", "reals"),
        ("Cast(Cast(x, to=a), to=b) => Cast(x, to=b)", "exact"),
        ("ReduceMean(x, a, keepdims=1) => ReduceSum(x, a, keepdims=1)", "reals"),
        ("ArgMax(x, axis=k, keepdims=1) => ArgMin(x, axis=k, keepdims=1)", "reals"),
        ("Softmax(x, axis=k) => Softmax(x, axis=0)", "reals"),
        ("BatchNormalization(x, s, o, m, v, epsilon=e) => BatchNormalization(x, s, o, m, v)", "reals"),
        ("Div(x, y) => Mul(x, Reciprocal(y)) where x.dtype in float", "exact"),
        ("f(x) => x where f in unary", "exact"),
    ],
)  # fmt: skip
def test_unsound_rules_are_caught(text: str, soundness: str) -> None:
    report = next((r for seed in range(3) if (r := checked(text, soundness, seed)).problem is not None), None)
    assert report is not None
    assert report.fired > 0
    assert report.worst > 1


@pytest.mark.parametrize(
    "text",
    [
        "Relu(x) => Abs(x) where x.rank == 1 and x.rank == 2",
        "Relu(x) => Transpose(x) where x.rank == 2 and x.shape[0] == 2 and x.shape[1] == 3",
    ],
)
def test_a_rule_that_never_fires_fails(text: str) -> None:
    report = checked(text)
    assert report.fired == 0
    assert report.problem is not None
    assert "fired on none" in report.problem


@pytest.mark.parametrize(("guard", "is_taken"), [("x.rank >= 1", True), ("x.rank == 0", False)])
def test_what_a_runtime_refuses_is_a_fault_of_the_rule_there(guard: str, is_taken: bool) -> None:
    """ONNX Runtime's FastGelu takes no scalar."""
    pytest.importorskip("onnxruntime")
    text = f"# why [A1] reals for ort\nr: Neg(x) => com.microsoft::FastGelu(x) where {guard} and x.dtype == 'float32'"
    problem = check_rule(parse_rules(text)[0], depth=in_runtime(QUICK)).problem
    assert problem is not None
    assert ("ONNX Runtime refuses it" in problem) == (not is_taken)


def test_the_counterexample_is_shown() -> None:
    problem = checked('Neg(x) => Abs(x) where x.dtype == "float32"').problem
    assert problem is not None
    assert "Neg(x)  =>  Abs(x)  with x: float32[" in problem
    assert "gives" in problem


def test_a_counterexample_names_the_first_element_that_differs() -> None:
    problem = checked("Concat(x, axis=0) => Neg(x) where x.shape == (40,) and x.dtype in float").problem
    assert problem is not None
    assert re.search(r"it gives \S+ at \[0\], the right side \S+ there \(40 of 40 elements differ\)", problem)


def test_a_rank_that_no_array_has_is_a_problem() -> None:
    report = checked("Relu(x) => Relu(Relu(x)) where x.rank == 1000")
    assert report.problem is not None


def test_files_without_rules_and_names_of_standard_rules_are_errors(tmp_path: Path) -> None:
    file = tmp_path / "my.rules"
    file.write_text("# nothing\n")
    with pytest.raises(RuleError, match=r"my\.rules: holds no rules"):
        list(check_files([file]))
    rule = standard().rules[0]
    file.write_text(f"# mine   [C1] exact\n{rule.name}:  Relu(Relu(x))  =>  Relu(x)\n")
    with pytest.raises(RuleError, match=rf"two rules are called {rule.name} \(rules/.*my\.rules"):
        list(check_files([file]))


def test_a_check_ends_when_its_time_is_up_and_says_so() -> None:
    wide = "Conv(x, w, pads=[1, 1, 1, 1]) => Neg(Neg(Conv(x, w, pads=[1, 1, 1, 1])))"
    [rule] = parse_rules(f"# mine [A1] reals\nmine: {wide}\n", "mine.rules")
    late = check_rule(rule, depth=replace(QUICK, seconds=0.0))
    assert (late.is_late, late.problem) == (True, None)
    assert late.compared < check_rule(rule).compared
    assert not check_rule(rule).is_late


def test_a_dtype_that_no_tensor_has_is_a_problem() -> None:
    problem = checked('Add(x, w) => Add(w, x) where w.is_const and x.dtype == " "').problem
    assert problem is not None
    assert "fired on none" in problem


def test_differences_of_many_elements_are_told_at_once() -> None:
    start = process_time()
    text = "Expand(x, [300, 1000]) => Neg(Expand(x, [300, 1000])) where x.dtype in float and x.size == 1"
    assert "elements differ" in (checked(text).problem or "")
    assert process_time() - start < 2


def test_the_same_seed_gives_the_same_report() -> None:
    text = "Mul(x, c) => Mul(c, Sub(x, 0.125)) where c.is_const"
    assert checked(text, "reals") == checked(text, "reals")


def test_files(tmp_path: Path) -> None:
    good = "# twice negated is itself [C11] exact\ntwice: Neg(Neg(x)) => x\n"
    bad = "# nonsense [C11] exact\nodd: Neg(x) => x\n"
    (tmp_path / "good.rules").write_text(good)
    (tmp_path / "bad.rules").write_text(good + "\n" + bad)
    assert [r.rule.name for r in check_files([tmp_path / "good.rules"])] == ["twice"]
    with pytest.raises(RuleError, match=r"bad\.rules:5.*odd: Neg\(x\)  =>  x"):
        list(check_files([tmp_path / "bad.rules"]))


@pytest.mark.parametrize("text", ["Relu(x) => Relu(Relu(x))", "Sub(x, y) => Neg(Sub(y, x)) where x.dtype in float"])
def test_a_rule_that_never_ends_is_found(text: str) -> None:
    problem = checked(text, "reals always").problem
    assert problem is not None
    assert "does not end" in problem
    assert checked(text, "reals").problem is None


def test_sizes_that_are_not_known_are_tried() -> None:
    text = """Conv(Add(x, c), w, group=1, auto_pad="VALID")
        => Conv(x, w, ReduceSum(Mul(w, c), [1, 2, 3], keepdims=0), auto_pad="VALID")
        where w.is_const and c.is_const and w.rank == 4 and c.rank == 4 and c.shape == (1, w.shape[1], 1, 1)"""
    problems = [checked(text, "reals", seed).problem or "" for seed in range(20)]  # few graphs have several channels
    assert any("sizes that the rule does not know" in problem for problem in problems)
    known = text.replace("where", "where x.shape[1] == w.shape[1] and")
    assert checked(known, "reals").problem is None


def test_every_way_of_writing_a_rule_is_tried() -> None:
    text = "(Relu(x) | Abs(x)) => Relu(x)"
    problem = checked(text).problem
    assert problem is not None
    assert "Abs(x)  =>  Relu(x)" in problem
    assert checked("Clip(x, lo?, hi?) => Clip(x, lo)", "reals").problem is not None


def test_a_deep_check_looks_at_more() -> None:
    rule = parse_rules("# why [A1] exact\nr: Neg(Neg(x)) => x where x.rank == 0")[0]
    assert check_rule(rule, depth=DEEP).compared > 2 * check_rule(rule).compared


def test_integers_wrap_around_alike() -> None:
    assert checked("Add(Mul(x, 2), y) => Add(Add(x, x), y) where x.dtype in int").problem is None
    assert checked("Div(Mul(x, 2), 2) => x where x.dtype in int").problem is not None


def test_lanes_beyond_the_last_channel_hold_zeros() -> None:
    """What is read of the images is right, and the next op that reads the blocks sums over other numbers as well."""
    text = "f(graphopt::Unblock(x, channels=c)) => graphopt::Unblock(f(x), channels=c) where not x.is_const and f in "
    assert checked(f"{text} zero_preserving").problem is None
    assert "beyond the last channel" in str(checked(f"{text} unary").problem)
