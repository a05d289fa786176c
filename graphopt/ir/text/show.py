"""Printer of the text form of graphs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import count

from graphopt.ir.annotations import is_primitive
from graphopt.ir.constants import Constant
from graphopt.ir.graph import CONSTANT, INPUT, Attr, AttrRef, Function, Graph, Node, Value
from graphopt.ir.order import by_region
from graphopt.ir.text.elements import is_short, show_elements, show_number, show_plain, show_text
from graphopt.ir.types import OpaqueType, OptionalType, SequenceType, SparseTensorType, TensorType, Type, quoted

RESERVED = frozenset(
    ("graph", "return", "function", "default", "as", "type", "sparse", "sequence", "optional", "opaque", "hex",
     "true", "false", "none", "inf", "nan", "_")
)  # fmt: skip
"""Words that stand in backquotes where they are names."""

_NAME = re.compile(r"[A-Za-z_/][\w./-]*")
_STRINGS_AND_FRESH = re.compile(r'"(?:\\.|[^"\\])*"|`[^`]*`|(\?[~!]?)\d{1,11}\b')
_OP = re.compile(r"[A-Za-z_][\w.-]*::[A-Za-z_]\w*(@\d+)?(:\w+)?|[A-Za-z_]\w*(@\d+)?")


def show(graph: Graph, constants: list[Constant] | None = None) -> str:
    """The graph as text that ``parse`` reads back to an equal one.

    Constants too large to be written out are appended to ``constants`` and stand as ``{#n}``, their
    number there; ``parse`` wants the same list.
    """
    beside: list[Constant] = [] if constants is None else constants
    settings = [f"ir {graph.header.ir_version}", *_opsets(graph.header.opsets)]
    settings += ["primitive"] if is_primitive(graph) else []
    lines = [f"graph {show_name(graph.name)} ({', '.join(settings)})"]
    for function in graph.functions.values():
        lines += _function(function, beside)
    lines += _Printer(graph, beside).lines()
    return _renumbered("\n".join(lines)) + "\n"


def _renumbered(text: str) -> str:
    """Sizes that nobody named, numbered in order of appearance: their own numbers differ from run to run."""
    numbers: dict[str, int] = {}
    return _STRINGS_AND_FRESH.sub(lambda m: f"{m[1]}{numbers.setdefault(m[0], len(numbers))}" if m[1] else m[0], text)


def _opsets(opsets: Iterable[tuple[str, int]]) -> list[str]:
    names = (("opset" if not domain else _plain_or_text(domain), version) for domain, version in opsets)
    return [f"{name} {version}" for name, version in names]


def _plain_or_text(name: str) -> str:
    return name if _NAME.fullmatch(name) and name not in RESERVED and name not in ("ir", "opset") else show_text(name)


def show_name(name: str) -> str:
    """A name as it stands in text: in backquotes, with JSON's escapes, where it is not plain."""
    if _NAME.fullmatch(name) and name not in RESERVED:
        return name
    return quoted(name)


def _op(op: str, overload: str = "") -> str:
    full = f"{op}:{overload}" if overload else op
    return full if _OP.fullmatch(full) and full not in RESERVED else show_name(full)


def _function(function: Function, beside: list[Constant]) -> list[str]:
    printer = _Printer(function.body, beside)
    parameters = [show_name(a) for a in function.attributes]
    parameters += [f"{show_name(name)}={printer.attr(value)}" for name, value in function.defaults.items()]
    name, opsets = _op(function.op, function.overload), ", ".join(_opsets(function.opsets))
    head = f"function {name}({', '.join(parameters)}) ({opsets})"
    return [f"{head} {{", *(f"    {line}" for line in printer.lines()), "}"]


class _Printer:
    """Prints one graph; names are its own."""

    def __init__(self, graph: Graph, beside: list[Constant]) -> None:
        self.graph = graph
        self.beside = beside
        inputs = [graph.producer(v) for v in graph.inputs]
        self.runs = [("", inputs), *((r, [n for n in nodes if n.op != INPUT]) for r, nodes in by_region(graph))]
        self.order = [node for _, nodes in self.runs for node in nodes]
        self.inline = {v for n in self.order if (v := self.inlined(n)) is not None}
        self.names = self.named()

    def inlined(self, node: Node) -> Value | None:
        """The value of a constant without a name, short enough to stand where it is read."""
        value = Value(node.id)
        constant = self.graph.constant_of(value)
        if constant is None or value in self.graph.names or self.graph.is_output(value):
            return None
        is_plain = constant.size <= 8 and show_plain(constant) is not None
        return value if is_plain and self.graph.n_uses(value) == 1 else None

    def named(self) -> dict[Value, str]:
        names: dict[Value, str] = {}
        used: set[str] = set()
        numbers = count()
        for value in (v for n in self.order for v in n.outputs if v not in self.inline):
            name = self.graph.names.get(value, "")
            is_free = name and name not in used
            names[value] = show_name(name) if is_free else f"%{next(numbers)}"
            used.add(name)
        return names

    def lines(self) -> list[str]:
        statements: list[str] = []
        for region, nodes in self.runs:
            lines = [line for n in nodes if Value(n.id) not in self.inline for line in self.statement(n)]
            statements += ["dataflow {", *(f"    {line}" for line in lines), "}"] if region else lines
        return [*statements, *self.returned()]

    def returned(self) -> list[str]:
        parts = []
        for name, value in zip(self.graph.output_names, self.graph.outputs, strict=True):
            shown = "_" if value is None else self.names[value]
            parts.append(shown if shown == show_name(name) and value is not None else f"{shown} as {show_name(name)}")
        return [f"return {', '.join(parts)}"] if parts else []

    def statement(self, node: Node) -> list[str]:
        if node.op == INPUT:
            default = node.attrs.get("default")
            ending = f" default {self.attr(default)}" if default is not None else ""
            value = Value(node.id)
            type = self.graph.types.get(value)
            return [f"{self.names[value]}: {show_type(type)}{ending}"]
        if node.op == CONSTANT and isinstance(constant := node.attrs.get("value"), Constant):
            plain = show_plain(constant) if is_short(constant) else None
            return [f"{self.names[Value(node.id)]} = {plain or self.constant(constant)}"]
        return f"{self.targets(node)} = {self.call(node)}".split("\n")

    def targets(self, node: Node) -> str:
        parts = []
        for value in node.outputs:
            type = self.graph.types.get(value)
            parts.append(self.names[value] + (f": {show_type(type)}" if type is not None else ""))
        return ", ".join(parts) or "none"

    def call(self, node: Node) -> str:
        inputs = [self.operand(v) for v in node.inputs]
        n_own = len(inputs) - node.captures
        attrs = [f"{show_name(name)}={self.attr(value)}" for name, value in node.attrs.items()]
        if node.captures:
            body = f"{', '.join(inputs[:n_own])} | {', '.join([*inputs[n_own:], *attrs])}".lstrip()
        else:
            body = ", ".join([*inputs, *attrs])
        return f"{_op(node.op, node.origin.overload)}({body})"

    def operand(self, value: Value | None) -> str:
        if value is None:
            return "_"
        constant = self.graph.constant_of(value)
        if value in self.inline and constant is not None:
            return show_plain(constant) or ""
        return self.names[value]

    def constant(self, constant: Constant) -> str:
        shape = ", ".join(map(str, constant.shape))
        if is_short(constant):
            return f"{constant.dtype}[{shape}]{{{show_elements(constant)}}}"
        self.beside.append(constant)
        return f"{constant.dtype}[{shape}]{{#{len(self.beside) - 1}}}"

    def attr(self, attr: Attr) -> str:
        match attr:
            case bool() | int() | float():
                return show_number(attr)
            case str() | bytes():
                return show_text(attr)
            case Constant():
                return self.constant(attr)
            case Graph():
                lines = _Printer(attr, self.beside).lines()
                return "\n".join(["{", *(f"    {line}" for line in lines), "}"])
            case AttrRef(name, kind):
                return f"@{show_name(name)}:{kind}"
            case tuple():
                return f"[{', '.join(map(self.attr, attr))}]"
        return f"type({show_type(attr)})"


def show_type(type: Type | None) -> str:
    """A type as text; ``?`` where it is not known."""
    match type:
        case None:
            return "?"
        case TensorType():
            return type.text
        case SparseTensorType(dtype, shape):
            return f"sparse({TensorType(dtype, shape).text})"
        case SequenceType(element):
            return f"sequence({show_type(element)})"
        case OptionalType(element):
            return f"optional({show_type(element)})"
        case OpaqueType(text):
            return f"opaque({show_text(text)})"
