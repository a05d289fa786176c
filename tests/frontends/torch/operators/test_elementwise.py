"""Functions of elements as graphs, activations among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.frontends.torch.operators.operands import B, M, N, X, Y, check, torch

CASES: Mapping[str, Callable[..., Any]] = {
    "arithmetic": lambda: [
        X + Y,
        X - 2 * Y,
        X * Y,
        X / Y,
        torch.add(X, Y, alpha=3),
        torch.rsub(X, 2),
        -X,
        X + N,
        N * M,
    ],
    "mixed": lambda: [X + 1, N + 1.5, B + N, N / M, N + B, 2**X, X**2, Y.abs() ** 0.5, Y.abs() ** 1.7, N**2],
    "division": lambda: [
        X // Y,
        N // M,
        torch.div(X, Y, rounding_mode="trunc"),
        torch.div(N, M, rounding_mode="trunc"),
    ],
    "remainders": lambda: [X % Y, N % M, torch.fmod(X, Y), torch.fmod(N, M)],
    "exponentials": lambda: [(X / 9).exp(), X.abs().log(), X.exp2(), Y.abs().log2(), Y.abs().log10(), (X + 8).log1p()],
    "small": lambda: [torch.log1p(X * 1e-5), torch.expm1(X * 1e-5), torch.expm1(X), X.abs().rsqrt(), Y.reciprocal()],
    "trigonometry": lambda: [
        X.sin(),
        X.cos(),
        X.tan(),
        X.atan(),
        (X / 30).asin(),
        X.sinh(),
        X.tanh(),
        torch.atan2(Y, X),
    ],
    "rounding": lambda: [X.floor(), X.ceil(), X.round(), X.trunc(), X.sign(), N.floor(), X.sgn()],
    "comparisons": lambda: [X < Y, X >= 1, N == M, X != N, N > 1.5, B == B, X <= Y],
    "logic": lambda: [B & ~B, B | (X > 0), B ^ B, N & M, N | 3, ~N, torch.logical_not(X), torch.logical_and(X, N)],
    "bits": lambda: [N << M.abs(), N >> 1, N >> M, B + B, B * B, N.pow(M)],
    "signs": lambda: [
        torch.signbit(X),
        torch.copysign(X, Y),
        torch.hypot(X, Y * 1e30),
        torch.fmax(X.log(), Y),
        X.round(decimals=1),
        torch.erfinv(X / 30),
        X.angle(),
    ],
    "choices": lambda: [torch.where(B, X, Y), torch.where(B, X, 1), torch.where(B, N, X), X.masked_fill(B, -1)],
    "bounds": lambda: [X.clamp(-1, 2), X.clamp(min=0.5), X.clamp(max=Y), torch.maximum(X, Y), torch.minimum(N, M)],
    "not numbers": lambda: [(X / 0).isnan(), (X / 0).isinf(), torch.nan_to_num(X / 0), torch.erfc(X), torch.erf(X)],
    "activations": lambda: [
        F.gelu(X),
        F.gelu(X, approximate="tanh"),
        F.silu(X),
        F.hardswish(X),
        F.hardsigmoid(X),
        F.relu6(X),
    ],
    "more activations": lambda: [
        F.elu(X, 0.5),
        F.selu(X),
        F.celu(X, 2.0),
        F.softplus(X, 2.0, 3.0),
        F.mish(X),
        F.leaky_relu(X),
    ],
    "others": lambda: [
        F.logsigmoid(X),
        F.rrelu(X, 0.1, 0.5),
        F.glu(X),
        F.threshold(X, 0.5, 9.0),
        F.prelu(X, torch.tensor([0.2])),
        F.hardtanh(X),
    ],
}


@pytest.mark.parametrize("name", CASES)
def test_they_give_what_torch_gives(name: str) -> None:
    check(CASES[name])


F = torch.nn.functional
