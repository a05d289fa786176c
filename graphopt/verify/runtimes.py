"""Runtimes of models, to see what one computes or how long it takes: ONNX Runtime where it is installed, else, for what
it computes, ONNX's reference evaluator.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from graphopt.errors import MissingDependencyError
from graphopt.frozen import dataclass
from graphopt.runtime.onnxruntime import onnxruntime, open_session, session_options
from graphopt.verify.arrays import comparable

Feeds: TypeAlias = Mapping[str, Any]
"""Inputs by name: arrays, lists of arrays for sequences, None for what is absent."""

Runner: TypeAlias = Callable[[Feeds], list[Any]]
"""A loaded model: from inputs to the list of outputs. Raises EngineError where it refuses the inputs."""

ONNX_RUNTIME = "ONNX Runtime"
REFERENCE = "ONNX's reference evaluator"
OUT_OF_MEMORY = ("Failed to allocate memory", "bad_alloc", "bad allocation")
"""Words by which ONNX Runtime's errors say so: no fault of a model."""


class EngineError(Exception):
    """The engine does not run the model, or not on these inputs."""


class EngineMemoryError(EngineError, MemoryError):
    """The engine has too little memory for it: that is no fault of a model."""


@dataclass(frozen=True, slots=True)
class ProfiledKernel:
    """One thing that a runtime did in a run: for which node of the model as it optimized it, which op, how long."""

    name: str
    op: str
    seconds: float


class Profiler(Protocol):
    """A runtime that tells what it did, and how long each of it took."""

    @property
    def runtime(self) -> str:
        """Its name, as targets call it, and its version."""

    @property
    def threads(self) -> int:
        """How many threads it uses."""

    def profile(
        self, model: bytes, feeds: Feeds, seconds: float, runs: tuple[int, int], warm: int
    ) -> list[list[ProfiledKernel]]:
        """The kernels of each run, in order, of runs that together take some seconds, but are of some number at least
        and at most; the first few are left out. Raises EngineError where the runtime refuses the model."""


@dataclass(frozen=True)
class OnnxRuntimeProfiler:
    """ONNX Runtime on the CPU, all its optimizations on. Raises MissingDependencyError where it is not installed.

    With one thread, those runs count in which that thread had a processor all the time, if there are some.
    """

    threads: int = 1

    @property
    def runtime(self) -> str:
        """``ONNX Runtime 1.31.1``."""
        return onnxruntime_version()

    def profile(
        self, model: bytes, feeds: Feeds, seconds: float, runs: tuple[int, int], warm: int
    ) -> list[list[ProfiledKernel]]:
        """See ``Profiler``."""
        ort = onnxruntime()
        with tempfile.TemporaryDirectory(prefix="graphopt-") as folder:
            options = session_options(self.threads)
            options.enable_profiling, options.profile_file_prefix = True, f"{folder}/profile"
            session = _session(model, options)
            try:
                had = _run_often(_bound(ort, session, feeds), seconds, runs, warm)
            except Exception as error:
                raise EngineError(_brief(error)) from None
            finally:
                file = session.end_profiling()
            events = json.loads(Path(file).read_text())
        kernels_by_run = [kernels for kernels in _by_run(events) if kernels][warm:]
        return kernels_by_run if self.threads > 1 else undisturbed(kernels_by_run, had)


def _session(model: str | bytes, options: Any) -> Any:
    """A session on the CPU of a model's file or bytes. Raises EngineError where it is refused."""
    try:
        return open_session(model, options)
    except Exception as error:  # ONNX Runtime raises many types, none of them public
        raise EngineError(_brief(error)) from None


def onnxruntime_version() -> str:
    """``ONNX Runtime`` and the version that is installed. Raises MissingDependencyError where none is."""
    try:
        ort = onnxruntime()
    except ImportError:
        raise MissingDependencyError(
            "measuring needs ONNX Runtime, which is not installed: pip install graphopt[ort]"
        ) from None
    return f"{ONNX_RUNTIME} {ort.__version__}"


