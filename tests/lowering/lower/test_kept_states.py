"""States of graphs: which are seen, which are refused, and where they lie."""

import numpy as np
import pytest

import graphopt
from graphopt.errors import UsageError
from graphopt.ir.text import parse
from graphopt.ir.types import symbol
from graphopt.lowering.lower.kept_states import kept, pairs_of

CACHE = """\
x: float32[batch, 2, new, 4]
past.0.key: float32[batch, 2, past, 4]
past.0.value: float32[batch, 2, past, 4]
present.0.value = Concat(past.0.value, x, axis=2)
y = Neg(x)
present.0.key = Concat(past.0.key, y, x, axis=-2)
return present.0.key, present.0.value
"""


def test_what_appends_to_an_input_is_seen() -> None:
    assert pairs_of(parse(CACHE)) == {"past.0.key": "present.0.key", "past.0.value": "present.0.value"}


def test_of_several_outputs_that_append_to_an_input_the_one_that_is_called_most_like_it_follows_it() -> None:
    graph = parse("""\
x: float32[new, 4]
past.key: float32[past, 4]
other.val = Concat(past.key, x, axis=0)
present.key = Concat(past.key, x, axis=0)
return other.val, present.key
""")
    assert pairs_of(graph) == {"past.key": "present.key"}


def test_states_of_recurrent_ops_are_seen() -> None:
    graph = parse("""\
x: float32[words, batch, 3]
w: float32[1, 20, 3]
r: float32[1, 20, 5]
h: float32[1, batch, 5]
c: float32[1, batch, 5]
y, h2, c2 = LSTM(x, w, r, _, _, h, c, hidden_size=5)
return y, h2, c2
""")
    assert pairs_of(graph) == {"h": "h2", "c": "c2"}


def test_inputs_and_outputs_of_one_shape_are_no_state_unless_somebody_says_so() -> None:
    graph = parse("x: float32[n, 4]\ny = Relu(x)\nreturn y")
    assert pairs_of(graph) == {}
    with pytest.raises(UsageError, match="no output of this model is seen to follow an input"):
        kept(graph)
    _, (state,) = kept(graph, [("x", "y")])
    assert state.axis is None
    assert state.windows == ()


def test_a_state_that_grows_lies_in_memory_with_room_for_more() -> None:
    graph, (key, _) = kept(parse(CACHE))
    assert key.axis == 2
    batch, past, capacity = symbol("batch"), symbol("past"), symbol("capacity of past")
    assert key.memory((batch, 2, past, 4)) == (batch, 2, capacity, 4)
    assert key.strides((batch, 2, past, 4)) == (capacity * 8, capacity * 4, 4, 1)
    assert key.tail is not None
    assert graph.producer(key.present).inputs == (key.past, key.tail)
    assert graph.producer(key.tail).op == "Identity"


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ({"past.0.kay": "present.0.key"}, "there is no input 'past.0.kay'; did you mean past.0.key"),
        ({"past.0.key": "presents"}, "there is no output 'presents'"),
        ([("past.0.key", "present.0.key")] * 2, "the input 'past.0.key' is in more than one pair"),
        ({"x": "present.0.key"}, "an output of the shape of its input is expected, or one that appends to it"),
    ],
)
def test_what_is_no_state_is_refused_in_one_line(pairs: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        kept(parse(CACHE), pairs)  # type: ignore[arg-type]


def test_a_past_of_a_known_length_does_not_grow() -> None:
    graph = parse("x: float32[2]\nbefore: float32[3]\nafter = Concat(before, x, axis=0)\nreturn after")
    with pytest.raises(UsageError, match="an open size of its own is expected along axis 0 of the input"):
        kept(graph, {"before": "after"})


@pytest.mark.parametrize("rank", [3, 4])
def test_attention_behind_a_past_is_attention_to_what_was_appended(rank: int) -> None:
    q, kv = ("batch, 4, new, 8", "batch, 2, new, 8") if rank == 4 else ("batch, new, 32", "batch, new, 16")
    heads = "" if rank == 4 else ", q_num_heads=4, kv_num_heads=2"
    graph = parse(f"""\
graph attention (ir 10, opset 23)
q: float32[{q}]
k: float32[{kv}]
v: float32[{kv}]
past.key: float32[batch, 2, past, 8]
past.value: float32[batch, 2, past, 8]
y, present.key, present.value = Attention(q, k, v, _, past.key, past.value, is_causal=1{heads})
return y, present.key, present.value
""")
    found, states = kept(graph)
    assert [found.producer(s.present).op for s in states] == ["Concat", "Concat"]
    rng = np.random.default_rng(0)
    plain = graphopt.compile(graph, verify="off")
    model = graphopt.compile(graph, verify="off")
    model.bind_state()
    pasts = [np.empty((2, 2, 0, 8), np.float32)] * 2
    for new in (5, 1, 3):
        shapes = [tuple({"batch": 2, "new": new}.get(n, n) for n in text.split(", ")) for text in (q, kv, kv)]
        given = [rng.standard_normal([int(n) for n in shape], np.float32) for shape in shapes]
        want, *pasts = plain(*given, *pasts).values()
        got = model(*given)
        assert list(got) == ["y"]
        np.testing.assert_allclose(got["y"], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bias", ["_", "bias"])
def test_multi_head_attention_behind_a_past_is_attention_to_what_was_appended(bias: str) -> None:
    call = f"q, q, q, {bias}, _, mask, past.key, past.value"
    graph = parse(f"""\
q: float32[batch, new, 32]
bias: float32[96]
mask: float32[1, 1, new, all]
past.key: float32[batch, 4, past, 8]
past.value: float32[batch, 4, past, 8]
y, present.key, present.value = com.microsoft::MultiHeadAttention({call}, num_heads=4)
return y, present.key, present.value
""")
    found, states = kept(graph)
    assert [found.producer(s.present).op for s in states] == ["Concat", "Concat"]
    rng = np.random.default_rng(0)
    plain = graphopt.compile(graph, verify="off")
    model = graphopt.compile(graph, verify="off")
    model.bind_state()
    pasts = [np.empty((2, 4, 0, 8), np.float32)] * 2
    for new in (5, 1, 3):
        shapes = (2, new, 32), (96,), (1, 1, new, pasts[0].shape[2] + new)
        given = [rng.standard_normal(shape, np.float32) for shape in shapes]
        want, *pasts = plain(*given, *pasts).values()
        got = model(*given)
        assert list(got) == ["y"]
        np.testing.assert_allclose(got["y"], want, rtol=1e-4, atol=1e-5)
