"""Pairs of small ONNX models, or of ONNX functions, as rules: what the left one computes becomes the right one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from graphopt.errors import RuleError
from graphopt.ir import ops
from graphopt.ir.constants import Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Function, Graph, Node, Value
from graphopt.ir.types import TensorType
from graphopt.rewrite.reading.constants import spelled, typed
from graphopt.rewrite.reading.region import GraphRegion, TermWriter, guards_on, identifier, literal_of, rule_name, whole
from graphopt.rewrite.reading.wellformed import check
from graphopt.rewrite.rule.rule import (
    CallPattern,
    Computed,
    Field,
    FunctionCall,
    GuardExpr,
    Lit,
    Literal,
    NameRef,
    Rule,
    RuleStage,
    Series,
    Soundness,
    Term,
    VarPattern,
)
from graphopt.rewrite.rule.rule import soundness as soundness_of


def rule_from_pair(
    left: Any,
    right: Any,
    *,
    name: str,
    soundness: str | Soundness,
    reason: str = "",
    family: str = "",
    always: bool = False,
) -> Rule:
    """The rule that replaces what ``left`` computes by what ``right`` computes.

    Both are models (whatever ``graphopt.load`` takes) with the same names of inputs and as many outputs, or functions
    (``onnx.FunctionProto``, ``onnx_ir.Function``, or of onnxscript) with as many inputs. Dtypes, ranks, sizes and equal
    names of sizes become guards; constants of the left side are literals, attributes of a function attributes of the
    rule. ``soundness`` is your claim (``exact``, ``finite``, ``reals``, ``approx``), which ``graphopt rules check``
    tries; ``always`` applies the rule wherever it matches, without asking costs.

    Raises RuleError where the two do not correspond, or hold what no rule can say, and UsageError for an unknown
    soundness class.
    """
    sides = _read(left), _read(right)
    graphs = sides[0][0], sides[1][0]
    if len(graphs[0].outputs) != len(graphs[1].outputs):
        counts = " and ".join(str(len(g.outputs)) for g in graphs)
        raise RuleError(f"{name}: the sides have {counts} outputs: the right side must give what the left side gives")
    pairs = _inputs(*graphs, name, by_place=any(is_function for _, is_function in sides))
    names = _names(graphs[0])
    left_side = _Left(whole(graphs[0]), {value: VarPattern(names[value]) for value in graphs[0].inputs})
    right_side = _Right(whole(graphs[1]), {b: VarPattern(names[a]) for a, b in pairs})
    lhs, rhs = left_side.roots(), right_side.roots()
    for writer in (left_side, right_side):
        for variable, value in writer.attributes.items():
            raise RuleError(f"{name}: an attribute is {value!r}, which rules cannot write ({variable})")
    return check(
        Rule(
            rule_name(name),
            lhs,
            rhs,
            tuple([g.expr for g in guards_on(_facts(pairs, graphs, names, name))] + left_side.guards),
            reason=reason,
            family=family,
            soundness=soundness_of(soundness, "soundness class"),
            stage=RuleStage.ALWAYS if always else RuleStage.EXPLORE,
            source=f"{graphs[0].name} => {graphs[1].name}",
        )
    )


def _read(model: Any) -> tuple[Graph, bool]:
    """The graph of a model or of a function, and whether it is a function's."""
    from graphopt.ir.onnx_io import load, load_function

    if isinstance(model, Graph):
        return model, False
    if isinstance(model, Function):
        return model.body, True
    if hasattr(model, "to_function_proto"):  # onnxscript's
        model = model.to_function_proto()
    if type(model).__name__ in ("FunctionProto", "Function"):
        return load_function(model).body, True
    return load(model), False


