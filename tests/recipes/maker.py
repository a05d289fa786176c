"""A random graph that grows: the values that more ops may read, and the next op where it fits them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeAlias

import numpy as np

from graphopt.errors import GraphoptError
from graphopt.ir import ops
from graphopt.ir.constants import Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import INPUT, Attrs, Graph, Header, Value
from graphopt.ir.infer import infer_node
from graphopt.ir.types import Size, TensorType, symbol
from graphopt.rewrite.match.workspace import Workspace
from tests.recipes.trial import RefusedError, Trial

LARGEST = 2000
"""The most elements of a value."""

FLOATS = ("float32", "float16", "float64")
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, float("nan"), float("inf"), float("-inf"), 3.0e38, 6.0, 1e-6)


class Misfit(Exception):  # noqa: N818 - drawn again, no error
    """What was drawn does not fit together."""


class Maker:
    """Grows one graph; ``values`` are those that more ops may read."""

    def __init__(self, random: Random, recipes: Sequence[Recipe], opset: int, special: bool, depth: int = 0) -> None:
        self.random = random
        self.trial: Trial | None = None
        self.recipes = recipes
        self.special = special
        self.depth = depth
        header = Header(ir_version=8, opsets=(("", opset), ("com.microsoft", 1)))
        self.space = Workspace(Graph(name="random", header=header))
        self.graph = self.space.graph
        self.values: list[Value] = []

    def finished(self, steps: int) -> Graph:
        """The graph after so many recipes, with all that nobody reads as outputs, and sometimes more."""
        for _ in range(steps):
            first = self.graph.next_id
            known = len(self.values)
            try:
                self.random.choice(self.recipes)(self)
                if self.trial:
                    self.trial.run(self.graph, first)
            except (Misfit, GraphoptError, RefusedError):
                del self.values[known:]
                self.space.undo(first)
        made = [v for v in self.values if self.graph.node(v.node).op != INPUT]
        ends = [v for v in made if not self.graph.is_used(v.node)]
        if self.trial:
            ends = self.telling(self.trial, made)
        ends += [v for v in made if v not in ends and self.random.random() < 0.03]
        if not ends:
            self.values.append(self.space.add("Identity", self.values[:1])[0])
            ends = self.values[-1:]
        for index, value in enumerate(ends):
            self.graph.add_output(f"y{index}", value)
        types = {v: f.type for v, f in self.space.facts.items() if v.node in self.graph and v in self.graph.outputs}
        self.graph.types.update({v: t for v, t in types.items() if t is not None})
        if self.trial:
            remove_unused(self.graph)
        return self.graph

    def telling(self, trial: Trial, made: Sequence[Value]) -> list[Value]:
        """The last of the values that depend on inputs."""
        dependent = [v for v in made if trial.depends(v)]
        nodes = {v.node for v in dependent}
        return [v for v in dependent if nodes.isdisjoint(user for user, _ in self.graph.users(v))]

    # -- values

    def new_input(self, dtype: str | None = None, shape: tuple[Size, ...] | None = None) -> Value:
        if shape is not None and 0 in shape:
            raise Misfit("ONNX has no inputs of size 0")
        if dtype is None:
            dtype = self.random.choice(("float32",) * 6 + ("float16", "int64", "bool", "float64", "int32"))
        if shape is None:
            rank = self.random.choice((0, 1, 2, 3, 3, 4, 4, 4))
            shape = tuple(self.size(axis) for axis in range(rank))
        value = self.graph.add_input(f"x{len(self.graph.inputs)}", TensorType(dtype, shape))
        self.space.facts[value] = Fact(TensorType(dtype, shape))
        self.values.append(value)
        return value

    def size(self, axis: int) -> Size:
        if axis == 0 and self.random.random() < 0.25:
            return symbol("n")
        if self.random.random() < 0.08:
            return symbol("m")
        return self.random.choice((1, 2, 3, 4, 4, 6, 8))

    def call(self, op: str, inputs: Sequence[Value | None], n_outputs: int = 1, **attrs: Any) -> Value:
        """The first output of a new node. Misfit where the op does not take these inputs."""
        given = Attrs({name: a for name, a in attrs.items() if a is not None})
        return self.calls(op, inputs, given, n_outputs)[0]

    def calls(self, op: str, inputs: Sequence[Value | None], attrs: Attrs, n_outputs: int) -> tuple[Value, ...]:
        facts = [None if v is None else self.space.fact(v) for v in inputs]
        if op == "Split" and len(inputs) < 2 and attrs.get("num_outputs") != n_outputs:
            raise Misfit("not how graphs hold a Split")
        reason = ops.refusal(op, attrs, facts, self.graph.opset)
        if reason is not None:
            raise Misfit(reason)
        found = infer_node(op, attrs, facts, n_outputs, self.graph.opset)
        if any(f.shape is None or (isinstance(f.size, int) and f.size > LARGEST) for f in found):
            raise Misfit("too large, or of unknown rank")
        made = self.space.call(op, inputs, attrs, found)
        self.values += made
        return made

    def constant(self, elements: Any, dtype: str = "int64") -> Value:
        return self.space.make_constant(Constant.of(np.asarray(elements, dtype)))

    def weight(self, shape: Sequence[int], dtype: str, positive: bool = False) -> Value:
        """A constant of random elements, now and then all equal, or special."""
        seeded = np.random.default_rng(self.random.randrange(1 << 30))
        array = seeded.standard_normal(tuple(shape)) * 0.5
        way = self.random.random()
        if positive:
            array = np.abs(array) + 0.5
        elif way < 0.25:
            pool = SPECIAL if self.special else (0.0, 1.0, -1.0, 0.5, 2.0, 3.0, 6.0)
            array = np.full(tuple(shape), self.random.choice(pool))
        elif way < 0.3 and self.special:
            array = seeded.choice(np.array(SPECIAL), tuple(shape))
        if dtype not in FLOATS:
            array = np.clip(np.nan_to_num(array * 4), 0 if dtype == "bool" else -9, 9).round()
        return self.space.make_constant(Constant.of(array.astype(dtype)))

    def pick(self, *dtypes: str, least: int = 0, rank: int | None = None, static: bool = False) -> Value:
        """A value of one of these dtypes (any where none is named), recent ones more often; rather new than none."""
        fitting = [v for v in self.values if self.fits(v, dtypes, least, rank, static)]
        if not fitting:
            kind = self.random.choice(dtypes) if dtypes else "float32"
            n = rank if rank is not None else self.random.randint(least, max(4, least))
            if self.depth:
                return self.weight([self.random.choice((1, 2, 3)) for _ in range(n)], kind)
            shape = tuple(self.random.choice((1, 2, 3, 4, 8)) if static else self.size(a) for a in range(n))
            return self.new_input(kind, shape)
        return self.random.choice(fitting[-6:] if self.random.random() < 0.7 else fitting)

    def fits(self, value: Value, dtypes: Sequence[str], least: int, rank: int | None, static: bool) -> bool:
        fact = self.space.fact(value)
        if fact.shape is None or (dtypes and fact.dtype not in dtypes):
            return False
        if static and not all(isinstance(s, int) for s in fact.shape):
            return False
        return len(fact.shape) == rank if rank is not None else len(fact.shape) >= least

    def shape(self, value: Value) -> tuple[Size, ...]:
        found = self.space.fact(value).shape
        if found is None:
            raise Misfit("unranked")
        return found

    def dtype(self, value: Value) -> str:
        return self.space.fact(value).dtype or "?"

    def partner(self, value: Value) -> Value:
        """A value or constant that broadcasts with this one."""
        shape, dtype = self.shape(value), self.dtype(value)
        way = self.random.random()
        if way < 0.4:
            alike = [v for v in self.values if self.dtype(v) == dtype and self.joins(shape, self.space.fact(v).shape)]
            if alike:
                return self.random.choice(alike)
        sizes = [s if isinstance(s, int) else 1 for s in shape]
        if way < 0.65 or not sizes:
            return self.weight([1] * self.random.choice((0, 0, 0, 1)), dtype)
        if way < 0.85 and len(sizes) >= 2:
            channel = [sizes[1]] + [1] * (len(sizes) - 2)
            return self.weight(channel if self.random.random() < 0.5 else [1, *channel], dtype)
        cut = self.random.randrange(len(sizes))
        return self.weight([n if self.random.random() < 0.7 else 1 for n in sizes[cut:]], dtype)

    def joins(self, a: tuple[Size, ...], b: tuple[Size, ...] | None) -> bool:
        """Whether two shapes broadcast, whatever the symbols are."""
        if b is None:
            return False
        pairs = zip(reversed(a), reversed(b), strict=False)
        return all(m == n or m == 1 or n == 1 for m, n in pairs)

    def axis(self, value: Value) -> int:
        rank = len(self.shape(value))
        if not rank:
            raise Misfit("no axis")
        axis = self.random.randrange(rank)
        return axis - rank if self.random.random() < 0.3 else axis

    def indices(self, low: int, high: int, n: int) -> list[int]:
        return [self.random.randint(low, high) for _ in range(n)]


def remove_unused(graph: Graph) -> None:
    """Remove all nodes that nobody reads, but for inputs."""
    for node in reversed(graph.order()):
        if not graph.is_used(node.id) and node.op != INPUT:
            graph.remove(node.id)


Recipe: TypeAlias = Callable[[Maker], None]
"""What adds a few nodes to a graph that grows, or raises Misfit."""
