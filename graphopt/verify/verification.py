"""Verification that an optimized model computes what the original does, on random inputs, in a process of its own.

ONNX Runtime runs both where it is installed, with its own optimizations off, so that nothing but the
rewriting is compared; else ONNX's reference evaluator does. A difference counts only beyond the
tolerance of its dtype and beyond what moving the inputs by one ulp does to the original, because
Floor, ArgMax and comparisons flip on rounding. The models are passed as files, never as bytes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphopt.errors import UsageError, VerificationError
from graphopt.runtime.limits import memory_of

if TYPE_CHECKING:
    from graphopt.verify.inputs import Given

SECONDS = 120.0
"""How long a verification may take before it is given up."""


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
    enlarged: bool = False
    """Whether large inputs were drawn for that, because all says little on others."""

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
        return f"largest difference {self.error:.2g} {times} the tolerance" if self.error else "no difference"


OFF = Verification("off")

RESULT = ("the original", "the result")
"""What messages call the two models, where one was made of the other."""


def verify_as_asked(
    original: str | Path,
    result: str | Path,
    asked: int | str,
    inputs: Mapping[str, Given] | None = None,
    names: tuple[str, str] = RESULT,
    memory: int | None = None,
) -> Verification:
    """``verify`` as the option ``--verify`` says it: a number of draws, ``off``, or ``require``."""
    if asked in (0, "off"):
        return OFF
    if asked == "require":
        return verify(original, result, inputs=inputs, required=True, names=names, memory=memory)
    if not isinstance(asked, int) or asked < 0:
        raise UsageError(f"verify={asked!r}: expected a number of draws, 'off', or 'require'")
    return verify(original, result, draws=asked, inputs=inputs, names=names, memory=memory)


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
) -> Verification:
    """Compare two model files on random inputs and say how it went.

    ``inputs`` gives elements or bounds for some inputs by name; ``names`` is what messages call the two models.
    ``memory`` is how many bytes it may take, by default four times those of the larger model and 1 GiB.
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
            "inputs": _stored(inputs or {}, folder),
            "memory": memory_of(max(map(onnx_io.bytes_of, (original, result))), memory),
        }
        (folder / "request.json").write_text(json.dumps(request))
        answer = _ask(folder, seconds, names)
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
    return Verification(**answer, sizes=sizes, outputs=outputs, seconds=time.perf_counter() - start)


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


_PROGRAM = "import sys; sys.path[:] = {path!r}; from graphopt.verify.compare import answer; answer({folder!r})"


def _ask(folder: Path, seconds: float, names: tuple[str, str]) -> dict[str, Any]:
    """The answer of a new interpreter. Its end in the original's turn is no fault of the result."""
    path = [entry or str(Path.cwd()) for entry in sys.path]
    program = _PROGRAM.format(path=path, folder=str(folder))
    try:
        done = subprocess.run(
            [sys.executable, "-c", program],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"status": "unverified", "reason": f"{_at_work(folder, names)} was still running after {seconds:g} s"}
    except OSError as error:
        return {"status": "unverified", "reason": f"no process could be started ({error})"}
    answer = folder / "answer.json"
    if answer.exists():
        content: dict[str, Any] = json.loads(answer.read_text())
        return content
    if done.returncode == -9:
        return {"status": "unverified", "reason": "the process was killed, probably for want of memory"}
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    reason = (
        f"the process that ran {_at_work(folder, names)} ended ({lines[-1] if lines else f'exit {done.returncode}'})"
    )
    return {"status": "wrong" if _phase(folder) == "result" else "unverified", "reason": reason}


def _at_work(folder: Path, names: tuple[str, str]) -> str:
    """What the process was doing, in words."""
    return {"original": names[0], "result": names[1]}.get(_phase(folder), "the comparison")


def _phase(folder: Path) -> str:
    """What the process was doing: running ``original`` or ``result``, or ``comparison``."""
    phase = folder / "phase"
    return phase.read_text() if phase.exists() else "original"
