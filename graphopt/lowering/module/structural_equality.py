"""Structural equality of tensor programs, graphs, modules and schedules, up to the names within them."""

from __future__ import annotations

from hashlib import blake2b
from typing import TypeAlias

from graphopt.errors import UsageError, nearest_or_some
from graphopt.ir import structure
from graphopt.ir.graph import Graph
from graphopt.lowering.loops import structural_equality
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.module.module import External, Module, ModuleFunction
from graphopt.lowering.schedule.schedule import Schedule

Comparable: TypeAlias = ModuleFunction | Module | Schedule
"""What is compared by structure; a schedule counts as its nest."""


def equal(a: Comparable, b: Comparable) -> bool:
    """Equality of two tensor programs, graphs, modules or schedules up to the names within them.

    A schedule counts as the program that it has made. Names that a caller uses do count: those of a graph's inputs and
    outputs, and of a module's functions (their order does not). Raises UsageError for anything else.
    """
    return difference(a, b) is None


def difference(a: Comparable, b: Comparable) -> str | None:
    """The first difference of two tensor programs, graphs, modules or schedules in one line, with the block and
    statement or the node that it is at and both sides; None where they are ``equal``. Raises as ``equal`` does."""
    a, b = _compared(a), _compared(b)
    if isinstance(a, Nest) and isinstance(b, Nest):
        return structural_equality.difference(a, b)
    if isinstance(a, Graph) and isinstance(b, Graph):
        return structure.same(a, b)
    if isinstance(a, Module) and isinstance(b, Module):
        return _of_modules(a, b)
    if type(a) is not type(b):
        return f"{_kind(a)} against {_kind(b)}"
    return None if a == b else f"{a} against {b}"


def structural_hash(value: Comparable) -> bytes:
    """A hash of 16 bytes of a tensor program, graph, module or schedule: the same for what is ``equal``, in every
    process. Raises as ``equal`` does."""
    match _compared(value):
        case Nest() as nest:
            return structural_equality.structural_hash(nest)
        case Graph() as graph:
            return structure.structural_hash(graph)
        case Module() as module:
            hasher = blake2b(digest_size=16)
            for name in sorted(module):
                hasher.update(repr((name, structural_hash(module[name]))).encode())
            return hasher.digest()
        case other:
            return blake2b(repr(other).encode(), digest_size=16).digest()


def _compared(value: Comparable) -> ModuleFunction | Module:
    if isinstance(value, Schedule):
        return value.nest
    if not isinstance(value, Nest | Graph | Module | External):
        raise UsageError(f"programs, graphs, modules and schedules are compared by structure, not {value!r}")
    return value


def _kind(value: ModuleFunction | Module) -> str:
    kinds = {Nest: "a tensor program", Graph: "a graph", Module: "a module", External: "an external function"}
    return kinds[type(value)]


def _of_modules(a: Module, b: Module) -> str | None:
    for one, other, which in ((a, b, "second"), (b, a, "first")):
        for name in one:
            if name not in other:
                return f"the {which} has no function {name}{nearest_or_some(name, other)}"
    told = ((name, difference(a[name], b[name])) for name in a)
    return next((f"{name}: {what}" for name, what in told if what is not None), None)
