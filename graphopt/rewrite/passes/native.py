"""Native pass: its name, reason, family and soundness, and the function that runs."""

from __future__ import annotations

from collections.abc import Callable

from graphopt.frozen import dataclass
from graphopt.ir.graph import Node
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.rule.rule import Soundness


@dataclass(frozen=True, slots=True)
class NativePass:
    """A clean-up written in Python. It has ``visit``, which looks at one node, or ``sweep``, which looks at the whole
    graph; both edit the workspace and return whether they changed anything."""

    name: str
    reason: str
    family: str
    soundness: Soundness = Soundness.EXACT
    visit: Callable[[Workspace, Node], bool] | None = None
    ops: frozenset[str] | None = None
    """The ops of nodes that ``visit`` may change; None where it may be any."""
    sweep: Callable[[Workspace], bool] | None = None
    makes: frozenset[str] = frozenset()
    """Ops of nodes that it may make where the model has none of them: it is for targets that take all of these."""
    targets: frozenset[str] = frozenset()
    """The tags of targets that it is for; none: for all."""
