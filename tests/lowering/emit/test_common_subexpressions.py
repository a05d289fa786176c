"""What is computed once for several stores is what each of them would compute."""

from __future__ import annotations

import numpy as np

from graphopt.lowering.emit.kernel_source import emit
from graphopt.lowering.loops.compute import loop, nest, placeholder, procedure
from graphopt.lowering.loops.expressions import INDEX, Const, Expr, cast
from graphopt.lowering.loops.nest import Buffer, Stmt, Store, seq
from tests.lowering.native import run


def test_an_element_at_an_index_that_a_store_changes_is_read_again() -> None:
    links, starts = placeholder((8,), "int32", "links"), placeholder((4,), "int32", "starts")
    at = Buffer("at", (Const(1),), "int32", "local")

    def build(out: Buffer) -> Stmt:
        def row(n: Expr) -> Stmt:
            step = Store(at, (Const(0),), links[cast(at[0], INDEX)])
            return seq(Store(at, (Const(0),), starts[n]), step, step, step, Store(out, (n,), at[0]))

        return loop(4, row)

    made = nest("walk", [links, starts], procedure([("ends", (4,), "int32")], (links, starts), build, (at,)), [])
    assert emit(made).kernel.source.count("links[") == 3
    ends = np.zeros(4, np.int32)
    run(made, [np.roll(np.arange(8, dtype=np.int32), -1), np.array([0, 3, 6, 7], np.int32), ends])
    assert ends.tolist() == [3, 6, 1, 2]
