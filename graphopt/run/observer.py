"""Observer of a run: the e-graphs that were explored, what was extracted, and by which prices."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from graphopt.frozen import dataclass
from graphopt.rewrite.egraph.egraph_snapshot import Saturated
from graphopt.rewrite.extract.choose import Extraction, Growth
from graphopt.rewrite.extract.cost import CostModel
from graphopt.run.steps import Steps

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Chosen:
    """One choice: among what, by which prices, by how many bytes constants might grow, and what it was."""

    saturated: Saturated
    model: CostModel
    growth: Growth
    extraction: Extraction


class Watch(Steps):
    """Keeps the choices that a pipeline makes, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Chosen] = []

    def __call__(self, name: str, function: Callable[P, T], /, *arguments: P.args, **options: P.kwargs) -> T:
        """What the function gives, kept where it is a choice."""
        result = super().__call__(name, function, *arguments, **options)
        if isinstance(result, Extraction):
            saturated, model, growth = arguments
            assert isinstance(saturated, Saturated)
            assert isinstance(model, CostModel)
            assert isinstance(growth, Growth)
            self.seen.append(Chosen(saturated, model, growth, result))
        return result
