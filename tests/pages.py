"""The programs, commands and outputs of a page of the documentation, followed from top to bottom as a reader would.

What a block is, its fence says, so that readers see it too:

===========================  ===========================================================================================
``python``                   runs; all blocks of a page share their names
``sh``                       runs, command after command, each of which has to succeed
``console``                  runs the lines that begin with ``$``; what follows each is compared with what it prints
``rules``                    is read as a rule file
``output``                   is compared with what the block before it printed
``text``, ``json``, ``html``,
``toml``                     are only shown
``title="FILE"``             writes the block to that file, for the commands below it
``title="usage"``            commands with words of the reader's own in capitals: looked up, not run
``title="needs X"``          does not run where X is not there: a package, an extra as ``graphopt[prove]``, ``a GPU``
===========================  ===========================================================================================

In an output ``...`` is any text, on a line of its own any lines; how many spaces there are does not matter, nor which
number with which unit of time, speed or size there is, nor which with a decimal point before ``x`` or ``%`` or before
``of the tolerance`` or ``e-``, nor what stands behind ``seconds`` at the beginning of a line: those are measured.
Each page is followed in a folder of its own with ``model.onnx`` and ``x.npy``, a small model and an input for it.

``python tests/pages.py [PAGE...]`` follows pages, or all of them, in the Python that is called, as whoever installed
graphopt there would: commands in a shell, and each page in a process, with data and settings, of its own.
"""

from __future__ import annotations

import importlib.metadata
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from multiprocessing import Process
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADER = re.compile(r'(?P<language>\w*)(?: title="(?P<title>[^"]+)")?')
LANGUAGES = {"python", "sh", "console", "rules", "output", "text", "json", "html", "toml"}
KINDS = (r"[nµum]?s\b", r"[kMG]?B\b", r"G(?:FLOP|B)/s\b")
"""Units of one kind: which of them a measured number has, is measured, too."""
MEASURED = re.compile(
    rf"\d[\d,]*(?:\.\d+)? ?(?:{'|'.join(KINDS)})|\d+\.\d+(?: ?(?:x\b|%)|e-\d+\b|(?:e-\d+)? of the tolerance)"
)
SECONDS = re.compile(r"seconds +\d.*")
"""The line of a report that says how long each step took; those that took next to no time are not on it."""

Run = Callable[[str], tuple[int, str]]
"""Runs a command in the current folder: its exit code, and what it printed."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: ``line`` is that of its first line of text, counted from 1."""

    language: str
    title: str
    text: str
    line: int

    @property
    def need(self) -> str:
        """What it needs beyond graphopt itself; nothing as a rule."""
        return self.title.removeprefix("needs ") if self.title.startswith("needs ") else ""


class PageError(AssertionError):
    """A block that does not do what its page says."""


def blocks(path: Path) -> Iterator[Block]:
    """The blocks of a page, in order; PageError for one whose fence says nothing that is known."""
    text = path.read_text(encoding="utf-8")
    for fence in FENCE.finditer(text):
        line = text.count("\n", 0, fence.start(2)) + 1
        header = HEADER.fullmatch(fence[1])
        if header is None or header["language"] not in LANGUAGES:
            raise PageError(f"{path}:{line - 1}: ```{fence[1]} is none of the fences of tests/pages.py")
        yield Block(header["language"], header["title"] or "", fence[2], line)


def follow(path: Path, run: Run, known: dict[str, object] | None = None) -> list[str]:
    """Follow a page in the current folder, where its files come to lie; the needs for which blocks were left out."""
    known = {"__name__": path.stem.replace("-", "_")} if known is None else known
    left_out = list[str]()
    printed: str | None = ""
    for block in blocks(path):
        where = f"{path}:{block.line}"
        if block.need and not is_there(block.need):
            left_out.append(block.need)
            printed = None
        elif block.language == "output":
            if printed is not None:
                compare(block.text, printed, where)
        elif block.title == "usage":
            for command in commands(block.text):
                look_up(command, where)
        else:
            if block.title and not block.need:
                Path(block.title).write_text(block.text, encoding="utf-8")
            printed = do(block, path, run, known)
    return left_out


def do(block: Block, path: Path, run: Run, known: dict[str, object]) -> str:
    """Do what a block says; what that printed."""
    where, out = f"{path}:{block.line}", io.StringIO()
    match block.language:
        case "python":
            program = compile("\n" * (block.line - 1) + block.text, str(path), "exec")
            with redirect_stdout(out):
                exec(program, known)
        case "sh":
            for command in commands(block.text):
                code, said = run(command)
                out.write(said)
                if code:
                    raise PageError(f"{where}: {command} exits with {code}:\n{said}")
        case "console":
            converse(block.text, run, where)
        case "rules":
            from graphopt.rewrite.reading.parse import parse_rules

            parse_rules(block.text, where)
    return out.getvalue()


def commands(text: str) -> Iterator[str]:
    """The commands of a block: lines, with those that they go on in, without comments."""
    for line in text.replace("\\\n", " ").splitlines():
        command = re.sub(r"(^|\s+)#.*", "", line)
        if command.strip():
            yield command


def converse(text: str, run: Run, where: str) -> None:
    """Run the commands of a session, and compare what each prints; one that fails is followed by ``$ echo $?``."""
    code, said = 0, ""
    for turn in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, expected = turn.partition("\n")
        if command == "echo $?":
            compare(expected, str(code), where)
            code = 0
            continue
        if code:
            raise PageError(f"{where}: the command before {command!r} exited with {code}:\n{said}")
        code, said = run(command)
        compare(expected, said, f"{where}: {command}")
    if code:
        raise PageError(f"{where}: {command} exits with {code}:\n{said}")


