"""Questions are answered by processes that may die of them."""

import os
import pickle
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from graphopt.tuning.processes import CandidateError, Child, child, kill_all

MODULE = "graphopt_answers_for_a_test"
ANSWERS = """
import os, signal, sys, time
from graphopt.tuning.processes import CandidateError, limit_memory

def answer(question):
    what, value = question
    if what == "pid":
        return os.getpid()
    if what == "print":
        print("a print"), os.write(1, b"a native one")
        return value
    if what == "sleep":
        time.sleep(value)
    if what == "kill":
        os.kill(os.getpid(), value)
    if what == "leave":
        print("no way", file=sys.stderr, flush=True)
        os._exit(value)
    if what == "raise":
        raise ValueError("first\\n  second")
    if what == "refuse":
        raise CandidateError("odd", "it is odd")
    if what == "fill":
        limit_memory()
        return len(bytes(value))
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / f"{MODULE}.py").write_text(ANSWERS)
    monkeypatch.syspath_prepend(tmp_path)
    return MODULE


def test_a_process_that_lives_answers_the_next_question_too(module: str) -> None:
    with child(module) as first:
        pid = first.ask(("pid", 0), 10)
        assert first.ask(("print", 7), 10) == 7
        with pytest.raises(CandidateError, match=r"^failed: ValueError: first second$"):
            first.ask(("raise", 0), 10)
        with pytest.raises(CandidateError, match=r"^odd: it is odd$"):
            first.ask(("refuse", 0), 10)
    with child(module) as again, child(module) as other:
        assert again.ask(("pid", 0), 10) == pid
        assert other.ask(("pid", 0), 10) != pid
    with child(module, once=True) as last:
        assert last.asked


def test_what_answers_once_was_never_asked_before(module: str) -> None:
    pids = []
    for _ in range(2):
        with child(module, once=True) as one:
            pids.append(one.ask(("pid", 0), 10))
    assert len(set(pids)) == 2


@pytest.mark.parametrize(
    ("question", "limit", "said"),
    [
        (("sleep", 60), 0.1, r"^slow: no answer after 0.1 s$"),
        (("kill", signal.SIGSEGV), 10, r"^crashed: its process died of SIGSEGV$"),
        (("leave", 3), 10, r"^crashed: its process ended with status 3 \(no way\)$"),
        (("fill", 1 << 45), 10, r"^failed: MemoryError"),
    ],
)
def test_a_question_that_is_not_answered_takes_its_process_alone(
    module: str, question: tuple[str, int], limit: float, said: str
) -> None:
    with pytest.raises(CandidateError, match=said), child(module, once=True) as one:
        one.ask(question, limit)
    assert one._process.poll() is not None
    with child(module, once=True) as next_one:
        assert next_one.ask(("print", 1), 10) == 1


def test_what_does_not_start_says_why() -> None:
    with pytest.raises(CandidateError, match=r"^crashed: .*No module named 'nobody_has_this'"):
        Child("nobody_has_this").ask(0, 10)


def test_a_process_that_nobody_hears_ends_by_itself(module: str) -> None:
    one = Child(module)
    pid = one.ask(("pid", 0), 10)
    one._write(pickle.dumps((("sleep", 60), 0.1)))  # whoever asks is gone
    assert one._process.wait(10) == -signal.SIGALRM
    assert str(one._ending()) == "slow: it was not waited for"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_all_that_is_asked_can_be_interrupted(module: str) -> None:
    with ThreadPoolExecutor(1) as pool, child(module) as busy, child(module) as idle:
        asked = pool.submit(busy.ask, ("sleep", 60), 60)
        assert idle.ask(("pid", 0), 10)
        while not busy.asked:
            time.sleep(0.01)
        kill_all()
        with pytest.raises(CandidateError, match=r"^interrupted: its process died of SIGKILL$"):
            asked.result(10)
