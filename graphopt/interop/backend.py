"""Backend interface of ONNX over ``graphopt.compile``, on which ONNX's own test suite runs. Users name this module.

In a file of tests::

    from onnx.backend.test import BackendTest
    import graphopt.interop.backend
    globals().update(BackendTest(graphopt.interop.backend, __name__).test_cases)
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphopt.compile import CompiledModel, ReferenceWarning, compile
from graphopt.errors import UsageError

if TYPE_CHECKING:
    import onnx


class PreparedModel:
    """A model that is ready to run."""

    def __init__(self, compiled: CompiledModel) -> None:
        self.compiled = compiled

    def run(self, inputs: Any, **options: Any) -> tuple[Any, ...]:
        """The outputs, in order; inputs come in order too, or by name."""
        return tuple(self.compiled(inputs if isinstance(inputs, dict) else list(inputs)).values())


def is_compatible(model: onnx.ModelProto, device: str = "CPU", **options: Any) -> bool:
    """Whether the model runs here: every model does."""
    return supports_device(device)


def prepare(model: onnx.ModelProto, device: str = "CPU", **options: Any) -> PreparedModel:
    """The model compiled; ``options`` are those of ``graphopt.compile``. UsageError for a device that is no CPU."""
    if not supports_device(device):
        raise UsageError(f"programs run on the device CPU, not on {device!r}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReferenceWarning)
        return PreparedModel(compile(model, **options))


def run_model(model: onnx.ModelProto, inputs: Any, device: str = "CPU", **options: Any) -> tuple[Any, ...]:
    """The outputs of a model."""
    return prepare(model, device, **options).run(inputs)


def run_node(
    node: onnx.NodeProto, inputs: Sequence[Any], device: str = "CPU", outputs_info: Any = None, **options: Any
) -> tuple[Any, ...]:
    """The outputs of one op."""
    from graphopt.ir.suite import model_of_node

    return run_model(model_of_node(node, inputs), inputs, device, **options)


def supports_device(device: str) -> bool:
    """Whether programs run on the device: on ``CPU`` they do."""
    return device.split(":")[0] == "CPU"
