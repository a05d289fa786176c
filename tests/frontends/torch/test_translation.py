"""Calls of torch as graphs: what cannot be written is named, with its place."""

from __future__ import annotations

from typing import Any

import pytest

import graphopt
from graphopt.errors import TranslationError

torch: Any = pytest.importorskip("torch")

from graphopt.frontends.torch.translation import module_of  # noqa: E402
from tests.frontends.torch.graphs import of_function  # noqa: E402


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
    assert "test_translation.py:" in message
    assert "@table.entry(torch.ops.aten.special_bessel_j0.default)" in message


def test_a_result_that_serves_training_alone_is_refused_where_it_is_read() -> None:
    with pytest.raises(TranslationError, match=r"torch\.ops\.aten\.native_layer_norm.*: its entry makes no result 1"):
        of_function(lambda x: torch.native_layer_norm(x, (4,), None, None, 1e-5)[1], torch.ones(2, 4))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("L['self']._modules['layers']._modules['0']", "layers.0"),
        ("L['fn'].head", "head"),
        ("L__self__.layers.0", "layers.0"),
        ("L['fn']", ""),
    ],
)
def test_a_module_is_named_from_the_outermost_on(path: str, name: str) -> None:
    node = torch.fx.Graph().placeholder("x")
    node.meta["nn_module_stack"] = {"key": (path, torch.nn.Module)}
    assert module_of(node) == name
