"""The head of an answer, and what may stand in its place."""

from __future__ import annotations

from proxy.fields import Fields


class ConnectionEnded(ConnectionError):
    """The connection ended before the head of an answer; `strerror` says how."""

    def __init__(self, why: str) -> None:
        super().__init__(None, why)


class MalformedAnswer(Exception):
    """Bytes that are no well-formed HTTP/1 answer."""


class AnswerHead:
    """The head of an answer. `should_close`: its connection serves no other request."""

    __slots__ = ("code", "headers", "phrase", "should_close")

    def __init__(self, code: int, phrase: bytes, headers: Fields, *, should_close: bool) -> None:
        self.code = code
        self.phrase = phrase
        self.headers = headers
        self.should_close = should_close

    def __repr__(self) -> str:
        return f"<AnswerHead {self.code}>"
