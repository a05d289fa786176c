"""Code layout: a program's steps as the driver's table of instructions, and what Python has to do in between.

The table's operands are words of a second table, the arguments: addresses and sizes. A word is known once its symbols
are: those of *level* 0 when the program is called, others when a step binds them, each such step opening a level.
So the arguments are filled in level by level, and the instructions never change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ctypes import c_int64
from dataclasses import field
from typing import TypeAlias

from graphopt.frozen import dataclass
from graphopt.runtime import bytecode
from graphopt.runtime.sizes import Size, symbols_of
from graphopt.runtime.steps import (
    Bind,
    Branch,
    BufferRef,
    Code,
    HostStep,
    KernelStep,
    Launch,
    LibraryStep,
    LoopStep,
    ProgramBuffer,
    Step,
    inner,
)


@dataclass(frozen=True, slots=True)
class Native:
    """Instructions that the driver, or a device, runs in one go."""

    begin: int
    end: int
    bounds: tuple[c_int64, c_int64] = field(init=False, compare=False, repr=False)
    """Both as C has them, so that no call makes them anew."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "bounds", (c_int64(self.begin), c_int64(self.end)))


@dataclass(frozen=True, slots=True)
class Pause:
    """A step that Python does; ``level`` is the one whose symbols it binds."""

    step: HostStep | Bind
    level: int | None


@dataclass(frozen=True, slots=True)
class HostBranch:
    """A branch that Python takes: something in it is Python's, or a device's."""

    step: Branch
    then: tuple[Stage, ...]
    otherwise: tuple[Stage, ...]


@dataclass(frozen=True, slots=True)
class HostLoop:
    """A loop that Python goes through: something in it is Python's, or a device's."""

    step: LoopStep
    body: tuple[Stage, ...]


Stage: TypeAlias = Native | Pause | HostBranch | HostLoop


@dataclass(frozen=True, slots=True)
class ArgumentWord:
    """One argument: a size, or an address so many bytes behind the start of a buffer that owns memory."""

    root: int | None
    offset: Size
    level: int


@dataclass(frozen=True, slots=True)
class CodeLayout:
    """A program, taken apart."""

    stages: tuple[Stage, ...]
    instructions: tuple[tuple[int, ...], ...]
    calls: dict[int, KernelStep]
    """By instruction. The second word of these instructions is the kernel's number."""
    launches: dict[int, Launch | LibraryStep]
    """By instruction. The third word of these is the number of the first argument. After the arguments comes one for
    the address of a status, where there are messages, and the three of the grid, where there is one."""
    words: tuple[ArgumentWord, ...]
    levels: tuple[tuple[str, ...], ...]
    """The symbols that become known with each level."""
    roots: tuple[int, ...]
    """For each buffer the one whose memory it is."""
    shifts: tuple[Size, ...]
    """For each buffer the bytes from the start of its root's memory."""
    ages: tuple[int, ...]
    """For each buffer the level from which on it can be used."""
    conditions: tuple[int, ...]
    """For each condition the level at which its sizes are known."""


def lay_out(code: Code, is_driven: bool = True) -> CodeLayout:
    """Take a program apart; raises ``ValueError`` for one that makes no sense.

    Where no driver runs its instructions (``is_driven``), Python takes every branch and goes through every loop.
    """
    return _Maker(code, is_driven).result


