"""Attention as exporters write it out, at random, compiled beside ONNX Runtime: heads that share keys, masks, a past,
dtypes, opsets and sizes. The op costs nothing here, so that it is made wherever it may be."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import graphopt
from graphopt.ir.constants import Array
from graphopt.target import CPU
from tests.test_random_graphs import tried

SEED = st.integers(0, 10**9)
EAGER = replace(CPU, prices=replace(CPU.prices, free=CPU.prices.free | {"Attention"}))
HIDDEN = (-np.inf, float(np.finfo(np.float32).min), -1e4)
"""What a mask adds to the scores of what is not seen."""
MASKS = ("none", "added", "chosen", "causal", "padding")
CALLS = [(1, 1, 0), (2, 1, 70), (1, 3, 5), (2, 40, 0), (1, 1, 1100), (1, 70, 66), (0, 1, 3), (1, 17, 2)]
"""Batches, queries and keys of the past."""


class Written:
    """A model with one attention, its open sizes ``b``, ``s`` and ``p``."""

    def __init__(self, seed: int) -> None:
        rng = Random(seed)
        self.groups, shared = rng.choice([1, 1, 2, 3]), rng.choice([1, 1, 2, 3, 5])
        self.heads, self.size, self.width = (
            self.groups * shared,
            rng.choice([1, 8, 16, 20, 64]),
            rng.choice([8, 16, 33]),
        )
        self.dtype = np.dtype(rng.choice(["float32"] * 6 + ["float64", "float16"]))
        self.mask, self.has_past = rng.choice(MASKS), rng.random() < 0.6
        self.hidden = rng.choice(HIDDEN[1:] if self.mask in ("padding", "chosen") else HIDDEN)
        self.opset, self.is_merged = rng.choice([13, 17, 18, 20, 21, 23]), rng.random() < 0.5
        self.nodes: list[NodeProto] = []
        self.held: dict[str, Array] = {}
        self.rng = rng
        self.model = self.write()

    def __call__(self, op: str, *inputs: str | Array, **attrs: Any) -> str:
        names = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        self.nodes.append(helper.make_node(op, names, [f"{op}{len(self.nodes)}"], **attrs))
        return str(self.nodes[-1].output[0])

    def constant(self, array: Array) -> str:
        name = f"c{len(self.held)}"
        self.held[name] = array
        return name

    def number(self, value: float) -> Array:
        return np.array(value, self.dtype)

    def part(self, name: str, heads: int, size: int) -> str:
        """An input with its heads apart."""
        if not self.is_merged:
            return name
        return self("Transpose", self("Reshape", name, np.array([0, 0, heads, size])), perm=[0, 2, 1, 3])

    def repeated(self, x: str, size: int) -> str:
        """Keys or values for each of the heads that share them."""
        times = self.heads // self.groups
        if times == 1:
            return x
        shape = self("Shape", x)
        batch, length = (self("Slice", shape, np.array([k]), np.array([k + 1])) for k in (0, 2))
        ends = [np.array(n) for n in ([self.groups, times], [size], [self.heads])]
        wide = self("Concat", batch, ends[0], length, ends[1], axis=0)
        apart = self("Expand", self("Unsqueeze", x, np.array([2])), wide)
        return self("Reshape", apart, self("Concat", batch, ends[2], length, ends[1], axis=0))

    def write(self) -> ModelProto:
        q = self.part("q", self.heads, self.size)
        k, v = self.part("k", self.groups, self.size), self.part("v", self.groups, self.width)
        if self.has_past:
            for n, (new, name) in enumerate(((k, "keys"), (v, "values"))):
                self.nodes.append(helper.make_node("Concat", [f"past_{name}", new], [f"present_{name}"], axis=2))
                k, v = (f"present_{name}", v) if n == 0 else (k, f"present_{name}")
        turned = self("Transpose", self.repeated(k, self.size), perm=[0, 1, 3, 2])
        factor, way = self.size**-0.5, self.rng.choice(["before", "both", "after", "divided", "none"])
        if way == "before":
            q = self("Mul", q, self.number(factor))
        if way == "both":
            q, turned = (self("Mul", x, self.number(factor**0.5)) for x in (q, turned))
        scores = self("MatMul", q, turned)
        scores = self("Mul", scores, self.number(factor)) if way == "after" else scores
        scores = self("Div", scores, self.number(1 / factor)) if way == "divided" else scores
        if self.mask in ("added", "causal", "padding"):
            scores = self("Add", scores, "mask")
        if self.mask == "chosen":
            scores = self("Where", "mask", scores, self.number(max(self.hidden, float(np.finfo(self.dtype).min))))
        is_wide = self.dtype == np.float16 and self.rng.random() < 0.5
        scores = self("Cast", scores, to=TensorProto.FLOAT) if is_wide else scores
        shares = self("Softmax", scores, axis=self.rng.choice([-1, 3]))
        shares = self("Cast", shares, to=TensorProto.FLOAT16) if is_wide else shares
        y = self("MatMul", shares, self.repeated(v, self.width))
        if self.is_merged:
            y = self("Reshape", self("Transpose", y, perm=[0, 2, 1, 3]), np.array([0, 0, self.heads * self.width]))
        self.nodes.append(helper.make_node("Identity", [y], ["y"]))
        kind = helper.np_dtype_to_tensor_dtype(self.dtype)
        keys = self.rng.choice(["t", *["p + s" if self.has_past else "s"] * 4])  # a name of its own says less
        shapes = {name: (kind, shape) for name, shape in self.shapes("b", "s", "p", keys).items()}
        if "mask" in shapes and self.mask == "chosen":
            shapes["mask"] = (TensorProto.BOOL, shapes["mask"][1])
        inputs = [helper.make_tensor_value_info(name, *value) for name, value in shapes.items()]
        names = ["y", *(["present_keys", "present_values"] if self.has_past else [])]
        outputs = [helper.make_tensor_value_info(name, kind, None) for name in names]
        tensors = [numpy_helper.from_array(array, name) for name, array in self.held.items()]
        graph = helper.make_graph(self.nodes, "g", inputs, outputs, tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)

    def shapes(self, b: Any, s: Any, p: Any, t: Any) -> dict[str, list[Any]]:
        """The shapes of inputs."""
        parts = {"q": (self.heads, self.size), "k": (self.groups, self.size), "v": (self.groups, self.width)}
        sides = {n: [b, s, h * d] if self.is_merged else [b, h, s, d] for n, (h, d) in parts.items()}
        past = {f"past_{n}": [b, self.groups, p, d] for n, d in (("keys", self.size), ("values", self.width))}
        mask = {"none": None, "causal": [s, t], "padding": [b, 1, 1, t]}.get(self.mask, [b, 1, s, t])
        return sides | (past if self.has_past else {}) | ({} if mask is None else {"mask": mask})

    def feeds(self, b: int, s: int, p: int, rng: np.random.Generator) -> dict[str, Array]:
        """Inputs of these sizes; each query sees a key."""
        p = p if self.has_past else 0
        given = {n: rng.normal(size=shape).astype(self.dtype) for n, shape in self.shapes(b, s, p, p + s).items()}
        if "mask" in given:
            shape = given["mask"].shape
            is_seen = rng.random(shape) < 0.7
            if self.mask == "causal":
                is_seen = np.arange(p + s) <= np.arange(s)[:, None] + p
            is_seen[..., :1] = True
            low = max(self.hidden, float(np.finfo(self.dtype).min)) if np.isfinite(self.hidden) else self.hidden
            added = np.where(is_seen, given["mask"] * (self.mask == "added"), low).astype(self.dtype)
            given["mask"] = is_seen if self.mask == "chosen" else added
        return given


def computes_the_same(seed: int) -> None:
    """Compiled and in ONNX Runtime, call by call."""
    written = Written(seed)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    peer = onnxruntime.InferenceSession(written.model.SerializeToString(), options)
    rng = np.random.default_rng(seed)
    most = {"float16": 2e-2, "float32": 2e-5, "float64": 1e-11}[written.dtype.name]
    with graphopt.compile(written.model, verify="off", target=EAGER, threads=1 + seed % 2) as compiled:
        for call in CALLS:
            given = written.feeds(*call, rng)
            got = compiled(given)
            for name, want in zip((o.name for o in peer.get_outputs()), peer.run(None, given), strict=True):
                np.testing.assert_allclose(got[name], want, rtol=most, atol=most, err_msg=f"{seed} {call} {name}")


@tried(1)
@given(SEED)
def test_an_attention_that_is_written_out_computes_the_same(seed: int) -> None:
    computes_the_same(seed)


@pytest.mark.slow
@tried(100)
@given(SEED)
def test_many_attentions_that_are_written_out_compute_the_same(seed: int) -> None:
    computes_the_same(seed)
