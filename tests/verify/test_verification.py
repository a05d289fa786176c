import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphopt
from graphopt.errors import ReadError, UsageError, VerificationError
from graphopt.ir import onnx_io
from graphopt.ir.constants import Constant
from graphopt.ir.graph import Graph
from graphopt.ir.text import parse
from graphopt.ir.types import TensorType
from graphopt.verify.runtimes import EngineError
from graphopt.verify.verification import (
    OFF,
    Demands,
    Fork,
    Interpreter,
    Verification,
    started_ahead,
    verify,
    verify_as_asked,
)
from tests.random_graphs import compared

pytest.importorskip("onnxruntime")


def write(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, list[int | str]]],
    outputs: dict[str, int],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 17,
    shapes: bool = True,
) -> Path:
    """A model file."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
        [helper.make_tensor_value_info(n, t, None) for n, t in outputs.items()],
        [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.save(model, path)
    return path


F = TensorProto.FLOAT
N = helper.make_node


def unary(path: Path, *ops: str, shape: list[int | str] | None = None, dtype: int = F, out: int | None = None) -> Path:
    """A chain of ops of one input."""
    names = ["x", *(f"v{i}" for i in range(len(ops) - 1)), "y"]
    nodes = [N(op, [a], [b]) for op, a, b in zip(ops, names, names[1:], strict=False)]
    return write(path, nodes, {"x": (dtype, shape or [2, 3])}, {"y": dtype if out is None else out})


def test_equal_models_are_verified(in_a_process: None, tmp_path: Path) -> None:
    a = unary(tmp_path / "a.onnx", "Relu", "Relu")
    found = verify(a, unary(tmp_path / "b.onnx", "Relu"), draws=2)
    assert (found.status, found.engine, found.draws, found.error) == ("verified", "ONNX Runtime", 2, 0)


def test_a_wrong_result_is_an_error_that_names_the_output(in_a_process: None, tmp_path: Path) -> None:
    a = unary(tmp_path / "a.onnx", "Relu")
    with pytest.raises(
        VerificationError, match=r"output 'y' of the result differs from that of the original by .* \(.* of .*\) at \["
    ):
        verify(a, unary(tmp_path / "b.onnx", "Sigmoid"))


@pytest.mark.parametrize("seed", range(4))
def test_one_place_of_a_maximum_that_is_equal_by_chance_does_not_verify(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    weights = {"w": rng.normal(size=(16, 32)).astype("f4"), "v": rng.normal(size=(32, 5)).astype("f4")}

    def model(name: str, op: str) -> Path:
        nodes = [N("MatMul", ["x", "w"], ["t"]), N(op, ["t"], ["u"]), N("MatMul", ["u", "v"], ["z"])]
        inputs = {"x": (F, [1, 16])}
        return write(
            tmp_path / name, [*nodes, N("ArgMax", ["z"], ["y"], axis=1)], inputs, {"y": TensorProto.INT64}, weights
        )

    a = model("a.onnx", "Relu")
    assert verify(a, a).draws == 16
    with pytest.raises(VerificationError, match="output 'y' of the result differs"):
        verify(a, model("b.onnx", "Identity"))
    given = {"x": np.ones((1, 16), "f4")}
    assert verify(a, a, inputs=given).draws == 1


def test_a_result_of_another_type_is_an_error(tmp_path: Path) -> None:
    a = unary(tmp_path / "a.onnx", "Relu")
    node = N("Unsqueeze", ["x", "axes"], ["y"])
    b = write(tmp_path / "b.onnx", [node], {"x": (F, [2, 3])}, {"y": F}, {"axes": np.array([0])})
    with pytest.raises(VerificationError, match=r"its type: float32\[1, 2, 3\] instead of float32\[2, 3\]"):
        verify(a, b)


def test_a_result_that_does_not_load_is_an_error(tmp_path: Path) -> None:
    a = unary(tmp_path / "a.onnx", "Relu")
    with pytest.raises(VerificationError, match="runs the original but not the result"):
        verify(a, unary(tmp_path / "b.onnx", "ATen"))


def test_an_original_that_is_not_valid_is_unverified_and_told_why(tmp_path: Path) -> None:
    a = write(tmp_path / "a.onnx", [N("Transpose", ["x"], ["y"], perm=[0, 2, 1])], {"x": (F, ["b", 3])}, {"y": F})
    found = verify(a, a)
    assert found.status == "unverified"
    assert "perm [0, 2, 1] does not fit" in found.reason
    assert "process" not in found.reason


def test_an_original_that_nothing_runs_is_unverified(tmp_path: Path) -> None:
    a = unary(tmp_path / "a.onnx", "ATen")
    found = verify(a, a)
    assert found.status == "unverified"
    assert "the original does not run" in found.reason
    with pytest.raises(VerificationError, match="could not be verified"):
        verify(a, a, required=True)


def test_an_original_that_is_never_finite_is_inconclusive(tmp_path: Path) -> None:
    a = unary(tmp_path / "a.onnx", "Relu", "Neg", "Exp", "Neg", "Log")
    found = verify(a, unary(tmp_path / "b.onnx", "Relu"))
    assert found.status == "inconclusive"
    assert "output 'y' of the original was not finite in " in found.reason


def test_results_of_nan_are_compared_where_they_are_nan_and_where_not(tmp_path: Path) -> None:
    def model(name: str, *weights: float) -> Path:
        nodes, held = [N("Mul", ["x", "w"], ["y"])], {"w": np.array(weights, "f4")}
        return write(tmp_path / name, nodes, {"x": (F, [50, 4])}, {"y": F}, held)

    a = model("a.onnx", np.nan, 1, 2, np.inf)
    assert verify(a, model("b.onnx", np.nan, 1, 2, np.inf), required=True).status == "verified"  # the same ops
    assert verify(a, model("c.onnx", 3, 1, 2, np.inf)).status == "inconclusive"
    for wrong in ((np.nan, 1, 3, np.inf), (3, 1, np.nan, np.inf)):
        with pytest.raises(VerificationError, match="output 'y' of the result differs"):
            verify(a, model("d.onnx", *wrong))


def test_positive_inputs_are_found_where_they_are_needed(tmp_path: Path) -> None:
    a = unary(tmp_path / "a.onnx", "Log")
    assert verify(a, a).status == "verified"


def test_rounding_is_no_mismatch(tmp_path: Path) -> None:
    """Floor of a large multiple flips where the last bit of its input does."""

    def model(name: str, nodes: list[onnx.NodeProto]) -> Path:
        weights = {"a": np.array(3e6, "f4"), "b": np.array(1 / 3, "f4"), "ab": np.array(3e6 / 3, "f4")}
        return write(tmp_path / name, [*nodes, N("Floor", ["v"], ["y"])], {"x": (F, [1000])}, {"y": F}, weights)

    a = model("a.onnx", [N("Mul", ["x", "a"], ["u"]), N("Mul", ["u", "b"], ["v"])])
    b = model("b.onnx", [N("Mul", ["x", "ab"], ["v"])])
    assert verify(a, b).status == "verified"


def test_doubles_that_were_singles_are_compared_as_singles(tmp_path: Path) -> None:
    def model(name: str, nodes: list[onnx.NodeProto]) -> Path:
        weights = {"a": np.array(3e6, "f4"), "b": np.array(1 / 3, "f4"), "ab": np.array(1.0000001e6, "f4")}
        cast = [N("Cast", ["x"], ["f"], to=F), *nodes, N("Cast", ["v"], ["y"], to=TensorProto.DOUBLE)]
        return write(tmp_path / name, cast, {"x": (TensorProto.INT64, [1000])}, {"y": TensorProto.DOUBLE}, weights)

    a = model("a.onnx", [N("Mul", ["f", "a"], ["u"]), N("Mul", ["u", "b"], ["v"])])
    b = model("b.onnx", [N("Mul", ["f", "ab"], ["v"])])
    assert verify(a, b).status == "verified"


def test_open_sizes_are_tried_until_the_model_runs(tmp_path: Path) -> None:
    nodes = [N("Reshape", ["x", "s"], ["y"])]  # the last size must be a multiple of 48
    weights = {"s": np.array([0, -1, 48])}
    a = write(tmp_path / "a.onnx", nodes, {"x": (F, ["n", "m"])}, {"y": F}, weights)
    assert verify(a, a, draws=2).status == "verified"


def test_index_inputs_stay_inside_their_table(tmp_path: Path) -> None:
    nodes = [N("Unsqueeze", ["i", "axes"], ["j"]), N("Gather", ["table", "j"], ["y"])]
    weights = {"table": np.eye(3, dtype="f4"), "axes": np.array([0])}
    a = write(tmp_path / "a.onnx", nodes, {"i": (TensorProto.INT64, [50])}, {"y": F}, weights)
    assert verify(a, a, draws=3).status == "verified"


def test_given_inputs_are_used(in_a_process: None, tmp_path: Path) -> None:
    a = unary(tmp_path / "a.onnx", "Abs", shape=["n", 3])
    b = unary(tmp_path / "b.onnx", "Relu", shape=["n", 3])
    assert verify(a, b, inputs={"x": "0..5"}).status == "verified"
    assert verify(a, b, inputs={"x": np.ones((7, 3), "f4")}).status == "verified"
    np.save(tmp_path / "x.npy", -np.ones((7, 3), "f4"))
    with pytest.raises(VerificationError):
        verify(a, b, inputs={"x": tmp_path / "x.npy"})
    with pytest.raises(UsageError, match="there is no input 'z'; there is x"):
        verify(a, b, inputs={"z": (0, 1)})
    with pytest.raises(ReadError, match="cannot read"):
        verify(a, b, inputs={"x": str(tmp_path / "missing.npy")})


def test_random_models_are_inconclusive(tmp_path: Path) -> None:
    a = unary(tmp_path / "a.onnx", "RandomUniformLike", shape=[100])
    found = verify(a, unary(tmp_path / "b.onnx", "RandomNormalLike", shape=[100]))
    assert found.status == "inconclusive"
    assert "another in the original each time" in found.reason


def test_time_is_limited(in_a_process: None, tmp_path: Path) -> None:
    a = unary(tmp_path / "a.onnx", "Relu")
    found = verify(a, a, seconds=0.05)
    assert (found.status, found.reason) == ("unverified", "the original was still running after 0.05 s")


def test_sizes_that_the_runtime_does_not_survive_are_left_out(
    in_a_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "import sys, os; sys.path[:] = {path!r}; import graphopt.verify.compare as c; once = c.draw\n"
        "def draw(graph, sizes, *rest):\n"
        "    if not sizes['n'] % 2: os.abort()\n"
        "    return once(graph, sizes, *rest)\n"
        "c.draw = draw; c.answer(sys.stdin.read())"
    )
    monkeypatch.setattr(import_module("graphopt.verify.verification"), "_PROGRAM", program)
    a = write(tmp_path / "a.onnx", [N("Relu", ["x"], ["y"])], {"x": (F, ["n", 3])}, {"y": F})
    assert verify(a, a).status == "verified"


@pytest.mark.parametrize(
    ("phase", "how", "status", "reason"),
    [
        ("original", "os._exit(3)", "unverified", "the process that ran the original ended (exit 3)"),
        ("original", "os.kill(os.getpid(), 9)", "unverified", "the process was killed, probably for want of memory"),
        ("result", "sys.exit('no more')", "wrong", "the process that ran the result ended (no more)"),
    ],
)
def test_a_process_that_ends_is_put_down_to_the_model_at_work(
    in_a_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str, how: str, status: str, reason: str
) -> None:
    program = (
        f"import os, sys, pathlib; {{path!r}}; pathlib.Path(sys.stdin.read(), 'phase').write_text('{phase}'); {how}"
    )
    monkeypatch.setattr(import_module("graphopt.verify.verification"), "_PROGRAM", program)
    a = unary(tmp_path / "a.onnx", "Relu")
    if status == "wrong":
        with pytest.raises(VerificationError, match=re.escape(reason)):
            verify(a, a)
    else:
        found = verify(a, a)
        assert (found.status, found.reason) == (status, reason)


def test_an_interpreter_that_was_started_ahead_answers_once_and_ends_with_its_block(
    in_a_process: None, tmp_path: Path
) -> None:
    a = unary(tmp_path / "a.onnx", "Relu")
    with started_ahead(1) as interpreter:
        assert interpreter is not None
        assert interpreter.is_free
        assert verify(a, a, interpreter=interpreter).is_verified
        assert not interpreter.is_free
        assert verify(a, a, interpreter=interpreter).is_verified  # by another
    with started_ahead("require") as unused:
        assert unused is not None
    assert not runs(unused)
    with started_ahead("off") as none:
        assert none is None


def runs(interpreter: Interpreter) -> bool:
    if isinstance(interpreter, Fork):
        return interpreter._copy.is_alive()
    return interpreter._process.returncode is None


FORKS = """
import os, sys, threading
from graphopt.verify import compare
from graphopt.verify.verification import Fork, Interpreter, started_ahead, verify

