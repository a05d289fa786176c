"""What programs run on: how graphs are lowered for it, how kernels are compiled, and what runs them then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Literal, Protocol

import numpy as np

from graphopt.compilation import Dispatch
from graphopt.ir.onnx_io.tensors import numpy_dtype
from graphopt.kernels.compile import Compiling, native_driver
from graphopt.kernels.kernel import Kernel
from graphopt.lowering.cuda.card import CARD, SIMULATED, Card
from graphopt.lowering.cuda.options import on
from graphopt.lowering.default_schedules import scheduled
from graphopt.lowering.link import Linked
from graphopt.lowering.options import BY_RULE, Options
from graphopt.runtime.device import Device
from graphopt.runtime.device_program import DeviceProgram
from graphopt.runtime.dtypes import STORAGE
from graphopt.runtime.program import Program
from graphopt.runtime.steps import Code
from graphopt.target import ProductPrices


class Compiler(Protocol):
    """Kernels on their way to code."""

    def begin(self, kernel: Kernel) -> None:
        """Have a kernel compiled that will be needed."""

    def objects(self, kernels: Sequence[Kernel]) -> list[bytes]:
        """The code of these kernels. Raises CompilationError for the first that does not compile."""


class Platform(Protocol):
    """What programs run on."""

    def options(self, prices: Mapping[str, ProductPrices], dispatch: Dispatch) -> Options:
        """How graphs are lowered for it, where products take so long."""

    def compiling(self, jobs: int | None) -> AbstractContextManager[Compiler]:
        """What compiles kernels, in so many processes (None: one for each core)."""

    def program(self, linked: Linked, objects: Sequence[bytes], threads: int) -> Program | DeviceProgram:
        """What runs a linked program's compiled kernels."""


class Host:
    """This machine's processor."""

    def options(self, prices: Mapping[str, ProductPrices], dispatch: Dispatch) -> Options:
        """Loops of vectors, shared out to threads."""
        return replace(BY_RULE, schedule=partial(scheduled, prices=prices))

    @contextmanager
    def compiling(self, jobs: int | None) -> Iterator[Compiler]:
        """Object code; that of the native driver comes first."""
        with Compiling(jobs) as compiling:
            compiling.begin(native_driver())
            yield _WithDriver(compiling)

    def program(self, linked: Linked, objects: Sequence[bytes], threads: int) -> Program:
        """A program that the native driver runs."""
        driver, *kernels = objects
        return Program(code_of(linked, kernels, driver), linked.functions, numpy_dtypes(), threads)


@dataclass(frozen=True)
class _WithDriver:
    compiling: Compiling

    def begin(self, kernel: Kernel) -> None:
        self.compiling.begin(kernel)

    def objects(self, kernels: Sequence[Kernel]) -> list[bytes]:
        return self.compiling.objects((native_driver(), *kernels))


@dataclass(frozen=True)
class Accelerator:
    """A device beside the host: the card that nests are scheduled for, how one gets at the device, and what becomes of
    a kernel there."""

    card: Card
    device: Callable[[], Device]
    compiled: Callable[[Kernel], bytes]

    def options(self, prices: Mapping[str, ProductPrices], dispatch: Dispatch) -> Options:
        """Loops over blocks of threads, and calls of the device's library."""
        return on(self.card, prices, dispatch)

    def compiling(self, jobs: int | None) -> AbstractContextManager[Compiler]:
        """The device's code."""
        return nullcontext(self)

    def begin(self, kernel: Kernel) -> None:
        """Nothing: kernels are compiled once all are known."""

    def objects(self, kernels: Sequence[Kernel]) -> list[bytes]:
        """The code of these kernels, one after another."""
        return [self.compiled(kernel) for kernel in kernels]

    def program(self, linked: Linked, objects: Sequence[bytes], threads: int) -> DeviceProgram:
        """A program whose kernels the device runs. Raises DeviceError where there is none."""
        return DeviceProgram(code_of(linked, objects), self.device(), linked.functions, numpy_dtypes())


def platform_of(device: Literal["cpu", "cuda", "simulated"]) -> Platform:
    """The platform of a target's device."""
    if device == "cpu":
        return Host()
    return _cuda() if device == "cuda" else _simulated()


@cache
def _cuda() -> Accelerator:
    from graphopt.kernels.cuda.compile import ptx
    from graphopt.kernels.cuda.cupy_device import CudaDevice

    device = cache(CudaDevice)
    return Accelerator(CARD, device, lambda kernel: ptx(kernel, device().capability).encode())


@cache
def _simulated() -> Accelerator:
    from graphopt.kernels.cuda.simulated_device import SimulatedDevice, packed

    return Accelerator(SIMULATED, SimulatedDevice, packed)


def code_of(linked: Linked, kernels: Sequence[bytes], driver: bytes = b"") -> Code:
    """All of a program that is the same in every call."""
    return Code(
        linked.inputs,
        linked.outputs,
        linked.buffers,
        linked.steps,
        tuple(kernels),
        driver,
        linked.constants,
        linked.conditions,
    )


@cache
def numpy_dtypes() -> dict[str, np.dtype[Any]]:
    """The numpy types of elements that numpy itself does not know."""
    return {name: numpy_dtype(name) for name, dtype in STORAGE.items() if numpy_dtype(name) != dtype}
