"""Calls of cuBLAS and cuBLASLt: stand-ins compute what these would, column-major, on memory of the host."""

import ctypes
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy")
from graphopt.errors import DeviceMemoryError, ExecutionError, MissingDependencyError
from graphopt.kernels.cuda import cublas_lt, driver
from graphopt.kernels.cuda.cublas import TYPES, Blas
from graphopt.kernels.cuda.cublas_library import PROTOTYPES, functions
from graphopt.kernels.cuda.cublas_lt import BlasLt
from graphopt.kernels.cuda.simulated_device import SimulatedDevice
from graphopt.runtime.library_calls import Gemm
from graphopt.runtime.thread_pool import address

DTYPES = {TYPES[name]: np.dtype(name) for name in ("float32", "float64", "float16")}


def matrix(place: int, kind: int, rows: int, columns: int, apart: int) -> np.ndarray[Any, Any]:
    """A column-major matrix in memory."""
    assert apart >= max(rows, 1)
    dtype = DTYPES[kind]
    memory = (ctypes.c_uint8 * (((columns - 1) * apart + rows) * dtype.itemsize)).from_address(place)
    strides = dtype.itemsize, apart * dtype.itemsize
    return np.lib.stride_tricks.as_strided(np.ctypeslib.as_array(memory).view(dtype), (rows, columns), strides)


def multiply(ways: Any, m: int, n: int, k: int, alpha: int, a: Any, b: Any, beta: int, c: Any, compute: int) -> Any:
    """The product of operands that are (address, type, leading dimension); gives C, and the sums before rounding."""
    assert (compute == 70) == (DTYPES[c[1]] == np.float64)
    kind = np.float64 if compute == 70 else np.float32
    factors = [np.frombuffer((ctypes.c_char * np.dtype(kind).itemsize).from_address(p), kind)[0] for p in (alpha, beta)]
    left = matrix(*a[:2], k, m, a[2]).T if ways[0] else matrix(*a[:2], m, k, a[2])
    right = matrix(*b[:2], n, k, b[2]).T if ways[1] else matrix(*b[:2], k, n, b[2])
    result = matrix(*c[:2], m, n, c[2])
    return result, factors[0] * (left.astype(kind) @ right.astype(kind)) + factors[1] * result.astype(kind)


class StandIn:
    """The library, in C: a handle has a stream and memory, and keeps them."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.state: dict[str, Any] = {}
        for name, types in PROTOTYPES.items():
            setattr(self, name, ctypes.CFUNCTYPE(ctypes.c_int, *types)(getattr(self, f"_{name[6:].split('_')[0]}")))

    def _Create(self, place: int) -> int:  # noqa: N802
        ctypes.c_void_p.from_address(place).value = 7 << 40
        return 0

    def _SetStream(self, handle: int, stream: int) -> int:  # noqa: N802
        self.state = {"handle": handle, "stream": stream}  # and memory of cuBLAS's own
        return 0

    def _SetWorkspace(self, handle: int, place: int, size: int) -> int:  # noqa: N802
        ctypes.memset(place, 0, size)
        self.state["memory"] = size
        return 0

    def _SetMathMode(self, handle: int, mode: int) -> int:  # noqa: N802
        self.state["mode"] = mode
        return 0

    def _begin(self, name: str, handle: int) -> None:
        assert self.state == {"handle": handle, "stream": 3, "memory": 32 << 20, "mode": 16}
        self.calls.append(name)

    def _GemmEx(self, handle: int, *args: Any) -> int:  # noqa: N802
        self._begin("gemmEx", handle)
        ta, tb, m, n, k, alpha, a, at, lda, b, bt, ldb, beta, c, ct, ldc, compute, _ = args
        if lda > 1 << 31:
            return 7
        result, sums = multiply((ta, tb), m, n, k, alpha, (a, at, lda), (b, bt, ldb), beta, (c, ct, ldc), compute)
        result[...] = sums
        return 0

    def _GemmStridedBatchedEx(self, handle: int, *args: Any) -> int:  # noqa: N802
        self._begin("gemmStridedBatchedEx", handle)
        ta, tb, m, n, k, alpha, a, at, lda, sa, b, bt, ldb, sb, beta, c, ct, ldc, sc, batch, compute, _ = args
        for p in range(batch):
            places = [x + p * step * DTYPES[at].itemsize for x, step in ((a, sa), (b, sb), (c, sc))]
            abc = (places[0], at, lda), (places[1], bt, ldb), (places[2], ct, ldc)
            result, sums = multiply((ta, tb), m, n, k, alpha, *abc[:2], beta, abc[2], compute)
            result[...] = sums
        return 0


class OfCupy(ModuleType):
    """cupy's wrappers: products go to cupy's current stream, whatever the handle's, and are refused in a capture."""

    def create(self) -> int:
        return 7

    def setStream(self, handle: int, stream: int) -> None:  # noqa: N802
        self.stream = stream

    def setMathMode(self, handle: int, mode: int) -> None:  # noqa: N802
        pass

    def gemmEx(self, handle: int, *args: Any) -> None:  # noqa: N802
        self.setStream(handle, 0)
        raise NotImplementedError("calling cuBLAS API during stream capture is currently unsupported")

    gemmStridedBatchedEx = gemmEx  # noqa: N815


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made = StandIn()
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.libs.cublas", OfCupy("cublas"))
    monkeypatch.setattr(driver, "cublas", lambda: made)
    return made


