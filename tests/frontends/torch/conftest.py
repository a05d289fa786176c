"""What tests of torch.compile share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The programs that the backend makes, torch having compiled nothing yet."""
    import torch

    from graphopt.frontends.torch.region import TorchProgram

    made: list[TorchProgram] = []
    begin = TorchProgram.__init__

    def init(self: TorchProgram, *arguments: Any) -> None:
        begin(self, *arguments)
        made.append(self)

    monkeypatch.setattr(TorchProgram, "__init__", init)
    torch._dynamo.reset()
    yield made
    torch._dynamo.reset()
