"""Models written in Python, as modules with parameters: ``export`` writes their graph, without ONNX or training.

A model of images, compiled::

    from graphopt import nn

    class Net(nn.Module):
        def __init__(self):
            self.conv = nn.Conv2d(3, 16, 3, padding=1)
            self.head = nn.Linear(16, 10)

        def forward(self, x):
            return self.head(nn.relu(self.conv(x)).mean((2, 3)))

    net = Net().initialize(seed=0)  # or net.load_state_dict("net.safetensors")
    model = graphopt.compile(nn.export(net, {"x": "float32[n, 3, 32, 32]"}))

Examples of the functions and layers have inputs of these types:

>>> from graphopt import nn, tensor
>>> X, WORDS, IMAGE = {"x": "float32[n, 8]"}, {"x": "float32[n, words, 8]"}, {"x": "float32[n, 4, 8, 8]"}
"""

from graphopt.nn.activations import (
    ELU,
    GELU,
    Flatten,
    Hardsigmoid,
    Hardswish,
    Identity,
    LeakyReLU,
    LogSoftmax,
    Mish,
    PReLU,
    ReLU,
    ReLU6,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Tanh,
)
from graphopt.nn.attention import Attention, MultiheadAttention
from graphopt.nn.export import export
from graphopt.nn.functions import (
    arange,
    attention,
    broadcast_to,
    clip,
    concat,
    cos,
    einsum,
    elu,
    embedding,
    erf,
    exp,
    flatten,
    gelu,
    hardsigmoid,
    hardswish,
    leaky_relu,
    linear,
    log,
    log_softmax,
    matmul,
    maximum,
    minimum,
    mish,
    relu,
    relu6,
    rotary,
    sigmoid,
    silu,
    sin,
    softmax,
    softplus,
    split,
    sqrt,
    stack,
    tanh,
    where,
)
from graphopt.nn.layers import (
    AdaptiveAvgPool2d,
    AvgPool2d,
    Conv1d,
    Conv2d,
    ConvTranspose2d,
    Embedding,
    Linear,
    MaxPool2d,
)
from graphopt.nn.module import Module, ModuleList, Sequential, Unmatched
from graphopt.nn.normalization import BatchNorm1d, BatchNorm2d, GroupNorm, InstanceNorm2d, LayerNorm, RMSNorm
from graphopt.nn.scope import call, emit, emit_compute
from graphopt.nn.tensor import Parameter, Tensor

__all__ = [
    "ELU",
    "GELU",
    "AdaptiveAvgPool2d",
    "Attention",
    "AvgPool2d",
    "BatchNorm1d",
    "BatchNorm2d",
    "Conv1d",
    "Conv2d",
    "ConvTranspose2d",
    "Embedding",
    "Flatten",
    "GroupNorm",
    "Hardsigmoid",
    "Hardswish",
    "Identity",
    "InstanceNorm2d",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LogSoftmax",
    "MaxPool2d",
    "Mish",
    "Module",
    "ModuleList",
    "MultiheadAttention",
    "PReLU",
    "Parameter",
    "RMSNorm",
    "ReLU",
    "ReLU6",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Tanh",
    "Tensor",
    "Unmatched",
    "arange",
    "attention",
    "broadcast_to",
    "call",
    "clip",
    "concat",
    "cos",
    "einsum",
    "elu",
    "embedding",
    "emit",
    "emit_compute",
    "erf",
    "exp",
    "export",
    "flatten",
    "gelu",
    "hardsigmoid",
    "hardswish",
    "leaky_relu",
    "linear",
    "log",
    "log_softmax",
    "matmul",
    "maximum",
    "minimum",
    "mish",
    "relu",
    "relu6",
    "rotary",
    "sigmoid",
    "silu",
    "sin",
    "softmax",
    "softplus",
    "split",
    "sqrt",
    "stack",
    "tanh",
    "where",
]
