"""Verification that an optimized model computes what the original does, on random inputs, in a process of its own.

ONNX Runtime runs both where it is installed, with its own optimizations off, so that nothing but the
rewriting is compared; else ONNX's reference evaluator does. Outputs are held to the tolerance of their dtype, and each
part in which the models differ is compared on its own (``verify.local``), where float64 tells rounding from faults.
Rounding that makes the original's own outputs others is told from faults by moving inputs by one ulp: Floor, ArgMax and
comparisons flip on it. The models are passed as files, never as bytes.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from graphopt.display import counted
from graphopt.errors import UsageError, VerificationError
from graphopt.frozen import dataclass
from graphopt.runtime.limits import OUT_OF_TIME, confine, memory_of

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from graphopt.verify.inputs import Given

COMPARISON = "graphopt.verify.compare"
"""The module that compares two models."""

SECONDS = 120.0
"""How long a verification may take before it is given up."""


@dataclass(frozen=True, slots=True)
class Demands:
    """How equal results have to be: bit by bit under the policies ``exact`` and ``finite``, else within tolerances,
    those of the dtype (``ir.tolerance``) where none are given."""

    policy: str = "reals"
    rtol: float | None = None
    atol: float | None = None


DEMANDS = Demands()


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest difference between outputs: its size, by what share of the original's element, and where."""

    absolute: float
    relative: float
    output: str
    index: tuple[int, ...]
    draw: int

    def __str__(self) -> str:
        at = f"{self.output}[{', '.join(map(str, self.index))}]"
        return f"{self.absolute:.2g} ({self.relative:.2g} relative) at {at}"


@dataclass(frozen=True, slots=True)
class Verification:
    """What verification found."""

    status: str
    """``verified``; ``inconclusive`` where both models ran, and ``reason`` says why that settles nothing;
    ``unverified`` where they could not be run, for that reason; or ``off``."""
    reason: str = ""
    engine: str = ""
    draws: int = 0
    error: float | None = None
    """The largest difference of all outputs and draws, in units of the tolerance (up to 1 is right); None where nothing
    was compared, or where the difference has no size: in shape, in whole numbers, or in where numbers are finite."""
    seconds: float = 0.0
    sizes: tuple[dict[str, int], ...] = ()
    """For each draw the sizes of open dimensions, where there are any."""
    outputs: tuple[tuple[str, float | None], ...] = ()
    """Of each output the same."""
    inside: int = 0
    """How many values inside both models were compared as well, because outputs made of them say little."""
    parts: int = 0
    """How many parts in which the models differ were compared on drawn values in the place of those that the original
    computes there, because outputs say little on any inputs."""
    left: int = 0
    """How many parts in which the models differ by no more than rounding most often does were not looked at in float64
    as well, since that would have taken too long: ``full`` looks at all."""
    enlarged: bool = False
    """Whether large inputs were drawn for that, because all says little on others."""
    largest: Largest | None = None
    """The same in absolute numbers; None where outputs are equal, or differ where no size can be told."""
    differing: int = 0
    """How many elements of whole numbers, quantized ones for instance, are others in the result."""
    rtol: float | None = None
    """What outputs were held to: |result - original| <= atol + rtol * |original|, where the user said so; else
    rtol times the largest element, by dtype (``ir.tolerance``)."""
    atol: float | None = None

    @property
    def is_verified(self) -> bool:
        """Whether original and result were compared, and nothing speaks against the result."""
        return self.status == "verified"

    @property
    def difference(self) -> str:
        """The largest difference in words; empty where it has no size."""
        if self.error is None:
            return ""
        times = "of" if self.error <= 1 else "times"
        size = f": {self.largest}" if self.largest is not None else ""
        return f"largest difference {self.error:.2g} {times} the tolerance{size}" if self.error else "no difference"

    def __str__(self) -> str:
        if self.status == "off":
            return "not verified (off)"
        if self.status == "unverified":
            return f"unverified: {self.reason}"
        sizes = "; ".join(", ".join(f"{name}={size}" for name, size in drawn.items()) for drawn in self.sizes)
        at = f" ({sizes})" if sizes else ""
        large = " and one of large values" if self.enlarged else ""
        inside = f"by {_number_of(self.inside, 'value')} inside the model" if self.inside else ""
        parts = f"by {_number_of(self.parts, 'part')} on drawn values" if self.parts else ""
        left = f"without float64 in {_number_of(self.left, 'part')}" if self.left else ""
        more = "".join(f", {words}" for words in (inside, parts, left) if words)
        how = f"on {_number_of(self.draws, 'random input')}{at}{large}{more}{',' if more else ''} in {self.engine}"
        size = f", {self.difference}" if self.difference else ""
        doubt = f": {self.reason}" if self.reason else ""
        return f"{self.status} {how}{size} ({self.seconds:.1f} s){doubt}"


def _number_of(number: int, noun: str) -> str:
    return f"one {noun}" if number == 1 else counted(number, noun)


OFF = Verification("off")

FULL, LONG = 7, 3600.0
"""How many draws a full verification makes, one of each kind of random floats, and how many seconds it may take."""

