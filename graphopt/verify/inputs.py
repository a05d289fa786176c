"""Random inputs that a model accepts: sizes for its open dimensions, and ranges for inputs that are indices or lengths.

Exported models have constraints that no type states: an index must lie inside the table that it
looks up, a size must be a multiple of 32. The ranges are read off the graph, by following each input
to the ops that give it a meaning; sizes are tried from a list until the model runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from math import inf, isfinite
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from graphopt.errors import LimitError, UsageError, nearest_or_some
from graphopt.frozen import dataclass
from graphopt.ir.caches import caches
from graphopt.ir.constants import Array
from graphopt.ir.facts import Fact
from graphopt.ir.functions import FunctionKey, callee
from graphopt.ir.graph import INPUT, Function, Graph, Node, Value
from graphopt.ir.op_table import TRUTHS, ops_where
from graphopt.ir.open_sizes import equations, holds, open_names, smallest, solved, squares
from graphopt.ir.types import OptionalType, SequenceType, Size, TensorType, Type, substitute, sums, symbols
from graphopt.verify.arrays import SUFFIX, read_array

Given: TypeAlias = "Array | tuple[float, float] | str | Path"
"""What a user says of an input: elements, inclusive bounds for random ones, a ``.npy`` file, or ``"LOW..HIGH"``."""


@dataclass(frozen=True, slots=True)
class InputRange:
    """What an input may hold: numbers between two bounds; ``choices`` are those that it is compared with, and
    where there are no bounds nothing else is drawn.

    ``whole``: integers only, whatever the dtype. ``is_free``: integers that may be negative and large.
    """

    low: float = -inf
    high: float = inf
    choices: tuple[float, ...] = ()
    whole: bool = False
    is_free: bool = False

    def __and__(self, other: InputRange) -> InputRange:
        low, high = max(self.low, other.low), min(self.high, other.high)
        choices = tuple(c for c in dict.fromkeys((*self.choices, *other.choices)) if low <= c <= high)
        return InputRange(low, high, choices, self.whole or other.whole)

    def __sub__(self, shift: float) -> InputRange:
        return InputRange(self.low - shift, self.high - shift, tuple(c - shift for c in self.choices), self.whole)


ANYTHING = InputRange()
FREE = InputRange(is_free=True)
A_FEW = InputRange(1, 4, whole=True)
"""For a size, a count or a number of repeats."""


def given(value: Given) -> Array | tuple[float, float]:
    """The elements or the bounds that a user gave.

    Raises UsageError where the text is neither a file nor ``LOW..HIGH``, ReadError where the file is not an array.
    """
    if isinstance(value, (np.ndarray, tuple)):
        return value
    text = str(value)
    low, dots, high = text.partition("..")
    if dots and not text.endswith(SUFFIX):
        try:
            bounds = float(low), float(high)
        except ValueError:
            raise UsageError(f"input range {text!r}: expected LOW..HIGH with two numbers, such as 0..1000") from None
        if not isfinite(bounds[1] - bounds[0]):
            raise UsageError(f"input range {text!r}: both ends, and what lies between them, have to be finite")
        if not bounds[0] <= bounds[1]:
            raise UsageError(f"input range {text!r}: the low end is above the high end")
        return bounds
    if not text.endswith(SUFFIX):
        raise UsageError(f"input value {text!r}: expected a {SUFFIX} file, or LOW..HIGH")
    return read_array(text)


def check_inputs(graph: Graph, inputs: Iterable[str]) -> None:
    """Raise UsageError, with its name, for an input that the graph does not have."""
    names = [graph.names[v] for v in graph.inputs]
    for name in inputs:
        if name not in names:
            raise UsageError(f"there is no input {name!r}{nearest_or_some(name, names)}")


# -- ranges

_CARRIERS = {
    "Identity": (0,), "Cast": (0,), "Reshape": (0,), "Squeeze": (0,), "Unsqueeze": (0,), "Transpose": (0,),
    "Flatten": (0,), "Expand": (0,), "Tile": (0,), "Slice": (0,), "Split": (0,), "Gather": (0,), "Where": (1, 2),
    "Pad": (0,), "GatherElements": (0,), "GatherND": (0,), "ScatterElements": (0, 2), "ScatterND": (0, 2),
}  # fmt: skip
"""Ops that hand elements on as they are, and the inputs that they hand on (Concat hands on all)."""

_SIZES = {
    "Reshape": (1,), "Expand": (1,), "ConstantOfShape": (0,), "Tile": (1,), "Range": (1, 2), "TopK": (1,), "Loop": (0,),
    "OneHot": (1,), "Slice": (2, 4), "Resize": (3,), "Trilu": (1,), "SplitToSequence": (1,), "EyeLike": (0,),
}  # fmt: skip
"""Inputs that are sizes, counts or repeats."""

_EMBEDDINGS = {"com.microsoft::EmbedLayerNormalization": {0: 2, 1: 4}}
"""Inputs that look up another input's rows."""


