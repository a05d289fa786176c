import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphopt.errors import ExecutionError, InputError
from graphopt.runtime.program import Bind, Branch, BufferRef, HostStep, KernelStep, LoopStep, Program, ProgramBuffer
from graphopt.runtime.steps import Condition
from tests.runtime.programs import ADD, COUNT, FAIL, LESS, NUMBERS, chain, code, floats, scale


def x(n: int) -> Any:
    return np.arange(n, dtype=np.float32) - n // 2


def test_a_chain_serves_every_length_by_name_and_by_position() -> None:
    program = Program(chain(), threads=1)
    for n in (5, 1, 0, 1000, 5):
        want = (x(n) * 2 + 1) * 3 + 5
        assert np.array_equal(program({"x": x(n)})["y"], want)
        assert np.array_equal(program([x(n)])["y"], want)


def test_sizes_that_break_a_condition_are_refused() -> None:
    program = Program(replace(chain(), conditions=(Condition(("==", ("%", "n", 2), 0), "y: pairs"),)), threads=1)
    assert program([x(4)])["y"].shape == (4,)
    for _ in range(2):
        with pytest.raises(InputError, match=r"^y: pairs: \(n % 2\) == 0 is expected, with {'n': 3}$"):
            program([x(3)])


def test_a_condition_on_a_size_that_is_computed_is_seen_to_once_it_is_known() -> None:
    buffers = [floats("input", "n"), floats("host", "m")]
    step = HostStep("positive", (0,), (1,), binds=(("m", 0, 0),))
    made = replace(code(buffers, [step], {"x": 0}, {"y": 1}), conditions=(Condition(("<=", "m", 2), "few"),))
    program = Program(made, {"positive": lambda a: a[a > 0]})
    assert program([x(5)])["y"].tolist() == [1, 2]
    with pytest.raises(InputError, match=r"^few: m <= 2 is expected, with {'m': 3}$"):
        program([x(7)])


def test_results_are_fresh() -> None:
    program = Program(chain(), threads=1)
    first = program([x(4)])["y"]
    kept = first.copy()
    program([x(4) + 1])
    assert np.array_equal(first, kept)


def test_large_results_begin_on_a_cache_line() -> None:
    program = Program(chain(), threads=1)
    for n in range(4096, 4104):  # one after another, each somewhere else
        got = program([x(n)])["y"]
        assert got.__array_interface__["data"][0] % 64 == 0
        assert np.array_equal(got, (x(n) * 2 + 1) * 3 + 5)
        assert got.flags.writeable
        assert got.flags.c_contiguous


def test_arrays_come_in_order_in_a_list_or_by_name() -> None:
    program = Program(chain(), threads=1)
    want = program([x(6)])["y"]
    assert np.array_equal(program(x(6))["y"], want)
    assert np.array_equal(program({"x": x(6)})["y"], want)
    assert len(program.profile(x(6))) == len(program.profile([x(6)]))


