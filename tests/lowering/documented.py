"""Primitives' docstrings as tests: the program before, the call, and the program after.

A docstring shows a body ``Before::``, and one or more bodies ``After ``s.split("i0", [4, 2])``::``, each after one
more call. Buffers that a body does not allocate are parameters of the program, float32, as large as the indices
before say; a body that begins with ``@program`` stands for itself.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from graphopt.errors import ScheduleError
from graphopt.lowering.intrinsics.tensor_intrin import descriptions
from graphopt.lowering.loops import wellformed
from graphopt.lowering.loops.interpret import interpret
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script import read, show, show_expr
from graphopt.lowering.schedule.schedule import Schedule

Primitive = Callable[..., tuple[Nest, Any]]

TRIANGLE = """
@program
def triangle(A: Buffer[(6, 6), "float32"], C: Buffer[(6, 6), "float32"]):
    B = alloc((6, 6), "float32")
    for i in serial(6):
        for j in serial(i + 1):
            with block("B"):
                vi, vj = axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * 2.0
    for p in serial(6):
        for q in serial(p + 1):
            with block("C"):
                vp, vq = axis.remap("SS", [p, q])
                C[vp, vq] = B[vp, vq] + 1.0
"""
"""A producer and a consumer of which each row is longer than the last."""


def check(primitive: Primitive) -> None:
    """Fails where the docstring's programs are not what comes out, or do not compute the same."""
    examples = list(_examples(inspect.getdoc(primitive) or ""))
    assert examples, f"{primitive.__name__} has no example"
    for before, steps in examples:
        head = "" if before.startswith("@program") else _header(before)
        start = nest = _read(head, before)
        for call, after in steps:
            nest = eval(call, {"s": _Schedule(nest, primitive)})[0]
            assert show(nest) == show(_read(head, after)), f"{primitive.__name__} after {call}:\n{show(nest)}"
            assert nest == read(show(nest))
        same_results(start, nest)


class _Schedule:
    """Calls the primitive on the nest."""

    def __init__(self, nest: Nest, primitive: Primitive) -> None:
        def call(*args: Any, **kwargs: Any) -> tuple[Nest, Any]:
            return primitive(nest, *args, **kwargs)

        setattr(self, primitive.__name__, call)


def same_results(before: Nest, after: Nest, **sizes: int) -> None:
    """Fails where the two programs write different numbers when they start from the same random ones, or where the
    second is not read as it is printed.

    Elements are small integers, so that sums come out alike in any order.
    """
    assert before.params == after.params
    wellformed.check(after)
    assert read(show(after)) == after
    for seed in range(2):
        first, second = random_arrays(before, seed, **sizes), random_arrays(before, seed, **sizes)
        interpret(before, first, sizes, descriptions(before))
        interpret(after, second, sizes, descriptions(after))
        for name, expected in first.items():
            np.testing.assert_array_equal(second[name], expected, err_msg=f"{name}\n{show(after)}")


def random_arrays(nest: Nest, seed: int = 0, **sizes: int) -> dict[str, Any]:
    """Arrays of small integers for the parameters."""
    rng = np.random.default_rng(seed)
    known = dict(sizes)
    result = {}
    for buffer in nest.buffers:
        shape = [int(eval(show_expr(e), {}, known)) for e in buffer.shape]
        result[buffer.name] = rng.integers(-4, 5, shape).astype(buffer.dtype)
    return result


def _examples(doc: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    found: tuple[str, list[tuple[str, str]]] | None = None
    marks = list(re.finditer(r"(?:[Bb]efore|[Aa]fter\s+``(s\.[^`]*)``)::\n", doc))
    for mark in marks:
        body = _indented(doc[mark.end() :])
        if mark.group(1) is None:
            if found is not None:
                yield found
            found = (body, [])
        else:
            assert found is not None, "a program after a call, and none before"
            found[1].append((mark.group(1).replace("\n", " "), body))
    if found is not None:
        yield found


def _indented(text: str) -> str:
    lines = []
    for line in text.splitlines():
        if line.strip() and not line.startswith("    "):
            break
        lines.append(line[4:])
    return "\n".join(lines).strip("\n") + "\n"


def _read(head: str, body: str) -> Nest:
    return read(body) if body.startswith("@program") else read(head + "".join(f"    {x}\n" for x in body.splitlines()))


# ------------------------------------------------------------------ the shapes that a body implies


def _header(body: str) -> str:
    tree = ast.parse(body)
    finder = _Shapes()
    finder.visit(tree)
    params = [
        f'{name}: Buffer[({", ".join(str(n) for n in shape)},), "float32"]'
        for name, shape in sorted(finder.shapes.items())
        if name not in finder.allocated
    ]
    return f"@program\ndef example({', '.join(params)}):\n"


class _Shapes(ast.NodeVisitor):
    """The extents of loops and axes, and with them how far the indices of each buffer reach."""

    def __init__(self) -> None:
        self.extents: dict[str, int] = {}
        self.shapes: dict[str, list[int]] = {}
        self.allocated: set[str] = set()

    def visit_For(self, node: ast.For) -> None:
        names = [e.id for e in (node.target.elts if isinstance(node.target, ast.Tuple) else [node.target])]
        assert isinstance(node.iter, ast.Call)
        numbers = [a.value for a in node.iter.args if isinstance(a, ast.Constant) and isinstance(a.value, int)]
        self.extents.update(zip(names, numbers, strict=True))
        for stmt in node.body:
            self.visit(stmt)

    def visit_Assign(self, node: ast.Assign) -> None:
        call, target = node.value, node.targets[0]
        words = ast.unparse(call.func) if isinstance(call, ast.Call) else ""
        if words == "alloc":
            assert isinstance(target, ast.Name)
            self.allocated.add(target.id)
        elif words == "axis.remap":
            names = [e.id for e in (target.elts if isinstance(target, ast.Tuple) else [target])]
            self.extents.update(zip(names, [self.extents[e.id] for e in call.args[1].elts], strict=True))
        elif words.startswith("axis."):
            self.extents[target.id] = call.args[0].value
        else:
            self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        reach = [self.most(i) + 1 for i in indices]
        assert isinstance(node.value, ast.Name)
        known = self.shapes.get(node.value.id, reach)
        self.shapes[node.value.id] = [max(a, b) for a, b in zip(known, reach, strict=True)]
        for index in indices:
            self.visit(index)

    def most(self, index: ast.expr) -> int:
        """The largest value of an index."""
        match index:
            case ast.Constant():
                return int(index.value)
            case ast.Name():
                return self.extents[index.id] - 1
            case ast.BinOp(op=ast.Add()):
                return self.most(index.left) + self.most(index.right)
            case ast.BinOp(op=ast.Sub(), right=ast.Constant()):
                return self.most(index.left) - int(index.right.value)
            case ast.BinOp(op=ast.Mult()):
                return self.most(index.left) * self.most(index.right)
            case ast.BinOp(op=ast.FloorDiv()):
                return self.most(index.left) // int(index.right.value)
            case ast.BinOp(op=ast.Mod()):
                return min(self.most(index.left), int(index.right.value) - 1)
        raise AssertionError(f"no bounds of {ast.unparse(index)}: begin the example with @program")


def refused(text: str, *calls: str) -> str:
    """What the last call is refused with, after those before it were done; ``s`` is the schedule in them."""
    schedule = Schedule(read(text))
    *before, last = calls
    for call in before:
        eval(call, {"s": schedule})
    kept = schedule.nest
    with pytest.raises(ScheduleError) as caught:
        eval(last, {"s": schedule})
    assert schedule.nest is kept
    message = str(caught.value)
    assert "\n" not in message
    return message
