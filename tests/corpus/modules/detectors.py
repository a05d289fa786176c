"""Detectors: grids of cells, boxes, what comes between a detector and the suppression of its boxes."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


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
