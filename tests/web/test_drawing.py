"""What a picture tells of each node."""

from __future__ import annotations

from graphopt.ir.text import parse
from graphopt.web.drawing import draw
from tests.web.models import modules

TEXT = """
    x: float32[n, 4]
    w = float32[4, 3]{1.0, ...}
    a = Gemm(x, w, alpha=0.5)
    b = Transpose(a, perm=[1, 0])
    return b
"""


def test_boxes_tell_ops_types_attributes_and_operands() -> None:
    drawing = draw(parse(TEXT))
    x, gemm, transpose = drawing.boxes
    assert [b.op for b in drawing.boxes] == ["Input", "Gemm", "Transpose"]
    assert x.makes[0].type == "float32[n, 4]"
    assert gemm.attrs == "alpha=0.5"
    assert [(r.name, r.box) for r in gemm.reads if r] == [("x", 0), ("w", None)]
    assert gemm.makes[0].type == "float32[n, 3]"
    assert (transpose.is_output, gemm.is_output) == (True, False)
    assert transpose.attrs == ""  # what holds without them
    assert [(a, b) for a, b, _ in drawing.wires] == [(0, 1), (1, 2)]


def test_long_attributes_are_cut_and_bodies_left_out() -> None:
    made = parse(TEXT)
    (node,) = (n for n in made.nodes() if n.op == "Transpose")
    made.update(node.id, op="my::Op", attrs=node.attrs.with_(values=tuple(range(1000)), body=parse(TEXT)))
    box = draw(made).boxes[-1]
    assert "body={…}" in box.attrs
    assert len(box.attrs) < 400


def test_boxes_tell_the_modules_that_they_come_from_and_their_price() -> None:
    drawing = draw(modules(), price=lambda node, facts: float(len(node.inputs)))
    names = [(scope.name, scope.within) for scope in drawing.scopes]
    assert names == [("net", None), ("act", 0), ("layers.0", 0), ("linear", 2)]
    of_boxes = {b.name: (b.scope, b.seconds) for b in drawing.boxes}
    assert of_boxes["/net/act/Relu"] == (1, 1.0)
    assert of_boxes["/net/layers.0/linear/MatMul"] == (3, 2.0)
    assert of_boxes["/net/layers.0/Sigmoid"] == (2, 1.0)
    assert of_boxes["x"] == (None, None)
    assert all(box.scope is None and box.seconds is None for box in draw(parse(TEXT)).boxes)