FATAL = 3
"""With how many sizes the original may end the process that runs it before nothing is said of it."""

RESULT = ("the original", "the result")
"""What messages call the two models, where one was made of the other."""


def verify_as_asked(
    original: str | Path,
    result: str | Path,
    asked: int | str,
    inputs: Mapping[str, Given] | None = None,
    names: tuple[str, str] = RESULT,
    memory: int | None = None,
    demands: Demands = DEMANDS,
    interpreter: Interpreter | None = None,
) -> Verification:
    """``verify`` as the option ``--verify`` says it: a number of draws, ``off``, ``require``, or ``full``."""
    if asked in (0, "off"):
        return OFF
    checked = partial(verify, original, result, inputs=inputs, names=names, memory=memory, demands=demands)
    checked = partial(checked, interpreter=interpreter)
    if asked == "require":
        return checked(required=True)
    if asked == "full":
        return checked(draws=FULL, seconds=LONG)
    if not isinstance(asked, int) or asked < 0:
        raise UsageError(f"verify={asked!r}: expected a number of draws, 'off', 'require', or 'full'")
    return checked(draws=asked)


def verify(
    original: str | Path,
    result: str | Path,
    *,
    draws: int = 1,
    inputs: Mapping[str, Given] | None = None,
    seconds: float = SECONDS,
    required: bool = False,
    names: tuple[str, str] = RESULT,
    memory: int | None = None,
    demands: Demands = DEMANDS,
    interpreter: Interpreter | None = None,
) -> Verification:
    """Compare two model files on random inputs and say how it went.

    ``inputs`` gives elements or bounds for some inputs by name; ``names`` is what messages call the two models.
    ``memory`` is how many bytes it may take, by default four times those of the larger model and 1 GiB; ``interpreter``
    is one that was started ahead for it.
    Raises VerificationError where an output differs, and, with ``required``, for all that is not ``verified``.
    """
    from graphopt.ir import onnx_io

    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="graphopt-") as name:
        folder = Path(name)
        request = {
            "original": str(Path(original).resolve()),
            "result": str(Path(result).resolve()),
            "names": names,
            "draws": draws,
            "full": draws >= FULL,
            **({"longest": seconds} if required else {}),
            "demands": asdict(demands),
            "inputs": _stored(inputs or {}, folder),
            "memory": memory_of(max(map(onnx_io.bytes_of, (original, result))), memory),
        }
        (folder / "request.json").write_text(json.dumps(request))
        answer = _ask(folder, seconds, names, interpreter)
    match answer["status"]:
        case "wrong":
            verdict = "the result is wrong" if names == RESULT else "the models differ"
            raise VerificationError(f"{verdict}: {answer['reason']}")
        case "usage":
            raise UsageError(answer["reason"])
        case "unverified" | "inconclusive" if required:
            raise VerificationError(f"{names[1]} could not be verified: {answer['reason']}")
    sizes = tuple(answer.pop("sizes", ()))
    outputs = tuple((name, error) for name, error in answer.pop("outputs", ()))
    largest = answer.pop("largest", None)
    if largest is not None:
        largest = Largest(**{**largest, "index": tuple(largest["index"])})
    seconds = time.perf_counter() - start
    answer |= {"rtol": demands.rtol, "atol": demands.atol}
    return Verification(**answer, sizes=sizes, outputs=outputs, largest=largest, seconds=seconds)


def _stored(inputs: Mapping[str, Given], folder: Path) -> dict[str, str | tuple[float, float]]:
    """What the user said of inputs, in a form that another process can read: arrays become files."""
    if not inputs:
        return {}
    import numpy as np

    from graphopt.verify.inputs import given

    stored: dict[str, str | tuple[float, float]] = {}
    for number, (name, value) in enumerate(inputs.items()):
        array_or_bounds = given(value)
        if isinstance(array_or_bounds, tuple):
            stored[name] = array_or_bounds
        else:
            file = str(folder / f"{number}.npy")
            np.save(file, array_or_bounds, allow_pickle=False)
            stored[name] = file
    return stored


_PROGRAM = """
import sys
sys.path[:] = {path!r}
from {module} import answer, prepare
prepare()
if folder := sys.stdin.read():
    answer(folder)
"""


class Interpreter:
    """A new interpreter for ``answer(folder)`` of a module: models of strangers may end it, or never end.

    One that is started ahead has imported what it takes by the time that it is asked; it ends with this process, or
    with the block that it is the context of. Raises OSError where no process can be started.
    """

    def __init__(self, module: str = COMPARISON) -> None:
        path = [entry or str(Path.cwd()) for entry in sys.path]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM.format(path=path, module=module)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self.is_free = True
        """Whether it has not been asked yet: it can be once."""

    def __call__(self, folder: Path, seconds: float) -> subprocess.CompletedProcess[bytes]:
        """Have it answer. Raises subprocess.TimeoutExpired."""
        self.is_free = False
        with self:
            _, errors = self._process.communicate(str(folder).encode(), seconds)
            return subprocess.CompletedProcess(self._process.args, self._process.returncode, b"", errors)

    def __enter__(self) -> Interpreter:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