class StandInLt(ModuleType):
    """nvmath's cuBLASLt: what is described is kept in dicts by handle."""

    MatmulPreferenceAttribute = SimpleNamespace(
        MAX_WORKSPACE_BYTES=1, **{f"MIN_ALIGNMENT_{letter}_BYTES": 5 + k for k, letter in enumerate("ABCD")}
    )
    MatmulDescAttribute = SimpleNamespace(TRANSA=3, TRANSB=4, EPILOGUE=7, BIAS_POINTER=8)
    MatrixLayoutAttribute = SimpleNamespace(BATCH_COUNT=5, STRIDED_BATCH_OFFSET=6)
    Epilogue = {"DEFAULT": 1, "RELU": 2, "BIAS": 4, "RELU_BIAS": 6, "GELU": 32, "GELU_BIAS": 36}  # noqa: RUF012
    matmul_heuristic_result_dtype = np.dtype([("algo", "<u8", (8,)), ("rest", "<u8", (4,))])

    def __init__(self) -> None:
        super().__init__("cublasLt")
        self.made: list[dict[Any, Any]] = []
        self.given_back: list[int] = []
        self.matmul_desc_destroy = self.matrix_layout_destroy = self.given_back.append
        self.searches = 0

    def _new(self, **what: Any) -> int:
        self.made.append(what)
        return len(self.made) - 1

    def create(self) -> int:
        return self._new()

    def matmul_preference_create(self) -> int:
        return self._new()

    def matmul_desc_create(self, compute: int, scale: int) -> int:
        return self._new(compute=compute, scale=scale)

    def matrix_layout_create(self, kind: int, rows: int, columns: int, apart: int) -> int:
        return self._new(kind=kind, rows=rows, columns=columns, apart=apart)

    def matmul_desc_set_attribute(self, handle: int, attribute: int, place: int, size: int) -> None:
        dtype = {4: np.int32, 8: np.int64}[size]
        self.made[handle][attribute] = int(np.frombuffer((ctypes.c_char * size).from_address(place), dtype)[0])

    matrix_layout_set_attribute = matmul_preference_set_attribute = matmul_desc_set_attribute

    def matmul_algo_get_heuristic(self, *args: Any) -> None:
        self.searches += 1
        ctypes.c_uint64.from_address(args[-2]).value = 42
        ctypes.c_int32.from_address(args[-1]).value = 1

    def matmul(
        self, handle: int, product: int, alpha: int, a: int, la: int, b: int, lb: int, beta: int, *rest: Any
    ) -> None:
        c, lc, d, ld, algorithm, _, _, stream = rest
        assert (c, lc, stream, ctypes.c_uint64.from_address(algorithm).value) == (d, ld, 3, 42)
        how, (wa, wb, wc) = self.made[product], (self.made[x] for x in (la, lb, lc))
        m, n, k = wc["rows"], wc["columns"], wa["rows"] if how[3] else wa["columns"]
        assert (wb["columns"] if how[4] else wb["rows"]) == k
        for p in range(wc[5]):
            places = [
                (x + p * w[6] * DTYPES[w["kind"]].itemsize, w["kind"], w["apart"])
                for x, w in ((a, wa), (b, wb), (c, wc))
            ]
            result, sums = multiply((how[3], how[4]), m, n, k, alpha, *places[:2], beta, places[2], how["compute"])
            if how[7] & 4:
                sums = sums + matrix(how[8], wc["kind"], m, 1, m)
            if how[7] & 2:
                sums = np.maximum(sums, 0)
            if how[7] & 32:
                sums = sums / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (sums + 0.044715 * sums**3)))
            result[...] = sums


