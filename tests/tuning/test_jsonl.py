"""Records come and go as lines of JSON, and nothing in a line is taken on trust."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from graphopt.errors import ReadError
from graphopt.tuning import jsonl
from graphopt.tuning.database import Records
from graphopt.tuning.jsonl import LONGEST, SHORTEST
from tests.tuning.test_database import FEW, HERE, MANY, failed, record


def test_a_record_comes_back_unverified() -> None:
    for each in (record(4, 2.0), failed(2), record(2, 3.0, MANY)):
        assert jsonl.read(jsonl.line(each), "here") == replace(each, verified=False)
        assert "\n" not in jsonl.line(each)


def test_a_database_comes_back(tmp_path: Path) -> None:
    with Records(tmp_path / "a.sqlite", write=True) as ours, Records(tmp_path / "b.sqlite", write=True) as theirs:
        for each in (record(4, 2.0), failed(2), record(2, 3.0, MANY)):
            ours.keep(each)
        assert ours.export(tmp_path / "a.jsonl") == 3
        assert theirs.import_records(tmp_path / "a.jsonl") == 3
        assert list(theirs) == [replace(each, verified=False) for each in ours]
        assert theirs.best(FEW, HERE) is None
        assert ours.export(tmp_path / "again.jsonl") == 3
        assert ours.import_records(tmp_path / "again.jsonl") == 0
        assert ours.best(FEW, HERE) == record(4, 2.0)
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "again.jsonl").read_bytes()


def line(**changes: object) -> str:
    """A line with some of its values changed."""
    return json.dumps(json.loads(jsonl.line(record(4, 2.0))) | changes)


def test_times_are_held_in_what_can_be() -> None:
    read = jsonl.read(line(seconds=[0, -1, 1e-300, float("inf")], beside=[1e300, 1, 1, 1]), "here")
    assert read.outcome.seconds == (SHORTEST, SHORTEST, SHORTEST, LONGEST)
    assert read.outcome.beside == (LONGEST, 1.0, 1.0, 1.0)


def test_a_problem_is_one_line() -> None:
    assert jsonl.read(line(problem=" no\ngood  at all"), "here").outcome.problem == "no good at all"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"format": 2}, "it has format 2, and 1 is read"),
        ({"key": "0" * 40}, "its key is '0000"),
        ({"script": "import os"}, "a script is one function"),
        ({"script": "(" * 9999}, ""),
        ({"script": 3}, "3 is no text"),
        ({"sizes": {}}, "twice has open sizes"),
        ({"sizes": {"n": -1}}, "-1 is no number of 0 or more"),
        ({"sizes": {"n": 3, "m": 4}}, "sizes that its script has not"),
        ({"sizes": []}, ""),
        ({"machine": None}, "None is no text"),
        ({"machine": "\ud800"}, "surrogates"),
        ({"threads": 0}, "0 is no number of 1 or more"),
        ({"threads": True}, "True is no number"),
        ({"trace": "{}"}, "this is not a saved trace"),
        ({"seconds": []}, "no times, and no problem"),
        ({"seconds": ["1"]}, "are no numbers"),
        ({"seconds": ["1"] * 999}, "['1', "),
        ({"seconds": [float("nan")]}, "no number"),
        ({"seconds": [10**999]}, ""),
        ({"features": [float("inf")]}, "a feature of it is not finite"),
        ({"target": "gpu"}, "no target is called 'gpu'"),
    ],
)
def test_what_is_wrong_with_a_line_is_said_in_one(changes: dict[str, object], why: str) -> None:
    with pytest.raises(ReadError) as error:
        jsonl.read(line(**changes), "records.jsonl:7")
    message = str(error.value)
    assert message.startswith("records.jsonl:7: not a record of a tuned schedule: ")
    assert why in message
    assert "\n" not in message
    assert len(message) < 300


def test_a_trace_whose_steps_name_nothing_is_refused() -> None:
    step = {"primitive": "split", "args": [{"step": 7, "item": None}], "kwargs": {}, "decision": None}
    trace = {"format": 1, "steps": [step | {"results": "l", "single": True, "question": False}]}
    with pytest.raises(ReadError, match="not a record"):
        jsonl.read(line(trace=json.dumps(trace)), "here")


@pytest.mark.parametrize("text", [b"", b"nonsense", b"[]", b"7", b"\xff", b"[" * 99999, b"{}", b'{"format": 1}'])
def test_what_is_no_record_is_refused(text: bytes) -> None:
    with pytest.raises(ReadError, match="not a record"):
        jsonl.read(text, "here")


def test_one_bad_line_keeps_all_out(tmp_path: Path) -> None:
    (tmp_path / "few.jsonl").write_text(f"{line()}\n{line(threads=0)}\n")
    with Records(tmp_path / "a.sqlite", write=True) as records:
        with pytest.raises(ReadError, match=r"few\.jsonl:2: not a record"):
            records.import_records(tmp_path / "few.jsonl")
        assert records.workloads() == []
        with pytest.raises(ReadError, match="cannot be read"):
            records.import_records(tmp_path)
