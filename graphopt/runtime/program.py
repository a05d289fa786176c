"""Programs: compiled models that are called with arrays."""

from __future__ import annotations

from graphopt.runtime.sizes import Size
from graphopt.runtime.steps import Bind, Branch, Buffer, Call, Code, Host, Loop, Port, Ref, Step

__all__ = ["Bind", "Branch", "Buffer", "Call", "Code", "Host", "Loop", "Port", "Ref", "Size", "Step"]
