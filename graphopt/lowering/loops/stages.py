"""Stages: what a tensor is computed by: a formula, a reduction or statements, and the tensors themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from operator import index as whole
from typing import ClassVar, Final, NoReturn, TypeAlias

from graphopt.display import Scripted, shortened
from graphopt.frozen import dataclass
from graphopt.lowering.loops.expressions import Apply, Const, Expr, Load, Var, walk, wrong
from graphopt.lowering.loops.nest import Axis, AxisKind, Buffer, Stmt

Extent: TypeAlias = "Expr | int"
_WRITTEN: Final = {"add": "sum", "mul": "prod", "or": "any", "and": "all"}
"""The reductions whose function has another name."""


@dataclass(frozen=True, slots=True, repr=False)
class IterVar(Var):
    """An axis of a formula, and its variable: an expression like any other, from ``lower`` up to ``lower + extent``.

    ``label`` is the name that the user gave it.

    >>> isinstance(k, te.IterVar), k.dtype == te.INDEX, k.lower, k.extent
    (True, True, 0, 8)
    >>> k.var is k, k.spelled
    (True, 'k')
    """

    extent: Expr = field(default=Const(0), compare=False)
    kind: AxisKind = field(default="reduce", compare=False)
    lower: Expr = field(default=Const(0), compare=False)
    label: str = field(default="", compare=False)

    @property
    def var(self) -> Var:
        """The variable, which the axis is itself."""
        return self

    @property
    def spelled(self) -> str:
        """The name that is printed: the user's, where there is one."""
        return self.label or self.name

    @property
    def axis(self) -> Axis:
        """The axis of a block, which counts from 0."""
        return Axis(self, self.extent, self.kind)


@dataclass(frozen=True, slots=True, repr=False)
class ReduceStage:
    """A reduction: ``values`` combined over all points of the reduction axes.

    ``combined`` says what an accumulator becomes at a step: expressions over the variables ``accumulators`` and
    ``steps``, one of each for each value. It starts as its identity.

    >>> te.sum(x[0, k], axis=k)
    sum(x[0, k], axis=k)
    >>> isinstance(te.sum(x[0, k], axis=k), te.ReduceStage)
    True
    """

    axes: tuple[Axis, ...]
    values: tuple[Expr, ...]
    identities: tuple[Expr, ...]
    accumulators: tuple[Var, ...]
    steps: tuple[Var, ...]
    combined: tuple[Expr, ...]
    as_no_expression: ClassVar[str] = (
        "a reduction stands within an expression: compute it as a tensor of its own, and read that"
    )

    def __repr__(self) -> str:
        fn, over = "reduction", [axis.var.spelled for axis in self.axes]
        match self.combined:
            case (Apply(fn=name, args=args),) if args == (*self.accumulators, *self.steps):
                fn = _WRITTEN.get(name, name)
        axes = over[0] if len(over) == 1 else f"({', '.join(over)})"
        return f"{fn}({shortened(', '.join(map(str, self.values)))}, axis={axes})"

    def _refuse(self, *others: object) -> NoReturn:
        raise wrong(f"{self.as_no_expression}")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __floordiv__ = __mod__ = __pow__ = __neg__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse


@dataclass(frozen=True, slots=True)
class Requirement:
    """A condition that must hold at every point of the axes before a tensor is computed."""

    axes: tuple[Axis, ...]
    condition: Expr
    message: str


@dataclass(frozen=True, slots=True)
class ElementwiseStage:
    """An element-wise stage: ``values[k]`` is the formula of the k-th output, over the axes' variables."""

    axes: tuple[Axis, ...]
    values: tuple[Expr, ...]
    requirements: tuple[Requirement, ...] = ()
    is_stored: bool = False
    """Whether readers are to find its elements in memory: in an order that is faster, computed once and for all."""


