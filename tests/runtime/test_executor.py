"""In which order steps of a call follow each other, and what Python does in between: of a walker whose memory is arrays
by buffer, and which notes its stretches."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from graphopt.runtime.binding import Binder, Binding
from graphopt.runtime.dtypes import STORAGE
from graphopt.runtime.executor import Walker
from graphopt.runtime.layout import Native, lay_out
from graphopt.runtime.steps import (
    Array,
    Bind,
    Branch,
    BufferRef,
    Code,
    HostStep,
    LibraryStep,
    LoopStep,
    Port,
    ProgramBuffer,
    Step,
)

NATIVE = LibraryStep("gemm", ())


class Noting(Walker):
    """Keeps every buffer as an array of its own."""

    def __init__(self, buffers: list[ProgramBuffer], steps: list[Step], **functions: Any) -> None:
        inputs = tuple(Port(f"x{n}", n) for n, b in enumerate(buffers) if b.place == "input")
        code = Code(inputs, (), tuple(buffers), tuple(steps), ())
        layout = lay_out(code, is_driven=False)
        super().__init__(code, layout, Binder(code, layout), functions, STORAGE)
        self.memory: dict[int, Any] = {}
        self.did: list[Any] = []

    def walk(self, symbols: dict[str, int] | None = None, **memory: Any) -> list[Any]:
        self.did = []
        self.memory |= {int(name[1:]): np.array(value) for name, value in memory.items()}
        self._know(0, self._binder.bind(0, symbols or {}))
        self._run(self._layout.stages)
        return self.did

    def _stretch(self, stage: Native) -> None:
        self.did.append((stage.begin, stage.end))

    def _know(self, level: int, binding: Binding) -> None:
        self._bound[level], self.symbols = binding, binding.symbols
        self.did.append(dict(binding.symbols))

    def read(self, n: int) -> Any:
        found = self.on_host(n)
        return self.memory[n] if found is None else found

    def _write(self, n: int, array: Any) -> None:
        self.memory[n] = array.copy()

    def _keep(self, n: int, array: Array) -> None:
        self._arrays[n] = array

    def _forget(self, n: int) -> None:
        self.did.append(f"forget {n}")

    def _to_fill(self, n: int) -> Array:
        return np.empty(self._binder.shape(n, self.symbols), self._dtype(n))

    def _filled(self, n: int, array: Array) -> None:
        self.memory[n] = array


FLAG, COUNTER = ProgramBuffer("bool", (), "arena"), ProgramBuffer("int64", (), "arena")


def test_branches_go_one_way() -> None:
    walker = Noting([FLAG], [Branch(0, (NATIVE,), (NATIVE, NATIVE)), NATIVE])
    assert walker.walk(_0=True) == [{}, (0, 1), (3, 4)]
    assert walker.walk(_0=False) == [{}, (1, 3), (3, 4)]


@pytest.mark.parametrize(("count", "turns"), [(3, 3), (0, 0), (BufferRef(1), 2)])
def test_loops_count(count: Any, turns: int) -> None:
    seen: list[int] = []
    body = (NATIVE, HostStep("see", (0,), ()))
    walker = Noting([COUNTER, COUNTER], [LoopStep(body, 0, count)], see=lambda n: seen.append(int(n)) or ())
    assert walker.walk(_1=2) == [{}, *[(0, 1)] * turns]
    assert seen == list(range(turns))
    assert walker.memory[0] == turns


def test_loops_go_on_while_a_condition_holds() -> None:
    steps = [LoopStep((HostStep("less", (0,), (1,)), NATIVE), 0, None, 1)]
    walker = Noting([COUNTER, FLAG], steps, less=lambda n: np.array(n < 2))
    assert walker.walk(_1=True) == [{}, *[(0, 1)] * 3]
    assert walker.walk(_1=False) == [{}]


def test_sizes_are_bound_by_what_is_computed() -> None:
    buffers = [
        ProgramBuffer("int64", (2,), "arena"),
        ProgramBuffer("float32", ("k",), "output"),
        ProgramBuffer("float32", ("m",), "host"),
    ]
    steps = [Bind(("k", "l"), 0), HostStep("make", (1,), (2,), binds=(("m", 0, 0),))]
    walker = Noting(buffers, steps, make=lambda x: x[::2])
    did = walker.walk(_0=[3, 1], _1=np.zeros(3, np.float32))
    assert did == [{}, "forget 1", {"k": 3, "l": 1}, {"k": 3, "l": 1, "m": 2}]


def test_sizes_that_are_not_known_yet_are_no_part_of_a_binding() -> None:
    """A loop comes back to sizes, with others behind them that are left from the round before."""
    buffers = [ProgramBuffer("int64", (1,), "arena"), ProgramBuffer("float32", ("k", "l"), "arena")]
    walker = Noting(buffers, [Bind(("k",), 0), Bind(("l",), 0)])
    first = walker._binder.bind(1, {"k": 3})
    assert walker._binder.bind(1, {"k": 3, "l": 5}) is first
    assert walker._binder.bind(1, {"k": 4, "l": 5}) is not first
    assert walker._binder.bind(2, {"k": 3, "l": 5}) is not walker._binder.bind(2, {"k": 3, "l": 6})


def test_what_python_gives_is_kept_apart_from_what_it_was_given() -> None:
    buffers = [
        ProgramBuffer("float32", (2,), "arena"),
        ProgramBuffer("float32", (2,), "host"),
        ProgramBuffer("object", None, "host"),
    ]
    walker = Noting(buffers, [HostStep("same", (0,), (1, 2))], same=lambda x: (x, [x]))
    walker.walk(_0=np.ones(2, np.float32))
    kept = walker.on_host(1)
    assert kept.tolist() == [1, 1]
    assert not np.may_share_memory(kept, walker.memory[0])
    assert walker.on_host(2)[0] is walker.memory[0]
    assert walker.on_host(0) is None


def test_steps_fill_arrays() -> None:
    def fill(x: Any, y: Any) -> None:
        y[:] = x + 1

    buffers = [ProgramBuffer("float32", (2,), "arena"), ProgramBuffer("float32", (2,), "arena")]
    walker = Noting(buffers, [HostStep("fill", (0,), (1,), fills=True)], fill=fill)
    walker.walk(_0=np.ones(2, np.float32))
    assert walker.memory[1].tolist() == [2, 2]


def test_a_clock_takes_the_time_of_what_python_does() -> None:
    class Clock:
        def __init__(self) -> None:
            self.seen: list[str] = []

        @contextmanager
        def of(self, step: HostStep | Bind) -> Iterator[None]:
            self.seen.append(f"{type(step).__name__} begins")
            yield
            self.seen.append("ends")

    walker = Noting(
        [ProgramBuffer("int64", (1,), "arena")], [NATIVE, Bind(("k",), 0), HostStep("f", (), ())], f=lambda: ()
    )
    clock = walker._clock = Clock()
    walker.walk(_0=[1])
    assert clock.seen == ["Bind begins", "ends", "HostStep begins", "ends"]
