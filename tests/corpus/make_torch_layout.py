"""Exports small torch models in which tensors change their layout, or in which algebra is written out.

Run with torch 2.13 and onnxscript 0.7: ``python tests/corpus/make_torch_layout.py [NAME...]``. Each model is written by
the exporter that traces (``torch``) or by the older one (``torchscript``), as the table at the end says.
"""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

FOLDER = Path(__file__).parent


# -- images with their channels last


class LastConv(nn.Module):
    """A convolution of images that have their channels last."""

    def __init__(self, i: int, o: int, k: int = 3, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(i, o, k, stride, k // 2, groups=groups)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


class LastNorm(nn.Module):
    """A frozen batch normalization along the last axis, as detection code writes it."""

    def __init__(self, n: int) -> None:
        super().__init__()
        for name in ("weight", "bias", "mean", "variance"):
            self.register_buffer(name, torch.rand(n) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / torch.sqrt(self.variance + 1e-3) * self.weight + self.bias


class Squeeze(nn.Module):
    """Squeeze and excitation along the last axis, by linear layers or by convolutions of one position."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.down, self.up = LastConv(n, n // 2, 1), LastConv(n // 2, n, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = x.mean((1, 2), keepdim=True)
        return x * torch.sigmoid(self.up(F.relu(self.down(y))))


class MobileBlock(nn.Module):
    def __init__(self, n: int, m: int, stride: int) -> None:
        super().__init__()
        self.expand, self.deep = LastConv(n, 2 * n, 1), LastConv(2 * n, 2 * n, 3, stride, 2 * n)
        self.norm, self.squeeze, self.project = LastNorm(2 * n), Squeeze(2 * n), LastConv(2 * n, m, 1)
        self.adds = stride == 1 and n == m

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu6(self.expand(x))
        y = self.project(self.squeeze(F.relu6(self.norm(self.deep(y)))))
        return x + y if self.adds else y


class MobileNet(nn.Module):
    """MobileNet with its channels last, as code that came from TensorFlow has it."""

    def __init__(self, depth: int = 2) -> None:
        super().__init__()
        self.stem = LastConv(3, 8, 3, 2)
        self.blocks = nn.Sequential(*(MobileBlock(8, 8, 1) for _ in range(depth)), MobileBlock(8, 12, 2))
        self.head = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.blocks(F.relu6(self.stem(x)))
        return torch.softmax(self.head(y.mean((1, 2))), -1)


class UNet(nn.Module):
    """A U-Net of images that have their channels last: pads, pools, resizes, skips."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = LastConv(3, 8), LastConv(8, 12), LastConv(20, 8)
        self.out = LastConv(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.pad(x, (0, 0, 1, 1, 1, 1))
        a = F.leaky_relu(self.a(x), 0.1)
        down = F.max_pool2d(a.permute(0, 3, 1, 2), 2).permute(0, 2, 3, 1)
        b = F.leaky_relu(self.b(down), 0.1)
        up = F.interpolate(b.permute(0, 3, 1, 2), scale_factor=2.0, mode="nearest").permute(0, 2, 3, 1)
        c = F.leaky_relu(self.c(torch.cat([a, up], -1)), 0.1)
        y = self.out(c)[:, 1:-1, 1:-1, :]
        first, second = torch.split(y, 2, dim=-1)
        return torch.cat([torch.sigmoid(first), torch.log_softmax(second, -1)], -1)


class ConvNeXt(nn.Module):
    """Blocks of ConvNeXt: convolutions with channels first, norms and linear layers with channels last."""

    def __init__(self, n: int = 8, depth: int = 2) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, n, 4, 4)
        self.deep = nn.ModuleList(nn.Conv2d(n, n, 7, padding=3, groups=n) for _ in range(depth))
        self.norm = nn.ModuleList(nn.LayerNorm(n) for _ in range(depth))
        self.up = nn.ModuleList(nn.Linear(n, 2 * n) for _ in range(depth))
        self.down = nn.ModuleList(nn.Linear(2 * n, n) for _ in range(depth))
        self.gamma = nn.ParameterList(torch.rand(n) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for deep, norm, up, down, gamma in zip(self.deep, self.norm, self.up, self.down, self.gamma, strict=True):
            y = norm(deep(x).permute(0, 2, 3, 1))
            x = x + (gamma * down(F.gelu(up(y)))).permute(0, 3, 1, 2)
        return x


class Swin(nn.Module):
    """Windows of a shifted-window transformer: roll, cut into windows, mix, put together, roll back."""

    def __init__(self, n: int = 8, window: int = 4) -> None:
        super().__init__()
        self.window, self.norm, self.mix = window, nn.LayerNorm(n), nn.Linear(window * window, window * window)
        self.merge = nn.Linear(4 * n, 2 * n, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        k = self.window
        x = x.permute(0, 2, 3, 1)
        y = torch.roll(self.norm(x), (-k // 2, -k // 2), (1, 2))
        y = y.view(b, h // k, k, w // k, k, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, k * k, c)
        y = self.mix(y.transpose(1, 2)).transpose(1, 2)
        y = y.view(b, h // k, w // k, k, k, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        x = x + torch.roll(y, (k // 2, k // 2), (1, 2))
        parts = [x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]]
        return self.merge(torch.cat(parts, -1)).permute(0, 3, 1, 2)


class Heads(nn.Module):
    """Heads of a detector over three scales: permuted, flattened, put together, squashed."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.stem = nn.ModuleList(nn.Conv2d(a, b, 3, 2, 1) for a, b in ((3, 8), (8, 8), (8, 8)))
        self.box = nn.ModuleList(nn.Conv2d(8, 4, 1) for _ in range(3))
        self.score = nn.ModuleList(nn.Conv2d(8, classes, 1) for _ in range(3))
        self.classes = classes

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        boxes, scores = [], []
        for stem, box, score in zip(self.stem, self.box, self.score, strict=True):
            x = F.relu(stem(x))
            boxes.append(box(x).permute(0, 2, 3, 1).reshape(x.shape[0], -1, 4))
            scores.append(score(x).permute(0, 2, 3, 1).reshape(x.shape[0], -1, self.classes))
        found = torch.sigmoid(torch.cat(scores, 1))
        best, which = found.max(-1)
        return torch.cat(boxes, 1), best, which


class Shuffle(nn.Module):
    """A channel shuffle after a convolution with its channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = LastConv(3, 8), LastConv(8, 8, groups=2)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.a(x))
        n, h, w, c = y.shape
        y = y.view(n, h, w, 2, c // 2).transpose(3, 4).reshape(n, h, w, c)
        return self.b(y)


class Video(nn.Module):
    """Frames with their channels last, through convolutions over space and time."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv3d(3, 8, 3, padding=1), nn.Conv3d(8, 4, 1)
        self.scale = nn.Parameter(torch.rand(8))

    def forward(self, x: Tensor) -> Tensor:
        y = F.elu(self.a(x.permute(0, 4, 1, 2, 3))).permute(0, 2, 3, 4, 1)
        y = torch.cumsum(y * self.scale, 1)
        y = torch.where(y > 0.1, y, torch.zeros(()))
        return self.b(y.permute(0, 4, 1, 2, 3)).permute(0, 2, 3, 4, 1)


class Quantized(nn.Module):
    """Fake quantization along the last axis between convolutions with their channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = LastConv(3, 8), LastConv(8, 8)
        self.register_buffer("scale", torch.rand(8) / 50 + 0.02)
        self.register_buffer("zero", torch.zeros(8, dtype=torch.int32))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.a(x))
        y = torch.fake_quantize_per_channel_affine(y, self.scale, self.zero, 3, -128, 127)
        return self.b(y)


# -- products and orders of axes


class Mixer(nn.Module):
    """A block of MLP-Mixer: tokens are mixed through two transposes."""

    def __init__(self, tokens: int = 9, n: int = 8) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(n), nn.Linear(tokens, 12), nn.Linear(12, tokens)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x).transpose(1, 2)
        return x + self.down(F.gelu(self.up(y))).transpose(1, 2)


class Vit(nn.Module):
    """Attention with one projection for queries, keys and values, picked apart after a permutation."""

    def __init__(self, n: int = 8, heads: int = 2) -> None:
        super().__init__()
        self.qkv, self.out, self.heads = nn.Linear(n, 3 * n), nn.Linear(n, n), heads

    def forward(self, x: Tensor) -> Tensor:
        b, t, n = x.shape
        qkv = self.qkv(x).reshape(b, t, 3, self.heads, n // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        weights = (q @ k.transpose(-2, -1) * (n // self.heads) ** -0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, t, n))


class Grams(nn.Module):
    """Products of transposes: style features and covariances."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(6, 5))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        gram = torch.matmul(x.transpose(1, 2), y.transpose(1, 2))
        flat = x.reshape(-1, x.shape[-1])
        return gram, torch.mm(flat.t(), 2 * y.reshape(flat.shape[0], -1)), torch.mm(self.weight, flat.t()).t()


class Einsums(nn.Module):
    """Attention written as einsum, as research code has it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(8, 2, 4))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        q = torch.einsum("btn,nhd->bhtd", x, self.weight)
        k = torch.einsum("btn,nhd->bhtd", y, self.weight)
        weights = torch.softmax(torch.einsum("bhqd,bhkd->bhqk", q, k), -1)
        mixed = torch.einsum("bhqk,bhkd->bqhd", weights, k)
        return mixed.flatten(2), torch.einsum("btn->bnt", x)


class Candidates(nn.Module):
    """Scores of candidates: rows of a table are looked up and multiplied by each user's vector."""

    def __init__(self, n: int = 8, items: int = 6) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.rand(n, items))

    def forward(self, user: Tensor, which: Tensor) -> Tensor:
        return torch.sigmoid(user @ torch.index_select(self.table, 1, which))


# -- algebra


class Preprocess(nn.Module):
    """Pixels to what a network was trained on, step by step, and a network that goes on scaling."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = (x / 255.0 - self.mean) / self.std
        z = (2.0 - (y * 2.0 + 1.0)) * 0.5 - 3.0
        return torch.clamp(F.relu6(z), 0.0, 1.0), -z * 0.25 * y


class Gru(nn.Module):
    """A recurrent step with gates, unrolled by hand."""

    def __init__(self, n: int = 8) -> None:
        super().__init__()
        self.x, self.h = nn.Linear(n, 3 * n), nn.Linear(n, 3 * n)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        for t in range(2):
            xr, xz, xn = self.x(x[:, t]).chunk(3, -1)
            hr, hz, hn = self.h(h).chunk(3, -1)
            z, r = torch.sigmoid(xz + hz), torch.sigmoid(xr + hr)
            h = (1 - z) * torch.tanh(xn + r * hn) + z * h
        return h


class Gates(nn.Module):
    """Sums of products with a factor in common, masks multiplied late, squares and roots."""

    def forward(self, x: Tensor, a: Tensor, b: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        mixed = x * a + x * b
        small = (x * 0.125) * mask.view(1, -1)
        norm = x.pow(2).sum(-1).pow(0.5)
        kernel = torch.exp(-a.pow(2)) * torch.exp(-b.pow(2))
        ratio = torch.exp(a) / torch.exp(b)
        inverse = a * torch.rsqrt(b.abs() + 1.0)
        return mixed, small, norm, kernel, ratio, inverse, torch.sqrt(x * x), torch.log(torch.sigmoid(x))


class Masks(nn.Module):
    """Comparisons, choices and truth values as masks are built."""

    def forward(self, x: Tensor, n: Tensor, scores: Tensor) -> tuple[Tensor, ...]:
        t = torch.arange(scores.shape[-1])
        short = n.view(-1, 1) > t
        padded = ~short
        early = ~(t.view(1, -1) < 2)
        both = ~(~short | ~early)
        bias = torch.zeros_like(scores).masked_fill(padded, float("-inf"))
        first = torch.where(both, torch.where(both, scores, bias), x)
        kept = torch.where(both, torch.tensor(True), torch.tensor(False)) & short & short
        low = torch.maximum(x, torch.tensor(0.25))
        band = torch.minimum(torch.maximum(x, torch.tensor(-1.0)), torch.tensor(1.0))
        far, near = ~(x < 0.5), ~(scores >= 0.5)
        low, band = torch.maximum(low, torch.tensor(0.5)), F.hardtanh(F.relu(band), -2.0, 0.5)
        return scores + bias, first, kept, far & near, low, band


class Handmade(nn.Module):
    """Activations as people write them out who do not know that there is an op for them."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        swish = x / (1.0 + torch.exp(-x))
        gate = 1.0 / (1.0 + torch.exp(-x))
        leaky = torch.maximum(x, 0.1 * x)
        soft = torch.log(1.0 + torch.exp(x))
        hard = x * torch.clamp(x + 3.0, 0.0, 6.0) / 6.0
        return swish, gate, leaky, soft, hard, x * torch.tanh(F.softplus(x))


class Buckets(nn.Module):
    """Integers of positions and patches: rows and columns of a grid from a running number."""

    def forward(self, ids: Tensor) -> tuple[Tensor, ...]:
        i = torch.clamp(ids, 0, 59)
        row, column = i // 12, i % 12
        again = row * 12 + column
        return again, (i * 4) // 4, (i * 8 + column) % 8, (i // 3) // 4, column % 12, (i * 6) % 3


class Complex(nn.Module):
    """A linear layer of complex numbers, and a rotation by complex phases."""

    def __init__(self, n: int = 8) -> None:
        super().__init__()
        self.re, self.im = nn.Parameter(torch.rand(n, n)), nn.Parameter(torch.rand(n, n))

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return a @ self.re - b @ self.im, a @ self.im + b @ self.re


# -- reductions


class Reductions(nn.Module):
    """Reductions of reductions, of broadcasts, of concatenations and of products."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(8, 6))

    def forward(self, x: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        total = x.sum(-1).sum(-1)
        pooled = x.mean(3).mean(2)
        flat = (v @ self.weight).sum(-1)
        spread = v.unsqueeze(1).expand(-1, 5, -1).sum(1)
        joined = torch.cat([v, v * 2], 1).sum(1)
        best, where = v.max(-1, keepdim=True), (v * 2.0).min(-1)
        return total, pooled, flat, spread, joined, *best, *where


class Norms(nn.Module):
    """Norms and softmaxes as people write them."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        unit = x / torch.sqrt((x * x).sum(-1, keepdim=True))
        away = F.normalize(x, dim=-1)
        top = x.max(-1, keepdim=True)[0]
        stable = torch.exp(x - top) / torch.exp(x - top).sum(-1, keepdim=True)
        logs = (x - top) - torch.log(torch.exp(x - top).sum(-1, keepdim=True))
        plain = x.exp() / x.exp().sum(-1, keepdim=True)
        total = torch.log(torch.exp(x).sum(-1))
        shifted = torch.log(torch.exp(x - top).sum(-1, keepdim=True)) + top
        return unit, away, stable, logs, plain, total, shifted, x.abs().sum(-1), torch.logsumexp(x, -1)


class Running(nn.Module):
    """A running sum along positions, and means over images."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("lower", torch.tril(torch.ones(6, 6)))

    def forward(self, x: Tensor, image: Tensor) -> tuple[Tensor, ...]:
        return self.lower @ x, x @ torch.triu(torch.ones(4, 4)), image.mean((2, 3), keepdim=True), image.mean((2, 3))


def image(n: int, channels: int = 3) -> Tensor:
    return torch.rand(1, channels, n, n)


def last(n: int, channels: int = 3) -> Tensor:
    return torch.rand(1, n, n, channels)


MODELS = {
    "mobilenet_last": (MobileNet, (last(16),), "both"),
    "unet_last": (UNet, (last(14),), "both"),
    "convnext": (ConvNeXt, (image(16),), "torch"),
    "swin_windows": (Swin, (image(8, 8),), "torch"),
    "detector_heads": (Heads, (image(32),), "both"),
    "shuffle_last": (Shuffle, (last(8),), "torchscript"),
    "video_last": (Video, (torch.rand(1, 4, 6, 6, 3),), "torch"),
    "quantized_last": (Quantized, (last(8),), "torchscript"),
    "mixer": (Mixer, (torch.rand(2, 9, 8),), "both"),
    "vit_attention": (Vit, (torch.rand(2, 5, 8),), "both"),
    "grams": (Grams, (torch.rand(2, 6, 5), torch.rand(2, 5, 6)), "both"),
    "einsums": (Einsums, (torch.rand(2, 5, 8), torch.rand(2, 6, 8)), "both"),
    "candidates": (Candidates, (torch.rand(3, 8), torch.randint(0, 6, (40,))), "both"),
    "preprocess": (Preprocess, (torch.rand(1, 3, 8, 8) * 255,), "both"),
    "gru_steps": (Gru, (torch.rand(2, 2, 8), torch.rand(2, 8)), "torchscript"),
    "gates": (Gates, (torch.rand(4, 8), torch.rand(4, 8), torch.rand(4, 8), torch.rand(8)), "both"),
    "masks": (Masks, (torch.rand(3, 6), torch.tensor([2, 5, 6]), torch.rand(3, 6)), "torchscript"),
    "handmade_activations": (Handmade, (torch.rand(3, 6) - 0.5,), "both"),
    "buckets": (Buckets, (torch.randint(0, 60, (7,)),), "both"),
    "complex_linear": (Complex, (torch.rand(4, 8), torch.rand(4, 8)), "both"),
    "reductions": (Reductions, (torch.rand(2, 3, 4, 5), torch.rand(3, 8)), "both"),
    "norms": (Norms, (torch.rand(4, 6),), "both"),
    "running_sums": (Running, (torch.rand(6, 4), torch.rand(1, 3, 5, 5)), "both"),
}


def without_notes(path: Path) -> None:
    """Take out what the exporter says of the machine that it ran on."""
    model = onnx.load(path)
    graph = model.graph
    for thing in (model, graph, *graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer):
        thing.ClearField("metadata_props")
        if not isinstance(thing, onnx.ModelProto):
            thing.ClearField("doc_string")
    onnx.save(model, path)


def main(names: list[str]) -> None:
    """Export the models of these names, or all."""
    for name, (model, inputs, exporters) in MODELS.items():
        if names and name not in names:
            continue
        for exporter in ("torch", "torchscript") if exporters == "both" else (exporters,):
            torch.manual_seed(7)
            path = FOLDER / exporter / f"{name}.onnx"
            path.parent.mkdir(exist_ok=True)
            settings = {"dynamo": True, "external_data": False} if exporter == "torch" else {"dynamo": False}
            version = 18 if exporter == "torch" else 17
            torch.onnx.export(model().eval(), inputs, str(path), opset_version=version, verbose=False, **settings)
            without_notes(path)
            print(path.relative_to(FOLDER), path.stat().st_size)


if __name__ == "__main__":
    main(sys.argv[1:])
