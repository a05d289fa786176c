"""Building: tensor programs, graphs and modules become functions by name that run on arrays.

``graphopt.compile`` makes one function of a model, with all its options; this makes each function of a module callable.
"""

from __future__ import annotations

from typing import Any

from graphopt.compile import compile
from graphopt.errors import UsageError
from graphopt.ir.custom_ops import added
from graphopt.ir.graph import Graph
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.module.module import External, Module
from graphopt.program.nest_function import NestFunction
from graphopt.runtime.executable import Executable
from graphopt.target import Target

__all__ = ["Executable", "build"]


def build(functions: Module | Nest | Graph, *, threads: int = 1, target: str | Target = "cpu") -> Executable:
    """The functions of a module, compiled, by name; or one tensor program or graph, by its own.

    A tensor program is called in destination-passing style: ``built["matmul"](a, b, c)`` writes ``c``. It is compiled
    as it is scheduled, or by rule where its note ``schedule`` is ``default``. A graph is called with inputs in order or
    by name, and gives its outputs by name; graphs that others call are part of these. External functions are as they
    were registered. ``target`` is what all of them run on; for a GPU a tensor program of which no loop is bound to
    blocks or threads is scheduled by rule. Raises UsageError for what is none of these, and where an external function
    is not registered, CompilationError for a function that does not compile, and DeviceError where there is no GPU.
    """
    if not isinstance(functions, Module | Nest | Graph):
        raise UsageError(
            f"a module, a tensor program or a graph is built, not {type(functions).__name__}: models are for "
            "graphopt.compile"
        )
    module = functions if isinstance(functions, Module) else Module({functions.name: functions})
    module.check()
    made: dict[str, Any] = {}
    for name, function in module.items():
        if isinstance(function, Nest):
            made[name] = NestFunction(function, threads=threads, target=target)
        elif isinstance(function, External):
            made[name] = _registered(function)
    if entries := module.entries:
        graphs = compile(module, entries=entries, threads=threads, target=target)
        made |= {name: graphs[name] for name in graphs}
    return Executable({name: made[name] for name in module if name in made})


def _registered(external: External) -> Any:
    user = added(external.op)
    if user is None or user.function is None:
        raise UsageError(f"{external.name} is not registered: graphopt.register({external.name!r}, function)")
    return user.function
