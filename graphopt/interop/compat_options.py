"""Options of onnxsim and onnxslim (shapes, values, opsets, what to skip) in graphopt's terms. Apart from ``drop_in`` by
size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphopt.errors import RuleError, UsageError
from graphopt.ir.dtypes import ALIASES

if TYPE_CHECKING:
    from graphopt.ir.graph import Graph

OPTIMIZERS = {
    "eliminate_common_subexpression": "A4",
    "eliminate_consecutive_idempotent_ops": "A22",
    "eliminate_deadend": "A1",
    "eliminate_duplicate_initializer": "A6",
    "eliminate_identity": "A2",
    "eliminate_if_with_const_cond": "O1",
    "eliminate_nop_cast": "C2",
    "eliminate_nop_concat": "C9",
    "eliminate_nop_dropout": "A3",
    "eliminate_nop_expand": "C7",
    "eliminate_nop_flatten": "C6",
    "eliminate_nop_monotone_argmax": "C14",
    "eliminate_nop_pad": "C9",
    "eliminate_nop_reshape": "C6",
    "eliminate_nop_split": "C9",
    "eliminate_nop_transpose": "C5",
    "eliminate_nop_with_unit": "C1",
    "eliminate_unused_initializer": "A7",
    "fuse_add_bias_into_conv": "K4",
    "fuse_bn_into_conv": "K1",
    "fuse_consecutive_reduce_unsqueeze": "D5",
    "fuse_consecutive_slices": "F1",
    "fuse_consecutive_transposes": "E1",
    "fuse_matmul_add_bias_into_gemm": "J1",
    "fuse_pad_into_conv": "K3",
    "fuse_pad_into_pool": "K3",
    "fuse_qkv": "J5",
    "fuse_transpose_into_gemm": "E3",
    "replace_einsum_with_matmul": "E11",
}
"""onnxoptimizer's passes, as onnxsim names what to skip, and the families of rules that do what they do."""

STEPS = {
    "dead_node_elimination": "A1",
    "subexpression_elimination": "A4",
    "weight_tying": "A6",
    "EliminationReshape": "C6",
    "EliminationSlice": "F1",
    "EliminationTranspose": "E1",
    "FusionConvAdd": "K4",
    "FusionConvBN": "K1",
    "FusionConvMul": "K2",
    "FusionConvTransposeBN": "K1",
    "FusionGemm": "J1",
    "FusionGemmAdd": "J1",
    "FusionPadConv": "K3",
    "FusionReduce": "D5",
}
"""onnxslim's steps and fusions, and the families that do what they do."""


def step(name: str) -> str:
    """The family that a step or fusion of onnxslim's is."""
    if name not in STEPS:
        raise UsageError(
            f"skipping {name} is not possible here: use graphopt.optimize(without=...) with rules or families"
        )
    return STEPS[name]


def skipped(names: Sequence[str]) -> Iterator[str]:
    """The families or rules that onnxsim's names of passes mean."""
    from graphopt.rewrite.ruleset import standard

    for name in names:
        if name in OPTIMIZERS:
            yield OPTIMIZERS[name]
            continue
        try:
            standard().named(name)
        except RuleError:
            raise UsageError(
                f"skipped_optimizers={name!r}: no rule does just what that pass does; `graphopt rules list` names them"
            ) from None
        yield name


def opset_of(version: int | str | None) -> int | None:
    """The number of an opset, which may be ``latest``. UsageError where it is none."""
    if version != "latest":
        if not str(version or 0).isdecimal():
            raise UsageError(f"the opset {version!r}: expected a number, or latest")
        return None if version is None else int(version)
    from graphopt.ir.ops import LATEST

    return LATEST


def shapes_of(shapes: Mapping[str, Sequence[int]] | Sequence[str] | None) -> Iterator[tuple[str | None, Sequence[int]]]:
    """Shapes by input, given so or as ``x:1,3,224,224``."""
    if isinstance(shapes, Mapping):
        yield from shapes.items()
        return
    for text in shapes or ():
        yield shape_of(text)


def shape_of(text: str) -> tuple[str | None, tuple[int, ...]]:
    """The input and the shape of ``x:1,3,224,224``; without a name, it is that of the only input."""
    name, colon, sizes = text.rpartition(":")
    try:
        return (name if colon else None), tuple(int(size) for size in sizes.split(",") if size.strip())
    except ValueError:
        raise UsageError(f"{text}: expected a shape, INPUT:1,3,224,224") from None


def names_of(graph: Graph, given: Sequence[str] | None) -> Iterator[str]:
    """The values that onnxslim's ``NAME`` or ``NAME:DTYPE`` mean. The dtype must be the one that the value has."""
    from graphopt.ir.infer import infer
    from graphopt.tools.submodel import named_values

    named = named_values(graph)
    dtypes = {**{name: ALIASES[name] for name in ("fp16", "fp32")}, "int32": "int32", "bool": "bool"}
    for text in given or ():
        name, colon, dtype = text.rpartition(":")
        if text in named or not colon or name not in named:
            yield text
            continue
        actual = infer(graph)[named[name]].dtype
        if actual != dtypes.get(dtype, dtype):
            raise UsageError(f"{text}: {name!r} is {actual or 'of unknown dtype'}; graphopt convert changes dtypes")
        yield name


def shapes_by_input(graph: Graph, given: Mapping[Any, Sequence[int]] | None) -> dict[str, tuple[int, ...]]:
    """Shapes by input; the key None is the only input of the model."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in (given or {}).items():
        if name is None and len(graph.inputs) != 1:
            raise UsageError(f"a shape without an input's name: the model has {len(graph.inputs)} inputs, not one")
        shapes[graph.names[graph.inputs[0]] if name is None else name] = tuple(shape)
    return shapes


def checked_inputs(graph: Graph, given: Sequence[str]) -> tuple[dict[str, tuple[int, ...]], dict[str, Any]]:
    """The shapes, and the files of arrays, by the inputs that onnxslim's ``x:1,3`` and ``x:data.npy`` name."""
    shapes: dict[str | None, tuple[int, ...]] = {}
    arrays: dict[str, Any] = {}
    for text in given:
        name, _, value = text.rpartition(":")
        if value.endswith(".npy"):
            arrays[name] = Path(value)
        else:
            called, shape = shape_of(text)
            shapes[called] = shape
    return shapes_by_input(graph, shapes), arrays
