"""Modules of torch as graphs: the same results, and the names that their authors gave."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphopt
from graphopt.errors import TranslationError, UsageError
from graphopt.frontends.torch import Table
from graphopt.ir.onnx_io import to_proto

torch: Any = pytest.importorskip("torch")
Dim = torch.export.Dim


def run(graph: graphopt.Graph, *inputs: torch.Tensor) -> list[np.ndarray[Any, Any]]:
    """The graph's outputs by ONNX's reference evaluator."""
    from onnx.reference import ReferenceEvaluator

    names = [graph.names[v] for v in graph.inputs]
    feeds = dict(zip(names, (x.numpy() for x in inputs), strict=True))
    return ReferenceEvaluator(to_proto(graph)).run(None, feeds)


def of_function(function: Any, *inputs: Any, **options: Any) -> graphopt.Graph:
    class Module(torch.nn.Module):
        def forward(self, *arguments: Any) -> Any:
            return function(*arguments)

    return graphopt.from_torch(Module(), inputs, **options)


@pytest.mark.parametrize(
    "name", ["resnet", "mobilenet", "convnext", "vit", "bert", "gpt2", "llama", "t5", "whisper", "lstm"]
)
def test_architectures_compute_what_torch_does_for_any_batch(name: str) -> None:
    pytest.importorskip("transformers")
    from tests.frontends.torch.architectures import ARCHITECTURES

    architecture = ARCHITECTURES[name]
    model, example = architecture.model(), architecture.inputs(2)
    shapes = {key: {0: Dim("batch")} for key in example}
    graph = graphopt.from_torch(model, example, dynamic_shapes=shapes)
    assert all(str(graph.types[v].shape[0]) == "batch" for v in graph.inputs)
    compiled = graphopt.compile(graph, cache=True)
    assert not compiled.report.warnings
    for batch in (2, 3):
        inputs = architecture.inputs(batch)
        with torch.no_grad():
            wanted = model(**inputs)
        found = compiled({key: x.numpy() for key, x in inputs.items()})
        for key, array in found.items():
            exact = (wanted if isinstance(wanted, torch.Tensor) else wanted[key]).numpy()
            assert np.allclose(array, exact, rtol=1e-4, atol=1e-5 * float(np.abs(exact).max())), key


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
    assert graph.inputs
    graph = of_function(lambda a: a.mean(1), torch.ones(4, 3), dynamic_shapes={"arguments": ({0: rows},)})
    assert str(graph.types[graph.inputs[0]]) == "float32[rows, 3]"
    assert str(graph.types[graph.outputs[0]]) == "float32[rows]"


def test_an_exported_program_is_taken_as_it_is() -> None:
    program = torch.export.export(torch.nn.Tanh(), (torch.ones(2),))
    (found,) = run(graphopt.from_torch(program), torch.tensor([0.5, 1.0]))
    assert np.allclose(found, np.tanh([0.5, 1.0]))


# -- what cannot be written


def test_an_unknown_operator_is_named_with_its_place() -> None:
    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x: Any) -> Any:
            return self.inner(x)

    class Inner(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.special.bessel_j0(x)

    with pytest.raises(TranslationError) as caught:
        graphopt.from_torch(Outer(), torch.ones(3))
    message = str(caught.value)
    assert "torch.ops.aten.special_bessel_j0.default" in message
    assert "'inner'" in message
    assert "test_export.py:" in message
    assert "@table.entry(torch.ops.aten.special_bessel_j0.default)" in message


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


# -- tables


def test_an_entry_of_the_users_own_serves_an_unknown_operator() -> None:
    table = Table()

    @table.entry(torch.ops.aten.special_bessel_j0.default)
    def bessel(g: Any, x: Any) -> Any:
        return g.op("Cos", x)

    (found,) = run(of_function(torch.special.bessel_j0, torch.ones(2), table=table), torch.tensor([0.0, 1.0]))
    assert np.allclose(found, np.cos([0.0, 1.0]))


def test_an_entry_for_a_composed_operator_keeps_it_whole() -> None:
    table = Table()

    @table.entry(torch.ops.aten.gelu.default)
    def gelu(g: Any, x: Any, approximate: str = "none") -> Any:
        return g.op("Relu", x)

    (found,) = run(of_function(torch.nn.functional.gelu, torch.ones(2), table=table), torch.tensor([-1.0, 1.0]))
    assert np.array_equal(found, [0, 1])


def test_an_entry_for_a_class_of_modules_is_given_the_module() -> None:
    class Swap(torch.nn.Module):
        def __init__(self, scale: float) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.tensor([scale]))

        def forward(self, x: Any, y: Any) -> Any:
            return y * self.scale, x

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.swaps = torch.nn.ModuleList([Swap(2.0), Swap(3.0)])

        def forward(self, x: Any) -> Any:
            y = x + 1
            for swap in self.swaps:
                x, y = swap(x, y=y)
            return x - y

    table = Table()

    @table.entry(Swap)
    def swapped(g: Any, module: Any, x: Any, y: Any) -> Any:
        return g.op("Mul", y, g.constant(module.scale)), x

    model, x = Model(), torch.tensor([1.0, 5.0])
    graph = graphopt.from_torch(model, torch.ones(2), table=table)
    (found,) = run(graph, x)
    assert np.allclose(found, model(x).detach().numpy())
    assert sorted(n.op for n in graph.nodes()).count("Mul") == 2


def doubled(x: Any) -> Any:
    return x * 2


def test_an_fx_graph_is_written_by_functions_and_what_has_no_entry_is_decomposed() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            return torch.nn.functional.hardswish(self.layer(x))

    traced = torch.fx.symbolic_trace(Model())
    with traced.graph.inserting_after(list(traced.graph.nodes)[2]):
        last = list(traced.graph.nodes)[2]
        new = traced.graph.call_function(doubled, (last,))
        last.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new)
    traced.recompile()
    table = Table()

    @table.entry(doubled)
    def twice(g: Any, x: Any) -> Any:
        return g.op("Sum", x, x)

    graph = graphopt.from_torch(traced, torch.ones(1, 2), table=table)
    assert [n.op for n in graph.nodes()].count("Sum") == 1
    x = torch.tensor([[3.0, -4.0]])
    (found,) = run(graph, x)
    assert np.allclose(found, traced(x).detach().numpy(), atol=1e-6)


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
