"""Registered functions are called on the program's own memory; what they do besides is done, once, in order."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphopt
import graphopt.runtime
from graphopt import platforms
from graphopt.errors import CompilationError, ExecutionError, UsageError
from graphopt.ir import evaluate
from graphopt.ir.constants import Constant
from graphopt.ir.graph import Attrs, Graph, Value
from graphopt.ir.text import parse
from graphopt.ir.types import TensorType
from graphopt.lowering.module.external import register

FLOATS = "x: float32[n, 8]\n"


def first(x: TensorType, *others: object, **attrs: object) -> TensorType:
    return x


def address(array: Any) -> int:
    return int(np.from_dlpack(array).ctypes.data)


def compiled(text: str | Graph, optimize: bool = True) -> Any:
    return graphopt.compile(parse(text) if isinstance(text, str) else text, optimize=optimize, cache=False)


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)


@pytest.mark.parametrize("optimize", [False, True])
def test_arrays_are_handed_over_without_a_copy(x: np.ndarray, optimize: bool) -> None:
    seen: list[tuple[int, ...]] = []

    @register("test.first", outputs=first)
    def _(x: Any, out: Any) -> None:
        seen.append((address(x), address(out)))
        np.negative(x, out=out)

    @register("test.second", outputs=first)
    def _(x: Any, out: Any) -> None:
        seen.append((address(x), address(out)))
        np.exp(x, out=out)

    model = compiled(FLOATS + "y = test::second(test::first(x))\nreturn y", optimize)
    out = np.empty_like(x)
    model(x, out={"y": out})
    (given, between), (read, result) = seen
    assert given == x.ctypes.data
    assert between == read
    assert result == out.ctypes.data
    np.testing.assert_array_equal(out, np.exp(-x))


def test_attributes_and_inputs_that_are_left_out_are_handed_on(x: np.ndarray) -> None:
    @register("test.scaled", outputs=lambda bias, x, by: x)
    def scaled(bias: Any, x: Any, out: Any, *, by: float) -> None:
        assert bias is None
        np.multiply(x, by, out=out)

    model = compiled(FLOATS + "y = Relu(test::scaled(_, x, by=2.0))\nreturn y")
    np.testing.assert_array_equal(model(x)["y"], np.maximum(2 * x, 0))


def test_a_function_has_a_meaning_for_the_reference_evaluator(x: np.ndarray) -> None:
    register("test.halved", lambda x, out: np.divide(x, 2, out=out), outputs=first)
    graph = parse(FLOATS + "y = Relu(test::halved(x))\nreturn y")
    np.testing.assert_array_equal(evaluate.run(graph, {"x": x})["y"], np.maximum(x / 2, 0))


@pytest.mark.parametrize("optimize", [False, True])
def test_effects_happen_as_often_and_in_the_order_in_which_they_are_written(x: np.ndarray, optimize: bool) -> None:
    said: list[str] = []
    register("test.say", lambda x, out, what="?": said.append(what), effects=True, outputs=first)
    text = """
