"""Shell completion: the rules, nodes and targets whose names begin as what is typed."""

from __future__ import annotations

from pathlib import Path

import typer


def rules(begun: str) -> list[str]:
    """Standard rules, native passes, and families of them."""
    from graphopt.rewrite.ruleset import standard

    ruleset = standard()
    pairs = [*((r.name, r.family) for r in ruleset.rules), *((p.name, p.family) for p in ruleset.passes)]
    return sorted({name for pair in pairs for name in pair if name.startswith(begun)})


def nodes(context: typer.Context, begun: str) -> list[str]:
    """Nodes of the model that is named before, and values that they make; none where there is no such model."""
    from graphopt.errors import GraphoptError
    from graphopt.tools.inspection import node_names

    model = context.params.get("model") or next(iter(context.args), "")  # which are not assigned before an open option
    try:
        return sorted(name for name in node_names(model) if name.startswith(begun))
    except GraphoptError:  # who presses a key is told nothing
        return []


def targets(begun: str) -> list[str]:
    """Targets, and files of them."""
    from graphopt.target import SUFFIX, TARGETS

    folder = Path(begun).parent if "/" in begun else Path()
    files = sorted(str(p) for p in folder.glob(f"*{SUFFIX}") if str(p).startswith(begun))
    return sorted(name for name in TARGETS if name.startswith(begun)) + (files if begun else [])


def shells(begun: str) -> list[str]:
    """Shells that complete."""
    return [name for name in SHELLS if name.startswith(begun)]


SHELLS = {
    "bash": 'eval "$(graphopt completion bash)"  # in ~/.bashrc',
    "zsh": 'eval "$(graphopt completion zsh)"  # in ~/.zshrc, behind compinit',
    "fish": "graphopt completion fish | source  # in ~/.config/fish/config.fish",
}
"""The shells, and the line that makes each complete."""
