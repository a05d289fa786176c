"""Writes the corpus models that TensorFlow and Keras write through tf2onnx: tiny widths, random weights.

    python tests/corpus/make_tensorflow.py [NAME ...]

Run it in an environment of its own: Python 3.11, tensorflow-cpu 2.21, keras 3.15, tf2onnx 1.17, onnx 1.23.
Most nets are Keras layers, put together as users do; the others are functions of ``tf``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import onnx
import tensorflow as tf
import tf2onnx
from keras import layers

FOLDER = Path(__file__).parent / "tensorflow"
LARGEST = 40_000


@dataclass(frozen=True)
class Case:
    """A model to export: what makes it, the type of each input (name, shape, dtype), and the opset."""

    make: Callable[[], Callable[..., Any]]
    inputs: tuple[tuple[str, tuple[int | None, ...], str], ...]
    opset: int = 17


def net(make: Callable[..., Any], *inputs: tuple[str, tuple[int | None, ...], str]) -> Callable[[], keras.Model]:
    """A Keras model from a function of its inputs, its moving averages moved away from where they start."""

    def build() -> keras.Model:
        given = [keras.Input(shape[1:], dtype=dtype, name=name) for name, shape, dtype in inputs]
        model = keras.Model(given, make(*given))
        rng = np.random.default_rng(0)
        for weight in model.weights:
            if any(word in weight.path for word in ("moving_", "beta", "gamma", "bias")):
                weight.assign(rng.uniform(0.5, 1.5, weight.shape).astype("float32"))
        return model

    return build


def conv_norm(x: Any, width: int, kernel: int = 3, stride: int = 1, act: str | None = "relu", **options: Any) -> Any:
    x = layers.Conv2D(width, kernel, strides=stride, padding="same", use_bias=False, **options)(x)
    x = layers.BatchNormalization()(x)
    return layers.Activation(act)(x) if act else x


def squeeze_excite(x: Any, gate: str) -> Any:
    width = x.shape[-1]
    s = layers.GlobalAveragePooling2D(keepdims=True)(x)
    s = layers.Conv2D(max(width // 4, 4), 1, activation="relu")(s)
    return layers.Multiply()([x, layers.Conv2D(width, 1, activation=gate)(s)])


def mobilenet_v2(image: Any) -> Any:
    x = conv_norm(image, 8, 3, 2, "relu6")
    for stride in (1, 2, 1):
        skip, width = x, x.shape[-1]
        x = conv_norm(x, 2 * width, 1, 1, "relu6")
        x = layers.ZeroPadding2D(((0, 1), (0, 1)))(x) if stride == 2 else x
        x = layers.DepthwiseConv2D(3, stride, "valid" if stride == 2 else "same", use_bias=False)(x)
        x = layers.ReLU(6.0)(layers.BatchNormalization()(x))
        x = conv_norm(x, width, 1, 1, None)
        x = layers.Add()([skip, x]) if stride == 1 else x
    return layers.Dense(5, activation="softmax")(layers.GlobalAveragePooling2D()(x))


def mobilenet_v3(image: Any) -> Any:
    x = layers.Rescaling(1 / 127.5, -1.0)(image)
    x = conv_norm(x, 8, 3, 2, "hard_silu")
    for kernel, stride in ((3, 2), (5, 1)):
        skip = x
        x = conv_norm(x, 16, 1, 1, "hard_silu")
        x = layers.DepthwiseConv2D(kernel, stride, "same", use_bias=False)(x)
        x = layers.Activation("hard_silu")(layers.BatchNormalization()(x))
        x = squeeze_excite(x, "hard_sigmoid")
        x = conv_norm(x, 8, 1, 1, None)
        x = layers.Add()([skip, x]) if stride == 1 else x
    x = layers.GlobalAveragePooling2D(keepdims=True)(x)
    x = layers.Conv2D(16, 1, activation="hard_silu")(x)
    return layers.Softmax()(layers.Flatten()(layers.Conv2D(5, 1)(layers.Dropout(0.2)(x))))


def mobilenet_v3_decomposed(image: Any) -> Any:
    def hard_sigmoid(x: Any) -> Any:
        return layers.ReLU(6.0)(x + 3.0) * (1.0 / 6.0)

    x = conv_norm(image, 8, 3, 2, None)
    x = x * hard_sigmoid(x)
    x = layers.DepthwiseConv2D(3, 1, "same", use_bias=False)(x)
    x = layers.BatchNormalization()(x)
    x = layers.Multiply()([x, hard_sigmoid(x)])
    return layers.Dense(5)(layers.GlobalAveragePooling2D()(x))


def efficientnet(image: Any) -> Any:
    x = layers.Normalization(mean=[0.5, 0.4, 0.3], variance=[0.04, 0.05, 0.06])(layers.Rescaling(1 / 255)(image))
    x = layers.ZeroPadding2D(((0, 1), (0, 1)))(x)
    x = layers.Conv2D(8, 3, 2, "valid", use_bias=False)(x)
    x = layers.Activation("swish")(layers.BatchNormalization()(x))
    for _ in range(2):
        skip = x
        x = conv_norm(x, 16, 1, 1, "swish")
        x = layers.DepthwiseConv2D(3, 1, "same", use_bias=False)(x)
        x = layers.Activation("swish")(layers.BatchNormalization()(x))
        x = squeeze_excite(x, "sigmoid")
        x = layers.Add()([layers.Dropout(0.2)(conv_norm(x, 8, 1, 1, None)), skip])
    return layers.Dense(5, activation="softmax")(layers.GlobalAveragePooling2D()(x))


def resnet(image: Any) -> Any:
    x = layers.ZeroPadding2D(3)(image)
    x = layers.Conv2D(8, 7, 2)(x)
    x = layers.Activation("relu")(layers.BatchNormalization()(x))
    x = layers.MaxPooling2D(3, 2)(layers.ZeroPadding2D(1)(x))
    for stride in (1, 2):
        skip = conv_norm(x, 16, 1, stride, None)
        y = conv_norm(x, 8, 1, stride)
        y = conv_norm(conv_norm(y, 8, 3), 16, 1, 1, None)
        x = layers.Activation("relu")(layers.Add()([skip, y]))
    return layers.Dense(5, activation="softmax")(layers.GlobalAveragePooling2D()(x))


def resnet_v2(image: Any) -> Any:
    x = layers.Conv2D(8, 3, 1, "same")(image)
    for _ in range(2):
        y = layers.Activation("relu")(layers.BatchNormalization()(x))
        y = layers.Conv2D(8, 3, 1, "same", use_bias=False)(y)
        y = layers.Conv2D(8, 3, 1, "same")(layers.Activation("relu")(layers.BatchNormalization()(y)))
        x = layers.Add()([layers.MaxPooling2D(1, 1)(x), y])
    x = layers.Activation("relu")(layers.BatchNormalization()(x))
    return layers.Dense(5)(layers.GlobalAveragePooling2D()(x))


def inception(image: Any) -> Any:
    x = conv_norm(image, 8)
    branches = [
        conv_norm(x, 4, 1),
        conv_norm(conv_norm(x, 4, 1), 4, 3),
        conv_norm(conv_norm(x, 4, 1), 4, (1, 5)),
        conv_norm(layers.AveragePooling2D(3, 1, "same")(x), 4, 1),
    ]
    x = layers.Concatenate()(branches)
    x = layers.Concatenate(axis=-1)([x, layers.Activation("tanh")(x)])
    return layers.Dense(5)(layers.GlobalMaxPooling2D()(x))


def densenet(image: Any) -> Any:
    x = conv_norm(image, 8)
    for _ in range(3):
        y = layers.Activation("relu")(layers.BatchNormalization()(x))
        y = layers.Conv2D(4, 3, padding="same", use_bias=False)(y)
        x = layers.Concatenate()([x, y])
    x = layers.AveragePooling2D(2)(layers.Conv2D(8, 1)(layers.Activation("relu")(layers.BatchNormalization()(x))))
    return layers.Dense(5)(layers.GlobalAveragePooling2D()(x))


def unet(image: Any) -> Any:
    a = conv_norm(image, 4)
    b = conv_norm(layers.MaxPooling2D()(a), 8)
    c = conv_norm(layers.MaxPooling2D()(b), 8)
    x = layers.Concatenate()([layers.UpSampling2D()(c), b])
    x = layers.Conv2DTranspose(4, 3, 2, "same", activation="leaky_relu")(conv_norm(x, 8))
    x = layers.Concatenate()([layers.UpSampling2D(interpolation="bilinear")(conv_norm(x, 4, 1, 2)), a])
    return layers.Conv2D(2, 1, activation="sigmoid")(x)


def deeplab(image: Any) -> Any:
    x = conv_norm(image, 8, 3, 2)
    branches = [conv_norm(x, 4, 1)] + [conv_norm(x, 4, 3, 1, "relu", dilation_rate=rate) for rate in (2, 3)]
    pooled = conv_norm(layers.GlobalAveragePooling2D(keepdims=True)(x), 4, 1)
    pooled = layers.UpSampling2D(x.shape[1:3], interpolation="bilinear")(pooled)
    x = conv_norm(layers.Concatenate()([*branches, pooled]), 8, 1)
    return layers.Softmax()(layers.Resizing(*image.shape[1:3])(layers.Conv2D(3, 1)(x)))


def head_detection(image: Any) -> Any:
    x = conv_norm(image, 8, 3, 2, "relu6")
    boxes, scores = [], []
    for _ in range(2):
        x = conv_norm(x, 8, 3, 2, "relu6")
        boxes.append(layers.Reshape((-1, 4))(layers.Conv2D(3 * 4, 3, padding="same")(x)))
        scores.append(layers.Reshape((-1, 5))(layers.Conv2D(3 * 5, 3, padding="same")(x)))
    return [layers.Concatenate(axis=1)(boxes), layers.Activation("sigmoid")(layers.Concatenate(axis=1)(scores))]


def gelu(x: Any) -> Any:
    """Keras' own form before it took ``erfc``, which tf2onnx does not know."""
    return 0.5 * x * (1.0 + tf.math.erf(x / tf.cast(1.4142135623730951, x.dtype)))


