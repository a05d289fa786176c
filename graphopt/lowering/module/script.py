"""Scripts of modules: graphs, programs and external functions one after another, each in its own notation.

    graph main (ir 10, opset 21, module 1)
    x: float32[n, 3]
    y = module::relu(x)
    return y

    @program
    def relu(A: Buffer[("n", 3), "float32"], B: Buffer[("n", 3), "float32"], n: size):
        ...

    external log = env.log (effects)

A function begins where a line does that is none of the others' notation, so that the text is cut before any of it is
understood, and each piece goes to the reader of its notation. All of them only parse: nothing is executed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from graphopt.errors import ScriptError
from graphopt.frozen import dataclass
from graphopt.ir.constants import Constant
from graphopt.ir.graph import Graph
from graphopt.ir.text import parse as parse_graph
from graphopt.ir.text import show as show_graph
from graphopt.ir.text.show import show_name
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script_parse import parse as parse_nest
from graphopt.lowering.loops.script_print import show as show_nest
from graphopt.lowering.module.module import External, ModuleFunction

_NAME = r"`[^`\n]*`|[^\s`=()#]+"
_HEAD = re.compile(r"(?P<graph>graph\b)|(?P<program>@(?:\w+\.)*program\b)|(?P<external>external[ \t]+(?![=:,]))")
"""The beginnings of functions' first lines. No line of another function does so: ``graph`` is a reserved word of
graphs, whose statements have ``=``, ``:`` or ``,`` behind their first name, and the lines of a program are indented."""
_EXTERNAL = re.compile(
    rf"external[ \t]+(?P<name>{_NAME})(?:[ \t]*=[ \t]*(?P<registered>{_NAME}))?"
    r"(?P<effects>[ \t]*\(effects\))?\s*(?:#.*)?"
)
_IDLE = re.compile(r"\s*(#.*)?")


@dataclass(frozen=True, slots=True)
class _Piece:
    """The text of one function, and the line (from 1) where it begins."""

    kind: str
    text: str
    line: int


def show_function(name: str, function: ModuleFunction, beside: list[Constant]) -> str:
    """The script of a function, by its name in the module."""
    match function:
        case External(registered, effects):
            named = show_name(name) if name == registered else f"{show_name(name)} = {show_name(registered)}"
            return f"external {named}{' (effects)' if effects else ''}\n"
        case Nest():
            return show_nest(function)
        case Graph():
            return show_graph(function, beside)


def read_functions(text: str, constants: Sequence[Constant], filename: str) -> dict[str, ModuleFunction]:
    """The functions of a module's script by name, in order; ``constants`` stand as ``{#n}`` in it.

    Raises ReadError with line and column (a ScriptError but for what is wrong within a graph).
    """
    functions: dict[str, ModuleFunction] = {}
    for piece in _pieces(text, filename):
        name, function = _read(piece, constants, filename)
        if name in functions:
            raise ScriptError(f"{name} is there already: each function has a name of its own", filename, piece.line)
        functions[name] = function
    return functions


def _pieces(text: str, filename: str) -> Iterator[_Piece]:
    lines = text.split("\n")  # not splitlines: strings may hold separators that only Unicode calls so
    heads = [(k, head) for k, line in enumerate(lines) if (head := _HEAD.match(line))]
    first = heads[0][0] if heads else len(lines)
    stray = next((k for k in range(first) if not _IDLE.fullmatch(lines[k])), None)
    if stray is not None or not heads:
        wanted = "a function of a module begins with `graph NAME (...)`, `@program` or `external NAME`"
        raise ScriptError(wanted, filename, (stray or 0) + 1)
    ends = [k for k, _ in heads] + [len(lines)]
    for (_, head), (begin, end) in zip(heads, pairwise(ends), strict=True):
        yield _Piece(str(head.lastgroup), "\n".join(lines[begin:end]), begin + 1)


def _read(piece: _Piece, constants: Sequence[Constant], filename: str) -> tuple[str, ModuleFunction]:
    if piece.kind == "external":
        return _read_external(piece, filename)
    if piece.kind == "program":
        nest = parse_nest(piece.text, filename, {}, piece.line)
        return nest.name, nest
    graph = parse_graph("\n" * (piece.line - 1) + piece.text, constants, filename)
    return graph.name, graph


def _read_external(piece: _Piece, filename: str) -> tuple[str, External]:
    first, *rest = piece.text.split("\n")
    match = _EXTERNAL.fullmatch(first)
    if match is None:
        raise ScriptError(
            "an external function is `external NAME`, or `external NAME = REGISTERED`, and perhaps ` (effects)`",
            filename,
            piece.line,
        )
    for k, line in enumerate(rest, piece.line + 1):
        if not _IDLE.fullmatch(line):
            raise ScriptError("an external function is one line", filename, k)
    name = _plain(match["name"], piece, filename)
    registered = _plain(match["registered"], piece, filename) if match["registered"] else name
    return name, External(registered, match["effects"] is not None)


def _plain(shown: str, piece: _Piece, filename: str) -> str:
    """The name that is shown, in backquotes or not."""
    if not shown.startswith("`"):
        return shown
    try:
        return str(json.loads(f'"{shown[1:-1]}"'))
    except ValueError:
        raise ScriptError(f"{shown} is no name: within backquotes are JSON's escapes", filename, piece.line) from None
