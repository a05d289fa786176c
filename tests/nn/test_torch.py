"""Weights of torch's modules bind by their own names, and give torch's own results."""

from __future__ import annotations

from typing import Any

import pytest

import graphopt
from graphopt import nn
from tests.nn.test_layers import alike, floats, run

torch = pytest.importorskip("torch")
IMAGE, TOKENS = (2, 4, 9, 10), (2, 5, 16)


class Encoder(nn.Module):
    """torch's TransformerEncoderLayer."""

    def __init__(self) -> None:
        self.self_attn = nn.MultiheadAttention(16, 4)
        self.linear1, self.linear2 = nn.Linear(16, 32), nn.Linear(32, 16)
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        x = self.norm1(x + self.self_attn(x))
        return self.norm2(x + self.linear2(nn.relu(self.linear1(x))))


PAIRS: list[tuple[Any, nn.Module, tuple[int, ...]]] = [
    (torch.nn.Linear(16, 7), nn.Linear(16, 7), TOKENS),
    (torch.nn.Conv1d(5, 6, 3, stride=2, padding=1), nn.Conv1d(5, 6, 3, stride=2, padding=1), TOKENS),
    (torch.nn.Conv2d(4, 8, 3, 2, 1, groups=2), nn.Conv2d(4, 8, 3, 2, 1, groups=2), IMAGE),
    (torch.nn.Conv2d(4, 8, (2, 3), padding="same"), nn.Conv2d(4, 8, (2, 3), padding="same"), IMAGE),
    (torch.nn.ConvTranspose2d(4, 6, 3, 2, 1, 1), nn.ConvTranspose2d(4, 6, 3, 2, 1, 1), IMAGE),
    (torch.nn.BatchNorm2d(4), nn.BatchNorm2d(4), IMAGE),
    (torch.nn.LayerNorm(16), nn.LayerNorm(16), TOKENS),
    (torch.nn.RMSNorm(16), nn.RMSNorm(16), TOKENS),
    (torch.nn.GroupNorm(2, 4), nn.GroupNorm(2, 4), IMAGE),
    (torch.nn.InstanceNorm2d(4, affine=True), nn.InstanceNorm2d(4, affine=True), IMAGE),
    (torch.nn.MaxPool2d(3, 2, 1, ceil_mode=True), nn.MaxPool2d(3, 2, 1, ceil_mode=True), IMAGE),
    (torch.nn.AvgPool2d(3, 2, 1), nn.AvgPool2d(3, 2, 1), IMAGE),
    (torch.nn.AdaptiveAvgPool2d((3, 5)), nn.AdaptiveAvgPool2d((3, 5)), IMAGE),
    (torch.nn.PReLU(4), nn.PReLU(4), IMAGE),
    (torch.nn.GELU("tanh"), nn.GELU("tanh"), TOKENS),
    (torch.nn.Hardswish(), nn.Hardswish(), TOKENS),
    (torch.nn.Mish(), nn.Mish(), TOKENS),
    (
        torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.SiLU(), torch.nn.Linear(8, 3), torch.nn.LogSoftmax(-1)),
        nn.Sequential(nn.Linear(16, 8), nn.SiLU(), nn.Linear(8, 3), nn.LogSoftmax()),
        TOKENS,
    ),
    (torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), Encoder(), TOKENS),
]


@pytest.mark.parametrize(("theirs", "ours", "shape"), PAIRS, ids=[type(p[0]).__name__ for p in PAIRS])
def test_a_module_computes_what_torchs_does(theirs: Any, ours: nn.Module, shape: tuple[int, ...]) -> None:
    theirs.eval()
    with torch.no_grad():
        for value in [*theirs.parameters(), *theirs.buffers()]:
            if value.is_floating_point():
                value.uniform_(0.1, 1)
        x = floats(*shape)
        assert ours.load_state_dict(theirs.state_dict()) == ((), ())
        assert alike(theirs(torch.from_numpy(x)).numpy(), run(ours, x)["y"])


def test_groups_of_a_transposed_convolution_are_torchs() -> None:
    """Compiled, since ONNX's reference evaluator knows no groups of it."""
    theirs, ours = torch.nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, 2), nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, 2)
    ours.load_state_dict(theirs.state_dict())
    x = floats(*IMAGE)
    model = graphopt.compile(nn.export(ours, {"x": "float32[2, 4, 9, 10]"}))
    with torch.no_grad():
        assert alike(theirs(torch.from_numpy(x)).numpy(), model(x)["y"])