def encoder_block(x: Any, mask: Any = None, act: Any = gelu) -> Any:
    width = x.shape[-1]
    y = layers.MultiHeadAttention(2, width // 2)(x, x, attention_mask=mask)
    x = layers.LayerNormalization(epsilon=1e-6)(layers.Add()([x, layers.Dropout(0.1)(y)]))
    y = layers.Dense(width)(layers.Dense(2 * width, activation=act)(x))
    return layers.LayerNormalization(epsilon=1e-6)(layers.Add()([x, y]))


class Positions(layers.Layer):
    """Learned positions, added to a sequence."""

    def build(self, shape: Any) -> None:
        self.table = self.add_weight(shape=(16, shape[-1]), initializer="uniform")

    def call(self, x: Any) -> Any:
        return x + self.table[: tf.shape(x)[1]]


def bert(ids: Any, mask: Any) -> Any:
    x = Positions()(layers.Embedding(24, 16)(ids))
    x = layers.LayerNormalization()(x)
    x = encoder_block(x, layers.Reshape((1, -1))(mask))
    return layers.Dense(3)(layers.Dense(16, activation="tanh")(x[:, 0]))


def vit(image: Any) -> Any:
    x = layers.Reshape((-1, 16))(layers.Conv2D(16, 4, 4)(image))
    x = Positions()(x)
    y = layers.LayerNormalization()(x)
    x = x + layers.MultiHeadAttention(2, 8)(y, y)
    y = layers.Dense(32, activation=lambda v: keras.activations.gelu(v, approximate=True))(
        layers.LayerNormalization()(x)
    )
    x = x + layers.Dense(16)(y)
    return layers.Dense(5)(layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x)))


