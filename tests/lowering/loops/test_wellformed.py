"""Programs that make no sense are named."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphopt.errors import NestError
from graphopt.lowering.loops.expressions import Apply, Const, Expr, Var
from graphopt.lowering.loops.nest import (
    Axis,
    Block,
    Buffer,
    BufferRegion,
    Check,
    For,
    If,
    Nest,
    Range,
    Seq,
    Stmt,
    Store,
)
from graphopt.lowering.loops.script import read
from graphopt.lowering.loops.wellformed import check
from tests.lowering.random_nests import random_nest

A = Buffer("A", (Const(8), Const(4)))
B = Buffer("B", (Const(8),), "int64")
i, j = Var("i"), Var("j")
HALF = Const(0.5, "float32")


def nest(body: Stmt, *params: Buffer | Var) -> Nest:
    return Nest("f", params or (A, B), body)


def block(*axes: tuple[Axis, Expr], **more: object) -> Block:
    store = Store(A, (Const(0), Const(0)), HALF)
    made = Block("C", tuple(a for a, _ in axes), tuple(v for _, v in axes), store)
    return replace(made, **more)  # type: ignore[arg-type]


V = Axis(Var("v"), Const(8))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (Store(Buffer("X", ()), (), HALF), "f: the buffer X is not declared"),
        (Store(replace(A, dtype="float64"), (i, i), HALF), "f: the buffer A is not the one that is declared"),
        (Store(A, (Const(0),), HALF), "f: A has 2 axes, and is used at 1 indices"),
        (Store(B, (i,), Const(0)), "f: i is not bound where it is used"),
        (Store(B, (Const(0),), HALF), "f: 0.5 is float32, where int64 is expected"),
        (Store(B, (HALF,), Const(0)), "is float32, where int64 is expected"),
        (Store(B, (Const(0),), Const(2**63)), "is no int64"),
        (Store(B, (Const(0),), Const(0.5)), "0.5 is no int64"),
        (Store(A, (Const(0), Const(0)), Const(1, "float32")), "1 is no float32"),
        (Store(B, (Const(0),), Apply("explode", (Const(0),), "int64")), "explode of 1 arguments is no function"),
        (Store(B, (Const(0),), Apply("add", (Const(0), HALF), "int64")), "add(int64, float32) as int64"),
        (Store(B, (Const(0),), Apply("lt", (Const(0), Const(1)), "int64")), "lt(int64, int64) as int64"),
        (
            Store(A, (Const(0), Const(0)), Apply("bitand", (HALF, HALF), "float32")),
            "bitand(float32, float32) as float32",
        ),
        (Store(B, (Const(0),), Apply("tanh", (Const(0),), "int64")), "tanh(int64) as int64"),
        (Check(Const(1), ""), "1 is int64, where bool is expected"),
        (If(Const(1), Seq(())), "1 is int64, where bool is expected"),
        (Seq((Seq(()), Seq(()))), "a sequence stands in a sequence"),
        (Seq((Check(Const(True, "bool"), ""),)), "a sequence has one statement"),
        (For(i, HALF, Seq(())), "0.5 is float32, where int64 is expected"),
        (For(i, Const(4), For(i, Const(4), Seq(()))), "i names two things"),
        (For(Var("A"), Const(4), Seq(())), "A names two things"),
        (For(Var("4"), Const(4), Seq(())), "'4' is no name"),
        (For(i, Const(4), Seq(()), "bound"), "the loop i is bound, with the thread None"),
        (For(i, Const(4), Seq(()), "serial", "threadIdx.x"), "the loop i is serial, with the thread threadIdx.x"),
        (For(Var("i", "int32"), Const(4), Seq(())), "i is int32, and not int64"),
        (replace(block(), axes=(V,)), "f, block C: 1 axes and 0 values"),
        (block((V, V.var)), "f, block C: v is not bound where it is used"),
        (block((V, Const(8))), "f, block C: the axis v = 8 runs from 8 to 8, and its extent is 8"),
        (For(i, Const(9), block((V, i))), "f, block C: the axis v = i runs from 0 to 8, and its extent is 8"),
        (
            For(i, Const(3), For(j, Const(4), block((V, i * 4 + j)))),
            "the axis v = i * 4 + j runs from 0 to 11, and its extent is 8",
        ),
        (For(i, Const(8), block((V, i - 1))), "runs from -1 to 6"),
        (block(reads=(BufferRegion(A, (Range(Const(0)),)),)), "f, block C: A has 2 axes, and a region of it 1"),
        (block(predicate=Const(1)), "f, block C: 1 is int64, where bool is expected"),
    ],
)
def test_what_makes_no_sense_is_said(body: Stmt, message: str) -> None:
    with pytest.raises(NestError) as caught:
        check(nest(body))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [
        For(i, Const(9), block((V, i), predicate=i < 8)),
        For(i, Const(9), If(i < 8, block((V, i)))),
        For(i, Const(9), block((V, i - i // 2 * 2))),
        For(i, Var("n"), block((V, i))),
        block((V, Const(7))),
    ],
)
def test_an_axis_that_may_be_within_its_extent_is_left_alone(body: Stmt) -> None:
    check(nest(body, A, Var("n")))


def test_a_block_that_stands_twice_is_one_and_its_axes_are_its_own() -> None:
    ends = [For(Var(f"i{k}"), Const(4), block((V, Var(f"i{k}") + 4 * k))) for k in (0, 1)]
    check(nest(Seq(tuple(ends)), A))
    for other, message in (
        (replace(block((V, Const(0))), name="D"), "v names two things"),
        (block((V, Const(0)), body=block((V, Const(0)))), "v is bound twice"),
        (For(V.var, Const(4), Seq(())), "v names two things"),
    ):
        with pytest.raises(NestError, match=message):
            check(nest(Seq((block((V, Const(0))), other)), A))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ((A, A), "f: A names two things"),
        ((A, Var("n", "int32")), "f: the size n is int32"),
        ((Buffer("A", (i,)),), "f: i is not bound where it is used"),
        ((Buffer("A", (Const(4),), "float33"),), "f: A is of the dtype float33"),
        ((Buffer("A", (Const(4),), strides=()),), "f: A has 1 axes and 0 strides"),
    ],
)
def test_parameters_that_make_no_sense_are_said(params: tuple[Buffer | Var, ...], message: str) -> None:
    with pytest.raises(NestError) as caught:
        check(nest(Seq(()), *params))
    assert message in str(caught.value)


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False))
def test_random_programs_make_sense(random: Random) -> None:
    program = random_nest(random)
    check(replace(program, body=If(Const(False, "bool"), program.body)))  # its indices lie anywhere


def test_a_read_program_makes_sense() -> None:
    check(read('def f(A: Buffer[("n",), "float32"], n: size):\n  for i in serial(n):\n    A[i] = exp(A[i])'))


def reading(index: str, loop: str = "serial(8)", more: str = "") -> str:
    return f"""
