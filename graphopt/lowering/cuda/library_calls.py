"""Library call table: the matchers of library functions that dispatch goes through.

A statement that a library is to compute keeps its loops, which say what is meant; its outermost one has the note
``("library", name)``. Each library function is matched in a module of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias

from graphopt.lowering.cuda.card import Card
from graphopt.lowering.cuda.convolution import convolution_of
from graphopt.lowering.cuda.multiplication import multiplication_of
from graphopt.lowering.cuda.sums import is_approximate
from graphopt.lowering.emit.kernel_source import EmitError, LibraryCall
from graphopt.lowering.loops.expressions import Expr
from graphopt.lowering.loops.nest import For, Note, Stmt

LIBRARY: Final = "library"
"""The key of the note of a loop that a library's function is to take the place of."""


class Recognized(Protocol):
    """A recognized library function with its operands."""

    @property
    def dtype(self) -> str:
        """The type of its operands."""

    @property
    def multiplied(self) -> tuple[Expr, ...]:
        """The product of these is how many multiplications it is."""

    @property
    def moved(self) -> tuple[tuple[Expr, ...], ...]:
        """The same for the elements of each operand, the result last."""

    def is_for(self, card: Card) -> bool:
        """Whether a library that is there computes it."""

    def call(self, is_approximate: bool) -> LibraryCall:
        """The call that computes it, where ``is_approximate`` something near."""


LibraryPattern: TypeAlias = Callable[[Stmt], Recognized | None]
"""What a statement is that a library's function computes; None for any other."""
READERS: Final[Mapping[str, LibraryPattern]] = {"gemm": multiplication_of, "convolution": convolution_of}
"""By the name of the function (``runtime.library_calls``), under which targets have its prices too."""


def note(name: str) -> tuple[str, Note]:
    """The note that a function is to be called in place of a loop."""
    return LIBRARY, name


def is_for_library(stmt: Stmt) -> bool:
    """Whether a library is to do what a statement says."""
    return isinstance(stmt, For) and any(key == LIBRARY for key, _ in stmt.notes)


def library_call(stmt: Stmt) -> LibraryCall:
    """The call that does what a statement says. EmitError where the library has no function for it."""
    assert isinstance(stmt, For)
    name = str(dict(stmt.notes)[LIBRARY])
    recognized = READERS[name](stmt) if name in READERS else None
    if recognized is None:
        raise EmitError(
            f"{stmt.var.name}: the library is to compute {name} here, and it is none that it can: drop the note"
        )
    return recognized.call(is_approximate(stmt))
