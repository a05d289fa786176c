"""Recipes of ops on each element. A recipe adds a few nodes to a graph that grows, or raises Misfit."""

from __future__ import annotations

from tests.recipes.maker import FLOATS, Maker, Misfit

BOUNDED = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "HardSigmoid", "LeakyRelu", "Elu", "Softplus", "Identity", "Erf")
ROUGH = ("Exp", "Floor", "Ceil", "Round", "Sign", "Sqrt", "Reciprocal", "Log", "Cos", "Softsign", "HardSwish", "Selu")


def unary(m: Maker) -> None:
    m.call(m.random.choice(BOUNDED), (m.pick(*FLOATS),))


def rough(m: Maker) -> None:
    m.call(m.random.choice(ROUGH), (m.pick(*FLOATS),))


def integer(m: Maker) -> None:
    x = m.pick("int64", "int32")
    op = m.random.choice(("Neg", "Abs", "Sign", "Add", "Sub", "Mul", "Div", "Mod", "Max", "Min"))
    if op in ("Neg", "Abs", "Sign"):
        m.call(op, (x,))
    elif op in ("Div", "Mod"):
        m.call(op, (x, m.constant(m.random.choice((1, 2, 3, -2)), m.dtype(x))))
    else:
        m.call(op, (x, m.partner(x)))


def binary(m: Maker) -> None:
    x = m.pick(*FLOATS)
    y = m.partner(x)
    op = m.random.choice(("Add", "Add", "Sub", "Mul", "Mul", "Div", "Max", "Min"))
    m.call(op, (x, y) if m.random.random() < 0.7 else (y, x))


def power(m: Maker) -> None:
    x = m.pick(*FLOATS)
    m.call("Pow", (x, m.constant(m.random.choice((2.0, 0.5, 3.0, 1.0, -1.0, 0.0)), m.dtype(x))))


def variadic(m: Maker) -> None:
    x = m.pick(*FLOATS)
    m.call(m.random.choice(("Sum", "Max", "Min", "Mean")), [x, *(m.partner(x) for _ in range(m.random.randint(0, 2)))])


def clip(m: Maker) -> None:
    x = m.pick(*FLOATS, "int64")
    low, high = m.random.choice(((0, 6), (-1, 1), (0, None), (None, 2), (2, -2), (None, None)))
    bounds = [None if b is None else m.constant(b, m.dtype(x)) for b in (low, high)]
    while bounds and bounds[-1] is None:
        bounds.pop()
    m.call("Clip", (x, *bounds))


def compare(m: Maker) -> None:
    x = m.pick(*FLOATS, "int64")
    m.call(m.random.choice(("Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal")), (x, m.partner(x)))


def logic(m: Maker) -> None:
    x = m.pick("bool")
    if m.random.random() < 0.4:
        m.call("Not", (x,))
    else:
        m.call(m.random.choice(("And", "Or", "Xor")), (x, m.partner(x)))


def where(m: Maker) -> None:
    x = m.pick()
    masks = [v for v in m.values if m.dtype(v) == "bool" and m.joins(m.shape(x), m.space.fact(v).shape)]
    mask = m.random.choice(masks) if masks else m.constant(m.random.random() < 0.5, "bool")
    m.call("Where", (mask, x, m.partner(x)) if m.random.random() < 0.7 else (mask, m.partner(x), x))


def cast(m: Maker) -> None:
    x = m.pick()
    to = m.random.choice(("FLOAT", "FLOAT16", "DOUBLE", "INT64", "INT32", "BOOL"))
    codes = {"FLOAT": 1, "FLOAT16": 10, "DOUBLE": 11, "INT64": 7, "INT32": 6, "BOOL": 9}
    if "INT" in to and m.dtype(x) in FLOATS:  # numbers that do not fit have no value
        if m.special:
            raise Misfit("NaN has no integer")
        x = m.call("Clip", (x, m.constant(-9, m.dtype(x)), m.constant(9, m.dtype(x))))
    m.call("Cast", (x,), to=codes[to])
