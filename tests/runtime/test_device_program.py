"""Programs on a simulated device: hand-written kernels, every kind of step and place, and what goes wrong."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from graphopt.errors import DeviceMemoryError, ExecutionError, InputError
from graphopt.kernels.cuda.simulated_device import SimulatedDevice
from graphopt.runtime.library_calls import Gemm
from graphopt.runtime.steps import Bind, Branch, BufferRef, Condition, HostStep, LibraryStep, LoopStep, ProgramBuffer
from tests.runtime.device_programs import (
    COUNT,
    FAIL,
    LESS,
    REVERSE,
    STEP,
    attributes_of,
    chain,
    floats,
    launch,
    program,
    scale,
)


def f32(*values: float) -> np.ndarray[Any, Any]:
    return np.array(values, np.float32)


def test_sizes_come_with_the_inputs() -> None:
    run = chain()
    for n in (5, 0, 1, 4, 5, 17):
        x = np.arange(n, dtype=np.float32)
        found = run(x)["y"]
        assert type(found) is np.ndarray
        np.testing.assert_array_equal(found, (x * 2 + 1) * 3 + 5)
    np.testing.assert_array_equal(run({"x": f32(1)})["y"], [14])
    assert (run.inputs, run.outputs, run.symbols) == (("x",), ("y",), ("n",))


def test_what_comes_again_is_captured_and_replayed() -> None:
    device = SimulatedDevice()
    run = chain(device)
    counts = []
    for n in (3, 3, 3, 4, 3, 4, 4):
        x = np.full(n, n, np.float32)
        np.testing.assert_array_equal(run(x)["y"], (x * 2 + 1) * 3 + 5)
        counts.append((device.captures, device.replays))
    # four elements need more memory, which is elsewhere: the arguments of the third binding differ from all before
    assert counts[:3] == [(0, 0), (1, 1), (1, 2)]
    assert counts[-1][1] - counts[-2][1] == 1
    assert device.captures <= 3
    assert device.launches == 3 * 7


def test_arrays_of_the_device_are_used_in_place_and_outputs_stay_there() -> None:
    device = SimulatedDevice()
    run = chain(device)
    x = device.array(f32(1, 2, 3))
    first, second = run(x)["y"], run(x)["y"]
    np.testing.assert_array_equal(first.get(), [14, 20, 26])
    assert first.address != second.address
    np.testing.assert_array_equal(run(f32(0))["y"], [8])
    np.testing.assert_array_equal(second.get(), [14, 20, 26])
    target = device.array(f32(0, 0, 0))
    for _ in range(3):
        assert run(x, out={"y": target})["y"] is target
    np.testing.assert_array_equal(target.get(), [14, 20, 26])
    assert device.replays == 2  # of the three calls with the same addresses


def test_arrays_that_are_not_aligned_are_copied() -> None:
    device = SimulatedDevice()
    run = chain(device)
    whole = device.array(f32(9, 1, 2, 3))
    part = type(whole)(whole.block, (3,), whole.dtype, 4)
    np.testing.assert_array_equal(run(part)["y"].get(), [14, 20, 26])
    run(device.array(f32(0, 0, 1)), out={"y": part})
    np.testing.assert_array_equal(whole.get(), [9, 8, 8, 14])


def test_an_output_in_the_memory_of_an_input() -> None:
    device = SimulatedDevice()
    buffers = [floats("input", 4), floats("output", 4)]
    run = program(buffers, [scale(0, 1, 1, 1, 4), scale(0, 1, 2, 0, 4)], {"x": 0}, {"y": 1}, device=device)
    x = device.array(f32(1, 2, 3, 4))
    run(x, out={"y": x})
    np.testing.assert_array_equal(x.get(), [2, 4, 6, 8])


def test_outputs_go_into_arrays_of_the_host() -> None:
    run = chain()
    into = np.zeros((3, 2), np.float32)
    for target in (into[:, 0], np.zeros(3, np.float32)):
        assert run(f32(1, 2, 3), out={"y": target})["y"] is target
        np.testing.assert_array_equal(target, [14, 20, 26])
    np.testing.assert_array_equal(into[:, 1], 0)


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ({"z": f32(1)}, "there is no output 'z'"),
        ({"y": f32(1)}, r"is float32\[1\], and float32\[3\] is expected"),
        ({"y": [1.0]}, "can be written into numpy arrays and into row-major arrays in the device's memory"),
        ([f32(1)], "out is a mapping"),
    ],
)
def test_arrays_that_outputs_cannot_be_written_into(out: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        chain()(f32(1, 2, 3), out=out)


def test_outputs_may_not_share_memory() -> None:
    device = SimulatedDevice()
    buffers = [floats("input", 4), floats("output", 4), floats("output", 4)]
    run = program(buffers, [scale(0, 1, 1, 1, 4), scale(0, 2, 1, 2, 4)], {"x": 0}, {"y": 1, "z": 2}, device=device)
    x, there = f32(1, 2, 3, 4), device.array(f32(1, 2, 3, 4))
    for same in (x.copy(), there):
        with pytest.raises(InputError, match="'y' and 'z' share memory"):
            run(x, out={"y": same, "z": same})
    assert set(run(x, out={"y": there})) == {"y", "z"}
    np.testing.assert_array_equal(there.get(), [2, 3, 4, 5])


def test_inputs_are_checked_before_anything_runs() -> None:
    device = SimulatedDevice()
    run = chain(device)
    for wrong, said in ((np.zeros(3), "float64"), (device.array(np.zeros((2, 2), np.float32)), r"float32\[2, 2\]")):
        with pytest.raises(InputError, match=said):
            run(wrong)
    with pytest.raises(InputError, match="there is no input 'a'"):
        run({"a": f32(1)})
    assert device.launches == 0


def test_conditions_on_sizes() -> None:
    buffers = [floats("input", "n"), floats("output", "n")]
    conditions = (Condition((">", "n", 1), "x is too short"),)
    run = program(buffers, [scale(0, 1, 1, 1)], {"x": 0}, {"y": 1}, conditions=conditions)
    with pytest.raises(InputError, match="x is too short: n > 1 is expected"):
        run(f32(1))


def test_views_constants_and_what_threads_share() -> None:
    buffers = [
        floats("input", 2, 4),
        floats("constant", 4),
        floats("arena", 8),
        ProgramBuffer("float32", (4,), "view", of=2, offset=16),
        floats("output", 4),
        floats("arena", 8),
        ProgramBuffer("float32", (2, 4), "view", of=5),
        ProgramBuffer("float32", (8,), "view", of=0),
    ]
    steps = [
        scale(0, 5, 2, 0, 8),
        launch(REVERSE, (BufferRef(6), BufferRef(2)), 2, 4),
        launch(REVERSE, (BufferRef(1), BufferRef(2)), 1, 4),
        scale(3, 4, 1, 1, 4),
    ]
    weights = {1: f32(1, 2, 3, 4)}
    run = program(buffers, steps, {"x": 0}, {"y": 4, "whole": 2, "w": 1, "flat": 7, "x": 0}, weights)
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    for given in (x, run.device.array(x), x):  # type: ignore[attr-defined]
        found = {name: a if isinstance(a, np.ndarray) else a.get() for name, a in run(given).items()}
        np.testing.assert_array_equal(found["y"], [15, 13, 11, 9])
        np.testing.assert_array_equal(found["whole"], [4, 3, 2, 1, 14, 12, 10, 8])
        np.testing.assert_array_equal(found["w"], weights[1])
        np.testing.assert_array_equal(found["flat"], x.reshape(-1))
        np.testing.assert_array_equal(found["x"], x)
        assert not np.may_share_memory(found["x"], x)


def test_branches() -> None:
    buffers = [floats("input", 3), ProgramBuffer("bool", (), "arena"), floats("output", 3)]
    branch = Branch(1, (scale(0, 2, 2, 0, 3),), (scale(0, 2, 3, 0, 3),))
    run = program(buffers, [launch(LESS, (BufferRef(0), BufferRef(1), 10)), branch], {"x": 0}, {"y": 2})
    for _ in range(3):
        np.testing.assert_array_equal(run(f32(1, 2, 3))["y"], [2, 4, 6])
        np.testing.assert_array_equal(run(f32(11, 2, 3))["y"], [33, 6, 9])


@pytest.mark.parametrize("count", ["n", BufferRef(4), None])
def test_loops(count: Any) -> None:
    buffers = [
        floats("input", 3),
        ProgramBuffer("int64", (), "arena"),
        floats("output", 3),
        ProgramBuffer("bool", (), "arena"),
        ProgramBuffer("int64", (), "input"),
        ProgramBuffer("float32", ("n",), "input"),
    ]
    body = (launch(STEP, (BufferRef(2), BufferRef(1)), 1, 3), launch(LESS, (BufferRef(2), BufferRef(3), 10)))
    steps = [scale(0, 2, 1, 0, 3), launch(LESS, (BufferRef(2), BufferRef(3), 10)), LoopStep(body, 1, count, 3)]
    run = program(buffers, steps, {"x": 0, "count": 4, "s": 5}, {"y": 2, "turns": 1})
    for turns in (0, 1, 3, 9):
        x, done, wanted = f32(0, 1, 2), 0, f32(0, 1, 2)
        while wanted[0] < 10 and (done < turns or count is None):
            wanted += done
            done += 1
        found = run(x, np.array(turns), np.zeros(turns, np.float32))
        np.testing.assert_array_equal(found["y"], wanted)
        assert found["turns"] == done


def test_host_steps_read_and_write_the_devices_memory() -> None:
    buffers = [
        floats("input", "n"),
        floats("arena", "n"),
        floats("host", "n"),
        floats("arena", "n"),
        floats("output", "n"),
        floats("output", "n"),
    ]
    steps = [
        scale(0, 1, 2, 0),
        HostStep("reverse", (1,), (2,)),
        scale(2, 3, 1, 1),
        HostStep("negate", (3, None), (4, 5), fills=True),
    ]

    def negate(x: Any, _: None, y: Any, z: Any) -> None:
        y[:], z[:] = -x, x

    functions = {"reverse": lambda x: x[::-1], "negate": negate}
    run = program(buffers, steps, {"x": 0}, {"y": 4, "z": 5, "r": 2}, functions=functions)
    for n in (3, 4, 1):
        x = np.arange(n, dtype=np.float32)
        for given in (x, run.device.array(x)):  # type: ignore[attr-defined]
            found = {name: a if isinstance(a, np.ndarray) else a.get() for name, a in run(given).items()}
            np.testing.assert_array_equal(found["r"], x[::-1] * 2)
            np.testing.assert_array_equal(found["y"], -(x[::-1] * 2 + 1))
            np.testing.assert_array_equal(found["z"], x[::-1] * 2 + 1)


def test_what_a_host_step_gives_is_checked() -> None:
    buffers = [floats("input", 2), floats("arena", 2)]
    run = program(buffers, [HostStep("f", (0,), (1,))], {"x": 0}, {"y": 1}, functions={"f": lambda x: x[:1]})
    with pytest.raises(ExecutionError, match=r"gave float32\[1\], and float32\[2\] is expected"):
        run(f32(1, 2))


def test_sizes_that_are_computed() -> None:
    buffers = [
        floats("input", "n"),
        ProgramBuffer("int64", (), "arena"),
        floats("output", "k"),
        floats("host", "m"),
        floats("output", "m"),
    ]
    steps = [
        launch(COUNT, (BufferRef(0), BufferRef(1), "n")),
        Bind(("k",), 1),
        scale(0, 2, 1, 1, "k"),
        HostStep("positive", (0,), (3,), binds=(("m", 0, 0),)),
        scale(3, 4, 2, 0, "m"),
    ]
    functions = {"positive": lambda x: x[x > 0]}
    run = program(buffers, steps, {"x": 0}, {"y": 2, "z": 4}, functions=functions)
    for x in (f32(1, -1, 2), f32(-1), f32(3, 4, 5, -6), f32(1, 2, -1)):
        for given in (x, run.device.array(x)):  # type: ignore[attr-defined]
            found = {name: a if isinstance(a, np.ndarray) else a.get() for name, a in run(given).items()}
            np.testing.assert_array_equal(found["y"], (x + 1)[: (x > 0).sum()])
            np.testing.assert_array_equal(found["z"], x[x > 0] * 2)


def test_strings_stay_on_the_host() -> None:
    buffers = [
        ProgramBuffer("string", (2,), "input"),
        floats("arena", 2),
        floats("output", 2),
        ProgramBuffer("string", None, "host"),
    ]
    steps = [HostStep("lengths", (0,), (1, 3)), scale(1, 2, 2, 0, 2)]
    functions = {"lengths": lambda s: (np.array([len(t) for t in s], np.float32), s)}
    run = program(buffers, steps, {"s": 0}, {"y": 2, "t": 3}, functions=functions)
    found = run(np.array(["a", "bcd"]))
    np.testing.assert_array_equal(found["y"], [2, 6])
    assert found["t"].tolist() == ["a", "bcd"]


def test_a_kernel_that_fails_says_so_and_the_next_call_is_well() -> None:
    buffers = [floats("input", 2), floats("arena", 2), floats("output", 2)]
    steps = [
        scale(0, 1, 1, 0, 2),
        launch(
            FAIL, (BufferRef(1),), 1, 2, label="look up", nodes=("Gather_1",), messages=("one", "an index is negative")
        ),
        launch(FAIL, (BufferRef(0),), 1, 2, label="later", messages=("one",)),
        scale(1, 2, 2, 0, 2),
    ]
    run = program(buffers, steps, {"x": 0}, {"y": 2})
    for _ in range(3):
        with pytest.raises(ExecutionError, match=r"look up \(Gather_1\): an index is negative"):
            run(f32(1, -1))
        np.testing.assert_array_equal(run(f32(1, 1))["y"], [2, 2])


def test_a_failure_is_seen_before_the_host_goes_on() -> None:
    seen = []
    buffers = [floats("input", 2), floats("arena", 2), floats("output", 2)]
    steps = [
        launch(FAIL, (BufferRef(0),), 1, 2, messages=("one",)),
        scale(0, 1, 1, 0, 2),
        HostStep("note", (1,), (2,)),
    ]
    run = program(buffers, steps, {"x": 0}, {"y": 2}, functions={"note": lambda x: seen.append(x) or x})
    with pytest.raises(ExecutionError, match="its kernel ended with status 2"):
        run(f32(1, -1))
    assert not seen


def gemm(a: Any, b: Any, **attributes: Any) -> np.ndarray[Any, Any]:
    """The product that a program's library call computes."""
    function = Gemm(**attributes)
    n = b.shape[1]
    buffers = [floats("input", "m", "k"), floats("constant", *b.shape), floats("output", "m", n)]
    args = (BufferRef(0), BufferRef(1), BufferRef(2), "m", n, "k", "k", n, n, 1, 0, 0, 0)
    step = LibraryStep("gemm", args, attributes_of(function), flops=("*", 2, "m", n, "k"))
    return program(buffers, [step], {"a": 0}, {"c": 2}, {1: b})(a)["c"]


