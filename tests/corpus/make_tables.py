"""Writes the corpus models of tables of features as skl2onnx writes them: few trees, random numbers.

    python tests/corpus/make_tables.py [NAME ...]

What is in them is what converters make of pipelines: columns that are taken, filled, scaled and put side by side, a
classifier or a regression, labels cast, and probabilities as maps from labels.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FOLDER = Path(__file__).parent / "tables"
ML = "ai.onnx.ml"
FEATURES = 6


class Pipeline:
    """A graph as it grows, and the random numbers that it holds."""

    def __init__(self, name: str) -> None:
        self.name, self.rng = name, np.random.default_rng(zlib.crc32(name.encode()))
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def add(self, op: str, inputs: Sequence[str], *outputs: str, domain: str = "", **attrs: Any) -> str:
        """A node; gives the name of its first output."""
        self.nodes.append(helper.make_node(op, inputs, outputs, name=f"{op}_{outputs[0]}", domain=domain, **attrs))
        return outputs[0]

    def constant(self, name: str, array: Any) -> str:
        """An initializer; gives its name."""
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def numbers(self, *shape: int, scale: float = 1.0) -> list[float]:
        """Normally distributed numbers."""
        return [float(n) for n in np.float32(self.rng.standard_normal(shape) * scale).reshape(-1)]

    def trees(self, kind: str, count: int, depth: int, targets: Sequence[int], sums_to: float = 0.0) -> dict[str, Any]:
        """Attributes of full trees, whose leaves weigh shares of ``sums_to``, or any numbers where that is 0."""
        found: dict[str, list[Any]] = {}
        nodes = "nodeids treeids featureids values modes truenodeids falsenodeids hitrates missing_value_tracks_true"

        def note(kind: str, names: str, *values: Any) -> None:
            for name, value in zip(names.split(), values, strict=True):
                found.setdefault(f"{kind}_{name}", []).append(value)

        for tree in range(count):
            inner = 2**depth - 1
            for node in range(2 * inner + 1):
                is_leaf = node >= inner
                feature, split = int(self.rng.integers(FEATURES)), 0.0 if is_leaf else self.numbers(1)[0]
                below = (0, 0) if is_leaf else (2 * node + 1, 2 * node + 2)
                mode = "LEAF" if is_leaf else "BRANCH_LEQ"
                note("nodes", nodes, node, tree, 0 if is_leaf else feature, split, mode, *below, 1.0, 0)
                shares = self.rng.dirichlet(np.ones(len(targets))) * sums_to / count
                for target, share in zip(targets, shares, strict=True):
                    weight = float(np.float32(share)) if sums_to else self.numbers(1, scale=0.3)[0]
                    if is_leaf:
                        note(kind, "nodeids treeids ids weights", node, tree, target, weight)
        return found

    def labelled(self, label: str, scores: str, labels: Sequence[Any]) -> None:
        """The last nodes of a classifier: the label as int64 or text, and a map for each row."""
        kind = "strings" if isinstance(labels[0], str) else "int64s"
        self.add("Cast", [label], "output_label", to=TensorProto.STRING if kind == "strings" else TensorProto.INT64)
        self.add("ZipMap", [scores], "output_probability", domain=ML, **{f"classlabels_{kind}": list(labels)})

    def model(self, *outputs: str, of_tables: int = 1, label_shape: Sequence[int] | None = None) -> onnx.ModelProto:
        """The model, whose number of rows is open, whatever is said of the label."""
        given = [helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, FEATURES])]
        results = [
            helper.make_empty_tensor_value_info(name)
            if name == "output_probability"
            else helper.make_tensor_value_info(
                name, _TYPES.get(name, TensorProto.FLOAT), label_shape if name in _TYPES else None
            )
            for name in outputs
        ]
        graph = helper.make_graph(self.nodes, self.name, given, results, self.constants)
        imports = [helper.make_opsetid("", 17), helper.make_opsetid(ML, of_tables)]
        return helper.make_model(graph, opset_imports=imports, ir_version=8, producer_name="skl2onnx")


_TYPES = {"output_label": TensorProto.INT64, "texts": TensorProto.STRING}


def _columns(p: Pipeline) -> onnx.ModelProto:
    """Columns taken apart: some filled and scaled, one as categories; a logistic regression of all."""
    for name, places in (("left", [0, 1, 2]), ("right", [3, 4]), ("kind", [5])):
        p.add("ArrayFeatureExtractor", ["X", p.constant(f"{name}_places", np.array(places))], name, domain=ML)
    p.add(
        "Imputer", ["left"], "filled", domain=ML, imputed_value_floats=p.numbers(3), replaced_value_float=float("nan")
    )
    p.add("Scaler", ["filled"], "scaled", domain=ML, offset=p.numbers(3), scale=[abs(n) + 0.1 for n in p.numbers(3)])
    p.add("Normalizer", ["right"], "shares", domain=ML, norm="L2")
    p.add("Cast", ["kind"], "whole", to=TensorProto.INT64)
    p.add("OneHotEncoder", ["whole"], "hot", domain=ML, cats_int64s=[-1, 0, 1], zeros=1)
    p.add("Reshape", ["hot", p.constant("flat", np.array([-1, 3]))], "categories")
    p.add("Concat", ["scaled", "shares", "categories"], "features", axis=-1)
    attrs = {"coefficients": p.numbers(2, 8), "intercepts": p.numbers(2), "classlabels_ints": [0, 1]}
    p.add(
        "LinearClassifier",
        ["features"],
        "label",
        "scores",
        domain=ML,
        multi_class=1,
        post_transform="LOGISTIC",
        **attrs,
    )
    p.add("Normalizer", ["scores"], "probabilities", domain=ML, norm="L1")
    p.labelled("label", "probabilities", [0, 1])
    return p.model("output_label", "output_probability")


def _forest(p: Pipeline) -> onnx.ModelProto:
    """A random forest of three classes."""
    attrs = {**p.trees("class", 9, 3, range(3), sums_to=1.0), "classlabels_int64s": [2, 4, 7], "post_transform": "NONE"}
    p.add("TreeEnsembleClassifier", ["X"], "label", "probabilities", domain=ML, **attrs)
    p.labelled("label", "probabilities", [2, 4, 7])
    return p.model("output_label", "output_probability")


def _boosted(p: Pipeline) -> onnx.ModelProto:
    """Boosted trees of two classes that are texts, of which one has all weights; a converter says that there is one
    label, however many rows there are."""
    attrs = {**p.trees("class", 12, 3, [0]), "classlabels_strings": ["no", "yes"], "post_transform": "LOGISTIC"}
    p.add("TreeEnsembleClassifier", ["X"], "label", "probabilities", domain=ML, base_values=[0.2], **attrs)
    p.add("Identity", ["label"], "texts")
    p.add("ZipMap", ["probabilities"], "output_probability", domain=ML, classlabels_strings=["no", "yes"])
    return p.model("texts", "output_probability", of_tables=3, label_shape=[1])


def _isolated(p: Pipeline) -> onnx.ModelProto:
    """How far rows are from others: the mean depth of leaves of trees on columns of their own."""
    for k in range(3):
        p.add("ArrayFeatureExtractor", ["X", p.constant(f"places{k}", p.rng.permutation(FEATURES))], f"x{k}", domain=ML)
        attrs = {**p.trees("target", 1, 3, [0]), "n_targets": 1}
        p.add("TreeEnsembleRegressor", [f"x{k}"], f"depth{k}", domain=ML, **attrs)
    p.add("Sum", [f"depth{k}" for k in range(3)], "depths")
    p.add("Div", ["depths", p.constant("scale", np.array([[-4.0]], np.float32))], "power")
    p.add("Pow", [p.constant("two", np.array([2.0], np.float32)), "power"], "scores")
    p.add("Less", ["scores", p.constant("limit", np.array([0.9], np.float32))], "is_far")
    p.add("Cast", ["is_far"], "far", to=TensorProto.INT64)
    p.add("Mul", ["far", p.constant("minus", np.array([-2]))], "signed")
    p.add("Add", ["signed", p.constant("plus", np.array([1]))], "output_label")
    return p.model("output_label", "scores")


def _vectors(p: Pipeline) -> onnx.ModelProto:
    """Support vectors behind a scaler, with probabilities."""
    counts, pairs = [3, 4, 2], 3
    p.add("Scaler", ["X"], "scaled", domain=ML, offset=p.numbers(FEATURES), scale=[0.5] * FEATURES)
    kernel = {
        "kernel_type": "RBF",
        "kernel_params": [0.2, 0.0, 3.0],
        "support_vectors": p.numbers(sum(counts), FEATURES),
    }
    shares = {"prob_a": [-abs(n) - 1 for n in p.numbers(pairs)], "prob_b": p.numbers(pairs)}
    attrs = {"coefficients": p.numbers(2, sum(counts)), "rho": p.numbers(pairs), "vectors_per_class": counts}
    attrs |= {**kernel, **shares, "classlabels_ints": [0, 1, 2], "post_transform": "NONE"}
    p.add("SVMClassifier", ["scaled"], "label", "probabilities", domain=ML, **attrs)
    p.labelled("label", "probabilities", [0, 1, 2])
    return p.model("output_label", "output_probability")


MODELS: dict[str, Callable[[Pipeline], onnx.ModelProto]] = {
    "boosted": _boosted,
    "columns": _columns,
    "forest": _forest,
    "isolated": _isolated,
    "vectors": _vectors,
}


def made(name: str) -> onnx.ModelProto:
    """The model of that name."""
    return MODELS[name](Pipeline(name))


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or MODELS:
        onnx.save(made(name), FOLDER / f"{name}.onnx")


if __name__ == "__main__":
    main()
