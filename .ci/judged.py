"""A plugin of pytest that writes down what came of each test as soon as that is known, and leaves out what passed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest


class Judged:
    """Outcomes, one a line, written by the process that the workers report to."""

    def __init__(self, log: Path) -> None:
        self.log = log.open("a")
        self.outcomes: dict[str, tuple[str, str]] = {}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.outcome != "passed":
            self.write(report.nodeid, report.outcome, reason(report))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = report.nodeid
        self.outcomes.setdefault(test, ("failed", "it was not called"))
        if report.outcome == "skipped":
            self.outcomes[test] = ("passed", "") if hasattr(report, "wasxfail") else ("skipped", reason(report))
        elif report.outcome == "failed" or report.when == "call":
            self.outcomes[test] = report.outcome, reason(report)
        if report.when not in ("setup", "call"):  # its teardown, or the crash of the worker that ran it
            self.write(test, *self.outcomes.pop(test))

    def write(self, test: str, outcome: str, why: str) -> None:
        print(json.dumps([test, outcome, why]), file=self.log, flush=True)


def reason(report: pytest.CollectReport | pytest.TestReport) -> str:
    """Why a test was skipped, or the last line of what is said of it."""
    said = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr or "")
    return said.removeprefix("Skipped: ").strip().rpartition("\n")[2]


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Judged(Path(os.environ["JUDGED_LOG"])))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    done = set(json.loads(Path(os.environ["JUDGED_DONE"]).read_text()))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in done])
    items[:] = [item for item in items if item.nodeid not in done]
