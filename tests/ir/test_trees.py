"""Ensembles of trees are what ONNX Runtime computes: random trees of all modes, aggregates and transforms, for tables
of no row, of one and of some, some of whose numbers are those that branches ask for, or NaN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pytest
from onnx import numpy_helper

from graphopt.ir import onnx_io
from graphopt.ir.infer import infer
from graphopt.ir.trees import AGGREGATES, MODES, TRANSFORMS, TREES
from tests.ir.test_features import check, model

Array: TypeAlias = np.ndarray[Any, Any]
FEATURES = 4
LEQ = MODES[:1]


class Trees:
    """Random trees as attributes of the older ops, and what their leaves are."""

    def __init__(
        self,
        seed: int,
        trees: int,
        depth: int,
        modes: Sequence[str] = LEQ,
        missing: bool = False,
        levels: int = 9,
        shared: float = 0,
    ) -> None:
        self.rng, self.shared = np.random.default_rng(seed), shared
        self.levels, self.modes, self.missing = np.linspace(-1, 1, levels).astype(np.float32), modes, missing
        self.rows: list[tuple[int, int, int, float, str, int, int, int]] = []
        self.leaves: list[tuple[int, int]] = []
        for tree in range(trees):
            self.count = 0
            self._grow(tree, depth)
        self.rows.sort()

    def _grow(self, tree: int, depth: int) -> int:
        node, self.count = self.count, self.count + 1
        if depth == 0 or (depth < 3 and self.rng.random() < 0.3):
            self.rows.append((tree, node, 0, 0.0, "LEAF", 0, 0, 0))
            self.leaves.append((tree, node))
            return node
        if self.rng.random() < self.shared:
            no = self._grow(tree, depth - 1)
            yes = next((row[5] for row in self.rows if row[:2] == (tree, no) and row[5]), no)
        else:
            yes, no = self._grow(tree, depth - 1), self._grow(tree, depth - 1)
        mode, level = str(self.rng.choice(self.modes)), float(self.rng.choice(self.levels))
        missing = int(self.missing and self.rng.random() < 0.5)
        self.rows.append((tree, node, int(self.rng.integers(FEATURES)), level, mode, yes, no, missing))
        return node

    def attrs(self) -> dict[str, Any]:
        names = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
        names = (*names, "missing_value_tracks_true")
        return {f"nodes_{name}": list(column) for name, column in zip(names, zip(*self.rows, strict=True), strict=True)}

    def weights(self, kind: str, targets: Sequence[int], share: float = 1.0, positive: bool = False) -> dict[str, Any]:
        """A weight of each leaf for each target, or for some share of them but the first."""
        found = [
            (tree, node, target, float(abs(w) if positive else w))
            for tree, node in self.leaves
            for target, w in zip(targets, self.rng.standard_normal(len(targets)), strict=True)
            if target == targets[0] or self.rng.random() < share
        ]
        names = ("treeids", "nodeids", "ids", "weights")
        return {f"{kind}_{name}": list(column) for name, column in zip(names, zip(*found, strict=True), strict=True)}

    def table(self, rows: int, nan: bool = False, dtype: str = "float32") -> Array:
        found = np.where(
            self.rng.random((rows, FEATURES)) < 0.5,
            self.rng.choice(self.levels, (rows, FEATURES)),
            self.rng.standard_normal((rows, FEATURES)),
        )
        return np.where(nan & (self.rng.random((rows, FEATURES)) < 0.2), np.nan, found).astype(dtype)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("mode", [*MODES, "all"])
def test_modes(mode: str, missing: bool) -> None:
    trees = Trees(len(mode), 5, 4, MODES if mode == "all" else [mode], missing)
    attrs = {**trees.attrs(), **trees.weights("target", [0]), "n_targets": 1}
    check("TreeEnsembleRegressor", {"x": trees.table(40, nan=True)}, 1, attrs, mode == "all", rows=(0, 1, 40))


@pytest.mark.parametrize("mode", ["BRANCH_EQ", "BRANCH_LEQ"])
def test_nodes_that_several_branches_lead_to(mode: str) -> None:
    trees = Trees(1, 5, 5, [mode], shared=0.5)
    attrs = {**trees.attrs(), **trees.weights("target", [0]), "n_targets": 1}
    children = [*zip(attrs["nodes_treeids"], attrs["nodes_truenodeids"], strict=True)]
    assert len(set(children)) < len(children)
    check("TreeEnsembleRegressor", {"x": trees.table(40)}, 1, attrs, rows=(0, 1, 40))


@pytest.mark.parametrize("count", [1, 3, 4, 9, 17])
def test_as_many_trees_as_there_are(count: int) -> None:
    trees = Trees(count, count, 6)
    attrs = {**trees.attrs(), **trees.weights("target", [0]), "n_targets": 1}
    check("TreeEnsembleRegressor", {"x": trees.table(29)}, 1, attrs, rows=(0, 1, 8, 29))


@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize("targets", [1, 3])
def test_aggregates(aggregate: str, targets: int) -> None:
    trees = Trees(targets, 3, 3)
    attrs = {**trees.attrs(), "n_targets": targets, "aggregate_function": aggregate}
    for share in (1.0, 0.5):
        weights = trees.weights("target", range(targets), share)
        base = {"base_values": trees.rng.standard_normal(targets).tolist()} if share == 1 else {}
        check("TreeEnsembleRegressor", {"x": trees.table(9)}, 1, {**attrs, **weights, **base}, is_compiled=share < 1)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("targets", [1, 2])
def test_transformed_regressions(transform: str, targets: int) -> None:
    trees = Trees(7, 3, 2)
    weights = trees.weights("target", range(targets), positive=True)
    weights["target_weights"] = [w / 20 for w in weights["target_weights"]]
    attrs = {**trees.attrs(), **weights, "n_targets": targets, "post_transform": transform}
    check("TreeEnsembleRegressor", {"x": trees.table(9)}, 1, attrs, is_compiled=False)


def test_doubles() -> None:
    trees = Trees(3, 5, 4, MODES)
    attrs = {**trees.attrs(), "n_targets": 1}
    exact = {"nodes_values": np.float64, "target_weights": np.float64}
    attrs |= trees.weights("target", [0])
    for name, dtype in exact.items():
        attrs[f"{name}_as_tensor"] = numpy_helper.from_array(np.array(attrs.pop(name), dtype))
    check("TreeEnsembleRegressor", {"x": trees.table(40, dtype="float64")}, 1, attrs, rows=(0, 1, 40))


@pytest.mark.parametrize("base", [0, 1, 2])
@pytest.mark.parametrize("speaks", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("positive", [False, True])
def test_two_classes(positive: bool, speaks: Sequence[int], base: int) -> None:
    """Which of two scores there are, and by what they are told apart, are ONNX Runtime's own rules."""
    trees = Trees(11, 3, 3)
    attrs = {**trees.attrs(), **trees.weights("class", speaks, positive=positive)}
    attrs |= {"base_values": [0.1, -0.3][:base]} if base else {}
    for transform in ("NONE", "LOGISTIC", "SOFTMAX"):
        for labels in ({"classlabels_int64s": [6, 4]}, {"classlabels_strings": ["no", "yes"]}):
            given = {**attrs, **labels, "post_transform": transform}
            is_compiled = transform == "LOGISTIC" and not base
            check("TreeEnsembleClassifier", {"x": trees.table(20)}, 2, given, is_compiled, rows=(0, 1, 20))


