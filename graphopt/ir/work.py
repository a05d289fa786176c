"""Work of ops and graphs, predicted from types alone: how many operations, and how many bytes at once.

Nothing is computed and no memory is taken to find out. What has no known size counts nothing: it is for whoever runs a
model to limit that as it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf, prod

from graphopt.errors import GraphoptError
from graphopt.frozen import dataclass
from graphopt.ir import ops
from graphopt.ir.bounds import fact_of_type
from graphopt.ir.constants import BITS, Constant
from graphopt.ir.facts import NOTHING, Fact
from graphopt.ir.graph import CONSTANT, INPUT, Attrs, Graph, Node, Value
from graphopt.ir.infer import BodyWalks, infer, infer_with_bodies
from graphopt.ir.infer_bodies import branches, loop_head, scan_axis
from graphopt.ir.op_table import ops_where
from graphopt.ir.types import Size, TensorType, substitute

ROUNDS = 64
"""So many rounds of a loop whose states grow are looked at; whatever doubles is beyond all memory by then."""

MOVED, APPROXIMATED = 4, 32
"""A product of two elements is one operation; to read or write an element takes as long as so many, and to approximate
a function of it, as Sin and Erf do, as so many."""
MOST_OPERATIONS = 10**12
"""A model that takes more operations, some ten seconds' of products, is not run,"""
QUICK, EACH_BYTE = MOST_OPERATIONS // 10, 1000
"""nor, where nobody asked for it, one that takes more than these and more than so many for each of its bytes: a product
of long sequences takes some hundred for each byte of its weights, a bomb millions."""
AT_ONCE, EACH_BYTE_OF_FEW, EACH_BYTE_REPEATED = 10**9, 10**5, 128
"""Of a model of few bytes it is not these, but so many, or so many for each of its bytes: a convolution of large
pictures takes ten thousand for each byte of its weights; or so many for each byte that its constants have written out,
as networks whose weights are one element repeated take."""
EACH_SECOND = 10**10
"""So many operations a second are expected of a program."""
UNBOUNDED = frozenset({"RegexFullMatch"})
"""Ops whose time no size bounds."""
SLOW = (
    frozenset({"Conv", "ConvTranspose", "ConvInteger", "LSTM", "GRU", "RNN", "Erf", "Gelu", "TopK", "Unique"})
    | (ops.KINDS["pool"])
)
"""Ops whose reference implementation is Python for each window or step, or sorts, or is for single numbers, as that of
all ops on strings is,"""
BY_ELEMENT = frozenset(
    {"GridSample", "RoiAlign", "NonMaxSuppression", "MaxRoiPool", "MaxUnpool", "Col2Im", "DFT"}
    | {"STFT", "LRN", "TfIdfVectorizer", "StringSplit", "StringNormalizer", "ImageDecoder", "DeformConv"}
)
"""and those where it is that for each element."""
OPERATIONS = 10**9
"""So many operations, about a second's, may be done ahead for one call; slow ones count as many."""
_ROWS = frozenset({"MatMul", "MatMulInteger", "QLinearMatMul", "com.microsoft::FusedMatMul"})
_WINDOWS = frozenset({"Conv", "ConvInteger", "QLinearConv", "DeformConv"})
_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})
APPROXIMATE = ops_where(is_approximate=True)
"""Ops that approximate a function of each element."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a run takes at least."""

    bytes: int
    """Of all values that are there at once, inputs and outputs included, constants not."""
    operations: int


def elements(fact: Fact | None) -> int:
    """How many elements a tensor has; 0 where that is not known."""
    return 0 if fact is None else fact.count or 0


def nbytes(fact: Fact | None) -> int:
    """How many bytes a tensor takes; 0 where that is not known."""
    return 0 if fact is None else (elements(fact) * BITS.get(fact.dtype or "", 64) + 7) // 8


def operations(op: str, attrs: Attrs, inputs: Sequence[Fact | None], outputs: Sequence[Fact | None]) -> int:
    """How many operations a call takes, to a factor that no size changes."""
    return moved(inputs, outputs) + products(op, attrs, inputs, outputs)


def moved(inputs: Sequence[Fact | None], outputs: Sequence[Fact | None]) -> int:
    """How many elements a call reads and writes."""
    return sum(map(elements, (*inputs, *outputs)))


