"""Parser of rule files: text in, rule values out, and every mistake at its line and column.

The grammar is ``grammar.lark``. Newlines are spaces, and a rule ends where the next name with its
colon begins. The comment directly above a rule is its reason, and ends with its family, its
soundness class and when it is tried: ``[H8] reals always for ort``. Nothing that is read is ever
evaluated as program text.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from graphopt.errors import RuleError
from graphopt.rewrite.reading.wellformed import complaint, place, unify
from graphopt.rewrite.rule.notation import RESERVED
from graphopt.rewrite.rule.notation import show_rule as format_rule
from graphopt.rewrite.rule.rule import (
    ABSENT,
    AnyOf,
    CallPattern,
    Computed,
    Each,
    Field,
    FunctionCall,
    GuardExpr,
    IndexExpr,
    Lit,
    Literal,
    NameRef,
    Rule,
    RuleStage,
    Series,
    Soundness,
    Term,
    VarPattern,
    conjuncts,
    joined,
    negative,
)

if TYPE_CHECKING:
    from lark import Lark, Token

__all__ = ["format_rule", "parse_expr", "parse_rules"]

_HEADER = re.compile(
    r"(?P<reason>.*?)\s*(?:\[(?P<family>[^\]]*)\]\s*|^\s*)(?P<soundness>exact|finite|reals|approx)"
    r"(?P<always>\s+always)?(?:\s+for\s+(?P<targets>[\w-]+(?:\s*,\s*[\w-]+)*))?\s*"
)


def parse_rules(text: str, filename: str = "<rules>", strict: bool = False) -> list[Rule]:
    """The rules of a file, in order.

    ``strict`` also wants a reason and a family of each rule. Raises RuleError with file, line and
    column at the first mistake.
    """
    return _RuleReader(text, filename, strict).rules()


def parse_expr(text: str, filename: str = "<expression>") -> GuardExpr:
    """An expression, as guards and attributes write it. Whether its names mean anything is not checked."""
    return _RuleReader(text, filename, strict=False).expression()


@cache
def _parser() -> Lark:
    from lark import Lark

    return Lark.open("grammar.lark", rel_to=__file__, parser="lalr", start=["rules", "expr"], maybe_placeholders=True)


class _RuleReader:
    """Turns the parse tree of one file into rules."""

    def __init__(self, text: str, filename: str, strict: bool) -> None:
        self.text = text
        self.lines = text.splitlines()
        self.filename = filename
        self.strict = strict
        # where each part was written; holding the part keeps its id from being used again
        self.places: dict[int, tuple[object, Token]] = {}

    def rules(self) -> list[Rule]:
        rules: dict[str, Rule] = {}
        try:
            for branch in self.tree("rules").children:
                rule = self.rule(branch)
                token = branch.children[0]
                if rule.name in rules:
                    self.fail(token, f"the name {rule.name} is taken by the rule at {rules[rule.name].source}")
                rules[rule.name] = rule
        except RecursionError:
            raise RuleError(f"{self.filename}: brackets are nested too deep") from None
        return list(rules.values())

    def expression(self) -> GuardExpr:
        try:
            return self.expr(self.tree("expr"))  # type: ignore[no-any-return]
        except RecursionError:
            raise RuleError(f"{self.filename}: brackets are nested too deep") from None

    def tree(self, start: str) -> Any:
        from lark.exceptions import UnexpectedCharacters, UnexpectedToken

        try:
            return _parser().parse(self.text, start=start)
        except UnexpectedToken as error:
            actual = "the end of the file" if error.token.type == "$END" else f"'{error.token}'"
            line, column = error.line, error.column
            if error.token.type == "$END":
                line, column = len(self.lines), len(self.lines[-1]) + 1 if self.lines else 1
            self.raise_(line, column, _wanted(error.accepts or error.expected), actual)
        except UnexpectedCharacters as error:
            rest = self.text[error.pos_in_stream :]
            actual = re.match(r"[\w.]+|.", rest, re.S)[0]  # type: ignore[index]
            self.raise_(error.line, error.column, _wanted(error.allowed or set()), f"'{actual}'")

    def raise_(self, line: int, column: int, expected: str, actual: str) -> NoReturn:
        raise RuleError(f"{self.filename}:{line}:{column}: expected {expected}, found {actual}{_hint(actual)}")

    def fail(self, token: Token, message: str) -> NoReturn:
        raise RuleError(f"{self.filename}:{token.line}:{token.column}: {message}")

    def keep(self, part: Any, token: Token | None) -> Any:
        if token is not None:
            self.places[id(part)] = (part, token)
        return part

    def name(self, token: Token) -> str:
        if str(token) in RESERVED:
            self.fail(token, f"expected a name, found the word '{token}', which the notation keeps for itself")
        return str(token)

    # -- rules

    def rule(self, branch: Any) -> Rule:
        token, left, right, where = branch.children
        lhs = tuple(self.term(t) for t in left.children)
        rhs = tuple(self.term(t) for t in right.children)
        guards, pays = conjuncts(where and self.expr(where))
        header = self.header(token)
        rule = Rule(str(token), lhs, rhs, guards, source=f"{self.filename}:{token.line}", pays=pays, **header)
        wrong = complaint(rule, self.strict)
        if wrong:
            _, token_at = self.places.get(id(wrong.part), (None, token))
            self.fail(token_at, wrong.message)
        return unify(rule)

    def header(self, token: Token) -> dict[str, Any]:
        """What the comment directly above the rule says of it."""
        end = start = (token.line or 1) - 1
        while start > 0 and self.lines[start - 1].lstrip().startswith("#"):
            start -= 1
        above = [line.lstrip().lstrip("#").strip() for line in self.lines[start:end]]
        match = _HEADER.fullmatch(above[-1]) if above else None
        if match is None:
            self.fail(
                token,
                f"rule {token} has no soundness class: expected the comment above it to end with "
                "`[FAMILY] exact|finite|reals|approx [always] [for TARGET]`",
            )
        return {
            "reason": " ".join(" ".join([*above[:-1], match["reason"]]).split()),
            "family": ",".join((match["family"] or "").replace(",", " ").split()),
            "soundness": Soundness(match["soundness"]),
            "stage": RuleStage.ALWAYS if match["always"] else RuleStage.EXPLORE,
            "targets": frozenset((match["targets"] or "").replace(",", " ").split()),
        }

    # -- terms

    def term(self, branch: Any) -> Term:
        parts = branch.children
        match branch.data:
            case "variable":
                return self.variable(parts[0])
            case "optional_variable":
                return self.variable(parts[0], optional=True)
            case "starred_variable":
                return self.variable(parts[0], starred=True)
            case "literal":
                return Literal(self.number(parts[0]))
            case "list_literal":
                return Literal(tuple(self.number(p) for p in parts if p is not None))
            case "any_of":
                options = tuple(self.term(p) for p in parts)
                return options[0] if len(options) == 1 else AnyOf(options)
            case "computed":
                computed = Computed(self.expr(parts[0]), parts[1] and self.name(parts[1]))
                return self.keep(computed, parts[1] or _first_token(parts[0]))  # type: ignore[no-any-return]
            case _:
                return self.call(*parts)

    def variable(self, token: Token, optional: bool = False, starred: bool = False) -> Term:
        return self.keep(VarPattern(self.name(token), optional, starred), token)  # type: ignore[no-any-return]

    def call(self, op: Token, arguments: Any, output: Token | None, name: Token | None) -> Term:
        inputs: list[Term] = []
        attrs: list[tuple[str, GuardExpr]] = []
        rest: str | None = None
        for part in arguments.children if arguments else ():
            if part is None:
                continue
            if part.data == "attribute":
                if part.children[0] in dict(attrs):
                    self.fail(part.children[0], f"attribute {part.children[0]} is given twice")
                attrs.append((str(part.children[0]), self.expr(part.children[1])))
                self.keep(attrs[-1], part.children[0])
            elif part.data == "rest":
                if rest:
                    self.fail(part.children[0], f"expected one `**` at most, found `**{part.children[0]}` too")
                rest = self.name(part.children[0])
            elif attrs or rest:
                self.fail(_first_token(part) or op, f"inputs of {op} come before its attributes")
            else:
                inputs.append(self.term(part))
        if output is not None and not output.isdigit():
            self.fail(output, f"expected the number of an output, found '{output}'")
        port = int(output) if output else 0
        call = CallPattern(str(op), tuple(inputs), tuple(attrs), rest, port, name and self.name(name))
        try:
            call = place(call)
        except RuleError as error:
            self.fail(op, str(error))
        for term in call.inputs:
            if id(term) not in self.places and term != ABSENT:  # it was given by the name of the input
                self.keep(term, op)
        return self.keep(call, op)  # type: ignore[no-any-return]

    def number(self, branch: Any) -> Any:
        match branch.children:
            case [None | "+", token]:
                return self.value(token)
            case ["-", token]:
                return -self.value(token)
            case [token]:
                return self.value(token)
        raise AssertionError(branch)

    def value(self, token: Token) -> Any:
        if token.type in ("TRUE", "FALSE", "NONE"):
            return {"true": True, "false": False, "none": None}[token]
        if token.type == "STRING":
            return ast.literal_eval(token)
        if len(token) > 40:
            self.fail(token, f"expected a number, found one of {len(token)} digits")
        return int(token) if token.isdigit() else float(token)

    # -- expressions

    def expr(self, branch: Any) -> Any:
        return self.keep(self.read(branch), _first_token(branch))

    def read(self, branch: Any) -> GuardExpr:
        parts = branch.children
        # syntax-directed translation: one case for each production of expressions in grammar.lark
        match branch.data:
            case "reference":
                return NameRef(self.name(parts[0]))
            case "number_value" | "named_value" | "string_value":
                return Lit(self.value(parts[0]))
            case "field":
                return Field(self.expr(parts[0]), str(parts[1]))
            case "item":
                return IndexExpr(self.expr(parts[0]), self.expr(parts[1]))
            case "slice":
                of, start, stop = parts
                return IndexExpr(self.expr(of), start and self.expr(start), stop and self.expr(stop), slice=True)
            case "series":
                return Series(self.several(parts))
            case "each":
                return Each(self.expr(parts[0]))
            case "apply":
                return FunctionCall(self.name(parts[0]), self.several(parts[1:]))
            case "sign":
                return self.sign(*parts)
            case "negation":
                return FunctionCall("not", (self.expr(parts[0]),))
            case "choice":
                yes, condition, no = parts
                return FunctionCall("if", (self.expr(condition), self.expr(yes), self.expr(no)))
            case "power":
                return FunctionCall("**", self.several(parts))
            case "comparison":
                return self.comparison(parts)
            case "both":
                return joined("and", self.several(parts))
            case "either":
                return joined("or", self.several(parts))
            case _:
                return self.infix(parts)

    def several(self, parts: list[Any]) -> tuple[GuardExpr, ...]:
        return tuple(self.expr(p) for p in parts if p is not None)

    def sign(self, sign: Token, part: Any) -> GuardExpr:
        inner: GuardExpr = self.expr(part)
        return negative(inner) if sign == "-" else inner

    def infix(self, parts: list[Any]) -> GuardExpr:
        """Operators of one level, from left to right."""
        expr: GuardExpr = self.expr(parts[0])
        for operator, right in zip(parts[1::2], parts[2::2], strict=True):
            expr = FunctionCall(_word(operator), (expr, self.expr(right)))
            self.keep(expr, _first_token(parts[0]))
        return expr

    def comparison(self, parts: list[Any]) -> GuardExpr:
        """``a < b < c`` is ``a < b and b < c``."""
        comparisons: list[GuardExpr] = []
        values = self.several(parts[::2])
        for left, operator, right in zip(values, map(_word, parts[1::2]), values[1:], strict=False):
            inside = operator.removeprefix("not ")
            one = FunctionCall(inside, (left, right))
            comparisons.append(FunctionCall("not", (one,)) if inside != operator else one)
        return joined("and", tuple(comparisons))


def _word(branch: Any) -> str:
    return " ".join(branch.children) if hasattr(branch, "data") else str(branch)


def _first_token(branch: Any) -> Token | None:
    """The first token of a branch that the tree keeps; ``()`` has none."""
    if not hasattr(branch, "data"):
        return branch  # type: ignore[no-any-return]
    return next((t for t in map(_first_token, branch.children) if t is not None), None)


_WANTED = (
    ("RULE_NAME", "a rule (`name: left => right`)"),
    ("FOREIGN_OP", "a term"),
    ("STRING", "an expression"),
    ("_ARROW", "`=>`"),
    ("WHERE", "`where`"),
    ("RPAR", "`)`"),
    ("RSQB", "`]`"),
    ("RBRACE", "`}`"),
    ("COLON", "`:`"),
    ("_EQUAL", "`=`"),
    ("ELSE", "`else`"),
    ("COMMA", "`,`"),
    ("AS", "`as`"),
    ("IN", "an operator"),
)


def _wanted(terminals: set[str]) -> str:
    """What the parser would have taken, in words, the most telling first."""
    words = [word for name, word in _WANTED if name in terminals]
    if not terminals & {"FOREIGN_OP", "STRING"}:
        words += ["a name"] if "NAME" in terminals else ["a number"] if "NUMBER" in terminals else []
    if len(words) > 5:  # where brackets may close and much may follow, what continues is hint enough
        return words[-1]
    if len(words) > 1:
        return f"{', '.join(words[:-1])} or {words[-1]}"
    return words[0] if words else "something else"


def _hint(actual: str) -> str:
    hints = {
        "'='": "; comparisons are written ==",
        "'->'": "; the sides of a rule are joined by =>",
        "'-'": "; the sides of a rule are joined by =>, and a name in a term has no hyphen",
        "'&'": "; write `and`",
        "'|'": "; write `or`, or (A | B) in a term",
        "'!'": "; write `not`",
        "':'": "; attributes are written name=value",
    }
    return hints.get(actual, "")
