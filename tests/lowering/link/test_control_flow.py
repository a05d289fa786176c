"""Loops whose bodies take the number of the round and the condition as scalars, or as vectors of one element; that have
no condition; and whose states grow."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import onnx
import onnx.checker
import onnx.parser
import pytest

import graphopt
from graphopt.compile import ReferenceWarning, lowered
from graphopt.ir.evaluate import run
from graphopt.ir.onnx_io import load
from graphopt.ir.text import parse
from graphopt.lowering.link.options import BY_RULE
from graphopt.run.steps import Steps
from graphopt.runtime import load as load_program
from graphopt.runtime.steps import HostStep, LoopStep, walk

X = np.arange(6, dtype=np.float32)


def model(number: str, condition: str, is_fixed: bool, ends: bool) -> onnx.ModelProto:
    """A Loop that gathers what the number of the round says, of four rounds, or of three if the condition ends it."""
    outer = condition.replace("[n]", "[1]")
    trips = "int64 M={4}, " if is_fixed else ""
    pick = "Slice(x, i, e)" if "[" in number else "Gather(x, i)"
    shape = "one" if "[" in condition else "none"
    goes = f"l = Less(i, two) co = Reshape(l, {shape})" if ends else "co = Identity(cc)"
    made = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 13]>
        g (float[6] x{"" if is_fixed else ", int64 M"}) => (float[1] z, float[k{",1" if "[" in number else ""}] y)
        <{trips}{outer} c={{1}}, int64 two={{2}}, int64[1] one={{1}}, int64[1] next={{2}}, int64[0] none={{}}> {{
          z0 = Slice(x, one, next)
          x1 = Identity(z0)
          z, y = Loop(M, c, z0) <body: graph = b ({number} i, {condition} cc, float[1] a)
            => ({condition} co, float[1] o, float{"[1]" if "[" in number else ""} s) {{
              {goes} e = Add(i, one) s = {pick} j = Cast<to=1>(i) p = Mul(a, j) o = Add(p, x1)
            }}>
        }}"""
    )
    onnx.checker.check_model(made, full_check=True)
    return made


CASES = list(product(("int64", "int64[1]", "int64[n]"), ("bool", "bool[1]"), (True, False), (True, False)))


