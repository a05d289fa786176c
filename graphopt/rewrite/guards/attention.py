"""Attention guards: functions of rules on shapes and masks."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.ir.types import Size
from graphopt.rewrite.guards.comparison import same_size
from graphopt.rewrite.guards.constant_queries import BLANK

SizeSequence = Sequence[Size]


def heads_fit(q: SizeSequence, k: SizeSequence, v: SizeSequence) -> bool:
    """Whether queries [B, H, S, D], transposed keys [B, G, D, T] and values [B, G, T, E] are of one attention."""
    if not len(q) == len(k) == len(v) == 4:
        return False
    groups = k[1] == 1 or same_size(k[1], q[1])
    return groups and all(same_size(a, b) for a, b in ((q[0], k[0]), (k[0], v[0]), (k[1], v[1]), (q[3], k[2])))


def heads_match(q: SizeSequence, k: SizeSequence, v: SizeSequence) -> bool:
    """Whether they are of one attention with as many heads of each, and sizes of heads that are known."""
    return heads_fit(q, k, v) and all(isinstance(n, int) for n in (k[1], q[1], q[3], v[3])) and k[1] == q[1]


def repeats_heads(before: SizeSequence, after: SizeSequence) -> bool:
    """Whether [B, G, S, D] became [B, G * n, S, D]."""
    if len(before) != 4 or len(after) != 4 or not isinstance(before[1], int) or not isinstance(after[1], int):
        return False
    return after[1] % before[1] == 0 and all(same_size(before[i], after[i]) for i in (0, 2, 3))


def blanks(number: float) -> bool:
    """Whether a mask that adds this to a score, or puts it in its place, leaves nothing of the score."""
    return number < BLANK


def trailing(axes: Sequence[int], rank: int) -> int:
    """The axis, counted from the end, from which these are all to the last. ValueError where they are not."""
    wanted = sorted(a % rank for a in axes)
    if not wanted or wanted != list(range(rank - len(wanted), rank)):
        raise ValueError(f"{tuple(axes)} are not the last axes")
    return -len(wanted)


def all_before(axes: Sequence[int], rank: int) -> bool:
    """Whether new axes all come before the last axis of a tensor of this rank."""
    return all(a % (rank + len(axes)) < rank + len(axes) - 1 for a in axes)
