"""Ports for a demo that nobody uses."""

from __future__ import annotations

from proxy.simulation.demo.ports import taken
from proxy.simulation.demo.settings import DemoSettings
from tests.ports import free_port


def free_base_port() -> int:
    """A base port whose neighbours are free too, all below those that outgoing connections of other tests take."""
    for _ in range(100):
        base = free_port()
        if not taken(DemoSettings(base_port=base, environ={}).ports):
            return base
    raise AssertionError("no free ports")
