"""Recipes: a file that says which models a team optimizes, for which targets, by which options, and what must hold of
the results. Each result has its journal and certificate beside it, and ``docs/many-models.md`` has the keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from graphopt.errors import GraphoptError, LimitError, ReadError, UsageError, VerificationError
from graphopt.frozen import dataclass
from graphopt.rewrite.reading.modules import importing_from, loaded
from graphopt.rewrite.ruleset import ruleset
from graphopt.run.report import Speedup
from graphopt.target import target as target_named
from graphopt.target.checks import Checks, Toml
from graphopt.tools.batch import SLOWER, WORST_FIRST, BatchJob, BatchOutcome, find_jobs
from graphopt.verify.arrays import Samples, read_samples

OPTIONS: Final[Mapping[str, tuple[type, ...]]] = {
    "budget": (dict,),
    "costs": (str,),
    "dims": (dict,),
    "freeze": (bool,),
    "growth": (float, int),
    "margin": (float, int),
    "measure": (bool, float, int),
    "on-mismatch": (str,),
    "only": (list,),
    "opset": (int,),
    "policy": (str,),
    "rules": (list,),
    "shapes": (dict,),
    "verify": (int, str),
    "without": (list,),
}
"""The options of ``graphopt optimize`` that a recipe may say, with the types of their values."""
_PERCENT: Final = ("growth", "margin")
_WORDS: Final = {
    bool: "true or false",
    dict: "a table",
    float: "a number",
    int: "a whole number",
    list: "a list of texts",
}
CHECKS: Final = ("max-growth", "min-speedup")
TOLERANCES: Final = ("rtol", "atol")
"""How far outputs may be apart by element, which stand among the checks, and are options of ``graphopt optimize``."""
METRIC: Final = ("function", "data", "max-loss")
OVERRIDING: Final = ("options", "checks", "metric")
"""The tables that a model may have, too: what stands there goes before what stands in the recipe's own."""


@dataclass(frozen=True)
class Metric:
    """A user's function of a model and data, whose value a result may be less than the original's by so much."""

    function: str
    data: Path | None
    max_loss: float
    folder: Path
    """Where its module is looked for."""


@dataclass(frozen=True)
class Requirements:
    """What must hold of a result."""

    inputs: Path | None = None
    """Samples of inputs, on each of which the result has to agree with the original."""
    max_growth: float | None = None
    """By how many percent its file may be larger."""
    min_speedup: float | None = None
    """How many times as fast it has to be, as measured, or else as modelled."""
    metric: Metric | None = None


@dataclass(frozen=True)
class Recipe:
    """A recipe as it was read: its jobs, with what must hold of the result of each, by the name of the job."""

    name: str
    output: Path
    jobs: tuple[BatchJob, ...]
    requirements: Mapping[str, Requirements]

    def check(self, job: BatchJob, outcome: BatchOutcome) -> BatchOutcome:
        """What came of a job, with what does not hold of its result."""
        return check(job, outcome, self.requirements[job.name])

    def rests_on(self) -> dict[str, str]:
        """For each job, what its outcome rests on beside the model and the options, in digests."""
        return {name: f"{needs} {_digests(needs)}" for name, needs in self.requirements.items()}


