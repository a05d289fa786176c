"""E-classes and their analysis: the classes of equal terms that saturation grows, with the facts of each.

Terms are numbered in the order in which they are made; a class is named by its smallest term. This
is where right sides are built (``Builder``: a handle is the number of a term, which stands for its
class), where facts are joined when classes are, and where the reasons are kept. egglog holds the same
terms and finds the matches; both keep congruence, egglog to match by it, this side to know the
reasons and to count e-nodes exactly at every moment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from math import inf

from graphopt.errors import GraphoptError
from graphopt.ir import infer, ops
from graphopt.ir.bounds import fact_of
from graphopt.ir.constants import Constant
from graphopt.ir.facts import NOTHING, Fact
from graphopt.ir.graph import CONSTANT, INPUT, NO_ATTRS, Attrs, Graph, Node, Value, trimmed
from graphopt.ir.types import TensorType
from graphopt.rewrite.egraph.egraph_snapshot import PROJECTION, ENode
from graphopt.rewrite.egraph.provenance import Congruent, Provenance, Reason, Spelled, TermSpelling, TermSymbol
from graphopt.rewrite.egraph.queries import OpForm, form
from graphopt.rewrite.match.build import Inferred
from graphopt.rewrite.match.workspace import sharper

ABSENT = 0
"""The term of the input that is not there."""
COMPUTED = 4096
"""Constants that no model or rule wrote down are computed up to this many elements, for guards that look at them."""
DEEPEST = 64
"""So many constant ops on top of each other are computed."""

CONSTANTS = OpForm(CONSTANT, 0)
"""The form that stands for all that is computed from constants alone."""

_TermKey = tuple[int, tuple[int, ...]]


class Full(Exception):  # noqa: N818
    """The limit of e-nodes is reached."""


class Contradiction(Exception):  # noqa: N818
    """Two terms that a rule calls equal cannot be; the message says why."""


class Classes:
    """The terms of a graph, and whatever is made equal to them: at most ``room`` e-nodes more than the graph has."""

    def __init__(self, graph: Graph, facts: Mapping[Value, Fact], room: int) -> None:
        self.graph = graph
        self.opset = graph.opset
        self.provenance = Provenance()
        self.symbols = self.provenance.symbols
        self.terms = self.provenance.terms
        self.values: dict[Value, int] = {}
        self.nodes: dict[int, int] = {}
        """For terms read from the graph, the node (the first of several equal ones)."""
        self.unions: list[tuple[int, int]] = []
        """All unions so far, those by congruence included."""
        self.improved: set[int] = set()
        """Classes of which more became known since this was last emptied."""
        self.renamed: set[int] = set()
        """Names that classes lost to others since this was last emptied,"""
        self.touched: set[OpForm] = set()
        """and the forms of the terms that were in such a class, or read it."""
        self.contradictions: list[str] = []
        """What congruence made equal that cannot be: some rule is wrong."""
        self._known_alike: dict[tuple[int, int], set[int]] = {}
        """By new term, and how deep it is looked into, the classes that have one like it, for one question."""
        self.looked_at = 0
        """Terms that new ones were compared with, to see whether they say anything new."""
        self.inferred: Inferred = {}
        """What was inferred of calls, for who builds right sides."""
        self._symbol_ids: dict[TermSymbol, int] = {}
        self._unordered: list[bool] = []
        self._forms: dict[tuple[int, int], OpForm] = {}
        self._above: list[int] = []
        self._facts: list[Fact] = []
        self._memo: dict[_TermKey, int] = {}
        self._parents: list[list[int]] = []
        self._members: list[list[int]] = []
        self._distinct: list[int] = []
        self._duplicates: set[int] = set()
        self._free = 0
        self._moved: deque[int] = deque()
        self._sharpened: deque[int] = deque()
        self._computed: dict[int, Constant | None] = {}
        self._spelled: dict[int, TermSpelling] = {}
        self.originals = 0
        """Terms below this number were read from the graph."""
        self._term(self._symbol(TermSymbol("_", NO_ATTRS)), (), NOTHING)
        self._load(facts)
        self.originals = len(self.terms)
        self.limit: float = self.size + room
        """The number of e-nodes that is never exceeded."""

    # -- reading the graph

    def _load(self, facts: Mapping[Value, Fact]) -> None:
        for node in self.graph.order():
            if not node.n_outputs:  # it is there for its effects, and equals nothing
                continue
            inputs = [None if v is None else self.values[v] for v in node.inputs]
            facts_of_outputs = [facts.get(v, NOTHING) for v in node.outputs]
            terms = self._apply(self._symbol(_symbol_of(node)), inputs, facts_of_outputs)
            self.nodes.setdefault(terms[0] if node.n_outputs == 1 else self.terms[terms[0]][1][0], node.id)
            for value, term in zip(node.outputs, terms, strict=True):
                self.values[value] = term
                if value in self.graph.names:
                    self.provenance.names.setdefault(term, self.graph.names[value])

    # -- asking

    def find(self, term: int) -> int:
        """The class of a term."""
        above = self._above
        while (next_ := above[term]) != term:
            above[term] = term = above[next_]
        return term

    def fact(self, value: int) -> Fact:
        """What is known of the class of a term."""
        return self._facts[self.find(value)]

    def constant(self, value: int) -> Constant | None:
        """The elements of a class of constants, computed if it is small."""
        return self._evaluated(self.find(value), DEEPEST)

    def uses(self, value: int) -> int | None:
        """None: how often a class is read is not known before one graph is chosen."""
        return None

    @property
    def size(self) -> int:
        """How many distinct e-nodes there are; projections and the absent input are not counted."""
        return len(self.terms) - len(self._duplicates) - self._free

    def enode(self, term: int) -> ENode:
        """The term as an e-node, over the classes as they are now."""
        index, members = self.terms[term]
        symbol = self.symbols[index]
        children = [None if c == ABSENT else self.find(c) for c in members]
        return ENode(
            term, symbol.op, symbol.attrs, trimmed(symbol.op, children), symbol.n_outputs, self.nodes.get(term)
        )

    def members(self, name: int) -> list[int]:
        """The distinct terms of a class, in ascending order."""
        return sorted(t for t in self._members[name] if t not in self._duplicates)

    def first_alike(self, term: int) -> int:
        """The first term that applies the same symbol to the same classes: that which is a member of the class."""
        return self._memo[self._key(*self.terms[term])]

    def distinct(self, name: int) -> int:
        """How many distinct terms a class has."""
        return self._distinct[name]

    def port(self, term: int) -> int:
        """Which output a projection is."""
        port = self.symbols[self.terms[term][0]].attrs["index"]
        assert isinstance(port, int)
        return port

    def in_class(self, name: int) -> Sequence[int]:
        """The terms of a class, duplicates among them."""
        return self._members[name]

    def readers(self, name: int) -> Sequence[int]:
        """The terms that read a class, duplicates among them, some more than once."""
        return self._parents[name]

    def has_alike(self, name: int, term: int, mark: int) -> bool:
        """Whether a class has a term that differs from a new one in nothing but the elements of constants.

        Constants cost nothing at run time and are folded in the end, so that such a term would only
        say once more what is known; there is no end to the ways in which constants can be combined.
        New are the terms from the mark on.
        """
        self._known_alike.clear()
        return self._has_alike(name, term, mark, 4)

    def _has_alike(self, name: int, term: int, mark: int, depth: int) -> bool:
        """The same, found where fewer terms are to be looked at: in the class, or among what reads the same."""
        if self._fewest_readers(term, mark, depth) < len(self._members[name]):
            return name in self._alike(term, mark, depth)
        self.looked_at += len(self._members[name])
        return depth > 0 and any(self._are_alike(term, member, mark, depth) for member in self._members[name])

    def _fewest_readers(self, term: int, mark: int, depth: int) -> float:
        """How many old terms read a child that is no constant, or a new child's, at least."""
        counts = (
            len(self._parents[self.find(c)]) if c < mark or depth < 2 else self._fewest_readers(c, mark, depth - 1)
            for c in self.terms[term][1]
            if not self.fact(c).is_const
        )
        return min(counts, default=inf) if depth else inf

    def _alike(self, term: int, mark: int, depth: int) -> set[int]:
        """All classes that have such a term, found from a child that is no constant."""
        known = self._known_alike.get((term, depth))
        if known is None:
            known = self._known_alike[term, depth] = self._find_alike(term, mark, depth)
        return known

    def _find_alike(self, term: int, mark: int, depth: int) -> set[int]:
        read = [self._same(c, mark, depth) for c in self.terms[term][1] if not self.fact(c).is_const]
        fewest = min(read, key=lambda classes: sum(len(self._parents[c]) for c in classes), default=())
        readers = {reader for c in fewest for reader in self._parents[c]}
        self.looked_at += len(readers)
        return {self.find(reader) for reader in readers if self._are_alike(term, reader, mark, depth)}

    def _same(self, child: int, mark: int, depth: int) -> set[int]:
        """The classes that an old term may read where a new one reads this child, which is no constant."""
        if child < mark or depth < 2:
            return {self.find(child)}
        return self._alike(child, mark, depth - 1)

    def _are_alike(self, term: int, member: int, mark: int, depth: int) -> bool:
        (symbol, children), (its_symbol, others) = self.terms[term], self.terms[member]
        return (
            member < mark
            and symbol == its_symbol
            and len(children) == len(others)
            and all(self._is_alike(c, o, mark, depth) for c, o in zip(children, others, strict=True))
        )

    def _is_alike(self, child: int, other: int, mark: int, depth: int) -> bool:
        if self.find(child) == self.find(other):
            return True
        new, old = self.fact(child), self.fact(other)
        if new.is_const and old.is_const:
            return new.type == old.type
        return child >= mark and self._has_alike(self.find(other), child, mark, depth - 1)

    def form(self, term: int) -> OpForm:
        """The form of a term."""
        symbol, children = self.terms[term]
        form = self._forms.get((symbol, len(children)))
        if form is None:
            described = self.symbols[symbol]
            form = OpForm(described.op, len(children), described.n_outputs > 1)
            self._forms[symbol, len(children)] = form
        return form

    # -- building

    def begin(self) -> int:
        """Start to build a right side; gives the mark for ``undo``."""
        self._spelled.clear()
        return len(self.terms)

    def undo(self, mark: int) -> None:
        """Forget the terms that were made since the mark, where nothing was joined in between."""
        while len(self.terms) > mark:
            symbol, children = self.terms.pop()
            del self._memo[self._key(symbol, children)]
            for child in {self.find(c) for c in children}:
                self._parents[child].pop()
            self._computed.pop(len(self.terms), None)
            self._free -= self._is_free(symbol)
            for column in (self._above, self._facts, self._parents, self._members, self._distinct):
                column.pop()

    def spelling(self, term: int) -> TermSpelling:
        """The term as what was built last spells it."""
        return self._spelled.get(term, term)

    def spell_output(self, spelled: TermSpelling, port: int) -> TermSpelling:
        """One output of a term that has several, spelled so."""
        return self.spell(self._symbol(TermSymbol(PROJECTION, Attrs(index=port))), (spelled,))

    def spell(self, symbol: int, spellings: Sequence[TermSpelling]) -> TermSpelling:
        """The term that applies a symbol to these, spelled so. It must exist."""
        children = [s if isinstance(s, int) else s.term for s in spellings]
        term = self._memo[self._key(symbol, children)]
        if self.terms[term][1] == tuple(spellings):
            return term
        return Spelled(term, tuple(spellings), self._order(term, children))

    def make_constant(self, constant: Constant) -> int:
        """The term of a constant."""
        symbol = self._symbol(TermSymbol(CONSTANT, Attrs(value=constant)))
        term = self._memo.get((symbol, ()))
        return self._term(symbol, (), fact_of(constant)) if term is None else term

    def call(self, op: str, inputs: Sequence[int | None], attrs: Attrs, facts: Sequence[Fact]) -> tuple[int, ...]:
        """The outputs of an op applied to terms. Raises Full."""
        only = None if ops.is_pure(op, attrs) else len(self.terms)
        return self._apply(self._symbol(TermSymbol(op, ops.canonical(op, attrs), len(facts), only)), inputs, facts)

    def _apply(self, symbol: int, inputs: Sequence[int | None], facts: Sequence[Fact]) -> tuple[int, ...]:
        arity = form(self.symbols[symbol].op, len(inputs), len(facts)).arity
        children = (*(ABSENT if v is None else v for v in inputs), *[ABSENT] * (arity - len(inputs)))
        if len(facts) == 1:
            return (self._term(symbol, children, facts[0]),)
        together = self._term(symbol, children, Fact(is_const=all(f.is_const for f in facts)))
        return tuple(
            self._term(self._symbol(TermSymbol(PROJECTION, Attrs(index=i))), (together,), fact)
            for i, fact in enumerate(facts)
        )

    def _symbol(self, symbol: TermSymbol) -> int:
        index = self._symbol_ids.setdefault(symbol, len(self.symbols))
        if index == len(self.symbols):
            self.symbols.append(symbol)
            self._unordered.append(ops.is_commutative(symbol.op))
        return index

    def _key(self, symbol: int, children: Sequence[int]) -> _TermKey:
        names = [self.find(c) for c in children]
        if self._unordered[symbol]:
            names.sort()
        return symbol, tuple(names)

    def _is_free(self, symbol: int) -> bool:
        return self.symbols[symbol].op in (PROJECTION, "_")

    def _term(self, symbol: int, children: tuple[int, ...], fact: Fact) -> int:
        key = self._key(symbol, children)
        term = self._memo.get(key)
        if term is None:
            if self.originals and self.size >= self.limit and not self._is_free(symbol):
                raise Full
            term = len(self.terms)
            self._memo[key] = term
            self.terms.append((symbol, children))
            self._above.append(term)
            self._facts.append(fact)
            self._parents.append([])
            self._members.append([term])
            self._distinct.append(1)
            self._free += self._is_free(symbol)
            for child in set(key[1]):
                self._parents[child].append(term)
        spelled = tuple([self._spelled.get(c, c) for c in children])
        if spelled != self.terms[term][1]:
            self._spelled[term] = Spelled(term, spelled, self._order(term, children))
        return term

    def _order(self, term: int, children: Sequence[int]) -> tuple[int, ...] | None:
        """Which child of the term is equal to each of these, where that is not the one at the same position."""
        current, wanted = ([self.find(c) for c in side] for side in (self.terms[term][1], children))
        if current == wanted:
            return None
        left = list(range(len(current)))
        return tuple(left.pop(next(i for i, o in enumerate(left) if current[o] == c)) for c in wanted)

    # -- joining

    def union(self, a: int, b: int, reason: Reason) -> bool:
        """Make the classes of two terms one, and all that become congruent by it; false where they were one.

        Raises Contradiction, before anything is changed, where the two cannot be equal.
        """
        if self.find(a) == self.find(b):
            return False
        why = contradiction(self.fact(a), self.fact(b))
        if why is not None:
            raise Contradiction(why)
        self._join(a, b, reason)
        while self._moved or self._sharpened:
            while self._moved:
                self._restore(self._moved.popleft())
            if self._sharpened:
                self._infer_above(self._sharpened.popleft())
        return True

    def _join(self, a: int, b: int, reason: Reason) -> None:
        left, right = sorted((self.find(a), self.find(b)))
        self.provenance.connect(a, b, reason)
        self.unions.append((a, b))
        self._above[right] = left
        self.renamed.add(right)
        self.touched.update(map(self.form, self._members[right]))
        self.touched.update(map(self.form, self._parents[right]))
        if self._facts[left].is_const or self._facts[right].is_const:
            self.touched.add(CONSTANTS)
        self._moved.extend(self._parents[right])
        self._parents[left] += self._parents[right]
        self._members[left] += self._members[right]
        self._distinct[left] += self._distinct[right]
        self._computed.pop(left, None)
        facts = self._facts[left], self._facts[right]
        self._facts[left] = sharper(*facts)
        if any(fact != self._facts[left] for fact in facts):
            self.improved.add(left)
            self._sharpened.append(left)

    def _restore(self, term: int) -> None:
        """Join a term, one of whose children has a new class, with the term that it has become congruent to."""
        if term in self._duplicates:
            return
        key = self._key(*self.terms[term])
        other = self._memo.setdefault(key, term)
        if other == term:
            return
        first, second = sorted((term, other))
        self._memo[key] = first
        self._duplicates.add(second)
        self._distinct[self.find(second)] -= 1
        if self.find(first) != self.find(second):
            if (why := contradiction(self.fact(first), self.fact(second))) is not None:
                self.contradictions.append(why)
            self._join(first, second, Congruent(self._order(first, self.terms[second][1])))

    def _infer_above(self, name: int) -> None:
        """Infer again what is made from a class of which more is known."""
        for term in self._parents[self.find(name)]:
            index, children = self.terms[term]
            symbol = self.symbols[index]
            if term in self._duplicates or symbol.op == PROJECTION:
                continue
            inputs = trimmed(symbol.op, [None if c == ABSENT else self.fact(c) for c in children])
            try:
                facts = infer.infer_node(symbol.op, symbol.attrs, inputs, symbol.n_outputs, self.opset)
            except GraphoptError:
                continue  # what was known still holds
            for output, fact in zip(self.outputs(term), facts, strict=True):
                self._learn(output, fact)

    def outputs(self, term: int) -> Sequence[int]:
        """The terms of the outputs of a term."""
        n = self.symbols[self.terms[term][0]].n_outputs
        if n == 1:
            return (term,)
        indices = (self._symbol(TermSymbol(PROJECTION, Attrs(index=i))) for i in range(n))
        return [self._memo[self._key(index, (term,))] for index in indices]

    def _learn(self, term: int, fact: Fact) -> None:
        name = self.find(term)
        before = self._facts[name]
        self._facts[name] = sharper(before, fact)
        if self._facts[name] != before:
            self.improved.add(name)
            self._sharpened.append(name)

    # -- constants

    def _evaluated(self, name: int, depth: int) -> Constant | None:
        fact = self._facts[name]
        if fact.constant is not None or not fact.is_const:
            return fact.constant
        if name not in self._computed:
            small = isinstance(fact.size, int) and fact.size <= COMPUTED
            self._computed[name] = self._evaluate(name, depth) if small and depth else None
        return self._computed[name]

    def _evaluate(self, name: int, depth: int) -> Constant | None:
        """Evaluate the first term of a class; its children are earlier terms."""
        from graphopt.ir.evaluate import EvaluationError, evaluate

        index, children = self.terms[name]
        port = self.symbols[index].attrs["index"] if self.symbols[index].op == PROJECTION else 0
        if self.symbols[index].op == PROJECTION:
            index, children = self.terms[self.find(children[0])]
        symbol = self.symbols[index]
        inputs = [None if c == ABSENT else self._evaluated(self.find(c), depth - 1) for c in children]
        if symbol.only is not None or any(i is None and c != ABSENT for i, c in zip(inputs, children, strict=True)):
            return None
        try:
            outputs = evaluate(symbol.op, symbol.attrs, trimmed(symbol.op, inputs), symbol.n_outputs, self.opset)
        except EvaluationError:
            return None
        return outputs[port] if isinstance(port, int) else None


def contradiction(a: Fact, b: Fact) -> str | None:
    """Why one value cannot have both facts, in words; None where it can."""
    if a.type is None or b.type is None or a.type == b.type:
        return None
    if not (isinstance(a.type, TensorType) and isinstance(b.type, TensorType)) or a.dtype != b.dtype:
        return f"one side is {a.type}, the other {b.type}"
    if a.shape is None or b.shape is None:
        return None
    if len(a.shape) != len(b.shape) or any(
        isinstance(m, int) and isinstance(n, int) and m != n for m, n in zip(a.shape, b.shape, strict=True)
    ):
        return f"one side is {a.type}, the other {b.type}"
    return None


def _symbol_of(node: Node) -> TermSymbol:
    attrs = ops.canonical(node.op, node.attrs)
    shared = node.op != INPUT and not node.bodies and ops.is_pure(node.op, node.attrs)
    return TermSymbol(node.op, attrs, node.n_outputs, None if shared else node.id)
