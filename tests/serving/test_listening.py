"""The socket that the server listens on."""

from __future__ import annotations

import pytest

from graphopt.errors import UsageError
from graphopt.serving.listening import listening


def test_a_port_is_taken_once() -> None:
    with listening("127.0.0.1", 0) as socket:
        port = socket.getsockname()[1]
        with pytest.raises(UsageError, match=f"--port {port}: cannot listen there .*in use"):
            listening("127.0.0.1", port)
    with pytest.raises(UsageError, match="cannot listen there"):
        listening("no-such-host.invalid", 0)
