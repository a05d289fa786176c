"""Passes of onnx_ir made of rules. It stands alone because graphopt loads without onnx_ir, which only this imports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphopt.errors import UsageError
from graphopt.optimize import optimize_graph
from graphopt.rewrite.rule.rule import Rule, Soundness, soundness
from graphopt.rewrite.ruleset import Ruleset
from graphopt.rewrite.ruleset import ruleset as ruleset_of
from graphopt.target import Target
from graphopt.target import target as target_named

if TYPE_CHECKING:
    from onnx_ir.passes import FunctionalPass


def as_pass(
    rules: Ruleset | Rule | Iterable[Rule] | str | Path | Sequence[str | Path] | None = None,
    *,
    target: str | Target = "portable",
    policy: str | Soundness = "reals",
) -> FunctionalPass:
    """A functional pass of ``onnx_ir.passes`` that rewrites models by rules.

    Of a ``Ruleset``, or of single rules, just these are used; rule files are added to the standard set, as
    ``graphopt.optimize`` takes them; without rules it is the standard set. The pass gives a new model, and says in
    ``modified`` whether anything was rewritten; it never changes the one that it is given. Raises the errors of
    ``graphopt.optimize``.
    """
    from onnx_ir.passes import FunctionalPass, PassResult

    chosen = _ruleset(rules)
    resolved = target_named(target, makes_models=True)
    weakest = soundness(policy)

    class RewriteByRules(FunctionalPass):
        """Rewrites a model by graphopt's rules."""

        def call(self, model: Any) -> PassResult:
            """The rewritten model, and whether that is another one."""
            from graphopt.ir.onnx_io import load, to_ir

            graph = load(model)
            result, _ = optimize_graph(graph, chosen, resolved, weakest)
            return PassResult(model.clone() if result is graph else to_ir(result), result is not graph)

    return RewriteByRules()


def _ruleset(rules: Any) -> Ruleset:
    """The rules that are meant."""
    if isinstance(rules, Rule):
        return Ruleset((rules,))
    if rules is None or isinstance(rules, Ruleset | str | Path):
        return ruleset_of(rules)
    several = list(rules)
    if all(isinstance(rule, Rule) for rule in several):
        return Ruleset(tuple(several))
    if all(isinstance(path, str | Path) for path in several):
        return ruleset_of(several)
    raise UsageError("as_pass takes rules, a Ruleset, or rule files")
