"""The script of a module is read as it is printed, and what it is not is told by line."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphopt
from graphopt.compile import linked_for
from graphopt.errors import ReadError, ScriptError, UsageError
from graphopt.ir.constants import Constant
from graphopt.ir.text import parse
from graphopt.lowering.loops import compute as te
from graphopt.lowering.loops.compute import Tensor, compute, reduce_axis
from graphopt.lowering.loops.nest import Nest, blocks
from graphopt.lowering.loops.script import read as read_nest
from graphopt.lowering.module.builder import GraphBuilder
from graphopt.lowering.module.module import External, Module
from graphopt.lowering.schedule.schedule import Schedule
from graphopt.run.settings import Settings
from tests.lowering.random_nests import random_nest
from tests.random_graphs import random_graph

RNG = np.random.default_rng(0)
SQUARE = """\
@program
def square(A: Buffer[("n",), "float32"], B: Buffer[("n",), "float32"], n: size):
    for i in grid(n):
        with block("B"):
            vi = axis.remap("S", [i])
            B[vi] = A[vi] * A[vi]
"""
TEXT = f"""\
# what scales, squares and logs
graph main (ir 10, opset 21, module 1)
x: float32[n]  # the one input
y = module::square(module::scaled(x))
none = module::log(y)
return y

{SQUARE}
external log = script.log (effects)  # someone else's

