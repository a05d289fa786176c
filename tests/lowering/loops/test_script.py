"""Programs are read as they are printed, and people's scripts as they are meant."""

import importlib
import re
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphopt.errors import ScriptError
from graphopt.lowering.loops.expressions import Apply, Const, Load, Var
from graphopt.lowering.loops.interpret import interpret
from graphopt.lowering.loops.nest import Block, BufferRegion, For, Invoke, Nest, Range, Seq, Store, blocks, statements
from graphopt.lowering.loops.nest import Buffer as NestBuffer
from graphopt.lowering.loops.script import Buffer, alloc, axis, block, grid, init, program, read, show, show_expr
from tests.lowering.random_nests import random_nest

MM_RELU = """\
@program
def mm_relu(A: Buffer[(128, 128), "float32"], B: Buffer[(128, 128), "float32"], C: Buffer[(128, 128), "float32"]):
    Y = alloc((128, 128), "float32")
    for i, j, k in grid(128, 128, 128):
        with block("Y"):
            vi, vj, vk = axis.remap("SSR", [i, j, k])
            with init():
                Y[vi, vj] = 0.0
            Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
    for i_1, j_1 in grid(128, 128):
        with block("C"):
            vi_1, vj_1 = axis.remap("SS", [i_1, j_1])
            C[vi_1, vj_1] = max(Y[vi_1, vj_1], 0.0)
"""

EVERYTHING = """\
@program
def everything(
    A: Buffer[(8, "n * 2"), "float32"],
    B: Buffer((8, 8), "float16", scope="shared", strides=(9, 1)),
    flags: Buffer[("n",), "bool"],
    total: Buffer[(), "int64"],
    n: size,
):
    notes({"kind": "test", "tiles": (4, 2.5, "x"), "one": (1,), "low": -inf})
    t = alloc((4,), "int32", scope="local")
    for i in parallel(n // 4 + 1, notes={"grain": 16}):
        for j0 in bind("threadIdx.x", 2):
            for j1 in vectorized(4):
                with block("A"):
                    vi = axis.remap("S", [i])
                    vj = axis.ordered(8, j0 * 4 + j1)
                    where(vi < n and j1 != 3)
                    reads(B[0:4, :], A[vi, vj:vj + n])
                    writes()
                    notes({"auto": True})
                    with init():
                        total[()] = 0
                    if flags[vi] or not 0 <= vj - 1:
                        A[0, vj] = select(vi < n, exp(-A[0, vj]), 1.0) ** 2.0 / 3.0
                    elif isnan(A[0, 0]):
                        total[()] = cast(A[0, vj], "int64") + 1
                    else:
                        B[0, vj] = (B[0, 1] - 0.5) * -B[1, 0]
                        B[1, vj] = cast(float64(0.5) + nan, "float16")
                    check(n % 4 == 0, "n: \\"four\\"")
    for u in unrolled(4):
        invoke("fill", t[u:u + 4], t[u], value(t[u]), int32(3), n - 1)
    for p in serial(4):
        for q in serial(p):
            pass
"""


def test_a_printed_program_is_read_as_itself() -> None:
    nest = read(MM_RELU)
    assert show(nest) == MM_RELU
    assert [b.name for b in blocks(nest.body)] == ["Y", "C"]


def test_every_construct_is_read_and_printed() -> None:
    assert show(read(EVERYTHING)) == EVERYTHING


@settings(max_examples=200, deadline=None)
@given(st.randoms(use_true_random=False))
def test_any_program_is_read_as_it_is_printed(random: Random) -> None:
    nest = random_nest(random)
    assert read(show(nest)) == nest


def test_a_decorated_function_is_read_and_not_run() -> None:
    n = 128

    @program
    def mm_relu(A: Buffer[(n, 128), "float32"], B: Buffer[(n, n), "float32"], C: Buffer[(n, n), "float32"]):  # noqa: F821, N803
        """Documentation is no part of the program."""
        Y = alloc((n, n), "float32")  # noqa: N806
        for i, j, k in grid(n, n, n):
            with block("Y"):
                vi, vj, vk = axis.remap("SSR", [i, j, k])
                with init():
                    Y[vi, vj] = 0.0
                Y[vi, vj] += A[vi, vk] * B[vk, vj]
        for i, j in grid(n, n):
            with block("C"):
                vi, vj = axis.remap("SS", [i, j])
                C[vi, vj] = max(Y[vi, vj], 0.0)

    assert mm_relu == read(MM_RELU)


