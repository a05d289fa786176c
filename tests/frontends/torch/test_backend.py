"""torch.compile with this backend gives what torch itself does."""

from __future__ import annotations

import tomllib
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import graphopt

torch: Any = pytest.importorskip("torch")

from graphopt.frontends.torch import Table  # noqa: E402
from graphopt.frontends.torch.backend import LeftToTorchWarning, backend  # noqa: E402
from graphopt.frontends.torch.region import Program  # noqa: E402


@pytest.fixture(autouse=True)
def _fresh() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[Program]:
    """The programs that are made."""
    made: list[Program] = []
    begin = Program.__init__

    def init(self: Program, *arguments: Any) -> None:
        begin(self, *arguments)
        made.append(self)

    monkeypatch.setattr(Program, "__init__", init)
    return made


def compiled(model: Any, **options: Any) -> Any:
    return torch.compile(model, backend=backend, options=options)


def close(found: Any, wanted: Any) -> bool:
    return bool(torch.allclose(found, wanted, rtol=1e-4, atol=1e-5 * float(wanted.abs().max())))


def test_the_entry_point_is_the_backend() -> None:
    project = Path(graphopt.__file__).parents[1] / "pyproject.toml"
    if not project.is_file():
        pytest.skip("the project file is in a checkout only")
    home = tomllib.loads(project.read_text())["project"]["entry-points"]["torch_dynamo_backends"]["graphopt"]
    module, name = home.split(":")
    assert getattr(import_module(module), name) is backend


@pytest.mark.parametrize(
    "name", ["resnet", "mobilenet", "convnext", "vit", "bert", "gpt2", "llama", "t5", "whisper", "lstm"]
)
def test_architectures_give_what_they_give_in_torch(name: str, programs: list[Program]) -> None:
    pytest.importorskip("transformers")
    from tests.frontends.torch.architectures import ARCHITECTURES

    architecture = ARCHITECTURES[name]
    model, inputs = architecture.model(), architecture.inputs(2)
    with torch.no_grad():
        wanted, found = model(**inputs), compiled(model)(**inputs)
    assert programs
    if isinstance(wanted, torch.Tensor):
        assert close(found, wanted)
        return
    assert type(found) is type(wanted)
    for key, tensor in wanted.items():
        assert close(found[key], tensor), key


class Perceptron(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.second(torch.relu(self.first(x)))


def test_all_sizes_of_a_batch_are_served_by_two_programs(programs: list[Program]) -> None:
    model = Perceptron()
    fast = compiled(model)
    with torch.no_grad():
        for batch in (2, 3, 5, 70):
            x = torch.randn(batch, 4)
            assert close(fast(x), model(x))
    assert len(programs) == 2


def test_an_empty_batch() -> None:
    model = Perceptron()
    with torch.no_grad():
        assert compiled(model)(torch.ones(0, 4)).shape == (0, 3)


def test_graph_breaks(programs: list[Program]) -> None:
    def function(x: Any) -> Any:
        y = torch.exp(x) + 1
        if y.sum() > 5:
            return y * 2
        return torch.sin(y)

    fast = compiled(function)
    for x in (torch.zeros(2), torch.ones(2)):
        assert close(fast(x), function(x))
    assert len(programs) == 3


def test_training_is_left_to_torch(programs: list[Program]) -> None:
    torch.manual_seed(0)
    model, twin = Perceptron(), Perceptron()
    twin.load_state_dict(model.state_dict())
    fast, x = compiled(model), torch.randn(5, 4)
    with pytest.warns(LeftToTorchWarning, match="gradients"):
        fast(x).square().sum().backward()
    twin(x).square().sum().backward()
    assert not programs
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)


def test_changed_weights_are_honoured(programs: list[Program]) -> None:
    model, x = Perceptron(), torch.randn(2, 4)
    fast = compiled(model)
    with torch.no_grad():
        fast(x)
        assert len(programs[0]._fed) == 1  # weights are constants
        model.first.weight.mul_(2)
        assert close(fast(x), model(x))
        model.second.bias.data = torch.tensor([1.0, 2.0, 3.0])
        assert close(fast(x), model(x))
        made = len(programs)
        assert close(fast(x), model(x))
        assert len(programs) == made
        for _ in range(4):
            model.first.weight.add_(1)
            assert close(fast(x), model(x))
        assert len(programs) <= made + 2  # a weight that keeps changing is an input from then on


