"""Platforms that programs run on: how graphs are lowered, how kernels are compiled, and what runs them."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from graphopt.calibration.machine import machine
from graphopt.errors import CompilationError, DeviceError, MissingDependencyError
from graphopt.frozen import dataclass
from graphopt.ir.onnx_io.tensors import numpy_dtype
from graphopt.kernels.compile import Compiling, native_driver
from graphopt.kernels.cuda.compile import assemble
from graphopt.kernels.cuda.machine import Capability, architecture, has_cublas_lt, has_cudnn
from graphopt.kernels.host import lanes
from graphopt.kernels.kernel import Kernel
from graphopt.lowering.cpu.default_schedules import scheduled
from graphopt.lowering.cuda.card import CARD, SIMULATED, Card
from graphopt.lowering.cuda.dispatch import OWN
from graphopt.lowering.link.cuda_options import on
from graphopt.lowering.link.linked import Linked
from graphopt.lowering.link.options import BY_RULE, Options, for_the_host
from graphopt.run.settings import Dispatch, Settings
from graphopt.runtime import cpu, saved
from graphopt.runtime.device_program import DeviceProgram
from graphopt.runtime.dtypes import STORAGE
from graphopt.runtime.host import HostFunction
from graphopt.runtime.in_place import InPlaceDeviceProgram, InPlaceProgram
from graphopt.runtime.onnxruntime import Region
from graphopt.runtime.program import Program
from graphopt.runtime.steps import Code
from graphopt.target import DeviceKind, ProductPrices, Target

if TYPE_CHECKING:
    from graphopt.kernels.cuda.cupy_device import CudaDevice


class Compiler(Protocol):
    """Kernels on their way to code."""

    def begin(self, kernel: Kernel) -> None:
        """Have a kernel compiled that will be needed."""

    def objects(self, kernels: Sequence[Kernel]) -> list[bytes]:
        """The code of these kernels. Raises CompilationError for the first that does not compile."""


class Platform(Protocol):
    """What programs run on."""

    def machine(self) -> str:
        """Its name, which is the same for all on which measured times may be shared."""

    def can(self) -> tuple[int, ...]:
        """What it can do, as variants of targets ask for it; nothing where there is none here."""

    def options(self, prices: Mapping[str, ProductPrices], settings: Settings) -> Options:
        """How graphs are lowered for it, where products take so long."""

    def compiling(self, jobs: int | None) -> AbstractContextManager[Compiler]:
        """What compiles kernels, in so many processes (None: one for each core)."""

    def program(self, linked: Linked, objects: Sequence[bytes], threads: int) -> Program | DeviceProgram:
        """What runs a linked program's compiled kernels."""

    def in_place(
        self, linked: Linked, objects: Sequence[bytes], writes: Collection[str], threads: int
    ) -> InPlaceProgram | InPlaceDeviceProgram:
        """What runs them in destination-passing style: of the inputs, those named in ``writes`` are written."""


class HostPlatform:
    """This machine's processor."""

    def machine(self) -> str:
        """The processor with what it can."""
        return machine()

    def can(self) -> tuple[int, ...]:
        """How many elements of float32 its vectors hold."""
        return (lanes("float32"),)

    def options(self, prices: Mapping[str, ProductPrices], settings: Settings) -> Options:
        """Loops of vectors, shared out to threads."""
        emission = partial(for_the_host, contract=settings.contract)
        return replace(BY_RULE, schedule=partial(scheduled, prices=prices), emit=emission)

    @contextmanager
    def compiling(self, jobs: int | None) -> Iterator[Compiler]:
        """Object code; that of the native driver comes first. Raises CompilationError where it would not run."""
        if not cpu.runs_programs():
            raise CompilationError(
                f"compiled programs run on Linux on x86-64, and this is {sys.platform} on {platform.machine()}: "
                "optimize the model, and run it in ONNX Runtime (docs/platforms.md)"
            )
        with Compiling(jobs) as compiling:
            compiling.begin(native_driver())
            yield _WithDriver(compiling)

    def program(self, linked: Linked, objects: Sequence[bytes], threads: int) -> Program:
        """A program that the native driver runs."""
        driver, *kernels = objects
        return Program(code_of(linked, kernels, driver), linked.functions, numpy_dtypes(), threads)

    def in_place(
        self, linked: Linked, objects: Sequence[bytes], writes: Collection[str], threads: int
    ) -> InPlaceProgram:
        """A program on the caller's arrays."""
        driver, *kernels = objects
        return InPlaceProgram(code_of(linked, kernels, driver), writes, numpy_dtypes(), threads)


