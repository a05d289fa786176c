"""Loop annotations: parallel, vectorized, unrolled and bound loops, and notes on loops and blocks."""

from __future__ import annotations

from dataclasses import replace

from graphopt.errors import ScheduleError
from graphopt.lowering.analysis.block_refs import (
    AnyLoop,
    BlockRef,
    BlockSite,
    LoopRef,
    LoopSite,
    find_loop,
    find_place,
    is_root,
    primitive,
    replaced,
)
from graphopt.lowering.analysis.dependence import check_parallel, private_scopes
from graphopt.lowering.emit.pragmas import check_pragma
from graphopt.lowering.loops.expressions import Const
from graphopt.lowering.loops.nest import THREADS, For, Nest, Note, statements


@primitive
def parallel(nest: Nest, loop: AnyLoop) -> tuple[Nest, None]:
    """Run the iterations of a loop on threads.

    Each has to reach its own spatial points, and may use what others write only where a buffer is local.
    Before::

        for i0, i1 in grid(4, 8):
            with block("B"):
                v0, v1 = axis.remap("SS", [i0, i1])
                B[v0, v1] = A[v0, v1] + 1.0

    After ``s.parallel("i0")``::

        for i0 in parallel(4):
            for i1 in serial(8):
                with block("B"):
                    v0, v1 = axis.remap("SS", [i0, i1])
                    B[v0, v1] = A[v0, v1] + 1.0
    """
    site = _serial(nest, loop)
    for other in site.above:
        if isinstance(other, For) and other.kind in ("bound", "vectorized"):
            raise ScheduleError(
                f"{site.stmt.var.name}: it stands in {other.var.name}, which is {other.kind}; take a loop around that"
            )
    check_parallel(site, private_scopes(None))
    return replaced(nest, site, replace(site.stmt, kind="parallel")), None


@primitive
def vectorize(nest: Nest, loop: AnyLoop) -> tuple[Nest, None]:
    """Run the iterations of a loop as lanes of vectors; it is innermost, of any extent.

    Before::

        for i0, i1 in grid(4, 8):
            with block("B"):
                v0, v1 = axis.remap("SS", [i0, i1])
                B[v0, v1] = A[v0, v1] + 1.0

    After ``s.vectorize("i1")``::

        for i0 in serial(4):
            for i1 in vectorized(8):
                with block("B"):
                    v0, v1 = axis.remap("SS", [i0, i1])
                    B[v0, v1] = A[v0, v1] + 1.0
    """
    site = _serial(nest, loop)
    below = next((s for s in statements(site.stmt.body) if isinstance(s, For)), None)
    if below is not None:
        raise ScheduleError(
            f"{site.stmt.var.name}: loop {below.var.name} stands in it; reorder so that nothing but blocks does"
        )
    check_parallel(site)
    return replaced(nest, site, replace(site.stmt, kind="vectorized")), None


@primitive
def unroll(nest: Nest, loop: AnyLoop) -> tuple[Nest, None]:
    """Unroll a loop whose extent is a number.

    Before::

        for i0, i1 in grid(8, 4):
            with block("B"):
                v0, v1 = axis.remap("SS", [i0, i1])
                B[v0, v1] = A[v0, v1] + 1.0

    After ``s.unroll("i1")``::

        for i0 in serial(8):
            for i1 in unrolled(4):
                with block("B"):
                    v0, v1 = axis.remap("SS", [i0, i1])
                    B[v0, v1] = A[v0, v1] + 1.0
    """
    site = _serial(nest, loop)
    if not isinstance(site.stmt.extent, Const):
        raise ScheduleError(f"{site.stmt.var.name}: its extent is not a number; split it, and unroll the inner loop")
    return replaced(nest, site, replace(site.stmt, kind="unrolled")), None


