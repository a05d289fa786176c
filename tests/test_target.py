"""Targets are data that users can write, found by name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphopt.errors import UsageError
from graphopt.ir.text import parse
from graphopt.optimize import optimize, optimize_graph
from graphopt.target import CPU, LACKING_SINCE, ORT, PORTABLE, TARGETS, target
from tests.bench.kernels import has_kernel


def test_targets_have_names() -> None:
    assert target("portable") is PORTABLE
    assert all(t.name == name for name, t in TARGETS.items())


def test_an_unknown_name_gives_the_nearest() -> None:
    with pytest.raises(UsageError, match="'portabel'; did you mean portable"):
        target("portabel")
    with pytest.raises(UsageError, match="there are portable, ort"):
        target("xyzzy")
    for makes_models, said in ((True, "there are portable, ort, t4$"), (False, "did you mean cpu")):
        with pytest.raises(UsageError, match=f"'gpu'; {said}"):
            target("gpu", makes_models)


def test_what_results_may_use() -> None:
    assert PORTABLE.allows("Conv")
    assert not PORTABLE.allows("com.microsoft::Gelu")
    assert ORT.allows("com.microsoft::Gelu")
    assert not ORT.allows("com.microsoft.nchwc::Conv")


def test_a_target_of_ones_own() -> None:
    mine = replace(PORTABLE, name="mine", ops={"": frozenset({"Conv"})})
    assert mine.allows("Conv")
    assert not mine.allows("Relu")


def test_only_programs_have_ops_of_ours() -> None:
    assert [name for name, t in TARGETS.items() if not t.makes_models] == ["cpu", "cuda", "simulated"]
    assert CPU.allows("graphopt::BlockedConv")
    assert not PORTABLE.allows("graphopt::BlockedConv")
    with pytest.raises(UsageError, match="the target cpu makes programs, no ONNX models"):
        optimize(b"", target="cpu")


@pytest.mark.parametrize("opset", [24, 25, 26])
def test_no_rule_makes_what_runtimes_lack_in_the_opset(opset: int) -> None:
    graph = parse(f"graph g (ir 11, opset {opset}) x: float32[2, 3] y = Mul(x, Sigmoid(x)) return y")
    made = {t.name: optimize_graph(graph, target=t)[0] for t in (PORTABLE, CPU)}
    found = {name: {node.op for node in g.nodes()} - {"Input"} for name, g in made.items()}
    assert found == {"portable": {"Swish"} if opset < 25 else {"Mul", "Sigmoid"}, "cpu": {"Swish"}}


@pytest.mark.parametrize("op", LACKING_SINCE)
def test_the_runtime_lacks_what_the_table_says(op: str) -> None:
    pytest.importorskip("onnxruntime")
    first = LACKING_SINCE[op]
    assert not PORTABLE.allows(op, first)
    assert CPU.allows(op, first)
    assert has_kernel(op, first, "float") is not True
    assert PORTABLE.allows(op, first - 1)
