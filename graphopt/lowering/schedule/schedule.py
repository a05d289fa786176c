"""Schedules: a nest, the checked primitives that rewrite it, and the trace of them.

``Schedule`` has one line for each primitive; the primitive itself is a plain function from a nest to a
nest and what it gives, in the module of that line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from itertools import tee
from numbers import Integral
from random import Random
from typing import Any, Concatenate, ParamSpec, TypeVar

from graphopt.display import Scripted, counted
from graphopt.errors import ScheduleError, UsageError
from graphopt.lowering.analysis import block_refs
from graphopt.lowering.analysis.arguments import misuse
from graphopt.lowering.analysis.block_refs import BlockRef, LoopRef
from graphopt.lowering.loops.nest import BY_RULE, Nest
from graphopt.lowering.loops.script import show
from graphopt.lowering.schedule import annotations as annotations_module
from graphopt.lowering.schedule import blockize as blockize_module
from graphopt.lowering.schedule import by_rule as by_rule_module
from graphopt.lowering.schedule import cache, cache_at, loop_transforms, reduction, reduction_epilogue, sampling
from graphopt.lowering.schedule import compute_at as compute_at_module
from graphopt.lowering.schedule import compute_inline as compute_inline_module
from graphopt.lowering.schedule import decompose_padding as decompose_padding_module
from graphopt.lowering.schedule import loop_partition as loop_partition_module
from graphopt.lowering.schedule import merge as merge_module
from graphopt.lowering.schedule import pad_einsum as pad_einsum_module
from graphopt.lowering.schedule import reindex as reindex_module
from graphopt.lowering.schedule import rolling_buffer as rolling_buffer_module
from graphopt.lowering.schedule import tensorize as tensorize_module
from graphopt.lowering.schedule import transform_block_layout as transform_block_layout_module
from graphopt.lowering.schedule import transform_layout as transform_layout_module
from graphopt.lowering.schedule.trace import Argument, Reference, Trace, TraceStep

P = ParamSpec("P")
R = TypeVar("R")


class TracedInt(int):
    """An int result of a step, with a reference to that step."""

    source: Reference
    schedule: Schedule


def _called(fn: Callable[..., R], *args: Any, **kwargs: Any) -> R:
    """What a primitive gives. ScheduleError, too, where arguments are not of the types that it is written for."""
    if (wrong := misuse(fn, args, kwargs)) is not None:
        raise ScheduleError(f"{fn.__name__}: {wrong}")
    return fn(*args, **kwargs)


def _plain(value: Any) -> Any:
    """Arguments with ints in the place of numpy's integers."""
    if isinstance(value, tuple | list):
        return type(value)(map(_plain, value))
    if isinstance(value, dict):
        return {name: _plain(argument) for name, argument in value.items()}
    return int(value) if isinstance(value, Integral) and not isinstance(value, int) else value


def rewriting(fn: Callable[Concatenate[Nest, P], tuple[Nest, R]]) -> Callable[Concatenate[Schedule, P], R]:
    """A method of ``Schedule`` that applies a primitive: a function from a nest to a nest and a result."""

    @wraps(fn)
    def method(self: Schedule, /, *args: P.args, **kwargs: P.kwargs) -> R:
        args, kwargs = _plain(args), _plain(kwargs)
        call = self.encoded(fn.__name__, args, kwargs)
        self.nest, result = _called(fn, self.nest, *args, **kwargs)
        return self.recorded(call, result)

    return method


def asking(fn: Callable[Concatenate[Nest, P], R]) -> Callable[Concatenate[Schedule, P], R]:
    """A method of ``Schedule`` that queries its nest."""

    @wraps(fn)
    def method(self: Schedule, /, *args: P.args, **kwargs: P.kwargs) -> R:
        args, kwargs = _plain(args), _plain(kwargs)
        call = self.encoded(fn.__name__, args, kwargs)
        return self.recorded(
            TraceStep(call.primitive, call.args, call.kwargs, question=True),
            _called(fn, self.nest, *args, **kwargs),
        )

    return method


def drawing(
    fn: Callable[Concatenate[Nest, Random, P], tuple[Argument, R]],
) -> Callable[Concatenate[Schedule, P], R]:
    """A method of ``Schedule`` that samples: a function that returns a decision and its result.

    A ``decision`` among its arguments is taken instead of a draw.
    """

    @wraps(fn)
    def method(self: Schedule, /, *args: P.args, **kwargs: P.kwargs) -> R:
        args, kwargs = _plain(args), _plain(kwargs)
        call = self.encoded(fn.__name__, args, {k: v for k, v in kwargs.items() if k != "decision"})
        wanted = next(self._wanted, None)
        if wanted is not None and "decision" not in kwargs:
            with suppress(ScheduleError, TypeError, ValueError):
                given: dict[str, Any] = {**kwargs, "decision": wanted}
                return self.recorded(*_decided(call, fn(self.nest, self.random, *args, **given)))
        return self.recorded(*_decided(call, _called(fn, self.nest, self.random, *args, **kwargs)))

    return method


