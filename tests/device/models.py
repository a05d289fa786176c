"""Whole models on a GPU, beside ONNX Runtime's CUDA execution and torch.compile, where these are installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import graphopt
from graphopt.benchmark.bench import random_feeds
from graphopt.ir.tolerance import error
from graphopt.verify.runtimes import EngineError
from tests.device.machine import Call, Machine
from tests.device.table import Line, time_of

Engine = Callable[[Path, dict[str, Any]], Call]


def model(machine: Machine, path: Path, wait: Callable[[], object], engines: Mapping[str, Engine]) -> Iterator[Line]:
    """A line for the model by itself, and one beside each engine, which says why where it cannot be had. The model is
    compiled before ``wait`` is called, and measured after.

    A file with the suffix ``.pt2`` beside a model, as torch.export saves it, is what torch.compile runs.
    """
    compiled = graphopt.compile(path, target=machine.target)
    feeds = next(random_feeds(graphopt.load(path), {}, {}))
    there = {name: machine.array(a) for name, a in feeds.items()}
    call = partial(compiled, there)
    found = call()
    wait()
    yield Line("model", path.stem, time_of(machine.walls(call)[0]), "", "")
    for name, engine in engines.items():
        try:
            theirs = engine(path, feeds)
        except EngineError as error:
            yield Line("model", path.stem, "", name, str(error))
            continue
        except Exception as error:  # of whatever the engine does not like
            yield Line("model", path.stem, "", name, f"{type(error).__name__}: {' '.join(str(error).split())[:100]}")
            continue
        ours, times = machine.walls(call, theirs)
        said = time_of(ours) + _difference(found, theirs())
        yield Line("model", path.stem, said, name, time_of(times), times / ours, 1.0)


def _difference(found: Mapping[str, Any], theirs: Any) -> str:
    """How far our outputs are from theirs, where these are given: above 1 is wrong."""
    if theirs is None:
        return ""
    pairs = zip(found.values(), theirs, strict=True)
    worst = max((error(np.asarray(b), np.asarray(getattr(a, "get", lambda a=a: a)())) for a, b in pairs), default=0.0)
    return f", {'as exact as expected' if worst <= 1 else f'error {worst:.1f} of the tolerance'}"


def _in_onnxruntime(path: Path, feeds: dict[str, Any]) -> Call:
    """A call with inputs and outputs on the GPU, products in float32 as ours, which gives the outputs' arrays."""
    try:
        import onnxruntime as ort
    except ImportError:
        raise EngineError("onnxruntime-gpu is not installed") from None
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        raise EngineError("not measured: onnxruntime is installed without CUDA (onnxruntime-gpu)")
    if hasattr(ort, "preload_dlls"):
        ort.preload_dlls()  # CUDA and cuDNN as they are installed by pip
    session = ort.InferenceSession(str(path), providers=[("CUDAExecutionProvider", {"use_tf32": "0"})])
    if "CUDAExecutionProvider" not in session.get_providers():
        raise EngineError("not measured: onnxruntime cannot load its CUDA execution")
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), "cuda", 0))
    for output in session.get_outputs():
        binding.bind_output(output.name, "cuda")
    wanted = session.run(None, feeds)

    def call() -> Any:
        session.run_with_iobinding(binding)
        return wanted

    return call


def _in_torch(path: Path, feeds: dict[str, Any]) -> Call:
    """A call of an exported program, compiled by torch."""
    path = path.with_suffix(".pt2")
    if not path.exists():
        raise EngineError(f"not measured: there is no {path.name} beside it")
    try:
        import torch
    except ImportError:
        raise EngineError("not measured: torch is not installed") from None
    if not torch.cuda.is_available():
        raise EngineError("not measured: torch sees no GPU")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    module = torch.compile(torch.export.load(path).module().cuda(), mode="reduce-overhead")
    given = [torch.from_numpy(np.ascontiguousarray(a)).cuda() for a in feeds.values()]

    def call() -> None:
        with torch.no_grad():
            module(*given)

    return call


ENGINES: Mapping[str, Engine] = {"ONNX Runtime": _in_onnxruntime, "torch.compile": _in_torch}
