"""Tuning in one call: a tensor program, a module with all its programs and graphs, or a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from concurrent.futures import Executor
from dataclasses import field
from functools import partial
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any, Final, overload

from graphopt.benchmark.tune import Tuning, tune_model
from graphopt.calibration.schedule_tables import default_path
from graphopt.display import Displayed, counted
from graphopt.errors import ScheduleError, UsageError
from graphopt.frozen import dataclass
from graphopt.ir import onnx_io
from graphopt.ir.graph import Graph
from graphopt.ir.types import TensorType, is_anonymous, symbol, symbols
from graphopt.lowering.analysis.canonical_nest import chains
from graphopt.lowering.loops.nest import BY_RULE, For, Nest, statements
from graphopt.lowering.module.module import MAIN, Module, ModuleFunction
from graphopt.target import target as target_named
from graphopt.tuning.database import Records
from graphopt.tuning.learned import CostModel
from graphopt.tuning.nest_tuner import check_sizes, measuring, tune_nest
from graphopt.tuning.results import Trial, TunedNest, compared, failed, measured, tuned_nest
from graphopt.tuning.search import ExhaustiveSearch, SearchName, SearchStrategy, strategy_of
from graphopt.tuning.session import PATIENCE, Budget, Ending, Progress, Task, check_learning, tune_tasks
from graphopt.tuning.spaces import Space
from graphopt.tuning.workload import Workload
from graphopt.verify.inputs import Given

LISTED: Final = 12
"""So many programs are told of one by one."""
AGAIN: Final = 3
"""How often the best schedules of one program are measured again."""


@dataclass(frozen=True, repr=False)
class TunedModel(Displayed):
    """A module under the best schedules that tuning found, and the database that has those of its graphs' ops.

    ``seconds`` are those of a run of all graphs that nobody calls as tuned, ``default_seconds`` as by default; of a
    module without graphs, those of its programs. ``nests`` are what was tuned.
    """

    module: Module
    database: Path
    nests: tuple[TunedNest, ...] = field(repr=False)
    seconds: float
    default_seconds: float
    ending: Ending
    elapsed: float

    @property
    def gain(self) -> float:
        """How many times as fast as by default it is."""
        return self.default_seconds / self.seconds if self.seconds else 1.0

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All schedules that were measured."""
        return tuple(trial for nest in self.nests for trial in nest.trials)

    @property
    def failures(self) -> tuple[Trial, ...]:
        """The trials that do not count, with what was wrong."""
        return tuple(trial for trial in self.trials if trial.problem)

    def __repr__(self) -> str:
        return f"<TunedModel of {counted(len(self.nests), 'program')}: {compared(self.seconds, self.default_seconds)}>"

    def __str__(self) -> str:
        rows = [f"the {'model' if len(self.module) == 1 else 'module'}: {compared(self.seconds, self.default_seconds)}"]
        longest = sorted(self.nests, key=lambda n: -n.times * n.default_seconds)
        for nest in longest[:LISTED]:
            times = f" x {nest.times}" if nest.times > 1 else ""
            rows.append(
                f"  {', '.join(nest.nodes) or nest.before.name}{times}: {compared(nest.seconds, nest.default_seconds)}"
            )
        rows += [f"  and {len(longest) - LISTED} more"] if len(longest) > LISTED else []
        rows += [measured(self.trials, self.elapsed, self.ending), *failed(self.failures)]
        return "\n".join((*rows, f"kept in {self.database}"))


