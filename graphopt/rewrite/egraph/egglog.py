"""egglog, the third-party e-graph engine, behind one door: terms, congruence and queries, all in integers of our own.

Commands are built as values and never parsed from text, and every name in them is made here or in
``queries``: nothing that a model or a rule file says reaches egglog as a string. A term is stored in
a function from its number to its class, so that a class has a name that is the same in every run:
the smallest number of its terms. Commutativity is in the data: each row of a commutative op of two
children is there in both orders, so that a query needs no variants for it.

egglog has one pool of threads for all e-graphs of a process. A child that was forked has the pool and
none of its threads: whoever asks something of it waits for ever, as large searches do, and every e-graph
that ends. So a child loads an engine of its own, and never ends an e-graph of its parent's.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, PathFinder
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from graphopt.errors import UsageError
from graphopt.frozen import dataclass

TERM = "N"
"""The function from the number of a term to its class."""
ABSENT = "absent"
"""The constructor of the input that is not there."""


@dataclass(frozen=True, slots=True)
class Atom:
    """One condition of a query: a row of a table. Arguments are variables, or integers where the column holds those.

    Variables that begin with ``s`` stand for integers, all others for classes. ``output`` is the
    variable of the class that a constructor gives, None for a relation.
    """

    table: str
    arguments: tuple[str | int, ...]
    output: str | None = None


@dataclass(frozen=True, slots=True)
class ConstructorTable:
    """A constructor: an integer (the symbol), then ``arity`` classes, give a class. A commutative one has two."""

    name: str
    arity: int
    commutative: bool = False


MatchRow = tuple[int, ...]


class EGraph:
    """Terms and queries. What is added is sent to egglog together, before the next query runs: without one, egglog is
    not even loaded."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._pending: list[Callable[[], Sequence[Any]]] = [self._start]
        """What makes the commands that are to be sent."""
        self._tables: set[str] = set()
        self._columns: dict[str, tuple[str, ...]] = {}

    def _start(self) -> Sequence[Any]:
        self._b = b = _bindings()
        self._span = span = b.RustSpan("", 0, 0)
        self._graph = b.EGraph()
        return [
            b.Sort(span, "V", None),
            b.FunctionCommand(span, TERM, b.Schema(["i64"], "V"), None),
            b.Constructor(span, ABSENT, b.Schema([], "V"), None, False),
            b.AddRuleset(span, "orders"),
        ]

    def __del__(self) -> None:
        graph = getattr(self, "_graph", None)
        if graph is not None and self._process != os.getpid():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(graph))  # so that not even the end of the interpreter ends it

    # -- adding

    def declare_table(self, table: ConstructorTable) -> None:
        """Make a constructor known; nothing happens where it is already."""
        if table.name in self._tables:
            return
        self._tables.add(table.name)
        self._pending.append(partial(self._table, table))

    def _table(self, table: ConstructorTable) -> Sequence[Any]:
        b, span = self._b, self._span
        made = b.Constructor(span, table.name, b.Schema(["i64"] + ["V"] * table.arity, "V"), None, False)
        if not table.commutative:
            return [made]
        row = b.Eq(span, self._var("o"), self._call(table.name, ["s", "v0", "v1"]))
        swapped = b.Union(span, self._var("o"), self._call(table.name, ["s", "v1", "v0"]))
        return [made, b.RuleCommand(b.Rule(span, [swapped], [row], f"{table.name} swapped", "orders"))]

    def declare_relation(self, name: str, arity: int) -> None:
        """Make a relation known, between an integer and ``arity`` classes."""
        if name not in self._tables:
            self._tables.add(name)
            self._pending.append(lambda: [self._b.Relation(self._span, name, ["i64"] + ["V"] * arity)])

    def declare_query(self, name: str, atoms: Sequence[Atom], columns: Sequence[str]) -> None:
        """Make a query known. Its matches are read as rows of these variables."""
        self._columns[name] = tuple(columns)
        self._pending.append(partial(self._query, name, atoms, columns))

    def _query(self, name: str, atoms: Sequence[Atom], columns: Sequence[str]) -> Sequence[Any]:
        b, span = self._b, self._span
        body: list[Any] = []
        for atom in atoms:
            call = self._call(atom.table, atom.arguments)
            body.append(b.Fact(call) if atom.output is None else b.Eq(span, self._var(atom.output), call))
        head = [b.Expr_(span, self._call(f"rows of {name}", columns))]
        return [
            b.AddRuleset(span, name),
            b.Relation(span, f"rows of {name}", ["i64" if c.startswith("s") else "V" for c in columns]),
            b.RuleCommand(b.Rule(span, head, body, name, name)),
        ]

    def add(self, term: int, table: str | None, symbol: int = 0, children: Sequence[int] = ()) -> None:
        """A new term, of children that are terms. Without a table: the absent input."""
        self._pending.append(partial(self._addition, term, table, symbol, children))

    def _addition(self, term: int, table: str | None, symbol: int, children: Sequence[int]) -> Sequence[Any]:
        b, span = self._b, self._span
        node = b.Call(span, ABSENT, []) if table is None else self._node(table, symbol, children)
        return [b.ActionCommand(b.Set(span, TERM, [self._int(term)], node))]

    def union(self, a: int, b: int) -> None:
        """Make the classes of two terms one."""
        self._pending.append(lambda: [self._b.ActionCommand(self._b.Union(self._span, self._term(a), self._term(b)))])

    def relate(self, relation: str, number: int, *terms: int) -> None:
        """Add a row to a relation."""
        self._pending.append(
            lambda: [self._b.ActionCommand(self._b.Expr_(self._span, self._node(relation, number, terms)))]
        )

    # -- asking

    def run(self, queries: Iterable[str]) -> dict[str, int]:
        """Find the matches of these queries that earlier runs did not find; how many, by name of the query."""
        if self._process != os.getpid():
            raise UsageError("this process was forked in the middle of a search, which only its parent can go on with")
        names = list(queries)
        if not names:
            return {}
        self._send()
        b, span = self._b, self._span
        runs = [b.Run(span, b.RunConfig(name)) for name in names]
        done: Any = self._graph.run_program(b.RunSchedule(b.Sequence(span, runs)))[0]
        counts: dict[str, int] = done.report.num_matches_per_rule
        return counts

    def _send(self) -> None:
        commands = [command for make in self._pending for command in make()]
        self._pending = []
        b, span = self._b, self._span
        self._graph.run_program(*commands, b.RunSchedule(b.Saturate(span, b.Run(span, b.RunConfig("orders")))))

    def read(self, queries: Iterable[str]) -> tuple[dict[int, int], dict[str, list[MatchRow]]]:
        """The class of every term, and all rows of these queries (earlier ones too), sorted, without repeats.

        A class is the smallest number of its terms.
        """
        if self._pending:
            self._send()
        tables = self._graph.freeze().functions
        class_of: dict[Any, int] = {}
        number: Callable[[Any], int] = _Numbers(self._graph).__getitem__
        terms = sorted((number(row.inputs[0]), row.output) for row in tables[TERM].rows)
        classes = {term: class_of.setdefault(value, term) for term, value in terms}
        rows_of = {}
        for name in queries:
            readers = [number if c.startswith("s") else class_of.__getitem__ for c in self._columns[name]]
            rows = {
                tuple([read(v) for read, v in zip(readers, row.inputs, strict=True)])
                for row in tables[f"rows of {name}"].rows
            }
            rows_of[name] = sorted(rows)
        return classes, rows_of

    # -- expressions

    def _int(self, number: int) -> Any:
        return self._b.Lit(self._span, self._b.Int(number))

    def _var(self, name: str) -> Any:
        return self._b.Var(self._span, name)

    def _call(self, name: str, arguments: Sequence[str | int]) -> Any:
        parts = [self._int(a) if isinstance(a, int) else self._var(a) for a in arguments]
        return self._b.Call(self._span, name, parts)

    def _term(self, term: int) -> Any:
        return self._b.Call(self._span, TERM, [self._int(term)])

    def _node(self, table: str, symbol: int, children: Sequence[int]) -> Any:
        return self._b.Call(self._span, table, [self._int(symbol), *map(self._term, children)])


