"""Name of this machine, as far as the speed of ops goes: processor, vector instructions, cores."""

from __future__ import annotations

import platform

from graphopt.runtime import cpu

VECTORS = (
    "sse4_1", "avx", "avx2", "fma", "avx_vnni", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16",
    "avx512_fp16", "amx_int8", "amx_bf16", "neon", "asimd", "asimddp", "i8mm", "bf16", "sve", "sve2",
)  # fmt: skip
"""Features of a processor that libraries of kernels choose by."""


def machine() -> str:
    """A line that is the same where measured times may be shared: machines alike, and code for one level of x86-64."""
    description = cpu.description()
    model = cpu.model() or description.get("CPU part") or platform.processor() or platform.machine()
    flags = set((description.get("flags") or description.get("Features") or "").split())
    features = " ".join(f for f in VECTORS if f in flags)
    level = cpu.level()
    compiled_for = "" if level is None else f"; compiled for {level}"
    return f"{' '.join(model.split())}; {features or platform.machine()}; {cpu.cores()} cores{compiled_for}"
