"""What steps give is printed in the notations in which it is read and written."""

from __future__ import annotations

import pytest

from graphopt.errors import UsageError
from graphopt.ir.text import parse, show
from graphopt.optimize import optimize
from graphopt.run.printing import print_after
from graphopt.run.steps import OPTIMIZE

TEXT = "x: float32[4, 6]\ny = Transpose(Transpose(Relu(Relu(x)), perm=[1, 0]), perm=[1, 0])\nreturn y"


def test_the_graph_after_a_step_is_printed() -> None:
    told: list[str] = []
    result = optimize(parse(TEXT), steps=print_after(["tidy"], OPTIMIZE, told.append), verify="off")
    assert told[-1] == f"# after tidy\n{show(result).rstrip()}\n"


def test_every_step_can_be_printed() -> None:
    told: list[str] = []
    _, report = optimize(
        parse(TEXT), steps=print_after(OPTIMIZE, OPTIMIZE, told.append), verify="off", return_report=True
    )
    assert [text.partition("\n")[0] for text in dict.fromkeys(t.partition("\n")[0] for t in told)] == [
        f"# after {step.name}" for step in report.steps
    ]
    (explored, *_) = [text for text in told if text.startswith("# after explore")]
    assert "e-nodes in" in explored
    (chosen, *_) = [text for text in told if text.startswith("# after choose")]
    assert "Relu(c" in chosen


def test_a_name_that_no_step_has_is_answered_by_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"there is no step 'chose'; did you mean choose"):
        print_after(["chose"], OPTIMIZE)
