"""Passes of modules that clean up and bind: dead code, constants, and parameters."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from graphopt.errors import UsageError, nearest_or_some
from graphopt.ir.graph import Graph
from graphopt.lowering.module.builder import GraphBuilder
from graphopt.lowering.module.module import MAIN, Module, opened
from graphopt.lowering.module.passes import ModulePass
from graphopt.rewrite.passes.dead import FUNCTIONS, OUTPUTS, UNUSED
from graphopt.rewrite.passes.fold import FOLD, FOLD_EXACTLY, KNOWN
from graphopt.rewrite.passes.native import NativePass
from graphopt.rewrite.passes.shapes import FIXED
from graphopt.rewrite.passes.simplify import simplify


class FoldConstants(ModulePass):
    """What rests on constants alone, and sizes that are known, are computed; with what nobody reads any more removed.

    Ops are evaluated, calls of tensor programs are not.

    >>> bound = passes.BindParams({"x": np.ones((3, 4), np.float32), "w": np.ones((4, 2), np.float32)})(dense)
    >>> print(passes.FoldConstants()(bound))
    graph main (ir 10, opset 23)
    %0 = float32[3, 2]{4.0, 4.0, 4.0, 4.0, 4.0, 4.0}
    return %0 as y
    """

    def change(self, module: Module) -> Module:
        """The module with constants in place of nodes."""
        return _simplified(module, (UNUSED, *KNOWN, FOLD_EXACTLY, FOLD, *FIXED))


class DeadCode(ModulePass):
    """Nodes that nobody reads, and functions that no entry reaches, are removed (dead code elimination).

    ``entries`` are the names of the graph functions that are called from outside, by default ``Module.entries``; a
    module without graphs keeps its programs. Raises UsageError for an entry that there is not.

    >>> [*passes.LegalizeOps()(dense)]
    ['main', 'matmul', 'relu']
    >>> [*passes.DeadCode()(passes.FuseTensorPrograms()(passes.FuseOps()(passes.LegalizeOps()(dense))))]
    ['main', 'fused_matmul_relu']
    """

    def __init__(self, entries: Collection[str] | None = None) -> None:
        self.entries = entries

    def change(self, module: Module) -> Module:
        """The module without dead code."""
        roots = module.entries if self.entries is None else tuple(self.entries)
        for name in roots:
            if name not in module:
                raise UsageError(f"DeadCode: the module has no function {name!r}{nearest_or_some(name, module)}")
        if not roots:
            return module
        module = _simplified(module, (UNUSED, OUTPUTS, FUNCTIONS))
        reached = dict.fromkeys(roots)
        waiting = list(roots)
        while waiting:
            new = [callee for callee in module.calls(waiting.pop()) if callee not in reached]
            reached.update(dict.fromkeys(new))
            waiting += new
        called = {op for name in reached if isinstance(graph := module[name], Graph) for op in _ops(graph)}
        return Module({n: f for n, f in module.items() if n in reached or getattr(f, "op", None) in called})


def _ops(graph: Graph) -> set[str]:
    ops = {node.op for node in graph.nodes()}
    return ops.union(*(_ops(body) for node in graph.nodes() for body in node.bodies.values()))


def _simplified(module: Module, passes: tuple[NativePass, ...]) -> Module:
    for name, graph in list(module.graphs()):
        if (changed := simplify(graph, (), passes)) is not graph:
            module[name] = opened(changed)
    return module


class BindParams(ModulePass):
    """Inputs of a graph function become constants: arrays by the inputs' names.

    ``function`` is the graph's name. Raises UsageError for a name that is no input's, an array that does not fit its
    type, and a graph that there is not.

    >>> print(passes.BindParams({"w": np.ones((4, 2), np.float32)})(dense))
    graph main (ir 10, opset 23)
    x: float32[n, 4]
    w = float32[4, 2]{1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0}
    %0: float32[n, 2] = MatMul(x, w)
    %1: float32[n, 2] = Relu(%0)
    return %1 as y
    """

    def __init__(self, params: Mapping[str, Any], function: str = MAIN) -> None:
        self.params, self.function = dict(params), function

    def change(self, module: Module) -> Module:
        """The module with constants in place of inputs."""
        graph = module.get(self.function)
        if not isinstance(graph, Graph):
            raise UsageError(
                f"BindParams: the module has no graph {self.function!r}{nearest_or_some(self.function, module)}"
            )
        builder = GraphBuilder.over(graph.copy(), module)
        builder.bind_params(self.params)
        module[self.function] = builder.graph
        return module