@dataclass(frozen=True)
class _WithDriver:
    compiling: Compiling

    def begin(self, kernel: Kernel) -> None:
        self.compiling.begin(kernel)

    def objects(self, kernels: Sequence[Kernel]) -> list[bytes]:
        return self.compiling.objects((native_driver(), *kernels))


class Gpu:
    """This machine's GPU."""

    def machine(self) -> str:
        """The GPU's name; that of none where there is none, for which code can be made all the same."""
        try:
            return gpu().name
        except (DeviceError, MissingDependencyError):
            return "no GPU"

    def can(self) -> tuple[int, ...]:
        """The GPU's compute capability; nothing where there is none, for which code can be made all the same."""
        try:
            return gpu().capability
        except (DeviceError, MissingDependencyError):
            return ()

    def options(self, prices: Mapping[str, ProductPrices], settings: Settings) -> Options:
        """Loops over blocks of threads, and calls of libraries."""
        return on(card_of(prices, settings.policy), prices, settings.dispatch, settings.contract)

    @contextmanager
    def compiling(self, jobs: int | None) -> Iterator[Compiler]:
        """Machine code for the GPU: PTX of a later version than a driver's is refused by it. Raises DeviceError where
        there is no GPU."""
        with Compiling(jobs) as compiling:
            yield _For(gpu().capability, compiling, jobs)

    def program(self, linked: Linked, objects: Sequence[bytes], threads: int) -> DeviceProgram:
        """A program that runs there."""
        return DeviceProgram(code_of(linked, objects), gpu(), linked.functions, numpy_dtypes())

    def in_place(
        self, linked: Linked, objects: Sequence[bytes], writes: Collection[str], threads: int
    ) -> InPlaceDeviceProgram:
        """A program on arrays that lie there, or are sent there and fetched."""
        return InPlaceDeviceProgram(code_of(linked, objects), gpu(), writes, numpy_dtypes())


@dataclass(frozen=True)
class _For:
    capability: Capability
    compiling: Compiling
    jobs: int | None

    def begin(self, kernel: Kernel) -> None:
        self.compiling.begin(self._targeted(kernel))

    def objects(self, kernels: Sequence[Kernel]) -> list[bytes]:
        texts = [code.decode() for code in self.compiling.objects(list(map(self._targeted, kernels)))]
        return [assembled.code for assembled in assemble(texts, self.capability, jobs=self.jobs)]

    def _targeted(self, kernel: Kernel) -> Kernel:
        return replace(kernel, target=architecture(self.capability))