def test_results_go_where_the_caller_wants() -> None:
    program = Program(chain(), threads=1)
    want = program([x(6)])["y"]
    out = np.empty(6, np.float32)
    assert program([x(6)], out={"y": out})["y"] is out
    assert np.array_equal(out, want)
    strided = np.zeros(12, np.float32)[::2]
    program([x(6)], out={"y": strided})
    assert np.array_equal(strided, want)
    both = x(6)
    program([both], out={"y": both})
    assert np.array_equal(both, want)


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ({"z": np.zeros(3, np.float32)}, "there is no output 'z' to write into: the outputs are 'y'"),
        ({"y": np.zeros(4, np.float32)}, r"the array for output 'y' is float32\[4\], and float32\[3\] is expected"),
        ({"y": np.zeros(3)}, r"the array for output 'y' is float64\[3\], and float32\[3\] is expected"),
        ({"y": [0, 0, 0]}, "output 'y' can be written into numpy arrays"),
        ([np.zeros(3, np.float32)], "out is a mapping of names to arrays, not list"),
    ],
)
def test_arrays_to_write_into_are_checked(out: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Program(chain(), threads=1)([x(3)], out=out)


def test_two_outputs_do_not_go_into_the_same_array() -> None:
    buffers = [floats("input", "n", 2), floats("output", "n", 2), floats("output", "n", 2)]
    calls = [
        KernelStep(NUMBERS[ADD], (BufferRef(0), BufferRef(k), BufferRef(k + 1)), ("*", "n", 2)) for k in (0, 1)
    ]  # 2 a, then 3 a
    program = Program(code(buffers, calls, {"a": 0}, {"b": 1, "c": 2}), threads=1)
    whole = np.zeros((3, 4), np.float32)
    for b, c in ((whole[:, :2], whole[:, :2]), (whole[:, :2], whole[:, 1:3])):
        with pytest.raises(InputError, match="the arrays for the outputs 'b' and 'c' share memory"):
            program([np.ones((3, 2), np.float32)], out={"b": b, "c": c})
    program([np.ones((3, 2), np.float32)], out={"b": whole[:, ::2], "c": whole[:, 1::2]})
    assert whole.tolist() == [[2, 3, 2, 3]] * 3


def two() -> Program:
    buffers = [floats("input", "n", 2), floats("input", "n", 2), floats("output", "n", 2)]
    call = KernelStep(NUMBERS[ADD], (BufferRef(0), BufferRef(1), BufferRef(2)), ("*", "n", 2))
    return Program(code(buffers, [call], {"a": 0, "b": 1}, {"c": 2}), threads=1)


GOOD = np.ones((3, 2), np.float32)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"a": GOOD}, "^no array is given for 'b': the inputs are 'a', 'b'$"),
        ({"a": GOOD, "d": GOOD}, "^no array is given for 'b' and there is no input 'd': the inputs are 'a', 'b'$"),
        ({"a": GOOD, "b": GOOD, "d": GOOD}, "^there is no input 'd': the inputs are 'a', 'b'$"),
        ([GOOD, GOOD, GOOD], "^3 arrays are given, and the inputs are 'a', 'b'$"),
        ({"a": GOOD, "b": GOOD.astype(float)}, r"^input 'b' is float64\[3, 2\], and float32\[n, 2\] is expected$"),
        ({"a": GOOD, "b": GOOD.astype(">f4")}, r"^input 'b' is >f4\[3, 2\], and float32\[n, 2\] is expected$"),
        ({"a": GOOD, "b": GOOD[0]}, r"^input 'b' is float32\[2\], and float32\[n, 2\] is expected$"),
        (
            {"a": GOOD, "b": np.ones((3, 3), np.float32)},
            "^input 'b' has size 3 along axis 1, and 2 is expected: float32",
        ),
        (
            {"a": GOOD, "b": np.ones((4, 2), np.float32)},
            r"^input 'b' has size 4 along axis 0, and 3, as n is by the other inputs, is expected: float32\[n, 2\]$",
        ),
        ({"a": GOOD, "b": [[1.0, 2.0]] * 3}, "^input 'b' is of type list, and an array is expected: float32"),
        (GOOD, "^no array is given for 'b': the inputs are 'a', 'b'$"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_by_name(inputs: Any, message: str) -> None:
    program = two()
    with pytest.raises(InputError, match=message):
        program(inputs)
    assert np.array_equal(program({"a": GOOD, "b": GOOD})["c"], GOOD + GOOD)


def test_arrays_of_all_kinds_are_taken() -> None:
    class Foreign:
        def __init__(self, array: Any) -> None:
            self.__array_interface__ = array.__array_interface__
            self.array = array

    class Exchanged:
        def __init__(self, array: Any) -> None:
            self.array = array

        def __dlpack__(self, **options: Any) -> Any:
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    unaligned = np.frombuffer(b"\0" + values.T.tobytes(), np.uint8)[1:].view(np.float32).reshape(3, 2)
    for array in (values.T, Foreign(values.T.copy()), Exchanged(values.T), unaligned):
        assert np.array_equal(two()([array, array])["c"], values.T * 2)


def test_arrays_of_shapes_that_came_before_are_looked_at_again() -> None:
    class Own(np.ndarray):
        """An array of a kind of its own."""

    program = two()
    a = np.arange(6, dtype=np.float32).reshape(3, 2)
    for shape in [(3, 2), *((n, 2) for n in range(70)), (3, 2)]:
        ones = np.ones(shape, np.float32)
        assert np.array_equal(program([ones, ones])["c"], ones + ones)
    assert np.array_equal(program([a, np.asfortranarray(a)])["c"], 2 * a)
    assert np.array_equal(program([a, np.asarray(a).view(Own)])["c"], 2 * a)
    unaligned = np.frombuffer(b"." + a.tobytes(), np.uint8)[1:].view(np.float32).reshape(3, 2)
    assert np.array_equal(program([a, unaligned])["c"], 2 * a)
    for wrong in (a.astype(float), a.astype(">f4"), a.astype(np.int32)):
        with pytest.raises(InputError, match="input 'b' is"):
            program([a, wrong])
    a.flags.writeable = False
    assert np.array_equal(program([a, a])["c"], 2 * a)


def test_sizes_are_checked_where_they_follow_from_others() -> None:
    buffers = [floats("input", ("*", 2, "n")), floats("input", "n"), floats("output", "n")]
    program = Program(code(buffers, [scale(1, 2, 1, 0)], {"a": 0, "b": 1}, {"c": 2}), threads=1)
    program([x(6), x(3)])
    with pytest.raises(InputError, match=r"input 'a' has size 5 along axis 0, and 6, as 2 \* n is"):
        program([x(5), x(3)])


def test_an_input_may_have_a_default() -> None:
    buffers = [floats("input", 3), floats("input", 3), floats("output", 3)]
    call = KernelStep(NUMBERS[ADD], (BufferRef(0), BufferRef(1), BufferRef(2)), 3)
    program = Program(code(buffers, [call], {"a": 0, "b": 1}, {"c": 2}, {1: np.full(3, 10, np.float32)}), threads=1)
    assert program([x(3)])["c"].tolist() == [9, 10, 11]
    assert program({"a": x(3), "b": x(3)})["c"].tolist() == [-2, 0, 2]
    with pytest.raises(InputError, match="no array is given for 'a'"):
        program({"b": x(3)})


def test_outputs_that_are_inputs_constants_or_twice_the_same_are_copies() -> None:
    constant = np.arange(3, dtype=np.float32)
    buffers = [floats("input", 3), floats("constant", 3), floats("output", 3)]
    names = {"same": 0, "fixed": 1, "once": 2, "twice": 2}
    program = Program(code(buffers, [scale(0, 2, 2, 0, 3)], {"x": 0}, names, {1: constant}), threads=1)
    given = x(3)
    found = program([given])
    assert [found[k].tolist() for k in names] == [[-1, 0, 1], [0, 1, 2], [-2, 0, 2], [-2, 0, 2]]
    for array in found.values():
        array[:] = 77
    assert given.tolist() == [-1, 0, 1]
    assert constant.tolist() == [0, 1, 2]
    assert program([given])["once"].tolist() == [-2, 0, 2]


def test_views_share_memory() -> None:
    half = ProgramBuffer("float32", ("n",), "view", of=1, offset=("*", 4, "n"))
    buffers = [floats("input", "n"), floats("output", 2, "n"), half, ProgramBuffer("float32", ("n",), "view", of=2)]
    program = Program(code(buffers, [scale(0, 1, 1, 0), scale(0, 3, 2, 0)], {"x": 0}, {"y": 1, "z": 3}), threads=1)
    found = program([x(3)])
    assert found["y"].tolist() == [[-1, 0, 1], [-2, 0, 2]]
    assert found["z"].tolist() == [-2, 0, 2]


def test_a_branch_and_a_loop_are_the_drivers() -> None:
    # while sum(y) < 100 and i < count: y = y * 2 + 1; then y * 10 if sum < 150, else y * 1 + 7
    buffers = [
        floats("input", 2),
        ProgramBuffer("int64", (), "input"),
        ProgramBuffer("int64", (), "arena"),
        ProgramBuffer("bool", (), "arena"),
        floats("arena", 2),
        floats("arena", 2),
        floats("output", 2),
    ]

    def test(limit: int) -> KernelStep:
        return KernelStep(NUMBERS[LESS], (BufferRef(4), BufferRef(3), 2, limit))

    loop = LoopStep((scale(4, 5, 2, 1, 2), scale(5, 4, 1, 0, 2), test(100)), counter=2, count=BufferRef(1), condition=3)
    steps = [
        scale(0, 4, 1, 0, 2),
        test(100),
        loop,
        test(150),
        Branch(3, (scale(4, 6, 10, 0, 2),), (scale(4, 6, 1, 7, 2),)),
    ]
    program = Program(code(buffers, steps, {"x": 0, "count": 1}, {"y": 6, "steps": 2}), threads=1)
    assert len(program._layout.stages) == 1

    def want(values: Any, count: int) -> Any:
        y, i = values.copy(), 0
        while i < count and y.sum() < 100:
            y, i = y * 2 + 1, i + 1
        return (y * 10 if y.sum() < 150 else y + 7), i

    for start in ([0, 1], [90, 20], [200, 0], [30, 45]):
        for count in (0, 1, 3, 99):
            found = program([np.array(start, np.float32), np.array(count)])
            expected, turns = want(np.array(start, np.float32), count)
            assert found["y"].tolist() == expected.tolist()
            assert found["steps"] == turns


def test_a_loop_with_a_size_and_a_branch_without_another_side() -> None:
    buffers = [
        floats("input", "n"),
        ProgramBuffer("int64", (), "arena"),
        ProgramBuffer("bool", (), "arena"),
        floats("output", "n"),
    ]
    test = KernelStep(NUMBERS[LESS], (BufferRef(3), BufferRef(2), "n", 50))
    loop = LoopStep((test, Branch(2, (scale(3, 3, 1, 1),))), counter=1, count=("*", 2, "n"))
    program = Program(code(buffers, [scale(0, 3, 1, 0), loop], {"x": 0}, {"y": 3}), threads=1)
    assert program([np.zeros(3, np.float32)])["y"].tolist() == [6, 6, 6]
    assert program([np.full(2, 23, np.float32)])["y"].tolist() == [25, 25]


@pytest.mark.parametrize("threads", [1, 2])
def test_an_interrupt_stops_a_loop_that_does_not_end_and_leaves_the_program_usable(threads: int) -> None:
    buffers = [
        floats("input", "n"),
        ProgramBuffer("int64", (), "input"),
        ProgramBuffer("int64", (), "arena"),
        floats("output", "n"),
    ]
    loop = LoopStep((scale(3, 3, 1, 1, parallel=True),), counter=2, count=BufferRef(1))
    made = code(buffers, [scale(0, 3, 1, 0), loop], {"x": 0, "count": 1}, {"y": 3, "turns": 2})
    program = Program(made, threads=threads)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            program(x(3), np.array(2**62))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert program(x(3), np.array(4))["y"].tolist() == [3, 4, 5]


def test_a_loop_of_several_stretches_is_run_to_its_end() -> None:
    buffers = [floats("input", "n"), ProgramBuffer("int64", (), "arena"), floats("output", "n")]
    loop = LoopStep((scale(2, 2, 1, 1),), counter=1, count=1 << 23)  # some tenths of a second, and exact in float32
    program = Program(code(buffers, [scale(0, 2, 1, 0), loop], {"x": 0}, {"y": 2, "turns": 1}), threads=1)
    found = program(x(2))
    assert (found["y"].tolist(), found["turns"]) == ([(1 << 23) - 1, 1 << 23], 1 << 23)


def test_python_is_called_between_native_stretches() -> None:
    buffers = [
        floats("input", "n"),
        floats("arena", "n"),
        floats("host", "n"),
        floats("arena", "n"),
        floats("output", "n"),
    ]
    seen = []

    def reverse(a: Any, missing: None) -> Any:
        seen.append(a)
        return a[::-1]

    def negate(a: Any, b: Any) -> None:
        np.negative(a, out=b)

    steps = [
        scale(0, 1, 2, 0),
        HostStep("reverse", (1, None), (2,)),
        HostStep("negate", (2,), (3,), fills=True),
        scale(3, 4, 1, 1),
    ]
    program = Program(
        code(buffers, steps, {"x": 0}, {"y": 4, "r": 2}), {"reverse": reverse, "negate": negate}, threads=1
    )
    for n in (3, 8, 3):
        found = program([x(n)])
        assert np.array_equal(found["r"], x(n)[::-1] * 2)
        assert np.array_equal(found["y"], -2 * x(n)[::-1] + 1)
    assert not seen[0].flags.owndata


def test_sizes_that_depend_on_data_are_bound_on_the_way() -> None:
    # the positive elements, twice; and as many ones as there are
    buffers = [
        floats("input", "n"),
        floats("host", "k"),
        floats("output", "k"),
        ProgramBuffer("int64", (1,), "arena"),
        floats("arena", "m"),
        floats("output", "m"),
    ]
    steps = [
        HostStep("positive", (0,), (1,), binds=(("k", 0, 0),)),
        scale(1, 2, 2, 0, "k"),
        KernelStep(NUMBERS[COUNT], (BufferRef(0), BufferRef(3), "n")),
        Bind(("m",), 3),
        scale(1, 4, 0, 1, "m"),
        scale(4, 5, 1, 0, "m"),
    ]
    program = Program(code(buffers, steps, {"x": 0}, {"y": 2, "ones": 5}), {"positive": lambda a: a[a > 0]}, threads=1)
    for n in (7, 100, 0, 7):
        found = program([x(n)])
        assert np.array_equal(found["y"], x(n)[x(n) > 0] * 2)
        assert found["ones"].tolist() == [1] * int((x(n) > 0).sum())


def test_loops_and_branches_may_have_python_in_them() -> None:
    buffers = [
        floats("input", "n"),
        ProgramBuffer("int64", (), "arena"),
        ProgramBuffer("bool", (), "arena"),
        floats("output", "n"),
    ]
    test = KernelStep(NUMBERS[LESS], (BufferRef(3), BufferRef(2), "n", 50))
    double = HostStep("double", (3,), (3,), fills=True)
    body = (test, Branch(2, (double,), (scale(3, 3, 1, 1),)))
    loop = LoopStep(body, counter=1, count=4)
    program = Program(
        code(buffers, [scale(0, 3, 1, 0), loop], {"x": 0}, {"y": 3, "i": 1}),
        {"double": lambda a, b: np.multiply(a, 2, out=b)},
        threads=1,
    )
    found = program([np.array([10, 3], np.float32)])
    assert found["y"].tolist() == [42, 14]
    assert found["i"] == 4


def test_a_failed_kernel_says_which_and_why_and_leaves_the_program_usable() -> None:
    call = KernelStep(
        NUMBERS[FAIL], (BufferRef(0),), label="gather", nodes=("Gather_3",), messages=("no", "an index is out of range")
    )
    program = Program(code([floats("input", 1), floats("output", 1)], [call, scale(0, 1, 1, 0, 1)], {"x": 0}, {"y": 1}))
    with pytest.raises(ExecutionError, match=r"^gather \(Gather_3\): an index is out of range$"):
        program([np.full(1, -1, np.float32)])
    assert program([np.ones(1, np.float32)])["y"] == 1


def test_a_failed_function_says_where_and_leaves_the_program_usable() -> None:
    def root(a: Any) -> Any:
        if a.min() < 0:
            raise ValueError("negative")
        return np.sqrt(a)

    step = HostStep("root", (0,), (1,), label="Root_1")
    program = Program(code([floats("input", 2), floats("output", 2)], [step], {"x": 0}, {"y": 1}), {"root": root})
    with pytest.raises(ValueError, match="negative") as caught:
        program([np.full(2, -1, np.float32)])
    assert caught.value.__notes__ == ["in Root_1, which is run by Python"]
    assert program([np.full(2, 4, np.float32)])["y"].tolist() == [2, 2]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (np.zeros(3, np.float32), r"Root_1, which is run by Python, gave float32\[3\], and float32\[2\] is expected"),
        (np.zeros(2), r"gave float64\[2\], and float32\[2\] is expected"),
        ((np.zeros(2, np.float32),) * 2, "gave 2 results, and 1 are expected"),
    ],
)
def test_results_of_functions_are_checked(result: Any, message: str) -> None:
    step = HostStep("root", (0,), (1,), label="Root_1")
    program = Program(
        code([floats("input", 2), floats("output", 2)], [step], {"x": 0}, {"y": 1}), {"root": lambda a: result}
    )
    with pytest.raises(ExecutionError, match=message):
        program([np.zeros(2, np.float32)])


