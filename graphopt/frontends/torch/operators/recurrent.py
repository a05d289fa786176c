"""Recurrent layers, stacked and in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from graphopt.frontends.torch.table import Emitter, Table
from graphopt.frontends.torch.writer import Writer
from graphopt.ir.graph import Value

TABLE = Table()
aten = torch.ops.aten


@TABLE.entry(aten.lstm.input)
def _lstm(
    g: Writer,
    x: Value,
    start: Sequence[Value],
    weights: Sequence[Value],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Value, ...]:
    """torch's gates are input, forget, cell, output; ONNX's input, output, forget, cell."""
    layers = _Layers("LSTM", (0, 3, 1, 2), num_layers, bidirectional, has_biases, {})
    return layers.emit(g, x, start, weights, batch_first, dropout if train else 0.0)


@TABLE.entry(aten.gru.input)
def _gru(
    g: Writer,
    x: Value,
    start: Value,
    weights: Sequence[Value],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Value, ...]:
    """torch's gates are reset, update, new; ONNX's update, reset, new."""
    layers = _Layers("GRU", (1, 0, 2), num_layers, bidirectional, has_biases, {"linear_before_reset": 1})
    return layers.emit(g, x, [start], weights, batch_first, dropout if train else 0.0)


def _plain(activation: str) -> Emitter:
    def emit(
        g: Writer,
        x: Value,
        start: Value,
        weights: Sequence[Value],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Value, ...]:
        attrs = {"activations": (activation,) * (2 if bidirectional else 1)}
        layers = _Layers("RNN", (0,), num_layers, bidirectional, has_biases, attrs)
        return layers.emit(g, x, [start], weights, batch_first, dropout if train else 0.0)

    return emit


TABLE.entry(aten.rnn_tanh.input)(_plain("Tanh"))
TABLE.entry(aten.rnn_relu.input)(_plain("Relu"))


class _Layers:
    """Layers of one op, each of which reads what the one before gives."""

    def __init__(
        self, op: str, gates: Sequence[int], count: int, both_ways: bool, has_biases: bool, attrs: dict[str, Any]
    ) -> None:
        self.op, self.gates, self.count, self.attrs = op, gates, count, attrs
        self.ways = 2 if both_ways else 1
        self.has_biases = has_biases

    def emit(
        self, g: Writer, x: Value, starts: Sequence[Value], weights: Sequence[Value], batch_first: bool, dropout: float
    ) -> tuple[Value, ...]:
        """What the last layer gives at each step, and the last states of all."""
        per_way = len(weights) // (self.count * self.ways)
        if dropout and self.count > 1:
            raise g.refused("a recurrent layer with dropout: call model.eval() first")
        if g.rank(x) != 3 or per_way != (4 if self.has_biases else 2):
            raise g.refused("a recurrent layer without a batch, or with a projection")
        x = g.swapped(x, 0, 1) if batch_first else x
        last: list[list[Value]] = [[] for _ in starts]
        for layer in range(self.count):
            own = weights[layer * self.ways * per_way : (layer + 1) * self.ways * per_way]
            x, states = self._layer(g, x, [self._of_layer(g, s, layer) for s in starts], own, per_way)
            for kept, state in zip(last, states, strict=True):
                kept.append(state)
        found = g.swapped(x, 0, 1) if batch_first else x
        return found, *(s[0] if len(s) == 1 else g.op("Concat", *s, axis=0) for s in last)

    def _of_layer(self, g: Writer, states: Value, layer: int) -> Value:
        if self.count == 1:
            return states
        return g.slice(states, 0, layer * self.ways, (layer + 1) * self.ways)

    def _layer(
        self, g: Writer, x: Value, starts: Sequence[Value], weights: Sequence[Value], per_way: int
    ) -> tuple[Value, Sequence[Value]]:
        ways = [weights[k * per_way : (k + 1) * per_way] for k in range(self.ways)]
        w, r = (self._stacked(g, [self._in_order(g, way[k]) for way in ways]) for k in (0, 1))
        bias = None
        if self.has_biases:
            both = [g.op("Concat", *(self._in_order(g, way[k]) for k in (2, 3)), axis=0) for way in ways]
            bias = self._stacked(g, both)
        hidden = g.known(g.size(starts[0], 2), "the size of a recurrent layer's state")
        direction = "bidirectional" if self.ways == 2 else "forward"
        y, *states = g.several(
            self.op,
            1 + len(starts),
            x,
            w,
            r,
            bias,
            None,
            *starts,
            hidden_size=hidden,
            direction=direction,
            **self.attrs,
        )
        if self.ways == 1:
            return g.squeeze(y, 1), states
        length, _, batch, _ = g.sizes(y)
        return g.reshape(g.swapped(y, 1, 2), [length, batch, 2 * hidden]), states

    def _in_order(self, g: Writer, weight: Value) -> Value:
        """A weight with its gates in ONNX's order."""
        if len(self.gates) == 1:
            return weight
        parts = g.several("Split", len(self.gates), weight, axis=0, num_outputs=len(self.gates))
        return g.op("Concat", *(parts[k] for k in self.gates), axis=0)

    @staticmethod
    def _stacked(g: Writer, parts: Sequence[Value]) -> Value:
        raised = [g.op("Unsqueeze", p, np.array([0], np.int64)) for p in parts]
        return raised[0] if len(raised) == 1 else g.op("Concat", *raised, axis=0)
