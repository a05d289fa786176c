"""A machine is known by what kernels choose by."""

from pathlib import Path

from graphopt.calibration.machine import machine


def test_a_machine_is_a_line_with_model_features_and_cores(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nmodel name\t: Some  CPU\nflags\t\t: fpu avx2 avx512f sse\n\nmodel name\t: other\n")
    found = machine(file)
    assert found.startswith("Some CPU; avx2 avx512f; ")
    assert found.endswith(" cores")


def test_without_the_file_there_is_still_a_line(tmp_path: Path) -> None:
    assert machine(tmp_path / "none").endswith(" cores")
    assert machine() == machine()
