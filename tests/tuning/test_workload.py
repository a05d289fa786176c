"""A workload is a nest's text with the sizes that it is measured at."""

import pickle

import pytest

import graphopt
from graphopt.errors import UsageError
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script import read, show
from graphopt.tuning.workload import Workload

TWICE = """
@program
def twice(x: Buffer[("n", 4), "float32"], y: Buffer[("n", 4), "float32"], n: size):
    for i, j in grid(n, 4):
        with block("y"):
            v0, v1 = axis.remap("SS", [i, j])
            y[v0, v1] = x[v0, v1] * 2.0
"""


def twice() -> Nest:
    return read(TWICE)


def test_a_workload_is_its_nest_again() -> None:
    made = Workload.of(twice(), {"n": 3})
    assert show(made.nest) == show(twice())
    assert made.sizes == (("n", 3),)
    back = pickle.loads(pickle.dumps(made))
    assert back == made
    assert back.key == made.key


def test_the_key_changes_with_sizes_and_with_what_is_computed() -> None:
    made = Workload.of(twice(), {"n": 3})
    other = Workload.of(read(TWICE.replace("2.0", "3.0")), {"n": 3})
    assert len({made.key, other.key, Workload.of(twice(), {"n": 4}).key}) == 3


def test_an_open_size_has_to_be_known() -> None:
    with pytest.raises(UsageError, match=r"twice has open sizes \(n\)"):
        Workload.of(twice())


def test_what_is_scheduled_is_another_workload() -> None:
    s = graphopt.Schedule(twice())
    s.parallel(s.get_loops(s.get_block("y"))[0])
    assert Workload.of(s.nest, {"n": 3}).key != Workload.of(twice(), {"n": 3}).key
