"""Type inference of ``graphopt::Nest``, the op whose node carries its program: the program's sizes, and what it gives.

Its attribute ``params`` is the types of the inputs as text (``float32[n, 16]; float32[16]``), in which symbols are the
program's sizes, and ``types`` those of the outputs over the same symbols.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from graphopt.ir.call import OpCall
from graphopt.ir.graph import Attrs
from graphopt.ir.infer_shapes import Types, spell
from graphopt.ir.types import Dim, Size, Symbol, TensorType, Unranked, fresh_symbol, substitute, symbols

NEST = "graphopt::Nest"
"""The op that is computed by the program in its attribute ``program``."""


def bound_sizes(attrs: Attrs, shapes: Sequence[tuple[Size, ...] | None]) -> dict[str, Size]:
    """What the program's sizes are, by name, where its inputs have these shapes.

    ValueError where a shape is not what the program takes; sizes that are not known yet cannot be told from those that
    fit.
    """
    params = tensor_types(attrs, "params")
    if len(params) != len(shapes):
        raise ValueError(f"the program takes {len(params)} inputs")
    sizes: dict[str, Size] = {}
    for param, shape in zip(params, shapes, strict=True):
        if shape is None or isinstance(param.shape, Unranked):
            continue
        if len(param.shape) != len(shape):
            raise ValueError(f"the program takes {spell(param.shape)}, not {spell(shape)}")
        for wanted, size in zip(param.shape, shape, strict=True):
            match wanted:
                case Dim(
                    terms=((((Symbol(name),), 1),)),
                ):
                    sizes.setdefault(name, size)
    for param, shape in zip(params, shapes, strict=True):
        for wanted, size in zip(param.shape if isinstance(param.shape, tuple) else (), shape or (), strict=False):
            here = substitute(wanted, sizes)
            if isinstance(here, int) and isinstance(size, int) and here != size:
                raise ValueError(f"the program takes {spell(param.shape)}, not {spell(shape)}")
    return sizes


def tensor_types(attrs: Attrs, name: str) -> tuple[TensorType, ...]:
    """The types in an attribute."""
    text = attrs.get(name)
    return _read(text) if isinstance(text, str) and text else ()


@lru_cache(256)
def _read(text: str) -> tuple[TensorType, ...]:
    from graphopt.ir.text import parse

    graph = parse("".join(f"t{k}: {type}\n" for k, type in enumerate(text.split("; "))) + "return t0")
    types = [graph.types.get(v) for v in graph.inputs]
    return tuple(t for t in types if isinstance(t, TensorType))


def _nest(call: OpCall) -> Types:
    sizes = bound_sizes(call.attrs, [call.shape(k) for k in range(len(call.inputs))])
    for k, param in enumerate(tensor_types(call.attrs, "params")):
        if call.dtype(k) not in (None, param.dtype):
            raise ValueError(f"the program takes {param.dtype} as input {k}")
    types = [(t.dtype, t.shape) for t in tensor_types(call.attrs, "types") if isinstance(t.shape, tuple)]
    for name in sorted({n for _, shape in types for size in shape for n in symbols(size)} - set(sizes)):
        sizes[name] = fresh_symbol()
    return [TensorType(dtype, tuple(substitute(n, sizes) for n in shape)) for dtype, shape in types]


NESTS = {NEST: _nest}
