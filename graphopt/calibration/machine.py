"""Name of this machine, as far as the speed of ops goes: processor, vector instructions, cores."""

from __future__ import annotations

import os
import platform
from pathlib import Path

VECTORS = (
    "sse4_1", "avx", "avx2", "fma", "avx_vnni", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16",
    "avx512_fp16", "amx_int8", "amx_bf16", "neon", "asimd", "asimddp", "i8mm", "bf16", "sve", "sve2",
)  # fmt: skip
"""Features of a processor that libraries of kernels choose by."""


def machine(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """A line that is the same on machines on which measured times may be shared."""
    fields = _fields(cpuinfo)
    model = fields.get("model name") or fields.get("CPU part") or platform.processor() or platform.machine()
    flags = set((fields.get("flags") or fields.get("Features") or "").split())
    features = " ".join(f for f in VECTORS if f in flags)
    return f"{' '.join(model.split())}; {features or platform.machine()}; {_cores()} cores"


def _cores() -> int:
    """The cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def _fields(cpuinfo: Path) -> dict[str, str]:
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return {}
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    return fields
