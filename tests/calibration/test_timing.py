"""A workload takes what its own kernels take."""

from typing import Any

import onnx
import pytest

from graphopt.calibration.store import Time
from graphopt.calibration.timing import NOTHING, UNMEASURABLE, Stopwatch
from graphopt.ir.graph import Attrs
from graphopt.rewrite.extract.workload import OpWorkload, WorkloadOperand
from graphopt.verify.runtimes import EngineError, ProfiledKernel, Profiler
from tests.calibration.fakes import FakeProfiler

LARGE = WorkloadOperand("float32", (1, 64, 56, 56))
RELU = OpWorkload("Relu", Attrs(), (LARGE,))


def measure(call: OpWorkload, profiler: Profiler) -> Time:
    return Stopwatch(profiler).measure(call)


def relu(node: onnx.NodeProto) -> float:
    return 1e-3 if node.op_type == "Relu" else 0.0


def test_what_stands_around_the_call_does_not_count() -> None:
    profiler = FakeProfiler(lambda node: {"Relu": 1e-3, "Abs": 7.0}.get(node.op_type, 0.0))
    found = measure(RELU, profiler)
    assert found.seconds == pytest.approx(1e-3)
    assert [n.op_type for n in profiler.seen[1].graph.node] == ["Abs", "Relu", "Abs"]


def test_slow_runs_are_other_peoples() -> None:
    assert measure(RELU, FakeProfiler(relu, noise=1.0)).seconds == pytest.approx(1e-3)


def test_a_busy_machine_is_tried_again() -> None:
    paces, relus = [1e-3, 2e-3, 1e-3], [3e-3, 5e-3, 4e-3]

    def price(node: onnx.NodeProto) -> float:
        return {"MatMul": paces[0], "Relu": relus[0]}.get(node.op_type, 0.0)

    class Busy(FakeProfiler):
        def profile(self, *args: Any) -> list[list[ProfiledKernel]]:
            runs = super().profile(*args)
            for op, left in (("MatMul", paces), ("Relu", relus)):
                if any(k.op == op for k in runs[0]) and len(left) > 1:
                    left.pop(0)
            return runs

    stopwatch = Stopwatch(Busy(price))
    assert stopwatch.measure(RELU).seconds == pytest.approx(3e-3)
    assert relus == [5e-3, 4e-3]
    assert stopwatch.measure(RELU).seconds == pytest.approx(4e-3)  # while it was busy it took longer
    assert paces == [1e-3]


def test_the_profilers_own_time_is_subtracted() -> None:
    profiler = FakeProfiler(lambda node: {"Relu": 1e-3 + 5e-6}.get(node.op_type, 5e-6))
    assert Stopwatch(profiler).overhead == pytest.approx(5e-6)
    assert measure(RELU, profiler).seconds == pytest.approx(1e-3)
    assert measure(NOTHING, profiler).seconds == pytest.approx(1e-7)  # and no call takes less


def test_small_calls_run_in_copies() -> None:
    profiler = FakeProfiler(lambda node: 1e-6)
    measure(NOTHING, profiler)
    assert len(profiler.seen[0].graph.node) == 8


def test_what_the_runtime_refuses_has_no_time() -> None:
    assert measure(RELU, FakeProfiler(lambda node: 1.0, refused=frozenset({"Relu"}))) == UNMEASURABLE
    with pytest.raises(EngineError, match="Fake"):
        Stopwatch(FakeProfiler(lambda node: 1.0, refused=frozenset({"Add"})))


def test_what_is_not_in_the_layout_that_was_meant_has_no_time() -> None:
    conv = OpWorkload("Conv", Attrs(), (LARGE, WorkloadOperand("float32", (64, 64, 1, 1), True)), blocked=True)
    assert measure(conv, FakeProfiler(lambda node: 1.0)) == UNMEASURABLE


@pytest.mark.parametrize(
    "call",
    [
        OpWorkload("Conv", Attrs(), (LARGE, WorkloadOperand("float32", (64, 64, 1, 1), True)), blocked=True),
        OpWorkload("Sigmoid", Attrs(), (LARGE,), blocked=True),
        OpWorkload("Add", Attrs(), (LARGE, LARGE), blocked=True),
        OpWorkload("MaxPool", Attrs(kernel_shape=(2, 2)), (LARGE,), blocked=True),
        OpWorkload("Sigmoid", Attrs(), (LARGE,)),
        OpWorkload("Gather", Attrs(), (WorkloadOperand("float32", (9, 4), True), WorkloadOperand("int64", (3,)))),
        OpWorkload("com.microsoft::Gelu", Attrs(), (LARGE,)),
        OpWorkload("Split", Attrs(axis=1), (LARGE, WorkloadOperand("int64", (2,), True, (32, 32))), 2),
        OpWorkload("Greater", Attrs(), (LARGE, LARGE)),
    ],
    ids=lambda call: call.op + " blocked" * call.blocked,
)
def test_onnx_runtime_takes_some_time(call: OpWorkload) -> None:
    pytest.importorskip("onnxruntime")
    from graphopt.verify.runtimes import OnnxRuntimeProfiler

    found = measure(call, OnnxRuntimeProfiler())
    if call.blocked and found == UNMEASURABLE:
        pytest.skip("no blocked layout on this processor")
    assert found.seconds is not None
    assert found.seconds > 0 or call.op == "Gather"  # a few rows are nothing
    assert found.runs > 5


def test_two_copies_read_nothing_in_common() -> None:
    profiler = FakeProfiler(lambda node: 1e-6)
    measure(NOTHING, profiler)
    inputs = [name for node in profiler.seen[0].graph.node for name in node.input]
    assert len(set(inputs)) == len(inputs)


def test_time_is_a_value() -> None:
    assert Time(None) == UNMEASURABLE
