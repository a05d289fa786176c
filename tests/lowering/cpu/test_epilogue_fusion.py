"""What follows a procedure element by element, done where it stores."""

import numpy as np

from graphopt.lowering.cpu.default_schedules import scheduled
from graphopt.lowering.cpu.loop_fission import separated
from graphopt.lowering.loops import compute as t
from graphopt.lowering.loops.compute import Tensor, compute, loop, procedure
from graphopt.lowering.loops.interpret import interpret
from graphopt.lowering.loops.nest import Buffer, Nest, Stmt, Store, blocks, statements


def turned(x: Tensor, stores_once: bool) -> Tensor:
    """The rows of x in the opposite order."""

    def build(y: Buffer) -> Stmt:
        return loop(x.shape[0], lambda i: loop(x.shape[1], lambda j: Store(y, (i, j), x[x.shape[0] - 1 - i, j])))

    return procedure([("y", x.shape, "float32")], [x], build, stores_once=stores_once)[0]


def program(stores_once: bool = True, second: bool = True) -> Nest:
    x, b = t.placeholder((3, 5), name="x"), t.placeholder((5,), name="b")
    y = turned(x, stores_once)
    z = compute(y.shape, lambda i, j: (y[i, j] + b[j]) * y[i, j], name="z") if second else y
    return t.nest("program", [x, b] if second else [x], [z])


def run(*nests: Nest) -> np.ndarray:
    x, b = np.arange(15, dtype=np.float32).reshape(3, 5), np.arange(5, dtype=np.float32)
    held = {"x": x, "b": b, **{n: np.zeros((3, 5), np.float32) for n in ("y", "z")}}
    for nest in nests:
        interpret(nest, {p.name: held[p.name] for p in nest.buffers})
    return held["z"]


def test_what_follows_is_done_where_elements_are_stored() -> None:
    (nest,) = separated(program())
    made = scheduled(nest)
    assert made.allocs == ()
    assert {s.buffer.name for s in statements(made.body) if isinstance(s, Store)} == {"z"}
    np.testing.assert_array_equal(run(made), run(program()))


def test_a_procedure_that_says_nothing_keeps_what_it_stores() -> None:
    nests = [scheduled(n) for n in separated(program(stores_once=False))]
    assert len(nests) == 2
    np.testing.assert_array_equal(run(*nests), run(program()))


def test_what_reads_other_elements_stays_apart() -> None:
    x = t.placeholder((3, 5), name="x")
    y = turned(x, stores_once=True)
    z = compute(y.shape, lambda i, j: y[2 - i, j], name="z")
    nests = [scheduled(n) for n in separated(t.nest("program", [x], [z]))]
    assert len(nests) == 2
    np.testing.assert_array_equal(run(*nests), np.arange(15, dtype=np.float32).reshape(3, 5))


def test_loops_of_a_procedure_come_outermost() -> None:
    made = scheduled(program(second=False))
    assert not list(blocks(made.body))
