"""Nests are called on the caller's arrays, as interpreted, and refuse arrays that do not fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graphopt.errors import ExecutionError, InputError, NestError, UsageError
from graphopt.lowering.loops import compute as te
from graphopt.lowering.loops.compute import compute, placeholder, reduce_axis
from graphopt.lowering.loops.expressions import Var
from graphopt.lowering.loops.interpret import interpret
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script import read
from graphopt.lowering.schedule.schedule import Schedule
from graphopt.program import nest_function
from graphopt.program.nest_function import NestFunction, function_of, time_nest
from graphopt.runtime.timing import Timing

PRODUCT = """
@program
def mm(A: Buffer[("m", "k"), "float32"], B: Buffer[("k", "n"), "float32"], C: Buffer[("m", "n"), "float32"],
       m: size, k: size, n: size):
    notes({"schedule": "default"})
    T = alloc(("m", "n"), "float32")
    for i, j, p in grid(m, n, k):
        with block("T"):
            vi, vj, vp = axis.remap("SSR", [i, j, p])
            with init():
                T[vi, vj] = 0.0
            T[vi, vj] = T[vi, vj] + A[vi, vp] * B[vp, vj]
    for i2, j2 in grid(m, n):
        with block("C"):
            wi, wj = axis.remap("SS", [i2, j2])
            C[wi, wj] = max(T[wi, wj], 0.0)
""".replace('alloc(("m", "n")', "alloc((m, n)")

ADD = """
@program
def add(A: Buffer[(8,), "{0}"], B: Buffer[(8,), "{0}"]):
    for i in serial(8):
        with block("B"):
            vi = axis.remap("S", [i])
            B[vi] = A[vi] + A[vi]
"""

BY_RULE = '    notes({"schedule": "default"})\n'


def random(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("script", [PRODUCT, PRODUCT.replace(BY_RULE, "")], ids=["by rule", "as it stands"])
@pytest.mark.parametrize("sizes", [(3, 5, 4), (1, 1, 1), (0, 5, 4), (3, 5, 0), (17, 33, 65)])
def test_open_sizes_are_those_of_the_arrays(script: str, sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    nest, a, b = read(script), random(m, k), random(k, n)
    c, expected = np.full((m, n), np.nan, np.float32), np.full((m, n), np.nan, np.float32)
    assert nest(a, b, c) is None
    interpret(nest, {"A": a, "B": b, "C": expected}, {"m": m, "k": k, "n": n})
    np.testing.assert_allclose(c, expected, rtol=1e-5, atol=1e-5)


def test_arrays_that_do_not_fit_are_refused() -> None:
    nest, a, b, c = read(PRODUCT), random(3, 5), random(5, 4), random(3, 4)
    for arrays, why in [
        ((a, b), r"^no array is given for 'C': the arguments are 'A', 'B', 'C'$"),
        ((a, b, c, c), "4 arrays are given, and the arguments are"),
        ((a, b[:4], c), r"^argument 'B' has size 4 along axis 0, and 5, as k is by the other inputs, is expected"),
        ((a, b, random(4, 3)), "argument 'C' has size 4 along axis 0, and 3"),
        ((a.astype(np.float64), b, c), r"argument 'A' is float64\[3, 5\], and float32\[m, k\] is expected"),
        ((a, b, c.astype(">f4")), "argument 'C' is >f4"),
        ((a[0], b, c), r"argument 'A' is float32\[5\]"),
        (([1.0], b, c), "argument 'A' is of type list, and an array is expected"),
        ((a, b, random(4, 3).T), "argument 'C' is written in place, and an array that is row-major"),
        ((a, b, np.broadcast_to(np.float32(0), (3, 4))), "argument 'C' is written in place, .* writable"),
    ]:
        with pytest.raises(InputError, match=why):
            nest(*arrays)
        nest(a, b, random(3, 4))  # arrays that fit let no others through


def test_arrays_that_fitted_may_change() -> None:
    nest, a, c = read(ADD.format("float32")), random(8), random(8)
    nest(a, c)
    c.flags.writeable = False
    with pytest.raises(InputError, match=r"'B' is written in place, .* writable"):
        nest(a, c)
    c.flags.writeable = True
    with pytest.raises(InputError, match="share memory"):
        nest(a, a)
    c.shape = (4, 2)
    with pytest.raises(InputError, match=r"'B' is float32\[4, 2\]"):
        nest(a, c)
    a.shape, c.shape = (8,), (8,)
    nest(a, c)
    assert np.array_equal(c, a * 2)


def test_what_is_written_shares_no_memory() -> None:
    nest, memory = read(ADD.format("float32")), random(12)
    with pytest.raises(InputError, match=r"^arguments 'B' and 'A' share memory, and the first is written"):
        nest(memory[:8], memory[4:])
    with pytest.raises(InputError, match="share memory"):
        nest(memory[:8], memory[:8])
    twice = random(16)
    nest(twice[:8], twice[8:])
    assert np.array_equal(twice[8:], twice[:8] * 2)
    halves = random(16)
    expected = halves[::2] * 2
    nest(halves[::2], halves[:8])  # what is read is copied before, for it is not row-major
    assert np.array_equal(halves[:8], expected)


class Exported:
    """An array of another library: it speaks DLPack and nothing else."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **asked: Any) -> Any:
        return self.array.__dlpack__(**asked)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_dlpack_is_written_in_place() -> None:
    a, b = random(8), np.zeros(8, np.float32)
    read(ADD.format("float32"))(Exported(a), Exported(b))
    assert np.array_equal(b, a + a)


