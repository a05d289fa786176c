import sys

import pytest

from graphopt.cli.progress import _Line, shown
from graphopt.display import duration
from graphopt.progress import Event


def test_durations_read_well() -> None:
    assert [duration(s) for s in (12.34, 0.0123, 4.5e-6, 2e-8)] == ["12.3 s", "12.3 ms", "4.5 µs", "20 ns"]


def test_the_line_keeps_what_was_said_before() -> None:
    line = _Line()
    assert line.after(Event("tidy")) == "tidy"
    assert line.after(Event("explore", size=1234, iteration=2)) == "explore, round 2, 1,234 e-nodes"
    assert line.after(Event("choose", cost=2e-3)) == "choose, 1,234 e-nodes, best cost 2 ms"
    assert line.after(Event("write", share=0.75)) == "write, 1,234 e-nodes, best cost 2 ms, 75% done"
    assert line.after(Event("write", seconds=0.5)) == "write, 1,234 e-nodes, best cost 2 ms, 75% done"


def test_nothing_is_shown_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    for quiet in (True, False):
        with shown(quiet, verbose=False) as listener:
            assert listener is None
    assert capsys.readouterr() == ("", "")


def test_verbose_prints_a_line_for_each_step_that_ended(capsys: pytest.CaptureFixture[str]) -> None:
    with shown(quiet=False, verbose=True) as listener:
        assert listener is not None
        listener(Event("tidy [all]"))
        listener(Event("tidy [all]", seconds=0.5))
    assert capsys.readouterr() == ("", "tidy [all]: 0.50 s\n")


def test_a_terminal_gets_one_changing_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with shown(quiet=False, verbose=False) as listener:
        assert listener is not None
        listener(Event("explore", size=7))
    out, err = capsys.readouterr()
    assert out == ""
    assert "explore, 7 e-nodes" in err or "starting" in err
