"""JSON of results: ``--json`` writes what a command prints, and the schema of each comes from the same dataclasses.

What values are in JSON says ``graphopt.display``. The schemas (https://json-schema.org, 2020-12) are in
``docs/schemas.json``.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from graphopt.display import HIDDEN, encoded, name_in_json
from graphopt.frozen import dataclass

if TYPE_CHECKING:
    from graphopt.benchmark.bench import EngineTiming
    from graphopt.rewrite.match.journal import Entry
    from graphopt.run.leave_out import WrongRewrite
    from graphopt.run.report import AppliedRewrite
    from graphopt.runtime.profile import ProfileRow
    from graphopt.tools.diff import Difference, Layer, LayerComparison
    from graphopt.tools.inspection import Inspection, ModelSize, WeightStatistics
    from graphopt.verify.verification import Verification

DIALECT = "https://json-schema.org/draft/2020-12/schema"

# -- what commands print that no function gives as one value


@dataclass(frozen=True)
class RefusedResult:
    """A result that ``optimize`` did not write, because it does not compute what the model does."""

    model: str
    error: str
    exit_code: int
    rewrite: WrongRewrite | None
    """The rewrite that did it, with its reproducer and the next command; null where it was not found."""


@dataclass(frozen=True)
class Comparison:
    """What ``diff`` found: how structures differ (null where they are equal), and outputs."""

    structure: Difference | None
    outputs: Verification | None
    """None where they differ."""
    mismatch: str
    """How outputs differ."""
    layers: LayerComparison | None
    """Values inside, where they were asked for."""
    first: Layer | None
    """The first of them that diverges."""


@dataclass(frozen=True)
class InspectedModel:
    """What a model holds and takes, and with ``--weights`` what its constants are."""

    model: Inspection
    size: ModelSize
    weights: tuple[WeightStatistics, ...] | None


@dataclass(frozen=True)
class NodeOrigins:
    """From which rewrites a node comes."""

    node: str
    op: str
    rewrites: tuple[AppliedRewrite, ...]


@dataclass(frozen=True)
class RulePlaces:
    """Where a rule acts, and why not elsewhere: sites by reason."""

    rule: str
    fired: tuple[AppliedRewrite, ...]
    misses: Mapping[str, tuple[str, ...]]
    places: int
    """How often its left side is there."""


@dataclass(frozen=True)
class Bisection:
    """The rewrite with which a command begins to fail, of how many, and how many models were tried."""

    rewrite: AppliedRewrite
    rewrites: int
    tries: int
    ending: str
    """Empty where the search came to its end; else what ended it: then it is this rewrite or one of ``others``."""
    others: tuple[AppliedRewrite, ...]


@dataclass(frozen=True)
class Reversion:
    """Rewrites that were taken back, and those that needed them."""

    output: str
    taken_back: tuple[AppliedRewrite, ...]
    lost: tuple[AppliedRewrite, ...]
    verification: Verification


@dataclass(frozen=True)
class OutputSummary:
    """An output: its type, and the range of its numbers, where it has some."""

    name: str
    type: str
    least: float | None
    mean: float | None
    largest: float | None


@dataclass(frozen=True)
class ProgramRun:
    """A run: its outputs, and with ``--profile`` its steps."""

    outputs: tuple[OutputSummary, ...]
    steps: tuple[ProfileRow, ...]


@dataclass(frozen=True)
class BenchRun:
    """How engines did with a number of threads."""

    threads: int
    engines: tuple[EngineTiming, ...]


@dataclass(frozen=True)
class WrittenProgram:
    """A compiled program: its folder, and what is in it. ``architecture`` is that of a GPU's kernels."""

    output: str
    kernels: int
    calls: int
    bytes: int | None = None
    verification: Verification | None = None
    architecture: str | None = None


@dataclass(frozen=True)
class ProgramCall:
    """A call of a kernel, and the nodes that it computes."""

    number: int
    kernel: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class ListedRule:
    """A rule or native pass."""

    name: str
    families: str
    soundness: str
    evidence: str
    stage: str
    origin: str
    """The package and the file that it comes from."""
    reason: str
    text: str | None = None
    """The rule as rule files write it, of ``rules show``."""


@dataclass(frozen=True)
class CheckedRule:
    """What came of the check of a rule: on how many random inputs its sides were compared, and whether time was up."""

    rule: str
    source: str
    compared: int
    is_late: bool


@dataclass(frozen=True)
class ProvedRule:
    """The evidence for a rule."""

    rule: str
    source: str
    soundness: str
    evidence: str | None
    why: str
    is_refuted: bool


@dataclass(frozen=True)
class TriedGuard:
    """A guard, why it does not hold (empty where it does), and expressions in it with their values."""

    guard: str
    reason: str
    values: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class TriedMatch:
    """One way in which a rule's left side fits."""

    bindings: tuple[tuple[str, str], ...]
    guards: tuple[TriedGuard, ...]
    refused: str