def test_an_error_in_a_decorated_function_says_its_line_in_the_file() -> None:
    def wrong(A: Buffer[(4,), "float32"]):  # noqa: F821, N803
        A[0] = A[0, 0]

    with pytest.raises(ScriptError, match=r"test_script\.py:\d+:\d+: A has 1 axes and 2 indices") as caught:
        program(wrong)
    assert caught.value.line == wrong.__code__.co_firstlineno + 1


def test_words_can_be_imported_and_do_nothing() -> None:
    script = importlib.import_module("graphopt.lowering.loops.script")
    with pytest.raises(TypeError, match="exp is a word of tensor programs"):
        script.exp(1.0)
    with pytest.raises(AttributeError, match="explode"):
        _ = script.explode


A = NestBuffer("A", (Const(8),))
T = NestBuffer("T", (Const(8),), "int32")
F = NestBuffer("F", (Const(8),), "bool")
i = Var("i")


def body(text: str) -> object:
    """What a line becomes within a loop over i and beside the buffers A, T and F."""
    head = (
        'def f(A: Buffer[(8,), "float32"], T: Buffer[(8,), "int32"], F: Buffer[(8,), "bool"]):\n  for i in serial(8):\n'
    )
    loop = read(f"{head}    {text}\n").body
    assert isinstance(loop, For)
    return loop.body


def a(k: object) -> Load:
    return A[k]  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("A[i] = 1", Store(A, (i,), Const(1.0, "float32"))),
        ("A[i] = -0.0", Store(A, (i,), Const(-0.0, "float32"))),
        ("A[1 + i] = 2 * A[i - 1]", Store(A, (i + 1,), Apply("mul", (Const(2.0, "float32"), a(i + -1)), "float32"))),
        ("A[2 * 3] = -inf", Store(A, (Const(6),), Const(float("-inf"), "float32"))),
        ("A[min(i, i)] = 0", Store(A, (Apply("min", (i, i), "int64"),), Const(0.0, "float32"))),
        ("A[i] += 1", Store(A, (i,), a(i) + 1.0)),
        ("F[i] = 0 <= i < 4", Store(F, (i,), (Const(0) <= i) & (i < 4))),
        ("F[i] = F[0] & ~F[1] | F[2]", Store(F, (i,), (F[0] & ~F[1]) | F[2])),
        ("F[i] = A[i] < 0.5", Store(F, (i,), a(i) < Const(0.5, "float32"))),
        ("T[i] = T[0] & ~T[1]", Store(T, (i,), T[0] & ~T[1])),
    ],
)
def test_a_line_is_what_the_same_is_in_python(text: str, value: object) -> None:
    assert body(text) == value


def test_regions_are_boxes() -> None:
    found = body('invoke("x", A[:], A[i:i + 2], A[1:3], A[i], A[i * 2:i * 2 + i], value(A[i]), 2.5)')
    ranges = [(Const(0), Const(8)), (i, Const(2)), (Const(1), Const(2)), (i, Const(1)), (i * 2, i)]
    boxes = tuple(BufferRegion(A, (Range(*r),)) for r in ranges)
    assert found == Invoke("x", (*boxes, A[i], Const(2.5, "float32")))


