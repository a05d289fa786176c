"""Seeded faults: small changes of right models, and how many of them verification finds.

    python -m tests.verify.seeded_faults --faults 137 [MODEL.onnx ...] [--json FILE]

Each fault changes a constant, an attribute, an operand or an op of a model, or of what ``optimize`` made of it, such
that an output is another in float64, for one of some inputs. The last line counts how many are found, called verified,
and neither; and the same of right results.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from graphopt.errors import GraphoptError, VerificationError
from graphopt.ir import onnx_io
from graphopt.ir.constants import Array, Constant
from graphopt.ir.evaluate import compute
from graphopt.ir.graph import CONSTANT, INPUT, Graph, Node, Value
from graphopt.ir.infer import infer
from graphopt.ir.text import parse
from graphopt.ir.types import TensorType
from graphopt.optimize import optimize
from graphopt.verify import verification
from graphopt.verify.inputs import draw, ranges, sizes
from graphopt.verify.runtimes import EngineError, open_model
from graphopt.verify.verification import verify
from tests.conftest import compared_here
from tests.random_graphs import random_graph

DRAWS, DRAWS_OF_WRITTEN = 2, 200
"""How many inputs a fault is tried on in float64: large models show it soon."""

SMALLEST = 1e-11
"""By what share of an output's largest magnitude a fault has to change it, in float64."""

WRITTEN = {
    "classifier": """x: float32[4, 16], w: float32[16, 32], v: float32[32, 10]
        h = Relu(MatMul(x, w))
        y = ArgMax(MatMul(h, v), axis=1, keepdims=0)
        return y""",
    "two outputs": """x: float32[4, 16], w: float32[16, 32], v: float32[32, 10]
        h = Relu(MatMul(x, w))
        y = ArgMax(MatMul(h, v), axis=1, keepdims=0)
        z = Tanh(Mul(x, 0.5))
        return y, z""",
    "small branch": """x: float32[4, 16], w: float32[16, 16]
        small = Mul(Tanh(MatMul(x, w)), 0.000001)
        y = Add(x, small)
        return y""",
    "small part": """x: float32[4, 16]
        s = Mul(Sigmoid(x), 0.00001)
        y = Concat(x, s, axis=1)
        return y""",
    "saturated": """x: float32[4, 16], w: float32[16, 16]
        y = Sigmoid(Mul(Add(MatMul(x, w), 3.0), 10.0))
        return y""",
    "quantized": """x: float32[8, 16], w: float32[16, 16]
        q = QuantizeLinear(x, 0.05, uint8[]{128})
        d = DequantizeLinear(q, 0.05, uint8[]{128})
        m = MatMul(d, w)
        y = QuantizeLinear(m, 0.1, uint8[]{128})
        return y""",
    "threshold": """x: float32[4, 64]
        c = Greater(x, 0.5)
        y = Where(c, Mul(x, 2.0), Add(x, 1.0))
        return y""",
    "choice": """x: float32[4, 64], w: float32[64, 32], v: float32[64, 32]
        a = MatMul(x, w)
        b = MatMul(x, v)
        y = Cast(Greater(a, b), to=9)
        return y""",
    "norm": """x: float32[4, 64], w: float32[64], b: float32[64]
        m = ReduceMean(x, int64[1]{-1}, keepdims=1)
        d = Sub(x, m)
        s = ReduceMean(Mul(d, d), int64[1]{-1}, keepdims=1)
        y = Add(Mul(Div(d, Sqrt(Add(s, 0.00001))), w), b)
        return y""",
    "embedding": """i: int64[8], t: float32[50, 16], w: float32[16, 4]
        y = Softmax(MatMul(Gather(t, i), w), axis=-1)
        return y""",
}
"""Models whose outputs hide faults; parameters but the first are weights."""


