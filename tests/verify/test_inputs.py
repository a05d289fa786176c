from pathlib import Path

import numpy as np
import pytest

from graphopt.errors import LimitError, ReadError, UsageError
from graphopt.ir.constants import Constant
from graphopt.ir.graph import Attrs, Graph, Value
from graphopt.ir.text import parse
from graphopt.ir.types import SequenceType, TensorType, symbol
from graphopt.verify.inputs import InputRange, draw, given, ranges, sizes, special


def graph_of(dtype: str, *shape: object) -> tuple[Graph, Value]:
    graph = Graph()
    return graph, graph.add_input("x", TensorType(dtype, tuple(symbol(n) if isinstance(n, str) else n for n in shape)))  # type: ignore[arg-type,misc]


def constant(graph: Graph, array: object) -> Value:
    return graph.add_constant(Constant.of(np.asarray(array)))


def table(graph: Graph, rows: int) -> Value:
    return constant(graph, np.zeros((rows, 2), "f4"))


def test_an_index_stays_inside_its_table() -> None:
    graph, x = graph_of("int64", 3)
    y = graph.add("Gather", (table(graph, 7), graph.add("Cast", (x,), Attrs(to="int32")).outputs[0]))
    graph.add_output("y", y.outputs[0])
    assert ranges(graph) == {"x": InputRange(0, 6, whole=True)}


def test_the_smallest_of_several_tables_counts() -> None:
    graph, x = graph_of("int64", 3)
    for rows in (7, 4, 9):
        graph.add("Gather", (table(graph, rows), x))
    assert ranges(graph) == {"x": InputRange(0, 3, whole=True)}


def test_an_offset_shifts_the_range() -> None:
    graph, x = graph_of("int64", 3)
    shifted = graph.add("Add", (x, constant(graph, 2))).outputs[0]
    graph.add("Gather", (table(graph, 7), shifted))
    assert ranges(graph) == {"x": InputRange(-2, 4, whole=True)}


def test_one_hot_and_equality() -> None:
    graph, x = graph_of("int64")
    graph.add("OneHot", (x, constant(graph, 5), constant(graph, [0, 1])))
    graph.add("Equal", (x, constant(graph, 3)))
    assert ranges(graph) == {"x": InputRange(0, 4, choices=(3.0,), whole=True)}


def test_what_an_index_is_compared_with_is_drawn_where_the_table_has_it() -> None:
    graph, x = graph_of("int64", 64)
    graph.add("Gather", (table(graph, 7), x))
    for token in (3, 49407, 5):  # the end of a sentence in another vocabulary is no row
        graph.add("Equal", (x, constant(graph, token)))
    (found,) = ranges(graph).values()
    assert (found.low, found.high, found.choices) == (0, 6, (3, 5))
    drawn = np.asarray(draw(graph, {}, {"x": found}, {}, 0, 0)["x"])
    assert np.isin([3, 5], drawn).all()
    assert 2 < len(np.unique(drawn)) <= 7


@pytest.mark.parametrize(("dtype", "is_zero"), [("float4_e2m1fn", True), ("float8_e4m3fn", True), ("int8", False)])
def test_zero_points_of_small_floats_are_zero(dtype: str, is_zero: bool) -> None:
    graph = parse(f"x: {dtype}[5] z: {dtype}[] y = DequantizeLinear(x, 0.5, z, axis=0) return y")
    assert (ranges(graph).get("z") == InputRange(0, 0, whole=True)) == is_zero


def test_nothing_is_drawn_for_which_a_model_trains() -> None:
    graph = parse("""graph g (ir 9, opset 17, my 1)
        x: float32[4] calm: bool[] train: bool[] y = my::f(x, calm) z = Dropout(y, 0.5, train) return z
        function my::f() (opset 17) { a: ? d: ? b = Dropout(a, 0.5, Not(d)) return b }""")
    found = ranges(graph)
    for seed in range(4):
        feeds = draw(graph, {}, found, {}, seed, 0)
        assert (feeds["calm"], feeds["train"]) == (True, False)


