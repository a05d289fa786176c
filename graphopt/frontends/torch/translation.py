"""Translation of a graph of ATen calls: each call is looked up in a table, and its ops are emitted."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._decomp import core_aten_decompositions, decomposition_table

from graphopt.errors import CompilationError, GraphoptError, InvalidModelError, TranslationError, UsageError
from graphopt.frontends.torch.table import Table
from graphopt.frontends.torch.writer import OpWriter
from graphopt.ir.types import Size, symbol
from graphopt.lowering.module.builder import GraphBuilder


def decompositions(table: Table) -> dict[Any, Any]:
    """Operators that the table does not have, each with a function that does it by others: those of ATen's core, and
    what else torch has in ATen's own terms (its references end in primitives, for which there are no entries)."""
    others = {t: f for t, f in decomposition_table.items() if not f.__module__.startswith("torch._refs")}
    return {t: f for t, f in {**others, **core_aten_decompositions()}.items() if table.find(t) is None}


class Translation:
    """One translation: a builder that is being filled, and the table that says with what."""

    def __init__(self, builder: GraphBuilder, table: Table) -> None:
        self.table = table
        self.writer = OpWriter(builder)

    def run(self, module: fx.GraphModule, arguments: Sequence[Any]) -> Any:
        """What the module gives for these arguments, values in place of tensors."""
        rest = iter(arguments)
        results: dict[fx.Node, Any] = {}
        for node in module.graph.nodes:
            match node.op:
                case "placeholder":
                    results[node] = next(rest)
                case "get_attr":
                    results[node] = self._attribute(module, node)
                case "output":
                    return fx.map_arg(node.args[0], lambda n: results[n])
                case _:
                    results[node] = self._call(node, results)
        raise AssertionError("torch's graph has no output")

    def _attribute(self, module: fx.GraphModule, node: fx.Node) -> Any:
        target: Any = module
        for part in str(node.target).split("."):
            target = getattr(target, part)
        return self.writer.constant(target, str(node.target)) if isinstance(target, torch.Tensor) else target

    def _call(self, node: fx.Node, results: Mapping[fx.Node, Any]) -> Any:
        emitter = self.table.find(node.target)
        if emitter is None:
            target = spelled(node.target)
            raise TranslationError(
                f"{target}{place_of(node)} has no entry in the table: add one, @table.entry({target}), and pass table=",
                node,
            )
        writer = self.writer
        writer.node, writer.label = node, label_of(node)
        arguments, named = fx.map_arg((node.args, node.kwargs), lambda n: results[n])
        try:
            result = emitter(writer, *arguments, **named)
        except TranslationError as error:
            if error.node is not node or str(error).startswith(spelled(node.target)):
                raise
            raise TranslationError(f"{spelled(node.target)}{place_of(node)}: {error}", node) from None
        except (CompilationError, InvalidModelError, UsageError) as error:
            raise TranslationError(f"{spelled(node.target)}{place_of(node)}: {error}", node) from error
        except GraphoptError:
            raise
        except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
            why = f"its entry does not take this form of the call ({type(error).__name__}: {error})"
            raise TranslationError(f"{spelled(node.target)}{place_of(node)}: {why}", node) from error
        _check_made(node, result)
        return writer.number(result) if isinstance(node.meta.get("val"), torch.SymInt) else result


def _check_made(node: fx.Node, result: Any) -> None:
    """Refuse a call of which somebody reads what its entry does not make."""
    if result is None and isinstance(node.meta.get("val"), torch.Tensor) and node.users:
        is_one_of_several = node.target is operator.getitem
        maker = node.args[0] if is_one_of_several else node
        which = f"result {node.args[1]}" if is_one_of_several else "result"
        raise TranslationError(f"{spelled(maker.target)}{place_of(maker)}: its entry makes no {which}", maker)


def spelled(target: Any) -> str:
    """A target as a Python program would name it."""
    if hasattr(target, "overloadpacket"):
        return f"torch.ops.{target}"
    module, name = getattr(target, "__module__", None), getattr(target, "__qualname__", None)
    return f"{module}.{name}" if module and name else str(target)


def place_of(node: fx.Node) -> str:
    """Where in the user's own program a call stands, as far as torch knows it."""
    path = module_of(node)
    lines = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines()]
    where = [line for line in lines if line.startswith("File ")]
    parts = [f"in module {path!r}"] if path else []
    if where:
        file, line, *_ = where[-1].removeprefix("File ").split(", ")
        parts.append(f"at {file.strip(chr(34))}:{line.removeprefix('line ')}")
    return f" ({' '.join(parts)})" if parts else ""


def module_of(node: fx.Node) -> str:
    """The dotted name of the innermost module that a call is in; "" where there is none."""
    stack = node.meta.get("nn_module_stack") or {}
    path = str(next(reversed(stack.values()))[0]) if stack else ""
    path = re.sub(r"^L(\['\w+'\]|__self__)", "", path).replace("._modules['", ".").replace("']", "")
    return path.strip("._")


def label_of(node: fx.Node) -> str:
    """The name of the nodes that a call becomes."""
    path = module_of(node)
    return f"{path}/{node.name}" if path else node.name


def shape_of(sizes: Sequence[Any], names: Mapping[str, str]) -> tuple[Size, ...]:
    """torch's sizes as a graph's; ``names`` are those of its symbols that have some of their own."""
    return tuple(_size(n, names) for n in sizes)


def _size(size: Any, names: Mapping[str, str]) -> Size:
    if isinstance(size, int):
        return size
    return _polynomial(size.node.expr, names)


def _polynomial(expression: Any, names: Mapping[str, str]) -> Size:
    """A size of torch's; one that is no polynomial of symbols gets a name of its own."""
    if expression.is_Integer:
        return int(expression)
    if expression.is_Symbol:
        return symbol(names.get(str(expression), str(expression)))
    if expression.is_Add or expression.is_Mul:
        total: Size = 0 if expression.is_Add else 1
        for part in expression.args:
            size = _polynomial(part, names)
            total = total + size if expression.is_Add else total * size
        return total
    if expression.is_Pow and expression.exp.is_Integer and expression.exp > 0:
        base, total = _polynomial(expression.base, names), 1
        for _ in range(int(expression.exp)):
            total = total * base
        return total
    return symbol(str(expression))