def products(op: str, attrs: Attrs, inputs: Sequence[Fact | None], outputs: Sequence[Fact | None]) -> int:
    """How many products of elements, or steps of a window, a call takes."""
    out = sum(map(elements, outputs))
    a, b = (*(_numbers(f) for f in inputs[:2]), (), ())[:2]
    if op in _ROWS and a:
        return out * a[-1]
    if op == "Gemm" and len(a) == 2:
        return out * (a[0] if attrs.get("transA") else a[1])
    if op in _WINDOWS or op == "ConvTranspose":
        weights = _numbers(inputs[3]) if op == "QLinearConv" and len(inputs) > 3 else b
        each = prod(weights[1:])
        return each * (elements(inputs[0]) if op == "ConvTranspose" else out)
    if op in ops.KINDS["pool"] or op == "LRN":
        window = attrs.get("kernel_shape", attrs.get("size", 1))
        return out * prod(window if isinstance(window, tuple) else (window,))  # type: ignore[arg-type]
    if op == "Einsum":
        return _einsum(str(attrs.get("equation", "")), inputs)
    if op in _RECURRENT and len(a) == 3:
        return a[0] * a[1] * sum(map(elements, inputs[1:3]))
    return 0


def effort(op: str, attrs: Attrs, inputs: Sequence[Fact | None], outputs: Sequence[Fact | None]) -> int:
    """The same for the reference implementation, whose slow operations count as many."""
    if op in UNBOUNDED:
        return OPERATIONS + 1
    is_slow = op in SLOW or any(f is not None and f.dtype == "string" for f in inputs)
    slowness = 10**5 if op in BY_ELEMENT else 100 if is_slow else 1
    return slowness * operations(op, attrs, inputs, outputs)


def _numbers(fact: Fact | None) -> tuple[int, ...]:
    """A shape of which all sizes are known; empty where they are not."""
    shape = () if fact is None or fact.shape is None else fact.shape
    numbers = tuple(n for n in shape if isinstance(n, int))
    return numbers if len(numbers) == len(shape) else ()


def _einsum(equation: str, inputs: Sequence[Fact | None]) -> int:
    """The product of all sizes that letters stand for."""
    return prod(letter_sizes(equation, map(_numbers, inputs)).values())


def letter_sizes(equation: str, shapes: Iterable[tuple[int, ...]]) -> dict[str, int]:
    """The sizes that letters of an einsum stand for, the largest of each, by the shapes of its operands."""
    sizes: dict[str, int] = {}
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    for term, shape in zip(terms, shapes, strict=False):
        head, _, tail = term.partition("...")
        named = [*zip(head, shape, strict=False), *zip(reversed(tail), reversed(shape), strict=False)]
        for letter, size in named:
            sizes[letter] = max(size, sizes.get(letter, 1))
    return sizes


def work_of(graph: Graph, sizes: Mapping[str, int]) -> Work:
    """What a run of a graph takes at least, with these sizes for the named ones of its inputs."""
    return _work(graph, input_facts(graph, sizes))


def input_facts(graph: Graph, sizes: Mapping[str, int]) -> dict[Value, Fact]:
    """The facts of a graph's inputs, with these sizes for the named ones."""
    return {v: fact_of_type(_fixed(graph.types.get(v), sizes)) for v in graph.inputs}


def bytes_handed(graph: Graph) -> int:
    """The bytes of a graph's inputs and outputs, as far as their sizes are known."""
    facts = infer(graph)
    return sum(nbytes(facts[v]) for v in {*graph.inputs, *graph.outputs} if v is not None)


def handed_excess(graph: Graph, most: int) -> str:
    """Why a graph's inputs and outputs alone take more bytes than a run may, in words; empty where they do not."""
    if (handed := bytes_handed(graph)) <= most:
        return ""
    facts = infer(graph)
    ends = {graph.names[v]: v for v in graph.inputs} | dict(zip(graph.output_names, graph.outputs, strict=True))
    name, value = max(((n, v) for n, v in ends.items() if v is not None), key=lambda end: nbytes(facts[end[1]]))
    return f"its inputs and outputs take {handed} bytes, and a run may take {most}; {name!r} is {facts[value].type}"


def stored_bytes(graph: Graph) -> int:
    """The bytes of all constants of a graph and its bodies."""
    return sum(constant.nbytes for constant in _constants(graph))


