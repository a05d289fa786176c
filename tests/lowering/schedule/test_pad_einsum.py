"""Padded products compute what they did."""

import pytest

from graphopt.lowering.loops.script import read
from graphopt.lowering.schedule.pad_einsum import pad_einsum
from graphopt.lowering.schedule.schedule import Schedule
from tests.lowering.documented import check, refused, same_results


def test_documented():
    check(pad_einsum)


PRODUCT = """
@program
def product(A: Buffer[({n}, {k}), "int8"], B: Buffer[({k}, {m}), "int8"], C: Buffer[({n}, {m}), "int32"]):
    for i, j, k in grid({n}, {m}, {k}):
        with block("C"):
            vi, vj, vk = axis.remap("SSR", [i, j, k])
            with init():
                C[vi, vj] = 0
            C[vi, vj] = C[vi, vj] + cast(A[vi, vk], "int32") * cast(B[vk, vj], "int32")
"""


@pytest.mark.parametrize(("n", "m", "k"), [(1, 1, 1), (3, 5, 7), (4, 8, 4), (2, 9, 4)])
@pytest.mark.parametrize("padding", [[1, 1, 1], [4, 4, 4], [1, 8, 1], [2, 1, 4]])
def test_products_of_every_size(n, m, k, padding):
    nest = read(PRODUCT.format(n=n, m=m, k=k))
    s = Schedule(nest)
    new = s.pad_einsum("C", padding)
    assert bool(new) == any(size % p for size, p in zip((n, m, k), padding, strict=True))
    same_results(nest, s.nest)
    for block in new[:-1]:
        if block.name.endswith("_pad"):
            s.compute_inline(block)
    same_results(nest, s.nest)


SUM = """
@program
def sums(A: Buffer[(6, 5), "float32"], B: Buffer[(6,), "float32"], C: Buffer[(6,), "float32"]):
    for i, k in grid(6, 5):
        with block("C"):
            vi, vk = axis.remap("SR", [i, k])
            with init():
                C[vi] = 0.0
            C[vi] = {step}
"""


def test_loops_that_hold_other_blocks_are_refused() -> None:
    text = PRODUCT.format(n=4, m=2, k=3)
    calls = ["s.cache_read('C', 1, 'local')", "s.reverse_compute_at('C', 'ax1', True)", "s.pad_einsum('C', [4, 4, 4])"]
    assert "the loops around C hold other statements, or are not its axes" in refused(text, *calls)


def sums(step: str) -> str:
    return SUM.format(step=step)


PLAIN = sums("C[vi] + A[vi, vk]")


@pytest.mark.parametrize(
    ("text", "calls", "message"),
    [
        (PLAIN, ["s.pad_einsum('C', [4])"], "C has 2 axes; give a positive number for each"),
        (PLAIN, ["s.pad_einsum('C', [4, 0])"], "give a positive number for each"),
        (
            PLAIN,
            ["s.split('i', [None, 4])", "s.pad_einsum('C', [4, 4])"],
            "its axis vi is not one of its loops",
        ),
        (sums("max(C[vi], A[vi, vk])"), ["s.pad_einsum('C', [4, 4])"], "C is no sum of products of elements"),
        (sums("C[vi] + exp(A[vi, vk])"), ["s.pad_einsum('C', [4, 4])"], "C is no sum of products of elements"),
        (PLAIN, ["s.decompose_reduction('C', 'i')", "s.pad_einsum('C', [4, 4])"], "C is no sum of products"),
        (sums("C[vi] + A[vi, vk] * B[vi]"), ["s.pad_einsum('C', [4, 4])"], "not every factor moves along vk"),
        (sums("C[vi] + A[vi, 0]"), ["s.pad_einsum('C', [4, 4])"], "C uses A at more than its plain axes"),
        (sums("C[vi] + A[vi, vk] * A[vi, 0]"), ["s.pad_einsum('C', [4, 4])"], "C uses a buffer at several places"),
    ],
)
def test_what_is_refused(text, calls, message):
    assert message in refused(text, *calls)