@primitive
def bind(nest: Nest, loop: AnyLoop, thread: str) -> tuple[Nest, None]:
    """Bind a loop to CUDA blocks or threads: ``blockIdx.x`` to ``threadIdx.z``.

    Threads of a block may reduce together, so that a ``threadIdx`` may take a loop of a reduce axis. Shared buffers
    exist once for each block of threads, local ones once for each thread.
    Before::

        for i0, i1 in grid(4, 8):
            with block("B"):
                v0, v1 = axis.remap("SS", [i0, i1])
                B[v0, v1] = A[v0, v1] + 1.0

    After ``s.bind("i0", "blockIdx.x")``::

        for i0 in bind("blockIdx.x", 4):
            for i1 in serial(8):
                with block("B"):
                    v0, v1 = axis.remap("SS", [i0, i1])
                    B[v0, v1] = A[v0, v1] + 1.0
    """
    site = _serial(nest, loop)
    name = site.stmt.var.name
    if thread not in THREADS:
        raise ScheduleError(f"{name}: {thread!r} is no axis of threads; use {', '.join(THREADS)}")
    for other in (*site.above, *statements(site.stmt.body)):
        if isinstance(other, For) and other.thread == thread:
            raise ScheduleError(f"{name}: loop {other.var.name} is bound to {thread} already; use another axis")
        if isinstance(other, For) and other.kind == "parallel":
            raise ScheduleError(f"{name}: loop {other.var.name} is parallel, which CUDA threads are not; bind that one")
    check_parallel(site, private_scopes(thread), reduces=thread.startswith("threadIdx"))
    return replaced(nest, site, replace(site.stmt, kind="bound", thread=thread)), None


# ------------------------------------------------------------------ notes


@primitive
def annotate(nest: Nest, within: BlockRef | LoopRef | str, key: str, value: Note) -> tuple[Nest, None]:
    """Put a note on a block or loop, in place of one with the same key; on the block ``root``, on the program.

    Notes whose names begin with ``pragma_`` say how code is generated within: with ``pragma_auto_unroll_max_step``,
    serial loops are unrolled that are no more statements when written out; ``pragma_unroll_explicit`` is 1, for they
    are written out always. There are no others.
    Before::

        for i0 in serial(8):
            with block("B"):
                v0 = axis.spatial(8, i0)
                B[v0] = A[v0] + 1.0

    After ``s.annotate("i0", "pragma_auto_unroll_max_step", 16)``::

        for i0 in serial(8, notes={"pragma_auto_unroll_max_step": 16}):
            with block("B"):
                v0 = axis.spatial(8, i0)
                B[v0] = A[v0] + 1.0
    """
    kept = tuple(value) if isinstance(value, list | tuple) else value
    check_pragma(key, kept)
    if is_root(nest, within):
        return replace(nest, notes=tuple({**dict(nest.notes), key: kept}.items())), None
    site = find_place(nest, within)
    notes = tuple({**dict(site.stmt.notes), key: kept}.items())
    return replaced(nest, site, replace(site.stmt, notes=notes)), None


@primitive
def unannotate(nest: Nest, within: BlockRef | LoopRef | str, key: str) -> tuple[Nest, None]:
    """Remove a note from a block or loop.

    Before::

        for i0 in serial(8, notes={"pragma_auto_unroll_max_step": 16}):
            with block("B"):
                v0 = axis.spatial(8, i0)
                B[v0] = A[v0] + 1.0

    After ``s.unannotate("i0", "pragma_auto_unroll_max_step")``::

        for i0 in serial(8):
            with block("B"):
                v0 = axis.spatial(8, i0)
                B[v0] = A[v0] + 1.0
    """
    site = None if is_root(nest, within) else find_place(nest, within)
    notes = dict(nest.notes if site is None else site.stmt.notes)
    if key not in notes:
        name = "the program" if site is None else _name(site)
        raise ScheduleError(f"{name} has no note {key!r}; it has {', '.join(map(repr, notes)) or 'none'}")
    del notes[key]
    if site is None:
        return replace(nest, notes=tuple(notes.items())), None
    return replaced(nest, site, replace(site.stmt, notes=tuple(notes.items()))), None


def _serial(nest: Nest, loop: AnyLoop) -> LoopSite:
    site = find_loop(nest, loop)
    if site.stmt.kind != "serial":
        raise ScheduleError(f"{site.stmt.var.name}: it is {site.stmt.kind} already; a loop is one thing")
    return site


def _name(site: LoopSite | BlockSite) -> str:
    return f"block {site.stmt.name}" if isinstance(site, BlockSite) else f"loop {site.stmt.var.name}"