x: float32[n, 8]
c = float32[8]{0.5, ...}
late = Relu(Relu(Neg(Neg(x))))
a = test::say(late, what="a")
b = test::say(x, what="b")
same = test::say(x, what="b")
folded = test::say(c, what="c")
y = Add(b, same)
return y
"""
    model = compiled(text, optimize)
    for _ in range(2):
        said.clear()
        model(x)
        assert said == ["a", "b", "b", "c"]


def test_effects_within_a_branch_happen_there(x: np.ndarray) -> None:
    said: list[float] = []
    register("test.note", lambda x: said.append(float(x.sum())), effects=True)
    body = parse("x: float32[3]\ny = Relu(x)\nreturn y")
    body.add("test::note", (body.inputs[0],), n_outputs=0)
    other = parse("x: float32[3]\ny = Neg(x)\nreturn y")
    graph = Graph()
    c, x3 = graph.add_input("c", TensorType("bool", ())), graph.add_input("x", TensorType("float32", (3,)))
    node = graph.add("If", (c, x3), Attrs(then_branch=body, else_branch=other), captures=1)
    graph.add_output("y", Value(node.id))
    model = compiled(graph)
    ones = np.ones(3, np.float32)
    assert model(np.array(False), ones)["y"].sum() == -3
    assert said == []
    assert model(np.array(True), ones)["y"].sum() == 3
    assert said == [3.0]


def test_pure_calls_are_shared_and_dropped(x: np.ndarray) -> None:
    calls: list[int] = []
    register("test.pure", lambda x, out: (calls.append(1), np.copyto(out, x)), outputs=first)
    model = compiled(FLOATS + "u = test::pure(Neg(x))\na = test::pure(x)\nb = test::pure(x)\ny = Add(a, b)\nreturn y")
    np.testing.assert_array_equal(model(x)["y"], 2 * x)
    assert len(calls) == 1


def test_a_saved_program_asks_for_its_functions_by_name(tmp_path: Any, x: np.ndarray) -> None:
    def scaled(x: Any, out: Any, *, by: Any, times: float) -> None:
        np.multiply(x * by, times, out=out)

    register("test.scaled", scaled, outputs=lambda x, **_: x)
    graph = parse(FLOATS + "y = test::scaled(x, times=2.0)\nreturn y")
    (node,) = (n for n in graph.nodes() if n.op == "test::scaled")
    graph.update(node.id, attrs=node.attrs.with_(by=Constant.of(np.array([3.0], np.float32))))
    compiled(graph).save(tmp_path)
    for functions in ({"test.scaled": scaled}, {}):
        assert np.array_equal(graphopt.runtime.load(tmp_path, 1, functions)(x)["y"], x * 6)
    elsewhere = (
        "import graphopt.runtime as r, numpy as np; x = np.ones((3, 8), np.float32)\n"
        f"try: r.load({str(tmp_path)!r})\nexcept Exception as e: print(type(e).__name__, e)\n"
        "f = lambda x, out, by, times: np.multiply(x * by, times, out=out)\n"
        f"print(r.load({str(tmp_path)!r}, functions={{'test.scaled': f}})(x)['y'].sum())"
    )
    told, result = subprocess.run([sys.executable, "-c", elsewhere], capture_output=True, text=True).stdout.splitlines()
    assert told == (
        f"UsageError {tmp_path} calls test.scaled, which is not registered: register it, or give it, as in "
        "load(folder, functions={'test.scaled': ...})"
    )
    assert float(result) == 3 * 8 * 6


def test_functions_are_asked_for_where_programs_are_loaded_for_any_device(tmp_path: Any, x: np.ndarray) -> None:
    register("test.copy", lambda x, out: np.copyto(out, x), outputs=first)
    compiled(FLOATS + "y = test::copy(x)\nreturn y").save(tmp_path)
    doubled = platforms.load(tmp_path, functions={"test.copy": lambda x, out: np.add(x, x, out=out)})
    assert np.array_equal(doubled(x)["y"], x * 2), "what is given comes before what is registered"


def test_what_a_function_raises_is_told_with_its_name(x: np.ndarray) -> None:
    @register("test.fails", outputs=first)
    def fails(x: Any, out: Any) -> None:
        raise RuntimeError("no")

    model = compiled(FLOATS + "y = test::fails(x)\nreturn y")
    with pytest.raises(RuntimeError, match="no") as caught:
        model(x)
    assert any("test.fails" in note for note in caught.value.__notes__)
    assert not issubclass(ExecutionError, RuntimeError)


def test_outputs_of_unknown_type_are_refused() -> None:
    register("test.untyped", lambda x, out: None)
    with pytest.raises(CompilationError, match=r"output 0 of test::untyped has no type"):
        compiled(FLOATS + "y = Neg(test::untyped(x))\nreturn y")


@pytest.mark.parametrize("outputs", [lambda x: 1, lambda: None])
def test_types_that_cannot_be_told_are_refused(outputs: Callable[..., Any]) -> None:
    register("test.mistyped", lambda x, out: None, outputs=outputs)
    with pytest.raises(graphopt.GraphoptError, match="its outputs cannot be told"):
        compiled(FLOATS + "y = test::mistyped(x)\nreturn y")


def test_what_returns_an_array_did_not_fill_one(x: np.ndarray) -> None:
    register("test.returned", lambda x, out: -x, outputs=first)
    with pytest.raises(ExecutionError, match="gave an array, and is expected to fill the last of those"):
        compiled(FLOATS + "y = test::returned(x)\nreturn y")(x)
    register("test.filled", lambda x, out: np.negative(x, out=out), outputs=first)  # which gives out itself
    np.testing.assert_array_equal(compiled(FLOATS + "y = test::filled(x)\nreturn y")(x)["y"], -x)


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(UsageError, match=r"test\.three is to be a function, and 3 cannot be called"):
        register("test.three", 3)  # type: ignore[call-overload]


@pytest.mark.parametrize("name", ["linear", "env.", ".linear", ""])
def test_a_name_has_a_domain(name: str) -> None:
    with pytest.raises(UsageError, match="a domain and a name"):
        register(name, lambda: None)