def test_products_are_the_librarys() -> None:
    draw = np.random.default_rng(0).standard_normal
    a, b = draw((3, 4)).astype(np.float32), draw((4, 5)).astype(np.float32)
    np.testing.assert_allclose(gemm(a, b), a @ b, rtol=1e-6)
    np.testing.assert_allclose(gemm(a, b, epilogue="relu", alpha=2.0), np.maximum(2 * a @ b, 0), rtol=1e-5)
    assert gemm(a[:0], b).shape == (0, 5)
    np.testing.assert_array_equal(gemm(a[:, :0], b[:0]), np.zeros((3, 5)))


def test_calls_from_several_threads() -> None:
    run = chain()

    def call(n: int) -> bool:
        x = np.full(n % 5 + 1, n, np.float32)
        return bool((run(x)["y"] == (x * 2 + 1) * 3 + 5).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(call, range(24)))


def test_two_programs_on_one_device() -> None:
    device = SimulatedDevice()
    one, two = chain(device), chain(device)
    for n in (2, 3, 2):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(one(x)["y"], two(two(x)["y"] * 0 + x)["y"])


def test_the_devices_memory_is_given_back() -> None:
    device = SimulatedDevice(room=1 << 14)
    run = chain(device)
    for _ in range(2):
        said = r"with {'n': 2000} the largest value within is float32\[2000\]; \d+ bytes are wanted, and \d+ of 16384"
        with pytest.raises(DeviceMemoryError, match=said):
            run(np.zeros(2000, np.float32))
        np.testing.assert_array_equal(run(f32(1))["y"], [14])
    with pytest.raises(MemoryError):
        run(np.zeros(1 << 20, np.float32))
    run.close()
    assert not len(device._blocks)
    with pytest.raises(InputError, match="closed"):
        run(f32(1))
    run.close()


def test_profiles_have_a_row_for_each_step() -> None:
    buffers = [floats("input", "n"), floats("arena", "n"), floats("arena", "n"), ProgramBuffer("int64", (), "arena")]
    steps = [
        scale(0, 1, 1, 0),
        LoopStep((scale(0, 1, 2, 1),), 3, 2),
        HostStep("reverse", (1,), (2,), nodes=("Reverse_1",)),
    ]
    run = program(buffers, steps, {"x": 0}, {"y": 2}, functions={"reverse": lambda x: x[::-1]})
    rows = run.profile(f32(1, 2, 3))
    assert [(r.label, r.nodes, r.flops, r.bytes, r.runs, r.is_native) for r in rows] == [
        ("scale by 1", ("Mul_1",), 6, 24, 1, True),
        ("scale by 2", ("Mul_2",), 12, 48, 2, True),
        ("reverse", ("Reverse_1",), 0, 0, 1, False),
    ]
    assert all(r.seconds > 0 for r in rows)
    assert [r.start for r in rows] == sorted(r.start for r in rows)


def test_memory_is_planned() -> None:
    memory = chain().memory({"n": 100})
    assert (memory.arena, memory.separate, memory.constants) == (1024, 1024, 0)
