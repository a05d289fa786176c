"""Conversion to another floating-point dtype."""

from pathlib import Path

import numpy as np
import pytest

from graphopt.errors import UsageError
from graphopt.ir.constants import Constant
from graphopt.ir.graph import CONSTANT, Graph, Value
from graphopt.ir.infer import infer
from graphopt.ir.onnx_io import load, to_bytes
from graphopt.ir.text import parse
from graphopt.tools.convert import Conversion, convert, converted

CORPUS = Path(__file__).parents[1] / "corpus"


def _loaded(model: Path | bytes, to: str) -> tuple[Graph, Conversion]:
    made, done = convert(model if isinstance(model, bytes) else model.read_bytes(), to=to)
    return load(made), done


def dtypes(graph: Graph, op: str) -> set[str | None]:
    facts = infer(graph)
    return {facts[Value(n.id)].dtype for n in graph.nodes() if n.op == op}


@pytest.mark.parametrize(("to", "limit"), [("float16", 1e-3), ("bfloat16", 2e-2)])
def test_products_run_in_half_precision_and_sums_do_not(to: str, limit: float) -> None:
    made, done = _loaded(CORPUS / "torch/bert.onnx", to)
    assert dtypes(made, "MatMul") | dtypes(made, "Gemm") == {to}
    assert dtypes(made, "LayerNormalization") == dtypes(made, "Softmax") == {"float32"}
    assert all(e.relative < limit for e in done.errors)
    assert done.errors


def test_inputs_and_outputs_keep_their_types_unless_asked() -> None:
    graph = _product()
    for io, wanted in ((False, "float32"), (True, "float16")):
        made, _ = converted(graph, "float16", io=io)
        facts = infer(made)
        assert [facts[v].dtype for v in (*made.inputs, *made.outputs) if v is not None] == [wanted] * 2
        assert made.output_names == graph.output_names


def _product(weight: float = 0.5) -> Graph:
    graph = parse("x: float32[4, 8]\ny = Relu(x)\nreturn y")
    graph = graph.copy()
    x = graph.inputs[0]
    w = graph.add_constant(Constant.of(np.diag(np.full(8, weight, np.float32)), "float32"))
    product = Value(graph.add("MatMul", (x, w)).id)
    graph.outputs[0] = product
    return graph


def test_weights_beyond_the_range_become_its_largest_number() -> None:
    made, done = converted(_product(1e6), "float16")
    weights = next(n.attrs["value"] for n in made.nodes() if n.op == CONSTANT)
    assert weights.array.max() == np.float16(65504)  # type: ignore[union-attr]
    assert "8 weights" in done.warnings[0]


def test_numbers_beyond_the_range_are_measured_and_stay() -> None:
    made, done = _loaded(to_bytes(_product(60000.0)), "float16")
    assert dtypes(made, "MatMul") == {"float32"}
    assert any("beyond" in reason for reason in done.kept)


def test_what_the_user_names_stays() -> None:
    made, _ = converted(_product(), "float16", keep=("MatMul",))
    assert dtypes(made, "MatMul") == {"float32"}
    with pytest.raises(UsageError, match="--keep Nothing"):
        convert(to_bytes(_product()), to="float16", keep=("Nothing",))


def test_half_precision_goes_to_single_without_loss_of_range() -> None:
    made, done = _loaded(CORPUS / "quantized/block_half.onnx", "float32")
    assert dtypes(made, "MatMul") == {"float32"}
    assert {made.types[v].dtype for v in made.inputs} == {"float16"}  # type: ignore[union-attr]
    assert max(e.relative for e in done.errors) < 2e-3


def test_quantized_models_stay_quantized() -> None:
    graph = load(CORPUS / "quantized/cnn_qdq.onnx")
    made, _ = converted(graph, "float16")
    assert dtypes(made, "Conv") == {"float32"}
    assert sum(n.op == "Cast" for n in made.nodes()) == 0


def test_bodies_are_converted_inside() -> None:
    made, done = _loaded(CORPUS / "paddle/control.onnx", "float16")
    assert done.converted
    assert all(e.relative < 1e-2 for e in done.errors)
    assert made.output_names


def test_the_same_model_gives_the_same_bytes() -> None:
    once, again = (convert((CORPUS / "torch/vit.onnx").read_bytes(), to="float16")[0] for _ in range(2))
    assert once == again
    assert to_bytes(load(once))


def test_what_bodies_capture_is_of_a_known_dtype(tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime")
    source = Path(__file__).parents[1] / "corpus" / "paddle" / "control.onnx"
    convert(source, to="float16", output=tmp_path / "half.onnx")
    ort.InferenceSession(str(tmp_path / "half.onnx"))