def test_buffers_that_a_module_changes_stay_right() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(2))

        def forward(self, x: Any) -> Any:
            self.total += x
            return torch.exp(self.total)

    model, twin = Counter(), Counter()
    fast, x = compiled(model), torch.tensor([0.1, 0.2])
    for _ in range(5):
        assert close(fast(x), twin(x))
    assert torch.equal(model.total, twin.total)


@torch.library.custom_op("graphopt_tests::mirrored", mutates_args=())
def mirrored(x: torch.Tensor) -> torch.Tensor:
    return -x


@mirrored.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def function_with_an_unknown_operator(x: Any) -> Any:
    y = torch.relu(x) * 2 + 1
    return torch.tanh(mirrored(y) + y * 0.5) - 3


def test_torch_runs_what_has_no_entry_and_the_rest_is_compiled(programs: list[Program]) -> None:
    x = torch.tensor([[-1.0, 2.0], [3.0, 0.25]])
    found = compiled(function_with_an_unknown_operator)(x)
    assert close(found, function_with_an_unknown_operator(x))
    assert len(programs) == 2


def test_a_table_makes_it_one_program(programs: list[Program]) -> None:
    table = Table()

    @table.entry(torch.ops.graphopt_tests.mirrored.default)
    def negative(g: Any, x: Any) -> Any:
        return g.op("Neg", x)

    x = torch.tensor([[-1.0, 2.0], [3.0, 0.25]])
    assert close(compiled(function_with_an_unknown_operator, table=table)(x), function_with_an_unknown_operator(x))
    assert len(programs) == 1


def test_dict_results_keywords_scalars_and_integers() -> None:
    def function(x: Any, *, scale: float, times: int, mask: Any = None) -> Any:
        y = x * scale
        return {"y": y, "rows": [y.repeat(times, 1), None], "size": x.shape[0], "mask": mask}

    fast, x = compiled(function), torch.randn(3, 2)
    for times, scale in ((2, 0.5), (3, 0.5), (4, 1.5)):
        found, wanted = (f(x, scale=scale, times=times) for f in (fast, function))
        assert torch.equal(found["y"], wanted["y"])
        assert torch.equal(found["rows"][0], wanted["rows"][0])
        assert found["rows"][1] is None
        assert found["mask"] is None
        assert found["size"] == 3


def test_operations_in_place_change_what_they_change_in_torch() -> None:
    def function(x: Any) -> Any:
        x.mul_(2)
        return x[0].add_(1) + 0

    one, other = torch.ones(2, 3), torch.ones(2, 3)
    assert torch.equal(compiled(function)(one), function(other))
    assert torch.equal(one, other)


def test_views_of_inputs_are_views() -> None:
    def function(x: Any) -> Any:
        return x.t(), x[1], torch.exp(x)

    x = torch.ones(2, 3)
    turned, row, grown = compiled(function)(x)
    assert turned.data_ptr() == x.data_ptr()
    row += 4
    assert torch.equal(x[1], torch.full((3,), 5.0))
    assert close(grown, torch.exp(torch.ones(2, 3)))


def test_results_are_laid_out_as_in_torch_and_do_not_change_later() -> None:
    model = torch.nn.Conv2d(3, 4, 1).to(memory_format=torch.channels_last)
    fast = compiled(model)
    with torch.no_grad():
        x = torch.randn(2, 3, 5, 5).to(memory_format=torch.channels_last)
        first = fast(x)
        kept = first.clone()
        fast(x + 1)
        assert first.stride() == model(x).stride()
        assert torch.equal(first, kept)
        assert close(first, model(x))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "int32", "bool"])
def test_dtypes(dtype: str) -> None:
    def function(x: Any) -> Any:
        return torch.cat([x, x.flip(0)]), x.float() + 1

    x = torch.tensor([0, 1, 2, 3]).to(getattr(torch, dtype))
    for found, wanted in zip(compiled(function)(x), function(x), strict=True):
        assert found.dtype == wanted.dtype
        assert torch.equal(found, wanted)


def test_inference_mode_and_several_threads() -> None:
    model, x = Perceptron(), torch.randn(2, 4)
    with torch.inference_mode():
        assert close(compiled(model, threads=2, policy="exact")(x), model(x))


def test_options_that_there_are_not_are_refused() -> None:
    with pytest.raises(Exception, match="the backend graphopt has no option 'speed': there are threads, "):
        compiled(torch.relu, speed=9)(torch.ones(2))
    with pytest.raises(Exception, match="has no modes"):
        torch.compile(torch.relu, backend=backend, mode="max-autotune")(torch.ones(2))


def test_nothing_is_warned_of_where_nothing_is_left_to_torch() -> None:
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error", LeftToTorchWarning)
        compiled(Perceptron())(torch.ones(2, 4))