def test_strings_and_other_objects_pass_through_python() -> None:
    buffers = [
        ProgramBuffer("string", (2,), "input"),
        ProgramBuffer("object", (), "host"),
        ProgramBuffer("string", (1,), "host"),
    ]
    steps = [HostStep("split", (0,), (1,)), HostStep("join", (1,), (2,))]
    functions = {"split": lambda a: list(a), "join": lambda parts: np.array(["".join(parts)], object)}
    program = Program(code(buffers, steps, {"x": 0}, {"parts": 1, "y": 2}), functions)
    found = program([np.array(["a", "b"])])
    assert found["parts"] == ["a", "b"]
    assert found["y"].tolist() == ["ab"]


def test_arrays_of_any_shape_pass_through_python() -> None:
    buffers = [ProgramBuffer("float32", None, "input"), ProgramBuffer("float32", None, "host")]
    program = Program(
        code(buffers, [HostStep("sum", (0,), (1,))], {"x": 0}, {"y": 1}), {"sum": lambda a: a.sum(axis=0)}
    )
    assert program([np.ones((3, 2), np.float32)])["y"].tolist() == [3, 3]
    assert program([np.ones(4, np.float32)])["y"] == 4
    with pytest.raises(InputError, match=r"input 'x' is float64\[2\], and float32\[...\] is expected"):
        program([np.ones(2)])