def read_recipe(path: Path) -> Recipe:
    """The recipe in a file. Raises ReadError with all that is wrong in it, and UsageError where no model is found."""
    import tomllib

    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReadError(f"{path}: cannot be read as a recipe: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ReadError(f"{path}: is no recipe: byte {error.start} is not UTF-8 text") from None
    except ValueError as error:
        raise ReadError(f"{path}: is no TOML: {' '.join(str(error).split())}") from None
    return _Reading(path).recipe(content)


class _Reading(Checks):
    """A recipe on its way to a value."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.path, self.folder = path, path.parent

    def recipe(self, raw: Toml) -> Recipe:
        self.keys(raw, ("models", "output", "targets", *OVERRIDING))
        general = {key: self.table(raw, key) for key in OVERRIDING}
        output = self.folder / (self.text(raw, "output", default="optimized") or "optimized")
        targets = self.texts(raw.get("targets", ["portable"]), "targets")
        models = raw.get("models", [])
        if not isinstance(models, list) or not models or not all(isinstance(m, dict) for m in models):
            self.wrong("models", "tables [[models]], each with a model", models)
            models = []
        every = {t for m in models for t in self.texts(m.get("targets", targets), "models.targets")}
        jobs: list[BatchJob] = []
        requirements: dict[str, Requirements] = {}
        for number, entry in enumerate(models):
            at = f"models[{number}]."
            self.keys(entry, ("model", "inputs", "targets", *OVERRIDING), at)
            tables = {key: {**general[key], **self.table(entry, key, within=at)} for key in OVERRIDING}
            options, needs = self.options(tables["options"], at), self.requirements(tables, at)
            samples, inputs = self.inputs(entry, at)
            needs = replace(needs, inputs=samples)
            checks = tables["checks"]
            options |= {k: self.number(checks[k], f"{at}checks.{k}") for k in TOLERANCES if k in checks}
            if inputs:
                options["inputs"] = inputs
            source = self.text(entry, "model", at)
            if not source:
                self.wrong(f"{at}model", "a file, a folder or a pattern")
                continue
            for target in self.texts(entry.get("targets", targets), f"{at}targets"):
                for job in self.found(source, target, output / target if len(every) > 1 else output):
                    name = f"{job.name} for {target}" if len(every) > 1 else job.name
                    if name in requirements:
                        self.wrong(f"{at}model", f"each model once for a target, and {name} is there before")
                    jobs.append(replace(job, name=name, options={**options, "target": target}))
                    requirements[name] = needs
        if self.mistakes:
            raise ReadError("; ".join(self.mistakes))
        return Recipe(self.path.stem, output, tuple(jobs), requirements)

    def found(self, source: str, target: str, output: Path) -> list[BatchJob]:
        """The models of an entry, once a target is known to be one."""
        try:
            target_named(target, makes_models=True)
            jobs = find_jobs([self.folder / source], output)
        except UsageError as error:
            raise UsageError(f"{self.path}: {error}") from None
        return [replace(job, journal=True, certificate=True) for job in jobs]

    def options(self, raw: Toml, at: str) -> dict[str, Any]:
        """The options of ``graphopt.optimize``."""
        self.keys(raw, OPTIONS, f"{at}options.")
        options: dict[str, Any] = {}
        for key, value in raw.items():
            kinds = OPTIONS.get(key, (object,))
            fits = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
            if not fits:
                words = " or ".join(
                    _WORDS.get(kind, "a text") for kind in kinds if kind is not int or float not in kinds
                )
                self.wrong(f"{at}options.{key}", words, value)
            elif key == "rules":
                options[key] = self.rules(self.texts(value, f"{at}options.rules"), f"{at}options.rules")
            elif key == "budget":
                options[key] = self.budget(value, f"{at}options.budget")
            else:
                options[key.replace("-", "_")] = value / 100 if key in _PERCENT else value
        return options

    def rules(self, named: list[str], at: str) -> Any:
        """The rules of files beside the recipe, of modules and of packages."""
        try:
            with importing_from(str(self.folder.resolve()), first=False):
                return ruleset([self.folder / n if (self.folder / n).is_file() else n for n in named])
        except GraphoptError as error:
            self.mistakes.append(f"{self.file}: {at}: {error}")
            return None

    def budget(self, raw: Toml, at: str) -> Any:
        from graphopt.rewrite.egraph.saturate import SaturationBudget

        self.keys(raw, SaturationBudget.__dataclass_fields__, f"{at}.")
        limits = {key: self.number(value, f"{at}.{key}") for key, value in raw.items()}
        known = {key: value for key, value in limits.items() if key in SaturationBudget.__dataclass_fields__}
        return SaturationBudget(**{k: v if k == "seconds" else int(v) for k, v in known.items()})  # type: ignore[arg-type]

    def requirements(self, tables: Mapping[str, Toml], at: str) -> Requirements:
        """What must hold of results."""
        checks, metric = tables["checks"], tables["metric"]
        self.keys(checks, (*CHECKS, *TOLERANCES), f"{at}checks.")
        self.keys(metric, METRIC, f"{at}metric.")
        growth, speedup = (self.number(checks[k], f"{at}checks.{k}") if k in checks else None for k in CHECKS)
        if not metric:
            return Requirements(max_growth=growth, min_speedup=speedup)
        function, data = self.text(metric, "function", f"{at}metric."), self.text(metric, "data", f"{at}metric.")
        if function.count(":") != 1:
            self.wrong(f"{at}metric.function", "MODULE:FUNCTION", function)
        if data and not (self.folder / data).exists():
            self.wrong(f"{at}metric.data", "a file or folder that is there", data)
        loss = self.number(metric.get("max-loss", 0.0), f"{at}metric.max-loss")
        place = self.folder / data if data else None
        return Requirements(None, growth, speedup, Metric(function, place, loss, self.folder))

    def inputs(self, entry: Toml, at: str) -> tuple[Path | None, dict[str, Any]]:
        """A file or folder of samples, and what is fed of it first; or what a table says of each input."""
        said = entry.get("inputs", {})
        if isinstance(said, dict):
            files = {name: self.folder / str(value) for name, value in said.items()}
            return None, {name: file if file.is_file() else said[name] for name, file in files.items()}
        try:
            path = self.folder / self.text(entry, "inputs", at)
            return path, next(iter(read_samples(path)))[1]
        except ReadError as error:
            self.mistakes.append(f"{self.file}: {at}inputs: {error}")
            return None, {}

    def texts(self, value: object, at: str) -> list[str]:
        if isinstance(value, list) and value and all(isinstance(v, str) and v for v in value):
            return list(value)
        self.wrong(at, "a list of texts", value)
        return []


# -- what must hold


def check(job: BatchJob, outcome: BatchOutcome, needs: Requirements) -> BatchOutcome:
    """What came of a job, with all that does not hold of its result: the worst exit code, and what is wrong."""
    problems: list[tuple[int, str]] = []
    if needs.max_growth is not None and outcome.bytes_before and outcome.bytes_after is not None:
        growth = 100 * (outcome.bytes_after / outcome.bytes_before - 1)
        if growth > needs.max_growth:
            problems.append(
                (LimitError.exit_code, f"larger by {growth:.1f} %, and at most {needs.max_growth:g} % are allowed")
            )
    if needs.min_speedup is not None:
        found = outcome.speedup or Speedup(1.0, is_measured=False)
        if found.ratio < needs.min_speedup:
            problems.append((SLOWER, f"{found.text} as fast, {found.kind}, and {needs.min_speedup:g}x are asked"))
    try:
        if needs.inputs is not None:
            _agree(job, outcome, read_samples(needs.inputs))
    except GraphoptError as error:
        problems.append((error.exit_code, str(error)))
    if needs.metric is not None:
        try:
            before, after = (value_of(needs.metric, model) for model in (job.model, job.output))
            outcome = replace(outcome, metric_before=before, metric_after=after)
            if not after >= before - needs.metric.max_loss:
                problems.append(
                    (VerificationError.exit_code, f"{needs.metric.function} falls from {before:g} to {after:g}")
                )
        except GraphoptError as error:
            problems.append((error.exit_code, str(error)))
    if not problems:
        return outcome
    codes = [code for code, _ in problems]
    return replace(
        outcome,
        exit_code=next((code for code in WORST_FIRST if code in codes), codes[0]),
        error="; ".join(text for _, text in problems),
    )


def _agree(job: BatchJob, outcome: BatchOutcome, samples: Samples) -> None:
    """Compare both models on samples; the first was, where the result is verified. VerificationError where they do not
    agree, or could not be compared."""
    from graphopt.verify.verification import Demands, verify

    said = job.options
    demands = Demands(str(said.get("policy", "reals")), said.get("rtol"), said.get("atol"))
    for number, (label, sample) in enumerate(samples):
        if number or outcome.verification != "verified":
            try:
                verify(job.model, job.output, inputs=sample, required=True, demands=demands)
            except VerificationError as error:
                raise VerificationError(f"on {label}: {error}") from None


def value_of(metric: Metric, model: Path) -> float:
    """What a metric says of a model file. VerificationError with the place where the user's function fails."""
    module, _, name = metric.function.partition(":")
    run = _runner(model)
    with importing_from(str(metric.folder.resolve()), first=True):

        def value() -> Any:
            from importlib import import_module

            return getattr(import_module(module), name)(run, metric.data)

        found = loaded(metric.function, value, metric.folder.resolve(), VerificationError)
    try:
        number = float(found)
    except (TypeError, ValueError):
        number = math.nan
    if math.isnan(number):
        raise VerificationError(f"{metric.function}: expected a number, found {found!r}")
    return number


def _runner(model: Path) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """A function from a model's inputs to its outputs, both by name."""
    from graphopt.ir.onnx_io import load
    from graphopt.verify.runtimes import EngineError, open_model

    try:
        run, _ = open_model(model)
    except EngineError as error:
        raise VerificationError(f"{model}: no runtime takes it ({error})") from None
    names = tuple(load(model).output_names)

    def outputs(inputs: Mapping[str, Any]) -> dict[str, Any]:
        return dict(zip(names, run(inputs), strict=True))

    return outputs


def _digests(needs: Requirements) -> str:
    """A digest of the files of samples and data, by name, size and time, and of the source of a metric."""
    state = sha256()
    for place in (needs.inputs, needs.metric and needs.metric.data):
        for file in _files(place) if place else ():
            told = file.stat()
            state.update(f"{file} {told.st_size} {told.st_mtime_ns}\n".encode())
    if needs.metric is not None:
        source = needs.metric.folder / Path(*needs.metric.function.partition(":")[0].split(".")).with_suffix(".py")
        state.update(source.read_bytes() if source.is_file() else b"")
    return state.hexdigest()


def _files(place: Path) -> Iterator[Path]:
    yield from filter(Path.is_file, sorted(place.rglob("*"))) if place.is_dir() else [place]
