"""Programs are compared with their models when they are compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphopt
from graphopt import tensor
from graphopt.errors import UsageError, VerificationError
from graphopt.ir import onnx_io
from graphopt.ir.text import parse
from graphopt.program import verified
from graphopt.verify import conditioning, runtimes

NET = "x: float32[n, 4] w: float32[4, 4] y = Relu(MatMul(x, w)) return y"
BODY = "{ i: int64[] c: bool[] s: ? r = Neg(s) return c, r }"
WRONG = "x: float32[n, 4] w: float32[4, 4] y = Abs(MatMul(x, w)) return y"


def swapped(step: Any, graph: Any) -> Any:
    """A step that makes another function of the graph."""
    return step(parse(WRONG))


@pytest.fixture(autouse=True)
def _runtime() -> None:
    pytest.importorskip("onnxruntime")


def test_a_right_program_is_verified() -> None:
    verification = graphopt.compile(parse(NET)).report.verification
    assert verification.is_verified
    assert verification.draws == 1
    assert verification.error is not None
    assert verification.error <= 1


def test_a_wrong_program_is_an_error_unless_nobody_asks() -> None:
    steps = {"LegalizeOps": swapped}
    with pytest.raises(VerificationError, match=r"the program is wrong: output .* times the tolerance"):
        graphopt.compile(parse(NET), steps=steps)
    assert graphopt.compile(parse(NET), steps=steps, verify="off").report.verification.status == "off"


def test_what_rounding_alone_changes_as_much_is_not_wrong() -> None:
    text = "i: int64[6] w = float32[2, 3]{0.1, 0.2, 0.3, 0.4, 0.5, 0.6} t = Gather(w, i) "
    model = parse(f"{text} y = Sub(Add(t, 300000.5), 300001.25) return y")

    def instead(made: str) -> dict[str, Any]:
        return {"LegalizeOps": lambda step, graph: step(parse(f"{text} {made} return y"))}

    verification = graphopt.compile(model, steps=instead("y = Sub(t, 0.75)")).report.verification
    assert verification.status == "inconclusive"
    assert verification.reason.endswith("but no more than when its weights move by one ulp")
    with pytest.raises(VerificationError, match="the program is wrong"):
        graphopt.compile(model, steps=instead("y = Add(t, 1.0)"))


def test_a_program_is_right_that_computes_what_the_reference_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a runtime does not: on some processors its kernels of bytes saturate."""
    opened = runtimes.open_model

    def saturating(path: Path, engine: str | None = None, prepacks: bool = False) -> tuple[runtimes.Runner, str]:
        run, name = opened(path, engine, prepacks)
        return (run if engine == runtimes.REFERENCE else lambda feeds: [a / 2 for a in run(feeds)]), name

    monkeypatch.setattr(runtimes, "open_model", saturating)
    monkeypatch.setattr(conditioning, "explained_by_rounding", lambda *_: {})
    verification = graphopt.compile(parse(NET)).report.verification
    assert verification.status == "inconclusive"
    assert verification.reason.endswith("but not in ONNX's reference evaluator")
    with pytest.raises(VerificationError, match="the program is wrong"):
        graphopt.compile(parse(NET), steps={"LegalizeOps": swapped})


@pytest.mark.parametrize(
    "text",
    [
        "x: float32[64, 64] y = Cast(Softmax(MatMul(x, x)), to=11) return y",
        "x: float64[3, 4, 4] s: float16[4] m: float32[4] v: float32[4] "
        "y = BatchNormalization(x, s, s, m, Exp(v)) return y",
    ],
)
def test_what_is_computed_in_a_coarser_dtype_is_held_to_its_tolerance(text: str) -> None:
    verification = graphopt.compile(parse(text), verify=3).report.verification
    assert verification.status == "verified", verification.reason
    with pytest.raises(VerificationError, match="the program is wrong"):
        graphopt.compile(parse(text), verify=3, steps={"LegalizeOps": lambda step, graph: step(doubled(text))})


def doubled(text: str) -> Any:
    return parse(text.replace("y = ", "half = ").replace("return y", "y = Add(half, half) return y"))


