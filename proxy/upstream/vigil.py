"""Peers that vanish: their machine, route or NAT entry is gone, and no packet ever says so.

While an answer is owed, the kernel's keep-alive finds out. It rests while anything sent is unacknowledged, and there
TCP goes on for a quarter of an hour: that is looked at here. TCP_USER_TIMEOUT would do both, but on Linux it also ends
connections whose peer acknowledges everything and only takes no more for a while (a zero window), as a model server
does with a large body that waits for its turn.
"""

from __future__ import annotations

import errno
import select
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from proxy.upstream.wire import UpstreamConnection

VANISHED: Final = frozenset(
    {errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETUNREACH, errno.ENETDOWN, errno.ENONET}
)
"""Errors of an open connection that speak of the way to its peer, and not of this connection alone."""

_INFO: Final = struct.Struct("2x2B20xI28xI")
"""Of `struct tcp_info` (linux/tcp.h): retransmits and probes that nobody answered, unacked, last_ack_recv."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Seconds of silence after which a peer is asked for a sign of life, between such questions, and how many.

    `unanswered`: seconds without any acknowledgement of what was sent, looked at every `look` seconds.
    """

    idle: int = 20
    interval: int = 5
    count: int = 3
    unanswered: float = 20.0
    look: float = 5.0


class Vigil:
    """Watches the connections to one address for peers that have vanished."""

    __slots__ = ("_looked_at", "_patience", "_since")

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._since: dict[UpstreamConnection, float] = {}
        self._looked_at = float("-inf")

    def open_socket(self, info: tuple[Any, ...]) -> socket.socket:
        """Opens the socket of a dial, which asks its peer for signs of life. Raises OSError."""
        family, kind, protocol = info[:3]
        opened = socket.socket(family=family, type=kind, proto=protocol)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name in ("idle", "interval", "count"):
            option = getattr(socket, _OPTIONS[name], None)
            if option is not None:
                opened.setsockopt(socket.IPPROTO_TCP, option, getattr(self._patience, name))
        return opened

    def vanished(self, connections: Iterable[Any], now: float) -> list[UpstreamConnection]:
        """Returns those whose peer has acknowledged nothing for too long; looks now and then only."""
        if now < self._looked_at + self._patience.look:
            return []
        self._looked_at = now
        before, self._since, found = self._since, {}, []
        for connection in connections:
            silent = unanswered_seconds(connection)
            if silent is None:
                continue
            since = before.get(connection, now)
            if min(now - since, silent) >= self._patience.unanswered:
                found.append(connection)
            else:
                self._since[connection] = since
        return found


_OPTIONS: Final = {"idle": "TCP_KEEPIDLE", "interval": "TCP_KEEPINTVL", "count": "TCP_KEEPCNT"}


def unanswered_seconds(connection: Any) -> float | None:
    """Returns for how long the peer has acknowledged nothing, None when it owes nothing, or nobody can tell (Linux)."""
    transport = getattr(connection, "transport", None)
    bound = transport.get_extra_info("socket") if transport is not None else None
    if bound is None or not hasattr(socket, "TCP_INFO"):
        return None
    try:
        info = bound.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size)
    except OSError:
        return None
    if len(info) < _INFO.size:
        return None
    retransmits, probes, unacknowledged, last = _INFO.unpack(info)
    return last / 1000 if probes or (retransmits and unacknowledged) else None


def has_news(connection: Any) -> bool:
    """Whether its peer has said or ended something that the event loop has not seen yet."""
    transport = getattr(connection, "transport", None)
    bound = transport.get_extra_info("socket") if transport is not None else None
    if bound is None or not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(bound.fileno(), select.POLLIN)
    return bool(poll.poll(0))