graph scaled (ir 10, opset 21)
x: float32[n]
y = Mul(x, 3.0)
return y
"""


def again(module: Module) -> Module:
    """The module printed and read."""
    beside: list[Constant] = []
    text = module.script(beside)
    read = Module.read(text, beside)
    assert read.script() == module.script()
    return read


@pytest.fixture(autouse=True)
def registered() -> list[float]:
    seen: list[float] = []
    graphopt.register("script.log", lambda x: seen.append(float(x.sum())), effects=True)

    def scale(x: Any, w: Any, out: Any) -> None:
        np.multiply(x, w, out=out)

    graphopt.register("script.scale", scale)
    return seen


def dense(x: Tensor, w: Tensor) -> Tensor:
    k = reduce_axis(x.shape[1])
    return compute((x.shape[0], w.shape[1]), lambda i, j: te.sum(x[i, k.var] * w[k.var, j], k))


def network() -> Module:
    """Ops, a program, a graph and two external functions, and a weight that is too large to be written out."""
    layer = GraphBuilder("layer")
    x = layer.input("x", "float32", ("m", 16))
    layer.output("y", layer.emit("Tanh", [layer.emit_compute(dense, [x, RNG.standard_normal((16, 16), np.float32)])]))
    builder = GraphBuilder(module=layer.build())
    x = builder.input("x", "float32", ("n", 16))
    with builder.dataflow():
        h = builder.emit("module::layer", [builder.emit("module::layer", [x])])
        y = builder.call("script.scale", [h, 2.0], out_shape=("n", 16))
        builder.call("script.log", [y], out_shape=[])
    builder.output("y", builder.emit("Relu", [y]))
    return builder.build()


def test_what_a_person_writes_runs(registered: list[float]) -> None:
    module = Module.read(TEXT)
    assert list(module) == ["main", "square", "log", "scaled"]
    assert module["log"] == External("script.log", effects=True)
    x = np.array([1, 2], np.float32)
    assert graphopt.compile(module)(x)["y"].tolist() == [9, 36]
    assert registered == [45]


def test_a_module_with_all_kinds_of_functions_reads_back_and_computes_the_same() -> None:
    module = network()
    read = again(module)
    assert read == module
    x = RNG.standard_normal((3, 16), np.float32)
    want, found = (graphopt.compile(m)(x)["y"] for m in (module, read))
    assert np.array_equal(want, found)


def test_a_program_that_was_scheduled_reads_back() -> None:
    module = network()
    nest = module["dense"]
    assert isinstance(nest, Nest)
    schedule = Schedule(nest)
    block = schedule.get_block(next(blocks(nest.body)).name)
    i, j, k = schedule.get_loops(block)
    schedule.reorder(i, k, j)
    schedule.decompose_reduction(block, k)
    schedule.vectorize(j)
    schedule.parallel(i)
    plain = again(module)
    module["dense"] = schedule.nest
    assert again(module) == module != plain


@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.integers(0, 10**9))
def test_graphs_and_programs_of_any_kind_read_back(seed: int) -> None:
    random = Random(seed)
    module = Module({"main": random_graph(random, steps=6), "first": random_nest(random), "e": External("a.b")})
    module["second main"] = random_graph(random, steps=3)
    assert again(module) == module


@pytest.mark.slow
def test_the_loops_of_a_real_model_read_back() -> None:
    path = Path(onnx.__path__[0]) / "backend/test/data/light/light_squeezenet.onnx"
    nests = linked_for(str(path), Settings(optimize=False)).nests
    module = Module({"main": graphopt.load(path)} | {f"loops{k}": nest for k, nest in enumerate(nests.values())})
    assert len(module) > 50
    assert again(module) == module


@pytest.mark.parametrize("name", ["odd name", "default", 'a"b', "back`tick", "new\nline", "x = y", "é", "(effects)"])
def test_any_name_of_a_graph_or_an_external_function_reads_back(name: str) -> None:
    module = Module({name: External(f"env.{name}", effects=True), f"{name} too": parse("x: float32[2]\nreturn x")})
    assert again(module) == module


def test_lines_within_strings_begin_nothing() -> None:
    odd = "\u2028graph main (ir 10)\u2029@program\x0cexternal x"
    module = Module({"main": parse(f'x: float32[2]\ny = my::Op(x, text="{odd}")\nreturn y')})
    assert again(module) == module


def test_values_may_have_the_names_of_words() -> None:
    module = Module({"main": parse("external: float32[2]\nprogram = Relu(external)\nreturn program")})
    assert again(module) == module


def test_a_program_has_a_name_of_python() -> None:
    with pytest.raises(UsageError, match="a name of Python, as in 'linear0', not 'conv/1'"):
        Module({"conv/1": read_nest(SQUARE)})
    with pytest.raises(UsageError, match="not 'for'"):
        Module({"for": read_nest(SQUARE)})


def test_modules_differ_where_a_function_does() -> None:
    one = Module.read(TEXT)
    assert one == Module.read(TEXT)
    assert one != Module.read(TEXT.replace("3.0", "4.0"))
    assert one != Module.read(TEXT.replace("A[vi] * A[vi]", "A[vi] + A[vi]"))
    assert one != Module.read(TEXT.replace(" (effects)", ""))
    assert one != Module({"main": one["main"]})
    assert one != TEXT


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("", ScriptError, "m.txt:1:1: a function of a module begins with `graph NAME"),
        ("\n# hm\nprint('x')\n" + SQUARE, ScriptError, "m.txt:3:1: a function of a module begins with"),
        (f"{SQUARE}\n{SQUARE}", ScriptError, "m.txt:8:1: square is there already"),
        (f"{SQUARE}\n\nimport os\n", ScriptError, "m.txt:9:1: a script is one function"),
        (SQUARE + "\ngraph g (ir 10, opset 21)\nx: float32[2]\ny = Relu(z)\nreturn y", ReadError, "m.txt:10:10: `z`"),
        (SQUARE + SQUARE.replace("vi]\n", "w]\n").replace("square", "cube"), ScriptError, "m.txt:12:"),
        ("external a = b = c", ScriptError, "m.txt:1:1: an external function is `external NAME`"),
        ("external a (effect)", ScriptError, "m.txt:1:1: an external function is `external NAME`"),
        ("external a\n  b\n", ScriptError, "m.txt:2:1: an external function is one line"),
        ("external `\\q`", ScriptError, r"m.txt:1:1: `\\q` is no name"),
        ("graph g (ir 10, opset 21)\nx: float32[40]\ny = Add(x, float32[40]{#0})\nreturn y", ReadError, "m.txt:3:24"),
    ],
)
def test_what_is_wrong_is_told_by_line(text: str, error: type[ReadError], said: str) -> None:
    with pytest.raises(error, match=said.replace("(", r"\(")) as caught:
        Module.read(text, filename="m.txt")
    assert "\n" not in str(caught.value)


def test_nothing_of_a_script_is_executed(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    harm = f"__import__('pathlib').Path({str(mark)!r}).touch()"
    for text in (
        SQUARE.replace("A[vi] * A[vi]", harm),
        SQUARE.replace("grid(n)", f"grid({harm})"),
        SQUARE.replace("@program", f"@program({harm})"),
        f'{SQUARE}\nexternal a = `"); {harm} #`',
        f"graph g (ir 10, opset 21)\nx: float32[2]\ny = Relu({harm})\nreturn y",
    ):
        try:
            Module.read(text)
        except ReadError:
            continue
    assert not mark.exists()
