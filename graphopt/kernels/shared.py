"""Shared code: functions that many kernels call, compiled once under a name that states their parameters."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from graphopt.errors import CompilationError
from graphopt.kernels import convolution, product_tiles, products

FAMILIES: Mapping[str, Callable[..., Any]] = {
    convolution.PATTERN: convolution.convolution,
    products.PATTERN: products.product,
    product_tiles.PATTERN: product_tiles.tiles,
}
"""What names are made up of, and what makes the module of LLVM that has the function of that name."""


def shared_module(name: str) -> Any:
    """The module with the function of that name. Raises CompilationError where there is none."""
    for pattern, family in FAMILIES.items():
        if match := re.fullmatch(pattern, name):
            return family(*(int(g) if g.isdigit() else g for g in match.groups()))
    raise CompilationError(f"no kernels share the code {name!r}")
