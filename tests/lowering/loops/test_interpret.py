"""The interpreter computes what numpy does, and complains of what leaves its bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphopt.errors import ExecutionError
from graphopt.ir.text.elements import numpy_dtype
from graphopt.lowering.loops.expressions import FLOATS, FUNCTIONS, Const, Expr, Load, Var, apply
from graphopt.lowering.loops.interpret import interpret
from graphopt.lowering.loops.nest import Buffer, For, Nest, Store
from graphopt.lowering.loops.script import read

Array = np.ndarray[Any, Any]
FLOAT = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, 7.0, 1e-3, 100.0, math.inf, -math.inf, math.nan, 0.3, -0.7, 2.0]
)
INTEGER = np.array([0, 1, 2, 3, 7, 100, 127, 128, 200, 255, -1, -2, -7, -100, -128, 5])
UFUNCS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "floordiv": np.floor_divide,
    "mod": np.remainder,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "fmin": np.fmin,
    "fmax": np.fmax,
}
ON_FLOATS: dict[str, Callable[..., Any]] = {
    **UFUNCS,
    "div": np.divide,
    "fmod": np.fmod,
    "pow": np.power,
    "atan2": np.arctan2,
    "copysign": np.copysign,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "log": np.log,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": np.vectorize(math.erf),
    **{fn: getattr(np, fn) for fn in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{fn: getattr(np, fn.replace("a", "arc", 1)) for fn in ("asin", "acos", "atan", "asinh", "acosh", "atanh")},
    "fma": lambda a, b, c: a * b + c,
}
ON_INTEGERS: dict[str, Callable[..., Any]] = {
    **UFUNCS,
    "div": lambda a, b: np.where(b == 0, 0, np.trunc(a / np.where(b == 0, 1, b))),
    "fmod": np.fmod,
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
    "invert": np.invert,
    "fma": lambda a, b, c: a * b + c,
    **dict.fromkeys(["floor", "ceil", "trunc", "round"], np.positive),
}
LOGICAL = {"and": np.logical_and, "or": np.logical_or, "not": np.logical_not}
N = 64


def drawn(dtype: str, seed: int) -> Array:
    """Values of the dtype, special ones among them."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.random(N) < 0.5
    values = rng.choice(FLOAT if dtype in FLOATS else INTEGER, N)
    return values.astype(numpy_dtype(dtype))


def pointwise(value: Callable[..., Expr], dtypes: list[str], result: str) -> Nest:
    """A program that computes an expression of the elements of arrays."""
    i = Var("i")
    inputs = [Buffer(f"A{k}", (Const(N),), dtype) for k, dtype in enumerate(dtypes)]
    output = Buffer("C", (Const(N),), result)
    store = Store(output, (i,), value(*(Load(b, (i,)) for b in inputs)))
    return Nest("f", (*inputs, output), For(i, Const(N), store))


def run(nest: Nest, *inputs: Array) -> Array:
    output = np.empty(N, numpy_dtype(nest.buffers[-1].dtype))
    interpret(nest, [*inputs, output])
    return output


def same(got: Array, want: Array) -> None:
    assert got.dtype == want.dtype
    if want.dtype == numpy_dtype("bfloat16"):
        got, want = got.astype("float64"), want.astype("float64")
    np.testing.assert_array_equal(got, want)


EXACT = ("add", "sub", "mul", "min", "max", "fmin", "fmax", "floordiv", "mod", "neg", "abs")


