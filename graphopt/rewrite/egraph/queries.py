"""Queries of the e-graph: the left side of a rule as a conjunction of rows, one for each call of the pattern.

What a pattern leaves open is written out here as several queries: alternatives, op variables, and how
many inputs of a variadic op each starred variable takes. Only over *forms*, the ops and arities that
occur: a rule whose ops do not occur costs nothing. Attributes and guards are not part of a query;
they are looked at when its rows are read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain, combinations_with_replacement, islice, permutations
from typing import NamedTuple

from graphopt.frozen import dataclass
from graphopt.ir import ops
from graphopt.rewrite.egraph.egglog import ABSENT, Atom
from graphopt.rewrite.match.build import family
from graphopt.rewrite.rule.rule import (
    AnyOf,
    CallPattern,
    FunctionCall,
    Lit,
    Literal,
    NameRef,
    Rule,
    Series,
    Term,
    VarPattern,
    calls,
    variables,
)

ARRANGEMENTS = 64
"""A call of a variadic op is written out in at most this many ways."""
WIDEST = 256
"""Calls of more children are not looked for: to write their queries would take longer than they are worth."""
LITERAL = "literal"
"""The relation between the number of a literal and the classes that it matches."""
OUTPUT = "output"
"""The constructor of the outputs of an e-node that has several."""
NOBODY = "nobody"
"""The variable that stands for the absent input."""


@dataclass(frozen=True, order=True)
class OpForm:
    """A way in which an op occurs: with so many children (absent ones included), and with one or several outputs."""

    op: str
    arity: int
    several: bool = False

    @cached_property
    def table(self) -> str:
        """The name of the constructor; made of characters that mean nothing to egglog."""
        return f"{'several' if self.several else 'one'} {self.arity} {self.op.encode().hex()}"


def table_of_literal(number: object) -> str:
    """A name for the part of the literals' relation that is about one of them."""
    return f"{LITERAL} {number}"


def form(op: str, n_inputs: int, n_outputs: int) -> OpForm:
    """The form of a call. Ops of fixed arity are filled up with absent inputs, so that one pattern fits all."""
    arity = ops.max_inputs(op) if ops.variadic_input(op) is None else None
    return OpForm(op, max(n_inputs, arity or 0), n_outputs > 1)


@dataclass(frozen=True, slots=True)
class Matched:
    """A call of the pattern in a query, and the variables that stand for its parts."""

    call: CallPattern
    form: OpForm
    symbol: str
    node: str
    value: str
    """The output that the pattern asks for: ``node`` itself, unless that has several."""
    children: tuple[str, ...]


@dataclass(frozen=True)
class Query:
    """One way in which a rule's left side can occur."""

    rule: Rule
    atoms: tuple[Atom, ...]
    calls: tuple[Matched, ...]
    """Outermost first, in the order of the pattern."""
    roots: tuple[str, ...]
    values: tuple[tuple[str, str | tuple[str, ...]], ...]
    """The variable, or several of them, that each name of the pattern stands for."""
    required: tuple[str, ...]
    """Variables that may not stand for the absent input."""

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """All variables, roots first, each once."""
        names = [
            *self.roots,
            *(v for m in self.calls for v in (m.symbol, m.node, m.value, *m.children)),
            *(v for _, bound in self.values for v in ((bound,) if isinstance(bound, str) else bound)),
        ]
        return tuple(n for n in dict.fromkeys(names) if n != NOBODY)

    @property
    def forms(self) -> frozenset[OpForm]:
        """The forms that the query looks for."""
        return frozenset(m.form for m in self.calls)

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """What its rows are joined from: tables, and of the literals each by itself."""
        names = (table_of_literal(a.arguments[0]) if a.table == LITERAL else a.table for a in self.atoms)
        return tuple(dict.fromkeys(n for n in names if n != ABSENT))

    @cached_property
    def in_turn(self) -> tuple[Atom, ...]:
        """The atoms from the widest on, each after one that it shares a variable with where there is one."""
        by_variable: dict[str, list[int]] = {}
        for i, atom in enumerate(self.atoms):
            for name in _variables(atom):
                by_variable.setdefault(name, []).append(i)
        left = dict.fromkeys(sorted(range(len(self.atoms)), key=lambda i: (-len(self.atoms[i].arguments), i)))
        ordered: list[Atom] = []
        while left:
            queue = [next(iter(left))]
            for i in queue:
                if i in left:
                    del left[i]
                    ordered.append(self.atoms[i])
                    queue += [near for name in _variables(self.atoms[i]) for near in by_variable[name] if near in left]
        return tuple(ordered)


