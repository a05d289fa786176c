"""Evidence for each rule, the strongest that there is, stored beside the rules by all that it rests on.

``ieee``: proved for all IEEE floats (and machine integers and truth values), bit by bit. ``reals``: proved over the
real numbers. ``index``: proved for all tensors of small shapes, whatever their elements are. ``checked``: both sides
agreed on all random tensors that were tried, in as many graphs as it says; why there is no proof is kept with it.

The key of an entry is a digest of what the rule says, of the guard functions that it calls with all that these call,
and of the prover: this package, the reading of guards, and the tolerances of checks. So what changes any of them makes
the entry void. The solver's version stands at the head of the file.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from graphopt.errors import ReadError
from graphopt.rewrite.guards import expressions
from graphopt.rewrite.guards.functions import FUNCTIONS
from graphopt.rewrite.rule.rule import (
    CallPattern,
    Computed,
    FunctionCall,
    GuardExpr,
    NameRef,
    Rule,
    calls,
    subexpressions,
)
from graphopt.rewrite.rule.rule_digest import content
from graphopt.rewrite.ruleset import standard_folder

KINDS = ("ieee", "reals", "index", "checked")
FILE = "evidence.json"


@dataclass(frozen=True)
class Evidence:
    """What is known of a rule: one of ``KINDS``, and for what it is known (dtypes, ranks, random graphs)."""

    kind: str
    scope: str = ""
    work: int = field(default=0, compare=False)
    """What the proof takes: thousands of the solver's steps, or cases with a weight. No time, which varies."""
    why: str = field(default="", compare=False)
    """Why there is no proof, where there is none."""

    @property
    def is_proof(self) -> bool:
        """Whether it is more than checks."""
        return self.kind != "checked"

    @property
    def is_of_all_sizes(self) -> bool:
        """Whether it is a proof that no size bounds: of one element, or of symbolic sizes."""
        is_bounded = self.scope.startswith("rank")
        return self.is_proof and not is_bounded

    def __str__(self) -> str:
        if self.kind == "index":
            return f"proved index ({self.scope})"
        scope = f" ({self.scope})" if self.scope else ""
        return f"proved {self.kind}{scope}" if self.is_proof else f"checked{scope}"

    @property
    def brief(self) -> str:
        """Without the dtypes."""
        return str(self) if self.kind == "index" else f"proved {self.kind}" if self.is_proof else "checked"


def evidence_of(rule: Rule) -> Evidence | None:
    """The evidence that is kept of a rule; None where the rule, what it calls or the prover is new."""
    return kept().get(key(rule))


@cache
def kept() -> Mapping[str, Evidence]:
    """All evidence that ships with the standard rules, by key."""
    file = standard_folder() / FILE
    return read(file) if file.is_file() else {}


def read(file: Path) -> dict[str, Evidence]:
    """The evidence in a file, by key."""
    entries = json.loads(file.read_text(encoding="utf-8"))["rules"]
    return {
        k: Evidence(entry["evidence"], entry.get("scope", ""), entry.get("work", 0), entry.get("why", ""))
        for k, entry in entries.items()
    }


def solver_of(file: Path) -> str:
    """The version of the solver that the evidence in a file was found with."""
    return str(json.loads(file.read_text(encoding="utf-8"))["z3"])


def written(proved: Iterable[tuple[Rule, Evidence | None]], solver: str) -> str:
    """The text of a file of evidence, in order of the rules' names."""
    lines = []
    for rule, evidence in sorted(proved, key=lambda pair: pair[0].name):
        if evidence is None:
            continue
        fields = {"rule": rule.name, "evidence": evidence.kind, "scope": evidence.scope, "work": evidence.work}
        entry = {name: field for name, field in (fields | {"why": evidence.why}).items() if field}
        lines.append(f"    {json.dumps(key(rule))}: {json.dumps(entry)}")
    rules = ",\n".join(lines)
    return f'{{\n  "z3": {json.dumps(solver)},\n  "rules": {{\n{rules}\n  }}\n}}\n'


# -- keys


