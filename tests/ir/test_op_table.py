"""Op table: its rows say what ops do, and nothing else lists ops for what a row says."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import graphopt
from graphopt.ir import ops
from graphopt.ir.evaluate import compute
from graphopt.ir.graph import NO_ATTRS, Attrs
from graphopt.ir.op_table import FINITE, OPS, ZERO, ops_where, parsed
from graphopt.rewrite.rule.notation import show_rule
from graphopt.rewrite.rule.rule import FunctionCall, GuardExpr, Lit, Series, Soundness, subexpressions
from graphopt.rewrite.ruleset import standard

ROOT = Path(graphopt.__file__).parent
ELEMENTWISE = ops.KINDS["elementwise"]
REQUIRED = {op: Attrs({name: 0.75 for name, default in row.schema.attributes.items() if isinstance(default, type)})
            for op, row in OPS.items() if row.schema is not None}  # fmt: skip
"""Attributes that an op has no default for."""


def computed(op: str, *inputs: np.ndarray) -> np.ndarray:
    return compute(op, REQUIRED.get(op, NO_ATTRS), list(inputs), 1)[0]


# -- rows are right


def test_rows_are_of_ops_that_there_are() -> None:
    assert [op for op in OPS if ops.schema(op) is None and ops.schema(f"{op}@9") is None] == []
    assert [op for op, row in OPS.items() if row.priced_as and row.priced_as not in OPS] == []


def test_ops_are_priced_as_ops_with_a_price_of_their_own() -> None:
    assert [op for op, row in OPS.items() if row.priced_as and OPS[row.priced_as].priced_as] == []


@pytest.mark.parametrize(("kind", "most"), [("unary", 1), ("binary", 2)])
def test_kinds_go_by_the_number_of_inputs(kind: str, most: int) -> None:
    assert {op: ops.max_inputs(op) for op in ops_where(kind=kind)} == dict.fromkeys(ops_where(kind=kind), most)


def test_what_is_said_of_elements_is_said_of_ops_on_elements() -> None:
    assert [op for op, row in OPS.items() if (row.group or row.at_zero or row.rises) and op not in ELEMENTWISE] == []


@pytest.mark.parametrize("op", sorted(ops_where(at_zero=(ZERO, FINITE))))
def test_what_is_made_of_zero(op: str) -> None:
    made = computed(op, np.zeros(1, np.float32))
    if OPS[op].at_zero == ZERO:
        assert made.tobytes() == bytes(4)
    else:
        assert made != 0
        assert np.isfinite(made)


def test_attributes_change_the_sign_of_a_zero_and_so_the_class_of_rules_that_show_it() -> None:
    selu = compute("Selu", Attrs({"gamma": -1.0}), [np.zeros(1, np.float32)], 1)[0]
    assert selu == 0
    assert np.signbit(selu)
    texts = {rule: show_rule(rule) for rule in standard().rules}
    shown = {rule for rule, text in texts.items() if "zero_preserving" in text and "graphopt::" not in text}
    assert {(rule.name, rule.soundness) for rule in shown} == {("pad-unary", Soundness.REALS)}


@pytest.mark.parametrize("op", sorted(ops_where(rises=True)))
def test_what_rises(op: str) -> None:
    assert (np.diff(computed(op, np.linspace(-2, 2, 101, dtype=np.float32))) > 0).all()


@pytest.mark.parametrize("op", sorted(ops_where(commutes=True)))
def test_what_commutes(op: str) -> None:
    dtype = "bool" if OPS[op].group == "logic" else "int32" if OPS[op].group == "bits" else "float32"
    a, b = np.arange(12) % 5, np.arange(12) % 3
    one, other = a.astype(dtype), b.astype(dtype)
    np.testing.assert_array_equal(computed(op, one, other), computed(op, other, one))


@pytest.mark.parametrize("op", sorted(ops_where(kind=("unary", "binary"), group="arithmetic")))
def test_what_wraps_around(op: str) -> None:
    """What is computed of int32 is not what is computed of the same numbers as int64."""
    ends = np.iinfo(np.int32)
    a = np.array([ends.min, ends.min + 1, -3, -1, 0, 1, 2, ends.max - 1, ends.max], np.int32)
    operands = [a] if OPS[op].kind == "unary" else [np.repeat(a, 2), np.tile(np.int32([2, ends.max]), a.size)]
    with np.errstate(over="ignore"):
        narrow, wide = (computed(op, *(x.astype(dtype) for x in operands)) for dtype in (np.int32, np.int64))
    assert bool((narrow != wide).any()) == OPS[op].wraps


@pytest.mark.parametrize("op", sorted(op for op in ops_where(kind="unary") if OPS[op].range is not None))
def test_results_are_within_their_range(op: str) -> None:
    row = OPS[op]
    assert row.range is not None
    with np.errstate(invalid="ignore"):
        made = computed(op, np.linspace(-30, 30, 301, dtype=np.float32))
    made = made[~np.isnan(made)]
    assert made.size
    assert row.range[0] <= made.min() <= made.max() <= row.range[1]


def test_a_meaning_is_made_of_calls_and_names() -> None:
    assert parsed("Mul(X, Sigmoid(Mul(X, alpha)))") == ("Mul", "X", ("Sigmoid", ("Mul", "X", "alpha")))
    with pytest.raises(ValueError, match="not X \\+ 1"):
        parsed("Relu(X + 1)")


def test_a_meaning_names_what_the_schema_has() -> None:
    for op, row in OPS.items():
        assert bool(row.means) == (row.schema is not None), op
        names = {n.id for n in ast.walk(ast.parse(row.means or "0")) if isinstance(n, ast.Name)}
        assert row.schema is None or names - OPS.keys() <= {*row.schema.inputs.split(), *row.schema.attributes}, op


# -- and nothing is said twice

FEW = 3
"""Fewer names than these are a choice, no list."""

ELSEWHERE = {
    "calibration/corpus.py": (3, "a sample: what a machine is measured with where no model is given"),
    "frontends/torch/operators/elementwise.py": (4, "a vocabulary: what torch calls them"),
    "frontends/torch/operators/creation.py": (1, "a vocabulary: what Python calls them"),
    "ir/bounds.py": (1, "code: the function that bounds them"),
    "ir/forms/table.py": (2, "history: the forms that they had in older opsets"),
    "lowering/operators/elementwise.py": (1, "a vocabulary: what expressions call them"),
    "lowering/operators/recurrent.py": (1, "ONNX's list of what LSTM, GRU and RNN take, which no schema has"),
    "rewrite/checking/examples/__init__.py": (1, "a sample: what random graphs are made of"),
    "rewrite/checking/examples/pattern.py": (1, "a sample: what stands for an op variable"),
}
"""Lists of ops on elements that say what no row says: how many a module has, and what they are."""


def names_in(node: ast.AST) -> list[str]:
    """The strings of a literal; of a dictionary those that are given strings, for what is given code is no list."""
    parts: list[ast.expr | None] = []
    match node:
        case ast.List(elements) | ast.Set(elements) | ast.Tuple(elements):
            parts = [*elements]
        case ast.Dict(keys, values):
            parts = [p for k, v in zip(keys, values, strict=True) if isinstance(v, ast.Constant) for p in (k, v)]
        case ast.Constant(str(text)):
            return text.split()
    return [p.value for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str)]


def is_list_of_ops(names: list[str]) -> bool:
    known = ELEMENTWISE & set(names)
    return len(known) >= FEW and 2 * len(known) >= len(set(names))


def lists_of(path: Path) -> list[list[str]]:
    return [names for node in ast.walk(ast.parse(path.read_text())) if is_list_of_ops(names := names_in(node))]


def test_lists_are_seen() -> None:
    texts = [
        '{"Relu", "Exp", "Log"}',
        '("Relu", "Exp", "Log", "Conv")',
        '"Relu Exp Log"',
        '{"Relu": 1, "Exp": 1, "Log": 1}',
    ]
    for text in texts:
        assert is_list_of_ops(names_in(ast.parse(text, mode="eval").body)), text
    for text in ['("Relu", "Exp")', '"Relu Conv Gemm Pad Exp Log LSTM"', '{"Relu": relu, "Exp": exp, "Log": log}']:
        assert not is_list_of_ops(names_in(ast.parse(text, mode="eval").body)), text


def test_no_module_lists_ops_for_what_a_row_says() -> None:
    """A fact of an op on elements is a column of the table: see CONTRIBUTING.md. Files of targets list what they price
    and have: that is of the target."""
    found = {path.relative_to(ROOT).as_posix(): lists_of(path) for path in sorted(ROOT.rglob("*.py"))}
    found.pop("ir/op_table.py")
    assert {name: len(lists) for name, lists in found.items() if lists} == {
        n: many for n, (many, _) in ELSEWHERE.items()
    }


def listed(expr: GuardExpr) -> Iterator[frozenset[str]]:
    for part in subexpressions(expr):
        match part:
            case FunctionCall("in", (_, Series(items))) if all(isinstance(i, Lit) for i in items):
                names = frozenset(str(i.value) for i in items if isinstance(i, Lit))
                if is_list_of_ops(sorted(names)):
                    yield names


def test_no_rule_lists_what_a_named_set_says() -> None:
    """Of more than six ops, or of just those that a set has."""
    sets = set(ops.SETS.values())
    long = {rule.name for rule in standard().rules for g in rule.where for n in listed(g) if len(n) > 6 or n in sets}
    assert long == set()
