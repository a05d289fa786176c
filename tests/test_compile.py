"""Compiled models compute what ONNX's reference evaluator computes, and refuse what they cannot be called with."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import graphopt
from graphopt.compile import CompiledModel, ReferenceWarning
from graphopt.errors import CompilationError, ExecutionError, InputError, UsageError
from graphopt.ir import evaluate, onnx_io
from graphopt.ir.graph import Graph
from graphopt.ir.text import parse
from graphopt.ir.tolerance import error
from graphopt.program import compiled_model
from graphopt.runtime.steps import Branch, LoopStep

PERCEPTRON = """
x: float32[batch, 16]
w = float32[16, 32]{0.125, ...}
b = float32[32]{0.5, ...}
v = float32[32, 8]{-0.25, ...}
y = Softmax(MatMul(Relu(Add(MatMul(x, w), b)), v))
return y
"""
RNG = np.random.default_rng(0)


def compiled(text: str | Graph, **options: Any) -> CompiledModel:
    graph = parse(text) if isinstance(text, str) else text
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReferenceWarning)
        return graphopt.compile(graph, **{"optimize": False, **options})


def check(text: str, *draws: dict[str, Any], **options: Any) -> CompiledModel:
    """The compiled model, which agrees with the reference evaluator on some inputs."""
    graph = parse(text)
    made = compiled(graph, **options)
    for feeds in draws:
        want, got = evaluate.run(graph, feeds), made(feeds)
        assert list(want) == list(got)
        for name in want:
            assert error(np.asarray(want[name]), got[name]) <= 1, name
    return made


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("optimize", [False, True])
def test_a_perceptron_runs_at_any_batch_size_from_one_compilation(optimize: bool) -> None:
    made = check(PERCEPTRON, *({"x": floats(n, 16)} for n in (1, 3, 64, 0)), optimize=optimize)
    assert made.report.unlowered == ()
    assert made.report.kernels <= 4


def test_inputs_come_by_name_in_order_or_as_a_list() -> None:
    made = compiled("x: float32[n] y: float32[n] z = Sub(x, y) return z")
    x, y = floats(4), floats(4)
    for call in ({"y": y, "x": x}, [x, y]):
        np.testing.assert_array_equal(made(call)["z"], x - y)
    np.testing.assert_array_equal(made(x, y)["z"], x - y)
    out = np.empty(4, np.float32)
    assert made(x, y, out={"z": out})["z"] is out


def test_a_model_is_a_path_or_bytes_or_a_message(tmp_path: Path) -> None:
    graph, x = parse(PERCEPTRON), floats(2, 16)
    onnx_io.save(graph, tmp_path / "m.onnx")
    want = evaluate.run(graph, {"x": x})["y"]
    for model in (tmp_path / "m.onnx", str(tmp_path / "m.onnx"), onnx_io.to_bytes(graph), onnx_io.to_proto(graph)):
        assert error(want, graphopt.compile(model)(x)["y"]) <= 1


@pytest.mark.parametrize(
    ("feeds", "said"),
    [
        ({}, "no array is given for 'x'"),
        ({"x": np.zeros((2, 16), np.float32), "q": np.zeros(1)}, "no input 'q'"),
        ({"x": np.zeros((2, 16))}, r"float64\[2, 16\]"),
        ({"x": np.zeros((16,), np.float32)}, r"float32\[batch, 16\] is expected"),
        ({"x": np.zeros((2, 15), np.float32)}, "size 15 along axis 1"),
        ({"x": [1.0, 2.0]}, "is of type list"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(feeds: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        compiled(PERCEPTRON)(feeds)


@pytest.mark.parametrize("op", ["Div", "Mod"])
def test_division_of_whole_numbers_by_a_constant_of_zero_does_not_trap(op: str) -> None:
    made = compiled(f"x: int64[n] i: int64[1] d = [0, 3] y = {op}(Gather([7, 8], i), 0) z = Gather(x, y) return y, z")
    got = made({"x": np.arange(3), "i": np.array([1])})
    assert (got["y"].tolist(), got["z"].tolist()) == ([0], [0])


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_of_nothing_there_is_no_largest(op: str) -> None:
    made = compiled(f"x: float32[n, m] y = {op}(x, axis=1) return y")
    assert made(floats(0, 3))["y"].shape == (0, 1)
    with pytest.raises((ExecutionError, InputError), match=f"{op}: an axis of size 0"):
        made(floats(3, 0))


@pytest.mark.parametrize(
    "op",
    [
        "Conv(x, float32[4, 3, 1, 1]{0.5, ...}, b, kernel_shape=[1, 1])",
        "ConvTranspose(x, float32[3, 4, 2, 2]{0.5, ...}, b, kernel_shape=[2, 2])",
        "ConvTranspose(x, float32[3, 4, 2, 2]{0.5, ...}, b, kernel_shape=[2, 2], strides=[2, 2], dilations=[2, 2])",
        "BatchNormalization(Concat(x, y, axis=1), b, b, b, b)",
        "InstanceNormalization(Concat(x, y, axis=1), b, b)",
    ],
)
def test_numbers_of_channels_that_do_not_fit_are_refused(op: str) -> None:
    made = compiled(f"x: float32[1, c, 3, 3] y: float32[1, 1, 3, 3] b: float32[m] z = {op} w = Neg(y) return z, w")
    y = floats(1, 1, 3, 3)
    assert np.isfinite(made(np.abs(floats(1, 3, 3, 3)), y, np.ones(4, np.float32))["z"]).all()
    within, ahead = (
        r"z: .*: sizes of its inputs do not agree: .* is expected, with",
        "size 2 along axis 1, and 3 is expected",
    )
    for c, m, why in ((3, 1, within), (2, 4, within if "Concat" in op else ahead)):
        with pytest.raises(InputError, match=why):
            made(floats(1, c, 3, 3), y, np.ones(m, np.float32))


def test_an_input_that_does_not_broadcast_is_refused_before_anything_runs() -> None:
    made = check("x: float32[n, c] y = Add(x, float32[4]{0.5, ...}) return y", {"x": floats(2, 4)}, {"x": floats(2, 1)})
    with pytest.raises(InputError, match=r"^y: Add: .*: \(c == 1\) or \(c == 4\) is expected, with {'c': 2}$"):
        made(floats(2, 2))


def test_stacks_of_matrices_are_repeated_where_there_is_one() -> None:
    feeds = ({"a": floats(n, 2, 5), "b": floats(m, 5, 2)} for n, m in ((1, 3), (3, 1), (3, 3)))
    made = check("a: float32[n, 2, 5] b: float32[m, 5, 2] y = MatMul(a, b) return y", *feeds)
    with pytest.raises(InputError, match="do not go together"):
        made(floats(2, 2, 5), floats(3, 5, 2))


@pytest.mark.parametrize("shape", ["[-1, 5]", "[4, 5]", "[2, 2]", "[0, 6]"])
def test_elements_that_do_not_fill_a_shape_are_refused(shape: str) -> None:
    made = compiled(f"x: float32[a, b] y = Relu(Reshape(x, {shape})) return y")
    with pytest.raises(InputError, match=r"^\w+: Reshape of \[a, b\] to .* is expected, with {'a': 3, 'b': 4}$"):
        made(floats(3, 4))


def test_more_elements_than_there_are_are_refused_with_both_numbers() -> None:
    made = compiled("x: float32[n, 5] k: int64[1] y, i = TopK(x, k) return y, i")
    assert made(floats(2, 5), np.array([5]))["y"].shape == (2, 5)
    for k in (6, -1):
        with pytest.raises(InputError, match=rf"'\?\d+': {k}}}"):
            made(floats(2, 5), np.array([k]))


def test_what_onnx_leaves_open_is_as_documented() -> None:
    text = "x: int64[n] d: int64[n] q = Div(x, d) r = Mod(x, d) return q, r"
    found = compiled(text)(np.array([5, -5, 0, 7]), np.array([0, 0, 0, 2]))
    assert (found["q"].tolist(), found["r"].tolist()) == ([0, 0, 0, 3], [0, 0, 0, 1])
    wanted = {"ReduceSum": 0, "ReduceProd": 1, "ReduceMax": -np.inf, "ReduceMin": np.inf, "ReduceMean": np.nan}
    steps = " ".join(f"{op} = {op}(x, int64[1]{{1}}, keepdims=0)" for op in wanted)
    found = compiled(f"x: float32[n, k] {steps} return {', '.join(wanted)}")(floats(2, 0))
    assert all(np.array_equal(found[op], np.full(2, value), equal_nan=True) for op, value in wanted.items())
    least = compiled("x: int32[n, k] y = ReduceMax(x, int64[1]{1}, keepdims=0) return y")(np.ones((2, 0), np.int32))
    assert least["y"].tolist() == [np.iinfo(np.int32).min] * 2
    copied = compiled("x: float32[a, b] y = Relu(Reshape(x, int64[2]{0, -1})) return y")
    assert [copied(floats(*shape))["y"].shape for shape in ((3, 4), (3, 0))] == [(3, 4), (3, 0)]


def test_symbols_that_two_inputs_share_agree() -> None:
    made = compiled("x: float32[n] y: float32[n] z = Sub(x, y) return z")
    with pytest.raises(InputError, match="'y' has size 3"):
        made(floats(4), floats(3))


def test_a_model_is_compiled_for_each_shape_that_an_input_holds() -> None:
    text = "x: float32[n] s: int64[2] y = Reshape(x, s) return y"
    x = floats(12)
    made = check(text, *({"x": x, "s": np.array(s)} for s in ([3, 4], [2, 6], [-1, 3], [3, 4])))
    assert made.report.unlowered == ()
    with pytest.raises(InputError, match="'s'"):
        made({"x": x})
    with pytest.raises(InputError, match="'s' is float32"):
        made({"x": x, "s": np.array([3, 4], np.float32)})


def test_there_is_no_report_before_there_is_a_program() -> None:
    with pytest.raises(UsageError, match="each value of s"):
        _ = compiled("x: float32[n] s: int64[1] y = ReduceSum(x, s) return y").report


def test_an_input_of_any_rank_is_compiled_for_each() -> None:
    check("x: float32[*] y = Relu(x) return y", {"x": floats(3)}, {"x": floats(2, 3)}, {"x": floats()})


def test_defaults_of_inputs() -> None:
    graph = parse("x: float32[2] w: float32[2] y = Add(x, w) return y")
    from graphopt.ir.constants import Constant
    from graphopt.ir.graph import Attrs

    graph.update(graph.inputs[1].node, attrs=Attrs(default=Constant.of(np.array([1, 2], np.float32))))
    made = compiled(graph)
    x = floats(2)
    np.testing.assert_array_equal(made({"x": x})["y"], x + np.array([1, 2], np.float32))
    np.testing.assert_array_equal(made({"x": x, "w": x})["y"], x + x)


# -- what no kernel computes


def test_reference_is_a_warning_that_names_the_node_and_an_error_where_it_is_not_wanted() -> None:
    graph = parse("x: float32[n, 2] r: float32[m, 2] h = Neg(x) top = com.microsoft::CDist(h, r) return top")
    with pytest.warns(ReferenceWarning, match=r"top \(com.microsoft::CDist\) runs in ONNX Runtime"):
        made = graphopt.compile(graph, optimize=False)
    x, points = np.array([[1, 2], [-3, 0]], np.float32), np.array([[0, 0], [3, 4]], np.float32)
    np.testing.assert_array_equal(made(x, points)["top"], [[5, 52], [9, 16]])
    assert [(name, op) for name, op, _ in made.report.reference] == [("top", "com.microsoft::CDist")]
    with pytest.raises(CompilationError, match="'top'"):
        graphopt.compile(graph, optimize=False, strict=True)


def test_what_follows_knows_the_sizes_that_elements_say() -> None:
    check(
        "x: float32[n, 2] w = NonZero(x) y = Mul(Cast(w, to=1), 2.0) z = Softmax(y) return z",
        {"x": floats(5, 2)},
        {"x": np.zeros((5, 2), np.float32)},
    )


def test_one_program_serves_all_sizes_that_elements_say() -> None:
    text = "x: float32[n] s: int64[2] k: int64[1] y = Expand(x, s) t, i = TopK(y, k) z = Relu(Add(t, t)) return z, i"
    draws = [
        {"x": floats(n), "s": np.array([m, 1]), "k": np.array([k])} for n, m, k in ((3, 2, 3), (5, 1, 0), (4, 0, 2))
    ]
    made = check(text, *draws)
    assert len(made._programs) == 1
    assert made.report.unlowered == ()


def test_strings_and_sequences_pass_through() -> None:
    made = compiled("s: string[n] y = StringConcat(s, s) return y")
    assert made(np.array(["a", "bc"], object))["y"].tolist() == ["aa", "bcbc"]


# -- control flow


def test_branches() -> None:
    yes, no = "q: ? r = Exp(Neg(q)) return r", "q: ? return q"
    text = f"x: float32[n] c: bool[] y = If(c | x, then_branch={{ {yes} }}, else_branch={{ {no} }}) return y"
    made = check(text, *({"x": floats(5), "c": np.array(c)} for c in (True, False)))
    assert made.report.unlowered == ()
    assert any(isinstance(s, Branch) for s in made.compiled.linked.steps)


LOOPS = {
    "so many rounds, and what each gives": """
        m: int64[] x: float32[2]
        y, z = Loop(m, bool[]{true}, x, body={
            i: int64[] c: bool[] s: ? t = Mul(s, 2.0) o = Add(t, 1.0) return c, t, o })
        return y, z
    """,
    "as long as a condition holds": """
        m: int64[] x: float32[2] b: bool[]
        y = Loop(_, b, x, body={
            i: int64[] c: bool[] s: ? t = Mul(s, 2.0) k = Less(ReduceMax(t, keepdims=0), 100.0) return k, t })
        return y
    """,
    "states that change places": """
        m: int64[] x: float32[2] v: float32[2]
        y, z = Loop(m, bool[]{true}, x, v, body={ i: int64[] c: bool[] s: ? t: ? return c, t, s })
        return y, z
    """,
    "the number of the round": """
        m: int64[] x: float32[2]
        y = Loop(m, bool[]{true}, x, body={ i: int64[] c: bool[] s: ? t = Add(s, Cast(i, to=1)) return c, t })
        return y
    """,
    "what the body captures": """
        m: int64[] x: float32[2] w: float32[2]
        y = Loop(m, bool[]{true}, x | w, body={ i: int64[] c: bool[] s: ? q: ? t = Add(s, Exp(q)) return c, t })
        return y
    """,
}


@pytest.mark.parametrize("case", LOOPS)
def test_loops(case: str) -> None:
    graph = parse(LOOPS[case])
    given: dict[str, Any] = {graph.names[v]: np.abs(floats(2)) for v in graph.inputs}
    if "b" in given:
        given["b"] = np.array(True)
    made = check(LOOPS[case], *({**given, "m": np.array(m)} for m in (3, 1, 5)))
    assert made.report.unlowered == ()
    assert any(isinstance(s, LoopStep) for s in made.compiled.linked.steps)


COUNTS = {
    "a number": ("m: int64[]", "m, bool[]{true}"),
    "a condition": ("c: bool[]", "int64[]{2}, c"),
    "both": ("m: int64[] c: bool[]", "m, c"),
    "a negative constant": ("c: bool[]", "int64[]{-3}, c"),
    "never": ("m: int64[]", "m, bool[]{false}"),
}


@pytest.mark.parametrize("case", COUNTS)
def test_loops_of_no_rounds_stack_nothing(case: str) -> None:
    inputs, given = COUNTS[case]
    made = compiled(
        f"{inputs} x: float32[n] y, z = Loop({given}, x, body={{ i: int64[] c: bool[] s: ? t = Mul(s, 2.0) "
        "return c, t, t }) return y, z"
    )
    x = floats(4)
    for m, c in ((0, True), (2, True), (-3, True), (2, False)):
        n = {"a number": m, "a condition": 2 * c, "both": m * c}.get(case, 0)
        given_now = {"m": np.array(m), "c": np.array(c), "x": x}
        got = made({name: a for name, a in given_now.items() if name in made.input_names})
        np.testing.assert_array_equal(got["y"], x * 2 ** max(n, 0))
        np.testing.assert_array_equal(got["z"], [x * 2 ** (k + 1) for k in range(n)] if n > 0 else np.empty((0, 4)))


@pytest.mark.parametrize("back", [0, 1])
def test_scans(back: int) -> None:
    body = "s: ? x: ? t = Add(s, x) return t, t"
    made = compiled(
        f"a: float32[3] x: float32[5, 3] y, z = Scan(a, x, num_scan_inputs=1, scan_input_directions=[{back}], "
        f"scan_output_directions=[{back}], body={{ {body} }}) return y, z"
    )
    a, x = floats(3), floats(5, 3)
    got = made({"a": a, "x": x})
    sums = a + np.cumsum(x[::-1] if back else x, axis=0)
    np.testing.assert_allclose(got["y"], sums[-1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got["z"], sums[::-1] if back else sums, rtol=1e-5, atol=1e-6)
    assert made.report.unlowered == ()


# -- the rest


def test_threads_do_not_change_results() -> None:
    text = "x: float32[512, 700] y = Softmax(Exp(x)) return y"
    x = floats(512, 700)
    one, two = (compiled(text, threads=n)(x)["y"] for n in (1, 2))
    np.testing.assert_array_equal(one, two)


def test_several_python_threads_may_call_at_once() -> None:
    text = "x: float32[n] s: int64[2] y = Neg(Reshape(x, s)) return y"
    made, x = compiled(text), floats(12)
    wrong: list[object] = []

    def work(k: int) -> None:
        shape = (2, 6) if k % 2 else (3, 4)
        for _ in range(20):
            if not np.array_equal(made({"x": x, "s": np.array(shape)})["y"], -x.reshape(shape)):
                wrong.append(k)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_a_saved_program_needs_numpy_and_nothing_else(tmp_path: Path) -> None:
    made, x = compiled(PERCEPTRON), floats(3, 16)
    made.save(tmp_path / "p")
    np.save(tmp_path / "x.npy", x)
    script = (
        "import sys, numpy as np; from graphopt.runtime.saved import load\n"
        f"p = load({str(tmp_path / 'p')!r}); y = p({{'x': np.load({str(tmp_path / 'x.npy')!r})}})['y']\n"
        f"np.save({str(tmp_path / 'y.npy')!r}, y)\n"
        "assert not {'onnx', 'numba', 'networkx', 'egglog', 'ml_dtypes'} & set(sys.modules), sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), made(x)["y"])


def test_a_closed_model_is_not_called() -> None:
    with compiled(PERCEPTRON) as made:
        made(floats(1, 16))
    with pytest.raises(InputError, match="closed"):
        made(floats(1, 16))


def test_a_profile_names_nodes() -> None:
    made = compiled("x: float32[64, 64] y = Exp(x) return y")
    (row,) = made.profile(floats(64, 64))
    assert row.nodes == ("y",)
    assert row.flops == 64 * 64
    assert row.bytes == 2 * 4 * 64 * 64


def test_a_view_in_a_branch_that_is_not_taken_may_have_any_size() -> None:
    condition = helper.make_node("Equal", ["n", "one"], ["c"])
    squeezed = helper.make_graph(
        [helper.make_node("Squeeze", ["x", "last"], ["s"])], "then", [], [helper.make_tensor_value_info("s", 1, None)]
    )
    kept = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["k"])], "otherwise", [], [helper.make_tensor_value_info("k", 1, None)]
    )
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "last"], ["n"]),
        condition,
        helper.make_node("If", ["c"], ["y"], then_branch=squeezed, else_branch=kept),
        helper.make_node("ReduceSum", ["y"], ["total"], keepdims=0),
    ]
    given = [numpy_helper.from_array(np.array([1], np.int64), n) for n in ("one", "last")]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", 1, [2, "n"])],
        [helper.make_tensor_value_info("total", 1, [])],
        given,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    program = graphopt.compile(model.SerializeToString(), cache=False)
    for n in (1, 3):
        x = np.ones((2, n), np.float32)
        assert program(x)["total"] == 2 * n


@pytest.mark.parametrize("optimize", [False, True])
def test_a_view_of_a_wrong_size_in_a_branch_that_is_taken_is_refused(optimize: bool) -> None:
    yes, no = "q: ? r = Squeeze(q, [1]) return r", "q: ? r = ReduceSum(q, [1], keepdims=0) return r"
    text = f"x: float32[2, n] c: bool[] y = If(c | x, then_branch={{ {yes} }}, else_branch={{ {no} }}) return y"
    made = compiled(text, optimize=optimize)
    assert made.report.unlowered == ()
    for x, taken in ((floats(2, 1), True), (floats(2, 1), False), (floats(2, 3), False), (floats(2, 0), False)):
        np.testing.assert_allclose(made({"x": x, "c": np.array(taken)})["y"], x.sum(1), rtol=1e-5, atol=1e-6)
    for n in (0, 3):
        with pytest.raises(ExecutionError, match="another number of elements"):
            made({"x": floats(2, n), "c": np.array(True)})


def test_strings_are_handed_out_as_copies() -> None:
    made = compiled('c = string[2]{"a", "b"} y = Identity(c) return y')
    made()["y"][0] = "changed"
    assert made()["y"].tolist() == ["a", "b"]


def test_several_python_threads_may_make_programs_at_once() -> None:
    made = compiled("x: float32[*] s: int64[1] y = Expand(x, s) return y")
    made._compiled = slowly(made._compiled)  # type: ignore[method-assign]
    found: dict[int, int] = {}

    def call(n: int) -> None:
        found[n] = made({"x": floats(1), "s": np.array([n])})["y"].size

    threads = [threading.Thread(target=call, args=(n,)) for n in range(1, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: n for n in range(1, 6)}


def slowly(function: Callable[[Graph], Any]) -> Callable[[Graph], Any]:
    def run(graph: Graph) -> Any:
        time.sleep(0.05)
        return function(graph)

    return run


def test_a_model_keeps_so_many_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_model, "KEPT", 2)
    made = compiled("x: float32[n, n, n] s: int64[1] y = ReduceSum(x, s) return y")
    for n in (0, 1, 2, 0):
        assert made({"x": floats(4, 4, 4), "s": np.array([n])})["y"].shape.index(1) == n
    assert len(made._programs) == 2


def test_a_pipeline_says_all_that_is_done() -> None:
    with pytest.raises(UsageError, match="leave optimize, target, policy, costs, tuned and database out"):
        graphopt.compile(parse("x: float32[n] y = Relu(x) return y"), pipeline="zero", optimize=False)


def test_a_policy_says_which_rules_are_applied() -> None:
    tanh = "Tanh(Mul(Add(x, Mul(Pow(x, 3.0), 0.044715)), 0.7978846))"
    graph = parse(f"x: float32[64] y = Mul(Mul(x, 0.5), Add({tanh}, 1.0)) return y")
    ops = {p: [n.op for n in compiled(graph, optimize=True, policy=p).graph.nodes()] for p in ("exact", "reals")}
    assert "Gelu" not in ops["exact"]
    assert "Gelu" in ops["reals"]
    with pytest.raises(UsageError, match="no policy is called 'nearly'"):
        compiled(graph, optimize=True, policy="nearly")


DETERMINANT = """
a: float32[n, 2]
b: float32[n, 2]
p = Mul(a, b)
det = Sub(Gather(p, 0, axis=1), Gather(p, 1, axis=1))
c = Mul(Gather(a, 0, axis=1), Gather(b, 0, axis=1))
d = Mul(Gather(a, 1, axis=1), Gather(b, 1, axis=1))
flat = Sub(c, d)
sum = ReduceSum(Mul(a, Mul(b, float32[1, 2]{1.0, -1.0})), [1], keepdims=0)
return det, flat, sum
"""


@pytest.mark.parametrize("target", ["cpu", "simulated"])
@pytest.mark.parametrize("policy", ["exact", "finite"])
def test_nothing_is_contracted_under_the_strict_policies(policy: str, target: str) -> None:
    """The determinant of a singular matrix is 0, of which a fused multiply-add leaves what the product was rounded
    by."""
    x, y = floats(37), floats(37)
    feeds = {"a": np.stack([x, y], 1), "b": np.stack([y, x], 1)}
    made = graphopt.compile(parse(DETERMINANT), policy=policy, target=target)
    for name, value in made(feeds).items():
        assert not value.any(), name


@pytest.mark.parametrize("policy", ["exact", "finite"])
def test_what_is_optimized_under_the_strict_policies_contracts_nothing(policy: str) -> None:
    x, y = floats(37), floats(37)
    made = graphopt.optimize(onnx_io.to_proto(parse(DETERMINANT)), policy=policy, verify="off")
    for name, value in graphopt.compile(made, policy=policy)(
        {"a": np.stack([x, y], 1), "b": np.stack([y, x], 1)}
    ).items():
        assert not value.any(), name


@pytest.mark.parametrize("policy", ["exact", "finite"])
def test_a_program_gives_the_bits_that_its_nodes_give_one_by_one_under_the_strict_policies(policy: str) -> None:
    """Sums are added up in an order of the kernels' own, which ONNX leaves open, and which no neighbour changes."""
    x, w = floats(64, 257), floats(257, 65)
    first, *rest = "y = MatMul(x, w)", "y = Softmax(x, axis=-1)", "y = ReduceSum(x, [1], keepdims=1)"
    head = "x: float32[m, k], w: float32[k, n] "
    value = graphopt.compile(parse(head + first + " return y"), policy=policy)({"x": x, "w": w})["y"]
    for part in rest:
        value = graphopt.compile(parse(f"x: float32[m, k] {part} return y"), policy=policy)(value)["y"]
    whole = "y = ReduceSum(Softmax(MatMul(x, w), axis=-1), [1], keepdims=1) return y"
    np.testing.assert_array_equal(graphopt.compile(parse(head + whole), policy=policy)({"x": x, "w": w})["y"], value)


