"""Tensor intrinsics: small programs that ``tensorize`` matches, each with a faster implementation.

The description is what the intrinsic means, one element at a time: it is what a schedule matches and
what the interpreter runs. The implementation has the same parameters; it is written down at the place
of the call, on the regions that the call is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial

from graphopt.errors import ScheduleError
from graphopt.frozen import dataclass
from graphopt.kernels.host import lanes
from graphopt.kernels.product_form import BLOCKS, panel
from graphopt.lowering.intrinsics import block_quantized, integer, mixed, tile, warp
from graphopt.lowering.intrinsics.contractions import contraction
from graphopt.lowering.loops.expressions import Const, Expr, Load, Var
from graphopt.lowering.loops.nest import (
    Block,
    Buffer,
    BufferRegion,
    For,
    Invoke,
    Nest,
    Seq,
    Stmt,
    Store,
    map_expressions,
    mutate,
    rename_buffers,
    statements,
    substitute_in,
    with_names,
)
from graphopt.lowering.loops.script import read


@dataclass(frozen=True, slots=True)
class TensorIntrin:
    """A tensor intrinsic: ``implementation`` computes the same as ``description``, on the same parameters.

    ``function`` is the dotted name of a kernels function that does it, where there is one: it takes a pointer, the
    first element and the strides of all sides but the last for each array, and the sizes as they are.

    >>> schedule.TensorIntrin("sums", nest, nest).function is None
    True
    """

    name: str
    description: Nest
    implementation: Nest
    function: str | None = None

    def __post_init__(self) -> None:
        if self.implementation.params != self.description.params:
            raise ScheduleError(f"{self.name}: its implementation has other parameters than its description")


IntrinFamily = Callable[..., TensorIntrin]
_registered: dict[str, TensorIntrin] = {}


def is_extended() -> bool:
    """Whether users registered any intrinsics."""
    return bool(_registered)


def register_intrinsic(intrinsic: TensorIntrin) -> None:
    """Registers an intrinsic under its name, in place of an earlier one of that name."""
    _registered[intrinsic.name] = intrinsic


def find_intrinsic(name: str) -> TensorIntrin:
    """Looks an intrinsic up by name: a registered one, or one of a family (``product_6x32_float32``).

    Raises ScheduleError where there is none.
    """
    if name in _registered:
        return _registered[name]
    for pattern, family in FAMILIES.items():
        if match := re.fullmatch(pattern, name):
            return family(*(int(g) if g and g.isdigit() else g for g in match.groups()))
    names = ", ".join([*sorted(_registered), "product_<rows>x<columns>_<float32 or float64>"])
    raise ScheduleError(f"there is no intrinsic {name}; there are {names}")


@lru_cache(maxsize=64)
def product_tile(rows: int, columns: int, dtype: str) -> TensorIntrin:
    """``C += A @ B`` for a tile of C in registers: ``rows`` by ``columns``, over any number of steps.

    The columns are a multiple of the host's lanes where the tile is to be fast.
    """
    width = lanes(dtype)
    vectors, width = (columns // width, width) if columns % width == 0 else (1, columns)
    name = f"product_{rows}x{columns}_{dtype}"
    head = (
        f"@program\n"
        f'def {name}(C: Buffer[({rows}, {columns}), "{dtype}"], A: Buffer[({rows}, "k"), "{dtype}"], '
        f'B: Buffer[("k", {columns}), "{dtype}"], k: size):\n'
    )
    description = f"""\
    for i, j, p in grid({rows}, {columns}, k):
        with block("product"):
            vi, vj, vp = axis.remap("SSR", [i, j, p])
            C[vi, vj] = C[vi, vj] + A[vi, vp] * B[vp, vj]
"""
    j = f"j * {width} + l"
    implementation = f"""\
    T = alloc(({rows}, {columns}), "{dtype}", scope="local")
    for i in unrolled({rows}):
        for j in unrolled({vectors}):
            for l in vectorized({width}):
                T[i, {j}] = C[i, {j}]
    for p in serial(k):
        for i in unrolled({rows}):
            for j in unrolled({vectors}):
                for l in vectorized({width}):
                    T[i, {j}] = T[i, {j}] + A[i, p] * B[p, {j}]
    for i in unrolled({rows}):
        for j in unrolled({vectors}):
            for l in vectorized({width}):
                C[i, {j}] = T[i, {j}]
