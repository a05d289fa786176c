"""Wire format of protobuf, as far as it takes to keep big tensors out of the parser.

A model file is mostly weights. ``detach`` walks over the few large fields of a serialized model and
puts a short *mark* in the place of each large ``raw_data``; what is left is small and parses at once,
and the weights stay where they are, in the mapped file. ``attach`` is the way back: it gives the
pieces of the serialized model, weights included, without ever joining them.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from functools import cache
from typing import TypeAlias

WireSchema: TypeAlias = "dict[int, WireSchema]"

LARGE = 4096
"""Fields of at most this many bytes are left to the parser."""

# Field numbers of onnx.proto on the way from a model to the bytes of a tensor.
RAW: WireSchema = {}
TENSOR: WireSchema = {9: RAW}
SPARSE: WireSchema = {1: TENSOR, 2: TENSOR}
ATTRIBUTE: WireSchema = {5: TENSOR, 10: TENSOR, 22: SPARSE, 23: SPARSE}
NODE: WireSchema = {5: ATTRIBUTE}
GRAPH: WireSchema = {1: NODE, 5: TENSOR, 15: SPARSE}
ATTRIBUTE |= {6: GRAPH, 11: GRAPH}
FUNCTION: WireSchema = {7: NODE, 11: ATTRIBUTE}
MODEL: WireSchema = {7: GRAPH, 25: FUNCTION}


class MalformedError(ValueError):
    """The bytes are not a protobuf message, or end too early."""


@cache
def _token() -> bytes:
    """What marks start with: drawn at random, so that no file can hold one."""
    return os.urandom(16)


MARK_SIZE = 24


def mark(index: int) -> bytes:
    """What stands in the place of blob ``index``."""
    return _token() + index.to_bytes(8, "little")


def marked(raw: bytes) -> int | None:
    """The index of the blob whose mark this is, or None for any other bytes."""
    if len(raw) == MARK_SIZE and raw.startswith(_token()):
        return int.from_bytes(raw[16:], "little")
    return None


def detach(model: memoryview) -> tuple[bytes, list[memoryview]]:
    """The serialized model with marks in the place of large tensors, and those tensors' bytes."""
    blobs: list[memoryview] = []
    pieces: list[memoryview | bytes] = []
    _detach(model, 0, len(model), MODEL, blobs, pieces)
    return b"".join(pieces), blobs


def _detach(
    data: memoryview,
    start: int,
    end: int,
    schema: WireSchema,
    blobs: list[memoryview],
    pieces: list[memoryview | bytes],
) -> int:
    """Append the message's pieces; its new size comes back."""
    run, at, grown = start, start, 0
    while at < end:
        head = at
        tag, at = _varint(data, at, end)
        kind = tag & 7
        if kind == 2:
            size, at = _varint(data, at, end)
            stop = at + size
            inner = schema.get(tag >> 3) if size > LARGE and stop <= end else None
            if inner is not None:
                inner_pieces: list[memoryview | bytes] = []
                if inner is RAW:
                    inner_pieces.append(mark(len(blobs)))
                    blobs.append(data[at:stop])
                    length = MARK_SIZE
                else:
                    length = _detach(data, at, stop, inner, blobs, inner_pieces)
                front = encode(tag) + encode(length)
                pieces += [data[run:head], front, *inner_pieces]
                grown += len(front) + length - (stop - head)
                run = stop
            at = stop
        elif kind == 0:
            _, at = _varint(data, at, end)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise MalformedError(f"byte {head} is not the start of a field")
        if at > end:
            raise MalformedError(f"the field at byte {head} ends {at - end} bytes after the end")
    pieces.append(data[run:end])
    return end - start + grown


def attach(skeleton: bytes, blobs: list[memoryview]) -> list[memoryview | bytes]:
    """The pieces of the serialized model, with each blob where its mark was."""
    if not blobs:
        return [skeleton]
    token, places, at = _token(), [], 0
    while (at := skeleton.find(token, at)) >= 0:
        places.append(at)
        at += MARK_SIZE
    pieces: list[memoryview | bytes] = []
    _attach(memoryview(skeleton), 0, len(skeleton), MODEL, places, blobs, pieces)
    return pieces


def _attach(
    data: memoryview,
    start: int,
    end: int,
    schema: WireSchema,
    places: list[int],
    blobs: list[memoryview],
    pieces: list[memoryview | bytes],
) -> int:
    run, at, grown = start, start, 0
    next_place = bisect_left(places, start)
    while at < end:
        if next_place == len(places) or places[next_place] >= end:
            break
        head = at
        tag, at = _varint(data, at, end)
        kind = tag & 7
        if kind == 2:
            size, at = _varint(data, at, end)
            stop = at + size
            if places[next_place] < stop and (inner := schema.get(tag >> 3)) is not None:
                inner_pieces: list[memoryview | bytes] = []
                if inner is RAW:
                    blob = blobs[int.from_bytes(data[at + 16 : stop], "little")]
                    inner_pieces.append(blob)
                    length = len(blob)
                else:
                    length = _attach(data, at, stop, inner, places, blobs, inner_pieces)
                front = encode(tag) + encode(length)
                pieces += [data[run:head], front, *inner_pieces]
                grown += len(front) + length - (stop - head)
                run = stop
                next_place = bisect_left(places, stop)
            at = stop
        elif kind == 0:
            _, at = _varint(data, at, end)
        else:
            at += 8 if kind == 1 else 4
    pieces.append(data[run:end])
    return end - start + grown


def locations(skeleton: bytes) -> list[str]:
    """The files that tensors lie in: the values of all entries called ``location``."""
    files = []
    for entry in re.finditer(rb"\n\x08location\x12", skeleton):
        try:
            size, start = _varint(memoryview(skeleton), entry.end(), len(skeleton))
        except MalformedError:
            continue
        files.append(skeleton[start : start + size].decode(errors="replace"))
    return files


def _varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """The number at ``at``, and where it ends."""
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            break
    raise MalformedError(f"the number before byte {at} does not end")


def encode(value: int) -> bytes:
    """A number as protobuf writes it."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