def test_too_little_memory_is_said_and_leaves_the_program_usable() -> None:
    buffers = [floats("input", "n"), floats("arena", ("*", "n", 1 << 50)), floats("output", "n")]
    steps = [scale(0, 1, 1, 0, "n"), scale(1, 2, 2, 0, "n")]
    program = Program(code(buffers, steps, {"x": 0}, {"y": 2}), threads=1)
    said = r"the program needs 4503599627370496 bytes \(4194304.0 GiB\) .*; with {'n': 1} the largest value within is f"
    with pytest.raises(MemoryError, match=said):
        program([x(1)])
    assert program([x(0)])["y"].tolist() == []


@pytest.mark.parametrize("place", ["arena", "output"])
def test_more_memory_than_addresses_reach_is_said(place: Any) -> None:
    """Sizes that int64 does not hold: they come from inputs of no elements."""
    large = floats(place, "n", "m", 1 << 20)
    buffers = [floats("input", "n", 0, "m"), large, floats("output", "n")]
    steps = [scale(1, 1, 1, 0, "n"), scale(1, 2, 1, 0, 0)]
    program = Program(code(buffers, steps, {"x": 0}, {"y": 2} | ({"z": 1} if place == "output" else {})), threads=1)
    what = "output 'z' is" if place == "output" else "the largest value within is"
    with pytest.raises(MemoryError, match=rf"the program needs 4722366482\d+ bytes .* {what} float32\[33554432, "):
        program([np.zeros((1 << 25, 0, 1 << 25), np.float32)])
    assert program([np.zeros((2, 0, 0), np.float32)])["y"].shape == (2,)


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2", 100_000])
def test_how_many_threads_makes_sense(threads: Any) -> None:
    with pytest.raises(InputError, match=f"a program runs on 1 to 1024 threads, not on {threads!r}"):
        Program(chain(), threads=threads)


