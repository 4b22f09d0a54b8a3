"""MergedAnswer: a `Reply` that gathers the whole answer of a merged call, which is then dealt."""

from __future__ import annotations

from typing import Final

from proxy.stages.recording import Ledger

MOST_BYTES: Final = 32 * 1024 * 1024
"""Of one merged answer: 2048 embeddings of some 16 KB."""


class MergedAnswer:
    """Gathers an answer within bounds; one that is larger is `lost`. Its bytes, and the request's, are counted."""

    __slots__ = ("_ledger", "_pieces", "_taken", "aborted", "finished", "lines", "lost", "phrase", "started", "status")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._pieces: list[bytes] = []
        self._taken = self.status = 0
        self.phrase = self.lines = b""
        self.started = self.finished = self.aborted = self.lost = False

    def __repr__(self) -> str:
        state = "finished" if self.finished else "aborted" if self.aborted else "running"
        return f"<MergedAnswer {state}, {self._taken} bytes counted{', lost' * self.lost}>"

    def reserve(self, size: int) -> bool:
        """Counts bytes until `settle`; False when there is no room for them."""
        if not self._ledger.take(size):
            return False
        self._taken += size
        return True

    def settle(self) -> None:
        """Nothing more comes, and what has come was dealt: its bytes are given back."""
        taken, self._taken = self._taken, 0
        self._pieces.clear()
        self._ledger.give_back(taken)

    @property
    def whole(self) -> bool:
        """Whether all of it is here."""
        return self.finished and not self.lost

    @property
    def body(self) -> bytes:
        """All that is here of the body."""
        return b"".join(self._pieces)

    # The `Reply` port.

    @property
    def paused(self) -> bool:
        """Never: what is too large is let go."""
        return False

    @property
    def open_ended(self) -> bool:
        """Never: nobody reads an event of ours here."""
        return False

    def start(self, status: int, phrase: bytes, lines: bytes, *, length: int | None, body: bytes | None = None) -> None:
        """Keeps the head, and the whole answer when `body` is given."""
        self.started = True
        self.status, self.phrase, self.lines = status, phrase, lines
        if body is not None:
            self.write(body)
            self.finished = True

    def write(self, piece: bytes) -> None:
        """Keeps a piece."""
        if self.lost:
            return
        if self._taken + len(piece) > MOST_BYTES or not self.reserve(len(piece)):
            self.lost = True
            self._pieces.clear()
            return
        self._pieces.append(piece)

    async def drain(self) -> None:
        """Never waits."""

    def finish(self) -> None:
        """The answer has come to its end."""
        self.finished = not self.aborted

    def abort(self) -> None:
        """The answer is not whole."""
        self.aborted = not self.finished
