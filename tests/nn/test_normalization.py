"""Norms are their formulas."""

import numpy as np
import pytest

from graphopt import nn
from graphopt.errors import UsageError
from tests.nn.test_layers import alike, floats, run


def test_a_batch_norm_goes_by_running_values() -> None:
    layer = nn.BatchNorm2d(3, eps=1e-3)
    mean, var, weight, bias = floats(3), abs(floats(3)), floats(3), floats(3)
    state = {"weight": weight, "bias": bias, "running_mean": mean, "running_var": var, "num_batches_tracked": 7}
    assert layer.load_state_dict(state) == ((), ())
    x = floats(2, 3, 4, 5)
    scale, offset, m, v = (a[:, None, None] for a in (weight, bias, mean, var))
    assert alike((x - m) / np.sqrt(v + 1e-3) * scale + offset, run(layer, x)["y"])
    plain = nn.BatchNorm1d(3, affine=False).initialize()
    assert list(plain.state_dict()) == ["running_mean", "running_var"]
    assert alike(x[:, :, 0] / np.sqrt(np.float32(1 + 1e-5)), run(plain, x[:, :, 0])["y"])


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_norm(bias: bool) -> None:
    layer, x = nn.LayerNorm((4, 5), bias=bias), floats(2, 3, 4, 5)
    weight = floats(4, 5)
    layer.load_state_dict({"weight": weight} | ({"bias": weight * 2} if bias else {}))
    mean, var = x.mean((-2, -1), keepdims=True), x.var((-2, -1), keepdims=True)
    assert alike((x - mean) / np.sqrt(var + 1e-5) * weight + (weight * 2 if bias else 0), run(layer, x)["y"])
    assert nn.LayerNorm(4, elementwise_affine=False).state_dict() == {}


def test_a_root_mean_square_norm() -> None:
    layer, x, weight = nn.RMSNorm(6), floats(2, 3, 6), floats(6)
    layer.load_state_dict({"weight": weight})
    assert layer.eps == float(np.finfo(np.float32).eps)
    assert alike(x / np.sqrt((x * x).mean(-1, keepdims=True) + layer.eps) * weight, run(layer, x)["y"])


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_a_group_norm(groups: int) -> None:
    layer, x = nn.GroupNorm(groups, 6), floats(2, 6, 3, 4)
    weight, bias = floats(6), floats(6)
    layer.load_state_dict({"weight": weight, "bias": bias})
    parts = x.reshape(2, groups, -1)
    normal = (parts - parts.mean(-1, keepdims=True)) / np.sqrt(parts.var(-1, keepdims=True) + 1e-5)
    assert alike(normal.reshape(x.shape) * weight[:, None, None] + bias[:, None, None], run(layer, x)["y"])
    with pytest.raises(UsageError, match="6 channels cannot be split into 4 groups"):
        nn.GroupNorm(4, 6)


def test_an_instance_norm_is_a_group_norm_with_a_group_for_each_channel() -> None:
    x = floats(2, 6, 3, 4)
    assert alike(run(nn.GroupNorm(6, 6, affine=False), x)["y"], run(nn.InstanceNorm2d(6), x)["y"])
