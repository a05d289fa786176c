"""A trace prints as Python, is saved, and is replayed with its decisions or others."""

import json
import re

import pytest

from graphopt.errors import ScheduleError
from graphopt.lowering.analysis.block_refs import BlockRef, LoopRef
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script import read
from graphopt.lowering.schedule.schedule import Schedule
from graphopt.lowering.schedule.trace import Trace
from tests.lowering.documented import same_results

PRODUCT = """
@program
def product(A: Buffer[(8, 12), "float32"], B: Buffer[(12, 16), "float32"], C: Buffer[(8, 16), "float32"]):
    for i, j, k in grid(8, 16, 12):
        with block("C"):
            vi, vj, vk = axis.remap("SSR", [i, j, k])
            with init():
                C[vi, vj] = 0.0
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
TEXT = """\
b0 = s.get_block('C')
s.annotate(b0, 'tiling', ['SSRSRS', 4, 0.5])
l1, l2, l3 = s.get_loops(b0)
v4, v5 = s.sample_perfect_tile(l1, n=2, decision=[2, 4])
v6, v7, v8 = s.sample_perfect_tile(l2, n=3, max_innermost=8, decision=[2, 2, 4])
l9, l10 = s.split(l1, [v4, v5])
l11, l12, l13 = s.split(l2, [v6, v7, v8])
l14, l15 = s.split(l3, factors=[None, 4])
s.reorder(l9, l11, l12, l14, l10, l15, l13)
l16 = s.fuse(l9, l11)
s.parallel(l16)
s.vectorize(l13)
v17 = s.sample_categorical([1, 2, 4], probabilities=[0.25, 0.25, 0.5], decision=2)
s.annotate(l12, 'unroll', v17)
(l18,) = s.split(l10, [None])
s.unroll(l18)
"""


@pytest.fixture
def nest() -> Nest:
    return read(PRODUCT)


def tiled(nest: Nest) -> Schedule:
    s = Schedule(nest)
    exec(TEXT, {"s": s})
    return s


def test_a_trace_prints_what_makes_it_again(nest: Nest) -> None:
    s = tiled(nest)
    assert str(s.trace) == TEXT
    same_results(nest, s.nest)


def test_a_trace_is_saved_and_replayed(nest: Nest) -> None:
    s = tiled(nest)
    again = Trace.from_json(s.trace.to_json())
    assert again == s.trace
    assert again.replay(nest).nest == s.nest
    assert again.replay(nest).trace == s.trace


def test_other_decisions_reach_all_that_used_them(nest: Nest) -> None:
    trace = tiled(nest).trace
    assert trace.decisions == {3: (2, 4), 4: (2, 2, 4), 12: 2}
    other = trace.with_decisions({3: [8, 1], 4: (1, 8, 2), 12: 0}).replay(nest)
    text = other.script()
    assert "for i_0_j_0 in parallel(8):" in text
    assert "vectorized(2)" in text
    assert "'unroll', v17" in str(other.trace)
    assert 'notes={"unroll": 1}' in text
    same_results(nest, other.nest)


def test_decisions_that_do_not_fit_are_refused(nest: Nest) -> None:
    trace = tiled(nest).trace
    with pytest.raises(ScheduleError, match="step 0 draws nothing; decisions stand at 3, 4, 12"):
        trace.with_decisions({0: 1})
    with pytest.raises(ScheduleError, match=re.escape("i: the decision [3, 3] is not 2 factors of 8")):
        trace.with_decisions({3: [3, 3]}).replay(nest)


FLAT = """
@program
def flat(A: Buffer[(8,), "float32"], C: Buffer[(8,), "float32"]):
    for i in serial(8):
        with block("C"):
            vi = axis.spatial(8, i)
            C[vi] = A[vi]
"""


def test_a_trace_of_another_program_is_refused(nest: Nest) -> None:
    trace = tiled(nest).trace
    with pytest.raises(ScheduleError, match="replay: step 4, sample_perfect_tile, uses what an earlier step does not"):
        trace.replay(read(FLAT))


def test_questions_without_use_are_left_out(nest: Nest) -> None:
    s = Schedule(nest)
    s.get_loops(s.get_block("C"))
    s.get_consumers("C")
    assert str(s.trace) == ""
    s.unroll("j")
    assert str(s.trace) == "s.unroll('j')\n"


def test_references_made_by_hand_are_asked_for(nest: Nest) -> None:
    s = Schedule(nest)
    s.annotate(BlockRef("C"), "a", float("inf"))
    s.unroll(LoopRef("j"))
    expected = "b0 = s.get_block('C')\ns.annotate(b0, 'a', float('inf'))\nl1 = s.get_loop('j')\ns.unroll(l1)\n"
    assert str(s.trace) == expected
    assert s.trace.replay(nest).nest == s.nest


def test_numbers_of_another_schedule_are_numbers(nest: Nest) -> None:
    other = Schedule(nest)
    (factor,) = other.sample_perfect_tile("k", 1)
    s = Schedule(nest)
    s.split("k", [None, factor])
    assert str(s.trace) == "s.split('k', [None, 12])\n"


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"format": 1}', '{"format": 1, "steps": [{}]}', '{"format": 1, "steps": [3]}', "null"],
)
def test_what_is_no_trace_is_refused(text: str) -> None:
    with pytest.raises(ScheduleError, match="this is not a saved trace"):
        Trace.from_json(text)


def test_a_trace_of_a_later_format_is_refused() -> None:
    with pytest.raises(ScheduleError, match="the trace has format 2, and 1 is read"):
        Trace.from_json('{"format": 2, "steps": []}')


@pytest.mark.parametrize("name", ["__init__", "recorded", "trace", "show", "nothing"])
def test_only_primitives_are_replayed(nest: Nest, name: str) -> None:
    s = Schedule(nest)
    s.unroll("j")
    held = json.loads(s.trace.to_json())
    held["steps"][0]["primitive"] = name
    with pytest.raises(ScheduleError, match=f"step 0 is {name}, which is not a primitive"):
        Trace.from_json(json.dumps(held)).replay(nest)
