"""Journal files: everything that it takes to replay a run from a model to its result, or to stop half-way.

They are JSON, with the text of the rules that were applied. Files come from strangers: they are parsed and checked, and
a replay applies nothing that the directed matcher does not find.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, fields, replace
from hashlib import sha256
from operator import index
from os import SEEK_END
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from graphopt.display import counted, shortened
from graphopt.errors import GraphoptError, InvalidModelError, ReadError, UsageError
from graphopt.frozen import dataclass
from graphopt.ir import onnx_io
from graphopt.ir.graph import Graph, Value
from graphopt.rewrite.match.journal import Action, Entry, Respelled, ValueSpelling
from graphopt.rewrite.passes import PASSES, fix_dims, freeze_defaults
from graphopt.rewrite.rule.notation import show_rule
from graphopt.rewrite.rule.rule import Rule

if TYPE_CHECKING:
    from graphopt.rewrite.derivations.replay import Observer, Replayed

SCHEMA = 1
"""The version of the file: grows when a field changes its meaning or goes away."""


SAMPLE = 1 << 20
"""How many bytes at either end of a model's file tell it from others."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """What is done to a model before rules are: its opset converted, its inputs fixed."""

    opset: int | None = None
    freeze: bool = False
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)

    def fixed(self, graph: Graph) -> Graph:
        """The graph with its inputs fixed."""
        if self.freeze:
            graph = freeze_defaults(graph)
        return fix_dims(graph, self.shapes, self.dims) if self.shapes or self.dims else graph

    def prepared(self, graph: Graph) -> Graph:
        """The graph that the rules see first."""
        return self.fixed(graph if self.opset is None else onnx_io.convert_opset(graph, self.opset))


