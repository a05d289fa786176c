"""States that programs keep between calls: appended to in place, handed over, saved and refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphopt
import graphopt.runtime
from graphopt.errors import ExecutionError, InputError, ReadError, UsageError, VerificationError
from graphopt.ir.text import parse
from graphopt.runtime.bound_state import ROWS, BoundState

CACHE = """\
x: float32[batch, 2, new, 4]
past: float32[batch, 2, rows, 4]
doubled = Add(x, x)
present = Concat(past, doubled, axis=2)
turned = Transpose(present, perm=[0, 1, 3, 2])
scores = MatMul(x, turned)
weighed = MatMul(scores, present)
flat = Reshape(present, [0, 0, -1])
total = ReduceSum(flat, [2], keepdims=0)
return weighed, total, present
"""
TOTALS = """\
x: float32[n]
before: float32[n]
total = Add(x, before)
y = Mul(total, total)
return y, total
"""


def compiled(text: str, **options: Any) -> graphopt.CompiledModel:
    return graphopt.compile(parse(text), verify="off", **options)


def drawn(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


@pytest.fixture(scope="module")
def plain() -> graphopt.CompiledModel:
    return compiled(CACHE)


@pytest.mark.parametrize("batch", [1, 3])
def test_a_state_that_grows_gives_what_is_had_without(plain: graphopt.CompiledModel, batch: int) -> None:
    model = compiled(CACHE)
    state = model.bind_state()
    assert (model.input_names, state.inputs, state.outputs, state.length) == (("x",), ("x",), ("weighed", "total"), 0)
    past = np.empty((batch, 2, 0, 4), np.float32)
    for new in (5, 1, 1, ROWS, 1, 3 * ROWS, 2):
        x = drawn(batch, 2, new, 4)
        want = plain(x, past)
        got = model(x)
        past = want.pop("present")
        assert list(got) == ["weighed", "total"]
        for name, array in want.items():
            np.testing.assert_allclose(got[name], array, rtol=1e-4, atol=1e-3)
        assert state.length == past.shape[2]
        np.testing.assert_array_equal(state.arrays["past"], past)


def test_what_is_appended_is_written_behind_the_past_which_stays_where_it_is() -> None:
    model = compiled(CACHE)
    state = model.bind_state()
    model(drawn(1, 2, 3, 4))
    memory, count = state._memory["past"], state.bytes
    assert memory.shape == (1, 2, ROWS, 4)
    model(drawn(1, 2, ROWS - 3, 4))
    assert state._memory["past"] is memory
    assert state.bytes == count
    model(drawn(1, 2, 1, 4))
    assert state._memory["past"].shape == (1, 2, 2 * ROWS, 4)
    steps = [row.label for row in model.profile(drawn(1, 2, 1, 4))]
    assert not any("Concat" in label for label in steps), steps
    assert state.length == ROWS + 1, "a profile leaves the state"


def test_room_grows_by_half_so_that_rows_are_rarely_copied() -> None:
    model = compiled(CACHE)
    state = model.bind_state()
    grown = set()
    for _ in range(1000):
        model(drawn(1, 2, 1, 4))
        grown.add(state._memory["past"].shape[2])
    assert len(grown) < 10


def test_memory_is_planned_once_for_all_lengths_that_there_is_room_for() -> None:
    model = compiled(CACHE)
    state = model.bind_state()
    for new in (3, *(1,) * (ROWS - 3)):
        model(drawn(1, 2, new, 4))
    assert state.length == ROWS
    assert len(state.program._binder._plans) == 2, "one for three new rows, one for one"
    model(drawn(1, 2, 1, 4))
    assert len(state.program._binder._plans) == 3


def test_a_state_begins_anew_with_another_batch() -> None:
    model = compiled(CACHE)
    state = model.bind_state()
    model(drawn(1, 2, 3, 4))
    with pytest.raises(InputError, match="as batch is by the other inputs"):
        model(drawn(2, 2, 1, 4))
    assert state.length == 3
    state.reset()
    model(drawn(2, 2, 1, 4))
    assert state.arrays["past"].shape == (2, 2, 1, 4)


def test_a_state_goes_back_to_its_first_rows(plain: graphopt.CompiledModel) -> None:
    model = compiled(CACHE)
    state = model.bind_state()
    first, second = drawn(1, 2, 3, 4), drawn(1, 2, 2, 4)
    model(first)
    want = model(second)
    state.rewind(3)
    for name, array in model(second).items():
        np.testing.assert_array_equal(array, want[name])
    with pytest.raises(UsageError, match="a state of 5 rows cannot go back to 9"):
        state.rewind(9)


def test_a_state_of_one_shape_is_handed_over() -> None:
    model = compiled(TOTALS)
    state = model.bind_state({"before": "total"})
    x = drawn(7)
    first = dict(state._memory)
    np.testing.assert_allclose(model(x)["y"], x * x)
    written = state._memory["before"]
    np.testing.assert_allclose(model(x)["y"], 4 * x * x, rtol=1e-6)
    assert state._spare["before"] is written, "what the call before wrote is written next, and nothing is copied"
    assert not first
    np.testing.assert_allclose(state.arrays["before"], 2 * x)
    state.reset()
    np.testing.assert_allclose(model(x)["y"], x * x)
    with pytest.raises(UsageError, match="cannot go back"):
        state.rewind(0)


SCATTERED = {
    "TensorScatter": """\
