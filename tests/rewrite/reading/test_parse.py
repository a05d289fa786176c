import time

import pytest

from graphopt.errors import RuleError
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.rule.notation import show_body, show_rule
from graphopt.rewrite.rule.rule import (
    ABSENT,
    AnyOf,
    CallPattern,
    Computed,
    Each,
    Field,
    FunctionCall,
    GuardExpr,
    IndexExpr,
    Lit,
    Literal,
    NameRef,
    Rule,
    RuleStage,
    Series,
    Soundness,
    Term,
    VarPattern,
    joined,
)
from graphopt.rewrite.rule.rule_digest import content

EXAMPLES = """
# A comment that is no reason: a blank line follows.

# x * relu6(x + 3) / 6 is one op,
# which runtimes keep in the convolution's own layout          [H8] reals
hard-swish:   Div(Mul(x, Clip(Add(x, 3.0), 0.0, 6.0)), 6.0)   =>   HardSwish(x)
    where x.dtype in float

# all products of one input are one product                    [J5] reals
shared-input: MatMul(x, a*)   =>   Split(MatMul(x, Concat(a*, axis=1)), axis=-1, split=[each a.shape[1]])
    where a.is_const and a.rank == 2

# two in a row are one   [E1, E2] exact always for ort, portable
double-transpose: Transpose(Transpose(x, perm=p), perm=q)     =>   Transpose(x, perm=compose(p, q))
"""


def one(text: str) -> Rule:
    (rule,) = parse_rules(text)
    return rule


def test_the_rules_of_the_design() -> None:
    swish, shared, transposes = parse_rules(EXAMPLES, "my.rules")
    x = VarPattern("x")
    clip = CallPattern("Clip", (CallPattern("Add", (x, Literal(3.0))), Literal(0.0), Literal(6.0)))
    assert swish == Rule(
        "hard-swish",
        (CallPattern("Div", (CallPattern("Mul", (x, clip)), Literal(6.0))),),
        (CallPattern("HardSwish", (x,)),),
        (FunctionCall("in", (Field(NameRef("x"), "dtype"), NameRef("float"))),),
        "x * relu6(x + 3) / 6 is one op, which runtimes keep in the convolution's own layout",
        "H8",
        Soundness.REALS,
    )  # fmt: skip
    assert swish.source == "my.rules:6"
    a = VarPattern("a", starred=True)
    split = Computed(Series((Each(IndexExpr(Field(NameRef("a"), "shape"), Lit(1))),)))
    product = CallPattern("MatMul", (x, CallPattern("Concat", (a,), (("axis", Lit(1)),))))
    assert shared.lhs == (CallPattern("MatMul", (x, a)),)
    assert shared.rhs == (CallPattern("Split", (product, split), (("axis", Lit(-1)),)),)
    assert len(shared.where) == 2
    assert (transposes.family, transposes.stage) == ("E1,E2", RuleStage.ALWAYS)
    assert transposes.targets == frozenset({"ort", "portable"})


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("Relu(x)", CallPattern("Relu", (VarPattern("x"),))),
        ("Gemm(x, w, b?)", CallPattern("Gemm", (VarPattern("x"), VarPattern("w"), VarPattern("b", optional=True)))),
        ("Sum(a*)", CallPattern("Sum", (VarPattern("a", starred=True),))),
        ("Resize(x, _, s)", CallPattern("Resize", (VarPattern("x"), ABSENT, VarPattern("s")))),
        ("com.microsoft::Gelu(x)", CallPattern("com.microsoft::Gelu", (VarPattern("x"),))),
        ("f(x)", CallPattern("f", (VarPattern("x"),))),
        ("Split(x)[1]", CallPattern("Split", (VarPattern("x"),), output=1)),
        ("MatMul(x, w) as m", CallPattern("MatMul", (VarPattern("x"), VarPattern("w")), name="m")),
        ("Add(x, -inf)", CallPattern("Add", (VarPattern("x"), Literal(float("-inf"))))),
        ("And(x, true)", CallPattern("And", (VarPattern("x"), Literal(True)))),
        ("Reshape(x, [0, -1,])", CallPattern("Reshape", (VarPattern("x"), Literal((0, -1))))),
        ("Reshape(x, [])", CallPattern("Reshape", (VarPattern("x"), Literal(())))),
        ("Clip(x, max=6.0)", CallPattern("Clip", (VarPattern("x"), ABSENT, Literal(6.0)))),
        ("Squeeze(x, axes=a)", CallPattern("Squeeze", (VarPattern("x"), VarPattern("a")))),
        ("Conv(x, w, **c)", CallPattern("Conv", (VarPattern("x"), VarPattern("w")), rest="c")),
        (
            "Conv(x, w, group=1, **c)",
            CallPattern("Conv", (VarPattern("x"), VarPattern("w")), (("group", Lit(1)),), "c"),
        ),
        (
            "(Relu(x) | (Abs(x)) | Exp(x))",
            AnyOf(tuple(CallPattern(op, (VarPattern("x"),)) for op in ("Relu", "Abs", "Exp"))),
        ),
        ("Relu(\n  x # why\n)", CallPattern("Relu", (VarPattern("x"),))),
    ],
)
def test_terms(text: str, term: Term) -> None:
    assert one(f"# exact\nr: {text} => [1]").lhs == (term,)


