"""TENSAT's seven graphs: modelled speed-up and search time, greedy and by equality saturation, and measured.

    python tests/bench/tensat.py [NAME ...] [--ort] [--target t4]

The graphs are those that TENSAT (Yang et al., "Equality Saturation for Tensor Graph Superoptimization",
MLSys 2021) built or loaded, of the same sizes, with random weights: where theirs has a convolution with a
fused Relu, so has ours (``com.microsoft::FusedConv``), and where theirs has the two apart, so has ours. Their
BERT has no softmax and no normalization, their SqueezeNet and VGG no biases, their Inception no batch
normalization, their recurrent cell new weights in every step.

Speed-ups are original over result, less one. Costs are those of the target: NVIDIA's T4, the GPU that the paper
measured on, as a roofline of published numbers. *Greedy* applies a rule wherever the graph gets cheaper by it
at once, to a fixed point. Times are seconds of one core, those of folding weights, which
comes after the search, in brackets. ``--ort`` also optimizes for ONNX Runtime on this machine and times both there.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

import numpy as np

from graphopt.ir import infer, onnx_io
from graphopt.ir.constants import Constant
from graphopt.ir.graph import CONSTANT, INPUT, Attr, Attrs, Graph, Node, Value
from graphopt.ir.types import TensorType
from graphopt.optimize import optimize_graph
from graphopt.rewrite.extract.cost import CostModel, graph_cost
from graphopt.rewrite.match.build import Refused, replacements
from graphopt.rewrite.match.matcher import input_ops, matches, root_ops
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.passes.simplify import simplify
from graphopt.rewrite.rule.rule import Rule
from graphopt.rewrite.ruleset import standard
from graphopt.run.steps import Steps
from graphopt.target import ORT, Target, target

P = ParamSpec("P")
T = TypeVar("T")

PUBLISHED = {
    "BERT": (9.2, 1.4),
    "ResNeXt-50": (8.8, 0.7),
    "NasNet-A": (7.3, 10.6),
    "NasRNN": (68.9, 0.5),
    "Inception-v3": (10.0, 5.1),
    "SqueezeNet": (24.5, 0.3),
    "VGG-19": (8.9, 0.4),
}
"""TENSAT's speed-up in per cent and its search time in seconds."""


