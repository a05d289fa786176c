"""Vectors in kernels against numpy: one source for scalars and for vectors of several lengths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numba
import numpy as np
import pytest
from numba import float32, float64, int64, njit, types
from numba.core.errors import TypingError

from graphopt.kernels import vectors
from graphopt.kernels.vector_type import Vector, join

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
FLOATS = ["float32", "float64"]
SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]


def compiled(source: str) -> Any:
    """The function ``kernel`` of a source that may use all that kernels may."""
    names = {**vars(numba), **vars(vectors)}
    exec(source, names)
    return njit(error_model="numpy", fastmath={"contract"})(names["kernel"])


def mapped(expressions: dict[str, str], lanes: int, *inputs: Array) -> list[Array]:
    """What each expression over ``a, b, c`` gives, as the dtype that it is mapped to: masks as uint8."""
    names = "abc"[: len(inputs)]
    results = [np.zeros(inputs[0].size, dtype) for dtype in expressions.values()]
    source = [f"def kernel({', '.join(f'at{k}' for k in range(len(inputs) + len(results)))}, n):"]
    for k, array in enumerate([*inputs, *results]):
        source.append(f"    p{k} = pointer(at{k}, {array.dtype})")
    source.append(f"    for i in range(0, n, {lanes}):")
    for k, name in enumerate(names):
        source.append(f"        {name} = load(p{k}, i, {lanes})")
    for k, (expression, dtype) in enumerate(expressions.items(), len(inputs)):
        source.append(f"        store(p{k}, i, cast({expression}, {dtype}))")
    compiled("\n".join(source))(*(a.ctypes.data for a in [*inputs, *results]), inputs[0].size)
    return results


def agree(table: dict[str, Callable[..., Any]], outs: str, lanes: int, *inputs: Array) -> None:
    """Every expression gives what numpy gives, bit for bit but for the sign of NaN."""
    got = mapped(dict.fromkeys(table, outs), lanes, *inputs)
    with np.errstate(all="ignore"):
        for (expression, oracle), result in zip(table.items(), got, strict=True):
            want = np.asarray(oracle(*inputs)).astype(outs)
            np.testing.assert_array_equal(result, want, expression)
            if result.dtype.kind == "f":
                same_sign = (np.signbit(result) == np.signbit(want)) | np.isnan(want)
                assert same_sign.all() or "mum" in expression, expression


def floats(dtype: str) -> tuple[Array, Array]:
    x = (RNG.normal(size=64) * 4).astype(dtype)
    y = (RNG.normal(size=64) * 4).astype(dtype)
    special = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 0.5, 1.5, -2.5], dtype)
    x[:16], y[:16] = np.tile(special, 2), np.repeat(special, 2)
    return x, y


def integers(dtype: str) -> tuple[Array, Array]:
    info = np.iinfo(dtype)
    x = RNG.integers(info.min, info.max, 64, dtype, endpoint=True)
    y = RNG.integers(max(info.min, -9), 9, 64, dtype)
    x[:8] = [info.min, info.max, 0, 1, info.min, info.max, info.min, 7]
    y[:8] = [0, 0, 0, 3, info.max, info.min, 1, 2]
    if info.min:
        y[8:10], x[8:10] = -1, [info.min, 5]
    return x, y


@pytest.mark.parametrize("lanes", [1, 2, 16])
@pytest.mark.parametrize("dtype", FLOATS)
def test_floats(dtype: str, lanes: int) -> None:
    x, y = floats(dtype)
    half = np.dtype(dtype).type(0.5)
    one = {
        "maximum(a, 0.0)": lambda a: np.maximum(a, 0),
        "minimum(a, 1.5)": lambda a: np.minimum(a, 1.5),
        "fma(a, 2.0, 1.0)": lambda a: a * 2 + 1,
        f"a * {dtype}(0.5)": lambda a: a * half,
        "-a": np.negative,
        "abs(a)": np.abs,
        "sqrt(a)": np.sqrt,
        "floor(a)": np.floor,
        "ceil(a)": np.ceil,
        "trunc(a)": np.trunc,
        "round_even(a)": np.rint,
        "from_bits(bits(a))": lambda a: a,
        "select(isnan(a) | isinf(a), 7.0, a)": lambda a: np.where(np.isfinite(a), a, 7),
        "select(a > 0.0, a, 0.0)": lambda a: np.where(a > 0, a, 0),
        "cast(cast(select(abs(a) < 100.0, a, 0.0), int8), float32)": lambda a: (
            np.where(abs(a) < 100, np.trunc(a), 0) + 0.0
        ),
    }
    agree(one, dtype, lanes, x)
    two = {
        "a + b": np.add,
        "a - b": np.subtract,
        "a * b": np.multiply,
        "a / b": np.divide,
        "maximum(a, b)": np.maximum,
        "minimum(a, b)": np.minimum,
        "copysign(a, b)": np.copysign,
        "quotient(a, b)": np.divide,
        "remainder(a, b)": np.fmod,
    }
    agree(two, dtype, lanes, x, y)
    masks = {
        "a < b": np.less,
        "a <= b": np.less_equal,
        "a > b": np.greater,
        "a >= b": np.greater_equal,
        "a == b": np.equal,
        "a != b": np.not_equal,
        "(a < b) & (a > 0.0)": lambda a, b: (a < b) & (a > 0),
        "(a < b) ^ (a > 0.0)": lambda a, b: (a < b) ^ (a > 0),
    }
    agree(masks, "uint8", lanes, x, y)


@pytest.mark.parametrize("lanes", [8])
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_number_takes_the_dtype_of_the_vector(dtype: str, lanes: int) -> None:
    x, y = floats(dtype)
    third = np.dtype(dtype).type(0.3)
    table = {
        "a * 0.3": lambda a, b: a * third,
        "0.3 - b": lambda a, b: third - b,
        "a + 1": lambda a, b: a + 1,
        "a // b": lambda a, b: np.floor(a / b),
        "select(~(a < b), a, b)": lambda a, b: np.where(a < b, b, a),
    }
    agree(table, dtype, lanes, x, y)
    agree({"a % b": lambda a, b: np.mod(a, b)}, dtype, lanes, *(v[16:] for v in (x, y)))


@pytest.mark.parametrize("lanes", [16])
@pytest.mark.parametrize("dtype", SIGNED + UNSIGNED)
def test_integers(dtype: str, lanes: int) -> None:
    x, y = integers(dtype)
    bits = np.dtype(dtype).itemsize * 8
    counts = (abs(y.astype("int64")) * 5 % (bits + 8)).astype(dtype)
    top = np.where(x < 0, -1, 0).astype(dtype)

    def towards_zero(a: Array, b: Array) -> Array:
        safe = np.where(b == 0, 1, b)
        down = np.floor_divide(a, safe)
        inexact = (down * safe != a) & ((a < 0) != (safe < 0))
        return np.where(b == 0, 0, down + inexact).astype(dtype)

    table = {
        "a + b": np.add,
        "a - b": np.subtract,
        "a * b": np.multiply,
        "a * 3": lambda a, b: a * a.dtype.type(3),
        "a & b": np.bitwise_and,
        "a | b": np.bitwise_or,
        "a ^ b": np.bitwise_xor,
        "~a": lambda a, b: ~a,
        "-a": lambda a, b: -a,
        "a // b": lambda a, b: np.where(b == 0, 0, np.floor_divide(a, b)),
        "a % b": lambda a, b: np.where(b == 0, 0, np.mod(a, b)),
        "quotient(a, b)": towards_zero,
        "remainder(a, b)": lambda a, b: np.where(b == 0, 0, np.fmod(a, np.where(b == 0, 1, b))),
        "shift_left(a, b)": np.left_shift,
        "shift_right(a, b)": np.right_shift,
        "maximum(a, b)": np.maximum,
        "minimum(a, b)": np.minimum,
        "abs(a)": lambda a, b: np.abs(a),
        "fma(a, b, 1)": lambda a, b: a * b + 1,
        "select(a >= b, a, 0)": lambda a, b: np.where(a >= b, a, 0),
        "cast(a < b, int32)": lambda a, b: (a < b).astype("int32"),
    }
    agree(table, dtype, lanes, x, y)
    shifts = {
        "a << b": lambda a, b: np.where(b < bits, a << np.where(b < bits, b, 0), 0),
        "a >> b": lambda a, b: np.where(b < bits, a >> np.where(b < bits, b, 0), top),
    }
    agree(shifts, dtype, lanes, x, counts)


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_quotients_of_what_floats_hold_exactly(dtype: str) -> None:
    divisors = np.array([3, 7, 10, 16, 2**26 + 1, 2**53 - 1, 0, 1] * 8, dtype)
    near = RNG.integers(-1, 2, 64).astype("int64")
    x = divisors.astype("int64") * RNG.integers(0, 2**52, 64) % 2**53 // np.maximum(divisors, 1).astype("int64")
    x = np.clip(x * divisors.astype("int64") + near, 0, 2**53 - 1).astype(dtype)
    x[:2] = [2**53 - 1, 2**53 - 2]
    want = np.where(divisors == 0, 0, x // np.maximum(divisors, 1))
    table = {"quotient(a, b)": lambda a, b: want, "a % b": lambda a, b: np.where(b == 0, 0, a - want * b)}
    agree(table, dtype, 16, x, divisors)
    if dtype == "int64":
        agree({"quotient(a, b)": lambda a, b: -want}, dtype, 16, -x, divisors)
    agree({"a // 3": lambda a: a // 3, "a % 16": lambda a: a % 16}, dtype, 16, x)


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_scalars_of_integers_divide_as_vectors_do(dtype: str) -> None:
    x, y = integers(dtype)
    both = {"quotient(a, b)": dtype, "remainder(a, b)": dtype}
    for one, many in zip(mapped(both, 1, x, y), mapped(both, 8, x, y), strict=True):
        np.testing.assert_array_equal(one, many)


@pytest.mark.parametrize("lanes", [1, 16])
def test_casts(lanes: int) -> None:
    for source in ["float32", "float64", "int8", "int64", "uint8", "uint32"] if lanes > 1 else ["float32", "int32"]:
        x = RNG.integers(0, 100, 64).astype(source)
        if source not in UNSIGNED:
            x -= 50
        if source in FLOATS:
            x *= np.dtype(source).type(1.01)
        targets = ["float32", "float64", *SIGNED, *(UNSIGNED if source not in FLOATS else [])]
        got = mapped({f"cast(a, {target})": target for target in targets}, lanes, x)
        for target, result in zip(targets, got, strict=True):
            np.testing.assert_array_equal(result, x.astype(target), f"{source} to {target}")
    narrow = np.array([300.7, -300.7, 255.9, -1.5, 65536.0, -32769.0, 1e6, -1e6] * 8, "float32")
    for target in ["int8", "uint8", "int16", "uint16"]:
        (got_,) = mapped({f"cast(a, {target})": target}, lanes, narrow)
        np.testing.assert_array_equal(got_, narrow.astype("int32").astype(target))


@pytest.mark.parametrize("lanes", [1, 16])
def test_saturate(lanes: int) -> None:
    for source in ["float32", "float64", "int32", "uint64"] if lanes > 1 else ["float32"]:
        if source in FLOATS:
            x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 127.9, -128.9, 2.0**31] * 8, source)
        else:
            x = integers(source)[0]
        for target in [*SIGNED, *UNSIGNED]:
            info = np.iinfo(target)
            (got,) = mapped({f"saturate(a, {target})": target}, lanes, x)
            exact = [0 if v != v else min(max(v, info.min), info.max) for v in x.tolist()]
            np.testing.assert_array_equal(got, np.array([int(v) for v in exact], target), f"{source} to {target}")


@pytest.mark.parametrize("lanes", [1, 2, 32])
def test_reductions(lanes: int) -> None:
    x = RNG.choice([-2, -1, 1, 3], lanes).astype("float32")
    names = ["reduce_add", "reduce_mul", "reduce_max", "reduce_min"]
    oracles = [np.sum, np.prod, np.max, np.min]
    for dtype in ["float32", "int32", "int64", "uint8"]:
        values = (abs(x) if dtype == "uint8" else x).astype(dtype)
        got = mapped({f"{name}(a)": dtype for name in names}, lanes, values)
        for name, result, oracle in zip(names, got, oracles, strict=True):
            with np.errstate(over="ignore"):
                assert result[0] == np.array(oracle(values)).astype(dtype), (name, dtype)
    x[lanes // 2] = np.nan
    assert all(np.isnan(r[0]) for r in mapped({f"{name}(a)": "float32" for name in names}, lanes, x))
    for mask in (np.zeros(lanes, "int32"), np.ones(lanes, "int32"), np.arange(lanes, dtype="int32")):
        some, every = mapped({"reduce_or(a > 0)": "int32", "reduce_and(a > 0)": "int32"}, lanes, mask)
        assert (some[0], every[0]) == ((mask > 0).any(), (mask > 0).all())


def test_parts_of_vectors() -> None:
    x = np.arange(16, dtype="float32") * 3
    third, numbers, one = mapped({"lane(a, 3)": "float32", "iota(16)": "int64", "splat(2.5, 16)": "float32"}, 16, x)
    assert third[0] == 9
    np.testing.assert_array_equal(numbers, np.arange(16))
    assert (one == 2.5).all()
    scalar, zero = mapped({"lane(a, 0) + splat(float32(1), 1)": "float32", "iota(1) + int64(a)": "int64"}, 1, x)
    np.testing.assert_array_equal(scalar, x + 1)
    np.testing.assert_array_equal(zero, x)


@pytest.mark.parametrize("lanes", [1, 4, 16])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int64"])
def test_masked_memory_touches_only_its_lanes(dtype: str, lanes: int) -> None:
    kernel = compiled(f"""