def compare(expected: str, printed: str, where: str) -> None:
    """PageError where something else was printed than is expected."""
    if not re.fullmatch(pattern(expected), "\n".join(map(str.rstrip, printed.strip().splitlines()))):
        raise PageError(f"{where}: the page says\n{expected}\nbut what is printed is\n{printed}")


def pattern(expected: str) -> str:
    """The regular expression for an output as a page has it."""
    lines = [line.rstrip() for line in expected.strip().replace("…", "...").splitlines()]
    return "".join(
        r"(?:.*(?:\n|$))*?"
        if line == "..."
        else (SECONDS.pattern if SECONDS.fullmatch(line) else line_pattern(line))
        + (r"\n?" if n == len(lines) - 1 else r"(?:\n|$)")
        for n, line in enumerate(lines)
    )


def line_pattern(line: str) -> str:
    parts, done = list[str](), 0
    for found in re.finditer(rf"{MEASURED.pattern}|\.\.\.| +", line):
        parts.append(re.escape(line[done : found.start()]))
        if found[0] == "...":
            parts.append(".*?")
        elif found[0].isspace():
            parts.append(r"\s+" if parts != [""] else r"[ \t]*")
        else:
            unit = re.sub(r"^[\d.,]+(?:e-\d+)? ?", "", found[0])
            kind = next((kind for kind in KINDS if re.fullmatch(kind, unit)), re.escape(unit))
            parts.append(rf"[\d.,]+(?:e-?\d+)? *{kind}")
        done = found.end()
    return "".join([*parts, re.escape(line[done:])])


def look_up(command: str, where: str) -> None:
    """PageError for a command of graphopt, or an option of it, that there is not."""
    import typer.main

    from graphopt.cli.commands import app

    words = shlex.split(command)
    if words[0] != "graphopt":
        return
    found = typer.main.get_command(app)
    for word in words[1:]:
        if word in getattr(found, "commands", {}):
            found = found.commands[word]
    if hasattr(found, "commands") and not {"|", "--help", "--version"} & set(words):
        raise PageError(f"{where}: {command}: there is no such command")
    options = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in words:
        option = word.partition("=")[0]
        if option.startswith("-") and option not in {*options, "-", "--help", "--version"}:
            raise PageError(f"{where}: {command}: there is no {option}")


def is_there(need: str) -> bool:
    """Whether what a block needs is there: a package by its name, all that an extra of graphopt brings, or a GPU."""
    if need == "a GPU":
        with suppress(Exception):
            import cupy

            return bool(cupy.cuda.runtime.getDeviceCount())
        return False
    requirement = re.fullmatch(r"([\w.-]+)(?:\[([\w,]+)\])?", need)
    if requirement is None:
        raise PageError(f"needs {need}: neither a package, nor graphopt[EXTRA], nor a GPU")
    if requirement[1] == "graphopt":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        wanted = [w for extra in (requirement[2] or "").split(",") for w in extras[extra]]
        return all(is_there(re.split(r"[<>=!~ ;]", w)[0]) for w in wanted)
    with suppress(importlib.metadata.PackageNotFoundError):
        return bool(importlib.metadata.version(requirement[1]))
    return False


# -- two ways to run a command


def in_a_shell(command: str) -> tuple[int, str]:
    """Run a command as a reader does."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", command],
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout


def in_process(command: str) -> tuple[int, str]:
    """Run a command, those of graphopt by a call, which takes a tenth of the time where much is imported already."""
    words = shlex.split(command)
    if words[0] != "graphopt" or set("|<>;&$`*") & set(re.sub(r"'[^']*'", "", command)):
        return in_a_shell(command)
    from graphopt.cli import run

    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        try:
            code = run(words[1:])
        except SystemExit as stop:
            code = int(stop.code or 0)
    return code, out.getvalue()


def provide(folder: Path) -> None:
    """Put ``model.onnx`` and ``x.npy`` into a folder, as docs/first-optimization.md makes them."""
    path = DOCS / "first-optimization.md"
    (block,) = (block for block in blocks(path) if block.title == "make_model.py")
    with chdir(folder):
        exec(compile(block.text, str(path), "exec"), {})


def pages() -> list[Path]:
    """Every page that somebody wrote: what is made from the code has no programs of its own."""
    made = {DOCS / name for name in ("api.md", "cli.md", "schedules.md")}
    written = [path for path in DOCS.rglob("*.md") if path not in made and path.parent.name != "rules"]
    return [ROOT / "README.md", ROOT / "rules" / "README.md", *sorted(written)]


def main(chosen: list[str]) -> int:
    """Follow pages, each in a process of its own; how many went wrong."""
    wrong = 0
    for page in chosen or pages():
        process = Process(target=alone, args=(Path(page).resolve(),))
        process.start()
        process.join()
        wrong += process.exitcode != 0
    return wrong


def alone(page: Path) -> None:
    """Follow a page in an empty folder, with data and settings of its own."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as folder, chdir(folder):
        os.environ.update(XDG_DATA_HOME=home, XDG_CONFIG_HOME=home)
        provide(Path(folder))
        try:
            left_out = follow(page, in_a_shell)
        except Exception as error:
            print(f"{page}: {type(error).__name__}: {error}", flush=True)
            sys.exit(1)
    without = [f"(without {need})" for need in dict.fromkeys(left_out)]
    print(f"{page}: ok in {time.perf_counter() - begun:.0f} s", *without, flush=True)


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
