"""Features of the processor: the instruction sets that compiled code may use, and how many cores there are."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from functools import cache
from pathlib import Path

from graphopt.errors import UsageError

VARIABLE = "GRAPHOPT_CPU"
"""The environment variable of the level of x86-64 that code is compiled for; by default, this processor."""

_ADDED = {
    "x86-64": "sse sse2 fxsr mmx",
    "x86-64-v2": "pni ssse3 sse4_1 sse4_2 cx16 popcnt lahf_lm",
    "x86-64-v3": "avx avx2 bmi1 bmi2 f16c fma abm movbe xsave",
    "x86-64-v4": "avx512f avx512bw avx512cd avx512dq avx512vl",
}
"""What each level has beyond those above it (x86-64 psABI, section 3.1.1), by the names that Linux gives them."""

_SETS = (
    "sse",
    "avx",
    "amx",
    "fma",
    "bmi",
    "f16c",
    "pni",
    "ssse3",
    "popcnt",
    "abm",
    "aes",
    "vaes",
    "gfni",
    "pclmul",
    "vpclmul",
    "movbe",
    "adx",
    "cx16",
    "sha",
    "rdrnd",
    "rdseed",
    "xsave",
    "clflushopt",
    "clwb",
    "lahf",
    "prfchw",
    "3dnowprefetch",
    "movdir",
    "vp2intersect",
    "serialize",
    "fxsr",
    "mmx",
)

MOST = 1024
"""Processors that a set of Linux's names at most (``CPU_SETSIZE``): so many threads can run at once."""


def cores() -> int:
    """How many threads can run at once, as far as this process may."""
    allowed = getattr(os, "sched_getaffinity", None)  # other systems than Linux lack it
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1


def runs_programs() -> bool:
    """Whether compiled programs run here: they are machine code for x86-64, as Linux loads it."""
    return sys.platform == "linux" and platform.machine() == "x86_64"


@cache
def features() -> frozenset[str]:
    """The instruction sets that code may use, by the names that Linux gives them.

    Raises ``UsageError`` where ``GRAPHOPT_CPU`` names no level of x86-64, or one that is above this processor.
    """
    flags = description().get("flags", "").split()
    found = frozenset(f for f in flags if f.startswith(_SETS))
    if not _may_use_matrices():
        found = frozenset(f for f in found if not f.startswith("amx"))
    chosen = level()
    if chosen is None:
        return found
    upto = list(_ADDED)[: list(_ADDED).index(chosen) + 1]
    wanted = frozenset(" ".join(_ADDED[one] for one in upto).split())
    if wanted - found:
        raise UsageError(f"{VARIABLE}={chosen}: this processor lacks {', '.join(sorted(wanted - found))}: unset it")
    return wanted


def _may_use_matrices() -> bool:
    """Whether Linux lets this process and its threads use registers of matrices (AMX), for which it has to be asked."""
    if not runs_programs():
        return False
    call, request, tile_data = 158, 0x1023, 18  # arch_prctl, ARCH_REQ_XCOMP_PERM and XFEATURE_XTILEDATA of Linux
    return bool(ctypes.CDLL(None, use_errno=True).syscall(call, request, tile_data) == 0)


def level() -> str | None:
    """The level of x86-64 that ``GRAPHOPT_CPU`` names, as LLVM calls it; ``None`` for all that this processor has."""
    chosen = os.environ.get(VARIABLE) or "native"
    if chosen == "native":
        return None
    if chosen not in _ADDED:
        raise UsageError(f"{VARIABLE}={chosen}: expected one of native, {', '.join(_ADDED)}")
    return chosen


@cache
def name() -> str:
    """The processor's maker, family, model and stepping, as one word."""
    said = description()
    parts = [platform.machine(), *(said.get(k, "") for k in ("vendor_id", "cpu family", "model", "stepping"))]
    return "-".join(p for p in parts if p)


def model() -> str:
    """What the maker calls the processor; empty where Linux does not say."""
    return description().get("model name", "")


@cache
def cache_bytes(level: int) -> int:
    """How much a core's cache for data of that level holds; a usual amount where Linux does not say."""
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            texts = [(folder / name).read_text(encoding="ascii").strip() for name in ("level", "type", "size")]
        except (OSError, ValueError):
            continue
        if texts[0] == str(level) and texts[1] != "Instruction" and texts[2].removesuffix("K").isdigit():
            return int(texts[2].removesuffix("K")) << 10
    return {1: 1 << 15, 2: 1 << 19}.get(level, 1 << 22)


@cache
def description() -> dict[str, str]:
    """What Linux says of the first core."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.split("\n\n", 1)[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in lines}
