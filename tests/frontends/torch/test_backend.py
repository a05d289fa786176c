"""torch.compile with this backend gives what torch itself does."""

from __future__ import annotations

import tomllib
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import graphopt
from tests.frontends.torch.compiled import LeftToTorchWarning, Perceptron, backend, close, compiled, torch

pytestmark = pytest.mark.usefixtures("programs")  # torch has compiled nothing when a test begins


def test_the_entry_point_is_the_backend() -> None:
    project = Path(graphopt.__file__).parents[1] / "pyproject.toml"
    if not project.is_file():
        pytest.skip("the project file is in a checkout only")
    home = tomllib.loads(project.read_text())["project"]["entry-points"]["torch_dynamo_backends"]["graphopt"]
    module, name = home.split(":")
    assert getattr(import_module(module), name) is backend


def test_all_sizes_of_a_batch_are_served_by_two_programs(programs: list[Any]) -> None:
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


def test_graph_breaks(programs: list[Any]) -> None:
    def function(x: Any) -> Any:
        y = torch.exp(x) + 1
        if y.sum() > 5:
            return y * 2
        return torch.sin(y)

    fast = compiled(function)
    for x in (torch.zeros(2), torch.ones(2)):
        assert close(fast(x), function(x))
    assert len(programs) == 3


def test_training_is_left_to_torch(programs: list[Any]) -> None:
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