@pytest.mark.parametrize(("number", "condition", "is_fixed", "ends"), CASES)
def test_loops_are_run_and_optimized_as_their_bodies_are_declared(
    number: str, condition: str, is_fixed: bool, ends: bool
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    proto = model(number, condition, is_fixed, ends)
    inputs = {"x": X} if is_fixed else {"x": X, "M": np.array(4)}

    def of_runtime(proto: onnx.ModelProto) -> list[np.ndarray]:
        return runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, inputs)

    want = of_runtime(proto)
    made = graphopt.optimize(proto, verify="off")
    onnx.checker.check_model(made, full_check=True)
    for found in (of_runtime(made), run(load(proto), inputs).values()):
        for a, b in zip(want, found, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("states", "scans", "is_captured"), [(0, 1, False), (0, 1, True), (0, 2, True), (1, 1, True), (1, 2, False)]
)
@pytest.mark.parametrize("is_state_read", [True, False])
def test_a_loop_without_a_condition_ends_by_that_of_its_body(
    states: int, scans: int, is_captured: bool, is_state_read: bool
) -> None:
    step = "k" if is_captured else "one"
    given, state = ("x", "float[3] s") if states else ("", "")
    made = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 21]>
        g (float[3] x, float k) => ({"float[3] last, " if states and is_state_read else ""}float[r,c] y)
        <int64 M={{3}}> {{
          {"last, " if states else ""}y{", z" if scans > 1 else ""} = Loop(M, "" {", " * states}{given})
            <body: graph = b (int64 i, bool cc{", " * states}{state})
            => (bool go{", float[3] t" if states else ""}, float[3] a{", float[3] e" if scans > 1 else ""})
            <float one={{1}}, float[3] three={{1,2,3}}> {{
              n = Cast<to=1>(i) go = Less(n, one)
              {f"t = Add(s, {step})" if states else ""} p = Mul({"t" if states else "three"}, {step}) a = Add(p, n)
              {"e = Neg(a)" if scans > 1 else ""}
            }}>
        }}"""
    )
    x, k = X[:3], np.float32(1.25)
    by = k if is_captured else np.float32(1)
    rows = [(x + (i + 1) * by if states else np.float32([1, 2, 3])) * by + np.float32(i) for i in range(2)]
    for optimize in (False, True):
        got = graphopt.compile(made, optimize=optimize, cache=False)({"x": x, "k": np.array(k)})
        np.testing.assert_allclose(got["y"], rows)
    for name, found in run(load(graphopt.optimize(made)), {"x": x, "k": np.array(k)}).items():
        np.testing.assert_allclose(found, rows if name == "y" else x + 2 * by)


@pytest.mark.parametrize(("number", "condition"), [("int64[1]", "bool[1]"), ("int64[1]", "bool")])
def test_programs_of_such_loops(number: str, condition: str) -> None:
    proto = model(number, condition, False, True)
    del proto.graph.output[
        1
    ]  # how many rounds there are is not known beforehand: without this, nothing is by reference
    del proto.graph.node[-1].attribute[0].g.output[2], proto.graph.node[-1].output[1]
    inputs = {"x": X, "M": np.array(4)}
    (want,) = run(load(proto), inputs).values()
    np.testing.assert_array_equal(graphopt.compile(proto, jobs=0)(inputs)["z"], want)


GROWING = """<ir_version: 8, opset_import: ["" : 17]>
g (float[b,3] x, int64 M, bool c) => (float[b,n] joined, float[k,b] means, float[b] last) <float limit = {3}> {
  start = Slice(x, zero, one, axis)
  j, last, means = Loop(M, c, start, first) <body: graph = body (int64 i, bool cc, float[b,m] grown, float[b] state)
    => (bool co, float[b,m1] grown2, float[b] state2, float[b] mean) <int64[1] ax = {1}> {
      total = ReduceSum<keepdims=1>(grown, ax)
      f = Cast<to=1>(i)
      next = Add(total, f)
      grown2 = Concat<axis=1>(grown, next, x)
      mean = ReduceMean<axes=[1], keepdims=0>(grown)
      state2 = Add(state, mean)
      most = ReduceMax<keepdims=0>(state2)
      co = Less(most, limit)
  }>
  joined = Relu(j)
}"""


def growing() -> onnx.ModelProto:
    """A Loop with a state that grows, one that stays, and an output of as many rounds as its condition allows."""
    text = GROWING.replace("<float limit", "<int64[1] zero={0}, int64[1] one={1}, int64[1] axis={1}, float limit")
    text = text.replace("j, last", "rows = Squeeze(start, axis) first = Mul(rows, limit0) j, last")
    return onnx.parser.parse_model(text.replace("float limit", "float limit0={0}, float limit", 1))


@pytest.mark.parametrize("trips", [0, 1, 2, 5])
@pytest.mark.parametrize("goes", [True, False])
def test_states_that_grow_and_rounds_that_nobody_counted_are_compiled(trips: int, goes: bool) -> None:
    proto = growing()
    compiled = graphopt.compile(proto, jobs=0)
    assert not compiled.report.unlowered
    for b in (1, 3):
        inputs = {"x": np.ones((b, 3), np.float32), "M": np.array(trips), "c": np.array(goes)}
        want = run(load(proto), inputs)
        found = compiled(inputs)
        assert found["joined"].shape == (b, 1 + 4 * min(trips, 3) * goes)
        for name, array in want.items():
            if array.size:  # of no rounds the reference knows no sizes
                np.testing.assert_allclose(found[name], array, rtol=1e-5)
            assert found[name].shape[0] == array.shape[0]


def test_what_python_does_at_the_end_of_a_round_comes_after_all_else() -> None:
    """The body and what is copied behind it are one stretch."""
    (loop,) = (s for s in lowered(load(growing()), BY_RULE, Steps()).steps if isinstance(s, LoopStep))
    kinds = [isinstance(s, HostStep) for s in loop.body]
    assert kinds == [True] + [False] * kinds.count(False) + [True, True]


@pytest.mark.parametrize("declared", ["m", "n", "3", "6"])
def test_branches_of_different_sizes_are_compiled(declared: str) -> None:
    """Whatever is declared of them: a decoder's cache and an empty one are merged under one name."""
    proto = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[n,4] x, bool c) => (float[{declared},4] z, float[{declared},4] y) {{
      z = If(c) <then_branch: graph = t () => (float[{declared},4] a) {{ a = Concat<axis=0>(x, x) }},
                 else_branch: graph = e () => (float[{declared},4] b) {{ b = Identity(x) }}>
      y = Neg(z)
    }}""")
    compiled = graphopt.compile(proto, jobs=0)
    assert not compiled.report.unlowered
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(compiled({"x": x, "c": np.array(True)})["y"], -np.concatenate([x, x]))
    np.testing.assert_array_equal(compiled({"x": x, "c": np.array(False)})["y"], -x)


@pytest.mark.parametrize("declared", ["m", "n", "3"])
def test_a_state_that_rounds_change_is_compiled_whatever_is_declared_of_it(declared: str) -> None:
    proto = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[n,4] x, int64 k, bool c) => (float[{declared},4] z) {{
      z = Loop(k, c, x) <body: graph = b (int64 i, bool go, float[{declared},4] u)
                                       => (bool on, float[{declared},4] v) {{
        on = Identity(go) v = Concat<axis=0>(u, u) }}>
    }}""")
    compiled = graphopt.compile(proto, jobs=0)
    assert not compiled.report.unlowered
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for rounds in (0, 1, 2):
        made = compiled({"x": x, "k": np.array(rounds), "c": np.array(True)})["z"]
        np.testing.assert_array_equal(made, np.concatenate([x] * 2**rounds))


