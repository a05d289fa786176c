"""Small graphs and rules for tests of the e-graph."""

from __future__ import annotations

import random
import re

import numpy as np

from graphopt.ir.constants import Constant
from graphopt.ir.graph import Attrs, Graph, Value
from graphopt.ir.types import TensorType
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.rule.rule import Rule

ALGEBRA = """
double-neg: Neg(Neg(x)) => x
relu-relu: Relu(Relu(x)) => Relu(x)
factor: Add(Mul(a, b), Mul(a, c)) => Mul(a, Add(b, c))
regroup: Add(Add(a, b), c) => Add(a, Add(b, c))
neg-add: Neg(Add(a, b)) => Add(Neg(a), Neg(b))
turn-turn: Transpose(Transpose(x, perm=p), perm=q) => Transpose(x, perm=compose(p, q))
no-turn: Transpose(x, perm=p) => x where is_identity(p)
turn-relu: Relu(Transpose(x, perm=p)) => Transpose(Relu(x), perm=p)
"""


def rules(text: str) -> list[Rule]:
    """Rules without the comments that every rule of a file needs."""
    return parse_rules(re.sub(r"^(?=[a-z][\w-]*:)", "# [A1] exact\n", text, flags=re.MULTILINE))


class Maker:
    """A graph that is written down in few words."""

    def __init__(self) -> None:
        self.graph = Graph()

    def input(self, name: str, *shape: int, dtype: str = "float32") -> Value:
        return self.graph.add_input(name, TensorType(dtype, shape))

    def constant(self, array: object) -> Value:
        return self.graph.add_constant(Constant.of(np.asarray(array, np.float32)))

    def __call__(self, op: str, *inputs: Value | None, n_outputs: int = 1, **attrs: object) -> Value:
        return self.graph.add(op, inputs, Attrs(attrs), n_outputs).outputs[0]  # type: ignore[arg-type]

    def done(self, *outputs: Value) -> Graph:
        for i, value in enumerate(outputs):
            self.graph.add_output(f"y{i}", value)
        return self.graph


def random_graph(seed: int) -> Graph:
    pick = random.Random(seed)
    m = Maker()
    values = [m.input(f"x{i}", 3, 3) for i in range(3)]
    for _ in range(10):
        x, y = pick.choices(values[-5:], k=2)
        op = pick.choice(["Neg", "Relu", "Add", "Add", "Mul", "Mul", "Transpose"])
        values.append(m(op, *([x, y] if op in ("Add", "Mul") else [x])))
    return m.done(*values[-2:])
