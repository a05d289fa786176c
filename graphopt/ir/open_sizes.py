"""Size constraints: equations between sizes that ops ask for, and the open sizes that solve them.

A traced model is often right for one size of an axis that its file calls open, since a size became a number on the way:
``Reshape(x[t, b, 64], [37, 4*b, 16])`` computes something where t is 37, and nowhere else. Each op that asks two sizes
to be equal gives an equation between polynomials, which is solved for its symbol where it has one only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import TypeAlias

from graphopt.errors import GraphoptError
from graphopt.ir.facts import NOTHING, Fact
from graphopt.ir.graph import Attrs, Graph, Node
from graphopt.ir.infer import infer
from graphopt.ir.op_table import ops_where
from graphopt.ir.types import Dim, Monomial, Size, Symbol, TensorType, substitute, symbols

LARGEST = 4096
"""Where an equation is not linear, its solutions are looked for up to this size."""

_BROADCASTS = ops_where(kind=("binary", "elementwise"))


def open_names(graph: Graph) -> set[str]:
    """The symbols in the types of the graph's inputs."""
    types = [graph.types.get(value) for value in graph.inputs]
    shapes = [t.shape for t in types if isinstance(t, TensorType) and isinstance(t.shape, tuple)]
    return {name for shape in shapes for size in shape for name in symbols(size)}