def written(text: str, seed: int) -> Graph:
    """One of ``WRITTEN``, with random weights in the place of all inputs but the first."""
    rng = np.random.default_rng(seed)
    graph = parse(text)
    for value in graph.inputs[1:]:
        kind = graph.types[value]
        assert isinstance(kind, TensorType)
        array = rng.standard_normal(kind.shape).astype(np.float32)  # type: ignore[arg-type]
        weight = graph.add_constant(Constant.of(array), graph.names[value])
        graph.replace(value, weight)
        graph.remove(value.node)
    graph.inputs = graph.inputs[:1]
    return graph


# -- faults

OTHER_OPS = {
    "Add": "Sub", "Sub": "Add", "Mul": "Div", "Div": "Mul", "Max": "Min", "Min": "Max", "Relu": "Sigmoid",
    "Sigmoid": "Tanh", "Tanh": "Sigmoid", "Floor": "Ceil", "Ceil": "Floor", "Less": "LessOrEqual", "Exp": "Softplus",
    "Greater": "GreaterOrEqual", "ArgMax": "ArgMin", "ReduceMean": "ReduceMax", "ReduceMax": "ReduceMean",
    "MaxPool": "AveragePool", "Abs": "Neg", "Neg": "Abs", "Sqrt": "Exp", "And": "Or", "Or": "And", "Round": "Floor",
}  # fmt: skip


def faulty(graph: Graph, random: Random) -> tuple[Graph, str] | None:
    """A graph with a fault, and what it is; None where the place that was drawn has none."""
    nodes = [n for n in graph.nodes() if n.op not in (INPUT, CONSTANT) and n.n_outputs and not n.bodies]
    if not nodes:
        return None
    node = random.choice(nodes)
    kind = random.choice(("constant", "constant", "attribute", "operand", "op"))
    made = {"constant": _constant, "attribute": _attribute, "operand": _operand, "op": _op}[kind](graph, node, random)
    return None if made is None else (made[0], f"{kind} of {node.op}: {made[1]}")


def _constant(graph: Graph, node: Node, random: Random) -> tuple[Graph, str] | None:
    places = [(i, c) for i, v in enumerate(node.inputs) if (c := graph.constant_of(v)) is not None and c.size]
    places = [(i, c) for i, c in places if c.dtype in ("float32", "float64", "int64", "uint8", "int8", "int32")]
    if not places:
        return None
    index, constant = random.choice(places)
    array = constant.array.copy()
    if array.dtype.kind != "f":
        at = random.randrange(array.size)
        array.reshape(-1)[at] += 1
        how = f"element {at} of input {index} is one more"
    elif array.size == 1 or random.random() < 0.5:
        array = (array * array.dtype.type(1.01)).astype(array.dtype)
        how = f"input {index} is 1 % more"
    else:
        at = random.randrange(array.size)
        array.reshape(-1)[at] *= array.dtype.type(1.01)
        how = f"element {at} of input {index} is 1 % more"
    if np.array_equal(array, constant.array):
        return None
    twin = graph.copy()
    value = twin.add_constant(Constant.of(array))
    inputs = [value if i == index else v for i, v in enumerate(node.inputs)]
    twin.update(node.id, inputs=tuple(inputs))
    return twin, how


def _attribute(graph: Graph, node: Node, random: Random) -> tuple[Graph, str] | None:
    attrs = [(n, a) for n, a in node.attrs.items() if isinstance(a, (int, float, tuple)) and n not in ("to", "group")]
    if not attrs:
        return None
    name, value = random.choice(attrs)
    new: Any
    if isinstance(value, tuple):
        if not value or not all(isinstance(v, (int, float)) for v in value):
            return None
        at = random.randrange(len(value))
        new = tuple(_more(v) if i == at else v for i, v in enumerate(value))
    else:
        new = _more(value)
    twin = graph.copy()
    twin.update(node.id, attrs=node.attrs.with_(**{name: new}))
    return twin, f"{name} is {new}, not {value}"