def test_whole_numbers_are_not_divided_by_zero() -> None:
    heads = "x: int32[4] y: int32[4] u: float32[4] v: float32[4]"
    found = ranges(parse(f"{heads} p = Div(x, y) q = Mod(x, y) r = Div(u, v) return p, q, r"))
    assert found["y"].low == 1
    assert "v" not in found


def test_a_size_is_small_and_positive() -> None:
    graph, x = graph_of("int64", 2)
    graph.add("ConstantOfShape", (x,))
    (found,) = ranges(graph).values()
    assert found.low == 1
    assert found.high < 10


def test_what_a_body_captures_is_followed() -> None:
    body = Graph()
    inner = body.add_input("inner", TensorType("int64", (3,)))
    body.add_output("y", body.add("Gather", (table(body, 5), inner)).outputs[0])
    graph, x = graph_of("int64", 3)
    flag = graph.add_input("flag", TensorType("bool", ()))
    graph.add("If", (flag, x), Attrs(then_branch=body, else_branch=body), captures=1)
    assert ranges(graph)["x"] == InputRange(0, 4, whole=True)


def test_open_sizes() -> None:
    graph, _ = graph_of("float32", "n", 3, "h", "w")
    graph.add_input("state", TensorType("float32", (2, symbol("n"), 128)))
    found = list(sizes(graph, {"w": 11}))
    assert found[0] == {"n": 2, "h": 64, "w": 11}
    assert all(f["w"] == 11 for f in found)
    assert len(found) > 5


def test_a_size_that_is_called_as_a_sum_is_that_sum_at_first() -> None:
    graph, _ = graph_of("float32", "batch", "past", 8)
    graph.add_input("mask", TensorType("int64", (symbol("batch"), symbol("past+1"))))
    found = list(sizes(graph, {}))
    assert found[0]["past+1"] == found[0]["past"] + 1
    assert all(f["past+1"] == 7 for f in sizes(graph, {"past+1": 7}))
    assert any(f["past+1"] == f["past"] for f in found)  # a model may mean nothing by it


def test_weights_fix_open_channels() -> None:
    graph, x = graph_of("float32", "n", "c", "h", "w")
    graph.add("Conv", (x, constant(graph, np.zeros((8, 3, 1, 1), "f4"))), Attrs(group=2))
    assert all(f["c"] == 6 for f in sizes(graph, {}))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "uint8", "int4", "bool", "string"])
def test_every_dtype_is_drawn_and_the_same_each_time(dtype: str) -> None:
    graph, _ = graph_of(dtype, "n", 3)
    (first,), (second,) = (draw(graph, {"n": 2}, {}, {}, 0, 0).values() for _ in (0, 1))
    assert first.shape == (2, 3)  # type: ignore[attr-defined]
    assert first.dtype.name == ("object" if dtype == "string" else dtype)  # type: ignore[attr-defined]
    assert np.array_equal(first, second)  # type: ignore[arg-type]


def test_drawn_values_keep_their_range() -> None:
    graph, _ = graph_of("int64", 1000)
    (found,) = draw(graph, {}, {"x": InputRange(-3, 5)}, {}, 0, 0).values()
    assert (found.min(), found.max()) == (-3, 5)  # type: ignore[attr-defined]
    (found,) = draw(graph, {}, {}, {"x": (10, 11)}, 0, 0).values()
    assert set(found.tolist()) == {10, 11}  # type: ignore[attr-defined]


def test_a_default_is_varied_a_little() -> None:
    graph = Graph()
    graph.add_input("w", TensorType("float32", (3,)), Attrs(default=Constant.of(np.array([1, 2, 3], "f4"))))
    (found,) = draw(graph, {}, {}, {}, 0, 0).values()
    assert np.allclose(found, [1, 2, 3], rtol=0.11)  # type: ignore[arg-type]
    assert not np.array_equal(found, [1, 2, 3])  # type: ignore[arg-type]


