"""Optimizer and compiler of ONNX models: rewrites them into faster equal ones, and runs them.

What is public is listed here, and imported when it is first used: ``import graphopt`` itself takes no time. Examples of
the package go on from this one.

>>> import numpy as np
>>> import graphopt
>>> builder = graphopt.GraphBuilder()
>>> x = builder.input("x", "float32", ("n", 4))
>>> builder.output("y", builder.emit("Relu", [x], name="relu"))
>>> module = builder.build()
>>> graph = module["main"]
>>> print(graph)
graph main (ir 10, opset 21)
x: float32[n, 4]
%0: float32[n, 4] = Relu(x)
return %0 as y
>>> graphopt.__version__.count(".")
2
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING
from warnings import warn

if TYPE_CHECKING:
    from graphopt.benchmark.active_measurement import tune_choices as tune_choices
    from graphopt.benchmark.tune import tune_model as tune_model
    from graphopt.benchmark.tuner import tune as tune
    from graphopt.compile import CompiledModel as CompiledModel
    from graphopt.compile import compile as compile
    from graphopt.errors import GraphoptError as GraphoptError
    from graphopt.frontends.torch import from_torch as from_torch
    from graphopt.interop.drop_in import simplify as simplify
    from graphopt.interop.drop_in import slim as slim
    from graphopt.interop.learned import learn_rule as learn_rule
    from graphopt.interop.onnxscript_rules import rules_from_onnxscript as rules_from_onnxscript
    from graphopt.interop.passes import as_pass as as_pass
    from graphopt.ir.graph import Graph as Graph
    from graphopt.ir.onnx_io import load as load
    from graphopt.ir.onnx_io import save as save
    from graphopt.ir.types import TensorType as TensorType
    from graphopt.ir.visitor import Visitor as Visitor
    from graphopt.lowering.loops.interpret import interpret as interpret
    from graphopt.lowering.module.builder import GraphBuilder as GraphBuilder
    from graphopt.lowering.module.external import register as register
    from graphopt.lowering.module.module import Module as Module
    from graphopt.lowering.module.mutator import Mutator as Mutator
    from graphopt.lowering.module.passes import Pass as Pass
    from graphopt.lowering.module.passes import Pipeline as Pipeline
    from graphopt.lowering.module.scheduling import apply_rules as apply_rules
    from graphopt.lowering.module.scheduling import explain_rules as explain_rules
    from graphopt.lowering.module.structural_equality import difference as difference
    from graphopt.lowering.module.structural_equality import equal as equal
    from graphopt.lowering.module.structural_equality import structural_hash as structural_hash
    from graphopt.lowering.operators.table import lower as lower
    from graphopt.lowering.schedule.schedule import Schedule as Schedule
    from graphopt.optimize import optimize as optimize
    from graphopt.program.dispatch import fuse_by_pattern as fuse_by_pattern
    from graphopt.program.pipelines import pipeline_named as pipeline_named
    from graphopt.rewrite.reading.decorator import rule as rule
    from graphopt.rewrite.reading.pairs import rule_from_pair as rule_from_pair
    from graphopt.rewrite.ruleset import Ruleset as Ruleset
    from graphopt.rewrite.ruleset import standard as standard
    from graphopt.run.report import Report as Report
    from graphopt.tools.build import Executable as Executable
    from graphopt.tools.build import build as build
    from graphopt.tools.rule_evidence import check as check
    from graphopt.tools.rule_evidence import prove as prove
    from graphopt.tools.submodel import extract as extract

_HOMES = {
    "CompiledModel": "graphopt.compile",
    "Executable": "graphopt.tools.build",
    "Graph": "graphopt.ir.graph",
    "GraphoptError": "graphopt.errors",
    "Report": "graphopt.run.report",
    "GraphBuilder": "graphopt.lowering.module.builder",
    "Module": "graphopt.lowering.module.module",
    "Mutator": "graphopt.lowering.module.mutator",
    "Pass": "graphopt.lowering.module.passes",
    "Pipeline": "graphopt.lowering.module.passes",
    "Ruleset": "graphopt.rewrite.ruleset",
    "Schedule": "graphopt.lowering.schedule.schedule",
    "TensorType": "graphopt.ir.types",
    "Visitor": "graphopt.ir.visitor",
    "apply_rules": "graphopt.lowering.module.scheduling",
    "as_pass": "graphopt.interop.passes",
    "build": "graphopt.tools.build",
    "check": "graphopt.tools.rule_evidence",
    "compile": "graphopt.compile",
    "difference": "graphopt.lowering.module.structural_equality",
    "equal": "graphopt.lowering.module.structural_equality",
    "explain_rules": "graphopt.lowering.module.scheduling",
    "extract": "graphopt.tools.submodel",
    "from_torch": "graphopt.frontends.torch",
    "fuse_by_pattern": "graphopt.program.dispatch",
    "interpret": "graphopt.lowering.loops.interpret",
    "learn_rule": "graphopt.interop.learned",
    "load": "graphopt.ir.onnx_io",
    "lower": "graphopt.lowering.operators.table",
    "optimize": "graphopt.optimize",
    "pipeline_named": "graphopt.program.pipelines",
    "prove": "graphopt.tools.rule_evidence",
    "register": "graphopt.lowering.module.external",
    "rule": "graphopt.rewrite.reading.decorator",
    "rule_from_pair": "graphopt.rewrite.reading.pairs",
    "rules_from_onnxscript": "graphopt.interop.onnxscript_rules",
    "save": "graphopt.ir.onnx_io",
    "simplify": "graphopt.interop.drop_in",
    "slim": "graphopt.interop.drop_in",
    "standard": "graphopt.rewrite.ruleset",
    "structural_hash": "graphopt.lowering.module.structural_equality",
    "tune": "graphopt.benchmark.tuner",
    "tune_choices": "graphopt.benchmark.active_measurement",
    "tune_model": "graphopt.benchmark.tune",
}
"""Where each public name is defined."""

_MODULES = ("errors", "interop", "nn", "passes", "runtime", "schedule", "script", "te", "tensor", "tuning")
"""Public modules, which ``import graphopt`` makes attributes of it, too."""

_MOVED = {
    "graphopt.backend": "graphopt.interop.backend",
    "graphopt.lowering.compute": "graphopt.lowering.loops.compute",
}
"""Where public modules are that had another name in the last version. An entry stays for one version."""

__all__ = ["__version__", *_HOMES, *_MODULES]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            number = version("graphopt")
        except PackageNotFoundError:
            number = "0 (not installed)"
        return globals().setdefault(name, number)  # which is not read again
    if name in _MODULES:
        return import_module(f"graphopt.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'graphopt' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)  # what it is made of is not listed where a prompt completes names


class _Moved:
    """Modules that moved, by the names that they had: with a ``DeprecationWarning`` that says the new ones.

    A finder and loader of modules; to derive from those of ``importlib.abc`` is to import half of what is for archives.
    """

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name in _MOVED else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """Have the usual one made."""

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__
        warn(f"{old} is {_MOVED[old]} now, and its old name will go", DeprecationWarning, stacklevel=2)
        sys.modules[old] = import_module(_MOVED[old])  # which is what the statement that imports it gets


class _Package(ModuleType):
    """This package, in which ``optimize`` and ``compile`` are always the functions, never the modules of those names.

    Importing a module sets it as an attribute of its package, which would hide the function.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if name in ("compile", "optimize") and isinstance(value, ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.meta_path.append(_Moved())
sys.modules[__name__].__class__ = _Package