def ranges(graph: Graph) -> dict[str, InputRange]:
    """What the graph's inputs may hold, by name, as far as the ops that they reach tell."""
    facts = _facts(graph)
    ranges_by_name: dict[str, InputRange] = {}
    for value in graph.inputs:
        reached = _follow(graph, graph.functions, facts, value, 0.0, set())
        if reached != ANYTHING:
            ranges_by_name[graph.names[value]] = reached
        elif _is_free(graph, value):
            ranges_by_name[graph.names[value]] = FREE
    return ranges_by_name


def _facts(graph: Graph) -> Mapping[Value, Fact]:
    """What is known of the graph's values, where that can matter: an index is most often an integer."""
    types = [graph.types.get(value) for value in graph.inputs]
    if not any(isinstance(type, TensorType) and "int" in type.dtype for type in types):
        return {}
    from graphopt.ir.infer import infer

    return infer(graph)


def _follow(
    graph: Graph,
    functions: dict[FunctionKey, Function],
    facts: Mapping[Value, Fact],
    start: Value,
    shift: float,
    seen: set[tuple[int, Value]],
) -> InputRange:
    """What ``start`` may hold so that every op that sees it, plus ``shift``, can work."""
    range_of_value = ANYTHING
    waiting = [(start, shift)]
    while waiting:
        value, shift = waiting.pop()
        if (id(graph), value) in seen:
            continue
        seen.add((id(graph), value))
        for user, index in graph.users(value):
            node = graph.node(user)
            range_of_value &= _wanted(graph, facts, node, index) - shift
            if (function := callee(node, functions)) is not None and index < len(function.body.inputs):
                formal = function.body.inputs[index]
                range_of_value &= _follow(function.body, functions, {}, formal, shift, seen)
            first_capture = len(node.inputs) - node.captures
            if index >= first_capture:
                for body in node.bodies.values():
                    formal = body.inputs[len(body.inputs) - node.captures + index - first_capture]
                    range_of_value &= _follow(body, functions, {}, formal, shift, seen)
            elif node.op == "Not":
                range_of_value &= _opposite(_follow(graph, functions, facts, node.outputs[0], 0.0, seen))
            elif node.op == "Concat" or index in _CARRIERS.get(node.op, ()):
                waiting += [(output, shift) for output in node.outputs]
            elif node.op in ("Add", "Mul") and _selects(graph, node, index):
                waiting.append((node.outputs[0], shift))
            elif node.op in ("Add", "Sub"):
                other = graph.constant_of(node.inputs[1 - index])
                if other is not None and other.size == 1 and (node.op == "Add" or index == 0):
                    step = float(other.array.reshape(-1)[0])
                    waiting.append((node.outputs[0], shift + (step if node.op == "Add" else -step)))
    return range_of_value


def _opposite(range: InputRange) -> InputRange:
    """The truth values whose opposites are in a range."""
    return replace(range, low=1 - range.high, high=1 - range.low)


def _selects(graph: Graph, node: Node, index: int) -> bool:
    """Whether an op hands an input on or leaves it out, as ``Where`` does: a product with a mask of zeros and ones, or
    a sum of two such products."""
    first, second = node.inputs[index], node.inputs[1 - index]
    if node.op == "Mul":
        return _is_mask(graph, second) and not _is_mask(graph, first)
    return all(
        value is not None
        and graph.producer(value).op == "Mul"
        and any(_is_mask(graph, factor) for factor in graph.producer(value).inputs)
        for value in (first, second)
    )


