"""Drop-in functions for onnxsim and onnxslim: ``graphopt.simplify`` and ``graphopt.slim``.

An argument is honoured, or has no effect here for a stated reason, or is refused with one line; none is dropped
in silence. ``docs/coming-from/`` says which is which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphopt.errors import UsageError, VerificationError, nearest_or_some
from graphopt.interop.compat_options import (
    checked_inputs,
    names_of,
    opset_of,
    shapes_by_input,
    shapes_of,
    skipped,
    step,
)
from graphopt.ir.dtypes import ALIASES

if TYPE_CHECKING:
    from graphopt.ir.constants import Array
    from graphopt.ir.graph import Graph
    from graphopt.rewrite.ruleset import Ruleset
    from graphopt.verify.verification import Verification

_IDLE = frozenset(
    (
        "skip_shape_inference",
        "dynamic_input_shape",
        "include_subgraph",
        "inline_functions",
        "import_custom_schemas",
        "tensor_size_threshold",
        "gemm_fusion_backend",
        "external_data_threshold",
    )
)
"""Arguments of onnxsim that change nothing here: types are always inferred, open dimensions kept, bodies and functions
looked into, and what folding may add to a model is limited anyway."""
DTYPES = {name: ALIASES[name] for name in ("fp16", "fp32")}
"""onnxslim's words for dtypes to convert to, and ours."""
_ROUNDS = 8
"""How often a rewriter of the caller's and the rules take turns at most."""


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
    tensor_size_threshold: str = "1.5GB",
    mutable_initializer: bool = False,
    *,
    target_opset_version: int | str | None = None,
    custom_rewriter: Callable[[Any], Any] | None = None,
    function_rewrite_rules: Sequence[tuple[Any, Any]] | None = None,
    input_fill: str = "random",
    output_path: str | Path | None = None,
    **others: object,
) -> tuple[Any, bool]:
    """onnxsim's call: the optimized model as a ``ModelProto``, and whether a check verified it.

    ``model`` is a ``ModelProto`` or a path; ``check_n`` random inputs, at least one, check it. A wrong result gives the
    original back, a check that settles nothing (``graphopt.verify.verification``) the result and False.
    ``function_rewrite_rules`` are pairs of functions as rules, applied wherever they match; ``custom_rewriter`` changes
    a ``ModelProto``, in turns with the rules, until nothing changes, and is checked only with ``check_n``.
    ``skipped_optimizers`` are passes of onnxoptimizer or our rules and families. What cannot be honoured is a
    UsageError.
    """
    from graphopt.ir.onnx_io import load, save, to_proto
    from graphopt.optimize import optimize

    _refuse("simplify", skip_constant_folding=skip_constant_folding, custom_lib=custom_lib, **others)
    without = list(skipped(skipped_optimizers or ()))
    graph = load(model)
    if unused_output:
        graph = _without_outputs(graph, unused_output)
    original = to_proto(graph)
    options: dict[str, Any] = {
        "without": ["K1", *without] if skip_fuse_bn else without,
        "opset": opset_of(target_opset_version),
        "freeze": not mutable_initializer,
        "shapes": shapes_by_input(graph, overwrite_input_shapes),
    }
    rules = _rules(perform_optimization, function_rewrite_rules or ())
    if rules is not None:
        options["rules"] = rules
    inputs = _inputs(graph, shapes_by_input(graph, test_input_shapes), input_data, input_fill)
    given = original if custom_rewriter is None else _rewritten(original, custom_rewriter, options)
    draws = max(check_n, 1)
    try:
        result, report = optimize(given, **options, verify=draws, inputs=inputs, return_report=True)
        verifications = [report.verification]
        if custom_rewriter is not None and check_n:  # else its changes are its author's affair
            verifications.append(_verify(original, result, draws, inputs))
    except VerificationError:
        return original, False
    if output_path is not None:
        save(load(result), output_path)
    return result, all(verification.is_verified for verification in verifications)


