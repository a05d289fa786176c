"""Inputs become constants by name: of modules and builders, from arrays and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphopt
from graphopt.errors import ReadError, UsageError
from graphopt.ir.text import parse
from graphopt.lowering.module.module import Module

W = np.arange(12, dtype=np.float32).reshape(4, 3)
X = np.ones((2, 4), np.float32)


def module() -> Module:
    text = "x: float32[n, 4]\nw: float32[4, 3]\ny = MatMul(x, w)\nreturn y"
    return Module({"prefill": parse(text), "decode": parse(text)})


def inputs(of: Module) -> list[list[str]]:
    return [[g.names[v] for v in g.inputs] for g in of.values()]  # type: ignore[union-attr]


def test_arrays_bind_in_every_entry() -> None:
    bound = module()
    before = bound["decode"]
    bound.bind_params({"w": W})
    assert inputs(bound) == [["x"], ["x"]]
    model = graphopt.compile(bound, entries=["decode"])
    assert np.array_equal(model.decode(X)["y"], X @ W)
    assert len(before.inputs) == 2, "graphs are not changed"  # type: ignore[union-attr]


def test_one_entry_may_be_bound() -> None:
    bound = module()
    bound.bind_params({"w": W}, entry="decode")
    assert inputs(bound) == [["x", "w"], ["x"]]


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".safetensors", ".onnx"])
def test_files_bind(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"w{suffix}"
    match suffix:
        case ".npz":
            np.savez(path, w=W)
        case ".npy":
            np.save(path, W)
        case ".safetensors":
            pytest.importorskip("safetensors.numpy").save_file({"w": W}, path)
        case ".onnx":
            b = graphopt.GraphBuilder()
            x = b.input("x", "float32", ("n", 4))
            b.output("y", b.emit("MatMul", [x, b.constant(W, "w")]))
            graphopt.save(b.build().graph(), path)
    bound = module()
    bound.bind_params(path)
    assert inputs(bound) == [["x"], ["x"]]
    assert np.array_equal(graphopt.compile(bound.graph("decode"))(X)["y"], X @ W)
    builder = graphopt.GraphBuilder()
    x, w = builder.input("x", "float32", ("n", 4)), builder.input("w", "float32", (4, 3))
    builder.output("y", builder.emit("MatMul", [x, w]))
    builder.bind_params(str(path))
    assert np.array_equal(graphopt.compile(builder.build())(X)["y"], X @ W)


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"v": W}, "there is no input 'v' to bind"),
        ({"w": W.T}, r"'w' is float32\[4, 3\], and the array for it is float32\[3, 4\]"),
        ({"w": W.astype(np.float64)}, "the array for it is float64"),
        ("w.txt", "w.txt: .* are read from .npz, .npy, .safetensors, .onnx files"),
    ],
)
def test_what_does_not_fit_changes_nothing(params: Any, why: str) -> None:
    bound = module()
    with pytest.raises(UsageError, match=why):
        bound.bind_params(params)
    assert inputs(bound) == [["x", "w"], ["x", "w"]]
    with pytest.raises(UsageError, match="the module has no graph 'encode'"):
        bound.bind_params({"w": W}, entry="encode")


def test_files_that_cannot_be_read_say_so(tmp_path: Path) -> None:
    for name in ("a.npz", "a.npy", "a.safetensors", "a.onnx"):
        with pytest.raises(ReadError):
            module().bind_params(tmp_path / name)
        (tmp_path / name).write_bytes(b"nonsense")
        with pytest.raises(graphopt.GraphoptError):
            module().bind_params(tmp_path / name)
