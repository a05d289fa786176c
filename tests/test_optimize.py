"""The pipeline from Python: what it takes and gives back, what it leaves alone, and the same every time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphopt
from graphopt.errors import ReadError, RuleError, UsageError
from graphopt.ir import infer
from graphopt.ir.constants import Constant
from graphopt.ir.evaluate import run
from graphopt.ir.graph import Graph
from graphopt.ir.structure import same
from graphopt.ir.text import parse, show
from graphopt.optimize import optimize_graph
from graphopt.progress import Event
from graphopt.rewrite.egraph.saturate import SaturationBudget
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.rule.rule import Soundness
from graphopt.rewrite.ruleset import Ruleset, standard
from graphopt.target import CPU, ORT, PORTABLE, Target

N = helper.make_node


def value_info(name: str, shape: list[int | str], dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def model(opset: int = 17, overridable: bool = False) -> onnx.ModelProto:
    """Two Relus, a bias and an Identity."""
    bias = numpy_helper.from_array(np.arange(4, dtype=np.float32), "b")
    graph = helper.make_graph(
        [N("Relu", ["x"], ["r"]), N("Relu", ["r"], ["s"]), N("Add", ["s", "b"], ["t"]), N("Identity", ["t"], ["y"])],
        "g",
        [value_info("x", ["n", 4]), *([value_info("b", [4])] if overridable else [])],
        [value_info("y", ["n", 4])],
        [bias],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def ops(proto: onnx.ModelProto | bytes) -> list[str]:
    proto = onnx.load_from_string(proto) if isinstance(proto, bytes) else proto
    return [n.op_type for n in proto.graph.node]


def optimized(text: str, **options: Any) -> list[str]:
    """The ops of the graph that comes out, those of bodies included."""
    before = parse(text)
    printed = show(before)
    _, report = optimize_graph(before, **options)
    assert show(before) == printed
    assert report.cost_after is not None
    assert report.cost_before is not None
    assert report.cost_after <= report.cost_before
    return sorted(report.ops_after)


# -- what goes in and what comes out


def test_what_comes_back_is_of_the_kind_that_was_given(tmp_path: Path) -> None:
    proto = model()
    data = proto.SerializeToString(deterministic=True)
    assert ops(graphopt.optimize(data, verify="off")) == ["Relu", "Add"]
    assert ops(graphopt.optimize(proto, verify="off")) == ["Relu", "Add"]
    assert proto.SerializeToString(deterministic=True) == data
    held = onnx_ir.from_proto(proto)
    before = onnx_ir.to_proto(held).SerializeToString(deterministic=True)
    found = graphopt.optimize(held, verify="off")
    assert isinstance(found, onnx_ir.Model)
    assert [n.op_type for n in found.graph] == ["Relu", "Add"]
    assert onnx_ir.to_proto(held).SerializeToString(deterministic=True) == before
    file, output = tmp_path / "in.onnx", tmp_path / "out.onnx"
    file.write_bytes(data)
    assert graphopt.optimize(str(file), output=str(output), verify="off") == str(output)
    assert ops(output.read_bytes()) == ["Relu", "Add"]
    assert file.read_bytes() == data


def test_a_model_in_memory_can_be_written_too(tmp_path: Path) -> None:
    output = tmp_path / "out.onnx"
    assert graphopt.optimize(model(), output=output, verify="off") == output
    assert ops(output.read_bytes()) == ["Relu", "Add"]


def test_the_report_says_what_was_done(tmp_path: Path) -> None:
    file, output = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(model(), file)
    heard: list[Event] = []
    _, report = graphopt.optimize(file, output=output, verify="off", return_report=True, listener=heard.append)
    assert (report.model, report.output, report.target, report.policy) == (str(file), str(output), "portable", "reals")
    assert report.ops_before == {"Relu": 2, "Add": 1, "Identity": 1}
    assert report.ops_after == {"Relu": 1, "Add": 1}
    assert report.by_rule() == {"identity": 1, "relu-holds": 1}
    assert [s.name for s in report.steps] == ["read", "tidy", "explore", "choose", "derive", "fold", "write"]
    assert {e.step for e in heard} == {s.name for s in report.steps}
    assert report.bytes_before == file.stat().st_size
    assert report.bytes_after == output.stat().st_size
    assert report.exploration is not None
    assert report.exploration.stop == "saturated"
    assert json.loads(report.to_json())["ops_after"] == report.ops_after


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"target": "ortt"}, UsageError, "did you mean ort"),
        ({"policy": "sloppy"}, UsageError, "no policy is called 'sloppy'"),
        ({"only": ["relu-hold"]}, RuleError, "unknown rule or family relu-hold; did you mean relu-holds"),
        ({"without": ["Z9"]}, RuleError, "unknown rule or family Z9"),
        ({"rules": ["nowhere.rules"]}, ReadError, "nowhere.rules"),
        ({"shapes": {"z": [1, 4]}}, UsageError, "no input is called 'z'"),
        ({"dims": {"n": -1}}, UsageError, "dimension n cannot be -1"),
        ({"dims": {"n": 1.5}}, UsageError, "dimension n cannot be 1.5"),
        ({"dims": {"n": "3"}}, UsageError, "dimension n cannot be '3'"),
        ({"dims": {"n": True}}, UsageError, "dimension n cannot be True"),
        ({"shapes": {"x": [2.0, 4]}}, UsageError, "axis 0 of input 'x' cannot be 2.0"),
        ({"verify": "perhaps"}, UsageError, "verify='perhaps'"),
        ({"inputs": {"z": "0..1"}}, UsageError, "there is no input 'z'; there is x"),
        ({"opset": 9999}, UsageError, "9999"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught:
        graphopt.optimize(model(), **options)
    assert message in str(caught.value)


def test_a_file_needs_a_place_for_the_result(tmp_path: Path) -> None:
    onnx.save(model(), tmp_path / "in.onnx")
    with pytest.raises(UsageError, match="needs output="):
        graphopt.optimize(tmp_path / "in.onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["in.onnx"]


# -- options


def test_rules_are_chosen_by_name_and_family() -> None:
    assert ops(graphopt.optimize(model(), verify="off", only=["identity"])) == ["Relu", "Relu", "Add"]
    assert ops(graphopt.optimize(model(), verify="off", without="identity")) == ["Relu", "Add", "Identity"]
    only = standard().named("identity")
    assert ops(graphopt.optimize(model(), verify="off", rules=only)) == ["Relu", "Relu", "Add"]
    assert ops(graphopt.optimize(model(), verify="off", rules=Ruleset())) == ["Relu", "Relu", "Add", "Identity"]


def test_rules_of_ones_own_are_added_to_the_standard_ones(tmp_path: Path) -> None:
    file = tmp_path / "mine.rules"
    file.write_text("# not true, but a test     [H1] exact always\nmine:  Relu(x)  =>  Abs(x)\n")
    assert ops(graphopt.optimize(model(), verify="off", rules=[file])) == ["Abs", "Add"]
    assert ops(graphopt.optimize(model(), verify="off", rules=str(file))) == ["Abs", "Add"]


def test_the_policy_says_how_equal_the_result_is() -> None:
    text = "x: float32[8]\nc = 0.7\nd = 0.3\ny = Mul(Mul(x, c), d)\nreturn y"
    assert optimized(text, policy=Soundness.EXACT) == ["Mul"]
    for policy, n in ((Soundness.EXACT, 2), (Soundness.FINITE, 2), (Soundness.REALS, 1)):
        _, report = optimize_graph(parse(text), policy=policy)
        assert report.ops_after == {"Mul": n}


def test_only_what_the_target_takes_is_made() -> None:
    text = "x: float32[2, 3, 4]\ny: float32[2, 3, 4]\nz = MatMul(Transpose(x, perm=[0, 2, 1]), y)\nreturn z"
    assert "com.microsoft::FusedMatMul" not in optimized(text, target=PORTABLE)
    assert optimized(text, target=ORT) == ["com.microsoft::FusedMatMul"]


def test_open_sizes_can_be_fixed() -> None:
    proto = model()
    for options in ({"shapes": {"x": [5, 4]}}, {"dims": {"n": 5}}):
        found = graphopt.optimize(proto, **options)
        assert [d.dim_value for d in found.graph.input[0].type.tensor_type.shape.dim] == [5, 4]


def test_initializers_that_callers_may_override_are_folded_where_that_is_asked_for() -> None:
    kept = graphopt.optimize(model(overridable=True), verify="off")
    assert [i.name for i in kept.graph.input] == ["x", "b"]
    frozen = graphopt.optimize(model(overridable=True), freeze=True)
    assert [i.name for i in frozen.graph.input] == ["x"]


def test_another_opset_comes_first() -> None:
    found, report = graphopt.optimize(model(), opset=20, return_report=True)
    assert found.opset_import[0].version == 20
    assert [s.name for s in report.steps][:2] == ["read", "prepare"]


def test_a_budget_stops_exploring() -> None:
    text = "x: float32[8]\n" + "".join(f"c{i} = {i}.5\n" for i in range(1, 9))
    text += "y = " + "Mul(" * 8 + "x" + "".join(f", c{i})" for i in range(1, 9)) + "\nreturn y"
    _, report = optimize_graph(parse(text), budget=SaturationBudget(nodes=2))
    assert report.exploration is not None
    assert report.exploration.stop == "nodes"
    _, report = optimize_graph(parse(text))
    assert report.ops_after == {"Mul": 1}


# -- what stays as it is


def test_inputs_and_outputs_are_the_callers() -> None:
    text = """
    unused: float32[3]
    x: float32[3]
    a = Identity(x)
    b = Relu(x)
    c = Relu(Identity(b))
    return a as first, b as second, c as third, b as fourth
    """
    after, _ = optimize_graph(parse(text))
    assert [after.names[v] for v in after.inputs] == ["unused", "x"]
    assert after.output_names == ["first", "second", "third", "fourth"]
    assert len(after) == 1
    feeds = {"unused": np.zeros(3, np.float32), "x": np.array([-1, 0, 1], np.float32)}
    want = run(parse(text), feeds)
    assert all(np.array_equal(want[name], found) for name, found in run(after, feeds).items())


def test_what_needs_nothing_is_given_back() -> None:
    for text in ("x: float32[3]\ny = Relu(x)\nreturn y", "x: float32[3]\ny = their::Op(x)\nreturn y"):
        graph = parse(text)
        after, report = optimize_graph(graph)
        assert after is graph
        assert report.rewrites == ()


def test_a_graph_without_nodes_is_one() -> None:
    graph = Graph()
    after, report = optimize_graph(graph)
    assert same(graph, after) is None
    assert report.exploration is None


def test_bodies_are_optimized_too() -> None:
    text = """
    c: bool[]
    x: float32[3]
    y = If(c | x, then_branch={
        x: float32[3]
        t = Relu(Relu(x))
        return t
    }, else_branch={
        x: float32[3]
        three = 3.0
        six = 6.0
        zero = 0.0
        e = Div(Mul(x, Clip(Add(x, three), zero, six)), six)
        return e
    })
    return y
    """
    after, report = optimize_graph(parse(text))
    assert report.ops_after["Relu"] == 1
    assert "Div" not in report.ops_after
    for c in (True, False):
        feeds = {"c": np.array(c), "x": np.array([-1, 0.5, 9], np.float32)}
        assert np.allclose(run(after, feeds)["y"], run(parse(text), feeds)["y"])


def test_bytes_do_not_grow_beyond_the_limit() -> None:
    """A gigabyte of ones stays what it is computed from, and is not stored."""
    constant = Constant.of(np.array([1.0], np.float32))
    graph = parse("x: float32[16384]\ns = [16384, 16384]\nreturn x")
    shape = next(v for n in graph.nodes() for v in n.outputs if graph.constant_of(v) is not None)
    ones = graph.add("ConstantOfShape", (shape,), graphopt.ir.graph.Attrs(value=constant)).outputs[0]
    twice = graph.add("Add", (ones, ones)).outputs[0]
    graph.outputs[0] = graph.add("MatMul", (graph.inputs[0], twice)).outputs[0]
    after, _ = optimize_graph(graph)
    assert len(graphopt.ir.onnx_io.to_bytes(after)) < 1_000_000


def test_convolutions_of_constants_are_priced_and_folded() -> None:
    text = f"""
    x: float32[1, 4, 8, 8]
    data = float32[1, 4, 8, 8]{{{", ".join(["0.5"] * 256)}}}
    pads = [0, 0, 1, 1, 0, 0, 1, 1]
    w = float32[4, 4, 3, 3]{{{", ".join(["0.25", "-0.5"] * 72)}}}
    y = Add(Conv(x, w, pads=[1, 1, 1, 1]), Conv(Pad(data, pads), w))
    return y
    """
    for target in (PORTABLE, ORT):
        assert optimized(text, target=target) == ["Add", "Conv"]


# -- several rounds


@pytest.mark.parametrize(("length", "target", "left"), [(400, ORT, 0), (1024, ORT, 1), (400, CPU, 1)])
def test_fourier_transforms_are_products_where_that_is_cheaper(length: int, target: Target, left: int) -> None:
    window = f"w = float32[{length}] {{0.5, ...}} "
    rows = f"x: float32[b, 50, {length}] y = DFT(Unsqueeze(x, [-1]), _, 2, onesided=1) return y"
    frames = f"x: float32[b, 40000, 1] {window} y = STFT(x, 160, w, {length}) return y"
    for text in (rows, frames):
        made = optimize_graph(parse(text), target=target)[0]
        assert sum(node.op in ("DFT", "STFT") for node in made.nodes()) == left


def test_what_rules_make_may_root_rules_with_several_roots() -> None:
    """Products with their biases become Gemms first, and Gemms of one input one Gemm then."""
    text = "x: float32[4, 8]\n"
    for i in range(3):
        text += f"w{i} = float32[8, 8]{{{', '.join(str(i + j / 64) for j in range(64))}}}\n"
        text += f"b{i} = float32[8]{{{', '.join([f'{i}.5'] * 8)}}}\ny{i} = Add(MatMul(x, w{i}), b{i})\n"
    text += "return y0, y1, y2"
    after, report = optimize_graph(parse(text))
    assert report.ops_after in ({"Gemm": 1, "Split": 1}, {"MatMul": 1, "Add": 1, "Split": 1})
    again, _ = optimize_graph(after)
    assert same(after, again) is None


def test_rules_that_undo_each_other_are_an_error() -> None:
    rules = parse_rules("# a [H1] exact always\na: Relu(x) => Abs(x)\n\n# b [H1] exact always\nb: Abs(x) => Relu(x)\n")
    with pytest.raises(RuleError, match="most often applied: a, b"):
        optimize_graph(parse("x: float32[3]\ny = Relu(x)\nreturn y"), Ruleset(tuple(rules)))


# -- the same every time


PROGRAM = """
import hashlib, sys
from random import Random
import graphopt
from graphopt.ir import onnx_io
from tests.random_graphs import random_graph
from tests.test_optimize import parallel
for data in (parallel(), onnx_io.to_bytes(random_graph(Random(7), 20))):
    for target in ("portable", "ort"):
        print(hashlib.sha256(graphopt.optimize(data, target=target, verify="off")).hexdigest())