def test_sequences_are_drawn_and_unknown_types_are_not() -> None:
    graph = Graph()
    graph.add_input("s", SequenceType(TensorType("float32", (2,))))
    (found,) = draw(graph, {}, {}, {}, 0, 0).values()
    assert [a.shape for a in found] == [(2,), (2,)]  # type: ignore[attr-defined]
    graph.add_input("u")
    with pytest.raises(ValueError, match="input 'u' has no type"):
        draw(graph, {}, {}, {}, 0, 0)


@pytest.mark.parametrize(
    ("dtype", "bounds"),
    [("float32", (0, 1e39)), ("float16", (-7e4, 0)), ("bfloat16", (0, 1e39)), ("uint8", (-1, 5)), ("int4", (0, 8))],
)
def test_bounds_that_a_dtype_does_not_hold_are_refused(dtype: str, bounds: tuple[float, float]) -> None:
    graph = Graph()
    graph.add_input("x", TensorType(dtype, (3,)))
    with pytest.raises(UsageError, match=f"input 'x' is {dtype}, which holds no "):
        draw(graph, {}, {}, {"x": bounds}, 0, 0)
    assert draw(graph, {}, {}, {"x": (0, 2)}, 0, 0)["x"].shape == (3,)  # type: ignore[attr-defined]


def test_sizes_beyond_memory_are_refused() -> None:
    graph = Graph()
    graph.add_input("x", TensorType("float32", (symbol("n"), 1 << 20)))
    for size in (1 << 40, 1 << 62):
        with pytest.raises(LimitError, match=rf"input 'x' would be float32\[{size}, 1048576\]"):
            draw(graph, {"n": size}, {}, {}, 0, 0)


def test_what_users_give(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(3))
    (tmp_path / "bad.npy").write_text("no array")
    assert given("0..1e3") == (0, 1000)
    assert given("-2..-1") == (-2, -1)
    assert np.array_equal(given(tmp_path / "a.npy"), np.arange(3))
    for value, error in (("5..1", UsageError), ("a..b", UsageError), ("x", UsageError)):
        with pytest.raises(error):
            given(value)
    with pytest.raises(ReadError, match="not an array of numbers, or a damaged one"):
        given(tmp_path / "bad.npy")


def test_floats_that_are_cast_to_indices_are_indices() -> None:
    """As TensorFlow's exporter writes an embedding: the choice of negative indices is a sum of masked products."""
    graph = parse("""x: float32[n, 21], t: float32[178, 32]
        i = Cast(x, to=6)
        less = Less(Cast(i, to=1), 0.0)
        first = Mul(Cast(less, to=6), Add(i, int32[]{178}))
        second = Mul(i, Cast(Not(less), to=6))
        y = Gather(t, Add(first, second))
        return y""")
    found = ranges(graph)["x"]
    assert found.whole
    assert (found.low, found.high) in ((0, 177), (-178, -1))
    drawn = draw(graph, {"n": 50}, {"x": found}, {}, 0, 0)["x"]
    assert (drawn == np.rint(drawn)).all()
    assert len(set(drawn.ravel().tolist())) > 100


def test_integers_that_are_only_computed_with_may_be_any() -> None:
    graph = parse("""x: int64[200], n: int64[1], k: int64[200]
        y = Abs(Add(x, k))
        z = Expand(y, n)
        return y, z""")
    found = ranges(graph)
    assert "k" not in found or not found["k"].is_free or found["n"].whole
    alone = ranges(parse("x: int64[200]\n y = Abs(x)\n return y"))
    drawn = draw(parse("x: int64[200]\n y = Abs(x)\n return y"), {}, alone, {}, 0, 0)["x"]
    assert drawn.min() == np.iinfo(np.int64).min
    assert ((drawn < 0) & (drawn > -5)).any()
    assert (drawn > 300).any()