def decoder(ids: Any) -> Any:
    x = Positions()(layers.Embedding(24, 16)(ids))
    y = layers.LayerNormalization()(x)
    y = layers.GroupQueryAttention(4, 4, 2)(y, y, use_causal_mask=True)
    x = layers.LayerNormalization(rms_scaling=True)(x + y)
    gated = layers.Dense(24, activation="silu", use_bias=False)(x) * layers.Dense(24, use_bias=False)(x)
    return layers.Dense(24)(x + layers.Dense(16, use_bias=False)(gated))


def mixer(image: Any) -> Any:
    x = layers.Reshape((16, 12))(layers.Conv2D(12, 4, 4)(image))
    y = layers.Permute((2, 1))(layers.LayerNormalization()(x))
    y = layers.Permute((2, 1))(layers.Dense(16)(layers.Dense(8, activation=gelu)(y)))
    x = layers.Add()([x, y])
    y = layers.Dense(12)(layers.Dense(24, activation="mish")(layers.LayerNormalization()(x)))
    return layers.Dense(5)(layers.GlobalAveragePooling1D()(layers.Add()([x, y])))


def convnext(image: Any) -> Any:
    x = layers.LayerNormalization(epsilon=1e-6)(layers.Conv2D(8, 4, 4)(image))
    for _ in range(2):
        y = layers.LayerNormalization(epsilon=1e-6)(layers.DepthwiseConv2D(7, padding="same")(x))
        y = layers.Dense(8)(layers.Dense(32, activation=gelu)(y))
        x = layers.Add()([x, y * 0.5])
    return layers.Dense(5)(layers.LayerNormalization()(layers.GlobalAveragePooling2D()(x)))


