"""What the processor can do: the instruction sets that compiled code may use, and how many cores there are."""

from __future__ import annotations

import os
import platform
import sys
from functools import cache
from pathlib import Path

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
    """The instruction sets that code may use, by the names that Linux gives them."""
    flags = _description().get("flags", "").split()
    return frozenset(f for f in flags if f.startswith(_SETS))


@cache
def name() -> str:
    """The processor's maker, family, model and stepping, as one word."""
    found = _description()
    parts = [platform.machine(), *(found.get(k, "") for k in ("vendor_id", "cpu family", "model", "stepping"))]
    return "-".join(p for p in parts if p)


def model() -> str:
    """What the maker calls the processor; empty where Linux does not say."""
    return _description().get("model name", "")


@cache
def cache_bytes(level: int) -> int:
    """How much a core's cache for data of that level holds; a usual amount where Linux does not say."""
    for place in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            found = [(place / name).read_text(encoding="ascii").strip() for name in ("level", "type", "size")]
        except (OSError, ValueError):
            continue
        if found[0] == str(level) and found[1] != "Instruction" and found[2].removesuffix("K").isdigit():
            return int(found[2].removesuffix("K")) << 10
    return {1: 1 << 15, 2: 1 << 19}.get(level, 1 << 22)


@cache
def _description() -> dict[str, str]:
    """What Linux says of the first core."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.split("\n\n", 1)[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in lines}
