"""Each operator that has an entry gives what torch gives, by ONNX's reference evaluator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import graphopt
from graphopt.ir.onnx_io import to_proto

torch: Any = pytest.importorskip("torch")
F = torch.nn.functional

X = torch.tensor([[-2.5, -1.0, -0.3, 0.0], [0.4, 1.5, 2.5, 25.0], [0.7, -7.0, 1e-6, 3.0]])
Y = torch.tensor([[1.5, -2.0, 0.7, 3.0], [2.0, 1.0, 2.5, -3.0], [0.1, 5.0, -2.0, 3.0]])
N = torch.tensor([[5, -3, 0, 2], [7, 1, -8, 4], [0, 2, 6, -1]])
M = torch.tensor([[3, 2, -4, 5], [-2, 1, 3, 4], [1, 7, -5, 2]])
B = torch.tensor([[True, False, True, False], [False, False, True, True], [True, True, False, False]])
IMAGE = torch.randn(2, 4, 6, 8, generator=torch.Generator().manual_seed(0))

ELEMENTS: Mapping[str, Callable[..., Any]] = {
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
    "exponentials": lambda: [X.exp(), X.abs().log(), X.exp2(), Y.abs().log2(), Y.abs().log10(), (X + 8).log1p()],
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
    "choices": lambda: [torch.where(B, X, Y), torch.where(B, X, 1), torch.where(B, N, X), X.masked_fill(B, -1)],
    "bounds": lambda: [X.clamp(-1, 2), X.clamp(min=0.5), X.clamp(max=Y), torch.maximum(X, Y), torch.minimum(N, M)],
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
        F.glu(X),
        F.threshold(X, 0.5, 9.0),
        F.prelu(X, torch.tensor([0.2])),
        F.hardtanh(X),
    ],
    "not numbers": lambda: [(X / 0).isnan(), (X / 0).isinf(), torch.nan_to_num(X / 0), torch.erfc(X), torch.erf(X)],
    "dtypes": lambda: [X.to(torch.int32), N.float(), X.double() + 1, B.int(), X.to(torch.bool), X.half().float()],
}
REDUCTIONS: Mapping[str, Callable[..., Any]] = {
    "sums": lambda: [
        X.sum(),
        X.sum(0),
        X.sum((0, 1), keepdim=True),
        N.sum(1),
        B.sum(),
        X.mean(1),
        X.mean(),
        X.prod(1),
        N.prod(),
    ],
    "extremes": lambda: [*X.max(1), *X.min(0, keepdim=True), X.max(), X.amax((0, 1)), X.amin(1), N.amax(0)],
    "places": lambda: [X.argmax(), X.argmin(1), X.argmax(0, keepdim=True), X.argmin(keepdim=True)],
    "logic": lambda: [B.any(), B.all(1), X.any(0), N.all(), B.any(1, keepdim=True)],
    "spread": lambda: [X.var(), X.std(1), X.var(0, correction=0), *torch.var_mean(X, 1, keepdim=True)],
    "norms": lambda: [
        X.norm(),
        X.norm(1, 1),
        torch.linalg.vector_norm(X, 3, 1),
        torch.linalg.vector_norm(X, float("inf")),
    ],
    "softmax": lambda: [X.softmax(1), X.log_softmax(0), X.logsumexp(1), X.softmax(0, dtype=torch.float64)],
    "running": lambda: [X.cumsum(1), N.cumsum(0), B.cumsum(1)],
}
VIEWS: Mapping[str, Callable[..., Any]] = {
    "shapes": lambda: [
        X.view(4, 3),
        X.reshape(-1),
        X.t(),
        IMAGE.permute(0, 2, 3, 1),
        IMAGE.flatten(1),
        X.unflatten(1, (2, 2)),
    ],
    "axes": lambda: [X[None], X.unsqueeze(-1).squeeze(-1), X[:1].squeeze(), X[:1].expand(5, 4), X.expand(2, -1, -1)],
    "parts": lambda: [X[1], X[:, 1:3], X[::2], X[-1], *X.split(2, 1), *X.split([1, 2]), *X.chunk(2, 1), *X.unbind(0)],
    "joined": lambda: [torch.cat([X, N]), torch.stack([X, Y], 1), X.repeat(2, 1, 3), X.repeat_interleave(2, 1)],
    "turned": lambda: [X.flip(0), X.flip((0, 1)), X.roll(1, 0), X.roll((1, -1), (0, 1)), X.roll(5)],
    "triangles": lambda: [X.tril(), X.triu(1), B.tril(-1), X.diagonal(), X.diagonal(1), X.diagonal(-1, 0, 1)],
    "windows": lambda: [X.unfold(1, 2, 1), IMAGE.unfold(3, 4, 2), F.pixel_shuffle(IMAGE, 2)],
    "margins": lambda: [
        F.pad(X, (1, 2)),
        F.pad(X, (1, -1, 0, 2), value=3.0),
        F.pad(IMAGE, (2, 1, 1, 2), mode="reflect"),
    ],
    "more margins": lambda: [F.pad(IMAGE, (2, 1, 0, 1), mode="replicate")],
    "made": lambda: [
        torch.arange(5),
        torch.arange(1, 9, 2.5),
        torch.full((2, 3), 7),
        torch.zeros(2) + X[0, 0],
        torch.eye(3),
    ],
    "like": lambda: [
        torch.zeros_like(X),
        torch.ones_like(N),
        torch.full_like(X, 2),
        X.new_zeros(2, 2),
        X.new_full((1,), 3),
    ],
}
P = torch.tensor([2, 0, 1])
R = torch.tensor([3, 1, 1])
INDICES: Mapping[str, Callable[..., Any]] = {
    "gathered": lambda: [
        X[P],
        X[:, R],
        X[P, R],
        X[P[:, None], R],
        IMAGE[:, P, R],
        IMAGE[P % 2, :, R],
        X.gather(1, P[:, None]),
    ],
    "chosen": lambda: [X.index_select(1, R), F.embedding(N.abs() % 3, X), X[B], B.nonzero(), X.masked_select(B)],
    "scattered": lambda: [X.scatter(1, R[:, None], Y), X.scatter(1, R[:, None], 5.0)],
    "added": lambda: [X.scatter_add(1, N.abs() % 4, Y), X.scatter_reduce(1, R[:, None], Y[:, :1], "amax")],
    "put": lambda: [X.index_put((P, R), Y[:, 0]), X.index_put((P,), Y, accumulate=True), X.masked_fill(B, 2.0)],
    "assigned": lambda: [_assigned(X, 1), _assigned(X, slice(1, 3)), _assigned(X, (slice(None), slice(0, 4, 2)))],
    "sorted": lambda: [*X.sort(1), *X.topk(2, 1), *N.sort(dim=0, descending=True, stable=True), X.argsort(1)],
    "counted": lambda: [F.one_hot(P, 4), torch.bucketize(X, torch.tensor([-1.0, 0.0, 2.0]))],
    "masked": lambda: [X.masked_scatter(B, Y)],
}
W = torch.randn(6, 4, 3, 3, generator=torch.Generator().manual_seed(1))
D = torch.randn(4, 3, 2, 2, generator=torch.Generator().manual_seed(2))
Q, K, V = torch.randn(3, 2, 4, 5, 8, generator=torch.Generator().manual_seed(3)).unbind(0)
MASK = torch.tensor([[True, False, True, True, False]] * 4 + [[False] * 5])
LAYERS: Mapping[str, Callable[..., Any]] = {
    "products": lambda: [
        X @ Y.t(),
        X @ Y[0],
        Y[0] @ Y[1],
        Q @ K.transpose(-1, -2),
        F.linear(X, Y, Y[:, 0]),
        torch.addmm(X[:, :3], X, Y.t()),
    ],
    "einsum": lambda: [
        torch.einsum("bhqd,bhkd->bhqk", Q, K),
        torch.baddbmm(Q[0], Q[0] @ K[0].mT, V[0], beta=0.5, alpha=2.0),
    ],
    "attention": lambda: [
        F.scaled_dot_product_attention(Q, K, V),
        F.scaled_dot_product_attention(Q, K, V, is_causal=True),
    ],
    "masked attention": lambda: [F.scaled_dot_product_attention(Q, K, V, attn_mask=MASK, scale=0.3)],
    "grouped attention": lambda: [F.scaled_dot_product_attention(Q, K[:, :2], V[:, :2], enable_gqa=True)],
    "convolutions": lambda: [
        F.conv2d(IMAGE, W, stride=2, padding=1),
        F.conv2d(IMAGE, W[:, :2], groups=2, padding="same"),
    ],
    "more convolutions": lambda: [F.conv1d(X[None], Y[:, :3, None]), F.conv2d(IMAGE, W, W[:, 0, 0, 0], dilation=2)],
    "transposed": lambda: [F.conv_transpose2d(IMAGE, D, stride=2, padding=1, output_padding=1)],
    "pools": lambda: [
        F.max_pool2d(IMAGE, 3, 2, 1),
        F.avg_pool2d(IMAGE, 2, ceil_mode=True),
        F.avg_pool1d(X[None], 2, 1, 1),
    ],
    "adaptive": lambda: [
        F.adaptive_avg_pool2d(IMAGE, 1),
        F.adaptive_avg_pool2d(IMAGE, (4, 3)),
        F.adaptive_avg_pool1d(X[None], 3),
    ],
    "norms": lambda: [F.layer_norm(X, (4,)), F.group_norm(IMAGE, 2), F.instance_norm(IMAGE), F.rms_norm(X, (4,), Y[0])],
    "batch norm": lambda: [F.batch_norm(IMAGE, X[1, :4], X[1, :4].abs() + 1, X[2, :4], X[0, :4])],
    "nearest": lambda: [
        F.interpolate(IMAGE, scale_factor=2),
        F.interpolate(IMAGE, (4, 11)),
        F.interpolate(IMAGE, (9, 5), mode="nearest-exact"),
    ],
    "linear": lambda: [
        F.interpolate(IMAGE, (9, 5), mode="bilinear"),
        F.interpolate(IMAGE, scale_factor=2, mode="bilinear", align_corners=True),
    ],
    "cubic": lambda: [F.interpolate(IMAGE, (9, 12), mode="bicubic")],
}


def _assigned(x: Any, where: Any) -> Any:
    found = x.clone()
    found[where] = 9.0
    return found


def check(function: Callable[..., Any]) -> None:
    """Holds what the function gives in a graph to what it gives in torch; the tensors that it names become inputs."""
    tensors = {k: v for k, v in globals().items() if isinstance(v, torch.Tensor) and k in function.__code__.co_names}

    class Module(torch.nn.Module):
        def forward(self, **given: Any) -> Any:
            held = {k: globals()[k] for k in given}
            globals().update(given)
            try:
                return function()
            finally:
                globals().update(held)

    from onnx.reference import ReferenceEvaluator

    graph = graphopt.from_torch(Module(), (), tensors)
    names, feeds = [graph.names[v] for v in graph.inputs], [x.numpy() for x in tensors.values()]
    found = ReferenceEvaluator(to_proto(graph)).run(None, dict(zip(names, feeds, strict=True)))
    wanted = function()
    assert len(found) == len(wanted)
    for k, (array, tensor) in enumerate(zip(found, wanted, strict=True)):
        exact = tensor.numpy()
        assert np.asarray(array).dtype == exact.dtype, f"result {k}"
        assert np.shape(array) == exact.shape, f"result {k}"
        assert np.allclose(array, exact, rtol=1e-4, atol=1e-6, equal_nan=True), f"result {k}: {array} for {exact}"


@pytest.mark.parametrize("name", ELEMENTS)
def test_functions_of_elements(name: str) -> None:
    check(ELEMENTS[name])


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str) -> None:
    check(REDUCTIONS[name])


@pytest.mark.parametrize("name", VIEWS)
def test_views_and_new_tensors(name: str) -> None:
    check(VIEWS[name])


@pytest.mark.parametrize("name", INDICES)
def test_indices(name: str) -> None:
    check(INDICES[name])


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str) -> None:
    check(LAYERS[name])


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize(
    ("layers", "both_ways", "batch_first", "bias"), [(1, False, True, True), (2, True, False, False)]
)
def test_recurrent_layers(kind: str, layers: int, both_ways: bool, batch_first: bool, bias: bool) -> None:
    torch.manual_seed(0)
    layer = getattr(torch.nn, kind)(4, 5, layers, bidirectional=both_ways, batch_first=batch_first, bias=bias)
    from onnx.reference import ReferenceEvaluator

    graph = graphopt.from_torch(layer, X[None])
    found = ReferenceEvaluator(to_proto(graph)).run(None, {graph.names[graph.inputs[0]]: X[None].numpy()})
    with torch.no_grad():
        y, state = layer(X[None])
    for array, tensor in zip(found, [y, *(state if isinstance(state, tuple) else (state,))], strict=True):
        assert np.allclose(array, tensor.numpy(), atol=1e-5)
