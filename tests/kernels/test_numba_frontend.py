import operator
from typing import Any

import pytest
from numba import int32, int64, types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.errors import TypingError

from graphopt.kernels import codegen
from graphopt.kernels.kernel import Kernel
from graphopt.kernels.numba_frontend import context_of_types, lowered
from graphopt.kernels.vectors import load, store
from tests.kernels.test_compile import called

FLOATS = types.CPointer(types.float32)


def tile(x: Any, lo: int, hi: int) -> int:
    a = load(x, lo, 16)
    b = load(x, lo + 16, 16)
    store(x, hi, a * 2.0)
    store(x, hi, b * 2.0)
    return 0


def mistaken(x: Any, lo: int, hi: int) -> int:
    store(x, lo, load(x, hi, 3))
    return 0


def test_equal_calls_are_typed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []
    context = context_of_types()
    monkeypatch.setattr(context, "resolved", {})
    find = context._resolve_user_function_type
    monkeypatch.setattr(context, "_resolve_user_function_type", lambda *call: asked.append(call[:2]) or find(*call))
    with global_compiler_lock:
        lowered(tile, (FLOATS, int64, int64))
    assert len(asked) == len(set(asked))
    loads = [func for func, _ in asked if "load" in str(func)]
    assert len(loads) == 1


def summed(x: Any, lo: int, hi: int) -> int:
    total = x[lo]
    total -= x[hi]
    return int(total)


def test_operators_in_place_are_those_of_two_operands(monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_of_types()
    monkeypatch.setattr(context, "resolved", {})
    kind = context.resolve_value_type(operator.sub)
    monkeypatch.setattr(kind, "_impl_keys", {})  # as if no kernel had subtracted before
    with global_compiler_lock:
        lowered(summed, (types.CPointer(types.float64), int64, int64))


def test_what_cannot_be_typed_is_refused_every_time() -> None:
    for _ in range(2):
        with global_compiler_lock, pytest.raises(TypingError, match="a vector of 3 lanes"):
            lowered(mistaken, (FLOATS, int64, int64))


def test_a_variable_may_be_assigned_on_several_ways(tmp_path: Any) -> None:
    source = (
        "def kernel(n, lo, hi):\n"
        "    found = 1\n"
        "    for k in range(n):\n"
        "        if k % 2:\n"
        "            found = found + k\n"
        "        else:\n"
        "            found = found * 2\n"
        "    return found\n"
    )
    code = codegen.object_code(Kernel(source, ("size",)), tmp_path / "k.py")
    assert called(code, 4) == 9
    assert called(code, 0) == 1


def test_a_kernel_gives_an_int32() -> None:
    with global_compiler_lock:
        _, described, _ = lowered(tile, (FLOATS, int64, int64))
    assert described.restype == int32