@dataclass(frozen=True, slots=True)
class Reduced:
    """A reduction stage: each element combines many values."""

    axes: tuple[Axis, ...]
    reduction: ReduceStage
    requirements: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class Procedure:
    """A stage of statements that write the outputs, where no formula of one element exists (sorting, recurrences).

    ``build`` makes them from the output buffers; it may use further buffers, which it names in ``scratch``.
    ``stores_once``: each element of its output is stored once, and not read again, so that what is done to it element
    by element can be done there.
    """

    build: Callable[..., Stmt]
    inputs: tuple[Tensor, ...]
    scratch: tuple[Buffer, ...] = ()
    stores_once: bool = False
    outputs: tuple[Buffer, ...] = ()
    """What is written, in order."""


ComputeStage: TypeAlias = ElementwiseStage | Reduced | Procedure


@dataclass(frozen=True, slots=True, repr=False)
class Tensor(Buffer, Scripted):
    """A buffer with its definition: the ``port``-th output of a stage, or an input if the stage is None.

    >>> isinstance(x, te.Tensor), x.shape, x.rank
    (True, (n, 8), 2)
    >>> x[0, 1], x(0, 1)
    (x[0, 1], x[0, 1])
    """

    stage: ComputeStage | None = field(default=None, compare=False)
    port: int = 0
    number: int = -1
    as_no_expression: ClassVar[str] = "a tensor is no value: read one of its elements, as in x[i, j]"

    def __getitem__(self, indices: Expr | int | tuple[Expr | int, ...]) -> Load:
        several = indices if isinstance(indices, tuple) else (indices,)
        if len(several) != len(self.shape):
            wanted = f"one for each of its {len(self.shape)} axes is expected"
            raise wrong(f"{self.name} is read at {_counted(len(several))}, and {wanted}")
        return Load(self, tuple(i if isinstance(i, Expr) else _index(self, i) for i in several))

    def __iter__(self) -> NoReturn:
        raise wrong(f"{self.name} cannot be looped over while the program is built: te.sum(x[i, k], axis=k) reduces")

    def script(self) -> str:
        """The script of the program that computes it; an input is a line by itself."""
        from graphopt.lowering.loops.compute import nest  # which writes down what is defined here

        return repr(self) if self.stage is None else nest(self.name, outputs=[self]).script()

    def __call__(self, *indices: Expr | int) -> Load:
        """The element at the indices: ``x(i, j)`` is ``x[i, j]``."""
        return self[indices]

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)


def _counted(n: int) -> str:
    return "1 index" if n == 1 else f"{n} indices"


def _index(tensor: Tensor, index: object) -> Expr:
    """An index that is no expression: a whole number, or a block's axis, which stands for its variable."""
    if isinstance(index, Axis):
        return index.var
    try:
        return Const(whole(index))  # type: ignore[arg-type]
    except TypeError:
        what = getattr(index, "as_no_expression", f"{index!r} is no index")
        raise wrong(f"{tensor.name}: {what}; an axis, a whole number or an expression of them is expected") from None


def reads(tensor: Tensor) -> tuple[Tensor, ...]:
    """The direct inputs of a tensor's computation, in order of first use."""
    stage = tensor.stage
    if stage is None:
        return ()
    if isinstance(stage, Procedure):
        return stage.inputs
    exprs = list(stage.values if isinstance(stage, ElementwiseStage) else stage.reduction.values)
    exprs += [r.condition for r in stage.requirements]
    buffers = (e.buffer for expr in exprs for e in walk(expr) if isinstance(e, Load))
    return tuple(dict.fromkeys(b for b in buffers if isinstance(b, Tensor)))


def producers_first(outputs: Sequence[Tensor]) -> list[Tensor]:
    """The outputs and all their producers, in topological order."""
    order: dict[Tensor, None] = {}
    stack: list[tuple[Tensor, bool]] = [(t, False) for t in reversed(outputs)]
    while stack:
        tensor, ready = stack.pop()
        if tensor in order:
            continue
        if ready:
            order[tensor] = None
        else:
            stack.append((tensor, True))
            stack += [(t, False) for t in reversed(reads(tensor)) if t not in order]
    return list(order)
