"""The socket that the server listens on, opened before anything is said of it."""

from __future__ import annotations

import socket

from graphopt.errors import UsageError


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens. UsageError where it cannot."""
    try:
        return _listening(host, port)
    except OSError as error:
        raise UsageError(f"--host {host} --port {port}: cannot listen there ({error.strerror or error})") from None


def _listening(host: str, port: int) -> socket.socket:
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
