"""Fixed dimensions and inputs: what a caller fixes before a model is optimized. Apart from the passes, which callers do
not choose sizes for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral

from graphopt.errors import InvalidModelError, UsageError, nearest_or_some
from graphopt.ir.constants import Constant
from graphopt.ir.graph import Graph, Value
from graphopt.ir.infer import infer
from graphopt.ir.open_sizes import demanded
from graphopt.ir.types import Size, TensorType, Type, substitute, sums, symbols


def freeze_defaults(graph: Graph) -> Graph:
    """The graph with each input that has a default turned into that constant; the same graph where none has."""
    frozen = graph.copy()
    for value in list(frozen.inputs):
        default = frozen.node(value.node).attrs.get("default")
        if isinstance(default, Constant):
            frozen.replace(value, frozen.add_constant(default, frozen.names.get(value, "")))
            frozen.remove(value.node)
    return frozen if len(frozen.inputs) < len(graph.inputs) else graph


def fix_dims(graph: Graph, shapes: Mapping[str, Sequence[int]], dims: Mapping[str, int]) -> Graph:
    """The graph with inputs of the given shapes, and with named dimensions fixed everywhere; that of an axis which the
    model has no name for is called by input and axis, as ``x.0``.

    Raises UsageError for an unknown input or dimension, a rank or a size that contradicts the model, or a dimension
    that would get two sizes.
    """
    sizes = _sizes(graph, shapes, dims)
    fixed = graph.copy()
    fixed.types = {value: _fixed(type, sizes) for value, type in graph.types.items()}
    for name, shape in shapes.items():
        value = _input(graph, name)
        type = graph.types[value]
        assert isinstance(type, TensorType)
        fixed.types[value] = TensorType(type.dtype, tuple(map(int, shape)))
    return fixed if fixed.types != graph.types else graph


def fix_demanded(graph: Graph) -> Graph:
    """The graph with dimensions that an op of it takes in one size alone as that number: exporters call channels open,
    and the weights say how many there are."""
    sizes = demanded(graph)
    if not sizes:
        return graph
    fixed = graph.copy()
    fixed.types = {value: _fixed(type, dict(sizes)) for value, type in graph.types.items()}
    try:
        infer(fixed)
    except InvalidModelError:  # a branch that is not taken may ask for another number
        return graph
    return fixed


def spell_out_sums(graph: Graph) -> Graph:
    """The graph with dimensions that are called as a sum of others of its inputs (``past + length``) as that sum: it
    is equal to what is computed of them."""
    named = sums(set().union(*(symbols(s) for v in graph.inputs for s in _shape(graph.types.get(v)))))
    if not named:
        return graph
    spelled = graph.copy()
    spelled.types = {value: _fixed(type, named) for value, type in graph.types.items()}
    return spelled


def _sizes(graph: Graph, shapes: Mapping[str, Sequence[int]], dims: Mapping[str, int]) -> dict[str, Size]:
    """What each symbol becomes."""
    all_names = sorted(set().union(*(symbols(s) for v in graph.inputs for s in _shape(graph.types.get(v)))))
    named = [n for n in all_names if not n.startswith("?")]
    for name, size in dims.items():
        if name not in named:
            raise UsageError(f"no dimension of an input is called {name!r}{nearest_or_some(name, named)}")
        if not _is_size(size):
            raise UsageError(f"dimension {name} cannot be {size!r}: expected 0 or more")
    sizes: dict[str, Size] = {name: int(size) for name, size in dims.items()}
    for name, shape in shapes.items():
        for axis, (old, new) in enumerate(zip(_shape_of(graph, name, shape), shape, strict=True)):
            where = f"axis {axis} of input {name!r}"
            if not _is_size(new):
                raise UsageError(f"{where} cannot be {new!r}: expected 0 or more")
            new = int(new)
            if isinstance(old, int):
                if old != new:
                    raise UsageError(f"{where} is {old} in the model, it cannot be {new}")
            elif symbols(old) == {str(old)} and sizes.setdefault(str(old), new) != new:
                raise UsageError(f"{where} is {old}, which is {sizes[str(old)]} already, it cannot be {new} too")
    for name, total in sums({*all_names}).items():
        known = substitute(total, sizes)
        if known != total and sizes.setdefault(name, known) != known:
            raise UsageError(f"dimension {name} cannot be {sizes[name]}: it is the sum {known}")
    return sizes


def _is_size(size: object) -> bool:
    return isinstance(size, Integral) and not isinstance(size, bool) and int(size) >= 0


def _shape_of(graph: Graph, name: str, shape: Sequence[int]) -> Sequence[Size]:
    """The shape that the model gives an input; where it gives none, the one that it is to have."""
    type = graph.types.get(_input(graph, name))
    if not isinstance(type, TensorType):
        raise UsageError(f"input {name!r} is no tensor of a known dtype, it cannot be given a shape")
    if type.rank is None:
        return shape
    if type.rank != len(shape):
        raise UsageError(f"input {name!r} has {type.rank} axes, not {len(shape)}")
    return _shape(type)


def _input(graph: Graph, name: str) -> Value:
    names = {graph.names[v]: v for v in graph.inputs}
    if name not in names:
        raise UsageError(f"no input is called {name!r}{nearest_or_some(name, names)}")
    return names[name]


def _shape(type: Type | None) -> Sequence[Size]:
    return type.shape if isinstance(type, TensorType) and isinstance(type.shape, tuple) else ()


def _fixed(type: Type, sizes: dict[str, Size]) -> Type:
    if not isinstance(type, TensorType) or not isinstance(type.shape, tuple):
        return type
    shape = tuple(substitute(s, sizes) for s in type.shape)
    return type if shape == type.shape else TensorType(type.dtype, shape)
