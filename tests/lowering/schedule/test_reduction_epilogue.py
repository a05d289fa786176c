"""Epilogues become the start of a reduction where that is the same result."""

import pytest

from graphopt.lowering.loops.script import read, show
from graphopt.lowering.schedule.reduction_epilogue import fuse_reduction_epilogue
from graphopt.lowering.schedule.schedule import Schedule, replay
from graphopt.lowering.schedule.trace import Trace
from tests.lowering.documented import check, refused, same_results


def test_documented():
    check(fuse_reduction_epilogue)


TEXT = """
@program
def epilogue(n: size, A: Buffer[(n, {k}), "float32"], V: Buffer[(6,), "float32"], C: Buffer[({shape}), "float32"],
             D: Buffer[(n, 6), "float32"]):
    Y = alloc((n, 6), "float32")
    for i, j, k in grid(n, 6, {k}):
        with block("Y"):
            vi, vj, vk = axis.remap("SSR", [i, j, k])
            with init():
                Y[vi, vj] = {first}
            Y[vi, vj] = {update}
    for i1, j1 in grid(n, 6):
        with block("C"):
            vi1, vj1 = axis.remap("SS", [i1, j1])
            {where}
            C[{at}] = {value}
    for i2, j2 in grid(n, 6):
        with block("D"):
            vi2, vj2 = axis.remap("SS", [i2, j2])
            D[vi2, vj2] = {last}
"""
SUM = "Y[vi, vj] + A[vi, vk] * V[vj]"


def text(
    value="Y[vi1, vj1] + V[vj1]", k=3, first="0.0", update=SUM, at="vi1, vj1", last="1.0", where="where(i1 >= 0)"
) -> str:
    shape = "6, n" if at == "vj1, vi1" else "n, 6"
    return TEXT.format(value=value, k=k, first=first, update=update, at=at, shape=shape, last=last, where=where)


@pytest.mark.parametrize(
    ("given", "start"),
    [
        ({}, "C[vi, vj] = V[vj]"),
        ({"value": "V[vj1] + Y[vi1, vj1]", "at": "vj1, vi1"}, "C[vj, vi] = V[vj]"),
        ({"first": "2.0"}, "C[vi, vj] = 2.0 + V[vj]"),
        ({"value": "Y[vi1, vj1] + max(V[vj1], V[0]) * 2.0"}, "C[vi, vj] = max(V[vj], V[0]) * 2.0"),
        (
            {"value": "max(Y[vi1, vj1], 0.0)", "update": "max(Y[vi, vj], A[vi, vk])", "first": "-3.0"},
            "C[vi, vj] = max(-3.0, 0.0)",
        ),
    ],
)
@pytest.mark.parametrize("k", [1, 3])
def test_what_is_fused(given, start, k):
    nest = read(text(k=k, **given))
    s = Schedule(nest)
    s.fuse_reduction_epilogue("Y", "C")
    assert start in show(s.nest)
    assert not s.nest.allocs
    for n in (0, 1, 4):
        same_results(nest, s.nest, n=n)
    assert replay(Trace.from_json(s.trace.to_json()), nest).nest == s.nest


@pytest.mark.parametrize(
    ("given", "calls", "message"),
    [
        ({"value": "max(Y[vi1, vj1], 0.0)"}, [], "C does not combine Y by add, as Y does: in each step that would be"),
        ({"value": "Y[vi1, vj1] + Y[vi1, vj1]"}, [], "C does not combine Y by add"),
        ({"value": "Y[vi1, vj1] - V[vj1]"}, [], "C does not combine Y by add"),
        ({"value": "Y[vi1, 0] + V[vj1]"}, [], "C does not read Y once, at just its own axes"),
        ({"last": "Y[vi2, vj2]"}, [], "Y is read by D as well"),
        ({"value": "Y[vi1, vj1] + C[vi1, vj1]"}, [], "C writes what is read there"),
        ({"where": "where(i1 % 2 == 0)"}, [], "C runs only where a condition holds"),
        ({}, ["s.decompose_reduction('Y', 'k')"], "Y does not start each element of Y in its init"),
        ({"update": "Y[vi, vj] + A[vi, vk] + Y[0, 0]"}, [], "Y does not combine into Y by one of"),
    ],
)
def test_what_is_refused(given, calls, message):
    assert message in refused(text(**given), *calls, "s.fuse_reduction_epilogue('Y', 'C')")


def test_a_reduction_in_threads_keeps_its_own_result():
    message = refused(text(), "s.parallel('i')", "s.set_scope('Y', 'local')", "s.fuse_reduction_epilogue('Y', 'C')")
    assert "i is parallel, and Y local; do this before" in message
