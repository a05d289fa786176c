"""Writes further models of realistic size, with random weights, for ``speed.py`` to measure.

    python tests/bench/more_models.py torch FOLDER [NAME ...]
    python tests/bench/more_models.py tensorflow FOLDER [NAME ...]

The first wants torch 2.13, torchvision 0.28, timm 1.0 and transformers 5.23; the second, in an environment of its
own, tensorflow-cpu 2.21, keras 3.15 and tf2onnx 1.17. Weights are random, and moving averages are drawn so that
normalizations do something; sizes are those of the published nets, but for language models, which are narrower.
Each model has fixed input shapes, so that it can be measured as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

IMAGE = (1, 3, 224, 224)


def torchvision_net(name: str, dynamo: bool, opset: int, **options: Any) -> Callable[[], bytes]:
    def make() -> bytes:
        import torch
        import torchvision

        net = torchvision.models.get_model(name, weights=None, **options)
        return from_torch(net, (torch.rand(IMAGE),), dynamo, opset)

    return make


def timm_net(name: str, dynamo: bool, opset: int) -> Callable[[], bytes]:
    def make() -> bytes:
        import timm
        import torch

        return from_torch(timm.create_model(name, pretrained=False), (torch.rand(IMAGE),), dynamo, opset)

    return make


def transformer(kind: str, length: int, dynamo: bool, opset: int, **sizes: Any) -> Callable[[], bytes]:
    def make() -> bytes:
        import torch
        import transformers

        config = getattr(transformers, f"{kind}Config")(**sizes)
        head = {"Bert": "Model", "GPT2": "LMHeadModel"}.get(kind, "ForCausalLM")
        net = getattr(transformers, kind + head)._from_config(config, attn_implementation="eager")

        class Wrapped(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.net = net

            def forward(self, ids: Any) -> Any:
                options = {} if kind == "Bert" else {"use_cache": False}
                return self.net(input_ids=ids, **options)[0]

        return from_torch(Wrapped(), (torch.randint(1, 500, (1, length)),), dynamo, opset)

    return make


def from_torch(net: Any, inputs: tuple[Any, ...], dynamo: bool, opset: int) -> bytes:
    """A module as torch exports it, by the newer exporter or by TorchScript."""
    import io

    import torch

    torch.manual_seed(0)
    for name, value in net.named_buffers():
        if name.endswith("running_mean"):
            torch.nn.init.uniform_(value, -0.2, 0.2)
        elif name.endswith("running_var"):
            torch.nn.init.uniform_(value, 0.8, 1.2)
    net.eval()
    if dynamo:
        return bytes(torch.onnx.export(net, inputs, dynamo=True, opset_version=opset).model_proto.SerializeToString())
    buffer = io.BytesIO()
    torch.onnx.export(net, inputs, buffer, dynamo=False, opset_version=opset)
    return buffer.getvalue()


def keras_net(name: str, opset: int, shape: tuple[int, ...] = (1, 224, 224, 3)) -> Callable[[], bytes]:
    """A net of ``keras.applications``, channels last, as tf2onnx writes it."""

    def make() -> bytes:
        import keras
        import numpy as np
        import tensorflow as tf
        import tf2onnx

        keras.utils.set_random_seed(0)
        net = getattr(keras.applications, name)(weights=None, input_shape=shape[1:])
        rng = np.random.default_rng(0)
        for weight in net.weights:
            if "moving_mean" in weight.path:
                weight.assign(rng.uniform(-0.2, 0.2, weight.shape))
            elif "moving_variance" in weight.path:
                weight.assign(rng.uniform(0.8, 1.2, weight.shape))
        spec = [tf.TensorSpec(shape, tf.float32, name="image")]
        function = tf.function(lambda image: net(image, training=False), input_signature=spec)
        model, _ = tf2onnx.convert.from_function(function, spec, opset=opset)
        return bytes(model.SerializeToString())

    return make


MODELS: dict[str, dict[str, Callable[[], bytes]]] = {
    "torch": {
        "resnet50": torchvision_net("resnet50", True, 18),
        "mobilenet_v2": torchvision_net("mobilenet_v2", False, 13),
        "mobilenet_v3_large": torchvision_net("mobilenet_v3_large", True, 18),
        "shufflenet_v2": torchvision_net("shufflenet_v2_x1_0", False, 17),
        "efficientnet_b0": timm_net("efficientnet_b0", True, 18),
        "convnext_atto": timm_net("convnext_atto", True, 18),
        "vit_tiny": timm_net("vit_tiny_patch16_224", False, 17),
        "swin_tiny": torchvision_net("swin_t", True, 18),
        "mobilevit_xs": timm_net("mobilevit_xs", True, 18),
        "hrnet_w18_small": timm_net("hrnet_w18_small", True, 18),
        "deeplab_mobilenet": torchvision_net("deeplabv3_mobilenet_v3_large", False, 17, weights_backbone=None),
        "bert_mini": transformer(
            "Bert", 128, True, 18, vocab_size=8000, hidden_size=256, num_hidden_layers=4, num_attention_heads=4,
            intermediate_size=1024,
        ),
        "gpt2_small": transformer(
            "GPT2", 128, True, 20, vocab_size=8000, n_embd=384, n_layer=4, n_head=6, n_positions=256
        ),
        "llama_mini": transformer(
            "Llama", 64, True, 18, vocab_size=8000, hidden_size=384, num_hidden_layers=4, num_attention_heads=6,
            num_key_value_heads=2, intermediate_size=1024,
        ),
    },
    "tensorflow": {
        "keras_mobilenet_v2": keras_net("MobileNetV2", 13),
        "keras_mobilenet_v3": keras_net("MobileNetV3Large", 17),
        "keras_efficientnet_b0": keras_net("EfficientNetB0", 17),
        "keras_resnet50_v2": keras_net("ResNet50V2", 17),
        "keras_densenet121": keras_net("DenseNet121", 15),
        "keras_nasnet_mobile": keras_net("NASNetMobile", 17),
        "keras_xception": keras_net("Xception", 17, (1, 299, 299, 3)),
    },
}  # fmt: skip


def main() -> None:
    kind, folder, *names = sys.argv[1:]
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name in names or MODELS[kind]:
        try:
            data = MODELS[kind][name]()
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {str(error)[:300]}")
            continue
        path = Path(folder) / f"{name}.onnx"
        path.write_bytes(data)
        print(f"{path}: {len(data) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
