"""Whether the demo's ports are free, before anything is started."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable

from proxy.simulation.demo.problem import CANNOT_START, DemoProblem
from proxy.simulation.demo.settings import HOST, DemoSettings

_FURTHER = 1000


def taken(ports: Iterable[int]) -> list[int]:
    """Returns those on which somebody listens already, in either loopback family."""
    return [port for port in ports if _is_taken(port)]


def check_ports(settings: DemoSettings) -> None:
    """Raises DemoProblem with the cure when a port is taken."""
    if not (busy := taken(settings.ports)):
        return
    other = settings.base_port + _FURTHER if settings.base_port < 60_000 else settings.base_port - _FURTHER
    lines = [f"Port {port}, for {settings.ports[port]}, is taken by another process." for port in busy]
    flag = f"--base-port {other}"
    cure = f"End that process (another demo?), or take other ports with {flag} (make: ARGS='{flag}')."
    raise DemoProblem("\n".join([*lines, cure]), code=CANNOT_START)


def _is_taken(port: int) -> bool:
    return _is_taken_on(socket.AF_INET, HOST, port) or _is_taken_on(socket.AF_INET6, "::1", port)


def _is_taken_on(family: socket.AddressFamily, host: str, port: int) -> bool:
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind((host, port))
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False
