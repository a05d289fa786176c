import pytest

from graphopt import ops as public_ops
from graphopt.errors import RuleError
from graphopt.ops import Add, Cast, Clip, Concat, Conv, Div, Gemm, MatMul, Mul, Relu, Reshape, Split, Transpose, compose
from graphopt.rewrite.reading.decorator import (
    Many,
    Maybe,
    any_of,
    choose,
    computed,
    each,
    fn,
    ops,
    opset,
    roots,
    rule,
)
from graphopt.rewrite.reading.parse import format_rule, parse_rules
from graphopt.rewrite.rule.notation import show_body
from graphopt.rewrite.rule.rule import Rule


def of(function, **more) -> Rule:
    return rule(**{"exact": True, **more})(function)


def bias_into_gemm(x, w, b):
    """A bias add runs in the product's epilogue."""
    return Add(MatMul(x, w), b).becomes(Gemm(x, w, b), when=(x.rank == 2) & (w.rank == 2) & (b.shape == (w.shape[1],)))


def hard_swish(x):
    """It is one op,

    in a layout.
    """
    return Div(Mul(x, Clip(Add(x, 3.0), 0.0, 6.0)), 6.0).becomes(ops.HardSwish(x), when=x.dtype.in_("float"))


def shared_input(x, a: Many):
    product = MatMul(x, Concat(a, axis=1))
    return MatMul(x, a).becomes(Split(product, axis=-1, split=[a.shape[1].each]), when=a.is_const & (a.rank == 2))


def double_transpose(x, p, q):
    return Transpose(Transpose(x, perm=p), perm=q).becomes(Transpose(x, perm=compose(p, q)))


def optional(x, w, b: Maybe, c):
    return Relu(Conv(x, w, b, **c)).becomes(ops["com.microsoft::FusedConv"](x, w, b, activation="Relu", **c))


def quoted(x, w, b: "Maybe"):
    return Relu(Gemm(x, w, b)).becomes(Gemm(x, w, b), when=(b == None) | b.is_const)  # noqa: E711


def op_variable(f, x, p):
    return f(Transpose(x, perm=p)).becomes(Transpose(f(x), perm=p), when=f.in_("unary") & f.not_in(["Cast", "Not"]))


def alternatives(x):
    return (Relu(x) | ops.Abs(x) | ops.Exp(x)).becomes(Relu(x))


def alternatives_of_anything(x):
    return Relu(any_of(x, Relu(x))).becomes(Relu(x))


def named(x, w):
    m = MatMul(x, w).named("m")
    return Relu(m).becomes(Relu(Relu(m)), when=m.rank == 2)


def outputs(x):
    return Relu(Split(x, num_outputs=2)[1]).becomes(Split(Relu(x), num_outputs=2)[1])


def several(x, a, b):
    return roots(MatMul(x, a), MatMul(x, b)).becomes(MatMul(x, a), MatMul(x, b), when=[a.shape] == b.shape)


def absent(x, s):
    return ops.Resize(x, None, s).becomes(Clip(x, None, 6.0))


def by_name(x):
    return Clip(x, max=6.0).becomes(Clip(x, max=x.high, min=computed(1, like=x)))


def computed_shapes(x, s):
    return Reshape(Reshape(x, s), [0, -1]).becomes(Reshape(x, (x.shape[0], -1)), when=fn.known(x.shape))


def arithmetic(x, p, q):
    number = -p * 2 + q // 3 - 1 / q % 2 + 2**q - 3 + (1 - p) + (4 // p) + (5 % q) + (2 * p) ** 2
    return ops["my::Op"](x, a=p, b=q).becomes(Relu(x), when=number < 4)


def comparisons(x, p, q):
    guard = (p < 1) & (p <= 2) & (p > 3) & ((p >= q) | ~(q != 4)) & (opset >= 13)
    return ops["my::Op"](x, a=p, b=q).becomes(Relu(x), when=guard)


