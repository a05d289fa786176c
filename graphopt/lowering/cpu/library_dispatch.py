"""Library dispatch: matrix products in nests become calls of BLAS or of our own kernel, by prices."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import TypeAlias

from graphopt.frozen import dataclass
from graphopt.ir.constants import BITS
from graphopt.ir.dtypes import HALVES
from graphopt.kernels import host
from graphopt.kernels.product_form import BLOCKS, BYTES, FLOATS, GROUPS, block, groups, near, panel, rows
from graphopt.lowering.analysis.access_analysis import is_finished, is_longer, known_size
from graphopt.lowering.analysis.canonical_nest import Chain
from graphopt.lowering.cpu.tiled_calls import BY_LIBRARY, BY_PANELS, wanted
from graphopt.lowering.index.arithmetic import polynomial
from graphopt.lowering.intrinsics.mixed import PRODUCTS
from graphopt.lowering.loops.accumulation import factors
from graphopt.lowering.loops.expressions import Apply, Const, Expr, Load, Var, substitute, variables
from graphopt.lowering.loops.nest import Axis, Buffer, BufferRegion, Invoke, Nest, Range
from graphopt.target import CPU, ProductPrices

SMALLEST = 1 << 15
"""Multiplications below which a call of the library costs more than it gains."""
SMALL = 1 << 18
"""Multiplications up to which the library takes operands as they are."""
FEW = 16
"""Rows for which the library would arrange the other operand anew, and read it once more than a loop does."""
THIN = 4
"""Columns, or products of a sum, of which there are to be as many: of fewer, most of a tile's vectors are idle."""


@dataclass(frozen=True)
class MatrixOperand:
    """An operand: its buffer, and at which of the buffer's axes its rows and columns lie."""

    load: Load
    rows: int
    columns: int

    @property
    def is_transposed(self) -> bool:
        """Whether columns lie further apart than rows do."""
        return self.columns < self.rows

    def region(self, rows: Range, columns: Range, rest: Mapping[Var, Expr]) -> BufferRegion:
        """A part of the matrix; ``rest`` says where the other axes are."""
        ranges = [Range(substitute(i, rest)) for i in self.load.indices]
        for dim, part in ((self.rows, rows), (self.columns, columns)):
            start = ranges[dim].start
            ranges[dim] = Range(start + part.start, part.extent)
        return BufferRegion(self.load.buffer, tuple(ranges))


