"""Programs as data: buffers, and steps that fill them.

::

    step = Call(kernel, args, extent, ...)         compiled code, run by the native driver
         | Launch(kernel, args, grid, block, ...)  compiled code, run by a device
         | Library(name, args, attributes, ...)    a library's function
         | Host(function, inputs, outputs, ...)    a Python function, between two native stretches
         | Bind(symbols, buffer)                   sizes that are only known once they are computed
         | Branch(condition, then, otherwise)
         | Loop(body, counter, count, condition)

Buffers are known by their number. Steps run in the order in which they stand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from graphopt.frozen import dataclass
from graphopt.runtime.sizes import Size

SHARED: Final = 1 << 14
"""Iterations of innermost loops from which on threads share a kernel: below, waking them takes longer. Programs that
were saved before share out all that are parallel."""
Array: TypeAlias = "np.ndarray[Any, Any]"
Words: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int64]]"
"""Arguments of kernels: addresses and sizes."""
Attribute: TypeAlias = "str | int | float | bool"
Place: TypeAlias = Literal["input", "output", "constant", "arena", "view", "host"]


@dataclass(frozen=True, slots=True)
class ProgramBuffer:
    """A dense row-major array; ``dtype`` is ONNX's name of the element type in lower case (``"float32"``, ``"bool"``).

    ``place`` says where it lives:

    - ``input``: the caller's array. The sizes in its shape that are mere symbols are bound by it, others are checked.
      A shape that is None is any.
    - ``output``: an array of the caller's, or a fresh one, that is returned.
    - ``constant``: an array of ``Code.constants``.
    - ``arena``: memory of the program, shared by buffers that do not live at once; the runtime plans it for each
      binding of the symbols unless ``offset`` gives the bytes from the arena's start.
    - ``view``: memory of the buffer ``of``, from the byte ``offset`` on (0 where None). It is of the size of what it
      views, which is seen to before anything runs; where it is ``tentative``, by steps before those that use it.
    - ``host``: the array that a ``HostStep`` returned; a shape that is None is any. Strings (dtype ``"string"``) and
      other Python objects (dtype ``"object"``: sequences, optionals) live only in inputs, constants and here.
    """

    dtype: str
    shape: tuple[Size, ...] | None
    place: Place
    of: int | None = None
    offset: Size | None = None
    tentative: bool = False


@dataclass(frozen=True, slots=True)
class Condition:
    """What sizes have to be like: ``holds`` is 0 where they are not, and then nothing that needs them is run."""

    holds: Size
    message: str


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output by its name. A constant of an input's buffer is its default.

    An output may be any buffer: one whose place is not ``output`` is copied at the end.
    """

    name: str
    buffer: int


@dataclass(frozen=True, slots=True)
class StatePort:
    """A state that is kept between calls: the input ``past``, which the output ``present`` follows.

    One of one shape has no ``axis``; where it is written ``in_place``, there is no such output. Of one that grows along
    an axis the input is its memory, with room behind the past, and there is no such output, either: the program writes
    what is new behind the past. ``length`` is the name of the input that says how many rows the past has, as an array
    of so many rows without elements, and ``after`` the rows that the state has once the program ran.
    """

    past: str
    present: str
    axis: int | None = None
    length: str = ""
    after: Size = 0
    in_place: bool = False


@dataclass(frozen=True, slots=True)
class BufferRef:
    """An argument that is an address: a buffer's, ``offset`` bytes on."""

    buffer: int
    offset: Size = 0


