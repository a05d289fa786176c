"""Buffers, steps and kernels of small graphs."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from graphopt.compile import compile, lowered
from graphopt.ir.text import parse
from graphopt.kernels.compile import compile_kernels, native_driver
from graphopt.kernels.kernel import Kernel
from graphopt.lowering.link.linked import Linked
from graphopt.lowering.link.options import BY_RULE
from graphopt.lowering.link.passes import planner_of
from graphopt.lowering.link.plan_memory import Planner
from graphopt.lowering.loops.script import read, show
from graphopt.run.steps import Steps
from graphopt.runtime.program import Program
from graphopt.runtime.sizes import evaluate
from graphopt.runtime.steps import SHARED, Bind, BufferRef, Code, HostStep, KernelStep, Place, Port, ProgramBuffer, walk


def linked(text: str, without: tuple[str, ...] = ()) -> Linked:
    options = replace(BY_RULE, takes=lambda node: node.op not in without)
    return lowered(parse(text), options, Steps())


def calls(made: Linked) -> list[str]:
    return [s.label for s in walk(made.steps) if isinstance(s, KernelStep)]


def test_equal_nests_share_a_kernel() -> None:
    twice = linked("x: float32[4, 8] y: float32[4, 8] a = Exp(x) b = Exp(y) return a, b")
    assert len(twice.kernels) == 1
    assert calls(twice) == ["Exp", "Exp"]
    other = linked("x: float32[4, 8] y: float32[4, 9] a = Exp(x) b = Exp(y) return a, b")
    assert len(other.kernels) == 2


def test_kernels_are_told_once_as_they_are_written() -> None:
    graph = parse("x: float32[4, 8] y: float32[4, 8] a = Exp(x) b = Exp(y) c = Transpose(a, perm=[1, 0]) return b, c")
    told = list[Kernel]()
    made = lowered(graph, BY_RULE, Steps(), told.append)
    assert tuple(told) == made.kernels
    assert len(told) == 2


def test_a_constant_is_held_once_and_scalars_are_written_into_kernels() -> None:
    made = linked("x: float32[4] w = float32[4]{1, 2, 3, 4} y = Mul(Add(x, w), 2.0) z = Add(y, w) return y, z")
    assert len(made.constants) == 1
    assert all("2.0" in k.source for k in made.kernels[:1])


def test_a_view_has_the_memory_of_what_it_views() -> None:
    made = linked("x: float32[n, 4] a = Relu(x) b = Reshape(a, [-1]) y = Neg(b) return y")
    (view,) = [b for b in made.buffers if b.place == "view"]
    assert view.of is not None
    assert made.buffers[view.of].place == "arena"
    assert view.shape == (("*", 4, "n"),)


def test_symbols_are_arguments_of_calls() -> None:
    made = linked("x: float32[n, m] y = Transpose(x, perm=[1, 0]) return y")
    (call,) = [s for s in made.steps if isinstance(s, KernelStep)]
    assert {a for a in call.args if not isinstance(a, BufferRef)} == {"n", "m"}
    assert made.buffers[made.outputs[0].buffer].shape == ("m", "n")


def test_kernels_say_how_many_iterations_threads_would_share() -> None:
    made = linked("x: float32[n, 70] t = Transpose(x, perm=[1, 0]) y = Neg(t) z = ReduceSum(x) return y, z")
    shared = [s.iterations for s in made.steps if isinstance(s, KernelStep) and s.parallel]
    assert shared
    assert all(n != SHARED and 70 * 9 <= evaluate(n, {"n": 9}) <= 80 * 9 for n in shared)
    assert {evaluate(n, {"n": 10**18}) for n in shared} == {SHARED}  # they are compared with this, and are int64
    few = linked("x: float32[7, 20] w: float32[20, 90] y = MatMul(x, w) z = Softmax(y) return z")
    assert not any(s.parallel for s in few.steps if isinstance(s, KernelStep))


def test_nodes_that_no_kernel_computes_are_named_with_the_reason() -> None:
    made = linked("x: float32[n, 2] z = NonZero(x) y = Neg(z) return y", without=("NonZero",))
    (node,) = made.unlowered
    assert (node.name, node.op, node.engine) == ("z", "NonZero", "ONNX Runtime")
    assert node.why
    (host,) = [s for s in made.steps if isinstance(s, HostStep)]
    assert host.binds[0][1:] == (0, 1)
    (found,) = made.functions[host.function](np.array([[1, 0], [0, 2]], np.float32))
    np.testing.assert_array_equal(found, [[0, 1], [0, 1]])


def test_nodes_that_are_left_out_one_after_the_other_are_one_region() -> None:
    text = "x: float32[n, 2] s = SequenceConstruct(x, Neg(x)) t = SequenceAt(s, 1) z = NonZero(t) return z"
    made = linked(text, without=("NonZero",))
    (host,) = [s for s in made.steps if isinstance(s, HostStep)]
    assert host.label == "SequenceConstruct + SequenceAt + NonZero"
    x = np.array([[1, 0], [0, 2]], np.float32)
    *_, found = made.functions[host.function](x, -x)
    np.testing.assert_array_equal(found, [[0, 1], [0, 1]])


def test_sizes_that_depend_on_elements_are_bound_before_the_op_runs() -> None:
    made = linked("x: float32[n, 2] z = NonZero(x) y = Neg(z) return y")
    *counts, bind, compute = made.steps
    for count in counts:
        assert isinstance(count, KernelStep)
        assert (count.label, count.nodes) == ("sizes of NonZero", ("sizes of z",))
    assert isinstance(bind, Bind)
    assert isinstance(compute, KernelStep)
    assert compute.label == "NonZero+Neg"
    assert made.buffers[made.outputs[0].buffer].shape == (2, *bind.symbols)
    assert made.unlowered == ()


@pytest.mark.parametrize(("size", "reads"), [("n", 1), ("BitwiseAnd(n, [7])", 3)])
def test_branches_and_what_follows_them_may_compute_the_same_sizes(size: str, reads: int) -> None:
    then = f"q: ? n: ? r = ReduceSum(Slice(q, [0], {size}), keepdims=0) return r"
    other = f"q: ? n: ? r = ReduceMax(Neg(Slice(q, [0], {size})), keepdims=0) return r"
    inputs = "x: float32[a, b] c: bool[] m: int64[90] n = Slice(m, [0], [1], [0])"
    branches = f"y = If(c | x, n, then_branch={{ {then} }}, else_branch={{ {other} }})"
    made = linked(f"{inputs} {branches} z = Neg(Slice(x, [0], {size})) return y, z")
    assert made.unlowered == ()
    assert len([s for s in walk(made.steps) if isinstance(s, Bind)]) == reads
    driver, *objects = compile_kernels((native_driver(), *made.kernels))
    rest = made.inputs, made.outputs, made.buffers, made.steps, tuple(objects), driver, made.constants
    program = Program(Code(*rest, made.conditions), made.functions, threads=1)
    x, asked = np.arange(24, dtype=np.float32).reshape(6, 4), np.zeros(90, np.int64)
    for count in (1, 6, 2):
        asked[0] = count
        for chosen, want in ((True, x[:count].sum()), (False, (-x[:count]).max())):
            y, z = program(x, np.array(chosen), asked).values()
            assert y == want
            np.testing.assert_array_equal(z, -x[:count])


def test_a_region_of_known_size_fills_the_memory_of_the_program() -> None:
    made = linked("x: float32[n, 2] a = Exp(x) b = Tanh(a) y = Neg(b) return y", without=("Exp", "Tanh"))
    (host,) = [s for s in made.steps if isinstance(s, HostStep)]
    assert host.fills
    x, y = np.array([[1, 0]], np.float32), np.empty((1, 2), np.float32)
    made.functions[host.function](x, y)
    np.testing.assert_allclose(y, np.tanh(np.exp(x)), rtol=1e-6)


def test_without_onnxruntime_nodes_run_by_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    made = linked("x: float32[n, 2] z = NonZero(x) y = Neg(z) return y", without=("NonZero",))
    (node,) = made.unlowered
    assert node.engine == "ONNX's reference evaluator"


def test_flops_and_bytes_are_sizes() -> None:
    made = linked("x: float32[n, 4] y = Add(Mul(x, x), 1.0) return y")
    (call,) = [s for s in made.steps if isinstance(s, KernelStep)]
    assert call.flops == ("*", 8, "n")
    assert call.bytes == ("+", ("*", 16, "n"), ("*", 16, "n"), 0) or call.bytes == ("+", ("*", 16, "n"), ("*", 16, "n"))


def test_the_same_graph_gives_the_same_program() -> None:
    text = "x: float32[n, 4] a = Exp(x) b = Softmax(a) y = Reshape(b, [-1]) return y"
    first, second = linked(text), linked(text)
    assert first.steps == second.steps
    assert first.buffers == second.buffers
    assert [k.source for k in first.kernels] == [k.source for k in second.kernels]


MOVED = read("""
@program
def moved(x: Buffer[(40,), "float32"], y: Buffer[(40,), "float32"]):
    for i in serial(39):
        with block("y"):
            v = axis.spatial(39, i)
            y[v + 1] = x[v] + 1.0
