"""What a device runs between two things that Python does: asked for one by one at first, then all at once."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.runtime.device import Device, Run, Words

KEPT = 16
"""So many captures of a stretch are kept: of the sizes, and the callers' arrays, that come again."""


class Stretch:
    """Launches and library calls in a row, and the ``words`` that hold all of their arguments.

    The second time that it is run with the same arguments it is captured (as a CUDA graph), from then on replayed. A
    program's own memory stays where it is, so a caller with arrays of the host replays from the third call on.
    Arrays that are on the device already are used in place, and each set of their addresses is a capture of its own:
    a caller who uses the same few arrays again replays, one whose arrays never come again launches one by one, and
    neither pays for a copy.
    """

    def __init__(self, device: Device, runs: Sequence[Run], words: Words) -> None:
        self._device, self._runs, self._words = device, tuple(runs), words
        self._captures: dict[bytes, Run | None] = {}

    def run(self) -> None:
        """Ask the device for all of it."""
        if len(self._runs) == 1:
            self._runs[0]()
            return
        key = self._words.tobytes()
        if key not in self._captures:
            if len(self._captures) >= KEPT:
                self._captures.pop(next(iter(self._captures)))
            self._captures[key] = None
            self._launch()
            return
        capture = self._captures.pop(key)
        if capture is None:
            capture = self._device.capture(self._launch) or self._launch
        self._captures[key] = capture  # the latest comes last
        capture()

    def _launch(self) -> None:
        for run in self._runs:
            run()