def f(A: Buffer[(8,), "float32"], B: Buffer[(8,), "float32"], n: size):
    for i in {loop}:
        with block("B"):
            vi = axis.spatial(8, i)
            {more}
            B[vi] = {index}
"""


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (reading("A[vi + 1]"), "f, block B: the index vi + 1 of axis 0 of A runs from 1 to 8, and its extent is 8"),
        (reading("A[vi - 1]"), "runs from -1 to 6, and its extent is 8"),
        (reading("A[9]"), "runs from 9 to 9"),
        (reading("A[9]", "serial(n)"), "runs from 9 to 9"),
        (reading("A[2 * vi]"), "runs from 0 to 14"),
        (reading("select(A[vi + 1] > 0.0, 1.0, 0.0)"), "runs from 1 to 8"),
    ],
)
def test_indices_that_leave_a_buffer_for_sure_are_said(program: str, said: str) -> None:
    with pytest.raises(NestError) as caught:
        check(read(program))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "program",
    [
        reading("A[vi]"),
        reading("A[vi + 1]", "serial(n)"),
        reading("A[vi + 1]", more="where(vi < 7)"),
        reading("select(vi < 7, A[vi + 1], 0.0)"),
        reading("select((vi > 6) | (A[vi + 1] > 0.0), 1.0, 0.0)"),
        reading("A[vi + 1 - vi]"),
        reading("A[9]", "serial(0)"),
        reading("A[9]", "serial(n // 2)"),
    ],
)
def test_indices_that_may_lie_in_a_buffer_are_not(program: str) -> None:
    check(read(program))
