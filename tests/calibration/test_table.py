"""Measured prices are used where there are some, and a warning says where they cannot be."""

from pathlib import Path

import pytest

from graphopt.calibration import store, table
from graphopt.calibration.store import Fit, Setting, Time, TimesDatabase
from graphopt.calibration.table import priced
from graphopt.errors import ReadError, UsageError
from graphopt.target import ORT, PORTABLE

HERE = Setting("a machine", "ONNX Runtime 1.0", 1)


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "times.sqlite"
    monkeypatch.setattr(store, "default_path", lambda: path)
    monkeypatch.setattr(table, "setting", lambda runtime, threads=1: Setting("a machine", "ONNX Runtime 1.0", threads))
    return path


def filled(path: Path, seconds: float = 1.0) -> None:
    with TimesDatabase(path, write=True) as store:
        store.put(HERE, "a", Time(seconds))
        store.put(HERE, "b", Time(None))
        store.put_fit(HERE, "ort", Fit({"elements.Tanh": 1.0}, {}))


def test_without_a_database_prices_are_analytic(database: Path) -> None:
    assert priced(ORT).target is ORT
    assert priced(ORT).prices == "analytic"
    assert not priced(ORT).warning
    with pytest.raises(ReadError, match="graphopt calibrate"):
        priced(ORT, "measured")


def test_with_one_they_are_measured_and_fitted(database: Path) -> None:
    filled(database)
    found = priced(ORT)
    assert found.target.measured == {"a": 1.0}
    assert found.target.prices.elements["Tanh"] == 1.0
    assert found.prices.startswith("measured: 1 times of ONNX Runtime 1.0")
    assert priced(ORT, "measured") == priced(ORT, database) == found
    assert priced(ORT, "analytic").target is ORT


def test_the_digest_is_that_of_the_table(database: Path) -> None:
    filled(database)
    one = priced(ORT).prices
    filled(database)
    assert priced(ORT).prices == one
    filled(database, 2.0)
    assert priced(ORT).prices != one


def test_other_threads_are_another_setting(database: Path) -> None:
    filled(database)
    assert priced(ORT, threads=2).prices == "analytic"
    with pytest.raises(UsageError, match="with 2 threads"):
        priced(ORT, "measured", threads=2)


def test_a_target_without_a_runtime_is_not_measured(database: Path) -> None:
    filled(database)
    assert priced(PORTABLE).target is PORTABLE
    with pytest.raises(UsageError, match="portable"):
        priced(PORTABLE, "measured")


def test_what_is_no_database_is_said_whatever_the_target(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("text")
    for place, said in (("nothing", "there is no such database"), ("text", "not a database of measured times")):
        for target in (PORTABLE, ORT):
            with pytest.raises(ReadError, match=f"{place}: {said}"):
                priced(target, tmp_path / place)


def test_a_damaged_database_is_a_warning_unless_it_was_named(database: Path) -> None:
    database.write_bytes(b"garbage" * 99)
    found = priced(ORT)
    assert found.target is ORT
    assert "damaged" in found.warning
    assert "analytic prices are used" in found.warning
    for costs in ("measured", database):
        with pytest.raises(ReadError, match="damaged"):
            priced(ORT, costs)
