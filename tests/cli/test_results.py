"""What commands write as JSON fits the schemas that the documentation has."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from graphopt.cli import run
from graphopt.cli.commands import app
from graphopt.cli.results import RESULTS, ProvedRule, TunedNest, TunedProgram, schema
from graphopt.display import encoded
from graphopt.ir import onnx_io
from graphopt.ir.text import parse

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas.json"
KINDS = {"string": str, "boolean": bool, "integer": int, "number": (int, float), "null": type(None)}
WORDS = {
    "$schema", "$defs", "$ref", "title", "description", "type", "enum", "anyOf", "items", "prefixItems", "minItems",
    "maxItems", "properties", "required", "additionalProperties",
}  # fmt: skip
"""The keywords that this validator knows."""


def fits(value: Any, shape: dict[str, Any], root: dict[str, Any], where: str = "$") -> list[str]:
    """What is wrong with a value, by a JSON schema."""
    assert set(shape) <= WORDS, set(shape) - WORDS
    if name := shape.get("$ref"):
        return fits(value, root["$defs"][name.removeprefix("#/$defs/")], root, where)
    if kinds := shape.get("anyOf"):
        found = [fits(value, kind, root, where) for kind in kinds]
        return [] if [] in found else found[0]
    if "enum" in shape:
        return [] if value in shape["enum"] else [f"{where}: {value!r} is none of {shape['enum']}"]
    types = shape.get("type", [])
    match [types] if isinstance(types, str) else types:
        case []:
            return []
        case ["object"]:
            return of_object(value, shape, root, where)
        case ["array"]:
            if not isinstance(value, list):
                return [f"{where}: {value!r} is no array"]
            if "prefixItems" in shape:
                if len(value) != shape["minItems"]:
                    return [f"{where}: {len(value)} items"]
                pairs = zip(value, shape["prefixItems"], strict=True)
            else:
                pairs = ((v, shape["items"]) for v in value)
            return [p for i, (v, kind) in enumerate(pairs) for p in fits(v, kind, root, f"{where}[{i}]")]
        case several:
            is_right = any(isinstance(value, KINDS[kind]) for kind in several)
            is_right &= not isinstance(value, bool) or "boolean" in several
            return [] if is_right else [f"{where}: {value!r} is no {several}"]


def check(text: str, command: str) -> None:
    """Fail where what a command wrote does not fit its schema."""
    assert fits(json.loads(text), schema(command), schema(command)) == []


def of_object(value: Any, shape: dict[str, Any], root: dict[str, Any], where: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{where}: {value!r} is no object"]
    known, others = shape.get("properties", {}), shape.get("additionalProperties", {})
    problems = [f"{where}: {name} is missing" for name in shape.get("required", ()) if name not in value]
    for name, inner in value.items():
        if name in known:
            problems += fits(inner, known[name], root, f"{where}.{name}")
        elif others is False:
            problems.append(f"{where}: {name} is unknown")
        else:
            problems += fits(inner, others, root, f"{where}.{name}")
    return problems


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, what it is optimized to, with journal and certificate, and a rule file."""
    folder = tmp_path_factory.mktemp("results")
    onnx_io.save(parse("x: float32[n, 4]\ny = Relu(Relu(x))\nz = Exp(Neg(Neg(y)))\nreturn z"), folder / "m.onnx")
    given = ["optimize", str(folder / "m.onnx"), "-o", str(folder / "o.onnx"), "--quiet"]
    assert run([*given, "--certificate", str(folder / "c.json")]) == 0
    (folder / "mine.rules").write_text("# twice is once      [A22] exact\nmy-relu: Relu(Relu(x)) => Relu(x)\n")
    (folder / "mine.toml").write_text("wrong = 1\n")
    (folder / "recipe.toml").write_text('models = [{ model = "m.onnx" }]\n')
    return folder


