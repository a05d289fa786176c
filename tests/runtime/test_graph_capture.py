"""When a stretch of launches is asked for one by one, captured and replayed."""

import numpy as np

from graphopt.runtime.device import Run
from graphopt.runtime.graph_capture import KEPT, Stretch


class Noting:
    """A device that captures what it is asked for, unless it cannot."""

    def __init__(self, can_capture: bool = True) -> None:
        self.did: list[str] = []
        self.can_capture = can_capture

    def launch(self) -> None:
        self.did.append("launch")

    def capture(self, run: Run) -> Run | None:
        self.did.append("capture")
        return (lambda: self.did.append("replay")) if self.can_capture else None

    def taken(self) -> list[str]:
        found, self.did = self.did, []
        return found


def test_the_second_time_it_is_captured_and_replayed_from_then_on() -> None:
    device, words = Noting(), np.array([1, 2], np.int64)
    stretch = Stretch(device, [device.launch, device.launch], words)  # type: ignore[arg-type]
    seen = []
    for version, value in enumerate((1, 1, 1, 2, 1, 2)):
        words[0] = value
        stretch.run(version)
        seen.append(device.taken())
    replay = ["replay"]
    assert seen == [["launch"] * 2, ["capture", "replay"], replay, ["launch"] * 2, replay, ["capture", "replay"]]


def test_a_single_launch_is_not_captured() -> None:
    device = Noting()
    stretch = Stretch(device, [device.launch], np.array([1], np.int64))  # type: ignore[arg-type]
    for version in range(3):
        stretch.run(version)
    assert device.taken() == ["launch"] * 3


def test_what_cannot_be_captured_is_launched() -> None:
    device = Noting(can_capture=False)
    stretch = Stretch(device, [device.launch, device.launch], np.array([1], np.int64))  # type: ignore[arg-type]
    for version in range(3):
        stretch.run(version)
    assert device.taken() == ["launch", "launch", "capture", "launch", "launch", "launch", "launch"]


def test_the_oldest_captures_are_forgotten() -> None:
    device, words = Noting(), np.array([0], np.int64)
    stretch = Stretch(device, [device.launch, device.launch], words)  # type: ignore[arg-type]
    for value in (0, 0, 1, 1, 0, *range(2, KEPT + 1)):  # 1 is the oldest by now
        words[0] = value
        stretch.run(-value)
    device.taken()
    for value, did in ((0, ["replay"]), (1, ["launch", "launch"])):
        words[0] = value
        stretch.run(KEPT + value)
        assert device.taken() == did


def test_arguments_of_the_same_version_are_not_looked_at() -> None:
    device, words = Noting(), np.array([1, 2], np.int64)
    stretch = Stretch(device, [device.launch, device.launch], words)  # type: ignore[arg-type]
    for version in (1, 2, 2, 2, 3):
        stretch.run(version)
    assert device.taken() == ["launch", "launch", "capture", "replay", "replay", "replay", "replay"]
    words[0] = 5
    for version, did in ((4, ["launch", "launch"]), (4, ["capture", "replay"]), (4, ["replay"])):
        stretch.run(version)
        assert device.taken() == did
