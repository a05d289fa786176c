"""Rules go into pairs of ONNX functions and come back."""

import re
from pathlib import Path

import onnx
import onnx.checker
import pytest
from onnx import parser

from graphopt.errors import InvalidModelError, ReadError, RuleError
from graphopt.rewrite.reading.functions import UnwritableRule, functions_of, load_rules, only_for_us, save_rules
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.rule.rule import Rule, RuleStage, Soundness
from graphopt.rewrite.ruleset import Ruleset, standard


def rule(text: str) -> Rule:
    (parsed,) = parse_rules(f"# a reason  [H4] reals\n{text}\n")
    return parsed


def is_writable(rule: Rule) -> bool:
    try:
        functions_of(rule)
    except UnwritableRule as error:
        return not re.fullmatch(f"{rule.name}: .*", str(error))  # one line, or the round trip fails
    return True


def test_all_standard_rules_that_functions_say_come_back(tmp_path: Path) -> None:
    rules = [rule for rule in standard().rules if is_writable(rule)]
    assert len(rules) > 300
    save_rules(rules, tmp_path / "pairs.onnx")
    onnx.checker.check_model(tmp_path / "pairs.onnx")
    read = load_rules(tmp_path / "pairs.onnx", strict=True)
    assert read == rules
    assert {rule.source for rule in read} == {f"{tmp_path}/pairs.onnx"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("f:  Transpose(Transpose(x, perm=p), perm=q)  =>  Transpose(x, perm=compose(p, q))", "perm=compose.*computed"),
        (
            "f:  MaxPool(Relu(x), **rest)  =>  Relu(MaxPool(x, **rest))",
            r"\*\*rest stands for kernel_shape of MaxPool",
        ),
        ("f:  g(Relu(x))  =>  Relu(x)\n    where g in unary", "g stands for any op"),
        ("f:  Concat(a*, axis=k)  =>  Concat(a*, axis=k)", r"a\* stands for several values"),
        ("f:  Relu(x)  =>  Reshape(Relu(x), {target(x.shape)})", "computed constants"),
    ],
)
def test_what_functions_cannot_say_is_told(text: str, why: str) -> None:
    with pytest.raises(UnwritableRule, match=rf"^f: .*{why}"):
        functions_of(rule(text))


def test_attributes_named_values_and_literals_are_handed_over(tmp_path: Path) -> None:
    rules = [
        rule("a:  Softmax(Add(x, 1.0) as m, axis=k)  =>  Softmax(m, axis=k)\n    where m.rank == 2"),
        rule("b:  Relu(x), Clip(x, 0.0, 6.0)  =>  Relu(x), Clip(Relu(x), 0.0, 6.0)"),
        rule("c:  Split(x, [1, 2], axis=1)[1]  =>  Neg(Neg(Split(x, [1, 2], axis=1)[1]))"),
        rule("d:  Gemm(x, w, b?, alpha=2.0)  =>  Gemm(Mul(x, 2.0), w, b)"),
    ]
    rules.append(rule("g:  Relu(x)  =>  Max(x, {0.0 like x})"))
    rules.append(rule("e:  Conv((Relu(x) | Abs(x)), w, **conv)  =>  Conv(Abs(x), w, **conv)"))
    save_rules(rules, tmp_path / "pairs.onnx")
    assert load_rules(tmp_path / "pairs.onnx") == rules
    assert only_for_us(rules[5]) == "with other attributes of Conv too; Abs(x) too"
    assert only_for_us(rules[0]) == "where m.rank == 2"
    assert only_for_us(rules[1]) == ""
    assert only_for_us(rules[3]) == "without b too"
    pattern = onnx.load(tmp_path / "pairs.onnx").functions[0]
    assert (pattern.domain, pattern.name, list(pattern.input)) == ("graphopt.pattern", "a", ["x"])
    assert (list(pattern.attribute), pattern.doc_string) == (["k"], "a reason")
    assert {a.name: a.ref_attr_name for n in pattern.node for a in n.attribute if n.op_type == "Softmax"} == {
        "axis": "k"
    }


