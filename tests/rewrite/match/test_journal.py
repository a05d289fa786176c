"""What nodes of a result say of the rewrite that made them, as Netron shows it, and results that do not say it."""

import onnx
from onnx import parser

from graphopt.ir.onnx_io import load
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