def test_a_program_whose_loop_grows_is_saved(tmp_path: Path) -> None:
    proto = growing()
    inputs = {"x": np.ones((2, 3), np.float32), "M": np.array(3), "c": np.array(True)}
    compiled = graphopt.compile(proto, jobs=0)
    compiled.save(tmp_path / "program")
    found = load_program(tmp_path / "program")(inputs)
    for name, array in compiled(inputs).items():
        np.testing.assert_array_equal(found[name], array)


def test_a_size_that_branches_and_what_follows_need_is_read_once() -> None:
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[a,n] x, bool c) => (float[m] y, float[k] z) <int64 zero={0}, int64 one={1}> {
      most = ReduceMax<keepdims=0>(x) length = Cast<to=7>(most)
      y = If(c) <then_branch: graph = t () => (float[p] u) { r = Range(zero, length, one) u = Cast<to=1>(r) },
                 else_branch: graph = e () => (float[q] v) {
                   two = Add(length, length) s = Range(zero, two, one) f = Cast<to=1>(s) v = Neg(f) }>
      w = Range(zero, length, one) z = Cast<to=1>(w)
    }""")
    compiled = graphopt.compile(proto, jobs=0)
    assert not compiled.report.unlowered
    for length in (3, 5, 0):
        for condition in (True, False):
            inputs = {"x": np.full((2, 3), length, np.float32), "c": np.array(condition)}
            found = compiled(inputs)
            for name, want in run(load(proto), inputs).items():
                np.testing.assert_array_equal(found[name], want)


def test_a_size_that_a_branch_within_a_branch_and_what_follows_need_is_known_in_both() -> None:
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[a,n] x, bool c, bool d) => (float y, float[k] z) <int64 zero={0}, int64 one={1}> {
      most = ReduceMax<keepdims=0>(x) length = Cast<to=7>(most) low = ReduceMin<keepdims=0>(x) less = Cast<to=7>(low)
      y = If(c) <
        then_branch: graph = t () => (float u) {
          u = If(d) <
            then_branch: graph = tt () => (float o) { r = Range(zero, length, one) f = Cast<to=1>(r)
                                                      o = ReduceSum<keepdims=0>(f) },
            else_branch: graph = te () => (float o) { r = Range(zero, length, one) q = Range(zero, less, one)
                                                      s = Concat<axis=0>(r, q) f = Cast<to=1>(s)
                                                      o = ReduceSum<keepdims=0>(f) }> },
        else_branch: graph = e () => (float u) { r = Range(zero, less, one) f = Cast<to=1>(r)
                                                 u = ReduceSum<keepdims=0>(f) }>
      w = Range(zero, length, one) z = Cast<to=1>(w)
    }""")
    compiled = graphopt.compile(proto, jobs=0)
    assert not compiled.report.unlowered
    for less, most in ((3, 5), (0, 2)):
        for outer, inner in ((True, True), (True, False), (False, True)):
            inputs = {"x": np.array([[less, most]], np.float32), "c": np.array(outer), "d": np.array(inner)}
            found = compiled(inputs)
            for name, want in run(load(proto), inputs).items():
                np.testing.assert_array_equal(found[name], want)


STACKS = """<ir_version: 8, opset_import: ["" : 17]>
g (float[b,2] x, int64 M) => (float[n,b,2] first, float[n,b] second) <bool c = {1}, float limit = {3}> {
    last, first, second = Loop(M, c, x) <body: graph = body (int64 i, bool cc, float[b1,2] s)
        => (bool co, float[b1,2] s2, float[b1,2] f, float[b1] t) {
      one = Constant<value_float=1.0>() s2 = Add(s, one) f = Mul(s2, s2) t = ReduceMax<axes=[1], keepdims=0>(s2)
      top = ReduceMax<keepdims=0>(t) co = Less(top, limit)
    }>
}"""


