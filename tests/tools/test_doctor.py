"""The doctor tells what there is, survives what is missing, and says whether a kernel runs."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from typing import NoReturn

import numpy as np
import pytest

import graphopt
from graphopt.errors import CompilationError
from graphopt.kernels import cache, host
from graphopt.runtime import cpu, libraries
from graphopt.tools import doctor
from graphopt.tools.doctor import SELF_TEST, TOPICS, VARIABLES, Finding, examine, is_well


def topic(name: str) -> dict[str, Finding]:
    return {f.name: f for f in examine() if f.topic == name}


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Without the self-test, which takes a while."""
    monkeypatch.setattr(doctor, "TOPICS", {n: look for n, look in TOPICS.items() if n != SELF_TEST})
    return monkeypatch


def test_a_machine_that_is_well() -> None:
    findings = list(examine())
    assert list(dict.fromkeys(f.topic for f in findings)) == list(TOPICS)
    assert is_well(findings)
    assert not [f for f in findings if f.name == "error"]
    (told,) = (f for f in findings if f.topic == SELF_TEST)
    assert "a product and a tanh are right" in told.found
    assert all(f.found and "\n" not in f.found + f.advice for f in findings)


def test_versions_and_packages(only: pytest.MonkeyPatch) -> None:
    assert topic("versions")["graphopt"].found.startswith(graphopt.__version__)
    try:
        metadata.version("graphopt")
    except metadata.PackageNotFoundError:
        pytest.skip("graphopt is not installed")
    found = topic("packages")
    assert found["numpy"].found == np.__version__
    assert {"onnx", "egglog", "numba", "networkx"} <= set(found)


def test_what_is_missing_says_how_to_get_it(only: pytest.MonkeyPatch) -> None:
    extras = {
        "all": ["also-nowhere", "lint", "look", "more"],
        "dev": ["also-nowhere", "lint", "more"],
        "plot": ["also-nowhere"],
    }
    wanted = ["numpy>=2", "nowhere-to-be-found>=1"]
    wanted += [f'{name}>=1; extra == "{extra}"' for extra, names in extras.items() for name in names]
    only.setattr(metadata, "requires", lambda _: wanted)
    found = topic("packages")
    assert found["nowhere-to-be-found"] == Finding(
        "packages", "nowhere-to-be-found", "missing", "pip install nowhere-to-be-found"
    )
    assert found["also-nowhere"].advice == "only for pip install 'graphopt[plot]'"
    assert not {"lint", "look", "more"} & set(found)

    def gone(_: str) -> NoReturn:
        raise metadata.PackageNotFoundError

    only.setattr(metadata, "requires", gone)
    assert topic("packages")["graphopt"].advice


def test_a_slow_processor_and_few_of_them(only: pytest.MonkeyPatch) -> None:
    only.setattr(host, "vector_bytes", lambda: 16)
    only.setattr(cpu, "cores", lambda: 8)
    only.setattr(doctor, "_quota", lambda: 1.5)
    found = topic("processor")
    assert found["vectors"].found.startswith("128 bits")
    assert "docs/platforms.md" in found["vectors"].advice
    assert found["cores"].advice.startswith("compile with threads=1:")
    only.setattr(doctor, "_quota", lambda: None)
    assert topic("processor")["cores"].advice == ""


def test_what_is_broken_is_one_line_and_the_rest_is_told(only: pytest.MonkeyPatch) -> None:
    def broken() -> NoReturn:
        raise OSError("no such library\nat all")

    only.setattr(libraries, "describe_blas", broken)
    assert topic("libraries")["error"] == Finding(
        "libraries", "error", "OSError: no such library", "cannot be told: report this line"
    )
    assert topic("folders")


def test_folders_and_variables(only: pytest.MonkeyPatch) -> None:
    assert str(cache.folder().parent) in topic("folders")["cache"].found
    only.setenv("NO_COLOR", "1")
    only.delenv("CUDA_PATH", raising=False)
    found = topic("environment")
    assert found["NO_COLOR"].found == "1"
    assert found["CUDA_PATH"].found.startswith("not set (")
    assert set(found) == set(VARIABLES)


@pytest.mark.parametrize(("wrong", "said"), [(True, "computes something else"), (False, "does not run: no compiler")])
def test_a_machine_that_is_not_well(monkeypatch: pytest.MonkeyPatch, wrong: bool, said: str) -> None:
    def compiled(*_: object) -> object:
        if not wrong:
            raise CompilationError("no compiler")
        return lambda x: {"y": np.zeros((len(x), 7), np.float32)}

    monkeypatch.setattr(graphopt, "compile", compiled)
    monkeypatch.setattr(doctor, "TOPICS", {SELF_TEST: TOPICS[SELF_TEST]})
    (told,) = examine()
    assert said in told.found
    assert not is_well([told])


def test_nothing_that_was_not_tested_is_well() -> None:
    assert not is_well([])
    assert not is_well([Finding("versions", "graphopt", "1")])


def test_a_self_test_that_dies_is_not_well(monkeypatch: pytest.MonkeyPatch) -> None:
    def dying() -> Iterator[tuple[str, str, str]]:
        raise RuntimeError
        yield ("", "", "")

    monkeypatch.setattr(doctor, "TOPICS", {SELF_TEST: dying})
    assert not is_well(list(examine()))