def _variables(atom: Atom) -> list[str]:
    names = (*atom.arguments, atom.output)
    return [name for name in names if isinstance(name, str) and name != NOBODY]


def queries(rule: Rule, forms: Collection[OpForm], literals: dict[Literal, int]) -> Iterator[Query]:
    """The left side of a rule over the forms that occur. Literals get a number in ``literals`` where they have none."""
    yield from queries_by_op(rule, by_op(forms), literals)


def by_op(forms: Collection[OpForm]) -> dict[str, list[OpForm]]:
    """The forms that are looked for, in order, by op."""
    grouped: dict[str, list[OpForm]] = {}
    for form in sorted(f for f in forms if f.arity <= WIDEST):
        grouped.setdefault(form.op, []).append(form)
    return grouped


def named_ops(rule: Rule) -> frozenset[str] | None:
    """The ops that the left side of a rule names, those of alternatives included; None where it has an op variable."""
    named: set[str] = set()
    for term in rule.lhs:
        for call in calls(term):
            if call.is_variable:
                return None
            named.add(call.op)
    return frozenset(named)


def queries_by_op(rule: Rule, by_op: dict[str, list[OpForm]], literals: dict[Literal, int]) -> Iterator[Query]:
    """``queries``, for forms by op."""
    if all(set(by_op) & needed for term in rule.lhs for needed in _needed(term)) and _hangs_together(rule):
        yield from _QueryWriter(rule, by_op, literals).run()


def _hangs_together(rule: Rule) -> bool:
    """Whether each root shares a variable with those before it, as the directed matcher wants it; and whether a family
    of roots stands alone. Roots that share nothing would match in all combinations."""
    if len(rule.lhs) == 1:
        return True
    shared: set[str] = set()
    for term in rule.lhs:
        names = {v.name for v in variables(term)}
        if shared and not shared & names:
            return False
        shared |= names
    return not any(map(family, rule.lhs))


def _needed(term: Term) -> Iterator[frozenset[str]]:
    """For each call that every match has, the ops of which one must occur."""
    if isinstance(term, CallPattern):
        if not term.is_variable:
            yield frozenset([term.op])
        for part in term.inputs:
            yield from _needed(part)


@dataclass(frozen=True, slots=True)
class _InputTerm:
    """What stands at one input of a call: a term, alone or as a member of a family."""

    term: Term
    member: int | None = None


@dataclass(frozen=True, slots=True)
class _Arrangement:
    """One way in which the terms of a call can stand at its inputs; None is an absent input."""

    parts: tuple[_InputTerm | None, ...]
    sizes: tuple[tuple[str, int], ...] = ()
    """How many values each starred name then stands for."""


_BindingKey = tuple[str, int | None]


class _PartialQuery(NamedTuple):
    """A query as far as it is written. ``bound`` maps each name of the pattern, with its position where it is a member
    of a starred variable, to a variable of the query; ``ops`` each op variable to an op. A named tuple, since a query
    is written in tens of steps and to replace a field of one takes a third of the time."""

    atoms: tuple[Atom, ...] = ()
    calls: tuple[Matched, ...] = ()
    bound: tuple[tuple[_BindingKey, str], ...] = ()
    sizes: tuple[tuple[str, int], ...] = ()
    ops: tuple[tuple[str, str], ...] = ()
    required: tuple[str, ...] = ()
    n_variables: int = 0

    def fresh(self, letter: str) -> tuple[_PartialQuery, str]:
        """A variable that is not in use."""
        return self._replace(n_variables=self.n_variables + 1), f"{letter}{self.n_variables}"

    def bind(self, name: str, member: int | None, variable: str) -> _PartialQuery:
        """The name of the pattern stands for the variable."""
        return self._replace(bound=(*self.bound, ((name, member), variable)))

    def sized(self, sizes: Sequence[tuple[str, int]]) -> _PartialQuery | None:
        """Starred names stand for so many values; None where one already stands for another number."""
        bound = dict(self.sizes)
        if any(bound.setdefault(name, n) != n for name, n in sizes):
            return None
        return self._replace(sizes=tuple(bound.items()))


