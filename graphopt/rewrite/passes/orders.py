"""Axis order assignment: the orders in which values are kept, chosen for the whole graph so that few transposes are
left.

Every value is kept in some order of its axes. Transposes say which orders come into question; ops hand them on to what
they read and make, as far as they can be computed on operands in another order. Which value is kept in which orders
is then one problem of the kind that extraction solves: to *make* a value in an order by its op, from operands that
are *had* in the orders that this takes, or to have it by transposing what was made. What is cheapest is found for
all values together, so that no sequence of local steps has to lead there, and nothing is done where nothing is gained.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from functools import partial

from graphopt.ir import ops
from graphopt.ir.bounds import fact_of
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Attrs, Node, Value
from graphopt.rewrite.extract.cost import BATCH, CostModel, stated_sizes
from graphopt.rewrite.extract.dag import Option, Problem, price
from graphopt.rewrite.extract.profiles import Profiles
from graphopt.rewrite.guards.functions import moves_only_ones
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.passes.axis_orders import (
    AxisForm,
    AxisOrder,
    ReorderedCall,
    compose,
    form_of,
    identity,
    inverse,
    moved_fact,
    target,
    turn,
)
from graphopt.rewrite.passes.native import NativePass
from graphopt.rewrite.passes.reorder import OrderMisfit, ReorderedNode, ReorderPlan, TransposedValue, reorder
from graphopt.rewrite.rule.rule import Soundness
from graphopt.target import PORTABLE

MOST = 4
"""Orders of one value that are considered, its own included."""

GAIN = 1e-3
"""By which part a graph must get cheaper at least for its orders to be changed."""

DEAR = 2e-5
"""Seconds by which every transpose is dearer where their number counts first."""

VIEWS = frozenset({"Squeeze", "Unsqueeze", "Reshape", "Flatten"})
"""Ops that only rename axes."""

MANY = 32
"""Examples that count as many: what pays for one at a time is not chosen where it costs more for these."""

FEW = 64
"""Elements of a constant operand that forms may look at."""


def choose_orders(space: Workspace) -> bool:
    """Keep values in the orders that make the graph cheapest; whether that changed anything.

    Where views follow each other, rules make them one first: until then, orders that seem equally cheap are not.
    """
    if not any(node.op == "Transpose" for node in space.graph.nodes()):
        return False
    if any(_is_view_of_view(space, node) for node in space.graph.nodes()):
        return False
    for surcharge in (0.0, DEAR):  # where that takes more calls than there were, calls are made dear
        choice = _OrderChoice(space, surcharge)
        plan = choice.plan()
        if plan is None:
            return False
        if not choice.takes_more_calls(plan):
            return _is_rebuilt(space, plan)
    return False


def _is_rebuilt(space: Workspace, plan: ReorderPlan) -> bool:
    """Rebuild the graph as planned; whether that changed it."""
    first = space.graph.next_id
    try:
        return reorder(space, plan)
    except OrderMisfit:
        space.undo(first)
        return False


def _is_view_of_view(space: Workspace, node: Node) -> bool:
    """Whether a node only renames axes of what only renames axes, and could do both at once."""
    source = node.inputs[0] if node.op in VIEWS else None
    shape = space.fact(node.outputs[0]).shape
    if source is None or shape is None or space.graph.node(source.node).op not in VIEWS:
        return False
    return target(shape) is not None


class _OrderChoice:
    """One look at one graph."""

    def __init__(self, space: Workspace, surcharge: float) -> None:
        self.space, self.graph, self.surcharge = space, space.graph, surcharge
        self.forms: dict[int, AxisForm | None] = {}
        self.operand_facts: dict[int, list[Fact | None]] = {}
        self.spellings: dict[tuple[int, AxisOrder], ReorderedCall | None] = {}
        self.orders: dict[Value, list[AxisOrder]] = {}
        self.waiting: OrderedDict[int, None] = OrderedDict()
        self.made: dict[Value, dict[AxisOrder, tuple[Option, ...]]] = {}
        """How values are made whose node has a choice."""
        self.names: dict[object, int] = {}
        self.keys: list[tuple[str, Value, AxisOrder]] = []
        self.runs: dict[tuple[Value, AxisOrder], Option] = {}
        """How nodes of several outputs are run: named by the first of these."""
        self.cost_model = CostModel(PORTABLE, stated_sizes(self.graph), profiles=self.batches())

    def batches(self) -> Profiles:
        """One example and many, where that is open; weighted so that the graph costs the same in both."""
        stated = stated_sizes(self.graph)
        if not stated:
            return ()
        models = [CostModel(PORTABLE, dict.fromkeys(stated, n)) for n in (BATCH, MANY)]
        one, many = (sum(map(partial(self.node_cost, model), self.graph.nodes())) for model in models)
        return (models[0].sizes, 0.5), (models[1].sizes, 0.5 * one / many if many else 0.5)

    def node_cost(self, model: CostModel, node: Node) -> float:
        """What a node costs as it is."""
        results = [self.space.fact(v) for v in node.outputs]
        if all(fact.is_const for fact in results):
            return 0.0
        return model.cost(node.op, node.attrs, self.facts(node), results).seconds

    def plan(self) -> ReorderPlan | None:
        """What makes each value in each order in which it is had; None where nothing is gained."""
        self.find_orders()
        before = sum(map(self.make, self.graph.order()))
        return self.solve(before) if self.made else None

    # -- what is known

    def facts(self, node: Node) -> list[Fact | None]:
        """What is known of the operands of a node, with the elements of small constants; found once."""
        if node.id not in self.operand_facts:
            self.operand_facts[node.id] = [None if v is None else self.fact(v) for v in node.inputs]
        return self.operand_facts[node.id]

    def fact(self, value: Value) -> Fact:
        """What is known of a value, with its elements where it is a small constant."""
        fact = self.space.fact(value)
        if fact.is_const and fact.constant is None and isinstance(fact.size, int) and fact.size <= FEW:
            return replace(fact, constant=self.space.constant(value))
        return fact

    def form(self, node: Node) -> AxisForm | None:
        """The form of a node, found once."""
        if node.id not in self.forms:
            results = [self.space.fact(v) for v in node.outputs]
            fits = all(f.shape is not None and f.dtype is not None and not f.is_const for f in results)
            self.forms[node.id] = form_of(node, self.facts(node), results) if fits else None
        return self.forms[node.id]

    # -- which orders come into question

    def find_orders(self) -> None:
        """Hand on the orders that transposes make, up and down the graph."""
        for node in self.graph.order():
            perm = self.perm(node)
            if perm is not None:
                self.offer(node.inputs[0], perm)
                self.offer(node.outputs[0], inverse(perm))
        while self.waiting:
            node = self.graph.node(self.waiting.popitem(last=False)[0])
            perm, form = self.perm(node), self.form(node)
            if perm is not None:
                for p in self.orders_of(node.inputs[0]):
                    self.offer(node.outputs[0], compose(inverse(perm), p))
                for q in self.orders_of(node.outputs[0]):
                    self.offer(node.inputs[0], compose(perm, q))
            elif form is not None:
                for p, q in self.ways(node, form):
                    for i, order in zip(form.carried, form.orders(self.facts(node), p), strict=True):
                        self.offer(node.inputs[i], order)
                    for value in node.outputs:
                        self.offer(value, q)

    def perm(self, node: Node) -> AxisOrder | None:
        """The permutation of a Transpose of a value that is no constant; None of any other node.

        One that the right side of a product needs is left to the product, which runtimes have transposed for nothing.
        """
        if node.op != "Transpose" or node.inputs[0] is None or self.space.fact(node.inputs[0]).is_const:
            return None
        if self.is_right_side(node):
            return None
        rank = self.space.fact(node.inputs[0]).rank
        perm = None if rank is None else ops.attribute(node.op, node.attrs, "perm", rank)
        return tuple(int(k) for k in perm) if isinstance(perm, tuple) else None  # type: ignore[arg-type]

    def is_right_side(self, node: Node) -> bool:
        """Whether a node transposes the right sides of products of two values, and nothing else."""
        perm = node.attrs.get("perm")
        if not isinstance(perm, tuple) or perm[:-2] != identity(len(perm) - 2):
            return False
        readers = [self.graph.node(user) for user, _ in self.graph.users(node.outputs[0])]
        return bool(readers) and not self.graph.is_output(node.outputs[0]) and all(map(self.is_product, readers))

    def is_product(self, node: Node) -> bool:
        """Whether a node multiplies two matrices neither of which is constant."""
        return node.op == "MatMul" and all(v is not None and not self.space.fact(v).is_const for v in node.inputs)

    def offer(self, value: Value | None, order: AxisOrder | None) -> None:
        """Let an order of a value come into question."""
        if value is None or order is None:
            return
        fact = self.space.fact(value)
        if fact.is_const or fact.rank != len(order):
            return
        candidates = self.orders.setdefault(value, [identity(len(order))])
        if order not in candidates and len(candidates) < MOST:
            candidates.append(order)
            self.waiting.update(dict.fromkeys((value.node, *self.graph.readers(value.node))))

    def orders_of(self, value: Value | None) -> list[AxisOrder]:
        """The orders of a value that come into question, its own first."""
        if value is None:
            return []
        rank = self.space.fact(value).rank
        return self.orders.get(value) or ([] if rank is None else [identity(rank)])

    def ways(self, node: Node, form: AxisForm) -> list[tuple[AxisOrder, AxisOrder]]:
        """Orders of operands and results in which a node may be computed, its own first."""
        offered = [identity(form.rank)]
        for i in form.carried:
            offered += [p for p in self.orders_of(node.inputs[i]) if len(p) == form.rank]
        for value in node.outputs:
            offered += [p for q in self.orders_of(value) if (p := form.backward(q)) is not None]
        pairs = ((p, form.forward(p)) for p in dict.fromkeys(offered))
        return [(p, q) for p, q in pairs if q is not None and self.spelling(node, form, p, q) is not None]

    def spelling(self, node: Node, form: AxisForm, p: AxisOrder, q: AxisOrder) -> ReorderedCall | None:
        """The call in an order, where the model's opset has it; in its own, the node as it is. Found once."""
        if (node.id, p) not in self.spellings and p == identity(form.rank):
            unmoved = tuple(None if v is None else i for i, v in enumerate(node.inputs))
            self.spellings[node.id, p] = ReorderedCall(node.op, node.attrs, unmoved)
        if (node.id, p) not in self.spellings:
            spelling = form.spell(p, q)
            if spelling is not None:
                operands = self.operands(node, form, p, spelling)
                spelling = None if ops.refusal(spelling.op, spelling.attrs, operands, self.graph.opset) else spelling
            self.spellings[node.id, p] = spelling
        return self.spellings[node.id, p]

    def operands(self, node: Node, form: AxisForm, p: AxisOrder, spelling: ReorderedCall) -> list[Fact | None]:
        """What is known of the operands of a call in an order."""
        orders = dict(zip(form.carried, form.orders(self.facts(node), p), strict=True))
        facts: list[Fact | None] = []
        for operand in spelling.operands:
            if isinstance(operand, int):
                value = node.inputs[operand]
                facts.append(None if value is None else moved_fact(self.space.fact(value), orders.get(operand)))
            else:
                facts.append(None if operand is None else fact_of(operand))
        return facts

    # -- what there is to choose from

    def make(self, node: Node) -> float:
        """Note how the results of a node can be made, if there is a choice; what it costs as it is."""
        perm, form = self.perm(node), self.form(node)
        if perm is not None:
            x, y = node.inputs[0], node.outputs[0]
            assert x is not None
            self.made[y] = {
                q: (Option(0.0, (self.name("had", x, source),), ReorderedNode(node.id, source)),)
                for q in self.orders_of(y)
                for source in [compose(perm, q)]
            }
            return self.turning(x, identity(len(perm)), perm) - self.surcharge
        ways = [] if form is None else self.ways(node, form)
        if form is None or len(ways) < 2:
            return 0.0
        for value in node.outputs:
            self.made[value] = {}
        for p, q in ways:
            spelling = self.spelling(node, form, p, q)
            assert spelling is not None
            option = Option(self.cost(node, form, p, q), self.needs(node, form, p), ReorderedNode(node.id, p, spelling))
            if node.n_outputs > 1:
                self.runs[node.outputs[0], p] = option
                option = Option(0.0, (self.name("run", node.outputs[0], p),), option.meaning)
            for value in node.outputs:
                self.made[value][q] = (*self.made[value].get(q, ()), option)
        return self.cost(node, form, *ways[0])

    def needs(self, node: Node, form: AxisForm, p: AxisOrder) -> tuple[int, ...]:
        """What a node reads that is computed in an order of its operands."""
        orders = dict(zip(form.carried, form.orders(self.facts(node), p), strict=True))
        names: list[int] = []
        for i, value in enumerate(node.inputs):
            if value is not None and not self.space.fact(value).is_const:
                rank = self.space.fact(value).rank
                names.append(self.name("had", value, orders.get(i) or identity(rank or 0)))
        return tuple(dict.fromkeys(names))

    def cost(self, node: Node, form: AxisForm, p: AxisOrder, q: AxisOrder) -> float:
        """What a node costs in an order: no less than in its own, so that only transposes are worth a change."""
        unmoved = identity(form.rank)
        cost = self.call_cost(node, form, p, q)
        return cost if p == unmoved else max(cost, self.call_cost(node, form, unmoved, identity(len(q))))

    def call_cost(self, node: Node, form: AxisForm, p: AxisOrder, q: AxisOrder) -> float:
        spelling = self.spelling(node, form, p, q)
        assert spelling is not None
        results = [moved_fact(self.space.fact(v), q) for v in node.outputs]
        operands = self.operands(node, form, p, spelling)
        return self.cost_model.cost(spelling.op, spelling.attrs, operands, results).seconds

    def name(self, kind: str, value: Value, order: AxisOrder) -> int:
        """The class of the problem that stands for a value *had* or *made* in an order, or for a node *run* in it."""
        key = kind, value, order
        if key not in self.names:
            self.names[key] = len(self.keys)
            self.keys.append(key)
        return self.names[key]

    def having(self, value: Value, order: AxisOrder) -> tuple[Option, ...]:
        """How a value is had in an order: as it was made, or transposed."""
        if value not in self.made:  # it is there, in its own order
            original = identity(self.space.fact(value).rank or 0)
            cost = self.turning(value, original, order)
            return (Option(cost, (), None if order == original else TransposedValue(value, original, order)),)
        orders = self.made[value]
        options = [Option(0.0, (self.name("made", value, order),))] if order in orders else []
        for other in orders:
            if other != order:
                turned = TransposedValue(value, other, order)
                options.append(Option(self.turning(value, other, order), (self.name("made", value, other),), turned))
        return tuple(options)

    def turning(self, value: Value, source: AxisOrder, order: AxisOrder) -> float:
        """What it costs to have a value in an order that was made in another."""
        perm = turn(source, order)
        if source == order or self.space.fact(value).is_const:
            return 0.0
        before = moved_fact(
            self.space.fact(value), (*range(len(order) - len(source)), *(k + len(order) - len(source) for k in source))
        )
        after = moved_fact(before, perm)
        op, attrs = (
            ("Reshape", Attrs()) if moves_only_ones(before.shape or (), perm) else ("Transpose", Attrs(perm=perm))
        )
        return self.cost_model.cost(op, attrs, [before], [after]).seconds + self.surcharge

    # -- the choice

    def solve(self, before: float) -> ReorderPlan | None:
        """The cheapest choice, where it is cheaper than the graph as it is."""
        from graphopt.rewrite.extract.choose import SolverLimits, solve

        wanted = dict.fromkeys(v for v in self.graph.outputs if v in self.made)
        for node in self.graph.nodes():
            if not self.made.keys() & set(node.outputs):
                wanted.update(dict.fromkeys(v for v in node.inputs if v in self.made))
        roots = tuple(self.name("had", v, identity(self.space.fact(v).rank or 0)) for v in wanted)
        options: dict[int, tuple[Option, ...]] = {}
        while len(options) < len(self.keys):  # options name what they need
            kind, value, order = self.keys[len(options)]
            if kind == "had":
                alternatives = self.having(value, order)
            else:
                alternatives = (self.runs[value, order],) if kind == "run" else self.made[value][order]
            options[len(options)] = alternatives
        choice = solve(Problem(options, roots), SolverLimits()).choice
        turns = sum(isinstance(option.meaning, TransposedValue) for option in choice.values())
        if price(choice) - turns * self.surcharge >= before * (1 - GAIN):
            return None
        computed: dict[tuple[Value, AxisOrder], ReorderedNode] = {}
        turned: dict[tuple[Value, AxisOrder], TransposedValue] = {}
        for c, option in choice.items():
            kind, value, order = self.keys[c]
            if isinstance(option.meaning, TransposedValue):
                turned[value, order] = option.meaning
            elif isinstance(option.meaning, ReorderedNode) and kind == "made":
                computed[value, order] = option.meaning
        forms = {id: form for id, form in self.forms.items() if form is not None}
        return ReorderPlan(computed, turned, forms)

    def takes_more_calls(self, plan: ReorderPlan) -> bool:
        """Whether a plan turns more values, or computes more of them twice, than the graph has transposes."""
        runs = {(m.node, m.order) for m in plan.made.values() if m.spelling is not None}
        again = len(runs) - len({node for node, _ in runs})
        perms = {(n.inputs[0], perm) for n in self.graph.nodes() if (perm := self.perm(n)) is not None}
        return len(plan.turned) + again > len(perms)


ORDERS = NativePass(
    "axis-orders",
    "values are kept in the orders of axes that leave the fewest and cheapest transposes in the whole graph",
    "E2,E5,E8,E10,E12",
    Soundness.REALS,
    sweep=choose_orders,
    makes=frozenset({"Reshape", "Transpose", "Unsqueeze"}),
)
