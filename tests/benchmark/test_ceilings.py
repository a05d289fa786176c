import pytest

from graphopt.benchmark import ceilings
from graphopt.benchmark.ceilings import NEAR, Ceilings, measure
from graphopt.runtime.profile import ProfileRow


def test_what_is_measured_is_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "FAR", 1 << 20)
    monkeypatch.setattr(ceilings, "STEPS", 64)
    found = measure(threads=2)
    assert found.threads == 2
    assert 1e7 < found.bytes < 1e13
    assert 1e7 < found.near_bytes < 1e13
    assert 1e7 < found.flops < 1e13
    assert 1e7 < ceilings.read_bandwidth(2) < 1e13


def row(flops: int, moved: int, runs: int = 1) -> ProfileRow:
    return ProfileRow("MatMul", (), 1.0, flops, moved, 0.0, runs)


def test_the_time_that_is_needed_at_the_least() -> None:
    machine = Ceilings(flops=100.0, bytes=10.0, near_bytes=1e6, threads=1)
    assert machine.least([row(50, 0)]) == 0.5
    assert machine.least([row(0, 2 * NEAR), row(50, 0)]) == pytest.approx(0.2 * NEAR + 0.5)
    assert machine.least([row(0, 1000)]) == pytest.approx(1e-3), "what is near comes faster"
    assert machine.least([row(0, 4 * NEAR, runs=8)]) == pytest.approx(4e-6 * NEAR), "and each run by itself is"
    assert machine.share([row(50, 0)], 1.0) == 0.5
    assert machine.share([row(50, 0)], 0.25) == 1, "nothing is faster than the machine"
