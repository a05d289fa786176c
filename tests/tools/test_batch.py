import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from graphopt.errors import InvalidModelError, ReadError, UsageError, VerificationError
from graphopt.run.report import Report, Speedup, StepReport
from graphopt.tools.batch import (
    SLOWER,
    BatchJob,
    BatchOutcome,
    BatchSummary,
    compare,
    find_jobs,
    is_several,
    judged,
    judged_optimized,
    mean_speedups,
    optimize_all,
    read_summary,
)


@pytest.fixture
def nets(tmp_path: Path) -> Path:
    for name in ("a.onnx", "inner/b.onnx", "inner/notes.txt"):
        path = tmp_path / "nets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"model")
    return tmp_path / "nets"


def names(jobs: list[BatchJob]) -> list[str]:
    return [job.name for job in jobs]


def test_models_keep_their_places(nets: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    jobs = find_jobs([nets], out)
    assert names(jobs) == ["a.onnx", "inner/b.onnx"]
    assert [job.output for job in jobs] == [out / "a.onnx", out / "inner" / "b.onnx"]
    assert names(find_jobs([nets / "*.onnx"], out)) == ["a.onnx"]
    assert names(find_jobs([nets / "**" / "*.onnx"], out)) == ["a.onnx", "inner/b.onnx"]
    assert names(find_jobs([nets / "*" / "b.onnx"], out)) == ["inner/b.onnx"]
    assert names(find_jobs([nets / "a.onnx", nets / "inner" / "b.onnx"], out)) == ["a.onnx", "b.onnx"]


def test_results_are_not_optimized_again(nets: Path) -> None:
    out = nets / "out"
    out.mkdir()
    (out / "a.onnx").write_bytes(b"result")
    assert names(find_jobs([nets], out)) == ["a.onnx", "inner/b.onnx"]


def test_what_makes_no_sense_is_refused(nets: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="several models need -o"):
        find_jobs([nets], None)
    with pytest.raises(UsageError, match="this is a file"):
        find_jobs([nets], nets / "a.onnx")
    with pytest.raises(UsageError, match="no models in"):
        find_jobs([tmp_path / "*.nothing"], tmp_path / "out")
    (tmp_path / "b.onnx").write_bytes(b"model")
    with pytest.raises(UsageError, match="would both become"):
        find_jobs([tmp_path / "b.onnx", nets / "inner" / "b.onnx"], tmp_path / "out")
    with pytest.raises(UsageError, match="would overwrite an input"):
        find_jobs([nets], nets)


def test_several(nets: Path) -> None:
    assert is_several([nets])
    assert is_several([nets / "*.onnx"])
    assert is_several([nets / "a.onnx", nets / "b.onnx"])
    assert not is_several([nets / "a.onnx"])
    odd = nets / "a[1].onnx"
    odd.write_bytes(b"model")
    assert not is_several([odd])


def report(before: float, after: float) -> Report:
    steps = (StepReport("explore", 0.5),)
    return Report(
        "m",
        "ort",
        "reals",
        steps=steps,
        ops_before={"Relu": 3},
        ops_after={"Relu": 2},
        cost_before=before,
        cost_after=after,
    )


def jobs_of(folder: Path, count: int) -> list[BatchJob]:
    return [BatchJob(f"{i}.onnx", folder / f"{i}.onnx", folder / "out" / f"{i}.onnx") for i in range(count)]


def test_one_that_fails_stops_no_other(tmp_path: Path) -> None:
    faults = [None, InvalidModelError("a cycle"), VerificationError("differs"), ValueError("oh"), MemoryError(), None]
    told: list[str] = []

    def run(job: BatchJob) -> Report:
        fault = faults[int(job.model.stem)]
        if fault is not None:
            raise fault
        return report(2.0, 1.0)

    summary = optimize_all(jobs_of(tmp_path, 6), run, "ort", lambda job: told.append(job.name))
    assert [o.exit_code for o in summary.outcomes] == [0, 4, 6, 1, 5, 0]
    assert summary.exit_code == 1
    assert told == [f"{i}.onnx" for i in range(6)]
    assert "ValueError: oh" in summary.outcomes[3].error
    assert "Traceback" in summary.outcomes[3].traceback
    first = summary.outcomes[0]
    assert (first.ops_before, first.ops_after, first.cost_before, first.cost_after, first.seconds) == (
        3,
        2,
        2.0,
        1.0,
        0.5,
    )
    assert mean_speedups(summary) == {Speedup(2.0, is_measured=False): 2}


def test_an_interruption_is_told_of_all_that_are_left(tmp_path: Path) -> None:
    def run(job: BatchJob) -> Report:
        if job.model.stem == "1":
            raise KeyboardInterrupt
        return report(2.0, 1.0)

    summary = optimize_all(jobs_of(tmp_path, 3), run)
    assert [o.exit_code for o in summary.outcomes] == [0, 130, 130]
    assert summary.exit_code == 130


def test_a_summary_reads_back(tmp_path: Path) -> None:
    summary = BatchSummary(
        (BatchOutcome("a", cost_before=2.0, cost_after=1.0, measured=1.5), BatchOutcome("b", 4, "bad")), "ort"
    )
    path = tmp_path / "s.json"
    path.write_text(summary.to_json())
    assert read_summary(path) == summary
    assert json.loads(path.read_text())["exit_code"] == 4
    for text in ("", "[]", '{"schema": 1}', '{"schema": 1, "target": "ort", "models": [{"x": 1}]}', '{"schema": 7}'):
        path.write_text(text)
        with pytest.raises(ReadError):
            read_summary(path)
    with pytest.raises(ReadError, match="cannot be read"):
        read_summary(tmp_path / "none.json")


def test_results_are_compared_with_their_originals() -> None:
    now = BatchSummary(
        (BatchOutcome("a", cost_before=2.0, cost_after=1.0, ops_before=5, ops_after=4), BatchOutcome("b", 4, "bad"))
    )
    (change,) = compare(now, None)
    assert (change.model, change.slower, change.is_measured, change.ops) == ("a", -50.0, False, -1)


def test_results_are_compared_with_a_baseline() -> None:
    old = BatchOutcome("a", cost_before=2.0, cost_after=1.0, ops_after=4)
    now = replace(old, cost_after=1.1, ops_after=6)
    (change,) = compare(BatchSummary((now, BatchOutcome("new", cost_before=1.0, cost_after=1.0))), BatchSummary((old,)))
    assert change.slower == pytest.approx(10)
    assert change.ops == 2
    (measured,) = compare(BatchSummary((replace(now, measured=2.0),)), BatchSummary((replace(old, measured=1.0),)))
    assert (measured.slower, measured.is_measured) == (-50.0, True)
    (modelled,) = compare(BatchSummary((replace(now, measured=2.0),)), BatchSummary((old,)))
    assert not modelled.is_measured


def test_slower_results_fail_beyond_the_margin() -> None:
    summary = BatchSummary(
        (BatchOutcome("a", cost_before=1.0, cost_after=1.04), BatchOutcome("b", cost_before=1.0, cost_after=0.9))
    )
    changes = compare(summary, None)
    assert judged(summary, changes, 5).exit_code == 0
    failed = judged(summary, changes, 3)
    assert failed.exit_code == SLOWER
    assert [o.error for o in failed.outcomes] == ["slower by 4.0 %", ""]


def test_junit_has_a_test_for_each_model() -> None:
    outcomes = (
        BatchOutcome("a & b", seconds=1.5),
        BatchOutcome("<bad>\x00", 3, "no\nmodel"),
        BatchOutcome("c", 1, "internal", traceback="Traceback"),
        BatchOutcome("d", 130, "interrupted"),
    )
    suite = ElementTree.fromstring(BatchSummary(outcomes).to_junit("nets").encode())
    assert [suite.get(key) for key in ("name", "tests", "failures", "errors", "time")] == [
        "nets",
        "4",
        "1",
        "2",
        "1.500",
    ]
    assert [case.get("name") for case in suite] == ["a & b", "<bad>\\x00", "c", "d"]
    assert [[found.tag for found in case] for case in suite] == [[], ["failure"], ["error"], ["error"]]
    assert suite[1][0].attrib == {"type": "exit code 3", "message": "no\\nmodel"}
    assert suite[2][0].text == "Traceback"


def test_what_was_measured_goes_before_what_is_modelled() -> None:
    modelled = BatchOutcome("a", cost_before=3.0, cost_after=1.0)
    measured = replace(modelled, model="b", measured=1.01)
    summary = BatchSummary(
        (modelled, measured, replace(measured, model="c", measured=4.04), BatchOutcome("d", 4, "bad"))
    )
    means = mean_speedups(summary)
    assert [(str(mean), count) for mean, count in means.items()] == [("measured 2.02x", 2), ("modelled 3.00x", 1)]
    suite = ElementTree.fromstring(summary.to_junit("nets").encode())
    told = [
        [(p.get("name"), p.get("value")) for p in found.findall("properties/property")]
        for found in (suite, *suite.findall("testcase"))
    ]
    assert told == [
        [("measured speedup", "2.02"), ("modelled speedup", "3")],
        [("modelled speedup", "3")],
        [("measured speedup", "1.01")],
        [("measured speedup", "4.04")],
        [],
    ]
    judged_so = judged_optimized(summary, 2)
    assert [o.error for o in judged_so.outcomes] == [
        "is not optimized: it would be 3.00x as fast, modelled",
        "",
        "is not optimized: it would be 4.04x as fast, measured",
        "bad",
    ]
    free = judged_optimized(BatchSummary((BatchOutcome("a", cost_before=1.0, cost_after=0.0),)), 2)
    assert free.outcomes[0].error == "is not optimized: it would be free, modelled"


def test_a_failure_tells_what_to_look_at() -> None:
    summary = BatchSummary((BatchOutcome("a", 6, "wrong", notes=("rule  r", "next  graphopt rules try")),))
    suite = ElementTree.fromstring(summary.to_junit("nets").encode())
    assert suite[0][0].text == "rule  r\nnext  graphopt rules try"