def _is_mask(graph: Graph, value: Value | None) -> bool:
    """Whether the elements are truth values as numbers."""
    node = None if value is None else graph.producer(value)
    source = None if node is None or node.op != "Cast" else node.inputs[0]
    return source is not None and graph.producer(source).op in TRUTHS


_ARITHMETIC = (ops_where(group=("arithmetic", "bits")) - {"BitShift"}) | frozenset((
    "Reshape", "Squeeze", "Transpose", "Unsqueeze", "Concat", "Expand", "Flatten", "Pad", "Slice", "Split", "Tile",
    "ReduceMax", "ReduceMin", "ReduceSum", "ReduceProd",
))  # fmt: skip
_COMPARISONS = ops_where(group="comparison")
_ORDERINGS = _COMPARISONS - {"Equal"}
LENGTH = 8
"""How long rows are that a model counts as it runs, at most."""


def _is_free(graph: Graph, start: Value) -> bool:
    """Whether an integer is only computed with and compared, so that it may be any: no op takes it, or what is made of
    it, for an index, a size or a count."""
    waiting, seen = [start], {start}
    while waiting:
        for user, index in graph.users(waiting.pop()):
            node = graph.node(user)
            if node.op in _COMPARISONS:
                continue
            is_data = index in _CARRIERS.get(node.op, (index,))
            if node.op not in _ARITHMETIC or not is_data or (node.op in ("Div", "Mod") and index == 1):
                return False
            new = [value for value in node.outputs if value not in seen]
            seen.update(new)
            waiting += new
    return True


def _wanted(graph: Graph, facts: Mapping[Value, Fact], node: Node, index: int) -> InputRange:
    """What one op asks of the elements of one of its inputs."""
    if index in _SIZES.get(node.op, ()):
        return A_FEW
    table = _EMBEDDINGS.get(node.op, {}).get(index)
    match node.op, index:
        case "Gather" | "GatherElements" | "ScatterElements", 1:
            return _inside(_size(graph, facts, node, 0, node.attrs.get("axis", 0)))
        case "GatherND" | "ScatterND", 1:
            shape = _shape(graph, facts, node, 0)
            return _inside(min((n for n in shape or () if isinstance(n, int)), default=None))
        case "OneHot", 0:
            depth = graph.constant_of(node.inputs[1])
            return _inside(int(depth.array.reshape(-1)[0]) if depth is not None else None)
        case "LSTM" | "GRU" | "RNN", 4:
            return InputRange(1, 1, whole=True)
        case "CumSum" | "CumProd" | "Squeeze" | "Unsqueeze", 1:
            return InputRange(0, 0, whole=True)
        case op, 1 if op.startswith("Reduce"):
            return InputRange(0, 0, whole=True)
        case "Div" | "Mod", 1 if "int" in (_dtype(graph, facts, node.inputs[index]) or ""):
            return A_FEW  # no whole number is divided by 0
        case "Loop", 1:
            return InputRange(1, 1, whole=True)  # without a round there is nothing to see
        case "Dropout", 2:
            return InputRange(0, 0, whole=True)  # what trains is another each time
        case "QuantizeLinear" | "DequantizeLinear", 2 if "float" in (_dtype(graph, facts, node.inputs[index]) or ""):
            return InputRange(0, 0, whole=True)  # as ONNX has it for floats of 8 and 4 bits
        case "Equal", _:
            other = graph.constant_of(node.inputs[1 - index])
            if other is not None and other.size == 1 and other.dtype not in ("string", "bool"):
                return InputRange(choices=(float(other.array.reshape(-1)[0]),))
        case op, _ if op in _ORDERINGS and "int" in (_dtype(graph, facts, node.inputs[index]) or ""):
            return _row_length(graph, facts, node.inputs[1 - index])
        case _ if table is not None:
            return _inside(_size(graph, facts, node, table, 0))
    return ANYTHING


