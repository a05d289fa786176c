"""Matrix products and attention: a family of torch's operators, with a table of its own."""

from __future__ import annotations

from math import inf, sqrt
from string import ascii_letters
from typing import Any

import numpy as np
import torch

from graphopt.frontends.torch.operators.reductions import reduced
from graphopt.frontends.torch.table import Table
from graphopt.frontends.torch.writer import OpWriter
from graphopt.ir.graph import Value

TABLE = Table()
aten = torch.ops.aten


@TABLE.entry(aten.mm, aten.bmm, aten.matmul, aten.mv, aten.dot)
def _product(g: OpWriter, a: Value, b: Value) -> Value:
    return g.op("MatMul", a, b)


@TABLE.entry(aten.linear)
def _linear(g: OpWriter, x: Value, weight: Value, bias: Value | None = None) -> Value:
    product = g.op("MatMul", x, g.transpose(weight, range(g.rank(weight))[::-1]))
    return product if bias is None else g.op("Add", product, bias)


@TABLE.entry(aten.addmm, aten.baddbmm, aten.addmv)
def _product_and_sum(g: OpWriter, c: Value, a: Value, b: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    return _scaled_sum(g, c, g.op("MatMul", a, b), beta, alpha)


@TABLE.entry(aten.addbmm)
def _sum_of_products(g: OpWriter, c: Value, a: Value, b: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    return _scaled_sum(g, c, reduced(g, "ReduceSum", g.op("MatMul", a, b), 0, False), beta, alpha)


def _scaled_sum(g: OpWriter, c: Value, product: Value, beta: Any, alpha: Any) -> Value:
    """Multiples of a value, which is broadcast, and of a product; none of the value, even of NaN, where that is 0."""
    product = product if alpha == 1 else g.op("Mul", product, alpha)
    if beta == 0:
        return product
    return g.op("Add", product, c if beta == 1 else g.op("Mul", c, beta))


@TABLE.entry(aten.outer)
def _outer(g: OpWriter, a: Value, b: Value) -> Value:
    return g.op("Mul", g.unsqueeze(a, 1), b)


@TABLE.entry(aten.einsum)
def _einsum(g: OpWriter, equation: str, operands: list[Value], path: Any = None) -> Value:
    """With letters for what an ellipsis stands for, of which operands may have some only, and without axes of size 1
    that are broadcast: ONNX has neither."""
    operands = list(operands)
    terms, arrow, result = equation.replace(" ", "").partition("->")
    named = terms.split(",")
    spare = [letter for letter in ascii_letters if letter not in equation]
    ranks = [g.rank(x) - len(term.replace("...", "")) for term, x in zip(named, operands, strict=True)]
    hidden = spare[: max((n for n, term in zip(ranks, named, strict=True) if "..." in term), default=0)]
    full = [t.replace("...", "".join(hidden[len(hidden) - n :])) for t, n in zip(named, ranks, strict=True)]
    if not arrow:
        once = sorted(letter for letter in set(terms) - set(".,") if terms.count(letter) == 1)
        result = "".join(["...", *once])
    wide = {c for term, x in zip(full, operands, strict=True) for c, n in zip(term, g.shape(x), strict=True) if n != 1}
    for k, (term, x) in enumerate(zip(full, operands, strict=True)):
        gone = [axis for axis, (c, n) in enumerate(zip(term, g.shape(x), strict=True)) if n == 1 and c in wide]
        operands[k] = g.squeeze(x, *gone) if gone else x
        full[k] = "".join(c for axis, c in enumerate(term) if axis not in gone)
    return g.op("Einsum", *operands, equation=f"{','.join(full)}->{result.replace('...', ''.join(hidden))}")


@TABLE.entry(aten._trilinear)
def _trilinear(
    g: OpWriter,
    a: Value,
    b: Value,
    c: Value,
    new_in_a: list[int],
    new_in_b: list[int],
    new_in_c: list[int],
    summed: list[int],
    unroll_dim: int = 1,
) -> Value:
    """The sum along axes of a product of three values, each of which lacks some of the axes."""
    letters = "abcdefghijklmnopqrstuvwxyz"[: g.rank(a) + len(new_in_a)]
    terms = [
        "".join(x for k, x in enumerate(letters) if k not in axes) for axes in (new_in_a, new_in_b, new_in_c, summed)
    ]
    return g.op("Einsum", a, b, c, equation=f"{','.join(terms[:3])}->{terms[3]}")


@TABLE.entry(aten.scaled_dot_product_attention)
def _attention(
    g: OpWriter,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    """Where nothing at all may be attended to, the result is 0, as it is in torch."""
    if dropout_p:
        raise g.refused("attention with dropout: call model.eval() first")
    dtype = g.dtype(q)
    if enable_gqa:
        k, v = (_repeated(g, x, q) for x in (k, v))
    width = g.known(g.size(q, -1), "the width of a head")
    scores = g.op("MatMul", g.op("Mul", q, 1 / sqrt(width) if scale is None else scale), g.swapped(k, -1, -2))
    attended = None
    if is_causal:
        scores = g.op("Where", _causal(g, q, k), scores, g.cast(-inf, dtype))
    elif mask is not None and g.dtype(mask) == "bool":
        scores = g.op("Where", mask, scores, g.cast(-inf, dtype))
        attended = mask
    elif mask is not None:
        scores = g.op("Add", scores, g.cast(mask, dtype))
        attended = g.op("Greater", mask, -inf)
    weighted = g.op("MatMul", g.op("Softmax", scores, axis=g.rank(scores) - 1), v)
    if attended is None:
        return weighted
    some = reduced(g, "ReduceMax", g.cast(attended, "int32"), -1, True)
    return g.op("Where", g.op("Greater", some, 0), weighted, g.cast(0, dtype))


def _repeated(g: OpWriter, x: Value, like: Value) -> Value:
    """Heads, each as often as there are queries' heads for it."""
    heads = g.known(g.size(x, -3), "the number of heads")
    times = g.known(g.size(like, -3), "the number of heads") // heads
    if times == 1:
        return x
    *lead, _, length, width = g.sizes(x)
    raised = g.expand(g.unsqueeze(x, g.rank(x) - 2), [*lead, heads, times, length, width])
    return g.reshape(raised, [*lead, heads * times, length, width])


def _causal(g: OpWriter, q: Value, k: Value) -> Value:
    """Which key each query may attend to: those up to its own place, counted from the first."""
    queries, keys = g.size(q, -2), g.size(k, -2)
    if not isinstance(queries, Value) and not isinstance(keys, Value):
        return g.constant(np.tri(queries, keys, dtype=bool))
    return g.op("LessOrEqual", g.indices(keys), g.unsqueeze(g.indices(queries), 1))


@TABLE.entry(aten._scaled_dot_product_flash_attention_for_cpu)
def _flash_attention(
    g: OpWriter,
    q: Value,
    k: Value,
    v: Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> tuple[Value, None]:
    """Its second result serves training alone."""
    return _attention(g, q, k, v, attn_mask, dropout_p, is_causal, scale=scale), None


# -- determinants


@TABLE.entry(aten._linalg_det)
def _determinant(g: OpWriter, x: Value) -> tuple[Value, None, None]:
    """Its further results serve training alone."""
    return g.op("Det", x), None, None


@TABLE.entry(aten._linalg_slogdet)
def _sign_and_log_of_determinant(g: OpWriter, x: Value) -> tuple[Value, Value, None, None]:
    """Its further results serve training alone."""
    determinant = g.op("Det", x)
    return g.op("Sign", determinant), g.op("Log", g.op("Abs", determinant)), None, None