class ExportedBefore(Exported):
    """The same before DLPack 1.0, which numpy takes for read-only."""

    def __dlpack__(self, *, stream: Any = None) -> Any:
        return self.array.__dlpack__()


def test_dlpack_without_versions_is_written_in_place() -> None:
    a, b = random(8), np.zeros(8, np.float32)
    assert not np.from_dlpack(ExportedBefore(b)).flags.writeable
    read(ADD.format("float32"))(ExportedBefore(a), ExportedBefore(b))
    assert np.array_equal(b, a + a)


def test_read_only_dlpack_is_refused() -> None:
    a, b = random(8), np.zeros(8, np.float32)
    b.flags.writeable = False
    with pytest.raises(InputError, match=r"argument 'B' is written in place, .* writable"):
        read(ADD.format("float32"))(a, Exported(b))


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "int64", "uint32", "bfloat16"])
def test_dtypes(dtype: str) -> None:
    a = np.arange(8).astype(getattr(ml_dtypes, dtype, dtype))
    b = np.zeros_like(a)
    nest = read(ADD.format(dtype))
    nest(a, b)
    assert np.array_equal(b, a + a)
    assert nest.time(number=2, repeat=1).best > 0


def test_an_array_may_be_read_and_written() -> None:
    nest = read("""
@program
def more(A: Buffer[("n",), "float32"], n: size):
    for i in serial(n):
        with block("A"):
            vi = axis.remap("S", [i])
            A[vi] = A[vi] + 1.0
""")
    a = np.zeros(5, np.float32)
    nest(a)
    nest(a)
    assert np.array_equal(a, np.full(5, 2))
    nest.time(a, number=7, repeat=2)
    assert np.array_equal(a, np.full(5, 2 + 7 + 2 * 7)), "a series to warm up, and two"


UNTOLD = """
@program
def fill(A: Buffer[("n * 2",), "float32"], n: size, m: size):
    for i, j in grid(n * 2, m):
        with block("A"):
            vi, vj = axis.remap("SR", [i, j])
            with init():
                A[vi] = 0.0
            A[vi] = A[vi] + 1.0
"""


