"""Printer of what steps give: graphs, programs and kernels in the notations in which they are read and written.

Apart from the command line, its only user, which imports it when something is printed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

from graphopt.ir.graph import Graph
from graphopt.ir.text import show
from graphopt.rewrite.egraph.egraph_snapshot import ENode, Saturated
from graphopt.rewrite.extract.choose import Extraction
from graphopt.run.steps import OwnStep, step_named


@runtime_checkable
class Scripted(Protocol):
    """A value that has a script."""

    def script(self) -> str:
        """The value as text."""


def print_after(
    steps: Iterable[str], names: Sequence[str], write: Callable[[str], object] | None = None
) -> Mapping[str, OwnStep]:
    """Steps that do what those of these names do and print what they give, on stderr where ``write`` is None.

    ``names`` are all steps that there are. UsageError where one is none of them.
    """
    return {name: partial(_printed, name, write or _to_stderr) for name in dict.fromkeys(_named(steps, names))}


def _named(steps: Iterable[str], names: Sequence[str]) -> Iterable[str]:
    return [step_named(step, names) for step in steps]


def _printed(name: str, write: Callable[[str], object], step: Callable[[Any], Any], value: Any) -> Any:
    result = step(value)
    write(f"# after {name}\n{text_of(result).rstrip()}\n")
    return result


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr)


def text_of(value: object) -> str:
    """A value that a step gave, as text."""
    match value:
        case Graph():
            return show(value)
        case Scripted():
            return value.script()
        case Saturated():
            return f"# {value.nodes} e-nodes in {len(value.classes)} classes: {value.stop}"
        case Extraction():
            terms = (f"c{number} = {_term(node)}" for number, node in value.choice.items())
            return "\n".join((f"# {value.cost.total.seconds:.3g} s as modelled", *terms))
        case [bytes(), *_]:
            sizes = [len(part) for part in value if isinstance(part, bytes)]
            return f"# {len(sizes)} objects of {sum(sizes):,} bytes"
        case None:
            return "# nothing"
    return f"# {value}"


def _term(node: ENode) -> str:
    reads = ", ".join("_" if child is None else f"c{child}" for child in node.children)
    return f"{node.op}({reads})"
