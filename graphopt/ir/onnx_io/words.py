"""Text of a model: names, doc strings, metadata. Where it is not UTF-8, protobuf hands over bytes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

from onnx import NodeProto, StringStringEntryProto

from graphopt.errors import InvalidModelError
from graphopt.ir.graph import Origin


def check_text(where: str, *texts: object) -> None:
    """Raise InvalidModelError where one of the texts is none."""
    for text in texts:
        if not isinstance(text, str):
            raise InvalidModelError(f"{where}: {text!r} is not text (UTF-8)")


def origin_of(proto: Any, where: str, form: str = "", extra: object = None) -> Origin:
    """What is said of a node, graph or function."""
    name = proto.name if isinstance(proto, NodeProto) else ""
    overload = proto.overload if isinstance(proto, NodeProto) else ""
    check_text(where, name, proto.doc_string, overload)
    return Origin(name, proto.doc_string, overload, entries(proto.metadata_props, where), form, extra)


def entries(props: Iterable[StringStringEntryProto], where: str) -> tuple[tuple[str, str], ...]:
    """Metadata as pairs."""
    pairs = tuple((entry.key, entry.value) for entry in props)
    check_text(where, *chain(*pairs))
    return pairs


def write_entries(pairs: Iterable[tuple[str, str]], into: Any) -> None:
    """Put pairs into a field of metadata, in place of what is there."""
    written = tuple(pairs)
    if tuple((entry.key, entry.value) for entry in into) != written:
        del into[:]
        for key, value in written:
            into.add(key=key, value=value)