def kernel(a, out, n, count):
    p, q = pointer(a, {dtype}), pointer(out, {dtype})
    store(q, 0, load_masked(p, 0, n, {lanes}))
    store_masked(offset(q, 32), 0, load(p, 0, {lanes}), n)
""")
    x = np.arange(1, 33).astype(dtype)
    for n in [-1, 0, 1, lanes - 1, lanes, 2**40]:
        out = np.full(64, 99, dtype)
        kernel(x.ctypes.data, out.ctypes.data, n, 0)
        k = min(max(n, 0), lanes)
        assert out.tolist() == [
            *x[:k],
            *[0] * (lanes - k),
            *[99] * (32 - lanes),
            *x[:k],
            *[99] * (32 - k),
        ]


@pytest.mark.parametrize("stride", [-3, -1, 0, 1, 2, 3, 4, 7])
@pytest.mark.parametrize("lanes", [1, 2, 8, 16])
def test_strided_memory(lanes: int, stride: int) -> None:
    kernel = compiled(f"""
def kernel(a, known, unknown, spread, start, stride):
    p, q, r, s = pointer(a, float32), pointer(known, float32), pointer(unknown, float32), pointer(spread, float32)
    store(q, 0, load_strided(p, start, {stride}, {lanes}))
    store(r, 0, load_strided(p, start, stride, {lanes}))
    store_strided(s, start, stride, load(p, 0, {lanes}))
