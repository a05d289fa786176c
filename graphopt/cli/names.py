"""Shell completion: the rules, nodes and targets whose names begin as what is typed."""

from __future__ import annotations

import re
from functools import cache
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


TARGETS = Path(__file__).parents[1] / "targets"
"""Where the files of targets are."""
_OPS = re.compile(r"^\[ops\]\n((?:[^\[].*\n|\n)*)", re.MULTILINE)
_LIKE = re.compile(r"^like = ['\"](.*)['\"]", re.MULTILINE)
_OURS = re.compile(r"^graphopt = ", re.MULTILINE)


@cache
def target_names(makes_models: bool | None = None) -> tuple[str, ...]:
    """The targets that come with graphopt, in the order of ``graphopt target list``: all, those that make ONNX models,
    or those that make programs.

    Help needs them, for which ``graphopt.target`` would take long to import.
    """
    names = sorted((p.stem for p in TARGETS.glob("*.toml")), key=lambda n: (n != "portable", n))
    return tuple(n for n in names if makes_models is None or makes_models is not _makes_programs(n))


@cache
def _makes_programs(name: str) -> bool:
    """Whether a target has ops of ours, or those of another one that does."""
    table = _OPS.search((TARGETS / f"{name}.toml").read_text(encoding="utf-8"))
    like = _LIKE.search(table[1]) if table else None
    return table is not None and (_OURS.search(table[1]) is not None or (like is not None and _makes_programs(like[1])))


def targets(begun: str) -> list[str]:
    """Targets, and files of them."""
    return _targets(begun, None)


def _targets(begun: str, makes_models: bool | None) -> list[str]:
    folder = Path(begun).parent if "/" in begun else Path()
    files = sorted(str(p) for p in folder.glob("*.toml") if str(p).startswith(begun))
    return [n for n in target_names(makes_models) if n.startswith(begun)] + (files if begun else [])


def model_targets(begun: str) -> list[str]:
    """Targets that make ONNX models, and files of them."""
    return _targets(begun, True)


def program_targets(begun: str) -> list[str]:
    """Targets that make programs, and files of them."""
    return _targets(begun, False)


def one_of(*words: str) -> str:
    """The words that an option takes, as help shows them."""
    return "|".join(words)


def shells(begun: str) -> list[str]:
    """Shells that complete."""
    return [name for name in SHELLS if name.startswith(begun)]


SHELLS = {
    "bash": 'eval "$(graphopt completion bash)"  # in ~/.bashrc',
    "zsh": 'eval "$(graphopt completion zsh)"  # in ~/.zshrc, behind compinit',
    "fish": "graphopt completion fish | source  # in ~/.config/fish/config.fish",
}
"""The shells, and the line that makes each complete."""