class Simulation:
    """A GPU that Python simulates."""

    def machine(self) -> str:
        """A name of its own: nothing is timed there."""
        return "a simulated GPU"

    def can(self) -> tuple[int, ...]:
        """Nothing that prices depend on."""
        return ()

    def options(self, prices: Mapping[str, ProductPrices], settings: Settings) -> Options:
        """Loops over small blocks of threads, which hand each other nothing but by shared memory."""
        card = replace(SIMULATED, has_convolutions="convolution" in prices)
        return on(card, prices, settings.dispatch, settings.contract)

    def compiling(self, jobs: int | None) -> AbstractContextManager[Compiler]:
        """Kernels as they are."""
        return nullcontext(self)

    def begin(self, kernel: Kernel) -> None:
        """Nothing: there is nothing to compile."""

    def objects(self, kernels: Sequence[Kernel]) -> list[bytes]:
        """Source, and what parameters are."""
        from graphopt.kernels.cuda.simulated_device import packed

        return list(map(packed, kernels))

    def program(self, linked: Linked, objects: Sequence[bytes], threads: int) -> DeviceProgram:
        """A program on a device of its own."""
        from graphopt.kernels.cuda.simulated_device import SimulatedDevice

        return DeviceProgram(code_of(linked, objects), SimulatedDevice(), linked.functions, numpy_dtypes())

    def in_place(
        self, linked: Linked, objects: Sequence[bytes], writes: Collection[str], threads: int
    ) -> InPlaceDeviceProgram:
        """A program on arrays that are copied to a device of its own and back."""
        from graphopt.kernels.cuda.simulated_device import SimulatedDevice

        return InPlaceDeviceProgram(code_of(linked, objects), SimulatedDevice(), writes, numpy_dtypes())


def card_of(prices: Mapping[str, ProductPrices], policy: str) -> Card:
    """What nests are scheduled for on a GPU of this machine, with the libraries that are there."""
    return replace(
        CARD,
        has_epilogues=has_cublas_lt(),
        has_convolutions="convolution" in prices,
        is_approximate=policy == "approx",
    )


def here(target: Target) -> Target:
    """The target with the prices of its variant for the device that is here."""
    if not target.variants:
        return target
    can = platform_of(target.device).can()
    fitting = [variant for variant in target.variants if variant.least <= can and variant.base == target.prices]
    return replace(target, prices=fitting[-1].prices, sources=fitting[-1].sources) if fitting else target


def equipped(target: Target, dispatch: Dispatch = "auto") -> Target:
    """The target with the prices of those functions alone that compute products here: what the e-graph goes by is what
    schedules go by."""
    if not target.device.has_blocks:
        return target
    has_convolutions = has_cudnn() if target.device.has_machine_code else dispatch == "library"
    there = {n: p for n, p in target.prices.products.items() if n != "convolution" or has_convolutions}
    if dispatch != "auto":
        there = {n: p for n, p in there.items() if (n == OWN) == (dispatch == "own")}
    return replace(target, prices=replace(target.prices, products=there))


@cache
def gpu() -> CudaDevice:
    """This machine's GPU, which all programs share. Raises DeviceError where there is none."""
    from graphopt.kernels.cuda.cupy_device import CudaDevice

    return CudaDevice()


def load(
    folder: str | os.PathLike[str], threads: int | None = None, functions: Mapping[str, HostFunction] | None = None
) -> Program | DeviceProgram:
    """The program in a folder (of several ``main``), on what it was saved for: a processor, or a GPU of the same
    compute capability; ``functions`` are external functions by name, where they are not registered.

    Raises ReadError where it does not run here, UsageError where a function is missing, DeviceError where there is no
    GPU."""
    made_for = saved.saved_for(folder)
    if not made_for:
        return saved.load(folder, threads, numpy_dtypes(), functions)
    if made_for != "simulated":
        return saved.load_on(gpu(), folder, numpy_dtypes(), functions)
    from graphopt.kernels.cuda.simulated_device import SimulatedDevice

    return saved.load_on(SimulatedDevice(), folder, numpy_dtypes(), functions)


def platform_of(device: DeviceKind) -> Platform:
    """The platform of a target's device."""
    if device.is_host:
        return HostPlatform()
    return Gpu() if device.has_machine_code else Simulation()


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
        {name: f.model for name, f in linked.functions.items() if isinstance(f, Region)},
        linked.states,
    )


@cache
def numpy_dtypes() -> dict[str, np.dtype[Any]]:
    """The numpy types of elements that numpy itself does not know."""
    return {name: numpy_dtype(name) for name, dtype in STORAGE.items() if numpy_dtype(name) != dtype}
