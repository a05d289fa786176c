"""Rewriting section of a page: op counts, both graphs, each rewrite with its nodes, rules, search and verification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphopt.frozen import dataclass
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Node, Value
from graphopt.rewrite.extract.cost import CostModel, stated_sizes
from graphopt.rewrite.passes import PASSES
from graphopt.rewrite.rule.notation import show_rule
from graphopt.run.report import Exploration, Report, RuleUse
from graphopt.target import Target
from graphopt.tools.catalogue import catalogue, ids
from graphopt.verify.verification import Verification
from graphopt.web.changes import Scope, Sides, marks, scope_name, scopes, sides
from graphopt.web.drawing import Drawing, Price, draw


@dataclass(frozen=True, slots=True)
class Picture:
    """A graph before and after, with what became of each box (``kept``, ``changed`` or ``other``). One side of a body
    that is on the other side only is None."""

    name: str
    before: Drawing | None
    after: Drawing | None
    marks_before: tuple[str, ...]
    marks_after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DrawnRewrite:
    """A rewrite as the page tells it: ``taken``, ``made`` and ``around`` are boxes of the picture number ``picture``
    (of none, where it changed the graph as a whole)."""

    id: int
    rule: str
    site: str
    before: str
    after: str
    gain: float | None
    needs: tuple[int, ...]
    picture: int | None = None
    taken: tuple[int, ...] = ()
    made: tuple[int, ...] = ()
    around: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Explained:
    """A rule or native pass that was tried or acted: why it holds, its text, and what came of it."""

    name: str
    family: str
    reason: str
    soundness: str
    text: str
    use: RuleUse | None


@dataclass(frozen=True, slots=True)
class Rewriting:
    """The section. Costs are modelled seconds, sizes bytes."""

    ops: tuple[tuple[str, int, int], ...]
    """By op, how many there were before and after."""
    bytes: tuple[int | None, int | None]
    costs: tuple[float | None, float | None]
    pictures: tuple[Picture, ...]
    changes: tuple[DrawnRewrite, ...]
    rules: tuple[Explained, ...]
    explorations: tuple[Exploration, ...]
    verification: Verification | None
    race: tuple[float, float] | None = None
    """Measured seconds of the original and of what was written."""


def rewriting(report: Report) -> Rewriting:
    """What a report tells of the rewriting, pictures included where it holds the graphs. MissingDependencyError where
    nothing lays graphs out."""
    before, after = report.ops_before, report.ops_after
    changed = sorted({*before, *after}, key=lambda op: (after.get(op, 0) - before.get(op, 0), -before.get(op, 0), op))
    pictures, placed = _pictures(report)
    is_faster = report.measured is not None and report.measured.kept != "original"
    race = (report.measured.race.before, report.measured.race.after) if report.measured and is_faster else None
    return Rewriting(
        tuple((op, before.get(op, 0), after.get(op, 0)) for op in changed),
        (report.bytes_before, report.bytes_after),
        (report.cost_before, report.cost_after),
        pictures,
        tuple(
            placed.get(r.id) or DrawnRewrite(r.id, r.rule, r.site, r.before, r.after, r.gain, r.needs)
            for r in report.rewrites
        ),
        _explained(report),
        report.explorations,
        report.verification,
        race,
    )


def _pictures(report: Report) -> tuple[tuple[Picture, ...], dict[int, DrawnRewrite]]:
    """Both graphs, and the rewrites whose nodes are in them."""
    if report.graphs is None:
        return (), {}
    graphs = scopes(*report.graphs)
    price = None if report.priced_by is None else _price(report, report.priced_by)
    acted = {} if report.derivation is None else sides(report.derivation.entries, graphs)
    numbers: dict[Scope, int] = {}
    pictures: list[Picture] = []
    boxes: dict[Scope, tuple[dict[int, int], dict[int, int]]] = {}
    for scope, (old, new) in graphs.items():
        numbers[scope] = len(pictures)
        drawn = [None if g is None else draw(g, price=price) for g in (old, new)]
        differences = marks(old, new), marks(new, old)
        marks_by_box = [
            tuple(m[b.id] for b in d.boxes) if d is not None else () for d, m in zip(drawn, differences, strict=True)
        ]
        at = [{} if d is None else {b.id: k for k, b in enumerate(d.boxes)} for d in drawn]
        boxes[scope] = at[0], at[1]
        name = scope_name(report.graphs[0], scope)
        pictures.append(Picture(name, drawn[0], drawn[1], marks_by_box[0], marks_by_box[1]))
    changes = {
        r.id: DrawnRewrite(
            r.id, r.rule, r.site, r.before, r.after, r.gain, r.needs, numbers[acted[r.id].scope],
            *_boxes(acted[r.id], boxes[acted[r.id].scope]),
        )
        for r in report.rewrites
        if r.id in acted
    }  # fmt: skip
    return tuple(pictures), changes


def _price(report: Report, target: Target) -> Price:
    """The modelled seconds of a node of a report's graphs by itself; what is computed ahead costs nothing."""
    assert report.graphs is not None
    model = CostModel(target, stated_sizes(report.graphs[0]), profiles=report.profiles)

    def price(node: Node, facts: Mapping[Value, Fact]) -> float:
        made = [facts.get(value) for value in node.outputs]
        if made and all(fact is not None and fact.is_const for fact in made):
            return 0.0
        read = [None if value is None else facts.get(value) for value in node.inputs]
        return model.cost(node.op, node.attrs, read, made).seconds

    return price


def _boxes(
    sides_of_entry: Sides, boxes: tuple[Mapping[int, int], Mapping[int, int]]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    def of(side: int, ids: Sequence[int]) -> tuple[int, ...]:
        return tuple(boxes[side][id] for id in ids if id in boxes[side])

    return of(0, sides_of_entry.before), of(1, sides_of_entry.after), of(1, sides_of_entry.around)


def _explained(report: Report) -> tuple[Explained, ...]:
    """Every rule and pass that acted or was tried."""
    rules = {} if report.derivation is None else {rule.name: rule for rule in report.derivation.rules}
    passes = {p.name: p for p in PASSES}
    uses = {use.rule: use for use in report.rules}
    families = {r.rule: r.family for r in report.rewrites} | {u.rule: u.family for u in report.rules}
    names = catalogue()
    reasons = []
    for name in dict.fromkeys([*report.by_rule(), *uses]):
        rule, native = rules.get(name), passes.get(name)
        item = rule or native
        reasons.append(
            Explained(
                name,
                ", ".join(f"{id} {names[id].name}" if id in names else id for id in ids(families.get(name, ""))),
                item.reason if item else "",
                item.soundness.value if item else "",
                show_rule(rule) if rule else "",
                uses.get(name),
            )
        )
    return tuple(reasons)
