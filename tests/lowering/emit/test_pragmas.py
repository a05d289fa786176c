"""Pragmas change the code that is emitted, and not what it computes; none is ignored."""

from __future__ import annotations

import pytest

from graphopt.errors import ScheduleError
from graphopt.lowering.cpu.default_schedules import scheduled
from graphopt.lowering.cuda.card import SIMULATED
from graphopt.lowering.cuda.emit import emit as emit_for_cuda
from graphopt.lowering.cuda.schedules import scheduled as scheduled_for_cuda
from graphopt.lowering.emit.kernel_source import Launchable, emit
from graphopt.lowering.emit.pragmas import unrolled
from graphopt.lowering.loops.nest import For, Nest, statements
from graphopt.lowering.loops.script import read
from graphopt.lowering.schedule.schedule import Schedule
from tests.lowering.cuda import simulated
from tests.lowering.documented import refused
from tests.lowering.native import check

TEXT = """
@program
def sums(A: Buffer[("n", 4, 3), "float32"], B: Buffer[("n",), "float32"], n: size):
    for i in serial(n):
        for j, k in grid(4, 3):
            with block("B"):
                vi, vj, vk = axis.remap("SRR", [i, j, k])
                with init():
                    B[vi] = 0.0
                B[vi] = B[vi] + A[vi, vj, vk]
"""
NEST = read(TEXT)
MAX_STEP = "pragma_auto_unroll_max_step"


def annotated(place: str, step: int) -> Nest:
    s = Schedule(NEST)
    s.annotate(place, MAX_STEP, step)
    s.annotate(place, "pragma_unroll_explicit", 1)
    return s.nest


def kinds(nest: Nest) -> list[str]:
    return [s.kind for s in statements(unrolled(nest).body) if isinstance(s, For)]


@pytest.mark.parametrize("place", ["i", "root", "j"])
@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (0, ["serial", "serial", "serial"]),
        (5, ["serial", "serial", "serial"]),
        (6, ["serial", "serial", "unrolled"]),  # init and update, three times
        (23, ["serial", "serial", "unrolled"]),
        (24, ["serial", "unrolled", "unrolled"]),
        (10000, ["serial", "unrolled", "unrolled"]),  # a loop of open size stays one
    ],
)
def test_loops_are_unrolled_up_to_so_many_statements(place: str, step: int, expected: list[str]) -> None:
    nest = annotated(place, step)
    assert kinds(nest) == expected
    loops = emit(nest).kernel.source.count("    for ")
    assert loops == emit(NEST).kernel.source.count("    for ") - expected.count("unrolled")
    check(NEST, nest, sizes=(5,))


def test_the_innermost_pragma_counts() -> None:
    s = Schedule(annotated("root", 1000))
    s.annotate("j", MAX_STEP, 6)
    assert kinds(s.nest) == ["serial", "serial", "unrolled"]
    s.annotate("B", MAX_STEP, 0)
    assert kinds(s.nest) == ["serial", "serial", "unrolled"]  # no loop is within the block
    s.annotate("j", MAX_STEP, 0)
    assert kinds(s.nest) == ["serial", "serial", "serial"]


def test_loops_without_pragmas_stay() -> None:
    assert unrolled(NEST) is NEST


def test_kernels_of_a_gpu_are_unrolled_as_well() -> None:
    s = Schedule(NEST)
    outer, inner = s.split("i", [None, 32])
    s.bind(outer, "blockIdx.x")
    s.bind(inner, "threadIdx.x")
    ((_, plain),) = emit_for_cuda(s.nest)
    s.annotate(inner, MAX_STEP, 24)
    ((_, written),) = emit_for_cuda(s.nest)
    assert isinstance(plain, Launchable)
    assert isinstance(written, Launchable)
    assert "for " in plain.kernel.source
    assert "for " not in written.kernel.source
    simulated.check(NEST, s.nest, sizes=(5,))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("pragma_unroll", 1, "there is no pragma 'pragma_unroll'; there are pragma_auto_unroll_max_step and"),
        (MAX_STEP, -1, f"{MAX_STEP} is a number of statements, at least 0, and not -1"),
        (MAX_STEP, True, "and not True"),
        (MAX_STEP, "16", "and not '16'"),
        ("pragma_unroll_explicit", 0, "pragma_unroll_explicit is 1, and not 0: loops that are unrolled are always"),
    ],
)
def test_other_pragmas_are_refused(key: str, value: object, message: str) -> None:
    assert message in refused(TEXT, f"s.annotate('i', {key!r}, {value!r})")
    written = TEXT.replace("in serial(n)", f"in serial(n, notes={{{key!r}: {value!r}}})")
    with pytest.raises(ScheduleError, match=key):
        emit(read(written))


def test_the_default_schedule_drops_no_pragma() -> None:
    nest = annotated("j", 16)
    message = f"j has the pragma {MAX_STEP}, and the default schedule writes loops anew"
    with pytest.raises(ScheduleError, match=message):
        scheduled(nest)
    with pytest.raises(ScheduleError, match=message):
        scheduled_for_cuda(nest, SIMULATED)
    kept = scheduled(annotated("root", 16))
    assert dict(kept.notes)[MAX_STEP] == 16
    check(NEST, kept, sizes=(3,))
