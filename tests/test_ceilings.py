import pytest

from graphopt import ceilings
from graphopt.ceilings import NEAR, Ceilings, measure


def test_what_is_measured_is_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "FAR", 1 << 20)
    monkeypatch.setattr(ceilings, "STEPS", 64)
    found = measure(threads=2)
    assert found.threads == 2
    assert 1e7 < found.bytes < 1e13
    assert 1e7 < found.near_bytes < 1e13
    assert 1e7 < found.flops < 1e13


def test_the_part_of_the_time_that_is_needed() -> None:
    machine = Ceilings(flops=100.0, bytes=10.0, near_bytes=1e6, threads=1)
    assert machine.share(50, 0, 1.0) == 0.5
    assert machine.share(50, 2 * NEAR, 2.0 * NEAR) == pytest.approx(0.1)
    assert machine.share(0, 1000, 1.0) == pytest.approx(1e-3), "what is near comes faster"
