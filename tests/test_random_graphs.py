"""Random graphs keep their meaning: optimized, printed and written; optimizing twice changes nothing more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from onnx.reference.op_run import OpRun

from graphopt.errors import GraphoptError, InvalidModelError
from graphopt.ir import onnx_io
from graphopt.ir.constants import Array, Constant
from graphopt.ir.evaluate import run
from graphopt.ir.graph import Graph
from graphopt.ir.structure import same
from graphopt.ir.text import parse, show
from graphopt.ir.types import TensorType, substitute
from graphopt.optimize import optimize_graph
from graphopt.rewrite.checking.check import in_onnxruntime
from graphopt.rewrite.rule.rule import Soundness
from graphopt.target import TARGETS
from graphopt.verify.compare import UnverifiedError
from graphopt.verify.runtimes import EngineError, open_model
from tests.random_graphs import compared, random_graph
from tests.recipes.maker import SPECIAL

SEED = st.integers(0, 10**9)
TARGET = st.sampled_from(sorted(name for name, t in TARGETS.items() if t.makes_models))
POLICY = st.sampled_from([Soundness.FINITE, Soundness.REALS, Soundness.REALS])
SIZES = {"n": 3, "m": 2}


def tried(times: int) -> settings:
    """The same examples every time. A failure is made smaller by hand: fewer steps of one seed are the same graph's
    beginning."""
    return settings(max_examples=times, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])


@tried(12)
@given(SEED, st.integers(3, 16), TARGET, POLICY)
def test_the_optimized_graph_computes_the_same(seed: int, steps: int, target: str, policy: Soundness) -> None:
    keeps_its_meaning(random_graph(Random(seed), steps), target, policy)


@pytest.mark.slow
@tried(500)
@given(SEED, st.integers(5, 40), TARGET, POLICY)
def test_many_optimized_graphs_compute_the_same(seed: int, steps: int, target: str, policy: Soundness) -> None:
    keeps_its_meaning(random_graph(Random(seed), steps), target, policy)


def keeps_its_meaning(graph: Graph, target: str, policy: Soundness) -> None:
    with TemporaryDirectory() as folder:
        before, after = Path(folder) / "before.onnx", Path(folder) / "after.onnx"
        onnx_io.save(graph, before)
        original = onnx_io.load(before)
        key = original.key()
        try:
            found, report = optimize_graph(original, target=TARGETS[target], policy=policy)
        except InvalidModelError:  # sizes may come to nothing that an op takes, which is known when they are folded
            with pytest.raises(EngineError):
                open_model(before)[0](drawn(graph, np.random.default_rng(0)))
            return
        assert original.key() == key
        assert not [line for line in report.warnings if "was left out" in line]
        onnx_io.save(found, after)
        with suppress(UnverifiedError):
            compared(before, after)
        if report.exploration is None or report.exploration.stop == "saturated":
            again, _ = optimize_graph(found, target=TARGETS[target], policy=policy)
            assert same(found, again) is None


def together(op: OpRun, *inputs: Any, run: Callable[..., Any] = OpRun.run, **attrs: Any) -> Any:
    """What an op makes, each array in one piece."""
    outputs = run(op, *inputs, **attrs)
    return tuple(np.ascontiguousarray(o) if isinstance(o, np.ndarray) and o.ndim else o for o in outputs)


@tried(12)
@given(SEED)
def test_exact_rules_keep_every_bit(seed: int) -> None:
    """In one executor, NaN and infinities included, which hands on arrays that lie together: numpy sums in another
    order where they do not."""
    graph = random_graph(Random(seed), 10, special=True)
    found, _ = optimize_graph(graph, policy=Soundness.EXACT)
    feeds = drawn(graph, np.random.default_rng(seed))
    with patch.object(OpRun, "run", together):
        try:
            want = run(graph, feeds)
        except Exception:  # whatever the Python of an op raises on these inputs
            return
        assert bits(run(found, feeds)) == bits(want)


@tried(15)
@given(SEED)
def test_exact_results_keep_every_bit_in_onnxruntime(seed: int) -> None:
    keeps_every_bit_in_onnxruntime(seed)


@pytest.mark.slow
@tried(100)
@given(SEED)
def test_many_exact_results_keep_every_bit_in_onnxruntime(seed: int) -> None:
    keeps_every_bit_in_onnxruntime(seed)


def keeps_every_bit_in_onnxruntime(seed: int) -> None:
    """Folded constants, too, are what the runtime would have computed."""
    pytest.importorskip("onnxruntime")
    graph = random_graph(Random(seed), 12, special=True)
    found, _ = optimize_graph(graph, policy=Soundness.EXACT)
    feeds = drawn(graph, np.random.default_rng(seed))
    try:
        want = in_onnxruntime(graph)(feeds)
    except GraphoptError:  # what ONNX Runtime has no kernel for, or refuses on these inputs
        return
    got = in_onnxruntime(found)(feeds)
    names = graph.output_names
    assert bits(dict(zip(names, got, strict=True))) == bits(dict(zip(names, want, strict=True)))


def drawn(graph: Graph, rng: np.random.Generator) -> dict[str, Array]:
    """Inputs with many special numbers."""
    found: dict[str, Array] = {}
    for value in graph.inputs:
        kind = graph.types[value]
        assert isinstance(kind, TensorType)
        assert isinstance(kind.shape, tuple)
        shape = [int(str(substitute(size, dict(SIZES)))) for size in kind.shape]
        plain = rng.standard_normal(shape) if "float" in kind.dtype else rng.integers(-3, 4, shape)
        special = rng.choice(np.array(SPECIAL), shape) if "float" in kind.dtype else plain
        with np.errstate(over="ignore"):
            found[graph.names[value]] = np.where(rng.random(shape) < 0.4, special, plain).astype(kind.dtype)
    return found


def bits(arrays: Mapping[str, Array]) -> dict[str, bytes]:
    """What arrays hold bit by bit, whatever NaN a NaN is."""
    found = {}
    for name, array in arrays.items():
        array = np.asarray(array)
        if array.dtype.kind == "f":
            array = np.where(np.isnan(array), np.nan, array).astype(array.dtype)
        found[name] = f"{array.dtype}{array.shape}".encode() + array.tobytes()
    return found


@tried(30)
@given(SEED)
def test_what_is_printed_reads_back(seed: int) -> None:
    graph = random_graph(Random(seed), 12, special=True)
    beside: list[Constant] = []
    assert same(graph, parse(show(graph, beside), beside)) is None


@tried(30)
@given(SEED)
def test_what_is_written_reads_back(seed: int) -> None:
    graph = random_graph(Random(seed), 12, special=True)
    splats = [n.inputs[0] for n in graph.nodes() if n.op == "ConstantOfShape"]
    assume(not any(v is not None and graph.constant_of(v) for v in splats))  # they are read as the constants they are
    read = onnx_io.load(onnx_io.to_bytes(graph))
    assert same(graph, read) is None
    assert onnx_io.to_bytes(onnx_io.load(onnx_io.to_bytes(read))) == onnx_io.to_bytes(read)
