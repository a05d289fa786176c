"""What was measured of workloads stays: through kills, other processes, full disks, and in files of other kinds."""

import multiprocessing
import random
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import sleep

import pytest

from graphopt.calibration.measured_file import Setting
from graphopt.calibration.schedule_tables import FORM
from graphopt.errors import ReadError
from graphopt.lowering.loops.script import read
from graphopt.lowering.schedule.schedule import Schedule
from graphopt.tuning.database import Records
from graphopt.tuning.record import Candidate, Outcome, Record
from graphopt.tuning.workload import Workload

HERE = Setting("a machine", "graphopt 1, numba 1", 1)
TWICE = """
@program
def twice(x: Buffer[("n", 4), "float32"], y: Buffer[("n", 4), "float32"], n: size):
    for i, j in grid(n, 4):
        with block("y"):
            v0, v1 = axis.remap("SS", [i, j])
            y[v0, v1] = x[v0, v1] * 2.0
"""
FEW, MANY = (Workload.of(read(TWICE), {"n": n}) for n in (3, 300))


def trace(factor: int) -> str:
    """The trace of a schedule that splits by so much."""
    s = Schedule(FEW.nest)
    s.split(s.get_loops(s.get_block("y"))[1], [None, factor])
    return s.trace.to_json()


def record(factor: int, gain: float = 1.0, workload: Workload = FEW, setting: Setting = HERE) -> Record:
    """What could have been measured."""
    outcome = Outcome((1e-5, 2e-5), (gain * 1e-5, gain * 2e-5), "", (1.0, 2.0), setting.machine)
    return Record(Candidate(workload, trace(factor), setting.threads), setting, outcome)


def failed(factor: int, problem: str = "it computes something else") -> Record:
    """What went wrong."""
    return replace(record(factor), outcome=Outcome(problem=problem, machine=HERE.machine))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "tuning.sqlite"


@pytest.fixture
def records(path: Path) -> Iterator[Records]:
    with Records(path, write=True) as opened:
        yield opened


def test_records_come_back_in_the_order_of_measuring(records: Records, path: Path) -> None:
    kept = [record(4, 0.5), failed(2), record(1, 3.0)]
    for each in kept:
        records.keep(each)
    records.keep(record(2, 9.0, MANY))
    with Records(path) as again:
        assert again.history(FEW, HERE) == kept
        assert again.history(FEW, replace(HERE, threads=2)) == []
        assert set(again.workloads()) == {FEW, MANY}
        assert again.workloads(replace(HERE, machine="another")) == []


def test_a_candidate_that_is_measured_again_is_known_once(records: Records) -> None:
    for each in (record(4, 2.0), record(2, 1.5), failed(4)):
        records.keep(each)
    assert records.history(FEW, HERE) == [record(2, 1.5), failed(4)]
    assert records.best(FEW, HERE) == record(2, 1.5)


def test_the_best_is_verified_and_faster_than_the_default(records: Records) -> None:
    assert records.best(FEW, HERE) is None
    records.keep(record(4, 0.9))
    assert records.best(FEW, HERE) is None
    for each in (record(2, 1.5), record(1, 1.2), replace(record(3, 8.0), verified=False), failed(5)):
        records.keep(each)
    assert records.best(FEW, HERE) == record(2, 1.5)
    assert [r.outcome.speedup for r in records.ranked(FEW, HERE)] == pytest.approx([8.0, 1.5, 1.2])
    assert records.best(MANY, HERE) is None


def test_noise_does_not_choose(records: Records) -> None:
    lucky = replace(record(4), outcome=Outcome((1.0, 1.0, 0.1, 1.0, 1.0), (0.9, 0.9, 9.0, 9.0, 9.0)))
    assert lucky.outcome.speedup == 9.0  # by the least of both, as one series in which nobody disturbed it has it
    for each in (lucky, record(2, 1.1)):
        records.keep(each)
    best = records.best(FEW, HERE)
    assert best is not None
    assert best.candidate.trace == trace(2)


