"""Random graphs that are well typed: recipes for how exporters use ops, and instances of the rules' left sides.

``random_graph`` is a function of a ``random.Random`` alone, so that hypothesis can shrink what it draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from random import Random
from typing import Any

import numpy as np

from graphopt.errors import GraphoptError
from graphopt.ir import ops
from graphopt.ir.constants import Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import CONSTANT, INPUT, Attrs, Graph, Header, Value
from graphopt.ir.infer import infer_node
from graphopt.ir.types import Size, TensorType, Unranked, symbol
from graphopt.rewrite.examples import examples
from graphopt.rewrite.rule import Call, Rule, calls
from graphopt.rewrite.ruleset import standard
from graphopt.rewrite.workspace import Workspace

LARGEST = 2000
"""The most elements of a value."""

FLOATS = ("float32", "float16", "float64")
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, float("nan"), float("inf"), float("-inf"), 3.0e38, 6.0, 1e-6)
BOUNDED = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "HardSigmoid", "LeakyRelu", "Elu", "Softplus", "Identity", "Erf")
ROUGH = ("Exp", "Floor", "Ceil", "Round", "Sign", "Sqrt", "Reciprocal", "Log", "Cos", "Softsign", "HardSwish", "Selu")
REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare", "ReduceL1")


class Misfit(Exception):  # noqa: N818 - drawn again, no error
    """What was drawn does not fit together."""


def random_graph(random: Random, steps: int, special: bool = False) -> Graph:
    """A graph of about so many recipes; with ``special``, constants may hold NaN and infinities."""
    maker = _Maker(random, random.choice((17, 18, 20, 21, 22)), special)
    for _ in range(random.randint(1, 3)):
        maker.new_input()
    return maker.finished(steps)


@cache
def rules() -> tuple[Rule, ...]:
    """Those whose left sides may be in a model, as ops of ours may not."""
    return tuple(
        rule
        for rule in standard().rules
        if not any(call.op.startswith("graphopt::") for term in rule.lhs for call in calls(term))
    )


class _Maker:
    """Grows one graph; ``values`` are those that more ops may read."""

    def __init__(self, random: Random, opset: int, special: bool, depth: int = 0) -> None:
        self.random = random
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
                self.random.choice(RECIPES)(self)
            except (Misfit, GraphoptError):
                del self.values[known:]
                self.space.undo(first)
        ends = [v for v in self.values if not self.graph.is_used(v.node) and self.graph.node(v.node).op != INPUT]
        made = [v for v in self.values if v not in ends and self.graph.node(v.node).op != INPUT]
        ends += [v for v in made if self.random.random() < 0.03]
        if not ends:
            self.values.append(self.space.add("Identity", self.values[:1])[0])
            ends = self.values[-1:]
        for index, value in enumerate(ends):
            self.graph.add_output(f"y{index}", value)
        types = {v: f.type for v, f in self.space.facts.items() if v.node in self.graph and v in self.graph.outputs}
        self.graph.types.update({v: t for v, t in types.items() if t is not None})
        return self.graph

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
        if op == "Split" and len(inputs) < 2 and "num_outputs" not in attrs:
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


# -- recipes: each adds a few nodes, or raises Misfit


def unary(m: _Maker) -> None:
    m.call(m.random.choice(BOUNDED), (m.pick(*FLOATS),))


def rough(m: _Maker) -> None:
    m.call(m.random.choice(ROUGH), (m.pick(*FLOATS),))


def integer(m: _Maker) -> None:
    x = m.pick("int64", "int32")
    op = m.random.choice(("Neg", "Abs", "Sign", "Add", "Sub", "Mul", "Div", "Mod", "Max", "Min"))
    if op in ("Neg", "Abs", "Sign"):
        m.call(op, (x,))
    elif op in ("Div", "Mod"):
        m.call(op, (x, m.constant(m.random.choice((1, 2, 3, -2)), m.dtype(x))))
    else:
        m.call(op, (x, m.partner(x)))


def binary(m: _Maker) -> None:
    x = m.pick(*FLOATS)
    y = m.partner(x)
    op = m.random.choice(("Add", "Add", "Sub", "Mul", "Mul", "Div", "Max", "Min"))
    m.call(op, (x, y) if m.random.random() < 0.7 else (y, x))


def power(m: _Maker) -> None:
    x = m.pick(*FLOATS)
    m.call("Pow", (x, m.constant(m.random.choice((2.0, 0.5, 3.0, 1.0, -1.0, 0.0)), m.dtype(x))))


def variadic(m: _Maker) -> None:
    x = m.pick(*FLOATS)
    m.call(m.random.choice(("Sum", "Max", "Min", "Mean")), [x, *(m.partner(x) for _ in range(m.random.randint(0, 2)))])


def clip(m: _Maker) -> None:
    x = m.pick(*FLOATS, "int64")
    low, high = m.random.choice(((0, 6), (-1, 1), (0, None), (None, 2), (2, -2), (None, None)))
    bounds = [None if b is None else m.constant(b, m.dtype(x)) for b in (low, high)]
    while bounds and bounds[-1] is None:
        bounds.pop()
    m.call("Clip", (x, *bounds))


def compare(m: _Maker) -> None:
    x = m.pick(*FLOATS, "int64")
    m.call(m.random.choice(("Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal")), (x, m.partner(x)))


def logic(m: _Maker) -> None:
    x = m.pick("bool")
    if m.random.random() < 0.4:
        m.call("Not", (x,))
    else:
        m.call(m.random.choice(("And", "Or", "Xor")), (x, m.partner(x)))


def where(m: _Maker) -> None:
    x = m.pick()
    masks = [v for v in m.values if m.dtype(v) == "bool" and m.joins(m.shape(x), m.space.fact(v).shape)]
    mask = m.random.choice(masks) if masks else m.constant(m.random.random() < 0.5, "bool")
    m.call("Where", (mask, x, m.partner(x)) if m.random.random() < 0.7 else (mask, m.partner(x), x))


def cast(m: _Maker) -> None:
    x = m.pick()
    to = m.random.choice(("FLOAT", "FLOAT16", "DOUBLE", "INT64", "INT32", "BOOL"))
    codes = {"FLOAT": 1, "FLOAT16": 10, "DOUBLE": 11, "INT64": 7, "INT32": 6, "BOOL": 9}
    if "INT" in to and m.dtype(x) in FLOATS:  # numbers that do not fit have no value
        if m.special:
            raise Misfit("NaN has no integer")
        x = m.call("Clip", (x, m.constant(-9, m.dtype(x)), m.constant(9, m.dtype(x))))
    m.call("Cast", (x,), to=codes[to])


def transpose(m: _Maker) -> None:
    x = m.pick(least=1)
    rank = len(m.shape(x))
    perm = m.random.choice((None, (0, 2, 3, 1), (0, 3, 1, 2))) if rank == 4 else None
    if perm is None and m.random.random() < 0.8:
        order = list(range(rank))
        m.random.shuffle(order)
        perm = tuple(order)
    m.call("Transpose", (x,), perm=perm)


def reshape(m: _Maker) -> None:
    """Merge or split axes, keep the first, or ask for what is left."""
    x = m.pick(least=1)
    shape: list[Any] = list(m.shape(x))
    if m.random.random() < 0.5 and len(shape) >= 2:
        at = m.random.randrange(len(shape) - 1)
        if isinstance(shape[at], int) and isinstance(shape[at + 1], int):
            shape[at : at + 2] = [shape[at] * shape[at + 1]]
        else:
            shape[at : at + 2] = [-1]
    else:
        at = m.random.randrange(len(shape))
        if isinstance(shape[at], int) and shape[at] and shape[at] % 2 == 0:
            shape[at : at + 1] = m.random.choice(([2, shape[at] // 2], [shape[at] // 2, 2], [1, shape[at]]))
    if m.random.random() < 0.3 and -1 not in shape and 0 not in shape:
        shape[m.random.randrange(len(shape))] = -1
    source = m.shape(x)
    for i, size in enumerate(shape):
        if not isinstance(size, int):
            if i < len(source) and source[i] == size:
                shape[i] = 0
            elif -1 in shape:
                raise Misfit("two open sizes")
            else:
                shape[i] = -1
    m.call("Reshape", (x, m.constant(shape)))


def reshape_by_shape(m: _Maker) -> None:
    """What exporters write for ``x.reshape(x.shape[0], -1)`` and the like."""
    x = m.pick(least=2)
    rank = len(m.shape(x))
    shape = m.call("Shape", (x,))
    keep = m.random.randrange(rank)
    if m.random.random() < 0.5:
        part = m.call("Gather", (shape, m.constant(keep)), axis=0)
        part = m.call("Unsqueeze", (part, m.constant([0])))
    else:
        part = m.call("Slice", (shape, m.constant([keep]), m.constant([keep + 1]), m.constant([0])))
    way = m.random.random()
    if way < 0.4:
        target = m.call("Concat", (part, m.constant([-1])), axis=0)
    elif way < 0.6:
        target = m.call("Concat", (m.constant([-1]), part), axis=0)
    elif way < 0.8:
        rest = m.call("ReduceProd", (m.call("Slice", (shape, m.constant([keep + 1]), m.constant([99]))),), keepdims=1)
        before = m.call("ReduceProd", (m.call("Slice", (shape, m.constant([0]), m.constant([keep]))),), keepdims=1)
        target = m.call("Concat", (before, part, rest), axis=0)
    else:
        n = m.call("Cast", (m.call("Mul", (m.call("Cast", (part,), to=1), m.constant([1.0], "float32"))),), to=7)
        target = m.call("Concat", (n, m.constant([-1])), axis=0)
    m.call("Reshape", (x, target))


def expand_to(m: _Maker) -> None:
    x = m.pick(*FLOATS, "int64")
    y = m.pick()
    if not m.joins(m.shape(y), m.shape(x)):
        raise Misfit("does not expand")
    m.call("Expand", (x, m.call("Shape", (y,))))


def expand(m: _Maker) -> None:
    x = m.pick()
    shape = [s if isinstance(s, int) and s != 1 else m.random.choice((1, 1, 2, 3)) for s in m.shape(x)]
    shape = [1 if not isinstance(s, int) else n for s, n in zip(m.shape(x), shape, strict=True)]
    m.call("Expand", (x, m.constant([*([m.random.choice((1, 2))] * m.random.randint(0, 1)), *shape])))


def fill(m: _Maker) -> None:
    x = m.pick(least=1)
    value = m.constant([m.random.choice((0, 1, 2))], m.random.choice(("float32", "int64")))
    constant = m.graph.constant_of(value)
    m.call("ConstantOfShape", (m.call("Shape", (x,)),), value=constant)


def squeeze(m: _Maker) -> None:
    x = m.pick(least=1)
    ones = [i for i, s in enumerate(m.shape(x)) if s == 1]
    if not ones:
        raise Misfit("nothing to squeeze")
    all_known = all(isinstance(s, int) for s in m.shape(x))
    axes = m.random.sample(ones, m.random.randint(1, len(ones)))
    m.call("Squeeze", (x,) if all_known and m.random.random() < 0.2 else (x, m.constant(axes)))


def unsqueeze(m: _Maker) -> None:
    x = m.pick()
    rank = len(m.shape(x))
    if rank > 4:
        raise Misfit("enough axes")
    m.call("Unsqueeze", (x, m.constant([m.random.randint(-rank - 1, rank)])))


def flatten(m: _Maker) -> None:
    x = m.pick(least=1)
    m.call("Flatten", (x,), axis=m.random.randint(0, len(m.shape(x))))


def cut(m: _Maker) -> None:
    """A slice: forwards, backwards, past the end, by steps."""
    x = m.pick(least=1)
    axis = m.axis(x)
    size = m.shape(x)[axis]
    n = size if isinstance(size, int) else 3
    step = m.random.choice((1, 1, 1, 2, -1))
    start, end = m.random.choice((0, 0, 1, -1, n)), m.random.choice((n, n, -1, 1, 1 << 40, n - 1))
    if step < 0:
        start, end = m.random.choice((-1, n)), m.random.choice((-(1 << 40), 0, -n - 1))
    parts = [m.constant([i]) for i in (start, end, axis, step)]
    m.call("Slice", (x, *parts[: 3 if step == 1 and m.random.random() < 0.5 else 4]))


def join(m: _Maker) -> None:
    x = m.pick(least=1)
    axis = m.axis(x)
    shape = m.shape(x)
    others = [v for v in m.values if m.dtype(v) == m.dtype(x) and _alike_but(m.space.fact(v).shape, shape, axis)]
    parts = [x, *(m.random.choice(others) for _ in range(m.random.randint(0, 2)))]
    if all(isinstance(s, int) for s in shape) and m.random.random() < 0.3:
        parts.append(m.weight([s for s in shape if isinstance(s, int)], m.dtype(x)))
    m.call("Concat", parts, axis=axis)


def _alike_but(a: tuple[Size, ...] | None, b: tuple[Size, ...], axis: int) -> bool:
    axis %= len(b)
    return a is not None and len(a) == len(b) and a[:axis] + a[axis + 1 :] == b[:axis] + b[axis + 1 :]


def split(m: _Maker) -> None:
    x = m.pick(least=1)
    axis = m.axis(x)
    size = m.shape(x)[axis]
    if not isinstance(size, int) or size < 2:
        raise Misfit("nothing to split")
    at = m.random.randint(1, size - 1)
    outputs = m.calls("Split", (x, m.constant([at, size - at])), Attrs(axis=axis), 2)
    if m.random.random() < 0.4:
        parts = list(outputs) if m.random.random() < 0.6 else list(reversed(outputs))
        m.call("Concat", parts, axis=axis)


def gather(m: _Maker) -> None:
    x = m.pick(least=1)
    axis = m.axis(x)
    size = m.shape(x)[axis]
    if not isinstance(size, int) or not size:
        raise Misfit("no size to gather from")
    elements: Any = m.random.randint(-size, size - 1)
    if m.random.random() < 0.6:
        elements = m.random.choice((list(range(size)), list(range(size))[::-1], m.indices(-size, size - 1, 2)))
    m.call("Gather", (x, m.constant(elements)), axis=axis)


def pad(m: _Maker) -> None:
    x = m.pick(*FLOATS, least=1)
    rank = len(m.shape(x))
    spatial = rank if rank < 3 else rank - 2
    one = [0] * (rank - spatial) + m.indices(0, 1, spatial)
    two = [0] * (rank - spatial) + m.indices(0, 1, spatial)
    value = (m.constant(m.random.choice((0.0, 1.0)), m.dtype(x)),) if m.random.random() < 0.5 else ()
    mode = None if value or m.random.random() < 0.7 else "edge"
    m.call("Pad", (x, m.constant([*one, *two]), *value), mode=mode)


def tile(m: _Maker) -> None:
    x = m.pick(least=1)
    m.call("Tile", (x, m.constant(m.indices(1, 2, len(m.shape(x))))))


def reduce(m: _Maker) -> None:
    x = m.pick(*FLOATS, least=1)
    op = m.random.choice(REDUCTIONS)
    rank = len(m.shape(x))
    if op in ("ReduceMax", "ReduceMin", "ReduceMean") and not all(isinstance(s, int) and s for s in m.shape(x)):
        raise Misfit("of nothing there is no mean")
    axes = m.random.choice(([-1], [0], [1 % rank], list(range(rank)), list(range(2, rank)) or [0]))
    m.call(op, (x, m.constant(axes)), keepdims=m.random.choice((0, 1, None)))


def softmax(m: _Maker) -> None:
    x = m.pick(*FLOATS, least=1)
    m.call(m.random.choice(("Softmax", "Softmax", "LogSoftmax")), (x,), axis=m.axis(x))


def arg(m: _Maker) -> None:
    x = m.pick(*FLOATS, "int64", least=1, static=True)
    if 0 in m.shape(x):
        raise Misfit("of nothing there is no largest")
    m.call(m.random.choice(("ArgMax", "ArgMin")), (x,), axis=m.axis(x), keepdims=m.random.choice((0, 1)))


def layer_norm(m: _Maker) -> None:
    """A layer normalization as torch exports it for old opsets."""
    x = m.pick(*FLOATS, least=2, static=True)
    n = m.shape(x)[-1]
    assert isinstance(n, int)
    dtype = m.dtype(x)
    centred = m.call("Sub", (x, m.call("ReduceMean", (x, m.constant([-1])))))
    if m.random.random() < 0.5:
        squares = m.call("Pow", (centred, m.constant(2.0, dtype)))
    else:
        squares = m.call("Mul", (centred, centred))
    variance = m.call("ReduceMean", (squares, m.constant([-1])))
    deviation = m.call("Sqrt", (m.call("Add", (variance, m.constant(m.random.choice((1e-5, 1e-3)), dtype))),))
    y = m.call("Div", (centred, deviation))
    if m.random.random() < 0.7:
        m.call("Add", (m.call("Mul", (y, m.weight([n], dtype))), m.weight([n], dtype)))


def matmul(m: _Maker) -> None:
    x = m.pick("float32", "float64", least=1)
    k = m.shape(x)[-1]
    if not isinstance(k, int):
        raise Misfit("an open inner size")
    dtype = m.dtype(x)
    for _ in range(m.random.choice((1, 1, 1, 2, 3))):
        n = m.random.choice((1, 2, 4, 5))
        y = m.call("MatMul", (x, m.weight([k, n], dtype)))
        if m.random.random() < 0.6:
            m.call("Add", (y, m.weight([n], dtype)))


def matmul_of_two(m: _Maker) -> None:
    x = m.pick("float32", "float64", least=2)
    y = m.pick(m.dtype(x), least=2)
    a, b = m.shape(x), m.shape(y)
    if a[-1] == b[-2] and m.joins(a[:-2], b[:-2]):
        m.call("MatMul", (x, y))
    elif a[-1] == b[-1] and m.joins(a[:-2], b[:-2]):
        perm = (*range(len(b) - 2), len(b) - 1, len(b) - 2)
        m.call("MatMul", (x, m.call("Transpose", (y,), perm=perm)))
    else:
        raise Misfit("does not multiply")


def gemm(m: _Maker) -> None:
    x = m.pick("float32", "float64", rank=2)
    flip, twin = m.random.choice((0, 0, 1)), m.random.choice((0, 1))
    k = m.shape(x)[0 if flip else 1]
    if not isinstance(k, int):
        raise Misfit("an open inner size")
    n = m.random.choice((1, 2, 4))
    dtype = m.dtype(x)
    bias = () if m.random.random() < 0.3 else (m.weight(m.random.choice(([n], [1, n], [])), dtype),)
    attrs: dict[str, Any] = {"transA": flip or None, "transB": twin or None}
    if m.random.random() < 0.3:
        attrs |= {"alpha": m.random.choice((0.5, 1.0, 2.0)), "beta": m.random.choice((0.0, 1.0, 0.5))}
    m.call("Gemm", (x, m.weight([n, k] if twin else [k, n], dtype), *bias), **attrs)


def image(m: _Maker) -> Value:
    x = m.pick("float32", rank=4)
    if not isinstance(m.shape(x)[1], int):
        raise Misfit("an open number of channels")
    return x


def convolution(m: _Maker) -> None:
    """A convolution and what tends to follow one."""
    x = image(m)
    channels = m.shape(x)[1]
    assert isinstance(channels, int)
    if not channels:
        raise Misfit("no channels")
    group = m.random.choice((1, 1, 1, channels))
    out = m.random.choice((1, 2, 4)) * group
    kernel = m.random.choice((1, 1, 3))
    around = kernel // 2
    if m.random.random() < 0.2:
        x = m.call("Pad", (x, m.constant([0, 0, 1, 1, 0, 0, 1, 1])))
    pads = m.random.choice((None, (around,) * 4)) if kernel == 1 else (around,) * 4
    weights = m.weight([out, channels // group, kernel, kernel], "float32")
    bias = (m.weight([out], "float32"),) if m.random.random() < 0.5 else ()
    strides = m.random.choice((None, None, (2, 2)))
    y = m.call("Conv", (x, weights, *bias), group=group, pads=pads, strides=strides, kernel_shape=(kernel, kernel))
    if m.random.random() < 0.5:
        y = batch_norm_of(m, y)
    if m.random.random() < 0.3:
        y = m.call("Mul", (y, m.weight([out, 1, 1], "float32")))
    if m.random.random() < 0.3:
        y = m.call("Add", (y, m.weight([1, out, 1, 1], "float32")))
    if m.random.random() < 0.5:
        hard_swish_of(m, y) if m.random.random() < 0.4 else m.call("Relu", (y,))


def batch_norm_of(m: _Maker, x: Value) -> Value:
    channels = m.shape(x)[1]
    assert isinstance(channels, int)
    numbers = [m.weight([channels], "float32", positive=i == 3) for i in range(4)]
    return m.call("BatchNormalization", (x, *numbers), epsilon=m.random.choice((None, 0.125, 2.0**-10)))


def batch_norm(m: _Maker) -> None:
    batch_norm_of(m, image(m))


def hard_swish_of(m: _Maker, x: Value) -> Value:
    dtype = m.dtype(x)
    three, six, zero = (m.constant(n, dtype) for n in (3.0, 6.0, 0.0))
    y = m.call("Mul", (x, m.call("Clip", (m.call("Add", (x, three)), zero, six))))
    return m.call("Div", (y, six))


def pool(m: _Maker) -> None:
    x = image(m)
    op = m.random.choice(("MaxPool", "AveragePool", "GlobalAveragePool"))
    attrs = {} if op.startswith("Global") else {"kernel_shape": (2, 2), "pads": (0, 0, 1, 1)}
    m.call(op, (x,), **attrs)


def squeeze_and_excite(m: _Maker) -> None:
    x = image(m)
    channels = m.shape(x)[1]
    assert isinstance(channels, int)
    y = m.call("GlobalAveragePool", (x,))
    y = m.call("Conv", (y, m.weight([channels, channels, 1, 1], "float32")), kernel_shape=(1, 1))
    m.call("Mul", (x, m.call(m.random.choice(("Sigmoid", "HardSigmoid")), (y,))))


def branch(m: _Maker) -> None:
    """An If whose bodies capture values."""
    if m.depth:
        raise Misfit("nested deep enough")
    captured = [m.pick("float32", static=True), m.pick("float32", static=True)]
    bodies = [_body(m, captured) for _ in range(2)]
    if m.random.random() < 0.3:
        condition = m.constant(m.random.random() < 0.5, "bool")
    else:
        total = m.call("ReduceSum", (m.pick("float32"),), keepdims=0)
        condition = m.call("Less", (total, m.constant(0.5, "float32")))
    attrs = Attrs(then_branch=bodies[0], else_branch=bodies[1])
    made = m.space.add("If", (condition, *captured), attrs, captures=2)
    if m.space.fact(made[0]).shape is None:
        raise Misfit("the branches have no shape in common")
    m.values += made


def _body(m: _Maker, captured: Sequence[Value]) -> Graph:
    inner = _Maker(m.random, m.graph.opset, m.special, m.depth + 1)
    for i, value in enumerate(captured):
        kind = m.space.fact(value).type
        assert isinstance(kind, TensorType)
        inner.new_input(kind.dtype, kind.shape if isinstance(kind.shape, tuple) else None)
        inner.graph.names[inner.values[-1]] = f"captured{i}"
    grown = inner.finished(m.random.randint(1, 5))
    last = [v for v in grown.outputs if v is not None and grown.producer(v).op != INPUT]
    floats = [v for v in last if inner.dtype(v) == "float32" and isinstance(inner.space.fact(v).size, int)]
    value = floats[-1] if floats else inner.values[0]
    shape = tuple(s for s in inner.shape(value) if isinstance(s, int))
    flat = inner.call("Reshape", (value, inner.constant([prod(shape)])))
    inner.call("ReduceMean", (flat, inner.constant([0])), keepdims=1)
    del grown.outputs[:], grown.output_names[:]
    grown.add_output("result", inner.values[-1])
    grown.types[inner.values[-1]] = TensorType("float32", (1,))
    for node in reversed(grown.order()):
        if not grown.is_used(node.id) and node.op != INPUT:
            grown.remove(node.id)
    return grown


def twin(m: _Maker) -> None:
    """The same op once more."""
    node = m.graph.node(m.pick().node)
    if node.op in (INPUT, CONSTANT) or node.bodies:
        raise Misfit("nothing to repeat")
    m.calls(node.op, node.inputs, node.attrs, node.n_outputs)


def left_side(m: _Maker) -> None:
    """An instance of a rule's left side, its inputs bound to values of the graph where some fit."""
    rule = m.random.choice(rules())
    if any("com.microsoft" in t.op for t in rule.lhs if isinstance(t, Call)):
        raise Misfit("an op of ONNX Runtime")
    example = next((e for e in examples(rule, m.random, 4) if not isinstance(e, str)), None)
    if example is None:
        raise Misfit("no example")
    copies: dict[Value, Value] = {}
    for node in example.graph.order():
        value = Value(node.id)
        if node.op == INPUT:
            kind = example.graph.types[value]
            assert isinstance(kind, TensorType)
            copies[value] = bound(m, kind)
        elif node.op == CONSTANT:
            constant = example.graph.constant_of(value)
            assert constant is not None
            copies[value] = m.space.make_constant(constant)
        else:
            inputs = [None if v is None else copies[v] for v in node.inputs]
            if node.op == "Cast" and m.special:
                raise Misfit("NaN has no integer")
            copies.update(zip(node.outputs, m.calls(node.op, inputs, node.attrs, node.n_outputs), strict=True))


