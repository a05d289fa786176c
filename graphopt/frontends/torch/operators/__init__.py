"""Operators of torch (ATen) in ONNX: a table for each family, and ``STANDARD``, which has all of them."""

from __future__ import annotations

from graphopt.frontends.torch.operators import (
    convolutions,
    creation,
    elementwise,
    indexing,
    normalizations,
    products,
    recurrent,
    reductions,
    views,
)

STANDARD = (
    elementwise.TABLE
    | reductions.TABLE
    | views.TABLE
    | indexing.TABLE
    | products.TABLE
    | convolutions.TABLE
    | normalizations.TABLE
    | recurrent.TABLE
    | creation.TABLE
)
"""A table that a caller gives is asked first."""