""")


def started(planner: Planner, place: Place) -> tuple[int, int]:
    """A buffer of 40 elements, and one that is seen as another."""
    own = planner.add(ProgramBuffer("float32", (40,), place))
    return own, planner.add(ProgramBuffer("float32", (40,), "view", own))


def test_kernels_know_that_operands_are_apart_where_none_that_is_written_shares_the_memory_of_another() -> None:
    planner = planner_of(MOVED, BY_RULE, is_ready=True)
    (x, same), (y, seen) = started(planner, "input"), started(planner, "output")
    pairs = {"apart": (x, y), "seen as another": (same, seen), "the same": (y, y), "a view of it": (seen, y)}
    steps = [
        step
        for pair in pairs.values()
        for step in planner.calls(MOVED, dict(zip(MOVED.buffers, pair, strict=True)), {}, "moved", (), True)
    ]
    kernels = list(planner.kernels)
    assert [kernels[s.kernel].noalias for s in steps if isinstance(s, KernelStep)] == [True, True, False, False]
    assert kernels[0].source == kernels[1].source
    assert len(kernels) == 2


def test_what_is_only_read_may_be_read_twice() -> None:
    text = show(MOVED).replace("moved(", 'moved(z: Buffer[(40,), "float32"], ').replace("+ 1.0", "+ z[v]")
    nest = read(text)
    planner = planner_of(nest, BY_RULE, is_ready=True)
    (x, seen), (y, _) = started(planner, "input"), started(planner, "output")
    assert len(list(planner.calls(nest, dict(zip(nest.buffers, (x, seen, y), strict=True)), {}, "", (), True))) == 1
    assert [k.noalias for k in planner.kernels] == [True]


def test_a_nest_that_writes_what_it_reads_runs_one_element_after_the_other() -> None:
    planner = planner_of(MOVED, BY_RULE, is_ready=True)
    x = planner.add(ProgramBuffer("float32", (40,), "input"))
    y, seen = started(planner, "output")
    steps = [
        step
        for pair in ((x, y), (seen, y))
        for step in planner.calls(MOVED, dict(zip(MOVED.buffers, pair, strict=True)), {}, "moved", (), True)
    ]
    driver, *objects = compile_kernels((native_driver(), *planner.kernels))
    ports = (Port("x", x),), (Port("y", y),)
    program = Program(Code(*ports, tuple(planner.buffers), tuple(steps), tuple(objects), driver), threads=1)
    zeros = np.zeros(40, np.float32)
    np.testing.assert_array_equal(program(zeros, out={"y": zeros.copy()})["y"], np.arange(40))


def test_an_output_may_be_written_over_an_input_that_is_read_again() -> None:
    text = "x: float32[40, 40] z = MatMul(x, x) y = Add(Transpose(x, perm=[1, 0]), z) return y"
    program = compile(parse(text))
    x = np.random.default_rng(0).standard_normal((41, 40), np.float32)
    for out in (x[:40], x[1:]):
        want = program(x[:40].copy())["y"]
        np.testing.assert_array_equal(program(x[:40], out={"y": out})["y"], want)
        np.testing.assert_array_equal(out, want)
