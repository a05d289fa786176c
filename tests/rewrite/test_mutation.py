"""Rules with one thing wrong are seen to be wrong, in nearly all cases; what came of each is kept beside this file.

``python -m tests.rewrite.mutation --write`` judges the rules that changed since.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.rule.notation import show_expr
from graphopt.rewrite.rule.rule import Rule
from tests.rewrite import mutation
from tests.rewrite.guard_implication import implied
from tests.rewrite.mutant_proofs import same
from tests.rewrite.mutant_trials import Trial, judge
from tests.rewrite.mutants import mutants
from tests.rewrite.mutation import (
    current,
    figures,
    main,
    relapse,
    relapses,
    rules_by_name,
    share_killed,
    stored,
    text_of,
)

LEAST = 0.99
"""The share that is killed of the mutants that are neither proved equivalent nor lack a guard of profitability."""


def rule(text: str, soundness: str = "exact") -> Rule:
    return parse_rules(f"# why [A1] {soundness}\nr: {text}")[0]


def changes(text: str) -> set[str]:
    return {m.change for m in mutants(rule(text))}


def test_guards_numbers_operands_and_attributes_are_changed() -> None:
    assert changes("Add(x, 0.0) => x where x.rank < 3") == {
        "without `x.rank < 3`", "`x.rank <= 3` as guard 1", "`x.rank < 4` as guard 1", "1.0 for 0.0 on the left",
    }  # fmt: skip
    assert "Sub(y, x) for Sub(x, y) on the right" in changes("Neg(Sub(y, x)) => Sub(x, y)")
    assert "Transpose without perm on the right" in changes("Transpose(Neg(x), perm=p) => Neg(Transpose(x, perm=p))")
    text = "Transpose(Transpose(x, perm=p), perm=q) => Transpose(x, perm=compose(p, q))"
    assert "Transpose with perm=compose(q, p) on the right" in changes(text)


@pytest.mark.parametrize(
    ("text", "none"),
    [
        (
            "Mul(Mul(x, c), d) => Mul(x, Mul(c, d)) where moderate(c.numbers, d.numbers)",
            "moderate(d.numbers, c.numbers)",
        ),
        ("f(Neg(x), axis=k, **rest) => Neg(f(x, axis=k, **rest)) where f in unary", "f without"),
        ("Conv(Neg(x), w, kernel_shape=k) => Neg(Conv(x, w, kernel_shape=k))", "Conv without kernel_shape"),
    ],
)
def test_what_says_the_same_is_no_mutant(text: str, none: str) -> None:
    """The order of what is symmetric; what an op brings along that the left side binds; what weights say."""
    assert not [change for change in changes(text) if none in change]


def test_an_attribute_that_is_0_or_1_is_nothing_else() -> None:
    right = rule("ReduceSum(Neg(x), a, keepdims=1) => Neg(ReduceSum(x, a, keepdims=1)) where x.dtype in float", "reals")
    (mutant,) = [m for m in mutants(right) if m.change == "ReduceSum with keepdims=2 on the right"]
    assert judge(right, mutant).why == (
        "lost: its right side is refused where the rule's fits: keepdims of ReduceSum is 2, and has to be 0 or 1"
    )


def test_mutants_are_judged_at_the_limit_that_they_move() -> None:
    """Of no other opset than the one that a limit takes in would anything be seen."""
    right = rules_by_name()["gelu-tanh-ort"]
    (mutant,) = [m for m in mutants(right) if m.change == "`opset <= 20` as guard 1"]
    assert judge(right, mutant).fate == "profitability"


def test_onnx_runtime_judges_what_the_reference_takes() -> None:
    """Its BiasGelu wants a bias of one axis, of which the reference knows nothing."""
    pytest.importorskip("onnxruntime")
    right = rules_by_name()["bias-gelu"]
    (mutant,) = [m for m in mutants(right) if m.change == "without `b.rank == 1`"]
    outcome = judge(right, mutant)
    assert outcome.fate == "killed"
    assert outcome.why.startswith("ONNX Runtime: ")


def test_sizes_that_are_not_known_violate_guards() -> None:
    right = rule("Reshape(x, s) as y => Reshape(x, {y.shape}) where known(y.shape)")
    (mutant,) = [m for m in mutants(right) if m.kind == "dropped"]
    assert judge(right, mutant).fate in ("killed", "equivalent")


def test_mutants_are_of_kinds() -> None:
    text = "Sub(Transpose(Add(x, 1.0), perm=p), y) => Sub(Transpose(x, perm=p), y) where x.rank < 3"
    kinds = {m.change: m.kind for m in mutants(rule(text))}
    assert set(kinds.values()) == {"dropped", "guard", "constant", "attribute", "operand"}
    assert kinds["without `x.rank < 3`"] == "dropped"
    assert kinds["Transpose without perm on the right"] == "attribute"


@pytest.mark.parametrize(
    ("text", "guard", "is_so"),
    [
        ("x.rank < 3 and y.rank == 2", "x.rank < 4", True),
        ("x.rank > 2", "x.rank >= 3", True),
        ('x.dtype in ("float32", "float16")', "x.dtype in float", True),
        ("x.rank < 4", "x.rank < 3", False),
        ("x.low > 2", "x.low >= 3", False),
        ("x.is_const", "y.is_const", False),
        ("x.shape == (2, y.shape[0])", "x.rank == 2", True),
        ("x.shape == (2, y.shape[0])", "x.shape[1] == y.shape[0]", True),
        ("x.shape == y.shape", "x.rank == y.rank", True),
        ("min(x.value) > 0", "len(x.value) > 0", True),
        ("x.rank == 4 and is_known(x.shape[1])", "known(x.shape[1:])", False),
        ("is_eye(x.value)", "x.high == 1", True),
        ("x.rank == 0", "x.size == 1", True),
        ("x.shape[2:] == (3, 3)", "x.rank == 4", True),
        ("x.shape[2:] == (3, y.shape[0])", "x.shape[3] == y.shape[0]", True),
        ("x.shape[2:] == (3, 3)", "x.shape[1] == 3", False),
        ("x.size == 1", "x.rank == 0", False),
        ("x.is_const", "known(x.shape)", True),
        ("x.causal", "x.shape[-1] == x.shape[-2]", True),
        ("x.shape[0] // 2 == 3 and divides(2, x.shape[0])", "x.shape[0] == 6", True),
        ("x.shape[0] // 2 == 3", "x.shape[0] == 6", False),
    ],
)
def test_a_solver_shows_that_guards_say_as_much(text: str, guard: str, is_so: bool) -> None:
    given, wanted = (rule(f"Add(x, y) => Mul(x, y) where {t}") for t in (text, guard))
    assert bool(implied(given, wanted.where[0])) == is_so


def test_what_right_sides_take_is_known_to_a_solver() -> None:
    text = (
        "MatMul(Transpose(x, perm=p), Transpose(y, perm=p)) => Transpose(MatMul(y, x), perm=p) where x.rank == y.rank"
    )
    swapped = rule(text)
    assert implied(rule(text.partition(" where ")[0]), swapped.where[0])
    (guard,) = rule('Equal(x, y) => Not(Xor(x, y)) where x.dtype == "bool"').where
    assert implied(rule("Equal(x, y) => Not(Xor(x, y)) where x.rank == 2"), guard)
    assert not implied(rule("Equal(x, y) => Equal(y, x) where x.rank == 2"), guard)


def test_what_only_some_ops_take_says_which_they_are() -> None:
    text = "f(Neg(x), a, keepdims=1, **r) => Neg(f(x, a, keepdims=1, **r))"
    (guard,) = rule(f"{text} where f in reduce").where
    assert "ReduceSum" in str(implied(rule(text), guard))
    (guard,) = rule("f(Neg(x), y) => Neg(f(x, y)) where f in binary").where
    assert not implied(rule("f(Neg(x), y) => Neg(f(x, y))"), guard)


def test_what_a_right_side_asks_of_sizes_is_no_guard() -> None:
    """Where they are not known, nothing refuses it: a Concat of rows of which one operand has one, say."""
    text = "Add(Gemm(x, w), Gemm(y, v)) => Gemm(Concat(x, y, axis=1), Concat(w, v, axis=0)) where x.rank == 2"
    assert not implied(rule(text), rule(f"{text} and x.shape[0] == y.shape[0]").where[1])


def test_rules_are_judged_wherever_they_are_true() -> None:
    """Not only where they pay, which may ask for large graphs."""
    right = rules_by_name()["winograd-no-bias"]
    widths = {place.space.fact(place.example.match.bindings.values["x"]).shape[1] for place in Trial(right).fitting}  # type: ignore[arg-type, index]
    assert min(widths) < 64 <= max(widths)


def test_what_a_right_side_is_refused_for_is_known_to_a_solver() -> None:
    """Where it would have another shape, or where the text of an op asks for something."""
    text = "Add(MatMul(x, w), b) => Gemm(x, w, b) where x.rank == 2"
    (guard,) = rule("Add(x, w) => Mul(x, w) where w.rank == 2").where
    assert implied(rule(text), guard)
    assert not implied(rule("Add(MatMul(x, w), b) => MatMul(x, w) where x.rank == 3"), guard)
    text = "DequantizeLinear(x, s, z) => DequantizeLinear(x, s, z) where s.rank == 0"
    (guard,) = rule("Add(x, z) => Mul(x, z) where z.rank == 0").where
    assert implied(rule(text), guard)


@pytest.mark.parametrize(
    ("text", "change", "fate"),
    [
        ("Neg(Reshape(x, [-1, 2])) => Neg(Slice(Reshape(x, [-1, 2]), [0], [2], [1]))", "[3] for [2]", "equivalent"),
        ("Neg(x) => Neg(Slice(x, [0], [1], [0])) where x.rank < 3", "[2] for [1]", "survived"),
    ],
)
def test_what_differs_in_a_mutant_is_proved_equal(text: str, change: str, fate: str) -> None:
    """By itself: of what has another type only in the midst of the right side nothing is said."""
    right = rule(text)
    (mutant,) = [m for m in mutants(right) if m.change.startswith(change)]
    claimed = same(right, mutant.rule)[0]
    assert claimed == ("equivalent" if fate == "equivalent" else "")


NEEDED = [
    ("resize-resize", "whole(s.value)"),
    ("one-hot-product", "v.value == (0.0, 1.0)"),
    ("one-hot-product", "i.high < w.shape[0]"),
    ("one-hot-product", "i.low >= 0"),
    ("range-add", "c.dtype in int"),
    ("range-sub", "c.dtype in int"),
    ("unblock-unary", "c % 16 == 0 or f in zero_preserving"),
    ("sink-unary", "f in unary"),
    ("binary-unsqueeze", "x.rank == y.rank"),
    ("softmax-shifted", "m.rank == x.rank"),
    ("sum-of-two-gemms", "x.shape[0] == y.shape[0]"),
]
"""Guards that rules were once without in trials of people, or could be."""


@pytest.mark.parametrize(("name", "guard"), NEEDED)
def test_a_rule_that_loses_a_guard_is_seen_to_be_wrong(name: str, guard: str) -> None:
    right = rules_by_name()[name]
    (mutant,) = [m for m in mutants(right) if m.change == f"without `{guard}`"]
    assert judge(right, mutant).fate == "killed"
    assert guard in stored()[name]["needed"]
    assert relapse(mutant.rule, text_of(right), [guard]) is not None
    assert relapse(right, text_of(right), [guard]) is None


def test_a_right_side_that_becomes_ill_typed_is_seen() -> None:
    """Floats have no size of a Range that both sides agree on: the rule's own right side always fits."""
    right = rules_by_name()["range-add"]
    (mutant,) = [m for m in mutants(right) if m.change == "without `c.dtype in int`"]
    assert judge(right, mutant).why.startswith("ill-typed: the result has another shape")
    assert not Trial(right).refusals