"""
    return TensorIntrin(name, read(head + description), read(head + implementation))


@lru_cache(maxsize=8)
def library_product(a: str, b: str, dtype: str) -> TensorIntrin:
    """``C = op(A) @ op(B)`` by BLAS; an operand marked ``t`` is given transposed."""
    return _by_function(_product(f"gemm_{a}{b}_{dtype}", a, b, dtype), f"blas.gemm_{a}{b}")


@lru_cache(maxsize=16)
def own_product(a: str, b: str, dtype: str) -> TensorIntrin:
    """``C = op(A) @ op(B)`` by a kernel of our own; an operand marked ``t`` is given transposed, one marked ``p`` in
    panels of neighbouring columns. It is given the sizes of its ``BLOCKS``, too."""
    return _by_function(_product(f"product_{a}{b}_{dtype}", a, b, dtype, BLOCKS), f"products.product_{a}{b}")


def _mixed_product(dtype: str) -> TensorIntrin:
    return _by_function(mixed.product(dtype), f"products.{mixed.PRODUCTS[dtype]}")


def _product(name: str, a: str, b: str, dtype: str, others: Sequence[str] = ()) -> Nest:
    width = panel(dtype)
    left, first = {"n": ("(m, k)", "vi, vp"), "t": ("(k, m)", "vp, vi")}[a]
    right, second = {
        "n": ("(k, n)", "vp, vj"),
        "t": ("(n, k)", "vj, vp"),
        "p": (f"((n + {width - 1}) // {width}, k, {width})", f"vj // {width}, vp, vj % {width}"),
    }[b]
    operands = {"C": ("(m, n)", dtype), "A": (left, dtype), "B": (right, dtype)}
    return contraction(
        name, operands, ("m", "n", "k", *others), {"i": "m", "j": "n"}, {"p": "k"}, f"A[{first}] * B[{second}]"
    )


@lru_cache(maxsize=64)
def transpose_tile(rows: int, columns: int, dtype: str) -> TensorIntrin:
    """``C`` is ``A`` transposed, by shuffles in registers. Rows and columns are powers of two."""
    name = f"transpose_{rows}x{columns}_{dtype}"
    description = read(f"""\
@program
def {name}(
    C: Buffer[({rows}, {columns}), "{dtype}"], A: Buffer[({columns}, {rows}), "{dtype}"], m: size, n: size
):
    for i, j in grid({rows}, {columns}):
        with block("transpose"):
            vi, vj = axis.remap("SS", [i, j])
            C[vi, vj] = A[vj, vi]
