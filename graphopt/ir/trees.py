"""Ensembles of trees (ai.onnx.ml) in other ops: the leaves that rows of features reach, and what these weigh.

All branches are made to ask ``x <= split``, with one node to go on to where it holds, one where not, and one for NaN:
``x < s`` asks for the number below s, and ``x == s`` is two branches.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from operator import add
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from graphopt.ir.body import Body, Definition
from graphopt.ir.constants import Array
from graphopt.ir.features import chosen, either, labels_of, numbers, rows, transformed, two_scores
from graphopt.ir.graph import Value

LEQ, LT, GTE, GT, EQ, NEQ = MODES = tuple(f"BRANCH_{mode}" for mode in ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ"))
"""What branches ask, in the order of their numbers in ``TreeEnsemble``."""
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""Names of what ``TreeEnsemble`` numbers."""

Key: TypeAlias = "tuple[object, ...]"
"""What a node is known by."""
Slots: TypeAlias = "list[tuple[list[int], int]]"
"""Lists, and places in them, where the number of a node goes."""


class Branch(NamedTuple):
    """A node that is no leaf: what it asks, and the nodes to go on to."""

    mode: str
    feature: int
    split: float
    yes: Key
    no: Key
    nan_is_yes: bool


class Forest:
    """Trees in tables, leaves first: from a leaf one goes on to itself. Branches may share what they go on to, as those
    on a category among several do in LightGBM's. ValueError where they are no trees, or a branch leads to itself."""

    def __init__(
        self, roots: Sequence[Key], branches: Mapping[Key, Branch], leaves: Sequence[Key], dtype: np.dtype[Any]
    ) -> None:
        self.leaves = {key: place for place, key in enumerate(leaves)}
        self.branches, self.dtype, self.numbers = branches, dtype, dict(self.leaves)
        self.features, self.splits = [0] * len(leaves), [dtype.type(0)] * len(leaves)
        self.children = [[place] * 3 for place in range(len(leaves))]
        self.roots = [0] * len(roots)
        for tree, root in enumerate(roots):
            self._grow(root, [(self.roots, tree)])
        if self._leads_to_itself():
            raise ValueError("a branch that leads to itself")

    def _grow(self, root: Key, slots: Slots) -> None:
        """Place the nodes of a tree, level by level."""
        waiting = deque([(root, slots)])
        while waiting:
            key, slots = waiting.popleft()
            is_new = key not in self.numbers
            number = self.numbers.setdefault(key, len(self.children))
            for table, place in slots:
                table[place] = number
            if is_new and key not in self.branches:
                raise ValueError("no tree")
            if is_new:
                waiting.extend(self._placed(self.branches[key]))

    def _leads_to_itself(self) -> bool:
        """Whether one comes back to a branch: then some are left once all are gone that no other leads to (Kahn)."""
        first = len(self.leaves)
        ways = Counter(child for below in self.children[first:] for child in below)
        free = [number for number in range(first, len(self.children)) if number not in ways]
        gone = 0
        while free:
            gone += 1
            for child in self.children[free.pop()]:
                ways[child] -= 1
                if not ways[child] and child >= first:
                    free.append(child)
        return gone < len(self.children) - first

    def _placed(self, branch: Branch) -> list[tuple[Key, Slots]]:
        """Place a branch; gives the nodes to go on to, with where their numbers go."""
        mode, split = branch.mode, self.dtype.type(branch.split)
        nan = 0 if branch.nan_is_yes or mode == NEQ else 1  # of its answers, yes and no, which NaN gets
        answers: tuple[Slots, Slots] = [], []
        if np.isnan(split):  # which nothing equals
            here = self._asked(branch.feature, split)
            answers[mode != NEQ].extend([(here, 0), (here, 1)])
        elif mode in (EQ, NEQ):
            here, below = self._asked(branch.feature, split), self._asked(branch.feature, self._below(split))
            here[0] = len(self.children) - 1  # which is below
            answers[mode == NEQ].extend([(below, 1)])
            answers[mode == EQ].extend([(here, 1), (below, 0), (below, 2)])
        else:
            here = self._asked(branch.feature, split if mode in (LEQ, GT) else self._below(split))
            turned = mode in (GT, GTE)
            answers[turned].append((here, 0))
            answers[not turned].append((here, 1))
        answers[nan].append((here, 2))
        children = zip((branch.yes, branch.no), answers, strict=True)
        return [(child, slots) for child, slots in children if slots]

    def _asked(self, feature: int, split: Any) -> list[int]:
        """The nodes to go on to, not known yet, of a new branch."""
        self.features.append(feature)
        self.splits.append(split)
        self.children.append([0, 0, 0])
        return self.children[-1]

    def _below(self, split: Any) -> Any:
        """The next number below; nothing is below minus infinity, and nothing is as small as NaN."""
        return np.nextafter(split, -np.inf, dtype=self.dtype) if split > -np.inf else self.dtype.type(np.nan)

    def reached(self, body: Body, table: Value) -> Value:
        """The leaf of each tree that each row of a table reaches, as [trees, rows]."""
        children = np.array(self.children, np.int32).reshape(-1, 3)[:, [1, 0, 2]]
        if (children[:, 2] == children[:, 0]).all():
            children = children[:, :2].copy()
        roots, features = (np.array(part, np.int32) for part in (self.roots, self.features))
        limits = np.array([len(self.leaves), self._depth(roots, children), max(self.features, default=0) + 1], np.int32)
        splits = np.array(self.splits, self.dtype)
        return body("graphopt::TreeLeaves", table, roots, features, splits, children, limits)[0]

    def _depth(self, roots: Array, children: Array) -> int:
        """How many branches there are on the longest way to a leaf."""
        depth, level = 0, roots[roots >= len(self.leaves)]
        while level.size:
            below = np.unique(children[level])
            depth, level = depth + 1, below[below >= len(self.leaves)]
        return depth


