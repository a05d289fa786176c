"""Diagnosis of a machine for bug reports: versions, processor, libraries, folders, and whether a kernel runs. A tool,
free of the terminal.

Each topic is looked into by a function of its own, in ``TOPICS``. What cannot be told is told as that: a machine on
which much is missing is what this is for.
"""

from __future__ import annotations

import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from graphopt.errors import GraphoptError, UsageError
from graphopt.frozen import dataclass
from graphopt.runtime import cpu

SELF_TEST = "self-test"
"""The topic whose findings say whether anything runs at all."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found, and what to do about it where something is missing or slow."""

    topic: str
    name: str
    found: str
    advice: str = ""


def examine() -> Iterator[Finding]:
    """What there is to say of this machine, topic by topic. Nothing that is missing or broken is an error."""
    for topic, look in TOPICS.items():
        try:
            for name, value, advice in look():
                yield Finding(topic, name, value, advice)
        except UsageError as error:
            yield Finding(topic, "error", str(error), SETTINGS)
        except Exception as error:  # whatever a broken package, library or folder does
            first_line = str(error).splitlines()[0] if str(error) else ""
            yield Finding(topic, "error", f"{type(error).__name__}: {first_line}", "cannot be told: report this line")


def is_well(findings: list[Finding]) -> bool:
    """Whether the self-test passed."""
    self_test = [f for f in findings if f.topic == SELF_TEST]
    return bool(self_test) and not any(f.advice for f in self_test)


Line = tuple[str, str, str]
"""Name, what was found, and what to do."""


def _versions() -> Iterator[Line]:
    import graphopt

    yield "graphopt", f"{graphopt.__version__} in {Path(graphopt.__file__).parent}", ""
    yield "python", f"{platform.python_version()} ({platform.python_implementation()}), {sys.executable}", ""
    libc = " ".join(platform.libc_ver())
    system = f"{platform.system()} {platform.release()} {platform.machine()} {libc}".strip()
    is_known = platform.system() == "Linux" and platform.machine() == "x86_64"
    yield "system", system, "" if is_known else "graphopt.compile is for Linux on x86-64: see docs/platforms.md"


def _packages() -> Iterator[Line]:
    try:
        wanted = metadata.requires("graphopt") or []
    except metadata.PackageNotFoundError:
        yield "graphopt", "is not installed, but run from its source", "install it to have its requirements checked"
        return
    extras: dict[str, set[str]] = {}
    for requirement in wanted:
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)", requirement)
        if name.lower() != "graphopt":
            extras.setdefault(name, set()).add(extra[1] if extra else "")
    brings = {extra: {name for name, of in extras.items() if extra in of} for extra in set().union(*extras.values())}
    for name, of in extras.items():
        least = min(of, key=lambda extra: (len(brings[extra]), extra))
        try:
            yield name, metadata.version(name), ""
        except metadata.PackageNotFoundError:
            if "" in of:
                yield name, "missing", f"pip install {name}"
            elif not brings.get("dev", {""}) <= brings[least]:  # what only developers need is nothing to miss
                yield name, "not installed", f"only for pip install 'graphopt[{least}]'"


def _processor() -> Iterator[Line]:
    from graphopt.kernels import host

    yield "model", f"{cpu.model()} ({cpu.name()})", ""
    if cpu.level():
        yield "compiled for", f"{cpu.level()}, as {cpu.VARIABLE} says", ""
    features = ("avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_tile")
    there = [name for name in features if name in cpu.features()]
    bits = 8 * host.vector_bytes()
    slow = "" if bits > 128 else "kernels use vectors of 128 bits alone, some times slower than AVX2: docs/platforms.md"
    yield "vectors", f"{bits} bits ({', '.join(there) or 'no instruction sets known'})", slow
    sizes = ", ".join(f"L{level} {cpu.cache_bytes(level) >> 10} KiB" for level in (1, 2, 3))
    yield "caches", sizes, ""
    allowed, quota = cpu.cores(), _quota()
    cores = f"{allowed} of {os.cpu_count()} may be used" + (f", for {quota:g} processors' time" if quota else "")
    fitting = f"compile with threads={max(int(quota or 1), 1)}: more would wait for each other"
    yield "cores", cores, fitting if quota is not None and quota < allowed else ""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    yield "memory", f"{pages / (1 << 30):.1f} GiB", ""


def _quota() -> float | None:
    """How many processors' time the cgroup of this process may take; None where nothing limits it."""
    try:
        most, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return None if most == "max" else int(most) / int(period)
    except (OSError, ValueError):
        pass
    try:
        group = Path("/sys/fs/cgroup/cpu")
        most, period = ((group / f"cpu.cfs_{n}_us").read_text(encoding="ascii") for n in ("quota", "period"))
        return None if int(most) < 0 else int(most) / int(period)
    except (OSError, ValueError):
        return None


