"""Cost model: a roofline of bytes and multiplications for each op, with prices by op where arithmetic is dear.

The price of an op is the price of the call, plus the longer of moving its bytes and doing its
arithmetic, plus what an awkward shape costs (short runs of a broadcast, a reduction across the rows,
a transposition that scatters). It depends on the op, its attributes and the types of what it reads
and writes; elements count only where they are the exponent of a power. Sizes that are not known
count as stated numbers, in costs only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise

from graphopt.errors import SENSELESS
from graphopt.frozen import dataclass
from graphopt.ir.caches import PASTS
from graphopt.ir.constants import BITS
from graphopt.ir.contrib_quantized import is_in_bytes
from graphopt.ir.facts import Fact
from graphopt.ir.graph import CONSTANT, INPUT, Attrs, Graph, Node, Value
from graphopt.ir.infer import MOST_ELEMENTS, infer
from graphopt.ir.op_table import OPS
from graphopt.ir.ops import KINDS
from graphopt.ir.types import Dim, Size, TensorType, substitute, symbols
from graphopt.ir.work import letter_sizes
from graphopt.rewrite.egraph.egraph_snapshot import Call
from graphopt.rewrite.extract.profiles import Profiles, phases
from graphopt.rewrite.extract.workload import BY_ELEMENTS, FEW, workload
from graphopt.rewrite.match.workspace import facts_within
from graphopt.target import DEVICE_FUNCTIONS, Prices, ProductPrices, Target, ops

BATCH = 1
"""What the leading size of a graph's inputs counts as, where it is not known."""
UNKNOWN = 128
"""What any other size counts as that is not known."""

VIEWS = ops("Reshape Flatten Squeeze Unsqueeze Identity Dropout Shape Size Optional OptionalGetElement")
"""Ops that move no data."""

PARTIAL = ops("Slice Gather GatherElements GatherND Split Compress")
"""Ops that read no more of their first input than they write."""

COPYING = ops("Transpose Slice Pad Gather GatherND")
"""Ops that copy runs of neighbouring elements; ``OP.run`` among the prices of elements is the price of a run."""

PRODUCTS = ops(
    "MatMul MatMulInteger Gemm Conv ConvInteger QLinearConv ConvTranspose Einsum LSTM GRU RNN "
    "com.microsoft::FusedMatMul com.microsoft::FusedGemm com.microsoft::FusedConv QLinearMatMul com.microsoft::QGemm "
    "graphopt::MixedMatMul graphopt::BlockedConv graphopt::BlockedConvTranspose graphopt::BlockedWinogradConv "
    "com.microsoft::MatMulIntegerToFloat com.microsoft::DynamicQuantizeMatMul com.microsoft::MatMulNBits"
)
"""Ops that multiply and add along an axis."""

SECOND = dict.fromkeys(("QLinearConv", "QLinearMatMul", "com.microsoft::QGemm"), 3)
"""The position of the second operand of products whose first has a scale and a zero point behind it."""

BYTES = 0.4
"""How long a product of bytes takes, as a share of one of floats."""
WIDENED = 1.08
"""The same of one by weights in bfloat16, which become floats in registers: ``tests/bench/bfloat.py`` on large ones."""

ATTENTIONS = ops(
    "Attention com.microsoft::MultiHeadAttention com.microsoft::Attention com.microsoft::GroupQueryAttention"
)
"""Ops that are two products with a softmax between them."""

_NONE = Attrs()

WORD = 2
"""Elements that are moved by one instruction as if they were one."""

BROADCASTING = KINDS["elementwise"] - KINDS["unary"] - {"CastLike", "Clip"}
"""Ops whose inputs need not have one shape."""


def element_price(prices: Prices, op: str, attrs: Attrs = _NONE) -> float:
    """Seconds for each element of an op: as the target says, or as it says of the op that this one is priced as.

    A target may price a mode of an op apart (``Resize.cubic``).
    """
    mode = attrs.get("mode")
    if isinstance(mode, str) and (of_mode := f"{op}.{mode}") in prices.elements:
        return prices.elements[of_mode]
    if op in prices.elements or op not in OPS:
        return prices.elements.get(op, 0.0)
    return prices.elements.get(OPS[op].priced_as, 0.0)


@dataclass(frozen=True, slots=True)
class Cost:
    """What something costs: seconds, floating-point operations, bytes read and written."""

    seconds: float = 0.0
    flops: float = 0.0
    bytes: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.seconds + other.seconds, self.flops + other.flops, self.bytes + other.bytes)

    def times(self, factor: float) -> Cost:
        """So many times as much."""
        return Cost(self.seconds * factor, self.flops * factor, self.bytes * factor)


