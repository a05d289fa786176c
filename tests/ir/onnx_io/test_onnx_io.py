from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir
import pytest
from onnx import ModelProto, helper

from graphopt.errors import InvalidModelError, LimitError, ReadError
from graphopt.ir import onnx_io
from graphopt.ir.constants import Constant
from graphopt.ir.graph import Attrs, Graph
from graphopt.ir.onnx_io import load, load_function, save, to_bytes, to_ir, to_proto
from graphopt.ir.onnx_io.wire import encode
from graphopt.ir.structure import same
from graphopt.saving import is_named_by_content
from tests.ir.onnx_io.model_zoo import ZOO, model, plain, tensor
from tests.onnx_suite import suite

LIGHT = sorted(Path(onnx.__file__).parent.glob("backend/test/data/light/*.onnx"))


# -- nothing is lost


@pytest.mark.parametrize("build", ZOO.values(), ids=ZOO)
def test_a_model_comes_back_as_it_was(build: Callable[[], ModelProto], tmp_path: Path) -> None:
    proto = build()
    before = proto.SerializeToString(deterministic=True)
    (tmp_path / "in.onnx").write_bytes(before)
    for source in (proto, before, tmp_path / "in.onnx", str(tmp_path / "in.onnx")):
        assert to_proto(load(source)) == proto
    assert proto.SerializeToString(deterministic=True) == before
    save(load(proto), tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["in.onnx", "out.onnx"]


@pytest.mark.parametrize("path", LIGHT, ids=[p.stem for p in LIGHT])
def test_light_models_come_back_as_they_were(path: Path) -> None:
    graph = load(path)
    assert to_proto(graph) == onnx.load(path)
    assert same(graph, load(path)) is None


@pytest.mark.parametrize("kind", ["simple", "pytorch-converted", "pytorch-operator"])
def test_models_of_onnx_come_back_as_they_were(kind: str) -> None:
    for test in suite(kind)[::7]:
        proto = test.model if test.model is not None else onnx.load(f"{test.model_dir}/model.onnx")
        assert to_proto(load(proto)) == proto, test.name


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["node", "simple", "pytorch-converted", "pytorch-operator"])
@pytest.mark.filterwarnings("ignore")
def test_all_models_of_onnx_come_back_as_they_were(kind: str) -> None:
    for test in suite(kind):
        proto = test.model if test.model is not None else onnx.load(f"{test.model_dir}/model.onnx")
        assert to_proto(load(proto)) == proto, test.name
        assert to_proto(load(proto.SerializeToString())) == proto, test.name


def test_onnx_ir_models_come_and_go() -> None:
    proto = ZOO["bodies"]()
    graph = load(onnx_ir.from_proto(proto))
    assert same(graph, load(proto)) is None
    assert same(load(to_ir(graph)), graph) is None


def test_other_sources_are_refused() -> None:
    with pytest.raises(TypeError, match="not int"):
        load(3)  # type: ignore[arg-type]


# -- files