def _libraries() -> Iterator[Line]:
    from graphopt.runtime import libraries

    described = libraries.describe_blas()
    is_bundled = find_spec("scipy_openblas64") is not None
    yield (
        "BLAS",
        described,
        "" if is_bundled else "numpy's own is used, and may not know this processor: pip install scipy-openblas64",
    )
    yield "BLAS threads", "1: programs have threads of their own", ""
    yield "threading", "a team of native threads that programs share; neither OpenMP nor TBB is used", ""


def _gpu() -> Iterator[Line]:
    from graphopt.kernels.cuda.machine import CUDNN_EXTRA, EXTRA, has_cublas_lt, has_cudnn

    driver = Path("/proc/driver/nvidia/version")
    if not driver.is_file():
        yield "driver", "none", "for target='cuda' an NVIDIA driver is needed; without one all else works"
    else:
        yield "driver", driver.read_text(encoding="utf-8", errors="replace").splitlines()[0], ""
    if find_spec("cupy") is None:
        yield "cupy", "not installed", f"for target='cuda': {EXTRA}"
        return
    if driver.is_file():
        from graphopt.platforms import gpu

        device = gpu()
        yield "device", f"{device.name}, compute capability {'.'.join(map(str, device.capability))}", ""
    for name, is_there, extra in (("cuBLASLt", has_cublas_lt(), EXTRA), ("cuDNN", has_cudnn(), CUDNN_EXTRA)):
        yield name, "there" if is_there else "not installed", "" if is_there else f"for target='cuda': {extra}"


def _folders() -> Iterator[Line]:
    from graphopt.calibration.schedule_tables import default_path as tuned
    from graphopt.calibration.store import default_path as prices
    from graphopt.runtime import disk_cache

    root = disk_cache.root()
    full = f"nothing is kept; set {disk_cache.VARIABLE} to a folder where you may write"
    cached = f"{_size(root)}, of {disk_cache.LIMIT >> 30} GiB at most"
    yield "cache", f"{root}: {cached}", "" if disk_cache.folder("kernels").parent == root else full
    for name, path, by in (
        ("measured prices", prices(), "graphopt calibrate"),
        ("tuned schedules", tuned(), "graphopt tune"),
    ):
        yield name, f"{path}: {_size(path) if path.exists() else f'none yet ({by} makes it)'}", ""


def _size(folder: Path) -> str:
    files = [f for f in ([folder] if folder.is_file() else folder.rglob("*")) if f.is_file()]
    return f"{sum(f.stat().st_size for f in files) / (1 << 20):.1f} MiB in {len(files)} files"


def _environment() -> Iterator[Line]:
    for name, meaning in VARIABLES.items():
        if name in os.environ:
            yield name, os.environ[name], ""
        elif meaning:
            yield name, f"not set ({meaning})", ""


SETTINGS = "correct that setting, and run graphopt doctor again"
"""The advice where the environment asks for something that cannot be."""

VARIABLES: Mapping[str, str] = {
    "GRAPHOPT_CACHE": "the folder of compiled kernels, programs, rules and verdicts; else the user's cache folder",
    cpu.VARIABLE: "the level of x86-64 that kernels are compiled for; else this processor",
    "XDG_CACHE_HOME": "where the user's cache folders are",
    "XDG_DATA_HOME": "where measured prices and tuned schedules are",
    "NO_COLOR": "no colours on terminals",
    "OPENBLAS_CORETYPE": "the processor that BLAS takes this one for; else found out",
    "CUDA_PATH": "where CUDA's libraries are, if not in packages",
}
"""The environment variables that change what graphopt does, and what each says."""


def _self_test() -> Iterator[Line]:
    import numpy as np

    import graphopt
    from graphopt.lowering.module.builder import GraphBuilder

    begin = time.perf_counter()
    x, w = (np.linspace(-1, 1, n * 24, dtype=np.float32).reshape(n, 24) for n in (5, 7))
    builder = GraphBuilder()
    product = builder.emit("MatMul", [builder.input("x", "float32", ("n", 24)), w.T])
    builder.output("y", builder.emit("Tanh", [product]))
    try:
        result = graphopt.compile(builder.build())(x)["y"]
    except (GraphoptError, OSError) as error:
        advice = SETTINGS if isinstance(error, UsageError) else "no model can be compiled here; report all of this"
        yield "kernel", f"does not run: {error}", advice
        return
    off = float(np.abs(result - np.tanh(x @ w.T)).max())
    if not off < 1e-5:
        yield "kernel", f"computes something else, by {off:.2g}", "what is compiled here is wrong; report all of this"
        return
    yield "kernel", f"a product and a tanh are right to {off:.1g}; {time.perf_counter() - begin:.2f} s", ""


TOPICS: Mapping[str, Callable[[], Iterator[Line]]] = {
    "versions": _versions,
    "packages": _packages,
    "processor": _processor,
    "libraries": _libraries,
    "GPU": _gpu,
    "folders": _folders,
    "environment": _environment,
    SELF_TEST: _self_test,
}
"""What is looked into, in order."""
