"""Exports small torch models whose products and convolutions can be merged, moved or folded.

Run with torch 2.13 and onnxscript 0.7: ``python tests/corpus/make_torch_products.py [NAME...]``. Each model is written
by the exporter that traces (``torch``) or by the older one (``torchscript``), as the table at the end says.
"""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

FOLDER = Path(__file__).parent


def randomize(model: nn.Module) -> nn.Module:
    """Statistics of batch normalizations that are not those of an untrained one."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.running_mean = torch.randn_like(module.running_mean) / 4
            module.running_var = torch.rand_like(module.running_var) + 0.5
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.2)
    return model


# -- products


class Adapted(nn.Module):
    """A linear layer with a low-rank adapter beside it, as in fine-tuned language models."""

    def __init__(self, i: int, o: int, rank: int = 2) -> None:
        super().__init__()
        self.base = nn.Linear(i, o, bias=False)
        self.down, self.up = nn.Linear(i, rank, bias=False), nn.Linear(rank, o, bias=False)
        self.scale = 0.5

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x)) * self.scale


class Adapters(nn.Module):
    """An attention whose projections have adapters."""

    def __init__(self, n: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (Adapted(n, n) for _ in range(4))
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        b, t, n = x.shape
        q, k, v = (p(x).view(b, t, self.heads, -1).transpose(1, 2) for p in (self.q, self.k, self.v))
        scores = (q @ k.transpose(-1, -2)) * (n // self.heads) ** -0.5
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, n))


class ServedAdapter(nn.Module):
    """A linear layer whose adapter comes with each request."""

    def __init__(self, n: int = 32) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n, n) / 8)

    def forward(self, x: Tensor, down: Tensor, up: Tensor) -> Tensor:
        return x @ (self.weight + down @ up)


class Bottleneck(nn.Module):
    """Linear layers factored in two, the first of them wide."""

    def __init__(self, n: int = 8) -> None:
        super().__init__()
        self.wide, self.back = nn.Linear(n, 4 * n, bias=False), nn.Linear(4 * n, n, bias=False)
        self.out = nn.Linear(n, n)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.out(self.back(self.wide(x))))


class Tower(nn.Module):
    """Linear layers with batch normalization and scales, and three heads for as many tasks."""

    def __init__(self, n: int = 12) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU())
        self.heads = nn.ModuleList([nn.Linear(16, 8) for _ in range(3)])
        self.gain = nn.Parameter(torch.rand(8) + 0.5)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = self.body(x)
        a, b, c = (head(y) for head in self.heads)
        return a * self.gain, b / 2.0, c.sigmoid()


class Cell(nn.Module):
    """A recurrent cell of several gates, unrolled over three steps."""

    def __init__(self, n: int = 8) -> None:
        super().__init__()
        self.x = nn.ModuleList([nn.Linear(n, n, bias=False) for _ in range(4)])
        self.h = nn.ModuleList([nn.Linear(n, n, bias=False) for _ in range(4)])

    def forward(self, xs: Tensor, h: Tensor) -> Tensor:
        for x in xs.unbind(1):
            a, b, c, d = (p(x) + q(h) for p, q in zip(self.x, self.h, strict=True))
            h = torch.tanh(torch.sigmoid(a) * torch.tanh(b) + torch.sigmoid(c) * torch.sigmoid(d))
        return h


class LstmSteps(nn.Module):
    """An LSTM cell, unrolled over three steps."""

    def __init__(self, n: int = 8) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(n, n)

    def forward(self, xs: Tensor, h: Tensor, c: Tensor) -> Tensor:
        for x in xs.unbind(1):
            h, c = self.cell(x, (h, c))
        return h


class Grouped(nn.Module):
    """A linear layer of its own for each part of the features: outputs stacked, and side by side."""

    def __init__(self, parts: int = 4, n: int = 6) -> None:
        super().__init__()
        self.first = nn.ModuleList([nn.Linear(n, n) for _ in range(parts)])
        self.second = nn.ModuleList([nn.Linear(n, n) for _ in range(parts)])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        parts = x.unbind(1)
        stacked = torch.stack([layer(part) for layer, part in zip(self.first, parts, strict=True)])
        joined = torch.cat([layer(part) for layer, part in zip(self.second, parts, strict=True)], dim=1)
        return stacked, joined


class Times(nn.Module):
    """Embeddings of a time: a linear layer of one input, and a table of angles."""

    def __init__(self, n: int = 8) -> None:
        super().__init__()
        self.layer, self.mix = nn.Linear(1, n), nn.Linear(n, n)
        self.register_buffer("rates", torch.rand(1, n))

    def forward(self, t: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        return self.mix(F.silu(self.layer(t))), torch.cos(positions.unsqueeze(-1) @ self.rates)


class Siamese(nn.Module):
    """One encoder for two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.layer = nn.Conv2d(3, 8, 3, 2, 1), nn.Linear(8, 8, bias=False)

    def encode(self, x: Tensor) -> Tensor:
        return F.relu(self.conv(x)).mean((2, 3))

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return F.cosine_similarity(self.layer(self.encode(a)), self.layer(self.encode(b)))


