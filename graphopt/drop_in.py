"""``graphopt.simplify``: takes the arguments of onnxsim's function of that name, so that scripts change one import."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphopt.errors import UsageError, VerificationError

if TYPE_CHECKING:
    from graphopt.ir.constants import Array
    from graphopt.ir.graph import Graph

_BATCH_NORM = ("K1",)
"""The rules that ``skip_fuse_bn`` leaves out."""


def simplify(
    model: Any,
    check_n: int = 0,
    perform_optimization: bool = True,
    skip_fuse_bn: bool = False,
    overwrite_input_shapes: Mapping[str | None, Sequence[int]] | None = None,
    test_input_shapes: Mapping[str | None, Sequence[int]] | None = None,
    skipped_optimizers: Sequence[str] | None = None,
    skip_constant_folding: bool = False,
    skip_shape_inference: bool = False,
    input_data: Mapping[str, Array] | None = None,
    dynamic_input_shape: bool = False,
    custom_lib: str | None = None,
    include_subgraph: bool = False,
    unused_output: Sequence[str] | None = None,
    mutable_initializer: bool = False,
    *,
    target_opset_version: int | None = None,
    output_path: str | Path | None = None,
    **others: object,
) -> tuple[Any, bool]:
    """The optimized model as a ``ModelProto``, and whether checking it on ``check_n`` random inputs found it right.

    ``model`` is a ``ModelProto`` or a path. Where the check fails, the model that comes back is the
    original. Arguments that cannot be honoured raise UsageError; ``skip_shape_inference``,
    ``dynamic_input_shape`` and ``include_subgraph`` change nothing here, since types are always
    inferred, open dimensions always kept, and subgraphs always optimized.
    """
    from graphopt.ir.onnx_io import load, save, to_proto
    from graphopt.optimize import optimize

    refused = {
        "perform_optimization": not perform_optimization,
        "skip_constant_folding": skip_constant_folding,
        "custom_lib": custom_lib is not None,
        **dict.fromkeys(others, True),
    }
    without = list(_BATCH_NORM) if skip_fuse_bn else []
    for name in skipped_optimizers or ():
        if name != "fuse_bn_into_conv":
            refused[f"skipped_optimizers={name!r}"] = True
        else:
            without = list(_BATCH_NORM)
    for name in sorted(k for k, is_given in refused.items() if is_given):
        raise UsageError(f"simplify does not take {name}: leave it out, or use graphopt.optimize and its options")
    graph = load(model)
    if unused_output:
        graph = _without_outputs(graph, unused_output)
    original = to_proto(graph)
    shapes = _shapes(graph, overwrite_input_shapes)
    try:
        result = optimize(
            original,
            without=without,
            opset=target_opset_version,
            freeze=not mutable_initializer,
            shapes=shapes,
            verify=check_n or "off",
            inputs=_inputs(graph, _shapes(graph, test_input_shapes), input_data),
        )
    except VerificationError:
        return original, False
    if output_path is not None:
        save(load(result), output_path)
    return result, True


def _without_outputs(graph: Graph, names: Sequence[str]) -> Graph:
    for name in names:
        if name not in graph.output_names:
            raise UsageError(f"unused_output: the model has no output {name!r}; it has {', '.join(graph.output_names)}")
    graph = graph.copy()
    kept = [(n, v) for n, v in zip(graph.output_names, graph.outputs, strict=True) if n not in names]
    graph.output_names, graph.outputs = [n for n, _ in kept], [v for _, v in kept]
    return graph


def _shapes(graph: Graph, given: Mapping[str | None, Sequence[int]] | None) -> dict[str, tuple[int, ...]]:
    """Shapes by input; the key None is the only input of the model."""
    found: dict[str, tuple[int, ...]] = {}
    for name, shape in (given or {}).items():
        if name is None and len(graph.inputs) != 1:
            raise UsageError(f"a shape without an input's name: the model has {len(graph.inputs)} inputs, not one")
        found[graph.names[graph.inputs[0]] if name is None else name] = tuple(shape)
    return found


def _inputs(graph: Graph, shapes: Mapping[str, tuple[int, ...]], data: Mapping[str, Array] | None) -> dict[str, Any]:
    """What the check feeds: the arrays given, and random ones of the shapes given."""
    from graphopt.inputs import draw
    from graphopt.ir.types import TensorType

    if not shapes:
        return dict(data or {})
    fixed = graph.copy()
    for value in fixed.inputs:
        type = fixed.types.get(value)
        if isinstance(type, TensorType) and fixed.names[value] in shapes:
            fixed.types[value] = TensorType(type.dtype, shapes[fixed.names[value]])
    fixed.inputs = [value for value in fixed.inputs if fixed.names[value] in shapes]
    return {**draw(fixed, {}, {}, {}, 0, 0), **(data or {})}
