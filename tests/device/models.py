"""Whole models on a GPU, beside ONNX Runtime's CUDA execution and torch.compile, where these are installed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import graphopt
from graphopt.bench import random_feeds
from tests.device.machine import Call, Machine
from tests.device.table import Line, time_of

_COMPILE = "import sys, graphopt; graphopt.compile(sys.argv[1], target=sys.argv[2]).compiled"


def models(machine: Machine, paths: list[Path], ready: set[Path]) -> Iterator[Line]:
    """A line for each model that is ready (``warmed``), and engine.

    A file with the suffix ``.pt2`` beside a model, as torch.export saves it, is what torch.compile runs.
    """
    for path in paths:
        if path not in ready:
            yield Line("model", path.stem, "not compiled in time, or not at all", "", "")
            continue
        compiled = graphopt.compile(path, target=machine.target)
        feeds = next(random_feeds(graphopt.load(path), {}, {}))
        there = {name: machine.array(a) for name, a in feeds.items()}
        engines = {name: call for name, call in _engines(machine, path, feeds).items() if call is not None}
        times = machine.walls(partial(compiled, there), *engines.values())
        for name, theirs in zip(engines or {"": None}, times[1:] or [0.0], strict=True):
            share, goal = (theirs / times[0], 1.0) if engines else (None, None)
            yield Line("model", path.stem, time_of(times[0]), name, time_of(theirs) if name else "", share, goal)


def warmed(machine: Machine, paths: list[Path], patience: float) -> set[Path]:
    """The models whose kernels are compiled within so many seconds, each by a process of its own: kernels are kept."""
    end = time.monotonic() + patience
    running = {p: subprocess.Popen([sys.executable, "-c", _COMPILE, str(p), machine.target]) for p in paths}
    ready = set()
    for path, process in running.items():
        try:
            if process.wait(max(0.0, end - time.monotonic())) == 0:
                ready.add(path)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return ready


def _engines(machine: Machine, path: Path, feeds: dict[str, Any]) -> dict[str, Call | None]:
    if machine.target != "cuda":
        return {}
    return {"ONNX Runtime": _in_onnxruntime(path, feeds), "torch.compile": _in_torch(path.with_suffix(".pt2"), feeds)}


def _in_onnxruntime(path: Path, feeds: dict[str, Any]) -> Call | None:
    """A call with inputs and outputs on the GPU, products in float32 as ours; None where it cannot be had."""
    try:
        import onnxruntime as ort
    except ImportError:
        return None
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        return None
    session = ort.InferenceSession(str(path), providers=[("CUDAExecutionProvider", {"use_tf32": "0"})])
    if "CUDAExecutionProvider" not in session.get_providers():
        return None
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), "cuda", 0))
    for output in session.get_outputs():
        binding.bind_output(output.name, "cuda")
    return lambda: session.run_with_iobinding(binding)


def _in_torch(path: Path, feeds: dict[str, Any]) -> Call | None:
    """A call of an exported program, compiled by torch; None where it cannot be had."""
    try:
        import torch
    except ImportError:
        return None
    if not path.exists() or not torch.cuda.is_available():
        return None
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    module = torch.compile(torch.export.load(path).module().cuda(), mode="reduce-overhead")
    given = [torch.from_numpy(np.ascontiguousarray(a)).cuda() for a in feeds.values()]

    def call() -> None:
        with torch.no_grad():
            module(*given)

    return call