def slim(
    model: Any,
    output_model: str | Path | None = None,
    *,
    model_check: bool = False,
    input_shapes: Mapping[str, Sequence[int]] | Sequence[str] | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    no_shape_infer: bool = False,
    skip_optimizations: Sequence[str] | None = None,
    dtype: str | None = None,
    skip_fusion_patterns: Sequence[str] | None = None,
    size_threshold: int | None = None,
    inspect: bool = False,
    dump_to_disk: bool = False,
    save_as_external_data: bool = False,
    model_check_inputs: Sequence[str] | None = None,
    verbose: bool = False,
) -> Any:
    """onnxslim's call: the optimized model as a ``ModelProto``, or None where it is written to ``output_model``.

    ``model`` is a ``ModelProto`` or a path; of a list of models the contents are printed. ``inputs`` and ``outputs``
    cut the model, ``dtype`` converts it (``fp16``, ``fp32``). ``model_check`` compares original and result on random
    inputs, by ``model_check_inputs`` of given shapes or files: None where they differ. ``no_shape_infer``,
    ``size_threshold`` and ``verbose`` change nothing. What cannot be honoured is a UsageError.
    """
    from graphopt.ir.onnx_io import load, save, to_proto
    from graphopt.optimize import optimize
    from graphopt.tools.convert import convert

    _refuse("slim", dump_to_disk=dump_to_disk)
    if inspect or isinstance(model, list):
        print("\n".join(_inspected(model if isinstance(model, list) else [model])))
        return None
    graph = load(model)
    graph = part(graph, inputs, outputs, None)
    original = to_proto(graph)
    shapes, arrays = checked_inputs(graph, model_check_inputs or ())
    result = original
    try:
        if set(skip_optimizations or ()) != _STEPS:
            result = optimize(
                original,
                freeze=True,
                without=[step(name) for name in (*(skip_optimizations or ()), *(skip_fusion_patterns or ()))],
                shapes=shapes_by_input(graph, dict(shapes_of(input_shapes))),
                verify=1 if model_check else "off",
                inputs=_inputs(graph, shapes, arrays, "random") if model_check else {},
            )
    except VerificationError:
        return None
    if dtype is not None:
        result, _ = convert(result, to=DTYPES.get(dtype, dtype), io=True)
    if output_model is None:
        return result
    save(load(result), output_model, external=save_as_external_data)
    return None


def part(
    graph: Graph, inputs: Sequence[str] | None, outputs: Sequence[str] | None, unused: Sequence[str] | None
) -> Graph:
    """The graph cut as onnxslim's ``inputs`` and ``outputs`` say, and without onnxsim's ``unused`` outputs."""
    from graphopt.tools.submodel import extract_graph

    if unused:
        graph = _without_outputs(graph, unused)
    if inputs or outputs:
        graph = extract_graph(graph, list(names_of(graph, inputs)), list(names_of(graph, outputs)))
    return graph


def command_options(graph: Graph, arguments: Mapping[str, Any], draws: int) -> dict[str, Any]:
    """What ``graphopt.optimize`` takes for the options of both command lines (by name, as argparse read them)."""
    shapes, arrays = checked_inputs(graph, arguments["test_inputs"])
    given = arguments["skip_optimization"]
    without = [
        *skipped(given or ()),
        *map(step, (*arguments["skip_optimizations"], *arguments["skip_fusion_patterns"])),
    ]
    return {
        "rules": _rules(perform_optimization=given != [], pairs=()),
        "without": ["K1", *without] if arguments["skip_fuse_bn"] else without,
        "opset": opset_of(arguments["target_opset"]),
        "freeze": not arguments["mutable_initializer"],
        "shapes": shapes_by_input(graph, dict(shapes_of(arguments["shapes"]))),
        "verify": max(draws, 1),
        "inputs": _inputs(graph, shapes, arrays, arguments["input_fill"]),
    }


_STEPS = frozenset(
    ("constant_folding", "graph_fusion", "dead_node_elimination", "subexpression_elimination", "weight_tying")
)


def _refuse(function: str, **given: object) -> None:
    """Refuse arguments that ask for what is not done here; those that ask for nothing may be there."""
    nothing: dict[str, tuple[object, ...]] = {
        "check_rtol": (1e-4,),
        "check_atol": (1e-5,),
        "initializers_as_constants": (True,),
        "gradient_precision": ("fp32",),
        "providers": ([], (), ["CPUExecutionProvider"], ("CPUExecutionProvider",)),
    }
    for name, value in given.items():
        if name not in _IDLE and value is not None and value not in nothing.get(name, (False, (), [])):
            raise UsageError(f"{function} does not take {name}: leave it out, or use graphopt.optimize and its options")


