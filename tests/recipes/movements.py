"""Recipes of ops that move elements about: views, slices, copies, and the arithmetic of shapes around them."""

from __future__ import annotations

from typing import Any

from graphopt.ir.graph import Attrs
from graphopt.ir.types import Size
from tests.recipes.maker import FLOATS, Maker, Misfit


def transpose(m: Maker) -> None:
    x = m.pick(least=1)
    rank = len(m.shape(x))
    perm = m.random.choice((None, (0, 2, 3, 1), (0, 3, 1, 2))) if rank == 4 else None
    if perm is None and m.random.random() < 0.8:
        order = list(range(rank))
        m.random.shuffle(order)
        perm = tuple(order)
    m.call("Transpose", (x,), perm=perm)


def reshape(m: Maker) -> None:
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


def reshape_by_shape(m: Maker) -> None:
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


def expand_to(m: Maker) -> None:
    x = m.pick(*FLOATS, "int64")
    y = m.pick()
    if not m.joins(m.shape(y), m.shape(x)):
        raise Misfit("does not expand")
    m.call("Expand", (x, m.call("Shape", (y,))))


def expand(m: Maker) -> None:
    x = m.pick()
    shape = [s if isinstance(s, int) and s != 1 else m.random.choice((1, 1, 2, 3)) for s in m.shape(x)]
    shape = [1 if not isinstance(s, int) else n for s, n in zip(m.shape(x), shape, strict=True)]
    m.call("Expand", (x, m.constant([*([m.random.choice((1, 2))] * m.random.randint(0, 1)), *shape])))


def fill(m: Maker) -> None:
    x = m.pick(least=1)
    value = m.constant([m.random.choice((0, 1, 2))], m.random.choice(("float32", "int64")))
    constant = m.graph.constant_of(value)
    m.call("ConstantOfShape", (m.call("Shape", (x,)),), value=constant)


def squeeze(m: Maker) -> None:
    x = m.pick(least=1)
    ones = [i for i, s in enumerate(m.shape(x)) if s == 1]
    if not ones:
        raise Misfit("nothing to squeeze")
    all_known = all(isinstance(s, int) for s in m.shape(x))
    axes = m.random.sample(ones, m.random.randint(1, len(ones)))
    m.call("Squeeze", (x,) if all_known and m.random.random() < 0.2 else (x, m.constant(axes)))


def unsqueeze(m: Maker) -> None:
    x = m.pick()
    rank = len(m.shape(x))
    if rank > 4:
        raise Misfit("enough axes")
    m.call("Unsqueeze", (x, m.constant([m.random.randint(-rank - 1, rank)])))


def flatten(m: Maker) -> None:
    x = m.pick(least=1)
    m.call("Flatten", (x,), axis=m.random.randint(0, len(m.shape(x))))


def cut(m: Maker) -> None:
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


def join(m: Maker) -> None:
    x = m.pick(least=1)
    axis = m.axis(x)
    shape = m.shape(x)
    others = [v for v in m.values if m.dtype(v) == m.dtype(x) and alike_but(m.space.fact(v).shape, shape, axis)]
    parts = [x, *(m.random.choice(others or [x]) for _ in range(m.random.randint(0, 2)))]
    if all(isinstance(s, int) for s in shape) and m.random.random() < 0.3:
        parts.append(m.weight([s for s in shape if isinstance(s, int)], m.dtype(x)))
    m.call("Concat", parts, axis=axis)


def alike_but(a: tuple[Size, ...] | None, b: tuple[Size, ...], axis: int) -> bool:
    axis %= len(b)
    return a is not None and len(a) == len(b) and a[:axis] + a[axis + 1 :] == b[:axis] + b[axis + 1 :]


def split(m: Maker) -> None:
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


def gather(m: Maker) -> None:
    x = m.pick(least=1)
    axis = m.axis(x)
    size = m.shape(x)[axis]
    if not isinstance(size, int) or not size:
        raise Misfit("no size to gather from")
    elements: Any = m.random.randint(-size, size - 1)
    if m.random.random() < 0.6:
        elements = m.random.choice((list(range(size)), list(range(size))[::-1], m.indices(-size, size - 1, 2)))
    m.call("Gather", (x, m.constant(elements)), axis=axis)


def pad(m: Maker) -> None:
    x = m.pick(*FLOATS, least=1)
    rank = len(m.shape(x))
    spatial = rank if rank < 3 else rank - 2
    one = [0] * (rank - spatial) + m.indices(0, 1, spatial)
    two = [0] * (rank - spatial) + m.indices(0, 1, spatial)
    value = (m.constant(m.random.choice((0.0, 1.0)), m.dtype(x)),) if m.random.random() < 0.5 else ()
    mode = None if value or m.random.random() < 0.7 else "edge"
    m.call("Pad", (x, m.constant([*one, *two]), *value), mode=mode)


def tile(m: Maker) -> None:
    x = m.pick(least=1)
    m.call("Tile", (x, m.constant(m.indices(1, 2, len(m.shape(x))))))
