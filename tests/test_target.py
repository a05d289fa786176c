"""Targets are data that users can write, found by name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphopt.errors import UsageError
from graphopt.optimize import optimize
from graphopt.target import CPU, ORT, PORTABLE, TARGETS, target


def test_targets_have_names() -> None:
    assert target("portable") is PORTABLE
    assert all(t.name == name for name, t in TARGETS.items())


def test_an_unknown_name_gives_the_nearest() -> None:
    with pytest.raises(UsageError, match="'portabel'; did you mean portable"):
        target("portabel")
    with pytest.raises(UsageError, match="there are portable, ort"):
        target("xyzzy")
    for makes_models, said in ((True, "there are portable, ort, t4$"), (False, "did you mean cpu")):
        with pytest.raises(UsageError, match=f"'gpu'; {said}"):
            target("gpu", makes_models)


def test_what_results_may_use() -> None:
    assert PORTABLE.allows("Conv")
    assert not PORTABLE.allows("com.microsoft::Gelu")
    assert ORT.allows("com.microsoft::Gelu")
    assert not ORT.allows("com.microsoft.nchwc::Conv")


def test_a_target_of_ones_own() -> None:
    mine = replace(PORTABLE, name="mine", ops={"": frozenset({"Conv"})})
    assert mine.allows("Conv")
    assert not mine.allows("Relu")


def test_only_programs_have_ops_of_ours() -> None:
    assert [name for name, t in TARGETS.items() if not t.makes_models] == ["cpu", "cuda", "simulated"]
    assert CPU.allows("graphopt::BlockedConv")
    assert not PORTABLE.allows("graphopt::BlockedConv")
    with pytest.raises(UsageError, match="the target cpu makes programs, no ONNX models"):
        optimize(b"", target="cpu")