class _QueryWriter:
    """Writes all queries of one rule."""

    def __init__(self, rule: Rule, forms: dict[str, list[OpForm]], literals: dict[Literal, int]) -> None:
        self.rule = rule
        self.forms = forms
        self.literals = literals

    def run(self) -> Iterator[Query]:
        for state, roots in self.roots(_PartialQuery(), self.rule.lhs):
            values: dict[str, str | tuple[str, ...]] = {name: () for name, _ in state.sizes}
            for (name, member), variable in state.bound:
                values[name] = variable if member is None else (*values.get(name, ()), variable)
            yield Query(self.rule, state.atoms, state.calls, roots, tuple(values.items()), state.required)

    def roots(self, state: _PartialQuery, terms: Sequence[Term]) -> Iterator[tuple[_PartialQuery, tuple[str, ...]]]:
        if not terms:
            yield state, ()
            return
        for extended, root in self.term(state, terms[0], 0 if family(terms[0]) else None):
            for done, others in self.roots(extended, terms[1:]):
                yield done, (root, *others)

    # -- terms

    def term(self, state: _PartialQuery, term: Term, member: int | None) -> Iterator[tuple[_PartialQuery, str]]:
        """The query with the term added, and the variable of its class."""
        match term:
            case VarPattern("_"):
                yield self.absent(state), NOBODY
            case VarPattern():
                yield self.variable(state, term, member)
            case Literal():
                number = self.literals.setdefault(term, len(self.literals))
                extended, variable = state.fresh("v")
                yield extended._replace(atoms=(*extended.atoms, Atom(LITERAL, (number, variable)))), variable
            case AnyOf(options=options):
                for option in options:
                    yield from self.term(state, option, member)
            case CallPattern():
                for form in self.candidates(state, term):
                    yield from self.call(state, term, form, member)

    def absent(self, state: _PartialQuery) -> _PartialQuery:
        atom = Atom(ABSENT, (), NOBODY)
        return state if atom in state.atoms else state._replace(atoms=(atom, *state.atoms))

    def variable(self, state: _PartialQuery, var: VarPattern, member: int | None) -> tuple[_PartialQuery, str]:
        key = (var.name, member if var.starred else None)
        variable = dict(state.bound).get(key)
        if variable is None:
            state, variable = state.fresh("v")
            state = state.bind(*key, variable)
        if not var.optional and variable not in state.required:
            state = state._replace(required=(*state.required, variable))
        return state, variable

    # -- calls

    def candidates(self, state: _PartialQuery, call: CallPattern) -> list[OpForm]:
        """The forms that a call can have."""
        if not call.is_variable:
            return self.forms.get(call.op, [])
        bound = dict(state.ops).get(call.op)
        allowed = [bound] if bound is not None else sorted(self.allowed(call.op) & set(self.forms))
        return [f for op in allowed for f in self.forms[op] if not f.several and ops.is_pure(op)]

    def allowed(self, variable: str) -> frozenset[str]:
        """The ops that the guards leave to an op variable."""
        allowed = frozenset(self.forms)
        for guard in self.rule.where:
            match guard:
                case FunctionCall("in", (NameRef(name), NameRef(kind))) if name == variable and kind in ops.SETS:
                    allowed &= ops.SETS[kind]
                case FunctionCall("in", (NameRef(name), Series(items))) if name == variable:
                    allowed &= {item.value for item in items if isinstance(item, Lit) and isinstance(item.value, str)}
        return allowed

    def call(
        self, state: _PartialQuery, call: CallPattern, form: OpForm, member: int | None
    ) -> Iterator[tuple[_PartialQuery, str]]:
        if call.output and not form.several:
            return
        state, symbol = state.fresh("s")
        state, node = state.fresh("v")
        value = node
        if form.several:
            state, value = state.fresh("v")
            state = state._replace(atoms=(*state.atoms, Atom(OUTPUT, (call.output, node), value)))
        if call.is_variable:
            state = state._replace(ops=tuple({**dict(state.ops), call.op: form.op}.items()))
        if call.name is not None:
            state = state.bind(call.name, member, value)
        index = len(state.calls)
        state = state._replace(calls=(*state.calls, Matched(call, form, symbol, node, value, ())))
        for arrangement in _arrangements(call, form):
            sized = state.sized(arrangement.sizes)
            if sized is None:
                continue
            for extended, children in self.parts(sized, arrangement.parts, member):
                calls = list(extended.calls)
                calls[index] = replace(calls[index], children=children)
                atom = Atom(form.table, (symbol, *children), node)
                yield extended._replace(atoms=(*extended.atoms, atom), calls=tuple(calls)), value

    def parts(
        self, state: _PartialQuery, parts: Sequence[_InputTerm | None], member: int | None
    ) -> list[tuple[_PartialQuery, tuple[str, ...]]]:
        """The query with all inputs of a call added, and their variables. A call may have very many."""
        extended: list[tuple[_PartialQuery, tuple[str, ...]]] = [(state, ())]
        for part in parts:
            extended = [(done, (*before, v)) for one, before in extended for done, v in self.part(one, part, member)]
        return extended

    def part(
        self, state: _PartialQuery, part: _InputTerm | None, member: int | None
    ) -> Iterator[tuple[_PartialQuery, str]]:
        if part is None:
            yield self.absent(state), NOBODY
        else:
            yield from self.term(state, part.term, member if part.member is None else part.member)


