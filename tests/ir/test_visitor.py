import pytest

from graphopt.errors import UsageError
from graphopt.ir.graph import Node
from graphopt.ir.text import parse
from graphopt.ir.visitor import Visitor

CHAIN = """
x: float32[n]
y = Relu(Neg(x))
return y
"""


class Names(Visitor[str]):
    def visit_Relu(self, node: Node) -> str:
        return f"relu of {self.results[node.inputs[0].node]}"

    def visit_unary(self, node: Node) -> str:
        return "a unary"

    def visit_source(self, node: Node) -> str:
        return "a source"


def test_a_method_for_the_op_goes_before_one_for_its_kind() -> None:
    assert list(Names().visit(parse(CHAIN)).values()) == ["a source", "a unary", "relu of a unary"]


def test_ops_of_other_domains_have_the_domain_in_the_method() -> None:
    class Gelus(Names):
        def visit_com_microsoft_Gelu(self, node: Node) -> str:
            return "microsoft's"

    found = Gelus().visit(parse("x: float32[2] y = com.microsoft::Gelu(x) return y"))
    assert list(found.values()) == ["a source", "microsoft's"]


def test_what_a_visitor_cannot_handle_is_named() -> None:
    with pytest.raises(
        NotImplementedError, match=r"Names has neither visit_MatMul nor visit_product, which node 1 \(Ma"
    ):
        Names().visit(parse("x: float32[2, 2] y = MatMul(x, x) return y"))


def test_a_visitor_goes_into_bodies_when_asked() -> None:
    class Inside(Names):
        def visit_If(self, node: Node) -> str:
            return " ".join(self.inside(node.bodies["then_branch"]).values())

    graph = parse("c: bool[] x: float32[2] y = If(c | x, then_branch={a: ? b = Neg(a) return b}) return y")
    assert list(Inside().visit(graph).values())[-1] == "a source a unary"


def test_methods_that_no_op_goes_to_are_named() -> None:
    class Misspelt(Names):
        def visit_Rleu(self, node: Node) -> str:
            return ""

    class OfKind(Names):
        def visit_unry(self, node: Node) -> str:
            return ""

    for visitor, said in (
        (Misspelt, "Misspelt.visit_Rleu; did you mean visit_Relu"),
        (OfKind, "did you mean visit_un"),
    ):
        with pytest.raises(UsageError, match=f"no op goes to .*{said}"):
            visitor().visit(parse(CHAIN))


def test_methods_for_ops_of_others_are_none_of_them() -> None:
    class Others(Names):
        def visit_my_Relu(self, node: Node) -> str:
            return ""

        def visit_Input(self, node: Node) -> str:
            return "an input"

    assert list(Others().visit(parse(CHAIN)).values()) == ["an input", "a unary", "relu of a unary"]
