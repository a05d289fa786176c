"""Arguments of primitives against their annotations: what a call was given, and what was expected."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin


def misuse(function: Callable[..., Any], args: Sequence[object], kwargs: Mapping[str, object]) -> str | None:
    """What is wrong with the arguments of a call, in a line; None where they are of the types that are annotated."""
    signature, hints = _signature(function)
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        return str(error)
    for name, value in given.items():
        hint = hints.get(name)
        if hint is not None and not _fits(value, hint):
            return f"{name}={value!r}; expected {_readable(hint)}"
    return None


@cache
def _signature(function: Callable[..., Any]) -> tuple[inspect.Signature, Mapping[str, Any]]:
    """The parameters of a function, and the annotations of those that take one value, as far as they can be read at
    run time."""
    signature, hints = inspect.signature(function), {}
    for name, parameter in signature.parameters.items():
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            continue
        with suppress(KeyError, NameError, TypeError):  # the annotations are this package's own source
            hints[name] = eval(function.__annotations__[name], inspect.unwrap(function).__globals__)
    return signature, hints


def _fits(value: object, hint: Any) -> bool:
    """Whether a value is of a type, as far as annotations of primitives go."""
    kind, parts = get_origin(hint), get_args(hint)
    if hint is Any or hint is object:
        return True
    if hint is None:
        return value is None
    if kind in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if kind is Literal:
        return value in parts or isinstance(value, str)  # primitives themselves say which words there are
    if kind is tuple:
        if not isinstance(value, tuple | list):
            return False
        parts = parts[:1] * len(value) if parts[1:] == (...,) else parts
        return len(value) == len(parts) and all(map(_fits, value, parts))
    if kind is not None and issubclass(kind, Sequence):
        return isinstance(value, Sequence) and not isinstance(value, str) and all(_fits(v, *parts) for v in value)
    if kind is not None:
        return isinstance(value, kind)
    if isinstance(value, bool) and hint in (int, float):
        return False
    return not isinstance(hint, type) or isinstance(value, hint) or (hint is float and isinstance(value, int))


def _readable(hint: Any) -> str:
    """A type as an annotation writes it, without modules."""
    return re.sub(r"(?:\w+\.)+(\w)", r"\1", hint.__name__ if isinstance(hint, type) else str(hint))
