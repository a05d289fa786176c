import numpy as np
import pytest

from graphopt.errors import ReadError
from graphopt.ir.constants import Constant
from graphopt.ir.graph import AttrRef, Attrs, Function, Graph, Header, Value
from graphopt.ir.structure import same
from graphopt.ir.text import parse, show
from graphopt.ir.types import (
    OpaqueType,
    OptionalType,
    Real,
    SequenceType,
    SparseTensorType,
    TensorType,
    broadcast,
    fresh_symbol,
    is_open_size,
    maximum,
    minimum,
    real,
    symbol,
    unranked,
)


def reads_back(graph: Graph) -> Graph:
    """The graph that the text of a graph gives, printed equal."""
    beside: list[Constant] = []
    text = show(graph, beside)
    again = parse(text, beside)
    assert show(again, []) == text
    assert len(again) == len(graph)
    return again


def test_short_to_write() -> None:
    graph = parse("x: float32[n, 3] y = Relu(Add(x, 1.0)) return y")
    add, relu = [n for n in graph.order() if n.op in ("Add", "Relu")]
    assert graph.names[graph.inputs[0]] == "x"
    assert graph.types[graph.inputs[0]] == TensorType("float32", (symbol("n"), 3))
    assert graph.constant_of(add.inputs[1]) == Constant.of(np.float32(1.0))
    assert relu.inputs == add.outputs
    assert (graph.outputs, graph.output_names) == ([*relu.outputs], ["y"])
    assert graph.header == Header()


def test_what_is_printed() -> None:
    graph = parse("""
        graph g (ir 9, opset 17, com.microsoft 1)
        x: float32[n, 3]
        w: float32[3] default [1.0, 2.0, 3.0]
        a: float32[n, 1], b = Split(com.microsoft::Gelu(x), [1, 2], axis=-1)
        return a, b as z
    """)
    assert show(graph) == (
        "graph g (ir 9, opset 17, com.microsoft 1)\n"
        "x: float32[n, 3]\n"
        "w: float32[3] default float32[3]{1.0, 2.0, 3.0}\n"
        "%0 = com.microsoft::Gelu(x)\n"
        "a: float32[n, 1], b = Split(%0, [1, 2], axis=-1)\n"
        "return a, b as z\n"
    )
    assert graph.header == Header(9, (("", 17), ("com.microsoft", 1)))


def test_bodies() -> None:
    graph = parse("""
        c: bool[]
        x: float32[2]
        y = If(c | x, else_branch={ q: ? return q }, then_branch={ q: ? r = Neg(q) return r })
        return y
    """)
    node = graph.producer(graph.outputs[0])
    assert (node.captures, len(node.inputs), set(node.bodies)) == (1, 2, {"else_branch", "then_branch"})
    assert "    r = Neg(q)\n" in show(graph)
    reads_back(graph)


