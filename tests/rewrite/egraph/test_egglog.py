"""egglog behind its door: classes in our own numbers, congruence, commutativity, and rows of queries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from graphopt.rewrite.egraph.egglog import ABSENT, Atom, ConstructorTable, EGraph


def egraph() -> EGraph:
    """Leaves 1 and 2, f(1) is 3 and f(2) is 4; nothing at all is 0."""
    e = EGraph()
    e.add(0, None)
    for table in (
        ConstructorTable("leaf", 0),
        ConstructorTable("f", 1),
        ConstructorTable("plus", 2, commutative=True),
        ConstructorTable("minus", 2),
    ):
        e.declare_table(table)
    e.add(1, "leaf", 1)
    e.add(2, "leaf", 2)
    e.add(3, "f", 7, [1])
    e.add(4, "f", 7, [2])
    return e


def test_a_class_is_named_by_its_smallest_term() -> None:
    e = egraph()
    e.union(2, 1)
    e.run([])
    classes, _ = e.read([])
    assert classes == {0: 0, 1: 1, 2: 1, 3: 3, 4: 3}


def test_symbols_tell_terms_apart() -> None:
    e = egraph()
    e.add(5, "f", 8, [1])
    e.add(6, "f", 7, [1])
    e.run([])
    classes, _ = e.read([])
    assert (classes[5], classes[6]) == (5, 3)


def test_commutative_terms_are_one_in_either_order() -> None:
    e = egraph()
    for term, (table, *children) in enumerate([("plus", 1, 2), ("plus", 2, 1), ("minus", 1, 2), ("minus", 2, 1)], 5):
        e.add(term, str(table), 0, [int(c) for c in children])
    e.run([])
    classes, _ = e.read([])
    assert [classes[t] for t in (5, 6, 7, 8)] == [5, 5, 7, 8]


def test_rows_hold_classes_and_symbols() -> None:
    e = egraph()
    e.add(5, "plus", 9, [3, 2])
    e.declare_query("q", [Atom("f", ("s0", "v0"), "v1"), Atom("plus", ("s1", "v1", "v2"), "v3")], ["v3", "s0", "v2"])
    assert e.run(["q"]) == {"q": 1}
    assert e.read(["q"])[1] == {"q": [(5, 7, 2)]}


def test_only_new_matches_are_counted() -> None:
    e = egraph()
    e.declare_query("q", [Atom("f", ("s0", "v0"), "v1")], ["v1"])
    assert e.run(["q"]) == {"q": 2}
    e.add(5, "f", 7, [3])
    assert e.run(["q"]) == {"q": 1}
    assert e.read(["q"])[1] == {"q": [(3,), (4,), (5,)]}


def test_a_query_that_is_declared_late_sees_what_was_there() -> None:
    e = egraph()
    e.run([])
    e.declare_query("late", [Atom("f", (7, "v0"), "v1")], ["v0"])
    assert e.run(["late"]) == {"late": 2}


def test_absent_inputs_are_a_class_of_their_own() -> None:
    e = egraph()
    e.add(5, "minus", 0, [1, 0])
    e.add(6, "minus", 0, [1, 2])
    e.declare_query("q", [Atom(ABSENT, (), "a"), Atom("minus", ("s0", "v0", "a"), "v1")], ["v1"])
    e.run(["q"])
    assert e.read(["q"])[1] == {"q": [(5,)]}


def test_relations_hold_numbers_and_terms() -> None:
    e = egraph()
    e.declare_relation("literal", 1)
    e.relate("literal", 3, 2)
    e.declare_query("q", [Atom("literal", (3, "v0")), Atom("f", ("s0", "v0"), "v1")], ["v1"])
    e.run(["q"])
    assert e.read(["q"])[1] == {"q": [(4,)]}


# -- forked children, which have egglog's pool of threads and none of the threads

FORK = """
import multiprocessing, os, sys
from graphopt.rewrite.egraph.egglog import EGraph, ConstructorTable

def search(n=1):
    e = EGraph()
    e.declare_table(ConstructorTable("leaf", 0))
    for number in range(n):
        e.add(number, "leaf", number)
    e.run([])
    return len(e.read([])[0])

def nested(n):
    child = os.fork()
    if not child:
        os._exit(search() - 1)
    return search(n) + os.waitpid(child, 0)[1]

def inherited():
    try:
        before.run([])
    except Exception as error:
        print(type(error).__name__)
"""


def forked(body: str) -> str:
    """What a program prints that forks; it must end, and well."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK + body],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("of_one", ["search", "nested"])
def test_a_pool_of_forked_processes_searches(of_one: str) -> None:
    body = f"""
search()
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map_async({of_one}, [1, 5, 30_000, 2]).get(timeout=40))
"""
    assert forked(body).strip() == "[1, 5, 30000, 2]"


def test_a_forked_process_ends_though_its_parent_was_searching() -> None:
    body = """
before = EGraph()
before.run([])
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
else:
    inherited()
    del before
    search()
"""
    assert forked(body).strip() == "UsageError"


def test_engines_of_forked_processes_are_loaded_once_for_each() -> None:
    body = """
from graphopt.rewrite.egraph import egglog
first = egglog._bindings()
assert egglog._bindings() is first
if not os.fork():
    own = egglog._bindings()
    assert own is not first
    assert egglog._bindings() is own
    os._exit(0)
assert os.wait()[1] == 0
"""
    forked(body)
