"""What LSTM, GRU and RNN compute: what comes from the inputs for all steps at once, then one step after another.

The product of the inputs and their weights is a tensor of its own, for all steps. A step adds to it the product of the
hidden state and the recurrent weights, of which there is a transposed copy: neighbouring lanes are neighbouring
elements of the gates, and several rows of the copy are added in one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from graphopt.ir.graph import Attrs
from graphopt.lowering import compute as t
from graphopt.lowering.compute import Tensor, compute, fresh, loop, procedure
from graphopt.lowering.expressions import (
    INDEX,
    Const,
    Expr,
    apply,
    cast,
    conjunction,
    const,
    equal,
    maximum,
    minimum,
    select,
)
from graphopt.lowering.loops import Buffer, Check, For, If, LoopKind, Stmt, Store, seq
from graphopt.lowering.operators.activations import FORMULAS
from graphopt.lowering.operators.elements import integer, required, text, wide
from graphopt.lowering.operators.operation import NotLowered, Operation, Table

Activation = Callable[[Expr], Expr]
PASS = 8
"""Rows of the recurrent weights that are added in one pass over the gates."""
FEW = 4
"""Elements of the gates that are computed side by side where weights are read once."""
DEFAULTS: Mapping[str, tuple[str, ...]] = {
    "GRU": ("Sigmoid", "Tanh"),
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
    "RNN": ("Tanh",),
}
"""The activations of each direction, where none are named."""
TAKES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(["Relu", "Sigmoid", "Softplus", "Softsign", "Tanh"], ()),
    **dict.fromkeys(["Elu", "LeakyRelu", "ThresholdedRelu"], ("alpha",)),
    **dict.fromkeys(["Affine", "HardSigmoid", "ScaledTanh"], ("alpha", "beta")),
}
"""The activations that there are, and the numbers that each takes from the attributes, in turn."""


def along(extent: Expr, body: Callable[[Expr], Stmt], kind: LoopKind = "vectorized") -> Stmt:
    """A loop whose steps may be taken at once: ``along(n, lambda i: ...)``."""
    var = fresh()
    return For(var, extent, body(var), kind)


class Recurrence:
    """What the three ops have in common: sizes, where things lie, what comes from the inputs, and the steps."""

    def __init__(self, op: Operation, gates: int) -> None:
        self.op, self.gates = op, gates
        self.x, self.weights, recurrent = op.input(0), op.input(1), op.input(2)
        self.inner = wide(op.dtype())
        self.batchwise = bool(integer(op, "layout"))
        self.ways = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[text(op, "direction")]
        first, second = self.x.shape[:2]
        self.steps, self.batch = (second, first) if self.batchwise else (first, second)
        self.hidden = recurrent.shape[2]
        self.width = self.hidden * gates
        self.lengths = op.input(4) if op.has(4) else None
        self.activations = _activations(op, len(self.ways))
        clip = op.attr("clip")
        self.clip = float(clip) if isinstance(clip, (int, float)) else None
        self.is_once = self.steps == Const(1) and self.batch == Const(1) and recurrent.dtype == self.inner
        self.rows = recurrent
        if not self.is_once:  # a copy pays where it is read more than once
            shape = (recurrent.shape[0], self.hidden, self.width)
            self.rows = compute(shape, lambda d, k, n: cast(recurrent[d, n, k], self.inner), name="weights")
        self.state = Buffer("state", (self.batch, self.hidden), self.inner)
        self.sums = Buffer("sums", (self.batch, self.width), self.inner)
        self.held = Buffer("held", (Const(PASS),), self.inner, "local")

    # -- what comes from the inputs

    def projected(self, apart: int | None = None) -> Tensor:
        """The inputs times their weights, with both biases, [direction, step, batch, gates]: but only the inputs' own
        bias for the gate ``apart``."""
        x, w = self.x, self.weights

        def total(d: Expr, s: Expr, b: Expr, n: Expr) -> t.Reduction:
            k = t.reduce_axis(w.shape[2])
            value = x[b, s, k.var] if self.batchwise else x[s, b, k.var]
            return t.sum(cast(value, self.inner) * cast(w[d, n, k.var], self.inner), k)

        shape = (w.shape[0], self.steps, self.batch, self.width)
        made = compute(shape, total, name="projected")
        if not self.op.has(3):
            return made
        bias = self.op.input(3)

        def both(d: Expr, n: Expr) -> Expr:
            own, recurrent = (cast(bias[d, n + k], self.inner) for k in (Const(0), self.width))
            if apart is None:
                return own + recurrent
            inside = (n >= self.hidden * apart) & (n < self.hidden * (apart + 1))
            return select(inside, own, own + recurrent)

        biases = compute((w.shape[0], self.width), both, name="biases")
        return compute(shape, lambda d, s, b, n: made[d, s, b, n] + biases[d, n], name="biased")

    def recurrent_bias(self, d: int, n: Expr) -> Expr:
        """The bias of the recurrent weights."""
        return cast(self.op.input(3)[d, n + self.width], self.inner) if self.op.has(3) else const(0, self.inner)

    # -- parts of a step

    def clipped(self, x: Expr) -> Expr:
        """What goes into an activation."""
        return x if self.clip is None else minimum(maximum(x, const(-self.clip, self.inner)), self.clip)

    def activation(self, d: int, k: int) -> Activation:
        """The k-th activation of a direction."""
        function = self.activations[d * len(DEFAULTS[self.op.op]) + k]
        return lambda x: function(self.clipped(x))

    def each(self, body: Callable[[Expr, Expr], Stmt], width: Expr | None = None) -> Stmt:
        """For every element of the batch along the hidden axis (or one of that width)."""
        return loop(self.batch, lambda b: along(width or self.hidden, lambda n: body(b, n)))

    def added(self, d: int, source: Buffer, first: int, count: int) -> Stmt:
        """Adds ``source @ weights`` to ``count`` gates of the sums from the ``first`` on."""
        start, width = self.hidden * first, self.hidden * count
        if self.is_once:
            return self.added_once(d, source, start, width)

        def rows(k: Expr, many: int) -> Stmt:
            def held(b: Expr) -> Stmt:
                kept = [Store(self.held, (Const(u),), source[b, k + u]) for u in range(many)]
                return seq(*kept, along(width, lambda n: one(b, start + n)))

            def one(b: Expr, n: Expr) -> Stmt:
                total: Expr = self.sums[b, n]
                for u in range(many):
                    total = total + self.held[u] * self.rows[d, k + u, n]
                return Store(self.sums, (b, n), total)

            return loop(self.batch, held)

        whole = self.hidden // PASS
        parts: list[Stmt] = [] if whole == Const(0) else [loop(whole, lambda k: rows(k * PASS, PASS))]
        rest = self.hidden - whole * PASS
        if not isinstance(rest, Const):
            parts.append(loop(rest, lambda k: rows(whole * PASS + k, 1)))
        elif rest.value:
            parts.append(rows(whole * PASS, int(rest.value)))
        return seq(*parts)

    def added_once(self, d: int, source: Buffer, start: Expr, width: Expr) -> Stmt:
        """The same with the weights as they are: a few elements of the gates are reduced to side by side."""
        many = FEW if isinstance(width, Const) and width.value % FEW == 0 else 1

        def one(k: Expr, n: Expr) -> Stmt:
            total = self.sums[0, n] + source[0, k] * self.rows[d, n, k]
            return Store(self.sums, (Const(0), n), total)

        def few(i: Expr) -> Stmt:
            return along(self.hidden, lambda k: seq(*(one(k, start + i * many + u) for u in range(many))))

        return loop(width // many, few)

    def initial(self, k: int, d: int, b: Expr, n: Expr) -> Expr:
        """An initial state, the op's k-th input, or 0."""
        if not self.op.has(k):
            return const(0, self.inner)
        given = self.op.input(k)
        return cast(given[b, d, n] if self.batchwise else given[d, b, n], self.inner)

    def place(self, d: int, step: Expr, b: Expr) -> Expr:
        """Where in the sequence a step is. Behind the end of a shorter sequence it is where it is in a longer one."""
        if not self.ways[d]:
            return step
        if self.lengths is None:
            return self.steps - 1 - step
        length = cast(self.lengths[b], INDEX)
        return select(step < length, length - 1 - step, step)

    def every(self, d: int, s: Expr, b: Expr, n: Expr) -> tuple[Expr, ...]:
        """Where a hidden state stands among all of them."""
        return (b, s, Const(d), n) if self.batchwise else (s, Const(d), b, n)

    def ends(self, d: int, states: Sequence[Buffer], outputs: Sequence[Buffer]) -> Stmt:
        """The last states, written to the outputs."""

        def end(b: Expr, n: Expr) -> Stmt:
            where = (b, Const(d), n) if self.batchwise else (Const(d), b, n)
            return seq(*(Store(o, where, cast(s[b, n], o.dtype)) for s, o in zip(states, outputs, strict=False)))

        return self.each(end)

    def updated(self, d: int, step: Expr, out: Buffer, state: Callable[[Expr, Expr, Expr], Sequence[Stmt]]) -> Stmt:
        """One step of what ``state(place, b, n)`` does to each state, and the new states as an output: zeros behind the
        end of a shorter sequence, where states stay what they are."""

        def row(b: Expr) -> Stmt:
            s = self.place(d, step, b)

            def one(n: Expr) -> Stmt:
                new = Store(out, self.every(d, s, b, n), cast(self.state[b, n], out.dtype))
                return seq(*state(s, b, n), new)

            moved = along(self.hidden, one)
            if self.lengths is None:
                return moved
            zeros = along(self.hidden, lambda n: Store(out, self.every(d, s, b, n), const(0, out.dtype)))
            return If(step < cast(self.lengths[b], INDEX), moved, zeros)

        return loop(self.batch, row)

    def started(self, d: int, projected: Tensor, step: Expr, apart: int | None = None) -> Stmt:
        """The sums before a step: what comes from the inputs, but for the gate ``apart`` the recurrent bias."""

        def row(b: Expr) -> Stmt:
            s = self.place(d, step, b)
            parts = []
            for gate in range(self.gates):
                first = self.hidden * gate

                def one(n: Expr, first: Expr = first, gate: int = gate) -> Stmt:
                    at = first + n
                    value = self.recurrent_bias(d, at) if gate == apart else projected[d, s, b, at]
                    return Store(self.sums, (b, at), value)

                parts.append(along(self.hidden, one))
            if apart is None:
                return along(self.width, lambda n: Store(self.sums, (b, n), projected[d, s, b, n]))
            return seq(*parts)

        return loop(self.batch, row)

    def described(
        self,
        projected: Tensor,
        states: Sequence[tuple[Buffer, int]],
        step: Callable[[int, Expr, Buffer], Stmt],
        scratch: Sequence[Buffer] = (),
    ) -> tuple[Tensor, ...]:
        """The outputs, by what one ``step(direction, number, all hidden states)`` does to the states, each of which
        begins as an input of the op."""
        op = self.op
        names = [f"{op.op.lower()}{suffix}" for suffix in ("", "_h", "_c")][: len(op.outputs)]
        given = [op.input(k) for k in range(3, len(op.inputs)) if op.has(k)]
        fits = required(self.sizes_agree(), f"{op.op}: sizes of its inputs do not agree")

        def build(out: Buffer, *last: Buffer) -> Stmt:
            parts: list[Stmt] = [Check(r.condition, r.message) for r in fits]
            if self.lengths is not None:
                lengths, message = self.lengths, f"{op.op}: a sequence is longer than all of them"

                def inside(b: Expr) -> Stmt:
                    count = cast(lengths[b], INDEX)
                    return Check(conjunction(count >= 0, count <= self.steps), message)

                parts.append(loop(self.batch, inside))
            for d in range(len(self.ways)):

                def begin(b: Expr, n: Expr, d: int = d) -> Stmt:
                    return seq(*(Store(s, (b, n), self.initial(k, d, b, n)) for s, k in states))

                def one(number: Expr, d: int = d) -> Stmt:
                    return step(d, number, out)

                parts += [self.each(begin), loop(self.steps, one)]
                if last:
                    parts.append(self.ends(d, [s for s, _ in states], last))
            return seq(*parts)

        outputs = [(name, op.shape(k), op.dtype(k)) for k, name in enumerate(names)]
        own = (*(s for s, _ in states), self.sums, self.held, *scratch)
        return procedure(outputs, (projected, self.rows, *given), build, own)

    def sizes_agree(self) -> Expr:
        """Whether the inputs have the sizes that their places ask for."""
        op, ways = self.op, Const(len(self.ways))
        state = (self.batch, ways, self.hidden) if self.batchwise else (ways, self.batch, self.hidden)
        wanted = {
            1: (ways, self.width, self.x.shape[2]),
            2: (ways, self.width, self.hidden),
            3: (ways, self.width * 2),
            4: (self.batch,),
            5: state,
            6: state,
            7: (ways, self.hidden * 3),
        }
        pairs = [(op.input(k).shape, shape) for k, shape in wanted.items() if op.has(k)]
        return conjunction(*(equal(a, b) for own, shape in pairs for a, b in zip(own, shape, strict=True)))


