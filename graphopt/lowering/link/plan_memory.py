"""Memory planning: buffers, shared memory, and the steps that call kernels on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from graphopt.errors import LimitError
from graphopt.ir import infer_shapes
from graphopt.ir.bounds import fact_of
from graphopt.ir.constants import BITS, Array, Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Value
from graphopt.kernels.kernel import Kernel
from graphopt.lowering.analysis.flops import flops, iterations
from graphopt.lowering.cpu.constant_precompute import PrecomputedNest
from graphopt.lowering.cpu.weight_packing import Laid
from graphopt.lowering.emit.kernel_source import Emitted, EmittedKernel, Launchable, LibraryCall
from graphopt.lowering.intrinsics.tensor_intrin import buffers_written
from graphopt.lowering.link.control_flow import control
from graphopt.lowering.link.linked import Linked, LinkedCall, Work
from graphopt.lowering.link.lowered import (
    Brought,
    Control,
    FusedItem,
    Lowered,
    LoweredScope,
    NestKey,
    Scheduled,
    ScopeItem,
    View,
)
from graphopt.lowering.loops.expressions import Var
from graphopt.lowering.loops.nest import Buffer as NestBuffer
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.sizes import Symbols, product, size_of, total
from graphopt.lowering.lower.embedded_programs import Called, inputs_of
from graphopt.lowering.lower.kept_states import KeptState
from graphopt.lowering.lower.lower import Appended, Unlowered, Viewed
from graphopt.lowering.lower.unlowered import ENGINE, REFERENCE, built_in, name_of, reference, region
from graphopt.lowering.operators.operation import DTYPES, NARROW
from graphopt.runtime.host import ExternalCall, HostFunction, UnloweredNode
from graphopt.runtime.onnxruntime import Region
from graphopt.runtime.sizes import Size
from graphopt.runtime.steps import (
    SHARED,
    Bind,
    BufferRef,
    Condition,
    HostStep,
    KernelStep,
    Launch,
    LibraryStep,
    Place,
    Port,
    ProgramBuffer,
    StatePort,
    Step,
)


def plan_memory(program: Lowered, begun: Callable[[Kernel], object] | None = None) -> Lowered:
    """The program with a memory plan. ``begun`` is called with each kernel that sharing memory changes."""
    planner = Planner(program.scheduled, program.kernels, program.by_hand, begun, program.options.threads)
    scope = ScopePlanner(planner, program.scope)
    graph = program.graph
    memories = {s.past: s for s in program.options.states if s.tail is not None}
    written = {s.present for s in program.options.states if s.tail is not None or s.in_place}
    inputs = tuple(scope.memory(memories[v]) if v in memories else scope.port(v) for v in graph.inputs)
    states, lengths = scope.states(program.options.states)
    scope.place_outputs()
    steps = tuple(scope.steps())
    named = zip(graph.output_names, graph.outputs, strict=True)
    outputs = tuple(Port(name, scope.number(v)) for name, v in named if v is not None and v not in written)
    linked = Linked(
        (*inputs, *lengths),
        outputs,
        tuple(planner.buffers),
        steps,
        tuple(planner.kernels),
        planner.constants,
        planner.functions,
        tuple(planner.parts),
        tuple(planner.unlowered),
        dict(planner.unfused),
        dict(planner.fused),
        tuple(planner.conditions),
        tuple(planner.work),
        states,
    )
    return replace(program, linked=linked)


class Planner:
    """Memory planner of a program: the buffers, kernels, functions and symbols that its graph and bodies share."""

    def __init__(
        self,
        scheduled: Mapping[NestKey, tuple[Scheduled, ...]],
        written: Mapping[NestKey, tuple[tuple[Scheduled, EmittedKernel], ...]],
        by_hand: Mapping[tuple[tuple[str, ...], Nest], Nest] | None = None,
        begun: Callable[[Kernel], object] | None = None,
        threads: int = 1,
    ) -> None:
        self.scheduled, self.written, self.by_hand, self.begun = scheduled, written, by_hand or {}, begun
        self.threads = threads
        self.begun_kernels = {
            w.kernel for parts in written.values() for _, w in parts if not isinstance(w, LibraryCall)
        }
        """The kernels that were begun when they were written: all but those whose operands turn out to share memory."""
        self.fused: dict[str, Nest] = {}
        self.buffers: list[ProgramBuffer] = []
        self.constants: dict[int, Array] = {}
        self.held: dict[Constant, int] = {}
        self.arranged: dict[tuple[Constant, bool], int] = {}
        self.ahead: dict[tuple[Hashable, ...], dict[NestBuffer, int]] = {}
        self.kernels: dict[Kernel, int] = {}
        self.functions: dict[str, HostFunction] = {}
        self.symbols = Symbols()
        self.parts: list[LinkedCall] = []
        self.work: list[Work] = []
        self.unlowered: list[UnloweredNode] = []
        self.unfused: dict[str, str] = {}
        self.conditions: dict[Condition, None] = {}

    def add(self, buffer: ProgramBuffer) -> int:
        """Adds a buffer; gives its number."""
        self.buffers.append(buffer)
        return len(self.buffers) - 1

    def true(self) -> int:
        """The number of a constant buffer that holds true."""
        constant = Constant.of(np.array(True))
        return self.constant(constant, fact_of(constant))

    def buffer(self, fact: Fact, placement: Place, of: int | None = None) -> int:
        """Adds a buffer for a value; gives its number."""
        shape = None if fact.shape is None else tuple(map(self.symbols.size, fact.shape))
        return self.add(ProgramBuffer(fact.dtype or "object", shape, placement, of))

    def constant(self, constant: Constant, fact: Fact) -> int:
        """The number of the buffer that holds a constant."""
        if constant not in self.held:
            self.held[constant] = self.buffer(fact, "constant")
            try:
                self.constants[self.held[constant]] = np.require(constant.array, requirements=["C", "A"])
            except MemoryError:
                what = f"a constant of the model is {constant.dtype}{list(constant.shape)}"
                raise LimitError(f"{what}: its {constant.array.nbytes / 2**30:.1f} GiB cannot be had") from None
        return self.held[constant]

    def laid(self, constant: Constant, laid: Laid) -> int:
        """The number of the buffer of a constant in the layout that a nest reads."""
        key = constant, laid.is_transposed
        if key not in self.arranged:
            array = laid.array(constant.array)
            self.arranged[key] = self.add(ProgramBuffer(constant.dtype, array.shape, "constant"))
            self.constants[self.arranged[key]] = array
        return self.arranged[key]

    def prepared(self, ready: PrecomputedNest, constants: Mapping[NestBuffer, Constant]) -> dict[NestBuffer, int]:
        """The numbers of the buffers of constants prepared for a nest."""
        key = ready.precomputed, tuple(constants.items()), ready.nest.params
        if key not in self.ahead:
            arrays = ready.arrays({b: c.array for b, c in constants.items()})
            self.ahead[key] = {b: self.add(ProgramBuffer(b.dtype, a.shape, "constant")) for b, a in arrays.items()}
            self.constants.update((self.ahead[key][b], a) for b, a in arrays.items())
        return self.ahead[key]

    def calls(
        self,
        nest: Nest,
        buffers: dict[NestBuffer, int],
        sizes: Mapping[Var, Size],
        label: str,
        nodes: tuple[str, ...],
        is_ready: bool = False,
    ) -> Iterator[Step]:
        """The calls of a nest's kernels."""
        if not is_ready:
            parts = self.scheduled[nest, False]
            self.work += [Work(nodes, part.before, {v: sizes[v] for v in part.before.sizes}) for part in parts]
            for part in parts:
                for written, seen in zip(part.before.buffers, part.nest.buffers, strict=True):
                    if seen != written:  # a schedule may see a parameter in another shape
                        buffers[seen] = self.kept(written, buffers, sizes)
        for part, emitted in self.written[nest, is_ready]:
            yield self.call(emitted, buffers, sizes, label, nodes, part.nest, part.before)

    def kept(self, b: NestBuffer, buffers: dict[NestBuffer, int], sizes: Mapping[Var, Size]) -> int:
        """The number of a nest's buffer; one that has none yet is scratch memory, and has one from here on."""
        if b not in buffers:
            shape = tuple(size_of(e, sizes) for e in b.shape)
            buffers[b] = self.add(ProgramBuffer(b.dtype, shape, "arena"))
        return buffers[b]

    def call(
        self,
        emitted: EmittedKernel,
        buffers: dict[NestBuffer, int],
        sizes: Mapping[Var, Size],
        label: str,
        nodes: tuple[str, ...],
        nest: Nest,
        counted: Nest,
    ) -> Step:
        """A call of a kernel; unknown buffers are scratch memory. Its operation count is that of ``counted``, the nest
        before scheduling."""
        # One step for each form of kernel, after what they share: scratch memory, overlap, the work that is done.
        for b in emitted.buffers:
            self.kept(b, buffers, sizes)
        if isinstance(emitted, Emitted) and not self.are_apart(nest, buffers):
            emitted = replace(emitted, kernel=replace(emitted.kernel, noalias=False))
        self.parts.append(LinkedCall(nodes, nest, emitted))
        moved = [product(*(size_of(e, sizes) for e in b.shape), BITS[b.dtype] // 8) for b in emitted.buffers]
        if isinstance(emitted, LibraryCall):
            places = (BufferRef(buffers[b], product(size_of(e, sizes), BITS[b.dtype] // 8)) for b, e in emitted.places)
            numbers = (size_of(e, sizes) for e in emitted.sizes)
            work = flops(counted, sizes), total(*moved)
            return LibraryStep(emitted.name, (*places, *numbers), emitted.attributes, label, nodes, *work)
        if emitted.kernel not in self.begun_kernels and self.begun is not None:
            self.begun(emitted.kernel)
        kernel = self.kernels.setdefault(emitted.kernel, len(self.kernels))
        args = (*(BufferRef(buffers[b]) for b in emitted.buffers), *(size_of(e, sizes) for e in emitted.sizes))
        details = label, nodes, flops(counted, sizes), total(*moved), emitted.messages
        if isinstance(emitted, Launchable):
            x, y, z = (size_of(e, sizes) for e in emitted.grid)
            return Launch(kernel, args, (x, y, z), emitted.block, *details)
        most = iterations(counted, sizes, unknown=SHARED) if emitted.parallel else 0
        count = min(most, SHARED) if isinstance(most, int) else ("min", most, SHARED)  # of unknown loops it has no end
        is_parallel = emitted.parallel and not (isinstance(count, int) and count < SHARED)
        return KernelStep(kernel, args, size_of(emitted.extent, sizes), is_parallel, count, *details)

    def are_apart(self, nest: Nest, buffers: Mapping[NestBuffer, int]) -> bool:
        """Whether the operands that a nest writes overlap no other operand. Scratch memory never overlaps, nor do
        buffers of the arena that are live at once, nor outputs and inputs, as programs check when they run."""
        roots = Counter(self.root(buffers[b]) for b in nest.buffers)
        return all(roots[self.root(buffers[b])] == 1 for b in buffers_written(nest) if b in nest.buffers)

    def root(self, number: int) -> int:
        """The buffer that owns the memory of a view."""
        buffer = self.buffers[number]
        return number if buffer.place != "view" or buffer.of is None else self.root(buffer.of)


class ScopePlanner:
    """Memory planner of one graph or body: the numbers of the buffers of its values."""

    def __init__(self, planner: Planner, scope: LoweredScope) -> None:
        self.planner, self.scope = planner, scope
        self.graph, self.facts, self.lowered = scope.graph, scope.facts, scope.lowered
        self.is_branch = scope.is_branch
        self.numbers: dict[Value, int] = {}

    def port(self, value: Value) -> Port:
        """An input of the program."""
        number = self.numbers[value] = self.planner.buffer(self.facts[value], "input")
        default = self.graph.producer(value).attrs.get("default")
        if isinstance(default, Constant):
            self.planner.constants[number] = np.require(default.array, requirements=["C", "A"])
        return Port(self.graph.names[value], number)

    def memory(self, state: KeptState) -> Port:
        """The memory of a state that grows, an input of the program; its past, its tail and its present lie in it."""
        assert state.tail is not None
        assert state.axis is not None
        past, sizes = self.facts[state.past], self.planner.symbols
        shape = tuple(map(sizes.size, state.memory(past.shape or ())))
        number = self.planner.add(ProgramBuffer(past.dtype or "", shape, "input"))
        for value in state.windows:
            self.numbers[value] = self.planner.buffer(self.facts[value], "view", number)
        row = product(*shape[state.axis + 1 :], BITS[past.dtype or ""] // 8)
        starts = {state.past: 0, state.present: 0, state.tail: product(sizes.size((past.shape or ())[state.axis]), row)}
        for value, start in starts.items():
            at = self.numbers[value]
            self.planner.buffers[at] = replace(self.planner.buffers[at], offset=start)
        return Port(self.graph.names[state.past], number)

    def states(self, states: Sequence[KeptState]) -> tuple[tuple[StatePort, ...], tuple[Port, ...]]:
        """The states of a program, and the inputs that tell it how long those are that grow: each an array of so many
        rows without elements."""
        lengths: dict[Size, Port] = {}
        ports = []
        names = {v: name for name, v in zip(self.graph.output_names, self.graph.outputs, strict=True)}
        for state in states:
            given, made = self.graph.names[state.past], names[state.present]
            if state.axis is None:
                if state.in_place:
                    memory = self.numbers[state.past]
                    self.numbers[state.present] = self.planner.buffer(self.facts[state.present], "view", memory)
                ports.append(StatePort(given, made, in_place=state.in_place))
                continue
            before, after = (
                self.planner.symbols.size((self.facts[v].shape or ())[state.axis]) for v in (state.past, state.present)
            )
            if before not in lengths:
                number = self.planner.add(ProgramBuffer("uint8", (before, 0), "input"))
                lengths[before] = Port(f"length of {given}", number)
            ports.append(StatePort(given, made, state.axis, lengths[before].name, after))
        return tuple(ports), tuple(lengths.values())

    def place_outputs(self) -> None:
        """Gives the outputs of the program buffers of their own, so that kernels write them directly."""
        for value in dict.fromkeys(v for v in self.graph.outputs if v is not None and v not in self.numbers):
            producer = self.lowered.get(value.node)  # nothing makes inputs and constants
            if producer is not None and not isinstance(producer, Viewed) and is_planned(self.facts[value]):
                self.numbers[value] = self.planner.buffer(self.facts[value], "output")

    def number(self, value: Value) -> int:
        """The number of the buffer that holds a value."""
        if value not in self.numbers:
            constant = self.constant_of(value)
            assert constant is not None, f"{value} is read before it is computed"
            self.numbers[value] = self.planner.constant(constant, self.facts[value])
        return self.numbers[value]

    def constant_of(self, value: Value) -> Constant | None:
        """The constant of a value; None where it is computed."""
        return self.graph.constant_of(value) or self.facts[value].constant

    def result_buffer(self, value: Value, placement: Place) -> int:
        """The number of the buffer that a value is written to."""
        if value not in self.numbers:
            self.numbers[value] = self.planner.buffer(self.facts[value], placement)
        return self.numbers[value]

    def steps(self) -> Iterator[Step]:
        """The steps of the graph; nodes that are left out one after the other are one region."""
        for is_unlowered, items in groupby(self.scope.items, lambda item: isinstance(item, Unlowered)):
            if is_unlowered:
                yield from self.left_out([item for item in items if isinstance(item, Unlowered)])
            else:
                yield from self.own(items)

    def own(self, items: Iterable[ScopeItem]) -> Iterator[Step]:
        """The steps of what is computed by kernels, bodies and registered functions."""
        for item in items:
            match item:
                case FusedItem():
                    yield from self.fused(item)
                case View():
                    yield from self.view(item)
                case Appended():  # it lies in the state's memory
                    pass
                case Control():
                    yield from control(self, item)
                case Brought():
                    yield from self.brought(item)
                case Called():
                    yield self.called(item)

    def inner(self, scope: LoweredScope) -> ScopePlanner:
        """The planner of a body."""
        return ScopePlanner(self.planner, scope)

    def checked(self, lowering: Viewed) -> None:
        """Adds a check before the program runs: a view has the size of its source."""
        before, after = (self.facts[v].shape for v in (lowering.source, Value(lowering.node.id)))
        if before is None or after is None:
            return
        counts = infer_shapes.product(before), infer_shapes.product(after)
        if counts[0] == counts[1]:
            return
        what = " to ".join(infer_shapes.spell(shape) for shape in (before, after))
        message = f"{name_of(self.graph, lowering.node)}: {lowering.node.op} of {what}"
        self.planner.conditions[Condition(("==", *map(self.planner.symbols.size, counts)), message)] = None

    def view(self, item: View) -> Iterator[Step]:
        """The steps of a view: in a branch that may not be taken, a check of its size."""
        lowering = item.lowering
        source, node = self.number(lowering.source), lowering.node
        number = self.numbers[Value(node.id)] = self.planner.buffer(self.facts[Value(node.id)], "view", source)
        if not self.is_branch:  # it is seen to before anything runs
            self.checked(lowering)
            return
        if item.check is None:
            return
        nest, atoms = item.check
        self.planner.buffers[number] = replace(self.planner.buffers[number], tentative=True)
        buffers = {nest.outputs[0]: self.planner.add(ProgramBuffer("bool", (), "arena"))}
        sizes: dict[Var, Size] = {var: self.planner.symbols(atom) for var, atom in atoms.items()}
        yield from self.planner.calls(nest, buffers, sizes, node.op, (name_of(self.graph, node),))

    def fused(self, item: FusedItem) -> Iterator[Step]:
        """The calls of a fused group."""
        wrote, laid = item.wrote, item.laid
        names = zip(wrote.nest.sizes, wrote.sizes, strict=True)
        sizes: dict[Var, Size] = {v: self.planner.symbols(s) for v, s in names}
        symbols = {v: self.planner.symbols(a) for v, a in wrote.atoms.items()} if wrote.conditions else {}
        for check in wrote.conditions:
            message = f"{', '.join(item.nodes)}: {check.message}"
            self.planner.conditions[Condition(size_of(check.condition, symbols), message)] = None
        ahead = {} if item.prepared is None else self.planner.prepared(item.prepared, item.plain)
        reads = set(wrote.nest.buffers[: len(wrote.inputs)])
        values = dict(zip(wrote.nest.buffers, (*wrote.inputs, *wrote.outputs), strict=True))

        def number(b: NestBuffer) -> int:
            if laid is not None and b == laid.plain:
                return self.planner.laid(item.constants[b], laid)
            if b in ahead:
                return ahead[b]
            return self.number(values[b]) if b in reads else self.result_buffer(values[b], "arena")

        numbers = [number(b) for b in item.unlaid.buffers]
        yield from self.calls(item, dict(zip(item.nest.buffers, numbers, strict=True)), sizes)
        if item.binds:
            yield Bind(tuple(map(self.planner.symbols.name, item.binds)), self.number(wrote.outputs[0]))

    def brought(self, item: Brought) -> Iterator[Step]:
        """The calls of an embedded program."""
        node, nest = item.lowering.node, item.nest
        self.planner.unfused.update(dict.fromkeys(item.nodes, item.lowering.reason))
        given = [None if v is None else self.number(v) for v in node.inputs]
        outputs = [self.result_buffer(v, "arena") for v in node.outputs]
        pairs = zip((*inputs_of(nest), *nest.outputs), (*given, *outputs), strict=True)
        buffers = {b: n for b, n in pairs if n is not None}
        sizes: dict[Var, Size] = {
            v: self.planner.symbols.size(s) for v, s in zip(nest.sizes, item.lowering.sizes, strict=True)
        }
        yield from self.calls(item, buffers, sizes)

    def calls(
        self, item: FusedItem | Brought, buffers: dict[NestBuffer, int], sizes: Mapping[Var, Size]
    ) -> Iterator[Step]:
        """The calls of a nest, with the user's schedule where its nodes have one."""
        self.planner.fused.update(dict.fromkeys(item.nodes, item.written))
        by_hand = self.planner.by_hand.get((item.nodes, item.nest))
        nest, is_ready = (item.nest, item.is_ready) if by_hand is None else (by_hand, True)
        yield from self.planner.calls(nest, buffers, sizes, item.label, item.nodes, is_ready)

    def called(self, lowering: Called) -> HostStep:
        """The call of a registered function, which fills the outputs."""
        node = lowering.node
        name = f"{node.op}_{len(self.planner.functions)}"
        attrs = {n: a.array if isinstance(a, Constant) else a for n, a in node.attrs.items()}
        label = node.op.replace("::", ".")
        self.planner.functions[name] = ExternalCall(label, lowering.function, attrs)
        inputs = tuple(None if v is None else self.number(v) for v in node.inputs)
        outputs = tuple(self.result_buffer(v, "arena") for v in node.outputs)
        return HostStep(name, inputs, outputs, True, (), label, (name_of(self.graph, node),))

    def left_out(self, unlowered: Sequence[Unlowered]) -> Iterator[HostStep]:
        """The steps of nodes that are left out, but those that a function computes which every program has."""
        found = [None if item.binds else built_in(self.graph, item.node, self.facts) for item in unlowered]
        for is_own, pairs in groupby(zip(unlowered, found, strict=True), key=lambda pair: pair[1] is not None):
            if not is_own:
                yield from self.region([item for item, _ in pairs])
                continue
            for item, step in pairs:
                assert step is not None
                constant = self.planner.constant(step.constant, fact_of(step.constant))
                outputs = tuple(self.result_buffer(v, "host") for v in item.node.outputs)
                names = (name_of(self.graph, item.node),)
                given = (constant,) if step.input is None else (constant, self.number(step.input))
                yield HostStep(step.function, given, outputs, False, (), item.node.op, names)

    def region(self, unlowered: Sequence[Unlowered]) -> Iterator[HostStep]:
        """The steps of nodes that are left out: one for all in ONNX Runtime where it takes them together, else one for
        each, there or by reference."""
        needed = {item.node.outputs[port] for item in unlowered for _, port, _ in item.binds}
        nodes = [item.node for item in unlowered]
        found = region(self.graph, nodes, self.facts, needed, self.planner.threads)
        if found is not None:
            yield self.host(unlowered, found.function, found.inputs, found.outputs)
        elif len(unlowered) > 1:
            for item in unlowered:
                yield from self.region([item])
        else:
            node = unlowered[0].node
            yield self.host(unlowered, reference(self.graph, node, self.facts), node.inputs, node.outputs)

    def host(
        self,
        unlowered: Sequence[Unlowered],
        function: HostFunction,
        inputs: Sequence[Value | None],
        outputs: Sequence[Value],
    ) -> HostStep:
        """The step of a function that computes nodes; in ONNX Runtime it fills its outputs where it can."""
        in_runtime = isinstance(function, Region)
        names = tuple(name_of(self.graph, item.node) for item in unlowered)
        ops = " + ".join(item.node.op for item in unlowered)
        name = f"{ops}_{len(self.planner.functions)}"
        self.planner.functions[name] = function
        engine = ENGINE if in_runtime else REFERENCE
        self.planner.unlowered += [
            UnloweredNode(name, item.node.op, item.reason, engine) for name, item in zip(names, unlowered, strict=True)
        ]
        binds = tuple(
            (self.planner.symbols.name(symbol), outputs.index(item.node.outputs[port]), axis)
            for item in unlowered
            for symbol, port, axis in item.binds
        )
        fills = in_runtime and not binds and all(is_planned(self.facts[v]) for v in outputs)
        given = tuple(None if v is None else self.number(v) for v in inputs)
        made = tuple(self.result_buffer(v, "arena" if fills else "host") for v in outputs)
        return HostStep(name, given, made, fills, binds, ops, names)


def is_planned(fact: Fact) -> bool:
    """Whether a value is an array whose size is known before it is computed."""
    return (fact.dtype in DTYPES or fact.dtype in NARROW) and fact.shape is not None