def test_one_class() -> None:
    trees = Trees(12, 3, 3)
    attrs = {**trees.attrs(), **trees.weights("class", [0]), "classlabels_int64s": [1]}
    check("TreeEnsembleClassifier", {"x": trees.table(9)}, 2, attrs, is_compiled=False)


@pytest.mark.parametrize("transform", TRANSFORMS[:4])
@pytest.mark.parametrize("share", [1.0, 0.3])
def test_several_classes(share: float, transform: str) -> None:
    trees = Trees(13, 3, 3)
    attrs = {**trees.attrs(), **trees.weights("class", range(4), share), "post_transform": transform}
    for labels in ({"classlabels_int64s": [6, 4, 5, 1]}, {"classlabels_strings": ["a", "b", "c", "d"]}):
        check("TreeEnsembleClassifier", {"x": trees.table(20)}, 2, {**attrs, **labels}, transform == "SOFTMAX")
        based = {**attrs, **labels, "base_values": [0.1, -0.2, 0.3, 0.0]}
        check("TreeEnsembleClassifier", {"x": trees.table(20)}, 2, based, is_compiled=False)


@pytest.mark.parametrize("dtype", ["int64", "int32", "float64"])
def test_other_numbers(dtype: str) -> None:
    trees = Trees(14, 4, 3)
    attrs = {**trees.attrs(), **trees.weights("class", range(3)), "classlabels_int64s": [6, 4, 5]}
    x = (3 * trees.table(20)).astype(dtype)
    check("TreeEnsembleClassifier", {"x": x}, 2, attrs, is_compiled=dtype == "int64")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("aggregate", range(len(AGGREGATES)))