@dataclass(frozen=True, slots=True, repr=False)
class Derivation:
    """What was done to a model, entry by entry, and what that rests on. ``without`` was left out of the result."""

    entries: tuple[Entry, ...]
    rules: tuple[Rule, ...] = ()
    passes: tuple[str, ...] = ()
    preparation: Preparation = Preparation()
    model: str = ""
    digest: str = ""
    """What ``digest_of`` says of the model's file; empty where it did not come from one."""
    target: str = ""
    policy: str = ""
    without: tuple[int, ...] = ()

    def __repr__(self) -> str:
        of = f" of {shortened(self.model)}" if self.model else ""
        return f"<Derivation{of}: {counted(len(self.rewrites), 'rewrite')} by {counted(len(self.rules), 'rule')}>"

    def __str__(self) -> str:
        lines = [repr(self)[1:-1]]
        for entry in self.rewrites:
            sides = " => ".join(filter(None, (entry.before, entry.after)))
            lines.append(f"#{entry.id} {entry.rule} at {entry.site or 'the graph'}{': ' if sides else ''}{sides}")
        return "\n".join(lines)

    def of(self, model: Any, graph: Graph) -> Derivation:
        """The derivation with the name and digest of the model's file, or the name of the graph where it has none."""
        if isinstance(model, str | Path):
            return replace(self, model=PurePath(str(model)).name, digest=digest_of(model))
        return replace(self, model=graph.name, digest="")

    @property
    def rewrites(self) -> list[Entry]:
        """The entries that a user would call rewrites, in order."""
        return [e for e in self.entries if e.is_rewrite and e.id not in self.without]

    def apply(
        self,
        graph: Graph,
        without: Collection[int] = (),
        observer: Observer | None = None,
        prepared: Graph | None = None,
    ) -> Replayed:
        """What comes of the graph (as read) with these entries left out, and the rewrites that could not do without.

        ``observer`` sees each; ``prepared`` is the graph that the rules see first, where somebody has it. Raises
        ReadError where the entries make no sense for the graph.
        """
        from graphopt.rewrite.derivations.replay import replay  # which takes no part in making a derivation

        passes = {p.name: p for p in PASSES if p.name in self.passes}
        rules = {rule.name: rule for rule in self.rules}
        try:
            start = self.preparation.prepared(graph) if prepared is None else prepared
            return replay(start, self.entries, rules, passes, {*self.without, *without}, observer)
        except (LookupError, ValueError, TypeError, AssertionError) as error:
            raise ReadError(
                f"the journal does not fit the model {self.model} ({type(error).__name__}: {error})"
            ) from None

    def behind(self, id: int) -> list[Entry]:
        """The entry of this id after all rewrites that it needs, in order."""
        by_id = {e.id: e for e in self.entries}
        numbers: dict[int, None] = {}
        waiting = [id]
        while waiting:
            number = waiting.pop()
            if number in by_id and number not in numbers:
                numbers[number] = None
                waiting += by_id[number].needs
        return [by_id[n] for n in sorted(numbers) if by_id[n].is_rewrite]

    def meant(self, words: Sequence[str]) -> frozenset[int]:
        """The rewrites that a user names, by number (``12`` or ``#12``) or by rule. UsageError where there is none."""
        meant: set[int] = set()
        for word in words:
            number = word.removeprefix("#")
            ids = [e.id for e in self.rewrites if e.rule == word or (number.isdecimal() and e.id == int(number))]
            if not ids:
                raise UsageError(f"no rewrite of this journal is called {word}: give a number or the name of a rule")
            meant.update(ids)
        return frozenset(meant)

    # -- as a file

    def to_json(self) -> str:
        """The journal as JSON."""
        from graphopt import __version__

        head: dict[str, Any] = {
            "schema": SCHEMA,
            "graphopt": __version__,
            "model": self.model,
            "digest": self.digest,
            "target": self.target,
            "policy": self.policy,
            "preparation": {
                "opset": self.preparation.opset,
                "freeze": self.preparation.freeze,
                "shapes": {k: list(v) for k, v in self.preparation.shapes.items()},
                "dims": dict(self.preparation.dims),
            },
            "without": list(self.without),
            "passes": list(self.passes),
            "rules": [show_rule(rule) for rule in self.rules],
        }
        lines = ",\n  ".join(json.dumps(_written(e)) for e in self.entries)
        return json.dumps(head, indent=1)[:-2] + f',\n "entries": [\n  {lines}\n ]\n}}\n'

    @staticmethod
    def from_json(text: str, name: str = "the journal") -> Derivation:
        """A journal that was written as JSON. Raises ReadError where it is none, or one of a later version."""
        from graphopt.rewrite.reading.parse import parse_rules  # which loads a grammar

        try:
            content = json.loads(text)
            version = content["schema"]
            if version != SCHEMA:
                raise ReadError(f"{name}: is a journal of version {version}, this graphopt reads version {SCHEMA}")
            given = content["preparation"]
            derivation = Derivation(
                tuple(_entry(e) for e in content["entries"]),
                tuple(rule for text in content["rules"] for rule in parse_rules(text, name)),
                tuple(map(str, content["passes"])),
                Preparation(
                    None if given["opset"] is None else index(given["opset"]),
                    bool(given["freeze"]),
                    {name: tuple(map(index, shape)) for name, shape in given["shapes"].items()},
                    {name: index(size) for name, size in given["dims"].items()},
                ),
                str(content["model"]),
                str(content["digest"]),
                str(content["target"]),
                str(content["policy"]),
                tuple(int(n) for n in content["without"]),
            )
            _check(derivation)
            return derivation
        except GraphoptError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ReadError(f"{name}: is not a journal of graphopt ({type(error).__name__}: {error})") from None


def journal_path(output: str | Path) -> Path:
    """Where the journal of a result lies, unless it is said otherwise."""
    return Path(output).with_suffix(".journal.json")


def read_derivation(path: str | Path) -> Derivation:
    """The journal in a file. Raises ReadError."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ReadError(
            f"{path}: cannot be read as a journal ({error.strerror}); graphopt optimize writes one beside its result"
        ) from None
    except UnicodeDecodeError:
        raise ReadError(f"{path}: is not a journal of graphopt (not UTF-8 text)") from None
    return Derivation.from_json(text, str(path))


def reproducer_path(output: Path) -> Path:
    """Where the reproducer of a wrong rewrite goes that came up on the way to a result: beside it."""
    return output.with_suffix(".reproducer.onnx")


def digest_of(model: str | Path) -> str:
    """SHA-256 of a model file's size, beginning and end: enough to tell that it is another file, at no cost."""
    try:
        with open(model, "rb") as file:
            size = file.seek(0, SEEK_END)
            file.seek(0)
            state = sha256(f"{size} ".encode() + file.read(SAMPLE))
            file.seek(max(0, size - SAMPLE))
            state.update(file.read(SAMPLE))
            return state.hexdigest()
    except OSError as error:
        raise ReadError(f"{model}: cannot be read ({error.strerror})") from None