def open_for_timing(path: Path, feeds: Feeds, threads: int) -> Callable[[], None]:
    """A run of a model file in ONNX Runtime, all its optimizations on, on inputs that stay where they are.

    Its threads sleep between runs, so that those of several sessions do not take time from each other.
    Raises EngineError where it refuses the model or the inputs, MissingDependencyError where it is not installed.
    """
    onnxruntime_version()
    ort = onnxruntime()
    options = session_options(threads)
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = _session(os.fspath(path), options)
    try:
        bound = _bound(ort, session, feeds)
    except Exception as error:
        raise EngineError(_brief(error)) from None

    def run() -> None:
        try:
            bound()
        except Exception as error:
            raise EngineError(_brief(error)) from None

    return run


def _bound(ort: Any, session: Any, feeds: Feeds) -> Callable[[], None]:
    """A run with inputs that are copied once and outputs that are not copied at all."""
    binding = session.io_binding()
    for name, value in feeds.items():
        if isinstance(value, list) or value is None:  # sequences and optionals cannot be bound
            return lambda: session.run(None, {name: _ort_value(ort, value) for name, value in feeds.items()})
        held = _ort_value(ort, value)
        held = held if isinstance(held, ort.OrtValue) else ort.OrtValue.ortvalue_from_numpy(held)
        binding.bind_ortvalue_input(name, held)
    for output in session.get_outputs():
        binding.bind_output(output.name)
    return lambda: session.run_with_iobinding(binding)


def _run_often(run: Callable[[], None], seconds: float, runs: tuple[int, int], warm: int) -> list[float]:
    """For each run after the first few, the seconds in which this thread had a processor."""
    for _ in range(warm):
        run()
    start = time.perf_counter()
    had: list[float] = []
    while len(had) < runs[1]:
        before, had_before = time.perf_counter(), time.thread_time()
        if len(had) >= runs[0] and before - start > seconds:
            break
        run()
        had.append(time.thread_time() - had_before)
    return had


def undisturbed(runs: list[list[ProfiledKernel]], had: list[float]) -> list[list[ProfiledKernel]]:
    """The runs in whose kernels the thread had a processor all the time; ``had`` is for how long it had one.

    Where there are next to none, as with long runs on a busy machine, those of the middle: what they waited was most
    likely in their longest kernel.
    """
    pairs = [(run, sum(k.seconds for k in run) - seconds) for run, seconds in zip(runs, had, strict=False)]
    free = [run for run, wait in pairs if wait <= WAITED * sum(k.seconds for k in run) + 1e-6]
    if len(free) >= FREE:
        return free
    corrected: list[list[ProfiledKernel]] = []
    for run, wait in pairs:
        longest = max(run, key=lambda k: k.seconds)
        less = ProfiledKernel(longest.name, longest.op, longest.seconds - max(wait, 0.0))
        corrected.append([less if k is longest else k for k in run])
    corrected.sort(key=lambda run: sum(k.seconds for k in run))
    third = len(corrected) // 3
    return corrected[third : len(corrected) - third]


WAITED, FREE = 0.02, 3
"""What part of a run its thread may wait for a processor and still count as undisturbed; how many such runs suffice."""


def _by_run(events: list[dict[str, Any]]) -> Iterator[list[ProfiledKernel]]:
    """The kernels between the marks that a profile sets at the end of each run."""
    suffix, kernels = "_kernel_time", list[ProfiledKernel]()
    for event in events:
        name = str(event.get("name", ""))
        if event.get("cat") == "Node" and name.endswith(suffix):
            kernels.append(ProfiledKernel(name.removesuffix(suffix), event["args"]["op_name"], event["dur"] * 1e-6))
        elif name == "model_run":
            yield kernels
            kernels = []


