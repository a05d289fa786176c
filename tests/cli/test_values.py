import math

import pytest

from graphopt.cli import values
from graphopt.errors import UsageError


def test_shapes_and_dims() -> None:
    assert values.shapes(["x=1,3,640,640", "a:0=2", "scalar=,"]) == {"x": (1, 3, 640, 640), "a:0": (2,), "scalar": ()}
    assert values.dims(["N=1", "a=b=7"]) == {"N": 1, "a=b": 7}


def test_inputs() -> None:
    assert values.inputs(["x=0..1000", "y=a/b.npy"]) == {"x": "0..1000", "y": "a/b.npy"}


def test_budget() -> None:
    assert values.budget("nodes=100,seconds=1.5,unroll=0") == {"nodes": 100, "seconds": 1.5, "unroll": 0}


def test_draws() -> None:
    assert [values.draws(o) for o in ("off", "0", "3", "require")] == ["off", "off", 3, "require"]


@pytest.mark.parametrize(
    ("read", "option", "message"),
    [
        (values.shapes, ["x"], "--shape x: expected NAME=VALUE"),
        (values.shapes, ["x=1,a"], "--shape x=1,a: 'a' is not a size"),
        (values.shapes, ["x=-1"], "--shape x=-1: a size is not negative"),
        (values.dims, ["N=1", "N=2"], "--dim N=2: 'N' is given twice"),
        (
            values.budget,
            "time=3",
            "--budget time=3: 'time' is no limit; there are nodes, rows, builds, members, iters, seconds and unroll",
        ),
        (values.budget, "nodes=x", "--budget nodes=x: 'x' is not a number"),
        (values.budget, "nodes=-1", "--budget nodes=-1: nodes must not be negative"),
        (values.draws, "maybe", "--verify maybe: expected a number of random inputs, off, require, or full"),
    ],
)
def test_what_is_wrong_is_said(read: object, option: object, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(option)  # type: ignore[operator]
    assert str(caught.value) == message


@pytest.mark.parametrize("value", [math.nan, -1.0])
def test_what_is_no_number_or_too_small_is_refused(value: float) -> None:
    with pytest.raises(UsageError, match="--timeout"):
        values.number("--timeout", value, 0)


def test_counts() -> None:
    assert values.counts("--threads", "1,2") == [1, 2]
    for wrong in ("", "0", "1,,2", "two", "-1"):
        with pytest.raises(UsageError, match="1 or more"):
            values.counts("--threads", wrong)