def test_sizes_that_no_array_tells_are_given_by_name() -> None:
    nest, a = read(UNTOLD), np.zeros(6, np.float32)
    nest(a, n=3, m=4)
    assert np.array_equal(a, np.full(6, 4))
    nest(a, n=3, m=5)
    assert np.array_equal(a, np.full(6, 5))
    with pytest.raises(UsageError, match=r"^fill has the size m: say what it is, as in m=64$"):
        nest(a, n=3)
    with pytest.raises(InputError, match="has size 6 along axis 0, and 8"):
        nest(a, n=4, m=1)
    with pytest.raises(UsageError, match="fill has no size k: its sizes are n, m"):
        nest(a, n=3, m=1, k=2)
    for wrong in (-1, 2.0, True, "3"):
        with pytest.raises(UsageError, match="m is a size of fill, a number from 0 on"):
            nest(a, n=3, m=wrong)
    assert nest.time(n=3, m=2, number=1, repeat=1).flops == 12
    assert nest.time(a, n=3, m=2, number=1, repeat=1).flops == 12
    assert np.array_equal(a, np.full(6, 2))


def test_times_are_of_given_arrays_or_of_drawn_ones() -> None:
    nest = read(PRODUCT)
    given = nest.time(random(64, 64), random(64, 64), np.zeros((64, 64), np.float32), number=3, repeat=4)
    found = nest.time(m=64, k=64, n=64, number=3, repeat=4)
    assert len(given.seconds) == len(found.seconds) == 4
    assert given.flops == found.flops >= 2 * 64**3
    with pytest.raises(UsageError, match="mm has the size k: say what it is"):
        nest.time(m=64, n=64)
    with pytest.raises(InputError, match="no array is given for 'C'"):
        nest.time(random(64, 64), random(64, 64))


def test_a_nest_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    nest = read(ADD.format("float32"))
    assert function_of(nest) is function_of(nest)
    monkeypatch.setattr(nest_function, "KEPT", 2)
    others: list[Nest] = [read(ADD.format("float32")) for _ in range(3)]
    first = function_of(nest)
    for other in others:
        function_of(other)
    assert function_of(nest) is not first, "only the last ones are kept"


def test_checks_of_a_program_end_it() -> None:
    nest = read("""
@program
def take(I: Buffer[(4,), "int64"], A: Buffer[(8,), "float32"], B: Buffer[(4,), "float32"]):
    for i in serial(4):
        with block("B"):
            vi = axis.remap("S", [i])
            check(I[vi] < 8, "an index is out of range")
            B[vi] = A[I[vi]]
""")
    b = np.zeros(4, np.float32)
    nest(np.array([1, 0, 7, 2]), np.arange(8, dtype=np.float32), b)
    assert b.tolist() == [1, 0, 7, 2]
    with pytest.raises(ExecutionError, match="an index is out of range"):
        nest(np.array([1, 0, 8, 2]), np.arange(8, dtype=np.float32), b)


def test_threads_change_nothing() -> None:
    schedule = Schedule(read(PRODUCT))
    for block in ("T", "C"):
        schedule.parallel(schedule.get_loops(schedule.get_block(block))[0])
    a, b = random(40, 30), random(30, 20)
    one, two = np.zeros((40, 20), np.float32), np.zeros((40, 20), np.float32)
    NestFunction(schedule.nest)(a, b, one)
    NestFunction(schedule.nest, threads=2)(a, b, two)
    assert np.array_equal(one, two)


def test_a_malformed_nest_is_refused() -> None:
    nest = read(ADD.format("float32"))
    with pytest.raises(NestError):
        NestFunction(replace(nest, params=nest.params[:1]))


def summed(n: int) -> Nest:
    x, w, k = placeholder((n, n)), placeholder((n, n)), reduce_axis(n)
    return te.nest("mm", [x, w], [compute((n, n), lambda i, j: te.sum(x[i, k.var] * w[k.var, j], k))])


def test_a_product_is_timed() -> None:
    found = time_nest(summed(32), number=3, repeat=4)
    assert len(found.seconds) == 4
    assert 0 < found.best <= found.median < 1
    assert found.flops == 2 * 32**3
    assert "GFLOP/s" in str(found)


