import numpy as np
import pytest

from graphopt.ir.constants import Array
from tests.lowering.operators.lowered import agree

RNG = np.random.default_rng(4)


def array(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("channels", [1, 4, 6])
def test_images_are_blocked_and_taken_apart(channels: int) -> None:
    agree("graphopt::Block", [array(2, channels, 3, 5)], size=4)
    agree("graphopt::Unblock", [array(2, -(-channels // 4), 3, 5, 4)], channels=channels)


@pytest.mark.parametrize("form", ["blocked", "plain", "depthwise"])
def test_weights_are_packed(form: str) -> None:
    agree("graphopt::BlockWeights", [array(6, 1 if form == "depthwise" else 5, 3, 2)], size=4, form=form)


@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 0, 2, 1)])
@pytest.mark.parametrize("strides", [(1, 1), (2, 1)])
@pytest.mark.parametrize("form", ["blocked", "plain", "depthwise"])
def test_convolutions(form: str, strides: tuple[int, int], pads: tuple[int, ...]) -> None:
    image = array(2, 3, 6, 7) if form == "plain" else array(2, 2, 6, 7, 4)
    weights = {"blocked": array(3, 2, 3, 2, 4, 4), "plain": array(3, 3, 3, 2, 4), "depthwise": array(2, 3, 2, 4)}[form]
    group = 8 if form == "depthwise" else 1
    bias = array(weights.shape[0], 4)
    agree("graphopt::BlockedConv", [image, weights, bias], form=form, strides=strides, pads=pads, group=group)


def test_groups_are_whole_blocks() -> None:
    agree("graphopt::BlockedConv", [array(1, 2, 5, 5, 4), array(4, 1, 3, 3, 4, 4)], form="blocked", group=2)


@pytest.mark.parametrize("ceil_mode", [0, 1])
@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 1, 0, 1)])
def test_pools(pads: tuple[int, ...], ceil_mode: int) -> None:
    image = array(1, 2, 6, 7, 4)
    given = {"kernel_shape": (3, 2), "strides": (2, 2), "pads": pads, "ceil_mode": ceil_mode}
    agree("graphopt::BlockedMaxPool", [image], **given)
    for counts in (0, 1):
        agree("graphopt::BlockedAveragePool", [image], count_include_pad=counts, **given)


@pytest.mark.parametrize("kernel", [(2, 2), (1, 3), (2,), (2, 1, 2)])
def test_transposed_convolutions_whose_windows_do_not_overlap(kernel: tuple[int, ...]) -> None:
    image = array(2, 2, *(n + 2 for n in range(len(kernel))), 16)
    weights, bias = array(3, 2, *kernel, 16, 16), array(3, 16)
    agree("graphopt::BlockedConvTranspose", [image, weights, bias])
    agree("graphopt::BlockedConvTranspose", [image, weights])
