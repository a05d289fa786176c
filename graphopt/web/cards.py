"""Cards that notebooks display: HTML for a graph, a rule, a nest, a program or a report, and the same as text.
Imported by name (``display``).

A card has no script and no style but its own. It is built as a tree of elements, so that a model's names are text
whatever they hold. A graph of up to ``DRAWN`` ops is drawn, where fast-sugiyama is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from xml.etree import ElementTree

from graphopt.display import Displayed, Scripted, coloured_parts, counted
from graphopt.errors import MissingDependencyError

if TYPE_CHECKING:
    from graphopt.ir.graph import Graph
    from graphopt.lowering.loops.nest import Nest
    from graphopt.lowering.module.passes import Pipeline
    from graphopt.program.compiled_model import CompiledModel
    from graphopt.rewrite.rule.rule import Rule
    from graphopt.rewrite.ruleset import Ruleset
    from graphopt.run.report import Report
    from graphopt.run.settings import CompileReport
    from graphopt.runtime.executable import Executable
    from graphopt.runtime.interface import Interface
    from graphopt.runtime.profile import Profile
    from graphopt.web.drawing import Drawing

DRAWN: Final = 60
"""Ops of a graph that is drawn."""
LISTED: Final = 12
"""Rows of a table that are shown."""
_PICTURE: Final = "overflow: auto; max-height: 460px; margin: .3em 0"
"""How a picture stands in a card: as large as it can be read, and scrolled where that is too large."""

Element: TypeAlias = ElementTree.Element
Content: TypeAlias = "Element | str"


def card(value: object) -> str:
    """The card of a value, as HTML. TypeError for one that has none."""
    whole = _e("div", *_elements(value), style="max-width: 60em; line-height: 1.4")
    return ElementTree.tostring(whole, encoding="unicode", method="html")


def text(value: object) -> str:
    """What the card of a value says, as lines of text. TypeError for one that has none."""
    return "\n".join(line.rstrip() for element in _elements(value) for line in _text_lines(element))


def _elements(value: object) -> Iterable[Element]:
    for kind in type(value).__mro__:
        function = _CARDS.get(f"{kind.__module__}.{kind.__name__}")
        if function is not None:
            return function(value)
    raise TypeError(f"nothing says how a {type(value).__name__} is displayed")


def _text_lines(element: Element) -> Iterable[str]:
    """An element as lines; a table in columns, as wide as they have to be."""
    if element.tag != "table":
        yield from "".join(element.itertext()).splitlines()
        return
    rows = [
        [(" ".join("".join(cell.itertext()).split()), cell.get("style", "")) for cell in row]
        for row in element.iter("tr")
    ]
    widths = [max(len(cell[0]) for cell in column if cell) for column in zip_longest(*rows, fillvalue=("", ""))]
    for row in rows if len(rows) > 1 else []:
        sides = [str.rjust if style.endswith("right") else str.ljust for _, style in row]
        alone = len(row) < len(widths)  # "and 3 more"
        yield "  " + "  ".join(c if alone else side(c, w) for (c, _), side, w in zip(row, sides, widths, strict=False))


def _e(tag: str, *content: Content, **attributes: str) -> Element:
    """An element; names of attributes have ``_`` for ``-``."""
    element = ElementTree.Element(tag, {name.replace("_", "-"): value for name, value in attributes.items()})
    for part in content:
        if isinstance(part, str):
            if len(element):
                element[-1].tail = (element[-1].tail or "") + part
            else:
                element.text = (element.text or "") + part
        else:
            element.append(part)
    return element


def _title(name: str, note: str) -> Element:
    return _e("p", _e("strong", name), f" {note}", style="margin: .3em 0")


def _code(text: str) -> Element:
    spans = (_e("span", part, style=f"color: {color}") if color else part for part, color in coloured_parts(text))
    return _e("pre", *spans, style="margin: .3em 0; overflow-x: auto; max-height: 24em")


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], side: str = "left") -> Element:
    """A table of text; what is beyond LISTED rows is counted. All columns but the first stand on a side."""
    lines = list(rows)

    def row(tag: str, cells: Sequence[str]) -> Element:
        sides = ["left", *[side] * len(cells)]
        style = "padding: 1px 1.2em 1px 0; vertical-align: top; text-align: {}"
        return _e("tr", *(_e(tag, c, style=style.format(at)) for c, at in zip(cells, sides, strict=False)))

    more = [row("td", [f"and {len(lines) - LISTED} more"])] if len(lines) > LISTED else []
    body = _e("tbody", *(row("td", cells) for cells in lines[:LISTED]), *more)
    return _e("table", _e("thead", row("th", heads)), body, style="margin: .3em 0; font-size: inherit")


def _of_graph(graph: Graph) -> Iterable[Element]:
    from graphopt.ir.infer import infer
    from graphopt.run.steps import count_ops
    from graphopt.web.drawing import draw, shown

    facts = infer(graph)
    ports = [("input", graph.names.get(v, ""), shown(facts.get(v))) for v in graph.inputs]
    outputs = zip(graph.output_names, graph.outputs, strict=True)
    ports += [("output", name, "" if v is None else shown(facts.get(v))) for name, v in outputs]
    counts = count_ops(graph)
    yield _title(graph.name, f"graph of {len(graph)} ops, opset {graph.opset}")
    yield _table(("", "name", "type"), ports)
    if len(graph) <= DRAWN:
        try:
            yield _picture(draw(graph, facts))
            return
        except MissingDependencyError:
            pass
    yield _table(("op", "count"), ((op, str(n)) for op, n in counts.items()), "right")


def _picture(drawing: Drawing) -> Element:
    """The graph in layers."""
    from graphopt.web.layered import HEIGHT, WIDTH

    parts = []
    for a, b, bends in drawing.wires:
        ends = drawing.boxes[a], drawing.boxes[b]
        way = [(ends[0].x, ends[0].y + HEIGHT / 2), *bends, (ends[1].x, ends[1].y - HEIGHT / 2)]
        curves = (
            f"C{x:g} {(y + to_y) / 2:g} {to_x:g} {(y + to_y) / 2:g} {to_x:g} {to_y:g}"
            for (x, y), (to_x, to_y) in pairwise(way)
        )
        line = f"M{way[0][0]:g} {way[0][1]:g}{''.join(curves)}"
        parts.append(_e("path", d=line, fill="none", stroke="currentColor", stroke_opacity="0.4"))
    for box in drawing.boxes:
        left, top = box.x - WIDTH / 2, box.y - HEIGHT / 2
        frame = {"x": f"{left:g}", "y": f"{top:g}", "width": str(WIDTH), "height": str(HEIGHT), "rx": "6"}
        paint = {"fill": "currentColor", "stroke": "currentColor", "fill-opacity": ".06", "stroke-opacity": ".5"}
        label = box.name if box.op == "Input" else box.op.rpartition("::")[2]
        parts.append(
            _e(
                "g",
                _e("title", f"{box.op} {box.name}\n{box.attrs}\n{box.makes[0].type if box.makes else ''}"),
                _e("rect", **frame, **paint),
                _e(
                    "text", label if len(label) < 20 else f"{label[:19]}…", x=str(box.x), y=str(box.y + 4),
                    fill="currentColor", font_size="12", text_anchor="middle", font_family="sans-serif",
                ),
            )
        )  # fmt: skip
    width, height = drawing.width + WIDTH + 8, drawing.height + HEIGHT + 8
    window = f"{-WIDTH / 2 - 4:g} {-HEIGHT / 2 - 4:g} {width} {height}"
    label = f"{len(drawing.boxes)} nodes in layers"
    picture = _e(
        "svg", *parts, xmlns="http://www.w3.org/2000/svg", viewBox=window, role="img", aria_label=label,
        width=str(width), height=str(height), style="display: block",
    )  # fmt: skip
    return _e("div", picture, style=_PICTURE)


def _of_rule(rule: Rule) -> Iterable[Element]:
    yield _title(rule.name, f"rule [{rule.family}] {rule.soundness.value}")
    yield _code(rule.script())


def _of_nest(nest: Nest) -> Iterable[Element]:
    yield _title(nest.name, "loops")
    yield _code(nest.script())


def _of_script(value: Scripted) -> Iterable[Element]:
    yield _title(type(value).__name__, "")
    yield _code(value.script())


def _of_text(value: Displayed) -> Iterable[Element]:
    """What says itself what its text is: a title, and the text as it is."""
    if type(value).__str__ is Displayed.__str__:
        raise TypeError(f"nothing says how a {type(value).__name__} is displayed")
    yield _title(type(value).__name__, "")
    yield _e("pre", str(value), style="margin: .3em 0; overflow-x: auto; max-height: 24em")


def _of_executable(executable: Executable) -> Iterable[Element]:
    yield _title("Executable", f"of {counted(len(executable), 'function')}")
    yield _table(("function", "takes", "gives"), ((n, *_called(executable[n])) for n in executable))


def _called(function: Any) -> tuple[str, str]:
    """What a function of an executable takes and gives, as far as it says so."""
    program = getattr(function, "program", function) if getattr(function, "is_ready", True) else function
    if code := getattr(program, "code", None):
        ports = (", ".join(f"{p.name}: {_declared(program, p.buffer)}" for p in p) for p in (code.inputs, code.outputs))
        return next(ports), next(ports)
    if nest := getattr(function, "nest", None):
        return repr(nest).partition("(")[2].rpartition(")")[0], f"writes {', '.join(b.name for b in nest.outputs)}"
    return (", ".join(getattr(function, "input_names", ())) or "...", "...")


def _of_profile(profile: Profile) -> Iterable[Element]:
    whole = sum(row.seconds for row in profile) or 1.0
    yield _title("Profile", f"of {counted(len(profile), 'step')}: {whole * 1e6:.2f} us")
    longest = sorted(profile, key=lambda row: -row.seconds)
    rows = (
        (r.label, _first(r.nodes), f"{r.seconds * 1e6:.2f} us", f"{100 * r.seconds / whole:.1f} %") for r in longest
    )
    yield _table(("step", "nodes", "time", "share"), rows, "right")


def _first(names: Sequence[str]) -> str:
    return f"{names[0]} +{len(names) - 1}" if len(names) > 1 else "".join(names)


def _of_pipeline(pipeline: Pipeline) -> Iterable[Element]:
    yield _title(pipeline.name, f"pipeline of {counted(len(pipeline.parts), 'part')}")
    yield _table(("pass", ""), ((part.name, part.told) for part in pipeline.parts))


def _of_ruleset(rules: Ruleset) -> Iterable[Element]:
    yield _title("Ruleset", f"of {len(rules.rules)} rules and {len(rules.passes)} passes")
    yield _table(("rule", "family", "soundness"), ((r.name, r.family, r.soundness.value) for r in rules.rules))


def _of_program(program: Interface) -> Iterable[Element]:
    code = program.code
    ports = [("input", p.name, _declared(program, p.buffer)) for p in code.inputs]
    ports += [("output", p.name, _declared(program, p.buffer)) for p in code.outputs]
    yield _title("Program", f"of {counted(len(code.steps), 'step')}")
    yield _table(("", "name", "type"), ports)


def _declared(program: Interface, number: int) -> str:
    from graphopt.runtime.sizes import show

    buffer = program.code.buffers[number]
    return f"{buffer.dtype}[{'…' if buffer.shape is None else ', '.join(map(show, buffer.shape))}]"


def _of_model(model: CompiledModel) -> Iterable[Element]:
    if not model.is_ready:
        yield _title("Compiled model", f"a program is compiled for each rank, and for what {model.input_names} hold")
        return
    report = model.report
    threads = counted(model.settings.threads, "thread")
    yield _title("Compiled model", f"for {model.settings.target.name}, {threads}: {report.summary}")
    yield from list(_of_program(model.program))[1:]
    if report.unlowered:
        yield _table(("computed by no kernel", "op", "why", "runs in"), report.unlowered)
    if report.unfused:
        yield _table(("compiled by itself", "why"), [*report.unfused.items()])


def _of_report(report: Report) -> Iterable[Element]:
    from graphopt.run.report import modelled

    before, after = report.ops_before, report.ops_after
    yield _title(report.model, f"optimized for {report.target}, policy {report.policy}")
    rows = [("ops", str(sum(before.values())), str(sum(after.values())), "")]
    if (measured := report.measured) is not None:
        ratio = f"{measured.race.ratio:.2f}x"
        rows.append(("measured µs", f"{measured.race.before * 1e6:.1f}", f"{measured.race.after * 1e6:.1f}", ratio))
    if report.cost_before and report.cost_after:
        ratio = "" if measured is not None else modelled(report.cost_before / report.cost_after)
        rows.append(("modelled µs", f"{report.cost_before * 1e6:.1f}", f"{report.cost_after * 1e6:.1f}", ratio))
    if report.bytes_before and report.bytes_after:
        change = f"{100 * (report.bytes_after / report.bytes_before - 1):+.1f} %"
        rows.append(("bytes", f"{report.bytes_before:,}", f"{report.bytes_after:,}", change))
    changed = {op: after.get(op, 0) - before.get(op, 0) for op in {*before, *after}}
    for op, change_of_op in sorted(changed.items(), key=lambda item: (item[1], item[0])):
        if change_of_op:
            rows.append((op, str(before.get(op, 0)), str(after.get(op, 0)), f"{change_of_op:+d}"))
    yield _table(("", "before", "after", ""), rows, "right")
    if report.verification is not None:
        check = report.verification
        error = f", {check.difference}" if check.difference else ""
        yield _e("p", f"{check.status}{error}{f': {check.reason}' if check.reason else ''}", style="margin: .3em 0")
    yield _table(("rule", "applied"), ((rule, str(n)) for rule, n in report.by_rule().items()), "right")


def _of_compile_report(report: CompileReport) -> Iterable[Element]:
    yield _title("Report", f"of a compilation: {report.summary}")
    if report.unlowered:
        yield _table(("computed by no kernel", "op", "why", "runs in"), report.unlowered)


_CARDS: Final[dict[str, Callable[[Any], Iterable[Element]]]] = {
    "graphopt.ir.graph.Graph": _of_graph,
    "graphopt.rewrite.rule.rule.Rule": _of_rule,
    "graphopt.lowering.loops.nest.Nest": _of_nest,
    "graphopt.runtime.interface.Interface": _of_program,
    "graphopt.program.compiled_model.CompiledModel": _of_model,
    "graphopt.run.report.Report": _of_report,
    "graphopt.run.settings.CompileReport": _of_compile_report,
    "graphopt.rewrite.ruleset.Ruleset": _of_ruleset,
    "graphopt.runtime.executable.Executable": _of_executable,
    "graphopt.lowering.module.passes.Pipeline": _of_pipeline,
    "graphopt.runtime.profile.Profile": _of_profile,
    "graphopt.display.Scripted": _of_script,
    "graphopt.display.Displayed": _of_text,
}
"""Who makes the card of what, by the name of the class, so that none of them is imported before one is there."""