def test_ensembles(aggregate: int, dtype: str) -> None:
    trees = Trees(15 + aggregate, 5, 4, MODES, missing=True)
    check(
        "TreeEnsemble",
        {"x": trees.table(30, nan=True, dtype=dtype)},
        1,
        _ensemble(trees, aggregate, dtype),
        domain_opset=5,
    )


def _ensemble(trees: Trees, aggregate: int, dtype: str) -> dict[str, Any]:
    """The same trees as attributes of the newer op."""
    inner = [row for row in trees.rows if row[4] != "LEAF"]
    place = {(row[0], row[1]): k for k, row in enumerate(inner)}
    leaf = {key: k for k, key in enumerate(trees.leaves)}

    def where(tree: int, node: int) -> tuple[int, int]:
        key = tree, node
        return (leaf[key], 1) if key in leaf else (place[key], 0)

    yes, no = ([where(row[0], row[side]) for row in inner] for side in (5, 6))
    roots = [place[key] for key in place if key[1] == 0]
    return {
        "tree_roots": roots, "aggregate_function": aggregate, "post_transform": 0, "n_targets": 2,
        "nodes_featureids": [row[2] for row in inner],
        "nodes_splits": numpy_helper.from_array(np.array([row[3] for row in inner], dtype)),
        "nodes_modes": numpy_helper.from_array(np.array([MODES.index(row[4]) for row in inner], np.uint8)),
        "nodes_truenodeids": [p for p, _ in yes], "nodes_trueleafs": [k for _, k in yes],
        "nodes_falsenodeids": [p for p, _ in no], "nodes_falseleafs": [k for _, k in no],
        "nodes_missing_value_tracks_true": [row[7] for row in inner],
        "leaf_targetids": [k % 2 for k in range(len(leaf))],
        "leaf_weights": numpy_helper.from_array(trees.rng.standard_normal(len(leaf)).astype(dtype)),
    }  # fmt: skip


@pytest.mark.parametrize("child", [99, 0])
def test_what_is_no_tree_is_left_as_it_is(child: int) -> None:
    trees = Trees(1, 1, 2)
    attrs = {**trees.attrs(), **trees.weights("target", [0]), "n_targets": 1}
    attrs["nodes_falsenodeids"] = [child if row else 0 for row in attrs["nodes_falsenodeids"]]
    graph = onnx_io.load(model("TreeEnsembleRegressor", {"x": trees.table(3)}, 1, attrs))
    value = graph.outputs[0]
    assert value is not None
    assert infer(graph)[value].rank is None


def test_every_op_is_tried() -> None:
    assert {f"ai.onnx.ml::TreeEnsemble{kind}" for kind in ("", "Classifier", "Regressor")} == TREES.keys()
