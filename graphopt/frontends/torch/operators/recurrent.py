"""Recurrent layers, stacked and in both directions: a family of torch's operators, with a table of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from graphopt.frontends.torch.table import Emitter, Table
from graphopt.frontends.torch.writer import OpWriter
from graphopt.frozen import dataclass
from graphopt.ir.graph import Attr, Value

TABLE = Table()
aten = torch.ops.aten

_OF_LSTM = (0, 3, 1, 2)
"""Input, output, forget, cell."""


def _recurrent(op: str, gates: Sequence[int], activation: str = "", **attrs: Attr) -> Emitter:
    """What stacks layers of an op whose gates, in ONNX's order, have these places in torch's."""

    def emit(
        g: OpWriter,
        x: Value,
        start: Value | Sequence[Value],
        weights: Sequence[Value],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Value, ...]:
        ways = 2 if bidirectional else 1
        per_way = len(weights) // (num_layers * ways)
        if train and dropout and num_layers > 1:
            raise g.refused("a recurrent layer with dropout: call model.eval() first")
        if g.rank(x) != 3 or per_way != (4 if has_biases else 2):
            raise g.refused("a recurrent layer without a batch, or with a projection")
        x = g.swapped(x, 0, 1) if batch_first else x
        starts = [start] if isinstance(start, Value) else list(start)
        more = {"activations": (activation,) * ways} if activation else {}
        last: list[Sequence[Value]] = []
        for k in range(num_layers):
            layer_weights = weights[k * ways * per_way : (k + 1) * ways * per_way]
            each = [layer_weights[way * per_way : (way + 1) * per_way] for way in range(ways)]
            begin = [s if num_layers == 1 else g.slice(s, 0, k * ways, (k + 1) * ways) for s in starts]
            x, *states = _Layer(op, gates, {**attrs, **more}).emit(g, x, begin, each)
            last.append(states)
        sequence = g.swapped(x, 0, 1) if batch_first else x
        return sequence, *(_concatenated(g, states) for states in zip(*last, strict=True))

    return emit


TABLE.entry(aten.lstm.input)(_recurrent("LSTM", _OF_LSTM))
TABLE.entry(aten.gru.input)(_recurrent("GRU", (1, 0, 2), linear_before_reset=1))  # update, reset, new
TABLE.entry(aten.rnn_tanh.input)(_recurrent("RNN", (0,), "Tanh"))
TABLE.entry(aten.rnn_relu.input)(_recurrent("RNN", (0,), "Relu"))


@dataclass(frozen=True)
class _Layer:
    op: str
    gates: Sequence[int]
    attrs: dict[str, Attr]

    def emit(
        self, g: OpWriter, x: Value, starts: Sequence[Value], ways: Sequence[Sequence[Value]]
    ) -> tuple[Value, ...]:
        """What the layer gives at each step, directions side by side, and its last states."""
        w, r = (self._stacked(g, [self._in_order(g, way[k]) for way in ways]) for k in (0, 1))
        bias = None
        if len(ways[0]) > 2:
            bias = self._stacked(g, [g.op("Concat", *(self._in_order(g, b) for b in way[2:]), axis=0) for way in ways])
        hidden = g.known(g.size(starts[0], 2), "the size of a recurrent layer's state")
        direction = "bidirectional" if len(ways) == 2 else "forward"
        attrs = {"hidden_size": hidden, "direction": direction, **self.attrs}
        y, *states = g.several(self.op, 1 + len(starts), x, w, r, bias, None, *starts, **attrs)
        if len(ways) == 1:
            return g.squeeze(y, 1), *states
        length, _, batch, _ = g.sizes(y)
        return g.reshape(g.swapped(y, 1, 2), [length, batch, 2 * hidden]), *states

    def _in_order(self, g: OpWriter, weight: Value) -> Value:
        """A weight with its gates in ONNX's order."""
        if len(self.gates) == 1:
            return weight
        parts = g.several("Split", len(self.gates), weight, axis=0, num_outputs=len(self.gates))
        return g.op("Concat", *(parts[k] for k in self.gates), axis=0)

    @staticmethod
    def _stacked(g: OpWriter, parts: Sequence[Value]) -> Value:
        return _concatenated(g, [g.op("Unsqueeze", p, np.array([0], np.int64)) for p in parts])


@TABLE.entry(aten.mkldnn_rnn_layer)
def _direction_of_lstm(
    g: OpWriter,
    x: Value,
    w: Value,
    r: Value,
    b: Value,
    c: Value,
    hidden: Value,
    cell: Value,
    reverse: bool,
    batch_sizes: Sequence[int],
    mode: int,
    *_: Any,
) -> tuple[Value | None, ...]:
    """One direction of a layer: torch.compile has no others. The last result serves training alone."""
    if mode != 2:
        raise g.refused("a recurrent layer that is no LSTM")
    layer = _Layer("LSTM", _OF_LSTM, {"direction": "reverse" if reverse else "forward"})
    return *layer.emit(g, x, [hidden, cell], [[w, r, b, c]]), None


def _concatenated(g: OpWriter, parts: Sequence[Value]) -> Value:
    return parts[0] if len(parts) == 1 else g.op("Concat", *parts, axis=0)