@dataclass(frozen=True)
class Breakdown:
    """What a graph costs, in all and by op: how many, and what they cost together."""

    total: Cost = Cost()
    by_op: Mapping[str, tuple[int, Cost]] = field(default_factory=dict)
    reorders: int = 0
    """Changes of layout among the nodes, where the target has layouts."""

    def __add__(self, other: Breakdown) -> Breakdown:
        ops = {*self.by_op, *other.by_op}
        pairs = {op: (self.by_op.get(op, (0, Cost())), other.by_op.get(op, (0, Cost()))) for op in ops}
        sums = {op: (a[0] + b[0], a[1] + b[1]) for op, (a, b) in pairs.items()}
        order = sorted(sums, key=lambda op: (-sums[op][1].seconds, op))
        return Breakdown(self.total + other.total, {op: sums[op] for op in order}, self.reorders + other.reorders)

    @staticmethod
    def of(parts: Sequence[tuple[str, Cost]], reorders: int = 0) -> Breakdown:
        """The sum of these parts, the dearest op first."""
        counts = Counter(op for op, _ in parts)
        sums: dict[str, Cost] = {}
        total = Cost()
        for op, cost in parts:
            sums[op] = sums.get(op, Cost()) + cost
            total = total + cost
        order = sorted(sums, key=lambda op: (-sums[op].seconds, op))
        return Breakdown(total, {op: (counts[op], sums[op]) for op in order}, reorders)


