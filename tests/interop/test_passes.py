import numpy as np
import onnx_ir
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator
from onnx_ir.passes import Sequential
from onnx_ir.passes.common import RemoveUnusedNodesPass

from graphopt.errors import RuleError, UsageError
from graphopt.interop.passes import as_pass
from graphopt.rewrite.reading.parse import parse_rules

RULES = parse_rules("# twice is once\n# exact always\nrelu-relu:  Relu(Relu(x))  =>  Relu(x)")
MODEL = (
    '<ir_version: 10, opset_import: ["" : 18]> g (float[n,3] x) => (float[n,3] y) '
    "<float[3] w = {1,2,3}> { a = Relu(x)  b = Relu(a)  y = Mul(b, w) }"
)


def model() -> onnx_ir.Model:
    return onnx_ir.from_proto(parser.parse_model(MODEL))


def test_a_pass_rewrites_by_the_rules_and_leaves_its_model_alone() -> None:
    given = model()
    result = as_pass(RULES)(given)
    assert result.modified
    assert [n.op_type for n in result.model.graph] == ["Relu", "Mul"]
    assert [n.op_type for n in given.graph] == ["Relu", "Relu", "Mul"]
    x = np.array([[-1, 2, 3]], np.float32)
    runs = [ReferenceEvaluator(onnx_ir.to_proto(m)).run(None, {"x": x})[0] for m in (given, result.model)]
    np.testing.assert_array_equal(*runs)


def test_a_second_time_nothing_is_modified() -> None:
    rewrite = as_pass(RULES[0])
    first = rewrite(model())
    again = rewrite(first)
    assert not again.modified
    assert again.model is not first.model


def test_it_stands_among_other_passes() -> None:
    result = Sequential(RemoveUnusedNodesPass(), as_pass(RULES), RemoveUnusedNodesPass())(model())
    assert result.modified
    assert len(list(result.model.graph)) == 2


def test_without_rules_it_is_the_standard_set() -> None:
    assert len(list(as_pass()(model()).model.graph)) == 2


def test_what_are_no_rules() -> None:
    with pytest.raises(UsageError, match="as_pass takes rules"):
        as_pass([1])  # type: ignore[list-item]
    with pytest.raises(RuleError, match="two rules are called relu-relu"):
        as_pass([*RULES, *RULES])
