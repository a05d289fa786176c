"""ONNX's backend tests as tests of the optimizer: what ONNX Runtime computes right as it is, it still does afterwards.

One in ``SHARE`` of the 2 024 tests runs by default. All of them take some minutes:
``pytest -m "slow or not slow" tests/test_suite.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.case.test_case import TestCase

from graphopt.ir import onnx_io
from graphopt.ir.tolerance import error
from graphopt.optimize import optimize_graph
from graphopt.target import target
from graphopt.verify.runtimes import EngineError, open_in_onnxruntime
from tests.onnx_suite import suite

pytest.importorskip("onnxruntime")

SHARE = 60
KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
TARGETS = ("portable", "ort")

DataSet = tuple[list[Any], list[Any]]


@pytest.mark.parametrize("first", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in range(1, SHARE))])
def test_what_was_right_stays_right(first: int, tmp_path: Path) -> None:
    broken = [f"{case.name}: {what}" for case in suite(*KINDS)[first::SHARE] for what in problems(case, tmp_path)]
    assert not broken, "\n".join(broken)


def problems(case: TestCase, folder: Path) -> Iterator[str]:
    """What is wrong with the optimized model, for each target; models that cannot run must optimize all the same."""
    model = case.model or onnx.load(f"{case.model_dir}/model.onnx")
    before = folder / "before.onnx"
    before.write_bytes(model.SerializeToString())
    samples = data_sets(case, model)
    try:
        known = [computed(before, given) for given, _ in samples]
        is_right = all(is_close(case, want, got) for (_, want), got in zip(samples, known, strict=True))
    except EngineError:
        is_right = False
    for name in TARGETS:
        after = folder / "after.onnx"
        try:
            graph, _ = optimize_graph(onnx_io.load(model), target=target(name))
            onnx_io.save(graph, after)
            if not is_right:
                continue
            found = [computed(after, given) for given, _ in samples]
        except Exception as refused:
            yield f"{name}: {type(refused).__name__}: {refused}"
            continue
        if signature(after) != signature(before):
            yield f"{name}: its inputs or outputs have other names"
        for want, got in zip(known, found, strict=True):
            yield from (f"{name}: output {i} differs" for i in range(len(want)) if not is_same(want[i], got[i]))


def data_sets(case: TestCase, model: onnx.ModelProto) -> list[DataSet]:
    """The inputs and expected outputs of a test: made with it, or in files beside it."""
    if case.data_sets is not None:
        return [(list(map(array, given)), list(map(array, want))) for given, want in case.data_sets]
    folders = sorted(Path(case.model_dir).glob("test_data_set_*"))
    return [(stored(f, "input", model.graph.input), stored(f, "output", model.graph.output)) for f in folders]


def array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def stored(folder: Path, kind: str, infos: Any) -> list[Any]:
    """The values in a folder, each of the type that the model states."""
    readers = {
        "sequence_type": (onnx.SequenceProto, numpy_helper.to_list),
        "optional_type": (onnx.OptionalProto, numpy_helper.to_optional),
    }
    found: list[Any] = []
    for index in range(len(list(folder.glob(f"{kind}_*.pb")))):
        message, read = readers.get(infos[index].type.WhichOneof("value"), (onnx.TensorProto, numpy_helper.to_array))
        proto = message()
        proto.ParseFromString((folder / f"{kind}_{index}.pb").read_bytes())
        found.append(read(proto))
    return found


def computed(path: Path, given: list[Any]) -> list[Any]:
    """What ONNX Runtime computes, with its own optimizations as always."""
    names = [i.name for i in onnx.load(path).graph.input]
    return open_in_onnxruntime(str(path), optimized=True)(dict(zip(names, given, strict=False)))


def signature(path: Path) -> tuple[list[str], list[str]]:
    """What a caller gives and gets. In IR 3 and below constants are listed as inputs too, and are none."""
    model = onnx.load(path)
    constants = {i.name for i in model.graph.initializer} if model.ir_version < 4 else set()
    return [i.name for i in model.graph.input if i.name not in constants], [o.name for o in model.graph.output]


def is_close(case: TestCase, want: list[Any], got: list[Any]) -> bool:
    """Whether outputs are those that the test expects, as it wants them compared."""
    for a, b in zip(want, got, strict=True):
        if not isinstance(a, np.ndarray):
            if not is_same(a, b):
                return False
        elif a.dtype.kind in "fc":
            if a.dtype != b.dtype or not np.allclose(b, a, rtol=case.rtol, atol=case.atol, equal_nan=True):
                return False
        elif not np.array_equal(a, np.asarray(b).astype(a.dtype)):
            return False
    return True


def is_same(want: Any, got: Any) -> bool:
    if isinstance(want, list):
        return isinstance(got, list) and len(want) == len(got) and all(map(is_same, want, got))
    if want is None or isinstance(want, dict):
        return want == got
    return error(np.asarray(want), np.asarray(got)) <= 1