def test_every_kind_of_type() -> None:
    n, m = symbol("n"), symbol("m")
    third = Real.constant(float(np.float32(1 / 3)), "float32")
    assert third is not None
    scaled = real("mul", Real.of(n, "float32"), third)
    types = [
        None,
        TensorType("bfloat16", ()),
        TensorType("string", unranked()),
        TensorType("float32", (2 * n - 1, n * m, (n + 1) // 2, broadcast(n, m), -n + 7)),
        TensorType("float32", (scaled.truncated(), real("round", scaled.cast("float64")).truncated() + minimum(n, 3))),
        TensorType("float32", (real("round", Real.of(n + m, "float64")).truncated(), symbol("trunc"), maximum(n, m))),
        SparseTensorType("float32", (3,)),
        SequenceType(OptionalType(TensorType("int4", (n,)))),
        OpaqueType(b"\x00\xff map"),
    ]
    graph = Graph()
    for i, type in enumerate(types):
        graph.add_input(f"x{i}", type)
    again = reads_back(graph)
    found = [again.types.get(v) for v in again.inputs]
    assert [found[i] for i in (0, 1, 3, 4, 5, 6, 7, 8)] == [types[i] for i in (0, 1, 3, 4, 5, 6, 7, 8)]


def test_sizes_without_a_name_stay_the_same_or_different() -> None:
    a, b, either = fresh_symbol(), fresh_symbol(), fresh_symbol(is_open=True)
    graph = Graph()
    graph.add_input("x", TensorType("float32", (a, b, a, either)))
    assert show(graph).endswith("x: float32[?0, ?1, ?0, ?!2]\n")
    (type,) = reads_back(graph).types.values()
    assert isinstance(type, TensorType)
    assert list(map(is_open_size, type.shape)) == [False, False, False, True]  # type: ignore[arg-type]
    assert type.shape[0] == type.shape[2] != type.shape[1]  # type: ignore[index]
    assert type.shape[0] != a  # type: ignore[index]


@pytest.mark.parametrize(
    ("array", "dtype"),
    [
        (np.float32(0.1), None),
        (np.array([1e-30, 3e38, -0.0, np.inf, -np.inf], np.float32), None),
        (np.array([[0.1, 1 / 3]], np.float64), None),
        (np.array([0.1, 65504], np.float16), None),
        (np.array([np.nan, 1], np.float32), None),
        (np.array([0xFFC00001], np.uint32).view(np.float32), None),
        (np.array([1 + 2j], np.complex64), None),
        (np.array([[True, False]]), None),
        (np.array([2**63 - 1, -(2**63)]), None),
        (np.array([2**64 - 1], np.uint64), None),
        (np.array([], np.int64), None),
        (np.zeros((0, 3), np.float32), None),
        (np.array(['say "hi"\n', "é𐀀"], object), "string"),
        (np.array([b"\x00\xff"], object), "string"),
    ],
)
def test_constants_keep_their_bits(array: np.ndarray, dtype: str | None) -> None:
    graph = Graph()
    value = graph.add_constant(Constant.of(array, dtype), "c")
    graph.add_output("y", Value(graph.add("Op", (value,), Attrs(a=Constant.of(array, dtype))).id))
    again = reads_back(graph)
    op = again.producer(again.outputs[0])
    for found in (again.constant_of(op.inputs[0]), op.attrs["a"]):
        assert found == Constant.of(array, dtype)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int4", "float4_e2m1fn", "float8_e8m0fnu"])
def test_narrow_dtypes(dtype: str) -> None:
    graph = parse(f"c = {dtype}[2]{{1, 4}} y = Op(c) return y")
    constant = graph.constant_of(graph.producer(graph.outputs[0]).inputs[0])
    assert constant is not None
    assert (constant.dtype, constant.array.astype(np.float64).tolist()) == (dtype, [1, 4])
    reads_back(graph)


def test_large_constants_stand_beside_the_text() -> None:
    big = Constant.of(np.arange(100))
    graph = Graph()
    graph.add_output("y", graph.add_constant(big, "y"))
    beside: list[Constant] = []
    assert "y = int64[100]{#0}" in show(graph, beside)
    assert parse(show(graph), beside).constant_of(Value(0)) is big
    with pytest.raises(ReadError, match=r"<text>:2:16: constant #0 is not given"):
        parse(show(graph))
    with pytest.raises(ReadError, match=r"constant #0 is <int32\[2\]>, not int64\[100\]"):
        parse(show(graph), [Constant.of(np.int32([1, 2]))])


def test_repeated_elements_are_not_stored() -> None:
    graph = parse("c = float32[1000, 1000]{0.5, ...} return c")
    constant = graph.constant_of(graph.outputs[0])
    assert constant is not None
    assert (constant.splat, constant.nbytes) == (np.float32(0.5), 4)
    reads_back(graph)


def test_attributes() -> None:
    attrs = Attrs(
        i=1, f=1.0, s='a "b"\n', b=b"\x00", ints=(1, 2), floats=(0.1, float("inf")), none=(), strings=("a",),
        type=TensorType("float32", (2,)), reference=AttrRef("alpha", 1), types=(TensorType("int8", ()),),
    )  # fmt: skip
    graph = Graph()
    graph.add_output("y", Value(graph.add("Op", (), attrs).id))
    again = reads_back(graph)
    assert again.producer(again.outputs[0]).attrs == attrs


def test_absent_inputs_and_outputs() -> None:
    graph = parse("x: float32[2] y, %5 = Resize(x, _, [1.0]) none = Op@11(x) z1 = Op() return y, _ as z")
    resize = graph.producer(graph.outputs[0])
    assert resize.inputs[1] is None
    assert resize.n_outputs == 2
    assert graph.outputs[1] is None
    reads_back(graph)


@pytest.mark.parametrize(
    "name", ["", "a b", "return", "_", "onnx::Conv_12", "`", "\n", '"); import os #', "\x00", "é", "%0"]
)
def test_any_name_will_do(name: str) -> None:
    graph = Graph(name)
    x = graph.add_input(name, TensorType("float32", ()))
    graph.add_output(name, Value(graph.add("My Op\n", (x,), Attrs({name or "a": 1})).id))
    again = reads_back(graph)
    assert (again.name, again.output_names) == (name, [name])
    assert again.producer(again.outputs[0]).op == "My Op\n"
    assert not name or again.names[again.inputs[0]] == name


def test_regions_are_kept() -> None:
    text = "x: float32[n]\na = Neg(x)\ndataflow {\n    b = Relu(a)\n    c = Abs(b)\n}\nd = Exp(c)\nreturn d, b\n"
    graph = reads_back(parse(text))
    assert show(graph).partition("\n")[2] == text
    assert same(graph, parse(text.replace("dataflow {", "").replace("}", ""))) is None  # it computes the same
    body = parse(
        f"p: bool[]\nz: float32[n]\ny = If(p | z, else_branch={{ {text} }}, then_branch={{ {text} }})\nreturn y"
    )
    assert show(reads_back(body)).count("dataflow {") == 2


@pytest.mark.parametrize("word", ["dataflow", "alloc", "primitive"])
def test_words_of_regions_are_names_elsewhere(word: str) -> None:
    graph = parse(f"{word}: float32[n]\ny = Relu({word})\n`{word}2` = Neg(y)\nreturn y as {word}")
    assert graph.names[reads_back(graph).inputs[0]] == word


def test_calls_that_fill_allocations_are_values() -> None:
    allocated = "x: float32[n]\na: float32[n], b: int64[n] = alloc()\n"
    graph = parse(f"{allocated}none = my::split(x, a, b, k=1)\ny = my::join(b, a)\nreturn y")
    value = parse("x: float32[n]\na: float32[n], b: int64[n] = my::split(x, k=1)\ny = my::join(b, a)\nreturn y")
    assert same(graph, value) is None
    assert show(graph) == show(value)


def test_functions() -> None:
    body = Graph("f", Header(opsets=(("", 18),)))
    body.add_output("y", Value(body.add("Relu", (body.add_input("x"),), Attrs(alpha=AttrRef("alpha", 1))).id))
    graph = Graph()
    graph.functions["local::f", "v"] = Function("local", "f", "v", body, ("alpha",), Attrs(beta=2), (("", 18),))
    x = graph.add_input("x")
    from graphopt.ir.graph import Origin

    graph.add_output("y", Value(graph.add("local::f", (x,), origin=Origin(overload="v")).id))
    again = reads_back(graph)
    function = again.functions["local::f", "v"]
    assert (function.attributes, function.defaults, function.opsets) == (("alpha",), Attrs(beta=2), (("", 18),))
    assert again.producer(again.outputs[0]).origin.overload == "v"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x: float32[2]\ny = Relu(z)\nreturn y", "<text>:2:10: `z` is not there yet"),
        ("x: float32[2]\nx = Relu(x)", "<text>:2:1: `x` is there already"),
        ("x: float33[2]", "<text>:1:4: unknown dtype float33"),
        (
            "x: float32[2]\ny = Relu(x",
            "<text>:2:11: expected `=`, `,`, `(`, `)`, `[` or `|`, found the end of the text",
        ),
        ("x: float32[2]\ny = Relu x", "<text>:2:5: `Relu` stands alone: expected a call"),
        ("y = [1, x]", "<text>:1:6: expected a constant"),
        ("y = int64[2]{1}", "<text>:1:5: a constant of this shape has 2 elements, found 1"),
        ("y = int64[n]{1}", "<text>:1:5: the shape of a constant is made of integers"),
        ('y = float32[1]{"a"}', "<text>:1:5: the elements are not all float32"),
        ("a, b = 1.0", "<text>:1:8: a constant has one name"),
        ("x", "<text>:1:1: `x` is neither computed"),
        ("$", "<text>:1:1: expected a name"),
        ("y = " + "Relu(" * 3000 + "1.0" + ")" * 3000, "<text>: brackets are nested too deep"),
        ('y = float32[1]{hex "00"}', "<text>:1:20: expected the bytes of float32 elements"),
        ("graph g (ir 10, pure)", "<text>:1:17: expected a version, as in `opset 21`, or `primitive`, found `pure`"),
        ("dataflow { dataflow { } }", "<text>:1:12: a dataflow region cannot be opened within another"),
        ("x: float32[2] dataflow { return x }", "<text>:1:33: a dataflow region has calls, constants and allocations"),
        ("t = alloc()", "<text>:1:1: an allocation is `t: dtype[shape] = alloc()`"),
        ("x: float32[2]\nx: float32[2] = alloc()", "<text>:2:1: `x` is there already"),
        ("t: float32[2] = alloc()\ny = Relu(t)", "<text>:2:10: `t` is allocated, and no line above fills it"),
        ("x: float32[2]\nt: float32[2] = alloc()\nnone = a::f(t, x)", "<text>:3:13: what a call fills stands behind"),
        ("t: float32[2] = alloc()\nnone = a::f(t, t)", "<text>:2:16: a call fills an allocation once"),
    ],
)
def test_mistakes_are_found_where_they_are(text: str, message: str) -> None:
    with pytest.raises(ReadError) as error:
        parse(text)
    assert str(error.value).startswith(message)