@pytest.mark.parametrize("dtype", sorted(FLOATS))
@pytest.mark.parametrize("fn", sorted(ON_FLOATS))
def test_functions_of_floats_are_numpys(fn: str, dtype: str) -> None:
    arrays = [drawn(dtype, k) for k in range(FUNCTIONS[fn])]
    result = apply(fn, *(Load(Buffer("x", (Const(1),), dtype), (Const(0),)) for _ in arrays)).dtype
    nest = pointwise(lambda *e: apply(fn, *e), [dtype] * len(arrays), result)
    with np.errstate(all="ignore"):
        wide = arrays if fn in EXACT else [a.astype("float64") for a in arrays]
        want = ON_FLOATS[fn](*wide).astype(numpy_dtype(result))
    if fn == "fma" and dtype == "float64":
        return  # numpy has none to compare with
    got = run(nest, *arrays)
    if fn == "pow" and dtype == "float64":  # of arrays, numpy's is one unit off here and there
        np.testing.assert_allclose(got, want, rtol=1e-15)
    else:
        same(got, want)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint64"])
@pytest.mark.parametrize("fn", sorted(ON_INTEGERS))
def test_functions_of_integers_wrap_around_as_numpys(fn: str, dtype: str) -> None:
    arrays = [drawn(dtype, k) for k in range(FUNCTIONS[fn])]
    result = apply(fn, *(Load(Buffer("x", (Const(1),), dtype), (Const(0),)) for _ in arrays)).dtype
    nest = pointwise(lambda *e: apply(fn, *e), [dtype] * len(arrays), result)
    if fn == "div" and dtype == "uint64":
        arrays = [a % 1000 for a in arrays]  # numpy's quotient goes through float64
    with np.errstate(all="ignore"):
        want = np.asarray(ON_INTEGERS[fn](*arrays)).astype(numpy_dtype(result))
    same(run(nest, *arrays), want)


@pytest.mark.parametrize("fn", sorted(LOGICAL))
def test_logic_is_numpys(fn: str) -> None:
    arrays = [drawn("bool", k) for k in range(FUNCTIONS[fn])]
    same(run(pointwise(lambda *e: apply(fn, *e), ["bool"] * len(arrays), "bool"), *arrays), LOGICAL[fn](*arrays))


def test_every_function_is_tested_here() -> None:
    elsewhere = {"cast", "saturate", "bits", "select", "shl", "shr"}
    assert {*ON_FLOATS, *ON_INTEGERS, *LOGICAL, *elsewhere} == set(FUNCTIONS)


