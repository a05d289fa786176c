"""A model is compiled with the best schedules that are known, each checked as it is applied, and else by rule."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphopt
from graphopt.calibration.measured_file import Setting
from graphopt.calibration.schedule_tables import default_path, setting_here
from graphopt.compile import linked_for
from graphopt.errors import ReadError, UsageError
from graphopt.ir.onnx_io import save
from graphopt.ir.text import parse
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script import read, show
from graphopt.lowering.schedule.schedule import Schedule
from graphopt.lowering.schedule.trace import Trace
from graphopt.program import program_cache
from graphopt.run.settings import Settings
from graphopt.tuning.best_schedules import Tuned
from graphopt.tuning.database import Records
from graphopt.tuning.record import Candidate, Outcome, Record
from graphopt.tuning.workload import Workload
from tests.tuning.test_database import FEW, HERE, MANY, TWICE, record, trace

DEFAULT = read(TWICE.replace("2.0", "777.0"))
"""What the fallback gives here."""


def by_default(nest: Nest) -> Nest:
    return DEFAULT


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "tuning.sqlite"


def kept(database: Path, *found: Record) -> Tuned:
    """What schedules by these records."""
    with Records(database, write=True) as records:
        for each in found:
            records.keep(each)
    return Tuned(database, HERE, by_default)


def split_by(factor: int) -> Nest:
    """What the records of ``test_database`` do."""
    return Trace.from_json(trace(factor)).replay(read(TWICE)).nest


@pytest.mark.parametrize("known", [(), (record(4, 0.9),), (replace(record(4, 9.0), verified=False),)])
def test_what_is_no_better_is_scheduled_by_default(database: Path, known: tuple[Record, ...]) -> None:
    assert kept(database, *known)(read(TWICE)) is DEFAULT


def test_what_was_measured_elsewhere_is_not_gone_by(database: Path) -> None:
    tuned = kept(database, record(2, 3.0, setting=Setting("another machine", HERE.runtime)))
    assert tuned(read(TWICE)) is DEFAULT
    assert show(replace(tuned, setting=Setting("another machine", HERE.runtime))(read(TWICE))) == show(split_by(2))


def test_open_sizes_take_the_record_of_the_largest(database: Path) -> None:
    tuned = kept(database, record(1, 9.0), record(2, 3.0, MANY))
    assert show(tuned(read(TWICE))) == show(split_by(2))
    with Records(database) as records:
        records.keep(record(4, 0.5, Workload.of(read(TWICE), {"n": 3000})))
    assert tuned(read(TWICE)) is DEFAULT


def test_a_trace_that_no_longer_applies_is_a_warning(database: Path) -> None:
    found = record(4, 2.0)
    for text in ("nonsense", found.candidate.trace.replace('"y"', '"z"')):
        tuned = kept(database, replace(found, candidate=replace(found.candidate, trace=text)))
        with pytest.warns(UserWarning, match=r"-> y: float32\[n, 4\] no longer applies") as caught:
            assert tuned(read(TWICE)) is DEFAULT
        assert "\n" not in str(caught[0].message)
        with pytest.raises(UsageError, match=r"no longer applies .*run graphopt tune"):
            replace(tuned, require=True)(read(TWICE))


def test_what_is_not_verified_is_verified_once(database: Path) -> None:
    asked: list[Candidate] = []

    def verify(candidate: Candidate) -> Outcome:
        asked.append(candidate)
        return Outcome((1.0,), (5.0,), machine=HERE.machine)

    claimed = replace(record(4, 9.0), verified=False)
    tuned = replace(kept(database, record(2, 3.0), claimed), verify=verify)
    for _ in range(2):
        assert show(tuned(read(TWICE))) == show(split_by(4))
    assert asked == [claimed.candidate]
    with Records(database) as records:
        best = records.best(FEW, HERE)
        assert best is not None
        assert best.outcome.gain == 5.0
        assert best.outcome.features == claimed.outcome.features


def test_who_cannot_verify_goes_by_what_is_verified(database: Path) -> None:
    tuned = kept(database, record(2, 3.0), replace(record(4, 9.0), verified=False))
    assert show(tuned(read(TWICE))) == show(split_by(2))


def test_what_is_found_wrong_is_not_used(database: Path) -> None:
    claims = (replace(record(4, 9.0), verified=False), replace(record(1, 8.0), verified=False))
    tuned = replace(kept(database, record(2, 3.0), *claims), verify=lambda _: Outcome(problem="wrong: it lied"))
    for _ in range(3):
        assert show(tuned(read(TWICE))) == show(split_by(2))
    with Records(database) as records:
        assert [r.outcome.problem for r in records.history(FEW, HERE)] == ["", "wrong: it lied", "wrong: it lied"]


def test_require_makes_a_miss_an_error(database: Path) -> None:
    tuned = replace(kept(database), require=True)
    with pytest.raises(UsageError, match=r"no schedule was tuned for the nest float32.* 1 thread: run graphopt tune"):
        tuned(read(TWICE))
    kept(database, replace(record(2, 2.0), verified=False))
    with pytest.raises(UsageError, match="run graphopt tune"):
        tuned(read(TWICE))
    kept(database, record(4, 0.5))  # that the default is best is known, too
    assert tuned(read(TWICE)) is DEFAULT


# -- whole models


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    save(parse("x: float32[16, 64]\ny = Tanh(x)\nreturn y"), path)
    return path


@pytest.fixture
def users() -> Iterator[Path]:
    """The user's own database, which is gone after the test."""
    yield default_path()
    default_path().unlink(missing_ok=True)


