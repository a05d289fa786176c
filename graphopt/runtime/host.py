"""Host steps of programs, which Python runs, and the errors of kernels that could not do their work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from graphopt.errors import ExecutionError
from graphopt.frozen import dataclass
from graphopt.runtime.steps import Array, HostStep, KernelStep, Launch

HostFunction: TypeAlias = Callable[..., Any]


COMPARED = 1 << 11
"""Comparisons that numpy makes in less time than it takes to look through some rows one by one."""


def keep(array: Any) -> Any:
    """What a loop keeps for its next round, or hands on at its end."""
    return array.copy()


def append(kept: Any, array: Any) -> Any:
    """What the rounds of a loop gave so far: a list, or, before the first, an array without elements."""
    rounds = kept if isinstance(kept, list) else []
    rounds.append(array.copy())
    return rounds


def take(kept: Any) -> Any:
    """What was kept, or, of several rounds, all in one array."""
    return np.array(kept) if isinstance(kept, list) else kept


FEW = 8
"""Rows that are made maps one by one; of more, columns are put into maps, which is faster."""


def maps(labels: Any, numbers: Any) -> list[dict[Any, Any]]:
    """A map from labels to numbers for each row; labels that are bytes are texts."""
    keys = _texts(labels.tobytes()).tolist() if labels.dtype == np.uint8 else labels.tolist()
    rows = numbers if numbers.ndim == 2 else numbers[None]
    if rows.shape[1] != len(keys):
        raise ExecutionError(f"ZipMap has {len(keys)} labels for {rows.shape[1]} numbers")
    if len(rows) <= FEW:
        return [dict(zip(keys, row, strict=False)) for row in rows.tolist()]
    first, *others = rows.T.tolist()
    made = [{keys[0]: number} for number in first]
    for key, column in zip(keys[1:], others, strict=True):
        for each, number in zip(made, column, strict=False):
            each[key] = number
    return made


def words(texts: Any, places: Any) -> Any:
    """The texts at some places of a list."""
    table = _texts(texts.tobytes())
    try:
        return table[places]
    except IndexError:
        raise ExecutionError("Gather: an index is out of range") from None


def draw(how: Any, given: Any = None) -> Any:
    """Random numbers, as the texts of ``how`` say: the kind, the dtype, two numbers, the seed, who draws, the shape.

    ``normal`` has a mean and a deviation, ``uniform`` bounds, and both the shape of ``given`` where there is none.
    ``bernoulli`` has probabilities; ``multinomial`` rows of logarithms of weights, of which it draws so many places.
    Numbers of one seed are the same in each process, and go on with each call.
    """
    kind, dtype, (first, second), shape, generator = _drawing(how.tobytes())
    shape = given.shape if shape is None else shape
    numbers: Any
    match kind:
        case "normal":
            numbers = generator.standard_normal(shape, _drawn_as(dtype)) * second + first
        case "uniform":
            numbers = generator.random(shape, _drawn_as(dtype)) * (second - first) + first
        case "bernoulli":
            numbers = generator.random(shape) < given
        case _:
            numbers = _chosen(given, generator.random((len(given), int(first))), dtype)
    return np.asarray(numbers).astype(dtype, copy=False)


def _chosen(logits: Any, parts: Any, dtype: np.dtype[Any]) -> Any:
    """For each number from 0 to 1 the place in its row of logarithms of weights that has this part of their sum."""
    weights = np.subtract(logits, np.maximum.reduce(logits, -1, keepdims=True), dtype=np.float64)
    np.add.accumulate(np.exp(weights, weights), -1, None, weights)
    parts *= weights[:, -1:]
    if parts.shape[1] * weights.size <= COMPARED:
        return np.add.reduce(weights[:, None] <= parts[..., None], -1, dtype)
    found = np.empty(parts.shape, dtype)
    for k, row in enumerate(weights):
        found[k] = row.searchsorted(parts[k], "right")
    return found


def _drawn_as(dtype: Any) -> Any:
    return np.float64 if dtype == np.float64 else np.float32


@cache
def _drawing(held: bytes) -> tuple[str, np.dtype[Any], tuple[Any, Any], tuple[int, ...] | None, np.random.Generator]:
    """What ``draw`` is told, and what it draws from."""
    kind, name, first, second, seed, who, shape = _texts(held).tolist()
    dtype = np.dtype(name)
    entropy = [int(who), *np.array([seed], np.float64).view(np.uint32).tolist()] if seed else None
    generator = np.random.default_rng(entropy)
    kept: Any = _drawn_as(dtype)
    numbers = (kept(first), kept(second))
    return kind, dtype, numbers, None if shape == "?" else tuple(map(int, shape.split())), generator


def bytes_of(strings: Sequence[str]) -> Array:
    """Texts without a zero as bytes, each with a zero behind it."""
    return np.frombuffer("".join(f"{text}\0" for text in strings).encode(), np.uint8)


@lru_cache(64)
def _texts(held: bytes) -> Array:
    """What ``bytes_of`` holds."""
    return np.array(held.decode().split("\0")[:-1], object)


BUILT_IN: Mapping[str, HostFunction] = {
    "append": append, "draw": draw, "keep": keep, "maps": maps, "take": take, "words": words
}  # fmt: skip
"""Functions that every program has: they hand on arrays whose sizes are found out, and what numpy has no type for. What
they give is nobody else's."""


