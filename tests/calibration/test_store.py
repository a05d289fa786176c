"""What was measured stays: through kills, other processes, and files that are something else."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from graphopt.calibration.store import FORM, Fit, Setting, Time, TimesDatabase
from graphopt.errors import ReadError

HERE = Setting("a machine", "a runtime 1.0", 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "times.sqlite"


def test_times_are_kept_by_setting(path: Path) -> None:
    with TimesDatabase(path, write=True) as store:
        store.put(HERE, "a", Time(1e-6, 1e-7, 9))
        store.put(HERE, "b", Time(None))
        store.put(Setting("a machine", "a runtime 1.0", 2), "a", Time(5e-7))
        store.put(HERE, "a", Time(2e-6, 1e-7, 9))
    with TimesDatabase(path) as store:
        assert store.times(HERE) == {"a": Time(2e-6, 1e-7, 9), "b": Time(None)}
        assert store.times(Setting("another", "a runtime 1.0", 1)) == {}
        assert [s.threads for s in store.settings()] == [1, 2]


def test_fits_are_kept(path: Path) -> None:
    with TimesDatabase(path, write=True) as store:
        assert store.fit(HERE, "ort") is None
        store.put_fit(HERE, "ort", Fit({"elements.Tanh": 1e-9}, {"median ratio": 1.0}))
        assert store.fit(HERE, "ort") == Fit({"elements.Tanh": 1e-9}, {"median ratio": 1.0})


def test_clearing_forgets_all(path: Path) -> None:
    with TimesDatabase(path, write=True) as store:
        store.put(HERE, "a", Time(1.0))
        store.put_fit(HERE, "ort", Fit({}, {}))
        assert store.clear() == 1
        assert store.settings() == []
        assert store.fit(HERE, "ort") is None


def test_reading_makes_no_file(path: Path) -> None:
    with pytest.raises(ReadError, match="graphopt calibrate makes one"):
        TimesDatabase(path)
    assert not path.parent.exists()


def test_a_newer_database_is_refused_in_one_line(path: Path) -> None:
    TimesDatabase(path, write=True).close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {FORM.version + 1}")
    for write in (False, True):
        with pytest.raises(ReadError, match="newer graphopt") as error:
            TimesDatabase(path, write)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"garbage, and not a little of it" * 99, b"SQLite format 3\x00" + b"\xff" * 4096])
@pytest.mark.parametrize("write", [False, True])
def test_what_is_no_database_is_refused_and_stays(path: Path, content: bytes, write: bool) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(ReadError, match=r"times\.sqlite: "):
        TimesDatabase(path, write)
    assert path.read_bytes() == content


def test_a_damaged_database_is_refused(path: Path) -> None:
    with TimesDatabase(path, write=True) as store:
        for i in range(500):
            store.put(HERE, f"a rather long workload {i}", Time(1.0))
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)
    path.write_bytes(data)
    with pytest.raises(ReadError, match="damaged"), TimesDatabase(path) as store:
        store.times(HERE)


def test_a_database_of_somebody_else_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE mine (x)")
    with pytest.raises(ReadError, match="something else"):
        TimesDatabase(path, write=True)


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(ReadError):
        TimesDatabase(tmp_path, write=True)


WRITER = """
import sys
from contextlib import closing
from pathlib import Path
from graphopt.calibration.store import Setting, TimesDatabase, Time
who, count = sys.argv[2], int(sys.argv[3])
with TimesDatabase(Path(sys.argv[1]), write=True) as store:
    for i in range(count):
        store.put(Setting("a machine", "a runtime 1.0", 1), f"{who} {i}", Time(1.0))
        print(i, flush=True)
"""


def writer(path: Path, who: str, count: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", WRITER, str(path), who, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_two_processes_write_at_once(path: Path) -> None:
    both = [writer(path, who, 40) for who in ("a", "b")]
    for process in both:
        process.communicate(timeout=60)
    assert [p.returncode for p in both] == [0, 0]
    with TimesDatabase(path) as store:
        assert len(store.times(HERE)) == 80


def test_what_is_measured_survives_a_kill(path: Path) -> None:
    process = writer(path, "a", 1_000_000)
    assert process.stdout is not None
    for _ in range(20):
        process.stdout.readline()
    process.kill()
    process.communicate()
    with TimesDatabase(path, write=True) as store:
        assert len(store.times(HERE)) >= 20
        store.put(HERE, "after", Time(1.0))
