"""Runs that somebody else disturbed do not count, or count without what they waited."""

from graphopt.verify.runtimes import ProfiledKernel, undisturbed


def run(own: float, other: float = 1e-4) -> list[ProfiledKernel]:
    return [ProfiledKernel("a", "Abs", other), ProfiledKernel("b", "LRN", own)]


def test_runs_without_waiting_are_those_that_count() -> None:
    runs = [run(1e-2), run(3e-2), run(1.1e-2), run(5e-2), run(1.2e-2)]
    assert undisturbed(runs, [1.1e-2, 1.1e-2, 1.2e-2, 1.1e-2, 1.23e-2]) == [runs[0], runs[2], runs[4]]


def test_where_all_waited_it_is_subtracted_from_what_took_longest() -> None:
    runs = [run(3e-2), run(1e-2, 2e-2 + 1e-4), run(4e-2)]
    (found,) = undisturbed(runs, [1.01e-2, 1.01e-2, 1.01e-2])
    assert [round(k.seconds, 6) for k in found] == [1e-4, 1e-2]
