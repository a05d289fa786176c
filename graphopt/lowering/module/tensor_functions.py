"""Tensor functions in graphs: a function of tensors becomes a program for values of given types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from keyword import iskeyword
from typing import Any, TypeAlias

from graphopt.errors import UsageError
from graphopt.ir.facts import Fact
from graphopt.ir.types import Symbol
from graphopt.lowering.loops import compute
from graphopt.lowering.loops.compute import Tensor
from graphopt.lowering.loops.expressions import Expr, Var
from graphopt.lowering.loops.nest import BY_RULE, Nest
from graphopt.lowering.loops.script_expressions import NAMED
from graphopt.lowering.loops.script_parse import WORDS
from graphopt.lowering.operators.node import tensor_of
from graphopt.lowering.operators.operation import DTYPES, NotLowered, SizeVars

TensorFunction: TypeAlias = Callable[..., "Tensor | Sequence[Tensor]"]


def program_of(function: TensorFunction, facts: Sequence[Fact | None], name: str, arguments: Mapping[str, Any]) -> Nest:
    """The program of ``function(*tensors, **arguments)`` for tensors of these types, None for those left out.

    It is to be scheduled by rule, and called as ``name`` or else as the function is. UsageError where the function
    cannot take these tensors, or does not give tensors that it computes.
    """
    sizes = NamedSizes()
    try:
        given = [None if f is None else tensor_of(f, sizes, f"x{k}") for k, f in enumerate(facts)]
    except NotLowered as why:
        raise UsageError(f"a tensor function cannot take this: {why}") from None
    inputs = [t for t in given if t is not None]
    for tensor in inputs:
        if tensor.dtype not in DTYPES:
            raise UsageError(f"a tensor function cannot take this: kernels do not compute with {tensor.dtype}")
    results = function(*given, **arguments)
    tensors = tuple(results) if isinstance(results, list | tuple) else (results,)
    if not tensors or not all(isinstance(t, Tensor) for t in tensors):
        raise UsageError(f"a tensor function gives tensors that compute makes, not {results!r}")
    if any(t.stage is None for t in tensors):
        raise UsageError("a tensor function has to compute what it gives, and may not give back what it takes")
    named = getattr(function, "__name__", "")
    wanted = name or (named if named.isidentifier() else "compute")
    plain = compute.nest(wanted, inputs, tensors, tuple(sizes.variables.values()))
    return replace(plain, notes=(*plain.notes, BY_RULE))


class NamedSizes(SizeVars):
    """Variables for symbols that have the symbols' own names where they can."""

    spells_out = True

    def _atom(self, atom: Any) -> Expr:
        match atom:
            case Symbol(name) if atom not in self.variables and name.isidentifier() and not _is_taken(name):
                return self.variables.setdefault(atom, Var(name))
        return super()._atom(atom)


def _is_taken(name: str) -> bool:
    return iskeyword(name) or name in WORDS or name in NAMED
