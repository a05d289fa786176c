"""Writes the corpus models that PaddlePaddle writes through paddle2onnx: tiny widths, random weights.

    python tests/corpus/make_paddle.py [NAME ...]

Run it in an environment of its own: Python 3.11, paddlepaddle 3.3, paddle2onnx 2.1, setuptools, onnx 1.23.
The nets are put together from ``paddle.nn`` as PP-OCR, PP-LCNet, PP-YOLOE and ERNIE are.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import paddle
import paddle2onnx
from paddle import nn
from paddle.static import InputSpec

FOLDER = Path(__file__).parent / "paddle"
LARGEST = 40_000


@dataclass(frozen=True)
class Case:
    """A model to export: its module, its inputs (name, shape with -1 for open, dtype), and the opset."""

    module: type[nn.Layer]
    inputs: tuple[tuple[str, tuple[int, ...], str], ...]
    opset: int = 14


class ConvNorm(nn.Sequential):
    def __init__(
        self, inner: int, outer: int, kernel: int = 3, stride: int = 1, groups: int = 1, act: Any = None
    ) -> None:
        conv = nn.Conv2D(inner, outer, kernel, stride, kernel // 2, groups=groups, bias_attr=False)
        super().__init__(conv, nn.BatchNorm2D(outer), *([act()] if act else []))


class SqueezeExcite(nn.Layer):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2D(width, width // 4, 1), nn.Conv2D(width // 4, width, 1)

    def forward(self, x: Any) -> Any:
        s = nn.functional.relu(self.down(nn.functional.adaptive_avg_pool2d(x, 1)))
        return x * nn.functional.hardsigmoid(self.up(s), slope=0.2, offset=0.5)


class LcBlock(nn.Layer):
    """A block of PP-LCNet: depthwise, squeeze and excite, pointwise, all with hard-swish."""

    def __init__(self, inner: int, outer: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.depthwise = ConvNorm(inner, inner, kernel, stride, inner, nn.Hardswish)
        self.gate, self.pointwise = SqueezeExcite(inner), ConvNorm(inner, outer, 1, act=nn.Hardswish)

    def forward(self, x: Any) -> Any:
        return self.pointwise(self.gate(self.depthwise(x)))


class Lcnet(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvNorm(3, 8, 3, 2, act=nn.Hardswish)
        self.blocks = nn.Sequential(LcBlock(8, 8, 3, 1), LcBlock(8, 16, 5, 2))
        self.last, self.dropout, self.fc = nn.Conv2D(16, 24, 1, bias_attr=False), nn.Dropout(0.2), nn.Linear(24, 5)

    def forward(self, image: Any) -> Any:
        x = nn.functional.hardswish(self.last(nn.functional.adaptive_avg_pool2d(self.blocks(self.stem(image)), 1)))
        return nn.functional.softmax(self.fc(paddle.flatten(self.dropout(x), 1)))


class Learnable(nn.Layer):
    """The affine and activation blocks of PP-OCRv4's backbone: x*s + t with scalars, after each convolution."""

    def __init__(self, inner: int, outer: int, stride: int = 1) -> None:
        super().__init__()
        self.branches = nn.LayerList([ConvNorm(inner, outer, k, stride) for k in (3, 1)])
        make = self.create_parameter
        one, zero = nn.initializer.Constant(1.1), nn.initializer.Constant(0.1)
        self.scales = [make([1], default_initializer=one) for _ in range(2)]
        self.shifts = [make([1], default_initializer=zero) for _ in range(2)]
        for i in range(2):
            self.add_parameter(f"scale_{i}", self.scales[i])
            self.add_parameter(f"shift_{i}", self.shifts[i])

    def forward(self, x: Any) -> Any:
        y = sum(branch(x) for branch in self.branches)
        y = nn.functional.hardswish(y * self.scales[0] + self.shifts[0])
        return y * self.scales[1] + self.shifts[1]


