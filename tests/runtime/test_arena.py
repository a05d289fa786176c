from hypothesis import given
from hypothesis import strategies as st

from graphopt.runtime.arena import lifetimes, plan, up
from graphopt.runtime.program import Bind, Branch, BufferRef, HostStep, KernelStep, LoopStep, ProgramBuffer, Step
from graphopt.runtime.steps import Launch, LibraryStep
from tests.runtime.programs import code, floats

SPANS = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 30), st.integers(0, 6)), max_size=40)


@given(SPANS, st.sampled_from([64, 256]))
def test_buffers_that_live_at_once_do_not_overlap(spans: list[tuple[int, int, int]], apart: int) -> None:
    sizes, first = [s for s, _, _ in spans], [f for _, f, _ in spans]
    last = [f + n for _, f, n in spans]
    offsets, total = plan(sizes, first, last, apart)
    for i, size in enumerate(sizes):
        assert offsets[i] % apart == 0
        assert offsets[i] + size <= total
        for j in range(i):
            if first[i] <= last[j] and first[j] <= last[i]:
                assert offsets[i] + size <= offsets[j] or offsets[j] + sizes[j] <= offsets[i] or not size * sizes[j]
    most = max(sum(up(s, apart) for s, f, e in zip(sizes, first, last, strict=True) if f <= t <= e) for t in range(40))
    assert most <= total <= sum(up(s, apart) for s in sizes)


def test_a_chain_takes_two_buffers() -> None:
    offsets, total = plan([640] * 10, list(range(10)), list(range(1, 11)))
    assert total == 1280
    assert set(offsets) == {0, 640}


def test_the_tightest_gap_is_taken() -> None:
    # the small one lives beside two large ones and fits the gap that a middle-sized one leaves
    sizes, first, last = [6400, 640, 3200, 64], [0, 1, 0, 1], [2, 2, 0, 2]
    offsets, total = plan(sizes, first, last)
    assert offsets == [0, 6400, 6400, 7040]
    assert total == 9600


def test_what_a_device_runs_uses_its_arguments() -> None:
    launch = Launch(0, (BufferRef(0), BufferRef(1), 4), ("n", 1, 1), (32, 1, 1))
    assert lives(launch, LibraryStep("gemm", (BufferRef(1), 2, BufferRef(3)))) == {0: (0, 0), 1: (0, 1), 3: (1, 1)}


def touch(*buffers: int) -> KernelStep:
    return KernelStep(0, tuple(BufferRef(b) for b in buffers))


def lives(*steps: Step, outputs: tuple[int, ...] = ()) -> dict[int, tuple[int, int]]:
    made = code([floats("arena", 1)] * 6, list(steps), {}, {str(n): n for n in outputs})
    return lifetimes(made, range(6))


def test_lives_are_from_the_first_use_to_the_last() -> None:
    found = lives(touch(0), touch(0, 1), HostStep("f", (1, None), (2,)), Bind(("k",), 2), outputs=(2,))
    assert found == {0: (0, 1), 1: (1, 2), 2: (2, 4)}


def test_both_sides_of_a_branch_count() -> None:
    assert lives(touch(0), Branch(1, (touch(2),), (touch(3), touch(2))), touch(2)) == {
        0: (0, 0),
        1: (1, 1),
        2: (2, 5),
        3: (3, 3),
    }


def test_what_a_loop_shares_with_the_outside_lives_as_long_as_the_loop() -> None:
    loop = LoopStep((touch(0, 2), touch(2, 3), touch(4)), counter=1, count=BufferRef(5))
    found = lives(touch(0), loop, touch(4))
    assert found == {0: (0, 5), 1: (1, 5), 2: (2, 3), 3: (3, 3), 4: (1, 6), 5: (1, 5)}


def test_loops_in_loops() -> None:
    inner = LoopStep((touch(0), touch(2)), counter=1, count=2)
    found = lives(LoopStep((touch(0), inner, touch(0)), counter=3, count=2))
    assert found[2] == (4, 4)
    assert found[1] == (2, 5)
    assert found[0] == (1, 6)
    assert found[3] == (0, 7)


def test_views_are_their_memorys() -> None:
    buffers = [floats("arena", 4), ProgramBuffer("float32", (2,), "view", of=0)]
    made = code(buffers, [touch(0), touch(1)], {}, {})
    assert lifetimes(made, [0, 0]) == {0: (0, 1)}