P, Q, call = NameRef("p"), NameRef("q"), FunctionCall


@pytest.mark.parametrize(
    ("text", "expr"),
    [
        ("p + q * 2", call("+", (P, call("*", (Q, Lit(2)))))),
        ("p - q - 1", call("-", (call("-", (P, Q)), Lit(1)))),
        ("-p ** 2", call("neg", (call("**", (P, Lit(2))),))),
        ("p ** -q", call("**", (P, call("neg", (Q,))))),
        ("-1", Lit(-1)),
        ("+1.5e3", Lit(1500.0)),
        (".5", Lit(0.5)),
        ("1 < p <= 3", call("and", (call("<", (Lit(1), P)), call("<=", (P, Lit(3)))))),
        ("p not in (1,)", call("not", (call("in", (P, Series((Lit(1),)))),))),
        ("not p == q", call("not", (call("==", (P, Q)),))),
        ("p or q and p or q", call("or", (P, call("and", (Q, P)), Q))),
        ("1 if p else 2 if q else 3", call("if", (P, Lit(1), call("if", (Q, Lit(2), Lit(3)))))),
        ("x.shape[1:][-1]", IndexExpr(IndexExpr(Field(NameRef("x"), "shape"), Lit(1), None, True), Lit(-1))),
        ("x.shape[:]", IndexExpr(Field(NameRef("x"), "shape"), None, None, True)),
        ("'a\"b'", Lit('a"b')),
        ("none", Lit(None)),
        ("min(p, q,)", call("min", (P, Q))),
        ("()", Series(())),
        ("[p]", Series((P,))),
        ("(p)", P),
    ],
)  # fmt: skip
def test_expressions(text: str, expr: GuardExpr) -> None:
    assert joined("and", one(f"# exact\nr: my::F(x, a=p, b=q) => Relu(x) where {text}").where) == expr


def test_literals_are_equal_bit_by_bit() -> None:
    a, b = (one(f"# exact\nr: Add(x, {literal}) => x") for literal in ("1", "1.0"))
    assert a != b
    assert one("# exact\nr: Add(x, 0.0) => x") != one("# exact\nr: Add(x, -0.0) => x")


def test_several_roots() -> None:
    rule = one("# exact\nr: Relu(x), Abs(x) => Abs(x), Relu(x)")
    assert (len(rule.lhs), len(rule.rhs)) == (2, 2)


def test_a_mark_counts_wherever_the_variable_stands() -> None:
    rule = one("# exact\nr: Gemm(x, w, b?) => Gemm(x, w, b)")
    assert rule.lhs == rule.rhs