@dataclass(frozen=True, slots=True)
class KernelStep:
    """Runs a kernel on the work items from 0 up to ``extent``; where ``parallel``, shared out to the threads
    if there are enough ``iterations`` of its innermost loops (``SHARED``).

    ``args`` are those of the kernel before ``lo`` and ``hi``, in order: addresses and sizes. ``label``, ``nodes``,
    ``flops`` and ``bytes`` are for profiles. ``messages[k - 1]`` is what a kernel's status ``k`` means.
    """

    kernel: int
    args: tuple[BufferRef | Size, ...]
    extent: Size = 1
    parallel: bool = False
    iterations: Size = SHARED
    label: str = ""
    nodes: tuple[str, ...] = ()
    flops: Size = 0
    bytes: Size = 0
    messages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Launch:
    """Runs a device's kernel in ``grid`` blocks of ``block`` threads (x, y and z of each); none where a size is 0.

    ``args`` are the kernel's, in order: addresses and sizes. A kernel of ``messages`` takes the address of an int32 as
    its last argument, which is not among ``args``: it leaves there what a ``KernelStep`` would return. The rest is as
    ``KernelStep``'s.
    """

    kernel: int
    args: tuple[BufferRef | Size, ...]
    grid: tuple[Size, Size, Size]
    block: tuple[int, int, int]
    label: str = ""
    nodes: tuple[str, ...] = ()
    flops: Size = 0
    bytes: Size = 0
    messages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LibraryStep:
    """Calls a library's function by its ``name`` (those of ``graphopt.runtime.library_calls``).

    ``args`` are addresses and sizes in the order that is written there; ``attributes`` are pairs of what else it takes,
    the same in every call: element types, which operands are transposed, what is done to the result. The rest is as
    ``KernelStep``'s.
    """

    name: str
    args: tuple[BufferRef | Size, ...]
    attributes: tuple[tuple[str, Attribute], ...] = ()
    label: str = ""
    nodes: tuple[str, ...] = ()
    flops: Size = 0
    bytes: Size = 0


@dataclass(frozen=True, slots=True)
class HostStep:
    """Calls ``functions[function]`` with views of the inputs (None for one left out).

    It returns its outputs (an array, or a tuple of several), which are copied where their buffers do not have the
    place ``host``; or, where it ``fills``, it is given views of the outputs after the inputs and returns nothing.
    ``binds`` holds ``(symbol, output, axis)``: the symbol is, from here on, the size that the array returned has there.
    """

    function: str
    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]
    fills: bool = False
    binds: tuple[tuple[str, int, int], ...] = ()
    label: str = ""
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bind:
    """The symbols are, from here on, the elements of an int64 buffer, in order; sizes of buffers that are negative by
    them are an error."""

    symbols: tuple[str, ...]
    buffer: int


@dataclass(frozen=True, slots=True)
class Branch:
    """Runs ``then`` where the bool in ``condition`` is true, else ``otherwise``. Symbols bound inside end inside."""

    condition: int
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class LoopStep:
    """Runs ``body`` while the int64 in ``counter``, from 0 up by 1, is below ``count`` and ``condition`` holds.

    ``count`` is a size or the place of an int64 (None: no limit); ``condition`` is a buffer of one bool, which the
    body may change (None: always true). A buffer that is only used inside of the body does not outlive an iteration.
    """

    body: tuple[Step, ...]
    counter: int
    count: BufferRef | Size | None = None
    condition: int | None = None


Step: TypeAlias = KernelStep | Launch | LibraryStep | HostStep | Bind | Branch | LoopStep


@dataclass(frozen=True, slots=True, eq=False)
class Code:
    """All of a program that is the same in every call.

    ``objects`` is the object code of the kernels, by number, ``driver`` that of the native driver
    (``graphopt.kernels.driver``), which programs that run on a device do not need. ``constants`` are the arrays of
    constant buffers, row-major, by the buffer's number.
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    buffers: tuple[ProgramBuffer, ...]
    steps: tuple[Step, ...]
    objects: tuple[bytes, ...]
    driver: bytes = b""
    constants: Mapping[int, Array] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    regions: Mapping[str, bytes] = field(default_factory=dict)
    """The model of each host step that ONNX Runtime computes, by the step's function."""
    states: tuple[StatePort, ...] = ()


def inner(step: Step) -> tuple[tuple[Step, ...], ...]:
    """The sequences of steps within a step."""
    if isinstance(step, Branch):
        return step.then, step.otherwise
    return (step.body,) if isinstance(step, LoopStep) else ()


def walk(steps: tuple[Step, ...]) -> Iterator[Step]:
    """Every step, those within others too, in the order of the text."""
    for step in steps:
        yield step
        for body in inner(step):
            yield from walk(body)
