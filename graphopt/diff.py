"""How two models differ: in structure, and in what they compute on random inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from graphopt.steps import count_ops
from graphopt.verify import Verification, verify_as_asked

if TYPE_CHECKING:
    from graphopt.inputs import Given


@dataclass(frozen=True, slots=True)
class Difference:
    """``structure`` is the first difference in words, None where there is none; ``ops`` has the counts that differ."""

    structure: str | None
    ops: dict[str, tuple[int, int]]
    verification: Verification


def diff(
    a: str | Path, b: str | Path, *, verify: int | str = 1, inputs: Mapping[str, Given] | None = None
) -> Difference:
    """Compare two model files. Raises VerificationError where their outputs differ."""
    from graphopt.ir.onnx_io import load
    from graphopt.ir.structure import same

    first, second = load(a), load(b)
    counts, others = count_ops(first), count_ops(second)
    ops = {op: (counts.get(op, 0), others.get(op, 0)) for op in sorted({*counts, *others})}
    return Difference(
        same(first, second),
        {op: pair for op, pair in ops.items() if pair[0] != pair[1]},
        verify_as_asked(a, b, verify, inputs),
    )