class Net:
    """A graph that is written down in few words; weights are random."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.random = np.random.default_rng(0)
        self.channels: dict[Value, int] = {}

    def input(self, name: str, *shape: int) -> Value:
        value = self.graph.add_input(name, TensorType("float32", shape))
        self.channels[value] = shape[1] if len(shape) > 1 else shape[0]
        return value

    def weight(self, *shape: int) -> Value:
        scale = 1.0 / math.sqrt(max(math.prod(shape[1:]), 1))
        array = self.random.standard_normal(shape, np.float32) * np.float32(scale)
        return self.graph.add_constant(Constant.of(array))

    def numbers(self, *values: int) -> Value:
        return self.graph.add_constant(Constant.of(np.array(values, np.int64)))

    def op(self, op: str, *inputs: Value, **attrs: Attr) -> Value:
        value = self.graph.add(op, inputs, Attrs(attrs)).outputs[0]
        self.channels[value] = self.channels.get(inputs[0], 0)
        return value

    def conv(
        self,
        x: Value,
        out: int,
        kernel: int | tuple[int, int] = 1,
        stride: int = 1,
        pad: int | tuple[int, int] | None = None,
        groups: int = 1,
        fused: bool = False,
    ) -> Value:
        """A convolution without bias, padded to keep the size unless told otherwise; ``fused`` with its Relu."""
        k = (kernel, kernel) if isinstance(kernel, int) else kernel
        p = (k[0] // 2, k[1] // 2) if pad is None else (pad, pad) if isinstance(pad, int) else pad
        attrs: dict[str, Attr] = {"kernel_shape": k, "strides": (stride, stride), "pads": (*p, *p), "group": groups}
        if fused:
            attrs["activation"] = "Relu"
        weight = self.weight(out, self.channels[x] // groups, *k)
        value = self.op("com.microsoft::FusedConv" if fused else "Conv", x, weight, **attrs)
        self.channels[value] = out
        return value

    def pool(self, x: Value, kind: str, kernel: int, stride: int, pad: int = 0) -> Value:
        return self.op(kind, x, kernel_shape=(kernel,) * 2, strides=(stride,) * 2, pads=(pad,) * 4)

    def concat(self, *parts: Value) -> Value:
        value = self.op("Concat", *parts, axis=1)
        self.channels[value] = sum(self.channels[p] for p in parts)
        return value

    def done(self, *outputs: Value) -> Graph:
        for i, value in enumerate(outputs):
            self.graph.add_output(f"y{i}", value)
        return self.graph


# -- the graphs


def nasrnn(steps: int = 5, hidden: int = 512) -> Graph:
    """A recurrent cell found by architecture search, unrolled: eight gates, each a sum of two products."""
    net = Net()
    state = net.weight(1, hidden)
    inputs = [net.input(f"x{i}", 1, hidden) for i in range(steps)]
    for x in inputs:
        gates = [
            net.op(
                "Add",
                net.op("MatMul", x, net.weight(hidden, hidden)),
                net.op("MatMul", state, net.weight(hidden, hidden)),
            )
            for _ in range(8)
        ]
        relu, sigmoid, tanh = (partial(net.op, op) for op in ("Relu", "Sigmoid", "Tanh"))
        a = net.op("Add", relu(gates[0]), sigmoid(gates[3]))
        b = net.op("Add", sigmoid(gates[1]), tanh(gates[2]))
        c = net.op("Mul", sigmoid(gates[4]), tanh(gates[5]))
        d = net.op("Mul", sigmoid(gates[6]), relu(gates[7]))
        e = net.op("Add", sigmoid(b), tanh(c))
        f = net.op("Mul", tanh(a), tanh(d))
        state = tanh(net.op("Mul", tanh(e), tanh(f)))
    return net.done(state)


def bert(layers: int = 8, length: int = 64, hidden: int = 1024, heads: int = 16) -> Graph:
    """The products of a transformer: four of each layer's input, and two between heads."""
    net = Net()
    x = net.op("Relu", net.input("x", length, hidden))
    results: list[Value] = []
    for _ in range(layers):
        parts = [net.op("MatMul", x, net.weight(hidden, hidden)) for _ in range(3)]
        q, k, v = (
            net.op("Transpose", net.op("Reshape", p, net.numbers(length, heads, hidden // heads)), perm=(1, 0, 2))
            for p in parts
        )
        mixed = net.op("Transpose", net.op("MatMul", net.op("MatMul", q, k), v), perm=(1, 0, 2))
        results.append(net.op("Reshape", mixed, net.numbers(length, hidden)))
        x = net.op("MatMul", x, net.weight(hidden, hidden))
    return net.done(*results, x)


def resnext() -> Graph:
    """ResNeXt-50 with 32 groups."""
    net = Net()
    x = net.pool(net.conv(net.input("x", 1, 3, 224, 224), 64, 7, 2, fused=True), "MaxPool", 3, 2, 1)
    for blocks, width, first in ((3, 128, 1), (4, 256, 2), (6, 512, 2), (3, 1024, 2)):
        for block in range(blocks):
            stride = first if block == 0 else 1
            y = net.conv(x, width, fused=True)
            y = net.conv(y, width, 3, stride, groups=32, fused=True)
            y = net.conv(y, 2 * width)
            if stride > 1 or net.channels[x] != 2 * width:
                x = net.conv(x, 2 * width, 1, stride, fused=True)
            x = net.op("Relu", net.op("Add", x, y))
    return net.done(x)


def nasnet() -> Graph:
    """NasNet-A: three times five normal cells and a reduction, of separable convolutions and pools."""
    net = Net()
    size: dict[Value, int] = {}

    def made(value: Value, pixels: int) -> Value:
        size[value] = pixels
        return value

    def separable(x: Value, out: int, kernel: int, stride: int = 1) -> Value:
        middle = net.conv(x, out, kernel, stride, groups=out)
        return made(net.conv(middle, out), size[x] // stride)

    def pool(x: Value, kind: str, stride: int) -> Value:
        return made(net.pool(x, kind, 3, stride, 1), size[x] // stride)

    def add(a: Value, b: Value) -> Value:
        return made(net.op("Add", a, b), size[a])

    def fitted(x: Value, like: Value) -> Value:
        """The other input of a cell, with as many channels and pixels as the first."""
        out = net.channels[like]
        if size[x] == size[like]:
            return made(net.conv(x, out, fused=True), size[x])
        return made(net.conv(x, out, 3, 2, fused=True), size[like])

    def normal(before: Value, now: Value, out: int) -> Value:
        now = made(net.conv(now, out, fused=True), size[now])
        before = fitted(before, now)
        parts = [
            add(separable(now, out, 3), now),
            add(separable(before, out, 3), separable(now, out, 3)),
            add(pool(now, "AveragePool", 1), before),
            add(pool(before, "AveragePool", 1), pool(before, "AveragePool", 1)),
            add(separable(before, out, 3), separable(before, out, 3)),
        ]
        return made(net.concat(*parts), size[now])

    def reduction(before: Value, now: Value, out: int) -> Value:
        now = made(net.conv(now, out, fused=True), size[now])
        before = fitted(before, now)
        first = add(separable(before, out, 7, 2), separable(now, out, 5, 2))
        second = add(pool(now, "MaxPool", 2), separable(before, out, 7, 2))
        third = add(pool(now, "AveragePool", 2), separable(before, out, 5, 2))
        fourth = add(pool(now, "MaxPool", 2), separable(first, out, 3))
        fifth = add(pool(first, "AveragePool", 1), second)
        return made(net.concat(first, second, third, fourth, fifth), size[first])

    x = net.conv(net.input("x", 1, 3, 224, 224), 64, 7, 2, fused=True)
    x = made(net.pool(x, "MaxPool", 3, 2, 1), 56)
    out = 128
    for _ in range(3):
        before = now = x
        for _ in range(5):
            before, now = now, normal(before, now, out)
        out *= 2
        x = reduction(before, now, out)
    return net.done(x)


def inception() -> Graph:
    """Inception-v3 without batch normalization and classifier."""
    net = Net()

    def conv(x: Value, out: int, kernel: int | tuple[int, int] = 1, stride: int = 1, pad: int | None = None) -> Value:
        return net.conv(x, out, kernel, stride, pad, fused=True)

    x = conv(net.input("x", 1, 3, 299, 299), 32, 3, 2, 0)
    x = net.pool(conv(conv(x, 32, 3, 1, 0), 64, 3), "MaxPool", 3, 2)
    x = net.pool(conv(conv(x, 80), 192, 3, 1, 0), "MaxPool", 3, 2)
    for pooled in (32, 64, 64):
        five = conv(conv(x, 48), 64, 5)
        three = conv(conv(conv(x, 64), 96, 3), 96, 3)
        x = net.concat(conv(x, 64), five, three, conv(net.pool(x, "AveragePool", 3, 1, 1), pooled))
    three = conv(conv(conv(x, 64), 96, 3), 96, 3, 2, 0)
    x = net.concat(net.pool(x, "MaxPool", 3, 2), conv(x, 384, 3, 2, 0), three)
    for width in (128, 160, 160, 192):
        seven = conv(conv(conv(x, width), width, (1, 7)), 192, (7, 1))
        twice = conv(conv(conv(x, width), width, (7, 1)), width, (1, 7))
        twice = conv(conv(twice, width, (7, 1)), 192, (1, 7))
        x = net.concat(conv(x, 192), seven, twice, conv(net.pool(x, "AveragePool", 3, 1, 1), 192))
    seven = conv(conv(conv(x, 192), 192, (1, 7)), 192, (7, 1))
    x = net.concat(conv(conv(x, 192), 320, 3, 2, 0), conv(seven, 192, 3, 2, 0), net.pool(x, "MaxPool", 3, 2))
    for _ in range(2):
        three = conv(x, 384)
        deep = conv(conv(x, 448), 384, 3)
        halves = [net.concat(conv(y, 384, (1, 3)), conv(y, 384, (3, 1))) for y in (three, deep)]
        x = net.concat(conv(x, 320), *halves, conv(net.pool(x, "MaxPool", 3, 1, 1), 192))
    return net.done(net.pool(x, "AveragePool", 8, 1))


def squeezenet() -> Graph:
    """SqueezeNet 1.1, each convolution with its Relu apart."""
    net = Net()

    def conv(x: Value, out: int, kernel: int = 1, stride: int = 1, pad: int | None = None) -> Value:
        return net.op("Relu", net.conv(x, out, kernel, stride, pad))

    x = net.pool(conv(net.input("x", 1, 3, 224, 224), 64, 3, 2, 0), "MaxPool", 3, 2)
    for i, (squeezed, out) in enumerate(
        ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
    ):
        x = conv(x, squeezed)
        x = net.concat(conv(x, out), conv(x, out, 3))
        if i in (1, 3):
            x = net.pool(x, "MaxPool", 3, 2)
    x = net.pool(conv(x, 1000), "AveragePool", 13, 13)
    return net.done(net.op("Reshape", x, net.numbers(1, 1000)))


def vgg() -> Graph:
    """VGG-19, each convolution with its Relu apart, without biases."""
    net = Net()
    x = net.input("x", 1, 3, 224, 224)
    for repeats, out in ((2, 64), (2, 128), (4, 256), (4, 512), (4, 512)):
        for _ in range(repeats):
            x = net.op("Relu", net.conv(x, out, 3))
        x = net.pool(x, "MaxPool", 2, 2)
    x = net.op("Reshape", x, net.numbers(1, 25088))
    x = net.op("Relu", net.op("MatMul", x, net.weight(25088, 4096)))
    x = net.op("Relu", net.op("MatMul", x, net.weight(4096, 4096)))
    return net.done(net.op("MatMul", x, net.weight(4096, 1000)))


GRAPHS: dict[str, Callable[[], Graph]] = {
    "BERT": bert,
    "ResNeXt-50": resnext,
    "NasNet-A": nasnet,
    "NasRNN": nasrnn,
    "Inception-v3": inception,
    "SqueezeNet": squeezenet,
    "VGG-19": vgg,
}


# -- searching


class Greedy:
    """Applies a rule wherever the graph gets cheaper by it at once, until none is left that does."""

    def __init__(self, graph: Graph, rules: Sequence[Rule], place: Target) -> None:
        self.space = Workspace(graph.copy())
        self.graph = self.space.graph
        self.model = CostModel(place)
        self.rules = [(rule, root_ops(rule), input_ops(rule)) for rule in rules]

    def run(self) -> Graph:
        changed = True
        while changed:
            changed = False
            for id in [node.id for node in self.graph.order()]:
                changed |= id in self.graph and self.visit(self.graph.node(id))
        return self.graph

    def visit(self, node: Node) -> bool:
        around = {self.graph.node(v.node).op for v in node.inputs if v is not None}
        for rule, ops, needed in self.rules:
            if (ops is None or node.op in ops) and needed <= around:
                for found in matches(rule, self.space, node):
                    if self.pays(rule, found.bindings, found.roots):
                        return True
        return False

    def pays(self, rule: Rule, bindings: object, roots: Sequence[Value]) -> bool:
        """Apply the rule where the graph gets cheaper by it."""
        first = self.graph.next_id
        try:
            made = replacements(rule, bindings, roots, self.space)  # type: ignore[arg-type]
        except Refused:
            self.space.undo(first)
            return False
        dead = self.dying(roots, made, first)
        new = sum(self.price(n) for n in self.graph.since(first) if n.id not in dead)
        if sum(self.price(self.graph.node(n)) for n in dead if n < first) <= new * (1 + 1e-9):
            self.space.undo(first)
            return False
        for old, value in zip(roots, made, strict=True):
            self.space.replace(old, value, first)
        for id in sorted(dead, reverse=True):
            if id in self.graph and not self.graph.is_used(id):
                self.space.remove(id)
        return True

    def dying(self, roots: Sequence[Value], made: Sequence[Value], first: int) -> set[int]:
        """The nodes that nobody reads any more once the roots are replaced."""
        dead: set[int] = set()
        waiting = [r.node for r in roots]
        while waiting:
            id = waiting.pop()
            node = self.graph.node(id)
            if id in dead or node.op == INPUT or any(self.is_read(v, roots, made, dead, first) for v in node.outputs):
                continue
            dead.add(id)
            waiting += [v.node for v in node.inputs if v is not None]
        return dead

    def is_read(self, value: Value, roots: Sequence[Value], made: Sequence[Value], dead: set[int], first: int) -> bool:
        if value in made:
            return True
        moved = value in roots
        if self.graph.is_output(value) and not moved:
            return True
        return any(user not in dead and (user >= first or not moved) for user, _ in self.graph.users(value))

    def price(self, node: Node) -> float:
        if node.op in (INPUT, CONSTANT) or all(self.space.fact(v).is_const for v in node.outputs):
            return 0.0
        inputs = [None if v is None else self.space.fact(v) for v in node.inputs]
        return self.model.cost(node.op, node.attrs, inputs, [self.space.fact(v) for v in node.outputs]).seconds


class Clock(Steps):
    """Steps that are timed in seconds of the processor, so that who else uses the machine matters less."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def __call__(self, name: str, function: Callable[P, T], /, *arguments: P.args, **options: P.kwargs) -> T:
        start = time.process_time()
        result = super().__call__(name, function, *arguments, **options)
        self.seconds[name] += time.process_time() - start
        return result


def greedy(graph: Graph, place: Target) -> tuple[Graph, float, float]:
    """The graph after greedy rewriting, the time that took, and the time to fold weights."""
    rules = standard().select(target=place)
    graph = simplify(graph, rules.always, rules.passes)
    start = time.process_time()
    found = Greedy(graph, rules.rules, place).run()
    middle = time.process_time()
    result = simplify(found, rules.always, rules.passes)
    return result, middle - start, time.process_time() - middle


def saturated(graph: Graph, place: Target) -> tuple[Graph, float, float]:
    """The graph after equality saturation, the time that took, and the time to fold weights."""
    clock = Clock()
    result, _ = optimize_graph(graph, target=place, step=clock)
    folding = clock.seconds.pop("fold", 0.0)
    return result, sum(clock.seconds.values()), folding


# -- measuring


def row(name: str, place: Target, ort: bool) -> str:
    """One row of the table."""
    graph = GRAPHS[name]()
    before = graph_cost(graph, infer.infer(graph), place).total.seconds
    cells = [name, f"{1e3 * before:.2f} ms"]
    for search in (greedy, saturated):
        result, seconds, folding = search(graph, place)
        after = graph_cost(result, infer.infer(result), place).total.seconds
        cells += [f"{100 * (before / after - 1):.1f} %", f"{seconds:.1f} s (+{folding:.1f})"]
    speedup, seconds = PUBLISHED[name]
    cells += [f"{speedup} %", f"{seconds} s"]
    if ort:
        cells.append(measured(graph))
    return "| " + " | ".join(cells) + " |"


def measured(graph: Graph) -> str:
    """How much faster the result is in ONNX Runtime on this machine, with its 95 % interval."""
    from speed import burst, session

    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / "original.onnx", Path(folder) / "result.onnx"]
        onnx_io.save(graph, paths[0])
        onnx_io.save(optimize_graph(graph, target=ORT)[0], paths[1])
        random = np.random.default_rng(0)
        shapes = {graph.names[v]: infer.infer(graph)[v].shape or () for v in graph.inputs}
        feeds = {
            name: random.standard_normal([int(str(n)) for n in shape], np.float32) for name, shape in shapes.items()
        }
        runners = [session(path, 1) for path in paths]
        logs = [math.log(burst(runners[0], feeds) / burst(runners[1], feeds)) for _ in range(15)]
    mean, half = statistics.mean(logs), 2.145 * statistics.stdev(logs) / len(logs) ** 0.5
    return f"{math.exp(mean):.2f}x [{math.exp(mean - half):.2f}-{math.exp(mean + half):.2f}]"


def main() -> None:
    """Read the command line and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[[], *GRAPHS], metavar="NAME")
    parser.add_argument("--ort", action="store_true")
    parser.add_argument("--target", default="t4")
    arguments = parser.parse_args()
    place = target(arguments.target)
    standard()  # reading the rules is no part of a search
    titles = ["graph", "modelled", "greedy", "time", "e-graph", "time", "TENSAT", "time"]
    titles += ["ONNX Runtime, CPU"] * arguments.ort
    print("| " + " | ".join(titles) + " |\n|" + "---|" * len(titles))
    for name in arguments.names or GRAPHS:
        print(row(name, place, arguments.ort), flush=True)


if __name__ == "__main__":
    main()
