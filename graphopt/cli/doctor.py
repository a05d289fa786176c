"""``graphopt doctor``: what a bug report needs to know of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from graphopt.cli.app import EPILOG, app

if TYPE_CHECKING:
    from graphopt.tools.doctor import Finding


@app.command("doctor", epilog=EPILOG)
def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print JSON: a list of findings.")] = False,
) -> None:
    """Tell what there is on this machine, what to do about what is missing or slow, and whether a kernel runs.

    Paste what it prints into a bug report. The exit code is 6 where the self-test fails.
    """
    from graphopt.errors import VerificationError
    from graphopt.tools.doctor import examine, is_well

    findings = list(examine())
    _print_json(findings) if json else _print(findings)
    if not is_well(findings):
        raise VerificationError("the self-test failed: report what is printed above")


def _print_json(findings: list[Finding]) -> None:
    from dataclasses import asdict
    from json import dumps

    print(dumps([asdict(f) for f in findings], indent=1))


def _print(findings: list[Finding]) -> None:
    from rich.markup import escape

    from graphopt.cli import printable
    from graphopt.cli.tables import console

    out = console()
    topic = ""
    for finding in findings:
        if finding.topic != topic:
            topic = finding.topic
            out.print(f"[bold]{escape(topic)}[/]")
        name, found = (escape(printable(t)) for t in (finding.name, finding.found))
        out.print(f"  {name:<20} {found}", soft_wrap=True)
        if finding.advice:
            out.print(f"  {'':<20} [yellow]-> {escape(printable(finding.advice))}[/]", soft_wrap=True)
