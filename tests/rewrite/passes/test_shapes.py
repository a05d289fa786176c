"""Shape operands become constants where the op can tell the open sizes itself; sizes that are computed in several ways
are computed once."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.ir.evaluate import run
from graphopt.ir.graph import Graph
from graphopt.ir.infer import infer
from graphopt.ir.text import parse, show
from graphopt.rewrite.passes.dead import UNUSED
from graphopt.rewrite.passes.fold import FOLD, KNOWN
from graphopt.rewrite.passes.shapes import FIXED, PICKED, SAME
from graphopt.rewrite.passes.simplify import simplify

PASSES = (UNUSED, *KNOWN, FOLD, *FIXED, SAME)


def fixed(text: str) -> str:
    return "; ".join(line for line in show(simplify(parse(text), passes=PASSES)).split("\n") if " = " in line)


RESHAPE = "s = Shape(x) y = Reshape(x, Concat({}, axis=0)) return y"


@pytest.mark.parametrize(
    ("shape", "parts", "wanted"),
    [
        ("n, 3, 4", "Gather(s, [0]), [12]", "[0, 12]"),
        ("n, m, 12", "Gather(s, [0, 1]), [3, 4]", "[0, 0, 3, 4]"),
        ("3, n, 4", "Gather(s, [1]), [12]", "[-1, 12]"),
        ("n, m, 12", "[12], Gather(s, [0, 1])", None),
        ("n, 6", "Mul(Gather(s, [0]), [2]), [3]", "[-1, 3]"),
    ],
)
def test_reshape(shape: str, parts: str, wanted: str | None) -> None:
    made = fixed(f"x: float32[{shape}] {RESHAPE.format(parts)}")
    if wanted is None:
        assert "Concat" in made
    else:
        assert made == f"y = Reshape(x, {wanted})"


def test_expand() -> None:
    assert fixed("x: float32[n, 1] s = Shape(x) y = Expand(x, Concat(Gather(s, [0]), [5], axis=0)) return y") == (
        "y = Expand(x, [1, 5])"
    )
    assert "Concat" in fixed("x: float32[n, 1] z: float32[m] y = Expand(x, Concat([1], Shape(z), axis=0)) return y")


def test_slice_to_the_end() -> None:
    made = fixed("x: float32[n, 4] y = Slice(x, [1], Gather(Shape(x), [0]), [0]) return y")
    assert made == "y = Slice(x, [1], [9223372036854775807], [0])"
    assert "Shape" in fixed("x: float32[n, 4] z: float32[m] y = Slice(x, [1], Shape(z), [0]) return y")
    assert "Shape" in fixed("x: float32[n, 4] y = Slice(x, [-1], Gather(Shape(x), [0]), [0], [-1]) return y")


def test_reshapes_to_one_shape_are_one() -> None:
    source = "x: float32[n, m, 6] z: float32[n, 2] a = Reshape(x, Concat(Gather(Shape(x), [0]), [-1], axis=0)) "
    source += "b = Reshape(x, Concat(Gather(Shape(z), [0]), [-1], axis=0)) y = Add(a, b) return y"
    made = fixed(source)
    assert made.count("Reshape") == 1


def ops(text: str, opset: int = 17) -> list[str]:
    graph: Graph = parse(f"graph g (ir 8, opset {opset})\n{text}")
    return sorted(n.op for n in simplify(graph).nodes() if n.op not in ("Input", "Constant"))


SUM = """x: float32[a, 4] y: float32[b, 4] zero = 0
sx = Shape(x) m = Gather(sx, zero) sy = Shape(y) n = Gather(sy, zero) s = Add(m, n)
j = Concat(x, y, axis=0) sj = Shape(j) t = Gather(sj, zero) return s, t"""


def test_a_sum_of_sizes_is_the_size_of_what_is_joined() -> None:
    assert ops(SUM) == ["Add", "Gather", "Gather", "Shape", "Shape"]


PIECES = """x: float32[a, b, 4, 5] i = [0] j = [1] k = [4] s = Shape(x)
p = Gather(s, i) q = Gather(s, j) r = Concat(p, q, axis=0) u = Concat(q, k, axis=0) return r, u"""


@pytest.mark.parametrize(
    ("opset", "left"), [(17, ["Shape", "Shape"]), (13, ["Concat", "Concat", "Gather", "Gather", "Shape"])]
)
def test_neighbouring_sizes_are_taken_at_once(opset: int, left: list[str]) -> None:
    assert ops(PIECES, opset) == left


def test_sizes_in_another_order_stay() -> None:
    text = PIECES.replace("Concat(p, q", "Concat(q, p").replace("return r, u", "return r")
    assert "Concat" in ops(text)


PADS = """x: float32[n, m] s = Shape(x) z = [0] k = Concat(z, Gather(s, [0]), Gather(s, [1]), z, axis=0)
t = Reshape(k, [-1, 2]) u = Slice(t, [{start}], [{end}], [0], [{step}]) v = Transpose(u, perm=[1, 0]) """


@pytest.mark.parametrize(
    ("start", "end", "step", "elements"),
    [
        (-1, -(2**63) + 1, -1, "m 0 0 n"),
        (1, -9, -1, "m 0 0 n"),
        (0, 2**63 - 1, 1, "0 m n 0"),
        (0, 1, 1, "0 n"),
        (1, 5, 2, "m 0"),
    ],
)
def test_sizes_are_followed_through_a_matrix(start: int, end: int, step: int, elements: str) -> None:
    text = PADS.format(start=start, end=end, step=step) + "y = Reshape(v, [-1]) return y"
    graph = simplify(parse(text), passes=(*PASSES, PICKED))
    (made,) = [fact for value, fact in infer(graph).items() if value == graph.outputs[0]]
    assert " ".join(map(str, made.elements or ())) == elements
    given = {"x": np.zeros((3, 5), np.float32)}
    assert run(graph, given)["y"].tolist() == run(parse(text), given)["y"].tolist()


def test_a_matrix_of_sizes_that_is_read_as_one_stays() -> None:
    text = PADS.format(start=0, end=2, step=1) + "y = ReduceSum(v, [0], keepdims=0) return y"
    assert "Transpose" in [node.op for node in simplify(parse(text), passes=(*PASSES, PICKED)).nodes()]