class Ocr(nn.Layer):
    """Recognition as PP-OCR does it: convolutions, then a sequence of columns through attention."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(ConvNorm(3, 8, 3, 2, act=nn.Hardswish), Learnable(8, 8), Learnable(8, 16, 2))
        self.norm, self.qkv, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.norm_2, self.wide, self.narrow = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)
        self.fc = nn.Linear(16, 12)

    def attention(self, x: Any) -> Any:
        width = x.shape[-1]
        qkv = self.qkv(x).reshape((0, -1, 3, 2, width // 2)).transpose((2, 0, 3, 1, 4))
        q, k, v = qkv[0] * (width // 2) ** -0.5, qkv[1], qkv[2]
        mixed = nn.functional.softmax(q.matmul(k.transpose((0, 1, 3, 2))), -1).matmul(v)
        return self.out(mixed.transpose((0, 2, 1, 3)).reshape((0, -1, width)))

    def forward(self, image: Any) -> Any:
        x = nn.functional.avg_pool2d(self.body(image), (2, 1)).mean(2, keepdim=True)
        x = x.squeeze(2).transpose((0, 2, 1))
        x = x + self.attention(self.norm(x))
        x = x + self.narrow(nn.functional.swish(self.wide(self.norm_2(x))))
        return nn.functional.softmax(self.fc(x), -1)


class OcrDetection(nn.Layer):
    """A feature pyramid and the head of PP-OCR detection: upsampling, concatenation, transposed convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = ConvNorm(3, 8, 3, 2, act=nn.Hardswish), ConvNorm(8, 16, 3, 2, act=nn.Hardswish)
        self.side = nn.LayerList([nn.Conv2D(8, 8, 1, bias_attr=False), nn.Conv2D(16, 8, 1, bias_attr=False)])
        self.smooth = nn.LayerList([ConvNorm(8, 4), ConvNorm(8, 4)])
        self.gates = nn.LayerList([SqueezeExcite(4), SqueezeExcite(4)])
        self.up, self.norm, self.last = nn.Conv2DTranspose(8, 4, 2, 2), nn.BatchNorm2D(4), nn.Conv2D(4, 1, 1)

    def forward(self, image: Any) -> Any:
        a = self.a(image)
        b = self.b(a)
        p, q = self.side[0](a), self.side[1](b)
        p = p + nn.functional.upsample(q, size=paddle.shape(p)[2:], mode="nearest")
        p, q = self.smooth[0](p), self.smooth[1](q)
        p, q = p + self.gates[0](p), q + self.gates[1](q)
        x = paddle.concat([nn.functional.upsample(q, size=paddle.shape(p)[2:], mode="nearest"), p], axis=1)
        return nn.functional.sigmoid(self.last(nn.functional.relu(self.norm(self.up(x)))))


class Yolo(nn.Layer):
    """The head of PP-YOLOE: distances as expectations over bins, anchors, boxes from both."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvNorm(3, 8, 3, 2, act=nn.Swish)
        self.left, self.right = ConvNorm(8, 4, 1, act=nn.Swish), ConvNorm(8, 4, 1, act=nn.Swish)
        self.inner, self.merge = ConvNorm(4, 4, 3, act=nn.Swish), ConvNorm(8, 8, 1, act=nn.Swish)
        self.scores, self.bins = nn.Conv2D(8, 3, 3, padding=1), nn.Conv2D(8, 4 * 5, 3, padding=1)
        self.project = paddle.arange(5, dtype="float32").reshape((1, 5, 1, 1))

    def forward(self, image: Any) -> Any:
        x = self.stem(image)
        right = self.right(x)
        x = self.merge(paddle.concat([self.left(x), right + self.inner(right)], axis=1))
        x = nn.functional.max_pool2d(paddle.concat([x, nn.functional.max_pool2d(x, 5, 1, 2)], 1), 2)[:, :8]
        _, _, h, w = x.shape
        bins = self.bins(x).reshape((-1, 4, 5, h * w)).transpose((0, 2, 3, 1))
        distances = (nn.functional.softmax(bins, 1) * self.project).sum(1)
        ys, xs = paddle.meshgrid(paddle.arange(h, dtype="float32") + 0.5, paddle.arange(w, dtype="float32") + 0.5)
        anchors = paddle.stack([xs, ys], -1).reshape((-1, 2))
        start, end = paddle.split(distances, 2, -1)
        boxes = paddle.concat([anchors - start, anchors + end], -1) * 4.0
        return boxes, nn.functional.sigmoid(self.scores(x)).reshape((-1, 3, h * w))


class Ernie(nn.Layer):
    """Embeddings, a mask of padding, an encoder layer, a pooled first token."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(24, 16), nn.Embedding(12, 16)
        self.norm, self.pool = nn.LayerNorm(16), nn.Linear(16, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, activation="gelu")

    def forward(self, ids: Any) -> Any:
        mask = (ids == 0).astype("float32").unsqueeze((1, 2)) * -1e4
        places = paddle.cumsum(paddle.ones_like(ids), -1) - 1
        x = self.layer(self.norm(self.words(ids) + self.places(places)), mask)
        return nn.functional.tanh(self.pool(x[:, 0]))


