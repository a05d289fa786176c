"""Nests taken apart: together the parts compute what the nest did, and what goes between them becomes a parameter."""

from __future__ import annotations

import numpy as np

from graphopt.lowering.cpu.loop_fission import separated
from graphopt.lowering.loops import compute as t
from graphopt.lowering.loops.compute import Tensor, compute, loop, nest, placeholder, procedure
from graphopt.lowering.loops.expressions import Expr, apply
from graphopt.lowering.loops.interpret import interpret
from graphopt.lowering.loops.nest import Buffer, Stmt, Store

N = 40
"""Sizes of a product for which a library is worth its call."""


def _product(a: Tensor, b: Tensor, name: str) -> Tensor:
    def element(i: Expr, j: Expr) -> t.ReduceStage:
        k = t.reduce_axis(N)
        return t.sum(a[i, k.var] * b[k.var, j], k)

    return compute((N, N), element, name=name)


def _relu(x: Tensor) -> Tensor:
    return compute(x.shape, lambda i, j: apply("max", x[i, j], 0.0), name="relu")


def test_each_product_takes_what_follows_it() -> None:
    a, b = (placeholder((N, N), name=name) for name in "ab")
    first = _relu(_product(a, b, "first"))
    total = compute((N,), lambda i: t.sum(first[i, (k := t.reduce_axis(N)).var], k), name="total")
    shares = compute((N, N), lambda i, j: first[i, j] / total[i], name="shares")
    whole = nest("two", [a, b], [_product(shares, b, "second")])
    parts = separated(whole)
    assert [[p.name for p in part.outputs] for part in parts] == [["relu"], ["shares"], ["second"]]
    arrays = {name: np.random.default_rng(0).uniform(size=(N, N)).astype(np.float32) for name in "ab"}
    held = arrays | {name: np.empty((N, N), np.float32) for name in ("relu", "shares", "second")}
    want = np.empty((N, N), np.float32)
    interpret(whole, [*arrays.values(), want], {})
    for part in parts:
        interpret(part, [held[p.name] for p in part.buffers], {})
    np.testing.assert_array_equal(held["second"], want)


def test_a_procedure_stands_alone() -> None:
    a = placeholder((4, 4), name="a")
    once = compute((4, 4), lambda i, j: a[i, j] + 1.0, name="once")

    def build(out: Buffer) -> Stmt:
        return loop(4, lambda i: loop(4, lambda j: Store(out, (i, j), once[i, j] * 2.0)))

    (twice,) = procedure([("twice", (4, 4), "float32")], (once,), build)
    parts = separated(nest("p", [a], [twice]))
    assert [[b.name for b in part.buffers] for part in parts] == [["a", "once"], ["twice", "once"]]


def test_one_product_stays_whole() -> None:
    a, b = (placeholder((N, N), name=name) for name in "ab")
    whole = nest("one", [a, b], [_relu(_product(a, b, "product"))])
    assert separated(whole) == (whole,)
