"""Kernel simulator: CUDA kernels in Python, with threads that take turns between barriers.

Every index is checked, memory that nobody wrote holds garbage, and that threads meet at the same barrier. Of what a
block shares it is noted who reads and writes it, so that a barrier that is missing is an error whatever the order.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import field
from functools import lru_cache
from itertools import product
from types import CodeType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphopt.errors import ExecutionError
from graphopt.frozen import dataclass
from graphopt.kernels.cuda.limits import ACCESS, SHARED, THREADS, WARP
from graphopt.kernels.cuda.simulated import DTYPES, FUNCTIONS
from graphopt.kernels.cuda.simulated_warps import TOGETHER
from graphopt.kernels.kernel import SIZE, STORED, Kernel

Array: TypeAlias = NDArray[Any]
Triple: TypeAlias = tuple[int, int, int]
Request: TypeAlias = tuple[str, Any]
"""What a thread waits for, and what it gives."""


def run(
    kernel: Kernel,
    grid: Sequence[int],
    block: Sequence[int],
    args: Sequence[Array | int],
    only: Collection[Triple] | None = None,
) -> None:
    """Runs a kernel in so many blocks of so many threads, along up to three axes each: ``only`` some of the blocks,
    where their places are given.

    Pointers are flat arrays, changed in place (float16 and bfloat16 as uint16, bool as uint8), sizes are integers.
    Raises ``ExecutionError`` where the kernel does what a GPU would not forgive.
    """
    blocks, threads = _triple(grid), _triple(block)
    if not 0 < np.prod(threads) <= THREADS:
        raise ExecutionError(f"a block of {threads} threads: expected 1 to {THREADS}")
    code, names = _compiled(kernel.source)
    passed = [_argument(*pair) for pair in zip(names, kernel.params, args, strict=True)]
    with np.errstate(all="ignore"):
        for z, y, x in product(*map(range, reversed(blocks))):
            if only is None or (x, y, z) in only:
                _Block((x, y, z), threads).run(code, passed)


def _triple(sizes: Sequence[int]) -> Triple:
    x, y, z = (*sizes, 1, 1, 1)[:3]
    return int(x), int(y), int(z)


def _argument(name: str, param: str, arg: Array | int) -> Any:
    if param == SIZE:
        return int(arg)
    if not isinstance(arg, np.ndarray) or arg.ndim != 1 or arg.dtype != STORED.get(param, param):
        raise ExecutionError(f"{name} is to be a flat array of {STORED.get(param, param)}")
    return SimulatedPointer(name, arg)


@lru_cache(64)
def _compiled(source: str) -> tuple[CodeType, tuple[str, ...]]:
    """Code that defines ``kernel`` as a generator, and the names of its parameters."""
    tree = _Turns().visit(ast.parse(source))
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "kernel")
    function.body.append(ast.parse("if False: yield").body[0])  # a generator even where no thread waits
    code = compile(ast.fix_missing_locations(tree), "<kernel>", "exec")
    return code, tuple(arg.arg for arg in function.args.args)


class _Turns(ast.NodeTransformer):
    """Turns of threads: they yield what they want where they wait for each other; each call of ``shared`` has its
    number."""

    def __init__(self) -> None:
        self._sites = 0

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt:
        return ast.Pass() if (node.module or "").startswith("graphopt.kernels.cuda.") else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if not isinstance(node.func, ast.Name):
            return node
        if node.func.id == "shared":
            self._sites += 1
            node.args.append(ast.Constant(self._sites))
        if node.func.id == "barrier" or node.func.id in TOGETHER:
            return ast.Yield(ast.Tuple([ast.Constant(node.func.id), node], ast.Load()))
        return node


class SimulatedPointer:
    """A pointer: elements from some place of an array on."""

    __slots__ = ("array", "name", "size", "start")

    def __init__(self, name: str, array: Array, start: int = 0) -> None:
        self.name, self.array, self.start, self.size = name, array, start, array.size

    def __getitem__(self, index: Any) -> Any:
        at = self.start + index
        if not 0 <= at < self.size:
            raise IndexError(f"reads element {at} of {self.name}, which has {self.size}")
        return self.array[at]

    def __setitem__(self, index: Any, value: Any) -> None:
        at = self.start + index
        if not 0 <= at < self.size:
            raise IndexError(f"writes element {at} of {self.name}, which has {self.size}")
        self.array[at] = value

    def load(self, index: Any, count: int) -> tuple[Any, ...]:
        """Neighbouring elements, read at once."""
        at = self.start + index
        self.check_aligned(index, count)
        if not 0 <= at <= self.size - count:
            raise IndexError(f"reads elements {at} to {at + count - 1} of {self.name}, which has {self.size}")
        return tuple(self.array[at : at + count])

    def store(self, index: Any, values: Sequence[Any]) -> None:
        """Writes neighbouring elements at once."""
        self.check_aligned(index, len(values))
        for k, value in enumerate(values):
            self[index + k] = value

    def offset(self, index: Any) -> SimulatedPointer:
        """The pointer to an element."""
        return SimulatedPointer(self.name, self.array, self.start + int(index))

    def check_aligned(self, index: Any, count: int) -> None:
        """Raises ``IndexError`` where so many elements cannot be accessed at once."""
        size = min(ACCESS, count * self.array.itemsize)
        if (self.start + index) * self.array.itemsize % size:
            raise IndexError(f"accesses {count} elements from {self.start + index} of {self.name} on: not aligned")


class SharedElements(SimulatedPointer):
    """A pointer to what a block shares, in which threads must not meet between two barriers."""

    __slots__ = ("block", "read", "written")

    def __init__(self, name: str, array: Array, block: _Block, start: int = 0) -> None:
        super().__init__(name, array, start)
        self.block = block
        self.read: dict[int, int] = {}
        """By element, who read it since the last barrier: a thread, or -1 for several."""
        self.written: dict[int, int] = {}

    def __getitem__(self, index: Any) -> Any:
        at, me = self.start + index, self.block.number
        if self.written.get(at, me) != me:
            raise IndexError(f"reads element {at} of {self.name} that another thread wrote, with no barrier between")
        if self.read.setdefault(at, me) != me:
            self.read[at] = -1
        if not 0 <= at < self.size:
            return super().__getitem__(index)
        return self.array[at]

    def load(self, index: Any, count: int) -> tuple[Any, ...]:
        """Neighbouring elements, read at once."""
        self.check_aligned(index, count)
        return tuple([self[index + k] for k in range(count)])

    def __setitem__(self, index: Any, value: Any) -> None:
        at, me = self.start + index, self.block.number
        if self.written.setdefault(at, me) != me or self.read.get(at, me) != me:
            raise IndexError(f"writes element {at} of {self.name} that another thread uses, with no barrier between")
        super().__setitem__(index, value)

    def offset(self, index: Any) -> SimulatedPointer:
        """The pointer to an element; who uses it is noted with the rest."""
        other = SharedElements(self.name, self.array, self.block, self.start + int(index))
        other.read, other.written = self.read, self.written
        return other


def _garbage(count: int, dtype: Any) -> Array:
    """Memory that nobody wrote."""
    scalar = getattr(dtype, "scalar", dtype)
    return np.full(count, np.nan if issubclass(scalar, np.floating) else dtype(0x5A5A5A5A5A5A5A5A), scalar)


Copy: TypeAlias = tuple[SimulatedPointer, int, SimulatedPointer, int, int, int]
"""A copy that is under way: to where, from where, of how many elements, and how many of them are there."""


@dataclass
class _Block:
    """A block of threads that is running, and which thread's turn it is."""

    index: Triple
    size: Triple
    thread: Triple = (0, 0, 0)
    number: int = 0
    shared: dict[int, SharedElements] = field(default_factory=dict)
    copies: dict[int, list[list[Copy]]] = field(default_factory=dict)

    def run(self, code: CodeType, args: Sequence[Any]) -> None:
        """Runs all threads to their end."""
        names = self._names()
        exec(code, names)
        sx, sy, sz = self.size
        threads = [(x, y, z) for z, y, x in product(range(sz), range(sy), range(sx))]
        running: list[Generator[Request, Any, None]] = [names["kernel"](*args) for _ in threads]
        wants: dict[int, Request | None] = dict.fromkeys(range(len(threads)))
        answers: list[Any] = [None] * len(threads)
        turn = list(wants)
        while turn:
            for self.number in turn:
                self.thread = threads[self.number]
                try:
                    wants[self.number] = running[self.number].send(answers[self.number])
                except StopIteration:
                    wants[self.number] = None
                except Exception as error:
                    raise ExecutionError(f"{type(error).__name__}: {error}, {self._here()}") from error
            # who came last goes first: what depends on the order of threads between barriers is seen
            turn = self._answered(wants, answers)[::-1]

    def _here(self) -> str:
        return f"in thread {self.thread} of block {self.index}"

    def _answered(self, wants: dict[int, Request | None], answers: list[Any]) -> list[int]:
        """Threads that go on: warps that do something together, or else all, at a barrier."""
        lanes: list[int] = []
        for first in range(0, len(answers), WARP):
            warp = range(first, min(first + WARP, len(answers)))
            requests = [r for n in warp if (r := wants[n]) is not None and r[0] != "barrier"]
            if not requests:
                continue
            if len(requests) < WARP or len({name for name, _ in requests}) > 1:
                raise ExecutionError(f"{requests[0][0]} is not called by all threads of a warp in block {self.index}")
            for n, answer in zip(warp, TOGETHER[requests[0][0]]([given for _, given in requests]), strict=True):
                answers[n] = answer
            lanes += warp
        if lanes:
            return lanes
        waiting = [n for n, want in wants.items() if want is not None]
        if waiting and len(waiting) < len(answers):
            raise ExecutionError(f"a barrier is reached by {len(waiting)} of {len(answers)} threads of {self.index}")
        for memory in self.shared.values():
            memory.read.clear()
            memory.written.clear()
        for n in waiting:
            answers[n] = None
        return waiting

    def _names(self) -> dict[str, Any]:
        """Names that source may call, for the threads of this block."""
        axes = dict(enumerate("xyz"))
        return {
            **DTYPES,
            **FUNCTIONS,
            **{f"block_{axis}": (lambda n=n: self.index[n]) for n, axis in axes.items()},
            **{f"thread_{axis}": (lambda n=n: self.thread[n]) for n, axis in axes.items()},
            **{f"load{n}": _loader(n) for n in (2, 4, 8)},
            **{f"store{n}": _storer(n) for n in (2, 4, 8)},
            "shared": self._shared,
            "local": lambda count, dtype: SimulatedPointer("local memory", _garbage(count, dtype)),
            "offset": lambda p, index: p.offset(index),
            "barrier": lambda: None,
            **{name: (lambda *args: args) for name in TOGETHER if name.startswith("mma")},
            **{name: (lambda x: x) for name in TOGETHER if name.startswith("warp")},
            **{name: self._row for name in TOGETHER if name.startswith("ldmatrix")},
            "copy_async": self._copy,
            "copy_commit": lambda: self._groups().append([]),
            "copy_wait": self._wait,
        }

    def _row(self, p: SimulatedPointer, index: int) -> Array:
        """The row of a matrix at the address that a thread gives."""
        return np.array(p.load(index, ACCESS // p.array.itemsize))

    def _groups(self) -> list[list[Copy]]:
        """The groups of copies that a thread has under way; the last is not committed."""
        return self.copies.setdefault(self.number, [[]])

    def _copy(self, p: SimulatedPointer, i: int, q: SimulatedPointer, j: int, lanes: int, valid: int) -> None:
        for pointer, index in ((p, i), (q, j)):
            pointer.check_aligned(index, lanes)
        if not isinstance(p, SharedElements) or not 0 <= valid <= lanes:
            raise ValueError(f"copy_async of {valid} of {lanes} elements to {p.name}: expected shared memory")
        self._groups()[-1].append((p, i, q, j, lanes, valid))

    def _wait(self, left: int) -> None:
        """Nothing has come before it has to: a wait that is missing is seen."""
        groups = self._groups()
        while len(groups) > left + 1:
            for p, i, q, j, lanes, valid in groups.pop(0):
                for k in range(lanes):
                    p[i + k] = q[j + k] if k < valid else 0

    def _shared(self, count: int, dtype: Any, site: int) -> SharedElements:
        if site not in self.shared:
            self.shared[site] = SharedElements(f"shared memory {site}", _garbage(count, dtype), self)
            total = sum(memory.array.nbytes for memory in self.shared.values())
            if total > SHARED:
                raise MemoryError(f"{total} bytes of shared memory: expected at most {SHARED}")
        return self.shared[site]


def _loader(count: int) -> Callable[[SimulatedPointer, int], tuple[Any, ...]]:
    def load(p: SimulatedPointer, index: int) -> tuple[Any, ...]:
        return p.load(index, count)

    return load


def _storer(count: int) -> Callable[[SimulatedPointer, int, tuple[Any, ...]], None]:
    def store(p: SimulatedPointer, index: int, values: tuple[Any, ...]) -> None:
        if len(values) != count:
            raise ValueError(f"store{count} of {len(values)} values")
        p.store(index, values)

    return store
