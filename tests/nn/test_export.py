"""A module becomes a graph that is compiled, optimized, saved and read as any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import graphopt
from graphopt import nn
from graphopt.errors import InvalidModelError, UsageError
from graphopt.ir import evaluate
from graphopt.lowering.loops import compute as te
from graphopt.lowering.loops.compute import Tensor
from tests.nn.test_layers import Of, alike, floats, run


class Net(nn.Module):
    """Images to classes."""

    def __init__(self) -> None:
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.head = nn.Linear(8, 4)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return nn.softmax(self.head(self.features(x).mean((2, 3))))


IMAGE = {"x": "float32[n, 3, 8, 8]"}
X = floats(2, 3, 8, 8)


def test_a_small_network_is_compiled_and_optimized_and_saved(tmp_path: Path) -> None:
    module = nn.export(Net().initialize(), IMAGE)
    wanted = evaluate.run(module.graph(), {"x": X})["y"]
    assert alike(wanted, graphopt.compile(module)(X)["y"])
    optimized = graphopt.optimize(module, verify="off")
    assert isinstance(optimized, graphopt.Graph)
    assert alike(wanted, evaluate.run(optimized, {"x": X})["y"])
    assert "BatchNormalization" not in {node.op for node in optimized.nodes()}
    graphopt.save(module.graph(), tmp_path / "net.onnx")
    model = onnx.load(tmp_path / "net.onnx")
    onnx.checker.check_model(model, full_check=True)
    names = {i.name for i in model.graph.initializer}
    assert {"features.0.weight", "features.1.running_mean", "head.bias"} <= names
    assert [n.name for n in model.graph.node][:2] == ["features.0.Conv", "features.1.BatchNormalization"]


def test_several_methods_are_exported_by_name_and_share_parameters(tmp_path: Path) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            self.layer = nn.Linear(64, 64)

        def prefill(self, x: nn.Tensor) -> nn.Tensor:
            return nn.relu(self.layer(x))

        def decode(self, x: nn.Tensor) -> dict[str, nn.Tensor]:
            return {"scores": self.layer(x)}

    two = Two().initialize()
    module = nn.export(two, {"prefill": {"x": "float32[n, 64]"}, "decode": {"x": "float32[1, 64]"}})
    assert module.entries == ("prefill", "decode")
    assert [graph.names[v] for _, graph in module.graphs() for v in graph.inputs] == ["x", "x"]
    x, state = floats(3, 64), two.state_dict()
    want = x @ state["layer.weight"].T + state["layer.bias"]
    model = graphopt.compile(module, entries=["prefill", "decode"])
    assert np.allclose(model["prefill"](x)["y"], np.maximum(want, 0), atol=1e-5)
    assert np.allclose(model["decode"](x[:1])["scores"], want[:1], atol=1e-5)


def test_a_function_is_exported_as_a_module_is() -> None:
    module = nn.export(lambda x, y: {"sum": x + y}, {"x": "float32[n]", "y": "float32[n]"})
    x = floats(4)
    assert np.array_equal(evaluate.run(module.graph(), {"x": x, "y": x})["sum"], x + x)


def test_parameters_may_be_inputs() -> None:
    net = Net()
    module = nn.export(net, IMAGE, parameters="inputs")
    graph = module.graph()
    assert [graph.names[v] for v in graph.inputs] == ["x", *(name for name, _ in net.named_parameters())]
    state = net.initialize().state_dict()
    found = evaluate.run(graph, {"x": X, **state})["y"]
    assert alike(evaluate.run(nn.export(net, IMAGE).graph(), {"x": X})["y"], found)


def test_the_same_module_gives_the_same_graph() -> None:
    net = Net().initialize()
    assert nn.export(net, IMAGE) == nn.export(net, IMAGE)
    assert nn.export(net, IMAGE).script() == nn.export(net, IMAGE).script()


def test_types_are_text_or_types() -> None:
    type = graphopt.TensorType("float32", (2, 3))
    for given in (type, str(type), "float32[2, 3]"):
        assert nn.export(nn.ReLU(), {"x": given}).script() == (
            "graph main (ir 10, opset 23)\nx: float32[2, 3]\n%0: float32[2, 3] = Relu(x)\nreturn %0 as y\n"
        )


def test_outputs_are_named() -> None:
    x = floats(2)
    assert list(run(Of(lambda x: (x + 1, x)), x)) == ["y0", "y1"]
    assert list(run(Of(lambda x: {"b": x, "a": x + 1}), x)) == ["b", "a"]


def test_programs_and_functions_of_the_users_own_go_along() -> None:
    def halves(x: Tensor) -> Tensor:
        return te.compute(x.shape, lambda *i: x[i] * 0.5)

    def double(x: Any, out: Any) -> None:
        np.multiply(x, 2, out=out)

    graphopt.register("nn_test.double", double)

    class Mixed(nn.Module):
        def __init__(self) -> None:
            self.linear = nn.Linear(4, 4)

        def forward(self, x: nn.Tensor) -> nn.Tensor:
            h = nn.emit_compute(halves, [self.linear(x)])
            return nn.call("nn_test.double", [h], out_shape=h.shape) + nn.emit("Selu", [x], {"gamma": 1.0})

    module = nn.export(Mixed().initialize(), {"x": "float32[n, 4]"})
    assert list(module) == ["halves", "nn_test.double", "main"]
    beside: list[Any] = []
    again = graphopt.Module.read(module.script(beside), beside)
    assert again == module
    x = floats(3, 4)
    wanted = graphopt.compile(module)(x)["y"]
    assert np.array_equal(wanted, graphopt.compile(again)(x)["y"])
    plain = Of(lambda x: nn.emit("Selu", [x], {"gamma": 1.0}))
    dense = nn.Sequential(nn.Linear(4, 4))
    dense.load_state_dict({"0.weight": Mixed().initialize().state_dict()["linear.weight"]}, strict=False)
    dense.load_state_dict({"0.bias": Mixed().initialize().state_dict()["linear.bias"]}, strict=False)
    assert alike(run(dense, x)["y"] + run(plain, x)["y"], wanted)


@pytest.mark.parametrize(
    ("module", "type", "said"),
    [
        (nn.Linear(4, 3), "float32[n, 5]", "node 'Gemm': .* the sizes summed over must agree, not be 5 and 4"),
        (nn.BatchNorm2d(3), "float32[1, 4, 8, 8]", "channels and what there is for each of them must agree"),
        (nn.GroupNorm(3, 6), "float32[1, 4, 8]", "channels and what there is for each of them must agree"),
        (nn.LayerNorm(3), "float32[1, 4]", r"shapes \[1, 4\] and \[3\] do not broadcast"),
        (nn.RMSNorm(3), "float32[1, 1]", r"\[3\] does not broadcast to \[1, 1\]"),
        (nn.Softmax(5), "float32[4, 8]", "axis 5 is out of range for rank 2"),
        (nn.Attention(8, 2), "float32[4, 8]", "queries, keys and values have 3 or 4 axes, not 2"),
    ],
)
def test_shapes_that_do_not_fit_a_layer_are_refused(module: nn.Module, type: str, said: str) -> None:
    with pytest.raises(InvalidModelError, match=said) as caught:
        nn.export(module.initialize(), {"x": type})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("module", "inputs", "options", "said"),
    [
        (nn.Linear(3, 4), {"x": "float32[2, 3]"}, {}, r"Parameter\(float32\[4, 3\]\) has no elements: load_state_dict"),
        (nn.ReLU(), {"x": "float32[n"}, {}, r"the type of 'x' is written like 'float32\[n, 64\]', not 'float32\[n'"),
        (nn.ReLU(), {"x": "float32[*]"}, {}, "the type of 'x' is a dtype and a shape"),
        (nn.ReLU(), {"x": "float32[2]\ny: float32[2]"}, {}, "the type of 'x' is a dtype and a shape"),
        (nn.ReLU(), {"x": "floaty[2]"}, {}, "unknown dtype floaty"),
        (nn.ReLU(), {"y": "float32[2]"}, {}, "there is an input 'y' already"),
        (nn.ReLU(), {"x": "float32[2]"}, {"parameters": "weights"}, "'constants' or 'inputs', not 'weights'"),
        (Of(lambda x: None), {"x": "float32[2]"}, {}, "Of.forward gives a tensor, several, or a dict"),
        (nn.Attention(4, 2).initialize(), {"x": "float32[1, 2, 4]"}, {"opset": 17}, "Attention"),
        (nn.GELU(), {"x": "float32[2]"}, {"opset": 17}, "Gelu"),
        (nn.GELU(), {"x": "float32[2]"}, {"opset": 99}, "the opset is a number from 1 to "),
        (nn.ReLU(), {}, {}, r"ReLU.forward\(x\) is given no inputs: missing a required argument: 'x'"),
        (nn.ReLU(), dict.fromkeys("xz", "float32[2]"), {}, r"ReLU.forward\(x\) is given x, z: too many"),
        (3, {"x": "float32[2]"}, {}, "a module, or a function of tensors, is exported, not 3"),
        (nn.ReLU, {"x": "float32[2]"}, {}, "a module, or a function of tensors, is exported, not <class"),
        (nn.relu, {"a": "float32[2]", "b": "float32[2]"}, {}, r"relu\(x\) is given a, b: too many positional"),
        (nn.ReLU(), {"decode": {"x": "float32[2]"}}, {}, "ReLU has no method 'decode' to export"),
        (nn.ReLU(), ["float32[2]"], {}, r"types of inputs are given by name, as in .*, not as \["),
    ],
)
def test_what_makes_no_sense_is_refused(module: Any, inputs: Any, options: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        nn.export(module, inputs, **options)
    assert "\n" not in str(caught.value)