""")
    return _by_function(description, "transposes.transpose")


@lru_cache(maxsize=64)
def convolution_tile(form: str, flat: str | None, rank: int, dtype: str) -> TensorIntrin:
    """A tile of a convolution's results, in blocks of channels: some neighbouring pixels of one row.

    ``A`` is an image in blocks of channels, or plain, of which a result reads rows from the first one on and columns
    from ``start - before`` on; columns that it does not have are zeros, and only the kernel's columns from ``low`` up
    to ``high`` are sure to meet none of them. Where it is flat, all pixels of the image are one row. Of a plain image,
    ``deep`` channels, of which the image has a multiple, are summed together.
    """
    # A direct convolution as a contraction: the description is put together as text, index by index.
    axes, last = range(rank), rank - 1
    name = f"convolve_{form}{flat or ''}_{rank}d_{dtype}"
    kernels, sides = [f"kernel_{k}" for k in axes], [f"side_{k}" for k in axes]
    inner = ["size"] if form == "blocked" else []
    sizes = ["blocks", "most", "w", "lanes", "channels", *kernels, *sides, *(inner or ["deep"])]
    sizes += ["start", "before", "step"]
    sizes += [*(f"dilation_{k}" for k in axes), "low", "high"]
    steps = {"channel": "channels", **{f"k{k}": n for k, n in enumerate(kernels)}, **({"m": "size"} if inner else {})}
    column = f"start + vp * step + vk{last} * dilation_{last} - before"
    places = [*(f"vk{k} * dilation_{k}" for k in axes[:-1]), column]
    inside = f"{column} >= 0 and {column} < side_{last}"
    if flat:
        behind = [" * ".join(["1", *sides[k + 1 :]]) for k in axes]
        places = [f"({column}) // ({b}) % {s}" for b, s in zip(behind, sides, strict=True)]
        inside = "True"
    element = f"A[{', '.join(['vchannel', *places, *(['vm'] if inner else [])])}]"
    value = element if flat else f"select({inside}, {element}, 0.0)"
    description = contraction(
        name,
        {
            "C": ("(blocks, most, lanes)", dtype),
            "A": (f"({', '.join(['channels', *sides, *inner])})", dtype),
            "B": (f"({', '.join(['blocks', 'channels', *kernels, *inner, 'lanes'])})", dtype),
        },
        sizes,
        {"q": "blocks", "p": "w", "l": "lanes"},
        steps,
        f"{value} * B[{', '.join(['vq', *(f'v{n}' for n in steps), 'vl'])}]",
        block="convolution",
    )
    return _by_function(description, f"convolution.convolve_{form}_{rank}d")


def _by_function(description: Nest, function: str) -> TensorIntrin:
    return TensorIntrin(description.name, description, description, f"graphopt.kernels.{function}")


NOTHING = Nest("barrier", (), Seq(()))
"""The program of a barrier: it synchronizes threads and computes nothing."""


@lru_cache(maxsize=64)
def warp_combination(fn: str, dtype: str) -> TensorIntrin:
    """A warp reduction: the values of a warp's threads (32 neighbours of ``n``), combined and given to all of them."""
    step = "{0} + {1}" if fn == "add" else fn + "({0}, {1})"
    name = f"warp_{fn}_{dtype}"
    description = read(f"""\
@program
def {name}(A: Buffer[(n,), "{dtype}"], n: size):
    T = alloc((n // 32,), "{dtype}")
    for i in serial(n // 32):
        with block("first"):
            vi = axis.spatial(n // 32, i)
            T[vi] = A[vi * 32]
    for i, j in grid(n // 32, 31):
        with block("others"):
            vi, vj = axis.remap("SR", [i, j])
            T[vi] = {step.format("T[vi]", "A[vi * 32 + vj + 1]")}
    for i in serial(n):
        with block("all"):
            vi = axis.spatial(n, i)
            A[vi] = T[vi // 32]
""")
    return TensorIntrin(name, description, description, f"graphopt.kernels.cuda.functions.warp_{fn}")


FAMILIES: Mapping[str, IntrinFamily] = {
    "barrier": lambda: TensorIntrin("barrier", NOTHING, NOTHING, "graphopt.kernels.cuda.functions.barrier"),
    r"warp_(add|max|min)_([a-z]+\d*)": warp_combination,
    r"product_([1-9]\d*)x([1-9]\d*)_(float32|float64)": product_tile,
    r"transpose_([1-9]\d*)x([1-9]\d*)_([a-z]+\d*)": transpose_tile,
    r"gemm_(n|t)(n|t)_(float32|float64)": library_product,
    r"convolve_(blocked|plain)(_flat)?_([123])d_(float32|float64)": convolution_tile,
    r"product_(n|t)(n|t|p)_(float32|float64)": own_product,
    integer.PRODUCT: lambda form, left, right: _by_function(
        integer.product(form, left, right), f"products.integer_product_{form}"
    ),
    integer.PIXELS.format("(uint8|int8)", "(uint8|int8)"): lambda left, right: _by_function(
        integer.pixels(left, right), "products.integer_pixels"
    ),
    integer.WINDOWS.format("(uint8|int8)", "(uint8|int8)"): lambda right, left: _by_function(
        integer.windows(right, left), f"products.integer_windows_{right}"
    ),
    block_quantized.PRODUCT.format("(4|8)"): lambda bits: _by_function(
        block_quantized.product(bits), f"block_quantized.block_quantized_product_{bits}"
    ),
    **{name: partial(_mixed_product, dtype) for dtype, name in mixed.PRODUCTS.items()},
    warp.PRODUCT.format("(float16|bfloat16|float32)"): lambda dtype: _by_function(
        warp.product(dtype), f"cuda.functions.{warp.FUNCTIONS[dtype]}"
    ),
    warp.FRAGMENT.format("(a|b)", "(n|t)_(float16|bfloat16|float32)"): lambda operand, way, dtype: _by_function(
        warp.fragment(operand, way, dtype),
        f"cuda.functions.ldmatrix4{'' if warp.is_deep(operand, way) else '_turned'}",
    ),
    tile.PRODUCT: lambda: _by_function(tile.blocked_product(), "small_products.blocked_product"),
    tile.INTO.format("(2|4)"): lambda n: _by_function(tile.tile_in(n), f"winograd.input_{n}"),
    tile.BACK.format("(2|4)"): lambda n: _by_function(tile.tile_out(n), f"winograd.output_{n}"),
}
"""Families of intrinsics: the pattern of the name, and the function that makes the intrinsic."""