def norms(image: Any) -> Any:
    x = layers.GroupNormalization(2)(layers.Conv2D(8, 3)(image))
    x = layers.UnitNormalization()(layers.PReLU(shared_axes=[1, 2])(x))
    x = layers.GroupNormalization(-1)(layers.ELU()(layers.Conv2D(8, 3)(x)))
    x = layers.Conv2D(8, 1)(layers.Activation("softplus")(x))
    return layers.LayerNormalization(axis=[1, 2, 3])(layers.LeakyReLU()(x))


def recurrent(ids: Any) -> Any:
    x = layers.Embedding(20, 8)(ids)
    x = layers.Bidirectional(layers.LSTM(6, return_sequences=True))(x)
    return layers.Dense(3, activation="softmax")(x)


def gated(signal: Any) -> Any:
    x = layers.GRU(6, return_sequences=True)(signal)
    return layers.Dense(3)(layers.SimpleRNN(4)(x))


def wavenet(signal: Any) -> Any:
    x = layers.Conv1D(8, 2, padding="causal")(signal)
    total = []
    for rate in (1, 2, 4):
        a = layers.Conv1D(8, 2, padding="causal", dilation_rate=rate, activation="tanh")(x)
        b = layers.Conv1D(8, 2, padding="causal", dilation_rate=rate, activation="sigmoid")(x)
        y = layers.Conv1D(8, 1)(layers.Multiply()([a, b]))
        total.append(y)
        x = layers.Add()([x, y])
    return layers.Conv1D(4, 1)(layers.ReLU()(layers.Add()(total)))


def separable(image: Any) -> Any:
    x = layers.SeparableConv2D(8, 3, padding="same", activation="relu")(image)
    x = layers.Cropping2D(1)(layers.BatchNormalization(scale=False)(x))
    x = layers.SeparableConv2D(8, 3, dilation_rate=2)(x)
    x = layers.Permute((3, 1, 2))(layers.Permute((2, 3, 1))(x))
    return layers.Dense(3)(layers.Flatten()(x))