def tune(model: Path, database: Path, step: Callable[[Schedule], object], gain: float = 2.0) -> None:
    """Keep a schedule for the one nest of a model, as the tuner would."""
    (nest,) = linked_for(model, Settings(tuned="off")).nests.values()
    s = Schedule(nest)
    step(s)
    here = setting_here()
    outcome = Outcome((1.0,), (gain,), machine=here.machine)
    with Records(database, write=True) as records:
        records.keep(Record(Candidate(Workload.of(nest), s.trace.to_json()), here, outcome))


def split(s: Schedule) -> None:
    """What no schedule by rule does."""
    s.split(s.get_loops(s.get_block("tanh"))[0], [None, 8])


def script(model: Path, **options: Any) -> str:
    """The script of the one nest that runs."""
    (part,) = linked_for(model, Settings(**options)).parts
    return show(part.nest)


def test_a_model_is_compiled_as_it_was_tuned(model: Path, users: Path) -> None:
    before = script(model)
    tune(model, users, split)
    tuned = script(model)
    assert "in grid(2, 8, 64)" in tuned
    assert script(model, tuned="require") == tuned
    assert script(model, tuned="off") == before != tuned
    assert script(model, threads=2) == before
    x = np.linspace(-3, 3, 16 * 64, dtype=np.float32).reshape(16, 64)
    with graphopt.compile(model, tuned="require", cache=False) as compiled:
        np.testing.assert_allclose(compiled(x)["y"], np.tanh(x), rtol=1e-5)
        assert show(compiled.compiled.linked.parts[0].nest) == tuned


def test_the_record_of_another_machine_is_not_used(model: Path, users: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = script(model)
    tune(model, users, split)
    monkeypatch.setattr("graphopt.platforms.machine", lambda: "another")
    assert script(model) == before
    with pytest.raises(UsageError, match="no schedule was tuned"):
        script(model, tuned="require")


def test_what_was_tuned_makes_another_program(model: Path, tmp_path: Path) -> None:
    database = tmp_path / "tuning.sqlite"
    places = [program_cache.place_of(model, Settings())]
    for gain in (0.5, 2.0, 2.0, 3.0):  # layouts go by times, also those of what is slower than the default
        tune(model, database, split, gain)
        places.append(program_cache.place_of(model, Settings(database=database)))
    assert places[0] != places[1] != places[2] == places[3] != places[4]
    assert program_cache.place_of(model, Settings(database=database, threads=2)) == places[0]
    assert program_cache.place_of(model, Settings(database=database, tuned="off")) == places[0]
    assert program_cache.place_of(model, Settings(database=database, tuned="require")) not in places


def test_a_damaged_database_is_a_warning_unless_it_is_asked_for(model: Path, users: Path) -> None:
    before = script(model)
    users.parent.mkdir(parents=True, exist_ok=True)
    users.write_bytes(b"nonsense" * 999)
    with pytest.warns(UserWarning, match=r"damaged .*; default schedules are used"):
        assert script(model) == before
    assert program_cache.place_of(model, Settings()) == program_cache.place_of(model, Settings(tuned="off"))
    for options in (Settings(tuned="require"), Settings(database=users)):
        for use in (linked_for, program_cache.place_of):
            with pytest.raises(ReadError, match="damaged"):
                use(model, options)


def test_a_database_that_is_not_there(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="there is no such database"):
        graphopt.compile(model, database=tmp_path / "none.sqlite")
    with pytest.raises(ReadError, match="graphopt tune makes one"):
        graphopt.compile(model, tuned="require")
    with pytest.raises(UsageError, match="tuned schedules are not used 'maybe': there are auto, require, off"):
        graphopt.compile(model, tuned="maybe")