def bound(m: _Maker, kind: TensorType) -> Value:
    """A value of this type: one that there is, one reshaped, a constant, or a new input."""
    alike = [v for v in m.values if m.space.fact(v).type == kind]
    if alike and m.random.random() < 0.8:
        return m.random.choice(alike)
    shape = kind.shape
    assert not isinstance(shape, Unranked)
    numbers = [s for s in shape if isinstance(s, int)]
    sized = [v for v in m.values if m.dtype(v) == kind.dtype and m.space.fact(v).size == prod(numbers)]
    if sized and m.random.random() < 0.8:
        return m.call("Reshape", (m.random.choice(sized), m.constant(numbers)))
    if m.depth:
        return m.weight(numbers, kind.dtype)
    return m.new_input(kind.dtype, shape)


Recipe = Callable[[_Maker], None]
RECIPES: tuple[Recipe, ...] = (
    *(left_side,) * 14,
    *(unary, binary) * 4,
    *(transpose, reshape, convolution, matmul, reshape_by_shape) * 2,
    *(rough, integer, power, variadic, clip, compare, logic, where, cast, expand_to, expand, fill, squeeze, unsqueeze),
    *(flatten, cut, join, split, gather, pad, tile, reduce, softmax, arg, layer_norm, matmul_of_two, gemm, batch_norm),
    *(pool, squeeze_and_excite, branch, twin),
)  # fmt: skip
"""How a graph grows; what stands here twice is drawn twice as often."""