def test_products_and_sums_are_contracted_by_default() -> None:
    """Else the test above could not fail."""
    x, y = floats(37), floats(37)
    made = graphopt.compile(parse(DETERMINANT))
    assert made({"a": np.stack([x, y], 1), "b": np.stack([y, x], 1)})["flat"].any()


ROUNDED = """
x: float32[b, t, 8]
w: float32[8, 8]
q = MatMul(x, w)
p = Softmax(Mul(MatMul(q, Transpose(x, perm=[0, 2, 1])), 0.35355338), axis=-1)
r = Div(Sub(Add(Mul(p, 255.0), 12582912.0), 12582912.0), 255.0)
a = MatMul(r, x)
n = Sub(Add(Div(a, 0.1), 12582912.0), 12582912.0)
y = Mul(n, 0.1)
z = Mul(n, n)
return r, y, z
"""
"""Attention with its weights and outputs rounded to steps, by adding a number so large that nothing else is left."""


@pytest.mark.parametrize("policy", ["exact", "finite", "reals"])
@pytest.mark.parametrize("way", ["compile", "portable", "ort"])
def test_rounding_to_steps_by_a_large_number_stays(way: str, policy: str) -> None:
    feeds = {"x": floats(2, 7, 8), "w": floats(8, 8)}
    if way == "compile":
        got = graphopt.compile(parse(ROUNDED), policy=policy)(feeds)
    else:
        got = evaluate.run(graphopt.optimize(parse(ROUNDED), target=way, policy=policy, verify="off"), feeds)
    steps = {"r": got["r"] * 255, "y": got["y"] * 10, "z": np.sqrt(got["z"])}
    for name, value in steps.items():
        np.testing.assert_allclose(value, np.round(value), atol=1e-4, err_msg=name)
    want = evaluate.run(parse(ROUNDED), feeds)
    assert np.mean([np.mean(np.abs(got[name] - want[name]) < 1e-5) for name in want]) > 0.95


