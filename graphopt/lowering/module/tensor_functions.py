"""Tensor functions in graphs: a function of tensors becomes a program for values of given types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from keyword import iskeyword
from typing import Any, TypeAlias

import numpy as np

from graphopt.errors import UsageError
from graphopt.ir.bounds import fact_of
from graphopt.ir.constants import Array, Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import CONSTANT, Attrs, Value
from graphopt.ir.infer import infer
from graphopt.ir.infer_nests import NEST
from graphopt.ir.types import Symbol
from graphopt.ir.visitor import Mutator
from graphopt.lowering.loops import compute
from graphopt.lowering.loops.compute import Tensor
from graphopt.lowering.loops.expressions import Expr, Var
from graphopt.lowering.loops.nest import BY_RULE, Nest
from graphopt.lowering.loops.script import WORDS
from graphopt.lowering.loops.script_expressions import NAMED
from graphopt.lowering.lower.embedded_programs import attributes
from graphopt.lowering.operators.node import tensor_of
from graphopt.lowering.operators.operation import DTYPES, NotLowered, SizeVars

TensorFunction: TypeAlias = Callable[..., "Tensor | Sequence[Tensor]"]


def program_of(function: TensorFunction, facts: Sequence[Fact | None], name: str, arguments: Mapping[str, Any]) -> Nest:
    """The program of ``function(*tensors, **arguments)`` for tensors of these types, None for those left out.

    It is to be scheduled by rule, and called as ``name`` or else as the function is. UsageError where the function
    cannot take these tensors, or does not give tensors that it computes.
    """
    sizes = _NamedSizes()
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


def emit_compute(
    mutator: Mutator,
    function: TensorFunction,
    inputs: Sequence[Value | Array | float | None],
    *,
    name: str = "",
    **arguments: Any,
) -> Any:
    """Adds a tensor function to the graph that a mutator is changing, and gives its output (a tuple of several):
    ``graphopt.emit_compute(self, tensor.softmax, [x], axis=1)``.

    Arrays and numbers become constants, and further arguments are passed on. UsageError where the function cannot take
    these values.
    """
    facts = infer(mutator.graph)
    first = next((facts[v].dtype for v in inputs if isinstance(v, Value)), None)
    values: list[Value | None] = []
    types: list[Fact | None] = []
    for given in inputs:
        if given is None or isinstance(given, Value):
            values.append(given)
            types.append(None if given is None else facts[given])
            continue
        is_number = isinstance(given, bool | int | float)
        constant = Constant.of(np.asarray(given, first if is_number else None))
        values += mutator.add(CONSTANT, (), Attrs(value=constant))
        types.append(fact_of(constant))
    nest = program_of(function, types, name, arguments)
    outputs = mutator.add(NEST, tuple(v for v in values if v is not None), attributes(nest), len(nest.outputs))
    return outputs[0] if len(outputs) == 1 else outputs


class _NamedSizes(SizeVars):
    """Variables for symbols that have the symbols' own names where they can."""

    spells_out = True

    def _atom(self, atom: Any) -> Expr:
        match atom:
            case Symbol(name) if atom not in self.variables and name.isidentifier() and not _is_taken(name):
                return self.variables.setdefault(atom, Var(name))
        return super()._atom(atom)


def _is_taken(name: str) -> bool:
    return iskeyword(name) or name in WORDS or name in NAMED