def test_a_key_is_not_enough_to_be_found(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Workload, "key", "the same")
    records.keep(record(4, 2.0))
    assert records.history(MANY, HERE) == []
    other = Workload.of(read(TWICE.replace("2.0", "3.0")), {"n": 3})
    records.keep(record(4, 3.0, other))
    assert [len(records.history(w, HERE)) for w in (FEW, other, MANY)] == [1, 1, 0]


def test_what_is_known_is_listed(records: Records) -> None:
    for each in (record(4, 2.0), failed(2), record(4, 0.5, MANY), record(4, 3.0, setting=replace(HERE, threads=2))):
        records.keep(each)
    found = {(k.workload, k.setting.threads): k for k in records.known()}
    assert found[FEW, 1].types == "float32[n, 4] -> y: float32[n, 4]"
    assert (found[FEW, 1].measured, found[FEW, 1].failed, found[FEW, 1].best) == (2, 1, record(4, 2.0))
    assert (found[MANY, 1].measured, found[MANY, 1].best) == (1, None)
    assert set(found) == {(FEW, 1), (FEW, 2), (MANY, 1)}


def test_workloads_of_a_nest_come_with_the_largest_sizes_first(records: Records) -> None:
    for workload in (FEW, MANY):
        records.keep(record(4, 1.0, workload))
    assert records.at_any_size(read(TWICE), HERE) == [MANY, FEW]
    assert records.at_any_size(read(TWICE), replace(HERE, threads=2)) == []
    assert records.at_any_size(read(TWICE.replace("2.0", "3.0")), HERE) == []


def test_another_database_is_merged(records: Records, tmp_path: Path) -> None:
    records.keep(record(4, 2.0))
    with Records(tmp_path / "other.sqlite", write=True) as other:
        for each in (record(4, 9.0), record(2, 3.0), failed(1), record(2, 1.0, MANY, Setting("b", "c", 2))):
            other.keep(each)
    assert records.merge(tmp_path / "other.sqlite") == 3
    assert records.history(FEW, HERE) == [
        record(4, 2.0),
        replace(record(2, 3.0), verified=False),
        replace(failed(1), verified=False),
    ]
    assert records.merge(tmp_path / "other.sqlite") == 0
    assert records.merge(records.path) == 0
    assert records.best(FEW, HERE) == record(4, 2.0)


def test_merging_what_is_damaged_changes_nothing(records: Records, tmp_path: Path) -> None:
    with Records(tmp_path / "other.sqlite", write=True) as other:
        other.keep(record(4, 2.0))
        other.keep(replace(record(2), candidate=Candidate(FEW, "no trace")))
    with pytest.raises(ReadError, match=r"other\.sqlite: not a record of a tuned schedule: from_json"):
        records.merge(tmp_path / "other.sqlite")
    assert records.workloads() == []


def test_pruning(records: Records) -> None:
    old = replace(HERE, runtime="graphopt 0, numba 1")
    for each in (failed(3), record(4, 2.0), record(2, 3.0), record(4, 0.5, MANY), record(4, 2.0, setting=old)):
        records.keep(each)
    records.keep_model(HERE, b"ours")
    records.keep_model(old, b"theirs")
    assert records.prune(runtime=HERE.runtime) == 1
    assert records.settings() == [HERE]
    assert records.prune(best=1) == 2
    assert records.history(FEW, HERE) == [record(2, 3.0)]
    records.keep(failed(3))
    assert records.prune(failed=True) == 1
    assert records.prune(best=0) == 2
    assert records.workloads() == []
    assert records.model(HERE) == b"ours"


def test_cost_models_are_kept_by_setting(records: Records) -> None:
    assert records.model(HERE) is None
    for data in (b"\0one", b"\0two"):
        records.keep_model(HERE, data)
    assert records.model(HERE) == b"\0two"
    assert records.model(replace(HERE, threads=2)) is None


def test_reading_makes_no_file(path: Path) -> None:
    with pytest.raises(ReadError, match="there is no such database of tuned schedules; graphopt tune makes one"):
        Records(path)
    assert not path.parent.exists()


