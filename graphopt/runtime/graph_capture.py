"""Graph capture of stretches of launches between two host steps: launched one by one at first, then replayed as one.

Apart from ``device_state``, its only user, for length.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.runtime.device import Device, Run
from graphopt.runtime.steps import Words

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
        self._latest: tuple[int, Run] | None = None

    def run(self, version: int) -> None:
        """Ask the device for all of it. Where ``version`` is that of the time before, so are all arguments."""
        if len(self._runs) == 1:
            self._runs[0]()
        elif self._latest is not None and self._latest[0] == version:
            self._latest[1]()
        else:
            self._run(version)

    def _run(self, version: int) -> None:
        key = self._words.tobytes()
        if key not in self._captures:
            if len(self._captures) >= KEPT:
                self._captures.pop(next(iter(self._captures)))
            self._captures[key] = self._latest = None
            self._launch()
            return
        capture = self._captures.pop(key)
        if capture is None:
            capture = self._device.capture(self._launch) or self._launch
        self._captures[key] = capture  # the latest comes last
        self._latest = version, capture
        capture()

    def _launch(self) -> None:
        for run in self._runs:
            run()
