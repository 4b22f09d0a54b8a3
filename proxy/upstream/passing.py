"""Bytes that pass through, untouched, both ways, half-closes and breaks included; only their number is known.

A client may be held up at its first bytes, within bounds: until it is known which name it asks for (`gate`).
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from proxy.link import Link
from proxy.upstream.wire import UpstreamConnection

if TYPE_CHECKING:
    from proxy.upstream.passage import Passing

_NO_LINGER: Final = struct.pack("ii", 1, 0)
Gate = Callable[[bytes], bytes | None]
"""Given what came, returns what may pass by now; None: nothing may, ever."""


class End:
    """One end of a tunnel. `ended`: it will send no more. `size`: bytes that it has sent."""

    __slots__ = ("_gate", "_passing", "ended", "link", "other", "pausing", "size", "stuck_at")

    other: End

    def __init__(self, passing: Passing, link: Link, *, gate: Gate | None = None) -> None:
        self._passing = passing
        self._gate = gate
        self.pausing = self.ended = False
        self.link = link
        self.size = 0
        self.stuck_at = 0.0

    def received(self, data: bytes) -> None:
        """Passes what came to the other end; where that does not take it, no more is brought."""
        if self._gate is not None:
            passes = self._gate(data)
            if passes is None:
                self._passing.refused()
                return
            data = passes
        self.size += len(data)
        self.other.write(data)
        self._passing.moved()
        if self.other.link.paused and not self.pausing:
            self.pausing = True
            self.link.pause_reading()

    def writable(self) -> None:
        """It takes again what is written."""
        self.stuck_at = 0.0
        self._passing.moved()
        if self.other.pausing:
            self.other.pausing = False
            self.other.link.resume_reading()

    def finished(self) -> None:
        """It will send no more; the other end is told, and may still send."""
        self._passing.finishes(self)
        self.ended = True
        transport = self.other.link.transport
        if transport is not None and not transport.is_closing() and transport.can_write_eof():
            transport.write_eof()
        self._passing.wake()

    def lost(self) -> None:
        """Its connection is lost."""
        self._passing.lost(self)

    def write(self, data: bytes) -> None:
        """Writes to it, while it is there."""
        transport = self.link.transport
        if data and transport is not None and not transport.is_closing():
            transport.write(data)

    def open_gate(self, held: bytes) -> None:
        """From here on everything passes, what was held up first."""
        self._gate = None
        if held:
            self.received(held)

    def stuck_for(self, now: float) -> float:
        """Returns for how many seconds it has taken nothing that was written to it."""
        if not self.link.paused:
            self.stuck_at = 0.0
            return 0.0
        self.stuck_at = self.stuck_at or now
        return now - self.stuck_at

    @property
    def unsent(self) -> int:
        """Bytes that it has not taken yet."""
        return self.link.transport.get_write_buffer_size() if self.link.transport is not None else 0

    def close(self) -> None:
        """Ends it as soon as what was written is delivered."""
        if self.link.transport is not None:
            self.link.transport.close()

    def reset(self) -> None:
        """Ends it by RST, so that its peer sees a break; an abort alone says FIN."""
        transport = self.link.transport
        if transport is None:
            return
        one = transport.get_extra_info("socket")
        if one is not None and one.fileno() >= 0:
            borrowed = socket.socket(fileno=one.fileno())
            try:
                borrowed.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            except OSError:
                pass  # its peer was faster
            finally:
                borrowed.detach()
        transport.abort()

    def let_go(self) -> None:
        """It is an end no longer."""
        self.link.taker = None
        if self.pausing:
            self.pausing = False
            self.link.resume_reading()
        # All of these refer to it; it must not wait for the garbage collector.
        self._gate = None
        del self.other, self._passing


class TunnelConnection(UpstreamConnection):
    """A connection to a provider that never speaks HTTP; an end of its peer's half is one of that half only."""

    __slots__ = ()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there; what comes is for who takes it over."""
        super().connection_made(transport)
        self.switched = True

    def eof_received(self) -> bool:
        """Keeps its own half open for whoever has taken it over."""
        return self.finish()
