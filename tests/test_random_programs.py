"""Random graphs compute the same compiled as in ONNX Runtime or the reference evaluator, rewritten first or not."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import suppress
from math import inf
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import graphopt
from graphopt.compile import ReferenceWarning
from graphopt.errors import GraphoptError
from graphopt.ir import onnx_io
from graphopt.ir.constants import Array
from graphopt.ir.graph import Graph
from graphopt.ir.infer import infer
from graphopt.ir.tolerance import RELATIVE, error
from graphopt.ir.types import TensorType, substitute
from graphopt.verify.coarsest import coarsest_shares
from graphopt.verify.conditioning import explained_by_rounding
from graphopt.verify.runtimes import ONNX_RUNTIME, REFERENCE, EngineError, open_model
from tests.random_graphs import random_graph

pytest.importorskip("onnxruntime")

SEED = st.integers(0, 10**9)
ENGINES = (ONNX_RUNTIME, REFERENCE)
SIZES = ({"n": 3, "m": 2}, {"n": 1, "m": 1}, {"n": 0, "m": 3}, {"n": 18, "m": 5})
"""What open dimensions are, one after the other."""


def tried(times: int) -> settings:
    """The same examples every time. A failure is made smaller by hand: fewer steps of one seed are the same graph's
    beginning."""
    return settings(max_examples=times, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])


@tried(3)
@given(SEED)
def test_programs_compute_what_their_graphs_say(seed: int) -> None:
    holds(random_graph(Random(seed), 4), seed)


@tried(2)
@given(SEED)
def test_programs_for_a_gpu_compute_what_their_graphs_say(seed: int) -> None:
    holds(random_graph(Random(seed), 4), seed, "simulated")


@pytest.mark.slow
@tried(200)
@given(SEED, st.integers(3, 12))
def test_many_programs_compute_what_their_graphs_say(seed: int, steps: int) -> None:
    holds(random_graph(Random(seed), steps), seed)


@pytest.mark.slow
@tried(100)
@given(SEED, st.integers(3, 6))
def test_many_programs_for_a_gpu_compute_what_their_graphs_say(seed: int, steps: int) -> None:
    holds(random_graph(Random(seed), steps), seed, "simulated")


def holds(graph: Graph, seed: int, target: str = "cpu") -> None:
    """Fails where results differ by more than rounding explains."""
    with suppress(RoundingError):
        check(graph, seed, target)


def check(graph: Graph, seed: int, target: str = "cpu") -> None:
    """Compare on inputs of several sizes, where an engine runs the graph and gives finite numbers."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        onnx_io.save(graph, path)
        draws = [(feeds, want) for feeds in fed(graph, seed) if (want := answers(path, feeds))]
        for optimize in (False, True):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ReferenceWarning)
                made = graphopt.compile(path, optimize=optimize, target=target, cache=False)
            for feeds, wanted in draws:
                got = list(made(feeds).values())
                if min(apart(graph, want, got) for want in wanted) > 1:
                    problem = RoundingError if is_rounded(graph, path, feeds, got) else AssertionError
                    raise problem(seed, optimize, feeds)


class RoundingError(AssertionError):
    """Results differ by no more than rounding explains."""


def is_rounded(graph: Graph, path: Path, feeds: dict[str, Array], got: list[Any]) -> bool:
    """Whether each result differs from an engine's by no more than rounding explains."""
    shares = dict(enumerate(coarsest_shares(graph)))
    for engine in ENGINES:
        with suppress(EngineError, GraphoptError):
            run, _ = open_model(path, engine)
            once = run(feeds)
            beyond = {k: made for k, made in enumerate(got) if apart(graph, [once[k]], [made]) > 1}
            if explained_by_rounding(path, engine, graph, run, feeds, once, beyond, shares).keys() == beyond.keys():
                return True
    return False


def fed(graph: Graph, seed: int) -> Iterator[dict[str, Array]]:
    rng = np.random.default_rng(seed)
    for sizes in SIZES:
        feeds = {}
        for value in graph.inputs:
            kind = graph.types[value]
            assert isinstance(kind, TensorType)
            assert isinstance(kind.shape, tuple)
            shape = [int(str(substitute(size, dict(sizes)))) for size in kind.shape]
            floats = "float" in kind.dtype
            drawn = np.abs(rng.standard_normal(shape)) + 0.25 if floats else rng.integers(-3, 4, shape)
            feeds[graph.names[value]] = np.asarray(drawn).astype(kind.dtype)
        yield feeds


def answers(path: Path, feeds: dict[str, Array]) -> list[list[Any]]:
    """What each engine gives that takes the model and the inputs; nothing where one gives what is not finite."""
    found = []
    for engine in ENGINES:
        try:
            with np.errstate(all="ignore"):
                found.append(open_model(path, engine)[0](feeds))
        except (EngineError, GraphoptError):
            continue
    return found if all(np.isfinite(a).all() for f in found for a in f if a.dtype.kind == "f") else []


def apart(graph: Graph, want: list[Any], got: list[Any]) -> float:
    """By how many times the tolerance of the coarsest dtype in the graph; numbers that are no floats may be rounded
    to another where they were computed from floats."""
    dtypes = {f.dtype or "" for f in infer(graph).values()}
    coarsest = max((RELATIVE.get(d, 0.0) for d in dtypes), default=0.0)
    return max((_error(a, b, coarsest) for a, b in zip(want, got, strict=True)), default=0.0)


def _error(want: Any, got: Any, coarsest: float) -> float:
    if want.dtype != got.dtype or want.shape != got.shape:
        return inf
    if want.dtype.kind == "f":
        return error(want, got, coarsest)
    return inf if np.count_nonzero(want != got) * 10 > want.size else 0.0
