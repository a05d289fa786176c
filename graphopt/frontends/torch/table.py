"""Tables of torch's operators: for each target one function that emits ONNX ops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar

Emitter: TypeAlias = Callable[..., Any]
"""Called with an ``OpWriter`` and the arguments of torch's call, in which tensors are values of the graph; it gives the
call's results, again values."""
F = TypeVar("F", bound=Emitter)


class Table(Mapping[Any, Emitter]):
    """Emitters by target. A target is an ATen overload (``torch.ops.aten.add.Tensor``) or all overloads of an operator
    (``torch.ops.aten.add``), a custom operator's, a Python function, or a class of modules.

    An emitter for a class of modules is given the module after the writer; its calls are not looked into, and
    neither are those of a function.
    """

    def __init__(self, entries: Mapping[Any, Emitter] | None = None) -> None:
        self._entries: dict[Any, Emitter] = dict(entries or {})

    def __getitem__(self, target: Any) -> Emitter:
        return self._entries[target]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __or__(self, other: Mapping[Any, Emitter]) -> Table:
        """Both; where both have a target, the other's entry."""
        return Table({**self._entries, **other})

    def entry(self, *targets: Any) -> Callable[[F], F]:
        """A decorator that enters the function for these targets in this table."""

        def enter(emitter: F) -> F:
            self._entries.update(dict.fromkeys(targets, emitter))
            return emitter

        return enter

    def find(self, target: Any) -> Emitter | None:
        """The emitter for a target of a call; for a module, that of its class or of the first that it derives from."""
        try:
            entry = self._entries.get(target)
        except TypeError:  # no target that can be a key
            return None
        if entry is None and hasattr(target, "overloadpacket"):
            return self._entries.get(target.overloadpacket)
        if entry is None and hasattr(target, "named_parameters"):
            return next((self._entries[c] for c in type(target).__mro__ if c in self._entries), None)
        return entry
