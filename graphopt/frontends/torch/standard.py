"""The table of torch's own operators."""

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
    regions,
    sizes,
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
    | sizes.TABLE
    | regions.TABLE
)
"""A table that a caller gives is asked first."""
