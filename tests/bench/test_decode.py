"""The models that ``decode.py`` measures: they are right, whatever they are run with and however tokens come."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import graphopt
from tests.bench.decode import ENGINES, MODELS, PAST, bytes_read, feeds, report, write
from tests.bench.turns import session


def softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def expected(path: Path, name: str, tokens: Any) -> Any:
    """The logits of a whole sequence, as the papers say."""
    sizes, model = MODELS[name], onnx.load(path)
    w = {t.name: onnx.numpy_helper.to_array(t, str(path.parent)) for t in model.graph.initializer}
    count = tokens.shape[1]

    def norm(x: Any, scale: Any) -> Any:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * scale

    def turned(x: Any) -> Any:
        half = sizes.head // 2
        angles = np.arange(count)[:, None] * 10000.0 ** (-np.arange(half) / half)
        a, b = x[..., :half], x[..., half:]
        return np.concatenate((a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)), -1)

    table = w["model.embed_tokens.weight"]
    x = table[tokens[0]] * sizes.words**0.5
    for k in range(sizes.layers):
        layer = f"model.layers.{k}"
        h = norm(x, w[f"{layer}.input_layernorm.weight"])
        parts = {}
        for part, heads in (("q", sizes.heads), ("k", sizes.groups), ("v", sizes.groups)):
            made = (h @ w[f"{layer}.self_attn.{part}_proj.weight"]).reshape(count, heads, sizes.head)
            if sizes.norms_heads and part != "v":
                made = norm(made, w[f"{layer}.self_attn.{part}_norm.weight"])
            made = made.transpose(1, 0, 2)
            parts[part] = turned(made) if part != "v" else made
        q, each = parts["q"], sizes.heads // sizes.groups
        keys, values = (np.repeat(parts[part], each, axis=0) for part in "kv")
        scores = q @ keys.transpose(0, 2, 1) / sizes.head**0.5
        scores = np.where(np.tril(np.ones((count, count), bool)), scores, -np.inf)
        seen = (softmax(scores) @ values).transpose(1, 0, 2).reshape(count, -1)
        x = x + seen @ w[f"{layer}.self_attn.o_proj.weight"]
        h = norm(x, w[f"{layer}.post_attention_layernorm.weight"])
        gate, up = h @ w[f"{layer}.mlp.gate_proj.weight"], h @ w[f"{layer}.mlp.up_proj.weight"]
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[f"{layer}.mlp.down_proj.weight"]
    x = norm(x, w["model.norm.weight"])
    return x @ (table.T if sizes.ties_words else w["lm_head.weight"])


@pytest.mark.parametrize("name", ["llama-tiny", "qwen-tiny"])
def test_a_model_is_the_decoder_that_it_is_called(name: str, tmp_path: Path) -> None:
    sizes, path = MODELS[name], tmp_path / f"{name}.onnx"
    assert write(sizes, path) == sum(
        int(np.prod(t.dims)) for t in onnx.load(path).graph.initializer if "weight" in t.name
    )
    tokens = np.random.default_rng(0).integers(0, sizes.words, (1, 9))
    want = expected(path, name, tokens)
    runner = session(str(path))
    logits, *past = runner.run(None, feeds(sizes, tokens[:, :6]))
    np.testing.assert_allclose(logits[0], want[:6], rtol=1e-3, atol=1e-3)
    logits, *past = runner.run(None, feeds(sizes, tokens[:, 6:], past))
    np.testing.assert_allclose(logits[0], want[6:], rtol=1e-3, atol=1e-3)


@pytest.mark.slow  # by default, tests/runtime/test_bound_state.py sees what goes wrong with states
def test_the_compiled_model_keeps_its_state(tmp_path: Path) -> None:
    sizes, path = MODELS["qwen-tiny"], tmp_path / "qwen-tiny.onnx"
    write(sizes, path)
    tokens = np.random.default_rng(0).integers(0, sizes.words, (1, 9))
    want = session(str(path)).run(["logits"], feeds(sizes, tokens))[0]
    model = graphopt.compile(path)
    state = model.bind_state()
    assert not any(name.startswith(PAST) for name in model.input_names)
    for first, last in ((0, 5), (5, 6), (6, 9)):
        given = feeds(sizes, tokens[:, first:last], first)
        logits = model({name: given[name] for name in model.input_names})["logits"]
        np.testing.assert_allclose(logits, want[:, first:last], rtol=1e-3, atol=1e-3)
    assert state.length == 9


def test_weights_may_be_stored_in_bfloat16(tmp_path: Path) -> None:
    sizes, path = MODELS["llama-tiny"], tmp_path / "llama-tiny.onnx"
    parameters = write(sizes, path, dtype="bfloat16")
    norms = sizes.width * (2 * sizes.layers + 1)
    assert path.with_suffix(".data").stat().st_size == 2 * (parameters - norms)
    assert graphopt.load(path)


def test_what_a_token_has_to_read() -> None:
    llama, qwen = MODELS["llama-tiny"], MODELS["qwen-tiny"]
    cache = 2 * 2 * 2 * 10 * 4
    assert bytes_read(llama, 100_000, 10, 4) == 4 * (100_000 - 255 * 64) + cache * 16
    assert bytes_read(qwen, 100_000, 10, 2) == 2 * 100_000 + cache * 32
    assert bytes_read(llama, 100_000, 10, 4, batch=8) == 4 * (100_000 - 248 * 64) + 8 * cache * 16


def test_a_line_for_each_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.bench.decode.ROUNDS", 1)
    options = argparse.Namespace(
        prompts=[5], pasts=[3], threads=1, dtype="float32", seconds=0.0, genai=None, cpu_time=True,
        batches=[1, 2], engines=list(ENGINES), peers=None, exporter=None,
    )  # fmt: skip
    lines = list(report("llama-tiny", tmp_path, options))
    assert [line.split()[0] for line in lines[2:]] == ["ort", "ort", "graphopt"] * 4
    assert "memory is read at" in lines[0]
