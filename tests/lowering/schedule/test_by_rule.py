"""A nest that is scheduled by rule, some of it chosen otherwise, computes the same."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphopt.compile import linked_for
from graphopt.errors import ScheduleError
from graphopt.ir.text import parse
from graphopt.lowering.cpu import default_schedules
from graphopt.lowering.cpu.default_schedules import chosen, scheduled
from graphopt.lowering.cpu.scheduling import Taken, asked
from graphopt.lowering.cuda import schedules
from graphopt.lowering.cuda.procedures import is_bound
from graphopt.lowering.loops import wellformed
from graphopt.lowering.loops.script import read
from graphopt.lowering.module.scheduling import apply_rules
from graphopt.lowering.schedule import by_rule
from graphopt.lowering.schedule.by_rule import chosen_for
from graphopt.lowering.schedule.schedule import Schedule
from graphopt.lowering.schedule.trace import Trace
from graphopt.run.settings import Settings
from graphopt.target import CPU, CUDA
from tests.lowering.described import FIXED
from tests.lowering.documented import check as check_documented
from tests.lowering.native import check


def test_documented() -> None:
    check_documented(by_rule.by_rule)


@pytest.mark.parametrize("name", FIXED)
def test_what_is_chosen_changes_loops_and_not_results(name: str) -> None:
    nest = FIXED[name]()
    made, offered, _ = chosen(nest, {})
    assert made == scheduled(nest)
    for key, candidates in offered.items():
        others = [chosen(nest, {key: n})[0] for n in (candidates[0], candidates[-1])]
        assert len(candidates) == 1 or any(other != made for other in others), key
        for other in others:
            check(nest, other)


def test_a_trace_keeps_what_was_chosen() -> None:
    nest = FIXED["convolution"]()
    s = Schedule(nest)
    width = s.sample_categorical([2, 4])
    s.by_rule([["width 0", width]])
    assert Trace.from_json(s.trace.to_json()).replay(nest).nest == s.nest
    assert s.nest == chosen(nest, {"width 0": int(width)})[0]


def test_a_trace_keeps_the_target() -> None:
    nest = FIXED["convolution"]()
    s = Schedule(nest)
    s.by_rule([["down 0", 4]], target="simulated")
    assert "target='simulated'" in str(s.trace)
    assert Trace.from_json(s.trace.to_json()).replay(nest).nest == s.nest
    assert s.nest == chosen_for("simulated", nest, {"down 0": 4})[0]
    assert is_bound(s.nest.body)


PRODUCTS = """
@program
def products(
    A: Buffer[("n", 256), "float32"], B: Buffer[(256, 256), "float32"], C: Buffer[("n", 256), "float32"], n: size
):
    T = alloc(("n", 256), "float32")
    for i, j, k in grid(n, 256, 256):
        with block("T"):
            vi, vj, vk = axis.remap("SSR", [i, j, k])
            with init():
                T[vi, vj] = 0.0
            T[vi, vj] = T[vi, vj] + A[vi, vk] * B[vk, vj]
    for i1, j1, k1 in grid(n, 256, 256):
        with block("C"):
            vi1, vj1, vk1 = axis.remap("SSR", [i1, j1, k1])
            with init():
                C[vi1, vj1] = 0.0
            C[vi1, vj1] = C[vi1, vj1] + T[vi1, vk1] * B[vk1, vj1]
"""


def test_parts_are_scheduled_apart_and_keep_apart() -> None:
    nest = read(PRODUCTS)
    s = Schedule(nest)
    s.by_rule()
    assert [loop.kind for loop in s.nest.body.stmts] == ["parallel", "parallel"]  # type: ignore[union-attr]
    assert s.nest.outputs == nest.outputs  # calls of functions say what they write
    assert s.nest.params == nest.params
    wellformed.check(s.nest)
    check(nest, s.nest, sizes=(3,))
    _, offered, _ = chosen_for("cpu", nest, {})
    name, candidates = next((name, some) for name, some in offered.items() if name.startswith("piece"))
    s = Schedule(nest)
    s.by_rule([[name, candidates[0]]])
    check(nest, s.nest, sizes=(3,))
    with pytest.raises(ScheduleError, match="there is no choice of speed"):
        s.by_rule([["speed", 1]])


@pytest.mark.parametrize("name", FIXED)
def test_a_program_takes_and_writes_what_it_did(name: str) -> None:
    nest = FIXED[name]()
    s = Schedule(nest)
    s.by_rule()
    assert (s.nest.params, s.nest.outputs) == (nest.params, nest.outputs)


def test_the_rule_of_modules_is_this_step() -> None:
    nest = read(PRODUCTS)
    s, by_hand = apply_rules(nest), Schedule(nest)
    by_hand.by_rule()
    assert s.nest == by_hand.nest
    assert "rules=['Matmul']" in str(s.trace)


def test_what_there_is_no_choice_of_is_an_error() -> None:
    s = Schedule(FIXED["convolution"]())
    with pytest.raises(ScheduleError, match=r"by_rule: there is no choice of speed: there is one of registers, width"):
        s.by_rule([["speed", 1]])
    with pytest.raises(ScheduleError, match=r"by_rule: width 0 is one of .* and not 99"):
        s.by_rule([["width 0", 99]])
    with pytest.raises(ScheduleError, match=r"by_rule: there is no choice of width 0: there is one of down 0, "):
        s.by_rule([["width 0", 2]], target="cuda")
    with pytest.raises(ScheduleError, match="expected Sequence"):
        s.by_rule(["width"])


RULES_OF_ATTENTION = Path(__file__).parent / "attention_rules.txt"
SHAPES = [(batch, heads) for batch in (1, 2) for heads in (1, 12)]
ATTENTION = """q: float32[{0}, {1}, 64, 32]
k: float32[{0}, {1}, 32, 64]
v: float32[{0}, {1}, 64, 32]
z = MatMul(Softmax(MatMul(q, k), axis=-1), v)
return z"""
FUSED = """q: float32[{0}, {1}, 64, 32]
k: float32[{0}, {1}, 64, 32]
v: float32[{0}, {1}, 64, 32]
z = Attention(q, k, v)
return z"""


def rules_of_attention(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Which rule of each target takes the nests of attention, and how many blocks of them, where no library does."""
    taken: list[str] = []

    def told(owner: Any, *arguments: Any) -> Any:
        made = asked(owner, *arguments)
        if isinstance(made, Taken):
            taken.append(f"{owner.answers[-1].rule} of {made.count}")
        return made

    monkeypatch.setattr(default_schedules, "asked", told)
    monkeypatch.setattr(schedules, "asked", told)
    for title, text in (("products and softmax", ATTENTION), ("Attention", FUSED)):
        for target in (CPU, CUDA):
            for batch, heads in SHAPES:
                taken.clear()
                linked_for(parse(text.format(batch, heads)), Settings(target=target, dispatch="never", optimize=False))
                yield f"{title}, {target.name}, batch {batch}, heads {heads}: {', '.join(taken) or 'a procedure'}"


def test_which_rule_took_each_nest_of_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    found = "\n".join(rules_of_attention(monkeypatch)) + "\n"
    if os.environ.get("GRAPHOPT_GOLDEN"):
        RULES_OF_ATTENTION.write_text(found)
    assert found == RULES_OF_ATTENTION.read_text()
