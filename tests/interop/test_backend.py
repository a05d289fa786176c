"""ONNX's own backend tests through ``graphopt.interop.backend``: all that do not need the network.

One in ``SHARE`` runs by default, and one in ``SIMULATED`` on a simulated GPU. All of them take some minutes, on the
simulated GPU an hour: ``pytest -m "slow or not slow" tests/interop/test_backend.py``.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.runner import Runner

import graphopt.interop.backend
from graphopt.errors import UsageError
from graphopt.interop.backend import PreparedModel
from graphopt.ir.tolerance import error
from tests.onnx_suite import suite

SHARE = 68
SIMULATED = 85
KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
LOWERED = 0.75
"""The share of cases that run with no op left to reference, at least."""

FAILING = {
    "test_bernoulli.*": "random numbers of a generator of its own",
    "test_gradient_.*": "the reference evaluator has no Gradient",
    "test_image_decoder_.*": "the reference evaluator needs Pillow for ImageDecoder",
    "test_if_opt": "the reference evaluator gives a sequence of another length",
    "test_loop16_seq_none": "the reference evaluator gives a sequence where an array is expected",
    "test_range_b?float16_type_positive_delta_expanded": "the reference evaluator stacks what is a scalar",
    "test_training_dropout(_default)?(_mask)?": "random numbers of a generator of its own",
    "test_scan_sum": "Scan of opset 8 leaves an input out, which the reference evaluator cannot",
}
"""Cases that ONNX's own reference evaluator fails too, or that draw random numbers, and why."""

CLOSE = {
    "test_attention_4d_causal_fp16_expanded": "what is fused is rounded less often than the reference evaluator rounds",
    "test_dft_inverse.*": "where zero is exact, the reference evaluator has rounding errors of its own",
}
"""Cases that are held to our tolerance, which looks at a tensor's largest magnitude, and why."""

DataSet = tuple[list[Any], list[Any]]


@pytest.mark.parametrize("first", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in range(1, SHARE))])
def test_the_backend_suite(first: int) -> None:
    found = suite(*KINDS)[first::SHARE]
    wrong, lowered = [], 0
    for case in found:
        if any(re.fullmatch(pattern, case.name) for pattern in FAILING):
            continue
        try:
            lowered += not run(case).compiled.report.unlowered
        except Exception as problem:
            wrong.append(f"{case.name}: {type(problem).__name__}: {' '.join(str(problem).split())[:300]}")
    assert not wrong, "\n".join(wrong)
    assert lowered >= LOWERED * len(found) - 5, f"{lowered} of {len(found)} cases ran with no op left to reference"


@pytest.mark.parametrize("first", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in range(1, SIMULATED))])
def test_the_backend_suite_on_a_simulated_gpu(first: int) -> None:
    wrong = []
    for case in suite(*KINDS)[first::SIMULATED]:
        if any(re.fullmatch(pattern, case.name) for pattern in FAILING):
            continue
        try:
            run(case, target="simulated")
        except Exception as problem:
            wrong.append(f"{case.name}: {type(problem).__name__}: {' '.join(str(problem).split())[:300]}")
    assert not wrong, "\n".join(wrong)


def run(case: TestCase, **options: Any) -> PreparedModel:
    """The case's model, which gives what the case says."""
    model = case.model or onnx.load(f"{case.model_dir}/model.onnx")
    prepared = graphopt.interop.backend.prepare(model, "CPU", optimize=False, **options)
    for given, want in data_sets(case, model):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = list(prepared.run(given))
        if any(re.fullmatch(pattern, case.name) for pattern in CLOSE):
            assert all(error(w, g) <= 1 for w, g in zip(want, got, strict=True))
        else:
            Runner.assert_similar_outputs(want, got, case.rtol, case.atol)
    return prepared


def data_sets(case: TestCase, model: onnx.ModelProto) -> Iterator[DataSet]:
    """Inputs and outputs of a case."""
    for given, want in case.data_sets or ():
        yield [array(x) for x in given], [array(x) for x in want]
    if case.model_dir is not None:
        for folder in sorted(Path(case.model_dir).glob("test_data_set_*")):
            yield (
                stored(folder, "input", [v.type for v in model.graph.input]),
                stored(folder, "output", [v.type for v in model.graph.output]),
            )


def stored(folder: Path, kind: str, types: list[onnx.TypeProto]) -> list[Any]:
    found: list[Any] = []
    for k, type in enumerate(types):
        file = folder / f"{kind}_{k}.pb"
        if not file.exists():
            break
        if type.HasField("sequence_type"):
            found.append(numpy_helper.to_list(onnx.SequenceProto.FromString(file.read_bytes())))
        else:
            found.append(numpy_helper.to_array(onnx.TensorProto.FromString(file.read_bytes())))
    return found


def array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def test_a_node_runs_by_itself() -> None:
    node = helper.make_node("Add", ["a", "b"], ["c"])
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (got,) = graphopt.interop.backend.run_node(node, [x, x])
    np.testing.assert_array_equal(got, x + x)


def test_a_model_runs_in_one_call() -> None:
    node = helper.make_node("Neg", ["a"], ["c"])
    types = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["n"]) for n in "ac"]
    model = helper.make_model(helper.make_graph([node], "g", types[:1], types[1:]))
    x = np.arange(3, dtype=np.float32)
    for inputs in ([x], {"a": x}):
        (got,) = graphopt.interop.backend.run_model(model, inputs)
        np.testing.assert_array_equal(got, -x)


def test_programs_run_on_the_cpu() -> None:
    assert graphopt.interop.backend.supports_device("CPU")
    assert graphopt.interop.backend.supports_device("CPU:0")
    assert not graphopt.interop.backend.supports_device("CUDA")


def test_other_devices_are_refused() -> None:
    graph = helper.make_graph([], "g", [], [])
    with pytest.raises(UsageError, match="programs run on the device CPU, not on 'CUDA:1'"):
        graphopt.interop.backend.prepare(helper.make_model(graph), "CUDA:1")
