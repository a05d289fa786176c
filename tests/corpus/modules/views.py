"""Views, slices, gathers and scatters."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


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


class Warp(nn.Module):
    """An image sampled by a flow: a grid that is sliced, scaled and put together."""

    def forward(self, x: Tensor, flow: Tensor) -> Tensor:
        _, _, h, w = x.shape
        y, x0 = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        grid = torch.stack((x0, y), 0).float().unsqueeze(0) + flow
        gx, gy = 2 * grid[:, 0] / (w - 1) - 1, 2 * grid[:, 1] / (h - 1) - 1
        return F.grid_sample(x, torch.stack((gx, gy), -1), align_corners=True)
