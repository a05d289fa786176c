"""Timing of the steps of one call on a device, by the device's own clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from graphopt.runtime.device import Device
from graphopt.runtime.layout import CodeLayout
from graphopt.runtime.profile import ProfileRow
from graphopt.runtime.sizes import evaluate
from graphopt.runtime.steps import Bind, HostStep


class DeviceTiming:
    """The moments at which steps began and ended: instructions by their number, and what Python did."""

    def __init__(self, device: Device) -> None:
        self._device, self._begin = device, device.mark()
        self._spans: list[tuple[int | HostStep | Bind, Any, Any]] = []

    @contextmanager
    def of(self, step: int | HostStep | Bind) -> Iterator[None]:
        """Take the time of what is asked for within."""
        begin = self._device.mark()
        yield
        self._spans.append((step, begin, self._device.mark()))

    def rows(self, layout: CodeLayout, symbols: Mapping[str, int]) -> list[ProfileRow]:
        """A row for each instruction that ran, and for each time that Python did something, as they began."""
        self._device.synchronize()
        rows: list[ProfileRow] = []
        runs: dict[int, list[tuple[float, float]]] = {}
        for step, begin, end in self._spans:
            start, spent = self._device.between(self._begin, begin), self._device.between(begin, end)
            if isinstance(step, int):
                runs.setdefault(step, []).append((start, spent))
            else:
                label, nodes = (step.label or step.function, step.nodes) if isinstance(step, HostStep) else ("bind", ())
                rows.append(ProfileRow(label, nodes, spent, 0, 0, start, is_native=False))
        for at, times in runs.items():
            launch, count = layout.launches[at], len(times)
            work = count * evaluate(launch.flops, symbols), count * evaluate(launch.bytes, symbols)
            spent = sum(s for _, s in times)
            rows.append(ProfileRow(launch.label, launch.nodes, spent, *work, times[0][0], count))
        return sorted(rows, key=lambda row: row.start)