def run(function: Gemm, batch: int, shared: bool, make: Any, rows: int = 4) -> None:
    """Compare a library's product with the simulated device's, on the same memory."""
    draw = np.random.default_rng(2).standard_normal
    m, n, k, more = rows, 5, 6, 3
    shapes = [((k, m) if function.transpose_a else (m, k)), ((n, k) if function.transpose_b else (k, n)), (m, n)]
    apart = [shape[1] + more for shape in shapes]
    steps = [shape[0] * a for shape, a in zip(shapes, apart, strict=True)]
    device, dtype = SimulatedDevice(), np.dtype(function.dtype)
    sizes = [steps[0] * batch, steps[1] * (1 if shared else batch), steps[2] * batch, n]
    given = [draw(size).astype(dtype) for size in sizes[: 4 if function.has_bias else 3]]
    rest = [m, n, k, *apart, batch, steps[0], 0 if shared else steps[1], steps[2]]
    there = [device.array(x) for x in given]
    device.library(function, np.array([*(x.address for x in there), *rest], np.int64))()
    words = np.array([*map(address, given), *rest], np.int64)
    make().gemm(function, words)()
    close = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-12}[function.dtype]
    np.testing.assert_allclose(given[2].astype(np.float64), there[2].get().astype(np.float64), rtol=close, atol=close)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
def test_products_by_cublas(library: StandIn, dtype: str, transposed: tuple[bool, bool]) -> None:
    for batch, shared, beta, name in ((1, False, 0.0, "gemmEx"), (3, True, 2.0, "gemmStridedBatchedEx")):
        library.calls.clear()
        run(Gemm(dtype, *transposed, 0.5, beta, tf32=True), batch, shared, lambda: Blas(3, SimulatedDevice()))
        assert library.calls == [name]


def test_sizes_arrive_whole_and_statuses_are_errors(library: StandIn) -> None:
    a = np.ones(36, np.float32)
    words = np.array([*[address(a)] * 3, 2, 3, 4, 4, (1 << 32) + 3, 3, 1, 0, 0, 0], np.int64)
    call = Blas(3, SimulatedDevice()).gemm(Gemm(), words)
    with pytest.raises(ExecutionError, match=r"testing: .*cublasGemmEx_64: a wrong value"), driver.errors("testing"):
        call()
    with pytest.raises(DeviceMemoryError, match="no memory left"), driver.errors("testing"):
        raise driver.CUBLASError("cublasCreate_v2", 3)


def test_the_library_has_all_that_is_called() -> None:
    try:
        found = driver.cublas()
    except MissingDependencyError as error:
        pytest.skip(str(error))
    assert functions(found).keys() == PROTOTYPES.keys()


