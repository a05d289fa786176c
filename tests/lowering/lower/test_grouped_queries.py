"""ONNX Runtime's attention with a cache, as its model builder writes it, compiled, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper

import graphopt
from graphopt.errors import ExecutionError
from graphopt.ir import evaluate
from graphopt.ir.constants import Array
from graphopt.ir.onnx_io import load
from graphopt.ir.text import parse
from graphopt.lowering.lower.grouped_queries import with_parts_apart
from graphopt.runtime.onnxruntime import Region

pytest.importorskip("onnxruntime")

HEADS, GROUPS, SIZE = 4, 2, 16
FLOAT, INT32 = 1, 6
BYTES = {8: np.dtype(np.int8), 4: np.dtype(np.uint8)}
"""What holds numbers of so many bits."""


def _model(is_packed: bool, turns: bool, **attrs: Any) -> ModelProto:
    """GroupQueryAttention with keys and values of the past."""
    cache: list[int | str] = ["b", GROUPS, "past", SIZE]
    shapes: dict[str, tuple[int, list[int | str]]] = {
        "q": (FLOAT, ["b", "s", (HEADS + 2 * GROUPS * is_packed) * SIZE]),
        **({} if is_packed else dict.fromkeys("kv", (FLOAT, ["b", "s", GROUPS * SIZE]))),
        "past_key": (FLOAT, cache), "past_value": (FLOAT, cache), "lengths": (INT32, ["b"]), "total": (INT32, []),
    }  # fmt: skip
    angles = np.arange(64)[:, None] * 10.0 ** -np.arange(SIZE // 2)
    tables = [numpy_helper.from_array(f(angles).astype(np.float32), n) for n, f in (("cos", np.cos), ("sin", np.sin))]
    names = ["q", *(["", ""] if is_packed else "kv"), "past_key", "past_value", "lengths", "total"]
    names += ["cos", "sin"] if turns else []
    outputs = ["y", "present_key", "present_value"]
    node = helper.make_node("GroupQueryAttention", names, outputs, domain="com.microsoft", num_heads=HEADS,
                            kv_num_heads=GROUPS, do_rotary=int(turns), **attrs)  # fmt: skip
    given = [helper.make_tensor_value_info(n, t, shape) for n, (t, shape) in shapes.items()]
    made = [helper.make_tensor_value_info(n, FLOAT, None if n == "y" else [*cache[:2], "all", SIZE]) for n in outputs]
    graph = helper.make_graph([node], "g", given, made, tables if turns else [])
    domains = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=10)


@pytest.mark.parametrize(
    ("is_packed", "turns", "attrs", "steps"),
    [
        (False, False, {"softcap": 5.0, "scale": 0.5}, (2, 5, 1, 1)),
        (False, True, {"local_window_size": 3}, (1, 5, 1, 3, 1)),
        (True, False, {"local_window_size": 2}, (2, 5, 1, 1)),
        (True, True, {"rotary_interleaved": 1}, (1, 5, 1, 3, 1)),
    ],
)
def test_grouped_queries_with_a_cache_are_those_of_onnx_runtime(
    is_packed: bool, turns: bool, attrs: dict[str, float], steps: tuple[int, ...]
) -> None:
    """Of one batch or of two: then ONNX Runtime takes one token at a time behind others."""
    model = _model(is_packed, turns, **attrs)
    peer = Region(model.SerializeToString())
    plain = graphopt.compile(model, strict=True, verify="off")
    kept = graphopt.compile(model, strict=True, verify="off")
    state = kept.bind_state()
    rng = np.random.default_rng(0)
    batch, *news = steps
    pasts: list[Array] = [np.zeros((batch, GROUPS, 0, SIZE), np.float32)] * 2
    for new in news:
        count = pasts[0].shape[2] + new
        width = (HEADS + 2 * GROUPS * is_packed) * SIZE
        given = [rng.standard_normal((batch, new, width), np.float32)]
        given += [] if is_packed else [rng.standard_normal((batch, new, GROUPS * SIZE), np.float32) for _ in range(2)]
        lengths = [np.full(batch, count - 1, np.int32), np.array(count, np.int32)]
        want = peer(*given, *pasts, *lengths)
        assert want is not None
        for one, other in zip(want, plain(*given, *pasts, *lengths).values(), strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)
        got = kept(*given, *lengths)
        assert list(got) == ["y"]
        np.testing.assert_allclose(got["y"], want[0], rtol=1e-4, atol=1e-5)
        pasts = list(want[1:])
    assert state.length == sum(news)


def _in_few_bits(bits: int, kind: str) -> ModelProto:
    """Keys and values of the past are kept in steps, one for all or one for each element of a head."""
    model = _model(False, False, k_quant_type=kind, v_quant_type=kind, kv_cache_bit_width=bits)
    count, largest = (1, GROUPS * SIZE)[kind == "PER_CHANNEL"], 0.2 if bits == 4 else 0.01
    steps = largest / np.arange(1, count + 1, dtype=np.float32)
    model.graph.initializer.append(numpy_helper.from_array(steps, "steps"))
    model.graph.node[0].input.extend([*[""] * 5, "steps", "steps"])
    for value in [*model.graph.input, *model.graph.output]:
        if value.name.endswith(("_key", "_value")):
            value.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(BYTES[bits])
            value.type.tensor_type.shape.dim[3].dim_value = SIZE * bits // 8
    return model


def _steps(model: ModelProto, bits: int) -> Iterator[tuple[list[Array], list[Array], list[Array]]]:
    """What is given to a cache of few bits, one step after another, the past apart, and what ONNX Runtime makes of it.
    Some numbers are beyond the range of what is kept."""
    peer, rng = Region(model.SerializeToString()), np.random.default_rng(0)
    pasts = [np.zeros((1, GROUPS, 0, SIZE * bits // 8), BYTES[bits])] * 2
    for new in (5, 1, 3):
        count = pasts[0].shape[2] + new
        given = [rng.standard_normal((1, new, heads * SIZE), np.float32) for heads in (HEADS, GROUPS, GROUPS)]
        given += [np.full(1, count - 1, np.int32), np.array(count, np.int32)]
        want = peer(*given[:3], *pasts, *given[3:])
        assert want is not None
        yield given, pasts, list(want)
        pasts = list(want[1:])


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("kind", ["PER_TENSOR", "PER_CHANNEL"])
def test_caches_of_few_bits_are_ops_of_their_own(bits: int, kind: str) -> None:
    """What they hold is equal to ONNX Runtime's bit by bit."""
    model = _in_few_bits(bits, kind)
    graph = with_parts_apart(load(model))
    assert "Round" in [node.op for node in graph.nodes()]
    names = ("q", "k", "v", "lengths", "total", "past_key", "past_value")
    for given, pasts, (y, *kept) in _steps(model, bits):
        found = evaluate.run(graph, dict(zip(names, (*given, *pasts), strict=True)))
        np.testing.assert_allclose(found["y"], y, rtol=1e-4, atol=1e-5)
        for name, cache in zip(("present_key", "present_value"), kept, strict=True):
            assert found[name].dtype == cache.dtype
            np.testing.assert_array_equal(found[name], cache)


