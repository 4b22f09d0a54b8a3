"""Recording: an answer that is written once and read by several callers, each at its own pace (`semantics.md` §6a).

While an answer is small enough to be kept whole, nobody waits for anybody, and who comes late reads it from its
beginning. One that grows beyond that lets go of what all its readers have had: from then on the slowest of them paces
its provider, and nobody can join any more.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from proxy.fields import lines_of, pairs_of
from proxy.stages.detached import Waits

if TYPE_CHECKING:
    from proxy.dialects.base import Operation
    from proxy.dialects.stream import StreamScanner
    from proxy.exchange import Exchange

LARGEST_KEPT: Final = 4 * 1024 * 1024
"""Bytes of an answer that can be joined and given again."""
MOST_BEHIND: Final = 256 * 1024
"""Bytes that the slowest reader of a larger one may be behind."""
PIECE_BYTES: Final = 64
"""What a piece takes in memory beyond its own bytes, roughly: streams have many small ones."""

COOKIE: Final = b"set-cookie"


class Ledger(Protocol):
    """Who counts the bytes of all recordings."""

    def take(self, size: int) -> bool:
        """Counts bytes; False when there is no room."""
        ...

    def give_back(self, size: int) -> None:
        """These bytes are not needed any more."""
        ...


class Reader(Waits):
    """One caller's place in a recording. `behind`: bytes that it has not read yet.

    `other`: the call was made for somebody else, whose session is not this one's.
    """

    __slots__ = ("_next", "_recording", "_waiter", "behind", "exchange", "other")

    def __init__(self, recording: Recording, exchange: Exchange, *, other: bool = False) -> None:
        self._recording = recording
        self._next = 0
        self._waiter: asyncio.Future[None] | None = None
        self.behind = recording.size
        self.exchange = exchange
        self.other = other

    def next(self) -> bytes | None:
        """Takes the next piece; None when there is none yet."""
        piece = self._recording.piece(self._next)
        if piece is not None:
            self._next += 1
            self.behind -= len(piece)
            self._recording.was_read()
        return piece

    @property
    def lines(self) -> bytes:
        """The head's fields, as far as they are for this one."""
        lines = self._recording.lines
        return lines if not self.other else without_cookies(lines)

    @property
    def at(self) -> int:
        """How many pieces it has read."""
        return self._next

    def __repr__(self) -> str:
        return f"<Reader {self.behind} bytes behind>"


class Recording:
    """A `Reply` into which a shared call is answered. `kept`: it is still there from its first byte."""

    __slots__ = (
        "_first", "_ledger", "_operation", "_pieces", "_room", "_taken", "aborted", "finished", "kept", "length",
        "lines", "phrase", "readers", "scanner", "size", "started", "status",
    )  # fmt: skip

    def __init__(self, ledger: Ledger, operation: Operation | None = None) -> None:
        self._ledger = ledger
        self._operation = operation
        self._pieces: list[bytes] = []
        self._first = self._taken = 0
        self._room: asyncio.Future[None] | None = None
        self.readers: list[Reader] = []
        self.scanner: StreamScanner | None = None
        """What an event stream has shown so far."""
        self.started = self.finished = self.aborted = False
        self.kept = True
        self.status = self.size = 0
        self.phrase = self.lines = b""
        self.length: int | None = None

    def __repr__(self) -> str:
        state = "finished" if self.finished else "aborted" if self.aborted else "running"
        return f"<Recording {state}, {self.size} bytes{'' if self.kept else ', not kept'}, {len(self.readers)} readers>"

    # What the transport writes: the `Reply` port.

    @property
    def paused(self) -> bool:
        """True while the slowest reader is too far behind."""
        return not self.kept and any(reader.behind > MOST_BEHIND for reader in self.readers)

    @property
    def open_ended(self) -> bool:
        """True when no length was promised."""
        return self.length is None

    def start(self, status: int, phrase: bytes, lines: bytes, *, length: int | None, body: bytes | None = None) -> None:
        """Keeps the head, and the whole answer when `body` is given."""
        self.started = True
        self.status, self.phrase, self.lines, self.length = status, phrase, lines, length
        operation = self._operation
        if body is not None:
            self.write(body)
            self.finished = True
        elif operation is not None and operation.streams and _plain_events(lines):
            self.scanner = operation.dialect.scanner(operation)
        self.wake()

    def write(self, piece: bytes) -> None:
        """Keeps a piece for all readers."""
        if not piece:
            return
        self._pieces.append(piece)
        size = len(piece)
        self.size += size
        if self.scanner is not None:
            self.scanner.feed(piece)
        for reader in self.readers:
            reader.behind += size
            reader.wake()
        if self.kept and not self._keep(size + PIECE_BYTES):
            self.kept = False
            self.settle()
            self._let_go()

    async def drain(self) -> None:
        """Returns when the slowest reader has caught up, or has gone."""
        while self.paused:
            self._room = asyncio.get_running_loop().create_future()
            try:
                await self._room
            finally:
                self._room = None

    def finish(self) -> None:
        """The answer has come to its end."""
        self.finished = not self.aborted
        self.wake()

    def abort(self) -> None:
        """The answer is not whole."""
        self.aborted = not self.finished
        self.wake()

    # What its readers need.

    @property
    def whole(self) -> bool:
        """True when all of it is here, from its first byte to its last."""
        return self.finished and self.kept

    @property
    def body(self) -> bytes:
        """All that is here of the body."""
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)

    def piece(self, number: int) -> bytes | None:
        """Returns a piece by its number; None when it has not come yet."""
        index = number - self._first
        return self._pieces[index] if index < len(self._pieces) else None

    def enter(self, exchange: Exchange, *, other: bool = False) -> Reader:
        """Lets a caller read from the beginning; only while `kept`."""
        reader = Reader(self, exchange, other=other)
        self.readers.append(reader)
        return reader

    def leave(self, reader: Reader) -> None:
        """A reader needs nothing more."""
        self.readers.remove(reader)
        self.was_read()

    def was_read(self) -> None:
        """Somebody has read on, or has gone: what nobody needs goes, and who writes may go on."""
        if not self.kept:
            self._let_go()
            if self._room is not None and not self._room.done() and not self.paused:
                self._room.set_result(None)

    def wake(self) -> None:
        """Tells all readers that something has happened."""
        for reader in self.readers:
            reader.wake()

    def settle(self) -> None:
        """The call has ended, and nobody joins any more: what was counted is given back."""
        taken, self._taken = self._taken, 0
        self._ledger.give_back(taken)

    def _keep(self, size: int) -> bool:
        if self._taken + size > LARGEST_KEPT or not self._ledger.take(size):
            return False
        self._taken += size
        return True

    def _let_go(self) -> None:
        needed = min((reader.at for reader in self.readers), default=self._first + len(self._pieces))
        if needed > self._first:
            del self._pieces[: needed - self._first]
            self._first = needed


def without_cookies(lines: bytes) -> bytes:
    """Returns the fields of a head for somebody else than who has asked."""
    if COOKIE not in lines.lower():
        return lines
    return lines_of(field for field in pairs_of(lines) if not field[0].lower().startswith(COOKIE))


def _plain_events(lines: bytes) -> bool:
    """Whether these fields announce an event stream that can be read as it is."""
    found = {name.lower(): value for name, value in pairs_of(lines)}
    return found.get(b"content-type", b"").lower().startswith(b"text/event-stream") and b"content-encoding" not in found
