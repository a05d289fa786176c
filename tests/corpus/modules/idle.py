"""Ops that change nothing, or not what is asked for: the best class, casts, layers that pass through."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


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
