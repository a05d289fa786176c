"""Errors that are not graphopt's fault: one typed exception for each exit code of the command line.

A message is one line: what is wrong, where (file, node, line and column), what was expected, what to do. Examples have
this program:

>>> from graphopt import te
>>> a = te.placeholder((4,), "float32", "a")
>>> te_nest = te.nest("plus_one", [a, te.compute((4,), lambda i: a[i] + 1.0, name="b")])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class GraphoptError(Exception):
    """Base of every error that a user can cause; ``exit_code`` is the command line's.

    >>> graphopt.errors.GraphoptError.exit_code
    1
    >>> all(issubclass(e, graphopt.GraphoptError) for e in (graphopt.errors.UsageError, graphopt.errors.ScheduleError))
    True
    """

    exit_code = 1


class UsageError(GraphoptError):
    """An argument or option that makes no sense.

    >>> graphopt.compile(graph, target="toaster")
    Traceback (most recent call last):
    graphopt.errors.UsageError: no target is called 'toaster'; there are cpu, cuda, simulated
    """

    exit_code = 2


class ReadError(GraphoptError):
    """A file that is missing, unreadable, or not what it should be (garbage, truncated, empty).

    >>> graphopt.load("missing.onnx")
    Traceback (most recent call last):
    graphopt.errors.ReadError: missing.onnx: cannot read: No such file or directory
    """

    exit_code = 3


class ScriptError(ReadError):
    """A tensor program's script that is wrong, with the line and column (both from 1) of what is.

    >>> graphopt.script.read("def f(A: Buffer[(8,), 'float32']): A[0] = B[0]", "f.py")
    Traceback (most recent call last):
    graphopt.errors.ScriptError: f.py:1:43: B is no buffer of the program; there is A, ...
    """

    def __init__(self, message: str, name: str = "<script>", line: int = 1, column: int = 1) -> None:
        super().__init__(f"{name}:{line}:{column}: {message}")
        self.name, self.line, self.column = name, line, column


class NestError(ReadError):
    """A tensor program that is not well formed: names, ranks or dtypes in it do not agree.

    >>> from dataclasses import replace
    >>> graphopt.build(replace(te_nest, params=te_nest.params * 2))
    Traceback (most recent call last):
    graphopt.errors.NestError: plus_one: a names two things
    """


class InvalidModelError(GraphoptError):
    """A model that ONNX forbids: a cycle, an undefined or duplicated value, a shape that does not fit.

    >>> builder.emit("MatMul", [x, np.ones((3, 2), np.float32)])
    Traceback (most recent call last):
    graphopt.errors.InvalidModelError: node '3': MatMul of float32[n, 4] and float32[3, ...
    """

    exit_code = 4


class LimitError(GraphoptError):
    """A model or result over a limit of size, depth or time.

    >>> graphopt.errors.LimitError("1,000 nodes, and 100 are the limit").exit_code
    5
    """

    exit_code = 5


class VerificationError(GraphoptError):
    """The result does not compute what the original does, or could not be verified though it had to be.

    ``rewrite`` is the one that did it, where it is known; what to look at, and what to run next, are notes of the error
    (``__notes__``), which tracebacks and the command line print below it.

    >>> graphopt.errors.VerificationError.exit_code
    6
    """

    exit_code = 6

    def __init__(self, message: str, rewrite: Any = None) -> None:
        super().__init__(message)
        self.rewrite = rewrite
        for note in () if rewrite is None else rewrite.notes:
            self.add_note(note)


class RuleError(GraphoptError):
    """A rule or rule file that is wrong, or a rule name that does not exist.

    >>> graphopt.standard().named("relu-of-rellu")
    Traceback (most recent call last):
    graphopt.errors.RuleError: unknown rule or family relu-of-rellu; did you mean relu-holds?
    """

    exit_code = 7


class MissingDependencyError(GraphoptError):
    """Something that was asked for needs a package that is not installed.

    >>> graphopt.errors.MissingDependencyError.exit_code
    8
    """

    exit_code = 8


class CompilationError(GraphoptError):
    """A kernel that does not compile (the message says where its source is kept), or that is not there though it is
    needed: where nodes must not be left to Python.

    >>> graphopt.build(te_nest).save("folder")
    Traceback (most recent call last):
    graphopt.errors.CompilationError: plus_one is no entry function, and cannot be saved: call it from a graph
    """

    exit_code = 10


class InputError(UsageError):
    """Arrays that a program cannot be called with: wrong names, dtypes, ranks or sizes.

    >>> graphopt.compile(graph)(np.ones((2, 3), np.float32))
    Traceback (most recent call last):
    graphopt.errors.InputError: input 'x' has size 3 along axis 1, and 4 is expected: float32[n, 4]
    """


class TranslationError(UsageError):
    """A call of another framework that no graph can be made of: the message says which, where, and what to do.

    ``node`` is that framework's own node of the call.

    >>> graphopt.errors.TranslationError("aten::foo in model.py:3 has no entry").node is None
    True
    """

    def __init__(self, message: str, node: Any = None) -> None:
        super().__init__(message)
        self.node = node


class ExecutionError(GraphoptError):
    """A program that stopped at a step that could not do its work, such as an index that is out of range.

    >>> from graphopt.ir.text import parse
    >>> gather = parse("x: float32[4] i: int64[n] y = Gather(x, i) return y")
    >>> graphopt.compile(gather)(np.ones(4, np.float32), np.array([7]))
    Traceback (most recent call last):
    graphopt.errors.ExecutionError: Gather (y): Gather: an index is out of range
    """

    exit_code = 11


class ExpressionError(UsageError, TypeError):
    """A tensor expression that is wrong: ranks, dtypes or axes that do not go together.

    ``reason`` is the message without ``place``, where in the user's code it is (``model.py:12: ``).

    >>> graphopt.te.sum(1.0)
    Traceback (most recent call last):
    graphopt.errors.ExpressionError: ...:1: nothing says over which axes sum is: sum(x[i, k], axis=k)
    """

    def __init__(self, reason: str, place: str = "") -> None:
        super().__init__(place + reason)
        self.reason, self.place = reason, place


class ScheduleError(GraphoptError):
    """A step of a schedule that would change what a tensor program computes, or that names what is not there.

    >>> graphopt.Schedule(te_nest).get_block("c")
    Traceback (most recent call last):
    graphopt.errors.ScheduleError: there is no block c; the blocks are b
    """

    exit_code = 12


class StoppedError(GraphoptError):
    """What Ctrl-C or SIGTERM ended; the message says what of it is kept.

    >>> graphopt.errors.StoppedError.exit_code
    130
    """

    exit_code = 130


class DeviceError(GraphoptError):
    """A device that is not there, that cannot run what it is given, or that failed.

    >>> graphopt.errors.DeviceError.exit_code
    13
    """

    exit_code = 13


class CertificateError(GraphoptError):
    """A certificate that does not hold: for these files, by its rules, or at the place of a rewrite.

    >>> graphopt.errors.CertificateError.exit_code
    14
    """

    exit_code = 14


class DeviceMemoryError(DeviceError, MemoryError):
    """More memory of a device is wanted than there is; the message says how much, and what would do.

    >>> issubclass(graphopt.errors.DeviceMemoryError, MemoryError)
    True
    """


SENSELESS = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError, RecursionError)
"""What Python raises where numbers make no sense together, such as a stride of 0 or an axis that is not there: the net
under inference, rules, passes, prices and lowering. What it catches is an error of the model's, or is left out at its
place, and said."""


def words_of(error: Exception) -> str:
    """What an error of Python's says, with its kind where that alone says what is wrong."""
    message = " ".join(str(error).split())
    return (
        message
        if type(error) is ValueError and message
        else f"{type(error).__name__} ({message or 'no more is known'})"
    )


@contextmanager
def naming(model: object) -> Iterator[None]:
    """Let errors that know only the node at fault name the model's file too, where the model is a path."""
    try:
        yield
    except (InvalidModelError, LimitError) as error:
        if not isinstance(model, str | Path) or str(model) in str(error):
            raise
        raise type(error)(f"{model}: {error}") from None


def names_its_model(function: Callable[P, T]) -> Callable[P, T]:
    """The function, whose errors name its argument ``model``, the first, where that is a path."""

    @wraps(function)
    def named(*arguments: P.args, **options: P.kwargs) -> T:
        with naming(arguments[0] if arguments else options.get("model")):
            return function(*arguments, **options)

    return named


# -- names that there are not

FEW = 8
"""So many names, and no more, are told where none is like the one that is wanted."""


def nearest(name: str, known: Iterable[str]) -> str:
    """``; did you mean ...?`` with the names most like this one, or nothing."""
    from difflib import get_close_matches

    matches = get_close_matches(name, sorted(known), 3)
    return f"; did you mean {' or '.join(matches)}?" if matches else ""


def nearest_or_some(name: str, known: Iterable[str]) -> str:
    """``; did you mean ...?``, or ``; there are ...`` with the first of the names there are, and their number."""
    there = list(known)
    if hint := nearest(name, there):
        return hint
    some = ", ".join(there[:FEW]) or "none"
    if len(there) > FEW:
        return f"; there are {len(there)}: {some}, ..."
    return f"; there {'are' if len(there) > 1 else 'is'} {some}"


__all__ = [
    "CertificateError",
    "CompilationError",
    "DeviceError",
    "DeviceMemoryError",
    "ExecutionError",
    "ExpressionError",
    "GraphoptError",
    "InputError",
    "InvalidModelError",
    "LimitError",
    "MissingDependencyError",
    "NestError",
    "ReadError",
    "RuleError",
    "ScheduleError",
    "ScriptError",
    "StoppedError",
    "TranslationError",
    "UsageError",
    "VerificationError",
]