def _arrangements(call: CallPattern, form: OpForm) -> Iterator[_Arrangement]:
    start = None if call.is_variable else ops.variadic_input(form.op)
    fixed = call.inputs if start is None else call.inputs[:start]
    head = tuple(map(_InputTerm, fixed))
    if start is None:
        if len(head) <= form.arity:
            yield _Arrangement((*head, *[None] * (form.arity - len(head))))
        return
    places = form.arity - start
    tail = _tails(call.inputs[start:], places, ops.is_commutative(form.op) and places > 2)
    for arrangement in islice(tail, ARRANGEMENTS):
        yield replace(arrangement, parts=(*head, *arrangement.parts))


def _tails(terms: Sequence[Term], places: int, unordered: bool) -> Iterator[_Arrangement]:
    """The ways in which terms can stand at the places of a variadic input: those that stand for several take what
    the others leave, in order. Of two places, the e-graph has both orders already."""
    single = [t for t in terms if not family(t)]
    several = [t for t in terms if family(t)]
    for sizes in _sums(places - len(single), len(several)):
        if any(n == 0 and isinstance(t, CallPattern) for t, n in zip(several, sizes, strict=True)):
            continue
        runs = [[_InputTerm(t, i) for i in range(n)] for t, n in zip(several, sizes, strict=True)]
        named = tuple((name, n) for t, n in zip(several, sizes, strict=True) for name in family(t))
        if not unordered:
            rest = iter(runs)
            yield _Arrangement(tuple(p for t in terms for p in (next(rest) if family(t) else [_InputTerm(t)])), named)
            continue
        for chosen in permutations(range(places), len(single)):
            others = chain.from_iterable(runs)
            at = dict(zip(chosen, single, strict=True))
            yield _Arrangement(tuple(_InputTerm(at[i]) if i in at else next(others) for i in range(places)), named)


def _sums(total: int, n: int) -> Iterator[tuple[int, ...]]:
    """All ways to write a number as a sum of ``n`` numbers."""
    if n == 0:
        if total == 0:
            yield ()
        return
    for cuts in combinations_with_replacement(range(total + 1), n - 1):
        yield tuple(b - a for a, b in zip((0, *cuts), (*cuts, total), strict=True))
