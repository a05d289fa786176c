"""Stream ordering: a program's stream and its callers' streams wait for each other.

The caller's own work lies in cupy's current stream, and that on an array in the stream of whoever made it. torch's is
its current one; ``__cuda_array_interface__`` names one; DLPack names none, but has the maker's stream order the work
before a call by itself, and what comes after a call is then in order because the call is waited for.
"""

from __future__ import annotations

import sys
from typing import Any

from graphopt.kernels.cuda.driver import cupy


class Callers:
    """The streams of a call's arrays, beside ``program_stream``. One call at a time."""

    def __init__(self, program_stream: Any) -> None:
        self._program_stream = program_stream
        self._before, self._after = (cupy.cuda.Event(disable_timing=True) for _ in range(2))
        self._streams: dict[int, Any] = {}
        self._are_known = True

    def begin(self) -> None:
        """Begin a call: the caller's stream is one of them."""
        current = cupy.cuda.get_current_stream()
        self._streams, self._are_known = {current.ptr: current}, True

    def add(self, array: Any) -> None:
        """Have the call come after what was done to an array, and before what is done to it next."""
        if isinstance(array, cupy.ndarray):
            return
        stream = stream_of(array)
        if stream is None:
            self._are_known = False
        elif stream not in self._streams:
            self._streams[stream] = cupy.cuda.ExternalStream(stream)

    def follow(self) -> None:
        """Have what is asked for from here on be done after all that they have to do by now."""
        for stream in self._streams.values():
            self._before.record(stream)
            self._program_stream.wait_event(self._before)

    def end(self) -> None:
        """Have what they are asked for from here on be done after all that the call asked for."""
        self._after.record(self._program_stream)
        for stream in self._streams.values():
            stream.wait_event(self._after)
        if not self._are_known:
            self._program_stream.synchronize()


def stream_of(array: Any) -> int | None:
    """The handle of the stream in which work on an array of another library's lies; None where nobody says."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return int(torch.cuda.current_stream(array.device).cuda_stream)
    stream = getattr(array, "__cuda_array_interface__", {}).get("stream")
    return None if stream is None else int(stream)
