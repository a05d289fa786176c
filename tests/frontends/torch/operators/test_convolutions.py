"""Convolutions, pooling and resizing as graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.frontends.torch.operators.operands import IMAGE, X, Y, check, torch

F = torch.nn.functional

W = torch.randn(6, 4, 3, 3, generator=torch.Generator().manual_seed(1))
D = torch.randn(4, 3, 2, 2, generator=torch.Generator().manual_seed(2))

CASES: Mapping[str, Callable[..., Any]] = {
    "convolutions": lambda: [
        F.conv2d(IMAGE, W, stride=2, padding=1),
        F.conv2d(IMAGE, W[:, :2], groups=2, padding="same"),
    ],
    "more convolutions": lambda: [F.conv1d(X[None], Y[:, :3, None]), F.conv2d(IMAGE, W, W[:, 0, 0, 0], dilation=2)],
    "transposed": lambda: [F.conv_transpose2d(IMAGE, D, stride=2, padding=1, output_padding=1)],
    "pools": lambda: [
        F.max_pool2d(IMAGE, 3, 2, 1),
        F.avg_pool2d(IMAGE, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        F.avg_pool2d(IMAGE, 3, 2, 1, ceil_mode=True),
        *F.max_pool2d(IMAGE, 3, 2, 1, ceil_mode=True, return_indices=True),
        *F.max_pool2d(IMAGE[0], 2, return_indices=True),
        F.avg_pool1d(X[None], 2, 1, 1),
    ],
    "adaptive": lambda: [
        F.adaptive_avg_pool2d(IMAGE, 1),
        F.adaptive_avg_pool2d(IMAGE, (4, 3)),
        F.adaptive_avg_pool1d(X[None], 3),
    ],
    "largest, adaptively": lambda: [
        F.adaptive_max_pool2d(IMAGE, (4, 3)),
        F.adaptive_max_pool2d(IMAGE, (1, 8)),
        F.adaptive_max_pool1d(X[None], 3),
        F.adaptive_max_pool3d(IMAGE, (3, 4, 5)),
    ],
    "nearest": lambda: [
        F.interpolate(IMAGE, scale_factor=2),
        F.interpolate(IMAGE, (4, 11)),
        F.interpolate(IMAGE, (9, 5), mode="nearest-exact"),
        F.interpolate(IMAGE, scale_factor=(0.7, 1.9)),
    ],
    "linear": lambda: [
        F.interpolate(IMAGE, (9, 5), mode="bilinear"),
        F.interpolate(IMAGE, scale_factor=2, mode="bilinear", align_corners=True),
        F.interpolate(IMAGE, scale_factor=1.3, mode="bilinear"),
        F.interpolate(IMAGE, scale_factor=1.3, mode="bilinear", align_corners=True),
        F.interpolate(IMAGE, scale_factor=0.7, mode="bilinear", recompute_scale_factor=True),
    ],
    "cubic": lambda: [F.interpolate(IMAGE, (9, 12), mode="bicubic")],
}


@pytest.mark.parametrize("name", CASES)
def test_they_give_what_torch_gives(name: str) -> None:
    check(CASES[name])
