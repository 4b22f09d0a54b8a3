"""Starting → ready → draining → exited (`semantics.md` §8). Signals, linger, drain, and a second signal."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from proxy.clock import Clock
from proxy.exchange import CancelCause

STEP_SECONDS = 0.02
LAST_PART = 0.2
LAST_SECONDS = 3.0
KILLED = 128 + signal.SIGTERM


class Phase(StrEnum):
    """Where a process stands."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    EXITED = "exited"


class Drained(Protocol):
    """What the drain looks at and acts on: the data server."""

    draining: bool
    refusing: bool

    @property
    def last_arrival(self) -> float:
        """When a request came last."""
        ...

    @property
    def busy(self) -> int:
        """Exchanges under way, and answers that are not delivered to their end."""
        ...

    def stop_listening(self) -> None:
        """Takes no new connection."""
        ...

    def cancel_all(self, cause: CancelCause) -> None:
        """Ends every exchange under way."""
        ...


class Signals:
    """SIGTERM and SIGINT ask for the end, a second one takes it; SIGHUP asks for a look at the policy."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.kill = asyncio.Event()
        self.on_hangup: Callable[[], None] = lambda: None

    def install(self, loop: asyncio.AbstractEventLoop) -> None:
        """Installs the handlers; done first of all, so that they work while the process still starts."""
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._asked)
        loop.add_signal_handler(signal.SIGHUP, lambda: self.on_hangup())

    def _asked(self) -> None:
        if self.stop.is_set():
            self.kill.set()
        self.stop.set()


async def drain(server: Drained, *, linger: float, limit: float, clock: Clock) -> None:
    """Ends the service gracefully within `limit` seconds.

    Keeps accepting until nothing is in flight and nothing new came for `linger` seconds; then refuses; at the end of
    the limit what still runs is shown a break. With a linger of 0 it stops accepting first.
    """
    began = clock.now()
    server.draining = True
    last = began + limit - min(LAST_SECONDS, limit * LAST_PART)
    if linger <= 0 < limit:
        # What was sent before the signal may still stand unread in a socket: it is taken in first.
        await clock.sleep(STEP_SECONDS)
        server.stop_listening()
    while clock.now() < last:
        quiet_since = max(began, server.last_arrival)
        if not server.busy and clock.now() >= quiet_since + linger:
            break
        await clock.sleep(STEP_SECONDS)
    await _refuse(server, until=began + limit, clock=clock)


async def _refuse(server: Drained, *, until: float, clock: Clock) -> None:
    """Refuses what comes, shows what still runs a break, and waits for that."""
    server.refusing = True
    if server.busy:
        server.cancel_all(CancelCause.DRAIN)
    # Who calls at this very moment is told, not cut off.
    await clock.sleep(STEP_SECONDS)
    server.stop_listening()
    while server.busy and clock.now() < until:
        await clock.sleep(STEP_SECONDS)
