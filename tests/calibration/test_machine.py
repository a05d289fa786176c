"""A machine is known by what kernels choose by."""

import pytest

from graphopt.calibration.machine import machine
from graphopt.runtime import cpu


def described(monkeypatch: pytest.MonkeyPatch, **fields: str) -> str:
    monkeypatch.setattr(cpu, "description", lambda: {name.replace("_", " "): said for name, said in fields.items()})
    return machine()


def test_a_machine_is_a_line_with_model_features_and_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cpu.VARIABLE, raising=False)
    found = described(monkeypatch, model_name="Some  CPU", flags="fpu avx2 avx512f sse")
    assert found == f"Some CPU; avx2 avx512f; {cpu.cores()} cores"


def test_a_part_that_linux_has_no_name_for_is_known_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    assert described(monkeypatch, CPU_part="0xd40", Features="fp asimd sve").startswith("0xd40; asimd sve; ")


def test_where_linux_says_nothing_there_is_still_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cpu.VARIABLE, raising=False)
    assert described(monkeypatch).endswith(" cores")


def test_times_of_code_for_a_lower_level_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cpu.VARIABLE, raising=False)
    native = machine()
    monkeypatch.setenv(cpu.VARIABLE, "x86-64")
    assert machine() == f"{native}; compiled for x86-64"