"""


def parallel() -> bytes:
    """Products and convolutions of one input, with what tends to follow them."""
    rng = np.random.default_rng(0)
    nodes, weights = [], {}
    for i in range(3):
        weights[f"w{i}"] = rng.standard_normal((8, 4, 1, 1)).astype(np.float32)
        weights[f"m{i}"] = rng.standard_normal((8, 8)).astype(np.float32)
        weights[f"c{i}"] = np.array(i + 0.5, np.float32)
        nodes += [N("Conv", ["x", f"w{i}"], [f"a{i}"]), N("Mul", [f"a{i}", f"c{i}"], [f"b{i}"])]
        nodes += [N("Relu", [f"b{i}"], [f"r{i}"]), N("Mul", [f"r{i}", f"c{i}"], [f"s{i}"])]
        nodes += [N("MatMul", ["r0", f"m{i}"], [f"p{i}"])]
    nodes += [N("Concat", ["s0", "s1", "s2"], ["y"], axis=1), N("Sum", ["p0", "p1", "p2"], ["z"])]
    graph = helper.make_graph(
        nodes,
        "parallel",
        [value_info("x", [1, 4, 8, 8])],
        [value_info("y", [1, 24, 8, 8]), value_info("z", [1, 8, 8, 8])],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def test_bytes_do_not_depend_on_hash_seeds_and_threads() -> None:
    runs = []
    for seed, threads in (("0", "1"), ("1", "4")):
        settings = {"PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
        runs.append(
            subprocess.Popen(
                [sys.executable, "-c", PROGRAM],
                env={**os.environ, **settings, "PYTHONPATH": os.pathsep.join(sys.path)},
                cwd=Path(__file__).parents[1],
                stdout=subprocess.PIPE,
            )
        )
    printed = [process.communicate()[0] for process in runs]
    assert all(process.returncode == 0 for process in runs)
    assert len(printed[0].split()) == 4
    assert printed[0] == printed[1]


def test_a_step_of_the_users_own_runs_in_place_of_another_and_after_it() -> None:
    graph, seen = parse("x: float32[4]\ny = Relu(Relu(x))\nreturn y"), list[str]()

    def kept(step: Callable[[Graph], Graph], graph: Graph) -> Graph:
        seen.append("tidy")
        return graph

    def noted(step: Callable[[Graph], Graph], graph: Graph) -> Graph:
        found = step(graph)
        seen.append("fold")
        return found

    graphopt.optimize(graph, steps={"tidy": kept, "fold": noted}, verify="off")
    assert seen[:3] == ["tidy", "fold", "tidy"]
    with pytest.raises(UsageError, match="there is no step 'folding'; did you mean fold"):
        graphopt.optimize(graph, steps={"folding": kept})


@pytest.mark.parametrize("body", ["y = Relu(x)", "y = Identity(x)", "a = Neg(x) y = Neg(a)"])
def test_an_output_may_be_named_twice(body: str) -> None:
    """onnx.checker and ONNX Runtime take such models, and so do both products."""
    ort = pytest.importorskip("onnxruntime")
    model = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 18]> g (float[2] x) => (float[2] y, float[2] y) {{ {body} }}'
    )
    optimized = graphopt.optimize(model, verify="off")
    onnx.checker.check_model(optimized, full_check=True)
    x = np.array([1.0, 2.0], np.float32)
    session = ort.InferenceSession(optimized.SerializeToString(), providers=["CPUExecutionProvider"])
    for value in (*session.run(None, {"x": x}), graphopt.compile(model)(x)["y"]):
        assert value.tolist() == [1.0, 2.0]


def test_a_mean_over_an_axis_beside_one_that_may_be_empty_is_no_pool() -> None:
    """ONNX Runtime pools no image without channels."""
    text = """
        x: float32[b, t, 16]
        y = ReduceMean(x, [-1], keepdims=1)
        return y
    """
    result, _ = optimize_graph(parse(text))
    assert [n.op for n in result.nodes() if n.inputs] == ["ReduceMean"]


def test_a_chain_is_inferred_sorted_and_copied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the length: facts, order and nodes are kept as long as they hold."""
    counts: Counter[str] = Counter()

    def counted(owner: Any, name: str, is_counted: Callable[..., bool]) -> None:
        function = getattr(owner, name)

        def count(*arguments: Any) -> Any:
            counts[name] += is_counted(*arguments)
            return function(*arguments)

        monkeypatch.setattr(owner, name, count)

    counted(infer, "infer_node", lambda *call: True)
    counted(Graph, "_sorted", lambda graph: len(graph._nodes) > 100)
    counted(Graph, "_hold", lambda graph, nodes, edges, sources, holders: len(nodes) > 100 and holders == [1])
    ops, body = ("Sin", "Tanh", "Erf"), "v0 = Sin(x)"
    for i in range(1, 300):
        body += f"\nv{i} = {ops[i % 3]}(v{i - 1})"
    graph = parse(f"x: float32[4]\n{body}\nreturn v299")
    assert optimize_graph(graph)[0] is graph
    assert counts["_sorted"] <= 2  # before and after the copies in the middle are left out
    assert counts["infer_node"] <= 300 + 60  # of the shortened chain, too
    assert counts["_hold"] == 1  # to leave them out


