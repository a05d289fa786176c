from __future__ import annotations

import pytest
from onnx import ModelProto

from graphopt.ir.onnx_io.wire import MARK_SIZE, MalformedError, attach, detach, encode, mark, marked
from tests.ir.onnx_io.model_zoo import ZOO, tensor


def test_marks_are_told_from_other_bytes() -> None:
    assert len(mark(7)) == MARK_SIZE
    assert marked(mark(7)) == 7
    assert marked(b"\0" * MARK_SIZE) is None
    assert marked(mark(7) + b"\0") is None


@pytest.mark.parametrize("name", ZOO)
def test_detach_and_attach_undo_each_other(name: str) -> None:
    whole = ZOO[name]().SerializeToString()
    skeleton, blobs = detach(memoryview(whole))
    assert b"".join(attach(skeleton, blobs)) == whole


def test_large_tensors_are_taken_out_wherever_they_are() -> None:
    proto = ZOO["functions"]()
    large = tensor("t", bytearray(range(256)) * 40)
    proto.graph.initializer.append(large)
    holders = [proto.graph.node[0], proto.functions[0].node[0]]
    proto.graph.node[1].attribute.add(name="body", type=5).g.initializer.append(large)
    for holder in holders:
        holder.attribute.add(name="t", type=4).t.CopyFrom(large)
        holder.attribute.add(name="ts", type=9).tensors.append(large)
    whole = proto.SerializeToString()
    skeleton, blobs = detach(memoryview(whole))
    assert len(blobs) == 6
    assert len(skeleton) < 2000
    assert ModelProto.FromString(skeleton).graph.node[0].attribute[1].t.raw_data == mark(0)
    assert b"".join(attach(skeleton, blobs)) == whole


def test_numbers_of_every_size() -> None:
    assert [encode(n) for n in (0, 1, 127, 128, 300)] == [b"\0", b"\1", b"\x7f", b"\x80\1", b"\xac\2"]


@pytest.mark.parametrize("data", [b"\x0b", b"\x3a\xff\xff\xff\x7f", b"\x80" * 11, b"\x3a", b"\x09\1\2", b"\x0d\1"])
def test_what_is_no_message_is_noticed(data: bytes) -> None:
    with pytest.raises(MalformedError):
        detach(memoryview(data))
