"""Parser of the text form of graphs, and the door to lark for it: apart from printing, which needs no parser."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from graphopt.errors import ReadError
from graphopt.ir.annotations import PRIMITIVE, in_region
from graphopt.ir.constants import Array, Constant
from graphopt.ir.graph import NOWHERE, Attr, AttrRef, Attrs, Function, Graph, Header, Origin, Value
from graphopt.ir.text.elements import numpy_dtype, parse_number, read_numbers
from graphopt.ir.types import (
    OPEN,
    OpaqueType,
    OptionalType,
    Real,
    SequenceType,
    Size,
    SparseTensorType,
    TensorType,
    Type,
    broadcast,
    fresh_number,
    fresh_symbol,
    maximum,
    minimum,
    real,
    symbol,
    unranked,
)

if TYPE_CHECKING:
    from lark import Lark, Token


def parse(text: str, constants: Sequence[Constant] = (), filename: str = "<text>") -> Graph:
    """The graph that a text describes; ``constants`` are those that it keeps beside it, ``{#0}`` the first.

    Without a first line the graph has the default header. Raises ReadError with line and column.
    """
    return _GraphTextReader(text, constants, filename).model()


@cache
def _parser() -> Lark:
    from lark import Lark

    return Lark.open("grammar.lark", rel_to=__file__, parser="lalr", start="model", maybe_placeholders=True)


WORDS = {
    "NAME": "a name", "QUOTED": "a name", "NUMBERED": "a name", "RETURN": "`return`", "FUNCTION": "`function`",
    "EQUAL": "`=`", "COLON": "`:`", "COMMA": "`,`", "LPAR": "`(`", "RPAR": "`)`", "LSQB": "`[`", "RSQB": "`]`",
    "LBRACE": "`{`", "RBRACE": "`}`", "VBAR": "`|`", "NUMBER": "a number", "INT": "a number",
    "SYMBOL": "a size", "TEXT": "a string",
}  # fmt: skip
"""What the parser may want next, in words."""


ALLOC = "alloc"
"""What stands for a tensor that a call is to fill."""


class _GraphTextReader:
    """Reads one text."""

    def __init__(self, text: str, constants: Sequence[Constant], filename: str) -> None:
        self.text = text
        self.constants = constants
        self.filename = filename
        self.header = Header()
        self.functions: dict[tuple[str, str], Function] = {}
        self.sizes: dict[str, Size] = {}
        self.origin = NOWHERE
        self.n_regions = 0

    def model(self) -> Graph:
        try:
            head, *statements = self.tree().children
            name = self.read_header(head) if head else "graph"
            graph = _Scope(self, name, self.header).fill(statements)
            graph.origin = self.origin
            return graph
        except RecursionError:
            raise ReadError(f"{self.filename}: brackets are nested too deep") from None

    def tree(self) -> Any:
        from lark.exceptions import UnexpectedCharacters, UnexpectedToken

        try:
            return _parser().parse(self.text)
        except UnexpectedToken as error:
            if error.token.type == "$END":
                lines = self.text.splitlines() or [""]
                self.expected(len(lines), len(lines[-1]) + 1, error.accepts or error.expected, "the end of the text")
            self.expected(error.line, error.column, error.accepts or error.expected, f"'{error.token}'")
        except UnexpectedCharacters as error:
            self.expected(error.line, error.column, error.allowed or set(), f"'{self.text[error.pos_in_stream or 0]}'")

    def expected(self, line: int, column: int, terminals: set[str], actual: str) -> NoReturn:
        words = list(dict.fromkeys(word for name, word in WORDS.items() if name in terminals))
        wanted = " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words) or "something else"
        raise ReadError(f"{self.filename}:{line}:{column}: expected {wanted}, found {actual}")

    def mistake(self, token: Token, message: str) -> ReadError:
        return ReadError(f"{self.filename}:{token.line}:{token.column}: {message}")

    def read_header(self, branch: Any) -> str:
        value, *settings = branch.children
        for mark in (b.children[0] for b in settings if b.data == "mark"):
            if mark != PRIMITIVE[0]:
                raise self.mistake(mark, f"expected a version, as in `opset 21`, or `{PRIMITIVE[0]}`, found `{mark}`")
            self.origin = Origin(metadata=(PRIMITIVE,))
        settings = [b for b in settings if b.data == "setting"]
        versions = {k: v for k, v in self.settings(settings) if k != "ir"}
        ir = dict(self.settings(settings)).get("ir", self.header.ir_version)
        opsets = tuple(("" if k == "opset" else k, v) for k, v in versions.items())
        self.header = replace(self.header, ir_version=ir, opsets=opsets or self.header.opsets)
        return _name(value.children[0])

    def settings(self, branches: list[Any]) -> list[tuple[str, int]]:
        pairs = (branch.children for branch in branches if branch is not None)
        return [(ast.literal_eval(k) if k.type == "TEXT" else str(k), int(v)) for k, v in pairs]

    # -- types

    def type(self, branch: Any) -> Type | None:
        parts = branch.children
        match branch.data:
            case "untyped":
                return None
            case "tensor":
                return TensorType(self.dtype(parts[0]), self.shape(parts[1]))
            case "sparse":
                inner = self.type(parts[0])
                if not isinstance(inner, TensorType):
                    raise self.mistake(
                        _first_token(branch), "a sparse tensor has a dtype and a shape: sparse(float32[2])"
                    )
                return SparseTensorType(inner.dtype, inner.shape)
            case "opaque":
                return OpaqueType(ast.literal_eval(parts[0]))
        element = self.type(parts[0])
        if element is None:
            raise self.mistake(_first_token(branch), "the element of a sequence or optional has a type")
        return SequenceType(element) if branch.data == "sequence" else OptionalType(element)

    def dtype(self, token: Token) -> str:
        try:
            numpy_dtype(token)
        except TypeError:
            raise self.mistake(
                token, f"unknown dtype {token}: numpy's and ml_dtypes' names are known, and string"
            ) from None
        return str(token)

    def shape(self, branch: Any) -> Any:
        return unranked() if branch.data == "unranked" else tuple(self.size(p) for p in branch.children if p)

    def size(self, branch: Any) -> Size:
        parts = branch.children
        match branch.data:
            case "integer":
                return int(parts[0])
            case "symbol":
                return self.symbol(str(parts[0]))
            case "quoted_symbol":
                return symbol(_name(parts[0]))
            case "broadcast":
                return broadcast(*map(self.size, parts))
            case "minimum":
                return minimum(*map(self.size, parts))
            case "maximum":
                return maximum(*map(self.size, parts))
            case "truncated":
                return self.real(parts[0]).truncated()
            case "signed":
                return self.size(parts[1]) * (-1 if parts[0] == "-" else 1)
        total = self.size(parts[0])
        for operator, part in zip(parts[1::2], parts[2::2], strict=True):
            right = self.size(part)
            match operator:
                case "+":
                    total = total + right
                case "-":
                    total = total - right
                case "*":
                    total = total * right
                case _:
                    total = total // right
        return total

    def real(self, branch: Any) -> Real:
        """A float that is computed of sizes."""
        dtype, _, function = str(branch.children[0]).partition(".")
        if branch.data == "real_constant":
            return Real(dtype, "quotient", float(branch.children[1]).as_integer_ratio())
        if branch.data == "quotient":
            return Real(dtype, "quotient", (self.size(branch.children[1]), int(branch.children[2] or 1)))
        parts = [self.real(b) for b in branch.children[1:]]
        return parts[0].cast(dtype) if function == "cast" else real(function, *parts)

    def symbol(self, name: str) -> Size:
        """The size of that name; a number behind ``?`` only says which ones are the same."""
        if name not in self.sizes:
            digits = name.lstrip("?~!")
            is_fresh = name.startswith("?") and digits.isdigit() and len(digits) < 12
            fresh = fresh_number if name.startswith("?~") else partial(fresh_symbol, is_open=name.startswith(OPEN))
            self.sizes[name] = fresh() if is_fresh else symbol(name)
        return self.sizes[name]


class _Scope:
    """Reads the statements of one graph."""

    def __init__(self, reader: _GraphTextReader, name: str, header: Header) -> None:
        self.reader = reader
        self.graph = Graph(name, header, reader.functions)
        self.values: dict[str, Value] = {}
        self.allocated: dict[str, Type] = {}
        """What is allocated, and not filled yet."""
        self.region = ""

    def fill(self, statements: list[Any]) -> Graph:
        for statement in statements:
            match statement.data:
                case "function":
                    self.function(statement)
                case "returned":
                    self.returned(statement)
                case "region":
                    self.dataflow(statement)
                case _:
                    self.declaration(statement)
        return self.graph

    def dataflow(self, branch: Any) -> None:
        word, *statements = branch.children
        if self.region:
            raise self.reader.mistake(word, "a dataflow region cannot be opened within another")
        self.region = str(self.reader.n_regions)
        self.reader.n_regions += 1
        for statement in statements:
            if statement.data not in ("declaration", "region"):
                raise self.reader.mistake(
                    _first_token(statement), "a dataflow region has calls, constants and allocations"
                )
        self.fill(statements)
        self.region = ""

    def function(self, branch: Any) -> None:
        op, *middle, body = branch.children
        parameters = [p.children for p in middle if p is not None and p.data == "parameter"]
        opsets = self.reader.settings([p for p in middle if p is not None and p.data == "setting"])
        pairs = tuple(("" if k == "opset" else k, v) for k, v in opsets)
        full, overload = _op(op)
        domain, _, name = full.rpartition("::")
        header = replace(self.graph.header, opsets=pairs)
        self.reader.functions[full, overload] = Function(
            domain,
            name,
            overload,
            _Scope(self.reader, name, header).fill(body.children),
            tuple(_name(p) for p, default in parameters if default is None),
            Attrs({_name(p): self.attr(default) for p, default in parameters if default is not None}),
            pairs,
        )

    def returned(self, branch: Any) -> None:
        for result in branch.children:
            if result is None:
                continue
            value, name = result.children
            token = value.children[0]
            returned = None if token == "_" else self.value(token)
            self.graph.add_output(_name((name or value).children[0]), returned)

    def declaration(self, branch: Any) -> None:
        targets, right = branch.children
        declared = [t.children for t in targets.children]
        if right is None or branch.data == "overridable":
            for value, type in declared:
                self.input(value.children[0], type, right)
            return
        if right.data == "value":
            name = right.children[0]
            raise self.reader.mistake(name, f"`{name}` stands alone: expected a call, `{name}(...)`, or a constant")
        if right.data != "call":
            if len(declared) != 1:
                raise self.reader.mistake(_first_token(right), "a constant has one name")
            values = [self.graph.add_constant(self.constant(right))]
        elif _op(right.children[0])[0] == ALLOC:
            self.allocate(right, declared)
            return
        else:
            filled = [] if declared else self.filled(right)
            call = self.call(right, len(declared) + len(filled), filled)
            values = [*self.graph.node(call.node).outputs]
            if filled:
                for token, one in zip(filled, values, strict=True):
                    self.graph.types[one] = self.allocated.pop(str(token))
                    self.declare(token, one)
                return
        for (value, type), one in zip(declared, values, strict=True):
            self.declare(value.children[0], one)
            declared_type = type and self.reader.type(type)
            if declared_type is not None:
                self.graph.types[one] = declared_type

    def allocate(self, right: Any, declared: list[Any]) -> None:
        for value, type in declared:
            token, known = value.children[0], type and self.reader.type(type)
            if known is None or any(part is not None for part in right.children[1:]):
                raise self.reader.mistake(token, f"an allocation is `{token}: dtype[shape] = {ALLOC}()`")
            if str(token) in self.values or str(token) in self.allocated:
                raise self.taken(token)
            self.allocated[str(token)] = known

    def filled(self, branch: Any) -> list[Token]:
        """The allocations among the operands of a call, which are what it fills. They stand behind what it reads."""
        operands = [p for p in branch.children[1:] if p is not None and p.data not in ("separator", "attribute")]
        tokens = [p.children[0] if p.data == "value" else None for p in operands]
        filled = [token for token in tokens if token is not None and str(token) in self.allocated]
        if filled and tokens[-len(filled) :] != filled:
            raise self.reader.mistake(filled[0], "what a call fills stands behind all that it reads")
        if len({str(token) for token in filled}) < len(filled):
            raise self.reader.mistake(filled[-1], "a call fills an allocation once")
        return filled

    def input(self, token: Token, type: Any, default: Any) -> None:
        if type is None:
            raise self.reader.mistake(
                token, f"`{token}` is neither computed (`{token} = ...`) nor an input (`{token}: type`)"
            )
        attrs = Attrs() if default is None else Attrs(default=self.constant(default))
        self.declare(token, self.graph.add_input(_name(token), self.reader.type(type), attrs))
        if token.type == "NUMBERED":
            del self.graph.names[self.values[str(token)]]

    def declare(self, token: Token, value: Value) -> None:
        if str(token) in self.values:
            raise self.taken(token)
        self.values[str(token)] = value
        if token.type != "NUMBERED":
            self.graph.names[value] = _name(token)

    def taken(self, token: Token) -> ReadError:
        return self.reader.mistake(token, f"`{_name(token)}` is there already: each value has a name of its own")

    def value(self, token: Token) -> Value:
        bound = self.values.get(str(token))
        if str(token) in self.allocated:
            raise self.reader.mistake(token, f"`{_name(token)}` is allocated, and no line above fills it")
        if bound is None:
            raise self.reader.mistake(
                token, f"`{_name(token)}` is not there yet: a line reads only what lines above it make"
            )
        return bound

    # -- calls

    def call(self, branch: Any, n_outputs: int = 1, filled: Sequence[Token] = ()) -> Value:
        """A node for a call, but for the allocations that it fills: its outputs take their place."""
        name, *parts = branch.children
        inputs: list[Value | None] = []
        attrs: dict[str, Attr] = {}
        n_own: int | None = None
        for part in parts:
            if part is None:
                continue
            if part.data == "separator":
                if part.children[0] == "|":
                    n_own = len(inputs)
            elif part.data == "attribute":
                attrs[_name(part.children[0])] = self.attr(part.children[1])
            elif part.children[0] not in filled:
                inputs.append(self.operand(part))
        op, overload = _op(name)
        captures = 0 if n_own is None else len(inputs) - n_own
        origin = in_region(Origin(overload=overload) if overload else NOWHERE, self.region)
        node = self.graph.add(op, tuple(inputs), Attrs(attrs), n_outputs, captures=captures, origin=origin)
        return Value(node.id)

    def operand(self, branch: Any) -> Value | None:
        match branch.data:
            case "value":
                return None if branch.children[0] == "_" else self.value(branch.children[0])
            case "call":
                return self.call(branch)
        return self.graph.add_constant(self.constant(branch))

    # -- constants and attributes

    def constant(self, branch: Any) -> Constant:
        """A constant as it stands for an input: bare numbers are float32, int64 or bool, lists of rank 1."""
        match branch.data:
            case "constant":
                return self.full_constant(branch)
            case "number" | "bool" | "text":
                return _bare(self.scalar(branch))
            case "list" if all(p is None or p.data in ("number", "bool", "text") for p in branch.children):
                return _bare([self.scalar(p) for p in branch.children if p is not None])
        wanted = "a number, a list of numbers, or dtype[shape]{...}"
        raise self.reader.mistake(_first_token(branch), f"expected a constant: {wanted}")

    def full_constant(self, branch: Any) -> Constant:
        token, dims, *parts, ellipsis = branch.children
        dtype = self.reader.dtype(token)
        shape = self.reader.shape(dims)
        if not isinstance(shape, tuple) or not all(isinstance(s, int) for s in shape):
            raise self.reader.mistake(token, "the shape of a constant is made of integers")
        elements = [p for p in parts if p is not None]
        if len(elements) == 1 and elements[0].data == "beside":
            return self.beside(elements[0].children[0], dtype, shape)
        if len(elements) == 1 and elements[0].data == "hex":
            array = self.bits(elements[0].children[0], dtype)
        else:
            array = self.numbers(token, elements, dtype)
        if ellipsis is not None and len(array) == 1:
            return Constant.full(shape, array.reshape(()))
        wanted = int(np.prod(shape, dtype=object))
        if len(array) != wanted:
            raise self.reader.mistake(token, f"a constant of this shape has {wanted} elements, found {len(array)}")
        return Constant.of(array.reshape(shape), dtype)

    def beside(self, token: Token, dtype: str, shape: tuple[int, ...]) -> Constant:
        number = int(token[1:])
        if number >= len(self.reader.constants):
            raise self.reader.mistake(token, f"constant {token} is not given: pass it in `constants`")
        constant = self.reader.constants[number]
        if (constant.dtype, constant.shape) != (dtype, shape):
            raise self.reader.mistake(token, f"constant {token} is {constant!r}, not {dtype}{list(shape)}")
        return constant

    def bits(self, token: Token, dtype: str) -> Array:
        try:
            return np.frombuffer(bytes.fromhex(ast.literal_eval(token)), numpy_dtype(dtype))
        except ValueError:
            raise self.reader.mistake(token, f"expected the bytes of {dtype} elements as hexadecimal digits") from None

    def numbers(self, token: Token, elements: list[Any], dtype: str) -> Array:
        try:
            return read_numbers([self.scalar(e) for e in elements], dtype)
        except (ValueError, TypeError, OverflowError):
            raise self.reader.mistake(token, f"the elements are not all {dtype}") from None

    def scalar(self, branch: Any) -> Any:
        token = branch.children[0]
        return ast.literal_eval(token) if branch.data in ("text", "bytes") else parse_number(token)

    def attr(self, branch: Any) -> Attr:
        parts = branch.children
        match branch.data:
            case "number" | "text" | "bytes":
                return self.scalar(branch)  # type: ignore[no-any-return]
            case "constant":
                return self.full_constant(branch)
            case "body":
                return _Scope(self.reader, "body", self.graph.header).fill(parts)
            case "list":
                return tuple(self.attr(p) for p in parts if p is not None)  # type: ignore[misc]
            case "attribute_reference":
                return AttrRef(_name(parts[0]), int(parts[1]))
            case "type_value" if (type_ := self.reader.type(parts[0])) is not None:
                return type_
        raise self.reader.mistake(_first_token(branch), "expected the value of an attribute")


def _bare(value: Any) -> Constant:
    flat = value if isinstance(value, list) else [value]
    first = next((v for v in flat if not isinstance(v, int) or isinstance(v, bool)), flat[0] if flat else 0)
    dtype = {bool: "bool", int: "int64", float: "float32", str: "string"}[type(first)]
    array = read_numbers(flat, dtype)
    return Constant.of(array if isinstance(value, list) else array.reshape(()), dtype)


def _name(token: Token) -> str:
    return str(json.loads(f'"{token[1:-1]}"')) if token.startswith("`") else str(token)


def _op(branch: Any) -> tuple[str, str]:
    """The op's name and, behind a single colon, the overload of a local function."""
    domain, colons, name = _name(branch.children[0]).rpartition("::")
    name, _, overload = name.partition(":")
    return f"{domain}{colons}{name}", overload


def _first_token(branch: Any) -> Token:
    return next(_tokens(branch))


def _tokens(branch: Any) -> Iterator[Token]:
    if not hasattr(branch, "data"):
        yield branch
        return
    for part in branch.children:
        if part is not None:
            yield from _tokens(part)