def _row_length(graph: Graph, facts: Mapping[Value, Fact], positions: Value | None) -> InputRange:
    """A length that leaves something of a row, for what is compared with the positions in it, as masks are made."""
    while positions is not None and 0 in _CARRIERS.get(graph.producer(positions).op, ()):
        positions = graph.producer(positions).inputs[0]
    known = graph.constant_of(positions)
    if known is not None:
        counted = np.unique(known.array) if "int" in known.dtype and known.size > 1 else np.zeros(0)
        is_row = counted.size > 1 and counted[-1] - counted[0] == counted.size - 1
        return InputRange(int(counted[0]) + 1, int(counted[-1]) + 1, whole=True) if is_row else ANYTHING
    if positions is None or graph.producer(positions).op != "Range":
        return ANYTHING
    first, end = (_number(facts, value) for value in graph.producer(positions).inputs[:2])
    low = 1 if first is None else first + 1
    return InputRange(low, low + LENGTH - 1 if end is None else max(low, end), whole=True)


def _number(facts: Mapping[Value, Fact], value: Value | None) -> int | None:
    """The whole number that a value is known to be."""
    elements = facts[value].elements if value is not None and value in facts else None
    return elements[0] if elements and isinstance(elements[0], int) else None


def _inside(size: Size | None) -> InputRange:
    return InputRange(0, size - 1 if isinstance(size, int) and size > 0 else 1, whole=True)


def _dtype(graph: Graph, facts: Mapping[Value, Fact], value: Value | None) -> str | None:
    if value is None:
        return None
    type = facts[value].type if value in facts else graph.types.get(value)
    return type.dtype if isinstance(type, TensorType) else None


def _shape(graph: Graph, facts: Mapping[Value, Fact], node: Node, index: int) -> tuple[Size, ...] | None:
    value = node.inputs[index] if index < len(node.inputs) else None
    constant = graph.constant_of(value)
    if constant is not None:
        return constant.shape
    if value is None:
        return None
    type = facts[value].type if value in facts else graph.types.get(value)
    return type.shape if isinstance(type, TensorType) and isinstance(type.shape, tuple) else None


def _size(graph: Graph, facts: Mapping[Value, Fact], node: Node, index: int, axis: object) -> Size | None:
    shape = _shape(graph, facts, node, index)
    return shape[axis] if shape is not None and isinstance(axis, int) and -len(shape) <= axis < len(shape) else None


# -- sizes

_PROFILES = (
    (2, 64, 8), (1, 64, 8), (1, 224, 16), (1, 320, 64), (1, 1, 1), (2, 2, 2), (1, 4, 4), (3, 32, 32), (1, 16, 16),
    (1, 128, 128), (1, 256, 256), (1, 640, 512), (1, 48, 576), (1, 48, 1024), (1, 96, 16000), (1, 1, 0), (1, 0, 8),
)  # fmt: skip
"""Sizes to try, in turn: of batches, of pictures, of everything else (0 last: some mean nothing but that, as an empty
cache)."""


def known_sizes(graph: Graph, inputs: Mapping[str, Any]) -> dict[str, int]:
    """The open sizes that arrays which are given settle."""
    known: dict[str, int] = {}
    for value in graph.inputs:
        type, array = graph.types.get(value), inputs.get(graph.names[value])
        if isinstance(type, TensorType) and isinstance(type.shape, tuple) and isinstance(array, np.ndarray):
            known |= {str(s): n for s, n in zip(type.shape, array.shape, strict=False) if not isinstance(s, int)}
    return known