graph scattered (ir 10, opset 24)
x: float32[batch, 2, new, 4]
at: int64[batch]
past: float32[batch, 2, 16, 4]
present = TensorScatter(past, x, at, axis=2)
total = ReduceSum(present, [2], keepdims=0)
return total, present
""",
    "ScatterND": """\
x: float32[new, 4]
at: int64[new, 1]
past: float32[16, 4]
present = ScatterND(past, at, x)
total = ReduceSum(present, [0], keepdims=0)
return total, present
""",
}


@pytest.mark.parametrize("op", SCATTERED)
def test_a_state_whose_elements_are_exchanged_stays_where_it_is(op: str) -> None:
    plain, model = compiled(SCATTERED[op]), compiled(SCATTERED[op])
    state = model.bind_state({"past": "present"})
    is_batch = op == "TensorScatter"
    past, places = np.zeros((2, 2, 16, 4) if is_batch else (16, 4), np.float32), []
    for new, first in ((3, 0), (1, 3), (2, 9)):
        x = drawn(2, 2, new, 4) if is_batch else drawn(new, 4)
        at = np.array([first, first + 1]) if is_batch else np.arange(first, first + new)[:, None]
        total, past = plain(x, at, past).values()
        np.testing.assert_allclose(model(x, at)["total"], total, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(state.arrays["past"], past)
        places.append(state._memory["past"])
    assert places[0] is places[1] is places[2]
    with pytest.raises(ExecutionError):
        model(x, at + 16)
    np.testing.assert_array_equal(state.arrays["past"], past)
    state.reset()
    model(x, at)
    assert not np.array_equal(state.arrays["past"], past)


def test_a_past_that_others_read_is_not_written_over() -> None:
    text = SCATTERED["ScatterND"].replace("total = ", "before = Neg(past)\ntotal = ").replace("total, p", "before, p")
    model = compiled(text)
    state = model.bind_state({"past": "present"})
    x, at = drawn(1, 4), np.array([[5]])
    model(x, at)
    want = -state.arrays["past"]
    np.testing.assert_array_equal(model(2 * x, at)["before"], want)


def test_states_are_saved_and_loaded(tmp_path: Path) -> None:
    model = compiled(CACHE)
    state = model.bind_state()
    model(drawn(2, 2, 3, 4))
    state.save(tmp_path / "state.npz")
    want = model(drawn(2, 2, 1, 4))
    state.reset()
    state.load(tmp_path / "state.npz")
    assert state.length == 3
    for name, array in model(drawn(2, 2, 1, 4)).items():
        np.testing.assert_array_equal(array, want[name])
    whole = (tmp_path / "state.npz").read_bytes()
    (tmp_path / "text").write_text("text")
    (tmp_path / "half").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "changed").write_bytes(whole.replace(b"fortran_order", b"fortran.order"))
    with open(tmp_path / "array", "wb") as file:
        np.save(file, drawn(2, 2, 3, 4))
    for name in ("text", "missing", "half", "changed", "array"):
        with pytest.raises(ReadError, match=name):
            state.load(tmp_path / name)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "the states are past, and none are given"),
        ({"past": np.zeros((1, 3, 2, 4), np.float32)}, r"float32\[1, 3, 2, 4\]: float32\[batch, 2, rows, 4\]"),
        ({"past": np.zeros((1, 2, 2, 4))}, r"float64\[1, 2, 2, 4\]"),
    ],
)
def test_states_that_do_not_fit_are_refused(arrays: Any, message: str) -> None:
    state = compiled(CACHE).bind_state()
    with pytest.raises(InputError, match=message):
        state.set(arrays)


def test_states_are_no_inputs_any_more() -> None:
    model = compiled(CACHE)
    model.bind_state()
    with pytest.raises(InputError, match="'past' is a state, which the program keeps: the inputs are 'x'"):
        model({"x": drawn(1, 2, 1, 4), "past": drawn(1, 2, 1, 4)})
    with pytest.raises(InputError, match="no array is given for 'x'"):
        model({})
    with pytest.raises(InputError, match="2 arrays are given"):
        model(drawn(1, 2, 1, 4), drawn(1, 2, 1, 4))
    with pytest.raises(UsageError, match="a state is bound already"):
        model.bind_state()
    with pytest.raises(UsageError, match="each call would change the state"):
        model.time(new=1, batch=1)


def test_a_call_that_fails_leaves_the_state() -> None:
    model = compiled("""\
