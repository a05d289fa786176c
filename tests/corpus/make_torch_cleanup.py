"""Exports small torch models that are mostly shape arithmetic, views, slices, sequences and control flow.

Run with torch 2.13 and onnxscript 0.7: ``python tests/corpus/make_torch_cleanup.py [NAME...]``. Each model is
written by the exporter that traces (``torch``) or by the older one (``torchscript``), as the table at the end says.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx
import onnxscript
import torch
from modules.control import Blocks, Branches, Carried, Chunks, Few, Gated, Maybe, Ranked, Spread, Stacked, Windows
from modules.detectors import Anchors, Select, Yolo
from modules.idle import Casts, Classes, Idle, Training, Whitened
from modules.sizes import Flow, Guided, Half, Letterbox, OpenHeads, Padded, Positions, Resized, Rotary, Tokens, Turned
from modules.views import Cache, Columns, Cuts, Patches, Pixels, Repeats, Squeezes, Warp
from onnxscript import FLOAT
from onnxscript import opset18 as op
from torch import nn

FOLDER = Path(__file__).parent
LIMIT = 40_000


# -- functions of the model, as onnxscript writes them

DOMAIN = onnxscript.values.Opset("corpus.functions", 1)


@onnxscript.script(DOMAIN, default_opset=op)
def softplus(x: FLOAT[...]) -> FLOAT[...]:
    """The logarithm of one plus an exponential."""
    return op.Log(op.Exp(x) + 1.0)


@onnxscript.script(DOMAIN, default_opset=op)
def mish(x: FLOAT[...]) -> FLOAT[...]:
    """A smooth activation."""
    return x * op.Tanh(softplus(x))


@onnxscript.script(default_opset=op)
def functions(x: FLOAT[2, 8], w: FLOAT[8, 8]) -> FLOAT[2, 8]:
    """Two layers."""
    return mish(op.MatMul(mish(op.MatMul(x, w)), w))


@dataclass
class Case:
    """A module, its arguments, and how it is exported."""

    make: type[nn.Module]
    args: tuple[Any, ...]
    exporters: tuple[str, ...] = ("torch", "torchscript")
    scripted: bool = False
    training: bool = False
    folding: bool = True
    optimize: bool = True
    dims: dict[str, dict[int, str]] = field(default_factory=dict)
    names: tuple[str, ...] = ()


OLD = ("torchscript",)
IMAGE = torch.rand(1, 3, 16, 16)
OPEN_IMAGE = {"x": {0: "batch", 2: "height", 3: "width"}}
CASES = {
    "yolo": Case(Yolo, (IMAGE,)),
    "yolo_open": Case(Yolo, (IMAGE,), OLD, dims={"x": {0: "batch"}}, names=("x",)),
    "yolo_sizes": Case(Yolo, (IMAGE,), OLD, dims=OPEN_IMAGE, names=("x",)),
    "select": Case(Select, (torch.rand(2, 12, 8),)),
    "select_open": Case(Select, (torch.rand(2, 12, 8),), OLD, dims={"b": {0: "batch", 1: "boxes"}}, names=("b",)),
    "anchors": Case(
        Anchors,
        (torch.rand(1, 4, 3, 5), torch.rand(2, 15, 4)),
        OLD,
        dims={"deltas": {0: "batch"}, "feature": {2: "h", 3: "w"}},
        names=("feature", "deltas"),
    ),
    "open_heads": Case(
        OpenHeads,
        (torch.rand(2, 5, 8), torch.ones(2, 5) > 0),
        dims={"x": {0: "batch", 1: "time"}, "mask": {0: "batch", 1: "time"}},
        names=("x", "mask"),
    ),
    "padded": Case(Padded, (torch.rand(1, 3, 7, 9),), dims=OPEN_IMAGE, names=("x",)),
    "positions": Case(
        Positions,
        (torch.rand(2, 3, 8), torch.rand(2, 5, 8)),
        dims={"x": {0: "batch", 1: "new"}, "past": {0: "batch", 1: "seen"}},
        names=("x", "past"),
    ),
    "letterbox": Case(
        Letterbox,
        (torch.rand(1, 3, 6, 8), torch.rand(2, 4), torch.tensor(2.0), torch.tensor(3.0)),
        dims={"image": {2: "height", 3: "width"}},
        names=("image", "boxes", "high", "wide"),
    ),
    "tokens": Case(Tokens, (torch.rand(2, 5, 8),)),
    "tokens_open": Case(Tokens, (torch.rand(2, 5, 8),), OLD, dims={"x": {0: "batch"}}, names=("x",)),
    "rotary_table": Case(Rotary, (torch.rand(2, 5, 8), torch.arange(5)[None].repeat(2, 1))),
    "guided": Case(Guided, (torch.rand(2, 6, 8), torch.rand(4, 8, 8))),
    "flow": Case(Flow, (torch.rand(3, 12),)),
    "resized": Case(Resized, (torch.rand(2, 3, 4),), OLD),
    "half": Case(Half, (torch.rand(2, 3, 8), torch.rand(2, 4, 8).half())),
    "turned": Case(Turned, (torch.rand(2, 6, 4),), dims={"x": {0: "batch", 1: "time"}}, names=("x",)),
    "pixels": Case(Pixels, (torch.rand(2, 3, 8, 8),)),
    "pixels_open": Case(Pixels, (torch.rand(2, 3, 8, 8),), OLD, dims={"x": {0: "batch"}}, names=("x",)),
    "patches": Case(Patches, (torch.rand(2, 3, 8, 8),)),
    "repeats": Case(Repeats, (torch.rand(2, 5, 8), torch.rand(2, 2, 4, 6), torch.rand(8))),
    "repeats_open": Case(
        Repeats,
        (torch.rand(2, 5, 8), torch.rand(2, 2, 4, 6), torch.rand(8)),
        OLD,
        dims={"x": {0: "b", 1: "t"}, "y": {0: "b", 2: "s"}},
        names=("x", "y", "scale"),
    ),
    "squeezes": Case(Squeezes, (torch.rand(2, 4, 6), torch.rand(2, 4, 6), torch.rand(1, 5, 3))),
    "cuts": Case(Cuts, (torch.rand(2, 6, 5), torch.rand(2, 6, 5)), folding=False),
    "cache": Case(Cache, (torch.rand(2, 2, 6, 8), torch.rand(2, 2, 2, 8), torch.tensor([3, 4]))),
    "columns": Case(Columns, (torch.rand(2, 5, 4),)),
    "columns_open": Case(Columns, (torch.rand(2, 5, 4),), OLD, dims={"x": {1: "boxes"}}, names=("x",)),
    "idle": Case(Idle, (torch.rand(2, 3, 4, 6), torch.rand(2, 3, 4, 6) > 0.5), folding=False, optimize=False),
    "casts": Case(Casts, (torch.rand(2, 8), torch.tensor([1, 2, 3])), optimize=False),
    "classes": Case(Classes, (torch.rand(4, 5),)),
    "whitened": Case(Whitened, (torch.rand(1, 4, 6, 6),)),
    "training": Case(Training, (torch.rand(2, 3, 8, 8),), OLD, training=True, folding=False),
    "chunks": Case(Chunks, (torch.rand(2, 6, 4),), OLD, scripted=True),
    "windows": Case(Windows, (torch.rand(3, 4, 4), torch.tensor(5)), OLD, scripted=True),
    "few": Case(Few, (torch.rand(2, 3), torch.tensor(2)), OLD, scripted=True),
    "stacked": Case(Stacked, (torch.rand(3, 2, 4), torch.tensor(5)), OLD, scripted=True),
    "carried": Case(Carried, (torch.rand(3, 4),), OLD, scripted=True),
    "branches": Case(Branches, (torch.rand(2, 3, 4), torch.tensor(1)), OLD, scripted=True),
    "ranked": Case(
        Ranked,
        (torch.rand(2, 3, 4, 1),),
        OLD,
        scripted=True,
        dims={"x": {0: "time", 1: "batch", 3: "last"}},
        names=("x",),
    ),
    "maybe": Case(Maybe, (torch.rand(2, 3), torch.rand(3)), OLD, scripted=True),
    "gated": Case(Gated, (torch.rand(2, 8),), ("torch",), optimize=False),
    "blocks": Case(Blocks, (torch.rand(2, 5, 8),)),
    "warp": Case(Warp, (torch.rand(1, 2, 6, 5), torch.rand(1, 2, 6, 5))),
    "spread": Case(Spread, (torch.rand(2, 5), torch.tensor([3, 1])), OLD, dims={"x": {1: "time"}}, names=("x", "ids")),
}


def without_notes(path: Path) -> None:
    """Take out what the exporter says of the machine that it ran on."""
    model = onnx.load(path)
    graph = model.graph
    for thing in (model, graph, *graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer):
        thing.ClearField("metadata_props")
        if not isinstance(thing, onnx.ModelProto):
            thing.ClearField("doc_string")
    onnx.save(model, path)


def export(name: str, case: Case, exporter: str) -> None:
    """Write one model."""
    torch.manual_seed(7)
    path = FOLDER / exporter / f"{name}.onnx"
    path.parent.mkdir(exist_ok=True)
    module: Any = case.make().train(case.training)
    named = {"input_names": list(case.names)} if case.names else {}
    if exporter == "torch":
        shapes = {n: {k: torch.export.Dim(d) for k, d in case.dims.get(n, {}).items()} for n in case.names}
        more = {"dynamic_shapes": shapes} if case.dims else {}
        settings = {"dynamo": True, "external_data": False, "optimize": case.optimize, **more}
    else:
        module = torch.jit.script(module) if case.scripted else module
        mode = torch.onnx.TrainingMode.TRAINING if case.training else torch.onnx.TrainingMode.EVAL
        settings = {"dynamo": False, "do_constant_folding": case.folding, "training": mode, "dynamic_axes": case.dims}
    version = 18 if exporter == "torch" else 17
    torch.onnx.export(module, case.args, str(path), opset_version=version, verbose=False, **named, **settings)
    without_notes(path)
    size = path.stat().st_size
    print(path.relative_to(FOLDER), size, "" if size <= LIMIT else "TOO LARGE")


def main(names: list[str]) -> None:
    """Export the models of these names, or all."""
    warnings.simplefilter("ignore")
    if not names or "functions" in names:
        path = FOLDER / "onnxscript" / "functions.onnx"
        path.parent.mkdir(exist_ok=True)
        onnx.save(functions.to_model_proto(), path)
        without_notes(path)
    for name, case in CASES.items():
        if not names or name in names:
            for exporter in case.exporters:
                try:
                    export(name, case, exporter)
                except Exception as error:
                    print(f"{exporter}/{name} failed: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
