"""Executables are functions by name."""

from __future__ import annotations

import pytest

from graphopt.errors import CompilationError, UsageError
from graphopt.runtime.executable import Executable


def test_the_only_function_is_called_as_main_is() -> None:
    assert Executable({"f": lambda x: x + 1})(2) == 3
    assert Executable({"f": lambda x: x + 1, "main": lambda x: x})(2) == 2


def test_functions_are_found_by_name() -> None:
    made = Executable({"f": abs, "names": max})
    assert (made.f, made["names"], made.names) == (abs, max, ("f", "names")), "its own names come first"
    assert repr(made) == "<Executable of f, names>"
    with pytest.raises(UsageError, match="there is no function 'g'"):
        made["g"]
    with pytest.raises(AttributeError, match="no attribute 'g'"):
        made.g  # noqa: B018


def test_nothing_is_called_or_saved_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="there is no function 'main' to call, and there are none"):
        Executable({})()
    with pytest.raises(CompilationError, match="f is no entry function"):
        Executable({"f": abs}).save("nowhere")
