"""The socket that the server listens on, opened before anything is said of it."""

from __future__ import annotations

import socket


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens. OSError where it cannot."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(64)
    except OSError:
        made.close()
        raise
    return made
