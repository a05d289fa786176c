"""Dtype inference for the terms of a rule, by the schemas of its ops and its guards. Apart from ``scalars`` by size."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import product

from graphopt.ir import ops
from graphopt.rewrite.rule.rule import CallPattern, Rule, Term, VarPattern

FLOATS = ("float16", "float32")
INTS = ("int8", "int32", "int64", "uint8")
CANDIDATES = (*FLOATS, *INTS, "bool")
"""The dtypes that proofs are made for: others of the kind differ from them in width alone."""
FEW = ("float32", "int32", "bool")
"""Those that are left where rules have several dtypes that are free."""
MOST = 64


class Dtypes:
    """The dtypes of all terms of a rule, as far as schemas relate them. Terms go by identity, variables by name."""

    def __init__(self, rule: Rule) -> None:
        self._parent: dict[Hashable, Hashable] = {}
        self._allowed: dict[Hashable, frozenset[str]] = {}
        self._terms: list[Term] = []
        for left, right in zip(rule.lhs, rule.rhs, strict=True):
            self._join(self.visit(left), self.visit(right))

    def key(self, term: Term) -> Hashable:
        """What a term's dtype goes by."""
        return ("variable", term.name) if isinstance(term, VarPattern) else id(term)

    def worlds(self) -> Iterator[dict[Hashable, str]]:
        """Each way of giving all terms dtypes."""
        free = list(dict.fromkeys(self._find(k) for k in self._parent))
        choices = [[d for d in CANDIDATES if d in self._allowed.get(root, CANDIDATES)] for root in free]
        total = 1
        for options in choices:
            total *= len(options)
        if total > MOST:
            choices = [[d for d in options if d in FEW] or options[:1] for options in choices]
        for dtypes in product(*choices):
            dtype_of = dict(zip(free, dtypes, strict=True))
            yield {k: dtype_of[self._find(k)] for k in self._parent}

    def visit(self, term: Term) -> Hashable:
        """The key of a term, once its parts are related."""
        key = self.key(term)
        self._find(key)
        self._terms.append(term)  # so that no other term gets its identity
        if not isinstance(term, CallPattern):
            return key
        inputs = [self.visit(t) for t in term.inputs]
        letters: dict[str, Hashable] = {}
        if term.is_variable:
            return key
        pairs = [(ops.input_constraint(term.op, i), k) for i, k in enumerate(inputs) if not _is_absent(term.inputs[i])]
        schema = ops.schema(term.op)
        for letter, k in [*pairs, (ops.output_constraint(term.op, term.output), key)]:
            if letter.startswith("tensor("):
                self._restrict(k, frozenset([ops.dtype_name(letter)]))
                continue
            if letter in letters:
                self._join(k, letters[letter])
            letters[letter] = k
            if schema is not None and letter in schema.allowed:
                self._restrict(k, frozenset(schema.allowed[letter]))
        return key

    def _restrict(self, key: Hashable, allowed: frozenset[str]) -> None:
        root = self._find(key)
        self._allowed[root] = self._allowed.get(root, allowed) & allowed

    def _find(self, key: Hashable) -> Hashable:
        self._parent.setdefault(key, key)
        while self._parent[key] != key:
            key = self._parent[key]
        return key

    def _join(self, a: Hashable, b: Hashable) -> None:
        first, second = self._find(a), self._find(b)
        if first == second:
            return
        self._parent[first] = second
        if first in self._allowed:
            self._restrict(second, self._allowed.pop(first))


def _is_absent(term: Term) -> bool:
    return isinstance(term, VarPattern) and term.name == "_"
