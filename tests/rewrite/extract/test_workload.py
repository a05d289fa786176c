"""What depends on time is told, and reads back."""

import numpy as np
import pytest

from graphopt.ir.bounds import fact_of
from graphopt.ir.constants import Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Attrs
from graphopt.ir.types import TensorType
from graphopt.rewrite.extract.cost import CostModel
from graphopt.rewrite.extract.workload import OpWorkload, WorkloadOperand, workload
from graphopt.target import PORTABLE

X = WorkloadOperand("float32", (1, 16, 8, 8))


@pytest.mark.parametrize(
    "call",
    [
        OpWorkload("Relu", Attrs(), (X,)),
        OpWorkload(
            "Conv",
            Attrs(pads=(1, 1, 1, 1), auto_pad="NOTSET"),
            (X, WorkloadOperand("float32", (8, 16, 3, 3), True)),
            1,
            True,
        ),
        OpWorkload("Clip", Attrs(), (X, None, WorkloadOperand("float32", (), True))),
        OpWorkload("Split", Attrs(axis=1), (X, WorkloadOperand("int64", (2,), True, (8, 8))), 2),
        OpWorkload("Pow", Attrs(), (X, WorkloadOperand("float32", (), True, (0.75,)))),
        OpWorkload("LeakyRelu", Attrs(alpha=1.0), (X,)),
        OpWorkload("Where", Attrs(), (WorkloadOperand("bool", (1,), True, (True,)), X, X)),
    ],
    ids=lambda call: call.op,
)
def test_a_workload_reads_back(call: OpWorkload) -> None:
    assert OpWorkload.parse(call.text()) == call
    assert OpWorkload.parse(call.text()).text() == call.text()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"op":"Relu"}', '{"op":"Relu","inputs":["float33[1]"]}', "nonsense"])
def test_what_is_no_workload_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        OpWorkload.parse(text)


def fact(array: object) -> Fact:
    return fact_of(Constant.of(np.array(array)))


def test_elements_are_told_where_they_decide_what_is_done() -> None:
    x = Fact(TensorType("float32", (4, 8)))
    axes = workload("ReduceSum", Attrs(), [(x, (4, 8)), (fact([1]), (1,))], 1, False)
    assert axes is not None
    assert axes.inputs[1] == WorkloadOperand("int64", (1,), True, (1,))
    added = workload("Add", Attrs(), [(x, (4, 8)), (fact(np.float32(3)), ())], 1, False)
    assert added is not None
    assert added.inputs[1] == WorkloadOperand("float32", (), True)
    fine = axes.inputs[1]
    assert fine is not None
    assert fine.fact().elements == (1,)


def test_attributes_at_their_default_are_left_out() -> None:
    x = Fact(TensorType("float32", (4, 8)))
    a = workload("Softmax", Attrs(axis=-1), [(x, (4, 8))], 1, False)
    assert a == workload("Softmax", Attrs(), [(x, (4, 8))], 1, False)


def test_what_a_text_cannot_tell_is_no_workload() -> None:
    x = Fact(TensorType("float32", (4, 8)))
    assert workload("Relu", Attrs(), [(Fact(), (128,))], 1, False) is None
    assert workload("Softmax@1", Attrs(), [(x, (4, 8))], 1, False) is None
    assert workload("ConstantOfShape", Attrs(value=Constant.of(np.zeros(1))), [(x, (4, 8))], 1, False) is None


def test_cost_goes_by_what_was_measured_and_by_prices_elsewhere() -> None:
    from dataclasses import replace

    facts = [Fact(TensorType("float32", (4, n))) for n in (8, 9)]
    text = OpWorkload("Relu", Attrs(), (WorkloadOperand("float32", (4, 8)),)).text()
    model = CostModel(replace(PORTABLE, measured={text: 0.25}))
    plain = CostModel(PORTABLE)
    assert model.cost("Relu", Attrs(), facts[:1], facts[:1]).seconds == 0.25 + PORTABLE.prices.node
    assert model.cost("Relu", Attrs(), facts[1:], facts[1:]) == plain.cost("Relu", Attrs(), facts[1:], facts[1:])


def test_open_sizes_are_looked_up_as_what_they_count_as() -> None:
    from dataclasses import replace

    from graphopt.ir.types import symbol

    x = Fact(TensorType("float32", (symbol("n"), 8)))
    text = OpWorkload("Relu", Attrs(), (WorkloadOperand("float32", (4, 8)),)).text()
    model = CostModel(replace(PORTABLE, measured={text: 0.25}), {"n": 4})
    assert model.cost("Relu", Attrs(), [x], [x]).seconds > 0.25


def test_weights_come_from_memory_though_they_were_measured_in_the_caches() -> None:
    from dataclasses import replace

    x, w = Fact(TensorType("float32", (4, 512))), Fact(TensorType("float32", (512, 512)), is_const=True)
    call = OpWorkload(
        "MatMul", Attrs(), (WorkloadOperand("float32", (4, 512)), WorkloadOperand("float32", (512, 512), True))
    )
    model = CostModel(replace(PORTABLE, measured={call.text(): 0.25}))
    prices = PORTABLE.prices
    y = Fact(TensorType("float32", (4, 512)))
    found = model.cost("MatMul", Attrs(), [x, w], [y])
    assert found.seconds == pytest.approx(0.25 + prices.node + 512 * 512 * 4 / prices.weights)
    assert found.flops == CostModel(PORTABLE).cost("MatMul", Attrs(), [x, w], [y]).flops
