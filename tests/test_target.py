"""Targets are data, found by name; what they lack is not made."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

import graphopt
from graphopt.errors import UsageError
from graphopt.ir.text import parse
from graphopt.optimize import optimize, optimize_graph
from graphopt.target import CPU, CUDA, DEVICES, FOLDER, ORT, PORTABLE, T4, TARGETS, Prices, mistakes, target
from tests.bench.kernels import has_kernel


def test_targets_have_names() -> None:
    assert target("portable") is PORTABLE
    assert all(t.name == name for name, t in TARGETS.items())


def test_an_unknown_name_gives_the_nearest() -> None:
    with pytest.raises(UsageError, match="'portabel'; did you mean portable"):
        target("portabel")
    with pytest.raises(UsageError, match=r"; there are .*portable, "):
        target("xyzzy")
    with pytest.raises(UsageError, match="the target ort makes ONNX models, no programs: use graphopt optimize"):
        target("ort", makes_models=False)
    for makes_models, said in ((True, "did you mean webgpu"), (False, "did you mean cpu")):
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


@pytest.mark.parametrize("opset", [24, 25, 26])
def test_no_rule_makes_what_runtimes_lack_in_the_opset(opset: int) -> None:
    graph = parse(f"graph g (ir 11, opset {opset}) x: float32[2, 3] y = Mul(x, Sigmoid(x)) return y")
    made = {t.name: optimize_graph(graph, target=t)[0] for t in (PORTABLE, CPU)}
    found = {name: {node.op for node in g.nodes()} - {"Input"} for name, g in made.items()}
    assert found == {"portable": {"Swish"} if opset < 25 else {"Mul", "Sigmoid"}, "cpu": {"Swish"}}


@pytest.mark.parametrize("op", ORT.lacking_since)
def test_the_runtime_lacks_what_the_table_says(op: str) -> None:
    pytest.importorskip("onnxruntime")
    first = ORT.lacking_since[op]
    assert not PORTABLE.allows(op, first)
    assert CPU.allows(op, first)
    assert has_kernel(op, first, "float") is not True
    assert PORTABLE.allows(op, first - 1)


@pytest.mark.parametrize("name", TARGETS)
def test_each_number_says_where_it_comes_from(name: str) -> None:
    found = TARGETS[name]
    assert not mistakes(FOLDER / f"{name}.toml")
    usual = Prices(0, 0, (0, 0), 0)
    for field in fields(Prices):
        if getattr(found.prices, field.name) != getattr(usual, field.name):
            assert any(key.partition(".")[0] == field.name for key in found.sources), field.name
    kinds = ("measured", "data sheet", "assumed", "fitted", "ONNX", "onnx", "NVIDIA", "A. Gray", "what")
    assert all(said.startswith(kinds) for said in found.sources.values()), found.sources


def test_only_the_target_that_is_wanted_is_read() -> None:
    code = (
        "import pathlib, graphopt.target.reading as t, graphopt.target as named\n"
        "read, t._content = [], lambda path, content=t._content: read.append(path.stem) or content(path)\n"
        "assert not named._shipped.cache_info().currsize\n"
        "named.TARGETS['ort'], named.target('t4')\n"
        "print(*read)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["ort", "portable", "t4"]


def test_devices_are_asked_by_what_they_can_do() -> None:
    """Nowhere is the name of a device or a target compared."""
    names = {*DEVICES, *TARGETS}
    for path in Path(graphopt.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
                said = {side.value for side in sides if isinstance(side, ast.Constant)} & names
                asked = {ast.unparse(side).split(".")[-1] for side in sides} & {"device", "target", "place"}
                assert not (said and asked), f"{path}:{node.lineno}: {ast.unparse(node)}"
    assert (CPU.device.is_host, CUDA.device.has_blocks, T4.device.has_blocks) == (True, True, False)
