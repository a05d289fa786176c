"""Mutants of models: one valid model, with a few things in it changed at random, as broken exporters and strangers do.

``mutant`` is a function of a ``random.Random`` alone. ``outcome`` says how a run on a model ended.
"""

from __future__ import annotations

import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from google.protobuf.message import DecodeError
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, defs

from graphopt.errors import GraphoptError

SIZES = (-(2**63), -(2**31), -2, -1, 0, 1, 2, 3, 7, 64, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1)
"""Whole numbers that attributes, sizes and elements become."""
FLOATS = (float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1.0, -1.0, 0.5, 3.4e38, 1e-45)
TEXTS = ("", "a", "ij,jk->q", "linear", "SAME_UPPER", "(a+)+$", "\x00", "nearest", "cubic", "...", "add", "ij->")
OPS = sorted({schema.name for schema in defs.get_all_schemas() if not schema.domain})


def mutant(random: Random, model: ModelProto) -> bytes:
    """The bytes of the model with one to four things changed."""
    changed = ModelProto()
    changed.CopyFrom(model)
    for _ in range(random.choice((1, 1, 2, 4))):
        random.choice(CHANGES)(random, changed)
    content = changed.SerializeToString()
    if random.random() < 0.1:
        content = flipped(random, content)
    return content


def flipped(random: Random, content: bytes) -> bytes:
    """The bytes with a few of them changed, added or cut."""
    new = bytearray(content)
    for _ in range(random.choice((1, 3, 10))):
        at = random.randrange(len(new) or 1)
        match random.randrange(3):
            case 0:
                new[at : at + 1] = bytes([random.randrange(256)])
            case 1:
                new[at:at] = random.randbytes(random.choice((1, 8)))
            case _:
                del new[at : at + random.choice((1, 2, 50))]
    return bytes(new)


def graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph and all bodies in it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from graphs(body)


def _graph(random: Random, model: ModelProto) -> GraphProto:
    return random.choice(list(graphs(model.graph)))


def _node(random: Random, model: ModelProto) -> NodeProto:
    nodes = [*_graph(random, model).node, *(node for function in model.functions for node in function.node)]
    return random.choice(nodes or list(model.graph.node) or [model.graph.node.add(op_type="Relu")])


def _attribute(random: Random, model: ModelProto) -> None:
    """Change an attribute of a node, drop it, or add one that its schema has."""
    node = _node(random, model)
    if not node.attribute or random.random() < 0.3:
        schema = defs.get_schema(node.op_type) if defs.has(node.op_type) else None
        names = [n for n in (schema.attributes if schema else ()) if n not in {a.name for a in node.attribute}]
        if names:
            name = random.choice(names)
            kind = random.choice(list(AttributeProto.AttributeType.values())[:9])
            if random.random() < 0.8:
                kind = schema.attributes[name].type.value  # type: ignore[union-attr]
            _set(random, node.attribute.add(name=name, type=kind))
        return
    attribute = random.choice(node.attribute)
    if random.random() < 0.15:
        node.attribute.remove(attribute)
    else:
        _set(random, attribute)


def _set(random: Random, attribute: AttributeProto) -> None:
    """Give an attribute other elements, or other numbers of them."""
    match attribute.type:
        case AttributeProto.INT:
            attribute.i = random.choice(SIZES)
        case AttributeProto.FLOAT:
            attribute.f = random.choice(FLOATS)
        case AttributeProto.STRING:
            attribute.s = random.choice(TEXTS).encode()
        case AttributeProto.INTS:
            _list(random, attribute.ints, SIZES)
        case AttributeProto.FLOATS:
            _list(random, attribute.floats, FLOATS)
        case AttributeProto.STRINGS:
            _list(random, attribute.strings, [text.encode() for text in TEXTS])
        case AttributeProto.TENSOR:
            _fill(random, attribute.t)