FAILS = f"{sys.executable} -c 'import sys, onnx; sys.exit(any(n.op_type == \"Exp\" for n in onnx.load(sys.argv[1]).graph.node))'"  # noqa: E501
RELUS = f"{sys.executable} -c 'import sys, onnx; sys.exit([n.op_type for n in onnx.load(sys.argv[1]).graph.node].count(\"Relu\") < 2)'"  # noqa: E501
CASES = {
    "optimize": ["m.onnx", "-o", "new.onnx"],
    "optimize several": ["m.onnx", "o.onnx", "-o", "several"],
    "inspect": ["m.onnx"],
    "inspect --nodes": ["m.onnx", "--nodes"],
    "diff": ["m.onnx", "o.onnx"],
    "reduce": ["m.onnx", "--check", FAILS],
    "convert": ["m.onnx", "--to", "fp16"],
    "extract": ["m.onnx", "--outputs", "y"],
    "doctor": [],
    "egraph": ["m.onnx"],
    "ci": ["recipe.toml"],
    "explain": ["o.onnx", "z"],
    "explain --rule": ["m.onnx", "--rule", "neg-neg"],
    "explain --choices": ["m.onnx", "--choices"],
    "bisect": ["m.onnx", "--check", RELUS],
    "revert": ["m.onnx", "o.onnx", "1"],
    "certify": ["m.onnx", "o.onnx", "c.json"],
    "run": ["m.onnx", "--input", "x=random", "--profile"],
    "bench": ["m.onnx", "--seconds", "0.05", "--threads", "1"],
    "compile": ["m.onnx", "-o", "program"],
    "show": ["m.onnx"],
    "rules list": [],
    "rules show": ["A22"],
    "rules check": ["mine.rules"],
    "rules try": ["mine.rules", "m.onnx", "y"],
    "rules coverage": ["m.onnx", "--target", "portable"],
    "target list": [],
    "target show": ["ort"],
    "target check": ["mine.toml"],
}
"""What is typed for each result that takes no long time to have."""
SLOW = {
    "demo",
    "optimize --on-mismatch refuse",
    "db list",
    "tune",
    "tune --choices",
    "calibrate",
    "calibrate --show",
    "rules prove",
    "db show",
}
"""The others, which tests of theirs look at, or those below."""


@pytest.mark.parametrize("command", CASES)
def test_the_result_fits_its_schema(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    words = command.partition(" --")[0].removesuffix(" several").split()
    code = run([*words, *CASES[command], "--json", "-"])
    captured = capsys.readouterr()
    assert code == (3 if command == "target check" else 0), captured.err
    kept = json.loads(SCHEMAS.read_text())[command]
    assert kept == schema(command), "run python -m docs.generators"
    assert fits(json.loads(captured.out), kept, kept) == []
    assert run([*words, *CASES[command], "--json", "result.json"]) == code
    assert fits(json.loads(Path("result.json").read_text()), kept, kept) == []


def test_each_command_with_json_has_a_schema() -> None:
    assert set(RESULTS) == {*CASES, *SLOW}
    takes = {
        name
        for group, commands in [("", typer.main.get_command(app).commands), *groups()]
        for name, command in ((f"{group} {n}".strip(), c) for n, c in commands.items())
        if any("--json" in p.opts for p in command.params)
    }
    assert takes == {name.partition(" --")[0].removesuffix(" several") for name in RESULTS}


def groups() -> list[tuple[str, Any]]:
    return [(n, c.commands) for n, c in typer.main.get_command(app).commands.items() if hasattr(c, "commands")]


@pytest.mark.parametrize(
    ("command", "value"),
    [
        ("tune", TunedProgram(3, 1.5, "done", None, True, (TunedNest(("a",), 1, None, 1.0, 3, {"slow": 1}),), "d")),
        ("rules prove", [ProvedRule("r", "f:1", "exact", None, "x = 1", True)]),
    ],
)
def test_what_takes_long_fits_its_schema(command: str, value: Any) -> None:
    assert fits(encoded(value), schema(command), schema(command)) == []


def test_the_validator_sees_what_is_wrong() -> None:
    kept = schema("target check")
    right = {"file": "f", "mistakes": ["m"]}
    assert fits(right, kept, kept) == []
    assert fits({"file": 1, "mistakes": ["m"]}, kept, kept) == ["$.file: 1 is no ['string']"]
    assert fits({"file": "f"}, kept, kept) == ["$: mistakes is missing"]
    assert fits({**right, "more": 1}, kept, kept) == ["$: more is unknown"]
