"""The nest of a group: what is written into what reads it, and what is stored."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.ir import evaluate
from graphopt.ir.infer import infer
from graphopt.ir.text import parse
from graphopt.ir.tolerance import error
from graphopt.lowering.fuse.groups import group
from graphopt.lowering.fuse.nests import FusedNest, write
from graphopt.lowering.link.passes import needed
from graphopt.lowering.loops.interpret import interpret, numpy_dtype
from graphopt.lowering.loops.nest import blocks
from graphopt.lowering.lower.lower import lower


def written(text: str) -> list[FusedNest]:
    graph = parse(text)
    facts = infer(graph)
    lowered = lower(graph, facts)
    return [write(graph, facts, g) for g in group(graph, facts, lowered, needed(graph, lowered))]


BLOCKS = {
    "a chain is one block": ("x: float32[8] y = Neg(Exp(Abs(x))) return y", 1),
    "what is read twice at one place is computed there": ("x: float32[8] a = Exp(x) y = Mul(a, a) return y", 1),
    "a reduction and what goes into it": ("x: float32[4, 8] y = ReduceSum(Exp(x), [1]) return y", 1),
    "what goes into softmax is computed again where it is cheap": ("x: float32[4, 8] y = Softmax(Neg(x)) return y", 4),
    "expressions do not grow without end": (
        "x: float32[8] a = Mul(x, x) b = Mul(a, a) c = Mul(b, b) d = Mul(c, c) e = Mul(d, d) f = Mul(e, e) "
        "g = Mul(f, f) h = Mul(g, g) y = Mul(h, h) return y",
        2,
    ),
}


@pytest.mark.parametrize("case", BLOCKS)
def test_blocks(case: str) -> None:
    text, count = BLOCKS[case]
    (made,) = written(text)
    assert len(list(blocks(made.nest.body))) == count


def test_a_scalar_constant_is_written_where_it_is_read() -> None:
    (made,) = written("x: float32[n] y = Mul(x, 2.5) return y")
    assert len(made.inputs) == 1


def test_a_small_shape_is_written_where_it_is_read() -> None:
    (made,) = written("x: float32[n, m] s = Shape(x) y = Mul(Cast(s, to=1), 2.0) return y")
    assert made.inputs == ()
    assert len(made.sizes) == 2


def test_sizes_that_nothing_depends_on_are_no_parameters() -> None:
    (made,) = written("x: float32[n, 4] s: float32[m] y = Add(x, 1.0) return y")
    assert len(made.nest.sizes) == 1


@pytest.mark.parametrize(
    "text",
    [
        "x: float32[6, 5] y = Relu(Transpose(Exp(x), perm=[1, 0])) return y",
        "x: float32[6, 5] b: float32[5] y = Softmax(Sub(Mul(x, 3.0), b)) return y",
        "x: float32[6, 5] y = Sqrt(ReduceSum(Mul(x, x), [1])) return y",
        "x: float32[6, 5] b: float32[6, 1] y = Concat(Neg(x), Abs(x), Add(x, b), axis=1) return y",
    ],
)
def test_groups_compute_what_their_nodes_do(text: str) -> None:
    graph = parse(text)
    (made,) = written(text)
    rng = np.random.default_rng(0)
    feeds = {
        graph.names[v]: rng.standard_normal([int(n) for n in graph.types[v].shape]).astype(np.float32)  # type: ignore
        for v in graph.inputs
    }
    (want,) = evaluate.run(graph, feeds).values()
    got = np.zeros(want.shape, numpy_dtype("float32"))
    interpret(made.nest, [*(feeds[graph.names[v]] for v in made.inputs), got])
    assert error(want, got) <= 1