def open_model(path: str | Path, engine: str | None = None, prepacks: bool = False) -> tuple[Runner, str]:
    """A runner for a model file and the name of its engine: the one that is asked for, else the first that takes it.
    ``prepacks``: ONNX Runtime packs weights, as it does for users; only then it multiplies by bytes.

    Raises EngineError where none does, with what each said.
    """
    refusals = []
    in_onnxruntime = partial(open_in_onnxruntime, prepacks=prepacks)
    for name, make in ((ONNX_RUNTIME, in_onnxruntime), (REFERENCE, _open_in_reference)):
        if engine in (None, name):
            try:
                return make(os.fspath(path)), name
            except EngineError as refusal:
                refusals.append(f"{name}: {refusal}")
            except ImportError:
                refusals.append(f"{name} is not installed")
    raise EngineError("; ".join(refusals))


def open_in_onnxruntime(
    model: str | bytes, optimized: bool = False, threads: int = 0, prepacks: bool = False
) -> Runner:
    """A runner in ONNX Runtime on the CPU, of a file or its bytes, with or without its own optimizations; 0 threads are
    as many as it likes."""
    ort = onnxruntime()
    options, level = session_options(threads), ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimized else level.ORT_DISABLE_ALL
    options.enable_cpu_mem_arena = optimized  # which takes up to twice what a model does, for speed in later runs
    if (
        not optimized
    ):  # a model that runs once waits for its threads, and does not have them turn meanwhile; weights that
        # are packed for later runs are a copy of those that are mapped from the file
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.disable_prepacking", str(int(not prepacks)))
    session = _session(model, options)

    def run(feeds: Feeds) -> list[Any]:
        try:
            outputs = session.run(None, {name: _ort_value(ort, value) for name, value in feeds.items()})
            return [comparable(value) for value in outputs]
        except Exception as error:
            if any(words in str(error) for words in OUT_OF_MEMORY):
                raise EngineMemoryError(_brief(error)) from None
            raise EngineError(_brief(error)) from None

    return run


def open_in_openvino(path: str, threads: int) -> Runner:
    """A runner in OpenVINO on the CPU, which computes float32 in float32."""
    import openvino as ov

    wanted = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    requests: dict[tuple[tuple[int, ...], ...], Any] = {}

    def opened(feeds: Feeds) -> Any:
        shapes = tuple(tuple(value.shape) for value in feeds.values())
        if shapes not in requests:
            model = ov.Core().read_model(path)
            model.reshape({name: list(value.shape) for name, value in feeds.items()})
            requests[shapes] = ov.Core().compile_model(model, "CPU", wanted).create_infer_request()
        return requests[shapes]

    def run(feeds: Feeds) -> list[Any]:
        try:
            return [value.copy() for value in opened(feeds).infer(dict(feeds)).values()]
        except Exception as error:  # OpenVINO raises RuntimeError for everything
            raise EngineError(_brief(error)) from None

    return run


_ONNX_TYPES = {
    "bfloat16": 16, "float8_e4m3fn": 17, "float8_e4m3fnuz": 18, "float8_e5m2": 19, "float8_e5m2fnuz": 20,
    "uint4": 21, "int4": 22,
}  # fmt: skip
"""ONNX's numbers of the dtypes that numpy lacks."""


def _ort_value(ort: Any, value: Any) -> Any:
    """What ONNX Runtime takes for an input: dtypes that numpy lacks need a value of its own class."""
    number = _ONNX_TYPES.get(getattr(getattr(value, "dtype", None), "name", ""))
    return value if number is None else ort.OrtValue.ortvalue_from_numpy_with_onnx_type(value, number)


def _open_in_reference(path: str) -> Runner:
    from graphopt.errors import GraphoptError
    from graphopt.ir.evaluate import run as evaluate
    from graphopt.ir.onnx_io import load

    try:
        graph = load(path)
    except GraphoptError as error:
        raise EngineError(str(error)) from None

    def run(feeds: Feeds) -> list[Any]:
        try:
            values = evaluate(graph, dict(feeds))
        except Exception as error:  # whatever the Python of an op raises on these inputs
            raise EngineError(_brief(error)) from None
        return [comparable(values[name]) for name in graph.output_names]

    return run


def _brief(error: Exception) -> str:
    """The error in one short line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) < 200 else text[:200] + " …"