def _grown(body: Body, dtype: np.dtype[Any]) -> Forest:
    """The trees of an op whose leaves are nodes, too."""
    trees, ids = (numbers(body, f"nodes_{name}", np.int64).tolist() for name in ("treeids", "nodeids"))
    features, yes, no = (
        numbers(body, f"nodes_{name}", np.int64).tolist() for name in ("featureids", "truenodeids", "falsenodeids")
    )
    splits, modes = _given(body, "nodes_values").tolist(), body.attr("nodes_modes") or ()
    missing = body.attr("nodes_missing_value_tracks_true") or (0,) * len(ids)
    keys = list(zip(trees, ids, strict=True))
    branches = {
        key: Branch(mode, feature, split, (key[0], y), (key[0], n), bool(is_yes))
        for key, mode, feature, split, y, n, is_yes in zip(keys, modes, features, splits, yes, no, missing, strict=True)
        if mode != "LEAF"
    }
    if not {branch.mode for branch in branches.values()} <= set(MODES) or len(set(keys)) < len(keys):
        raise ValueError("no branch")
    inner = {child for branch in branches.values() for child in (branch.yes, branch.no)}
    roots = [key for key in keys if key not in inner]
    return Forest(roots, branches, [key for key in keys if key not in branches], dtype)


def _given(body: Body, name: str) -> Array:
    """Numbers from either of two attributes."""
    exact = numbers(body, f"{name}_as_tensor")
    return exact if exact.size else numbers(body, name)


def _weighed(body: Body, kind: str, count: int, forest: Forest, aggregate: str) -> tuple[Array, Array]:
    """What each leaf adds to each score, and whether it does."""
    lists = [numbers(body, f"{kind}_{name}", np.int64).tolist() for name in ("treeids", "nodeids", "ids")]
    values = _given(body, f"{kind}_weights").tolist()
    places = [(forest.leaves.get((tree, node)), target) for tree, node, target in zip(*lists, strict=True)]
    return _table(places, values, len(forest.leaves), count, aggregate, forest.dtype)


