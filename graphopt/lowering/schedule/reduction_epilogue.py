"""Reduction epilogues: what is combined with the result of a reduction becomes where it starts."""

from __future__ import annotations

from dataclasses import replace

from graphopt.errors import ScheduleError
from graphopt.lowering.analysis.block_refs import AnyBlock, extents_around, find_block, primitive, replaced
from graphopt.lowering.analysis.dataflow import kept_inside, scope, units_beside, without_unused, writers
from graphopt.lowering.analysis.iteration_domains import check_covered, only_bounded
from graphopt.lowering.analysis.regions import refreshed, simplified
from graphopt.lowering.index.arithmetic import prove, simplify
from graphopt.lowering.loops.accumulation import accumulated, identity
from graphopt.lowering.loops.expressions import Expr, Load, apply, conjunction, loads_in, rewrite, substitute
from graphopt.lowering.loops.nest import Block, For, Nest, Store, loads
from graphopt.lowering.schedule.compute_inline import (
    alone,
    elementwise,
    is_read_at_axes,
    may_run_at,
    points_read,
    sole_reader,
    sole_store,
)
from graphopt.lowering.schedule.reduction import Update, update_of


@primitive
def fuse_reduction_epilogue(nest: Nest, reduction: AnyBlock, epilogue: AnyBlock) -> tuple[Nest, None]:
    """Fuse an epilogue that combines a reduction's result with something by the reduction's own function: it becomes
    the init.

    A bias is added to a sum so. Others (a ``max`` of a sum) would change the result in each step, and are refused. The
    epilogue reads each element of the result once, at plain indices, and nothing else reads it.
    Before::

        B = alloc((4,), "float32")
        for i0, i1 in grid(4, 16):
            with block("B"):
                v0, v1 = axis.remap("SR", [i0, i1])
                with init():
                    B[v0] = 0.0
                B[v0] = B[v0] + A[v0, v1]
        for i2 in serial(4):
            with block("C"):
                v2 = axis.remap("S", [i2])
                C[v2] = B[v2] + D[v2]

    After ``s.fuse_reduction_epilogue("B", "C")``::

        for i0, i1 in grid(4, 16):
            with block("B"):
                v0, v1 = axis.remap("SR", [i0, i1])
                with init():
                    C[v0] = D[v0]
                C[v0] = C[v0] + A[v0, v1]
    """
    maker, site = find_block(nest, reduction), find_block(nest, epilogue)
    producer, consumer = maker.stmt, site.stmt
    update = update_of(producer)
    buffer, start = update.store.buffer, producer.init
    if not isinstance(start, Store) or start.indices != update.store.indices or producer.of_kind("ordered"):
        raise ScheduleError(f"{producer.name} does not start each element of {buffer.name} in its init")
    only_bounded(consumer, site.above)
    elementwise(consumer)
    target = sole_store(consumer)
    operand = _operand(producer, update, consumer, target)
    kept_inside(nest, buffer, f": it would not be written any more if {consumer.name} were done in {producer.name}")
    sole_reader(nest, site, buffer)
    beside = units_beside(nest, site)
    makers = writers(beside, buffer)
    if [u.stmt for u in makers] != [producer]:
        raise ScheduleError(f"{producer.name} alone does not write {buffer.name} beside {consumer.name}")
    (unit,) = makers
    may_run_at(site, unit, beside)
    for loop in unit.above:
        if isinstance(loop, For) and loop.kind in ("parallel", "bound") and buffer.scope != target.buffer.scope:
            raise ScheduleError(f"{loop.var.name} is {loop.kind}, and {buffer.name} {buffer.scope}; do this before")
    check_covered(alone(unit), consumer, buffer, extents_around(scope(site.above)), f"by {producer.name}")
    points = points_read(consumer, buffer, update.store.indices)
    indices = tuple(substitute(i, points) for i in target.indices)
    bindings = {a.var: v for a, v in zip(producer.axes, producer.values, strict=True)}
    around = extents_around(unit.above)
    limits = [substitute(points[a.var], bindings) < a.extent for a in consumer.axes]
    other = substitute(operand, points)
    is_neutral = start.value == identity(update.fn, buffer.dtype)

    def instead(expr: Expr) -> Expr | None:
        return Load(target.buffer, indices) if isinstance(expr, Load) and expr.buffer == buffer else None

    fused = replace(
        producer,
        body=Store(target.buffer, indices, rewrite(update.store.value, instead)),
        init=Store(target.buffer, indices, other if is_neutral else apply(update.fn, start.value, other)),
        predicate=conjunction(producer.predicate, *(simplify(c, around) for c in limits if not prove(c, around))),
    )
    without = replaced(nest, site, None)
    after = without_unused(replaced(without, find_block(without, producer.name), fused), nest.allocs)
    return refreshed(replace(after, body=simplified(after.body, {}, [producer.name])), [producer.name]), None


def _operand(producer: Block, update: Update, consumer: Block, target: Store) -> Expr:
    """What an epilogue combines the result of a reduction with; raises ScheduleError where it does not by the same
    function."""
    buffer = update.store.buffer
    if not is_read_at_axes(consumer, buffer):
        raise ScheduleError(f"{consumer.name} does not read {buffer.name} once, at just its own axes")
    result = next(e for e in loads(consumer) if e.buffer == buffer)
    combined = accumulated(result, target.value)
    if combined is None or combined[0] != update.fn or any(e.buffer == buffer for e in loads_in(combined[1])):
        raise ScheduleError(
            f"{consumer.name} does not combine {buffer.name} by {update.fn}, as {producer.name} does: in each step "
            "that would be another result; use reverse_compute_at"
        )
    return combined[1]