def sizes(graph: Graph, fixed: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Sizes for the symbols in the types of the graph's inputs, the most promising first; ``fixed`` are known.

    What the graph's ops ask of sizes is solved for as far as it can be, and profiles for the rest that break none of it
    come before the others. Where all of them break something, pictures may be squares, and those that nobody solved
    follow (a size may also be 1).
    A size that is called as a sum of others (``past + length``) is that sum at first, which to ONNX is a name; so are
    lengths (of masks) that nothing tells, where a cache grows.
    """
    asked = equations(graph)
    known = solved(asked, fixed)
    named = {name: substitute(size, known) for name, size in sums(open_names(graph)).items() if name not in known}
    tried: list[dict[str, int]] = []
    lengths = _lengths(graph, {*known, *named})
    starts = [{**known, **named, **lengths}, *([{**known, **named}] if lengths else []), *([known] if named else [])]
    least = smallest(graph)
    guesses = [guess for start in starts for guess in _guesses(graph, start, least)]
    if not any(holds(asked, guess) for guess in guesses):
        guesses += [*_guesses(graph, squares(asked, known), least), *_guesses(graph, fixed, least)]
    for guess in (*(guess for guess in guesses if holds(asked, guess)), *guesses):
        if guess not in tried:
            tried.append(guess)
            yield guess


def _lengths(graph: Graph, told: set[str]) -> dict[str, Size]:
    """The second sizes of matrices that nothing tells, as the sum of what the first cache keeps and of what is new."""
    grown = caches(graph)
    if not grown:
        return {}
    past, new = grown[0]
    told = told.union(*(symbols(size) for pair in grown for size in pair))
    shapes = [t.shape for v in graph.inputs if isinstance(t := graph.types.get(v), TensorType)]
    seconds = [shape[1] for shape in shapes if isinstance(shape, tuple) and len(shape) == 2]
    return {name: past + new for size in seconds for name in symbols(size) - told}


def _guesses(graph: Graph, known: Mapping[str, Size], least: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Sizes by profile, where they are not known: numbers, or polynomials over other symbols. Some are at least as
    large as is asked for."""
    for profile in _PROFILES:
        guess: dict[str, Size] = dict(known)
        for value in graph.inputs:
            type = graph.types.get(value)
            shape = type.shape if isinstance(type, TensorType) and isinstance(type.shape, tuple) else ()
            for axis, size in enumerate(shape):
                for name in sorted(symbols(size)):
                    guess.setdefault(name, max(profile[_meaning(shape, axis)], least.get(name, 0)))
        with suppress(ValueError):
            numbers = {name: substitute(size, guess) for name, size in guess.items()}
            yield {name: size for name, size in numbers.items() if isinstance(size, int)}


def _meaning(shape: tuple[Size, ...], axis: int) -> int:
    """What an open axis most likely counts, as a position in a profile."""
    if axis == 0 and len(shape) > 1:
        return 0
    if len(shape) > 3 and axis > 1:
        return 1
    is_state = len(shape) == 3 and axis == 1 and isinstance(shape[0], int) and isinstance(shape[2], int)
    return 0 if is_state else 2


# -- elements

_FLOATS: tuple[Callable[[np.random.Generator, tuple[int, ...]], Array], ...] = (
    lambda rng, shape: np.asarray(rng.standard_normal(shape)),
    lambda rng, shape: np.asarray(rng.random(shape)),
    lambda rng, shape: np.asarray(10 * rng.standard_normal(shape)),
    lambda rng, shape: np.asarray(1 + rng.random(shape)),
    lambda rng, shape: np.asarray(0.01 * rng.standard_normal(shape)),
    lambda _, shape: np.ones(shape),
    lambda rng, shape: np.asarray(255 * rng.standard_normal(shape)),
    lambda rng, shape: np.asarray(1e12 * rng.standard_normal(shape)),
)

LARGE = len(_FLOATS) - 1
"""The kind of random floats that outweigh whatever a model adds to what it makes of them."""

DISTRIBUTIONS = LARGE
"""How many other kinds of random floats there are."""

ZEROS = 32
"""One in so many of the first kind of random floats is 0, to the right and the left of which functions differ."""


def draw(
    graph: Graph,
    sizes: Mapping[str, int],
    ranges: Mapping[str, InputRange],
    given: Mapping[str, Array | tuple[float, float]],
    seed: int,
    kind: int,
) -> dict[str, object]:
    """Elements for each of the graph's inputs, by name. ``kind`` picks the distribution of floats.

    Inputs with a default value stay near it. Raises ValueError for an input of a type that cannot be drawn.
    """
    rng = np.random.default_rng((seed, kind))
    feeds: dict[str, object] = {}
    levels = () if kind else thresholds(graph)
    for value in graph.inputs:
        name = graph.names[value]
        fixed = given.get(name)
        if isinstance(fixed, np.ndarray):
            feeds[name] = fixed
            continue
        node = graph.producer(value)
        default = node.attrs.get("default") if node.op == INPUT else None
        if default is not None:
            feeds[name] = _near(default.array, rng)  # type: ignore[union-attr]
            continue
        type = graph.types.get(value)
        if fixed is not None and isinstance(type, TensorType):
            _check_bounds(name, type.dtype, fixed)
        range = InputRange(*fixed) if fixed is not None else ranges.get(name, ANYTHING)
        feeds[name] = _draw(name, type, sizes, range, rng, kind)
        if levels and fixed is None and not (range.choices or range.whole):
            _reach(feeds[name], levels, np.random.default_rng((seed, len(feeds))))
    return feeds


_BOUNDING = ops_where(group="comparison") | ops_where(kind="elementwise", group="arithmetic", wraps=False) - {"Where"}
REACHED = 16
"""One in so many of the first kind of random floats lies at, or next to, a number that the graph compares with."""


def thresholds(graph: Graph) -> tuple[float, ...]:
    """The numbers that a graph compares with or clips at, as far as inputs are likely to reach them."""
    found: set[float] = set()
    for node in graph.nodes():
        if node.op in _BOUNDING:
            constants = [constant for value in node.inputs if (constant := graph.constant_of(value)) is not None]
            sizes = [c for c in constants if c.size == 1 and c.dtype in ("float16", "float32", "float64")]
            found.update(float(c.array.reshape(-1)[0]) for c in sizes)
    return tuple(sorted(level for level in found if 0 < abs(level) <= FARTHEST))


FARTHEST = 1e4
"""Larger numbers stand for infinity more often than for a bound."""


def _reach(array: object, levels: tuple[float, ...], rng: np.random.Generator) -> None:
    """Put floats at, below and above some numbers into an array."""
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f" or array.size < REACHED:
        return
    count = array.size // REACHED
    near = rng.choice(np.array(levels), count) * rng.choice((1, 1, 0.99, 1.01), count)
    array.reshape(-1)[rng.integers(array.size, size=count)] = near.astype(array.dtype)


_ORDINARY = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-8, 65520.0, -1e9)
_NOT_FINITE = (np.nan, np.inf, -np.inf)