def _table(
    places: Sequence[tuple[int | None, int]],
    values: Sequence[float],
    leaves: int,
    count: int,
    aggregate: str,
    dtype: np.dtype[Any],
) -> tuple[Array, Array]:
    weights, has = np.zeros((leaves, count), dtype), np.zeros((leaves, count), bool)
    combine: Callable[[float, float], float] = {"MIN": min, "MAX": max}.get(aggregate, add)
    for (leaf, target), value in zip(places, values, strict=True):
        if leaf is None or not 0 <= target < count:
            raise ValueError("a weight of no leaf, or for no score")
        weights[leaf, target] = combine(weights[leaf, target], value) if has[leaf, target] else value
        has[leaf, target] = True
    if aggregate in ("MIN", "MAX"):
        weights[~has] = np.inf if aggregate == "MIN" else -np.inf
    return weights, has


def _scores(body: Body, leaves: Value, weights: Array, has: Array, aggregate: str, trees: int) -> Value:
    """The scores of rows, from the leaves that they reach: a score that no leaf speaks of is 0."""
    of_trees = body.Gather(weights, leaves, axis=0)
    if aggregate not in ("MIN", "MAX"):
        total = body.ReduceSum(of_trees, [0], keepdims=0)
        return body.Div(total, weights.dtype.type(trees)) if aggregate == "AVERAGE" else total
    reduce = body.ReduceMin if aggregate == "MIN" else body.ReduceMax
    most = reduce(of_trees, [0], keepdims=0)
    return most if has.all() else body.Where(body.IsInf(most), weights.dtype.type(0), most)


def _numbered(body: Body, x: Value) -> tuple[Value, np.dtype[Any]]:
    """A table of features, and in which dtype they are compared: float64 as such, all else as float32."""
    if body.dtype(x) == "float64" and body.rank(x) == 2:
        return x, np.dtype(np.float64)
    return rows(body, x), np.dtype(np.float32)


def _regressed(body: Body, x: Value) -> Value:
    table, dtype = _numbered(body, x)
    count, aggregate, base = body.attr("n_targets"), str(body.attr("aggregate_function")), _given(body, "base_values")
    forest = _grown(body, dtype)
    if aggregate not in AGGREGATES:
        raise ValueError("no aggregate")
    weights, has = _weighed(body, "target", count, forest, aggregate)
    scores = _scores(body, forest.reached(body, table), weights, has, aggregate, len(forest.roots))
    if base.size == count:
        scores = body.Add(scores, base.astype(dtype))
    return transformed(body, body.Cast(scores, to=1), count)


def _classified(body: Body, x: Value) -> Sequence[Value]:
    """Of two classes, ONNX Runtime has rules for which of their scores are there at all."""
    table, dtype = _numbered(body, x)
    labels, base = labels_of(body, "classlabels_strings", "classlabels_int64s"), _given(body, "base_values")
    forest = _grown(body, dtype)
    weights, has = _weighed(body, "class", len(labels), forest, "SUM")
    leaves = forest.reached(body, table)
    scores = _scores(body, leaves, weights, has, "SUM", len(forest.roots))
    if len(labels) > 2:
        return _of_several(body, forest, labels, base.astype(dtype), leaves, scores, has)
    return _of_two(body, labels, base.astype(dtype), scores, weights, has)


def _of_several(
    body: Body, forest: Forest, labels: Array, base: Array, leaves: Value, scores: Value, has: Array
) -> Sequence[Value]:
    """The label is one of those that a leaf speaks of."""
    if base.size > len(labels):
        raise ValueError("more base values than classes")
    if base.size:
        scores = body.Add(scores, np.pad(base, (0, len(labels) - base.size)))
    sure = np.arange(len(labels)) < base.size
    seen = scores
    if not (sure | has.all(0)).all():
        spoken = body.ReduceMax(body.Gather((has | sure).astype(np.int32), leaves, axis=0), [0], keepdims=0)
        seen = body.Where(body.Greater(spoken, np.int32(0)), scores, forest.dtype.type(-np.inf))
    return chosen(body, labels, seen), transformed(body, body.Cast(scores, to=1), len(labels))