@pytest.mark.slow
@pytest.mark.parametrize(("bits", "kind"), [(8, "PER_TENSOR"), (4, "PER_CHANNEL")])
def test_caches_of_few_bits_stay_in_the_program(bits: int, kind: str) -> None:
    model = _in_few_bits(bits, kind)
    with graphopt.compile(model, strict=True, verify="off") as compiled:
        compiled.bind_state()
        for given, _, (y, *_) in _steps(model, bits):
            np.testing.assert_allclose(compiled(*given)["y"], y, rtol=1e-4, atol=1e-5)


def test_sequences_of_different_lengths_stand_in_a_cache_that_grows() -> None:
    """Where a program keeps the cache, all sequences are as long, but for a first call whose ends are padding."""
    model = _model(True, False)
    x = np.random.default_rng(0).standard_normal((2, 3, (HEADS + 2 * GROUPS) * SIZE)).astype(np.float32)
    past = np.ones((2, GROUPS, 4, SIZE), np.float32)
    with graphopt.compile(model, strict=True, verify="off") as compiled:
        given = [x[:, :1], past, past, np.array([4, 2], np.int32), np.array(5, np.int32)]
        want = Region(model.SerializeToString())(*given)
        assert want is not None
        for one, other in zip(want, compiled(*given).values(), strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)
        with pytest.raises(ExecutionError, match="the cache does not grow by what is new"):
            compiled(*given[:3], np.array([3, 2], np.int32), np.array(4, np.int32))
        compiled.bind_state()
        compiled(x, np.array([2, 1], np.int32), np.array(3, np.int32))
        with pytest.raises(ExecutionError, match="sequences of different lengths"):
            compiled(x[:, :1], np.array([3, 2], np.int32), np.array(4, np.int32))


ROOM = 8
"""Tokens that a buffer has room for."""


def test_a_buffer_that_does_not_grow_is_written_where_each_sequence_ends() -> None:
    """What ``past_present_share_buffer`` says: the present is declared as long as the past."""
    model = _model(True, True, local_window_size=2, softcap=2.0)
    for value in model.graph.output[1:]:
        value.type.tensor_type.shape.dim[2].dim_param = "past"
    peer = Region(model.SerializeToString())
    plain, kept = (graphopt.compile(model, strict=True, verify="off") for _ in range(2))
    state = kept.bind_state(sizes={"past": ROOM})
    rng = np.random.default_rng(0)
    pasts: list[Array] = [np.zeros((2, GROUPS, ROOM, SIZE), np.float32)] * 2
    state.set(dict(zip(("past_key", "past_value"), pasts, strict=True)))
    lengths = np.array([3, 1], np.int32)
    for call in range(3):
        new = 1 if call else 3
        x = rng.standard_normal((2, new, (HEADS + 2 * GROUPS) * SIZE), np.float32)
        ends = [lengths + call - 1, np.array(3 + call, np.int32)]
        want, alone = peer(x, *pasts, *ends), plain(x, *pasts, *ends)
        assert want is not None
        y = kept(x, *ends)["y"]
        for b, end in enumerate(ends[0] + 1):
            tokens = 1 if call else end  # what stands behind a sequence is padding
            for got in (alone["y"], y):
                np.testing.assert_allclose(got[b, :tokens], want[0][b, :tokens], rtol=1e-4, atol=1e-5)
            for name, one in zip(("present_key", "present_value"), want[1:], strict=True):
                np.testing.assert_allclose(alone[name][b, :, :end], one[b, :, :end], rtol=1e-4, atol=1e-5)
        pasts = list(want[1:])
    for name, one in zip(("past_key", "past_value"), pasts, strict=True):
        np.testing.assert_allclose(state.arrays[name][0, :, :5], one[0, :, :5], rtol=1e-4, atol=1e-5)


def test_attention_of_parts_that_are_apart_stays() -> None:
    graph = parse("""\
q: float32[b, s, 32]
k: float32[b, s, 16]
lengths: int32[b]
total: int32[]
y = com.microsoft::GroupQueryAttention(q, k, k, _, _, lengths, total, num_heads=4, kv_num_heads=2)
return y
""")
    assert with_parts_apart(graph) is graph
