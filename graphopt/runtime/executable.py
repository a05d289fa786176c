"""Executables: functions by name, as entry functions of a compiled module, programs of a folder, or what is built."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Self

from graphopt.display import Displayed, shortened
from graphopt.errors import CompilationError, UsageError, nearest_or_some
from graphopt.runtime.timing import Timing

MAIN = "main"
"""The function that an executable itself stands for, where it has one of that name."""


class Executable(Displayed):
    """An executable: compiled functions by name, ``executable["decode"](x)`` or ``executable.decode(x)``.

    Called itself, it is its function ``main``, or its only one.

    >>> with graphopt.build(module) as executable:
    ...     print(executable.names, isinstance(executable, graphopt.Executable))
    ('main',) True
    >>> executable.close()
    """

    def __init__(self, functions: Mapping[str, Any]) -> None:
        self._functions = dict(functions)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its functions, in order."""
        return tuple(self._functions)

    def __getitem__(self, name: str) -> Any:
        try:
            return self._functions[name]
        except KeyError:
            raise UsageError(f"there is no function {name!r}{nearest_or_some(name, self.names)}") from None

    def __getattr__(self, name: str) -> Any:
        functions = self.__dict__.get("_functions", {})
        if name in functions:
            return functions[name]
        raise AttributeError(
            f"an executable has no attribute {name!r}, and no function{nearest_or_some(name, functions)}"
        )

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._functions})

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def __contains__(self, name: object) -> bool:
        return name in self._functions

    def __repr__(self) -> str:
        return f"<Executable of {shortened(', '.join(self._functions)) or 'nothing'}>"

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """What ``main`` gives, or the only function. UsageError where there are others alone."""
        return self._main("call")(*inputs, **options)

    def time(self, *inputs: Any, number: int = 10, repeat: int = 3, **sizes: int) -> Timing:
        """The timing of ``main``, or of the only function, as its own ``time`` gives it."""
        timing: Timing = self._main("time").time(*inputs, number=number, repeat=repeat, **sizes)
        return timing

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write all functions into one folder for ``graphopt.runtime.load``; constants that they share, once.

        Raises CompilationError for tensor programs by themselves, and as a compiled model's ``save`` does.
        """
        from graphopt.runtime.saved import save_all

        for name, function in self._functions.items():
            if not hasattr(function, "save"):
                raise CompilationError(f"{name} is no entry function, and cannot be saved: call it from a graph")
        save_all({name: getattr(f, "program", f) for name, f in self._functions.items()}, folder)

    def close(self) -> None:
        """Give back memory and threads; nothing of it can be called any more."""
        for function in self._functions.values():
            if hasattr(function, "close"):
                function.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _main(self, verb: str) -> Any:
        if MAIN in self._functions:
            return self._functions[MAIN]
        if len(self._functions) == 1:
            return next(iter(self._functions.values()))
        one = next(iter(self._functions), MAIN)
        raise UsageError(
            f"there is no function {MAIN!r} to {verb}, and there are {', '.join(self._functions) or 'none'}: "
            f"name one, as in executable[{one!r}]"
        )