def _decided(call: TraceStep, drawn: tuple[Argument, R]) -> tuple[TraceStep, R]:
    """The call with its decision, and what that gives."""
    decision, result = drawn
    return replace(call, decision=decision), result


class Schedule(Scripted):
    """A nest under transformation, with a trace; ``seed`` determines what the sampling methods draw.

    ``wanted`` are decisions for them to take, in their order, wherever they are possible (None: draw). A nest that was
    to be scheduled by rule is no longer.

    >>> s.split("j", [None, 4])
    (LoopRef(name='j_0'), LoopRef(name='j_1'))
    >>> s.get_child_blocks(s.get_block("root")), s.get_loops("y")
    ((BlockRef(name='y'),), (LoopRef(name='i'), LoopRef(name='j_0'), LoopRef(name='j_1')))
    >>> print(s.trace)
    s.split('j', [None, 4])
    >>> s.copy().nest == s.nest, s.copy().fork_seed() == s.fork_seed()
    (True, True)
    >>> s.encoded("parallel", ("i",), {})
    TraceStep(primitive='parallel', args=('i',), kwargs=(), decision=None, results='n', single=True, question=False)
    >>> s.recorded(s.encoded("get_block", ("y",), {}), s.get_block("y"))
    BlockRef(name='y')
    """

    def __init__(self, nest: Nest, seed: int = 0, wanted: Iterable[Argument] = ()) -> None:
        if not isinstance(nest, Nest):
            raise UsageError(f"a schedule is one of a nest, as a module holds it by name, not of {nest!r}")
        notes = tuple(n for n in nest.notes if n != BY_RULE)
        self.nest = block_refs.with_predicates_of_loops(nest if notes == nest.notes else replace(nest, notes=notes))
        self.random = Random(seed)
        self._wanted = iter(wanted)
        self._steps: list[TraceStep] = []
        self._known: dict[BlockRef | LoopRef, Reference] = {}
        self._copied_from: dict[Schedule, int] = {}
        """The schedules that this one is a copy of, and how many of their steps it has."""

    # questions
    get_block = asking(block_refs.get_block)
    get_loop = asking(block_refs.get_loop)
    get_loops = asking(block_refs.get_loops)
    get_child_blocks = asking(block_refs.get_child_blocks)
    get_parent_block = asking(block_refs.get_parent_block)
    get_producers = asking(block_refs.get_producers)
    get_consumers = asking(block_refs.get_consumers)
    get_output_blocks = asking(block_refs.get_output_blocks)
    # loops
    split = rewriting(loop_transforms.split)
    fuse = rewriting(loop_transforms.fuse)
    reorder = rewriting(loop_transforms.reorder)
    add_unit_loop = rewriting(loop_transforms.add_unit_loop)
    loop_partition = rewriting(loop_partition_module.loop_partition)
    # what runs them, and notes
    parallel = rewriting(annotations_module.parallel)
    vectorize = rewriting(annotations_module.vectorize)
    unroll = rewriting(annotations_module.unroll)
    bind = rewriting(annotations_module.bind)
    annotate = rewriting(annotations_module.annotate)
    unannotate = rewriting(annotations_module.unannotate)
    # where blocks run
    compute_at = rewriting(compute_at_module.compute_at)
    reverse_compute_at = rewriting(compute_at_module.reverse_compute_at)
    compute_inline = rewriting(compute_inline_module.compute_inline)
    reverse_compute_inline = rewriting(compute_inline_module.reverse_compute_inline)
    # what they read and write, and where that is
    cache_read = rewriting(cache.cache_read)
    cache_write = rewriting(cache.cache_write)
    cache_inplace = rewriting(cache.cache_inplace)
    set_scope = rewriting(cache.set_scope)
    read_at = rewriting(cache_at.read_at)
    write_at = rewriting(cache_at.write_at)
    storage_align = rewriting(cache.storage_align)
    double_buffer = rewriting(cache.double_buffer)
    rolling_buffer = rewriting(rolling_buffer_module.rolling_buffer)
    # reductions
    decompose_reduction = rewriting(reduction.decompose_reduction)
    rfactor = rewriting(reduction.rfactor)
    # blocks of blocks, layouts
    blockize = rewriting(blockize_module.blockize)
    tensorize = rewriting(tensorize_module.tensorize)
    pad_einsum = rewriting(pad_einsum_module.pad_einsum)
    decompose_padding = rewriting(decompose_padding_module.decompose_padding)
    transform_layout = rewriting(transform_layout_module.transform_layout)
    # all at once
    by_rule = rewriting(by_rule_module.by_rule)
    reindex = rewriting(reindex_module.reindex)
    transform_block_layout = rewriting(transform_block_layout_module.transform_block_layout)
    merge = rewriting(merge_module.merge)
    fuse_reduction_epilogue = rewriting(reduction_epilogue.fuse_reduction_epilogue)
    # draws
    sample_perfect_tile = drawing(sampling.sample_perfect_tile)
    sample_partitioned_tile = drawing(sampling.sample_partitioned_tile)
    sample_categorical = drawing(sampling.sample_categorical)
    sample_compute_location = drawing(sampling.sample_compute_location)

    @property
    def trace(self) -> Trace:
        """The trace so far, without queries whose results no later step uses."""
        needed: set[int] = set()
        for position in reversed(range(len(self._steps))):
            step = self._steps[position]
            if not step.question or position in needed:
                needed |= {position, *(r.step for r in step.references)}
        moved = {old: new for new, old in enumerate(sorted(needed))}
        return Trace(tuple(_moved(self._steps[old], moved) for old in sorted(needed)))

    def copy(self) -> Schedule:
        """A schedule that goes on from the same nest, trace and seed by itself; loops, blocks and numbers of this one
        are valid in it."""
        other = Schedule(self.nest)
        other.random.setstate(self.random.getstate())
        self._wanted, other._wanted = tee(self._wanted)
        other._steps, other._known = list(self._steps), dict(self._known)
        other._copied_from = {**self._copied_from, self: len(self._steps)}
        return other

    def fork_seed(self) -> int:
        """A seed for another schedule, drawn from this one's generator: each call gives another."""
        return self.random.getrandbits(31)

    def __repr__(self) -> str:
        return f"<Schedule of {self.nest!r}: {counted(len(self.trace.steps), 'step')}>"

    def script(self) -> str:
        """The nest's script."""
        return show(self.nest)

    def encoded(self, primitive: str, args: tuple[object, ...], kwargs: dict[str, object]) -> TraceStep:
        """The call as a trace step, with references to earlier results."""
        plain = tuple(self._argument(primitive, a) for a in args)
        return TraceStep(primitive, plain, tuple((k, self._argument(primitive, v)) for k, v in kwargs.items()))

    def _argument(self, primitive: str, value: object) -> Argument:
        if isinstance(value, BlockRef | LoopRef):
            if value not in self._known:  # made by hand: ask for it, so that the trace can
                (self.get_block if isinstance(value, BlockRef) else self.get_loop)(value.name)
            return self._known[value]
        if isinstance(value, TracedInt):
            is_known = value.schedule is self or value.source.step < self._copied_from.get(value.schedule, 0)
            return value.source if is_known else int(value)
        if isinstance(value, tuple | list):
            return tuple(self._argument(primitive, v) for v in value)
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if callable(value):
            return transform_layout_module.written_map(value)
        raise ScheduleError(f"{primitive}: a trace cannot keep {value!r}; give numbers, strings, loops and blocks")

    def recorded(self, step: TraceStep, result: R) -> R:
        """Records a step; gives its result, numbers as ``TracedInt``."""
        position = len(self._steps)
        single = not isinstance(result, tuple)
        items = (result,) if not isinstance(result, tuple) else result
        letters = ""
        kept: list[object] = []
        for k, item in enumerate(items):
            reference = Reference(position, None if single else k)
            if isinstance(item, BlockRef | LoopRef):
                letters += "b" if isinstance(item, BlockRef) else "l"
                self._known[item] = reference
            elif isinstance(item, int):
                letters += "v"
                item = TracedInt(item)
                item.source, item.schedule = reference, self
            else:
                letters += "n"
            kept.append(item)
        self._steps.append(replace(step, results=letters, single=single))
        return kept[0] if single else tuple(kept)  # type: ignore[return-value]  # equal to the result, item by item