def test_memory_is_shared_by_buffers_that_do_not_live_at_once() -> None:
    buffers = [floats("input", "n"), *[floats("arena", "n") for _ in range(8)], floats("output", "n")]
    steps = [scale(k, k + 1, 1, 1) for k in range(9)]
    program = Program(code(buffers, steps, {"x": 0}, {"y": 9}), threads=1)
    memory = program.memory({"n": 1024})
    assert (memory.arena, memory.separate) == (2 * 4096, 8 * 4096)
    assert np.array_equal(program([x(1024)])["y"], x(1024) + 9)


def test_memory_is_asked_for_all_sizes() -> None:
    program = Program(chain(), threads=1)
    assert program.symbols == ("n",)
    with pytest.raises(InputError, match="no size is given for 'n': the inputs have n"):
        program.memory()


def test_sizes_below_zero_are_refused_before_anything_runs() -> None:
    buffers = [floats("input", "n"), floats("output", ("-", "n", 3))]
    program = Program(code(buffers, [scale(0, 1, 1, 0, ("-", "n", 3))], {"x": 0}, {"y": 1}), threads=1)
    assert program([x(5)])["y"].tolist() == [-2, -1]
    with pytest.raises(InputError, match=r"with {'n': 2} a tensor would have the shape \[-1\]: this cannot be run"):
        program([x(2)])