""")
    span = (lanes - 1) * abs(stride) + 1
    x = np.arange(max(span, lanes), dtype="float32")
    known, unknown, spread = np.zeros((3, x.size), "float32")
    start = span - 1 if stride < 0 else 0
    kernel(*(v.ctypes.data for v in (x, known, unknown, spread)), start, stride)
    places = start + np.arange(lanes) * stride
    np.testing.assert_array_equal(known[:lanes], x[places])
    np.testing.assert_array_equal(unknown[:lanes], x[places])
    want = np.zeros_like(x)
    for k, place in enumerate(places):
        want[place] = x[k]
    np.testing.assert_array_equal(spread, want)


@pytest.mark.parametrize("rounds", [1, 8])
@pytest.mark.parametrize("fn", ["minimum", "maximum"])
def test_chains_of_choices_are_compiled(fn: str, rounds: int) -> None:
    """Of loops in which each choice uses the one before twice, LLVM 22.1 does not come to an end."""
    kernel = compiled(f"""
def kernel(a, out):
    p, q = pointer(a, float32), pointer(out, float32)
    best = p[0]
    for i in range({rounds}):
        for k in range(35):
            best = {fn}(best, p[i * 72 + k * 2])
    q[0] = best
""")
    x, out = RNG.standard_normal(rounds * 72).astype(np.float32), np.zeros(1, np.float32)
    read = x.reshape(rounds, 36, 2)[:, :35, 0]
    for special in (None, np.inf, -np.inf, np.nan):
        if special is not None:
            read[-1, 17] = special
        kernel(x.ctypes.data, out.ctypes.data)
        np.testing.assert_array_equal(out[0], getattr(np, fn).reduce(read, None))


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("lanes", [1, 8])
def test_gather_and_scatter(lanes: int, index: str) -> None:
    kernel = compiled(f"""
