"""Parts of a graph that run in a mode of their own: without gradients, in mixed precision."""

from __future__ import annotations

from typing import Any

import torch
from torch._higher_order_ops.wrap import wrap_with_autocast, wrap_with_set_grad_enabled

from graphopt.frontends.torch.table import Table
from graphopt.frontends.torch.writer import Writer

TABLE = Table()


@TABLE.entry(wrap_with_set_grad_enabled)
def _with_gradients_or_not(g: Writer, enabled: bool, part: torch.fx.GraphModule, *arguments: Any) -> Any:
    return g.inlined(part, arguments)


@TABLE.entry(wrap_with_autocast)
def _in_mixed_precision(
    g: Writer,
    device: str,
    dtype: torch.dtype | None,
    enabled: bool,
    cache_enabled: bool | None,
    part: torch.fx.GraphModule,
    *arguments: Any,
) -> Any:
    if enabled:
        raise g.refused("mixed precision within the graph: enter torch.autocast around the call instead")
    return g.inlined(part, arguments)