def _inputs(left: Graph, right: Graph, name: str, by_place: bool) -> list[tuple[Value, Value]]:
    """The inputs of the left side, each with that of the right side: of one name, or of functions of one place."""
    ours, theirs = ({graph.names[v]: v for v in graph.inputs} for graph in (left, right))
    if set(ours) == set(theirs):
        return [(value, theirs[called]) for called, value in ours.items()]
    if by_place and len(ours) == len(theirs):
        return list(zip(left.inputs, right.inputs, strict=True))
    shown = "; ".join((", ".join(names) or "none") for names in (ours, theirs))
    raise RuleError(f"{name}: the inputs of the sides differ ({shown}): give both the same names")


def _names(graph: Graph) -> dict[Value, str]:
    """A variable's name for each input, like the input's own."""
    names: dict[Value, str] = {}
    for value in graph.inputs:
        base = name = identifier(graph.names[value])
        number = 1
        while name in names.values():
            number += 1
            name = f"{base}{number}"
        names[value] = name
    return names


def _facts(
    pairs: Sequence[tuple[Value, Value]], graphs: tuple[Graph, Graph], names: Mapping[Value, str], rule: str
) -> dict[str, Fact]:
    """What the left side says of its inputs, by variable. RuleError where the right side contradicts it."""
    facts: dict[str, Fact] = {}
    for ours, theirs in pairs:
        left, right = (graph.types.get(v) for graph, v in zip(graphs, (ours, theirs), strict=True))
        dtypes = [t.dtype for t in (left, right) if isinstance(t, TensorType) and t.dtype is not None]
        if len(set(dtypes)) > 1:
            raise RuleError(f"{rule}: the input {names[ours]} is {dtypes[0]} on the left and {dtypes[1]} on the right")
        facts[names[ours]] = Fact(left)
    return facts


class _Left(TermWriter):
    """The pattern: constants that are no literals are variables, and guards say their elements."""

    def __init__(self, region: GraphRegion, variables: Mapping[Value, VarPattern]) -> None:
        super().__init__(region, self.elements, variables)
        self.guards: list[GuardExpr] = []

    def elements(self, value: Value, constant: Constant, suggested: str) -> Term:
        """A variable that must be this constant."""
        variable = self.variable(value, suggested)
        ref = NameRef(variable.name)
        self.guards += [
            Field(ref, "is_const"),
            FunctionCall("==", (Field(ref, "dtype"), Lit(constant.dtype))),
            FunctionCall("==", (Field(ref, "shape"), Series(tuple(map(Lit, constant.shape))))),
            FunctionCall("==", (Field(ref, "value"), spelled(constant))),
        ]
        return variable


class _Right(TermWriter):
    """The replacement: constants are made, with the dtype that they have."""

    def __init__(self, region: GraphRegion, variables: Mapping[Value, VarPattern]) -> None:
        super().__init__(region, None, variables, shares=False)

    def call(self, node: Node, value: Value) -> CallPattern:
        call = super().call(node, value)
        parts = enumerate(zip(node.inputs, call.inputs, strict=True))
        return replace(call, inputs=tuple(self.typed(node, i, v, t) for i, (v, t) in parts))

    def term(self, value: Value | None, suggested: str = "x") -> Term:
        node = None if value is None else self.graph.producer(value)
        if node is not None and node.op == "Identity":  # by which models give an input as an output
            return self.term(node.inputs[0], suggested)
        constant = self.graph.constant_of(value)
        if constant is None or literal_of(constant) is not None:
            return super().term(value, suggested)
        return Computed(spelled(constant))

    def typed(self, node: Node, index: int, value: Value | None, term: Term) -> Term:
        """A constant as it stands at an input: cast, where neither its numbers nor its neighbours say its dtype."""
        constant = self.graph.constant_of(value)
        if constant is None or not isinstance(term, Computed | Literal):
            return term
        letter = ops.input_constraint(node.op, index)
        beside = [v for i, v in enumerate(node.inputs) if i != index and ops.input_constraint(node.op, i) == letter]
        if letter.startswith("tensor(") or any(v is not None and self.graph.constant_of(v) is None for v in beside):
            return term
        return typed(constant, term)