def items(x, p):
    return Transpose(x, perm=p).becomes(Relu(x), when=(p[0] == p[1:][:2]) & (choose(p[0] == 1, x.rank, None) == True))  # noqa: E712


def of_each(x, a: Many):
    return Concat(Relu(a), axis=1).becomes(Relu(Concat(a, axis=1)), when=(each(a.rank) == (2, 3)) & (a[0].rank == 2))


def casts(x):
    return Cast(x, to=1).becomes(x, when=x.dtype == "float32")


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (
            bias_into_gemm,
            "# A bias add runs in the product's epilogue.\n# exact\n"
            "bias-into-gemm: Add(MatMul(x, w), b) => Gemm(x, w, b)"
            " where x.rank == 2 and w.rank == 2 and b.shape == (w.shape[1],)",
        ),
        (
            hard_swish,
            "# It is one op, in a layout.\n# exact\nhard-swish: Div(Mul(x, Clip(Add(x, 3.0), 0.0, 6.0)), 6.0)"
            " => HardSwish(x) where x.dtype in float",
        ),
        (
            shared_input,
            "# exact\nshared-input: MatMul(x, a*) => Split(MatMul(x, Concat(a*, axis=1)), axis=-1,"
            " split=[each a.shape[1]]) where a.is_const and a.rank == 2",
        ),
        (
            double_transpose,
            "# exact\ndouble-transpose: Transpose(Transpose(x, perm=p), perm=q) => Transpose(x, perm=compose(p, q))",
        ),
        (
            optional,
            "# exact\noptional: Relu(Conv(x, w, b?, **c)) =>"
            ' com.microsoft::FusedConv(x, w, b, activation="Relu", **c)',
        ),
        (quoted, "# exact\nquoted: Relu(Gemm(x, w, b?)) => Gemm(x, w, b) where b == none or b.is_const"),
        (
            op_variable,
            "# exact\nop-variable: f(Transpose(x, perm=p)) => Transpose(f(x), perm=p)"
            ' where f in unary and f not in ("Cast", "Not")',
        ),
        (alternatives, "# exact\nalternatives: (Relu(x) | Abs(x) | Exp(x)) => Relu(x)"),
        (alternatives_of_anything, "# exact\nalternatives-of-anything: Relu((x | Relu(x))) => Relu(x)"),
        (named, "# exact\nnamed: Relu(MatMul(x, w) as m) => Relu(Relu(m)) where m.rank == 2"),
        (outputs, "# exact\noutputs: Relu(Split(x, num_outputs=2)[1]) => Split(Relu(x), num_outputs=2)[1]"),
        (
            several,
            "# exact\nseveral: MatMul(x, a), MatMul(x, b) => MatMul(x, a), MatMul(x, b) where b.shape == (a.shape,)",
        ),
        (absent, "# exact\nabsent: Resize(x, _, s) => Clip(x, _, 6.0)"),
        (by_name, "# exact\nby-name: Clip(x, _, 6.0) => Clip(x, {1 like x}, {x.high})"),
        (
            computed_shapes,
            "# exact\ncomputed-shapes: Reshape(Reshape(x, s), [0, -1]) => Reshape(x, {(x.shape[0], -1)})"
            " where known(x.shape)",
        ),
        (
            arithmetic,
            "# exact\narithmetic: my::Op(x, a=p, b=q) => Relu(x) where -p * 2 + q // 3 - 1 / q % 2 + 2 ** q - 3"
            " + (1 - p) + 4 // p + 5 % q + (2 * p) ** 2 < 4",
        ),
        (
            comparisons,
            "# exact\ncomparisons: my::Op(x, a=p, b=q) => Relu(x)"
            " where p < 1 and p <= 2 and p > 3 and (p >= q or not q != 4) and opset >= 13",
        ),
        (
            items,
            "# exact\nitems: Transpose(x, perm=p) => Relu(x)"
            " where p[0] == p[1:][:2] and (x.rank if p[0] == 1 else none) == true",
        ),
        (
            of_each,
            "# exact\nof-each: Concat(Relu(a*), axis=1) => Relu(Concat(a*, axis=1))"
            " where (each a.rank) == (2, 3) and a[0].rank == 2",
        ),
        (casts, '# exact\ncasts: Cast(x, to=1) => x where x.dtype == "float32"'),
    ],
)  # fmt: skip
def test_python_and_rule_files_make_the_same_values(function, text: str) -> None:
    made = of(function)
    assert parse_rules(text) == [made]
    assert parse_rules(format_rule(made)) == [made]