def special(
    graph: Graph,
    feeds: Mapping[str, object],
    ranges: Mapping[str, InputRange],
    given: Mapping[str, object],
    seed: int,
    is_exact: bool,
) -> dict[str, object]:
    """Inputs in which every other float is a special value: zeros of both signs, subnormal, small and large numbers;
    with ``is_exact`` NaN, infinities and the largest, too. What is bounded, or the user's, stays as it is."""
    rng = np.random.default_rng(seed)
    changed = dict(feeds)
    for value in graph.inputs:
        name = graph.names[value]
        array = feeds.get(name)
        is_bounded = name in ranges and not ranges[name].is_free
        if name in given or is_bounded or not isinstance(array, np.ndarray) or array.dtype.kind != "f":
            continue
        info = np.finfo(array.dtype)
        most = (*_NOT_FINITE, float(info.max), float(info.min)) if is_exact else ()
        with np.errstate(over="ignore"):
            chosen = np.array((*_ORDINARY, float(info.tiny) / 4, -float(info.tiny) / 4, *most)).astype(array.dtype)
        if not is_exact:
            chosen = chosen[np.isfinite(chosen)]
        picked = rng.choice(chosen, array.shape)
        changed[name] = np.asarray(np.where(rng.random(array.shape) < 0.5, picked, array))
    return changed


_INTEGERS = {
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int4": (-8, 7),
    "uint4": (0, 15),
    "int2": (-2, 1),
    "uint2": (0, 3),
}
"""Whole ranges of narrow integers; wider ones more often hold an index, a length or a flag, and are drawn small."""


def _draw(
    name: str, type: Type | None, sizes: Mapping[str, int], range: InputRange, rng: np.random.Generator, kind: int
) -> object:
    match type:
        case TensorType(dtype, tuple(shape)):
            concrete = [n for size in shape if isinstance(n := substitute(size, dict(sizes)), int)]
            try:
                return _tensor(dtype, tuple(concrete), range, rng, kind)
            except (MemoryError, ValueError):  # numpy's for what no address can reach
                raise LimitError(
                    f"input {name!r} would be {dtype}{concrete}, for which there is no memory: give smaller sizes, "
                    "with --dim or --shape"
                ) from None
        case SequenceType(element):
            return [_draw(name, element, sizes, range, rng, kind) for _ in (0, 1)]
        case OptionalType(element):
            return _draw(name, element, sizes, range, rng, kind)
    raise ValueError(f"input {name!r} has no type of which values can be drawn; give it with --input {name}=FILE.npy")


