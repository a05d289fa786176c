"""Oracle of workloads: inputs, and the results of the loops as they were written, computed once and cached.

Inputs on which the default schedule gives something else, such as NaN for an infinity, are left out: a candidate may do
the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import numpy as np

from graphopt.frozen import dataclass
from graphopt.ir import tolerance
from graphopt.ir.constants import BITS
from graphopt.kernels import cache
from graphopt.lowering.analysis.flops import flops
from graphopt.lowering.loops.sizes import product, size_of
from graphopt.runtime import disk_cache
from graphopt.runtime.sizes import evaluate
from graphopt.runtime.steps import Code
from graphopt.tuning import machine_lock
from graphopt.tuning.building import Order, built
from graphopt.tuning.operands import CASES, NORMAL, SPECIAL, WHOLE, operands, restored, stored
from graphopt.tuning.processes import INTERRUPTED, CandidateError, child, one_line
from graphopt.tuning.runner import RunnerJob, input_file, output_file
from graphopt.tuning.workload import Workload

RUNNER: Final = "graphopt.tuning.runner"
"""The module by which processes run candidates."""

_LARGE: Final = 1 << 26
"""A workload of so many bytes is compared on one case alone,"""
_LONG: Final = 1 << 28
"""and so is one of so many operations: loops as they were written may do less than one in a nanosecond."""
PATIENCE: Final = 10
"""What is no candidate may take so many times as long to be built, and to run: it is needed for all candidates."""
_DONE: Final = "cases.json"


UNCHECKED, WRONG = "unchecked", "wrong"


@dataclass(frozen=True)
class Oracle:
    """The folder with inputs and results of a workload, case by case."""

    workload: Workload
    folder: Path
    cases: tuple[int, ...]

    def problem(self, results: str | Path) -> str:
        """How results of the same cases differ, in one line; empty where they do not."""
        for case in self.cases:
            for number, buffer in enumerate(self.workload.nest.outputs):
                want, got = (
                    restored(np.load(output_file(f, case, number)), buffer.dtype) for f in (self.folder, results)
                )
                if (error := tolerance.error(want, got, _coarsest(self.workload))) > 1:
                    amount = f"by {error:.3g} times what may be" if np.isfinite(error) else "in kind"
                    return f"{WRONG}: {buffer.name} differs {amount}, for {CASES[case]}"
        return ""


def _coarsest(workload: Workload) -> float:
    """The share by which something on the way may differ."""
    nest = workload.nest
    return max((tolerance.RELATIVE.get(b.dtype, 0.0) for b in (*nest.buffers, *nest.allocs)), default=0.0)


_problems: dict[str, str] = {}
"""Why workloads have none, as long as this process lives: it may have been for lack of time."""


def oracle(workload: Workload, limit: float) -> Oracle:
    """What a workload gives, computed where nobody did before. Raises CandidateError: ``unchecked``."""
    if workload.key in _problems:
        raise CandidateError(UNCHECKED, _problems[workload.key])
    folder = disk_cache.folder("oracles") / _digest(workload)
    if not (folder / _DONE).exists():
        with machine_lock.alone("oracles"):
            if not (folder / _DONE).exists():
                try:
                    _fill(workload, folder, limit)
                except CandidateError as error:
                    if error.kind != INTERRUPTED:
                        _problems[workload.key] = str(error)
                    raise CandidateError(UNCHECKED, str(error)) from None
    disk_cache.use(folder)
    return Oracle(workload, folder, tuple(json.loads((folder / _DONE).read_text(encoding="ascii"))))


def _digest(workload: Workload) -> str:
    """The name of a workload's folder: of all on which what is in it depends."""
    sources = [Path(__file__).with_name(name) for name in ("operands.py", "oracle.py", "runner.py")]
    return disk_cache.key(disk_cache.digest_of_code(sources, ("numpy",)), cache.compiler(), workload.key)


def _fill(workload: Workload, folder: Path, limit: float) -> None:
    """Write the inputs and what comes of them. Raises CandidateError."""
    with machine_lock.building():
        limit *= PATIENCE
        written, default = (built(Order(workload, way=way), limit) for way in ("written", "default"))
        with disk_cache.new_folder(folder, _DONE) as new:
            of_default = new / "default"
            of_default.mkdir()
            every = Oracle(workload, new, _computed(workload, new, written, limit))
            _run(default, new, of_default, every.cases, limit)
            fit = [case for case in every.cases if not Oracle(workload, new, (case,)).problem(of_default)]
            if not set(fit) & {NORMAL, WHOLE}:
                problem = every.problem(of_default)
                raise CandidateError("differs", f"the default schedule gives something else: {problem}")
            disk_cache.drop(of_default)
            (new / _DONE).write_text(json.dumps(fit), encoding="ascii")


def _run(code: Code, inputs: Path, results: Path, cases: tuple[int, ...], limit: float) -> None:
    """Have results computed. Raises CandidateError."""
    with child(RUNNER, once=True) as runner:
        runner.ask(RunnerJob(code, str(inputs), str(results), cases, limit=limit), limit)


def _computed(workload: Workload, folder: Path, written: Code, limit: float) -> tuple[int, ...]:
    """The cases that could be computed. Raises CandidateError where not even the first could."""
    cases = _cases(workload)
    for are_integers_zero in (False, True):
        try:
            for case in cases:
                _draw(workload, folder, case, are_integers_zero)
            _run(written, folder, folder, cases, limit)
            return cases
        except CandidateError as error:
            if are_integers_zero or error.kind == "slow":
                raise
    raise AssertionError


def _draw(workload: Workload, folder: Path, case: int, are_integers_zero: bool) -> None:
    """Write the inputs of a case. Raises CandidateError where they cannot be had: for lack of room, or because sizes
    make an axis shorter than nothing."""
    try:
        for k, array in enumerate(operands(workload, case, are_integers_zero)):
            np.save(input_file(folder, case, k), stored(array))
    except (MemoryError, OSError, ValueError) as error:
        raise CandidateError("no inputs", f"{one_line(error)}") from None


def _cases(workload: Workload) -> tuple[int, ...]:
    """The cases to compare on. Integers made of floats jump where a sum is rounded otherwise, so that only exact sums
    are told apart by them."""
    nest = workload.nest
    if not all("float" in b.dtype for b in nest.outputs):
        return (WHOLE,)
    sizes = dict(workload.sizes)
    size_by_var = {var: sizes[var.name] for var in nest.sizes}
    bits = [product(*(size_of(e, size_by_var) for e in b.shape), BITS[b.dtype]) for b in nest.buffers]
    total = sum(evaluate(n, {}) // 8 for n in bits)
    is_small = total <= _LARGE and evaluate(flops(nest, size_by_var), {}) <= _LONG
    return (NORMAL, WHOLE, SPECIAL) if is_small else (NORMAL,)