class Fork(Interpreter):
    """A copy of this process in the place of a new interpreter: it has imported most of what it takes.

    A copy has one thread, whatever locks others had: OSError where there are others. BLAS ends its own before a fork.
    """

    def __init__(self, module: str = COMPARISON) -> None:
        import multiprocessing

        is_alone = threading.active_count() == 1 and "onnxruntime" not in sys.modules
        if sys.platform != "linux" or not is_alone or multiprocessing.current_process().daemon:
            raise OSError("this process cannot be copied")
        context = multiprocessing.get_context("fork")
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        receiver, self._sender = context.Pipe(duplex=False)
        arguments = module, receiver, self._sender, self._errors
        self._copy = context.Process(target=_answer_in_copy, args=arguments, daemon=True)
        self._copy.start()
        receiver.close()
        self.is_free = True
        if len(os.listdir("/proc/self/task")) > 1:
            self.__exit__()
            raise OSError("a thread of this process may have had a lock")

    def __call__(self, folder: Path, seconds: float) -> subprocess.CompletedProcess[bytes]:
        """See ``Interpreter``."""
        self.is_free = False
        with self:
            with suppress(OSError):  # where it has ended, which its exit status tells
                self._sender.send_bytes(str(folder).encode())
            self._copy.join(seconds)
            if self._copy.exitcode is None:
                raise subprocess.TimeoutExpired("fork", seconds)
            self._errors.seek(0)
            return subprocess.CompletedProcess("fork", self._copy.exitcode, b"", self._errors.read())

    def __exit__(self, *_: object) -> None:
        self._sender.close()
        self._copy.kill()
        self._copy.join()
        self._errors.close()


def _answer_in_copy(module: str, receiver: Connection, sender: Connection, errors: IO[bytes]) -> None:
    """What a ``Fork`` does: nothing of this process is its own, neither what it would print nor what it would end."""
    confine()
    gc.freeze()
    sender.close()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(errors.fileno(), 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    comparison = import_module(module)
    comparison.prepare()
    with suppress(EOFError):  # it was never asked
        comparison.answer(receiver.recv_bytes().decode())


@contextmanager
def started_ahead(asked: int | str) -> Iterator[Interpreter | None]:
    """What imports what a comparison takes while the result is made, in a process of its own; None where none is asked
    for, or none can be started."""
    with ExitStack() as stack:
        interpreter = None
        for kind in (Fork, Interpreter) if asked not in (0, "off") else ():
            if interpreter is None:
                with suppress(OSError):
                    interpreter = stack.enter_context(kind())
        yield interpreter


def how_it_ended(child: subprocess.CompletedProcess[bytes]) -> str:
    """The last words of a child, or its exit status."""
    lines = child.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"exit {child.returncode}"


def _ask(folder: Path, seconds: float, names: tuple[str, str], ahead: Interpreter | None) -> dict[str, Any]:
    """The answer of an interpreter. Its end in the original's turn is no fault of the result: kernels of runtimes
    may not survive some sizes, a batch of 0 most often, and other sizes are tried then."""
    request, end = folder / "request.json", time.monotonic() + seconds
    for again in reversed(range(FATAL + 1)):
        try:
            interpreter = ahead if ahead is not None and ahead.is_free else Interpreter()
            done = interpreter(folder, max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            reason = f"{_at_work(folder, names)} was still running after {seconds:g} s"
            return {"status": "unverified", "reason": reason}
        except OSError as error:
            return {"status": "unverified", "reason": f"no process could be started ({error})"}
        answer = folder / "answer.json"
        if answer.exists():
            content: dict[str, Any] = json.loads(answer.read_text())
            return content
        if done.returncode == OUT_OF_TIME:
            reason = f"no type tells when {_at_work(folder, names)} ends, and it did not soon; --verify require waits"
            return {"status": "unverified", "reason": reason}
        if done.returncode == -9:
            return {"status": "unverified", "reason": "the process was killed, probably for want of memory"}
        sizes = _phase(folder)[1]
        if done.returncode >= 0 or not sizes or not again:
            break
        asked = json.loads(request.read_text())
        request.write_text(json.dumps({**asked, "avoided": [*asked.get("avoided", ()), sizes]}))
    reason = f"the process that ran {_at_work(folder, names)} ended ({how_it_ended(done)})"
    return {"status": "wrong" if _phase(folder)[0] == "result" else "unverified", "reason": reason}


def _at_work(folder: Path, names: tuple[str, str]) -> str:
    """What the process was doing, in words."""
    return {"original": names[0], "result": names[1]}.get(_phase(folder)[0], "the comparison")


def _phase(folder: Path) -> tuple[str, str]:
    """What the process was doing: running ``original`` or ``result``, or ``comparison``; the original, with which sizes
    (JSON)."""
    phase = folder / "phase"
    at_work, _, sizes = phase.read_text().partition(" ") if phase.exists() else ("original", "", "")
    return at_work, sizes
