"""One end of a WebSocket that passes through: what it sends goes to the other one, and how it is told of the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from proxy.link import Link
from proxy.websocket.frames import CLOSE, PING, PONG, Frames, Violation, close_frame, code_of, frame

if TYPE_CHECKING:
    from proxy.upstream.tunnel import Tunnel

Text = Callable[[bytes, bool], None]


class Side:
    """One end of a tunnel; `mask` is what frames of ours to it are masked with."""

    __slots__ = (
        "pausing", "_goes_on", "_tunnel", "code", "frames", "heard_at", "link", "mask", "other", "pinged", "stuck_at",
    )  # fmt: skip

    other: Side

    def __init__(self, tunnel: Tunnel, link: Link, *, most: int, mask: bytes | None, text: Text | None = None) -> None:
        self._tunnel = tunnel
        self.link = link
        self.frames = Frames(self, most=most, text=text)
        self.mask = mask
        self.heard_at = tunnel.now()
        self.stuck_at = 0.0
        self.code: int | None = None
        self.pinged = self.pausing = self._goes_on = False

    def received(self, data: bytes) -> None:
        """Passes what came to the other side; where that does not take it, no more is brought."""
        self.heard_at, self.pinged = self._tunnel.now(), False
        try:
            passes = self.frames.feed(data)
        except Violation as violation:
            self.other.write(violation.before)
            self._tunnel.violated(self, violation)
            return
        self.other.write(passes)
        if self.other.link.paused and not self.pausing:
            self.pausing = True
            self.link.pause_reading()
        if self.frames.closed:
            self._tunnel.closing(self)
        elif self.frames.more and not self._goes_on:
            self._goes_on = True
            self.link.pause_reading()
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """Goes on with many small frames, after others have had their turn."""
        self._goes_on = False
        if self.link.taker is self:
            self.received(b"")
        self.link.resume_reading()

    def writable(self) -> None:
        """It takes again what is written."""
        self.stuck_at = 0.0
        if self.other.pausing:
            self.other.pausing = False
            self.other.link.resume_reading()

    def lost(self) -> None:
        """Its connection is lost, and with it nothing of what it has brought."""
        while self.frames.more:
            self.received(b"")
        self._tunnel.lost(self)

    def write(self, data: bytes) -> None:
        """Writes to it, while it is there."""
        transport = self.link.transport
        if data and transport is not None and not transport.is_closing():
            transport.write(data)
            self._tunnel.wrote(self, len(data))

    def say_close(self, code: int, why: str) -> None:
        """Tells it that this is the end; where it is in the middle of a frame, only a broken connection can."""
        if self.frames.closed and self.other.frames.closed:
            return
        if not self.other.frames.between:
            self.cut()
        elif not self.other.frames.closed:
            self.write(close_frame(code, why, mask=self.mask))
            self.other.frames.closed = True

    def cut(self) -> None:
        """Ends its connection; what was written is still delivered, where it is taken."""
        transport = self.link.transport
        if transport is not None and self.link.paused:
            transport.abort()
        elif transport is not None:
            transport.close()

    def let_go(self) -> None:
        """It is an end no longer: its connection is somebody else's again."""
        self.link.taker = None
        if self.pausing:
            self.pausing = False
            self.link.resume_reading()
        # All of these refer to it; it must not wait for the garbage collector.
        del self.other, self.frames, self._tunnel

    def gone_by(self, now: float, idle: float) -> bool:
        """Returns whether it is there no more: it does not read, or does not answer our ping, for `idle` seconds."""
        if self.link.paused:
            self.stuck_at = self.stuck_at or now
            return now - self.stuck_at >= idle
        if self.pausing:
            self.heard_at = now
        if now - self.heard_at < idle:
            return False
        if self.pinged:
            return True
        if self.other.frames.between and not self.other.frames.closed:
            self.write(frame(PING, self._tunnel.mark, mask=self.mask))
            self.pinged, self.heard_at = True, now
        return False

    def control(self, opcode: int, payload: bytes) -> bool:
        """Notes how it closes; the answer to our ping is for nobody else."""
        if opcode == CLOSE:
            self.code = code_of(payload)
        return opcode != PONG or payload != self._tunnel.mark
