"""Ports for a demo that nobody uses."""

from __future__ import annotations

import socket

from proxy.simulation.demo.ports import taken
from proxy.simulation.demo.settings import HIGHEST_BASE_PORT, HOST, DemoSettings


def free_base_port() -> int:
    """A base port whose neighbours are free too."""
    for _ in range(100):
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            base = int(probe.getsockname()[1])
        if base <= HIGHEST_BASE_PORT and not taken(DemoSettings(base_port=base, environ={}).ports):
            return base
    raise AssertionError("no free ports")