def weights(*shape: int) -> Any:
    return tf.constant(np.random.default_rng(sum(shape)).normal(size=shape).astype("float32"))


def preprocess(image: Any) -> Any:
    x = tf.cast(image, tf.float32)
    x = tf.image.resize(x, (16, 16))
    x = (x - tf.constant([123.7, 116.8, 103.9])) / tf.constant([58.4, 57.1, 57.4])
    x = tf.reverse(x, axis=[-1])
    x = tf.image.central_crop(x, 0.75)
    x = tf.nn.conv2d(x, weights(3, 3, 3, 4), 2, "SAME")
    return tf.nn.relu(tf.nn.bias_add(x, weights(4)))


def postprocess(boxes: Any, scores: Any) -> Any:
    y, x, h, w = tf.unstack(boxes, axis=-1)
    corners = tf.stack([y - h / 2.0, x - w / 2.0, y + h / 2.0, x + w / 2.0], axis=-1)
    corners = tf.clip_by_value(corners, 0.0, 1.0)
    best = tf.reduce_max(scores, axis=-1)
    kind = tf.argmax(tf.nn.softmax(scores), axis=-1, output_type=tf.int32)
    kept = tf.image.non_max_suppression(corners, best, 5, 0.5, 0.1)
    return tf.gather(corners, kept), tf.gather(best, kept), tf.gather(kind, kept)


def top(scores: Any) -> Any:
    p = tf.nn.log_softmax(scores)
    values, places = tf.math.top_k(tf.exp(p), 3)
    return values, places, tf.reduce_max(p, axis=-1), tf.argmax(p, axis=-1)


def focus(image: Any) -> Any:
    parts = [image[:, ::2, ::2], image[:, 1::2, ::2], image[:, ::2, 1::2], image[:, 1::2, 1::2]]
    x = tf.nn.silu(tf.nn.conv2d(tf.concat(parts, -1), weights(3, 3, 12, 8), 1, "SAME"))
    x = tf.nn.space_to_depth(x, 2)
    return tf.nn.depth_to_space(tf.nn.conv2d(x, weights(1, 1, 32, 8), 1, "SAME"), 2)


def einsums(x: Any) -> Any:
    q = tf.einsum("btd,dhk->bthk", x, weights(8, 2, 4))
    k = tf.einsum("btd,dhk->bthk", x, weights(8, 2, 4) * 0.5)
    v = tf.einsum("btd,dhk->bthk", x, weights(8, 2, 4) + 0.5)
    scores = tf.einsum("bthk,bshk->bhts", q, k) * 0.5
    mask = tf.linalg.band_part(tf.ones((5, 5)), -1, 0)
    scores = scores - 1e9 * (1.0 - mask)
    mixed = tf.einsum("bhts,bshk->bthk", tf.nn.softmax(scores), v)
    return tf.einsum("bthk,hkd->btd", mixed, weights(2, 4, 8))


def lookup(ids: Any, lengths: Any) -> Any:
    x = tf.matmul(tf.one_hot(ids, 12), weights(12, 8))
    mask = tf.sequence_mask(lengths, 5, dtype=tf.float32)[..., None]
    mean = tf.reduce_sum(x * mask, axis=1) / tf.maximum(tf.reduce_sum(mask, axis=1), 1.0)
    last = tf.gather(x, tf.maximum(lengths - 1, 0), batch_dims=1)
    return tf.nn.l2_normalize(tf.concat([mean, last], axis=-1), axis=-1)


def indexing(x: Any, places: Any) -> Any:
    a = tf.gather_nd(x, places[:, None])
    b = tf.tensor_scatter_nd_update(tf.zeros_like(x), places[:, None], a)
    c = tf.scatter_nd(places[:, None], a, tf.shape(x, out_type=tf.int32))
    d = tf.where(tf.greater(b, 0.0), b, tf.zeros_like(b))
    return tf.concat([b[:, :2], c[:, 2:]], axis=1), tf.split(d, 3, axis=1)[1], tf.tile(a[:1], (1, 1))


