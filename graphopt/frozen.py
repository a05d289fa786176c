"""Dataclasses that are frozen, made in a tenth of the time that the standard library takes and filled in half of it.

``dataclasses`` compiles six functions for each class, one after the other: for the classes that a run of the command
line imports, a fifth of all that it does. Here what sets, compares and hashes fields is compiled when it is first
called, and what else a class needs is the same for all. Fields, ``replace`` and whatever else asks for fields are those
of ``dataclasses``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, *, frozen: bool = False, **options: bool) -> Any:
        """``dataclasses.dataclass``, for classes that are frozen and have no order by means of their own."""

        def decorate(cls: type) -> type:
            return _frozen(cls, **options) if frozen and not options.get("order") else plain(cls)

        plain = dataclasses.dataclass(frozen=frozen, **options)
        return decorate if cls is None else decorate(cls)


_STATED = "__dataclass_params__"
"""Where classes have what was asked for, by which ``dataclasses`` tells whether they may inherit from each other."""


def _frozen(cls: type, *, eq: bool = True, repr: bool = True, slots: bool = False, kw_only: bool = False) -> Any:
    """The class with the methods of a frozen dataclass, but for those that it has already."""
    own = set(cls.__dict__) - ({"__hash__"} if cls.__dict__.get("__hash__", cls) is None else set())
    inherits = any(_STATED in vars(base) for base in cls.__mro__[1:])  # from what is to be frozen, too
    if cls.__doc__ is None:  # ``dataclasses`` would write the parameters there, which takes longer than all else
        cls.__doc__ = cls.__name__
    asked = {"init": False, "repr": False, "eq": False, "frozen": inherits, "slots": slots, "kw_only": kw_only}
    made: Any = dataclasses.dataclass(**asked)(cls)
    vars(made)[_STATED].frozen = True
    fields = dataclasses.fields(made)
    methods: dict[str, Any] = {"__init__": _FirstInit(made, slots), "__setattr__": _refuse, "__delattr__": _refuse}
    if repr:
        methods["__repr__"] = _repr(tuple(f.name for f in fields if f.repr))
    if eq:
        methods["__eq__"] = _eq(made, [f.name for f in fields if f.compare])
        methods["__hash__"] = _hash(made, [f.name for f in fields if (f.compare if f.hash is None else f.hash)])
    if slots:
        methods["__getstate__"], methods["__setstate__"] = _state(tuple(f.name for f in fields))
    for name, method in methods.items():
        if name not in own:
            setattr(made, name, method)
    return made


class _FirstInit:
    """Stands for the function that sets the fields of a class, until it is asked for."""

    def __init__(self, cls: type, slots: bool) -> None:
        self.cls, self.slots = cls, slots

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        made = _init(self.cls, self.slots)
        type.__setattr__(self.cls, "__init__", made)
        return made.__get__(instance, owner)


def _init(cls: type, slots: bool) -> Any:
    """The function that sets the fields, by the descriptors of slots where there are some."""
    fields = dataclasses.fields(cls)
    names: dict[str, Any] = {"__name__": cls.__module__, "NOT_GIVEN": _NOT_GIVEN, "set_": object.__setattr__}
    lines: list[str] = []
    given: list[str] = []
    named: list[str] = []
    for f in fields:
        value = f.name
        if f.default is not dataclasses.MISSING:
            names[f"default_{f.name}"] = f.default
            parameter = f"{f.name}=default_{f.name}"
            value = value if f.init else f"default_{f.name}"
        elif f.default_factory is not dataclasses.MISSING:
            names[f"new_{f.name}"] = f.default_factory
            parameter = f"{f.name}=NOT_GIVEN"
            value = f"new_{f.name}() if {value} is NOT_GIVEN else {value}" if f.init else f"new_{f.name}()"
        elif not f.init:  # somebody else sets it
            continue
        else:
            parameter = f.name
        if f.init:
            (named if f.kw_only else given).append(parameter)
        if slots:
            names[f"set_{f.name}"] = getattr(cls, f.name).__set__
            lines.append(f"  set_{f.name}(self, {value})")
        else:
            lines.append(f"  set_(self, {f.name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append("  self.__post_init__()")
    parameters = ", ".join(["self", *given, *(["*", *named] if named else ())])
    exec(f"def __init__({parameters}):\n" + "\n".join(lines or ["  pass"]), names)
    function: Callable[..., None] = names["__init__"]
    function.__qualname__ = f"{cls.__qualname__}.__init__"
    function.__annotations__ = {f.name: f.type for f in fields if f.init} | {"return": None}
    return function


class _NotGiven:
    def __repr__(self) -> str:
        return "<factory>"


_NOT_GIVEN = _NotGiven()


def _refuse(self: object, name: str, *value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {name!r}")


def _repr(names: tuple[str, ...]) -> Callable[[object], str]:
    def __repr__(self: object) -> str:  # noqa: N807
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _tuple(owner: str, names: Sequence[str]) -> str:
    """The source of the tuple of some fields."""
    return f"({''.join(f'{owner}.{name}, ' for name in names)})"


def _eq(cls: type, names: Sequence[str]) -> Callable[[object, object], bool]:
    same = f"{_tuple('self', names)} == {_tuple('other', names)}"
    body = f"{same} if other.__class__ is self.__class__ else NotImplemented"
    compiled = partial(_compiled, cls, "__eq__", "self, other", body)

    def __eq__(self: object, other: object) -> bool:  # noqa: N807
        return compiled()(self, other)  # type: ignore[no-any-return]

    return __eq__


def _hash(cls: type, names: Sequence[str]) -> Callable[[object], int]:
    compiled = partial(_compiled, cls, "__hash__", "self", f"hash({_tuple('self', names)})")

    def __hash__(self: object) -> int:  # noqa: N807
        return compiled()(self)  # type: ignore[no-any-return]

    return __hash__


def _compiled(cls: type, name: str, parameters: str, body: str) -> Any:
    """A method that returns an expression, which is the class's own from now on."""
    made: dict[str, Any] = {"__name__": cls.__module__}
    exec(f"def {name}({parameters}):\n  return {body}", made)
    made[name].__qualname__ = f"{cls.__qualname__}.{name}"
    type.__setattr__(cls, name, made[name])
    return made[name]


def _state(names: tuple[str, ...]) -> tuple[Callable[..., Any], Callable[..., None]]:
    """What copies and pickles take of slots, and put back."""

    def __getstate__(self: object) -> list[Any]:  # noqa: N807
        return [getattr(self, name) for name in names]

    def __setstate__(self: object, state: list[Any]) -> None:  # noqa: N807
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    return __getstate__, __setstate__
