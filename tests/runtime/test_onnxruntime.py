"""Regions: nodes of a program in ONNX Runtime, on arrays of the program."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

import graphopt
from graphopt.compile import ReferenceWarning
from graphopt.errors import ExecutionError, MissingDependencyError
from graphopt.ir import onnx_io
from graphopt.ir.text import parse
from graphopt.runtime import load
from graphopt.runtime.onnxruntime import Region


def region(text: str) -> Region:
    return Region(onnx_io.to_bytes(parse(text)))


def test_results_are_given_or_fill_what_is_there() -> None:
    double = region("x: float32[n, 2], y: float32[n, 2] z = Add(x, Mul(y, 2.0)) w = Shape(x) return z, w")
    x, y = np.ones((3, 2), np.float32), np.full((3, 2), 4, np.float32)
    given = double(x, y)
    assert given is not None
    z, w = np.empty((3, 2), np.float32), np.empty(2, np.int64)
    for _ in range(2):  # what is bound stays bound
        z[:], w[:] = 0, 0
        assert double(x, y, z, w) is None
        np.testing.assert_array_equal(z, given[0])
        np.testing.assert_array_equal(w, given[1])
    other = np.empty((3, 2), np.float32)
    y[:] = 5
    double(x, y, other, w)
    assert (other == 11).all()
    assert (z == 9).all()


@pytest.mark.parametrize("n", [0, 1])
def test_arrays_without_elements_are_filled(n: int) -> None:
    z = np.empty((n, 2), np.float32)
    region("x: float32[n, 2] z = Neg(x) return z")(np.ones((n, 2), np.float32), z)
    assert (z == -1).all()


def test_what_is_refused_is_an_error_of_one_line() -> None:
    with pytest.raises(ExecutionError, match=r"^ONNX Runtime: [^\n]*$"):
        Region(b"no model")
    with pytest.raises(ExecutionError, match=r"^ONNX Runtime: [^\n]*$"):
        region("x: float32[2] z = Neg(x) return z")(np.ones(3, np.float32))
    with pytest.raises(ExecutionError, match=r"the shape \[0\], not \[1\]"):
        region("x: float32[n] z = Neg(x) return z")(np.ones(0, np.float32), np.ones(1, np.float32))


def test_threads_call_a_region_at_once() -> None:
    negated = region("x: float32[n] z = Neg(x) return z")
    outputs = [np.empty(1000, np.float32) for _ in range(8)]

    def calls(k: int) -> None:
        for _ in range(50):
            negated(np.full(1000, k, np.float32), outputs[k])

    threads = [Thread(target=calls, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((output == -k).all() for k, output in enumerate(outputs))


def test_a_forked_process_opens_a_session_of_its_own() -> None:
    negated, z = region("x: float32[n] z = Neg(x) return z"), np.empty(3, np.float32)
    negated(np.ones(3, np.float32), z)
    child = os.fork()
    if child == 0:  # no cover: another process
        negated(np.full(3, 2, np.float32), z)
        os._exit(int(not (z == -2).all()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_program_with_regions_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = parse("x: float32[n, 2] r: float32[k, 2] y = com.microsoft::CDist(Relu(x), r) return y")
    with pytest.warns(ReferenceWarning, match="runs in ONNX Runtime"):
        compiled = graphopt.compile(graph)
    compiled.save(tmp_path / "p")
    x, r = np.array([[1, -1], [0, 2]], np.float32), np.array([[3, 0]], np.float32)
    np.testing.assert_array_equal(load(tmp_path / "p")(x, r)["y"], [[4], [13]])
    np.testing.assert_array_equal(load(tmp_path / "p")(x, r[:0])["y"], np.empty((2, 0)))
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingDependencyError, match=r"run in ONNX Runtime, which is not installed: pip install"):
        load(tmp_path / "p")
