"""The table of ``graphopt optimize --stats``: what became of each rule."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from graphopt.cli.tables import console
from graphopt.run.report import Report


def show_statistics(report: Report, *, on_stderr: bool) -> None:
    """A line for each rule that was tried and each pass that acted, by time; most often refused for what reason."""
    table = Table("rule", "family", "stage", box=None, pad_edge=False)
    for name in ("tried", "fired", "kept", "ms"):
        table.add_column(name, justify="right")
    table.add_column("most often refused because")
    for use in report.rules:
        counts = [str(n or "") for n in (use.tried, use.fired, use.kept)]
        time = f"{1e3 * use.seconds:.1f}" if use.seconds else ""
        why = f"{use.reasons[0][0]} ({use.reasons[0][1]} of {use.refused})" if use.reasons else ""
        table.add_row(escape(use.rule), use.family, use.stage, *counts, time, escape(why))
    sums = [sum(getattr(use, name) for use in report.rules) for name in ("tried", "fired", "kept")]
    table.add_row("all", "", "", *map(str, sums), f"{1e3 * sum(u.seconds for u in report.rules):.1f}", "", style="bold")
    console(stderr=on_stderr).print(table)