# -- convolutions


class RepVgg(nn.Module):
    """A block of RepVGG before its branches are merged: 3 x 3, 1 x 1 and identity, each normalized."""

    def __init__(self, n: int = 8) -> None:
        super().__init__()
        self.three = nn.Sequential(nn.Conv2d(n, n, 3, 1, 1, bias=False), nn.BatchNorm2d(n))
        self.one = nn.Sequential(nn.Conv2d(n, n, 1, bias=False), nn.BatchNorm2d(n))
        self.also = nn.Sequential(nn.Conv2d(n, n, 3, 1, 1, bias=False), nn.BatchNorm2d(n))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.three(x) + self.one(x) + self.also(x))


class ConvUnit(nn.Sequential):
    def __init__(self, i: int, o: int, k: int = 1, stride: int = 1, groups: int = 1) -> None:
        conv = nn.Conv2d(i, o, k, stride, k // 2, groups=groups, bias=False)
        super().__init__(conv, nn.BatchNorm2d(o), nn.ReLU())


class Inception(nn.Module):
    """Branches of one input, one of them pooled first."""

    def __init__(self, i: int = 8) -> None:
        super().__init__()
        self.one, self.five, self.three = ConvUnit(i, 6), ConvUnit(i, 4), ConvUnit(i, 4)
        self.five2, self.three2 = ConvUnit(4, 6, 5), ConvUnit(4, 6, 3)
        self.pooled = nn.Conv2d(i, 2, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        pooled = self.pooled(F.avg_pool2d(x, 3, 1, 1))
        return torch.cat([self.one(x), self.five2(self.five(x)), self.three2(self.three(x)), pooled], 1)


class Shuffle(nn.Module):
    """A unit of ShuffleNet: grouped convolutions with a channel shuffle between."""

    def __init__(self, n: int = 12, groups: int = 3) -> None:
        super().__init__()
        self.first, self.depth = ConvUnit(n, n, groups=groups), ConvUnit(n, n, 3, groups=n)
        self.last, self.groups = nn.Conv2d(n, n, 1, groups=groups), groups

    def forward(self, x: Tensor) -> Tensor:
        y = F.channel_shuffle(self.first(x), self.groups)
        return F.relu(x + self.last(self.depth(y)))


class Towers(nn.Module):
    """AlexNet's two halves: convolutions that see one half of the channels each."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, 2, 1)
        self.left, self.right = nn.Conv2d(4, 6, 3, 1, 1), nn.Conv2d(4, 6, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        left, right = F.relu(self.first(x)).chunk(2, 1)
        return F.relu(torch.cat([self.left(left), self.right(right)], 1))


class Pixels(nn.Module):
    """A classifier of pixels: a linear layer along the channels of an image."""

    def __init__(self, n: int = 6) -> None:
        super().__init__()
        self.conv, self.layer = nn.Conv2d(3, n, 3, 1, 1), nn.Linear(n, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.conv(x)).permute(0, 2, 3, 1)
        return self.layer(y).permute(0, 3, 1, 2).sigmoid()


class Focus(nn.Module):
    """The stem of YOLOv5: every second pixel becomes channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(12, 8, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        parts = [x[..., ::2, ::2], x[..., 1::2, ::2], x[..., ::2, 1::2], x[..., 1::2, 1::2]]
        return F.silu(self.conv(torch.cat(parts, 1)))


class Picked(nn.Module):
    """A detector's head of which some channels are used, in another order."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 10, 3, 1, 1)
        self.register_buffer("order", torch.tensor([7, 2, 0, 5]))

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x).index_select(1, self.order).sigmoid()


class Decoder(nn.Module):
    """Transposed convolutions with batch normalization, padded and scaled inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Sequential(nn.ConvTranspose2d(4, 6, 2, 2, bias=False), nn.BatchNorm2d(6), nn.ReLU())
        self.pad, self.conv = nn.ZeroPad2d((1, 2, 1, 2)), nn.Conv2d(6, 4, 4)
        self.register_buffer("mean", torch.rand(1, 4, 1, 1))
        self.first = nn.Conv2d(4, 4, 1)
        self.last = nn.Conv2d(4, 3, 3, 1, 1)
        nn.init.zeros_(self.last.bias)
        self.gain = nn.Parameter(torch.rand(3, 1, 1) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first((x - self.mean) / 0.25)
        return self.last(F.leaky_relu(self.conv(self.pad(self.up(y))), 0.1)) * self.gain + 0.5


class Pyramid(nn.Module):
    """Pools of pools, padded pools, and images enlarged twice over."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, 1, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = self.conv(x)
        quarter = F.avg_pool2d(F.avg_pool2d(y, 2), 2)
        largest = F.max_pool2d(F.max_pool2d(y, 2), 2)
        padded = F.max_pool2d(F.pad(y, (0, 1, 0, 1), value=float("-inf")), 3, 2)
        twice = F.interpolate(F.interpolate(quarter, scale_factor=2), scale_factor=2)
        return torch.cat([quarter, largest], 1), padded, twice


def image(size: int, channels: int = 3) -> Tensor:
    return torch.rand(1, channels, size, size)


MODELS = {
    "adapters": (Adapters, (torch.rand(2, 5, 16),), "both"),
    "served_adapter": (ServedAdapter, (torch.rand(3, 32), torch.rand(32, 2), torch.rand(2, 32)), "both"),
    "bottleneck": (Bottleneck, (torch.rand(2, 5, 8),), "both"),
    "tower": (Tower, (torch.rand(4, 12),), "both"),
    "cell": (Cell, (torch.rand(2, 3, 8), torch.rand(2, 8)), "both"),
    "lstm_steps": (LstmSteps, (torch.rand(2, 3, 8), torch.rand(2, 8), torch.rand(2, 8)), "torchscript"),
    "grouped_linear": (Grouped, (torch.rand(5, 4, 6),), "both"),
    "times": (Times, (torch.rand(3, 1), torch.rand(2, 7)), "both"),
    "siamese": (Siamese, (image(8), image(8)), "both"),
    "repvgg": (RepVgg, (image(8, 8),), "both"),
    "inception": (Inception, (image(12, 8),), "both"),
    "shuffle_unit": (Shuffle, (image(6, 12),), "torch"),
    "towers": (Towers, (image(8),), "both"),
    "pixels": (Pixels, (image(6),), "both"),
    "focus": (Focus, (image(16),), "torchscript"),
    "picked": (Picked, (image(6, 4),), "both"),
    "decoder": (Decoder, (image(6, 4),), "both"),
    "pyramid": (Pyramid, (image(16),), "both"),
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
            if exporter == "torchscript":  # it would fold batch normalizations itself
                settings["training"] = torch.onnx.TrainingMode.PRESERVE
            version = 18 if exporter == "torch" else 17
            made = randomize(model()).eval()
            torch.onnx.export(made, inputs, str(path), opset_version=version, verbose=False, **settings)
            without_notes(path)
            print(path.relative_to(FOLDER), path.stat().st_size)


if __name__ == "__main__":
    main(sys.argv[1:])
