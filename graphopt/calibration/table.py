"""Measured prices of a target: those of this machine's database, where it has some.

What opens a database is imported by what asks one: most runs go by analytic prices.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from graphopt.calibration import ANALYTIC, AUTO, COSTS, MEASURED
from graphopt.errors import GraphoptError, ReadError, UsageError
from graphopt.frozen import dataclass
from graphopt.target import Target

if TYPE_CHECKING:
    from graphopt.calibration.store import Setting, TimesDatabase

PACKAGES = {"ONNX Runtime": "onnxruntime", "graphopt": "graphopt"}
"""The package that a runtime comes in."""


@dataclass(frozen=True)
class Priced:
    """A target with the prices to go by, in words that say which, and a warning where others were wanted."""

    target: Target
    prices: str
    warning: str = ""


def setting(runtime: str, threads: int = 1) -> Setting | None:
    """This machine, and the version of the runtime that is installed; None where none is."""
    from graphopt.calibration.machine import machine
    from graphopt.calibration.store import Setting

    try:
        return Setting(machine(), f"{runtime} {version(PACKAGES[runtime])}", threads)
    except (PackageNotFoundError, KeyError):
        return None


def priced(target: Target, costs: str | Path = AUTO, threads: int = 1) -> Priced:
    """The target under the prices that are wanted: one of ``COSTS``, or the path of a database.

    Raises UsageError where measured prices are demanded and there are none.
    """
    plain = Priced(target, ANALYTIC)
    if costs == ANALYTIC or (costs == AUTO and not target.runtime):
        return plain
    from graphopt.calibration.store import TimesDatabase, database

    path = database(costs)
    if costs not in COSTS:
        with TimesDatabase(path):  # what is no database is said first
            pass
    if not target.runtime:
        raise UsageError(f"prices of the target {target.name} are not measured in any runtime: say --costs {ANALYTIC}")
    if costs == AUTO and not path.exists():
        return plain
    here = setting(target.runtime, threads)
    why = f"{target.runtime} is not installed"
    if here is not None:
        try:
            with TimesDatabase(path) as store:
                measured = _measured(store, here, target)
        except GraphoptError as error:
            if costs != AUTO:
                raise
            return replace(plain, warning=f"{error}; analytic prices are used")
        if measured is not None:
            return measured
        why = f"it holds none of {here.runtime} on this machine with {threads} thread{'s' * (threads > 1)}"
    if costs == AUTO:
        return plain
    raise UsageError(f"{path}: no measured times to go by: {why}; run graphopt calibrate")


def _measured(store: TimesDatabase, here: Setting, target: Target) -> Priced | None:
    from graphopt.calibration.fit import apply

    seconds = {text: time.seconds for text, time in store.times(here).items() if time.seconds is not None}
    if not seconds:
        return None
    fitted = store.fit(here, target.key)
    numbers = {} if fitted is None else {name: float(str(n)) for name, n in fitted.prices.items()}
    try:
        prices = apply(target.prices, numbers)
    except (AttributeError, TypeError, ValueError):
        raise ReadError(f"{store.path}: holds prices that this graphopt does not know; calibrate again") from None
    digest = sha256(repr((sorted(seconds.items()), sorted(numbers.items()))).encode()).hexdigest()[:12]
    words = f"{MEASURED}: {len(seconds)} times of {here.runtime} at {here.threads} thread, digest {digest}"
    return Priced(replace(target, prices=prices, measured=seconds), words)