@pytest.mark.parametrize("shape", [(4, 5), (2, 2), (("//", "n", 5), 5)])
def test_views_of_another_size_are_refused_before_anything_runs(shape: Any) -> None:
    buffers = [floats("input", "n"), ProgramBuffer("float32", shape, "view", of=0), floats("output", *shape)]
    steps = [scale(1, 2, 1, 0, ("*", *shape))]
    program = Program(code(buffers, steps, {"x": 0}, {"y": 2}), threads=1)
    with pytest.raises(InputError, match=r"with {'n': 12} a tensor of the shape \[12\] would be taken for one of the"):
        program([x(12)])
    fitting = 20 if shape[0] == 4 else 4 if shape[0] == 2 else 15
    assert program([x(fitting)])["y"].reshape(-1).tolist() == x(fitting).tolist()


def test_offsets_may_be_given() -> None:
    buffers = [
        floats("input", "n"),
        ProgramBuffer("float32", ("n",), "arena", offset=("*", "n", 64)),
        floats("arena", "n"),
    ]
    steps = [scale(0, 1, 1, 1), scale(1, 2, 2, 0)]
    program = Program(code(buffers, steps, {"x": 0}, {"y": 2, "z": 1}), threads=1)
    assert program.memory({"n": 16}).arena == 64 * 16 + 64 + 64
    assert np.array_equal(program([x(16)])["y"], (x(16) + 1) * 2)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.booleans()), max_size=25), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_any_sums_come_out_right_in_shared_memory(sums: list[tuple[int, int, bool]], threads: int) -> None:
    """Buffer k + 1 is the sum of two before it; the last three are outputs."""
    count = len(sums) + 1
    kept = list(range(max(1, count - 3), count))
    buffers = [floats("input", "n")]
    buffers += [floats("output" if k in kept[:2] else "arena", "n") for k in range(1, count)]
    args = [(a % (k + 1), b % (k + 1), k + 1, p) for k, (a, b, p) in enumerate(sums)]
    steps = [KernelStep(NUMBERS[ADD], (BufferRef(a), BufferRef(b), BufferRef(c)), "n", p) for a, b, c, p in args]
    with Program(code(buffers, steps, {"x": 0}, {str(k): k for k in kept}), threads=threads) as program:
        for n in (17, 3):
            values = [x(n)]
            for a, b, _, _ in args:
                values.append(values[a] + values[b])
            found = program([x(n)])
            assert all(np.array_equal(found[str(k)], values[k]) for k in kept)


