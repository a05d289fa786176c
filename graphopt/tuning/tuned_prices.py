"""Prices by tuned schedules: times of single nests, for the choice between ops and layouts.

A call is timed where a database of tuned schedules has a time for each nest that it becomes when nothing is fused with
it. Calls that were not timed stand beside it at the pace of those that were: what prices say, times what default
schedules of such ops took in place of what prices say of them. By how much that is off is seen on those that were
timed, too, and is held against every change: what prices alone would choose counts as so much faster where it was not
timed, and all else as so much slower. So nothing is chosen because one is measured and the other computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache
from math import exp, log, sqrt
from typing import Final

import numpy as np

from graphopt.calibration.fit import priced, rows
from graphopt.calibration.probe import LARGEST, is_constant
from graphopt.errors import GraphoptError
from graphopt.frozen import dataclass
from graphopt.ir.constants import Constant
from graphopt.ir.graph import Graph, Header
from graphopt.ir.ops import LATEST
from graphopt.ir.types import TensorType
from graphopt.lowering.link.options import Options, as_written
from graphopt.lowering.link.passes import emit, fuse_ops, legalize_ops, lower_to_programs, schedule
from graphopt.lowering.link.plan_memory import plan_memory
from graphopt.lowering.lower.embedded_programs import inputs_of, type_of
from graphopt.lowering.lower.lower import NeedsValues
from graphopt.rewrite.extract.workload import OpWorkload, WorkloadOperand
from graphopt.runtime.dtypes import STORAGE
from graphopt.target import Target
from graphopt.tuning.record import Timed
from graphopt.tuning.workload import Workload

DOUBT: Final = 1.6
"""By what factor prices are off where nothing was timed: that of twelve calls of a SqueezeNet, in the mean of
logarithms."""
UNWRITTEN: Final = Options(schedule=as_written, emit=lambda nest: ())
"""Nests are made, and no kernels of them."""


@dataclass
class TunedPrices:
    """Prices a target by times of nests; what calls become is remembered."""

    times: Mapping[Workload, Timed]
    found: dict[str, Timed | None] = field(default_factory=dict)
    """What calls take, by their texts; None for those of which something is not timed."""

    def __call__(self, target: Target, calls: Sequence[str], chosen: Sequence[str]) -> Target:
        """The target with the times of the calls, for which the ``chosen`` ones are only given up where times say so:
        ``optimize.Timed``."""
        return self.priced(target, calls, chosen, doubt=1.0)

    def priced(self, target: Target, calls: Sequence[str], chosen: Sequence[str], doubt: float) -> Target:
        """The same where the uncertainty of prices counts so many times against a change; less than none, for it: then
        also where nothing was timed."""
        for text in calls:
            if text not in self.found:
                self.found[text] = self.timed(text, target)
        timed_calls = {text: timed for text in calls if (timed := self.found[text]) is not None}
        if not timed_calls and doubt > 0:
            return target
        paces, spread = fitted(target, {text: timed.default for text, timed in timed_calls.items()})
        leap = spread**doubt
        kept = {text: paces.get(op, paces[""]) / leap for text in chosen if (op := OpWorkload.parse(text).op)}
        others = {name: pace * leap for name, pace in paces.items()}
        measured = {**(target.measured or {}), **{text: timed.seconds for text, timed in timed_calls.items()}}
        return replace(target, measured=measured, paces=others | kept)

    def timed(self, text: str, target: Target) -> Timed | None:
        """What a call takes by itself; None where that is not known, or says nothing of what it takes among others."""
        call = OpWorkload.parse(text)
        if call.op in target.within or is_constant(call) or not self._may_be_known(call):
            return None
        times = [self.times.get(nest) for nest in nests(call)]
        if not times or any(timed is None for timed in times):
            return None
        parts = [timed for timed in times if timed is not None]
        return Timed(sum(p.seconds for p in parts), sum(p.default for p in parts))

    def _may_be_known(self, call: OpWorkload) -> bool:
        """Whether a nest that is timed reads what the call does: only then is it worth to see what the call becomes."""
        if not self._read:
            self._read.update(str(type_of(b)) for w in self.times for b in inputs_of(w.nest))
        return any(x is not None and not x.is_const and str(_type(x)) in self._read for x in call.inputs)

    _read: set[str] = field(default_factory=set)


@lru_cache(maxsize=4096)
def nests(call: OpWorkload) -> tuple[Workload, ...]:
    """The nests that a call becomes for the host's processor with nothing fused to it, in order; none where loops do
    not compute it."""
    if any(x is not None and x.nbytes > LARGEST for x in call.inputs):
        return ()
    graph = Graph(header=Header(11, (("", LATEST), ("com.microsoft", 1))))
    inputs = [
        None
        if x is None
        else graph.add_constant(_constant(x))
        if x.is_const
        else graph.add_input(f"x{i}", TensorType(x.dtype, x.shape))
        for i, x in enumerate(call.inputs)
    ]
    node = graph.add(call.op, tuple(inputs), call.attrs, call.n_outputs)
    for port, value in enumerate(node.outputs):
        graph.add_output(f"y{port}", value)
    try:
        program = lower_to_programs(fuse_ops(legalize_ops(graph, UNWRITTEN)))
        linked = plan_memory(emit(schedule(program))).plan
    except (GraphoptError, NeedsValues):
        return ()
    return () if linked.unlowered else tuple(Workload.of(work.nest) for work in linked.work)


def fitted(target: Target, by_default: Mapping[str, float]) -> tuple[dict[str, float], float]:
    """By op, and under no name for all others, how many times as long as the target's prices say calls take, given what
    some took by default schedules; and by what factor that is off.

    An op of few times counts as one more that is like all others, and few times as one more that is off by ``DOUBT``.
    """
    logs: dict[str, list[float]] = {}
    for row in rows(by_default):
        price = priced(target, target.prices, row)
        logs.setdefault(row.call.op, []).append(log((target.prices.node + row.seconds) / price))
    every = [n for of_op in logs.values() for n in of_op]
    overall = float(np.median(every)) if every else 0.0
    means = {op: (sum(of_op) + overall) / (len(of_op) + 1) for op, of_op in sorted(logs.items())}
    squares = [log(DOUBT) ** 2, *((n - means[op]) ** 2 for op, of_op in logs.items() for n in of_op)]
    return {"": exp(overall)} | {op: exp(mean) for op, mean in means.items()}, exp(sqrt(sum(squares) / len(squares)))


def _type(x: WorkloadOperand) -> TensorType:
    return TensorType(x.dtype, x.shape)


def _constant(x: WorkloadOperand) -> Constant:
    """A constant of this type: its elements where they are told, else any."""
    constant = x.fact().constant
    return constant if constant is not None else Constant.of(np.zeros(x.shape, STORAGE.get(x.dtype, x.dtype)), x.dtype)
