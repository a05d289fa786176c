from pathlib import Path

import pytest

from graphopt.benchmark.ceilings import Ceilings
from graphopt.benchmark.roofline import check_picture, draw
from graphopt.errors import UsageError
from graphopt.runtime.profile import ProfileRow, best_rows

MACHINE = Ceilings(flops=1e11, bytes=1e10, near_bytes=5e10, threads=1)
HOSTILE = 'a$\\frac{1}{$\n"><script>'


def row(seconds: float, node: str = "conv_1", flops: int = 1000) -> ProfileRow:
    return ProfileRow("graphopt::BlockedConv+Relu", (node,), seconds, flops, 100, 0.0)


def test_each_step_has_its_least_time() -> None:
    found = best_rows([[row(2e-6), row(5e-6)], [row(3e-6), row(4e-6)], [row(1e-6)]])
    assert [r.seconds for r in found] == [2e-6, 4e-6]
    assert best_rows([]) == []


def test_a_picture_of_kernels(tmp_path: Path) -> None:
    rows = [row(1e-6), row(3e-6, HOSTILE), row(1e-6, flops=0)]
    draw(rows, MACHINE, tmp_path / "a.svg", "model $")
    draw(rows, MACHINE, tmp_path / "b.svg", "model $")
    text = (tmp_path / "a.svg").read_text()
    assert "conv_1" in text
    assert "60%" in text
    assert "<script>" not in text
    assert text == (tmp_path / "b.svg").read_text()
    draw([], MACHINE, tmp_path / "none.png", "nothing")
    assert (tmp_path / "none.png").read_bytes().startswith(b"\x89PNG")


def test_a_file_that_is_no_picture() -> None:
    with pytest.raises(UsageError, match=r"\.svg"):
        check_picture(Path("model.txt"))