def test_changed_functions_count_under_the_guards_that_stand_there(tmp_path: Path) -> None:
    path = tmp_path / "pairs.onnx"
    save_rules([rule("a:  Sqrt(Mul(x, x))  =>  x\n    where pays(x.low >= 0)")], path)
    model = onnx.load(path)
    (node,) = model.functions[1].node
    node.op_type = "Abs"
    onnx.save(model, path)
    assert load_rules(path) == [rule("a:  Sqrt(Mul(x, x))  =>  Abs(x)\n    where pays(x.low >= 0)")]
    model.functions[0].input[0] = model.functions[1].input[0] = "z"
    for function in model.functions:
        for node in function.node:
            node.input[:] = ["z" if name == "x" else name for name in node.input]
    onnx.save(model, path)
    with pytest.raises(RuleError, match=r"pairs\.onnx: a:2: a: `x` is not bound"):  # of which the guard speaks
        load_rules(path)


def by_hand(path: Path, metadata: dict[str, str], *functions: str) -> Path:
    model = parser.parse_model('<ir_version: 10, opset_import: ["" : 20]> g () => () {}')
    model.functions.extend(map(parser.parse_function, functions))
    for key, value in metadata.items():
        model.functions[0].metadata_props.add(key=key, value=value)
    onnx.save(model, path)
    return path


PATTERN = '<domain: "graphopt.pattern", opset_import: ["" : 20]> twice (x) => (y) { a = Relu(x)  y = Relu(a) }'
REPLACEMENT = '<domain: "graphopt.replacement", opset_import: ["" : 20]> twice (a) => (y) { y = Relu(a) }'


def test_pairs_are_written_by_hand(tmp_path: Path) -> None:
    said = {"soundness": "exact", "family": "A22", "always": "true"}
    path = by_hand(tmp_path / "pairs.onnx", said, PATTERN, REPLACEMENT)
    (read,) = Ruleset.from_files([path]).rules
    assert (read.name, read.soundness, read.family, read.stage) == ("twice", Soundness.EXACT, "A22", RuleStage.ALWAYS)
    assert [read.lhs, read.rhs] == [
        rule("t:  Relu(Relu(x))  =>  Relu(x)").lhs,
        rule("t:  Relu(Relu(x))  =>  Relu(x)").rhs,
    ]


@pytest.mark.parametrize(
    ("metadata", "functions", "told"),
    [
        ({}, [], "holds no rules: pairs of functions"),
        ({}, [PATTERN], "twice is a function of graphopt.pattern, and graphopt.replacement has none"),
        ({}, [REPLACEMENT], "twice is a function of graphopt.replacement, and graphopt.pattern has none"),
        ({}, [PATTERN, REPLACEMENT], "must say how equal the sides are"),
        ({"soundness": "nearly"}, [PATTERN, REPLACEMENT], "nearly"),
        ({"rule": "a: b"}, [PATTERN, REPLACEMENT], "pairs.onnx: twice:1:"),
        ({"rule": ""}, [PATTERN, REPLACEMENT], "hold 0 rules, and not one"),
        ({"soundness": "exact"}, [PATTERN, REPLACEMENT.replace("(a) =>", "(a, b) =>")], "inputs of the sides differ"),
    ],
)
def test_what_is_wrong_with_a_pair_is_one_line(
    tmp_path: Path, metadata: dict[str, str], functions: list[str], told: str
) -> None:
    path = tmp_path / "pairs.onnx"
    model = by_hand(path, metadata if functions else {}, *functions)
    with pytest.raises(RuleError, match=told) as error:
        load_rules(model)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


def test_what_is_no_model_is_told(tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"\x00not a model")
    with pytest.raises((ReadError, InvalidModelError), match=r"bad\.onnx"):
        Ruleset.from_files([tmp_path / "bad.onnx"])
    with pytest.raises(ReadError, match=r"absent\.onnx"):
        Ruleset.from_files([tmp_path / "absent.onnx"])
