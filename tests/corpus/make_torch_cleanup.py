"""Exports small torch models that are mostly shape arithmetic, views, slices, sequences and control flow.

Run with torch 2.13 and onnxscript 0.7: ``python tests/corpus/make_torch_cleanup.py [NAME...]``. Each model is
written by the exporter that traces (``torch``) or by the older one (``torchscript``), as the table at the end says.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

import onnx
import onnxscript
import torch
import torch.nn.functional as F  # noqa: N812
from onnxscript import FLOAT
from onnxscript import opset18 as op
from torch import Tensor, nn
from torch.onnx.operators import reshape_from_tensor_shape, shape_as_tensor

FOLDER = Path(__file__).parent
LIMIT = 40_000


# -- detectors


class Focus(nn.Module):
    """YOLOv5's first layer: every second row and column becomes channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(12, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        parts = [x[..., ::2, ::2], x[..., 1::2, ::2], x[..., ::2, 1::2], x[..., 1::2, 1::2]]
        return F.silu(self.norm(self.conv(torch.cat(parts, 1))))


class Detect(nn.Module):
    """YOLOv5's head: boxes from a grid of cells, classes, both of all scales in one tensor."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.no, self.na = classes + 5, 2
        self.m = nn.ModuleList(nn.Conv2d(8, self.no * self.na, 1) for _ in range(2))
        self.register_buffer("anchors", torch.rand(2, self.na, 2) * 4)
        self.strides = (2.0, 4.0)

    def forward(self, *levels: Tensor) -> Tensor:
        made = []
        for i, x in enumerate(levels):
            x = self.m[i](x)
            b, _, ny, nx = x.shape
            x = x.view(b, self.na, self.no, ny, nx).permute(0, 1, 3, 4, 2).contiguous()
            grid, scale = self.grid(nx, ny, i)
            xy, wh, conf = x.sigmoid().split((2, 2, self.no - 4), 4)
            xy = (xy * 2 + grid) * self.strides[i]
            wh = (wh * 2) ** 2 * scale
            made.append(torch.cat((xy, wh, conf), 4).view(b, self.na * nx * ny, self.no))
        return torch.cat(made, 1)

    def grid(self, nx: int, ny: int, i: int) -> tuple[Tensor, Tensor]:
        shape = 1, self.na, ny, nx, 2
        y, x = torch.arange(ny, dtype=torch.float32), torch.arange(nx, dtype=torch.float32)
        yv, xv = torch.meshgrid(y, x, indexing="ij")
        grid = torch.stack((xv, yv), 2).expand(shape) - 0.5
        return grid, (self.anchors[i] * self.strides[i]).view((1, self.na, 1, 1, 2)).expand(shape)


class Yolo(nn.Module):
    """A detector of two scales, with a pyramid that upsamples to the size of what it joins."""

    def __init__(self) -> None:
        super().__init__()
        self.focus, self.down = Focus(), nn.Conv2d(8, 8, 3, 2, 1)
        self.lateral, self.detect = nn.Conv2d(16, 8, 1), Detect()

    def forward(self, x: Tensor) -> Tensor:
        fine = self.focus(x)
        coarse = F.relu(self.down(fine))
        up = F.interpolate(coarse, size=fine.shape[2:], mode="nearest")
        return self.detect(self.lateral(torch.cat((up, fine), 1)), coarse)


class Select(nn.Module):
    """What comes between a detector and non-maximum suppression: corners, best classes, the best few boxes."""

    def forward(self, boxes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, y, w, h = boxes[..., :4].unbind(-1)
        corners = torch.stack((x - w / 2, y - h / 2, x + w / 2, y + h / 2), -1)
        scores = boxes[..., 4:5] * boxes[..., 5:].softmax(-1)
        best, label = scores.max(-1)
        top, index = best.topk(4, 1)
        index = index.unsqueeze(-1)
        return corners.gather(1, index.expand(-1, -1, 4)), top, label.unsqueeze(-1).gather(1, index)


class Anchors(nn.Module):
    """Boxes of every cell, decoded from offsets and kept inside of the image."""

    def forward(self, feature: Tensor, deltas: Tensor) -> Tensor:
        h, w = feature.shape[-2:]
        ys = (torch.arange(h) + 0.5) * 8
        xs = (torch.arange(w) + 0.5) * 8
        centers = torch.stack((xs.repeat(h), ys.view(-1, 1).repeat(1, w).view(-1)), 1)
        anchors = torch.cat((centers - 4, centers + 4), 1)
        boxes = anchors.unsqueeze(0).repeat(deltas.shape[0], 1, 1) + deltas
        return torch.clamp(boxes, min=0.0, max=64.0).clamp(0.0, 64.0)


# -- open dimensions


class OpenHeads(nn.Module):
    """Attention's views with open batch and length."""

    def __init__(self, n: int = 8, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(n, 3 * n), nn.Linear(n, n)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        b, t, n = x.size()
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, n // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1)) * (n // self.heads) ** -0.5
        scores = scores.masked_fill(~mask[:, None, None, :].expand(b, 1, t, t), -1e9)
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, n)
        return self.out(y) + torch.zeros(b, t, n)


