from graphopt.lowering import compute as t
from graphopt.lowering.addresses import polynomial
from graphopt.lowering.default_schedules import scheduled
from graphopt.lowering.emit import emit
from graphopt.lowering.expressions import Const, Expr, Load, Var
from graphopt.lowering.loops import Buffer, For, Stmt, Store
from graphopt.lowering.places import Place
from graphopt.lowering.quotients import quotients
from tests.lowering.native import check

N, K, J = Var("n"), Var("i"), Var("j")
X, Y = Buffer("x", (N,)), Buffer("y", (N,))


def found(stmt: Stmt) -> list[Expr]:
    address = lambda load: polynomial(load.indices[0])  # noqa: E731
    return quotients(stmt, Place({}), address, {})


def test_divisions_by_what_the_loops_within_do_not_change_are_found() -> None:
    body = Store(Y, (K % N + J,), Load(X, (K // N + J // 3,)))
    assert set(found(For(J, N, body))) == {K % N, K // N}
    assert set(found(body)) == {K % N, K // N, J // 3}


def test_what_is_looked_up_may_not_be_there_outside_of_the_loops() -> None:
    index = Buffer("index", (N,), "int64")
    assert found(For(J, N, Store(Y, (J,), Load(X, (index[K] // 3,))))) == []


def test_sums_are_left_to_the_compiler() -> None:
    assert found(For(J, N, Store(Y, (K * 3 + J,), Const(0.0, "float32")))) == []


def test_no_loop_over_pixels_divides() -> None:
    h, w = Var("h"), Var("w")
    x = t.placeholder((2, 3, h, w, 16))
    y = t.compute((2, 3, h * 2, w * 2, 16), lambda n, c, i, j, k: x[n, c, i // 2, j // 2, k], name="y")
    nest = t.nest("enlarged", [x], [y], [h, w])
    made = scheduled(nest)
    source = emit(made).kernel.source
    inside = source[source.index("for i") :]
    assert "% (" not in inside
    assert inside.count("// 2") == 1
    for size in ([1, 1], [3, 5], [0, 2], [4, 0]):
        check(nest, made, size)