@pytest.mark.parametrize("after", ["bool", "int8", "uint8", "int64", "float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("before", ["bool", "int8", "uint64", "int64", "float16", "bfloat16", "float32"])
def test_casts_are_numpys(before: str, after: str) -> None:
    array = drawn(before, 0)
    if after not in FLOATS and after != "bool":  # beyond a range, C says nothing of what comes out
        array = np.where(np.isfinite(array.astype("float64")), array, numpy_dtype(before).type(3)).astype(array.dtype)
        array = np.clip(array.astype("float64"), 0 if after == "uint8" else -100, 100).astype(array.dtype)
    nest = pointwise(lambda e: apply("cast", e, dtype=after), [before], after)
    with np.errstate(over="ignore"):
        same(run(nest, array), array.astype(numpy_dtype(after)))


def test_a_cast_of_integers_wraps_around() -> None:
    array = np.resize(np.array([-(2**63), 2**63 - 1, 300, -300]), N)
    same(run(pointwise(lambda e: apply("cast", e, dtype="int8"), ["int64"], "int8"), array), array.astype("int8"))


def test_saturation_clips_to_the_range() -> None:
    array = np.resize(np.array([-1e9, 1e9, math.inf, -math.inf, 3.7, -3.7, math.nan, 0], "float32"), N)
    got = run(pointwise(lambda e: apply("saturate", e, dtype="int8"), ["float32"], "int8"), array)
    assert got[:8].tolist() == [-128, 127, 127, -128, 3, -3, 0, 0]


def test_bits_are_kept() -> None:
    array = drawn("bfloat16", 0)
    got = run(pointwise(lambda e: apply("bits", e, dtype="uint16"), ["bfloat16"], "uint16"), array)
    same(got, array.view("uint16"))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64"])
def test_shifts_beyond_the_width_leave_nothing(dtype: str) -> None:
    array, by = drawn(dtype, 0), (np.arange(N) % 70).astype(dtype)
    left = run(pointwise(lambda a, n: apply("shl", a, n), [dtype, dtype], dtype), array, by)
    right = run(pointwise(lambda a, n: apply("shr", a, n), [dtype, dtype], dtype), array, by)
    same(left, np.left_shift(array, by))
    same(right, np.right_shift(array, by))


def test_a_fused_multiply_add_rounds_once() -> None:
    a = 1 + 2.0**-30
    arrays = [np.full(N, x) for x in (a, a, -1.0)]
    got = run(pointwise(lambda *e: apply("fma", *e), ["float64"] * 3, "float64"), *arrays)
    assert got[0] == 2.0**-29 + 2.0**-60  # a * a has the bit 2**-60, which a double beside 1 has not
    narrow = [np.full(N, x, "float32") for x in (1 + 2.0**-12, 1 + 2.0**-12, 2.0**-60)]
    got = run(pointwise(lambda *e: apply("fma", *e), ["float32"] * 3, "float32"), *narrow)
    assert got[0] == np.float32(1 + 2.0**-11 + 2.0**-23)  # just above the middle of two floats, seen in one rounding


MM_RELU = """
def mm_relu(A: Buffer[("n", "n"), "float32"], B: Buffer[("n", "n"), "float32"], C: Buffer[("n", "n"), "float32"],
            n: size):
    Y = alloc(("n", "n"), "float32")
    for i, j, k in grid(n, n, n):
        with block("Y"):
            vi, vj, vk = axis.remap("SSR", [i, j, k])
            with init():
                Y[vi, vj] = 0.0
            Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
    for i, j in grid(n, n):
        with block("C"):
            vi, vj = axis.remap("SS", [i, j])
            C[vi, vj] = max(Y[vi, vj], 0.0)
"""


def test_a_product_and_relu() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 9, (2, 7, 7)).astype("float32")
    c = np.empty((7, 7), "float32")
    interpret(read(MM_RELU), {"A": a, "B": b, "C": c})
    same(c, np.maximum(a @ b, 0))


def test_a_product_is_wrong_where_its_sum_never_starts() -> None:
    text = MM_RELU.replace("            with init():\n                Y[vi, vj] = 0.0\n", "")
    a = np.ones((3, 3), "float32")
    c = np.empty((3, 3), "float32")
    interpret(read(text), [a, a, c])
    assert np.isnan(c).all()


def one(line: str, setting: str = "", n: int = 4) -> Array:
    """What a line computes within a loop over i < 4, from A = [0, 1, 2, 3]."""
    params = 'A: Buffer[(4,), "float32"], I: Buffer[(4,), "int64"], C: Buffer[(4,), "float32"]'
    nest = read(f"def f({params}):\n{setting}  for i in serial({n}):\n    {line}\n")
    c = np.full(4, -1, "float32")
    interpret(nest, [np.arange(4, dtype="float32"), np.array([3, 2, 4, 0]), c])
    return c


def test_a_select_loads_only_what_it_takes() -> None:
    assert one("C[i] = select(i > 0, A[i - 1], 9.0)").tolist() == [9, 0, 1, 2]
    with pytest.raises(IndexError, match=r"A\[-1\] lies outside of the shape \[4\]"):
        one("C[i] = min(A[i - 1], 9.0)")


def test_what_lies_outside_is_named() -> None:
    with pytest.raises(IndexError, match=r"A\[4\] lies outside of the shape \[4\]"):
        one("C[i] = A[I[i]]")
    with pytest.raises(IndexError, match=r"C\[4\] lies outside of the shape \[4\]"):
        one("C[i + 1] = A[i]")
    with pytest.raises(IndexError, match="block C: the axis vi is 4, outside of its extent 4"):
        one('with block("C"):\n      vi = axis.spatial(4, i)\n      C[vi] = 1.0', n=6)


def test_a_predicate_guards_a_block() -> None:
    line = 'with block("C"):\n      vi = axis.spatial(4, i)\n      where(i < 3)\n      C[vi] = A[vi + 1]'
    assert one(line, n=6).tolist() == [1, 2, 3, -1]
    assert one(line.replace("where(i", "where(vi"), n=6).tolist() == [1, 2, 3, -1]


def test_a_check_ends_the_program() -> None:
    with pytest.raises(ExecutionError, match="too large"):
        one('check(I[i] < 4, "too large")')


def test_branches() -> None:
    assert one("if i < 2:\n      C[i] = 5.0\n    elif i < 3:\n      C[i] = 6.0").tolist() == [5, 5, 6, -1]


def test_a_buffer_that_nobody_wrote_shows() -> None:
    assert np.isnan(one("C[i] = T[i]", '  T = alloc((4,), "float32")\n')).all()


def test_loops_that_are_many() -> None:
    depth = 25
    names = [f"i{k}" for k in range(depth)]
    index = " + ".join(names)
    text = f'def f(C: Buffer[({depth + 1},), "int64"]):\n for {", ".join(names)} in grid({", ".join(["1"] * depth)}):\n'
    c = np.zeros(depth + 1, "int64")
    interpret(read(f"{text}  C[{index}] = C[{index}] + 1\n"), [c])
    assert c[0] == 1


def test_an_expression_that_is_deep() -> None:
    i = Var("i")
    a, c = Buffer("A", (Const(N),)), Buffer("C", (Const(N),))
    value: Expr = a[i]
    for _ in range(60):
        value = apply("neg", apply("exp", value) * 0.0 + a[i])
    assert run(Nest("f", (a, c), For(i, Const(N), Store(c, (i,), value))), np.ones(N, "float32"))[0] == -1


def test_an_intrinsic_is_what_its_description_does() -> None:
    description = read(
        'def add(x: Buffer[(2, "m"), "float32"], y: Buffer[("m",), "float32"], m: size, by: size):\n'
        "  for i, j in grid(2, m):\n    x[i, j] = x[i, j] + y[j] + cast(by, 'float32')\n"
    )
    nest = read(
        'def f(A: Buffer[(4, 6), "float32"], B: Buffer[(1, 6), "float32"]):\n'
        '  for i in serial(2):\n    invoke("add", A[i * 2:i * 2 + 2, 1:4], B[0, 3:6], 3, i)\n'
    )
    a, b = np.zeros((4, 6), "float32"), np.arange(6, dtype="float32")[None]
    interpret(nest, [a, b], intrinsics={"add": description})
    want = np.zeros((4, 6), "float32")
    want[:, 1:4] = b[0, 3:6]
    want[2:, 1:4] += 1
    same(a, want)
    with pytest.raises(ValueError, match="no description of the intrinsic add"):
        interpret(nest, [a, b])


def test_arrays_that_do_not_fit_are_refused() -> None:
    nest = read('def f(A: Buffer[("n", "n * 2"), "float32"], B: Buffer[("m * 2",), "int8"], n: size, m: size):\n  pass')
    a, b = np.zeros((2, 4), "float32"), np.zeros(6, "int8")
    interpret(nest, [a, b], {"m": 3})
    with pytest.raises(ValueError, match="f: no array tells the size m: give it"):
        interpret(nest, [a, b])
    with pytest.raises(ValueError, match=r"f: A has the shape \(2, 4\), and the array \(2, 5\)"):
        interpret(nest, [np.zeros((2, 5), "float32"), b], {"m": 3})
    with pytest.raises(ValueError, match="f: B is int8 of rank 1, and the array is uint8 of rank 1"):
        interpret(nest, [a, b.view("uint8")], {"m": 3})
    with pytest.raises(ValueError, match="f takes A, B, and not A, C"):
        interpret(nest, {"A": a, "C": b}, {"m": 3})