# ------------------------------------------------------------------ calls


def descriptions(nest: Nest) -> dict[str, Nest]:
    """The descriptions of all intrinsics that a program invokes, by name: the interpreter runs them in place of
    calls."""
    names = sorted({s.intrinsic for s in statements(nest.body) if isinstance(s, Invoke)})
    return {name: find_intrinsic(name).description for name in names}


def outputs_of(call: Invoke) -> frozenset[int]:
    """The positions of the written arguments of a call."""
    description = find_intrinsic(call.intrinsic).description
    return frozenset(k for k, p in enumerate(description.params) if p in description.outputs)


def buffers_written(nest: Nest) -> set[Buffer]:
    """The buffers that a nest writes, by stores or by calls."""
    buffers = set(nest.outputs)
    for stmt in statements(nest.body):
        if isinstance(stmt, Invoke):
            outputs = (stmt.args[k] for k in outputs_of(stmt))
            buffers |= {arg.buffer for arg in outputs if isinstance(arg, BufferRegion)}
    return buffers


def sides(region: BufferRegion, rank: int) -> tuple[int, ...]:
    """The axes of a region's buffer that correspond to those of a parameter of the rank.

    Axes along which the region is one element thick are passed over, from the left, until so many are left.
    """
    extra = len(region.ranges) - rank
    kept: list[int] = []
    for k, side in enumerate(region.ranges):
        if extra > 0 and side.extent == Const(1):
            extra -= 1
        else:
            kept.append(k)
    if extra:
        raise ScheduleError(f"the region of {region.buffer.name} has more than {rank} sides")
    return tuple(kept)


def implementation(call: Invoke) -> Stmt:
    """The implementation of a call, as statements on the buffers of its arguments."""
    intrinsic = find_intrinsic(call.intrinsic)
    return placed(intrinsic.implementation, call)


def placed(nest: Nest, call: Invoke) -> Stmt:
    """The statements of a nest with its parameters replaced by the arguments of a call."""
    # Inlining of a call: local names get a prefix against capture, scalars are substituted, and accesses to a buffer
    # are offset by its region's start.
    prefix = f"{call.intrinsic}_"
    variables = {s.var for s in statements(nest.body) if isinstance(s, For)}
    variables |= {a.var for s in statements(nest.body) if isinstance(s, Block) for a in s.axes}
    body = with_names(nest.body, {v: Var(prefix + v.name) for v in variables})
    body = rename_buffers(body, {b: replace(b, name=prefix + b.name) for b in nest.allocs})
    if len(call.args) != len(nest.params):
        raise ScheduleError(f"{call.intrinsic} takes {len(nest.params)} arguments, and is given {len(call.args)}")
    regions: dict[Buffer, BufferRegion] = {}
    values: dict[Var, Expr] = {}
    for param, arg in zip(nest.params, call.args, strict=True):
        if isinstance(param, Buffer) and isinstance(arg, BufferRegion):
            regions[param] = arg
        elif isinstance(param, Var) and isinstance(arg, Expr):
            values[param] = arg
        else:
            raise ScheduleError(f"{call.intrinsic}: its argument for {param.name} is of another kind")
    body = substitute_in(body, values)

    def at(buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
        region = regions[buffer]
        starts = [side.start for side in region.ranges]
        for k, index in zip(sides(region, len(indices)), indices, strict=True):
            starts[k] = starts[k] + index
        return region.buffer, tuple(starts)

    def load(e: Expr) -> Expr | None:
        return Load(*at(e.buffer, e.indices)) if isinstance(e, Load) and e.buffer in regions else None

    def store(s: Stmt) -> Stmt | None:
        return Store(*at(s.buffer, s.indices), s.value) if isinstance(s, Store) and s.buffer in regions else None

    return mutate(map_expressions(body, load), store)