def _activations(op: Operation, ways: int) -> list[Activation]:
    """The activations of all directions, one after another."""
    named = op.attr("activations")
    names = [str(n) for n in named] if isinstance(named, tuple) and named else [*DEFAULTS[op.op]] * ways
    numbers = {name: _numbers(op, f"activation_{name}") for name in ("alpha", "beta")}
    known = {name.lower(): name for name in TAKES}
    found = []
    for name in names:
        if name.lower() not in known:
            raise NotLowered(f"{op.op} with the activation {name}")
        kind = known[name.lower()]
        own = {n: numbers[n].pop(0) for n in TAKES[kind] if numbers[n]}
        found.append(_activation(op, kind, own))
    wanted = ways * len(DEFAULTS[op.op])
    if len(found) < wanted:
        raise NotLowered(f"{op.op} with {len(found)} activations")
    return found[:wanted]  # RNN's default names two, for both directions


def _numbers(op: Operation, name: str) -> list[float]:
    values = op.attr(name)
    return [float(v) for v in values if isinstance(v, (int, float))] if isinstance(values, tuple) else []


def _activation(op: Operation, kind: str, numbers: Mapping[str, float]) -> Activation:
    alpha, beta = numbers.get("alpha", 1.0), numbers.get("beta", 0.0 if kind == "Affine" else 1.0)
    if kind == "Affine":
        return lambda x: x * alpha + beta
    if kind == "ScaledTanh":
        return lambda x: apply("tanh", x * beta) * alpha
    own = Operation(kind, Attrs(numbers), (), (), (), op.opset)
    return lambda x: FORMULAS[kind](own, x)


