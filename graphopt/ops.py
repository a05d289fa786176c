"""Ops and functions by name, for rules written in Python: ``from graphopt.ops import Add, MatMul, compose``.

An op outside ONNX's own domain is ``ops["com.microsoft::Gelu"]``; a function whose name Python has
already is ``fn.len``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphopt.rewrite.reading.decorator import fn as fn
from graphopt.rewrite.reading.decorator import ops as ops


def __getattr__(name: str) -> Callable[..., Any]:
    if name.startswith("_"):
        raise AttributeError(name)
    return getattr(ops if name[0].isupper() else fn, name)  # type: ignore[no-any-return]