@overload
def tune(
    model: Nest,
    *,
    space: Space | Sequence[Space] | None = None,
    trials: int | None = None,
    seconds: float | None = None,
    sizes: Mapping[str, int] | None = None,
    inputs: None = None,
    database: str | Path | None = None,
    search: SearchName | SearchStrategy = "evolution",
    cost_model: CostModel | None = None,
    executor: Executor | str | None = None,
    target: str = "cpu",
    threads: int = 1,
    seed: int = 0,
    **named: int,
) -> TunedNest: ...
@overload
def tune(
    model: Any,
    *,
    space: Space | Sequence[Space] | None = None,
    trials: int | None = None,
    seconds: float | None = None,
    sizes: Mapping[str, int] | None = None,
    inputs: Mapping[str, Given] | None = None,
    database: str | Path | None = None,
    search: SearchName | SearchStrategy = "evolution",
    cost_model: CostModel | None = None,
    executor: Executor | str | None = None,
    target: str = "cpu",
    threads: int = 1,
    seed: int = 0,
    **named: int,
) -> TunedModel: ...
def tune(
    model: Any,
    *,
    space: Space | Sequence[Space] | None = None,
    trials: int | None = None,
    seconds: float | None = None,
    sizes: Mapping[str, int] | None = None,
    inputs: Mapping[str, Given] | None = None,
    database: str | Path | None = None,
    search: SearchName | SearchStrategy = "evolution",
    cost_model: CostModel | None = None,
    executor: Executor | str | None = None,
    target: str = "cpu",
    threads: int = 1,
    seed: int = 0,
    **named: int,
) -> TunedNest | TunedModel:
    """The best schedules that measuring finds: of a tensor program, of a module's programs and graphs, or of a model.

    ``space`` is a function of a ``Schedule`` that draws by ``sample_`` methods, or several; the built-in ones where
    None. Of a program (a nest), the best of ``space`` is given even where the default schedule is faster; without a
    space, the default schedule counts, too. Of a module, the programs that are not scheduled and all that its graphs
    become are tuned: ``.module`` has the programs under schedules that are faster, ``.database`` those of ops, by which
    ``graphopt.compile(tuned.module, database=tuned.database)`` goes. A model is a path, or whatever else
    ``graphopt.compile`` takes.

    ``trials`` schedules are measured at most, or as many as ``seconds`` allow; None: until nothing is gained any more,
    or an exhaustive search is through. Open sizes are given by ``sizes``, or as keywords: ``n=64``; ``inputs`` are a
    model's, by name. ``database`` is a path; where None, nothing of a program is kept, and of modules and models it is
    the user's own, by which ``graphopt.compile`` goes anyway. ``search`` is ``"evolution"``, ``"random"``,
    ``"exhaustive"`` or a strategy of ``graphopt.tuning``; ``cost_model`` guides an evolution in place of the learned
    one (``graphopt.tuning.CostModel``).
    ``target`` and ``threads`` are what the program is compiled for; ``executor`` measures. The same ``seed`` draws the
    same schedules while measurements are the same.

    Raises ScheduleError where a space has no legal schedule, or none that counts, UsageError for what makes no sense,
    MissingDependencyError where the search learns, and lightgbm is not installed; and of models what ``compile`` does.
    """
    budget = Budget(trials, seconds)
    spaces = None if space is None else _spaces(space)
    options: dict[str, Any] = {
        "spaces": spaces,
        "search": strategy_of(search),
        "cost_model": cost_model,
        "target": target,
        "threads": threads,
        "seed": seed,
    }
    check_learning(options["search"], cost_model)
    given = {**(sizes or {}), **named}
    path = None if database is None else Path(database)
    if isinstance(model, Nest):
        if inputs is not None:
            raise UsageError(
                "a program is measured on random arrays: leave inputs out, and give sizes of open dimensions"
            )
        is_to_end = isinstance(options["search"], ExhaustiveSearch) or (trials, seconds) != (None, None)
        patience = None if is_to_end else PATIENCE
        return tune_nest(
            model, Budget(trials, seconds, patience, AGAIN), sizes=given, database=path, executor=executor, **options
        )
    with measuring(executor) as measures:
        tuner = _Tuner(model, given, inputs or {}, path or default_path(), budget, measures, options)
        return tuner.tuned()


