"""External functions: Python functions that graphs call by a registered name, and that fill the arrays they are
given.

Public as ``graphopt.register``. It stands alone because modules need no more of a function than its name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, overload

from graphopt.errors import UsageError
from graphopt.ir.custom_ops import Added, Filling, Outputs, add
from graphopt.lowering.module.module import External

F = TypeVar("F", bound=Filling)


@overload
def register(
    name: str, function: None = None, *, effects: bool = False, outputs: Outputs | None = None
) -> Callable[[F], F]: ...
@overload
def register(name: str, function: F, *, effects: bool = False, outputs: Outputs | None = None) -> F: ...
def register(
    name: str, function: F | None = None, *, effects: bool = False, outputs: Outputs | None = None
) -> F | Callable[[F], F]:
    """Registers a function for calls in graphs: ``env.linear`` is the op ``env:linear``. Gives the function back.

    It is called as ``function(*inputs, *outputs, **attributes)`` and writes its outputs: numpy arrays in the program's
    own memory, without copies, and none to be kept beyond the call. Inputs are read-only. Functions count as pure:
    equal calls are merged and unused ones dropped; with ``effects`` each call is made, in order. ``outputs`` gives the
    types of the outputs from those of the inputs (``TensorType``) and attributes by name; without it, graphs declare
    them. Without a function, this is a decorator. A name can be registered anew; models compiled before keep the old
    function. Raises UsageError for a name without a domain, and for what is no function.
    """
    external = External(name, effects)
    if "" in external.op.split("::"):
        raise UsageError(f"a function is registered by a domain and a name, as in 'env.linear', not {name!r}")

    def registered(function: F) -> F:
        if not callable(function):
            raise UsageError(f"{name} is to be a function, and {function!r} cannot be called")
        add(external.op, Added(outputs, function, effects))
        return function

    return registered if function is None else registered(function)
