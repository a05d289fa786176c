"""Trial runs of a graph that grows: what its values are on two random inputs, as far as an engine computes them."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from graphopt.errors import GraphoptError
from graphopt.ir.evaluate import run as evaluate
from graphopt.ir.graph import CONSTANT, INPUT, Graph, Header, Value
from graphopt.ir.onnx_io import to_bytes
from graphopt.ir.types import TensorType
from graphopt.verify.inputs import draw
from graphopt.verify.runtimes import EngineError, open_in_onnxruntime

SIZES = {"n": 3, "m": 2}
"""What open dimensions are."""

LARGEST_NUMBER = 1e4
"""Larger numbers are not kept: what is rounded of them is more than all that is added to them."""


class RefusedError(Exception):
    """An engine does not run a step, or makes numbers of it that say nothing."""


class Trial:
    """The values of a graph on two inputs, step by step.

    Most graphs are run by ONNX Runtime, some by the reference evaluator, for what only that has.
    """

    def __init__(self, random: Random) -> None:
        self.runs_in_reference = random.random() < 0.1
        self.kind = random.choice((0, 0, 1, 3))
        self.values: dict[Value, tuple[Any, Any]] = {}

    def run(self, graph: Graph, first: int) -> None:
        """Compute the nodes from id ``first`` on. Raises RefusedError where they are better left out."""
        new = list(graph.since(first))
        for node in new:
            if node.op == INPUT:
                self.values[node.outputs[0]] = self._drawn(graph, node.outputs[0])
            elif node.op == CONSTANT:
                array = node.attrs["value"].array  # type: ignore[union-attr]
                self.values[node.outputs[0]] = (array, array)
        calls = [node for node in new if node.op not in (INPUT, CONSTANT)]
        if not calls:
            return
        made = [value for node in calls for value in node.outputs]
        read = dict.fromkeys(v for node in calls for v in node.inputs if v is not None and v not in made)
        step = Graph(name="step", header=graph.header)
        copies: dict[Value, Value] = {}
        for number, value in enumerate(read):
            constant = graph.constant_of(value)
            array = self.values[value][0]
            if not isinstance(array, np.ndarray | np.generic):  # a sequence, or an optional value
                raise RefusedError("what no input of a step can be")
            kind = TensorType(array.dtype.name, array.shape)
            copies[value] = step.add_constant(constant) if constant else step.add_input(f"x{number}", kind)
        for node in calls:
            inputs = tuple(None if v is None else copies[v] for v in node.inputs)
            copy = step.add(node.op, inputs, node.attrs, node.n_outputs, captures=node.captures)
            copies.update(zip(node.outputs, copy.outputs, strict=True))
        for number, value in enumerate(made):
            step.add_output(f"y{number}", copies[value])
        names = {value: step.names[copies[value]] for value in read if copies[value] in step.names}
        feeds = [{name: self.values[value][i] for value, name in names.items()} for i in (0, 1)]
        outputs = self._outputs(step, feeds)
        if not all(map(_is_moderate, (array for row in outputs for array in row))):
            raise RefusedError("numbers that say nothing")
        self.values.update(zip(made, zip(*outputs, strict=True), strict=True))

    def _drawn(self, graph: Graph, value: Value) -> tuple[Any, Any]:
        alone = Graph(name="input", header=Header(opsets=graph.header.opsets))
        alone.add_input("x", graph.types[value])
        first, other = (draw(alone, SIZES, {}, {}, 2 * value.node + i, self.kind)["x"] for i in (0, 1))
        return first, other

    def _outputs(self, step: Graph, feeds: list[dict[str, Any]]) -> list[list[Any]]:
        try:
            if self.runs_in_reference:
                found = [evaluate(step, dict(given)) for given in feeds]
                return [[values[name] for name in step.output_names] for values in found]
            run = open_in_onnxruntime(to_bytes(step), threads=1)
            return [run(given) for given in feeds]
        except (EngineError, GraphoptError) as refusal:
            raise RefusedError(str(refusal)) from None
        except Exception as refusal:
            if self.runs_in_reference:  # the Python of an op may raise anything
                raise RefusedError(str(refusal)) from None
            raise

    def depends(self, value: Value) -> bool:
        """Whether at least half the elements of a value change with the inputs by more than rounding."""
        first, other = self.values[value]
        if not isinstance(first, np.ndarray) or first.shape != other.shape:
            return True
        if first.dtype.kind != "f":
            return bool((first != other).any())
        a, b = first.astype(float), other.astype(float)
        moves = np.abs(a - b) > 0.01 * np.maximum(np.abs(a), np.abs(b)) + 1e-4
        return bool(first.size and moves.mean() >= 0.5)

    def level(self, value: Value) -> float:
        """A number that the mean of a value may be below, or above."""
        return float(np.mean([np.mean(array) for array in self.values[value]]))


def _is_moderate(array: Any) -> bool:
    if not isinstance(array, np.ndarray) or array.dtype.kind in "biuOSU":
        return isinstance(array, (np.ndarray, list))
    wide = array.astype(np.float64) if array.dtype.kind != "c" else np.abs(array)
    return bool(np.isfinite(wide).all() and np.abs(wide).max(initial=0) <= LARGEST_NUMBER)
