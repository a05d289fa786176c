"""Kernels for less than the processor at hand: without AVX, without a schedule, and as code for ARM."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from numba.core.compiler_lock import global_compiler_lock

import graphopt
from graphopt.compile import linked_for
from graphopt.ir import evaluate
from graphopt.ir.graph import Graph
from graphopt.ir.text import parse
from graphopt.ir.tolerance import error
from graphopt.kernels import cache, codegen, host
from graphopt.kernels.kernel import Kernel
from graphopt.run.settings import Settings
from graphopt.runtime import cpu, disk_cache

W, V = (np.random.default_rng(k).standard_normal((24, 24)).astype(np.float32) / 5 for k in (0, 1))
X = np.random.default_rng(2).standard_normal((7, 24)).astype(np.float32)


def model() -> Graph:
    """Elements, a product, a reduction by rows, and a function that is a polynomial."""
    from graphopt.ir.constants import Constant

    text = """\
x: float32[n, 24]
w = float32[24, 24]{#0}
h = Tanh(MatMul(x, w))
y = Softmax(Add(Mul(h, 3.0), Relu(x)))
m = ReduceMean(y, [0], keepdims=0)
return y, m"""
    return parse(text, [Constant.of(W)])


def machine(triple: str, processor: str) -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(triple).create_target_machine(cpu=processor, opt=3, reloc="pic", codemodel="small")


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where what is compiled for that processor is kept."""
    return tmp_path_factory.mktemp("objects")


@pytest.fixture
def least(monkeypatch: pytest.MonkeyPatch, objects: Path) -> Iterator[None]:
    """A processor with nothing beyond what each of x86-64 has: vectors of 128 bits, and no fused products."""
    caches = (cpu.features, host.vector_bytes, cache.compiler)
    monkeypatch.setenv(cpu.VARIABLE, "x86-64")
    monkeypatch.setenv(disk_cache.VARIABLE, str(objects))
    for known in caches:
        known.cache_clear()
    yield
    for known in caches:
        known.cache_clear()


def kernels(graph: Graph) -> tuple[Kernel, ...]:
    return linked_for(graph, Settings()).kernels


@pytest.mark.parametrize("pipeline", ["cpu", "zero"])
def test_kernels_run_without_wide_vectors_and_as_plain_loops(least: None, pipeline: str) -> None:
    """``zero`` schedules nothing: loops over single elements, as they were written."""
    assert host.vector_bytes() == 16
    found = graphopt.compile(model(), pipeline=pipeline)(X)
    wanted = evaluate.run(model(), {"x": X})
    assert all(error(wanted[name], found[name]) <= 1 for name in ("y", "m"))


def test_that_code_has_no_wide_registers(least: None, tmp_path: Path) -> None:
    texts = [codegen.assembly(k, tmp_path / "k.py") for k in kernels(model())]
    assert any("xmm" in text for text in texts)
    assert not any(re.search(r"\b[yz]mm\d", text) for text in texts)


def test_the_same_kernels_become_code_for_arm(least: None, tmp_path: Path) -> None:
    """NEON's vectors are of 128 bits as well; programs are not loaded there yet."""
    arm = machine("aarch64-unknown-linux-gnu", "generic")
    texts = []
    for kernel in kernels(model()):
        with global_compiler_lock:
            written = str(codegen._module(kernel, tmp_path / "k.py"))
        written = re.sub(r'^target (triple|datalayout) = ".*"$', "", written, flags=re.MULTILINE)
        module = llvm.parse_assembly(re.sub(r'"target-(cpu|features)"="[^"]*"', "", written))
        module.triple, module.data_layout = arm.triple, str(arm.target_data)
        assert arm.emit_object(module).startswith(b"\x7fELF")
        texts.append(arm.emit_assembly(module))
    assert any(re.search(r"\bfml[as]\s+v\d+\.4s", text) for text in texts)