def test_an_interrupted_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    save(load(plain()), path)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ReadError, match=r"m\.onnx: cannot write there \(No space left"):
        save(load(ZOO["bodies"]()), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["m.onnx"]


def test_a_file_can_be_written_over_while_it_is_read_from(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(ZOO["large_weights"]().SerializeToString())
    graph = load(path)
    save(graph, path)
    save(graph, path)
    assert to_proto(load(path)) == ZOO["large_weights"]()


def test_saving_where_there_is_no_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="cannot write"):
        save(load(plain()), tmp_path / "none" / "m.onnx")


@pytest.fixture
def external(tmp_path: Path) -> Path:
    """A model whose weights are in a file beside it."""
    folder = tmp_path / "model"
    folder.mkdir()
    proto = plain()
    proto.graph.initializer.append(tensor("large", np.arange(5000, dtype=np.float32)))
    proto.graph.node.append(helper.make_node("Neg", ["large"], ["n"]))
    onnx.save_model(proto, folder / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    return folder / "m.onnx"


def test_external_data_stays_where_it_is(external: Path) -> None:
    graph = load(external)
    assert constant(graph, "large").array[-1] == 4999
    data = (external.parent / "w.bin").read_bytes()
    save(graph, external.parent / "other.onnx")
    assert sorted(os.listdir(external.parent)) == ["m.onnx", "other.onnx", "w.bin"]
    assert (external.parent / "w.bin").read_bytes() == data
    other = onnx.load(external.parent / "other.onnx", load_external_data=False)
    assert other == onnx.load(external, load_external_data=False)


def test_a_message_holds_what_lay_in_files(external: Path) -> None:
    whole = onnx.load(external)
    for stored in whole.graph.initializer:
        stored.ClearField("data_location")
    assert to_proto(load(external)) == whole
    alone = onnx.load(external, load_external_data=False)
    graph = load(alone)
    assert to_proto(graph) == alone
    with pytest.raises(
        InvalidModelError, match=r"external data 'w\.bin' cannot be found, for the model was given without"
    ):
        _ = constant(graph, "large").array
    assert constant(load(onnx_ir.load(external)), "large").array[-1] == 4999


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("location", "../secret", "not a path below"),
        ("location", "gone.bin", "cannot be read: No such file"),
        ("offset", "1", "has .* bytes, the tensor wants"),
        ("offset", "-4", "the tensor wants -4"),
        ("length", "4", "takes 20000 bytes, the file has 4"),
        ("length", "x", "is not a number"),
    ],
)
def test_external_data_that_does_not_fit(external: Path, key: str, value: str, message: str) -> None:
    proto = onnx.load(external, load_external_data=False)
    (entry,) = [e for e in proto.graph.initializer[1].external_data if e.key == key]
    entry.value = value
    external.write_bytes(proto.SerializeToString())
    with pytest.raises((ReadError, InvalidModelError), match=rf"m\.onnx: initializer 'large': .*{message}") as caught:
        load(external)
    assert "\n" not in str(caught.value)


def test_external_data_comes_along_to_another_folder(external: Path, tmp_path: Path) -> None:
    save(load(external), tmp_path / "out.onnx")
    model, out, data = sorted(os.listdir(tmp_path), key=len)
    assert (model, out) == ("model", "out.onnx")
    assert is_named_by_content(data, "out.onnx", ".data")
    whole = onnx.load(tmp_path / "out.onnx")
    assert whole == onnx.load(external)
    again = load(tmp_path / "out.onnx")
    save(again, tmp_path / "out.onnx")
    assert onnx.load(tmp_path / "out.onnx") == whole


def test_a_data_file_that_is_read_from_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_io, "LIMIT", 30_000)
    proto = plain()
    proto.graph.initializer.append(tensor("large", np.arange(5000, dtype=np.float32)))
    proto.graph.initializer.append(tensor("larger", np.arange(6000, dtype=np.float32)))
    path = tmp_path / "m.onnx"
    save(load(proto), path)
    assert path.stat().st_size < 1000
    for read, made in zip(onnx.load(path).graph.initializer, proto.graph.initializer, strict=True):
        assert (read.name, read.raw_data) == (made.name, made.raw_data)
    graph = load(path)
    graph.add_constant(Constant.of(np.arange(9000, dtype=np.float32)), "new", origin=constant_origin(graph, "large"))
    save(graph, path)
    again = load(path)
    for name, size in (("large", 5000), ("larger", 6000), ("new", 9000)):
        assert constant(again, name).array[-1] == size - 1


def test_a_model_that_protobuf_cannot_hold_has_no_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_io, "LIMIT", 100)
    with pytest.raises(LimitError, match="save it to a file"):
        to_bytes(load(plain()))


def constant(graph: Graph, name: str) -> Constant:
    found = graph.constant_of(next(v for v, n in graph.names.items() if n == name))
    assert found is not None
    return found


def constant_origin(graph: Graph, name: str) -> Any:
    return graph.producer(next(v for v, n in graph.names.items() if n == name)).origin


# -- what cannot be read


