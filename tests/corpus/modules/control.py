"""Sequences, optional values, loops and branches, most of them to be scripted."""

from __future__ import annotations

from typing import Optional

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


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


class Spread(nn.Module):
    """Indices of 64 bits that count a few things."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 4)

    def forward(self, x: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
        index = ids.clamp(0, 4) * 2
        shifted = torch.arange(x.size(1)) + 3
        return self.table(index), (shifted + 1).float(), F.one_hot(ids.clamp(0, 3), 4).float()
