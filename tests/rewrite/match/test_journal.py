"""What nodes of a result say of the rewrite that made them, as Netron shows it, and results that do not say it."""

import onnx
from onnx import parser

from graphopt.ir.graph import Origin
from graphopt.ir.onnx_io import load, to_proto
from graphopt.optimize import optimize
from graphopt.rewrite.match.journal import SIGNATURE, unsigned

MODEL = """
<ir_version: 10, opset_import: ["" : 18]>
g (bool c, float[2,3] x) => (float[2,3] y) <float[3] w = {1, 2, 3}>
{
  a = Transpose <perm = [1, 0]> (x)
  b = Transpose <perm = [1, 0]> (a)
  d = Mul(b, w)
  y = If (c) <
    then_branch = t () => (float[2,3] u) {
      e = Transpose <perm=[1, 0]> (d)
      f = Relu(e)
      u = Transpose <perm=[1, 0]> (f)
    },
    else_branch = s () => (float[2,3] v) { v = Neg(d) }
  >
}"""


def signatures(graph: onnx.GraphProto) -> list[str]:
    """What the nodes of a graph and of its bodies carry."""
    found = [p.value for node in graph.node for p in node.metadata_props if p.key == SIGNATURE]
    bodies = [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
    return found + [s for body in bodies for s in signatures(body)]


def test_nodes_say_which_rewrite_made_them_unless_they_are_told_not_to() -> None:
    proto = parser.parse_model(MODEL)
    for node in proto.graph.node:
        node.metadata_props.add(key="mine", value=node.op_type)
    result, report = optimize(proto, return_report=True)
    names = {f"{r.rule} #{r.id}" for r in report.rewrites}
    assert signatures(result.graph)
    assert set(signatures(result.graph)) <= names
    assert result.SerializeToString() == optimize(proto).SerializeToString()
    plain = optimize(proto, signed=False)
    assert not signatures(plain.graph)
    assert [n.op_type for n in plain.graph.node] == [n.op_type for n in result.graph.node]
    assert all(p.key == "mine" for n in plain.graph.node for p in n.metadata_props)


def test_a_graph_without_signatures_is_itself() -> None:
    graph = load(parser.parse_model(MODEL))
    assert unsigned(graph) is graph


LAYERS = """
<ir_version: 10, opset_import: ["" : 18]>
g (float[4,8] x) => (float[4,8] y) <float[8,8] w = {WEIGHTS}, float[8] b = {1, 2, 3, 4, 5, 6, 7, 8}>
{
  p = MatMul (x, w)
  q = Add (p, b)
  y = Softmax (q)
}"""


def test_new_nodes_have_the_name_and_metadata_of_what_they_were_made_from() -> None:
    """The name is that of the node that made the value; what only the others' metadata say is kept as well."""
    proto = parser.parse_model(LAYERS.replace("WEIGHTS", ", ".join(str(i % 7) for i in range(64))))
    for name, node in zip("pqr", proto.graph.node, strict=True):
        node.name = f"/net/{name}"
        node.metadata_props.add(key="scope", value=f"net.{name}")
        node.metadata_props.add(key=f"only {name}", value="1")
    gemm, softmax = optimize(proto, only="matmul-bias", verify="off").graph.node
    assert (gemm.op_type, gemm.name, softmax.name) == ("Gemm", "/net/q", "/net/r")
    metadata = {p.key: p.value for p in gemm.metadata_props if p.key != SIGNATURE}
    assert metadata == {"scope": "net.q", "only q": "1", "only p": "1"}


def test_new_nodes_without_a_name_to_take_have_that_of_their_value_and_no_two_one() -> None:
    graph = load(parser.parse_model(MODEL))
    nodes = [node for node in graph.nodes() if node.op == "Transpose"]
    graph.update(nodes[0].id, origin=Origin(name="t"))
    graph.update(nodes[1].id, origin=Origin(name="t"))
    (mul,) = [node for node in graph.nodes() if node.op == "Mul"]
    graph.update(mul.id, origin=Origin())
    names = {node.output[0]: node.name for node in to_proto(graph).graph.node}
    assert names == {"a": "t", "b": "t_1", "d": "d", "y": ""}
