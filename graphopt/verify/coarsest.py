"""Tolerance shares of outputs: how far off an output may be goes after the coarsest dtype that it was computed in."""

from __future__ import annotations

from graphopt.ir.contrib_quantized import is_in_bytes
from graphopt.ir.graph import Graph, Node
from graphopt.ir.infer import infer
from graphopt.ir.tolerance import RELATIVE

STEP = 1 / 128
"""The share by which outputs may differ where something on the way is rounded to one of 256 steps: one such step."""


def coarsest_shares(graph: Graph) -> list[float]:
    """For each output, the largest share of tolerance among the dtypes in which anything was computed for it: those of
    values on the way, and of what an op mixes with others (a float16 scale of float64 data is divided in float16)."""
    facts = infer(graph)
    shares: dict[int, float] = {}
    for node in graph.order():
        dtypes = {facts[v].dtype or "" for v in node.inputs if v is not None and v in facts}
        mixed = dtypes & RELATIVE.keys()
        steps = [RELATIVE.get(facts[v].dtype or "", 0.0) for v in node.outputs if v in facts and not facts[v].is_const]
        steps += [RELATIVE[dtype] for dtype in mixed if len(mixed) > 1]
        if quantizes(node):
            steps.append(STEP)
        shares[node.id] = max([*steps, *(shares[v.node] for v in node.inputs if v is not None)], default=0.0)
    return [0.0 if value is None else shares[value.node] for value in graph.outputs]


def quantizes(node: Node) -> bool:
    """Whether an op rounds to steps of a scale."""
    is_quantized = "Quantize" in node.op or "QLinear" in node.op or node.op.endswith("QGemm")
    return is_quantized or multiplies_bytes(node)


def multiplies_bytes(node: Node) -> bool:
    """Whether an op rounds what it multiplies to bytes."""
    return node.op.endswith("MatMulNBits") and is_in_bytes(node.attrs)