def control(x: Any, flag: Any) -> Any:
    def body(i: Any, state: Any, idle: Any) -> Any:
        return i + 1, tf.tanh(tf.matmul(state, weights(4, 4)) + tf.matmul(x, weights(4, 4) * 0.5)), idle

    _, state, idle = tf.while_loop(lambda i, *_: i < 4, body, (0, x, x * 2.0))
    return tf.cond(flag, lambda: state + 1.0, lambda: tf.nn.relu(state) * 2.0) + idle


def shapes(x: Any) -> Any:
    batch, height, width = tf.shape(x)[0], tf.shape(x)[1], tf.shape(x)[2]
    y = tf.reshape(x, tf.stack([batch, height * width, 4]))
    y = tf.matmul(y, weights(4, 6))
    y = tf.reshape(y, tf.concat([tf.shape(x)[:3], [6]], 0))
    y = y + tf.cast(tf.range(tf.shape(y)[1]), tf.float32)[None, :, None, None]
    up = tf.image.resize(y, (height * 2, width * 2), method="nearest")
    return up[:, : height * 2, : width * 2, :3], tf.broadcast_to(y[:, :1], tf.shape(y))


def logic(x: Any, mask: Any) -> Any:
    keep = tf.logical_and(tf.not_equal(mask, 0), tf.logical_not(tf.less(x, 0.0)))
    weight = 1.0 - tf.cast(keep, tf.float32)
    y = tf.where(tf.logical_not(keep), x, 2.0 * x) + weight * -10000.0
    y = tf.where(keep, y, tf.where(keep, x, -x))
    return y, tf.cast(tf.cast(mask, tf.bool), tf.int32) * 3, tf.reduce_any(keep, axis=-1), tf.math.floormod(mask, 4)


def complexes(a: Any, b: Any) -> Any:
    real = a[..., 0] * b[..., 0] - a[..., 1] * b[..., 1]
    imaginary = a[..., 0] * b[..., 1] + a[..., 1] * b[..., 0]
    return tf.stack([real, imaginary], -1), tf.sqrt(tf.square(real) + tf.square(imaginary))


def statistics(x: Any) -> Any:
    mean, variance = tf.nn.moments(x, axes=[1, 2], keepdims=True)
    y = tf.nn.batch_normalization(x, mean, variance, weights(4), weights(4), 1e-3)
    y = tf.math.exp(y) * tf.math.exp(-y * 0.5)
    z = tf.reduce_logsumexp(y, axis=-1) + tf.reduce_mean(tf.reduce_mean(y, 1), 1, keepdims=True)[..., 0, None]
    return y, z, tf.math.reduce_std(x, axis=-1), tf.cumsum(x, axis=1), tf.norm(x, axis=-1)


def fake_quantized(image: Any) -> Any:
    x = tf.quantization.fake_quant_with_min_max_vars(image, -1.0, 1.0)
    kernel = tf.quantization.fake_quant_with_min_max_vars(weights(3, 3, 3, 4), -2.0, 2.0, narrow_range=True)
    x = tf.nn.relu6(tf.nn.conv2d(x, kernel, 1, "SAME") + weights(4))
    return tf.quantization.fake_quant_with_min_max_vars(x, 0.0, 6.0)


IMAGE = ("image", (1, 32, 32, 3), "float32")
OPEN = ("image", (None, 32, 32, 3), "float32")
IDS, MASK = ("ids", (None, 6), "int32"), ("mask", (None, 6), "int32")


def keras_case(make: Callable[..., Any], *inputs: tuple[str, tuple[int | None, ...], str], opset: int = 17) -> Case:
    return Case(net(make, *inputs), inputs, opset)


def plain_case(make: Callable[..., Any], *inputs: tuple[str, tuple[int | None, ...], str], opset: int = 17) -> Case:
    return Case(lambda: make, inputs, opset)


