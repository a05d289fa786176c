"""Small nests to tune."""

from __future__ import annotations

from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script import read


def product(m: int = 24, n: int = 48, k: int = 20) -> Nest:
    """A naive product of matrices."""
    return read(f"""
@program
def product(a: Buffer[({m}, {k}), "float32"], b: Buffer[({k}, {n}), "float32"], c: Buffer[({m}, {n}), "float32"]):
    for i0, i1, i2 in grid({m}, {n}, {k}):
        with block("c"):
            v0, v1, v2 = axis.remap("SSR", [i0, i1, i2])
            with init():
                c[v0, v1] = 0.0
            c[v0, v1] = c[v0, v1] + a[v0, v2] * b[v2, v1]
""")


def dense(rows: str | int = 9) -> Nest:
    """A product with a bias and a floor, of an operand that something is done to first."""
    size = ", n: size" if rows == "n" else ""
    m = '"n"' if rows == "n" else rows
    return read(f"""
@program
def dense(a: Buffer[({m}, 20), "float32"], b: Buffer[(20, 40), "float32"], d: Buffer[(40,), "float32"],
          y: Buffer[({m}, 40), "float32"]{size}):
    twice = alloc(({m}, 20), "float32")
    c = alloc(({m}, 40), "float32")
    for i0, i1 in grid({rows}, 20):
        with block("twice"):
            v0, v1 = axis.remap("SS", [i0, i1])
            twice[v0, v1] = a[v0, v1] * 2.0
    for i2, i3, i4 in grid({rows}, 40, 20):
        with block("c"):
            v2, v3, v4 = axis.remap("SSR", [i2, i3, i4])
            with init():
                c[v2, v3] = 0.0
            c[v2, v3] = c[v2, v3] + twice[v2, v4] * b[v4, v3]
    for i5, i6 in grid({rows}, 40):
        with block("y"):
            v5, v6 = axis.remap("SS", [i5, i6])
            y[v5, v6] = max(c[v5, v6] + d[v6], 0.0)
""")


def largest() -> Nest:
    """Windows of an image in blocks of channels, the largest of each."""
    return read("""
@program
def largest(x: Buffer[(1, 2, 9, 9, 16), "float32"], y: Buffer[(1, 2, 4, 4, 16), "float32"]):
    for i0, i1, i2, i3, i4, i5, i6 in grid(1, 2, 4, 4, 16, 3, 3):
        with block("y"):
            v0, v1, v2, v3, v4, v5, v6 = axis.remap("SSSSSRR", [i0, i1, i2, i3, i4, i5, i6])
            with init():
                y[v0, v1, v2, v3, v4] = -inf
            y[v0, v1, v2, v3, v4] = max(y[v0, v1, v2, v3, v4], x[v0, v1, v2 * 2 + v5, v3 * 2 + v6, v4])
""")


def convolution() -> Nest:
    """A convolution with a floor, of an image that is padded first."""
    return read("""
@program
def convolution(x: Buffer[(1, 3, 7, 21), "float32"], w: Buffer[(4, 3, 3, 3), "float32"],
                y: Buffer[(1, 4, 7, 21), "float32"]):
    padded = alloc((1, 3, 9, 23), "float32")
    c = alloc((1, 4, 7, 21), "float32")
    for i0, i1, i2, i3 in grid(1, 3, 9, 23):
        with block("padded"):
            v0, v1, v2, v3 = axis.remap("SSSS", [i0, i1, i2, i3])
            padded[v0, v1, v2, v3] = select(
                v2 - 1 >= 0 and v2 - 1 < 7 and v3 - 1 >= 0 and v3 - 1 < 21, x[v0, v1, v2 - 1, v3 - 1], 0.0)
    for i4, i5, i6, i7, i8, i9, i10 in grid(1, 4, 7, 21, 3, 3, 3):
        with block("c"):
            v4, v5, v6, v7, v8, v9, v10 = axis.remap("SSSSRRR", [i4, i5, i6, i7, i8, i9, i10])
            with init():
                c[v4, v5, v6, v7] = 0.0
            c[v4, v5, v6, v7] = c[v4, v5, v6, v7] + padded[v4, v8, v6 + v9, v7 + v10] * w[v5, v8, v9, v10]
    for i11, i12, i13, i14 in grid(1, 4, 7, 21):
        with block("y"):
            v11, v12, v13, v14 = axis.remap("SSSS", [i11, i12, i13, i14])
            y[v11, v12, v13, v14] = max(c[v11, v12, v13, v14], 0.0)
""")


def softmax_of(rows: int, length: int) -> Nest:
    """The softmax of some rows."""
    return read(f"""
@program
def softmax(x: Buffer[({rows}, {length}), "float32"], y: Buffer[({rows}, {length}), "float32"]):
    largest = alloc(({rows},), "float32")
    e = alloc(({rows}, {length}), "float32")
    total = alloc(({rows},), "float32")
    for i0, i1 in grid({rows}, {length}):
        with block("largest"):
            v0, v1 = axis.remap("SR", [i0, i1])
            with init():
                largest[v0] = -inf
            largest[v0] = max(largest[v0], x[v0, v1])
    for i2, i3 in grid({rows}, {length}):
        with block("e"):
            v2, v3 = axis.remap("SS", [i2, i3])
            e[v2, v3] = exp(x[v2, v3] - largest[v2])
    for i4, i5 in grid({rows}, {length}):
        with block("total"):
            v4, v5 = axis.remap("SR", [i4, i5])
            with init():
                total[v4] = 0.0
            total[v4] = total[v4] + e[v4, v5]
    for i6, i7 in grid({rows}, {length}):
        with block("y"):
            v6, v7 = axis.remap("SS", [i6, i7])
            y[v6, v7] = e[v6, v7] / total[v6]
""")


def mean() -> Nest:
    """The mean of each of eight channels, where what follows the sum has one element for each."""
    return read("""
@program
def mean(x: Buffer[(1, 8, 5, 5), "float32"], y: Buffer[(1, 8, 1, 1), "float32"]):
    total = alloc((1, 8, 1, 1), "float32")
    for i0, i1, i2, i3, i4, i5 in grid(1, 8, 1, 1, 5, 5):
        with block("total"):
            v0, v1, v2, v3, v4, v5 = axis.remap("SSSSRR", [i0, i1, i2, i3, i4, i5])
            with init():
                total[v0, v1, v2, v3] = 0.0
            total[v0, v1, v2, v3] = total[v0, v1, v2, v3] + max(x[0, v1, v4, v5], 0.0)
    for i6, i7, i8, i9 in grid(1, 8, 1, 1):
        with block("y"):
            v6, v7, v8, v9 = axis.remap("SSSS", [i6, i7, i8, i9])
            y[v6, v7, v8, v9] = total[v6, v7, v8, v9] / 25.0
""")


def copy() -> Nest:
    """What no space but that of elements has anything for."""
    return read("""
@program
def copy(x: Buffer[(4,), "float32"], y: Buffer[(4,), "float32"]):
    for i0 in serial(4):
        with block("y"):
            v0 = axis.remap("S", [i0])
            y[v0] = x[v0]
""")