# -- the three ops


def lstm(op: Operation) -> Sequence[Tensor]:
    """Gates i, o, f, c; peepholes look at the cell."""
    r = Recurrence(op, 4)
    cell = Buffer("cell", (r.batch, r.hidden), r.inner)
    peepholes = op.input(7) if op.has(7) else None
    coupled = bool(integer(op, "input_forget"))
    projected = r.projected()

    def step(d: int, number: Expr, out: Buffer) -> Stmt:
        f, g, h = (r.activation(d, k) for k in range(3))

        def gate(k: int, b: Expr, n: Expr) -> Expr:
            return r.sums[b, r.hidden * k + n]

        def peep(k: int, b: Expr, n: Expr) -> Expr:
            seen: Expr = gate(k, b, n)
            if peepholes is None:
                return seen
            return seen + cast(peepholes[d, r.hidden * k + n], r.inner) * cell[b, n]

        def state(s: Expr, b: Expr, n: Expr) -> Sequence[Stmt]:
            i = f(peep(0, b, n))
            forget = 1.0 - i if coupled else f(peep(2, b, n))
            kept = Store(cell, (b, n), forget * cell[b, n] + i * g(gate(3, b, n)))
            return [kept, Store(r.state, (b, n), f(peep(1, b, n)) * h(cell[b, n]))]

        return seq(r.started(d, projected, number), r.added(d, r.state, 0, 4), r.updated(d, number, out, state))

    return r.described(projected, [(r.state, 5), (cell, 6)], step)