@dataclass
class _Tuner:
    """The tuning of a module or model: a session for the programs, and one for each graph that nobody calls."""

    source: Any
    sizes: Mapping[str, int]
    inputs: Mapping[str, Given]
    database: Path
    budget: Budget
    executor: Executor
    options: dict[str, Any]
    begun: float = field(default_factory=monotonic)
    nests: list[tuple[Progress, TunedNest]] = field(default_factory=list)
    models: list[Tuning] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)

    def tuned(self) -> TunedModel:
        """All of it."""
        is_module = isinstance(self.source, Module)
        module = Module(self.source) if is_module else Module({MAIN: onnx_io.load(self.source)})
        module.check()
        called = {name for caller in module for name in module.calls(caller)}
        graphs = [n for n, f in module.items() if isinstance(f, Graph) and n not in called]
        programs = [n for n, f in module.items() if isinstance(f, Nest) and self.is_to_be_tuned(f, n in called)]
        check_sizes(self.sizes, {n for name in (*graphs, *programs) for n in _open_sizes(module[name])}, "the model")
        parts = [partial(self.programs, module, programs)] if programs else []
        parts += [
            partial(self.graph, module.graph(name) if is_module else self.source, _open_sizes(module[name]))
            for name in graphs
        ]
        if not parts:
            raise UsageError("the module has nothing to tune: no graph, and no program that is not scheduled yet")
        reasons = []
        for done, part in enumerate(parts):
            try:
                part(self.share(len(parts) - done))
            except ScheduleError as error:  # a space of one's own may be for others
                reasons.append(error)
            if "interrupted" in self.endings:
                break
        if len(reasons) == len(parts):
            raise reasons[0]
        self.put_in(module)
        return self.result(module)

    @staticmethod
    def is_to_be_tuned(program: Nest, is_called: bool) -> bool:
        """Whether a program is tuned by itself: it is not scheduled, and no graph has it scheduled."""
        return not (is_called and BY_RULE in program.notes) and _is_unscheduled(program)

    def share(self, left: int) -> Budget:
        """What each of the parts that are left may spend of the rest."""
        trials, seconds = self.budget.trials, self.budget.seconds
        if trials is not None:
            trials = (trials - sum(len(nest.trials) for _, nest in self.nests)) // left
        if seconds is not None:
            seconds = max(seconds - (monotonic() - self.begun), 0.0) / left
        return Budget(trials, seconds)

    def programs(self, module: Module, names: Sequence[str], budget: Budget) -> None:
        """Tune programs that no graph schedules."""
        tasks: dict[Workload, list[str]] = {}
        for name in names:
            nest = module[name]
            assert isinstance(nest, Nest)
            sizes = {var.name: self.sizes[var.name] for var in nest.sizes if var.name in self.sizes}
            tasks.setdefault(Workload.of(nest, sizes), []).append(name)
        asked = [Task(workload, len(which), tuple(which)) for workload, which in tasks.items()]
        options = {**self.options, "target": target_named(self.options["target"]).device.name}
        with Records(self.database, write=True) as records:
            report = tune_tasks(asked, records, self.executor, budget, **options)
        self.note(report.tasks, report.ending, report.seconds)

    def graph(self, model: Any, sizes: Set[str], budget: Budget) -> None:
        """Tune what a graph becomes."""
        tuning = tune_model(
            model,
            self.database,
            budget,
            executor=self.executor,
            inputs=self.inputs,
            dims={name: n for name, n in self.sizes.items() if name in sizes},
            **self.options,
        )
        self.models.append(tuning)
        self.note(tuning.report.tasks, tuning.report.ending, tuning.report.seconds)

    def note(self, tasks: Sequence[Progress], ending: Ending, seconds: float) -> None:
        """Take what a session found."""
        self.endings.append(ending)
        for p in tasks:
            if p.default:
                self.nests.append((p, tuned_nest(p, p.task.workload.nest, p.best, ending, seconds)))

    def put_in(self, module: Module) -> None:
        """The best schedules in place of programs that graphs call as they are, and of those that nobody schedules."""
        found = {p.task.workload.script: (p, nest) for p, nest in self.nests}
        for name, program in module.items():
            if not isinstance(program, Nest):
                continue
            key = Workload.of(program, {var.name: 1 for var in program.sizes}).script
            progress, nest = found.get(key, (None, None))
            if nest is None or (progress is not None and progress.best is None and BY_RULE in program.notes):
                continue  # what is scheduled by default may still be fused with others
            if _is_unscheduled(program):
                module[name] = nest.trace.replay(program).nest

    def result(self, module: Module) -> TunedModel:
        """What became of it."""
        nests = tuple(nest for _, nest in self.nests)
        pairs = [(median(m.after), median(m.before)) for m in self.models if m.after]
        if not pairs:
            pairs = [(nest.times * nest.seconds, nest.times * nest.default_seconds) for nest in nests]
        tuned, default = (sum(seconds) for seconds in zip(*pairs, strict=True)) if pairs else (0.0, 0.0)
        endings: tuple[Ending, ...] = ("interrupted", "seconds", "trials")
        ending: Ending = next((e for e in endings if e in self.endings), "done")
        return TunedModel(module, self.database, nests, tuned, default, ending, monotonic() - self.begun)


def _spaces(space: object) -> tuple[Space, ...]:
    """One search space, or several. UsageError for anything else."""
    spaces = space if isinstance(space, Sequence) and not isinstance(space, str) else (space,)
    if not spaces or isinstance(space, type) or not all(callable(s) for s in spaces):
        raise UsageError(f"space={space!r} is no search space: give a function of a Schedule, or a list of some")
    return tuple(spaces)


def _is_unscheduled(program: Nest) -> bool:
    """Whether a program is as it was written: one loop after the other for each axis, none of which is of a kind."""
    return chains(program) is not None and all(
        s.kind == "serial" for s in statements(program.body) if isinstance(s, For)
    )


def _open_sizes(function: ModuleFunction) -> set[str]:
    """The open sizes of a program, or of a graph's inputs."""
    if isinstance(function, Nest):
        return {var.name for var in function.sizes}
    types = (function.types.get(v) for v in function.inputs) if isinstance(function, Graph) else ()
    shapes = [t.shape for t in types if isinstance(t, TensorType) and isinstance(t.shape, tuple)]
    return {n for shape in shapes for size in shape for n in symbols(size) if not is_anonymous(symbol(n))}