class _Maker:
    def __init__(self, code: Code, is_driven: bool) -> None:
        self.code, self.is_driven = code, is_driven
        self.instructions: list[list[int]] = []
        self.calls: dict[int, KernelStep] = {}
        self.launches: dict[int, Launch | LibraryStep] = {}
        self.words: list[ArgumentWord] = []
        shapes = (code.buffers[port.buffer].shape for port in code.inputs)
        inputs = dict.fromkeys(size for shape in shapes for size in shape or () if isinstance(size, str))
        self.levels: list[tuple[str, ...]] = [tuple(inputs)]
        self.known: dict[str, int] = dict.fromkeys(inputs, 0)
        self.number_levels(code.steps)
        roots = [self.root(n) for n in range(len(code.buffers))]
        self.roots, self.shifts = tuple(r for r, _ in roots), tuple(s for _, s in roots)
        self.ages = tuple(map(self.age, range(len(code.buffers))))
        self.open = {0}
        stages = tuple(self.stages(code.steps))
        self.result = CodeLayout(
            stages,
            tuple(map(tuple, self.instructions)),
            self.calls,
            self.launches,
            tuple(self.words),
            tuple(self.levels),
            self.roots,
            self.shifts,
            self.ages,
            tuple(self.level(c.holds) for c in self.code.conditions),
        )

    def number_levels(self, steps: Sequence[Step]) -> None:
        for step in steps:
            symbols = _bound(step)
            if symbols and symbols not in self.levels[1:]:  # branches that find the same sizes out share a level
                for s in symbols:
                    if s in self.known:
                        raise ValueError(f"the symbol {s!r} is bound twice")
                    self.known[s] = len(self.levels)
                self.levels.append(symbols)
            for body in inner(step):
                self.number_levels(body)

    def level(self, *sizes: Size) -> int:
        """The level at which sizes are known."""
        symbols = {s for size in sizes for s in symbols_of(size)}
        unknown = symbols - self.known.keys()
        if unknown:
            raise ValueError(f"nothing binds the symbol {min(unknown)!r}")
        return max((self.known[s] for s in symbols), default=0)

    def root(self, number: int) -> tuple[int, Size]:
        """The buffer whose memory a buffer is, and where in it."""
        shift: Size = 0
        buffer = self.code.buffers[number]
        seen = {number}
        while buffer.place == "view":
            if buffer.of is None or buffer.of in seen:
                raise ValueError(f"buffer {number} is a view of nothing")
            number = buffer.of
            seen.add(number)
            shift, buffer = add(shift, buffer.offset or 0), self.code.buffers[number]
        return number, shift

    def age(self, number: int) -> int:
        def own(buffer: ProgramBuffer) -> int:
            return self.level(*(buffer.shape or ()), buffer.offset or 0)

        root = self.code.buffers[self.roots[number]]
        return max(own(self.code.buffers[number]), self.level(self.shifts[number]), own(root))

    # -- stages and instructions

    def stages(self, steps: Sequence[Step]) -> Iterable[Stage]:
        at = 0
        while at < len(steps):
            begin = len(self.instructions)
            while at < len(steps) and self.is_native(steps[at]):
                self.emit(steps[at])
                at += 1
            if len(self.instructions) > begin:
                yield Native(begin, len(self.instructions))
            if at < len(steps):
                yield self.stage(steps[at])
                at += 1

    def is_native(self, step: Step) -> bool:
        if isinstance(step, Branch | LoopStep):
            return self.is_driven and all(self.is_native(s) for body in inner(step) for s in body)
        return isinstance(step, KernelStep) if self.is_driven else isinstance(step, Launch | LibraryStep)

    def stage(self, step: Step) -> Stage:
        match step:
            case Branch():
                self.check(self.ages[step.condition])
                return HostBranch(step, self.closed(step.then), self.closed(step.otherwise))
            case LoopStep():
                self.check(*(self.ages[n] for n in (step.counter, step.condition) if n is not None))
                return HostLoop(step, self.closed(step.body))
            case HostStep() | Bind():
                symbols = _bound(step)
                level = self.known[symbols[0]] if symbols else None
                before, after = ((step.buffer,), ()) if isinstance(step, Bind) else (step.inputs, step.outputs)
                self.check(*(self.ages[n] for n in before if n is not None))
                if level is not None:
                    if level in self.open:
                        raise ValueError(f"the symbol {symbols[0]!r} is bound twice")
                    self.open.add(level)
                self.check(*(self.ages[n] for n in after))
                return Pause(step, level)
        raise ValueError(f"no {'driver' if self.is_driven else 'device'} runs this step: {type(step).__name__}")

    def closed(self, steps: Sequence[Step]) -> tuple[Stage, ...]:
        """Stages whose symbols are known among themselves only."""
        before = set(self.open)
        stages = tuple(self.stages(steps))
        self.open = before
        return stages

    def check(self, *levels: int) -> None:
        """Raise ``ValueError`` where something is used before its symbols are known."""
        for level in levels:
            if level not in self.open:
                raise ValueError(f"the symbol {self.levels[level][0]!r} is used where it is not yet bound")

    def word(self, arg: BufferRef | Size) -> int:
        if isinstance(arg, BufferRef):
            offset = add(self.shifts[arg.buffer], arg.offset)
            level = max(self.ages[arg.buffer], self.level(offset))
            self.words.append(ArgumentWord(self.roots[arg.buffer], offset, level))
        else:
            level = self.level(arg)
            self.words.append(ArgumentWord(None, arg, level))
        self.check(level)
        return len(self.words) - 1

    def instruct(self, operation: int, *operands: int) -> list[int]:
        row = [operation, *operands, *[0] * (bytecode.WIDTH - 1 - len(operands))]
        self.instructions.append(row)
        return row

    def emit(self, step: Step) -> None:
        match step:
            case KernelStep():
                self.calls[len(self.instructions)] = step
                first = len(self.words)
                for arg in step.args:
                    self.word(arg)
                extent = self.word(step.extent)
                iterations = self.word(step.iterations) if step.parallel else 0
                self.instruct(bytecode.CALL, step.kernel, first, extent, iterations)
            case Launch() | LibraryStep():
                self.launches[len(self.instructions)] = step
                first = len(self.words)
                status = (0,) if isinstance(step, Launch) and step.messages else ()
                for arg in (*step.args, *status, *(step.grid if isinstance(step, Launch) else ())):
                    self.word(arg)
                self.instruct(bytecode.CALL, step.kernel if isinstance(step, Launch) else 0, first)
            case Branch():
                skip = self.instruct(bytecode.UNLESS, 0, self.word(BufferRef(step.condition)))
                for s in step.then:
                    self.emit(s)
                if step.otherwise:
                    leave = self.instruct(bytecode.JUMP, 0)
                    skip[1] = len(self.instructions)
                    for s in step.otherwise:
                        self.emit(s)
                    leave[1] = len(self.instructions)
                else:
                    skip[1] = len(self.instructions)
            case LoopStep():
                counter = self.word(BufferRef(step.counter))
                self.instruct(bytecode.SET, counter, 0)
                top = len(self.instructions)
                exits = []
                if step.count is not None:
                    test = bytecode.NOT_BELOW_STORED if isinstance(step.count, BufferRef) else bytecode.NOT_BELOW
                    exits.append(self.instruct(test, 0, counter, self.word(step.count)))
                if step.condition is not None:
                    exits.append(self.instruct(bytecode.UNLESS, 0, self.word(BufferRef(step.condition))))
                for s in step.body:
                    self.emit(s)
                self.instruct(bytecode.ADD, counter, 1)
                self.instruct(bytecode.JUMP, top)
                for row in exits:
                    row[1] = len(self.instructions)


def add(a: Size, b: Size) -> Size:
    """The sum of two sizes."""
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    return b if a == 0 else a if b == 0 else ("+", a, b)


def _bound(step: Step) -> tuple[str, ...]:
    """The symbols that a step binds."""
    if isinstance(step, Bind):
        return step.symbols
    return tuple(symbol for symbol, _, _ in step.binds) if isinstance(step, HostStep) else ()
