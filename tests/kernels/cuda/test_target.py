"""The door to numba's CUDA target: nobody needs it before kernels are compiled for a GPU."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from graphopt.kernels.cuda.machine import EXTRA

HIDDEN = """
import sys, importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "numba_cuda" else find(name, *rest)
from graphopt.errors import MissingDependencyError
try:
    import graphopt.kernels.cuda.target
except MissingDependencyError as error:
    print(error)
"""
UNUSED = """
import sys, graphopt, graphopt.compile, graphopt.cli, graphopt.kernels.compile, graphopt.kernels.cuda.simulate
print([name for name in sys.modules if name.startswith(("numba.cuda", "cuda.", "cupy", "numba_cuda."))])
"""


def said(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_a_target_that_is_not_installed_is_an_error_that_says_what_to_do() -> None:
    assert "pip install 'graphopt[cuda13]'" in said(HIDDEN)


def test_graphopt_does_not_need_the_target() -> None:
    assert said(UNUSED) == "[]"


def test_the_extras_that_errors_name_are_there() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    for extra in re.findall(r"cuda\d+", EXTRA):
        assert any(need.startswith("numba-cuda") for need in project["optional-dependencies"][extra])