@dataclass(frozen=True)
class Panels:
    """A second operand in panels of neighbouring columns (``panels_of``)."""

    load: Load

    def region(self, rows: Range, columns: Range, rest: Mapping[Var, Expr]) -> BufferRegion:
        """Some columns of the matrix, of which the first starts a panel."""
        _, deep, width, *group = self.load.buffer.shape
        panels = Range(columns.start // width, (columns.extent + (width - 1)) // width)
        return BufferRegion(self.load.buffer, (panels, *(Range(Const(0), n) for n in (deep, width, *group))))


@dataclass(frozen=True)
class MadePanels(Panels):
    """The panels of a piece's columns alone, which are made for it."""

    def region(self, rows: Range, columns: Range, rest: Mapping[Var, Expr]) -> BufferRegion:
        """All of them."""
        return BufferRegion(self.load.buffer, tuple(Range(Const(0), n) for n in self.load.buffer.shape))


@dataclass(frozen=True)
class MatrixProduct:
    """``C = A @ B`` for each point of the other axes: the axes of its rows, columns and steps."""

    m: Axis
    n: Axis
    k: Axis
    a: MatrixOperand
    b: MatrixOperand | Panels
    c: MatrixOperand
    units: tuple[Axis, ...] = ()
    """Axes of one step, which the nest reduces over as well."""

    def call(
        self,
        name: str,
        target: Buffer,
        rows: Range,
        columns: Range,
        rest: Mapping[Var, Expr],
        blocks: Sequence[int] = (),
    ) -> Invoke:
        """The call of a function (``ways``) that computes some rows and columns of ``target``, in ``blocks`` of such
        sizes where it takes them."""
        values = {**rest, **{a.var: Const(0) for a in (self.m, self.n, self.k, *self.units)}}
        steps = Range(Const(0), self.k.extent)
        c = MatrixOperand(Load(target, self.c.load.indices), self.c.rows, self.c.columns).region(rows, columns, values)
        a, b = self.a.region(rows, steps, values), self.b.region(steps, columns, values)
        sizes = (rows.extent, columns.extent, self.k.extent, *map(Const, blocks))
        if self.b.load.dtype in HALVES:
            return Invoke(name, (c, a, b, *sizes))
        ways = "".join("p" if isinstance(x, Panels) else "t" if x.is_transposed else "n" for x in (self.a, self.b))
        return Invoke(f"{name}_{ways}_{target.dtype}", (c, a, b, *sizes))


def product_of(chain: Chain) -> MatrixProduct | None:
    """The product of matrices that a reduction is, where a library can compute it; None where there is none."""
    operands = factors_of(chain, FLOATS)
    if operands is None:
        return None
    accumulator, x, y, steps = operands
    x, y = (_widened(e) if accumulator.dtype == "float32" else e for e in (x, y))
    return _oriented(chain, accumulator, x, y, steps) if isinstance(x, Load) and isinstance(y, Load) else None


def _widened(factor: Expr) -> Expr:
    """The weight in half precision that becomes a factor; the factor, where it is none."""
    is_weight = isinstance(factor, Apply) and factor.fn == "cast" and factor.args[0].dtype in HALVES
    return factor.args[0] if isinstance(factor, Apply) and is_weight else factor


def factors_of(chain: Chain, dtypes: Collection[str]) -> tuple[Load, Expr, Expr, Axis] | None:
    """The element that a chain sums up, of one of the dtypes, the two factors of what is added to it, and the one axis
    of steps; None where it does something else."""
    stores = chain.stores
    if len(stores) != 1 or stores[0].buffer.dtype not in dtypes:
        return None
    accumulator = Load(stores[0].buffer, stores[0].indices)
    operands, steps = factors(accumulator, stores[0].value), [a for a in chain.reduced if a.extent != Const(1)]
    return None if operands is None or len(steps) != 1 else (accumulator, *operands, steps[0])


def _oriented(chain: Chain, accumulator: Load, x: Load, y: Load, k: Axis) -> MatrixProduct | None:
    """The product with its operands in the order in which the result is row-major."""
    for a, b in ((x, y), (y, x)):
        if a.dtype != accumulator.dtype:
            continue
        is_mixed = b.dtype != accumulator.dtype
        for m in axes_of(chain, a, b):
            for n, second in second_operands(chain, a, b, k):
                first, result = matrix(a, m, k), matrix(accumulator, m, n)
                if first is None or second is None or result is None or result.is_transposed:
                    continue
                if is_mixed and first.is_transposed:
                    continue
                units = tuple(a for a in chain.reduced if a is not k)
                return MatrixProduct(m, n, k, first, second, result, units)
    return None


def axes_of(chain: Chain, operand: Load, other: Load) -> list[Axis]:
    """The axes that only one operand has, the longest first, of equals the innermost."""
    axes = [s for s in chain.spatial if _place(operand, s.var) not in (None, -1) and _place(other, s.var) == -1]
    return sorted(axes, key=lambda axis: (_extent(axis), chain.spatial.index(axis)), reverse=True)


def second_operands(chain: Chain, a: Load, b: Load, k: Axis) -> list[tuple[Axis, MatrixOperand | Panels | None]]:
    """Candidates for the second operand, with the axis of its columns: a plain matrix, else one in panels."""
    plain: list[tuple[Axis, MatrixOperand | Panels | None]] = [(n, matrix(b, k, n)) for n in axes_of(chain, b, a)]
    return plain or [(n, Panels(b)) for n in chain.spatial if b.indices == place_of(b.buffer, k.var, n.var)]


def panels_of(k: int, n: int, dtype: str) -> tuple[Expr, ...]:
    """The shape of a matrix of so many rows and columns in panels (``in_panels``)."""
    width, group = panel(dtype), GROUPS.get(dtype, 1)
    sides = (-(-n // width), groups(k, dtype) + (dtype in BYTES), width, group)
    return tuple(map(Const, sides if group > 1 else sides[:3]))


def place_of(buffer: Buffer, row: Expr, column: Expr) -> tuple[Expr, ...]:
    """Indices of a matrix's element in panels; none for buffers of another rank."""
    group = GROUPS.get(buffer.dtype, 1)
    if len(buffer.shape) != (4 if group > 1 else 3):
        return ()
    width = buffer.shape[2]
    if group > 1:
        return column // width, row // group, column % width, row % group
    return column // width, row, column % width


def _extent(axis: Axis) -> int:
    size = known_size([axis.extent])
    return 1 << 40 if size is None else size


def _place(load: Load, var: Var) -> int | None:
    """At which axis of the buffer a loop steps from one element to the next; -1 where it steps nowhere, None where it
    is not as plain as that."""
    places = [k for k, index in enumerate(load.indices) if var in variables(index)]
    if not places:
        return -1
    parts = polynomial(load.indices[places[0]]).split(var)
    return places[0] if len(places) == 1 and parts is not None and parts[0].number == 1 else None


def matrix(load: Load, rows: Axis, columns: Axis) -> MatrixOperand | None:
    """The load as an element of a matrix, either its rows or its columns of elements side by side."""
    places = [_place(load, a.var) for a in (rows, columns)]
    if None in places or -1 in places or places[0] == places[1]:
        return None
    r, c = (p for p in places if p is not None)
    strides = load.buffer.row_major
    return MatrixOperand(load, r, c) if strides[max(r, c)] == Const(1) else None


def called_product(chains: Sequence[Chain], nest: Nest, large: bool = True) -> MatrixProduct | None:
    """The product that the chains of a nest are, with what is done to its elements, where a call may compute it;
    ``large``: where it is worth one."""
    product = product_of(chains[0]) if is_finished(chains, nest) else None
    return None if product is None or (large and not is_worth_a_call(product)) else product


def panels_made(maker: Chain, chain: Chain, nest: Nest) -> MatrixProduct | None:
    """The product that a chain is, where the block before it makes the panels of its second operand, and one of them
    stays in the second cache, as the first operand does, which is read anew for each; else None."""
    product = product_of(chain)
    if product is None or not isinstance(product.b, Panels) or maker.block.init is not None or len(maker.stores) != 1:
        return None
    (store,), buffer = maker.stores, product.b.load.buffer
    is_each = store.indices == tuple(a.var for a in maker.axes) and buffer.shape == tuple(a.extent for a in maker.axes)
    rows = [a.extent for a in chain.spatial if a is not product.n]  # of all matrices, where they will be one
    read = [known_size(buffer.shape[1:]), known_size([*rows, product.k.extent]) or 0]
    is_near = all(size is not None and size <= near(buffer.dtype) for size in read)
    return product if is_each and is_near and store.buffer == buffer and buffer in nest.allocs else None


def is_worth_a_call(product: MatrixProduct) -> bool:
    """Whether a call is faster than a loop of our own; where a size is not known, it is taken to be large."""
    if not isinstance(product.b, MatrixOperand):
        return True
    if product.b.load.dtype != product.c.load.dtype:  # such weights are read in pairs alone
        return False
    sizes = [_extent(a) for a in (product.m, product.n, product.k)]
    return prod(sizes) >= SMALLEST and min(sizes[2], sizes[1]) >= THIN and sizes[0] > FEW


# ------------------------------------------------------------------ ours or the library's


LibraryPrices: TypeAlias = Mapping[str, ProductPrices]
"""What functions that compute products take, by their names."""


def fastest(product: MatrixProduct, prices: LibraryPrices = CPU.prices.products) -> str:
    """The function that computes a product fastest: ``gemm`` of the library, or our own ``product``."""
    seconds = ways(product, prices)
    return min(seconds, key=seconds.__getitem__)


def ways(product: MatrixProduct, prices: LibraryPrices = CPU.prices.products) -> dict[str, float]:
    """Modelled seconds that one product of matrices takes, by function that can compute it; what is not known of its
    sizes is taken to be moderate, and a price that is not among ``prices`` to be that of the target ``cpu``."""
    prices = {**CPU.prices.products, **prices}
    m, n, k = (OPEN if (size := known_size([a.extent])) is None else size for a in (product.m, product.n, product.k))
    if not isinstance(product.b, MatrixOperand):
        name = PRODUCTS.get(product.b.load.dtype, "product")
        return {name: _seconds(prices["product"], m, n, k, product.c.load.dtype, m * k)}
    moved = (m * k if n > 2 * panel(product.c.load.dtype) else 0) + k * n * -(-m // _height(product.c.load.dtype))
    others = 0 if m * n * k <= SMALL and not product.b.is_transposed else m * k + k * n
    return {
        "product": _seconds(prices["product"], m, n, k, product.c.load.dtype, moved),
        "gemm": _seconds(prices["gemm"], m, n, k, product.c.load.dtype, others),
    }


def _seconds(prices: ProductPrices, m: int, n: int, k: int, dtype: str, moved: int) -> float:
    """The time of a function that arranges so many elements of operands anew."""
    width = BITS[dtype] / BITS["float32"]
    return prices.call + width * (prices.step * m * n * k + prices.moved[k * n > near(dtype)] * moved)


def _height(dtype: str) -> int:
    return block(dtype, rows(), host.lanes(dtype))[1]


def blocks(product: MatrixProduct, name: str) -> dict[str, list[int]]:
    """Candidates for the steps and rows of a function's block, by ``BLOCKS``, beside 0, which is as many as fit caches:
    parts that make more than one block; nothing where the function has no such sizes."""
    if name != "product":
        return {}
    dtype = product.c.load.dtype
    most = block(dtype, rows(), host.lanes(dtype))
    extents = (known_size([a.extent]) for a in (product.k, product.m))
    return {
        block: [n * part // PARTS for part in range(1, PARTS) if size is None or n * part // PARTS < size]
        for block, n, size in zip(BLOCKS, most, extents, strict=True)
    }


# ------------------------------------------------------------------ pieces

ROWS, COLUMNS = 48, 192
"""The least rows and columns of a piece: of fewer, the operands are read, and arranged, too often."""
OPEN = 128
"""Rows of a piece where it is not known how many there are; what is not known of a product's sizes is taken for it."""
READ = 16
"""To read a weight from memory takes as long as so many multiplications by it."""
OPEN_BY_LIBRARY = 256
"""The same of the library, which arranges the operand that pieces share anew in each."""
STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
"""Multiples of a vector, or a panel, that pieces may be tried of."""
PARTS = 4
"""Of what fits a cache, quarters are tried."""
LIBRARY_STEP = 16
"""Pieces for the library are of a multiple of so many rows or columns: a vector of the widest."""


def pieces(product: MatrixProduct) -> dict[Axis, int]:
    """The number of rows and columns of a product in a piece."""
    if not isinstance(product.b, MatrixOperand):
        return _panel_pieces(product)
    split = product.n if is_longer(product.n, product.m) else product.m
    extent = known_size([split.extent])
    if extent is None:
        return {split: OPEN_BY_LIBRARY}
    count = wanted(known_size([a.extent for a in (product.m, product.n, product.k)]), BY_LIBRARY)
    return {split: max(-(-extent // count // LIBRARY_STEP) * LIBRARY_STEP, LIBRARY_STEP)}


def near_pieces(product: MatrixProduct) -> dict[Axis, int]:
    """The number of columns in a piece whose panels are made for it: as many as stay in the second cache, and all rows,
    so that none is made twice."""
    buffer = product.b.load.buffer
    many = near(buffer.dtype) // max(known_size(buffer.shape[1:]) or 1, 1)
    return {product.n: max(many, 1) * panel(buffer.dtype)}


def steps(product: MatrixProduct, axis: Axis) -> list[int]:
    """Candidates for the rows or columns of a piece, beside those that ``pieces`` gives."""
    extent = known_size([axis.extent])
    is_panelled = axis is product.n and not isinstance(product.b, MatrixOperand)
    least = panel(product.c.load.buffer.dtype) if is_panelled else LIBRARY_STEP
    return [n * least for n in STEPS if extent is None or n * least < extent + least]


def _panel_pieces(product: MatrixProduct) -> dict[Axis, int]:
    m, (n, k) = known_size([product.m.extent]), (known_size([a.extent]) or 1 for a in (product.n, product.k))
    dtype = product.c.load.buffer.dtype
    width = panel(dtype)
    many = wanted(n * k * (OPEN if m is None else max(m, READ)), BY_PANELS)
    # each piece of rows reads all weights, which costs where they come from memory, unless it is as tall as a block
    most = 1 if m is None else m // ROWS if n * k <= near(dtype) else -(-m // _height(dtype))
    down = max(min(many, most), 1)
    across = max(min(-(-many // down), n // COLUMNS), 1)
    if m is not None and down * across < many:
        down = max(min(-(-many // across), m // ROWS), down)
    count = OPEN if m is None else -(-m // down)
    across = max(across, -(-count * n // near(dtype)))
    columns = -(-n // across // width) * width
    return {product.m: count, product.n: columns}
