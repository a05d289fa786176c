"""What every test may rely on."""

import gc
import json
import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With several workers: the tests of a file share what they compile, so that one worker runs all of them, in order.
    Pages of the documentation have nothing in common, and go to whichever is free. ``--dist`` asks for another way."""
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return nodeid if nodeid.startswith("tests/test_docs.py") else super()._split_scope(nodeid)

    return ByFile(config, log)


def pytest_configure() -> None:
    """Tests make many objects, of which little is garbage that only the collector finds."""
    gc.set_threshold(100_000, 10, 10)


def pytest_collection_finish() -> None:
    """What was imported and collected stays: else the collector looks through all of it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def nobodys_prices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Times that whoever runs the tests has measured do not decide what comes out."""
    folder = tmp_path_factory.mktemp("data")
    before = os.environ.get("XDG_DATA_HOME")
    os.environ["XDG_DATA_HOME"] = str(folder)
    yield folder
    if before is None:
        del os.environ["XDG_DATA_HOME"]
    else:
        os.environ["XDG_DATA_HOME"] = before


@pytest.fixture(autouse=True, scope="session")
def kernels_are_compiled_here() -> Iterator[None]:
    """As long as no workers are asked for: tests keep all cores busy as it is, and each would start a compiler anew."""
    from graphopt.kernels import compile

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compile, "_FEW", sys.maxsize)
        patch.setattr(compile, "_SHORT", sys.maxsize)
        yield


def compared_here(folder: Path, *_: object) -> object:
    """What a process of its own would answer (``graphopt/verify/verification.py``), but for the limit of its memory."""
    from graphopt.verify import compare

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare, "confine", lambda memory: None)
        compare.answer(str(folder))
    return json.loads((folder / "answer.json").read_text())


@pytest.fixture(autouse=True, scope="session")
def models_are_compared_here() -> Iterator[Any]:
    """To start a process takes longer than to compare small models. Gives what starts one (``in_a_process``)."""
    verification = import_module("graphopt.verify.verification")
    starts_one = verification._ask
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verification, "_ask", compared_here)
        patch.setattr(import_module("graphopt.optimize"), "started_ahead", lambda asked: nullcontext())
        yield starts_one


@pytest.fixture
def in_a_process(models_are_compared_here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models are compared as users compare them, and not in the process of the tests."""
    monkeypatch.setattr(import_module("graphopt.verify.verification"), "_ask", models_are_compared_here)


@pytest.fixture(autouse=True)
def nobodys_ops() -> Iterator[None]:
    """Ops that a test adds are gone after it."""
    from graphopt.ir import custom_ops
    from graphopt.lowering.operators import table

    before = [dict(known) for known in (custom_ops._added, table._added)]
    yield
    for known, was in zip((custom_ops._added, table._added), before, strict=True):
        known.clear()
        known.update(was)


@pytest.fixture(scope="session")
def linker() -> None:
    """What makes machine code for GPUs; it needs none, but a library of the toolkit, which numba-cuda alone does not
    bring. Tests of it are skipped where that is not installed."""
    from graphopt.errors import CompilationError, MissingDependencyError
    from graphopt.kernels.cuda.machine import machine_code

    try:
        machine_code("", (9, 0))
    except MissingDependencyError as missing:
        pytest.skip(str(missing))
    except CompilationError:
        pass


@pytest.fixture(scope="session")
def exact_integers() -> None:
    """ONNX Runtime whose products of bytes are exact. On processors without dot products of bytes (AVX2 alone) its
    kernels add pairs of products in 16 bits, which saturate: there results in integers are wrong, and called so."""
    import numpy as np
    from onnx import helper, numpy_helper

    from graphopt.verify.runtimes import open_in_onnxruntime

    weights = numpy_helper.from_array(np.full((16, 16), 127, np.int8), "w")
    x, y = (helper.make_tensor_value_info(name, kind, [4, 16]) for name, kind in (("x", 2), ("y", 6)))
    graph = helper.make_graph([helper.make_node("MatMulInteger", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    (found,) = open_in_onnxruntime(model.SerializeToString())({"x": np.full((4, 16), 255, np.uint8)})
    if (found != 16 * 255 * 127).any():
        pytest.skip("ONNX Runtime's products of bytes saturate on this processor")


@pytest.fixture
def avx512(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A processor with AVX-512 and its dot products of bytes, whatever is here: for what is emitted, not run."""
    from graphopt.kernels import host
    from graphopt.runtime import cpu

    added = " ".join(cpu._ADDED.values()).split()
    monkeypatch.setattr(cpu, "features", lambda: frozenset([*added, "avx512_vnni"]))
    host.vector_bytes.cache_clear()
    yield
    host.vector_bytes.cache_clear()
