"""Calls that take turns on this machine, other engines among them, and the table that says how they did: what the
scripts of this folder measure with."""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from graphopt.benchmark import ceilings

ROUNDS, SECONDS = 7, 0.02
"""How often each call has its turn, and how long a turn is."""

Call = Callable[[], object]
Timer = Callable[[], float]


def burst(call: Call, seconds: float = SECONDS, clock: Timer = time.perf_counter) -> float:
    """Seconds of the fastest of some calls, one at least."""
    best, end = math.inf, clock() + seconds
    while True:
        start = clock()
        call()
        now = clock()
        best = min(best, now - start)
        if now > end:
            return best


def least(*timers: Timer, rounds: int = ROUNDS) -> list[float]:
    """The least that each timer says, of rounds in which they take turns."""
    found = [math.inf] * len(timers)
    for _ in range(rounds):
        found = [min(had, timer()) for had, timer in zip(found, timers, strict=True)]
    return found


def fastest(*calls: Call, rounds: int = ROUNDS) -> list[float]:
    """Seconds of the fastest call of each, of bursts that take turns."""
    return least(*(partial(burst, call) for call in calls), rounds=rounds)


def operation_timer(threads: int) -> Timer:
    """What says how many seconds a multiplication or an addition of float32 takes this machine at the least: of all
    times that it was asked, so that a moment at which others were busy lowers no limit."""
    best = math.inf

    def timer() -> float:
        nonlocal best
        best = min(best, 1 / ceilings.peak(threads))
        return best

    return timer


def raced(program: Any, feeds: Mapping[str, Any], out: Mapping[str, Any], other: Call) -> list[float]:
    """Seconds of a call of a program into outputs that exist, of its kernels alone, and of another engine's call."""

    def kernels() -> float:
        return min(sum(row.seconds for row in program.profile(feeds)) for _ in range(4))

    return least(lambda: burst(lambda: program(feeds, out=out)), kernels, lambda: burst(other))


def session(model: bytes | str, threads: int = 1) -> Any:
    """ONNX Runtime's session of a model or of its file, all its optimizations on."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def onnxruntime_call(model: bytes, feeds: Mapping[str, Any], threads: int = 1) -> tuple[Call, dict[str, Any]]:
    """A call of ONNX Runtime, its inputs and outputs bound, and the outputs by name."""
    import onnxruntime

    opened = session(model, threads)
    want = dict(zip([o.name for o in opened.get_outputs()], opened.run(None, feeds), strict=True))
    binding = opened.io_binding()
    for name, array in feeds.items():
        binding.bind_cpu_input(name, array)
    for name, array in want.items():
        binding.bind_ortvalue_output(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
    return lambda: opened.run_with_iobinding(binding), want


def openvino_call(model: bytes, feeds: Mapping[str, Any], threads: int = 1) -> Call | None:
    """A call of OpenVINO, its inputs bound, in float32; None where it is not installed."""
    try:
        import openvino
    except ImportError:
        return None
    wanted = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.Core().compile_model(openvino.Core().read_model(model), "CPU", wanted).create_infer_request()
    for name, array in feeds.items():
        request.set_tensor(name, openvino.Tensor(array, shared_memory=True))
    return lambda: request.infer(share_outputs=True)


def keep_to_cores(threads: int) -> None:
    """Let this process run on so many processors, where the system can tell it to."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def arguments(doc: str, names: str, metavar: str = "NAME") -> argparse.ArgumentParser:
    """A command line of names and a number of threads, described by the first line of a module's docstring."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar=metavar, help=names)
    parser.add_argument("--threads", type=int, default=1)
    return parser


def sides(shape: str) -> tuple[int, ...]:
    """The numbers of ``128x768``."""
    return tuple(map(int, shape.split("x")))


def geometric_mean(ratios: Iterable[float]) -> str:
    """A line with the geometric mean of those that are numbers."""
    known = [r for r in ratios if not math.isnan(r)]
    return f"geometric mean of {len(known)}: {math.exp(np.mean(np.log(known))) if known else math.nan:.2f}"


@dataclass(frozen=True, slots=True)
class Table:
    """Lines of a name and figures: how wide names are, and the columns, as in ``us:10.1f ratio:8.2f``."""

    corner: str
    width: int
    columns: str

    @property
    def heading(self) -> str:
        """The line of titles."""
        titles = (f"{title:>{form.split('.')[0]}}" for title, form in self._forms())
        return f"{self.corner:{self.width}}" + "".join(titles)

    def line(self, name: str, *figures: Any) -> str:
        """The line of a name."""
        told = (f"{figure:{form}}" for (_, form), figure in zip(self._forms(), figures, strict=True))
        return f"{name:{self.width}}" + "".join(told)

    def _forms(self) -> list[list[str]]:
        return [column.split(":") for column in self.columns.split()]