@dataclass(frozen=True)
class TriedRule:
    """What came of a rule at a node."""

    rule: str
    applies: bool
    misfits: tuple[tuple[int, str], ...]
    matches: tuple[TriedMatch, ...]
    difference: str | None
    """How both sides differ there on random inputs; empty where they agree, null where it does not apply."""


@dataclass(frozen=True)
class ListedTarget:
    """A target."""

    name: str
    summary: str
    makes_models: bool
    lines: tuple[str, ...] | None = None
    """What ``target show`` prints of it."""


@dataclass(frozen=True)
class CheckedTarget:
    """The file of a target, and a line for each mistake in it."""

    file: str
    mistakes: tuple[str, ...]


@dataclass(frozen=True)
class TunedNest:
    """What tuning found for what computes some nodes; seconds are null before anything was measured."""

    nodes: tuple[str, ...]
    times: int
    default: float | None
    gain: float
    trials: int
    problems: Mapping[str, int]


@dataclass(frozen=True)
class TunedProgram:
    """What tuning found for a model, and how many times as fast it is; ``is_kept`` is whether it is compiled so."""

    trials: int
    seconds: float
    ending: str
    speedup: float | None
    is_kept: bool
    nests: tuple[TunedNest, ...]
    database: str


@dataclass(frozen=True)
class AskedOp:
    """An op that was measured for a choice, and its seconds; null where it cannot be measured here."""

    call: str
    seconds: float | None


@dataclass(frozen=True)
class ChoicesMeasured:
    """What ``tune --choices`` measured, and calls of the model that went and came, with how many of each."""

    trials: int
    seconds: float
    ending: str
    asked: tuple[AskedOp, ...]
    gone: Mapping[str, int]
    new: Mapping[str, int]
    database: str


@dataclass(frozen=True)
class TunedBest:
    """The best schedule of a workload: its seconds, those of the default one beside it, and its trace."""

    seconds: float
    beside: float
    speedup: float
    gain: float
    trace: Any


@dataclass(frozen=True)
class TunedSummary:
    """What is known of a workload on a machine."""

    key: str
    types: str
    sizes: Mapping[str, int]
    machine: str
    runtime: str
    threads: int
    measured: int
    failed: int
    best: TunedBest | None


@dataclass(frozen=True)
class TunedHistory(TunedSummary):
    """The same, with how often each kind of problem came up."""

    failures: Mapping[str, int]


@dataclass(frozen=True)
class ShownWorkload:
    """A workload's loops as a script, and what is known of it on each machine."""

    script: str
    settings: tuple[TunedHistory, ...]


def rewrites_of(entries: Sequence[Entry]) -> tuple[AppliedRewrite, ...]:
    """Entries of a journal, as reports have them."""
    from graphopt.run.report import AppliedRewrite

    return tuple(
        AppliedRewrite(e.rule, e.family, e.site, e.before, e.after, e.id, e.nodes, e.gain, e.needs) for e in entries
    )


RESULTS: Mapping[str, str] = {
    "demo": "graphopt.run.report:Report",
    "optimize": "graphopt.run.report:Report",
    "optimize --on-mismatch refuse": "graphopt.cli.results:RefusedResult",
    "optimize several": "graphopt.tools.batch:BatchSummary",
    "inspect": "graphopt.cli.results:InspectedModel[]",
    "inspect --nodes": "graphopt.tools.inspection:ListedNode[]",
    "diff": "graphopt.cli.results:Comparison",
    "reduce": "graphopt.tools.reduce:ReducedModel",
    "convert": "graphopt.tools.convert:Conversion",
    "extract": "graphopt.tools.inspection:Inspection",
    "doctor": "graphopt.tools.doctor:Finding[]",
    "egraph": "graphopt.tools.egraph:ExploredGraph[]",
    "ci": "graphopt.tools.batch:BatchSummary",
    "explain": "graphopt.cli.results:NodeOrigins",
    "explain --rule": "graphopt.cli.results:RulePlaces",
    "explain --choices": "graphopt.tools.alternatives_report:ProgramChoice[]",
    "bisect": "graphopt.cli.results:Bisection",
    "revert": "graphopt.cli.results:Reversion",
    "certify": "graphopt.run.certificate:Certified",
    "run": "graphopt.cli.results:ProgramRun",
    "bench": "graphopt.cli.results:BenchRun[]",
    "compile": "graphopt.cli.results:WrittenProgram",
    "show": "graphopt.cli.results:ProgramCall[]",
    "tune": "graphopt.cli.results:TunedProgram",
    "tune --choices": "graphopt.cli.results:ChoicesMeasured",
    "calibrate": "graphopt.benchmark.calibrate:Calibration",
    "calibrate --show": "graphopt.benchmark.calibrate:CalibrationSummary",
    "rules list": "graphopt.cli.results:ListedRule[]",
    "rules show": "graphopt.cli.results:ListedRule[]",
    "rules check": "graphopt.cli.results:CheckedRule[]",
    "rules prove": "graphopt.cli.results:ProvedRule[]",
    "rules try": "graphopt.cli.results:TriedRule[]",
    "rules coverage": "graphopt.tools.coverage:Coverage",
    "db list": "graphopt.cli.results:TunedSummary[]",
    "db show": "graphopt.cli.results:ShownWorkload",
    "target list": "graphopt.cli.results:ListedTarget[]",
    "target show": "graphopt.cli.results:ListedTarget",
    "target check": "graphopt.cli.results:CheckedTarget",
}
"""The class of each command's result, by command; ``[]`` behind it is an array of them."""
ADDED: Mapping[str, Mapping[str, Any]] = {
    "graphopt.run.report:Report": {"schema": int, "seconds": float},
    "graphopt.tools.batch:BatchSummary": {"schema": int, "exit_code": int},
    "graphopt.tools.coverage:Coverage": {
        "schema": int,
        "families": int,
        **dict.fromkeys(("on_models", "on_suite", "apart", "missing"), tuple[str, ...]),
    },
}
"""What classes that write their JSON themselves have beside their fields."""