def test_a_rule_that_applies_to_less_than_it_did_is_seen() -> None:
    was, narrower = (rule(f"Mul(x, 1.0) => x where x.rank < {rank}") for rank in (4, 2))
    assert "--narrower" in str(relapse(narrower, text_of(was), []))
    assert relapse(narrower, text_of(was), [], is_narrower=True) is None
    assert relapse(was, text_of(narrower), []) is None


@pytest.mark.parametrize(
    ("text", "fate"),
    [
        ("Mul(x, 1.0) => x where x.rank < 4", "equivalent"),
        ("CumSum(Neg(x), 0) => Neg(CumSum(x, 0)) where x.rank < 3", "survived"),
        ("CumSum(Neg(x), 0) => Neg(CumSum(x, 0)) where pays(x.rank < 3)", "profitability"),
        ("Mul(x, 2.0) => x where pays(x.size == 0)", "killed"),
    ],
)
def test_a_guard_that_says_where_a_rule_pays_has_to_be_true_without(text: str, fate: str) -> None:
    right = rule(text, "reals")
    (mutant,) = [m for m in mutants(right) if m.kind == "dropped"]
    assert judge(right, mutant).fate == fate


def test_a_rule_that_was_edited_wrong_cannot_be_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tool is told to keep is judged by the guards that the rule once needed."""
    right = rules_by_name()["one-hot-product"]
    wrong = next(m.rule for m in mutants(right) if m.change == "without `v.value == (0.0, 1.0)`")
    monkeypatch.setattr(mutation, "chosen", lambda what: [wrong])
    data = tmp_path / "mutation.json"
    with pytest.raises(SystemExit, match=r"one-hot-product needs `v.value == \(0.0, 1.0\)`: "):
        main(["--data", str(data), "--write"])
    assert not data.exists()


def test_rules_that_changed_hold_where_guards_that_they_once_needed_are_violated() -> None:
    assert not list(relapses(rules_by_name().values()))


def test_what_is_kept_is_of_all_rules_as_they_are() -> None:
    data = stored()
    unlike = sorted(set(data) ^ set(rules_by_name()) | set(data) - set(current(data)))
    assert not unlike, f"python -m tests.rewrite.mutation --write judges what changed: {', '.join(unlike)}"


@pytest.mark.parametrize(
    ("text", "soundness", "killed"),
    [
        ("Transpose(Transpose(x, perm=p), perm=q) => Transpose(x, perm=compose(p, q))", "exact", 2),
        ("Div(x, y) => Mul(x, Reciprocal(y)) where x.dtype in float", "reals", 1),
        ("Clip(Relu(x), lo, hi) => Clip(x, Max(lo, 0.0), hi)", "exact", 2),
    ],
)
def test_wrong_rules_are_killed(text: str, soundness: str, killed: int) -> None:
    right = rule(text, soundness)
    fates = [judge(right, m) for m in mutants(right)]
    assert sum(o.fate == "killed" for o in fates) >= killed
    assert all(o.why for o in fates)


def test_most_mutants_are_killed_and_the_others_are_told() -> None:
    data = stored()
    assert share_killed(data) >= LEAST, figures(data)
    kept = [made for entry in data.values() for made in entry.values() if isinstance(made, dict)]
    assert all(why for made in kept for fate in made.values() if isinstance(fate, dict) for why in fate.values())


def test_guards_that_say_where_rules_pay_are_judged_to_be_that() -> None:
    """The results were right without each, on graphs that violate it."""
    data = stored()
    for name, judged in rules_by_name().items():
        for guard in judged.pays:
            dropped = data[name]["dropped"]
            assert show_expr(guard) not in data[name]["needed"], f"{name} is wrong without {show_expr(guard)}"
            fates = {**dropped.get("profitability", {}), **dropped.get("equivalent", {})}
            assert f"without `{show_expr(guard)}`" in fates, f"{name}: {show_expr(guard)}"


def test_too_few_that_are_killed_are_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rules are judged from nothing where the file is another, and none that is judged is judged again."""
    data = tmp_path / "mutation.json"
    for _ in range(2):
        with pytest.raises(SystemExit, match=r"100.0 % of the mutants are killed, and 101 % have to be"):
            main(["bool-choice-not", "--data", str(data), "--write", "--least", "1.01"])
        assert list(stored(data)) == ["bool-choice-not"]
        assert "mutants of 1 rules" in capsys.readouterr().out
    main(["bool-choice-not", "--data", str(data), "--least", "0.95"])
