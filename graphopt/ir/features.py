"""Feature ops (ai.onnx.ml) in ONNX's ops, as ONNX Runtime has them: scalers, encoders, linear models, support vectors.

Of labels that are strings only the index is computed; a Gather takes the strings. Digits are ONNX Runtime's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import isnan
from typing import Any

import numpy as np

from graphopt.ir.body import Body, Definition
from graphopt.ir.constants import Array, Constant
from graphopt.ir.graph import Value

SQRT2, PROBIT = 1.41421356, 0.147
"""By which the inverse of the normal distribution is approximated (Winitzki 2008)."""
NEGLIGIBLE = 1e-7
"""SOFTMAX_ZERO takes what is no larger for 0, and probabilities of pairs keep so far from 0 and 1."""


def numbers(body: Body, name: str, dtype: Any = np.float32) -> Array:
    """An attribute that lists numbers, as an array; empty where there is none."""
    value = body.attr(name)
    if isinstance(value, Constant):
        if value.dtype == "string":
            raise ValueError("strings")
        return value.array.reshape(-1)
    return np.array(value if isinstance(value, tuple) else (), dtype)


def rows(body: Body, x: Value) -> Value:
    """A table of features as float32; one row where there is one axis."""
    if body.rank(x) not in (1, 2):
        raise ValueError("no table")
    table = x if body.dtype(x) == "float32" else body.Cast(x, to=1)
    return table if body.rank(x) == 2 else body.Unsqueeze(table, [0])


# -- scores and labels


def transformed(body: Body, scores: Value, count: int, kind: str = "") -> Value:
    """Scores [N, count] after a transform, by default ``post_transform``; of a score that stands alone there is but
    PROBIT."""
    kind = kind or str(body.attr("post_transform"))
    if kind == "PROBIT":
        return _probit(body, scores)
    if count == 1 or kind == "NONE":
        return scores
    if kind == "LOGISTIC":
        return body.Sigmoid(scores)
    if kind == "SOFTMAX":
        return body.Softmax(scores, axis=-1)
    if kind != "SOFTMAX_ZERO":
        raise ValueError("no transform")
    largest = body.ReduceMax(scores, [-1], keepdims=1)
    shares = body.Where(
        body.Greater(body.Abs(scores), NEGLIGIBLE),
        body.Exp(body.Sub(scores, largest)),
        body.Mul(scores, body.Exp(body.Neg(largest))),
    )
    return body.Div(shares, body.ReduceSum(shares, [-1], keepdims=1))


def _probit(body: Body, p: Value) -> Value:
    x = body.Sub(body.Mul(2.0, p), 1.0)
    log = body.Log(body.Mul(body.Sub(1.0, x), body.Add(1.0, x)))
    v = body.Add(2 / (3.14159 * PROBIT), body.Mul(0.5, log))
    root = body.Sqrt(body.Sub(body.Mul(v, v), body.Div(log, PROBIT)))
    size = body.Mul(SQRT2, body.Sqrt(body.Sub(root, v)))
    return body.Where(body.Less(x, 0.0), body.Neg(size), size)


def two_scores(body: Body, score: Value, is_share: bool) -> Value:
    """The scores of two classes, from that of the second [N, 1]: what is left of 1 for the first, or the opposite."""
    kind = body.attr("post_transform")
    if kind == "PROBIT":
        raise ValueError("half of the scores")
    if kind == "LOGISTIC":
        return body.Sigmoid(body.Concat(body.Neg(score), score, axis=1))
    return body.Concat(body.Sub(1.0, score) if is_share else body.Neg(score), score, axis=1)


def labels_of(body: Body, *names: str) -> Array:
    """The labels of classes: int64, or strings."""
    for name in names:
        if value := body.attr(name):
            return np.array(value, object if isinstance(value[0], str) else np.int64)
    raise ValueError("no labels")


def chosen(body: Body, labels: Array, scores: Value) -> Value:
    """The label of the largest score in each row, the first of equal ones."""
    return body.Gather(labels, body.ArgMax(scores, axis=1, keepdims=0), axis=0)


def either(body: Body, labels: Array, condition: Value) -> Value:
    """The second of two labels where a condition holds of a row [N, 1], and the first elsewhere."""
    return body.Gather(labels, body.Cast(body.Squeeze(condition, [1]), to=7), axis=0)


# -- tables


def _scaler(body: Body, x: Value) -> Value:
    if body.rank(x) < 1:
        raise ValueError("no features")
    y = body.Cast(x, to=1)
    offset, scale = numbers(body, "offset"), numbers(body, "scale")
    y = body.Sub(y, offset) if offset.size else y
    return body.Mul(y, scale) if scale.size else y


def _normalizer(body: Body, x: Value) -> Value:
    """Rows divided by their largest element, the sum of magnitudes, or the root of squares; those of 0 as they are."""
    if body.rank(x) not in (1, 2):
        raise ValueError("no table")
    y, kind = body.Cast(x, to=1), body.attr("norm")
    reduce = {"MAX": body.ReduceMax, "L1": body.ReduceL1, "L2": body.ReduceL2}.get(str(kind))
    if reduce is None:
        raise ValueError("no norm")
    size = reduce(y, [-1], keepdims=1)
    return body.Div(y, body.Where(body.Equal(size, 0.0), 1.0, size))


def _binarizer(body: Body, x: Value) -> Value:
    """1 where an element is larger than a threshold, which is no integer where elements are."""
    limit = np.float64(body.attr("threshold"))
    if body.dtype(x).startswith("float"):
        return body.CastLike(body.Greater(x, body.CastLike(limit, x)), x)
    return body.CastLike(body.Greater(body.Cast(x, to=11), limit), x)


def _imputer(body: Body, x: Value) -> Value:
    if body.dtype(x) == "float32":
        values, missing = numbers(body, "imputed_value_floats"), np.float32(body.attr("replaced_value_float"))
    elif body.dtype(x) == "int64":
        values = numbers(body, "imputed_value_int64s", np.int64)
        missing = np.int64(body.attr("replaced_value_int64"))  # type: ignore[assignment]
    else:
        raise ValueError("neither float32 nor int64")
    shape = body.facts[x].shape or ()
    if not values.size or not shape or (values.size > 1 and values.size != shape[min(1, len(shape) - 1)]):
        raise ValueError("values of which not each is for a feature")
    is_missing = body.IsNaN(x) if isnan(missing) else body.Equal(x, missing)
    return body.Where(is_missing, values if len(shape) < 3 else values[:1], x)


def _joined(body: Body, *columns: Value) -> Value:
    tables = [rows(body, x) for x in columns]
    for x, size in zip(columns, body.attr("inputdimensions") or (), strict=False):
        if (body.facts[x].shape or (None,))[-1] != size:
            raise ValueError("features that are cut off or filled up")
    return body.Concat(*tables, axis=1)


def _columns(body: Body, x: Value, places: Value) -> Value:
    table = x if body.rank(x) > 1 else body.Unsqueeze(x, [0])
    return body.Gather(table, body.Reshape(places, [-1]), axis=-1)


# -- codes


def _found(body: Body, x: Value, keys: Array) -> Value:
    """For each element which key it equals, counted from 1 on; 0 where there is none."""
    apart = body.Unsqueeze(x, [-1])
    same = body.Equal(apart, keys)
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        same = body.Or(same, body.And(body.IsNaN(apart), np.isnan(keys)))
    places = body.Where(same, np.arange(1, len(keys) + 1, dtype=np.int32), np.int32(0))
    return body.ReduceMax(places, [-1], keepdims=0)


def _encoded(body: Body, x: Value) -> Value:
    keys, values = _listed(body, "keys"), _listed(body, "values")
    kinds = {"i": "default_int64", "f": "default_float", "O": "default_string"}
    default = body.attr("default_tensor")
    if isinstance(default, Constant):
        other = default.array.reshape(-1)[:1]
    else:
        other = np.array([body.attr(kinds[values.dtype.kind])], values.dtype)
    if keys.dtype == object or len(keys) != len(values) or body.dtype(x) != keys.dtype.name:
        raise ValueError("keys that are no numbers")
    first: dict[object, int] = {}
    for place, key in enumerate(keys.tolist()):
        first.setdefault("NaN" if key != key else key, place)
    kept = list(first.values())
    return body.Gather(np.concatenate([other, values[kept]]), _found(body, x, keys[kept]), axis=0)


def _listed(body: Body, name: str) -> Array:
    """Keys or values, however they are given."""
    for suffix, dtype in (("int64s", np.int64), ("floats", np.float32), ("strings", object), ("tensor", None)):
        value = body.attr(f"{name}_{suffix}")
        if isinstance(value, Constant):
            return value.array.reshape(-1)
        if value:
            return np.array(value, dtype)
    raise ValueError("no keys or values")


def _one_hot(body: Body, x: Value) -> Value:
    """A row of 0 with a 1 for the category of an element; a call that refuses others is left as it is."""
    categories = body.attr("cats_int64s") or ()
    if not body.attr("zeros") or not categories or len(set(categories)) < len(categories):
        raise ValueError("categories that are no numbers of their own")
    if body.dtype(x) not in ("float32", "float64", "int64"):
        raise ValueError("no numbers")
    whole = body.Cast(x, to=7)
    return body.Cast(body.Equal(body.Unsqueeze(whole, [-1]), np.array(categories, np.int64)), to=1)


# -- linear models


def _regressed(body: Body, x: Value) -> Value:
    targets = body.attr("targets")
    weights, bias = numbers(body, "coefficients").reshape(targets, -1), numbers(body, "intercepts")
    scores = body.Gemm(rows(body, x), weights.T.copy(), bias if bias.size == targets else None)
    return transformed(body, scores, targets)


def _classified(body: Body, x: Value) -> Sequence[Value]:
    labels, bias = labels_of(body, "classlabels_strings", "classlabels_ints"), numbers(body, "intercepts")
    if not bias.size:
        raise ValueError("no intercepts")
    scores = body.Gemm(rows(body, x), numbers(body, "coefficients").reshape(bias.size, -1).T.copy(), bias)
    if bias.size > 1:
        return chosen(body, labels, scores), transformed(body, scores, bias.size)
    if labels.size != 2:
        raise ValueError("one score for other than two classes")
    return either(body, labels, body.Greater(scores, 0.0)), two_scores(body, scores, is_share=True)


# -- support vectors


def _products(body: Body, x: Value, vectors: Array, kind: str, offset: float) -> Value:
    """The kernel of each row with each vector; ``offset`` is added to linear ones."""
    gamma, constant, degree = (float(n) for n in body.attr("kernel_params") or (0.0, 0.0, 0.0))
    if kind == "RBF":
        # vectors side by side: there are more of them than features
        apart = body.Sub(body.Unsqueeze(x, [2]), vectors.T.copy())
        return body.Exp(body.Mul(-gamma, body.ReduceSum(body.Mul(apart, apart), [1], keepdims=0)))
    shift = offset if kind == "LINEAR" else constant
    products = body.MatMul(x, (vectors if kind == "LINEAR" else vectors * np.float32(gamma)).T.copy())
    products = body.Add(products, shift) if shift else products
    if kind == "POLY":
        return body.Pow(products, degree)
    return body.Tanh(products) if kind == "SIGMOID" else products


def _supported(body: Body, x: Value) -> Value:
    count, coefficients = body.attr("n_supports"), numbers(body, "coefficients")
    table, rho = rows(body, x), float(numbers(body, "rho")[0])
    if count:
        vectors = numbers(body, "support_vectors").reshape(count, -1)
        kernels = _products(body, table, vectors, str(body.attr("kernel_type")), 0.0)
        y = body.Add(body.MatMul(kernels, coefficients.reshape(-1, 1)), rho)
    else:
        y = _products(body, table, coefficients.reshape(1, -1), "LINEAR", rho)
    return body.Where(body.Greater(y, 0.0), 1.0, -1.0) if body.attr("one_class") else y


def _separated(body: Body, x: Value) -> Sequence[Value]:
    labels = labels_of(body, "classlabels_strings", "classlabels_ints")
    counts, rho = [int(n) for n in body.attr("vectors_per_class") or ()], numbers(body, "rho")
    coefficients, table, many = numbers(body, "coefficients"), rows(body, x), len(labels)
    sure, unsure = numbers(body, "prob_a"), numbers(body, "prob_b")
    if not sum(counts):
        scores = _products(body, table, coefficients.reshape(many, -1), "LINEAR", float(rho[0]))
        label = chosen(body, labels, scores)
        if many == 2 and not sure.size:
            is_share = bool((coefficients >= 0).all())
            largest = body.ReduceMax(scores, [-1], keepdims=1)
            is_second = body.GreaterOrEqual(largest, 0.5) if is_share else body.Greater(largest, 0.0)
            second = body.Cast(body.Squeeze(is_second, [1]), to=7)
            index = body.Max(body.ArgMax(scores, axis=1, keepdims=0), second)
            label = body.Gather(labels, index, axis=0)
        return label, transformed(body, scores, many)
    pairs = list(combinations(range(many), 2))
    if len(counts) != many or many < 2:
        raise ValueError("vectors of no class")
    owner, weights = np.repeat(np.arange(many), counts), coefficients.reshape(many - 1, -1)
    parts = np.zeros((len(owner), len(pairs)), np.float32)
    votes = np.zeros((2, len(pairs), many), np.float32)
    for p, (i, j) in enumerate(pairs):
        parts[:, p] = np.where(owner == i, weights[j - 1], np.where(owner == j, weights[i], 0))
        votes[:, p, [i, j]] = [[1, 0], [0, 1]]
    vectors = numbers(body, "support_vectors").reshape(len(owner), -1)
    kernels = _products(body, table, vectors, str(body.attr("kernel_type")), 0.0)
    scores = body.Add(body.MatMul(kernels, parts), rho[: len(pairs)])
    wins = body.Cast(body.Greater(scores, 0.0), to=1)
    label = chosen(body, labels, body.Add(body.MatMul(wins, votes[0] - votes[1]), votes[1].sum(0)))
    if not sure.size:
        if many > 2:
            return label, transformed(body, scores, len(pairs))
        return label, two_scores(body, scores, body.attr("post_transform") != "NONE")
    share = body.Sigmoid(body.Neg(body.Add(body.Mul(scores, sure[: len(pairs)]), unsure[: len(pairs)])))
    share = body.Min(body.Max(share, NEGLIGIBLE), 1 - NEGLIGIBLE)
    return label, transformed(body, body("graphopt::CoupledShares", share, classes=many)[0], many)


_DEFINITIONS: Mapping[str, Definition] = {
    "ArrayFeatureExtractor": _columns,
    "Binarizer": _binarizer,
    "FeatureVectorizer": _joined,
    "Imputer": _imputer,
    "LabelEncoder": _encoded,
    "LinearClassifier": _classified,
    "LinearRegressor": _regressed,
    "Normalizer": _normalizer,
    "OneHotEncoder": _one_hot,
    "Scaler": _scaler,
    "SVMClassifier": _separated,
    "SVMRegressor": _supported,
}
FEATURES = {f"ai.onnx.ml::{op}": define for op, define in _DEFINITIONS.items()}
"""By op name."""