@pytest.mark.parametrize("trips", [0, 1, 2, 9])
def test_several_outputs_of_as_many_rounds_as_the_condition_allows_are_stacked(trips: int) -> None:
    proto = onnx.parser.parse_model(STACKS)
    compiled = graphopt.compile(proto, jobs=0, cache=False)
    assert not compiled.report.unlowered
    for rows in (1, 3):
        feeds = {"x": np.zeros((rows, 2), np.float32), "M": np.array(trips)}
        made, wanted = compiled(feeds), run(load(proto.SerializeToString()), feeds)
        for name, want in wanted.items():
            if trips:  # of no rounds the reference knows no sizes
                np.testing.assert_array_equal(made[name], want)
            assert len(made[name]) == min(trips, 3)


COUNTED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[b,2] x, int64[rank] M, bool c) => (float[p,b,2] y, float[b,2] last) <bool true = {1}> {
    last, y = Loop(M, true, x) <body: graph = body (int64 i, bool cc, float[b1,2] s)
        => (bool co, float[b1,2] s2, float[b1,2] f) { co = Identity(true) s2 = Add(s, x) f = Neg(s2) }>
}"""
WITHIN = {
    "a branch": """y = If(c) <then_branch: graph = then () => (float[t,b,2] u) { l, u = Loop(M, true, x) <BODY> },
                     else_branch: graph = other () => (float[e,b,2] v) { v = Unsqueeze(x, axis) }> last = Neg(x)""",
    "a loop": """last, y = Loop(M, true, x) <body: graph = outer (int64 k, bool kc, float[b2,2] r)
        => (bool ko, float[b2,2] r2, float[b2,2] e) { ko = Identity(true)
             many = Add(k, one) r2, u = Loop(many, true, r) <BODY>
             sum = ReduceSum<keepdims=0>(u, axis) e = Add(sum, x) }>""",
}
"""Loops of which the rounds are an input, or the number of the round of another."""


@pytest.mark.parametrize("rank", ["[]", "[1]"])
@pytest.mark.parametrize("within", ["", *WITHIN])
def test_rounds_that_nothing_ends_are_counted_before(within: str, rank: str) -> None:
    """Then their outputs lie where they are stacked, and no round goes through Python."""
    text = COUNTED.replace("[rank]", rank.replace("[]", ""))
    start, body, end = text.index("last, y ="), text[text.index("body: graph") : text.rindex(">")], text.rindex("}")
    if within:
        text = text[:start] + WITHIN[within].replace("BODY", body) + text[end:]
        text = text.replace("<bool true = {1}>", "<bool true = {1}, int64[1] axis = {0}, int64 one = {1}>")
    proto = onnx.parser.parse_model(text)
    compiled = graphopt.compile(proto, jobs=0, cache=False)
    assert not compiled.report.unlowered
    loops = [s for s in walk(lowered(load(proto), BY_RULE, Steps()).steps) if isinstance(s, LoopStep)]
    assert len(loops) == 1 + (within == "a loop")
    assert not any(isinstance(s, HostStep) for loop in loops for s in walk(loop.body))
    for trips, rows, goes in product((-2, 0, 1, 5), (1, 3), (True, False)):
        x = np.random.default_rng(rows).standard_normal((rows, 2)).astype(np.float32)
        feeds = {"x": x, "M": np.full((1,) * (rank == "[1]"), trips), "c": np.array(goes)}
        made = compiled(feeds)
        assert made["y"].shape == (max(trips, 0) if goes or within != "a branch" else 1, rows, 2)
        if trips > 0:  # of no rounds the reference knows no sizes
            for name, want in run(load(proto), feeds).items():
                np.testing.assert_allclose(made[name], want, rtol=1e-5, atol=1e-5)


def test_a_loop_whose_condition_is_no_truth_value_is_left_out() -> None:
    graph = parse(
        "m: int64[] x: float32[2] y = Loop(m, bool[]{true}, x, body={ i: int64[] c: bool[] s: ? "
        "d = SplitToSequence(c) t = Mul(s, 2.0) return d, t }) return y"
    )
    with pytest.warns(ReferenceWarning, match="the condition that the body of Loop gives is no truth value"):
        graphopt.compile(graph, verify="off")


def test_a_state_that_grows_is_compiled_where_its_body_is_declared_with_the_sizes_of_the_first_round() -> None:
    graph = parse(
        """x: float32[2, 1] n: int64[] c = true
        y = Loop(n, c, x, body={ i: int64[] go: bool[] s: float32[2, 1]
            t = ReduceSum(s, [1]) u = Concat(Mul(s, 0.5), t, axis=1) return go, u }) return y"""
    )
    compiled = graphopt.compile(graph, jobs=0, cache=False)
    assert not compiled.report.unlowered
    feeds = {"x": X[1:3, None], "n": np.array(4)}
    np.testing.assert_allclose(compiled(feeds)["y"], run(graph, feeds)["y"], rtol=1e-6)