def check_is_of(derivation: Derivation, model: str | Path) -> None:
    """InvalidModelError where the journal is that of another model."""
    if derivation.digest and derivation.digest != digest_of(model):
        raise InvalidModelError(
            f"{model}: the journal is of another file ({derivation.model}): give the model that was optimized"
        )


# -- entries


def _check(derivation: Derivation) -> None:
    """ValueError where entries cannot follow each other so: outside of any graph, or by rules that are not there."""
    names = {rule.name for rule in derivation.rules}
    depth = 0
    for entry in derivation.entries:
        if entry.action is Action.OPEN:
            kinds = [type(a) for a in entry.at]
            if kinds != ([int, str] if depth else []):
                raise ValueError(f"entry {entry.id} does not say which graph it takes up")
            depth += 1
        elif entry.action is not Action.FOLD and not depth:
            raise ValueError(f"entry {entry.id} is outside of any graph")
        elif entry.action is Action.CLOSE:
            depth -= 1
        elif entry.action in (Action.REWRITE, Action.EQUAL) and (entry.rule not in names or not entry.at):
            raise ValueError(f"entry {entry.id} is by a rule that is not there, or at no place")


_DEFAULTS = {f.name: f.default for f in fields(Entry)}


def _written(entry: Entry) -> dict[str, Any]:
    """The fields of an entry that say something."""
    fields_of_entry: dict[str, Any] = {}
    for name, default in _DEFAULTS.items():
        value = getattr(entry, name)
        if value != default:
            fields_of_entry[name] = [_place(p) for p in value] if name == "at" else value
    return fields_of_entry


def _place(at: ValueSpelling | int | str) -> object:
    if isinstance(at, Respelled):
        return {"value": list(at.value), "inputs": [None if p is None else _place(p) for p in at.inputs]}
    return list(at) if isinstance(at, Value) else at


def _entry(content: Mapping[str, Any]) -> Entry:
    numbers = {name: tuple(int(n) for n in content.get(name, ())) for name in ("made", "needs", "nodes", "matched")}
    if len(numbers["nodes"]) not in (0, 2):
        raise ValueError("nodes are two numbers")
    gain = content.get("gain")
    return Entry(
        int(content["id"]),
        Action(content["action"]),
        rule=str(content.get("rule", "")),
        family=str(content.get("family", "")),
        site=str(content.get("site", "")),
        before=str(content.get("before", "")),
        after=str(content.get("after", "")),
        at=tuple(_read_place(p) for p in content.get("at", ())),
        way=int(content.get("way", 0)),
        made=numbers["made"],
        needs=numbers["needs"],
        nodes=(numbers["nodes"][0], numbers["nodes"][1]) if numbers["nodes"] else (0, 0),
        gain=None if gain is None else float(gain),
        matched=numbers["matched"],
    )


def _read_place(content: object) -> ValueSpelling | int | str:
    match content:
        case int() | str():
            return content
        case [int(node), int(port)]:
            return Value(node, port)
        case {"value": [int(node), int(port)], "inputs": list(inputs)}:
            inner = [None if p is None else _read_place(p) for p in inputs]
            return Respelled(Value(node, port), tuple(p for p in inner if not isinstance(p, int | str)))
    raise ValueError(f"{content} is no place")


def reverted(derivation: Derivation, without: Collection[int], lost: Sequence[Entry]) -> Derivation:
    """The journal of what is left when rewrites were taken back, and others with them."""
    return replace(derivation, without=tuple(sorted({*derivation.without, *without, *(e.id for e in lost)})))
