"""Values of which tests say what is known, and names bound to them, for guards and expressions."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphopt.ir.constants import Array, Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import AttrRef, Attrs, Value
from graphopt.ir.types import TensorType, symbol, unranked
from graphopt.rewrite.guards.bindings import Bindings, Head
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.rule.rule import GuardExpr, joined


@dataclass
class Known:
    """Operands of which a test says what is known."""

    facts: dict[Any, Fact]
    opset: int = 21
    used: dict[Any, int] = field(default_factory=dict)

    def fact(self, value: Any) -> Fact:
        return self.facts[value]

    def constant(self, value: Any) -> Constant | None:
        return self.facts[value].constant

    def uses(self, value: Any) -> int | None:
        return self.used.get(value)


def constant(array: Array | float, dtype: str = "float32") -> Fact:
    made = Constant.of(np.asarray(array, None if dtype == "bfloat16" else dtype))
    return Fact(TensorType(dtype, made.shape), is_const=True, constant=made)


def tensor(*shape: Any) -> Fact:
    return Fact(TensorType("float32", shape))


n, m = symbol("n"), symbol("m")
X, W, B, S, A0, A1 = (Value(i) for i in range(6))
KNOWN = Known(
    {
        X: tensor(n, 3),
        W: constant(np.arange(6.0).reshape(2, 3)),
        B: Fact(TensorType("int64", unranked()), low=0.0),
        S: constant([[1 / 6]]),
        A0: tensor(2, 4),
        A1: tensor(2, n),
    },
    used={X: 3, W: 1},
)
BOUND: Bindings[Value] = Bindings(
    {"x": X, "w": W, "b": B, "s": S, "none_here": None, "a": (A0, A1), "e": ()},
    {"p": (0, 2, 1), "k": -1, "mode": "linear", "absent": None, "r": Attrs(group=2), "called": AttrRef("axis", 2)},
    {"f": Head("Relu", Attrs()), "g": Head("Softmax", Attrs())},
)


def read(text: str) -> GuardExpr:
    """An expression as a rule file writes it."""
    names = ("x", "w", "b", "s", "none_here")
    inputs = ", ".join([*names, "a*"])
    attrs = ", ".join(f"v{i}={name}" for i, name in enumerate(("p", "k", "mode", "absent", "called")))
    rule = f"# exact\nr: my::Op({inputs}, f(x), g(x), my::Op(e*), {attrs}, **r) => x where {text}\n"
    return joined("and", parse_rules(rule)[0].where)
