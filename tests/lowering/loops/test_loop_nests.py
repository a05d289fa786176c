from graphopt.lowering.loops.expressions import Const, Var
from graphopt.lowering.loops.loop_nests import LoopSpec, peeled, wrapped
from graphopt.lowering.loops.nest import Buffer, For, Store, seq

ROW, COLUMN = Var("i"), Var("j")
STORE = Store(Buffer("A", (Const(2), Const(3))), (ROW, COLUMN), Const(0.0, "float32"))


def test_loops_are_put_around_a_statement_and_taken_off() -> None:
    whole = wrapped([LoopSpec(ROW, Const(2)), LoopSpec(COLUMN, Const(3), "vectorized")], STORE)
    assert whole == For(ROW, Const(2), For(COLUMN, Const(3), STORE, "vectorized"))
    loops, body = peeled(whole)
    assert [loop.var for loop in loops] == [ROW, COLUMN]
    assert body is STORE
    assert wrapped(loops, body) == whole


def test_loops_that_are_there_keep_what_they_are() -> None:
    loop = For(ROW, Const(2), STORE, "bound", "threadIdx.x", (("note", 1),))
    assert wrapped([loop], seq(STORE, STORE)) == For(
        ROW, Const(2), seq(STORE, STORE), loop.kind, loop.thread, loop.notes
    )


def test_only_loops_directly_in_one_another_are_taken_off() -> None:
    inner = For(COLUMN, Const(3), STORE)
    assert peeled(For(ROW, Const(2), seq(inner, STORE)))[1] == seq(inner, STORE)
    assert peeled(STORE) == ((), STORE)
