"""A candidate is measured beside the default schedule; one that does harm loses itself alone."""

import json
import os
import pickle
from random import Random
from threading import Barrier

import pytest

from graphopt.calibration.machine import machine
from graphopt.lowering.loops.script import read
from graphopt.tuning import measuring
from graphopt.tuning.building import Order, built
from graphopt.tuning.draws import Draws
from graphopt.tuning.measuring import measure, prepare
from graphopt.tuning.oracle import oracle
from graphopt.tuning.processes import CandidateError
from graphopt.tuning.record import Candidate
from graphopt.tuning.spaces import spaces_for
from graphopt.tuning.workload import Workload
from tests.tuning.products import PRODUCT, as_written, by_rows, product

LIMIT = 60.0
"""No test may fail because the machine is busy."""


def test_a_candidate_is_timed_beside_the_default_schedule() -> None:
    for candidate in (by_rows(product()), as_written(product())):
        outcome = measure(candidate, LIMIT)
        assert outcome.problem == ""
        assert outcome.machine == machine()
        assert len(outcome.seconds) == len(outcome.beside) >= 2
        assert 0 < min(outcome.seconds) < 0.01
        assert outcome.speedup > 0


def test_it_can_be_sent_to_another_process() -> None:
    candidate = by_rows(product())
    assert pickle.loads(pickle.dumps((measure, candidate))) == (measure, candidate)


def test_threads_share_a_candidate() -> None:
    threads = min(2, len(os.sched_getaffinity(0)))
    assert measure(by_rows(product(), threads=threads), LIMIT).problem == ""
    assert measure(by_rows(product(), threads=10_000), LIMIT).problem.startswith("not built: 10000 threads cannot")


def test_a_candidate_whose_steps_do_not_apply_is_illegal() -> None:
    steps = json.loads(by_rows(product()).trace)
    steps["steps"][1]["args"][0] = "nobody"
    assert measure(Candidate(product(), json.dumps(steps)), LIMIT).problem.startswith("illegal: ")
    assert measure(Candidate(product(), "garbage"), LIMIT).problem.startswith("illegal: from_json: ")


ENDLESS = (
    PRODUCT.replace("grid(n, 64, 32)", "grid(n, 64, 1000000000000)")
    .replace("v2]", "v2 % 32]")
    .replace("[v2,", "[v2 % 32,")
)
HARM = {
    "another result": (PRODUCT.replace("= 0.0", "= 1.0"), LIMIT, "wrong: c differs by "),
    "no result": (PRODUCT.replace("grid(n, 64, 32)", "grid(n, 63, 32)"), LIMIT, "wrong: c differs by "),
    "memory of nobody": (
        PRODUCT.replace("a[v0, v2]", "a[v0 + 100000000, v2]"),
        LIMIT,
        "crashed: its process died of SIGSEGV",
    ),
    "no end": (ENDLESS, LIMIT, "slow: it was not waited for"),
}


@pytest.mark.parametrize("harm", HARM)
def test_what_does_harm_loses_itself_alone(harm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, limit, said = HARM[harm]
    order = Order(Workload.of(read(text), {"n": 48}), way="written")
    assert oracle(product(), LIMIT).cases
    with monkeypatch.context() as patch:
        patch.setattr(measuring, "_code", lambda candidate, limit: built(order, LIMIT))
        outcome = measure(as_written(product()), limit)
    assert outcome.problem.startswith(said)
    assert outcome.seconds == outcome.beside == ()
    assert measure(as_written(product()), LIMIT).problem == ""


def test_candidates_are_built_ahead_several_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, both = [], Barrier(2, timeout=LIMIT)

    def code(candidate: Candidate, limit: float) -> None:
        asked.append(candidate)
        both.wait()
        raise CandidateError("not built", "whoever measures it is told")

    monkeypatch.setattr(measuring, "_code", code)
    candidates = [by_rows(product(), width) for width in (8, 16, 32, 64)]
    prepare(candidates, jobs=2)
    assert {c.trace for c in asked} == {c.trace for c in candidates}


def test_a_device_is_measured_by_its_own_clock() -> None:
    small = Workload.of(
        read("""
@program
def twice(x: Buffer[(4,), "float32"], y: Buffer[(4,), "float32"]):
    for i in grid(4):
        with block("y"):
            v0 = axis.remap("S", [i])
            y[v0] = x[v0] * 2.0
""")
    )
    draw = Draws.of(small, spaces_for("simulated"), Random(0)).fresh(Random(1))
    outcome = measure(Candidate(small, draw.text, target="simulated"), LIMIT)
    assert (outcome.problem, outcome.machine) == ("", "a simulated GPU")
    assert outcome.speedup > 0