def test_files_that_are_no_models(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    with pytest.raises(ReadError, match=r"m\.onnx: cannot read: No such file"):
        load(path)
    whole = ZOO["large_weights"]().SerializeToString()
    for content, message in (
        (b"", "empty"),
        (b"hello, this is no protobuf at all", "not an ONNX model"),
        (whole[: len(whole) // 2], "not an ONNX model, or a damaged one"),
        (b"\x0a", "not an ONNX model"),
        (b"\xff" * 100, "not an ONNX model"),
    ):
        path.write_bytes(content)
        with pytest.raises(ReadError, match=message):
            load(path)
    with pytest.raises(ReadError, match="empty"):
        load(b"")
    with pytest.raises(ReadError, match="without a graph"):
        load(ModelProto())
    with pytest.raises(ReadError, match="cannot read: Is a directory"):
        load(tmp_path)
    os.mkfifo(tmp_path / "pipe")  # which nobody writes into: reading would wait for ever
    with pytest.raises(ReadError, match="a pipe or device, which cannot be mapped"):
        load(tmp_path / "pipe")


def test_every_truncation_of_a_model_is_noticed() -> None:
    proto = plain()
    del proto.opset_import[1]
    whole = proto.SerializeToString()
    for end in range(len(whole)):
        with pytest.raises((ReadError, InvalidModelError)) as caught:
            load(whole[:end])
        assert "\n" not in str(caught.value)


def test_bodies_nested_without_end_are_refused() -> None:
    def field(number: int, content: bytes) -> bytes:
        return encode(number << 3 | 2) + encode(len(content)) + content

    graph = b""
    for _ in range(2000):
        attribute = field(1, b"then_branch") + field(6, graph) + encode(20 << 3) + b"\x05"
        graph = field(1, field(4, b"If") + field(5, attribute))
    with pytest.raises(ReadError, match="not an ONNX model, or a damaged one"):
        load(b"\x08\x08" + field(7, graph))


# -- speed


def test_a_long_chain_takes_about_a_second() -> None:
    proto = model("agraph (float[4] x) => (float[4] y) {}")
    names = ["x", *(f"v{i}" for i in range(19_999)), "y"]
    proto.graph.node.extend(helper.make_node("Neg", [a], [b]) for a, b in pairwise(names))
    start = process_time()
    graph = load(proto)
    assert to_proto(graph) == proto
    assert process_time() - start < 30


def test_weights_are_not_read_before_someone_asks(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    proto = plain()
    proto.graph.initializer.append(tensor("large", np.zeros(50_000_000, np.uint8)))
    path.write_bytes(proto.SerializeToString())
    del proto
    graph = load(path)
    assert constant(graph, "large").array.base is not None


def test_same_graph_same_bytes() -> None:
    graph = load(ZOO["bodies"]())
    neg = graph.add("Neg", (graph.outputs[0],))
    graph.add("Add", (neg.outputs[0], graph.add_constant(Constant.of(np.float32([1, 2])))), Attrs())
    assert to_bytes(graph) == to_bytes(graph.copy()) == to_bytes(graph)


def test_functions_by_themselves() -> None:
    proto = onnx.parser.parse_function(
        '<domain: "mine", opset_import: ["" : 18]> f <alpha> (x) => (y) { y = Elu <alpha: float = @alpha> (x) }'
    )
    for given in (proto, onnx_ir.from_proto(proto)):
        found = load_function(given)
        assert (found.op, found.attributes) == ("mine::f", ("alpha",))
        assert [node.op for node in found.body.order()] == ["Input", "Elu"]


def test_weights_go_into_a_file_where_that_is_asked(tmp_path: Path) -> None:
    weights = onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    node = helper.make_node("Add", ["x", "w"], ["y"])
    values = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [64, 64]) for n in "xy"]
    proto = helper.make_model(helper.make_graph([node], "g", values[:1], values[1:], [weights]))
    save(load(proto), tmp_path / "m.onnx", external=True)
    (data,) = tmp_path.glob("m.onnx.*.data")
    assert data.stat().st_size == 64 * 64 * 4
    save(load(tmp_path / "m.onnx"), tmp_path / "m.onnx", external=True)
    (read,) = onnx.load(tmp_path / "m.onnx").graph.initializer
    assert np.array_equal(onnx.numpy_helper.to_array(read), np.ones((64, 64)))
