"""Ports at which nobody listens."""

from __future__ import annotations

import os
import random
import socket
from collections import deque

HOST = "127.0.0.1"

_GIVEN: deque[int] = deque(maxlen=1000)


def free_port(*, besides: int = 0) -> int:
    """Returns a port that nobody has now, below those that outgoing connections take; tests side by side share none.

    Nor do tests that follow each other: a port at which nobody listens stays such a one.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 8
    while True:
        port = random.randrange(15000 + 2000 * worker, 17000 + 2000 * worker)
        if port == besides or port in _GIVEN:
            continue
        _GIVEN.append(port)
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        return port
