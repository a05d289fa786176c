"""Export by torch.export: modules become graphs with the names that their authors gave.

Apart from ``from_torch``, which loads without torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument
from torch.utils import _pytree as pytree

from graphopt.errors import TranslationError, UsageError
from graphopt.frontends.torch.leaves import Leaves
from graphopt.frontends.torch.operators import STANDARD
from graphopt.frontends.torch.table import Table
from graphopt.frontends.torch.tensors import dtype_name
from graphopt.frontends.torch.translation import Translation, decompositions, shape_of
from graphopt.ir.graph import Graph, Value
from graphopt.lowering.module.builder import GraphBuilder


def exported_graph(
    module: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any, table: Table, name: str
) -> Graph:
    """The graph of a module, an fx graph or an exported program: ``graphopt.from_torch``."""
    name = name or type(module).__name__
    if isinstance(module, ExportedProgram):
        if dynamic_shapes is not None:
            raise UsageError("the sizes of an ExportedProgram are settled: dynamic_shapes are torch.export's to take")
        return _graph(module, STANDARD | table, {}, name)
    if not isinstance(module, torch.nn.Module):
        raise UsageError(f"a torch.nn.Module or torch.export.ExportedProgram is expected, not {type(module).__name__}")
    with Leaves(module, table) as leaves:
        try:
            with torch.no_grad():
                program = torch.export.export(
                    leaves.module, inputs, kwargs, dynamic_shapes=dynamic_shapes, strict=False
                )
        except Exception as error:  # torch raises many kinds, from its own and from the module's code
            why = " ".join(str(error).strip().partition("\n\n")[0].split())
            raise UsageError(f"torch.export cannot export {name}: {type(error).__name__}: {why}") from error
        names = dict(_dimension_names(program, leaves.module, dynamic_shapes))
        return _graph(program, STANDARD | table | leaves.table, names, name)


def _graph(program: ExportedProgram, table: Table, names: Mapping[str, str], name: str) -> Graph:
    try:
        with torch.no_grad():
            program = program.run_decompositions(decompositions(table))
    except Exception as error:  # torch raises many kinds
        why = " ".join(str(error).strip().partition("\n\n")[0].split())
        raise UsageError(f"torch cannot decompose {name}: {type(error).__name__}: {why}") from error
    _check_pure(program)
    builder = GraphBuilder(name)
    translation = Translation(builder, table)
    placeholders = [n for n in program.graph.nodes if n.op == "placeholder"]
    specs = program.graph_signature.input_specs
    arguments = [_argument(program, n, s, translation, names) for n, s in zip(placeholders, specs, strict=True)]
    results = translation.run(program.graph_module, arguments)
    _name_outputs(program, builder, translation, results)
    return builder.build().graph()


def _check_pure(program: ExportedProgram) -> None:
    """Refuse a module that changes what it was given, which graphs cannot."""
    changed = [s for s in program.graph_signature.output_specs if s.kind.name.endswith("MUTATION")]
    if changed:
        names = ", ".join(repr(s.target) for s in changed)
        what = "arguments" if any(s.kind is OutputKind.USER_INPUT_MUTATION for s in changed) else "buffers"
        hint = "call model.eval() first" if "running_" in names else "give back what is new instead"
        raise TranslationError(f"the module changes its {what} {names}, which a graph cannot: {hint}")


def _argument(
    program: ExportedProgram, node: fx.Node, spec: Any, translation: Translation, names: Mapping[str, str]
) -> Any:
    """What stands for one input of the program: an input of the graph, or a constant."""
    writer = translation.writer
    match spec.kind:
        case InputKind.PARAMETER | InputKind.BUFFER:
            held = program.state_dict if spec.target in program.state_dict else program.constants
            return writer.constant(held[spec.target], spec.target)
        case InputKind.CONSTANT_TENSOR:
            return writer.constant(program.constants[spec.target], spec.target)
        case InputKind.USER_INPUT if isinstance(spec.arg, TensorArgument):
            tensor = node.meta["val"]
            try:
                dtype = dtype_name(tensor.dtype)
            except ValueError as error:
                raise TranslationError(f"the argument {node.name!r}: {error}", node) from None
            return writer.builder.input(node.name, dtype, shape_of(tensor.shape, names))
        case InputKind.USER_INPUT:
            example = node.meta.get("val", getattr(spec.arg, "value", None))
            return writer.builder.input(node.name, "int64", ()) if isinstance(example, torch.SymInt) else example
    raise TranslationError(f"the argument {node.name!r} is of a kind that a graph cannot have: {spec.kind.name}", node)


def _name_outputs(program: ExportedProgram, builder: GraphBuilder, translation: Translation, values: Any) -> None:
    """The results as outputs: by the names of their fields, or counted."""
    tree: Any = program.call_spec.out_spec
    results = [
        r for r, s in zip(values, program.graph_signature.output_specs, strict=True) if s.kind.name == "USER_OUTPUT"
    ]
    paths = [path for path, _ in pytree.tree_flatten_with_path(pytree.tree_unflatten(range(len(results)), tree))[0]]
    is_one = len(results) == 1
    used: set[str] = set()
    for path, result in zip(paths, results, strict=True):
        if result is None:
            continue
        name = ".".join(_key(key) for key in path)
        name = "output" if not name or (is_one and name == "0") else f"output_{name}" if name[0].isdigit() else name
        while name in used:
            name += "_"
        used.add(name)
        if not isinstance(result, Value | np.ndarray | bool | int | float):
            raise TranslationError(f"the result {name!r} is of type {type(result).__name__}, which graphs cannot give")
        builder.output(name, translation.writer.value(result))
    if not used:
        raise TranslationError("the module gives no tensor, and a graph has to")


def _key(key: Any) -> str:
    for field in ("key", "name", "idx"):
        if hasattr(key, field):
            return str(getattr(key, field))
    return str(key)


def _dimension_names(
    program: ExportedProgram, module: torch.nn.Module, dynamic_shapes: Any
) -> Iterator[tuple[str, str]]:
    """The name that a caller gave for each symbol of torch's."""
    if dynamic_shapes is None:
        return
    nodes = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    specs = program.graph_signature.input_specs
    user = [nodes[s.arg.name].meta.get("val") for s in specs if s.kind == InputKind.USER_INPUT]
    args, kwargs = pytree.tree_unflatten(user, program.call_spec.in_spec)
    values = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    if isinstance(dynamic_shapes, Mapping):
        pairs = [(values.get(name), spec) for name, spec in dynamic_shapes.items()]
    else:
        pairs = list(zip(values.values(), dynamic_shapes, strict=False))
    for value, spec in pairs:
        yield from _named(value, spec)


def _named(value: Any, spec: Any) -> Iterator[tuple[str, str]]:
    """The names of the symbols in one argument; a size that is computed from a ``Dim`` has the name of that in it."""
    if isinstance(value, torch.Tensor):
        axes = spec.items() if isinstance(spec, Mapping) else enumerate(spec or ())
        for axis, dimension in axes:
            size = value.shape[axis]
            name = getattr(getattr(dimension, "root", dimension), "__name__", "")
            symbols = size.node.expr.free_symbols if isinstance(size, torch.SymInt) else ()
            if len(symbols) == 1 and name.isidentifier():
                yield str(*symbols), name
    elif isinstance(value, Mapping) and isinstance(spec, Mapping):
        for key, inner in value.items():
            yield from _named(inner, spec.get(key))
    elif isinstance(value, list | tuple) and isinstance(spec, list | tuple):
        for inner, part in zip(value, spec, strict=False):
            yield from _named(inner, part)