def _rules(perform_optimization: bool, pairs: Sequence[tuple[Any, Any]]) -> Ruleset | None:
    """The rules: the standard set, or what only computes constants, and pairs of functions; None for the standard."""
    from graphopt.rewrite.reading.pairs import rule_from_pair
    from graphopt.rewrite.ruleset import Ruleset, standard

    selected = [
        rule_from_pair(left, right, name=f"function-rule-{number}", soundness="reals", always=True)
        for number, (left, right) in enumerate(pairs, 1)
    ]
    if perform_optimization:
        return standard() + selected if selected else None
    folding = {"A1", "A17"}
    return Ruleset((), tuple(p for p in standard().passes if folding & set(p.family.split(",")))) + selected


def _rewritten(proto: Any, rewriter: Callable[[Any], Any], options: dict[str, Any]) -> Any:
    """The model after a rewriter of the caller's and the rules took turns until neither changes anything."""
    from graphopt.ir.onnx_io import load, to_proto
    from graphopt.optimize import optimize

    for _ in range(_ROUNDS):
        before = to_proto(load(optimize(proto, **options, verify="off")))
        changed = to_proto(load(before))
        result = rewriter(changed)
        proto = changed if result is None or isinstance(result, bool) else result
        if proto.SerializeToString(deterministic=True) == before.SerializeToString(deterministic=True):
            break
    return proto


def _verify(original: Any, result: Any, draws: int, inputs: Mapping[str, Any]) -> Verification:
    """What comparing the models on random inputs finds. Raises VerificationError where they differ."""
    import tempfile

    from graphopt.ir.onnx_io import load, save
    from graphopt.verify.verification import verify_as_asked

    with tempfile.TemporaryDirectory(prefix="graphopt-") as folder:
        places = Path(folder) / "original.onnx", Path(folder) / "result.onnx"
        for proto, path in zip((original, result), places, strict=True):
            save(load(proto), path)
        return verify_as_asked(*places, draws, inputs)


def _without_outputs(graph: Graph, names: Sequence[str]) -> Graph:
    for name in names:
        if name not in graph.output_names:
            raise UsageError(f"unused_output: there is no output {name!r}{nearest_or_some(name, graph.output_names)}")
    graph = graph.copy()
    kept = [(n, v) for n, v in zip(graph.output_names, graph.outputs, strict=True) if n not in names]
    graph.output_names, graph.outputs = [n for n, _ in kept], [v for _, v in kept]
    return graph


def _inputs(
    graph: Graph, shapes: Mapping[str, tuple[int, ...]], data: Mapping[str, Array] | None, fill: str
) -> dict[str, Any]:
    """What the check feeds: the arrays given, and random ones (or others, as ``fill`` says) of the shapes given."""
    from graphopt.ir.types import TensorType
    from graphopt.verify.arrays import filled
    from graphopt.verify.inputs import draw

    fixed = graph.copy()
    for value in fixed.inputs:
        type = fixed.types.get(value)
        if isinstance(type, TensorType) and fixed.names[value] in shapes:
            fixed.types[value] = TensorType(type.dtype, shapes[fixed.names[value]])
    if fill == "random":
        fixed.inputs = [value for value in fixed.inputs if fixed.names[value] in shapes]
    drawn = draw(fixed, {}, {}, {}, 0, 0) if fixed.inputs else {}
    if fill != "random":
        drawn = {name: filled(array, fill) for name, array in drawn.items()}
    return {**drawn, **(data or {})}


def _inspected(models: Sequence[Any]) -> Iterator[str]:
    """What models hold, a few lines each."""
    from graphopt.ir.onnx_io import load
    from graphopt.run.steps import count_ops

    for model in models:
        graph = load(model)
        yield f"{model if isinstance(model, str | Path) else graph.name}: {len(graph)} ops, opset {graph.opset}"
        yield from (f"  {op}: {count}" for op, count in count_ops(graph).items())
