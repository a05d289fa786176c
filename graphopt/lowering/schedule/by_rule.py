"""Default schedules as a primitive: rules by name, with some choices set."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from graphopt.errors import ScheduleError, nearest_or_some
from graphopt.lowering.analysis.block_refs import free_name, primitive, with_free_names
from graphopt.lowering.cpu.default_schedules import where_offered
from graphopt.lowering.cpu.loop_fission import separated
from graphopt.lowering.cpu.scheduling import RULES, Answer, Choices, Scheduled, refuse_unknown
from graphopt.lowering.cuda import schedules as for_blocks
from graphopt.lowering.cuda.card import CARD, SIMULATED, Card
from graphopt.lowering.cuda.dispatch import choice
from graphopt.lowering.loops.nest import (
    Block,
    Buffer,
    BufferRegion,
    Invoke,
    Nest,
    Stmt,
    mutate,
    rename_buffers,
    seq,
)
from graphopt.target import CPU, DeviceKind
from graphopt.target import target as target_named


def card(device: DeviceKind) -> Card:
    """The device that default schedules target, with only the libraries that are always there."""
    return CARD if device.has_machine_code else SIMULATED


def chosen_for(
    target: str, nest: Nest, choices: Choices, rules: Sequence[str] = RULES, asks_all: bool = False
) -> Scheduled:
    """The default schedule of a nest for a target, with some choices set, by some of the rules; with all candidates, by
    name, and what the rules answered.

    ScheduleError for an unknown rule, choice or candidate, and where none of the rules is for a block; UsageError where
    there is no such target.
    """
    resolved = target_named(target)
    if unknown := [name for name in rules if name not in RULES]:
        raise ScheduleError(f"there is no rule {unknown[0]!r}{nearest_or_some(unknown[0], RULES)}")
    if not resolved.device.has_blocks:
        return _in_parts(nest, choices, rules, asks_all)
    library = choice("auto", resolved.prices.products)
    return for_blocks.chosen(nest, choices, card(resolved.device), library, rules, asks_all)


def _in_parts(nest: Nest, choices: Choices, rules: Sequence[str], asks_all: bool) -> Scheduled:
    """A nest with the default schedules of its parts, which follow each other in it, as programs have them."""
    taken = {p.name for p in nest.params}
    offered: dict[str, tuple[int, ...]] = {}
    answers: list[Answer] = []
    bodies: list[Stmt] = []
    allocs: list[Buffer] = []
    parts = separated(nest)
    handed = [b for b in nest.allocs if any(b in part.params for part in parts)]
    taken |= {b.name for b in handed}
    for part in parts:
        made = where_offered(part, choices, rules=rules, asks_all=asks_all)
        offered |= {name: _common(offered.get(name, some), some) for name, some in made.offered.items()}
        answers += made.answers
        scheduled = _named_apart(made.nest, taken) if len(parts) > 1 else made.nest
        bodies.append(scheduled.body)
        allocs += scheduled.allocs
    refuse_unknown(choices, offered)
    whole = replace(nest, body=seq(*bodies), allocs=(*handed, *allocs))
    return Scheduled(_with_blocks_of_calls(whole, nest.outputs), offered, tuple(answers))


def _common(some: tuple[int, ...], others: tuple[int, ...]) -> tuple[int, ...]:
    """The candidates that two parts of a nest have in common."""
    return tuple(n for n in some if n in others)


def _named_apart(nest: Nest, taken: set[str]) -> Nest:
    """A part of a nest whose variables and own buffers have names of their own."""
    body = with_free_names(nest.body, taken)
    buffers = {b: replace(b, name=free_name(taken, b.name)) for b in nest.allocs}
    return replace(nest, body=rename_buffers(body, buffers), allocs=tuple(buffers.values()))


def _with_blocks_of_calls(nest: Nest, outputs: Collection[Buffer]) -> Nest:
    """The nest with blocks that say what calls of functions write, where nothing else writes an output."""
    missing = set(outputs) - set(nest.outputs)
    if not missing:
        return nest

    def in_block(stmt: Stmt) -> Stmt | None:
        if not isinstance(stmt, Invoke):
            return None
        regions = [a for a in stmt.args if isinstance(a, BufferRegion)]
        writes = tuple(r for r in regions if r.buffer in missing)
        if not writes:
            return stmt
        reads = tuple(r for r in regions if r.buffer not in missing)
        return Block(writes[0].buffer.name, (), (), stmt, reads=reads, writes=writes)

    return replace(nest, body=mutate(nest.body, in_block))


@primitive
def by_rule(
    nest: Nest, choices: Sequence[tuple[str, int]] = (), *, rules: Sequence[str] = RULES, target: str = CPU.name
) -> tuple[Nest, None]:
    """Schedule an unscheduled nest by default, or by some of the rules alone, with some choices set by name.

    For each block the first of the ``rules`` decides that is for it (``graphopt.explain_rules`` tells which).
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
    return chosen_for(target, nest, {name: int(number) for name, number in choices}, rules).nest, None