def _check_bounds(name: str, dtype: str, bounds: tuple[float, float]) -> None:
    """Raise UsageError where a tensor of the dtype cannot hold numbers between the bounds."""
    if dtype in ("string", "bool"):
        return
    low, high = _limits(_numpy_dtype(dtype))
    for end in bounds:
        if not low <= end <= high:
            raise UsageError(f"input {name!r} is {dtype}, which holds no {end:g}: give bounds from {low:g} to {high:g}")


def _limits(dtype: np.dtype[Any]) -> tuple[float, float]:
    """The least and the largest number of a dtype."""
    if dtype.kind in "iu":
        whole = np.iinfo(dtype)
        return int(whole.min), int(whole.max)
    if dtype.kind in "fc":
        return float(np.finfo(dtype).min), float(np.finfo(dtype).max)
    import ml_dtypes

    info: Any = ml_dtypes.iinfo if "int" in dtype.name else ml_dtypes.finfo
    return float(info(dtype).min), float(info(dtype).max)


def _tensor(dtype: str, shape: tuple[int, ...], range: InputRange, rng: np.random.Generator, kind: int) -> Array:
    if dtype == "string":
        return rng.choice(np.array(["a", "b", "model", "graph"], dtype=object), shape)
    if dtype == "bool":
        return np.asarray((rng.random(shape) < 0.5) & (range.high >= 1) | (range.low > 0))
    numpy_dtype = _numpy_dtype(dtype)
    is_float = "float" in dtype or "complex" in dtype
    bounded = range.low > -inf and range.high < inf
    if range.choices:
        chosen = np.asarray(rng.choice(np.array(range.choices), shape)).astype(numpy_dtype)
        others = replace(range, choices=())
        return (
            np.where(rng.random(shape) < 0.5, chosen, _tensor(dtype, shape, others, rng, kind)) if bounded else chosen
        )
    if bounded and (range.whole or not is_float):
        return np.asarray(rng.integers(int(range.low), int(range.high), shape, endpoint=True)).astype(numpy_dtype)
    if bounded:
        return np.asarray(rng.uniform(range.low, range.high, shape)).astype(numpy_dtype)
    if not is_float and range.is_free and dtype not in _INTEGERS:
        return _free(numpy_dtype, shape, rng)
    if not is_float:
        low, high = _INTEGERS.get(dtype, (0, 1 if kind % 2 else 3))
        return np.asarray(rng.integers(low, high, shape, endpoint=True)).astype(numpy_dtype)
    floats = _FLOATS[kind](rng, shape)
    if kind == 0 and floats.size >= ZEROS:
        floats.reshape(-1)[rng.integers(floats.size, size=floats.size // ZEROS)] = 0
    with np.errstate(over="ignore"):
        return np.asarray(np.clip(floats, range.low, range.high)).astype(numpy_dtype)


_MAGNITUDES = (4, 300, 70_000)
"""Integers that may be any are drawn up to each of these, and at the ends of what their dtype holds."""


def _free(dtype: np.dtype[Any], shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Integers of both signs: small ones, large ones, and now and then an extreme one."""
    whole = np.iinfo(dtype)
    bounds = [(max(-m, int(whole.min)), min(m, int(whole.max))) for m in _MAGNITUDES]
    kinds = [rng.integers(low, high, shape, dtype, endpoint=True) for low, high in bounds]
    extremes = rng.choice(np.array([whole.min, whole.max], dtype), shape)
    chosen = rng.choice(len(kinds) + 1, shape, p=(0.3, 0.3, 0.3, 0.1))
    return np.asarray(np.choose(chosen, [*kinds, extremes])).astype(dtype)


def _near(default: Array, rng: np.random.Generator) -> Array:
    if default.dtype.kind != "f":
        return default
    return np.asarray(default * rng.uniform(0.9, 1.1, default.shape)).astype(default.dtype)


def _numpy_dtype(name: str) -> np.dtype[np.generic]:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        dtype: np.dtype[np.generic] = np.dtype(getattr(ml_dtypes, name))
        return dtype
