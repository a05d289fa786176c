"""Modules that compute with sizes, of which some are open."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.onnx.operators import reshape_from_tensor_shape, shape_as_tensor


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