class _Numbers(dict[Any, int]):
    """From egglog's integer values to Python's, each asked for once."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph

    def __missing__(self, value: Any) -> int:
        number: int = self._graph.value_to_i64(value)
        self[value] = number
        return number


_ENGINE = "egglog.bindings"
"""egglog's engine alone. Its Python package, which nothing here needs, takes ten times as long to import."""
_engines: dict[int, Any] = {}
"""The engine of this process, after those of the processes that it was forked from."""


def _bindings() -> Any:
    """The engine of this process."""
    process = os.getpid()
    if process not in _engines:
        package = find_spec("egglog")
        engine = PathFinder.find_spec(_ENGINE, None if package is None else package.submodule_search_locations)
        if engine is None or engine.origin is None:
            raise ModuleNotFoundError("No module named 'egglog.bindings'", name=_ENGINE)
        is_taken = _engines or _ENGINE in sys.modules  # in a process, or one that it was forked from: nobody can tell
        _engines[process] = _load_copy(Path(engine.origin)) if is_taken else _load(engine.origin)
    return _engines[process]


def _load(path: str) -> Any:
    spec = spec_from_file_location(_ENGINE, path, loader=ExtensionFileLoader(_ENGINE, path))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _load_copy(library: Path) -> Any:
    """The engine once more, with a state of its own: a library is loaded once for each file, whatever it is called."""
    with TemporaryDirectory(prefix="graphopt-") as folder:
        copy = Path(folder, "bindings" + EXTENSION_SUFFIXES[-1])
        with library.open("rb") as file:
            copy.write_bytes(file.read(_loaded_size(library)))
        return _load(str(copy))


def _loaded_size(library: Path) -> int:
    """How many bytes of a library are loaded; what follows, of an ELF file, is for debuggers, and most of it."""
    with library.open("rb") as file:
        head = file.read(64)
        if head[:6] != b"\x7fELF\x02\x01":  # 64 bits, the least first
            return -1
        start, size, count = (*struct.unpack_from("<Q", head, 32), *struct.unpack_from("<HH", head, 54))
        file.seek(start)
        segments = [file.read(size) for _ in range(count)]
    ends: list[int] = [sum(struct.unpack_from("<8xQ16xQ", segment)) for segment in segments]
    return max(ends)