def test_a_rule_without_family_or_reason() -> None:
    rule = one("# exact always\nr: Relu(x) => Abs(x)")
    assert (rule.reason, rule.family, rule.stage) == ("", "", RuleStage.ALWAYS)
    with pytest.raises(RuleError, match=r"<rules>:2:1: expected a reason"):
        parse_rules("# exact\nr: Relu(x) => Abs(x)", strict=True)
    with pytest.raises(RuleError, match=r"<rules>:3:1: expected a family in brackets"):
        parse_rules("# because\n# exact\nr: Relu(x) => Abs(x)", strict=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("r: Rleu(x) => x", "2:4: unknown op Rleu; did you mean Relu"),
        ("r: Relu(x) => Foo::Bar(y)", "2:24: `y` is not bound on the left; it binds x"),
        ("r: Transpose(x, prem=p) => x", "2:17: Transpose has no attribute prem; did you mean perm?"),
        ("r: Relu(x, alpha=p) => x", "2:12: Relu has no attribute alpha; it has none"),
        ("r: Relu(x, y) => x", "2:4: Relu takes at most 1 input, found 2"),
        ("r: Relu(x)[1] => x", "2:4: Relu has no output 1: it has at most 1"),
        ("r: Relu(x) => Add(x, xs)", "2:22: `xs` is not bound on the left; did you mean x?"),
        ("r: Relu(x) => {axs like x}", "2:16: `axs` is not bound on the left"),
        ("r: Relu(x) => {1 like y}", "2:23: `y` is not bound on the left"),
        ("r: Relu(x) => f(x)", "2:15: the op `f` is not bound on the left"),
        ("r: Relu(x) => Conv(x, x, **c)", "2:15: `**c` is not bound on the left"),
        ("r: Relu(x) => Clip(x, max=y)", "2:15: `y` is not bound on the left"),
        ("r: Relu(x) => x where y.rank == 2", "2:23: `y` is not bound on the left; it binds x"),
        ("r: Relu(x) => x where x.dtype in flaot", "2:34: `flaot` is not bound on the left; did you mean float?"),
        ("r: Relu(x) => x where x.rnak == 2", "2:23: unknown fact .rnak; did you mean .rank?"),
        (
            "r: Relu(x) => x where compse(x.shape) == 2",
            "2:23: unknown function compse; did you mean compose",
        ),
        ("r: Relu(x) => x where compose(x.shape) == 2", "2:23: compose takes 2 arguments, found 1"),
        ("r: Relu(x) => x where near(1.0) == 2", "2:23: near takes 2 to 3 arguments, found 1"),
        ("r: Relu(x) => x where min() == 2", "2:23: min takes at least 1 argument, found 0"),
        ("r: Relu(x) => x where len(each x.rank) == 2", "2:32: `each` needs a starred variable"),
        ("r: Transpose(x, perm=x) => x", "2:4: `x` is bound as an operand and an attribute"),
        ("r: Transpose(x, perm=int) => x", "2:4: `int` is a name that guards use"),
        ("r: Relu(float) => float", "2:9: `float` is a name that guards use"),
        ("r: x => Relu(x)", "2:4: expected an op on the left, `Op(...)`: a variable alone matches every value"),
        ("r: Relu({1}) => x", "2:10: a computed constant can stand on the right only"),
        ("r: Relu(x) => (x | Abs(x))", "2:16: alternatives can stand on the left only"),
        ("r: (Relu(x) | Relu(y)) => Abs(x)", "2:5: `x` is not bound by all alternatives"),
        ("r: Relu(x) => x, x", "2:15: expected as many terms on the right as on the left: 1, found 2"),
        ("r: Relu(where) => x", "2:9: expected a name, found the word 'where'"),
        ("r: Relu(x) => x where len(a.rank, 1 => 2", "2:37: expected `)`, `,` or an operator, found '=>'"),
        ("r: Relu(x) -> x", "2:12: expected `=>`, `,` or `as`, found '-'; the sides of a rule are joined by =>"),
        ("r: Relu(x)\n\nq: Abs(x) => x", "4:1: expected `=>`, found 'q'"),
        ("r: Relu(x => x", "2:11: expected `)`, `=` or `,`, found '=>'"),
        ("r: Transpose(x, perm) => x where perm = 1", "2:39: expected"),
        ("r: => x", "2:4: expected a term, found '=>'"),
        ("Relu(x) => x", "2:1: expected a rule (`name: left => right`), found 'Relu'"),
        ("r: Relu(x) =>", "2:14: expected a term, found the end of the file"),
        ("r: Relu(x) => x where", "2:22: expected an expression, found the end of the file"),
        (
            "r: Relu(x) => x where x.rank = 2",
            "2:30: expected a rule (`name: left => right`) or an operator, found '='; comparisons are written ==",
        ),
        ("r: Relu(x) => x where x.rank == 2 && x.rank == 1", "2:35: expected an operator, found '&'; write `and`"),
        ("r: Relu(x) => x where $", "2:23: expected an expression, found '$'"),
        ("r: Conv(x, w, **a, **b) => x", "2:22: expected one `**` at most"),
        ("r: Conv(x, w, group=1, group=2) => x", "2:24: attribute group is given twice"),
        ("r: Conv(x, group=1, w) => x", "2:21: inputs of Conv come before its attributes"),
        ("r: Clip(x, 1.0, min=2.0) => x", "2:4: input 1 is given twice"),
        ("r: Split(x)[1.5] => x", "2:13: expected the number of an output, found '1.5'"),
        (f"r: Add(x, {'9' * 5000}) => x", "2:11: expected a number, found one of 5000 digits"),
        ("r: Relu(x) => Abs(x)\n# exact\nr: Abs(x) => x", "4:1: the name r is taken by the rule at <rules>:2"),
        (f"r: {'Relu(' * 70}x{')' * 70} => x", "2:4: this is nested more than 64 deep"),
        (f"r: Relu(x) => x where {'1 + ' * 70}1", "2:23: this is nested more than 64 deep"),
        (f"r: {'Relu(' * 5000}x{')' * 5000} => x", " brackets are nested too deep"),
        (f"r: Relu(x) => x where {'abs(' * 5000}x{')' * 5000}", " brackets are nested too deep"),
    ],
)
def test_mistakes_are_found_where_they_are(text: str, message: str) -> None:
    with pytest.raises(RuleError) as error:
        parse_rules(f"# exact\n{text}")
    assert str(error.value).startswith(f"<rules>:{message}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("comment", "message"),
    [
        ("", "1:1: rule r has no soundness class"),
        ("# just words\n", "2:1: rule r has no soundness class"),
        ("# [H8] exact\n\n", "3:1: rule r has no soundness class"),
        ("# words exact\n", "2:1: rule r has no soundness class"),
        ("# [H8] exakt\n", "2:1: rule r has no soundness class"),
        ("# [Z1] exact\n", "2:1: expected a family from A1 to Q16, found 'Z1'"),
        ("# [H8,H17] exact\n", "2:1: expected a family from A1 to Q16, found 'H17'"),
        ("# [H] exact\n", "2:1: expected a family from A1 to Q16, found 'H'"),
    ],
)
def test_headers(comment: str, message: str) -> None:
    with pytest.raises(RuleError) as error:
        parse_rules(f"{comment}r: Relu(x) => x")
    assert str(error.value).startswith(f"<rules>:{message}")