def test_many_threads_compute_the_same() -> None:
    one, four = Program(chain(), threads=1), Program(chain(parallel=True), threads=4)
    for n in (0, 1, 3, 4, 5, 1001):
        for _ in range(20):
            assert np.array_equal(four([x(n)])["y"], one([x(n)])["y"])
    four.close()


def test_calls_from_several_threads_at_once() -> None:
    program = Program(chain(parallel=True), threads=3)
    other = Program(chain(parallel=True), threads=3)
    wrong: list[object] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            for _ in range(200):
                values = rng.integers(-50, 50, int(rng.integers(0, 300))).astype(np.float32)
                for p in (program, other):
                    if not np.array_equal(p([values])["y"], (values * 2 + 1) * 3 + 5):
                        wrong.append(seed)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_teams_end_with_the_last_program_that_holds_them() -> None:
    def members() -> int:
        return sum(t.name.startswith("graphopt-") for t in threading.enumerate())

    before = members()
    first, second = Program(chain(True), threads=7), Program(chain(True), threads=7)
    first([x(9)]), second([x(9)])
    assert members() == before + 6
    first.close()
    assert members() == before + 6
    del second
    assert members() == before
    with pytest.raises(InputError, match="closed"):
        first([x(9)])


def test_no_program_waits_busily(recwarn: object) -> None:
    import time

    program = Program(chain(True), threads=2)
    program([x(100)])
    time.sleep(0.01)
    begin = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - begin < 0.05
    program.close()