class Decoder(nn.Layer):
    """A causal decoder layer with cross-attention."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerDecoderLayer(16, 2, 24, activation="relu", normalize_before=True)

    def forward(self, x: Any, memory: Any) -> Any:
        mask = paddle.tensor.triu(paddle.full((x.shape[1], x.shape[1]), -np.inf), 1)
        return self.layer(x, memory, mask)


class Crnn(nn.Layer):
    """Convolutions, then recurrent layers in both directions over the columns."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = ConvNorm(1, 4, 3, (4, 2), act=nn.ReLU)
        self.lstm, self.gru = nn.LSTM(4, 5, direction="bidirect"), nn.GRU(10, 5)
        self.fc = nn.Linear(5, 6)

    def forward(self, image: Any) -> Any:
        x = nn.functional.max_pool2d(self.conv(image), (2, 1)).squeeze(2).transpose((0, 2, 1))
        x, _ = self.lstm(x)
        x, _ = self.gru(x)
        return nn.functional.log_softmax(self.fc(x), -1)


class Swin(nn.Layer):
    """Windows: pad, roll, cut into windows, attention with a bias by relative position, back, merged patches."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm, self.qkv, self.out = (
            nn.Conv2D(3, 8, 2, 2),
            nn.LayerNorm(8),
            nn.Linear(8, 24),
            nn.Linear(8, 8),
        )
        self.table = self.create_parameter([9, 2])
        self.merge, self.norm_2 = nn.Linear(32, 16, bias_attr=False), nn.LayerNorm(32)
        one = np.stack(np.meshgrid(np.arange(2), np.arange(2), indexing="ij")).reshape(2, -1)
        offset = (one[:, :, None] - one[:, None]) + 1
        self.places = paddle.to_tensor(offset[0] * 3 + offset[1])

    def forward(self, image: Any) -> Any:
        x = self.embed(image).flatten(2).transpose((0, 2, 1))
        skip, x = x, self.norm(x).reshape((-1, 8, 8, 8))
        x = paddle.roll(x, (-1, -1), (1, 2))
        x = x.reshape((-1, 4, 2, 4, 2, 8)).transpose((0, 1, 3, 2, 4, 5)).reshape((-1, 4, 8))
        q, k, v = self.qkv(x).reshape((-1, 4, 3, 2, 4)).transpose((2, 0, 3, 1, 4)).unbind(0)
        bias = paddle.index_select(self.table, self.places.flatten()).reshape((4, 4, 2)).transpose((2, 0, 1))
        x = nn.functional.softmax((q * 0.5) @ k.transpose((0, 1, 3, 2)) + bias.unsqueeze(0), -1) @ v
        x = self.out(x.transpose((0, 2, 1, 3)).reshape((-1, 4, 8)))
        x = x.reshape((-1, 4, 4, 2, 2, 8)).transpose((0, 1, 3, 2, 4, 5)).reshape((-1, 8, 8, 8))
        x = skip + paddle.roll(x, (1, 1), (1, 2)).reshape((-1, 64, 8))
        x = x.reshape((-1, 8, 8, 8))
        x = paddle.concat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1)
        return self.merge(self.norm_2(x.reshape((-1, 16, 32))))


class Norms(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.LayerList([nn.Conv2D(3 if i == 0 else 8, 8, 3, padding=1) for i in range(4)])
        self.group, self.instance, self.batch = nn.GroupNorm(2, 8), nn.InstanceNorm2D(8), nn.BatchNorm2D(8)
        self.prelu, self.local = nn.PReLU(8), nn.LocalResponseNorm(5)

    def forward(self, image: Any) -> Any:
        x = nn.functional.silu(self.group(self.convs[0](image)))
        x = nn.functional.leaky_relu(self.instance(self.convs[1](x)))
        x = self.prelu(self.batch(self.convs[2](x)))
        x = nn.functional.selu(self.local(self.convs[3](x)))
        y = nn.functional.normalize(x.mean((2, 3)), axis=1)
        return y, nn.functional.elu(x), nn.functional.relu6(x)


class Shapes(nn.Layer):
    """Sizes read off open dimensions, and what is computed from them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2D(3, 4, 3, padding=1), nn.Linear(4, 6)

    def forward(self, image: Any) -> Any:
        x = self.conv(image)
        batch, _, h, w = paddle.shape(x)
        y = self.fc(x.flatten(2).transpose((0, 2, 1)))
        y = y.transpose((0, 2, 1)).reshape((batch, 6, h, w))
        y = nn.functional.interpolate(y, size=[h * 2, w * 2], mode="bilinear")
        y = nn.functional.pad(y, [1, 1, 1, 1])
        rows = paddle.arange(h, dtype="int64").astype("float32").unsqueeze(-1).expand((h, w))
        return y[:, :, 1:-1, 1:-1], paddle.where(rows > 1.0, rows, paddle.zeros_like(rows))


