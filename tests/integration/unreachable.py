"""Addresses at which nobody answers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from tests.integration.caller import HOST


@contextmanager
def full_listener() -> Iterator[int]:
    """A port whose queue of connections is full: a dial neither succeeds nor fails."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen(0)
        port: int = listener.getsockname()[1]
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex((HOST, port))
        yield port
        for filler in fillers:
            filler.close()