def _more(number: Any) -> Any:
    if isinstance(number, int):
        return 1 - number if number in (0, 1) else number + 1
    return 1.01 * number or 0.01


def _operand(graph: Graph, node: Node, random: Random) -> tuple[Graph, str] | None:
    facts = infer(graph)
    index = random.randrange(max(len(node.inputs), 1))
    if not node.inputs or (value := node.inputs[index]) is None or value not in facts:
        return None
    earlier: list[Value] = []
    for other in graph.order():
        if other.id == node.id:
            break
        earlier += [v for v in other.outputs if v != value and v in facts and facts[v].type == facts[value].type]
    if not earlier:
        return None
    new = random.choice(earlier)
    twin = graph.copy()
    twin.update(node.id, inputs=tuple(new if i == index else v for i, v in enumerate(node.inputs)))
    return twin, f"input {index} is what {graph.producer(new).op} makes"


def _op(graph: Graph, node: Node, random: Random) -> tuple[Graph, str] | None:
    op = OTHER_OPS.get(node.op)
    if op is None:
        return None
    twin = graph.copy()
    attrs = node.attrs
    if node.op == "MaxPool":
        attrs = attrs.with_(storage_order=None, dilations=None)
    twin.update(node.id, op=op, attrs=attrs)
    return twin, f"is {op}"


# -- effects in float64


def values_of(graph: Graph, feeds: dict[str, Array], known: dict[Value, Any] | None = None) -> dict[Value, Any]:
    """Everything that a graph computes of inputs, in float64; what is ``known`` is not computed again."""
    values: dict[Value, Any] = dict(known or {})
    for node in graph.order():
        if node.outputs and node.outputs[0] in values:
            continue
        if node.op == INPUT:
            values[node.outputs[0]] = _wide(feeds[graph.names[node.outputs[0]]])
        elif node.op == CONSTANT:
            constant = node.attrs["value"]
            assert isinstance(constant, Constant)
            values[node.outputs[0]] = _wide(constant.array)
        else:
            attrs = node.attrs.with_(to=11) if node.op == "Cast" and node.attrs.get("to") == 1 else node.attrs
            arrays = [None if v is None else values[v] for v in node.inputs]
            values.update(zip(node.outputs, map(_wide, compute(node.op, attrs, arrays, node.n_outputs)), strict=False))
    return values


def _wide(value: Any) -> Any:
    return value.astype(np.float64) if isinstance(value, np.ndarray) and value.dtype == np.float32 else value


def has_effect(graph: Graph, twin: Graph, values: list[dict[Value, Any]], feeds: list[dict[str, Array]]) -> bool:
    """Whether a fault changes an output for one of the inputs."""
    changed: set[int] = set()
    for node in twin.order():
        is_new = node.id not in graph or graph.node(node.id) != node
        if is_new or any(v.node in changed for v in node.inputs if v is not None):
            changed.add(node.id)
    told = [v for v in twin.outputs if v is not None]
    for known, fed in zip(values, feeds, strict=True):
        now = values_of(twin, fed, {v: a for v, a in known.items() if v.node not in changed and v.node in twin})
        if any(v.node in changed and _apart(known[v], now[v]) for v in told if v in known):
            return True
    return False


def _apart(a: Any, b: Any) -> bool:
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray) or a.shape != b.shape or a.dtype != b.dtype:
        return True
    if a.dtype.kind != "f":
        return not np.array_equal(a, b)
    with np.errstate(all="ignore"):
        most = np.abs(np.where(np.isfinite(a), a, 0)).max(initial=0)
        far = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, np.abs(a - b))
    return bool((~(far <= SMALLEST * most)).any())


# -- trials


def models(paths: list[Path], seed: int) -> Iterator[tuple[str, Graph]]:
    """The models at the paths, the written ones and random ones, without end."""
    read = [(path.stem, onnx_io.load(path)) for path in paths]
    number = seed
    while True:
        yield from ((name, graph.copy()) for name, graph in read)
        for name, text in WRITTEN.items():
            yield name, written(text, number)
        for _ in range(6):
            number += 1
            yield f"random {number}", random_graph(Random(number), 5)


