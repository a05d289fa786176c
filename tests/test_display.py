"""What displays itself does so without importing what draws it before it is shown."""

import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

import graphopt
from graphopt import nn, passes, te
from graphopt.benchmark.tuner import TunedModel
from graphopt.display import HIDDEN, Displayed, coloured_parts, encoded, write
from graphopt.ir.constants import Constant
from graphopt.ir.text import parse
from graphopt.lowering.loops.nest import Nest, statements
from graphopt.lowering.loops.script import read
from graphopt.optimize import optimize_graph
from graphopt.passes import MemoryPlan
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.run.settings import CompileReport
from graphopt.runtime.timing import Timing
from graphopt.tuning.results import Trial, TunedNest
from tests.lowering.loops.test_script import MM_RELU


def test_nothing_is_imported_before_it_is_shown() -> None:
    program = (
        "import sys\nfrom graphopt.ir.text import parse\n"
        "g = parse('x: float32[2] y = Relu(x) return y')\n"
        "assert not any(m.startswith('graphopt.web') for m in sys.modules)\n"
        "assert 'Relu' in g._repr_html_()\n"
        "assert 'graphopt.web.cards' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


SCREEN = 40
"""Lines that are seen at once."""
NEST = read(MM_RELU)
GRAPH = parse("x: float32[n, 64]\ny = Relu(x)\nreturn y")
MODULE = graphopt.Module({"mm_relu": NEST, "main": GRAPH})
SHOW = f"from graphopt.lowering.loops.script import read\nread({MM_RELU!r}).show()"


def things() -> Iterator[tuple[object, str]]:
    """What is displayed, and how its ``repr`` begins."""
    schedule = graphopt.Schedule(NEST)
    schedule.parallel("i")
    model = graphopt.compile(GRAPH, cache=False)
    yield NEST, "<Nest mm_relu(A: float32[128, 128], B: float32[128, 128], C: float32[128, 128]): 2 blocks>"
    yield GRAPH, "<Graph graph: 1 node>"
    yield MODULE, "<Module of mm_relu, main>"
    yield schedule, "<Schedule of <Nest mm_relu("
    yield schedule.trace, "<Trace of 1 step>"
    yield model, "<CompiledModel (x): 1 kernel in 1 call>"
    yield model.report, "<CompileReport: 1 kernel in 1 call, 0 nodes in no kernel>"
    yield model.program, "<Program (x) -> (y): 1 step>"
    yield graphopt.standard(), "<Ruleset of "
    yield graphopt.standard().rules[0], "<Rule max-zero: Max(x, 0.0) => Relu(x)>"
    yield optimize_graph(GRAPH)[1], "<Report graph: 1 ops, 1 after, for portable>"
    yield model.profile(np.ones((2, 64), np.float32)), "<Profile of 1 step: "
    executable = graphopt.build(MODULE)
    yield executable, "<Executable of mm_relu, main>"
    yield graphopt.runtime.executable.Executable({"f": abs}), "<Executable of f>"
    yield executable["mm_relu"], "<NestFunction of <Nest mm_relu("
    yield Timing((2e-6, 1e-6), 100), "<Timing 1.50 us (best 1.00 us, 0.1 GFLOP/s)>"
    yield graphopt.pipeline_named("cpu"), "<Pipeline cpu: optimize, fuse, schedule>"
    yield passes.Sequential([passes.FuseOps()]), "<Sequential sequential: FuseOps>"
    yield from (
        (passes.DeadCode(), "<Pass DeadCode>"),
        (passes.Pass("mine", lambda graph: graph), "<Pass mine>"),
        (graphopt.pipeline_named("cpu").parts[-1], "<LoweringStep schedule>"),
    )
    told: list[object] = []
    planned = passes.PlanMemory(told.append)
    passes.Sequential([planned]).telling(told.append)(MODULE)
    yield told[0], "<MemoryPlan of main: <Linked (x): 1 steps, "
    yield told[1], "<Done PlanMemory 1 nodes, as before 2 -> 2 functions"
    builder = graphopt.GraphBuilder(module=MODULE)
    builder.input("x")
    yield builder, "<GraphBuilder of <Graph main: 0 nodes>>"
    x = te.placeholder((te.size("n"), 8), name="x")
    yield x, "<Tensor x: float32[n, 8]>"
    yield te.compute(x.shape, lambda i, j: x[i, j] + 1.0, name="y"), "<Tensor y: float32[n, 8]>"
    yield nn.Linear(4, 2), "<Linear: 2 parameters of 10 elements>"
    yield nn.ReLU(), "<ReLU: 0 parameters of 0 elements>"
    trial = Trial(schedule.trace, 2e-6, 3e-6)
    yield trial, "<Trial 2.00 us, 1.50x as fast as by default (3.00 us)>"
    tuned = TunedNest(NEST, schedule.trace, 2e-6, 3e-6, (trial,), "done", 1.0)
    yield tuned, "<TunedNest mm_relu: 2.00 us, 1.50x as fast as by default (3.00 us)>"
    yield (
        TunedModel(MODULE, Path("db"), (tuned,) * 30, 2e-6, 3e-6, "done", 1.0),
        "<TunedModel of 30 programs: 2.00 us, ",
    )


def test_expressions_are_their_formulas() -> None:
    x, k = te.placeholder((te.size("n"), 8), name="x"), te.reduce_axis(8, "k")
    assert repr(x.shape) == "(n, 8)"
    assert repr(x[0, k] * 2.0 + te.exp(x[1, 2])) == "x[0, k] * 2.0 + exp(x[1, 2])"
    assert str(te.const(0.5, "float32")) == "0.5"
    assert repr(te.sum(x[0, k], axis=k)) == "sum(x[0, k], axis=k)"
    long = x[0, 0]
    for _ in range(100):
        long = long + x[0, 1]
    assert len(repr(long)) < 100 < len(str(long))


def test_a_tensor_is_shown_as_the_program_of_it() -> None:
    x = te.placeholder((4,), name="x")
    y = te.compute((4,), lambda i: x[i] + 1.0, name="y")
    assert read(str(y)) == te.nest("y", [x, y])


def test_a_value_is_one_line_to_repr_and_its_text_to_str_and_show(capsys: pytest.CaptureFixture[str]) -> None:
    for value, beginning in things():
        assert isinstance(value, Displayed)
        assert repr(value).startswith(beginning)
        assert "\n" not in repr(value)
        assert len(repr(value)) < 200
        assert value.show() is None  # type: ignore[func-returns-value]
        printed = capsys.readouterr().out
        assert printed == str(value).rstrip("\n") + "\n"
        assert printed.count("\n") <= SCREEN or isinstance(value, Nest | MemoryPlan), "it is long, and no program"
        assert "\x1b" not in printed
        assert "<pre" in value._repr_html_() or "<table" in value._repr_html_() or isinstance(value, CompileReport)


def test_a_script_is_what_is_printed_and_reads_back() -> None:
    assert str(NEST) == NEST.script()
    assert read(NEST.script()) == NEST
    assert str(parse(GRAPH.script())) == str(GRAPH)
    assert graphopt.Module.read(MODULE.script()) == MODULE
    rule = graphopt.standard().rules[5]
    assert parse_rules(rule.script(), "rules")[0] == rule


def test_long_constants_are_left_out() -> None:
    graph = parse(
        "x: float32[4096]\nw = float32[4096]{#0}\ny = Add(x, w)\nreturn y", [Constant.of(np.ones(4096, "f4"))]
    )
    assert "w = float32[4096]{#0}" in str(graph)
    beside: list[Constant] = []
    graph.script(beside)
    assert len(beside) == 1


def test_the_statements_of_a_program_are_one_line_to_repr() -> None:
    assert [repr(s) for s in statements(NEST.body)][:5] == [
        "<Seq of 2 statements>",
        "<For i: serial 128>",
        "<For j: serial 128>",
        "<For k: serial 128>",
        "<Block Y(vi, vj, vk)>",
    ]


def test_constants_given_to_show_are_the_old_way() -> None:
    with pytest.warns(DeprecationWarning, match="module.script"):
        assert MODULE.show([]) == MODULE.script()


def shown(program: str, **environment: str) -> str:
    """What a terminal gets to see."""
    ours, theirs = os.openpty()
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "TERM")}
    subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        stdout=theirs,
        env={**kept, "TERM": "xterm-256color", **environment},
    )
    os.close(theirs)
    parts = []
    while True:
        try:
            parts.append(os.read(ours, 65536))
        except OSError:  # all is read
            break
        if not parts[-1]:
            break
    os.close(ours)
    return b"".join(parts).decode().replace("\r\n", "\n")


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no terminals of this kind here")
def test_a_terminal_shows_colours_unless_it_is_told_not_to() -> None:
    coloured = shown(SHOW)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == MM_RELU
    assert shown(SHOW, NO_COLOR="1") == MM_RELU
    assert re.sub(r"\x1b\[[\d;]*m", "", shown(SHOW, COLUMNS="20")) == MM_RELU  # lines are the terminal's to break


def test_a_terminal_obeys_nothing_in_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    write("a\x1b[2Jb\rc\td\x9b", is_code=False)
    assert capsys.readouterr().out == "a\\x1b[2Jb\\x0dc\td\\x9b\n"


@pytest.mark.parametrize("text", [MM_RELU, "", "x", "\n\nx = 1\n\n", "'''", "a  # b\n", "  indented"])
def test_the_parts_of_coloured_text_are_the_text(text: str) -> None:
    assert "".join(part for part, _ in coloured_parts(text)).rstrip("\n") == text.rstrip("\n")


def test_keywords_and_numbers_are_coloured() -> None:
    colours = dict(coloured_parts(MM_RELU))
    assert colours["for"].startswith("#")
    assert colours["128"].startswith("#")
    assert colours["for"] != colours["128"]


@dataclass
class Odd:
    numbers: list[float]
    path: Path
    kept: str = field(default="", metadata={HIDDEN: True})


def test_values_are_what_json_has() -> None:
    assert encoded(Odd([1.5, math.inf, math.nan], Path("a/b"))) == {"numbers": [1.5, None, None], "path": "a/b"}
    assert encoded({1: {"b", "a"}, "t": (1, None, True)}) == {"1": ["a", "b"], "t": [1, None, True]}