def _moved(step: TraceStep, places: dict[int, int]) -> TraceStep:
    """The step with references to where the steps now stand."""

    def moved(argument: Argument) -> Argument:
        if isinstance(argument, Reference):
            return Reference(places[argument.step], argument.item)
        return tuple(moved(a) for a in argument) if isinstance(argument, tuple) else argument

    args, kwargs = tuple(moved(a) for a in step.args), tuple((k, moved(v)) for k, v in step.kwargs)
    return replace(step, args=args, kwargs=kwargs)


def replay(trace: Trace, nest: Nest, seed: int = 0) -> Schedule:
    """The schedule of a nest by the steps of a trace.

    >>> s.parallel("i")
    >>> schedule.replay(s.trace, nest).nest == s.nest
    True
    """
    schedule = Schedule(nest, seed)
    given: list[object] = []

    def value(argument: Argument) -> object:
        if isinstance(argument, Reference):
            result = given[argument.step]
            return result if argument.item is None else result[argument.item]  # type: ignore[index]
        return tuple(value(a) for a in argument) if isinstance(argument, tuple) else argument

    for position, step in enumerate(trace.steps):
        method = vars(Schedule).get(step.primitive)
        if not hasattr(method, "__wrapped__"):
            raise ScheduleError(f"replay: step {position} is {step.primitive}, which is not a primitive")
        try:
            args, kwargs = [value(a) for a in step.args], {k: value(v) for k, v in step.kwargs}
        except (IndexError, TypeError):
            message = f"replay: step {position}, {step.primitive}, uses what an earlier step does not give on this nest"
            raise ScheduleError(message) from None
        if step.decision is not None:
            kwargs["decision"] = step.decision
        given.append(getattr(schedule, step.primitive)(*args, **kwargs))
    return schedule
