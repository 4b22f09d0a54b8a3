"""A door: accepts connections from a listening socket while there is room; else they wait outside.

Event loops accept all that comes, and close it again where files run out. Here nothing is accepted that cannot stay: it
waits in the system's backlog, which costs no file, and comes in as soon as somebody leaves.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable
from typing import Final, Protocol

from proxy.tasks import start_task

BATCH: Final = 64
"""Connections that come in before others have their turn."""
PAUSE_SECONDS: Final = 0.1
SAY_AGAIN_SECONDS: Final = 60.0
SPARE_FILES: Final = 8
_SHORT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_log = logging.getLogger("sponson.downstream")


class Space(Protocol):
    """What a door needs of the room behind it."""

    most: int

    def has_place(self, coming: int = 0) -> bool:
        """Whether one more may come beside those on their way in."""
        ...

    def relieve(self) -> bool:
        """Ends a connection that nobody needs, and its file."""
        ...


class Spare:
    """Files that are kept open for nothing, so that one can be given up when there is no other left."""

    def __init__(self, count: int = 0) -> None:
        self._count = count
        self._files: list[int] = []
        self.fill()

    def fill(self) -> None:
        """Takes back what was given up, as far as there are files."""
        try:
            while len(self._files) < self._count:
                self._files.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            return

    def give(self) -> bool:
        """Gives one up; returns False when there is none."""
        if not self._files:
            return False
        os.close(self._files.pop())
        return True

    def close(self) -> None:
        """Gives all up."""
        self._count = 0
        while self.give():
            pass


class Door:
    """One listening socket."""

    def __init__(
        self, bound: socket.socket, factory: Callable[[], asyncio.Protocol], room: Space, *, spare: Spare
    ) -> None:
        self._bound = bound
        self._factory = factory
        self._room = room
        self._spare = spare
        self._loop = asyncio.get_running_loop()
        self._opening = 0
        self._paused: asyncio.TimerHandle | None = None
        self._quiet_until = 0.0
        self._open = True
        self._loop.add_reader(bound, self._accept)

    def go_on(self) -> None:
        """Somebody has left: whoever waits may come in."""
        if self._paused is not None:
            self._paused.cancel()
            # The file of who leaves is closed after it has left.
            self._paused = self._loop.call_later(0.0, self._resume)

    def close(self) -> None:
        """Accepts nothing any more."""
        if self._open:
            self._open = False
            if self._paused is not None:
                self._paused.cancel()
                self._paused = None
            else:
                self._loop.remove_reader(self._bound)
            self._bound.close()

    def _accept(self) -> None:
        self._spare.fill()
        for number in range(BATCH):
            if not self._room.has_place(self._opening):
                # Only for the first is it certain that somebody waits, for whom another one may go.
                if number:
                    return
                if not self._room.relieve():
                    self._pause(f"all of {self._room.most} connections are in use")
                    return
            try:
                client, _ = self._bound.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in _SHORT:
                    # Linux tells of what became of the client here (accept(2)).
                    continue
                if self._spare.give():
                    continue
                self._room.relieve()
                self._pause(f"{error.strerror} (ulimit -n)")
                return
            client.setblocking(False)
            self._opening += 1
            _ = start_task(self._let_in(client), name="new connection")

    async def _let_in(self, client: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._factory, client)
        except OSError:
            client.close()
        finally:
            self._opening -= 1

    def _pause(self, why: str) -> None:
        now = self._loop.time()
        if now >= self._quiet_until:
            self._quiet_until = now + SAY_AGAIN_SECONDS
            _log.warning("new connections have to wait: %s; more files or more instances help", why)
        self._loop.remove_reader(self._bound)
        self._paused = self._loop.call_later(PAUSE_SECONDS, self._resume)

    def _resume(self) -> None:
        self._paused = None
        self._loop.add_reader(self._bound, self._accept)