def sparse_bytes(graph: Graph) -> int:
    """The same, but of sparse tensors only what they hold."""
    return sum(part.nbytes for c in _constants(graph) for part in getattr(c.source, "parts", None) or (c,))


def _constants(graph: Graph) -> Iterator[Constant]:
    for node in graph.nodes():
        constant = node.attrs.get("value") if node.op == CONSTANT else None
        if isinstance(constant, Constant):
            yield constant
        for body in node.bodies.values():
            yield from _constants(body)


def most_operations(graph: Graph, is_asked: bool) -> int:
    """How many operations a run may take: where nobody asked for it, only so many for each byte that the model has."""
    if is_asked:
        return MOST_OPERATIONS
    stored = sparse_bytes(graph)
    if EACH_BYTE_OF_FEW * stored < QUICK:
        few = max(EACH_BYTE_OF_FEW * stored, EACH_BYTE_REPEATED * _written_out(graph))
        return max(AT_ONCE, min(QUICK, few))
    return min(MOST_OPERATIONS, max(QUICK, EACH_BYTE * stored))


def _written_out(graph: Graph) -> int:
    """The bytes of all constants of a graph with each element by itself, those included that one op makes."""
    facts = infer(graph)
    return sum(nbytes(facts[v]) for n in graph.nodes() if n.op in (CONSTANT, "ConstantOfShape") for v in n.outputs)


def most_seconds(graph: Graph) -> float | None:
    """How many seconds of processors a run may take that nobody asked for and of which no type tells when it ends; None
    where types tell."""
    return max(1.0, most_operations(graph, is_asked=False) / EACH_SECOND) if _may_go_on(graph) else None


def _may_go_on(graph: Graph) -> bool:
    return any(
        node.op == "Loop" or node.op in UNBOUNDED or any(map(_may_go_on, node.bodies.values()))
        for node in graph.nodes()
    )


def rounds(graph: Graph) -> float:
    """How many rounds the loops of a graph take at most, those of loops inside of others multiplied, a Scan's left out:
    infinitely many where no constant says how many."""
    most = 1.0
    for node in graph.nodes():
        trips = 1.0
        if node.op == "Loop":
            count = graph.constant_of(node.inputs[0])
            trips = inf if count is None else max(float(count.array.reshape(-1)[0]), 1.0)
        inside = max((rounds(body) for body in node.bodies.values()), default=1.0)
        most = max(most, inf if node.op in UNBOUNDED else trips * inside)
    return most


def _fixed(type: object, sizes: Mapping[str, int]) -> TensorType | None:
    """A tensor's type with numbers for named sizes."""
    if not isinstance(type, TensorType) or not isinstance(type.shape, tuple):
        return type if isinstance(type, TensorType) else None
    numbers: dict[str, Size] = dict(sizes)
    return TensorType(type.dtype, tuple(substitute(size, numbers) for size in type.shape))


def _work(graph: Graph, given: Mapping[Value, Fact]) -> Work:
    fixed = graph.copy()
    for value, fact in given.items():
        if fact.type is not None:
            fixed.types[value] = fact.type
    return _counted(fixed, *infer_with_bodies(fixed, given))


def _counted(graph: Graph, facts: Mapping[Value, Fact], walks: BodyWalks) -> Work:
    """What a run takes, by the facts of a graph and of its bodies."""
    order = graph.order()
    left = {value: len(set(graph.users(value))) + graph.is_output(value) for n in order for value in n.outputs}
    alive = most = total = 0
    for node in order:
        alive += sum(nbytes(facts[v]) for v in node.outputs) if node.op != CONSTANT else 0
        if node.op in (INPUT, CONSTANT):
            continue
        inside = _bodies(node, facts, walks)
        inputs, outputs = [None if v is None else facts[v] for v in node.inputs], [facts[v] for v in node.outputs]
        each = APPROXIMATED if node.op in APPROXIMATE else MOVED
        total += inside.operations + each * moved(inputs, outputs) + products(node.op, node.attrs, inputs, outputs)
        most = max(most, alive + inside.bytes)
        for value in dict.fromkeys(v for v in node.inputs if v is not None):
            left[value] -= sum(v == value for v in node.inputs)
            if left[value] <= 0 and graph.node(value.node).op not in (INPUT, CONSTANT):
                alive -= nbytes(facts[value])
    return Work(max(most, alive), total)


