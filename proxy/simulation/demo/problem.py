"""What ends a demo before its end."""

from __future__ import annotations

FAILED = 1
CANNOT_START = 2


class DemoProblem(Exception):
    """The message names the cure; `log` is the end of the log that tells more; `code` is the exit code."""

    def __init__(self, message: str, *, code: int, log: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.log = log
