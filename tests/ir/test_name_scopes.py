"""The modules that nodes come from, by what exporters write."""

from __future__ import annotations

import pytest

from graphopt.ir.graph import Node, Origin
from graphopt.ir.name_scopes import DEEPEST, NAMESPACE, SCOPES, grouped, name_scopes, own_name
from graphopt.rewrite.match.journal import SIGNATURE


def scopes(name: str = "", **metadata: str) -> tuple[str, ...]:
    named = {"scopes": SCOPES, "namespace": NAMESPACE, "signature": SIGNATURE}
    pairs = tuple((named[key], text) for key, text in metadata.items())
    return name_scopes(Node(1, "Relu", (), origin=Origin(name=name, metadata=pairs)))


BERT = ("model", "model.encoder", "model.encoder.layer.0")


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (scopes(), ()),
        (scopes("Relu_1"), ()),
        (scopes("/Relu"), ()),
        (scopes("/model/encoder/layer.0/Relu"), BERT),
        (scopes("model/encoder/layer.0/Relu"), BERT),
        (scopes("/a/Relu", scopes="['', 'model', 'model.encoder', 'model.encoder.layer.0', 'linear_1']"), BERT),
        (scopes("/a/Relu", scopes="['', 'model', 'model', 'relu']"), ("model",)),
        (scopes("/a/Relu", scopes="['relu']"), ()),
        (scopes("/a/Relu", scopes="['_empty_nn_module_stack_from_metadata_hook', 'sym_size']"), ()),
        (scopes(namespace=": m.Net/model: m.Bert/model.encoder: m.Encoder/relu: aten.relu.default"), BERT[:2]),
        (scopes(scopes="['', 'model', 'relu']", namespace="other/relu"), ("model",)),
        (scopes(scopes="__import__('os').getcwd()"), ()),
        (scopes(scopes="7"), ()),
        (scopes(scopes="[" * 10000), ()),
        (scopes(scopes="[1, None, 'relu']"), ("1", "None")),
        (scopes(signature="relu-relu #1"), ()),
    ],
)
def test_scopes_are_read_of_metadata_or_else_of_names(found: tuple[str, ...], wanted: tuple[str, ...]) -> None:
    assert found == wanted


def test_a_path_of_any_length_ends() -> None:
    assert len(scopes("/".join(map(str, range(1000))))) == DEEPEST


def test_the_name_within_what_is_around() -> None:
    assert own_name(BERT) == "layer.0"
    assert own_name(("model",)) == "model"
    assert own_name(("model", "other")) == "other"


def test_items_are_grouped_where_a_scope_comes_up_first() -> None:
    items = [BERT, (), BERT[:1], ("head",), BERT, BERT[:2]]
    assert list(grouped(items)) == [
        ((), [1]),
        (("model",), [2]),
        (BERT[:2], [5]),
        (BERT, [0, 4]),
        (("head",), [3]),
    ]
    assert list(grouped([])) == [((), [])]