@pytest.mark.parametrize(
    ("line", "column", "message"),
    [
        ("A[i] = B[i]", 12, "B is no buffer of the program"),
        ("A[i, 0] = 0.0", 5, "A has 1 axes and 2 indices"),
        ("A[j] = 0.0", 7, "j is not bound here"),
        ("A[i] = T[i]", 12, "float32 is expected here, and this is int32"),
        ("A[i] = A[i] + T[i]", 12, "add of float32 and int32: cast one of them"),
        ("A[0.5] = 0.0", 7, "0.5 is no int64"),
        ("T[i] = 3000000000", 12, "3000000000 is beyond the range of int32"),
        ("A[i] = A", 12, "A is a buffer"),
        ("A[i] = explode(A[i])", 12, "explode is no function of programs"),
        ("A[i] = exp(A[i], A[i])", 12, "exp takes 1 arguments, and here are 2"),
        ('A[i] = cast(A[i], "real")', 23, "a dtype is expected"),
        ("A[i] = A[i] if F[i] else 0.0", 12, "a program has operators, functions by name"),
        ("A[i] = A[i] @ A[i]", 12, "this operator is none of programs"),
        ("A[i] = __import__('os').system('true')", 12, "a program has operators"),
        ("import os", 5, "a program has for, with block"),
        ("print(A[i])", 5, "a program has for, with block"),
        ("A[i] = A[0:2]", 14, "a program has operators"),
        ("check(i, 'x')", 11, "bool is expected here, and this is int64"),
        ("for i in serial(4): pass", 5, "i is bound already"),
        ("for j in range(4): pass", 14, "a loop is over one of grid"),
        ("for j in grid(4, 4): pass", 14, "grid has 2 sizes for 1 variables"),
        ('for j in bind("threadIdx.w", 4): pass', 14, "a loop is bound to one of blockIdx.x"),
        ("for j in serial(4, notes=3): pass", 30, "notes are a dict"),
        ('B = alloc((i,), "float32")', 5, "B has a size of its own for each i"),
        ("A[i] = relu(A[i])", 12, "relu is no function of programs; write max(x, 0.0), in `A[i] = relu(A[i])`"),
        ("A[i] = sqr(A[i])", 12, "did you mean sqrt"),
        ("A[i] = B[i]", 12, "B is no buffer of the program; there are A, T, F"),
        ("A[i] = i[0]", 12, "i is a variable, and has no elements"),
        ("A[i] = A[j]", 14, "j is not bound here; there is i"),
        ("while True: pass", 5, "a loop has a number of rounds"),
        ("for j in range(4): pass", 14, "write serial(n)"),
        ("i = A[0]", 5, "i is bound already"),
        ("A = A[0]", 5, "A is bound already"),
        ('A = alloc((4,), "float32")', 5, "A is bound already"),
        ('invoke("x", A[0:4:2])', 19, "a region has no steps"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(line: str, column: int, message: str) -> None:
    with pytest.raises(ScriptError) as caught:
        body(line)
    assert message in str(caught.value)
    assert (caught.value.line, caught.value.column) == (3, column)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1:1: a script is one function"),
        ("def f(:", "1:7: "),
        ("def f(): pass\ndef g(): pass", "a script is one function"),
        ("@evil\ndef f(): pass", "the one decorator of a program is @program"),
        ("def f(A): pass", "A is a Buffer"),
        ("def f(A=1): pass", "the parameters of a program are plain"),
        ('def f(A: Buffer[(4), "float32"]): pass', "a tuple of sizes is expected"),
        ('def f(A: Buffer[("n +",), "float32"]): pass', "'n +' is no size"),
        ('def f(A: Buffer[("m",), "float32"], n: size): pass', "m is not bound here"),
        ('def f(A: Buffer[(4,), "float33"]): pass', "a dtype is expected"),
        ('def f(A: Buffer((4,), "float32", scope="moon")): pass', "a buffer has scope="),
        ('def f(A: Buffer[(4,), "float32"]):\n  A = alloc((4,), "float32")', "A is there already"),
        ('def f(A: Buffer[(4,), "float32"]):\n  A[0] = ' + "(" * 250 + "1.0" + ")" * 250, "nested"),
        ('def f(A: Buffer[(4,), "float32"]):\n  A[0] = ' + "-" * 100000 + "1.0", "nested"),
        ('def f(A: Buffer[(4,), "float32"]):\n  A[0] = ' + "1.0" + " + A[0]" * 100000, "nested"),
        ("def f(): pass\0", "null bytes"),
    ],
)
def test_text_that_is_no_program_is_refused(text: str, message: str) -> None:
    with pytest.raises(ScriptError) as caught:
        read(text)
    assert message in str(caught.value)


def written(body: str) -> Nest:
    """The program with this body, beside the buffers A and B."""
    head = '@program\ndef f(A: Buffer[(8,), "float32"], B: Buffer[(8,), "float32"]):\n'
    return read(head + "".join(f"    {line}\n" for line in body.splitlines()))


def test_a_local_name_stands_for_its_value() -> None:
    named = """for i in serial(8):
    with block("B"):
        vi = axis.spatial(8, i)
        t = A[vi] * 2.0
        s: float32 = 3
        o = vi + 0
        B[o] = t + t * s"""
    plain = """for i in serial(8):
    with block("B"):
        vi = axis.spatial(8, i)
        B[vi] = A[vi] * 2.0 + A[vi] * 2.0 * 3.0"""
    assert written(named) == written(plain)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("for i in serial(8):\n    t = B[i]\n    B[i] = 1.0\n    A[i] = t", "6:16: t reads B, which is written before"),
        ("t = B[0]\nfor i in serial(8):\n    A[i] = t\n    B[i] = 1.0", "5:16: t reads B, which is written before"),
        ("t = A[0]\nt = t + 1.0", "t has a value already, and keeps it"),
        ("if A[0] > 0.0:\n    t = A[0]\nB[0] = t", "5:12: t is not bound here"),
        ("t = A[0]\nB[0] = t[0]", "t is a local name for one value"),
        ("t = A[0]\nfor t in serial(4):\n    pass", "t is bound already"),
        ("t = A[0]\n" + "\n".join(f"{'t' * (k + 1)} = {'t' * k} * {'t' * k}" for k in range(1, 30)), "4096 parts"),
        ('for i in parallel(8):\n    t = alloc((), "float32")', "would be shared by the rounds of a parallel loop"),
    ],
)
def test_a_local_name_that_would_have_another_value_is_refused(body: str, message: str) -> None:
    with pytest.raises(ScriptError) as caught:
        written(body)
    assert message in str(caught.value)