def written(path: Path | None, value: Any) -> bool:
    """Write a result as JSON, where that is asked for, and tell whether it is on stdout: then nothing else is."""
    from graphopt.cli import files

    if path is None:
        return False
    files.write_or_print(path, json.dumps(encoded(value), indent=1) + "\n")
    return files.is_stdout(path)


# -- schemas


def schema(command: str) -> dict[str, Any]:
    """The schema of a command's result."""
    name = RESULTS[command]
    path, _, kind = name.removesuffix("[]").partition(":")
    found: dict[str, Any] = {}
    result = _schema(getattr(import_module(path), kind), found)
    if added := ADDED.get(name):
        extra = {key: _schema(type_, found) for key, type_ in added.items()}
        own = found.pop(kind)
        result = {**own, "properties": {**extra, **own["properties"]}}
        result["required"] = [*extra, *result["required"]]
    shape = {"type": "array", "items": result} if name.endswith("[]") else result
    return {"$schema": DIALECT, "title": f"graphopt {command} --json", **shape, "$defs": found}


def _schema(hint: Any, found: dict[str, Any]) -> dict[str, Any]:
    """The schema of a type; those of its classes go into ``found``."""
    if hint is Any:
        return {}
    plain = {str: "string", int: "integer", bool: "boolean", NoneType: "null"}
    if hint in plain:
        return {"type": plain[hint]}
    if hint is float:
        return {"type": ["number", "null"]}
    if hint is Path:
        return {"type": "string"}
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return {"anyOf": [_schema(kind, found) for kind in inner]}
    if origin is Literal:
        return {"enum": [*inner]}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"enum": [member.value for member in hint]}
    if origin is tuple and inner[-1] is not ...:
        return _array([_schema(kind, found) for kind in inner])
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _schema(inner[1], found)}
    if origin is not None and issubclass(origin, Sequence | Set):
        return {"type": "array", "items": _schema(inner[0], found)}
    if hasattr(hint, "_fields"):
        return _array([_schema(kind, found) for kind in _hints(hint).values()])
    if not (isinstance(hint, type) and is_dataclass(hint)):
        raise TypeError(f"{hint} is nothing that JSON has")
    if hint.__name__ not in found:
        found[hint.__name__] = {}  # it may hold itself
        shown = [f for f in fields(hint) if not f.metadata.get(HIDDEN)]
        hints = _hints(hint)
        found[hint.__name__] |= {
            "type": "object",
            "description": " ".join((inspect.getdoc(hint) or "").partition("\n\n")[0].split()),
            "properties": {name_in_json(f): _schema(hints[f.name], found) for f in shown},
            "required": [name_in_json(f) for f in shown],
            "additionalProperties": False,
        }
    return {"$ref": f"#/$defs/{hint.__name__}"}


def _array(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}


def _hints(kind: type) -> dict[str, Any]:
    """The types of a class's fields, also those that its module imports for types alone."""
    return get_type_hints(kind, localns=_for_types(kind.__module__))


@cache
def _for_types(module: str) -> dict[str, Any]:
    """What a module imports for types alone, by name."""
    names: dict[str, Any] = {}
    for node in ast.parse(inspect.getsource(sys.modules[module])).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for line in node.body:
                if isinstance(line, ast.ImportFrom):
                    source = import_module(str(line.module))
                    names |= {a.asname or a.name: getattr(source, a.name, Any) for a in line.names}
    return names
