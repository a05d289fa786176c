"""Open dimensions and overridable defaults are fixed, or refused in words."""

from __future__ import annotations

import numpy as np
import pytest

import graphopt
from graphopt.errors import InputError, UsageError
from graphopt.ir.infer import infer
from graphopt.ir.text import parse, show
from graphopt.ir.types import TensorType, symbol
from graphopt.rewrite.passes import fix_dims, freeze_defaults
from graphopt.rewrite.passes.dims import fix_demanded, spell_out_sums

SOURCE = "x: float32[n, 3, m] z: float32[n] k: float32[2] y: float32[n, 3, m] = Neg(x) return y"


def test_shapes_and_names() -> None:
    made = show(fix_dims(parse(SOURCE), {"x": (1, 3, 640)}, {}))
    assert "x: float32[1, 3, 640]\nz: float32[1]\n" in made
    assert "y: float32[1, 3, 640] = Neg(x)" in made
    assert "x: float32[5, 3, m]\nz: float32[5]\n" in show(fix_dims(parse(SOURCE), {}, {"n": 5}))


def test_nothing_to_fix() -> None:
    graph = parse(SOURCE)
    assert fix_dims(graph, {}, {}) is graph
    assert fix_dims(graph, {"k": (2,)}, {}) is graph


@pytest.mark.parametrize(
    ("shapes", "dims", "message"),
    [
        ({"w": (1,)}, {}, "no input is called 'w'; there are x, z, k"),
        ({"xx": (1,)}, {}, "no input is called 'xx'; did you mean x?"),
        ({"x": (1, 3)}, {}, "input 'x' has 3 axes, not 2"),
        ({"x": (1, 4, 2)}, {}, "axis 1 of input 'x' is 3 in the model, it cannot be 4"),
        ({"x": (-1, 3, 2)}, {}, "axis 0 of input 'x' cannot be -1: expected 0 or more"),
        ({"x": (1, 3, 2), "z": (2,)}, {}, "axis 0 of input 'z' is n, which is 1 already, it cannot be 2 too"),
        ({"x": (1, 3, 2)}, {"n": 2}, "axis 0 of input 'x' is n, which is 2 already, it cannot be 1 too"),
        ({}, {"q": 2}, "no dimension of an input is called 'q'; there are m, n"),
        ({}, {"n": -1}, "dimension n cannot be -1: expected 0 or more"),
    ],
)
def test_what_does_not_fit(shapes: dict[str, tuple[int, ...]], dims: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError) as error:
        fix_dims(parse(SOURCE), shapes, dims)
    assert str(error.value) == message


def test_sizes_that_are_called_as_sums_are_these_sums() -> None:
    graph = parse("""\
x: float32[past, 2]
y: float32[new, 2]
mask: float32[`past + new`, 1]
more: float32[`new+1`]
other: float32[`past + old`]
z = Concat(x, y, axis=0)
return z, mask, more, other
""")
    spelled = spell_out_sums(graph)
    shapes = {spelled.names[v]: str(spelled.types[v]) for v in spelled.inputs}
    assert shapes["mask"] == "float32[new + past, 1]"
    assert shapes["more"] == "float32[new + 1]"
    other = graph.inputs[-1]
    assert spelled.types[other] == graph.types[other], "no input has a size called old"
    facts = infer(spelled)
    joined, mask = (facts[v].shape for v in spelled.outputs[:2] if v is not None)
    assert joined is not None
    assert mask is not None
    assert joined[0] == mask[0]
    assert spell_out_sums(spelled) is spelled


def test_sums_follow_what_they_are_the_sums_of() -> None:
    graph = parse("x: float32[past, 2] y: float32[new] m: float32[`past+new`] z = Neg(m) return z")
    assert "m: float32[12]\n" in show(fix_dims(graph, {}, {"past": 8, "new": 4}))
    assert "m: float32[new]\n" in show(fix_dims(graph, {}, {"past": 0}))
    assert "x: float32[0, 2]\n" in show(fix_dims(graph, {}, {"past": 0}))
    with pytest.raises(UsageError, match=r"dimension past\+new cannot be 5: it is the sum 12"):
        fix_dims(graph, {}, {"past": 8, "new": 4, "past+new": 5})


def test_freeze() -> None:
    graph = parse("x: float32[2] w: float32[2] default [1.0, 2.0] y = Add(x, w) return y")
    made = freeze_defaults(graph)
    assert [made.names[v] for v in made.inputs] == ["x"]
    assert "w = [1.0, 2.0]" in show(made)
    assert freeze_defaults(made) is made
    assert len(graph.inputs) == 2


def test_channels_that_a_file_calls_open_are_those_of_the_weights() -> None:
    graph = parse("x: float32[b, c, h, w] k = ConstantOfShape([4, 3, 2, 2]) y = Conv(x, k) n = Shape(x) return y, n")
    made = fix_demanded(graph)
    assert made.types[made.inputs[0]] == TensorType("float32", (symbol("b"), 3, symbol("h"), symbol("w")))
    assert "float32[b, c, h, w]" in show(graph)
    assert fix_demanded(made) is made


def test_a_program_says_which_channels_it_takes() -> None:
    program = graphopt.compile(parse("x: float32[b, c, w] y = Conv(x, ConstantOfShape([4, 3, 2])) return y"), jobs=0)
    assert program({"x": np.ones((2, 3, 5), np.float32)})["y"].shape == (2, 4, 4)
    with pytest.raises(InputError, match="size 2 along axis 1, and 3 is expected"):
        program({"x": np.ones((2, 2, 5), np.float32)})


def test_channels_stay_open_where_a_branch_that_may_not_be_taken_asks_for_others() -> None:
    no, yes = (f"q: ? k = ConstantOfShape([4, {n}, 2]) r = Conv(q, k) return r" for n in (3, 5))
    choice = f"z = If(f | x, then_branch={{ {yes} }}, else_branch={{ {no} }})"
    graph = parse(f"x: float32[b, c, n] f: bool[] k = ConstantOfShape([4, 3, 2]) y = Conv(x, k) {choice} return y, z")
    assert fix_demanded(graph) is graph