def kernel(a, where, out, back):
    p, w, q, r = pointer(a, float64), pointer(where, {index}), pointer(out, float64), pointer(back, float64)
    chosen = load(w, 0, {lanes})
    store(q, 0, gather(p, chosen))
    scatter(r, chosen, load(p, 0, {lanes}))
""")
    x = RNG.normal(size=32)
    where = RNG.permutation(32).astype(index)
    out, back = np.zeros((2, 32))
    kernel(x.ctypes.data, where.ctypes.data, out.ctypes.data, back.ctypes.data)
    np.testing.assert_array_equal(out[:lanes], x[where[:lanes]])
    np.testing.assert_array_equal(back[where[:lanes]], x[:lanes])


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize(("kind", "dtype"), [("half", np.float16), ("bfloat", ml_dtypes.bfloat16)])
def test_halves_round_to_even(kind: str, dtype: Any, lanes: int) -> None:
    kernel = compiled(f"""
def kernel(stored, wide, back, some, n):
    p, q, r, s = pointer(stored, uint16), pointer(wide, float32), pointer(back, uint16), pointer(some, uint16)
    for i in range(0, n, {lanes}):
        store(q, i, load_{kind}(p, i, {lanes}) + load_{kind}_masked(p, i, 0, {lanes}))
        store_{kind}(r, i, load(q, i + n, {lanes}))
    store_{kind}_masked(s, 0, load(q, n, {lanes}), 1)
