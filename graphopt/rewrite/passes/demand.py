"""An If is decided where only one of its branches gives a tensor of the rank that its readers can take.

What reads a value may take one rank alone: an LSTM reads tensors of three axes, a convolution as many as
its weights have. A branch that gives another rank is one that the model fails on, so wherever the
model has a value the other branch was taken, and the condition is known. Scripted recurrent
layers, which look at the rank of their input, are made of such Ifs.
"""

from __future__ import annotations

import numpy as np

from graphopt.ir import ops
from graphopt.ir.constants import Constant
from graphopt.ir.graph import Graph, Node, Value
from graphopt.ir.infer import infer
from graphopt.rewrite.match.workspace import Workspace, captured_facts
from graphopt.rewrite.passes.native import Pass

DEEPEST = 8
"""Over how many views and elementwise ops the reader that takes one rank alone is looked for."""
RECURRENT = (3, 3, 3, 2, 1, 3, 3, 2)
"""The ranks of the inputs of LSTM, GRU and RNN."""


def decide_by_rank(space: Workspace, node: Node) -> bool:
    """Make the condition of an If a constant where its readers can take what one branch gives, and not the other."""
    condition = node.inputs[0] if node.op == "If" else None
    if condition is None or space.fact(condition).is_const:
        return False
    wanted = {}
    for port, value in enumerate(node.outputs):
        if space.fact(value).rank is None and (rank := wanted_rank(space, value)) is not None:
            wanted[port] = rank
    if not wanted:
        return False
    possible = {name: _may_give(space, node, body, wanted) for name, body in node.bodies.items()}
    if all(possible.values()) or not any(possible.values()):
        return False
    decided = space.make_constant(Constant.of(np.full(_shape(space, condition), possible["then_branch"])))
    space.replace(condition, decided)
    return True


def _shape(space: Workspace, condition: Value) -> tuple[int, ...]:
    """The shape of a condition: of one element, in whatever rank the model has it."""
    return (1,) * (space.fact(condition).rank or 0)


def _may_give(space: Workspace, node: Node, body: Graph, wanted: dict[int, int]) -> bool:
    """Whether a branch can give what is wanted of each output."""
    facts = infer(body, captured_facts(node, body, space.facts))
    for port, rank in wanted.items():
        value = body.outputs[port]
        given = None if value is None or value not in facts else facts[value].rank
        if given is not None and given != rank:
            return False
    return True


def wanted_rank(space: Workspace, value: Value, depth: int = DEEPEST) -> int | None:
    """The one rank that some reader of a value can take, or None where none says so."""
    for user, index in space.graph.users(value) if depth else ():
        rank = _wanted_by(space, space.graph.node(user), index, depth)
        if rank is not None:
            return rank
    return None


def _wanted_by(space: Workspace, node: Node, index: int, depth: int) -> int | None:
    kind = node.op
    if kind in ("LSTM", "GRU", "RNN"):
        return RECURRENT[index] if index < len(RECURRENT) else None
    if kind == "Gemm":
        return 2 if index < 2 else None
    if index > 0:
        return None
    if kind in ("Conv", "ConvTranspose"):
        return _rank(space, node.inputs[1])
    if kind in ops.KINDS["pool"]:
        kernel = node.attrs.get("kernel_shape")
        return len(kernel) + 2 if isinstance(kernel, tuple) else None
    if kind == "Transpose" and isinstance(perm := node.attrs.get("perm"), tuple):
        return len(perm)
    if kind in ("Squeeze", "Unsqueeze"):
        change = _changed(space, node)
        after = None if change is None else wanted_rank(space, Value(node.id), depth - 1)
        return None if after is None or change is None else after - change
    if kind in ops.KINDS["unary"] or kind == "Identity":
        return wanted_rank(space, Value(node.id), depth - 1)
    return None


def _changed(space: Workspace, node: Node) -> int | None:
    """By how much a Squeeze or Unsqueeze changes the rank, where that is known."""
    axes = space.fact(node.inputs[1]).shape if len(node.inputs) > 1 and node.inputs[1] is not None else None
    if axes is None or len(axes) != 1 or not isinstance(axes[0], int):
        return None
    return axes[0] if node.op == "Unsqueeze" else -axes[0]


def _rank(space: Workspace, value: Value | None) -> int | None:
    return None if value is None else space.fact(value).rank


DEMAND = Pass(
    "only-branch",
    "a branch whose result no reader can take is never taken",
    "O1",
    visit=decide_by_rank,
)