def test_a_local_buffer_is_one_of_the_program() -> None:
    nest = written(
        """for i in parallel(8):
    t = alloc((2,), "float32", scope="local")
    t[0] = A[i]
    B[i] = t[0]
for i in serial(8):
    with block("A"):
        vi = axis.remap("S", [i])
        t = alloc((), "float32")
        t[()] = B[vi]
        A[vi] = t[()] + t[()]"""
    )
    assert [(b.name, b.scope) for b in nest.allocs] == [("t", "local"), ("t_1", "global")]
    assert read(show(nest)) == nest
    a, b = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    interpret(nest, [a, b])
    assert np.array_equal(b, np.arange(8))
    assert np.array_equal(a, 2 * b)


def test_the_root_block_is_the_program() -> None:
    loop = "for i in serial(8):\n    A[i] = 1.0"
    inner = "\n".join(f"    {line}" for line in loop.splitlines())
    assert written(f'with block("root"):\n    notes({{"a": 1}})\n    reads()\n{inner}') == written(
        f'notes({{"a": 1}})\n{loop}'
    )


def test_a_block_that_is_called_root_is_told_from_the_program() -> None:
    inner = 'with block("root"):\n    with block("root"):\n        B[0] = A[0]'
    nest = written(inner)
    assert isinstance(nest.body, Block)
    assert read(show(nest)) == nest
    named = written('t = A[0]\nwith block("root"):\n    s: float32 = 2\n    B[0] = t * s')
    assert named == written("B[0] = A[0] * 2.0")
    beside = written('B[1] = A[1]\nwith block("root"):\n    B[0] = A[0]')
    assert [b.name for b in blocks(beside.body)] == ["root"]
    assert read(show(beside)) == beside


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('with block("root"):\n    where(1 < 2)\n    B[0] = 1.0', "4:9: the block root is the whole program"),
        ('with block("root"):\n    v = axis.spatial(8, 0)', "4:9: the block root is the whole program"),
        ('with block("root"):\n    with init():\n        B[0] = 1.0', "4:9: the block root is the whole program"),
        ('notes({"a": 1})\nnotes({"b": 1})', "4:5: notes is said twice of one program"),
        ("notes({}, {})", "3:5: one argument is expected here"),
        ("t = let(A[0])", "3:9: let is no function of programs; write t = value"),
        ("with T.Let(A[0]) as t:\n    B[0] = t", '3:5: with is of one block("name") or init(), without as'),
        ('T = alloc_buffer((8,), "float32")', "3:9: alloc_buffer is no function of programs; write alloc(shape, dtype"),
        ('t = T.alloc_buffer((8,), "float32")', "3:9: alloc_buffer is no function of programs; write alloc(shape"),
        ('T.block_attr({"a": 1})', '3:5: block_attr is no word of programs; write notes({"key": value})'),
        ("t = A[0]\nt += 1.0", '4:5: t keeps its value: alloc((), "float32", scope="local") may change'),
        ("t, s = A[0], A[1]", "3:5: a program has for, with block"),
    ],
)
def test_what_other_languages_say_is_told_how_it_is_said_here(body: str, message: str) -> None:
    with pytest.raises(ScriptError) as caught:
        written(body)
    assert message in str(caught.value)


