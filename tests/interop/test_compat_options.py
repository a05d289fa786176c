from pathlib import Path

import pytest

from graphopt.errors import UsageError
from graphopt.interop.compat_options import (
    OPTIMIZERS,
    STEPS,
    checked_inputs,
    names_of,
    opset_of,
    shape_of,
    shapes_of,
    skipped,
    step,
)
from graphopt.ir.ops import LATEST
from graphopt.ir.text import parse
from graphopt.rewrite.ruleset import standard

GRAPH = parse("x: float32[n, 3]\na = Relu(x)\ny = Neg(a)\nreturn y")


def test_shapes() -> None:
    assert shape_of("a:0:1,3") == ("a:0", (1, 3))
    assert shape_of("1, 3") == (None, (1, 3))
    assert shape_of("scalar:") == ("scalar", ())
    assert dict(shapes_of(["x:1,3"])) == dict(shapes_of({"x": (1, 3)})) == {"x": (1, 3)}
    with pytest.raises(UsageError, match="x:a: expected a shape"):
        shape_of("x:a")


def test_inputs_to_check() -> None:
    assert checked_inputs(GRAPH, ["1,3"]) == ({"x": (1, 3)}, {})
    assert checked_inputs(GRAPH, ["x:a.npy"]) == ({}, {"x": Path("a.npy")})


def test_values() -> None:
    assert list(names_of(GRAPH, ["a", "a:fp32", "unknown:fp32"])) == ["a", "a", "unknown:fp32"]
    with pytest.raises(UsageError, match="'a' is float32"):
        list(names_of(GRAPH, ["a:fp16"]))


def test_opsets() -> None:
    assert [opset_of(v) for v in (None, 18, "18", "latest")] == [None, 18, 18, LATEST]
    with pytest.raises(UsageError, match="expected a number, or latest"):
        opset_of("-1")


def test_every_family_is_one_of_ours() -> None:
    families = {f for item in (*standard().rules, *standard().passes) for f in item.family.split(",")}
    assert {*OPTIMIZERS.values(), *STEPS.values()} <= families
    assert list(skipped(["fuse_bn_into_conv", "H8"])) == ["K1", "H8"]
    assert step("FusionConvBN") == "K1"