def gru(op: Operation) -> Sequence[Tensor]:
    """Gates z, r, h; the reset is applied to the state, or to its product (``linear_before_reset``)."""
    r = Recurrence(op, 3)
    linear = bool(integer(op, "linear_before_reset"))
    reset = Buffer("reset", (r.batch, r.hidden), r.inner)
    projected = r.projected(2 if linear else None)

    def step(d: int, number: Expr, out: Buffer) -> Stmt:
        f, g = (r.activation(d, k) for k in range(2))

        def gate(k: int, b: Expr, n: Expr) -> Expr:
            return r.sums[b, r.hidden * k + n]

        def state(s: Expr, b: Expr, n: Expr) -> Sequence[Stmt]:
            new = gate(2, b, n)
            if linear:
                new = projected[d, s, b, r.hidden * 2 + n] + f(gate(1, b, n)) * new
            z = f(gate(0, b, n))
            return [Store(r.state, (b, n), (1.0 - z) * g(new) + z * r.state[b, n])]

        def resets(b: Expr, n: Expr) -> Stmt:
            return Store(reset, (b, n), f(gate(1, b, n)) * r.state[b, n])

        products = [r.added(d, r.state, 0, 3)]
        if not linear:
            products = [r.added(d, r.state, 0, 2), r.each(resets), r.added(d, reset, 2, 1)]
        begin = r.started(d, projected, number, 2 if linear else None)
        return seq(begin, *products, r.updated(d, number, out, state))

    return r.described(projected, [(r.state, 5)], step, () if linear else (reset,))


def rnn(op: Operation) -> Sequence[Tensor]:
    """One gate, which is the new state."""
    r = Recurrence(op, 1)
    projected = r.projected()

    def step(d: int, number: Expr, out: Buffer) -> Stmt:
        f = r.activation(d, 0)

        def state(s: Expr, b: Expr, n: Expr) -> Sequence[Stmt]:
            return [Store(r.state, (b, n), f(r.sums[b, n]))]

        return seq(r.started(d, projected, number), r.added(d, r.state, 0, 1), r.updated(d, number, out, state))

    return r.described(projected, [(r.state, 5)], step)


TABLE: Table = {"GRU": gru, "LSTM": lstm, "RNN": rnn}