@pytest.fixture
def lt(monkeypatch: pytest.MonkeyPatch) -> StandInLt:
    found = StandInLt()
    for name, module in (("nvmath", ModuleType("nvmath")), ("nvmath.bindings", SimpleNamespace(cublasLt=found))):
        monkeypatch.setitem(sys.modules, name, module)  # type: ignore[arg-type]
    monkeypatch.setattr(cublas_lt, "has_cublas_lt", lambda: True)
    return found


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
def test_products_by_cublas_lt(lt: StandInLt, dtype: str, transposed: tuple[bool, bool]) -> None:
    for batch, epilogue, bias in ((1, "relu", True), (3, "gelu_tanh", True), (2, "gelu_tanh", False), (1, "", True)):
        function = Gemm(dtype, *transposed, has_bias=bias, epilogue=epilogue)  # type: ignore[arg-type]
        run(function, batch, batch == 3, lambda: BlasLt(3, SimulatedDevice()))


def words_of(m: int, n: int, k: int, *places: int) -> Any:
    """The arguments of one product."""
    return np.array([*places, m, n, k, k, n, n, 1, 0, 0, 0], np.int64)


def test_an_algorithm_is_chosen_once_for_each_sizes(lt: StandInLt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cublas_lt, "_KEPT", 2)
    a, b, c, bias = (np.ones(36, np.float32) for _ in range(4))
    words = words_of(2, 3, 4, *map(address, (a, b, c, bias)))
    call = BlasLt(3, SimulatedDevice()).gemm(Gemm(has_bias=True), words)
    for rows, searches, given_back in ((2, 1, 0), (2, 1, 0), (3, 2, 0), (2, 2, 0), (0, 2, 0), (4, 3, 4), (2, 3, 4)):
        words[4] = rows
        call()
        assert (lt.searches, len(lt.given_back)) == (searches, given_back)
    del call
    assert sorted(lt.given_back) == [n for n, made in enumerate(lt.made) if "kind" in made or "compute" in made]


def test_sums_without_terms_are_zero(library: StandIn, lt: StandInLt) -> None:
    device = SimulatedDevice()
    draw = np.random.default_rng(5).standard_normal
    bias, before = (draw(shape).astype(np.float32) for shape in (3, (2, 3)))
    for function, wanted in (
        (Gemm(), np.zeros((2, 3))),
        (Gemm(beta=2.0, transpose_a=True), before * 2),
        (Gemm(has_bias=True), np.tile(bias, (2, 1))),
        (Gemm(has_bias=True, epilogue="relu", transpose_b=True), np.tile(np.maximum(bias, 0), (2, 1))),
    ):
        c = before.copy()
        places = [0, 0, address(c), *([address(bias)] if function.has_bias else [])]
        kind = BlasLt if function.has_bias else Blas
        kind(3, device).gemm(function, words_of(2, 3, 0, *places))()
        np.testing.assert_allclose(c, wanted, rtol=1e-6)


def test_a_bias_that_is_not_aligned_is_copied(lt: StandInLt) -> None:
    device = SimulatedDevice()
    a, b, c, bias = (device.array(np.arange(16, dtype=np.float32)) for _ in range(4))
    for start in (0, 1, 4, 7):
        words = words_of(2, 3, 4, a.address, b.address, c.address, bias.address + 4 * start)
        BlasLt(3, device).gemm(Gemm(has_bias=True), words)()
        used = next(how[8] for how in reversed(lt.made) if 8 in how)
        assert (used % 16, used == words[3]) == (0, start % 4 == 0)
        wanted = a.get()[:8].reshape(2, 4) @ b.get()[:12].reshape(4, 3) + bias.get()[start : start + 3]
        np.testing.assert_allclose(c.get()[:6].reshape(2, 3), wanted, rtol=1e-6)


def test_without_nvmath_it_is_said() -> None:
    if cublas_lt.has_cublas_lt():
        pytest.skip("nvmath-python is installed")
    with pytest.raises(MissingDependencyError, match="nvmath-python is not installed"):
        BlasLt(3, SimulatedDevice())


@pytest.mark.parametrize(("address", "want"), [(0, 256), (4, 4), (48, 16), (512, 256), (3 * 64, 64)])
def test_cublaslt_is_told_how_operands_lie(address: int, want: int) -> None:
    assert cublas_lt.alignment(address) == want
