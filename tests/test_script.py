"""Scripts and schedules are where people look for them."""

import subprocess
import sys
from pathlib import Path

import pytest

import graphopt
from graphopt import schedule, script
from graphopt import script as T  # noqa: N812
from graphopt.lowering.loops.nest import Nest


@T.program
def plus_one(A: T.Buffer[(8,), "float32"], B: T.Buffer[(8,), "float32"]):  # noqa: F821, N803
    for i in T.serial(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            t = A[vi] + 1.0
            B[vi] = T.max(t, T.exp(t))


PLAIN = """
@program
def plus_one(A: Buffer[(8,), "float32"], B: Buffer[(8,), "float32"]):
    for i in serial(8):
        with block("B"):
            vi = axis.spatial(8, i)
            B[vi] = max(A[vi] + 1.0, exp(A[vi] + 1.0))
"""


def test_a_program_may_be_written_with_the_words_of_the_module() -> None:
    assert isinstance(plus_one, Nest)
    assert plus_one == script.read(PLAIN)
    assert script.read(script.show(plus_one)) == plus_one


def test_all_words_may_be_imported_at_once(tmp_path: Path) -> None:
    file = tmp_path / "all.py"
    file.write_text(f"from graphopt.script import *\nimport graphopt\n{PLAIN}\nprint(repr(plus_one), exp, float16)")
    run = subprocess.run([sys.executable, str(file)], check=True, capture_output=True, text=True)
    assert run.stdout.startswith("<Nest plus_one(A: float32[8], B: float32[8]): 1 block>")


def test_no_word_hides_a_function_of_python() -> None:
    assert not {"max", "min", "abs", "bool", "round", "pow"} & set(script.__all__)
    assert {"exp", "select", "cast", "float32", "grid", "alloc"} <= set(script.__all__)
    with pytest.raises(AttributeError, match="explode"):
        script.explode  # noqa: B018


def test_schedules_are_there_with_what_they_name() -> None:
    assert schedule.Schedule is graphopt.Schedule
    s = schedule.Schedule(plus_one)
    s.parallel("i")
    assert isinstance(s.trace, schedule.Trace)
    assert schedule.replay(s.trace, plus_one).nest == s.nest
    with pytest.raises(schedule.ScheduleError):
        s.parallel("j")