def test_what_a_search_puts_off_is_done_where_it_pays() -> None:
    body = "".join(f"\nv{i + 1} = Mul(v{i}, [1.{i}, 1.0, 2.0])" for i in range(30))
    graph = parse(f"v0: float32[3]{body}\nreturn v30")
    done, report = optimize_graph(graph, budget=SaturationBudget(builds=3))
    assert report.exploration is not None
    assert dict(report.exploration.put_off)["mul-mul"] > 0
    assert [node.op for node in done.nodes() if node.op not in ("Input", "Constant")] == ["Mul"]


@pytest.mark.parametrize(
    ("opset", "target", "ops"),
    [
        (23, "portable", ["Sigmoid", "Mul"]),
        (24, "portable", ["Swish"]),
        (25, "portable", ["Sigmoid", "Mul"]),
        (25, "ort", ["QuickGelu"]),
    ],
)
def test_ops_are_made_where_runtimes_have_them(opset: int, target: str, ops: list[str]) -> None:
    """Swish is new in opset 24, of which runtimes have a kernel that serves no later one."""
    text = f'<ir_version: 11, opset_import: ["" : {opset}]> g (float[2,3] x) => (float[2,3] y)'
    model = onnx.parser.parse_model(text + "{ s = Sigmoid(x) y = Mul(x, s) }")
    made, report = graphopt.optimize(model, target=target, return_report=True)
    assert [node.op_type for node in made.graph.node] == ops
    assert report.verification.status == "verified"


HARD_SWISH = """
    b{i} = Add({x}, 3.0)
    c{i} = Clip(b{i}, 0.0, 6.0)
    d{i} = Mul({x}, c{i})
    y{i} = Div(d{i}, 6.0)
    z{i} = MatMul(y{i}, w)"""
"""Arithmetic that is one op from opset 14 on, and a product behind it."""


@pytest.mark.parametrize("layers", [1, 3, 9])
def test_places_that_wait_for_a_newer_opset_are_counted(layers: int) -> None:
    text = "".join(HARD_SWISH.format(i=i, x=f"z{i - 1}" if i else "x") for i in range(layers))
    body = f"x: float32[8, 64] w: float32[64, 64]{text} return z{layers - 1}"
    _, report = optimize_graph(parse(f"graph old (ir 8, opset 11) {body}"))
    assert report.waiting == ((14, layers),)
    _, newer = optimize_graph(parse(f"graph new (ir 8, opset 14) {body}"))
    assert newer.waiting == ()
    assert newer.ops_after["HardSwish"] == layers
