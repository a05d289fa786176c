"""What stands around attention: normalizations, gates, mixtures of experts, a block of a diffusion model."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - what everybody calls it
from torch import nn


class Root(nn.Module):
    """RMS normalization as LLaMA has it, and divided by the root."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.weight, self.other = nn.Parameter(torch.rand(width) + 0.5), nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        y = y.type_as(x) * self.weight
        return self.other * (y / torch.sqrt((y * y).mean(-1, keepdim=True) + 1e-6))


class Norms(nn.Module):
    """Layer normalizations: torch's own, over channels first (ConvNeXt), without weights, and written out."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.norm, self.plain = nn.LayerNorm(width), nn.LayerNorm(width, elementwise_affine=False)
        self.weight, self.bias = nn.Parameter(torch.rand(width) + 0.5), nn.Parameter(torch.rand(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(1, keepdim=True)
        variance = (x - mean).pow(2).mean(1, keepdim=True)
        y = (x - mean) / torch.sqrt(variance + 1e-6)
        y = self.weight[:, None, None] * y + self.bias[:, None, None]
        return self.plain(self.norm(y.permute(0, 2, 3, 1)) * 2.0)


class HalfNorms(nn.Module):
    """Normalizations of half-precision numbers that are done in single precision, as LLaMA's and T5's are."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.weight = nn.Parameter((torch.rand(width) + 0.5).half())
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.to(torch.float32)
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.norm((self.weight * y.to(torch.float16)).float()).half()


class Grouped(nn.Module):
    """A convolution, a normalization of groups of channels, and SiLU, on many pixels."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, channels, 3, padding=1), nn.GroupNorm(4, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.silu(self.norm(self.conv(x)))


class UnetBlock(nn.Module):
    """GroupNorm and SiLU before each convolution, a time embedding between, and attention over pixels."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.norm1, self.norm2, self.norm3 = (nn.GroupNorm(4, channels) for _ in range(3))
        self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.time = nn.Linear(12, channels)
        self.q, self.k, self.v, self.o = (nn.Conv2d(channels, channels, 1) for _ in range(4))

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.time(F.silu(t))[:, :, None, None]
        x = x + self.conv2(F.silu(self.norm2(h)))
        y = self.norm3(x)
        b, c, high, wide = y.shape
        q, k, v = (f(y).reshape(b, c, high * wide) for f in (self.q, self.k, self.v))
        weights = torch.bmm(q.permute(0, 2, 1), k) * c**-0.5
        y = torch.bmm(v, weights.softmax(dim=2).permute(0, 2, 1)).reshape(b, c, high, wide)
        return x + self.o(y)


class Activations(nn.Module):
    """A small feed-forward layer for each kind of gate and Gelu that models are written with."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(7))
        self.gate = nn.Linear(width, 2 * width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b, c, d, e, f, g = self.layers
        x = F.gelu(a(x))
        x = F.gelu(b(x), approximate="tanh")
        h = c(x)
        x = 0.5 * h * (1.0 + torch.tanh(0.7978845608028654 * (h + 0.044715 * torch.pow(h, 3.0))))
        h = d(x)
        x = 0.5 * h * (1.0 + torch.tanh(h * 0.7978845608 * (1.0 + 0.044715 * h * h)))
        h = e(x)
        x = h * torch.sigmoid(1.702 * h)
        x = F.silu(f(x)) * g(x)
        y, gate = self.gate(x).chunk(2, dim=-1)
        return y * F.gelu(gate)


class Lora(nn.Module):
    """A linear layer with a low-rank update, and without."""

    def __init__(self, width: int = 16, rank: int = 4) -> None:
        super().__init__()
        self.base = nn.Linear(width, width)
        self.down, self.up = nn.Linear(width, rank, bias=False), nn.Linear(rank, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x)) * 2.0


class Experts(nn.Module):
    """A mixture of experts in which every token goes through each, weighted by a softmax over the best two."""

    def __init__(self, width: int = 16, experts: int = 4) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.up, self.down = (nn.Parameter(torch.randn(experts, width, width)) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.reshape(-1, x.shape[-1])
        probabilities = self.router(tokens).softmax(-1)
        best, index = probabilities.topk(2, dim=-1)
        weights = torch.zeros_like(probabilities).scatter(1, index, best)
        hidden = F.relu(torch.bmm(tokens.expand(4, -1, -1), self.up))
        y = torch.bmm(hidden, self.down) * weights.t()[:, :, None]
        return y.sum(0).reshape(x.shape)