""")
    stored = np.arange(65536, dtype="uint16")
    halves = stored.view(dtype).astype("float32")
    with np.errstate(invalid="ignore", over="ignore"):
        between = (halves + np.nextafter(halves, np.float32(np.inf)) * np.float32(1 + 2**-9)) / 2
        between[::3] = halves[::3] * np.float32(1 + 2**-9 if kind == "bfloat" else 1 + 2**-12)
    wide = np.concatenate([np.zeros_like(halves), between])
    back, some = np.zeros_like(stored), np.full(16, 7, "uint16")
    kernel(stored.ctypes.data, wide.ctypes.data, back.ctypes.data, some.ctypes.data, 65536)
    np.testing.assert_array_equal(wide[:65536], halves)
    with np.errstate(over="ignore"):
        want = between.astype(dtype)
    np.testing.assert_array_equal(back.view(dtype).astype("float32"), want.astype("float32"))
    assert (some[1:] == 7).all()


def test_sums_of_vectors_live_in_registers() -> None:
    kernel = compiled("""
def kernel(a, out, n):
    p = pointer(a, float32)
    total = splat(float32(0), 16)
    for i in range(0, n, 16):
        total += load(p, i, 16) * 2.0
    store(pointer(out, float32), 0, reduce_add(total))
""")
    x, out = np.ones(160, "float32"), np.zeros(1, "float32")
    kernel(x.ctypes.data, out.ctypes.data, x.size)
    assert out[0] == 320
    (code,) = kernel.inspect_llvm().values()
    assert "alloca <16 x float>" not in code


def test_types_meet() -> None:
    v = Vector(float32, 8)
    assert join([v, float64]) == (float32, 8)
    assert join([float32, float64]) == (float32, 1)
    assert join([types.uint8, int64]) == (types.uint8, 1)
    assert join([int64, float64]) == (float64, 1)
    with pytest.raises(TypingError, match="cast one"):
        join([v, Vector(float64, 8)])
    with pytest.raises(TypingError, match="cast one"):
        join([v, Vector(float32, 4)])
    with pytest.raises(TypingError, match="cast one"):
        join([types.int32, types.int16])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("load(p, 0, n)", "expected a number written in the source"),
        ("load(p, 0, 3)", "expected a power of two"),
        ("load(n, 0, 4)", "expected a pointer"),
        ("store(p, 0, cast(load(p, 0, 4), int32))", "cast it first"),
        ("select(n, 1.0, 2.0)", "expected a mask"),
        ("sqrt(cast(load(p, 0, 4), int32))", "cast it first"),
        ("load_half(p, 0, 4)", "expected a pointer to uint16"),
        ("saturate(load(p, 0, 4), float32)", "expected an integer"),
        ("cast(load(p, 0, 4), n)", "is no dtype"),
        ("load(p, 0, 4) + load(p, 0, 8)", "operands of different types"),
    ],
)
def test_what_makes_no_sense_is_refused_when_compiling(line: str, message: str) -> None:
    with pytest.raises(TypingError, match=message):
        compiled(f"def kernel(a, n):\n    p = pointer(a, float32)\n    v = {line}\n").compile((int64, int64))


@pytest.mark.parametrize("times", [2, 4, 8])
def test_elements_are_repeated(times: int) -> None:
    data, out = np.arange(40, dtype=np.float32), np.zeros(16, np.float32)
    source = "def kernel(at, to):\n    p, q = pointer(at, float32), pointer(to, float32)\n"
    compiled(source + f"    store(q, 0, load_repeated(p, 3, {times}, 16))\n")(data.ctypes.data, out.ctypes.data)
    np.testing.assert_array_equal(out, np.repeat(data[3:], times)[:16])


def test_neighbours_are_swapped() -> None:
    data, out = np.arange(40, dtype=np.float32), np.zeros(16, np.float32)
    source = "def kernel(at, to):\n    p, q = pointer(at, float32), pointer(to, float32)\n"
    compiled(source + "    store(q, 0, load_swapped(p, 3, 16))\n")(data.ctypes.data, out.ctypes.data)
    np.testing.assert_array_equal(out, data[3:19].reshape(-1, 2)[:, ::-1].reshape(-1))
