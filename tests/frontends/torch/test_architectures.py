"""The ten architectures give by either door what they give in torch, for several batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import graphopt
from graphopt.ir.tolerance import error

torch: Any = pytest.importorskip("torch")
pytest.importorskip("transformers")

from graphopt.frontends.torch.backend import backend  # noqa: E402
from tests.frontends.torch.architectures import ARCHITECTURES  # noqa: E402

pytestmark = pytest.mark.slow

BATCHES = (2, 3)


def fields(result: Any) -> Mapping[str, Any]:
    """The tensors of a result, by the names that a graph gives them."""
    return {"output": result} if isinstance(result, torch.Tensor) else dict(result.items())


def of_torch(model: Any, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    with torch.inference_mode():
        return {name: tensor.numpy() for name, tensor in fields(model(**inputs)).items()}


def check(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert error(array, found[name]) <= 1, name


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_as_a_graph_of_any_batch(name: str) -> None:
    architecture = ARCHITECTURES[name]
    model, example = architecture.model(), architecture.inputs(BATCHES[0])
    shapes = {key: {0: torch.export.Dim("batch")} for key in example}
    graph = graphopt.from_torch(model, example, dynamic_shapes=shapes)
    assert all(str(graph.types[v].shape[0]) == "batch" for v in graph.inputs)
    compiled = graphopt.compile(graph, cache=True)
    assert not compiled.report.warnings
    for batch in BATCHES:
        inputs = architecture.inputs(batch)
        check(compiled(inputs), of_torch(model, inputs))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_as_one_program_of_torch_compile(name: str, programs: list[Any]) -> None:
    architecture = ARCHITECTURES[name]
    model = architecture.model()
    fast = torch.compile(model, backend=backend, fullgraph=True)
    with torch._dynamo.config.patch(allow_rnn=True):
        for k, batch in enumerate(BATCHES, 1):
            inputs = architecture.inputs(batch)
            check(of_torch(fast, inputs), of_torch(model, inputs))
            assert len(programs) == k
