"""Modules are built whole: programs in place, entry functions together, saved and loaded with one copy of constants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphopt
import graphopt.runtime
from graphopt import platforms
from graphopt.errors import CompilationError, ReadError, UsageError
from graphopt.lowering.loops import compute as te
from graphopt.lowering.module.module import Module
from graphopt.runtime.executable import Executable
from graphopt.runtime.program import Program

RANDOM = np.random.default_rng(0)
W = RANDOM.standard_normal((64, 96)).astype(np.float32)
X = RANDOM.standard_normal((5, 64)).astype(np.float32)


def double(x: Any) -> Any:
    return te.compute(x.shape, lambda *i: x[i] + x[i])


def two_entries() -> Module:
    """Two graphs of the same weights, one of which calls a program."""
    module = Module()
    for name, rows in (("prefill", "n"), ("decode", 1)):
        b = graphopt.GraphBuilder(name, module=module)
        x = b.input("x", "float32", (rows, 64))
        b.output("y", b.emit("MatMul", [b.emit_compute(double, [x]) if rows == "n" else x, W]))
        module = b.build()
    return module


def expect(model: Any) -> None:
    np.testing.assert_allclose(model["prefill"](X)["y"], 2 * X @ W, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(model.decode({"x": X[:1]})["y"], X[:1] @ W, rtol=1e-4, atol=1e-4)
    assert model.names == tuple(model) == ("prefill", "decode")
    assert {"decode", "prefill"} <= set(dir(model))
    assert "decode" in model
    assert len(model) == 2


def constants(model: Any) -> list[Any]:
    programs = [getattr(model[name], "program", model[name]) for name in model]
    return [c for p in programs for c in p.code.constants.values() if c.nbytes >= W.nbytes]


def test_entry_functions_are_compiled_saved_and_loaded_together(tmp_path: Path) -> None:
    model = graphopt.compile(two_entries(), entries=["prefill", "decode"])
    expect(model)
    for again in (tmp_path / "a", tmp_path / "b"):
        model.save(again)
        model = graphopt.runtime.load(again, 1)
        assert isinstance(model, Executable)
        expect(model)
        assert model.decode.time(number=1, repeat=2).best > 0


def test_constants_of_several_entries_are_there_once(tmp_path: Path) -> None:
    module = Module()
    for name in ("a", "b", "c"):
        b = graphopt.GraphBuilder(name, module=module)
        b.output("y", b.emit("MatMul", [b.input("x", "float32", ("n", 64)), W]))
        module = b.build()
    alone, together = tmp_path / "alone", tmp_path / "together"
    graphopt.compile(module.graph("a")).save(alone)
    model = graphopt.compile(module, entries=list("abc"))
    first, *others = constants(model)
    assert others
    assert all(np.shares_memory(first, other) for other in others)
    model.save(together)
    size = [sum(f.stat().st_size for f in folder.glob("constants.*")) for folder in (alone, together)]
    assert size[0] == size[1] >= W.nbytes
    model.save(alone)
    assert {f.name for f in alone.iterdir()} == {f.name for f in together.iterdir()}, "what was there is gone"


def test_main_is_what_is_called(tmp_path: Path) -> None:
    module = two_entries()
    module["main"] = module["decode"]
    model = graphopt.compile(module, entries=["prefill", "main"])
    model.save(tmp_path)
    for made in (model, graphopt.runtime.load(tmp_path), platforms.load(tmp_path)):
        np.testing.assert_allclose(made(X[:1])["y"], X[:1] @ W, rtol=1e-4, atol=1e-4)
        assert made.time(number=1, repeat=1).best > 0
    assert isinstance(platforms.load(tmp_path), Program)


def test_who_calls_what_is_not_there_is_told_what_is(tmp_path: Path) -> None:
    module = two_entries()
    with pytest.raises(UsageError, match=r"^the module has no 'main': say which .* entries=\['prefill', 'decode'\]$"):
        graphopt.compile(module)
    with pytest.raises(UsageError, match="the module has no graph 'decoder'"):
        graphopt.compile(module, entries=["decoder"])
    for wrong in ("prefill", []):
        with pytest.raises(UsageError, match=r"entries are names, as in entries=\['prefill', 'decode'\], not"):
            graphopt.compile(module, entries=wrong)
    with pytest.raises(UsageError, match="entries are graphs of a module, and the model is of type Graph"):
        graphopt.compile(module.graph("decode"), entries=["decode"])
    model = graphopt.compile(module, entries=["prefill", "decode"])
    with pytest.raises(UsageError, match=r"no function 'main' to call, and there are prefill, decode: name one"):
        model(X)
    with pytest.raises(UsageError, match=r"there is no function 'decoder'.*decode"):
        model["decoder"]
    with pytest.raises(AttributeError, match="no attribute 'decoder'"):
        model.decoder  # noqa: B018
    model.save(tmp_path)
    with pytest.raises(ReadError, match=r"has the programs prefill, decode, and none is called 'main'"):
        platforms.load(tmp_path)
    with model:
        pass
    with pytest.raises(graphopt.GraphoptError, match="closed"):
        model["decode"](X[:1])


def test_programs_and_graphs_of_a_module_are_built() -> None:
    built = graphopt.build(two_entries(), threads=2)
    assert built.names == ("double", "prefill", "decode")
    y = np.empty_like(X)
    built["double"](X, y)
    assert np.array_equal(y, X * 2)
    np.testing.assert_allclose(built.prefill(X)["y"], 2 * X @ W, rtol=1e-4, atol=1e-4)
    assert built.double.time(X, y, number=2, repeat=2).flops == X.size
    with pytest.raises(CompilationError, match="double is no entry function, and cannot be saved"):
        built.save("nowhere")


def test_one_program_or_graph_is_built() -> None:
    module = two_entries()
    y = np.empty_like(X)
    graphopt.build(module["double"])(X, y)  # type: ignore[arg-type]
    assert np.array_equal(y, X * 2)
    built = graphopt.build(module.graph("decode"))
    np.testing.assert_allclose(built(X[:1])["y"], X[:1] @ W, rtol=1e-4, atol=1e-4)


def test_external_functions_are_built_as_they_were_registered() -> None:
    b = graphopt.GraphBuilder()
    graphopt.register("test.negated", lambda x, out: np.negative(x, out=out))
    b.output("y", b.call("test.negated", [b.input("x", "float32", ("n", 64))], out_shape=("n", 64)))
    built = graphopt.build(b.build())
    y = np.empty_like(X)
    built["test.negated"](X, y)
    assert np.array_equal(y, -X)
    assert np.array_equal(built(X)["y"], -X)


def test_what_cannot_be_built_is_refused() -> None:
    with pytest.raises(UsageError, match="a module, a tensor program or a graph is built, not str"):
        graphopt.build("model.onnx")  # type: ignore[arg-type]


def test_programs_and_graphs_are_built_for_a_gpu() -> None:
    built = graphopt.build(two_entries(), target="simulated")
    x, y = X[:2], np.empty_like(X[:2])
    built["double"](x, y)
    assert np.array_equal(y, x * 2)
    np.testing.assert_allclose(built.decode(X[:1])["y"], X[:1] @ W, rtol=1e-4, atol=1e-4)