@pytest.mark.parametrize(
    ("positions", "least", "most"),
    [
        ("Expand(Range(0, 20, 1), [2, 20])", 1, 20), ("Range(0, Max(n), 1)", 1, 8), ("Range(5, 9, 1)", 6, 9),
        ("[0, 1, 2, 3, 4, 5, 6]", 1, 7), ("[3, 2, 2]", 3, 4),
    ],
)  # fmt: skip
@pytest.mark.parametrize("op", ["Less", "GreaterOrEqual"])
def test_lengths_leave_something_of_each_row(op: str, positions: str, least: int, most: int) -> None:
    graph = parse(f"n: int64[2]\n y = {op}({positions}, Unsqueeze(n, [1]))\n return y")
    assert ranges(graph) == {"n": InputRange(least, most, whole=True)}


@pytest.mark.parametrize("others", ["[7, 2, 9]", "3", "[4]"])
def test_what_is_compared_with_other_numbers_is_no_length(others: str) -> None:
    graph = parse(f"n: int64[2, 1]\n y = Less(n, {others})\n return y")
    assert ranges(graph)["n"].is_free


def test_floats_are_no_lengths() -> None:
    graph = parse("x: float32[9]\n y = Less(x, Range(0.0, 9.0, 1.0))\n return y")
    assert ranges(graph)["x"].is_free


def test_numbers_that_a_graph_compares_with_are_reached_and_passed() -> None:
    graph = parse("x: float32[256]\n y = Clip(x, -30.0, 40.0)\n return y")
    drawn = draw(graph, {}, ranges(graph), {}, 0, 0)["x"]
    assert {-30.0, 40.0} <= set(drawn.tolist())  # type: ignore[attr-defined]
    assert drawn.min() < -30  # type: ignore[attr-defined]
    assert drawn.max() > 40  # type: ignore[attr-defined]


def test_special_values_leave_out_what_is_not_finite_where_policies_do() -> None:
    graph = parse("x: float32[256], i: int64[2]\n y = Gather(x, i)\n return y")
    bounds = ranges(graph)
    feeds = draw(graph, {}, bounds, {}, 0, 0)
    exact, finite = (special(graph, feeds, bounds, {}, 0, is_exact) for is_exact in (True, False))
    assert np.isnan(exact["x"]).any()  # type: ignore[call-overload]
    assert np.isinf(exact["x"]).any()  # type: ignore[call-overload]
    assert np.isfinite(finite["x"]).all()  # type: ignore[call-overload]
    zeros = finite["x"][finite["x"] == 0]  # type: ignore[index]
    assert len({bool(sign) for sign in np.signbit(zeros)}) == 2
    assert exact["i"] is feeds["i"]


@pytest.mark.parametrize("name", ["past+seq", "total"])
def test_masks_are_as_long_as_what_a_cache_holds(name: str) -> None:
    graph = Graph()
    past, new = (graph.add_input(n, TensorType("float32", (symbol("batch"), 2, symbol(n), 8))) for n in ("past", "seq"))
    mask = graph.add_input("mask", TensorType("int64", (symbol("batch"), symbol(name))))
    present = graph.add("Concat", (past, new), Attrs(axis=2)).outputs[0]
    graph.add_output("present", present)
    graph.add_output("mask2", graph.add("Neg", (mask,)).outputs[0])
    first = next(iter(sizes(graph, {})))
    assert first[name] == first["past"] + first["seq"]
    assert next(iter(sizes(graph, {name: 5})))[name] == 5


def test_caches_that_are_empty_are_tried() -> None:
    graph = Graph()
    graph.add_output("y", graph.add_input("past", TensorType("float32", (1, 2, symbol("past.2"), 8))))
    assert {"past.2": 0} in list(sizes(graph, {}))