def _bodies(node: Node, facts: Mapping[Value, Fact], walks: BodyWalks) -> Work:
    """What the bodies of a node take: of an If the one that is taken, or the cheaper, of a loop all rounds."""
    inputs = [NOTHING if v is None else facts[v] for v in node.inputs]
    outer = len(inputs) - node.captures
    if node.op == "If":
        works = [_inside(body, inputs[1:], walks) for body in branches(node, inputs[0])]
        return Work(min(w.bytes for w in works), min(w.operations for w in works))
    if node.op == "Loop":
        return _loop(node, inputs, outer)
    if node.op == "Scan" and id(node.bodies["body"]) in walks:
        return _scan(node, inputs[:outer], walks)
    return Work(0, 0)


def _inside(body: Graph, inputs: Sequence[Fact], walks: BodyWalks) -> Work:
    """What a body takes on inputs; it is inferred anew where it was not walked through on the same ones."""
    given = {v: f for v, f in zip(body.inputs, inputs, strict=False) if f is not NOTHING}
    if id(body) in walks:
        walked, facts = walks[id(body)]
        if {v: f for v, f in walked.items() if f is not NOTHING} == given:
            return _counted(body, facts, walks)
    return _work(body, given)


def _loop(node: Node, inputs: Sequence[Fact], outer: int) -> Work:
    """What the rounds of a Loop take that certainly goes on, as long as the number of them is known."""
    body, trips = node.bodies["body"], inputs[0].elements
    count = trips[0] if trips else None
    if not isinstance(count, int) or count <= 0 or (inputs[1] is not NOTHING and inputs[1].elements != (1,)):
        return Work(0, 0)
    goes_on = body.outputs[0] is not None and _passes_on(body)
    states, most, total = list(inputs[2:outer]), 0, 0
    for number in range(min(count, ROUNDS) if goes_on else 1):
        given = [*map(fact_of_type, loop_head(body)), *states, *inputs[outer:]]
        known = {v: f for v, f in zip(body.inputs, given, strict=False) if f is not NOTHING}
        work = _work(body, known)
        most = max(most, work.bytes)
        outputs = infer(body, known)
        after = [NOTHING if v is None else outputs[v] for v in body.outputs[1 : 1 + len(states)]]
        total += work.operations + 1
        if [f.type for f in after] == [f.type for f in states]:
            return Work(most, total + (count - number - 1) * (work.operations + 1) if goes_on else total)
        states = after
    return Work(most, total)


def _scan(node: Node, inputs: Sequence[Fact], walks: BodyWalks) -> Work:
    """What the rounds of a Scan take, which are as many as its last scanned input has slices."""
    body = node.bodies["body"]
    scanned = node.attrs.get("num_scan_inputs", 0)
    shape, count = inputs[-1].shape if inputs else None, 1
    if isinstance(scanned, int) and scanned and shape:
        size = shape[scan_axis(node, "scan_input_axes", scanned - 1, len(shape))]
        count = size if isinstance(size, int) else 1
    work = _counted(body, walks[id(body)][1], walks)
    return Work(work.bytes, count * (work.operations + 1))


def _passes_on(body: Graph) -> bool:
    """Whether the condition of a body that runs is true for the next round."""
    value = body.outputs[0]
    for _ in range(len(body)):
        if value is None:
            return False
        if value == body.inputs[1]:
            return True
        node = body.node(value.node)
        if node.op != "Identity":
            constant = body.constant_of(value)
            return constant is not None and bool(constant.array.all())
        value = node.inputs[0]
    return False


def excess(graph: Graph, sizes: Mapping[str, int], most_bytes: float, most_operations: float) -> str:
    """Why a run would take more than it may, in words; empty where nothing says so."""
    try:
        work = work_of(graph, sizes)
    except GraphoptError:  # whoever runs it will say, on inputs that take as much as they do
        work = Work(sum(nbytes(fact_of_type(_fixed(graph.types.get(v), sizes))) for v in graph.inputs), 0)
    if work.bytes > most_bytes:
        return f"it takes {work.bytes} bytes at once, and may take {most_bytes}: --memory allows more"
    if work.operations > most_operations:
        return f"it takes {work.operations} operations, and may take {most_operations:.0f}"
    return ""
