"""Integer vectors whose elements are known become constants; a pass for each kind of op, so that reports can tell."""

from __future__ import annotations

from collections.abc import Callable

from graphopt.ir.graph import Node
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.passes.fold import fold_known
from graphopt.rewrite.passes.native import Pass

KINDS = {
    "B1": frozenset({"Shape"}),
    "B2": frozenset({"Gather"}),
    "B3": frozenset({"Slice", "Split"}),
    "B8": frozenset({"Size", "Range", "ConstantOfShape"}),
    "B13": frozenset({"ScatterND", "ScatterElements"}),
}
"""The ops of the families that are about one kind of op."""
OTHERS = frozenset().union(*KINDS.values())


def _of(wanted: Callable[[str], bool]) -> Callable[[Workspace, Node], bool]:
    def visit(space: Workspace, node: Node) -> bool:
        return wanted(node.op) and fold_known(space, node)

    return visit


KNOWN = (
    Pass(
        "known-shape", "the shape of a tensor of known sizes is a constant", "B1", visit=_of(KINDS["B1"].__contains__)
    ),
    Pass(
        "known-size", "one size of a shape is a constant where it is known", "B2", visit=_of(KINDS["B2"].__contains__)
    ),
    Pass(
        "known-sizes",
        "some sizes of a shape are a constant where they are known",
        "B3",
        visit=_of(KINDS["B3"].__contains__),
    ),
    Pass(
        "known-range",
        "sizes, ranges and fills of known extent are constants",
        "B8",
        visit=_of(KINDS["B8"].__contains__),
    ),
    Pass(
        "scattered-sizes",
        "a shape of which some sizes are overwritten is a constant",
        "B13",
        visit=_of(KINDS["B13"].__contains__),
    ),
    Pass(
        "known-elements",
        "what is computed from shapes is known before the model runs",
        "A19",
        visit=_of(lambda op: op not in OTHERS),
    ),
)
