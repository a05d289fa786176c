"""Frontend for torch: a module, an exported program or an fx graph becomes a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphopt.errors import MissingDependencyError
from graphopt.frontends.torch.table import Table as Table

if TYPE_CHECKING:
    from graphopt.ir.graph import Graph


def from_torch(
    module: Any,
    example_inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    table: Table | None = None,
    name: str = "",
) -> Graph:
    """The graph of what a module computes, for ``graphopt.optimize``, ``compile`` and ``save``.

    ``module`` is a ``torch.nn.Module``, a ``torch.fx.GraphModule`` or a ``torch.export.ExportedProgram``, which needs
    no more. ``example_inputs`` are the arguments of a call (a tensor, a tuple, or a mapping of names), ``kwargs`` those
    by name, ``dynamic_shapes`` as ``torch.export`` takes them: open sizes are named by their ``Dim``. ``table`` has
    entries for operators, Python functions called by way of ``torch.fx.wrap``, and classes of modules, before
    graphopt's own.

    Inputs are named by argument, outputs by field, constants by parameter. Constants share the parameters' memory: do
    not change these while the graph is in use.

    Raises TranslationError where a call has no entry or the module changes its buffers or arguments, UsageError where
    torch cannot export it, MissingDependencyError without torch.
    """
    try:
        from graphopt.frontends.torch.export import exported_graph
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingDependencyError("from_torch needs torch: pip install 'graphopt[torch]'") from None
    positional: Sequence[Any] = ()
    named = dict(kwargs or {})
    if isinstance(example_inputs, Mapping):
        named = {**example_inputs, **named}
    else:
        positional = example_inputs if isinstance(example_inputs, list | tuple) else (example_inputs,)
    return exported_graph(module, tuple(positional), named, dynamic_shapes, table or Table(), name)