@dataclass(frozen=True, slots=True)
class ExternalCall:
    """An external function, registered by name, as a host step calls it: with attributes besides arrays."""

    name: str
    function: HostFunction
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, *arrays: Any) -> Any:
        """What the function gives."""
        return self.function(*arrays, **self.attributes)


class UnloweredNode(NamedTuple):
    """A node that no kernel computes: its name and op, why, and what computes it."""

    name: str
    op: str
    why: str
    engine: str


def perform(step: HostStep, function: HostFunction, given: Sequence[Any], filled: Sequence[Array]) -> Sequence[Any]:
    """The results of a host step's function, called with arrays; those of ``filled`` where it fills.

    Raises what the function raises, with a note that says where, and ``ExecutionError`` for results that do not fit.
    """
    try:
        result = function(*given, *filled)
    except Exception as error:
        error.add_note(f"in {step.label or step.function}, which is run by Python")
        raise
    if not step.fills:
        results = result if isinstance(result, tuple) else (result,)
        if len(results) != len(step.outputs):
            raise ExecutionError(f"{_title(step)} gave {len(results)} results, and {len(step.outputs)} are expected")
        return results
    if filled and isinstance(result, np.ndarray) and not any(np.may_share_memory(result, f) for f in filled):
        raise ExecutionError(
            f"{_title(step)} gave an array, and is expected to fill the last of those that it is given"
        )
    return filled


def result_of(step: HostStep, result: Any, dtype: np.dtype[Any], shape: tuple[int, ...] | None) -> Array:
    """One result of a host step as an array; ``ExecutionError`` where it is not of this dtype and shape (None: any).

    A result without elements is of the shape that is known: a loop of no rounds has seen no sizes."""
    array = np.asarray(result)
    shape = array.shape if shape is None else shape
    if not array.size and array.ndim == len(shape) and 0 in shape:
        array = array.reshape(shape)
    if array.shape != shape or (array.dtype is not dtype and array.dtype != dtype):
        raise ExecutionError(
            f"{_title(step)} gave {array.dtype}{list(array.shape)}, and {dtype}{list(shape)} is expected"
        )
    return array


def _title(step: HostStep) -> str:
    return f"{step.label or step.function}, which is run by Python,"


def view_of(memory: Array, start: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Part of a row-major array's memory, from a byte on, as an array, without a copy."""
    return np.ndarray(shape, dtype, memory, start)


def failure(call: KernelStep | Launch, at: int, status: int) -> ExecutionError:
    """What is raised where the kernel of a step, the instruction ``at``, ended with a status."""
    has_message = 0 < status <= len(call.messages)
    why = call.messages[status - 1] if has_message else f"its kernel ended with status {status}"
    nodes = f" ({', '.join(call.nodes)})" if call.nodes else ""
    return ExecutionError(f"{call.label or f'call {at}'}{nodes}: {why}")
