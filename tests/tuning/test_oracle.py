"""What workloads give is what numpy says, is computed once, and is told from what is something else."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from graphopt.lowering.loops.script import read
from graphopt.runtime import disk_cache
from graphopt.tuning import oracle as module
from graphopt.tuning.operands import NORMAL, SPECIAL, WHOLE
from graphopt.tuning.oracle import oracle
from graphopt.tuning.processes import CandidateError
from graphopt.tuning.runner import input_file, output_file
from graphopt.tuning.workload import Workload
from tests.tuning.products import product
from tests.tuning.test_operands import taken

LIMIT = 60


def test_it_is_what_numpy_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(disk_cache.VARIABLE, str(tmp_path / "cache"))
    left = disk_cache.folder("oracles") / ".graphopt.0123456789abcdef"  # by a run that was killed
    left.mkdir()
    found = oracle(product(), LIMIT)
    assert list(left.parent.iterdir()) == [found.folder]
    assert set(found.cases) == {NORMAL, WHOLE, SPECIAL}
    for case in found.cases:
        a, b = (np.load(input_file(found.folder, case, place)) for place in (0, 1))
        with np.errstate(invalid="ignore"):
            np.testing.assert_allclose(np.load(output_file(found.folder, case, 0)), a @ b, atol=1e-4)
    monkeypatch.setattr(module, "_fill", None)  # it is there
    assert oracle(product(), LIMIT) == found
    copy = tmp_path / "results"
    shutil.copytree(found.folder, copy)
    assert found.problem(copy) == ""
    place = output_file(copy, WHOLE, 0)
    array = np.load(place)
    array[3, 5] += 1
    np.save(place, array)
    assert found.problem(copy).startswith("wrong: c differs by ")
    assert found.problem(copy).endswith(" times what may be, for small whole numbers")


def test_it_reads_elements_by_index() -> None:
    found = oracle(taken(), LIMIT)
    assert NORMAL in found.cases
    x, at, by, q = (np.load(input_file(found.folder, NORMAL, place)) for place in range(4))
    assert at.any()
    assert x.dtype == np.uint16  # of bfloat16
    wide = (x.astype(np.uint32) << 16).view(np.float32)
    got = (np.load(output_file(found.folder, NORMAL, 0)).astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_allclose(got, wide[at] * (by + q)[:, None], rtol=2e-2)


def test_sums_that_become_integers_are_compared_where_they_are_exact() -> None:
    rounded = Workload.of(
        read("""
@program
def rounded(x: Buffer[(8, 64), "float32"], s: Buffer[(8,), "float32"], y: Buffer[(8,), "int32"]):
    for i, k in grid(8, 64):
        with block("s"):
            v0, v1 = axis.remap("SR", [i, k])
            with init():
                s[v0] = 0.0
            s[v0] = s[v0] + x[v0, v1]
    for i_1 in grid(8):
        with block("y"):
            v2 = axis.remap("S", [i_1])
            y[v2] = cast(s[v2], "int32")
""")
    )
    assert oracle(rounded, LIMIT).cases == (WHOLE,)


def test_what_has_no_room_is_said_once_and_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    vast = Workload.of(
        read("""
@program
def vast(x: Buffer[(1000000, 1000000), "float32"], y: Buffer[(1,), "float32"]):
    for i in grid(1):
        with block("y"):
            v0 = axis.remap("S", [i])
            y[v0] = x[999999, 999999]
""")
    )
    for _ in range(2):
        with pytest.raises(CandidateError, match=r"^unchecked: no inputs: Unable to allocate"):
            oracle(vast, LIMIT)
        monkeypatch.setattr(module, "_fill", None)
