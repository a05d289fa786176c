"""Help is light, colours are for terminals and who asks, and options of a class arrive as one object."""

import os
import pty
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from graphopt.cli import run
from graphopt.cli.app import TASKS, Default, Without, register
from graphopt.cli.commands import app
from graphopt.ir import onnx_io
from graphopt.ir.text import parse
from tests.pages import look_up

GRAPHOPT = [sys.executable, "-c", "import sys; from graphopt.cli import main; main(sys.argv[1:])"]
HEAVY = {"numpy", "onnx", "onnx_ir", "networkx", "egglog", "numba", "scipy", "lark", "onnxruntime", "cupy", "torch"}
OURS = {"cli", "errors", "frozen"}
"""The parts of graphopt that a command line is read with."""


@pytest.mark.parametrize("arguments", [["--help"], ["optimize", "--help"], ["--version"], ["doctor", "--help"]])
def test_help_imports_nothing_that_takes_long(arguments: list[str]) -> None:
    program = f"import sys\nfrom graphopt.cli import run\ntry:\n    run({arguments})\nfinally:\n    print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    modules = [name.split(".") for name in done.stdout.split("\n")[-2].split()]
    assert not HEAVY & {name for name, *_ in modules}
    assert {parts[1] for parts in modules if parts[0] == "graphopt" and parts[1:]} == OURS


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "m.onnx"
    onnx_io.save(parse("x: float32[2]\ny = Relu(x)\nreturn y"), path)
    return path


def on_terminal(arguments: list[str], **variables: str) -> bytes:
    """What a command writes to a terminal."""
    ours, its = pty.openpty()
    environment = {n: v for n, v in os.environ.items() if n not in ("NO_COLOR", "FORCE_COLOR")}
    environment |= {"TERM": "xterm-256color", **variables}
    with subprocess.Popen([*GRAPHOPT, *arguments], stdout=its, stderr=its, env=environment) as process:
        os.close(its)
        written = b""
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # how Linux says that the other side is closed
                break
            if not piece:
                break
            written += piece
        process.wait()
    os.close(ours)
    return written


def test_colours_are_for_terminals_and_who_asks(model: Path) -> None:
    arguments = ["inspect", str(model)]
    assert b"\x1b[" in on_terminal(arguments)
    assert b"\x1b[" not in on_terminal(arguments, NO_COLOR="1")
    forced = {**os.environ, "FORCE_COLOR": "1"}
    piped = subprocess.run([*GRAPHOPT, *arguments], env=forced, capture_output=True, check=True)
    assert b"\x1b[" in piped.stdout
    plain = subprocess.run([*GRAPHOPT, *arguments], env={**forced, "NO_COLOR": "1"}, capture_output=True, check=True)
    assert b"\x1b[" not in plain.stdout + plain.stderr


Color = Annotated[str, typer.Option(help="The colour."), Default("red")]


@dataclass(frozen=True, kw_only=True)
class Inner:
    color: Color
    wide: Annotated[bool, typer.Option("--wide")] = False


@dataclass(frozen=True, kw_only=True)
class Outer:
    size: Annotated[int, typer.Option(metavar="N")] = 1
    inner: Inner
    hidden: Annotated[str, typer.Option()] = "kept"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], Outer(size=1, inner=Inner(color="red", wide=False))),
        (["--size", "3", "--color", "blue", "--wide"], Outer(size=3, inner=Inner(color="blue", wide=True))),
    ],
)
def test_options_of_a_class_arrive_as_one_object(arguments: list[str], expected: Outer) -> None:
    commands, calls = typer.Typer(), []

    @register(commands, "one")
    def one(
        name: str, *, outer: Annotated[Outer, Without("hidden")], loud: Annotated[bool, typer.Option()] = True
    ) -> None:
        calls.append((name, outer, loud))

    @register(commands, "two")
    def two(*, color: Color) -> None:
        calls.append(color)

    @register(commands, "three")
    def three(*, color: Color = "green") -> None:
        calls.append(color)

    commands(["one", "me", *arguments], standalone_mode=False)
    assert calls == [("me", expected, True)]
    commands(["two"], standalone_mode=False)
    commands(["three"], standalone_mode=False)
    assert calls[1:] == ["red", "green"]


def test_options_that_a_command_leaves_out_are_unknown_to_it() -> None:
    commands = typer.Typer()

    @register(commands)
    def one(*, outer: Annotated[Outer, Without("hidden", "inner")]) -> None:
        raise AssertionError("nothing is called")

    for option in ("--hidden", "--color"):
        with pytest.raises(Exception, match="No such option"):
            commands([option, "x"], standalone_mode=False)


def test_nothing_heavy_is_imported_for_texts_paths_and_defaults(model: Path, tmp_path: Path) -> None:
    """What converts other values, the algorithms of a library of graphs, the engine of large searches, the grammar of
    rules, databases of measurements, what checks journals, and what lays out for terminals."""
    program = "import sys; from graphopt.cli import run; print(run(sys.argv[1:])); print(*sys.modules)"
    arguments = ["optimize", str(model), "-o", str(tmp_path / "out.onnx"), "--verify", "off"]
    for _ in range(2):  # rules that were never read are parsed
        done = subprocess.run([sys.executable, "-c", program, *arguments], check=True, capture_output=True, text=True)
        *table, code, modules = done.stdout.splitlines()
        assert table
        assert code == "0"
    heavy = {"pydantic", "networkx", "egglog.bindings", "lark", "sqlite3", "fractions", "statistics", "rich"}
    unused = {
        "tools.batch",
        "rewrite.reading.parse",
        "rewrite.derivations.replay",
        "run.measure",
        "proof.evidence",
        "ir.text",
    }
    assert not (heavy | {f"graphopt.{name}" for name in unused}) & set(modules.split())


def commands_of(command: Any, name: str = "graphopt") -> Iterator[tuple[str, Any]]:
    """Each command that does something, by what is typed."""
    below = getattr(command, "commands", {})
    if not below:
        yield name, command
    for inner in below.values():
        yield from commands_of(inner, f"{name} {inner.name}")


def test_help_is_parted_by_task_and_names_each_command_once(capsys: pytest.CaptureFixture[str]) -> None:
    listed = [name for names in TASKS.values() for name in names]
    assert sorted(listed) == sorted(typer.main.get_command(app).commands)
    assert run([]) == 0
    bare = capsys.readouterr().out
    assert run(["--help"]) == 0
    assert bare == capsys.readouterr().out
    assert [line[:-1] for line in bare.splitlines() if line[:-1] in TASKS] == list(TASKS)
    assert run(["rules"]) == 0
    assert capsys.readouterr().out.startswith("Usage: graphopt rules")


@pytest.mark.parametrize(("name", "command"), [*commands_of(typer.main.get_command(app))])
def test_each_command_shows_three_examples_that_can_be_typed(name: str, command: Any) -> None:
    context = command.make_context(name, [], resilient_parsing=True)
    shown = [line for line in command.get_help(context).partition("Examples:\n")[2].splitlines() if "graphopt" in line]
    assert [line.strip() for line in shown[:3]] == [*command.examples]
    assert len(command.examples) == 3
    assert sum(name in example for example in command.examples) >= 2
    for example in command.examples:
        words = shlex.split(example.split(" > ")[0].split(" | ")[0])
        if words[0] == "graphopt":
            typer.main.get_command(app).make_context("graphopt", words[1:])
            look_up(shlex.join(words), name)