a = sys.argv[1]
with started_ahead(1) as interpreter:
    assert type(interpreter) is Fork
    assert verify(a, a, interpreter=interpreter).is_verified
    assert not interpreter.is_free
with started_ahead(1) as unused:
    assert unused._copy.is_alive()
assert not unused._copy.is_alive()
answer, compare.answer = compare.answer, lambda folder: os.abort()
with started_ahead(1) as broken:
    assert broken("folder", 60).returncode == -6
compare.answer = lambda folder: 1 / 0
with started_ahead(1) as wrong:
    assert b"ZeroDivisionError" in wrong("folder", 60).stderr
done = threading.Event()
threading.Thread(target=done.wait).start()
with started_ahead(1) as other:
    assert type(other) is Interpreter
done.set()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="copies are made on Linux alone")
def test_a_process_of_one_thread_is_copied_and_none_of_others(tmp_path: Path) -> None:
    a = unary(tmp_path / "a.onnx", "Relu")
    done = subprocess.run([sys.executable, "-c", FORKS, str(a)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_result_that_lacks_memory_is_not_called_wrong(in_a_process: None, tmp_path: Path) -> None:
    a = unary(tmp_path / "a.onnx", "Relu")
    nodes = [N("ConstantOfShape", ["n"], ["big"]), N("ReduceSum", ["big"], ["none"], keepdims=0)]
    nodes += [N("Relu", ["x"], ["r"]), N("Add", ["r", "none"], ["y"])]
    b = write(tmp_path / "b.onnx", nodes, {"x": (F, [2, 3])}, {"y": F}, {"n": np.array([1 << 28], np.int64)})
    found = verify(a, b, memory=200 << 20)
    assert found.status == "unverified"
    assert "--memory" in found.reason


def test_what_was_asked() -> None:
    assert verify_as_asked("a", "b", "off") is OFF
    with pytest.raises(UsageError):
        verify_as_asked("a", "b", "maybe")


def test_saturated_outputs_are_avoided_or_owned_up_to(tmp_path: Path) -> None:
    weights = {"far": np.array(-30, "f4"), "never": np.array(-1e4, "f4")}

    def model(name: str, constant: str, *more: str) -> Path:
        """A sigmoid that is 0 for ordinary inputs."""
        nodes = [N("Add", ["x", constant], ["a"]), *(N(op, ["a"], ["b"]) for op in more)]
        nodes.append(N("Sigmoid", ["b" if more else "a"], ["y"]))
        return write(tmp_path / name, nodes, {"x": (F, [100, 100])}, {"y": F}, weights)

    with pytest.raises(VerificationError):
        verify(model("a.onnx", "far"), model("b.onnx", "far", "Floor"))
    a = model("c.onnx", "never")
    assert verify(a, a).status == "verified"  # the same ops of the same inputs
    found = verify(a, model("d.onnx", "never", "Floor"))
    assert (found.status, found.error) == ("inconclusive", 0)
    assert "output 'y' of the original does not depend on random inputs" in found.reason
    with pytest.raises(VerificationError, match=r"could not be verified: output 'y' .* does not depend"):
        verify(a, tmp_path / "d.onnx", required=True)


def test_sequences_behind_an_output_that_is_constant_are_compared(tmp_path: Path) -> None:
    """A sigmoid that is 0 for ordinary inputs, in a sequence with what is not; as wholes, not part by part."""
    for name, far in (("a", "Sub(x, 10000.0)"), ("b", "Add(x, -10000.0)")):
        text = f"x: float32[2, 20] s = SequenceConstruct(Sigmoid({far}), x) y = SequenceAt(s, 0) return y"
        onnx_io.save(parse(text), tmp_path / f"{name}.onnx")
    answer = compared(tmp_path / "a.onnx", tmp_path / "b.onnx")
    assert (answer["status"], answer["inside"]) == ("verified", 1)


def test_inputs_that_the_result_should_not_need_are_named(tmp_path: Path) -> None:
    a = unary(tmp_path / "a.onnx", "Relu")
    b = write(tmp_path / "b.onnx", [N("Add", ["x", "z"], ["y"])], {"x": (F, [2, 3]), "z": (F, [2, 3])}, {"y": F})
    with pytest.raises(VerificationError, match="the result has inputs that the original has not: z"):
        verify(a, b)


def test_open_sizes_are_drawn_twice_and_told(tmp_path: Path) -> None:
    a = unary(tmp_path / "a.onnx", "Relu", shape=["n", 3])
    found = verify(a, a)
    assert found.draws == len({tuple(s.items()) for s in found.sizes}) == 2
    assert [list(s) for s in found.sizes] == [["n"], ["n"]]


def test_sizes_at_which_outputs_depend_on_inputs_are_sought(tmp_path: Path) -> None:
    """The model multiplies by zero unless its input has 16 elements or more."""
    nodes = [
        N("Shape", ["x"], ["s"]),
        N("Greater", ["s", "few"], ["c"]),
        N("Cast", ["c"], ["f"], to=F),
        N("Mul", ["x", "f"], ["z"]),
        N("Add", ["z", "ramp"], ["y"]),
    ]
    weights = {"few": np.array([15]), "ramp": np.arange(300, dtype="f4").reshape(300, 1)}
    a = write(tmp_path / "a.onnx", nodes, {"x": (F, ["n"])}, {"y": F}, weights)
    found = verify(a, a)
    assert (found.reason, found.sizes[0]) == ("", {"n": 16})


def test_a_few_percent_are_too_much_behind_quantization_too(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    for name, factor in (("a", "1.0"), ("b", "1.03")):
        text = f"""x: float32[64]
            q = QuantizeLinear(x, 0.05, uint8[]{{128}})
            d = DequantizeLinear(q, 0.05, uint8[]{{128}})
            y = Mul(Exp(d), {factor})
            return y"""
        onnx_io.save(parse(text), tmp_path / f"{name}.onnx")
    with pytest.raises(VerificationError, match="output 'y' of the result differs from that of the original by"):
        verify_as_asked(tmp_path / "a.onnx", tmp_path / "b.onnx", 1, None)


def test_an_opset_that_a_runtime_has_no_kernels_for_is_no_wrong_result(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    nodes, weights = [N("Gemm", ["x", "w", "b"], ["y"])], {"w": np.ones((3, 3), "f4"), "b": np.ones(3, "f4")}
    model = write(tmp_path / "a.onnx", nodes, {"x": (F, [2, 3])}, {"y": F}, weights)
    with pytest.raises(UsageError, match=r"has no kernels for what the result is in opset 3 .* a later --opset"):
        graphopt.optimize(model, output=tmp_path / "b.onnx", opset=3)
    assert [file.name for file in tmp_path.iterdir()] == ["a.onnx"]


# what is not plainly right is not called so: each of these rules is wrong on purpose


def rewritten(text: str, rule: str, tmp_path: Path, **options: object) -> Verification:
    """What verification finds of a model after a rule that is wrong."""
    rules, model = tmp_path / "wrong.rules", tmp_path / "in.onnx"
    rules.write_text(f"# wrong on purpose [H1] exact always\n{rule}\n")
    onnx_io.save(parse(text), model)
    _, report = graphopt.optimize(
        model,
        output=tmp_path / "out.onnx",
        rules=rules,
        only="wrong",
        on_mismatch="refuse",
        return_report=True,
        **options,
    )
    assert report.by_rule().get("wrong")
    return report.verification


def test_a_wrong_op_is_found_where_any_rounding_makes_another_result(tmp_path: Path) -> None:
    chaos = "x: float32[4, 16]\n y = Sin(Mul(x, 1000000000.0))\n return y"
    with pytest.raises(
        VerificationError, match="the result is wrong: output 'y' of the result differs from that of the original by"
    ):
        rewritten(chaos, "wrong: Sin(x) => Cos(x)", tmp_path)
    assert not (tmp_path / "out.onnx").exists()


def test_a_wrong_op_is_found_where_any_rounding_makes_other_sizes(tmp_path: Path) -> None:
    text = """x: float32[400]
        odd = Cast(Mod(Cast(Floor(Mul(x, 10000000.0)), to=7), 2), to=9)
        y = Sin(Compress(x, odd, axis=0))
        return y"""
    with pytest.raises(VerificationError, match="the result is wrong"):
        rewritten(text, "wrong: Sin(x) => Exp(x)", tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "x: float16[8, 4000] v, i = TopK(x, [3000], axis=1) return v, i",
        "x: float32[4, 4] y = Neg(x) e = Slice(x, [0], [0], [0]) return y, e",
    ],
    ids=["ties of halves", "no elements"],
)
def test_a_model_is_verified_against_itself(text: str, tmp_path: Path) -> None:
    onnx_io.save(parse(text), tmp_path / "a.onnx")
    assert verify(tmp_path / "a.onnx", tmp_path / "a.onnx").status == "verified"


def test_a_result_that_rounding_makes_another_is_inconclusive_with_both_numbers(tmp_path: Path) -> None:
    def model(name: str, *factors: float) -> Path:
        nodes = [N("Mul", ["x" if i == 0 else f"m{i - 1}", f"k{i}"], [f"m{i}"]) for i in range(len(factors))]
        nodes.append(N("Sin", [f"m{len(factors) - 1}"], ["y"]))
        weights = {f"k{i}": np.array(factor, "f4") for i, factor in enumerate(factors)}
        return write(tmp_path / name, nodes, {"x": (F, [64])}, {"y": F}, weights)

    a, b = model("a.onnx", 1e5, 0.3, 1e4), model("b.onnx", 3e8)
    found = verify(a, b)
    assert found.status == "inconclusive"
    assert found.error > 1000
    assert dict(found.outputs)["y"] == found.error
    assert "times the tolerance, and that of the original by " in found.reason
    with pytest.raises(VerificationError, match="could not be verified"):
        verify(a, b, required=True)


INTEGERS = {
    "clip": (
        "x: int64[4, 16]\n y = Clip(x, int64[]{0}, int64[]{100})\n return y",
        "wrong: Clip(x, 0, 100) => Identity(x)",
    ),
    "abs": ("x: int64[4, 16]\n y = Abs(x)\n return y", "wrong: Abs(x) => Identity(x)"),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_that_may_be_any_are_large_and_negative_too(name: str, tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match=r"the result is wrong: .* of 64 elements"):
        rewritten(*INTEGERS[name], tmp_path)


def branching(path: Path, then: str, other: str, condition: str = "c") -> Path:
    """A model that takes one of two branches: by a truth value, or by whether a number is 5."""
    body = {
        key: helper.make_graph([N(op, ["x"], [key])], key, [], [helper.make_tensor_value_info(key, F, [4, 16])])
        for key, op in (("then_branch", then), ("else_branch", other))
    }
    nodes = [N("Equal", ["i", "five"], ["e"])] if condition == "e" else []
    nodes.append(N("If", [condition], ["y"], **body))
    by = {"i": (TensorProto.INT64, [])} if condition == "e" else {"c": (TensorProto.BOOL, [])}
    return write(path, nodes, {"x": (F, [4, 16]), **by}, {"y": F}, {"five": np.array(5)} if by.keys() == {"i"} else {})


@pytest.mark.parametrize("condition", ["c", "e"])
def test_both_branches_are_taken(condition: str, tmp_path: Path) -> None:
    a = branching(tmp_path / "a.onnx", "Abs", "Neg", condition)
    assert verify(a, branching(tmp_path / "b.onnx", "Abs", "Neg", condition)).draws == 1  # the same op
    for wrong in (("Abs", "Relu"), ("Relu", "Neg")):
        with pytest.raises(VerificationError, match="the result is wrong"):
            verify(a, branching(tmp_path / "c.onnx", *wrong, condition))


def test_a_branch_that_is_never_taken_is_compared_as_a_graph_of_its_own(tmp_path: Path) -> None:
    def branched(name: str, yes: str, condition: float = 0.0) -> Path:
        text = f"""x: float32[4], c: bool[]
            h = Add(x, {condition})
            y = If(c | h, then_branch={{ u: float32[4] {yes} return r }},
                else_branch={{ u: float32[4] r = Neg(u) return r }})
            return y"""
        onnx_io.save(parse(text), tmp_path / name)
        return tmp_path / name

    a, never = branched("a.onnx", "r = Abs(u)"), {"c": np.array(False)}
    right = "m = Neg(u) r = Max(u, m)"
    assert verify(a, branched("b.onnx", right), inputs=never).status == "verified"
    with pytest.raises(VerificationError, match="value 'r' in its then_branch, and that by"):
        verify(a, branched("c.onnx", "r = Relu(u)"), inputs=never)


def test_a_branch_that_is_never_taken_is_named(tmp_path: Path) -> None:
    """Where the result has no such If, there is nothing to compare what it left out with."""
    a, b = branching(tmp_path / "a.onnx", "Abs", "Neg"), unary(tmp_path / "b.onnx", "Neg", shape=[4, 16])
    found = verify(a, b, inputs={"c": np.array(False)})
    assert found.status == "inconclusive"
    assert found.reason.startswith("condition 'c' of If in the original was False only")


def test_optional_inputs_are_left_out_too(tmp_path: Path) -> None:
    def model(name: str, op: str) -> Path:
        """A model that gives what it is given, or else another output."""
        kinds = {"then_branch": N("OptionalGetElement", ["o"], ["t"]), "else_branch": N(op, ["x"], ["e"])}
        body = {
            key: helper.make_graph([node], key, [], [helper.make_tensor_value_info(node.output[0], F, [4])])
            for key, node in kinds.items()
        }
        nodes = [N("OptionalHasElement", ["o"], ["c"]), N("If", ["c"], ["y"], **body)]
        given = helper.make_optional_type_proto(helper.make_tensor_type_proto(F, [4]))
        inputs = [helper.make_tensor_value_info("x", F, [4]), helper.make_value_info("o", given)]
        graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", F, [4])])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), tmp_path / name)
        return tmp_path / name

    with pytest.raises(VerificationError, match="the result is wrong"):
        verify(model("a.onnx", "Abs"), model("b.onnx", "Relu"))


def test_exact_zeros_are_among_the_inputs(tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match="the result is wrong"):
        rewritten(
            "x: float32[4, 16]\n y = Sign(x)\n return y",
            "wrong: Sign(x) => Where(Less(x, 0.0), -1.0, 1.0)",
            tmp_path,
        )


TIES = "x: float32[64, 16]\n s = Mul(x, 1000000.0)\n y = ArgMax(Sub(s, Floor(s)), axis=1, keepdims=0)\n return y"


def test_a_wrong_op_is_found_where_rounding_makes_other_whole_numbers(tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match=r"the result is wrong: .* of 64 elements"):
        rewritten(TIES, "wrong: ArgMax(x, axis=1, keepdims=0) => ArgMin(x, axis=1, keepdims=0)", tmp_path)


def test_conditions_on_whole_numbers_are_true_and_false(tmp_path: Path) -> None:
    text = """x: float32[4], steps: int64[]
        w = Where(Greater(steps, int64[]{7}), 2.0, 3.0)
        y = Mul(x, w)
        return y"""
    with pytest.raises(VerificationError, match="the result is wrong"):
        rewritten(text, "wrong: Where(c, 2.0, y) => y", tmp_path)


def test_what_is_made_of_random_numbers_is_compared_on_the_same_ones(tmp_path: Path) -> None:
    text = "x: float32[4, 16]\n y = Mul(RandomNormalLike(x, seed=1.0), x)\n return y"
    with pytest.raises(VerificationError, match="the result is wrong"):
        rewritten(text, "wrong: Mul(x, y) => Add(x, y)", tmp_path)


def test_what_an_output_is_made_of_is_compared_where_the_output_says_little(tmp_path: Path) -> None:
    def model(name: str, *ops: str) -> Path:
        names = ["v0", *(f"u{i}" for i in range(len(ops)))]
        nodes = [N("MatMul", ["x", "w"], ["v0"])]
        nodes += [N(op, [a], [b]) for op, a, b in zip(ops, names, names[1:], strict=False)]
        nodes.append(N("Softmax", [names[len(ops)]], ["y"]))
        weights = {"w": np.full((8, 100), 0.02, "f4")}
        return write(tmp_path / name, nodes, {"x": (F, [4, 8])}, {"y": F}, weights)

    found = verify(model("a.onnx"), model("b.onnx", "Identity"))
    assert (found.status, found.inside, found.error) == ("verified", 1, 0)
    with pytest.raises(VerificationError, match="on other values, since 'v0' inside differs by"):
        verify(model("a.onnx"), model("c.onnx", "Relu"))  # at the output it makes no difference


def test_large_inputs_are_tried_where_ordinary_ones_make_no_difference(tmp_path: Path) -> None:
    def model(name: str, op: str, add: str, *names: str) -> Path:
        nodes = [N(op, ["x"], ["a"]), N("Mul", ["a", "small"], ["b"])]
        if names:
            nodes = [N("Mul", ["x", "small"], [names[0]]), N(op, [names[0]], [names[1]])]
        nodes.append(N(add, [names[1] if names else "b", "one"], ["y"]))
        weights = {"small": np.array(1e-9, "f4"), "one": np.array(1, "f4")}
        return write(tmp_path / name, nodes, {"x": (F, [100])}, {"y": F}, weights)

    a = model("a.onnx", "Relu", "Add")
    found = verify(a, model("b.onnx", "Relu", "Sum"))
    assert (found.status, found.parts, found.enlarged) == ("verified", 1, False)
    found = verify(a, model("d.onnx", "Relu", "Sum", "c", "d"))  # nothing goes together but inputs and outputs
    assert (found.status, found.parts, found.enlarged) == ("verified", 0, True)
    with pytest.raises(
        VerificationError, match=r"output 'y' of the result differs from that of the original by .*e-09"
    ):
        verify(a, model("c.onnx", "Abs", "Sum"))


def test_an_output_that_is_partly_finite_is_compared_where_it_is(tmp_path: Path) -> None:
    def model(name: str, op: str) -> Path:
        nodes = [N(op, ["x", "c"], ["a"]), N("Where", ["m", "a", "least"], ["y"])]
        weights = {"m": np.arange(100) % 2 == 0, "least": np.array(-np.inf, "f4"), "c": np.array(2, "f4")}
        return write(tmp_path / name, nodes, {"x": (F, [100])}, {"y": F}, weights)

    with pytest.raises(VerificationError, match="the result is wrong"):
        verify(model("a.onnx", "Mul"), model("b.onnx", "PRelu"))
    double = [N("Add", ["x", "x"], ["a"]), N("Where", ["m", "a", "least"], ["y"])]
    weights = {"m": np.arange(100) % 2 == 0, "least": np.array(-np.inf, "f4")}
    right = write(tmp_path / "c.onnx", double, {"x": (F, [100])}, {"y": F}, weights)
    assert verify(tmp_path / "a.onnx", right).status == "verified"


def test_a_wrong_op_is_found_behind_a_table(tmp_path: Path) -> None:
    """An index held as a float is exact: to move it by an ulp shows nothing of what rounding does."""
    table = np.random.default_rng(0).standard_normal(64).astype("f4")

    def model(name: str, op: str) -> Path:
        nodes = [
            N("Cast", ["x"], ["i"], to=TensorProto.INT64),
            N("Gather", ["t", "i"], ["v"]),
            N("Mul", ["v", "k"], ["w"]),
            N(op, ["w"], ["y"]),
        ]
        weights = {"t": table, "k": np.array(1e9, "f4")}
        return write(tmp_path / name, nodes, {"x": (F, [64])}, {"y": F}, weights)

    a = model("a.onnx", "Sin")
    assert verify(a, a).error == 0
    with pytest.raises(VerificationError, match="output 'y' of the result differs"):
        verify(a, model("b.onnx", "Cos"))


def test_the_largest_difference_is_told_with_its_place(tmp_path: Path) -> None:
    def model(name: str, *ops: str) -> Path:
        nodes = [N("Mul", ["x", "k"], ["m"]), N("Div", ["m", "k"], ["y"])] if ops else [N("Identity", ["x"], ["y"])]
        return write(tmp_path / name, nodes, {"x": (F, [2, 300])}, {"y": F}, {"k": np.array(3.3, "f4")} if ops else {})

    found = verify(model("a.onnx", "Mul"), model("b.onnx"))
    assert found.status == "verified"
    largest = found.largest
    assert largest is not None
    assert (largest.output, largest.draw, len(largest.index)) == ("y", 0, 2)
    assert 0 < largest.relative < 1e-6
    assert str(largest) in found.difference


def test_small_elements_beside_large_ones_count(tmp_path: Path) -> None:
    text = "x: float32[4, 16]\n y = Concat(x, Mul(x, 0.00001), axis=1)\n return y"
    with pytest.raises(VerificationError, match="the result is wrong"):
        rewritten(text, "wrong: Mul(x, 0.00001) => Mul(x, 0.000002)", tmp_path)


def test_a_percent_in_float32_is_too_much_behind_half_precision(tmp_path: Path) -> None:
    text = "x: float32[4, 16]\n y = Mul(Cast(Cast(x, to=10), to=1), 1.0001)\n return y"
    with pytest.raises(VerificationError, match="the result is wrong"):
        rewritten(text, "wrong: Mul(x, 1.0001) => Mul(x, 1.009)", tmp_path)


def test_a_scale_that_is_wrong_by_ten_percent_is_found(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    w = rng.integers(-127, 127, (8, 3, 3, 3), dtype=np.int8)

    def model(name: str, scale: float) -> Path:
        steps = [("x", "s", "z", "q"), ("o", "t", "z", "y")]
        nodes = [
            N("QuantizeLinear", list(steps[0][:3]), ["q"]),
            N("DequantizeLinear", ["q", "s", "z"], ["d"]),
            N("DequantizeLinear", ["w", "k"], ["v"]),
            N("Conv", ["d", "v"], ["o"]),
            N("QuantizeLinear", list(steps[1][:3]), ["y"]),
        ]
        weights = {"s": np.array(0.02, "f4"), "t": np.array(0.1, "f4"), "z": np.array(128, np.uint8), "w": w}
        kinds = {"y": TensorProto.UINT8}
        return write(tmp_path / name, nodes, {"x": (F, [1, 3, 16, 16])}, kinds, weights | {"k": np.array(scale, "f4")})

    a = model("a.onnx", 0.001)
    assert verify(a, model("b.onnx", 0.001)).status == "verified"
    with pytest.raises(
        VerificationError, match=r"output 'y' of the result differs from that of the original by \d+ of 1568 elements"
    ):
        verify(a, model("c.onnx", 0.0011))


def test_special_values_are_compared_bit_by_bit_under_exact_and_finite(tmp_path: Path) -> None:
    text, wrong = "x: float32[4, 16]\n y = Max(x, 0.0)\n return y", "Where(Greater(x, 0.0), x, 0.0)"
    with pytest.raises(VerificationError, match="differs from that of the original by bits of"):
        rewritten(text, f"wrong: Max(x, 0.0) => {wrong}", tmp_path, policy="exact")
    text = "x: float32[4, 16]\n y = Add(x, 0.0)\n return y"  # -0.0 becomes 0.0
    with pytest.raises(VerificationError, match=r"by bits of .* -0\.0, not 0\.0, at \["):
        rewritten(text, "wrong: Add(x, 0.0) => Identity(x)", tmp_path, policy="finite")
    assert rewritten(text, "wrong: Add(x, 0.0) => Identity(x)", tmp_path).status == "verified"


def test_tolerances_can_be_given(tmp_path: Path) -> None:
    def model(name: str, k: float) -> Path:
        return write(
            tmp_path / name, [N("Mul", ["x", "k"], ["y"])], {"x": (F, [64])}, {"y": F}, {"k": np.array(k, "f4")}
        )

    def chain(name: str) -> Path:
        nodes = [N("Mul", ["x", "a"], ["m"]), N("Mul", ["m", "b"], ["y"])]
        weights = {"a": np.array(1.1, "f4"), "b": np.array(1.3, "f4")}
        return write(tmp_path / name, nodes, {"x": (F, [64])}, {"y": F}, weights)

    a, b = chain("a.onnx"), model("b.onnx", np.float32(1.1) * np.float32(1.3))
    found = verify(a, b, demands=Demands(rtol=1e-5))
    assert (found.status, found.rtol, found.atol) == ("verified", 1e-5, None)
    with pytest.raises(VerificationError, match=r"of 64 elements of output 'y' of the result are beyond rtol 1e-09"):
        verify(a, b, demands=Demands(rtol=1e-9))


def test_a_weight_is_found_that_is_wrong_before_a_maximum(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    w = rng.normal(size=(16, 10)).astype("f4")

    def model(name: str, factor: float) -> Path:
        wrong = w.copy()
        wrong[:, 3] *= np.float32(factor)
        nodes = [N("MatMul", ["x", "w"], ["v"]), N("ArgMax", ["v"], ["y"], axis=1), N("Tanh", ["x"], ["z"])]
        return write(tmp_path / name, nodes, {"x": (F, [4, 16])}, {"y": TensorProto.INT64, "z": F}, {"w": wrong})

    a = model("a.onnx", 1)
    assert verify(a, model("b.onnx", 1)).status == "verified"
    with pytest.raises(VerificationError, match=r"'v' inside differs by|order of what it is taken of"):
        verify(a, model("c.onnx", 1.01))


def test_a_branch_is_found_that_is_wrong_and_counts_for_next_to_nothing(tmp_path: Path) -> None:
    text = "x: float32[4, 16]\n y = Add(x, Mul(Tanh(x), 0.000001))\n return y"
    with pytest.raises(VerificationError, match="the result is wrong"):
        rewritten(text, "wrong: Tanh(x) => Sin(x)", tmp_path)


def test_a_table_is_compared_where_no_index_reads_it_too(tmp_path: Path) -> None:
    table = np.random.default_rng(0).normal(size=(5000, 4)).astype("f4")

    def model(name: str, factor: float) -> Path:
        wrong = table.copy()
        wrong[4321, 2] *= np.float32(factor)
        nodes = [N("Gather", ["t", "i"], ["v"]), N("Tanh", ["v"], ["y"])]
        return write(tmp_path / name, nodes, {"i": (TensorProto.INT64, [3])}, {"y": F}, {"t": wrong})

    a = model("a.onnx", 1)
    assert verify(a, model("b.onnx", 1)).status == "verified"
    with pytest.raises(VerificationError, match=r"a constant that it reads: .* at \[4321, 2\]"):
        verify(a, model("c.onnx", 1.01))


def test_few_numbers_are_tried_with_either_sign(tmp_path: Path) -> None:
    def model(name: str, op: str) -> Path:
        return write(tmp_path / name, [N(op, ["x"], ["y"])], {"x": (F, [])}, {"y": F})

    a = model("a.onnx", "Abs")
    for op in ("Neg", "Identity"):
        with pytest.raises(VerificationError, match="output 'y' of the result differs"):
            verify(a, model("b.onnx", op))
    assert verify(a, model("c.onnx", "Abs")).is_verified


@pytest.mark.parametrize("takes_inputs", [True, False], ids=["any", "constants alone"])
def test_large_weights_of_excerpts_are_given_and_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, takes_inputs: bool
) -> None:
    compare = import_module("graphopt.verify.compare")
    opens = compare.open_model

    def opened(path: Path, engine: str) -> object:
        if not takes_inputs and path.stat().st_size < 1000:
            raise EngineError("its weights have to be constants")
        return opens(path, engine)

    monkeypatch.setattr(compare, "open_model", opened)
    weights = np.arange(1 << 20, dtype=np.float32).reshape(1024, 1024)
    graph = Graph()
    x, w = graph.add_input("x", TensorType("float32", (2, 1024))), graph.add_constant(Constant.of(weights))
    graph.add_output("y", graph.add("MatMul", (x, w)).outputs[0])
    run = compare._open_excerpt(graph, tmp_path / "m.onnx", "ONNX Runtime")
    assert (sum(file.stat().st_size for file in tmp_path.iterdir()) < 1000) == takes_inputs
    ones = np.ones((2, 1024), np.float32)
    assert np.allclose(run({"x": ones, "z": ones})[0], ones @ weights)
    assert graph.constant_of(w) is not None