def test_quantization_of_onnxruntimes_own_to_16_bits() -> None:
    """ONNX Runtime's own ops had 16 bits before ONNX's."""
    text = """
        x: float32[4]
        q = com.microsoft::QuantizeLinear(x, 0.1, int16[]{0})
        y = com.microsoft::DequantizeLinear(q, 0.1, int16[]{0})
        return y
    """
    x = np.array([0.1, 0.22, -0.3, 5.0], np.float32)
    made = graphopt.compile(parse(text), strict=True)
    assert made(x)["y"] == pytest.approx([0.1, 0.2, -0.3, 5.0])


def test_keys_are_read_as_they_lie() -> None:
    model = graphopt.compile(
        parse("""\
q: float32[batch, 4, length, 16]
k: float32[batch, 4, keys, 16]
t = Transpose(k, perm=[0, 1, 3, 2])
y = MatMul(q, t)
return y
"""),
        verify="off",
    )
    rng = np.random.default_rng(0)
    for length, keys in ((1, 70), (33, 65), (5, 1)):
        q, k = (rng.standard_normal((2, 4, n, 16), np.float32) for n in (length, keys))
        np.testing.assert_allclose(model(q, k)["y"], q @ k.transpose(0, 1, 3, 2), rtol=1e-4, atol=1e-4)
    assert [row.label for row in model.profile(q, k)] == ["com.microsoft::FusedMatMul"]  # and no transposition