CASES = {
    "mobilenet_v2": keras_case(mobilenet_v2, IMAGE, opset=13),
    "mobilenet_v3": keras_case(mobilenet_v3, OPEN),
    "mobilenet_v3_decomposed": keras_case(mobilenet_v3_decomposed, IMAGE, opset=11),
    "efficientnet": keras_case(efficientnet, OPEN, opset=15),
    "resnet": keras_case(resnet, IMAGE),
    "resnet_v2": keras_case(resnet_v2, OPEN),
    "inception": keras_case(inception, IMAGE),
    "densenet": keras_case(densenet, IMAGE),
    "unet": keras_case(unet, IMAGE),
    "deeplab": keras_case(deeplab, IMAGE),
    "head_detection": keras_case(head_detection, OPEN),
    "bert": keras_case(bert, IDS, MASK),
    "vit": keras_case(vit, ("image", (1, 16, 16, 3), "float32")),
    "decoder": keras_case(decoder, IDS),
    "mixer": keras_case(mixer, ("image", (1, 16, 16, 3), "float32")),
    "convnext": keras_case(convnext, OPEN),
    "norms": keras_case(norms, ("image", (1, 10, 10, 3), "float32")),
    "recurrent": keras_case(recurrent, ("ids", (1, 6), "int32")),
    "gated": keras_case(gated, ("signal", (None, 5, 4), "float32")),
    "wavenet": keras_case(wavenet, ("signal", (1, 32, 1), "float32")),
    "separable": keras_case(separable, ("image", (1, 12, 12, 3), "float32")),
    "preprocess": plain_case(preprocess, ("image", (1, 24, 24, 3), "uint8")),
    "postprocess": plain_case(postprocess, ("boxes", (20, 4), "float32"), ("scores", (20, 3), "float32")),
    "top": plain_case(top, ("scores", (2, 10), "float32")),
    "focus": plain_case(focus, ("image", (1, 16, 16, 3), "float32")),
    "einsums": plain_case(einsums, ("x", (2, 5, 8), "float32")),
    "lookup": plain_case(lookup, ("ids", (2, 5), "int32"), ("lengths", (2,), "int32")),
    "indexing": plain_case(indexing, ("x", (4, 3), "float32"), ("places", (2,), "int32")),
    "control": plain_case(control, ("x", (2, 4), "float32"), ("flag", (), "bool")),
    "shapes": plain_case(shapes, ("x", (None, None, None, 4), "float32")),
    "logic": plain_case(logic, ("x", (2, 6), "float32"), ("mask", (2, 6), "int32")),
    "complexes": plain_case(complexes, ("a", (2, 4, 2), "float32"), ("b", (2, 4, 2), "float32")),
    "statistics": plain_case(statistics, ("x", (1, 5, 6, 4), "float32")),
    "fake_quantized": plain_case(fake_quantized, ("image", (1, 8, 8, 3), "float32")),
}


def export(case: Case) -> bytes:
    """The model as tf2onnx writes it, without what is of no use in a corpus."""
    keras.utils.set_random_seed(0)
    made = case.make()
    signature = [tf.TensorSpec(shape, dtype, name=name) for name, shape, dtype in case.inputs]

    def call(*given: Any) -> Any:
        if not isinstance(made, keras.Model):
            return made(*given)
        return made(given[0] if len(given) == 1 else list(given), training=False)

    function = tf.function(call, input_signature=signature)
    model, _ = tf2onnx.convert.from_function(function, signature, opset=case.opset)
    for node in model.graph.node:
        node.name = ""  # as long as the names of values, and about half of such a small file
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString(deterministic=True))


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or CASES:
        try:
            data = export(CASES[name])
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {str(error)[:300]}")
            continue
        print(f"{name}: {len(data)} bytes{' (TOO LARGE)' if len(data) > LARGEST else ''}")
        (FOLDER / f"{name}.onnx").write_bytes(data)


if __name__ == "__main__":
    main()
