import numpy as np
import pytest

from graphopt.benchmark.program_profiler import ProgramProfiler
from graphopt.calibration.timing import Stopwatch
from graphopt.ir.graph import NO_ATTRS
from graphopt.ir.onnx_io import to_bytes
from graphopt.ir.text import parse
from graphopt.rewrite.extract.workload import OpWorkload, WorkloadOperand
from graphopt.verify.runtimes import EngineError


def test_an_op_of_ours_has_a_time() -> None:
    stopwatch = Stopwatch(ProgramProfiler())
    found = stopwatch.measure(OpWorkload("graphopt::Block", NO_ATTRS, (WorkloadOperand("float32", (1, 32, 6, 6)),)))
    assert found.seconds is not None
    assert 1e-8 < found.seconds < 1e-2


def test_an_op_that_no_kernel_computes_has_none() -> None:
    call = OpWorkload("SplitToSequence", NO_ATTRS, (WorkloadOperand("float32", (3,)),))
    assert Stopwatch(ProgramProfiler()).measure(call).seconds is None


def test_each_run_tells_its_kernels() -> None:
    model = to_bytes(parse("x: float32[4] y = Relu(Neg(x)) return y"))
    runs = ProgramProfiler().profile(model, {"x": np.ones(4, np.float32)}, 0.0, (3, 5), 1)
    assert len(runs) == 3
    assert all(len(kernels) == 2 for kernels in runs), "each op has kernels of its own"
    with pytest.raises(EngineError):
        ProgramProfiler().profile(b"no model", {}, 0.0, (1, 1), 0)
