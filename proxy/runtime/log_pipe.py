"""Where log lines go: a file, or a pipe or terminal whose reader may stop, and never stops the proxy with it.

A write to a pipe that is full would hold up the event loop, and with it every call and every probe. What is not taken
now waits, within bounds, for the next line; what is beyond them is lost, and that is said once somebody reads again.
"""

from __future__ import annotations

import logging
import os
import select
import stat
from collections import deque
from typing import Final, TextIO

MOST_WAITING: Final = 1 << 20
"""Bytes that wait for a reader."""
LAST_LOOKS: Final = 20
LAST_LOOK_MILLISECONDS: Final = 50
"""At the end a reader who is slow, and has not stopped, is waited for: a second in all, at most."""


class PatientHandler(logging.Handler):
    """Writes lines to the descriptor of a stream, as far as that takes them at once."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._descriptor = stream.fileno()
        self._poll: select.poll | None = None
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            self._poll = select.poll()
            self._poll.register(self._descriptor, select.POLLOUT)
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a record, behind those that wait; it may have to wait itself."""
        try:
            line = self._line(record)
        except Exception:  # noqa: BLE001 - whatever a bug in a formatter raises, logging has a way to tell
            self.handleError(record)
            return
        if self._waiting:
            self._catch_up()
        if self._waiting or (line := self._write(line)):
            self._keep(line)

    def flush(self) -> None:
        """Writes what waits, as far as it is taken at once."""
        self.acquire()
        try:
            self._catch_up()
        finally:
            self.release()

    def close(self) -> None:
        """Writes what waits, for a last moment."""
        self.acquire()
        try:
            for _ in range(LAST_LOOKS):
                if self._poll is None or not self._waiting:
                    break
                self._poll.poll(LAST_LOOK_MILLISECONDS)
                self._catch_up()
        finally:
            self.release()
        super().close()

    def _line(self, record: logging.LogRecord) -> bytes:
        return self.format(record).encode("utf-8", "replace") + b"\n"

    def _keep(self, line: bytes) -> None:
        # The rest of a line that has begun is the first that waits.
        if self._waiting and self._bytes + len(line) > MOST_WAITING:
            self._lost += 1
        else:
            self._waiting.append(line)
            self._bytes += len(line)

    def _catch_up(self) -> None:
        waiting = self._waiting
        while waiting:
            line = waiting.popleft()
            self._bytes -= len(line)
            if rest := self._write(line):
                waiting.appendleft(rest)
                self._bytes += len(rest)
                return
        if self._lost:
            lost, self._lost = self._lost, 0
            told = logging.LogRecord(
                "sponson", logging.WARNING, "", 0, "%d lines are missing here: nobody read the log", (lost,), None
            )
            if rest := self._write(self._line(told)):
                self._keep(rest)

    def _write(self, line: bytes) -> bytes:
        """Writes as much of a line as is taken at once; returns the rest. A line that nobody can take is dropped."""
        poll, descriptor = self._poll, self._descriptor
        try:
            if poll is None:
                return line[os.write(descriptor, line) :]
            # So much a pipe takes whole, if it takes anything.
            while line and poll.poll(0):
                line = line[os.write(descriptor, line[: select.PIPE_BUF]) :]
        except BlockingIOError:
            return line
        except OSError:  # the reader has gone, or the disk is full
            return b""
        return line
