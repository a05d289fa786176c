"""Modules of torch as graphs: the same results, and the names that their authors gave."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphopt
from graphopt.errors import TranslationError, UsageError
from tests.frontends.torch.graphs import of_function, run, torch

Dim = torch.export.Dim


class Branches(torch.nn.Module):
    """Takes nested arguments, and gives nested results."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.ParameterDict({"left": torch.nn.Parameter(torch.tensor([2.0]))})
        self.register_buffer("shift", torch.tensor([1.0]))

    def forward(self, x: Any, pair: Any, *, mask: Any = None, factor: int = 3) -> Any:
        total = x * self.scale["left"] + pair[0] - pair[1]["inner"]
        return {"sum": total, "parts": [total * factor, None], "mask": ~mask}


def test_names_are_those_of_arguments_results_and_parameters() -> None:
    x, y, z = torch.ones(2), torch.full((2,), 5.0), torch.full((2,), 1.5)
    mask = torch.tensor([True, False])
    model = Branches()
    graph = graphopt.from_torch(model, (x, (y, {"inner": z})), {"mask": mask})
    assert [graph.names[v] for v in graph.inputs] == ["x", "pair_0", "pair_1_inner", "mask"]
    assert graph.output_names == ["sum", "parts.0", "mask"]
    assert "scale.left" in graph.names.values()
    wanted = model(x, (y, {"inner": z}), mask=mask)
    total, product, negated = run(graph, x, y, z, mask)
    assert np.array_equal(total, wanted["sum"].detach().numpy())
    assert np.array_equal(product, wanted["parts"][0].detach().numpy())
    assert np.array_equal(negated, [False, True])


def test_parameters_are_not_copied() -> None:
    layer = torch.nn.Linear(8, 100)
    graph = graphopt.from_torch(layer, torch.ones(1, 8))
    (value,) = (v for v, name in graph.names.items() if name == "weight")
    constant = graph.constant_of(value)
    assert constant is not None
    assert np.shares_memory(constant.array, layer.weight.detach().numpy())


def test_what_comes_back_is_optimized_compiled_and_saved(tmp_path: Any) -> None:
    layer = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    x = torch.randn(2, 4)
    graph = graphopt.from_torch(layer, x)
    optimized = graphopt.optimize(graph, verify="off")
    assert isinstance(optimized, graphopt.Graph)
    graphopt.save(optimized, tmp_path / "layer.onnx")
    (found,) = graphopt.compile(tmp_path / "layer.onnx")(x).values()
    assert np.allclose(found, layer(x).detach().numpy(), atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_floats_keep_their_dtype(dtype: str) -> None:
    layer = torch.nn.Linear(4, 3).to(getattr(torch, dtype))
    graph = graphopt.from_torch(layer, torch.ones(2, 4, dtype=getattr(torch, dtype)))
    (output,) = graph.outputs
    assert str(graph.types[output]) == f"{dtype}[2, 3]"
    (value,) = (v for v, name in graph.names.items() if name == "weight")
    constant = graph.constant_of(value)
    assert constant is not None
    assert np.array_equal(constant.array.astype(np.float64), layer.weight.detach().double().numpy())


def test_sizes_that_stay_open_have_the_names_of_their_dimensions() -> None:
    rows = Dim("rows")
    graph = of_function(
        lambda a, b: torch.cat([a, b], 1).reshape(a.shape[0] // 2, -1),
        torch.ones(4, 3),
        torch.ones(4, 5),
        dynamic_shapes={"arguments": ({0: 2 * Dim("pairs")}, {0: 2 * Dim("pairs")})},
    )
    assert [str(graph.types[v]) for v in graph.inputs] == ["float32[2*pairs, 3]", "float32[2*pairs, 5]"]
    assert str(graph.types[graph.outputs[0]]) == "float32[pairs, 16]"
    graph = of_function(lambda a: a.mean(1), torch.ones(4, 3), dynamic_shapes={"arguments": ({0: rows},)})
    assert str(graph.types[graph.inputs[0]]) == "float32[rows, 3]"
    assert str(graph.types[graph.outputs[0]]) == "float32[rows]"


def test_an_exported_program_is_taken_as_it_is() -> None:
    program = torch.export.export(torch.nn.Tanh(), (torch.ones(2),))
    (found,) = run(graphopt.from_torch(program), torch.tensor([0.5, 1.0]))
    assert np.allclose(found, np.tanh([0.5, 1.0]))
    with pytest.raises(UsageError, match="sizes of an ExportedProgram are settled"):
        graphopt.from_torch(program, dynamic_shapes={"input": {0: Dim("n")}})


def test_a_batch_norm_that_learns_is_refused() -> None:
    with pytest.raises(TranslationError, match=r"changes its buffers 'running_mean', .*model\.eval\(\)"):
        graphopt.from_torch(torch.nn.BatchNorm1d(3).train(), torch.ones(4, 3))


def test_a_changed_argument_is_refused() -> None:
    with pytest.raises(TranslationError, match="changes its arguments"):
        of_function(lambda x: x.add_(1), torch.ones(3))


def test_changes_within_are_not() -> None:
    def function(x: Any) -> Any:
        y = torch.zeros(3)
        y[1:] += x[:2]
        return y.relu_()

    (found,) = run(of_function(function, torch.ones(3)), torch.tensor([4.0, -5.0, 6.0]))
    assert np.array_equal(found, [0, 4, 0])


def test_what_torch_cannot_export_says_so() -> None:
    with pytest.raises(UsageError, match=r"torch\.export cannot export Module"):
        of_function(lambda x: x if x.sum() > 0 else -x, torch.ones(3))
    with pytest.raises(UsageError, match="is expected, not function"):
        graphopt.from_torch(run, torch.ones(3))
    with pytest.raises(TranslationError, match="the result 'output_1' is of type str"):
        of_function(lambda x: (x + 1, "done"), torch.ones(3))
    with pytest.raises(TranslationError, match="the module gives no tensor"):
        of_function(lambda x: None, torch.ones(3))


# -- torch's own exporter


def test_what_torchs_exporter_makes_is_optimized_and_stays_what_it_is() -> None:
    pytest.importorskip("onnxscript")
    layer = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    x = torch.randn(2, 4)
    program = torch.onnx.export(layer, (x,), dynamo=True, verbose=False)
    found = graphopt.optimize(program, verify="off")
    assert type(found) is type(program)
    assert found is not program
    graph = graphopt.load(found)
    assert np.allclose(run(graph, x)[0], layer(x).detach().numpy(), atol=1e-6)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, lambda: torch.autocast("cpu", torch.bfloat16)])
def test_parts_in_a_mode_of_their_own(mode: Any) -> None:
    def function(x: Any) -> Any:
        with mode():
            y = x @ x.t()
        return y.float() + 1

    x = torch.tensor([[1.0, 2.25], [3.0, 4.5]])
    (found,) = graphopt.compile(of_function(function, x))(x).values()
    assert np.array_equal(found, function(x).numpy())
