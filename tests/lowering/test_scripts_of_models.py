"""The programs that models become print as scripts that read back, before and after they are scheduled."""

from random import Random

import numpy as np
import pytest

from graphopt.ir.constants import Constant
from graphopt.ir.text import parse
from graphopt.lowering.link.lowered import Lowered
from graphopt.lowering.link.passes import fuse_ops, legalize_ops, lower_to_programs, schedule
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script import read, show
from graphopt.lowering.loops.structural_equality import difference, structural_hash
from tests.random_graphs import random_graph

LAYER = """
x: float32[b, 4, 16]
w = float32[16, 48]{#0}
qkv = MatMul(x, w)
q, k, v = Split(qkv, axis=2, num_outputs=3)
t = Transpose(k, perm=[0, 2, 1])
s = MatMul(q, t)
p = Softmax(s, axis=-1)
a = MatMul(p, v)
r = Add(x, a)
y = Gelu(r)
m = ReduceMean(y, [1])
i = ArgMax(m, axis=1)
z, j = TopK(m, [3])
return y, i, z, j
"""
IMAGE = """
x: float32[1, 3, 32, 32]
w = float32[16, 3, 3, 3]{#0}
c = Conv(x, w, pads=[1, 1, 1, 1])
r = HardSwish(c)
p = MaxPool(r, kernel_shape=[2, 2], strides=[2, 2])
n = LpNormalization(p, axis=1, p=2)
u = Resize(n, _, [1.0, 1.0, 2.0, 2.0], mode="linear")
return u
"""


def check(program: Lowered) -> int:
    """Every nest of a program, as it is computed and as it is scheduled; how many there are."""
    made: list[Nest] = [nest for nest, _ in program.nests()]
    made += [part.nest for parts in schedule(program).scheduled.values() for part in parts]
    for nest in made:
        again = read(show(nest))
        assert difference(again, nest) is None, show(nest)  # names of loops beside each other may be one in a nest
        assert structural_hash(again) == structural_hash(nest)
        assert len(repr(nest)) < 200
    return len(made)


@pytest.mark.parametrize("text", [LAYER, IMAGE])
def test_programs_of_a_layer_read_back(text: str) -> None:

    shape = (16, 48) if "48" in text else (16, 3, 3, 3)
    graph = parse(text, [Constant.of(np.ones(shape, np.float32))])
    assert check(lower_to_programs(fuse_ops(legalize_ops(graph)))) > 3


@pytest.mark.parametrize("seed", range(8))
def test_programs_of_random_graphs_read_back(seed: int) -> None:
    check(lower_to_programs(fuse_ops(legalize_ops(random_graph(Random(seed), 6)))))