x: int64[new]
table: float32[3]
past: float32[rows]
new = Gather(table, x)
present = Concat(past, new, axis=0)
y = Neg(present)
return y, present
""")
    state = model.bind_state()
    table = drawn(3)
    model(np.array([0, 1]), table)
    with pytest.raises(ExecutionError):
        model(np.array([7]), table)
    assert state.length == 2
    np.testing.assert_array_equal(model(np.array([2]), table)["y"], -table)


def test_sizes_that_no_input_tells_are_given() -> None:
    text = "x: float32[new, 4]\npast: float32[rows, 4]\nh: float32[units]\n"
    text += "present = Concat(past, x, axis=0)\nh2 = Tanh(h)\ny = Neg(x)\nreturn y, present, h2"
    pairs = {"past": "present", "h": "h2"}
    with pytest.raises(UsageError, match="no input but the state 'h' tells the size 'units'"):
        compiled(text).bind_state(pairs)
    model = compiled(text)
    state = model.bind_state(pairs, sizes={"units": 5})
    model(drawn(2, 4))
    assert state.arrays["h"].shape == (5,)


def test_a_saved_program_keeps_its_state(tmp_path: Path) -> None:
    model = compiled(CACHE)
    model.bind_state()
    want = [model(drawn(1, 2, new, 4)) for new in (3, 1)]
    model.save(tmp_path)
    loaded = graphopt.runtime.load(tmp_path)
    assert isinstance(loaded, graphopt.runtime.program.Program)
    state = loaded.bind_state()
    assert isinstance(state, BoundState)
    for new, expected in zip((3, 1), want, strict=True):
        got = state(drawn(1, 2, new, 4))
        for name, array in expected.items():
            np.testing.assert_array_equal(got[name], array)
    compiled(TOTALS).save(tmp_path / "without")
    with pytest.raises(UsageError, match="this program keeps no state"):
        graphopt.runtime.load(tmp_path / "without").bind_state()  # type: ignore[union-attr]


def test_a_program_that_keeps_states_is_compared_with_the_one_that_keeps_none(monkeypatch: pytest.MonkeyPatch) -> None:
    model = graphopt.compile(parse(CACHE), verify="require")
    state = model.bind_state()
    found = model.report.verification
    assert (found.status, found.engine, state.length) == ("verified", "graphopt without states", 0)
    monkeypatch.setattr(BoundState, "_step", lambda *_: None)  # it never goes on
    with pytest.raises(VerificationError, match="output 'present' differs where states are kept"):
        graphopt.compile(parse(CACHE), verify="require").bind_state()


def test_results_go_into_the_caller_s_arrays() -> None:
    model = compiled(TOTALS)
    model.bind_state({"before": "total"})
    x, y = drawn(7), np.empty(7, np.float32)
    assert model(x, out={"y": y})["y"] is y
    np.testing.assert_allclose(y, x * x)
    with pytest.raises(InputError, match="there is no output 'total' to write into: the outputs are 'y'"):
        model(x, out={"total": y})
    want = 4 * x * x
    np.testing.assert_allclose(model(x, out={"y": x})["y"], want, rtol=1e-6)
    np.testing.assert_allclose(x, want, rtol=1e-6, err_msg="an array that is read and written is not written too early")


def test_a_program_that_keeps_states_is_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHOPT_CACHE", str(tmp_path))
    graph = parse(CACHE)
    first = graphopt.compile(graph, cache=True)
    first.bind_state()
    again = graphopt.compile(graph, cache=True)
    again.bind_state()
    assert again.report.steps == (), "nothing was compiled"
    np.testing.assert_array_equal(again(drawn(1, 2, 3, 4))["total"], first(drawn(1, 2, 3, 4))["total"])


TWO = """\
x: float32[batch, 2, new, 4]
first: float32[batch, 2, rows, 4]
second: float32[2, rows, 4]
first.present = Concat(first, x, axis=2)
one = ReduceSum(x, [0], keepdims=0)
second.present = Concat(second, one, axis=1)
y = Neg(first.present)
return y, first.present, second.present
"""


def test_states_of_one_length_have_room_for_as_many_rows_each() -> None:
    model = compiled(TWO)
    state = model.bind_state()
    model(drawn(1, 2, 2 * ROWS, 4))
    state.reset()
    x = drawn(3, 2, 2, 4)  # memory of the first is made anew for another batch, and that of the second is not
    np.testing.assert_array_equal(model(x)["y"], -x)
    np.testing.assert_allclose(state.arrays["second"], x.sum(0), rtol=1e-6)


def test_states_of_one_length_that_grow_apart_are_refused() -> None:
    model = compiled(TWO.replace("Concat(first, x, axis=2)", "Concat(first, x, x, axis=2)"))
    state = model.bind_state()
    with pytest.raises(InputError, match="'first' and 'second' have 'rows' rows, both, and would have 6 and 3"):
        model(drawn(1, 2, 3, 4))
    assert state.length == 0


@pytest.mark.parametrize("text", [CACHE, TOTALS], ids=["grown", "one shape"])
def test_outputs_that_are_a_state_are_copies_of_it(text: str) -> None:
    past, present = ("past", "present") if text is CACHE else ("before", "total")
    lines = f"old = Identity({past})\nagain = Identity({present})\nreturn old, again, "
    text = text.replace("return ", lines)
    plain, model = compiled(text), compiled(text)
    model.bind_state({past: present})
    held, kept = [], np.zeros(7 if past == "before" else (1, 2, 0, 4), np.float32)
    for new in (3, 1, 1):
        x = drawn(7) if past == "before" else drawn(1, 2, new, 4)
        want = plain({"x": x, past: kept})
        kept = want.pop(present)
        held.append((want, model(x)))
        assert list(held[-1][1]) == list(want)
    for want, got in held:
        for name in ("old", "again"):
            np.testing.assert_allclose(got[name], want[name], rtol=1e-6)