class CostModel:
    """Prices ops for a target. ``sizes`` says what named sizes count as.

    ``warm``: as if a call had just run, so that weights are in the caches, as far as these hold them. ``profiles`` say
    what some sizes count as instead: what an op costs is the weighted sum of what it costs at each.
    """

    def __init__(
        self, target: Target, sizes: Mapping[str, int] | None = None, warm: bool = False, profiles: Profiles = ()
    ) -> None:
        self.target = target
        self.warm = warm
        self.sizes = dict(sizes or {})
        self.profiles = [(CostModel(target, self.sizes | dict(at), warm), weight) for at, weight in profiles]
        self._known: dict[Dim, int] = {}
        self._costs: dict[Hashable, Cost] = {}
        self._shapes: dict[int, tuple[Fact, tuple[int, ...]]] = {}  # by id; holding the fact keeps its id from reuse

    def size(self, size: Size) -> int:
        """A number for a size."""
        if isinstance(size, int):
            return size
        number = self._known.get(size)
        if number is None:
            numbers: dict[str, Size] = {name: self.sizes.get(name, UNKNOWN) for name in symbols(size)}
            try:
                result = substitute(size, numbers)
            except ValueError:  # the stated numbers do not fit each other
                result = max((n for n in numbers.values() if isinstance(n, int)), default=UNKNOWN)
            number = self._known[size] = max(result, 1) if isinstance(result, int) else UNKNOWN
        return number

    def shape(self, fact: Fact | None) -> tuple[int, ...]:
        """Numbers for a shape; that of a tensor about which nothing is known is one unknown size."""
        if fact is None:
            return (UNKNOWN,)
        entry = self._shapes.get(id(fact))
        if entry is None:
            sizes = (UNKNOWN,) if fact.shape is None else tuple(self.size(n) for n in fact.shape)
            entry = self._shapes[id(fact)] = fact, sizes
        return entry[1]

    def elements(self, fact: Fact | None) -> int:
        """How many elements a tensor has; an absent one has none."""
        return 0 if fact is None else min(product(self.shape(fact)), MOST_ELEMENTS)

    def nbytes(self, fact: Fact | None) -> float:
        """How many bytes a tensor takes; an absent one takes none."""
        if fact is None:
            return 0.0
        return self.elements(fact) * BITS.get(fact.dtype or "float32", 128) / 8

    def cost(
        self,
        op: str,
        attrs: Attrs,
        inputs: Sequence[Fact | None],
        outputs: Sequence[Fact | None],
        blocked: bool = False,
    ) -> Cost:
        """What one call of the op costs, in the target's blocked layout or in the plain one."""
        if self.profiles:
            costs = (m.cost(op, attrs, inputs, outputs, blocked).times(weight) for m, weight in self.profiles)
            return sum(costs, Cost())
        by_elements = op.partition("@")[0] in BY_ELEMENTS
        types = (*(_looked_at(x, by_elements) for x in inputs), None, *(x and x.type for x in outputs))
        cost = self._costs.get((op, attrs, types, blocked))
        if cost is None:
            try:
                cost = self._cost(op, attrs, inputs, outputs, blocked)
            except SENSELESS:  # sizes that ONNX forbids and inference does not refuse: by the bytes that it moves
                moved = sum(map(self.nbytes, (*inputs, *outputs)))
                cost = Cost(self.target.prices.node + self.moving(moved), 0.0, moved)
            if self.target.measured is not None and cost.bytes:
                cost = self._as_measured(cost, op, attrs, inputs, len(outputs), blocked)
            self._costs[op, attrs, types, blocked] = cost
        return cost

    def of_calls(self, calls: Iterable[Call]) -> float:
        """What some calls cost together, each by itself: modelled seconds."""
        return sum(self.cost(c.op, c.attrs, c.inputs, c.outputs).seconds for c in calls)

    def call(
        self, op: str, attrs: Attrs, inputs: Sequence[Fact | None], n_outputs: int, blocked: bool = False
    ) -> str | None:
        """A call as tables of measured times know it; None for one that no text can tell."""
        call = workload(op, attrs, [None if x is None else (x, self.shape(x)) for x in inputs], n_outputs, blocked)
        return None if call is None else call.text()

    def _as_measured(
        self, computed: Cost, op: str, attrs: Attrs, inputs: Sequence[Fact | None], n_outputs: int, blocked: bool
    ) -> Cost:
        """The cost with the seconds that were measured for this call, where some were, else at the pace of others.

        What was measured ran again and again, so that its weights were in the caches, as far as these hold them.
        """
        assert self.target.measured is not None
        text = self.call(op, attrs, inputs, n_outputs, blocked)
        seconds = None if text is None else self.target.measured.get(text)
        cached = min(self._weights(inputs), self.target.prices.cache) if op in PRODUCTS else 0.0
        loading = cached / self.target.prices.weights
        if seconds is not None:
            return Cost(self.target.prices.node + seconds + loading, computed.flops, computed.bytes)
        paces = self.target.paces
        pace = next((paces[name] for name in (text or op, op, "") if name in paces), 1.0)
        loading = min(loading, computed.seconds)
        return Cost(loading + pace * (computed.seconds - loading), computed.flops, computed.bytes)

    def _cost(
        self, op: str, attrs: Attrs, inputs: Sequence[Fact | None], outputs: Sequence[Fact | None], blocked: bool
    ) -> Cost:
        if op in (INPUT, CONSTANT):
            return Cost()
        prices = self.target.prices
        op = op.partition("@")[0]  # an op of an older version is priced like the newest
        if op in prices.free:
            return Cost()
        if op in VIEWS:
            return Cost(prices.node)
        functions = self._functions(op)
        if functions and len(inputs) > 1:
            return self._fastest(functions, op, attrs, inputs, outputs)
        written = sum(map(self.nbytes, outputs))
        read = written if op in PARTIAL else sum(map(self.nbytes, inputs))
        moved = self.moving(read + written) * prices.movement.get(op, 1.0)
        if op in ATTENTIONS:
            flops, compute = self._attending(op, attrs, inputs, outputs)
        elif op in PRODUCTS and len(inputs) > 1:
            operands = (inputs[0], inputs[SECOND.get(op, 1)])
            flops, waste, kind = self._multiplications(op, attrs, operands, outputs, blocked)
            waste *= self._width(op, attrs, operands)
            waste *= self._idling(op, attrs, outputs)
            compute = flops * waste / (prices.flops * prices.efficiency.get("blocked " * blocked + kind, 1.0))
            compute += self._transforming(op, attrs, inputs, outputs)
            compute += self._loading(inputs) + (0.0 if blocked else self._unfolding(op, operands, outputs, kind))
            compute += self._activating(attrs, outputs, blocked)
        else:
            n = max([*map(self.elements, outputs), *map(self.elements, inputs[:1])], default=0)
            flops, compute = float(n), n * self._element(op, attrs, inputs)
        extra = self._awkwardness(op, attrs, inputs, outputs)
        return Cost(prices.node + max(moved, compute) + extra, flops, read + written)

    def _functions(self, op: str) -> list[ProductPrices]:
        """The prices of the functions of a device that compute such a product."""
        if not self.target.device.has_blocks:
            return []
        names = next((names for ops_, names in DEVICE_FUNCTIONS.items() if op in ops_), ())
        return [self.target.prices.products[n] for n in names if n in self.target.prices.products]

    def _fastest(
        self,
        functions: Sequence[ProductPrices],
        op: str,
        attrs: Attrs,
        inputs: Sequence[Fact | None],
        outputs: Sequence[Fact | None],
    ) -> Cost:
        """What a product costs by the fastest of a device's functions, which is that which schedules choose."""
        flops, _, _ = self._multiplications(op, attrs, inputs, outputs, False)
        operands = [x for x in (*inputs, *outputs) if x is not None]
        moved, bits = sum(map(self.elements, operands)), BITS.get(outputs[0].dtype or "", 32) if outputs[0] else 32
        seconds = min(f.seconds(flops / 2, moved, bits) for f in functions)
        return Cost(seconds, flops, sum(map(self.nbytes, operands)))

    def moving(self, nbytes: float) -> float:
        """Seconds to read or write so many bytes."""
        near, far = self.target.prices.bandwidth
        cached = min(nbytes, self.target.prices.cache)
        return cached / near + (nbytes - cached) / far

    def _element(self, op: str, attrs: Attrs, inputs: Sequence[Fact | None]) -> float:
        """Seconds for each element of an op that does no products."""
        prices = self.target.prices
        axes = self._axes(op, attrs, inputs)
        rank = (inputs[0].rank if inputs and inputs[0] is not None else None) or 1
        if axes is not None and rank - 1 not in axes:
            return prices.strided.get("Reduce" if op.startswith("Reduce") else op, 0.0)
        if op == "Transpose" and self._scatters(attrs, inputs):
            return prices.scattered
        if op in ("DFT", "STFT"):
            length = self._transformed(op, inputs)
            return prices.elements.get(op if length & (length - 1) == 0 else f"{op}.uneven", 0.0)
        if op == "DepthToSpace":  # the larger the blocks, the fewer the runs
            size = attrs.get("blocksize", 2)
            each = element_price(prices, op)
            return each * 2 / size if isinstance(size, int) else each
        if op == "Pow" and len(inputs) > 1 and inputs[1] is not None:
            exponent = inputs[1].constant
            if exponent is not None and exponent.size == 1:
                return prices.powers.get(float(exponent.array.reshape(-1)[0]), element_price(prices, op))
        return element_price(prices, op, attrs)

    def _transformed(self, op: str, inputs: Sequence[Fact | None]) -> int:
        """The length of a Fourier transform."""
        if op == "STFT":
            return self.elements(inputs[2]) if len(inputs) > 2 and inputs[2] is not None else UNKNOWN
        x, axis = self.shape(inputs[0]), inputs[2].constant if len(inputs) > 2 and inputs[2] is not None else None
        k = -2 if axis is None else int(axis.array.reshape(-1)[0])
        return x[k] if -len(x) <= k < len(x) else UNKNOWN

    def _axes(self, op: str, attrs: Attrs, inputs: Sequence[Fact | None]) -> tuple[int, ...] | None:
        """The axes that a reduction or a softmax works along, where they are known."""
        x = inputs[0] if inputs else None
        if x is None or x.rank is None or x.rank == 0:
            return None
        if op in self.target.prices.strided:
            axis = attrs.get("axis", -1)
            return (axis % x.rank,) if isinstance(axis, int) else None
        if not op.startswith("Reduce") or len(inputs) < 2 or inputs[1] is None or inputs[1].constant is None:
            return None
        return tuple(int(a) % x.rank for a in inputs[1].constant.array.reshape(-1)) or None

    def _scatters(self, attrs: Attrs, inputs: Sequence[Fact | None]) -> bool:
        """Whether a transposition is neither the move of one axis nor one of long rows."""
        return scatters(attrs.get("perm"), self.shape(inputs[0]))

    def _awkwardness(
        self, op: str, attrs: Attrs, inputs: Sequence[Fact | None], outputs: Sequence[Fact | None]
    ) -> float:
        """Seconds for short runs of a broadcast, and for the many matrices of a product."""
        prices = self.target.prices
        if op in BROADCASTING and len(inputs) > 1:
            shapes = [self.shape(x) for x in inputs if x is not None]
            return prices.span * max((_spans(a, b) for a, b in pairwise(shapes)), default=0)
        if op in COPYING and inputs and outputs:
            run = self._copied_run(op, attrs, inputs, self.shape(outputs[0]))
            return prices.elements.get(f"{op}.run", prices.run) * self.elements(outputs[0]) / run
        if op == "Einsum" and len(inputs) > 1:  # it transposes and reshapes inside, where nothing else can help it
            matrices, *_ = self._matrices_of_einsum(attrs, inputs)
            moved = 2 * self.moving(sum(map(self.nbytes, (*inputs, *outputs))))
            return 3 * prices.node + moved + prices.matrix * matrices
        if op in ("MatMul", "com.microsoft::FusedMatMul", "graphopt::MixedMatMul"):
            is_one = len(self.shape(inputs[1])) < 3 and not attrs.get("transA", 0)  # all rows lie one below another
            return prices.matrix * (1 if is_one or not outputs else product(self.shape(outputs[0])[:-2]))
        return 0.0

    def _copied_run(self, op: str, attrs: Attrs, inputs: Sequence[Fact | None], out: tuple[int, ...]) -> int:
        """How many neighbouring elements such an op copies at a time."""
        a = self.shape(inputs[0])
        if not op.startswith("Gather"):
            return _run(a, out, attrs.get("perm") if op == "Transpose" else None)
        if op == "Gather":
            axis = attrs.get("axis", 0)
            gone = (axis % len(a) if isinstance(axis, int) and a else 0) + 1
        else:
            apart = attrs.get("batch_dims", 0)
            gone = (apart if isinstance(apart, int) else 0) + self.shape(inputs[1])[-1]
        return max(product(a[gone:]), 1)

    def _multiplications(
        self, op: str, attrs: Attrs, inputs: Sequence[Fact | None], outputs: Sequence[Fact | None], blocked: bool
    ) -> tuple[float, float, str]:
        """Operations of an op that multiplies and adds, how many times as many it does to fill vectors, its kind."""
        prices = self.target.prices
        a, b, y = self.shape(inputs[0]), self.shape(inputs[1]), self.shape(outputs[0] if outputs else None)
        out = product(y)
        name = op.rpartition("::")[2]
        if name.endswith(("MatMul", "MatMulInteger", "Gemm", "MatMulIntegerToFloat", "MatMulNBits")):
            across = bool(attrs.get("transA", 0)) and len(a) > 1
            depth = max(a[-2] if across else a[-1] if a else 1, 1)
            waste = self._fill(y[-1], prices.edge) if y and out > y[-1] else 1.0
            return 2.0 * out * depth, waste * (depth + prices.store) / depth, "matmul"
        if name == "Einsum":
            _, depth, columns = self._matrices_of_einsum(attrs, inputs)
            waste = self._fill(columns, prices.edge) if columns > 1 else 1.0
            return 2.0 * out * depth, waste * (depth + prices.store) / depth, "matmul"
        if name in ("LSTM", "GRU", "RNN"):
            steps = a[0] * a[1] if len(a) > 1 else 1
            return 2.0 * steps * sum(map(self.elements, inputs[1:3])), 1.0, "recurrent"
        if name == "BlockedConv":  # lanes that fill up blocks are computed like others
            return 2.0 * out * product(b[1:-1]), 1.0, self._kind_of_blocked(attrs)
        if name == "BlockedConvTranspose":
            return 2.0 * out * product((*b[1:2], *b[-2:-1])), 1.0, self._kind_of_blocked(attrs)
        if name == "BlockedWinogradConv":
            return 2.0 * _tiles(attrs, y) * product(b), 1.0, "blocked winograd"
        kind = self._kind_of_convolution(a, b)
        if name == "ConvTranspose":
            waste = self._along_rows(attrs, outputs[0] if outputs else None, b)[0] if prices.short_rows else 1.0
            return 2.0 * product(a) * product(b[1:]), waste, kind
        if prices.short_rows:
            waste, is_product = self._along_rows(attrs, outputs[0] if outputs else None, b)
            return 2.0 * out * product(b[1:]), waste, "pointwise" if is_product and kind == "dense" else kind
        if self.target.layout is not None and not blocked:  # outside its layout, a convolution is a product of matrices
            together = product(y[2:])
        else:
            together = b[0] if kind == "depthwise" or len(a) < 2 or len(b) < 2 else b[0] * b[1] // max(a[1], 1)
        return 2.0 * out * product(b[1:]), self._fill(together), kind

    def _attending(
        self, op: str, attrs: Attrs, inputs: Sequence[Fact | None], outputs: Sequence[Fact | None]
    ) -> tuple[float, float]:
        """Multiplications of an attention, and the seconds that they and its softmax take.

        Masks are not looked at: the same are read where attention is written out.
        """
        prices = self.target.prices
        q, k, y = self.shape(inputs[0]), self.shape(inputs[1]), self.shape(outputs[0] if outputs else None)
        heads = attrs.get("num_heads", attrs.get("q_num_heads"))
        n = heads if isinstance(heads, int) else q[1] if len(q) == 4 else 1
        width, rows = y[-1] * (n if len(q) == 4 else 1), q[-2]
        depth = max(width // n, 1)
        packed = op == "com.microsoft::Attention"
        columns = rows if packed or len(k) < 3 else k[-2]
        past = inputs[PASTS[op][0]] if len(inputs) > PASTS[op][0] else None
        columns += self.shape(past)[2] if past is not None and past.rank == 4 else 0
        batch = q[0] if len(q) > 2 else 1
        flops = 4.0 * batch * rows * columns * width
        waste = (self._fill(columns, prices.edge) * (depth + prices.store) / depth
                 + self._fill(depth, prices.edge) * (columns + prices.store) / columns) / 2  # fmt: skip
        seconds = flops * waste / (prices.flops * prices.efficiency.get("matmul", 1.0)) + 2 * batch * n * prices.matrix
        each = prices.elements.get("Softmax", 0.0)
        if attrs.get("softcap"):
            each += prices.elements.get(f"{op}.softcap", element_price(prices, "Tanh"))
        seconds += batch * n * rows * columns * each
        groups = attrs.get("kv_num_heads", k[1] if len(k) == 4 else n)
        if isinstance(groups, int) and 0 < groups < n:  # runtimes read keys for each of the heads that share them
            again = 4.0 * batch * (n - groups) * columns * 2 * depth / prices.bandwidth[0]
            seconds += again * prices.movement.get(f"{op}.groups", 1.0)
        if packed:
            product_flops = 2.0 * batch * rows * q[-1] * (k[-1] if k else 1)
            flops += product_flops
            seconds += product_flops / (prices.flops * prices.efficiency.get("matmul", 1.0)) + self._loading(inputs)
        return flops, seconds

    def _unfolding(self, op: str, inputs: Sequence[Fact | None], outputs: Sequence[Fact | None], kind: str) -> float:
        """Seconds to copy the windows of an image to the columns of a matrix, where convolutions are such products."""
        if self.target.layout is None or not op.endswith("Conv") or kind == "depthwise":
            return 0.0
        a, b, out = self.shape(inputs[0]), self.shape(inputs[1]), self.shape(outputs[0] if outputs else None)
        window = product(b[2:])
        return 0.0 if window == 1 or len(a) < 2 else self.moving(8.0 * a[0] * a[1] * window * product(out[2:]))

    def _activating(self, attrs: Attrs, outputs: Sequence[Fact | None], blocked: bool) -> float:
        """Seconds for the activation that a product ends with."""
        activation, layout = attrs.get("activation"), self.target.layout
        if not isinstance(activation, str):
            return 0.0
        price = layout.epilogues.get(activation) if layout is not None and blocked else None
        return sum(map(self.elements, outputs)) * (
            element_price(self.target.prices, activation) if price is None else price
        )

    def _transforming(
        self, op: str, attrs: Attrs, inputs: Sequence[Fact | None], outputs: Sequence[Fact | None]
    ) -> float:
        """Seconds to transform tiles for minimal filtering, and back."""
        if op != "graphopt::BlockedWinogradConv":
            return 0.0
        b, y = self.shape(inputs[1]), self.shape(outputs[0] if outputs else None)
        channels = (b[0] + b[2]) * b[-1] if len(b) == 5 else UNKNOWN
        places = b[1] if len(b) == 5 else 1
        return _tiles(attrs, y) * places * channels * element_price(self.target.prices, op)

    def _width(self, op: str, attrs: Attrs, operands: Sequence[Fact | None]) -> float:
        """How long products of operands of this width take, as a share of those of floats."""
        first, second = operands
        if op == "graphopt::MixedMatMul":
            return WIDENED
        if op == "com.microsoft::MatMulNBits":
            return BYTES if is_in_bytes(attrs) else 1.0
        if second is None or second.dtype not in ("int8", "uint8"):
            return 1.0
        return BYTES * (self.target.prices.signed if first is not None and first.dtype == "int8" else 1.0)

    def _idling(self, op: str, attrs: Attrs, outputs: Sequence[Fact | None]) -> float:
        """How many times as long a product takes as its tiles would, because the last round of them leaves processors
        idle."""
        prices = self.target.prices
        if prices.processors == 1 or not outputs or op.rpartition("::")[2] in ("LSTM", "GRU", "RNN"):
            return 1.0
        y = self.shape(outputs[0])
        if "Conv" in op and len(y) > 2:
            groups = attrs.get("group", 1)
            apart = groups if isinstance(groups, int) else 1
            rows, columns = y[0] * product(y[2:]), -(-y[1] // apart)
        else:
            apart, rows, columns = product(y[:-2]), y[-2] if len(y) > 1 else 1, y[-1] if y else 1
        tiles = apart * -(-rows // prices.tile) * -(-columns // prices.tile)
        size = min(rows, prices.tile) * min(columns, prices.tile)
        rounds = -(-tiles // prices.processors)
        return max(rounds * prices.processors * size / max(apart * rows * columns, 1), 1.0)

    def _loading(self, inputs: Sequence[Fact | None]) -> float:
        """Seconds to load weights, which other weights have driven out of the caches since the last run."""
        weights = self._weights(inputs)
        return max(weights - self.target.prices.cache * self.warm, 0.0) / self.target.prices.weights

    def _weights(self, inputs: Sequence[Fact | None]) -> float:
        """Bytes of the constants that a product reads."""
        return sum(self.nbytes(x) for x in inputs[1:] if x is not None and x.is_const)

    def _fill(self, n: int, edge: float = 0.0) -> float:
        """How much more is computed than asked for, when so many are computed in whole vectors."""
        lanes, n = self.target.prices.lanes, max(n, 1)
        return (-(-n // lanes) * lanes + edge) / n

    def kind_of_product(self, op: str, inputs: Sequence[Fact | None]) -> str:
        """Which of ``KINDS_OF_PRODUCT`` a call of one of ``PRODUCTS`` is."""
        name = op.rpartition("::")[2]
        if name in ("LSTM", "GRU", "RNN"):
            return "recurrent"
        if "Conv" not in name or len(inputs) < 2:
            return "matmul"
        return self._kind_of_convolution(self.shape(inputs[0]), self.shape(inputs[1]))

    def _kind_of_convolution(self, a: tuple[int, ...], weights: tuple[int, ...]) -> str:
        if len(a) < 2 or len(weights) < 2:
            return "dense"
        if weights[1] < a[1]:
            return "depthwise" if weights[1] == 1 else "grouped"
        return "narrow" if a[1] < 8 else "dense"

    def _along_rows(self, attrs: Attrs, result: Fact | None, weights: tuple[int, ...]) -> tuple[float, bool]:
        """How many times as long a convolution of a plain image takes whose rows are computed in vectors, and whether
        it is a product of matrices, whose rows are whole images."""
        prices, strides, y = self.target.prices, attrs.get("strides"), self.shape(result)
        if result is None or not all(isinstance(n, int) for n in (result.shape or ())[2:]):
            return prices.open_rows, False
        strided = isinstance(strides, tuple) and any(s != 1 for s in strides)
        if product(weights[2:]) == 1 and not strided:
            n = max(product(y[2:]), 1)
            return (n + prices.columns) / n, True
        row = y[-1] if y else 1
        short = prices.short_rows if row < prices.lanes else 1.0
        return self._fill(row) * short * (prices.strided_rows if strided else 1.0), False

    def _kind_of_blocked(self, attrs: Attrs) -> str:
        forms = {"plain": "narrow", "depthwise": "depthwise"}
        groups = attrs.get("group", 1)
        kind = forms.get(str(attrs.get("form")), "dense" if groups == 1 else "grouped")
        return f"blocked {kind}"

    def _matrices_of_einsum(self, attrs: Attrs, inputs: Sequence[Fact | None]) -> tuple[int, int, int]:
        """How many products of matrices an einsum is, by the letters that all operands and the result have, the length
        of the sums in them, and their columns, by those that the last operand alone has of the result."""
        equation = str(attrs.get("equation", ""))
        sizes = letter_sizes(equation, map(self.shape, inputs))
        source, _, result = equation.partition("->")
        terms = source.split(",")
        batch = [n for letter, n in sizes.items() if letter in result and all(letter in t for t in terms)]
        summed = [n for letter, n in sizes.items() if letter not in result]
        last = [n for letter, n in sizes.items() if letter in result and not any(letter in t for t in terms[:-1])]
        return product(batch), max(product(summed), 1), product(last)


def _tiles(attrs: Attrs, y: tuple[int, ...]) -> int:
    """Tiles of a convolution by minimal filtering whose result has this shape."""
    tile = attrs.get("tile", 1)
    size = tile if isinstance(tile, int) else 1
    return product([y[0], *(-(-n // size) for n in y[2:-1])]) if len(y) == 5 else 1


def scatters(perm: object, shape: tuple[int, ...]) -> bool:
    """Whether a transposition of a tensor of this shape is neither the move of one axis nor one of long rows.

    Runtimes look at axes of size 1, too, where one axis moves: ``[2, 0, 3, 1]`` of ``[32, 128, 1, 64]`` takes 20 times
    as long in ONNX Runtime as ``[0, 2, 1]`` of ``[32, 128, 64]``. Where nothing else moves they copy all at once.
    """
    if not isinstance(perm, tuple) or len(perm) != len(shape):
        return len(shape) > 2
    axes = [int(p) for p in perm if isinstance(p, int)]
    kept = [p for p in axes if shape[p] != 1]
    merged = [p for i, p in enumerate(axes) if not i or axes[i - 1] + 1 != p]
    order = sorted(merged)
    moves_one = any([p for p in merged if p != axis] == [p for p in order if p != axis] for axis in merged)
    rows = bool(kept) and kept[-1] == max(kept) and shape[kept[-1]] >= 16
    return not (moves_one or rows or kept == sorted(kept))


def _looked_at(fact: Fact | None, by_elements: bool) -> Hashable:
    """What costs depend on of an operand: of its elements, no more than a few, and floats only where they count."""
    if fact is None:
        return None
    constant = fact.constant
    is_told = constant is not None and constant.size <= FEW and (by_elements or "float" not in constant.dtype)
    return fact.type, fact.is_const, constant if is_told else None


def product(sizes: Sequence[int]) -> int:
    """The product of the sizes."""
    total = 1
    for n in sizes:
        total *= n
    return total


def _run(a: tuple[int, ...], out: tuple[int, ...], perm: object) -> int:
    """How many neighbouring elements stay neighbours when data of shape ``a`` are moved to shape ``out``.

    A transposition that moves the last axis goes tile by tile, and one of runs no longer than a machine word element by
    element: for them, all are one run.
    """
    if isinstance(perm, tuple) and len(perm) == len(a):
        moved = [p for p in perm if isinstance(p, int) and a[p] != 1]
        order = sorted(moved)
        kept = next((i for i in range(1, len(moved) + 1) if moved[-i] != order[-i]), len(moved) + 1) - 1
        run = product([a[p] for p in moved[len(moved) - kept :]])
        return max(product(out) if kept == 0 or run <= WORD else run, 1)
    run = 1
    for m, n in zip(reversed(a), reversed(out), strict=False):
        run *= min(m, n)
        if m != n:
            break
    return max(run, 1)


def _spans(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """How many runs of elements the broadcast of two shapes falls into.

    A run ends where one of the two begins or ceases to be repeated; an innermost axis of size 1 is a run.
    """
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    pairs = list(zip(a, b, strict=True))
    run, kind = 1, None
    for m, n in reversed(pairs):
        this = "equal" if m == n else "left" if n == 1 else "right"
        if kind is not None and this != kind and (m, n) != (1, 1):
            break
        kind = kind or this
        run *= max(m, n)
    return product([max(m, n) for m, n in pairs]) // max(run, 1)


def stated_sizes(graph: Graph) -> dict[str, int]:
    """What the graph's named sizes count as in costs: 1 for what leads the shape of an input, as a batch does."""
    numbers: dict[str, int] = {}
    for value in graph.inputs:
        kind = graph.types.get(value)
        if isinstance(kind, TensorType) and isinstance(kind.shape, tuple) and len(kind.shape) > 1:
            numbers.update(dict.fromkeys(symbols(kind.shape[0]), BATCH))
    return numbers


def counted_at(graph: Graph) -> dict[str, int]:
    """What each named size of the graph's inputs counts as in costs."""
    stated = stated_sizes(graph)
    types = [graph.types.get(value) for value in graph.inputs]
    shapes = [t.shape for t in types if isinstance(t, TensorType) and isinstance(t.shape, tuple)]
    names = sorted({name for shape in shapes for size in shape for name in symbols(size)})
    return {name: stated.get(name, UNKNOWN) for name in names}


def shape_profiles(graph: Graph, target: Target) -> Profiles:
    """The profiles at which a graph is priced, weighted so that the graph itself costs the same at each: their mean."""
    at = phases(graph)
    if len(at) < 2:
        return tuple((sizes, 1.0) for sizes in at)
    facts = infer(graph)
    costs = [graph_cost(graph, facts, target, sizes).total.seconds for sizes in at]
    mean = sum(costs) / len(costs)
    return tuple(
        (sizes, mean / (len(at) * cost) if cost else 1 / len(at)) for sizes, cost in zip(at, costs, strict=True)
    )


def graph_cost(
    graph: Graph,
    facts: Mapping[Value, Fact],
    target: Target,
    sizes: Mapping[str, int] | None = None,
    profiles: Profiles = (),
) -> Breakdown:
    """What the graph costs on the target, by op. What is computed from constants alone costs nothing.

    ``sizes`` are what named sizes count as that do not as ``stated_sizes`` has it. A body is run once: of the branches
    of an If the dearest, of a loop one pass.
    """
    from graphopt.rewrite.extract.choose import appraise  # a graph is priced as the only choice there is

    counted = stated_sizes(graph) | dict(sizes or {})
    total = appraise(graph, facts, CostModel(target, counted, profiles=profiles))
    for node in graph.order():
        inside = [(body, _body_facts(node, body, facts)) for body in node.bodies.values()]
        bodies = [graph_cost(body, known, target, counted, profiles) for body, known in inside]
        if bodies:
            total = total + max(bodies, key=lambda cost: cost.total.seconds)
    return total


def _body_facts(node: Node, body: Graph, facts: Mapping[Value, Fact]) -> dict[Value, Fact]:
    """What is known inside a body; weights that it captures are constants, and what it computes from them is not."""
    inside = dict(infer(body, facts_within(node, body, facts)))
    pairs = zip(body.inputs[len(body.inputs) - node.captures :], node.inputs[-node.captures :], strict=False)
    for inner, outer in pairs if node.captures else ():
        if outer is not None and outer in facts and facts[outer].is_const:
            inside[inner] = replace(inside[inner], is_const=True)
    return inside
