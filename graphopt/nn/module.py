"""Modules: they hold parameters, and write what they do with them into a graph, named as the user's classes are."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

import numpy as np

from graphopt.display import Displayed, counted
from graphopt.errors import UsageError
from graphopt.ir.constants import Array
from graphopt.ir.text.elements import numpy_dtype
from graphopt.lowering.module.state import read_state
from graphopt.nn.scope import current
from graphopt.nn.tensor import Parameter, Tensor

M = TypeVar("M", bound="Module")
SHOWN = 5
"""So many names of a kind are told in an error."""


class Unmatched(NamedTuple):
    """The names for which ``load_state_dict`` had no parameter, or no array.

    >>> found = nn.Linear(8, 4).load_state_dict({"weight": np.zeros((4, 8), np.float32), "other": 1}, strict=False)
    >>> found, isinstance(found, nn.Unmatched)
    (Unmatched(missing_keys=('bias',), unexpected_keys=('other',)), True)
    """

    missing_keys: tuple[str, ...]
    unexpected_keys: tuple[str, ...]


class Module(Displayed):
    """A part of a model. A subclass sets parameters and other modules as attributes, and says in ``forward`` what it
    computes; they are named by their path, as in ``layers.0.weight``.

    >>> class Twice(nn.Module):
    ...     def __init__(self):
    ...         self.layer = nn.Linear(8, 8)
    ...
    ...     def forward(self, x):
    ...         return self.layer(self.layer(x))
    >>> Twice()
    <Twice: 2 parameters of 72 elements>
    >>> print(Twice())
    Twice(
      layer.weight: float32[8, 8]
      layer.bias: float32[8]
    )
    >>> [path for path, _ in Twice().named_modules()]
    ['', 'layer']
    >>> [path for path, _ in Twice().named_parameters()]
    ['layer.weight', 'layer.bias']
    >>> list(Twice().parameters())
    [Parameter(float32[8, 8]), Parameter(float32[8])]
    >>> list(Twice().initialize().state_dict())
    ['layer.weight', 'layer.bias']
    """

    unused: frozenset[str] = frozenset()
    """Names in files of weights for which the module has no use."""

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """What the module computes from tensors."""
        raise UsageError(f"{type(self).__name__} has no forward(self, ...), which says what it computes")

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """What ``forward`` gives, in nodes that bear this module's name."""
        with current().within(self):
            return self.forward(*inputs, **options)

    # -- what is in it

    def children(self) -> Iterator[tuple[str, Module | Parameter]]:
        """The modules and parameters that are attributes, or in lists, tuples and dicts that are, by name."""
        for name, value in vars(self).items():
            yield from _named(name, value)

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module and all within, by path; one that is used in several places comes at each."""
        for path, item in _walk(self, prefix, ()):
            if isinstance(item, Module):
                yield path, item

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """All parameters by path; one that is used in several places comes once, by its first."""
        seen: set[int] = set()
        for path, item in _walk(self, prefix, ()):
            if isinstance(item, Parameter) and id(item) not in seen:
                seen.add(id(item))
                yield path, item

    def parameters(self) -> Iterator[Parameter]:
        """All parameters, each once."""
        return (parameter for _, parameter in self.named_parameters())

    def __repr__(self) -> str:
        sizes = [p.type.shape for p in self.parameters() if isinstance(p.type.shape, tuple)]
        elements = sum(prod(n for n in shape if isinstance(n, int)) for shape in sizes)
        return f"<{type(self).__name__}: {counted(len(sizes), 'parameter')} of {counted(elements, 'element')}>"

    def __str__(self) -> str:
        lines = [f"  {path}: {parameter.type}" for path, parameter in self.named_parameters()]
        return "\n".join([f"{type(self).__name__}(", *lines, ")"]) if lines else f"{type(self).__name__}()"

    # -- elements

    def initialize(self: M, seed: int = 0) -> M:
        """Draw elements for all parameters; each depends on the seed and its own name alone. Gives the module back."""
        for path, parameter in self.named_parameters():
            random = np.random.default_rng([seed, crc32(path.encode())])
            drawn = parameter.initial(random, parameter.sizes)
            parameter.array = np.asarray(drawn).astype(numpy_dtype(parameter.dtype))
        return self

    def state_dict(self) -> dict[str, Array]:
        """The elements of the parameters by path. UsageError where some have none."""
        everything = dict(self.named_parameters())
        empty = [path for path, parameter in everything.items() if parameter.array is None]
        if empty:
            raise UsageError(f"{type(self).__name__} has no elements for {_listed(empty)}: load_state_dict(...) first")
        return {path: p.array for path, p in everything.items() if p.array is not None}

    def load_state_dict(self, state: Mapping[str, Any] | str | os.PathLike[str], strict: bool = True) -> Unmatched:
        """Take the elements of the parameters, by path, from arrays or from a ``.npz`` or ``.safetensors`` file.

        Anything that numpy can view is an array, such as a tensor of torch. Shapes and dtypes have to be the
        parameters' own; a parameter with several paths needs one of them. Gives the names that did not match, which
        only ``strict=False`` lets pass. UsageError names all that is wrong, and nothing is taken then.
        """
        arrays = read_state(state) if isinstance(state, str | os.PathLike) else state
        if not isinstance(arrays, Mapping):
            raise UsageError(f"weights are arrays by name, or the path of a file that holds such, not {state!r}")
        places = self._places()
        loaded: dict[int, tuple[Parameter, Array]] = {}
        wrong: list[str] = []
        for path, parameter in places.items():
            if path in arrays:
                array, problem = _fitting(path, parameter, arrays[path])
                other = loaded.get(id(parameter))
                if problem is None and other is not None and not np.array_equal(other[1], array):
                    problem = f"{path} is another name of a parameter that is given other elements"
                wrong += [problem] if problem else []
                loaded[id(parameter)] = parameter, array
        missing = tuple(path for path, parameter in self.named_parameters() if id(parameter) not in loaded)
        unused = {f"{path}.{name}" if path else name for path, m in self.named_modules() for name in m.unused}
        unexpected = tuple(name for name in arrays if name not in places and name not in unused)
        if strict:
            wrong += [f"missing {_listed([f'{n} ({places[n].type})' for n in missing])}"] if missing else []
            wrong += [f"unexpected {_listed(unexpected)}"] if unexpected else []
        if wrong:
            raise UsageError(f"these are not the parameters of {type(self).__name__}: {'; '.join(wrong)}")
        for parameter, array in loaded.values():
            parameter.array = array
        return Unmatched(missing, unexpected)

    def _places(self) -> dict[str, Parameter]:
        """All parameters by all of their paths."""
        return {path: item for path, item in _walk(self, "", ()) if isinstance(item, Parameter)}


class ModuleList(Module):
    """Modules in order, named by their numbers.

    >>> layers = nn.ModuleList([nn.Linear(8, 8), nn.ReLU()])
    >>> layers.append(nn.Tanh())
    >>> len(layers), layers[0]
    (3, <Linear: 2 parameters of 72 elements>)
    """

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        self.modules: list[Module] = []
        for module in modules:
            self.append(module)

    def children(self) -> Iterator[tuple[str, Module | Parameter]]:
        """The modules by number."""
        return ((str(k), module) for k, module in enumerate(self.modules))

    def append(self, module: Module) -> None:
        """Put a module behind the others. UsageError for what is none."""
        if not isinstance(module, Module):
            where = f"{type(self).__name__}, as {len(self.modules)}"
            raise UsageError(f"{where}: {module!r} is no module (nn.relu is a function, nn.ReLU() a module)")
        self.modules.append(module)

    def __iter__(self) -> Iterator[Module]:
        return iter(self.modules)

    def __len__(self) -> int:
        return len(self.modules)

    def __getitem__(self, number: int) -> Module:
        return self.modules[number]


class Sequential(ModuleList):
    """Modules one after another: each takes what the one before it gives.

    >>> nn.Sequential(nn.Linear(8, 4), nn.ReLU())
    <Sequential: 2 parameters of 36 elements>
    """

    def __init__(self, *modules: Module) -> None:
        super().__init__(modules)

    def forward(self, x: Any) -> Any:
        """What the last gives."""
        for module in self.modules:
            x = module(x)
        return x


def _named(name: str, value: object) -> Iterator[tuple[str, Module | Parameter]]:
    """What stands under a name: itself, or what a collection holds by number or key."""
    if isinstance(value, Module | Parameter):
        yield name, value
    elif isinstance(value, list | tuple):
        for k, inner in enumerate(value):
            yield from _named(f"{name}.{k}", inner)
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _named(f"{name}.{key}", inner)


def _walk(module: Module, path: str, around: tuple[Module, ...]) -> Iterator[tuple[str, Module | Parameter]]:
    """The module and all within, in order, by path. UsageError where a module holds itself."""
    if any(m is module for m in around):
        raise UsageError(f"{type(module).__name__} holds itself, as {path}")
    yield path, module
    for name, child in module.children():
        inner = f"{path}.{name}" if path else name
        if isinstance(child, Module):
            yield from _walk(child, inner, (*around, module))
        else:
            yield inner, child


def _fitting(path: str, parameter: Parameter, given: Any) -> tuple[Array, str | None]:
    """An array for a parameter, and what is wrong with it."""
    if isinstance(given, Tensor):
        return np.empty(0), f"{path} is {given!r}, and no array"
    try:
        array = np.asarray(given)
    except (TypeError, ValueError, RuntimeError) as error:  # numpy's, and torch's for what numpy has no dtype for
        return np.empty(0), f"{path} is no array ({str(error).splitlines()[0]})"
    if (array.dtype.name, array.shape) != (parameter.dtype, parameter.sizes):
        return array, f"{path} is {parameter.type}, and the array for it {array.dtype.name}{list(array.shape)}"
    return array, None


def _listed(names: Iterable[str]) -> str:
    several = list(names)
    more = f" and {len(several) - SHOWN} more" if len(several) > SHOWN else ""
    return ", ".join(several[:SHOWN]) + more
