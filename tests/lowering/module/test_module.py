"""A module holds functions by name, and prints as one script."""

import numpy as np
import pytest

from graphopt.errors import InvalidModelError, NestError
from graphopt.ir.constants import Constant
from graphopt.ir.text import parse
from graphopt.lowering.loops.expressions import Const
from graphopt.lowering.loops.nest import Buffer, Nest, Store
from graphopt.lowering.loops.script import read
from graphopt.lowering.module.module import External, Module

GRAPH = """\
graph main (ir 10, opset 21, module 1)
x: float32[n, 3]
w: float32[3, 4]
%0 = module::linear0(x, w)
y = module::env_relu(%0)
return y
"""
LINEAR = """\
@program
def linear0(x: Buffer[("n", 3), "float32"], w: Buffer[(3, 4), "float32"], y: Buffer[("n", 4), "float32"], n: size):
    for i, j, k in grid(n, 4, 3):
        with block("y"):
            vi, vj, vk = axis.remap("SSR", [i, j, k])
            with init():
                y[vi, vj] = 0.0
            y[vi, vj] = y[vi, vj] + x[vi, vk] * w[vk, vj]
"""


def module() -> Module:
    return Module({"main": parse(GRAPH), "linear0": read(LINEAR), "env_relu": External("env.relu", effects=True)})


def test_a_module_prints_as_one_script() -> None:
    assert module().script() == f"{GRAPH}\n{LINEAR}\nexternal env_relu = env.relu (effects)\n"


def test_a_function_is_taken_out_tuned_and_put_back() -> None:
    m = module()
    before = m["linear0"]
    assert isinstance(before, Nest)
    m["linear0"] = tuned = read(LINEAR.replace("0.0", "1.0"))
    assert m["linear0"] == tuned != before
    assert list(m) == list(m.functions) == ["main", "linear0", "env_relu"]
    del m["linear0"]
    m["linear0"] = before
    assert list(m) == ["main", "env_relu", "linear0"]
    assert "linear0" in m
    assert len(m) == 3


def test_a_function_takes_the_name_that_it_is_put_under() -> None:
    m = module()
    graph = parse(GRAPH)
    m["second"], m["linear1"] = graph, m["linear0"]
    assert (m["second"].name, m["linear1"].name, graph.name) == ("second", "linear1", "main")
    with pytest.raises(TypeError):
        m.functions["x"] = External("x")  # type: ignore[index]


def test_calls_are_found_in_bodies_too() -> None:
    m = module()
    assert m.calls("main") == ("linear0", "env_relu")
    assert m.calls("linear0") == m.calls("env_relu") == ()
    branches = "else_branch={ q: ? return q }, then_branch={ q: ? r = module::main(q) return r }"
    m["choice"] = parse(f"c: bool[]\nx: float32[2]\ny = If(c | x, {branches})\nreturn y")
    assert m.calls("choice") == ("main",)
    m.check()


def test_a_call_of_nothing_is_named() -> None:
    m = module()
    del m["linear0"]
    with pytest.raises(InvalidModelError, match="main calls module::linear0, which the module does not have"):
        m.check()


def test_functions_that_call_each_other_in_a_circle_are_named() -> None:
    m = module()
    m["linear0"] = parse(GRAPH.replace("linear0", "main"))
    with pytest.raises(InvalidModelError, match="main calls linear0 calls main: a function cannot call itself"):
        m.check()


def test_a_nest_that_makes_no_sense_is_named() -> None:
    wrong = Store(Buffer("X", ()), (), Const(0.5, "float32"))
    with pytest.raises(NestError, match="bad: the buffer X is not declared"):
        Module({"bad": Nest("f", (), wrong)}).check()


def test_large_constants_stand_beside_the_script() -> None:
    constant = Constant.of(np.arange(4096, dtype="float32"))
    graphs = [parse("x: float32[4096]\ny = Add(x, float32[4096]{#0})\nreturn y", [constant]) for _ in range(2)]
    beside: list[Constant] = []
    text = Module({"f": graphs[0], "g": graphs[1]}).script(beside)
    assert beside == [constant, constant]
    assert "{#0}" in text
    assert "{#1}" in text
