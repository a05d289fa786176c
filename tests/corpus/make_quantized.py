"""Quantizes small torch models as ONNX Runtime's tools and torch do, and writes them in half precision.

Run with torch 2.13, onnxscript 0.7 and onnxruntime 1.31: ``python tests/corpus/make_quantized.py [NAME...]``. The
table at the end says how each model is made.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import torch.nn.functional as F  # noqa: N812
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quant_pre_process,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer
from torch import Tensor, nn

FOLDER = Path(__file__).parent / "quantized"

# -- models


class Network(nn.Module):
    """Convolutions with a residual, a branch, pooling of both kinds and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.a, self.b = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 1, 1), nn.Conv2d(8, 8, 1)
        self.deep = nn.Conv2d(8, 8, 3, 1, 1, groups=8)
        self.norm = nn.BatchNorm2d(8)
        self.last = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.stem(x)))
        y = F.relu6(self.a(x) + x)
        y = F.max_pool2d(y, 2)
        z = F.avg_pool2d(F.leaky_relu(self.deep(x), 0.1), 2)
        y = y * torch.sigmoid(self.b(y))
        y = torch.cat([y, z], 1)
        return F.softmax(self.last(y.mean((2, 3))), -1)


class Perceptron(nn.Module):
    """Linear layers with activations."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, width), nn.LeakyReLU(0.2), nn.Linear(width, 16), nn.Sigmoid()
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Block(nn.Module):
    """A transformer layer."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        b, n, w = x.shape
        y = self.first(x)
        q, k, v = (f(y).view(b, n, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        weights = F.softmax(q @ k.transpose(-1, -2) * (w // self.heads) ** -0.5, -1)
        x = x + self.o((weights @ v).transpose(1, 2).reshape(b, n, w))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Fake(nn.Module):
    """What training for quantization puts around an op: values are rounded to steps, and weights too."""

    def __init__(self, inner: nn.Module, low: int, high: int) -> None:
        super().__init__()
        self.inner, self.low, self.high = inner, low, high

    def rounded(self, x: Tensor, scale: float, zero: int) -> Tensor:
        return torch.fake_quantize_per_tensor_affine(x, scale, zero, self.low, self.high)

    def forward(self, x: Tensor) -> Tensor:
        x = self.rounded(x, 0.05, (self.low + self.high + 1) // 2)
        w = self.inner.weight
        scales = w.detach().abs().amax(tuple(range(1, w.dim()))) / 127
        w = torch.fake_quantize_per_channel_affine(w, scales, torch.zeros(len(scales), dtype=torch.int32), 0, -128, 127)
        if isinstance(self.inner, nn.Conv2d):
            y = F.conv2d(x, w, self.inner.bias, self.inner.stride, self.inner.padding)
        else:
            y = F.linear(x, w, self.inner.bias)
        return self.rounded(F.relu(y), 0.04, max(self.low, 0))


class Trained(nn.Module):
    """A network that was trained for quantization."""

    def __init__(self, low: int = 0, high: int = 255) -> None:
        super().__init__()
        self.a = Fake(nn.Conv2d(3, 8, 3, 2, 1), low, high)
        self.b = Fake(nn.Conv2d(8, 8, 3, 1, 1), low, high)
        self.c = Fake(nn.Linear(8, 10), low, high)

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)
        x = self.b(x)
        x = F.max_pool2d(x, 2).permute(0, 2, 3, 1)
        x = self.a.rounded(x, 0.04, max(self.a.low, 0))
        return self.c(x.reshape(-1, 8))


class Autocast(nn.Module):
    """A module whose products run in half precision."""

    def __init__(self, inner: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.inner, self.dtype = inner, dtype

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", self.dtype):
            return self.inner(x).float()


# -- ways


class Feeds(CalibrationDataReader):
    """A few random inputs."""

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        generator = np.random.default_rng(0)
        self.feeds = iter([{name: generator.normal(size=shape).astype(np.float32)} for _ in range(4)])

    def get_next(self) -> Any:
        return next(self.feeds, None)


IMAGE, ROWS, WORDS = (1, 3, 16, 16), (4, 32), (1, 6, 32)


def export(
    module: nn.Module, shape: tuple[int, ...], path: Path, dtype: torch.dtype = torch.float32, **options: Any
) -> None:
    """Write the module as torch exports it."""
    settings = {"opset_version": 17, "dynamo": False, **options}
    names = {"input_names": ["x"], "output_names": ["y"]}
    torch.onnx.export(module.eval(), (torch.randn(shape).to(dtype),), str(path), **names, **settings)
    if settings["dynamo"]:
        onnx.save(onnx.load(path), path)  # weights inside


def static(module: nn.Module, shape: tuple[int, ...], path: Path, **options: Any) -> None:
    """Quantize with calibration."""
    with tempfile.TemporaryDirectory() as folder:
        plain, ready = Path(folder) / "plain.onnx", Path(folder) / "ready.onnx"
        export(module, shape, plain)
        quant_pre_process(str(plain), str(ready))
        quantize_static(str(ready), str(path), Feeds("x", shape), **options)


def dynamic(module: nn.Module, shape: tuple[int, ...], path: Path, **options: Any) -> None:
    """Quantize weights, and activations as they come."""
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "plain.onnx"
        export(module, shape, plain)
        quantize_dynamic(str(plain), str(path), **options)


def packed(module: nn.Module, shape: tuple[int, ...], path: Path, **options: Any) -> None:
    """Quantize the weights of products to four bits."""
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "plain.onnx"
        export(module, shape, plain, opset_version=20)
        config = DefaultWeightOnlyQuantConfig(op_types_to_quantize=("MatMul",), **options)
        quantizer = MatMulNBitsQuantizer(onnx.load(plain), algo_config=config)
        quantizer.process()
        model = quantizer.model.model
        onnx.checker.check_model(model)
        onnx.save(model, path)


QDQ, OPERATOR = QuantFormat.QDQ, QuantFormat.QOperator
U8, S8 = QuantType.QUInt8, QuantType.QInt8
ASKED: dict[str, Callable[[Path], None]] = {
    "cnn_qdq": lambda p: static(Network(), IMAGE, p, quant_format=QDQ, activation_type=U8, weight_type=S8),
    "cnn_qdq_channels": lambda p: static(
        Network(), IMAGE, p, quant_format=QDQ, activation_type=S8, weight_type=S8, per_channel=True
    ),
    "cnn_qdq_unsigned": lambda p: static(Network(), IMAGE, p, quant_format=QDQ, activation_type=U8, weight_type=U8),
    "cnn_qdq_dedicated": lambda p: static(
        Network(), IMAGE, p, quant_format=QDQ, activation_type=U8, weight_type=S8,
        extra_options={"DedicatedQDQPair": True, "AddQDQPairToWeight": True},
    ),
    "cnn_operator": lambda p: static(Network(), IMAGE, p, quant_format=OPERATOR, activation_type=U8, weight_type=S8),
    "mlp_qdq": lambda p: static(Perceptron(), ROWS, p, quant_format=QDQ, activation_type=U8, weight_type=S8),
    "mlp_operator": lambda p: static(Perceptron(), ROWS, p, quant_format=OPERATOR, activation_type=U8, weight_type=U8),
    "mlp_dynamic": lambda p: dynamic(Perceptron(), ROWS, p, weight_type=S8),
    "block_qdq": lambda p: static(Block(), WORDS, p, quant_format=QDQ, activation_type=U8, weight_type=S8),
    "block_dynamic": lambda p: dynamic(Block(), WORDS, p, weight_type=S8),
    "block_dynamic_channels": lambda p: dynamic(Block(), WORDS, p, weight_type=S8, per_channel=True),
    "block_nbits": lambda p: packed(Block(), WORDS, p, block_size=16, is_symmetric=True, quant_format=OPERATOR),
    "block_int4": lambda p: packed(Block(), WORDS, p, block_size=16, is_symmetric=True, quant_format=QDQ),
    "block_uint4": lambda p: packed(Block(), WORDS, p, block_size=32, is_symmetric=False, quant_format=QDQ),
    "trained": lambda p: export(Trained(), IMAGE, p),
    "trained_narrow": lambda p: export(Trained(0, 127), IMAGE, p),
    "trained_symmetric": lambda p: export(Trained(-128, 127), IMAGE, p),
    "cnn_half": lambda p: export(Network().half(), IMAGE, p, torch.float16),
    "block_half": lambda p: export(Block().half(), WORDS, p, torch.float16),
    "block_half_dynamo": lambda p: export(Block().half(), WORDS, p, torch.float16, dynamo=True, opset_version=20),
    "block_bfloat16": lambda p: export(Block().bfloat16(), WORDS, p, torch.bfloat16, dynamo=True, opset_version=22),
    "block_autocast": lambda p: export(Autocast(Block(), torch.float16), WORDS, p),
    "block_autocast_dynamo": lambda p: export(
        Autocast(Block(), torch.bfloat16), WORDS, p, dynamo=True, opset_version=22
    ),
    "mlp_autocast": lambda p: export(Autocast(Perceptron(), torch.float16), ROWS, p),
}  # fmt: skip


def main(names: list[str]) -> None:
    logging.disable(logging.WARNING)
    FOLDER.mkdir(exist_ok=True)
    for name in names or ASKED:
        torch.manual_seed(0)
        path = FOLDER / f"{name}.onnx"
        ASKED[name](path)
        model = onnx.load(path)
        for node in model.graph.node:
            node.doc_string = ""
            del node.metadata_props[:]
        del model.graph.value_info[:]
        onnx.save(model, path)
        path.with_name(f"{path.name}.data").unlink(missing_ok=True)
        print(f"{name}: {path.stat().st_size} bytes", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
