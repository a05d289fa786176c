"""Vocabulary of rules, for completion in editors: ops with their inputs and attributes, functions and facts of guards,
sets, families, words of the notation and of the decorator; each from the table that the readers of rules use."""

from __future__ import annotations

import inspect

from graphopt.frozen import dataclass
from graphopt.ir import ops
from graphopt.ir.contrib import CONTRIB
from graphopt.rewrite.guards.expressions import FACTS, SETS
from graphopt.rewrite.guards.functions import FUNCTIONS
from graphopt.rewrite.reading.decorator import rule
from graphopt.rewrite.rule.notation import RESERVED
from graphopt.rewrite.rule.rule import Soundness
from graphopt.target import TARGETS
from graphopt.tools.catalogue import catalogue


@dataclass(frozen=True, slots=True)
class OpWord:
    """An op: its inputs, those that may be left out with ``?`` and those of any number with ``*``, and attributes."""

    name: str
    inputs: tuple[str, ...]
    attributes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Word:
    """Any other word, and what it means or takes."""

    name: str
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """All words by what they are; tags are what rules may be ``for``, arguments those of the decorator ``rule``."""

    ops: tuple[OpWord, ...]
    functions: tuple[Word, ...]
    facts: tuple[Word, ...]
    sets: tuple[Word, ...]
    families: tuple[Word, ...]
    words: tuple[Word, ...]
    soundness: tuple[Word, ...]
    tags: tuple[Word, ...]
    arguments: tuple[Word, ...]


def vocabulary() -> Vocabulary:
    """The words that rules may have now.

    >>> from graphopt.tools.vocabulary import vocabulary
    >>> next(op for op in vocabulary().ops if op.name == "Gemm").inputs
    ('A', 'B', 'C?')
    """
    told = {name: (function.__doc__ or "").strip().split("\n")[0] for name, function in FUNCTIONS.items()}
    named = sorted(name for name in FUNCTIONS if name.isidentifier())
    tags = sorted({tag for target in TARGETS.values() for tag in target.tags})
    return Vocabulary(
        tuple(word for name in sorted({*ops.names(), *CONTRIB}) if (word := _op(name)) is not None),
        tuple(Word(name, f"{_parameters(name)} {told[name]}".replace("``", "`")) for name in named),
        _words(FACTS),
        _words(SETS),
        tuple(Word(id, family.name) for id, family in catalogue().items()),
        _words(RESERVED),
        tuple(Word(s.value) for s in Soundness),
        tuple(Word(tag) for tag in tags),
        _words(inspect.signature(rule).parameters),
    )


def _words(names: object) -> tuple[Word, ...]:
    return tuple(Word(name) for name in sorted(names))  # type: ignore[call-overload]


def _op(name: str) -> OpWord | None:
    schema = ops.schema(name)
    if schema is None:
        return None
    inputs = (f"{i.name}{'*' if i.variadic else '?' if i.optional else ''}" for i in schema.inputs)
    return OpWord(name, tuple(inputs), tuple(schema.defaults))


def _parameters(name: str) -> str:
    return f"({', '.join(p.name for p in inspect.signature(FUNCTIONS[name]).parameters.values())})"
