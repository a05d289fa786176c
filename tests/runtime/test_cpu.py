from collections.abc import Iterator
from pathlib import Path

import pytest

from graphopt.errors import UsageError
from graphopt.runtime import cpu


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A processor that is described anew, and again when the test has ended."""
    monkeypatch.delenv(cpu.VARIABLE, raising=False)
    description = cpu.description
    for cached in (description, cpu.features):
        cached.cache_clear()
    yield monkeypatch
    for cached in (description, cpu.features):
        cached.cache_clear()


def test_this_machine_is_described() -> None:
    assert "sse2" in cpu.features()
    assert cpu.cores() >= 1
    assert cpu.name().startswith("x86_64-")
    assert not {"lm", "nx", "hypervisor", "syscall"} & cpu.features()


def test_a_machine_that_says_nothing_has_no_features(described: pytest.MonkeyPatch) -> None:
    def unreadable(*args: object, **options: object) -> str:
        raise PermissionError

    described.setattr(Path, "read_text", unreadable)
    assert cpu.features() == frozenset()


def flags(*names: str) -> dict[str, str]:
    return {"flags": " ".join(names)}


def test_a_level_is_all_that_code_may_use(described: pytest.MonkeyPatch) -> None:
    there = [name for names in cpu._ADDED.values() for name in names.split()]
    described.setattr(cpu, "description", lambda: flags(*there, "avx512_vnni", "lm"))
    assert cpu.features() == {*there, "avx512_vnni"}
    assert cpu.level() is None
    described.setenv(cpu.VARIABLE, "")  # as unset
    assert cpu.level() is None
    cpu.features.cache_clear()
    described.setenv(cpu.VARIABLE, "x86-64-v3")
    assert {"avx2", "fma", "popcnt", "sse2"} <= cpu.features()
    assert not {"avx512f", "avx512_vnni"} & cpu.features()


def test_a_level_above_the_processor_is_refused(described: pytest.MonkeyPatch) -> None:
    described.setattr(cpu, "description", lambda: flags(*cpu._ADDED["x86-64"].split()))
    described.setenv(cpu.VARIABLE, "x86-64-v2")
    with pytest.raises(UsageError, match=r"GRAPHOPT_CPU=x86-64-v2: this processor lacks cx16, lahf_lm, pni"):
        cpu.features()


def test_a_level_that_is_none_is_refused(described: pytest.MonkeyPatch) -> None:
    described.setenv(cpu.VARIABLE, "avx2")
    with pytest.raises(UsageError, match=r"GRAPHOPT_CPU=avx2: expected one of native, x86-64, "):
        cpu.level()