class Padded(nn.Module):
    """Pads to a multiple of four, works, cuts off again, and pools into cells."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        h, w = x.shape[-2], x.shape[-1]
        y = F.pad(x, (0, (4 - w % 4) % 4, 0, (4 - h % 4) % 4))
        y = F.relu(self.conv(y))[:, :, :h, :w]
        both = torch.cat((x, y), 1)
        return both.flatten(2).permute(0, 2, 1).reshape(both.size(0), -1, both.size(1)).mean(1)


class Positions(nn.Module):
    """Positions that go on after those of a cache, and a mask of what is seen."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(32, 8)

    def forward(self, x: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        keys = torch.cat((past, x), 1)
        index = torch.arange(past.size(1), past.size(1) + x.size(1))
        seen = torch.arange(keys.size(1)).unsqueeze(0) <= (torch.arange(x.size(1)) + past.size(1)).unsqueeze(1)
        return x + self.table(index), torch.where(seen, 0.0, -1e4).expand(x.size(0), 1, -1, -1)


class Letterbox(nn.Module):
    """Boxes brought back to the size of the image that was scaled: sizes in a vector, taken apart again."""

    def forward(self, image: Tensor, boxes: Tensor, high: Tensor, wide: Tensor) -> Tensor:
        ratio = torch.stack((wide, high))
        boxes = boxes - torch.stack((ratio[0], ratio[1], ratio[0], ratio[1]))
        rows = image.flatten(2).transpose(1, 2)
        size = torch.stack((torch.as_tensor(image.shape[-2]), torch.as_tensor(image.shape[-1])))
        gain = torch.floor(torch.round(size[0] * 2.0)) / torch.floor(size[1].float())
        lines = rows.transpose(1, 2).reshape(rows.shape[0], rows.shape[2], image.shape[2], image.shape[3])
        return boxes * gain + lines.mean()


class Tokens(nn.Module):
    """A product of rows in between two views, as experts or adapters have it; a table of relative places."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.rand(8, 8))
        self.bias = nn.Parameter(torch.rand(9, 2))
        places = torch.arange(5)
        self.register_buffer("places", places[:, None] - places[None, :] + 4)

    def forward(self, x: Tensor) -> Tensor:
        b, t, n = x.shape
        y = (x.reshape(-1, n) @ self.w).reshape(b, t, n)
        bias = self.bias[self.places.view(-1)].view(t, t, 2).permute(2, 0, 1)
        heads = y.view(b, t, 2, 4).transpose(1, 2)
        return (heads @ heads.transpose(-1, -2) + bias).softmax(-1)


class Rotary(nn.Module):
    """Tables of cosines and sines of which both halves are the same, and the turn of a vector by them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("inverse", 1.0 / (100.0 ** (torch.arange(0, 4) / 4)))

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        angles = positions[:, :, None].float() * self.inverse
        angles = torch.cat((angles, angles), -1)
        first, second = x[..., :4], x[..., 4:]
        return x * angles.cos() + torch.cat((-second, first), -1) * angles.sin()


class Guided(nn.Module):
    """Classifier-free guidance: a batch that is doubled, for a prompt and for none."""

    def forward(self, latents: Tensor, prompts: Tensor) -> Tensor:
        both = torch.tanh(torch.cat([latents, latents])) @ prompts
        plain, guided = both.chunk(2)
        return plain + 7.5 * (guided - plain)


class Flow(nn.Module):
    """A step of an invertible flow: channels in another order, half of them scaled and shifted."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("order", torch.randperm(12))
        self.fc = nn.Linear(6, 12)

    def forward(self, x: Tensor) -> Tensor:
        x = x[:, self.order]
        a, b = x.chunk(2, 1)
        scale, shift = self.fc(a).chunk(2, 1)
        return torch.cat((a, b * torch.exp(torch.tanh(scale)) + shift), 1)


class Resized(nn.Module):
    """A shape that is edited as a tensor, as torch.onnx.operators offers it."""

    def forward(self, x: Tensor) -> Tensor:
        shape = shape_as_tensor(x).clone()
        shape[1] = 1
        shape[2] = shape[2] * shape_as_tensor(x)[1]
        return reshape_from_tensor_shape(x, shape) + 1.0


class Half(nn.Module):
    """Activations kept in half precision, moved about in single precision as layers of their own ask for it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.Linear(8, 8).half()

    def forward(self, x: Tensor, past: Tensor) -> Tensor:
        y = self.norm(x.half())
        wide = torch.cat((past.float(), y.float()), 1)
        keys = wide.half().view(2, 7, 2, 4).permute(0, 2, 1, 3)
        return (keys @ keys.transpose(-1, -2)).float()


class Turned(nn.Module):
    """Rows and columns change places, and sizes are read off the result."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x.transpose(1, 2))
        z = F.relu(y).transpose(1, 2)
        b, t, n = z.shape
        return z.reshape(b, t // 2, 2, n).sum(2) + torch.ones(b, t // 2, n)


# -- views


class Pixels(nn.Module):
    """Space to depth and back by views, channel shuffle, windows, patches."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        b, c, h, w = x.shape
        packed = x.view(b, c, h // 2, 2, w // 2, 2).permute(0, 1, 3, 5, 2, 4).reshape(b, c * 4, h // 2, w // 2)
        blocks = x.view(b, c, h // 2, 2, w // 2, 2).permute(0, 3, 5, 1, 2, 4).reshape(b, c * 4, h // 2, w // 2)
        shuffled = packed.view(b, 2, c * 2, h // 2, w // 2).transpose(1, 2).reshape(b, c * 4, h // 2, w // 2)
        back = shuffled.view(b, c, 2, 2, h // 2, w // 2).permute(0, 1, 4, 2, 5, 3).reshape(b, c, h, w)
        windows = x.view(b, c, h // 4, 4, w // 4, 4).permute(0, 2, 4, 3, 5, 1).reshape(-1, 16, c)
        image = windows.view(b, h // 4, w // 4, 4, 4, c).permute(0, 5, 1, 3, 2, 4).reshape(b, c, h, w)
        return F.pixel_unshuffle(x, 2) + F.relu(blocks), back, F.relu(image), F.pixel_shuffle(packed, 2)


class Patches(nn.Module):
    """Unfold, roll and fold: shifted windows."""

    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(12, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.roll(x, (-1, -1), (2, 3))
        y = self.proj(F.unfold(x, 2, stride=2).transpose(1, 2))
        return torch.roll(y, 1, 1)


class Repeats(nn.Module):
    """Expands and repeats that an op which broadcasts does not need; keys that several heads share."""

    def forward(self, x: Tensor, y: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
        b, t, n = x.shape
        gate = torch.sigmoid(scale.view(1, 1, n).expand(b, t, n))
        keys = y[:, :, None].expand(b, y.size(1), 3, y.size(2), y.size(3)).reshape(b, y.size(1) * 3, y.size(2), -1)
        mean = x.mean(1, keepdim=True).expand_as(x)
        return x * gate, keys.transpose(-2, -1), (x - mean) / x.std(1, keepdim=True).repeat(1, t, 1)


class Squeezes(nn.Module):
    """Axes of size one that come and go."""

    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        a = x.unsqueeze(1).unsqueeze(-1).squeeze(1)
        both = x.unsqueeze(2) * y.unsqueeze(2)
        pooled = F.adaptive_avg_pool2d(x.unsqueeze(-1), 1).flatten(1).unsqueeze(-1)
        flat = torch.flatten(x.sum(-1, keepdim=True), 1)
        wide = x.view(x.size(0), -1).view(x.size(0), 1, -1)
        moved = x.view(2, 1, 4, 6).permute(0, 2, 1, 3)
        joined = torch.cat((x.unsqueeze(0), y.unsqueeze(0)), 0).view(4, 24)
        step = torch.tanh(z).transpose(0, 1)
        return a.abs().squeeze(-1), both.squeeze(2), pooled, flat, wide.exp(), moved, joined, step


# -- slices, gathers, scatters


class Cuts(nn.Module):
    """Slices of slices, splits joined again, gathers of gathers, parts of concatenations."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        inner = x[:, 1:][:, :4][:, :, 2:]
        a, b, c = x.chunk(3, 1)
        same = torch.cat((a, b, c), 1)
        joined = torch.cat((torch.cat((x, y), 1), y), 1)
        first, second = joined[:, :6], joined[:, 6:12]
        reached = x.index_select(1, torch.tensor([2, 3, 4])).index_select(1, torch.tensor([1, 2]))
        steps = [x[:, i] for i in range(6)]
        acted = torch.cat((torch.sigmoid(x), torch.sigmoid(y)), 1)
        return inner, same, first * second, reached, steps[0] + steps[1] * steps[2] - steps[5], acted


class Cache(nn.Module):
    """A cache of keys and values that is written in place, as inference code keeps it."""

    def forward(self, cache: Tensor, key: Tensor, position: Tensor) -> tuple[Tensor, ...]:
        cache = cache.clone()
        cache[:, :, position] = key
        window = torch.zeros(2, 4, 8)
        window[:, :2] = key[0, :, :1].expand(2, 2, 8)
        window[:, 2:] = 1.0
        whole = torch.zeros_like(key)
        whole[:] = key
        picked = key.reshape(-1, 8)[torch.tensor([1, 0])]
        return cache, window, whole + 1, picked


class Columns(nn.Module):
    """Boxes of which columns are written one by one, as post-processing code does."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.zeros_like(x)
        y[..., 0] = x[..., 0] - x[..., 2] / 2
        y[..., 1] = x[..., 1] - x[..., 3] / 2
        y[..., 2] = x[..., 0] + x[..., 2] / 2
        y[..., 3] = x[..., 1] + x[..., 3] / 2
        rows = torch.gather(x, 1, torch.tensor([[[1] * 4, [0] * 4]] * 2))
        return y, rows


# -- numbers that change nothing


class Idle(nn.Module):
    """Ops that do nothing once settings are what they are."""

    def __init__(self, p: float = 0.0, eps: float = 0.0, gain: float = 1.0) -> None:
        super().__init__()
        self.drop, self.eps, self.gain = nn.Dropout(p), eps, gain
        self.register_buffer("everything", torch.ones(6, dtype=torch.bool))

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        y = (self.drop(x) * self.gain + self.eps) / self.gain
        y = (y - 0.0) ** 1.0
        y = F.relu(F.relu6(F.relu(y.float())))
        y = F.interpolate(F.pad(y, (0, 0, 0, 0)), scale_factor=1.0)
        n = y.shape[1]
        y = y[:, :n].repeat(1, 1, 1, 1)
        kept = torch.where(~mask, y, torch.neg(-x)).masked_fill(~self.everything, 0.0)
        bounds = x.sigmoid().clamp(0.0, 1.0).abs().relu()
        odds = bounds.clamp(min=-1.0).log().exp()
        both = torch.logical_and(torch.logical_not(torch.logical_not(mask)), torch.ones_like(mask))
        return kept, torch.maximum(odds, torch.full_like(odds, -1.0)), both, x.reciprocal().reciprocal()


class Casts(nn.Module):
    """Casts of mixed precision that cancel, and those that cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
        half = x.half()
        wide = half.float()
        moved = wide.reshape(2, 2, 4).transpose(1, 2).half()
        kept = ids.int().long().float()
        ones = (ids > 2).long().bool()
        return half.float().half() + 1, moved, kept, self.fc(x.double().float()), ones.float()


class Classes(nn.Module):
    """The best class: of probabilities, of their logarithms, of powers."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return x.softmax(-1).argmax(-1), x.exp().argmax(1, keepdim=True), x.sigmoid().argmax(0), x.sqrt().argmin(-1)


class Whitened(nn.Module):
    """Layers that were initialized to do nothing: an identity matrix, a convolution that passes through."""

    def __init__(self) -> None:
        super().__init__()
        self.align, self.point = nn.Linear(6, 6, bias=False), nn.Conv2d(4, 4, 1)
        nn.init.eye_(self.align.weight)
        nn.init.dirac_(self.point.weight)
        nn.init.zeros_(self.point.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.align(F.relu(self.point(x.exp())))


class Training(nn.Module):
    """A network exported as it is trained: its dropout and its normalization are still there."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.drop = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.0)
        self.rnn = nn.LSTM(4, 4, batch_first=True)
        self.pool = nn.MaxPool2d(2, return_indices=True)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.pool(self.drop(F.relu(self.norm(self.conv(x)))))
        z, _ = self.rnn(y.flatten(2).transpose(1, 2))
        return z[:, -1]


# -- sequences, optional values, control flow: what is scripted


class Chunks(nn.Module):
    """Lists of tensors: split by sizes that are inputs, put together again."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        parts = torch.split(x, 2, 1)
        found: list[Tensor] = []
        for i in range(len(parts)):
            found.append(parts[i] * float(i))
        made = torch.stack(found, 0)
        first, second = x.unbind(0)
        return made, torch.cat([second, first], 0)


class Stacked(nn.Module):
    """As many steps as an input says, each kept in a list that is stacked."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.rand(4, 4))

    def forward(self, x: Tensor, steps: int) -> Tensor:
        state = torch.zeros_like(x[0])
        found: list[Tensor] = []
        for i in range(steps):
            state = torch.tanh(x[i % 3] + state @ self.w)
            found.append(state)
        return torch.stack(found)


class Carried(nn.Module):
    """A state that is absent before the first step."""

    def forward(self, x: Tensor) -> Tensor:
        last: Optional[Tensor] = None  # noqa: UP045 - TorchScript knows no other spelling
        made = x[0]
        for i in range(x.size(0)):
            if last is not None:
                made = made + last * x[i]
            last = made.tanh()
        return made


class Windows(nn.Module):
    """A loop over a number of windows, each added to what was there."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.rand(4, 4))

    def forward(self, x: Tensor, steps: int) -> Tensor:
        state = torch.zeros_like(x[0])
        unused = x[0]
        for i in range(steps):
            scale = torch.tanh(self.w @ self.w.t())
            unused = unused + 1
            state = torch.tanh(x[i % 3] @ scale + state)
        return state


class Few(nn.Module):
    """Loops of a few steps, of one and of none, with values that never change."""

    def forward(self, x: Tensor, more: int) -> Tensor:
        fixed = x.exp()
        y = x
        for i in range(x.size(0)):
            y = y * fixed + float(i)
        for _ in range(more):
            y = y + fixed.tanh()
        return y


class Branches(nn.Module):
    """Branches that settings decide, branches that are equal, and branches that share most of what they do."""

    def __init__(self) -> None:
        super().__init__()
        self.fast, self.fc = True, nn.Linear(4, 4)

    def forward(self, x: Tensor, flag: Tensor) -> Tensor:
        if self.fast and x.dim() == 3:  # noqa: SIM108 - the If is what is exported
            x = x.relu()
        else:
            x = x.sigmoid()
        if bool(flag > 0):
            y = torch.tanh(x.transpose(1, 2)).transpose(1, 2) + 1.0
        else:
            y = torch.sigmoid(x.transpose(1, 2)).transpose(1, 2) + 1.0
        if bool(flag > 1):  # noqa: SIM108 - the If is what is exported
            z = self.fc(y)
        else:
            z = self.fc(y)
        return z


class Ranked(nn.Module):
    """A recurrent layer that takes one sequence or several, as torch.nn.LSTM does when it is scripted."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        if x.size(-1) == 1:  # noqa: SIM108 - the If is what is exported
            y = x.squeeze(-1)
        else:
            y = x
        out, _ = self.rnn(y)
        return out


class Maybe(nn.Module):
    """An argument that may be absent."""

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        if bias is not None:
            x = x + bias
        return x.relu()


class Blocks(nn.Module):
    """The same block three times over."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(8, 2, 8, 0.0, F.relu, batch_first=True) for _ in range(3)
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer.linear2(F.gelu(layer.linear1(layer.norm1(x))))
        return x


class Gated(nn.Module):
    """A layer that is run or not, as control flow of torch.export: its branches are functions of the model."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        def deep(x: Tensor) -> Tensor:
            return torch.sigmoid(self.b(torch.relu(self.a(x))))

        def flat(x: Tensor) -> Tensor:
            return torch.sigmoid(self.b(x))

        return torch.cond(x.sum() > 0, deep, flat, (x,)) * 2.0


class Warp(nn.Module):
    """An image sampled by a flow: a grid that is sliced, scaled and put together."""

    def forward(self, x: Tensor, flow: Tensor) -> Tensor:
        _, _, h, w = x.shape
        y, x0 = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        grid = torch.stack((x0, y), 0).float().unsqueeze(0) + flow
        gx, gy = 2 * grid[:, 0] / (w - 1) - 1, 2 * grid[:, 1] / (h - 1) - 1
        return F.grid_sample(x, torch.stack((gx, gy), -1), align_corners=True)


class Spread(nn.Module):
    """Indices of 64 bits that count a few things."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 4)

    def forward(self, x: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
        index = ids.clamp(0, 4) * 2
        shifted = torch.arange(x.size(1)) + 3
        return self.table(index), (shifted + 1).float(), F.one_hot(ids.clamp(0, 3), 4).float()


# -- functions of the model, as onnxscript writes them

DOMAIN = onnxscript.values.Opset("corpus.functions", 1)


@onnxscript.script(DOMAIN, default_opset=op)
def softplus(x: FLOAT[...]) -> FLOAT[...]:
    """The logarithm of one plus an exponential."""
    return op.Log(op.Exp(x) + 1.0)


@onnxscript.script(DOMAIN, default_opset=op)
def mish(x: FLOAT[...]) -> FLOAT[...]:
    """A smooth activation."""
    return x * op.Tanh(softplus(x))


@onnxscript.script(default_opset=op)
def functions(x: FLOAT[2, 8], w: FLOAT[8, 8]) -> FLOAT[2, 8]:
    """Two layers."""
    return mish(op.MatMul(mish(op.MatMul(x, w)), w))


@dataclass
class Case:
    """A module, its arguments, and how it is exported."""

    make: type[nn.Module]
    args: tuple[Any, ...]
    exporters: tuple[str, ...] = ("torch", "torchscript")
    scripted: bool = False
    training: bool = False
    folding: bool = True
    optimize: bool = True
    dims: dict[str, dict[int, str]] = field(default_factory=dict)
    names: tuple[str, ...] = ()


OLD = ("torchscript",)
IMAGE = torch.rand(1, 3, 16, 16)
OPEN_IMAGE = {"x": {0: "batch", 2: "height", 3: "width"}}
CASES = {
    "yolo": Case(Yolo, (IMAGE,)),
    "yolo_open": Case(Yolo, (IMAGE,), OLD, dims={"x": {0: "batch"}}, names=("x",)),
    "yolo_sizes": Case(Yolo, (IMAGE,), OLD, dims=OPEN_IMAGE, names=("x",)),
    "select": Case(Select, (torch.rand(2, 12, 8),)),
    "select_open": Case(Select, (torch.rand(2, 12, 8),), OLD, dims={"b": {0: "batch", 1: "boxes"}}, names=("b",)),
    "anchors": Case(
        Anchors,
        (torch.rand(1, 4, 3, 5), torch.rand(2, 15, 4)),
        OLD,
        dims={"deltas": {0: "batch"}, "feature": {2: "h", 3: "w"}},
        names=("feature", "deltas"),
    ),
    "open_heads": Case(
        OpenHeads,
        (torch.rand(2, 5, 8), torch.ones(2, 5) > 0),
        dims={"x": {0: "batch", 1: "time"}, "mask": {0: "batch", 1: "time"}},
        names=("x", "mask"),
    ),
    "padded": Case(Padded, (torch.rand(1, 3, 7, 9),), dims=OPEN_IMAGE, names=("x",)),
    "positions": Case(
        Positions,
        (torch.rand(2, 3, 8), torch.rand(2, 5, 8)),
        dims={"x": {0: "batch", 1: "new"}, "past": {0: "batch", 1: "seen"}},
        names=("x", "past"),
    ),
    "letterbox": Case(
        Letterbox,
        (torch.rand(1, 3, 6, 8), torch.rand(2, 4), torch.tensor(2.0), torch.tensor(3.0)),
        dims={"image": {2: "height", 3: "width"}},
        names=("image", "boxes", "high", "wide"),
    ),
    "tokens": Case(Tokens, (torch.rand(2, 5, 8),)),
    "tokens_open": Case(Tokens, (torch.rand(2, 5, 8),), OLD, dims={"x": {0: "batch"}}, names=("x",)),
    "rotary_table": Case(Rotary, (torch.rand(2, 5, 8), torch.arange(5)[None].repeat(2, 1))),
    "guided": Case(Guided, (torch.rand(2, 6, 8), torch.rand(4, 8, 8))),
    "flow": Case(Flow, (torch.rand(3, 12),)),
    "resized": Case(Resized, (torch.rand(2, 3, 4),), OLD),
    "half": Case(Half, (torch.rand(2, 3, 8), torch.rand(2, 4, 8).half())),
    "turned": Case(Turned, (torch.rand(2, 6, 4),), dims={"x": {0: "batch", 1: "time"}}, names=("x",)),
    "pixels": Case(Pixels, (torch.rand(2, 3, 8, 8),)),
    "pixels_open": Case(Pixels, (torch.rand(2, 3, 8, 8),), OLD, dims={"x": {0: "batch"}}, names=("x",)),
    "patches": Case(Patches, (torch.rand(2, 3, 8, 8),)),
    "repeats": Case(Repeats, (torch.rand(2, 5, 8), torch.rand(2, 2, 4, 6), torch.rand(8))),
    "repeats_open": Case(
        Repeats,
        (torch.rand(2, 5, 8), torch.rand(2, 2, 4, 6), torch.rand(8)),
        OLD,
        dims={"x": {0: "b", 1: "t"}, "y": {0: "b", 2: "s"}},
        names=("x", "y", "scale"),
    ),
    "squeezes": Case(Squeezes, (torch.rand(2, 4, 6), torch.rand(2, 4, 6), torch.rand(1, 5, 3))),
    "cuts": Case(Cuts, (torch.rand(2, 6, 5), torch.rand(2, 6, 5)), folding=False),
    "cache": Case(Cache, (torch.rand(2, 2, 6, 8), torch.rand(2, 2, 2, 8), torch.tensor([3, 4]))),
    "columns": Case(Columns, (torch.rand(2, 5, 4),)),
    "columns_open": Case(Columns, (torch.rand(2, 5, 4),), OLD, dims={"x": {1: "boxes"}}, names=("x",)),
    "idle": Case(Idle, (torch.rand(2, 3, 4, 6), torch.rand(2, 3, 4, 6) > 0.5), folding=False, optimize=False),
    "casts": Case(Casts, (torch.rand(2, 8), torch.tensor([1, 2, 3])), optimize=False),
    "classes": Case(Classes, (torch.rand(4, 5),)),
    "whitened": Case(Whitened, (torch.rand(1, 4, 6, 6),)),
    "training": Case(Training, (torch.rand(2, 3, 8, 8),), OLD, training=True, folding=False),
    "chunks": Case(Chunks, (torch.rand(2, 6, 4),), OLD, scripted=True),
    "windows": Case(Windows, (torch.rand(3, 4, 4), torch.tensor(5)), OLD, scripted=True),
    "few": Case(Few, (torch.rand(2, 3), torch.tensor(2)), OLD, scripted=True),
    "stacked": Case(Stacked, (torch.rand(3, 2, 4), torch.tensor(5)), OLD, scripted=True),
    "carried": Case(Carried, (torch.rand(3, 4),), OLD, scripted=True),
    "branches": Case(Branches, (torch.rand(2, 3, 4), torch.tensor(1)), OLD, scripted=True),
    "ranked": Case(
        Ranked,
        (torch.rand(2, 3, 4, 1),),
        OLD,
        scripted=True,
        dims={"x": {0: "time", 1: "batch", 3: "last"}},
        names=("x",),
    ),
    "maybe": Case(Maybe, (torch.rand(2, 3), torch.rand(3)), OLD, scripted=True),
    "gated": Case(Gated, (torch.rand(2, 8),), ("torch",), optimize=False),
    "blocks": Case(Blocks, (torch.rand(2, 5, 8),)),
    "warp": Case(Warp, (torch.rand(1, 2, 6, 5), torch.rand(1, 2, 6, 5))),
    "spread": Case(Spread, (torch.rand(2, 5), torch.tensor([3, 1])), OLD, dims={"x": {1: "time"}}, names=("x", "ids")),
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


def export(name: str, case: Case, exporter: str) -> None:
    """Write one model."""
    torch.manual_seed(7)
    path = FOLDER / exporter / f"{name}.onnx"
    path.parent.mkdir(exist_ok=True)
    module: Any = case.make().train(case.training)
    named = {"input_names": list(case.names)} if case.names else {}
    if exporter == "torch":
        shapes = {n: {k: torch.export.Dim(d) for k, d in case.dims.get(n, {}).items()} for n in case.names}
        more = {"dynamic_shapes": shapes} if case.dims else {}
        settings = {"dynamo": True, "external_data": False, "optimize": case.optimize, **more}
    else:
        module = torch.jit.script(module) if case.scripted else module
        mode = torch.onnx.TrainingMode.TRAINING if case.training else torch.onnx.TrainingMode.EVAL
        settings = {"dynamo": False, "do_constant_folding": case.folding, "training": mode, "dynamic_axes": case.dims}
    version = 18 if exporter == "torch" else 17
    torch.onnx.export(module, case.args, str(path), opset_version=version, verbose=False, **named, **settings)
    without_notes(path)
    size = path.stat().st_size
    print(path.relative_to(FOLDER), size, "" if size <= LIMIT else "TOO LARGE")


def main(names: list[str]) -> None:
    """Export the models of these names, or all."""
    warnings.simplefilter("ignore")
    if not names or "functions" in names:
        path = FOLDER / "onnxscript" / "functions.onnx"
        path.parent.mkdir(exist_ok=True)
        onnx.save(functions.to_model_proto(), path)
        without_notes(path)
    for name, case in CASES.items():
        if not names or name in names:
            for exporter in case.exporters:
                try:
                    export(name, case, exporter)
                except Exception as error:
                    print(f"{exporter}/{name} failed: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
