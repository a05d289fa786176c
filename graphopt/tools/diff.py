"""Structural difference of two models."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from graphopt.run.steps import count_ops


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference of two graphs in words, and the ops of which they have different numbers."""

    first: str
    ops: dict[str, tuple[int, int]]


def diff(a: str | Path, b: str | Path) -> Difference | None:
    """How two model files differ in structure; None where they do not."""
    from graphopt.ir.onnx_io import load
    from graphopt.ir.structure import same

    graphs = load(a), load(b)
    first = same(*graphs)
    if first is None:
        return None
    counts = [count_ops(graph) for graph in graphs]
    ops = {op: (counts[0].get(op, 0), counts[1].get(op, 0)) for op in sorted({*counts[0], *counts[1]})}
    return Difference(first, {op: pair for op, pair in ops.items() if pair[0] != pair[1]})