@pytest.mark.parametrize(("n", "status"), [(4, "verified"), (400, "unverified")])
def test_programs_are_interpreted_where_that_takes_no_time(n: int, status: str) -> None:
    builder = graphopt.GraphBuilder("inner")
    x = builder.input("x", "float32", ("m", n))
    builder.output("y", builder.emit_compute(tensor.matmul, [x, np.ones((n, n), np.float32)]))
    outer = graphopt.GraphBuilder(module=builder.build())
    x = outer.input("x", "float32", (n, n))
    outer.output("y", outer.emit("module::inner", [x]))
    verification = graphopt.compile(outer.build()).report.verification
    assert verification.status == status
    assert ("a run of the model would take about" in verification.reason) == (status == "unverified")


def test_what_may_not_end_or_takes_too_much_is_not_run() -> None:
    endless = 's: string[1] y = RegexFullMatch(s, pattern="(a+)+$") return y'
    large = "x: float32[1] y = ReduceSum(Tile(x, [1099511627776]), keepdims=0) return y"
    for text, why in ((endless, "RegexFullMatch may take any time"), (large, "4398046511112 bytes at once")):
        verification = graphopt.compile(parse(text)).report.verification
        assert verification.status == "unverified"
        assert why in verification.reason


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (
            "x: float32[2] y = Loop(9, _, x, body={ i: int64[] c: bool[] s: ? r = Neg(s) return c, r }) return y",
            "verified",
        ),
        (f"x: float32[2] n: int64[] y = Loop(n, _, x, body={BODY}) return y", "unverified"),
        ("x: float32[n, 2] y = Scan(x, num_scan_inputs=1, body={ a: ? r = Neg(a) return r }) return y", "verified"),
    ],
)
def test_loops_are_run_where_it_is_known_how_often(text: str, status: str) -> None:
    assert graphopt.compile(parse(text)).report.verification.status == status


def test_a_program_for_elements_is_compared_on_those() -> None:
    text = "x: float32[2, 3] s: int64[1] y = Relu(ReduceSum(x, s)) return y"
    feeds = {"x": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), "s": np.array([1])}
    compiled = graphopt.compile(parse(text), verify=1)
    assert compiled(feeds)
    assert compiled.report.verification.is_verified


def test_what_draws_at_random_is_unverified_and_refused_where_it_must_be_verified() -> None:
    text = "x: float32[4] y = Add(x, RandomNormalLike(x)) return y"
    assert "at random" in graphopt.compile(parse(text)).report.verification.reason
    with pytest.raises(VerificationError, match="could not be verified"):
        graphopt.compile(parse(text), verify="require")


@pytest.mark.parametrize(("ratio", "training"), [("0.5", "false"), ("0.0", "true")])
def test_a_dropout_that_drops_nothing_draws_nothing(ratio: str, training: str) -> None:
    program = graphopt.compile(parse(f"x: float32[n] y = Neg(Dropout(x, {ratio}, {training})) return y"))
    assert program.report.verification.is_verified


def test_a_kept_program_is_not_compared_again_unless_it_never_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHOPT_CACHE", str(tmp_path / "cache"))
    onnx_io.save(parse(NET), tmp_path / "net.onnx")
    assert graphopt.compile(tmp_path / "net.onnx", verify="off").report.verification.status == "off"
    assert graphopt.compile(tmp_path / "net.onnx").report.verification.is_verified
    monkeypatch.setattr(verified, "check_program", lambda *_: pytest.fail("it was compared again"))
    kept = graphopt.compile(tmp_path / "net.onnx")
    assert kept.report.steps == ()
    assert kept.report.verification.is_verified


def test_a_check_that_would_take_too_long_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verified, "SLOWER", 1e9)
    verification = graphopt.compile(parse(NET)).report.verification
    assert verification.status == "unverified"
    assert "verify=2 waits for it" in verification.reason
    assert graphopt.compile(parse(NET), verify=2).report.verification.is_verified


@pytest.mark.parametrize("is_mapped", [True, False])
def test_weights_in_a_file_of_their_own_take_no_time_to_load(
    is_mapped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    product = helper.make_node("MatMul", ["x", "w"], ["y"])
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 512]) for name in "xy")
    constant = numpy_helper.from_array(np.ones((512, 512), np.float32), "w")
    model = helper.make_model(helper.make_graph([product], "g", [x], [y], [constant]), ir_version=9)
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=is_mapped, size_threshold=0, location="weights")
    monkeypatch.setattr(verified, "BYTES_A_SECOND", 8192)
    assert graphopt.compile(path).report.verification.is_verified == is_mapped


def test_other_words_are_refused() -> None:
    with pytest.raises(UsageError, match=r"verify='often'"):
        graphopt.compile(parse(NET), verify="often")