def test_words_may_be_those_of_a_module() -> None:
    text = re.sub(r"\b(Buffer|alloc|grid|block|axis|init|max)\b(?=[\[(.])", r"T.\1", MM_RELU)
    assert "T.axis.remap" in text
    assert read(text.replace("@program", "@T.program")) == read(MM_RELU)


def test_a_long_line_names_what_it_computes_twice() -> None:
    body = "t = exp(A[i]) * 2.0\nu = t * t + tanh(t)\nv = u * u + log(u) * B[i]\nB[i] = v * v + v + t"
    nest = written("for i in serial(8):\n" + "\n".join(f"    {line}" for line in body.splitlines()))
    shown = show(nest)
    assert max(map(len, shown.splitlines())) <= 120
    assert "t = exp(A[i]) * 2.0" in shown
    assert read(shown) == nest


@settings(max_examples=200, deadline=None)
@given(st.randoms(use_true_random=False))
def test_any_local_names_are_read_as_they_are_printed(random: Random) -> None:
    dtype = random.choice(["float32", "float16", "int32", "int64", "uint8"])
    lines, known = ["    n0 = A[i]", "    n1 = A[i + 1]"], ["n0", "n1"]
    for k in range(2, random.randint(3, 9)):
        a, b, c = (random.choice(known) for _ in range(3))
        forms = [f"{a} + {b}", f"{a} - 3 * {c}", f"max({a}, {b})", f"-{a}", f"select(n0 < {b}, {b}, {c})"]
        lines.append(f"    n{k} = {random.choice(forms)}")
        known += [f"n{k}"] * 3
    text = "\n".join(["for i in serial(7):", *lines, f"    B[i] = {known[-1]} + {known[-1]}"])
    head = f'def f(A: Buffer[(8,), "{dtype}"], B: Buffer[(8,), "{dtype}"]):\n'
    nest = read(head + "".join(f"    {line}\n" for line in text.splitlines()))
    assert read(show(nest)) == nest


def test_a_block_cannot_have_an_axis_that_is_no_loop() -> None:
    text = MM_RELU.replace("[i, j, k]", "[i, j, k + 1]")
    with pytest.raises(ScriptError, match=r"6:.*axis.remap takes loops alone"):
        read(text)
    with pytest.raises(ScriptError, match=r"6:.*takes a letter"):
        read(MM_RELU.replace("SSR", "SSX"))
    with pytest.raises(ScriptError, match="vi is two axes"):
        read(MM_RELU.replace("vi, vj, vk = ", "vi = axis.spatial(128, 0)\n            vi, vj, vk = "))


def test_reads_that_are_as_they_follow_are_left_out() -> None:
    nest = read(MM_RELU)
    (y, _) = blocks(nest.body)
    assert [r.buffer.name for r in y.reads] == ["A", "B"]
    assert [r.buffer.name for r in y.writes] == ["Y"]


def test_an_expression_has_no_needless_parentheses() -> None:
    j, n = Var("j"), Var("n")
    assert show_expr((i * 4 + j) % n - (i - (j - 1))) == "(i * 4 + j) % n - (i - (j - 1))"
    assert show_expr((i < j) & ((j < n) | ~(i >= 2)), "bool") == "i < j and (j < n or not i >= 2)"
    assert show_expr(-(a(i) ** 2.0), "float32") == "-A[i] ** 2.0"


def test_an_empty_program_is_one() -> None:
    nest = Nest("nothing", (), Seq(()))
    assert read(show(nest)) == nest
    assert list(statements(nest.body)) == [nest.body]


def test_a_dtype_casts_an_expression() -> None:
    head = 'def f(A: Buffer[(4,), "float16"], B: Buffer[(4,), "float32"]):\n    for i in serial(4):\n        '
    assert read(f"{head}B[i] = float32(A[i]) * 2.0\n") == read(f'{head}B[i] = cast(A[i], "float32") * 2.0\n')
    assert read(f"{head}B[i] = float32(B[i])\n") == read(f"{head}B[i] = B[i]\n")


@pytest.mark.parametrize("text", ["graph main (ir 10, opset 21)\nx: float32[4]\nreturn x as y\n", "external my.f\n"])
def test_texts_of_modules_are_told_from_programs(text: str) -> None:
    with pytest.raises(ScriptError, match=r"1:\d+: this is the text of a module, which graphopt.Module.read takes"):
        read(text)