def test_a_process_that_was_forked_has_threads_of_its_own() -> None:
    text = f"""
import os, sys
import numpy as np
sys.path.insert(0, {os.getcwd()!r})
from graphopt.runtime.program import Program
from graphopt.runtime.steps import Condition
from tests.runtime.programs import chain
program = Program(chain(True), threads=3)
values = np.ones(10, np.float32)
program([values])
child = os.fork()
assert program([values])["y"].tolist() == [14] * 10
if child:
    assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", text], check=True, timeout=60)


def test_profiles_have_a_row_for_each_step() -> None:
    buffers = [floats("input", "n"), floats("host", "n"), floats("output", "n"), ProgramBuffer("int64", (), "arena")]
    steps = [HostStep("same", (0,), (1,), nodes=("Same_0",)), LoopStep((scale(1, 2, 2, 0),), counter=3, count=3)]
    program = Program(code(buffers, steps, {"x": 0}, {"y": 2}), {"same": np.copy}, threads=1)
    program([x(1000)])
    first, second = program.profile([x(1000)])
    assert (first.label, first.nodes, first.is_native, first.runs) == ("same", ("Same_0",), False, 1)
    assert (second.label, second.nodes, second.is_native, second.runs) == ("scale by 2", ("Mul_2",), True, 3)
    assert (second.flops, second.bytes) == (3 * 2000, 3 * 8)
    assert 0 <= first.start < second.start < 1
    assert 0 < second.seconds < 1
    assert np.array_equal(program([x(5)])["y"], x(5) * 2)