def _list(random: Random, items: Any, choices: Any) -> None:
    if items and random.random() < 0.6:
        items[random.randrange(len(items))] = random.choice(choices)
    elif items and random.random() < 0.5:
        items.pop()
    else:
        items.append(random.choice(choices))


def _fill(random: Random, tensor: TensorProto) -> None:
    """Change a tensor's sizes, dtype or elements."""
    match random.randrange(4):
        case 0:
            _list(random, tensor.dims, SIZES)
        case 1:
            tensor.data_type = random.randrange(27)
        case 2:
            for items, choices in ((tensor.int64_data, SIZES), (tensor.float_data, FLOATS)):
                if items:
                    _list(random, items, choices)
        case _:
            if len(tensor.raw_data) >= 8:
                at = random.randrange(len(tensor.raw_data) // 8) * 8
                new = random.choice(SIZES).to_bytes(8, "little", signed=True)
                tensor.raw_data = tensor.raw_data[:at] + new + tensor.raw_data[at + 8 :]


def _constant(random: Random, model: ModelProto) -> None:
    """Change an initializer."""
    if tensors := _graph(random, model).initializer:
        _fill(random, random.choice(tensors))


def _type(random: Random, model: ModelProto) -> None:
    """Change the type that an input or output or value is declared to have."""
    graph = _graph(random, model)
    declared: list[ValueInfoProto] = [*graph.input, *graph.output, *graph.value_info]
    if not declared:
        return
    tensor = random.choice(declared).type.tensor_type
    match random.randrange(5):
        case 0:
            tensor.elem_type = random.randrange(27)
        case 1:
            tensor.ClearField("shape")
        case 2 if tensor.shape.dim:
            random.choice(tensor.shape.dim).dim_value = random.choice(SIZES)
        case 3 if tensor.shape.dim:
            tensor.shape.dim.pop()
        case _:
            tensor.shape.dim.add(dim_param=random.choice(("n", "m", "")))


def _edge(random: Random, model: ModelProto) -> None:
    """Have a node read something else, nothing, or less or more."""
    node, graph = _node(random, model), _graph(random, model)
    there = ["", "nobody", *(t.name for t in graph.initializer), *(i.name for i in graph.input)]
    there += [name for other in graph.node for name in other.output]
    match random.randrange(4):
        case 0 if node.input:
            node.input.pop(random.randrange(len(node.input)))
        case 1:
            node.input.append(random.choice(there))
        case 2 if node.output:
            node.output[random.randrange(len(node.output))] = random.choice(there)
        case _ if node.input:
            node.input[random.randrange(len(node.input))] = random.choice(there)


def _op(random: Random, model: ModelProto) -> None:
    _node(random, model).op_type = random.choice(OPS)


def _node_order(random: Random, model: ModelProto) -> None:
    """Drop a node, or write it twice."""
    graph = _graph(random, model)
    if graph.node:
        at = random.randrange(len(graph.node))
        if random.random() < 0.5:
            del graph.node[at]
        else:
            graph.node.add().CopyFrom(graph.node[at])


def _opset(random: Random, model: ModelProto) -> None:
    random.choice(model.opset_import).version = random.choice((1, 5, 7, 9, 11, 13, 15, 17, 19, 22, 24, 99, -1))


CHANGES: tuple[Callable[[Random, ModelProto], None], ...] = (
    *(_attribute,) * 5,
    *(_constant, _type, _edge) * 4,
    *(_op, _op, _node_order, _opset),
)


class TooSlow(BaseException):
    """A run that did not end."""


def outcome(act: Callable[[], object], seconds: float) -> str:
    """How a run ended: ``ok``, ``refused`` as documented, or what is wrong: the last line of its traceback."""

    def stop(*_: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            act()
        return "ok"
    except (GraphoptError, DecodeError) as error:
        return "refused" if getattr(error, "exit_code", 1) != 1 else f"exit 1: {error}"
    except TooSlow:
        return "did not end"
    except Exception:
        return traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
