"""Functions that rules call on convolutions: pads of channels, output positions as channels, Toom-Cook matrices."""

from __future__ import annotations

from collections.abc import Sequence


def channel_pads(rank: int, more: int) -> tuple[int, ...]:
    """The pads of all axes that put ``more`` channels (axis 1) behind those that are there."""
    return (0,) * (rank + 1) + (more,) + (0,) * (rank - 2)


def channels_added(pads: Sequence[int]) -> int:
    """How many channels pads of all axes put behind those that are there; ValueError where they do anything else."""
    rank = len(pads) // 2
    if any(n for i, n in enumerate(pads) if i != rank + 1) or pads[rank + 1] < 0:
        raise ValueError(f"pads {tuple(pads)} do more than add channels at the end")
    return pads[rank + 1]


def output_pads(rank: int, more: int) -> tuple[int, ...]:
    """The pads of all axes that put ``more`` outputs (axis 0) behind the weights of a convolution."""
    return (0,) * rank + (more,) + (0,) * (rank - 1)