def key(rule: Rule) -> str:
    """A digest of all that the evidence of a rule rests on."""
    called = sorted({p.function for e in _expressions(rule) for p in subexpressions(e) if isinstance(p, FunctionCall)})
    named = sorted({p.name for e in _expressions(rule) for p in subexpressions(e) if isinstance(p, NameRef)})
    sets = [f"{name} {sorted(expressions.named_set(name))}" for name in named if name in expressions.SETS]
    functions = [sources(FUNCTIONS[name]) for name in called if name in FUNCTIONS]
    return sha256("\n".join((_prover(), content(rule), *sets, *functions)).encode()).hexdigest()[:16]


def _expressions(rule: Rule) -> Iterator[GuardExpr]:
    yield from rule.where
    for call in (c for side in rule.lhs for c in calls(side)):
        yield from (expr for _, expr in call.attrs)
    yield from right_expressions(rule)


def right_expressions(rule: Rule) -> Iterator[GuardExpr]:
    """The expressions of a rule's right side."""
    for call in (c for side in rule.rhs for c in calls(side)):
        yield from (expr for _, expr in call.attrs)
    waiting = list(rule.rhs)
    while waiting:
        match waiting.pop():
            case Computed(expr):
                yield expr
            case CallPattern(inputs=inputs):
                waiting += inputs


PROVER = ("proof", "rewrite/guards/expressions.py", "rewrite/guards/comparison.py", "ir/tolerance.py")
"""The sources that all evidence rests on, by their place in the package."""


@cache
def _prover() -> str:
    """A digest of the prover. Raises ``ReadError`` where a part of it is not there."""
    root = Path(__file__).resolve().parents[1]
    return digest(root, PROVER)


def digest(root: Path, names: Iterable[str]) -> str:
    """A digest of Python sources and folders of some, the same for every version of Python."""
    state = sha256()
    for name in names:
        place = root / name
        files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
        if not files or not all(file.is_file() for file in files):
            raise ReadError(f"{place}: a part of graphopt is not there; install it again")
        for file in files:
            text = file.read_bytes()
            state.update(f"{file.relative_to(root)} {len(text)}\n".encode() + text)
    return state.hexdigest()


@cache
def sources(function: Any) -> str:
    """A digest of the source of a function and of all of graphopt that it refers to, at whatever distance."""
    found: dict[str, str] = {}
    waiting = [function]
    while waiting:
        value = inspect.unwrap(waiting.pop())
        name = f"{value.__module__}.{value.__qualname__}"
        if name in found or not _is_own(value):
            continue
        try:
            found[name] = inspect.getsource(value)
        except OSError:
            raise ReadError(f"{name}: its source is not there; install graphopt again") from None
        members = list(vars(value).values()) if inspect.isclass(value) else [value]
        for member in members:
            member = inspect.unwrap(getattr(member, "fget", None) or getattr(member, "__func__", member))
            if isinstance(member, FunctionType) and not member.__code__.co_filename.startswith("<"):  # not generated
                for label, other in _referred(member):
                    if inspect.isclass(other) or inspect.isroutine(other):
                        waiting.append(other)
                    else:
                        found[f"{name} {label}"] = _plain(other)
    return sha256("\n".join(f"{name} {found[name]}" for name in sorted(found)).encode()).hexdigest()


def _is_own(value: Any) -> bool:
    return str(value.__module__).split(".")[0] == __name__.split(".")[0]


def _referred(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """The globals that a function reads, and members of graphopt's modules among them."""
    names: list[str] = []
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        names += code.co_names
        codes += [c for c in code.co_consts if isinstance(c, CodeType)]
    for name in dict.fromkeys(names):
        value = function.__globals__.get(name)
        if isinstance(value, ModuleType) and value.__name__.startswith("graphopt."):
            yield from ((f"{name}.{n}", vars(value)[n]) for n in dict.fromkeys(names) if n in vars(value))
        elif value is not None and not isinstance(value, ModuleType):
            yield name, value


def _plain(value: Any) -> str:
    """The text of a constant, in whatever order it is built; what is no plain data counts by its type."""
    match value:
        case bool() | int() | float() | str() | bytes():
            return repr(value)
        case set() | frozenset():
            return str(sorted(map(_plain, value)))
        case tuple() | list():
            return str([*map(_plain, value)])
        case dict():
            return str([(_plain(k), _plain(v)) for k, v in value.items()])
        case FunctionType():
            return sources(value)
    return type(value).__qualname__
