"""``graphopt db``: what it says of a database, what it takes and gives, and its exit codes."""

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from graphopt.calibration.measured_file import Setting
from graphopt.calibration.schedule_tables import runtime
from graphopt.cli import run
from graphopt.cli.results import schema
from graphopt.ir.onnx_io import save
from graphopt.ir.text import parse
from graphopt.tuning.database import Records
from tests.cli.test_results import fits
from tests.tuning.test_database import FEW, HERE, MANY, failed, record


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "tuning.sqlite"
    with Records(path, write=True) as records:
        for each in (record(4, 2.0), failed(2, "wrong: all of it"), failed(1, "wrong: again"), record(4, 0.5, MANY)):
            records.keep(each)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    save(parse("x: float32[4, 8]\ny = Tanh(x)\nreturn y"), path)
    return path


def test_list(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["db", "list", "--database", str(database)]) == 0
    printed = capsys.readouterr().out
    assert HERE.machine in printed
    first, second = (next(ln for ln in printed.splitlines() if w.key[:12] in ln).split() for w in (FEW, MANY))
    assert first[-7:] == ["3", "2", "30", "µs", "15", "µs", "2.00x"]
    assert second[-4:] == ["n", "=", "300", "1"]


def test_list_as_json(database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["db", "list", "--database", str(database), "--json", "-"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert fits(listed, schema("db list"), schema("db list")) == []
    told = {each["key"]: each for each in listed}
    assert (told[FEW.key]["measured"], told[FEW.key]["failed"]) == (3, 2)
    assert told[FEW.key]["best"]["speedup"] == pytest.approx(2.0)
    assert told[MANY.key]["best"] is None
    assert run(["db", "list", "--database", str(database), "--json", str(tmp_path / "told.json")]) == 0
    assert len(json.loads((tmp_path / "told.json").read_text())) == 2


def test_show(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["db", "show", FEW.key[:9], "--database", str(database)]) == 0
    printed = capsys.readouterr().out
    for text in (FEW.script.rstrip(), "n = 3", "s.split(", "2 wrong", "2.00 times as fast", HERE.runtime):
        assert text in printed
    assert run(["db", "show", MANY.key, "--database", str(database)]) == 0
    assert "best       the default schedule" in capsys.readouterr().out
    assert run(["db", "show", FEW.key, "--database", str(database), "--json", "-"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert fits(shown, schema("db show"), schema("db show")) == []
    assert shown["settings"][0]["failures"] == {"wrong": 2}


@pytest.mark.parametrize(("key", "why"), [("", "2 workloads have keys"), ("z", "no workload has a key")])
def test_a_key_has_to_name_one(database: Path, key: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["db", "show", key, "--database", str(database)]) == 2
    told = capsys.readouterr().err
    assert why in told
    assert told.count("\n") == 1


def test_databases_are_exchanged(database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines, one, other = tmp_path / "few.jsonl", tmp_path / "one.sqlite", tmp_path / "other.sqlite"
    assert run(["db", "export", "-o", str(lines), "--database", str(database)]) == 0
    assert run(["db", "import", str(lines), "--database", str(one)]) == 0
    assert run(["db", "merge", str(database), "--database", str(other)]) == 0
    assert "4 records taken from" in capsys.readouterr().out
    with Records(one) as left, Records(other) as right, Records(database) as whole:
        assert list(left) == list(right) == [replace(r, verified=False) for r in whole]


def test_prune(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Records(database) as records:
        records.keep(record(4, 2.0, setting=Setting("a machine", runtime())))
    assert run(["db", "prune", "--failed", "--database", str(database)]) == 0
    assert "2 records deleted" in capsys.readouterr().out
    assert run(["db", "prune", "--stale", "--best", "1", "--database", str(database)]) == 0
    assert "2 records deleted" in capsys.readouterr().out
    with Records(database) as records:
        assert [s.runtime for s in records.settings()] == [runtime()]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["list"], 3),
        (["show", "a"], 3),
        (["prune"], 2),
        (["prune", "--failed"], 3),
        (["merge", "/nowhere.sqlite"], 2),
        (["import", "/nowhere.jsonl"], 2),
        (["export", "-o", "/nowhere/a.jsonl"], 2),
    ],
)
def test_what_is_not_there_is_one_line(
    arguments: list[str], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["db", *arguments, "--database", str(tmp_path / "none.sqlite")]) == code
    assert capsys.readouterr().err.count("\n") == 1


def test_a_damaged_database_is_one_line(database: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database.write_bytes(b"garbage" * 999)
    for arguments in (["db", "list"], ["show", str(model)], ["db", "import", str(model)]):
        assert run([*arguments, "--database", str(database)]) == 3
        told = capsys.readouterr().err
        assert "move it away and tune again" in told
        assert told.count("\n") == 1


def test_a_damaged_database_of_the_users_is_a_warning(
    database: Path, model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    database.write_bytes(b"garbage" * 999)
    monkeypatch.setattr("graphopt.run.settings.default_path", lambda: database)
    assert run(["show", str(model)]) == 0
    told = capsys.readouterr().err
    assert told.startswith("warning: ")
    assert "default schedules are used" in told
    assert told.count("\n") == 1


def test_tuned_schedules_can_be_demanded(database: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("run", "bench"):
        assert run([command, str(model), "--input", "x=random", "--tuned", "require", "--database", str(database)]) == 2
        assert "no schedule was tuned for the nest float32[4, 8] -> " in capsys.readouterr().err
    assert run(["show", str(model), "--tuned", "off"]) == 0
    folder = str(model.parent / "made")
    assert run(["compile", str(model), "-o", folder, "--tuned", "perhaps"]) == 2
    assert "there are auto, require, off" in capsys.readouterr().err


STRANGE = {
    "a view without an end in the place of a table": """DROP TABLE record;
        CREATE VIEW record AS WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT n AS id FROM t;""",
    "a trigger": "CREATE TRIGGER taken AFTER INSERT ON record BEGIN DELETE FROM record; END;",
    "one more table": "CREATE TABLE more (id INTEGER);",
}


@pytest.mark.parametrize("statements", STRANGE.values(), ids=STRANGE)
@pytest.mark.parametrize("command", ["list", "merge"])
def test_a_database_of_other_tables_is_a_strangers(
    database: Path, statements: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with sqlite3.connect(database) as connection:
        connection.executescript("PRAGMA foreign_keys = OFF;" + statements)
    connection.close()
    other = tmp_path / "other.sqlite"
    arguments = ["--database", str(database)] if command == "list" else [str(database), "--database", str(other)]
    assert run(["db", command, *arguments]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert str(database) in line
