"""Modules name their parameters by path, draw them by seed, and take them from arrays that fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphopt import nn
from graphopt.errors import UsageError
from tests.nn.test_layers import floats, run


class Net(nn.Module):
    def __init__(self) -> None:
        self.stem = nn.Conv2d(3, 4, 3, bias=False)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)) for _ in range(2)])
        self.extra = {"a": [nn.Parameter((2,))], "b": (nn.LayerNorm(4),)}
        self.depth = 3

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        x = self.stem(x).mean((2, 3))
        for block in self.blocks:
            x = x + block(x)
        return x


NAMES = [
    "stem.weight",
    *(f"blocks.{k}.{j}.{n}" for k in (0, 1) for j in (0, 2) for n in ("weight", "bias")),
    "extra.a.0",
    "extra.b.0.weight",
    "extra.b.0.bias",
]


def test_parameters_are_named_by_their_path() -> None:
    net = Net()
    assert [name for name, _ in net.named_parameters()] == NAMES
    assert len(list(net.parameters())) == len(NAMES)
    dense = [n for n, m in net.named_modules() if isinstance(m, nn.Linear)]
    assert dense == ["blocks.0.0", "blocks.0.2", "blocks.1.0", "blocks.1.2"]
    assert "  blocks.1.2.bias: float32[4]\n" in str(net)
    assert str(nn.ReLU()) == "ReLU()"


def test_what_is_drawn_depends_on_the_seed_and_the_name() -> None:
    first, again, other = (Net().initialize(seed).state_dict() for seed in (0, 0, 1))
    assert all(np.array_equal(first[n], again[n]) for n in NAMES)
    assert not np.array_equal(first["stem.weight"], other["stem.weight"])
    assert not np.array_equal(first["blocks.0.0.weight"], first["blocks.1.0.weight"])
    assert abs(first["blocks.0.0.weight"]).max() <= 0.5
    assert first["extra.b.0.weight"].tolist() == [1] * 4
    alone = nn.Sequential(nn.Identity(), nn.Linear(3, 2)).initialize().state_dict()
    beside = nn.Sequential(nn.Linear(5, 3), nn.Linear(3, 2)).initialize().state_dict()
    assert np.array_equal(alone["1.weight"], beside["1.weight"])


def test_other_dtypes_are_drawn_too() -> None:
    drawn = nn.Linear(3, 4, dtype="bfloat16").initialize().state_dict()
    assert drawn["weight"].dtype.name == "bfloat16"


def test_elements_go_from_one_module_to_another() -> None:
    one, other = Net().initialize(1), Net()
    assert other.load_state_dict(one.state_dict()) == ((), ())
    x = floats(2, 3, 5, 5)
    assert np.array_equal(run(one, x)["y"], run(other, x)["y"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s.pop("stem.weight"), r"of Net: missing stem.weight \(float32\[4, 3, 3, 3\]\)$"),
        (lambda s: s.update(head=1), "unexpected head$"),
        (lambda s: s.update({f"h{k}": 1 for k in range(9)}), "unexpected h0, h1, h2, h3, h4 and 4 more$"),
        (
            lambda s: s.update({"extra.a.0": np.zeros(3, np.float32)}),
            r"extra.a.0 is float32\[2\], and the array for it float32\[3\]$",
        ),
        (
            lambda s: s.update({"extra.a.0": np.zeros(2)}),
            r"extra.a.0 is float32\[2\], and the array for it float64\[2\]$",
        ),
        (lambda s: s.update({"extra.a.0": [[1], [1, 2]]}), "extra.a.0 is no array"),
        (lambda s: s.update({"extra.a.0": nn.Parameter((2,))}), "extra.a.0 is Parameter.*, and no array"),
        (lambda s: (s.pop("stem.weight"), s.update(head=1)), "missing stem.weight .*; unexpected head$"),
    ],
)
def test_what_does_not_fit_is_all_told_and_nothing_taken(change: Any, said: str) -> None:
    net, state = Net().initialize(0), Net().initialize(1).state_dict()
    change(state)
    with pytest.raises(UsageError, match=said):
        net.load_state_dict(state)
    assert np.array_equal(net.state_dict()["blocks.0.0.bias"], Net().initialize(0).state_dict()["blocks.0.0.bias"])


def test_names_may_differ_where_that_is_asked_for_but_shapes_may_not() -> None:
    net, state = Net().initialize(0), Net().initialize(1).state_dict()
    before = net.state_dict()["extra.a.0"]
    del state["extra.a.0"]
    found = net.load_state_dict({**state, "head": np.zeros(1)}, strict=False)
    assert found.missing_keys == ("extra.a.0",)
    assert found.unexpected_keys == ("head",)
    assert np.array_equal(net.state_dict()["extra.a.0"], before)
    assert np.array_equal(net.state_dict()["stem.weight"], state["stem.weight"])
    with pytest.raises(UsageError, match=r"stem.weight is float32\[4, 3, 3, 3\]"):
        net.load_state_dict({"stem.weight": np.zeros(1, np.float32)}, strict=False)


def tied() -> nn.Sequential:
    net = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5, bias=False))
    first, last = net[0], net[1]
    assert isinstance(first, nn.Embedding)
    assert isinstance(last, nn.Linear)
    last.weight = first.weight
    return net


def test_a_parameter_with_two_names_is_one() -> None:
    net, weight = tied().initialize(), floats(5, 3)
    assert list(net.state_dict()) == ["0.weight"]
    for state in ({"0.weight": weight}, {"1.weight": weight}, {"0.weight": weight, "1.weight": weight}):
        assert net.load_state_dict(state) == ((), ())
        assert np.array_equal(net.state_dict()["0.weight"], weight)
    with pytest.raises(UsageError, match=r"1.weight is another name of a parameter that is given other elements"):
        net.load_state_dict({"0.weight": weight, "1.weight": -weight})
    graph = nn.export(net, {"ids": "int64[2]"}).graph()
    assert sum(graph.constant_of(v) is not None and graph.constant_of(v).size == 15 for v in graph.names) == 1  # type: ignore[union-attr]


def test_a_list_of_modules_is_a_list() -> None:
    modules = nn.ModuleList([nn.ReLU()])
    modules.append(nn.Tanh())
    assert len(modules) == 2
    assert [type(m).__name__ for m in modules] == ["ReLU", "Tanh"]
    assert isinstance(modules[1], nn.Tanh)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(UsageError, match=r"Net has no elements for stem.weight, .* and 7 more: load_state_dict"):
        Net().state_dict()
    with pytest.raises(UsageError, match=r"graphopt.nn.export writes their graph"):
        nn.ReLU()(1)
    with pytest.raises(UsageError, match=r"Module has no forward"):
        run(nn.Module(), floats(2))
    with pytest.raises(UsageError, match=r"Sequential, as 1: None is no module \(nn.relu is a function"):
        nn.Sequential(nn.ReLU(), None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"weights are arrays by name, or the path of a file .*, not 3"):
        Net().load_state_dict(3)  # type: ignore[arg-type]
    inner = nn.ModuleList()
    inner.append(nn.Sequential(inner))
    with pytest.raises(UsageError, match=r"ModuleList holds itself, as 0.0"):
        list(inner.named_parameters())


def test_files_hold_states(tmp_path: Path) -> None:
    net = Net().initialize(4)
    np.savez(tmp_path / "net.npz", **net.state_dict())
    again = Net()
    assert again.load_state_dict(tmp_path / "net.npz") == ((), ())
    assert all(np.array_equal(again.state_dict()[n], a) for n, a in net.state_dict().items())