def test_a_newer_database_is_refused_in_one_line(path: Path) -> None:
    Records(path, write=True).close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {FORM.version + 1}")
    for write in (False, True):
        with pytest.raises(ReadError, match="newer graphopt") as error:
            Records(path, write)
        assert "\n" not in str(error.value)


def test_measured_times_are_no_tuned_schedules(path: Path) -> None:
    from graphopt.calibration.store import TimesDatabase

    TimesDatabase(path, write=True).close()
    with pytest.raises(ReadError, match="not a database of tuned schedules, or damaged"):
        Records(path, write=True)


def test_a_damaged_database_is_refused_and_stays(path: Path) -> None:
    with Records(path, write=True) as records:
        for factor in range(1, 60):
            records.keep(record(factor))
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)
    path.write_bytes(data)
    with pytest.raises(ReadError, match="move it away and tune again"), Records(path, write=True) as records:
        records.history(FEW, HERE)
    assert path.read_bytes() == data


@pytest.mark.parametrize("column", ["seconds", "features"])
def test_damaged_values_are_an_error(records: Records, path: Path, column: str) -> None:
    records.keep(record(4))
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE record SET {column} = 'nonsense'")
    with pytest.raises(ReadError, match="damaged"):
        records.history(FEW, HERE)


PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["graphopt.tuning.database"])


def write(path: Path, who: str, told: Connection, largest: int | None = None) -> None:
    """Keep records for ever, and tell of each that it is kept; in a file of so many bytes at most."""
    if largest is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))
    known = failed(4)
    told.send("ready")
    try:
        with Records(path, write=True) as records:
            for i in count():
                records.keep(replace(known, candidate=replace(known.candidate, trace=f"{who} {i}")))
                told.send(f"{who} {i}")
    except ReadError as error:
        told.send(str(error))


def writer(path: Path, who: str, largest: int | None = None) -> tuple[BaseProcess, Connection]:
    """A process that does, and what tells of it."""
    told, ours = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=write, args=(path, who, ours, largest), daemon=True)
    process.start()
    ours.close()
    assert told.recv() == "ready"
    return process, told


def said(process: BaseProcess, told: Connection) -> list[str]:
    """All that it told of before its end."""
    process.join()
    found = []
    with told, suppress(EOFError):
        while True:
            found.append(told.recv())
    return found


def traces(path: Path) -> list[str]:
    """What is there, after whoever was killed."""
    with Records(path, write=True) as records:
        return [r.candidate.trace for r in records.history(FEW, HERE)]


def test_two_processes_tune_at_once(path: Path) -> None:
    both = [writer(path, who) for who in ("a", "b")]
    for process, told in both:
        kept = [told.recv() for _ in range(20)]
        process.kill()
        kept += said(process, told)
        assert set(kept) <= set(traces(path))


def killed(path: Path, times: int) -> None:
    """Kill a process that writes at random moments, and see that nothing is lost that it had told of."""
    draws = random.Random(0)
    kept: list[str] = []
    for turn in range(times):
        process, told = writer(path, str(turn))
        sleep(draws.uniform(0.0, 0.2))
        process.kill()
        kept += said(process, told)
        found = traces(path)
        assert set(kept) <= set(found)
        assert len(found) <= len(kept) + turn + 1  # of each, there may be one that it had not yet told of
    assert kept
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_kills_at_random_moments_lose_no_record(path: Path) -> None:
    killed(path, 6)


@pytest.mark.slow
def test_fifty_kills_at_random_moments_lose_no_record(path: Path) -> None:
    killed(path, 50)


def test_a_full_disk_is_one_line_and_loses_nothing(path: Path) -> None:
    Records(path, write=True).close()
    size = path.stat().st_size + (16 << 10)
    *kept, last = said(*writer(path, "a", size))
    assert last.startswith(f"{path}: cannot use the database of tuned schedules (")
    assert traces(path) == kept
    assert kept


def test_a_folder_where_nothing_may_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ReadError, match="cannot use the database"):
        Records(tmp_path / "file" / "tuning.sqlite", write=True)
