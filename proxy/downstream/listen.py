"""Addresses and bound sockets: both loopback families, and a clear word when a port is taken."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass
from typing import Final

LOOPBACK = "127.0.0.1"
UNSENT_BYTES = 65536
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
"""Seconds without a word before the client is asked whether it is there, between questions, and how many there are."""
_CURES: Final = {
    errno.EADDRINUSE: "another process has it; stop it or choose another port",
    errno.EADDRNOTAVAIL: "this machine does not have the address; choose one that it has, or 0.0.0.0 for all",
    errno.EACCES: (
        "this user may not take the port; choose one from 1024 on, "
        "or give the process the capability CAP_NET_BIND_SERVICE"
    ),
    errno.EAFNOSUPPORT: "this machine has no such kind of address; IPv6 may be switched off: choose an IPv4 address",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenAddress:
    """`host:port`, `[v6]:port` or `:port` (all interfaces)."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class CannotListen(Exception):
    """An address cannot be bound; the message names it and the cure."""


def parse_address(text: str) -> ListenAddress:
    """Reads `host:port`; raises ValueError with what was expected."""
    host, mark, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    if not mark or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(
            f"{text!r} is no address; write HOST:PORT with a port of 0-65535, for example 127.0.0.1:4000 or [::1]:4000"
        )
    return ListenAddress(host=host, port=int(port))


def bind(address: ListenAddress) -> list[socket.socket]:
    """Binds an address; for 127.0.0.1 the same port on ::1 too, where that exists. Raises `CannotListen`."""
    sockets = [_bound(address.host or "0.0.0.0", address.port, address)]
    port = sockets[0].getsockname()[1]
    other = {LOOPBACK: "::1", "": "::"}.get(address.host)
    if other is not None and socket.has_ipv6:
        try:
            sockets.append(_bound(other, port, address))
        except CannotListen:
            if _exists(other):
                sockets[0].close()
                raise
    return sockets


def _bound(host: str, port: int, address: ListenAddress) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise CannotListen(f"cannot listen on {address}: {why_not(error)}") from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _prepare_clients(bound)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind((host, port))
        bound.setblocking(False)
    except (OSError, TypeError) as error:
        bound.close()
        shown = f"{address}" if host == address.host else f"{address} ({host})"
        raise CannotListen(f"cannot listen on {shown}: {why_not(error)}") from error
    return bound


def _prepare_clients(bound: socket.socket) -> None:
    """Sets what every accepted connection inherits."""
    # A client whose machine has vanished would else wait for its answer for ever, and hold what it needs.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            bound.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        # Else the system takes megabytes for a reader, and whether it still reads cannot be seen for as long.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)


def why_not(error: OSError | TypeError) -> str:
    """Returns why an address cannot be bound, with the cure; a TypeError is a name that cannot be one."""
    if isinstance(error, (socket.gaierror, TypeError)):
        return f"{_text(error)}; write an address of this machine, for example 127.0.0.1, or 0.0.0.0 for all"
    return _CURES.get(error.errno or 0) or _text(error)


def _text(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _exists(host: str) -> bool:
    """Whether this machine has the address at all."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True
