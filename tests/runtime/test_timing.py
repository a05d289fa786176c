"""Compiled models and saved programs are timed alike, on arrays that are given or drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import graphopt
import graphopt.runtime
from graphopt.errors import InputError, UsageError
from graphopt.ir.text import parse
from graphopt.runtime.timing import Timing

TEXT = "x: float32[n, 16]\nw: float32[16, 8]\ny = Relu(MatMul(x, w))\nreturn y"


def test_models_and_saved_programs_are_timed(tmp_path: Path) -> None:
    model = graphopt.compile(parse(TEXT))
    model.save(tmp_path)
    x, w = np.ones((4, 16), np.float32), np.ones((16, 8), np.float32)
    for program in (model, graphopt.runtime.load(tmp_path, 1)):
        given, drawn = program.time(x, w, number=2, repeat=4), program.time(n=4, number=2, repeat=4)
        by_name = program.time({"x": x, "w": w}, number=1, repeat=1)
        assert len(given.seconds) == len(drawn.seconds) == 4
        assert 0 < given.best <= given.median < 1
        assert given.flops == drawn.flops == by_name.flops >= 2 * 4 * 16 * 8
        with pytest.raises(UsageError, match=r"^the program has the size n: say what it is, as in n=64$"):
            program.time()
        with pytest.raises(UsageError, match="has no size m: its sizes are n"):
            program.time(n=4, m=3)
        with pytest.raises(UsageError, match="the program on these arrays has no size n"):
            program.time(x, w, n=4)
        with pytest.raises(InputError, match="no array is given for 'w'"):
            program.time(x)
        for number, repeat in ((0, 1), (1, 0), (1.5, 1)):
            with pytest.raises(UsageError, match="no measurement"):
                program.time(n=4, number=number, repeat=repeat)  # type: ignore[arg-type]


def test_where_inputs_decide_what_the_program_is_they_are_given() -> None:
    model = graphopt.compile(parse("x: float32[2, 3]\naxes: int64[1]\ny = ReduceSum(x, axes)\nreturn y"))
    with pytest.raises(UsageError, match="inputs decide what the program is"):
        model.time()
    assert model.time(np.ones((2, 3), np.float32), np.array([1]), number=1, repeat=2).best > 0


def test_programs_without_inputs_are_timed() -> None:
    assert graphopt.compile(parse("y = RandomNormal(shape=[3])\nreturn y"), strict=False).time(number=2).best > 0


def test_a_timing_is_read_at_a_glance() -> None:
    timing = Timing((3e-6, 1e-6, 2e-6), 5000)
    assert (timing.best, timing.median) == (1e-6, 2e-6)
    assert str(timing) == "2.00 us (best 1.00 us, 5.0 GFLOP/s)"
    assert str(Timing((1e-6,))) == "1.00 us (best 1.00 us)"