class Points(nn.Layer):
    """What detection does after the net: top scores, gathered boxes, scatter, choice by mask."""

    def forward(self, scores: Any, boxes: Any) -> Any:
        best, kinds = scores.max(-1), nn.functional.softmax(scores, -1).argmax(-1)
        values, places = paddle.topk(best, 4)
        kept = paddle.gather_nd(boxes, places.unsqueeze(-1))
        filled = paddle.scatter_nd_add(paddle.zeros_like(boxes), places.unsqueeze(-1), kept)
        labels = paddle.take_along_axis(kinds, places, 0)
        one_hot = nn.functional.one_hot(labels, 3) @ paddle.to_tensor(np.arange(6, dtype="float32").reshape(3, 2))
        sized = kept[:, 2:] - kept[:, :2]
        mask = paddle.logical_and(sized[:, 0] > 0, paddle.logical_not(sized[:, 1] <= 0))
        return values * mask.astype("float32"), filled, one_hot, paddle.stack([sized[:, 0], sized[:, 1]], 1)


class Control(nn.Layer):
    """A loop and a condition on tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        i = paddle.zeros([1], "int64")
        limit = paddle.full([1], 3, "int64")

        def body(i: Any, x: Any) -> Any:
            return i + 1, nn.functional.tanh(self.fc(x)) + x

        _, x = paddle.static.nn.while_loop(lambda i, x: i < limit, body, [i, x])
        return paddle.static.nn.cond(x.sum() > 0, lambda: x * 2.0, lambda: x - 1.0)


IMAGE, OPEN = ("image", (1, 3, 32, 32), "float32"), ("image", (-1, 3, 32, 32), "float32")
CASES = {
    "lcnet": Case(Lcnet, (OPEN,)),
    "lcnet_fixed": Case(Lcnet, (IMAGE,), 11),
    "ocr": Case(Ocr, (("image", (-1, 3, 16, -1), "float32"),)),
    "ocr_fixed": Case(Ocr, (("image", (1, 3, 16, 32), "float32"),), 11),
    "ocr_detection": Case(OcrDetection, (("image", (-1, 3, -1, -1), "float32"),), 11),
    "yolo": Case(Yolo, (IMAGE,), 17),
    "ernie": Case(Ernie, (("ids", (-1, -1), "int64"),), 17),
    "ernie_fixed": Case(Ernie, (("ids", (1, 6), "int64"),), 13),
    "decoder": Case(Decoder, (("x", (2, 5, 16), "float32"), ("memory", (2, 3, 16), "float32")), 17),
    "crnn": Case(Crnn, (("image", (1, 1, 8, 32), "float32"),)),
    "swin": Case(Swin, (("image", (-1, 3, 16, 16), "float32"),), 17),
    "norms": Case(Norms, (IMAGE,), 17),
    "shapes": Case(Shapes, (("image", (-1, 3, -1, -1), "float32"),)),
    "points": Case(Points, (("scores", (10, 3), "float32"), ("boxes", (10, 4), "float32")), 16),
    "control": Case(Control, (("x", (2, 4), "float32"),), 16),
}


def export(case: Case) -> bytes:
    """The model as paddle2onnx writes it."""
    paddle.seed(0)
    module = case.module()
    rng = np.random.default_rng(0)
    for name, value in module.state_dict().items():
        if any(word in name for word in ("_mean", "_variance", "norm", "bias")):
            value.set_value(rng.uniform(0.5, 1.5, value.shape).astype("float32"))
    module.eval()
    specs = [InputSpec(shape, dtype, name) for name, shape, dtype in case.inputs]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net"
        paddle.jit.save(module, str(path), input_spec=specs)
        (program,) = [p for p in Path(folder).iterdir() if p.suffix in (".json", ".pdmodel")]
        target = Path(folder) / "net.onnx"
        options = {"opset_version": case.opset, "optimize_tool": "None", "verbose": False}
        paddle2onnx.export(str(program), f"{path}.pdiparams", str(target), **options)
        model = onnx.load(target)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString(deterministic=True))


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or CASES:
        try:
            data = export(CASES[name])
        except (Exception, SystemExit) as error:
            print(f"{name}: {type(error).__name__}: {str(error)[-400:]}")
            continue
        print(f"{name}: {len(data)} bytes{' (TOO LARGE)' if len(data) > LARGEST else ''}")
        (FOLDER / f"{name}.onnx").write_bytes(data)


if __name__ == "__main__":
    main()
