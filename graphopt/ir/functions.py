"""Call graph of a model's local functions, and the size that it expands to."""

from __future__ import annotations

from collections.abc import Iterator

from graphopt.errors import InvalidModelError, LimitError
from graphopt.ir.graph import CONSTANT, INPUT, Function, Graph, Node, Origin, Value

FunctionKey = tuple[str, str]
"""A function's op name and overload."""


def calls(graph: Graph) -> Iterator[Node]:
    """All nodes of a graph and of the bodies inside it, inputs and constants left out."""
    for node in graph.nodes():
        if node.op not in (INPUT, CONSTANT):
            yield node
        for body in bodies_of(node):
            yield from calls(body)


def own_calls(graph: Graph) -> list[Node]:
    """The nodes of a graph itself in topological order, inputs and constants left out."""
    return [node for node in graph.order() if node.op not in (INPUT, CONSTANT)]


def is_called(graph: Graph, value: Value) -> bool:
    """Whether a call makes the value: it is no input, and no constant."""
    return graph.producer(value).op not in (INPUT, CONSTANT)


def bodies_of(node: Node) -> Iterator[Graph]:
    """The graphs among a node's attributes, lists of graphs included."""
    for value in node.attrs.values():
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Graph):
                yield item


def callee(node: Node, functions: dict[FunctionKey, Function]) -> Function | None:
    """The local function that a node calls, or None."""
    return functions.get((node.op, node.origin.overload))


def expanded_size(graph: Graph, limit: int | None = None) -> int:
    """How many nodes the graph and its bodies would have with every local function expanded.

    Raises InvalidModelError where a function calls itself, and LimitError where there would be more than ``limit``.
    """
    functions = graph.functions
    sizes: dict[FunctionKey, int] = {}
    stack: list[tuple[FunctionKey, Iterator[FunctionKey]]] = []
    uses = {key: _tally(function.body, functions) for key, function in functions.items()}
    plain, called = _tally(graph, functions)
    for root in called:
        if root in sizes:
            continue
        stack.append((root, iter(uses[root][1])))
        open_calls = {root}
        while stack:
            key, rest = stack[-1]
            inner = next(rest, None)
            if inner is None:
                stack.pop()
                open_calls.discard(key)
                sizes[key] = uses[key][0] + sum(n * sizes[k] for k, n in uses[key][1].items())
            elif inner in open_calls:
                raise InvalidModelError(f"function {inner[0]!r} calls itself, which ONNX forbids")
            elif inner not in sizes:
                stack.append((inner, iter(uses[inner][1])))
                open_calls.add(inner)
    total = plain + sum(n * sizes[k] for k, n in called.items())
    if limit is not None and total > limit:
        raise LimitError(f"the model's functions would expand to {total} nodes, at most {limit} are allowed")
    return total


def _tally(graph: Graph, functions: dict[FunctionKey, Function]) -> tuple[int, dict[FunctionKey, int]]:
    """How many nodes are no calls of local functions, and how often each function is called."""
    plain, called = 0, dict[FunctionKey, int]()
    for node in calls(graph):
        key = (node.op, node.origin.overload)
        if key in functions:
            called[key] = called.get(key, 0) + 1
        else:
            plain += 1
    return plain, called


def check_calls(graph: Graph, where: str) -> None:
    """Raise InvalidModelError where a local function calls itself, directly or not, even if nobody calls it."""
    functions = graph.functions
    if not functions:
        return
    everything = Graph(functions=functions)
    for key in functions:
        everything.add(key[0], origin=Origin(overload=key[1]))
    try:
        expanded_size(everything)
    except InvalidModelError as error:
        raise InvalidModelError(f"{where}: {error}") from None
