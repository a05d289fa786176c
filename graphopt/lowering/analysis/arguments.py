"""Arguments of primitives against their annotations: what a call was given, and what was expected."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin


def misuse(function: Callable[..., Any], args: Sequence[object], kwargs: Mapping[str, object]) -> str | None:
    """What is wrong with the arguments of a call, in a line; None where they are of the types that are annotated."""
    try:
        given = inspect.signature(function).bind(*args, **kwargs).arguments
    except TypeError as error:
        return str(error)
    for name, value in given.items():
        hint = _hint(function, name)
        if hint is not None and not _fits(value, hint):
            return f"{name}={value!r}; expected {_readable(hint)}"
    return None


def _hint(function: Callable[..., Any], name: str) -> Any:
    """The annotation of a parameter that takes one value; None where there is none that can be read at run time."""
    if inspect.signature(function).parameters[name].kind in (
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
    ):
        return None
    try:
        # the annotations are this package's own source
        return eval(function.__annotations__[name], inspect.unwrap(function).__globals__)
    except (KeyError, NameError, TypeError):
        return None


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
        return value in parts
    if kind is tuple:
        return isinstance(value, tuple) and len(value) == len(parts) and all(map(_fits, value, parts))
    if kind is not None and issubclass(kind, Sequence):
        return isinstance(value, Sequence) and not isinstance(value, str) and all(_fits(v, *parts) for v in value)
    if kind is not None:
        return isinstance(value, kind)
    return not isinstance(hint, type) or isinstance(value, hint) or (hint is float and isinstance(value, int))


def _readable(hint: Any) -> str:
    """A type as an annotation writes it, without modules."""
    return re.sub(r"(?:\w+\.)+(\w)", r"\1", hint.__name__ if isinstance(hint, type) else str(hint))