def trials(paths: list[Path], count: int, seed: int, each: int, child: Child) -> Iterator[dict[str, Any]]:
    """What verification says of right results and of faulty ones, until so many faults are tried."""
    random, folder = Random(seed), Path(tempfile.mkdtemp(prefix="graphopt-"))
    found = 0
    for name, graph in models(paths, seed):
        if found >= count:
            return
        try:
            onnx_io.save(graph, folder / "a.onnx")
            graph = onnx_io.load(folder / "a.onnx")
            result = optimize(graph, verify="off", signed=False)
            draws = DRAWS_OF_WRITTEN if name in WRITTEN else DRAWS
            fed = [draw(graph, next(sizes(graph, {})), ranges(graph), {}, s, s % 2) for s in range(draws)]
            run, _ = open_model(folder / "a.onnx")
            for feeds in fed[:DRAWS]:
                run(feeds)
            onnx_io.save(result, folder / "b.onnx")
            said = child.ask(folder / "a.onnx", folder / "b.onnx", fed[0])
        except (GraphoptError, EngineError, ValueError):
            continue
        yield {"model": name, "fault": "", **said}
        for base in (result, graph):
            try:
                values = [values_of(base, feeds) for feeds in fed]
            except (GraphoptError, KeyError):
                continue
            made = 0
            for _ in range(8 * each):
                if made == each or found >= count:
                    break
                try:
                    fault = faulty(base, random)
                    if fault is None or not has_effect(base, fault[0], values, fed):
                        continue
                    onnx_io.save(fault[0], folder / "c.onnx")
                    said = child.ask(folder / "a.onnx", folder / "c.onnx", fed[0])
                except (GraphoptError, EngineError, ValueError, KeyError):
                    continue
                made, found = made + 1, found + 1
                yield {"model": name, "fault": fault[1], **said}


class Child:
    """A process that runs results and verifies them: ONNX Runtime ends its process on some faulty models."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._pool = ProcessPoolExecutor(1, get_context("spawn"), initializer=in_this_process)

    def ask(self, a: Path, b: Path, feeds: dict[str, Any]) -> dict[str, Any]:
        """What verification says of a result. EngineError where it does not run."""
        try:
            return self._pool.submit(told, a, b, feeds).result()
        except BrokenProcessPool:
            self._begin()
            raise EngineError("the runtime ended its process") from None


def in_this_process() -> None:
    """From here on, verification compares in the process that asks for it."""
    verification._ask = compared_here


def told(a: Path, b: Path, feeds: dict[str, Any]) -> dict[str, Any]:
    """What verification says of a result. EngineError where it does not run."""
    open_model(b)[0](feeds)
    start = time.perf_counter()
    try:
        verified = verify(a, b)
        status, reason = verified.status, verified.reason
    except VerificationError as wrong:
        status, reason = "found", str(wrong)
    return {"status": status, "reason": reason, "seconds": round(time.perf_counter() - start, 2)}


def main() -> None:
    """Try faults, and count what became of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--faults", type=int, default=137)
    parser.add_argument("--each", type=int, default=2, help="faults in each model, and in its result")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    counts: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    seconds = 0.0
    for trial in trials(options.models, options.faults, options.seed, options.each, Child()):
        counts[bool(trial["fault"])][trial["status"]] += 1
        seconds += trial["seconds"]
        if options.json:
            with options.json.open("a") as file:
                file.write(json.dumps(trial) + "\n")
        if trial["status"] != ("found" if trial["fault"] else "verified"):
            print(trial["model"], "|", trial["fault"] or "right", "|", trial["status"], trial["reason"][:160])
    print("faults", dict(counts[True]), "right results", dict(counts[False]), f"{seconds:.0f} s")


if __name__ == "__main__":
    main()