def test_what_the_decorator_says() -> None:
    @rule(family="J1, K2", reals=True, always=True, targets=["ort"], name="mine")
    def function(x):
        """Because."""
        return Relu(x).becomes(ops.Abs(x))

    assert parse_rules("# Because. [J1,K2] reals always for ort\nmine: Relu(x) => Abs(x)") == [function]
    assert function.source.startswith("test_decorator.py:")


def wrong(function, **more) -> str:
    with pytest.raises(RuleError) as error:
        of(function, **more)
    return str(error.value)


def test_mistakes() -> None:
    def unknown_op(x):
        return ops.Rleu(x).becomes(x)

    def unbound(x):
        return Relu(x).becomes(Relu(x), when=opset == fn.compose(x.shape))

    def no_rewrite(x):
        return Relu(x)

    def no_name(x):
        return Relu(MatMul(x, x)).becomes(x, when=MatMul(x, x).rank == 2)

    def no_term(x):
        return Relu(x).becomes("x")

    def no_expression(x):
        return Relu(x).becomes(x, when=x.rank == object())

    def twice(x):
        return Clip(x, 1.0, min=2.0).becomes(x)

    assert "input 1 is given twice" in wrong(twice)
    assert "unknown-op: unknown op Rleu; did you mean Relu" in wrong(unknown_op)
    assert "compose takes 2 arguments, found 1" in wrong(unbound)
    assert "no-rewrite: expected `return left.becomes(right)`, found Op" in wrong(no_rewrite)
    assert "MatMul(x, x): a term must have a name to ask for its .rank" in wrong(no_name)
    assert "expected a term, found 'x'" in wrong(no_term)
    assert "expected an expression, found <object" in wrong(no_expression)
    assert "casts: expected one soundness class" in wrong(casts, reals=True)
    assert "casts: expected one soundness class" in wrong(casts, exact=False)


def test_python_words_that_cannot_be_caught_are_refused() -> None:
    def truth(x):
        return Relu(x).becomes(x, when=x.rank == 2 and x.rank == 3)

    def chained(x):
        return Relu(x).becomes(x, when=1 < x.rank < 3)

    def unpacked(x):
        a, _ = Split(x)
        return Relu(a).becomes(x)

    def iterated(x):
        return Relu(x).becomes(x, when=list(x.shape))

    for function in (truth, chained, unpacked, iterated):
        with pytest.raises(TypeError):
            of(function)


def test_names_that_do_not_exist() -> None:
    with pytest.raises(AttributeError, match="unknown function compse; did you mean compose"):
        fn.compse  # noqa: B018
    with pytest.raises(AttributeError, match="no op is called relu"):
        ops.relu  # noqa: B018
    with pytest.raises(AttributeError):
        public_ops._private  # noqa: B018


def test_guards_that_say_where_a_rule_pays_are_marked() -> None:
    @rule(family="A1", exact=True)
    def swapped(x, y):  # type: ignore[no-untyped-def]
        """Why."""
        return Add(x, y).becomes(Add(y, x), when=(x.rank < 3) & fn.pays(y.is_const))

    assert show_body(swapped)[2] == "x.rank < 3 and pays(y.is_const)"