def test_nothing_in_a_rule_file_is_run() -> None:
    with pytest.raises(RuleError, match="unknown function __import__"):
        parse_rules("# exact\nr: Relu(x) => x where __import__('os')")


def test_an_empty_file_has_no_rules() -> None:
    assert parse_rules("") == parse_rules("# only words\n\n") == []


def test_reading_is_quick() -> None:
    text = "\n".join(
        EXAMPLES.replace("hard-", f"h{i}").replace("shared-", f"s{i}").replace("double-", f"d{i}") for i in range(84)
    )
    parse_rules(EXAMPLES)
    start = time.process_time()
    assert len(parse_rules(text)) == 252
    assert time.process_time() - start < 1  # about 0.12 s here


def test_guards_that_say_where_a_rule_pays_are_marked() -> None:
    """They count like others, in their order, and are no part of what the rule claims."""
    text = "# why [A1] exact\nr: Add(x, y) => Add(y, x) where x.rank < 3 and {} and x.size == 1"
    (marked,) = parse_rules(text.format("pays(y.is_const or x.rank == 2)"))
    (plain,) = parse_rules(text.format("(y.is_const or x.rank == 2)"))
    assert marked.where == plain.where
    assert marked.pays == (plain.where[1],)
    assert not plain.pays
    assert show_body(marked)[2] == "x.rank < 3 and pays(y.is_const or x.rank == 2) and x.size == 1"
    assert parse_rules(show_rule(marked)) == [marked]
    assert content(marked) == content(plain)


def test_only_whole_guards_say_where_a_rule_pays() -> None:
    with pytest.raises(RuleError, match=r"pays\(...\) goes around one whole guard"):
        parse_rules("# why [A1] exact\nr: Add(x, y) => Add(y, x) where not pays(y.is_const)")
