"""Passes from module to module: what ``graphopt.compile`` does to a graph, step by step, and passes of a user's own.

    from graphopt.passes import DeadCode, FuseOps, FuseTensorPrograms, LegalizeOps, Sequential

    lowered = Sequential([LegalizeOps(), FuseOps(), FuseTensorPrograms(), DeadCode()])(module)

Each takes a ``Module``, or a ``Graph``, which is its module's ``main``, gives a ``Module``, and leaves what it is given
as it is. What each gives can be printed, edited as text, read back and compiled. A pass of one's own is a function of a
``Module``, one of a ``Graph``, or a ``Mutator``. Examples of passes go on from this module:

>>> from graphopt import nn, passes, te
>>> dense = nn.export(lambda x, w: nn.relu(x @ w), {"x": "float32[n, 4]", "w": "float32[4, 2]"})
"""

from __future__ import annotations

from graphopt.lowering.fuse.kinds import FusionKind as FusionKind
from graphopt.lowering.module.cleanup import BindParams as BindParams
from graphopt.lowering.module.cleanup import DeadCode as DeadCode
from graphopt.lowering.module.cleanup import FoldConstants as FoldConstants
from graphopt.lowering.module.fusion import FuseOps as FuseOps
from graphopt.lowering.module.fusion import FuseTensorPrograms as FuseTensorPrograms
from graphopt.lowering.module.fusion import LowerToPrograms as LowerToPrograms
from graphopt.lowering.module.legalize import AnnotateKinds as AnnotateKinds
from graphopt.lowering.module.legalize import LegalizeOps as LegalizeOps
from graphopt.lowering.module.legalize import fusion_kind as fusion_kind
from graphopt.lowering.module.mutator import DELETE as DELETE
from graphopt.lowering.module.mutator import Mutator as Mutator
from graphopt.lowering.module.passes import Done as Done
from graphopt.lowering.module.passes import ModulePass as ModulePass
from graphopt.lowering.module.passes import Pass as Pass
from graphopt.lowering.module.passes import Pipeline as Pipeline
from graphopt.lowering.module.passes import Sequential as Sequential
from graphopt.lowering.module.passes import lower_only as lower_only
from graphopt.lowering.module.passes import module_pass as module_pass
from graphopt.lowering.module.scheduling import MemoryPlan as MemoryPlan
from graphopt.lowering.module.scheduling import PlanMemory as PlanMemory
from graphopt.lowering.module.scheduling import Schedule as Schedule
from graphopt.program.dispatch import FuseOpsByPattern as FuseOpsByPattern
from graphopt.program.dispatch import RunLibraryDispatch as RunLibraryDispatch
from graphopt.program.pipelines import pipeline_named as pipeline_named

__all__ = [
    "DELETE",
    "AnnotateKinds",
    "BindParams",
    "DeadCode",
    "Done",
    "FoldConstants",
    "FuseOps",
    "FuseOpsByPattern",
    "FuseTensorPrograms",
    "FusionKind",
    "LegalizeOps",
    "LowerToPrograms",
    "MemoryPlan",
    "ModulePass",
    "Mutator",
    "Pass",
    "Pipeline",
    "PlanMemory",
    "RunLibraryDispatch",
    "Schedule",
    "Sequential",
    "fusion_kind",
    "lower_only",
    "module_pass",
    "pipeline_named",
]
