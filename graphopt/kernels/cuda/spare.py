"""Scratch memory for operands that a library needs in another form. It stays, because captured runs may use it."""

from __future__ import annotations

from graphopt.runtime.device import Allocation, Device


class Spare:
    """Zeros and copies on a device, of each size one of each."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._zeros: dict[int, Allocation] = {}
        self._copies: dict[int, Allocation] = {}

    def zeros(self, size: int) -> int:
        """The address of at least so many bytes that are zero."""
        size = 1 << max(size - 1, 0).bit_length()
        if size not in self._zeros:
            self._zeros[size] = self._device.allocate(size)
            self._device.clear(self._zeros[size].address, size)
        return self._zeros[size].address

    def copied(self, address: int, size: int) -> int:
        """The address, a multiple of 256, of a copy of so many bytes; it holds until the next one of that size."""
        if size not in self._copies:
            self._copies[size] = self._device.allocate(size)
        self._device.copy(address, self._copies[size].address, size)
        return self._copies[size].address