def _of_two(body: Body, labels: Array, base: Array, scores: Value, weights: Array, has: Array) -> Sequence[Value]:
    """One or two classes: where only one of them has weights, its score stands for both."""
    speaks: Array = np.any(has, 0)
    if not (has.all(0) == speaks).all() or not speaks.any() or base.size > len(labels):
        raise ValueError("a score that some leaves do not speak of")
    count = len(labels)
    columns = [body.Slice(scores, [k], [k + 1], [1]) for k in range(count)]
    zero = weights.dtype.type(0)
    if count == 2 and base.size == 2:
        if speaks[1]:
            columns[1] = body.Add(columns[0], base[1])
            columns[0] = body.Neg(columns[1]) if speaks[0] else body.Mul(columns[0], zero)
        else:
            columns[0] = body.Add(columns[0], base[0])
    elif base.size and speaks[0]:
        columns[0] = body.Add(columns[0], base[0])
    is_single = count == 1 or (not speaks[1] and base.size < 2)
    deciding = columns[1] if count == 2 and speaks[1] else columns[0]
    is_share = bool((weights >= 0).all())
    is_binary = count == 2 and speaks.sum() == 1
    pair = labels if is_binary or labels.dtype == object else np.array([0, 1])
    if len(pair) < 2:
        raise ValueError("one label that is a string")
    limit = weights.dtype.type(0.5 if is_binary and is_share else 0)
    label = either(body, pair, body.Greater(deciding, limit))
    columns = [body.Cast(column, to=1) for column in columns]
    if count == 1:
        return label, transformed(body, columns[0], 1)
    if is_single:
        return label, two_scores(body, columns[0], is_share)
    return label, transformed(body, body.Concat(*columns, axis=1), 2)


def _ensemble(body: Body, x: Value) -> Value:
    """Trees whose leaves are numbered apart; the result has the dtype of the input."""
    dtype = np.dtype(body.dtype(x))
    if dtype.name not in ("float32", "float64") or body.rank(x) != 2:
        raise ValueError("no table of floats")
    whole = np.int64
    features, yes, no, to_leaf, to_other = (
        numbers(body, name, whole).tolist()
        for name in (
            "nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids", "nodes_trueleafs", "nodes_falseleafs",
        )
    )  # fmt: skip
    splits, modes = numbers(body, "nodes_splits").tolist(), numbers(body, "nodes_modes").tolist()
    missing = body.attr("nodes_missing_value_tracks_true") or (0,) * len(modes)
    targets, values = numbers(body, "leaf_targetids", whole).tolist(), numbers(body, "leaf_weights")
    if not set(modes) <= set(range(len(MODES))):
        raise ValueError("branches on whether a number is in a set")
    branches: dict[Key, Branch] = {
        ("node", k): Branch(MODES[mode], feature, split, _place(y, y_leaf), _place(n, n_leaf), bool(is_yes))
        for k, (mode, feature, split, y, y_leaf, n, n_leaf, is_yes) in enumerate(
            zip(modes, features, splits, yes, to_leaf, no, to_other, missing, strict=True)
        )
    }
    roots = [("node", k) for k in numbers(body, "tree_roots", whole).tolist()]
    forest = Forest(roots, branches, [("leaf", k) for k in range(len(targets))], dtype)
    aggregate, count = AGGREGATES[body.attr("aggregate_function")], body.attr("n_targets")
    places = list(enumerate(targets))
    weights, has = _table(places, values.tolist(), len(targets), count, aggregate, dtype)
    scores = _scores(body, forest.reached(body, x), weights, has, aggregate, len(roots))
    kind = TRANSFORMS[body.attr("post_transform") or 0]
    if kind != "NONE" and dtype != np.float32:
        raise ValueError("transforms of float64")
    return transformed(body, scores, count, kind)


def _place(number: int, is_leaf: int) -> Key:
    return ("leaf" if is_leaf else "node", number)


TREES: Mapping[str, Definition] = {
    "ai.onnx.ml::TreeEnsemble": _ensemble,
    "ai.onnx.ml::TreeEnsembleClassifier": _classified,
    "ai.onnx.ml::TreeEnsembleRegressor": _regressed,
}
"""By op name."""