def test_a_scheduled_nest_is_timed() -> None:
    schedule = Schedule(summed(128))
    block = schedule.get_block("t")
    i, j, k = schedule.get_loops(block)
    schedule.reorder(i, k, j)
    schedule.decompose_reduction(block, k)
    schedule.vectorize(j)
    timing = time_nest(schedule.nest, 5, 5)
    assert timing.flops == time_nest(summed(128), 1, 1).flops
    assert timing.best > 2 * time_nest(summed(16), 5, 5).best, "there are 512 times as many operations"


def test_sizes_are_given_by_name() -> None:
    n = Var("n")
    x = placeholder((n,))
    nest = te.nest("neg", [x], [compute((n,), lambda i: -x[i])], [n])
    small, large = time_nest(nest, 2000, 3, n=8), time_nest(nest, 20, 3, n=1 << 20)
    assert large.best > 10 * small.best
    with pytest.raises(UsageError, match=r"has the size n: say what it is"):
        time_nest(nest)
    with pytest.raises(UsageError, match=r"neg has no size m: its sizes are n$"):
        time_nest(nest, n=8, m=3)
    for wrong in (-1, "8"):
        with pytest.raises(UsageError, match=f"a number from 0 on, and not {wrong!r}"):
            time_nest(nest, n=wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no measurement"):
        time_nest(nest, 0, n=8)


def test_a_timing_knows_its_middle() -> None:
    assert Timing((3.0, 1.0, 2.0)).median == 2.0


class There:
    """An array on a GPU, as cupy's and torch's say it."""

    __cuda_array_interface__ = property(lambda self: {})


class Graded:
    """A tensor on a GPU whose gradient is wanted, as torch says it."""

    @property
    def __cuda_array_interface__(self) -> Any:
        raise RuntimeError("detach it first")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


class OfDlpack:
    def __init__(self, kind: int) -> None:
        self.kind = kind

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, 0


class Here:
    """A tensor of torch's on the processor."""

    @property
    def __cuda_array_interface__(self) -> Any:
        raise AttributeError("no GPU's")


def test_programs_run_where_an_array_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(nest_function, "NestFunction", lambda nest, target: asked.append(target.name))
    for array, wanted in [
        (There(), "cuda"),
        (Graded(), "cuda"),
        (OfDlpack(2), "cuda"),
        (OfDlpack(13), "cuda"),
        (OfDlpack(1), "cpu"),
        (Here(), "cpu"),
        (random(8), "cpu"),
    ]:
        function_of(read(ADD.format("float32")), (random(8), array))
        assert asked.pop() == wanted
    assert not asked


SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 3.0, 1e30, np.inf, -np.inf, np.nan]
COUNTS = [-3, -1, 0, 1, 5, 7, 8, 31, 32, 63, 64, 65, 200]


@pytest.mark.parametrize(
    ("operator", "dtype", "values"),
    [
        *((operator, dtype, SPECIAL) for operator in ("//", "%") for dtype in ("float32", "float64")),
        *((operator, dtype, COUNTS) for operator in ("<<", ">>") for dtype in ("int32", "int64", "uint8")),
    ],
)
@pytest.mark.parametrize("target", ["cpu", "simulated"])
def test_special_numbers_are_computed_as_by_numpy(operator: str, dtype: str, values: Any, target: str) -> None:
    pairs = np.array([(x, y) for x in values for y in values])
    a, b = (np.ascontiguousarray(side).astype(dtype) for side in pairs.T)
    nest = read(f"""
@program
def f(A: Buffer[({len(a)},), "{dtype}"], B: Buffer[({len(a)},), "{dtype}"], C: Buffer[({len(a)},), "{dtype}"]):
    for i in serial({len(a)}):
        with block("C"):
            vi = axis.remap("S", [i])
            C[vi] = A[vi] {operator} B[vi]
""")
    found, expected = np.zeros_like(a), np.zeros_like(a)
    NestFunction(nest, target=target)(a, b, found)
    interpret(nest, [a, b, expected])
    numpys = {"//": np.floor_divide, "%": np.remainder, "<<": np.left_shift, ">>": np.right_shift}
    with np.errstate(all="ignore"):
        wanted = numpys[operator](a, b)
    np.testing.assert_array_equal(expected, wanted)
    np.testing.assert_array_equal(found, wanted)