def smallest(graph: Graph) -> dict[str, int]:
    """What sizes of the graph's inputs have to be at least, as far as a TopK asks for so many elements, or a Pad for so
    many to mirror."""
    names, least = open_names(graph), dict[str, int]()
    asking = [node for node in graph.nodes() if node.op in ("TopK", "Pad") and len(node.inputs) > 1]
    if not names or not asking:
        return least
    with suppress(GraphoptError):  # who runs it says what is wrong with it
        facts = infer(graph)
        for node in asking:
            x, count = (NOTHING if value is None else facts.get(value, NOTHING) for value in node.inputs[:2])
            for size, number in _at_least(node, x.shape or (), count.elements or ()):
                if not isinstance(size, Dim) or not _is_symbol(size) or not isinstance(number, int):
                    continue
                ((_, times),) = size.terms if len(size.terms) == 1 else (((), 1),)
                for name in symbols(size) & names if times > 0 else ():
                    least[name] = max(least.get(name, 1), -(-number // times))
    return least


def _at_least(node: Node, shape: tuple[Size, ...], numbers: tuple[Size, ...]) -> Iterator[tuple[Size, Size]]:
    """Sizes, each with what it has to be at least."""
    axis = node.attrs.get("axis", -1)
    if node.op == "TopK" and isinstance(axis, int) and -len(shape) <= axis < len(shape) and numbers:
        yield shape[axis], numbers[0]
    elif node.op == "Pad" and node.attrs.get("mode") == "reflect" and len(numbers) == 2 * len(shape):
        yield from ((size, number + 1) for size, number in zip(shape * 2, numbers, strict=True))


def demanded(graph: Graph) -> dict[str, int]:
    """The sizes of the graph's inputs that are open in its file only: an op takes one number alone, such as a
    convolution the channels of its weights. Nothing is solved for: a root that is found may not be the only one, and
    what is divided by may be 0. Bodies are not asked, since they may not run."""
    names, found = open_names(graph), dict[str, int]()
    for one, other in _asked(graph, _demands):
        match one, other:
            case Dim(terms=(((Symbol(name),), 1),)), int() if name in names and other > 0:
                found.setdefault(name, other)
    return found


def equations(graph: Graph) -> list[Size]:
    """Polynomials over the symbols of the graph's inputs, each of which is 0 where the graph can run, and no size is 0
    or is 1 and repeated."""
    names = open_names(graph)
    differences = (one - other for one, other in _asked(graph, _equal))
    return list(dict.fromkeys(d for d in differences if symbols(d) and symbols(d) <= names))


_Question: TypeAlias = "Callable[[Node, list[Fact]], Iterator[tuple[Size, Size]]]"
"""The pairs of sizes that an op asks to be equal, by what is known of its operands."""


def _asked(graph: Graph, question: _Question) -> list[tuple[Size, Size]]:
    """The pairs of sizes that the ops of a graph ask to be equal, where its inputs have open sizes."""
    if not open_names(graph):
        return []
    try:
        facts = infer(graph)
    except GraphoptError:  # who runs it says what is wrong with it
        return []
    pairs: list[tuple[Size, Size]] = []
    for node in graph.nodes():
        operands = [NOTHING if value is None else facts.get(value, NOTHING) for value in node.inputs]
        with suppress(IndexError):  # of a rank that the op does not take
            pairs += question(node, operands)
    return pairs


_Pair: TypeAlias = "Callable[[Attrs, tuple[Size, ...], tuple[Size, ...]], tuple[Size, Size]]"


def _rows(attrs: Attrs, x: tuple[Size, ...], w: tuple[Size, ...]) -> tuple[Size, Size]:
    return x[-1], w[max(len(w) - 2, 0)]


def _turned_rows(attrs: Attrs, x: tuple[Size, ...], w: tuple[Size, ...]) -> tuple[Size, Size]:
    return x[0 if attrs.get("transA") else 1], w[1 if attrs.get("transB") else 0]


def _channels(attrs: Attrs, x: tuple[Size, ...], w: tuple[Size, ...]) -> tuple[Size, Size]:
    group = attrs.get("group", 1)
    return x[1], w[1] * (group if isinstance(group, int) else 1)


def _axes(of_x: int, of_w: int) -> _Pair:
    return lambda _, x, w: (x[of_x], w[of_w])


WEIGHTS: Mapping[str, tuple[int, _Pair]] = {
    "MatMul": (1, _rows), "MatMulInteger": (1, _rows), "QLinearMatMul": (3, _rows), "Gemm": (1, _turned_rows),
    "Conv": (1, _channels), "ConvInteger": (1, _channels), "QLinearConv": (3, _channels),
    "ConvTranspose": (1, _axes(1, 0)), "BatchNormalization": (1, _axes(1, 0)),
    "InstanceNormalization": (1, _axes(1, 0)), "LSTM": (1, _axes(2, 2)), "GRU": (1, _axes(2, 2)),
    "RNN": (1, _axes(2, 2)),
}  # fmt: skip
"""Ops that take as many of something as another operand has, whatever else their sizes are: which operand that is, and
the two sizes, by the attributes and the shapes of the first operand and of that one."""


def _demands(node: Node, operands: list[Fact]) -> Iterator[tuple[Size, Size]]:
    """The pairs of sizes that are equal wherever the op runs."""
    if node.op in WEIGHTS:
        other, pair = WEIGHTS[node.op]
        x, w = operands[0].shape, operands[other].shape
        if x and w:
            yield pair(node.attrs, x, w)


def _equal(node: Node, operands: list[Fact]) -> Iterator[tuple[Size, Size]]:
    """The pairs of sizes that one op asks to be equal, where none is 0, or 1 and repeated."""
    yield from _demands(node, operands)
    shapes = [fact.shape for fact in operands]
    x = shapes[0] if shapes else None
    match node.op:
        case op if op in _BROADCASTS:
            known = [shape for shape in shapes if shape]
            yield from (pair for i, one in enumerate(known) for other in known[:i] for pair in _aligned(one, other))
        case "Expand" if x and (target := operands[1].elements):
            yield from _aligned(x, target)
        case "Reshape" if x is not None and (target := operands[1].elements):
            yield from _reshaped(x, target, is_zero_kept=node.attrs.get("allowzero", 0) == 0)
        case "Concat" if isinstance(axis := node.attrs.get("axis"), int) and (known := [s for s in shapes if s]):
            first = known[0]
            for shape in known[1:]:
                pairs = enumerate(zip(first, shape, strict=False))
                yield from (pair for i, pair in pairs if i != axis % len(first))
        case "Squeeze" if x and len(operands) > 1 and (axes := operands[1].elements):
            yield from ((x[i], 1) for i in axes if isinstance(i, int) and -len(x) <= i < len(x))


def _aligned(one: tuple[Size, ...], other: tuple[Size, ...]) -> Iterator[tuple[Size, Size]]:
    """The sizes that a broadcast brings together, but for those that are 1, or that may be for all that is known."""
    for a, b in zip(reversed(one), reversed(other), strict=False):
        if 1 not in (a, b) and (isinstance(a, int) or isinstance(b, int) or (_is_symbol(a) and _is_symbol(b))):
            yield a, b


def _is_symbol(size: Size) -> bool:
    return isinstance(size, Dim) and [type(atom) for monomial, _ in size.terms for atom in monomial] == [Symbol]


def _reshaped(x: tuple[Size, ...], target: tuple[Size, ...], is_zero_kept: bool) -> Iterator[tuple[Size, Size]]:
    """What goes in comes out; of a shape with -1, what is left divides evenly."""
    sizes = [x[i] if size == 0 and is_zero_kept and i < len(x) else size for i, size in enumerate(target)]
    count, others = _product(x), _product(size for size in sizes if size != -1)
    if -1 not in sizes:
        yield count, others
    elif others != 0:
        yield count, count // others * others


def _product(sizes: Iterable[Size]) -> Size:
    product: Size = 1
    for size in sizes:
        product = product * size
    return product


def solved(asked: list[Size], known: Mapping[str, int]) -> dict[str, Size]:
    """Numbers, or other symbols, for symbols that the equations leave no choice; ``known`` are among them."""
    found: dict[str, Size] = dict(known)
    is_new = True
    while is_new:
        is_new = False
        for equation in asked:
            with suppress(ValueError):  # sizes that do not fit each other
                solution = _solution(substitute(equation, found))
                if solution is not None:
                    found = {name: substitute(size, dict([solution])) for name, size in found.items()}
                    found[solution[0]] = solution[1]
                    is_new = True
    return found


def _solution(equation: Size) -> tuple[str, Size] | None:
    """A symbol and what it has to be, where the equation tells it."""
    if isinstance(equation, int):
        return None
    equation = _divided(equation)
    names = sorted(symbols(equation))
    if len(names) == 1:
        root = _root(equation, names[0])
        return None if root is None else (names[0], root)
    match equation.terms:
        case (((Symbol(one),), 1), ((Symbol(other),), -1)) | (((Symbol(one),), -1), ((Symbol(other),), 1)):
            return one, Dim((((Symbol(other),), 1),))
    return None


def _divided(equation: Dim) -> Dim:
    """The equation without the factors that all its terms have, which are not 0."""
    monomials = [monomial for monomial, _ in equation.terms]
    for atom in monomials[0]:
        if all(atom in monomial for monomial in monomials):
            return _divided(Dim(tuple((_without(monomial, atom), factor) for monomial, factor in equation.terms)))
    return equation


def _without(monomial: Monomial, atom: object) -> Monomial:
    position = next(i for i, other in enumerate(monomial) if other == atom)
    return (*monomial[:position], *monomial[position + 1 :])


def squares(asked: list[Size], known: Mapping[str, Size]) -> dict[str, Size]:
    """Numbers for symbols that the equations leave a choice, where those of one equation are equal, as are the sides of
    a picture: of the solutions the one that halves most often, since layers halve."""
    found = dict(known)
    for equation in asked:
        with suppress(ValueError):  # sizes that do not fit each other
            rest = substitute(equation, found)
            if isinstance(rest, int) or len(symbols(rest)) == 1:
                continue
            first, *others = sorted(symbols(rest))
            side = Dim((((Symbol(first),), 1),))
            equal = substitute(rest, dict.fromkeys(others, side))
            roots = list(_roots(_divided(equal), first)) if isinstance(equal, Dim) else []
            if roots:
                found |= dict.fromkeys([first, *others], max(roots, key=lambda size: size & -size))
    return found


def _root(equation: Dim, name: str) -> int | None:
    """The positive size that solves an equation, where it is the only one."""
    match equation.terms:
        case (((Symbol(),), factor), ((), offset)):
            return -offset // factor if offset % factor == 0 and -offset // factor > 0 else None
    roots = list(islice(_roots(equation, name), 2))
    return roots[0] if len(roots) == 1 else None


def _roots(equation: Dim, name: str) -> Iterator[int]:
    """The sizes that solve an equation."""
    for size in range(1, LARGEST + 1):
        with suppress(ValueError):
            if substitute(equation, {name: size}) == 0:
                yield size


def holds(asked: list[Size], chosen: Mapping[str, int]) -> bool:
    """Whether the sizes solve all equations."""
    try:
        return all(substitute(equation, dict(chosen)) == 0 for equation in asked)
    except ValueError:
        return False
