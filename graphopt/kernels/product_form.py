"""Blocked matrix multiply: kinds of operands, packing, block sizes, and the loops specialized for them.

One scheme serves all kinds (after Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008):
columns of the second operand lie in panels, rows of the first are packed for a block that stays in the caches, and
tiles of results stay in registers. A kind says what operands and sums are, and how many neighbouring products of a sum
one lane of a vector does (a group): one of floats, and of float32 by weights in float16, which are made float32 as they
are read; two of float32 by weights in bfloat16, a word of which has both; four of bytes, for which processors have an
instruction that takes an operand without signs and one with signs.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from graphopt.frozen import dataclass
from graphopt.ir.dtypes import HALVES
from graphopt.kernels import host
from graphopt.runtime import cpu

FLOATS: Final = ("float32", "float64")
BFLOAT: Final = "bfloat16"
BYTES: Final = ("uint8", "int8")
GROUPS: Final = {BFLOAT: 2, **dict.fromkeys(BYTES, 4)}
"""Products of a sum that one lane does, by the dtype of the second operand, where that is more than one."""
WAYS: Final = ("amx", "dot", "plain")
"""How bytes are multiplied: by registers of matrices, by the instruction for four products, or by those that all
processors have."""
PAIR: Final = GROUPS[BFLOAT]
QUAD: Final = GROUPS["int8"]
NIBBLE: Final = 4
"""Bits of weights of which two make a byte."""
IN_WORD: Final = 2 * QUAD
"""Weights of 4 bits in a word: two quads, the first as the low nibbles of bytes, the second as the high ones."""
PANELS, PLAIN, TRANSPOSED, WINDOWS = range(4)
"""How the second operand lies: in panels, by rows, by columns, or as an image of quads of channels, over which windows
slide."""
BLOCKS = ("depth", "height")
"""What a call says beyond sizes: how many steps of the sums, and rows, make a block at most; 0 is what fits caches."""
_LINE = 64
"""Bytes of a line of a cache."""
_EVEN = 16
"""Quads of a sum are done so many at a time, but for the last."""
THIN: Final = 4
"""Rows at most for which panels are read from end to end, once."""
BESIDE: Final = 4
"""Panels at most that such rows are multiplied by at once: a processor reads ahead in each of several series of
addresses, and gets more of several than of one."""


def sums_of(dtype: str) -> str:
    """The dtype of sums and results, by that of the second operand."""
    return "float32" if dtype in HALVES else "int32" if dtype in BYTES else dtype


@dataclass(frozen=True, slots=True)
class Kind:
    """The dtypes of operands, as they are read, and of sums; the products of a group; and of bytes, whether those
    of the second operand have signs, whether an instruction multiplies a group at once, and whether there are registers
    of matrices."""

    left: str
    right: str
    sums: str
    group: int
    is_signed: bool = False
    is_dot: bool = False
    has_matrices: bool = False

    @property
    def is_mixed(self) -> bool:
        """Whether the second operand is in half precision."""
        return self.left != self.right


KINDS: Final[Mapping[str, Kind]] = {
    **{dtype: Kind(dtype, dtype, dtype, 1) for dtype in FLOATS},
    **{dtype: Kind("float32", "uint16", "float32", GROUPS.get(dtype, 1)) for dtype in HALVES},
    **{
        f"{b}_{w}": Kind("uint8", "uint8", "int32", QUAD, b == "int8", w != "plain", w == "amx")
        for b in BYTES
        for w in WAYS
    },
}
"""The kinds of products, by the dtype of their second operand and how bytes are multiplied."""


FIXED: Final[Mapping[str, Mapping[str, int]]] = {
    **{dtype: {} for dtype in FLOATS},
    **{dtype: {"step": 1, "form": PANELS, "most_depth": 0, "most_height": 0} for dtype in HALVES},
    **{dtype: {"step": 1, "most_depth": 0, "most_height": 0} for dtype in BYTES},
}
"""Parameters of the loops that are always the same, by the dtype of the second operand."""


def instruction() -> str:
    """Whether the processor multiplies matrices of bytes (``amx``), quads in vectors of the host's lanes (``dot``), or
    neither (``plain``)."""
    features, lanes = cpu.features(), host.lanes("int32")
    wanted = "avx512_vnni" if lanes == 16 else "avx_vnni"
    if lanes == 16 and {wanted, "amx_int8", "amx_tile"} <= features:
        return "amx"
    return "dot" if lanes > 4 and wanted in features else "plain"


def name(dtype: str) -> str:
    """The name of the product in kernels of this processor, by the dtype of its second operand."""
    kind = f"{dtype}_{instruction()}" if dtype in BYTES else dtype
    return f"graphopt_product_{kind}_{rows()}x{host.lanes(sums_of(dtype))}"


def shift(left: str, right: str) -> int:
    """The number added to bytes of the first operand, so that one of the two has signs."""
    return 0 if left != right else 128 if left == "int8" else -128


# ------------------------------------------------------------------ panels


def panel(dtype: str) -> int:
    """The number of columns in a panel: two vectors of sums."""
    return 2 * host.lanes(sums_of(dtype))


def groups(depth: int, dtype: str) -> int:
    """The number of groups in so many products of a sum."""
    return -(-depth // GROUPS.get(dtype, 1))


def in_panels(b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A matrix ``[k, n]`` in panels ``[ceil(n / w), k, w]`` of neighbouring columns; missing elements are zeros.

    Where lanes do groups of ``g`` products, panels are ``[ceil(n / w), ceil(k / g), w, g]``. Behind those of bytes
    stands one more group: the sums of the columns, as the bytes of an int32 each.
    """
    (k, n), dtype = b.shape, b.dtype.name
    w, group, steps = panel(dtype), GROUPS.get(dtype, 1), groups(k, dtype)
    panels = -(-n // w)
    filled = np.zeros((steps * group, panels * w), b.dtype)
    filled[:k, :n] = b
    laid = np.empty((panels, steps + (dtype in BYTES), w, group), b.dtype)
    laid[:, :steps] = filled.reshape(steps, group, panels, w).transpose(2, 0, 3, 1)
    if dtype in BYTES:
        sums = np.ascontiguousarray(filled.sum(0, dtype=np.int64).astype("<i4"))
        laid[:, steps] = sums.view(b.dtype).reshape(panels, w, group)
    return laid if group > 1 else laid[..., 0]


# ------------------------------------------------------------------ blocks


def rows() -> int:
    """The largest number of rows of a tile: its sums, two vectors a row, take three quarters of the registers."""
    return host.registers() * 3 // 8


def depth(step: int) -> int:
    """The number of steps in a block of the sums, of so many bytes of a panel each: half a panel's steps take three
    quarters of the first cache."""
    return cpu.cache_bytes(1) * 3 // 4 // step


def height(row: int, rows: int) -> int:
    """The number of rows, of so many bytes each, between two readings of the second operand: they take a quarter of the
    second cache, and are a multiple of ``rows``."""
    return max(cpu.cache_bytes(2) // 4 // row // rows, 1) * rows


def stride(row: int) -> int:
    """The distance between packed rows of so many bytes: an odd number of lines, so that they do not meet in caches."""
    return (row // _LINE + 1 | 1) * _LINE


def near(dtype: str) -> int:
    """Elements of which it is taken that they stay in the second cache until they are read again: half of it."""
    return cpu.cache_bytes(2) // 2 // np.dtype(dtype).itemsize


def block(dtype: str, rows: int, lanes: int) -> tuple[int, int]:
    """The number of steps and rows of floats in a block that fits the caches."""
    size = np.dtype(dtype).itemsize
    deep = depth(lanes * size)
    return deep, height(deep * size, rows)


def beside(rows: int, most: int) -> int:
    """The number of panels by which so many rows are multiplied at once: their sums take no more registers than those
    of the largest tile, of so many rows and one panel."""
    return max(min(BESIDE, most // rows), 1)


# ------------------------------------------------------------------ loops


def source(name: str, rows: int, lanes: int) -> str:
    """The loops of a kind of products, for tiles of so many rows of two vectors of so many lanes."""
    kind = KINDS[name]
    if kind.group == QUAD:
        deep = depth(2 * lanes * QUAD) // _EVEN * _EVEN * QUAD
        tall, apart = height(deep, rows), stride(deep)
        left, right = tall * apart + 4 * lanes, 2 * lanes * (deep + QUAD * lanes)
    else:
        deep, tall = block(kind.sums, rows, lanes)
        deep, apart = deep // kind.group * kind.group, 0
        left, right = deep * tall + lanes * (rows + 2 * lanes), (deep + lanes) * 2 * lanes
    constants: dict[str, int | str] = {
        "KIND": name, "GROUP": kind.group, "SIGNED": int(kind.is_signed), "OTHER": int(not kind.is_signed),
        "DOT": int(kind.is_dot), "LANES": lanes,
        "BYTES": QUAD * lanes, "PANEL": 2 * lanes, "SLICE": 2 * lanes * kind.group, "ROWS": rows, "DEPTH": deep,
        "HEIGHT": tall, "STRIDE": apart, "LEFT": left, "RIGHT": right, "WIDE": 4 if kind.is_mixed else 2,
        "FEW": 0 if kind.group == QUAD else THIN,
    }  # fmt: skip
    text = (Path(__file__).parent / "product_loops.py").read_text(encoding="utf-8")
    return specialized(text, {**constants, **FIXED[name.partition("_")[0]]})


def specialized(text: str, constants: Mapping[str, int | str]) -> str:
    """A module's source with constants put in for those that it gives names to, and for parameters of its function
    ``kernel``, and without what they leave unused: branches whose condition they decide, and parameters."""
    tree = ast.parse(text)
    kernel = next(s for s in tree.body if isinstance(s, ast.FunctionDef) and s.name == "kernel")
    parameters = {p.arg for p in kernel.args.args}
    fixed = [n for n in constants if n in parameters]
    applied = {n: number for n, number in constants.items() if n not in parameters}
    tree.body = [_Specialized(constants if s is kernel else applied).visit(s) for s in tree.body]
    used = {e.id for s in kernel.body for e in ast.walk(s) if isinstance(e, ast.Name)}
    kernel.args.args = [p for p in kernel.args.args if p.arg in used and p.arg not in fixed]
    kernel.body[:0] = [s for n in fixed if n in used for s in ast.parse(f"{n} = {constants[n]!r}").body]
    return ast.unparse(tree)


class _Specialized(ast.NodeTransformer):
    """Puts in constants, and folds what they decide."""

    def __init__(self, constants: Mapping[str, int | str]) -> None:
        self.constants = constants

    def decided(self, test: ast.expr) -> bool | None:
        """The value of a condition; None where constants do not decide it."""
        if not all(e.id in self.constants for e in ast.walk(test) if isinstance(e, ast.Name)):
            return None
        return bool(eval(compile(ast.Expression(test), "condition", "eval"), {}, dict(self.constants)))

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """A name that is given a constant."""
        target = node.targets[0]
        if node.col_offset == 0 and isinstance(target, ast.Name) and target.id in self.constants:
            node.value = ast.copy_location(ast.Constant(self.constants[target.id]), node)
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        """A branch, or what is left of it."""
        decided = self.decided(node.test)
        self.generic_visit(node)
        return node if decided is None else node.body if decided else node.orelse

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """A conditional expression, or what is left of it."""
        decided = self.decided(node.test)
        self.generic_visit(node)
        return node if decided is None else node.body if decided else node.orelse
