"""Default schedules as a primitive, with some choices set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphopt.errors import ScheduleError
from graphopt.lowering.analysis.block_refs import primitive
from graphopt.lowering.cpu.default_schedules import chosen
from graphopt.lowering.cpu.scheduling import Choices
from graphopt.lowering.cuda import schedules as for_blocks
from graphopt.lowering.cuda.card import CARD, SIMULATED, Card
from graphopt.lowering.loops.nest import Nest
from graphopt.target import CPU, DeviceKind
from graphopt.target import target as target_named


def card(device: DeviceKind) -> Card:
    """The device that default schedules target, with only the libraries that are always there."""
    return CARD if device.has_machine_code else SIMULATED


def chosen_for(target: str, nest: Nest, choices: Choices) -> tuple[Nest, Mapping[str, tuple[int, ...]]]:
    """The default schedule of a nest for a target, with some choices set; and all candidates, by name. ScheduleError
    for an unknown choice or candidate; UsageError where there is no such target."""
    resolved = target_named(target)
    if not resolved.device.has_blocks:
        return chosen(nest, choices)
    return for_blocks.chosen(nest, choices, card(resolved.device), for_blocks.rules_beside(resolved.prices.products))


@primitive
def by_rule(nest: Nest, choices: Sequence[tuple[str, int]] = (), *, target: str = CPU.name) -> tuple[Nest, None]:
    """Schedule an unscheduled nest by default, with some choices set by name.

    Choices are the function for a product, rows and columns of its pieces, depth and height of the blocks of our own
    function, tiles of a convolution; or register tiles, which any contraction may have (``registers``): their widths,
    those done together (``times``) and in which order, steps that are written out, an operand that is packed. For the
    ``target`` of a GPU, loops are bound to blocks and threads.
    Before::

        for i0 in serial(65536):
            with block("B"):
                v0 = axis.remap("S", [i0])
                B[v0] = A[v0] + 1.0

    After ``s.by_rule([["chunk", 16384]])``::

        for t2 in parallel(4):
            for i0 in vectorized(min(16384, 65536 - t2 * 16384)):
                with block("B"):
                    v0 = axis.spatial(65536, t2 * 16384 + i0)
                    B[v0] = A[v0] + 1.0

    Before::

        for i0 in serial(65536):
            with block("B"):
                v0 = axis.remap("S", [i0])
                B[v0] = A[v0] + 1.0

    After ``s.by_rule([["width 0", 2]], target="cuda")``::

        for b0 in bind("blockIdx.x", 128):
            for t1 in bind("threadIdx.x", 256):
                for u2 in vectorized(2):
                    with block("B"):
                        v0 = axis.spatial(65536, (b0 * 256 + t1) * 2 + u2)
                        B[v0] = A[v0] + 1.0
    """
    if any(len(pair) != 2 or not isinstance(pair[0], str) for pair in choices):
        raise ScheduleError(f"choices are pairs of a name and a number, and not {list(choices)}")
    scheduled, _ = chosen_for(target, nest, {name: int(number) for name, number in choices})
    return scheduled, None
