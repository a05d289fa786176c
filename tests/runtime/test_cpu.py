from pathlib import Path

import pytest

from graphopt.runtime import cpu


def test_this_machine_is_described() -> None:
    assert "sse2" in cpu.features()
    assert cpu.cores() >= 1
    assert cpu.name().startswith("x86_64-")
    assert not {"lm", "nx", "hypervisor", "syscall"} & cpu.features()


def test_a_machine_that_says_nothing_has_no_features(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(*args: object, **options: object) -> str:
        raise PermissionError

    monkeypatch.setattr(Path, "read_text", unreadable)
    cpu._description.cache_clear()
    cpu.features.cache_clear()
    try:
        assert cpu.features() == frozenset()
    finally:
        cpu._description.cache_clear()
        cpu.features.cache_clear()
