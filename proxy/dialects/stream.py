"""Owns what an event stream has shown so far: content, error, end, usage (`StreamScanner`).

Reads copies and never delays or changes a byte. After the first content almost every event is just counted:
JSON is parsed only where the bytes hold a word that may matter.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson

from proxy.dialects.errors import AnswerError
from proxy.dialects.sse import EventSplitter, plain_events
from proxy.dialects.usage import later_usage, may_report
from proxy.exchange import Usage

_DONE: Final = b"[DONE]"
_ERROR: Final = b"error"
_ERROR_KEY: Final = b'"error"'
_ERROR_NAMES: Final = (b"event: error\n", b"event:error\n")


class Signs(NamedTuple):
    """What one event shows. An error is never content."""

    content: bool = False
    done: bool = False
    error: AnswerError | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventShape:
    """How one operation's events are read.

    `words`: bytes that an event which matters after the first content holds, besides `"usage"`, `"error"` and
    `[DONE]`. `read` is given the event's name and its JSON.
    """

    read: Callable[[bytes, Any], Signs]
    words: tuple[bytes, ...] = ()


def _lenient(text: bytes) -> Any:
    """Reads JSON as receivers of events may: what is no UTF-8 is replaced (WHATWG HTML §9.2.6), half a pair passes."""
    return json.loads(text.decode("utf-8", "replace"))


class StreamScanner:
    """Follows one event stream. The same bytes give the same result, however they are cut into pieces.

    `content`: the first content was seen (stays False after an error that came before it). `error`: the
    first error. `done`: the dialect's own end was seen (`[DONE]`, `message_stop`, `response.completed`).
    `usage`: as reported until now. `events`: completed events; `malformed`: those among them that were
    looked at and could not be read. One that cannot be read counts as content: it passes on as it is.
    """

    __slots__ = ("_events", "_shape", "content", "done", "error", "events", "malformed", "usage")

    def __init__(self, shape: EventShape) -> None:
        self.content = False
        self.error: AnswerError | None = None
        self.done = False
        self.usage: Usage | None = None
        self.events = 0
        self.malformed = 0
        self._shape = shape
        self._events = EventSplitter()

    @property
    def between_events(self) -> bool:
        """True when an event of our own can be put in: after a whole event, but not after its own last one."""
        return self._events.between_events and not self.done and self.error is None

    @property
    def comments(self) -> int:
        """Comment lines so far: signs of life that are no events."""
        return self._events.comments

    @property
    def signs(self) -> int:
        """Signs of life so far: whole events, and comments. Bytes that complete neither are none."""
        return self.events + self._events.comments

    def feed(self, piece: bytes) -> None:
        """Takes the next bytes of the stream."""
        if self.content and self._events.between_events:
            events = plain_events(piece)
            if events and not self._may_matter(piece) and not piece.startswith(_ERROR_NAMES):
                self.events += events
                return
        for name, data in self._events.feed(piece):
            self._take(name, data)

    def finish(self) -> None:
        """Takes the end of the stream. A last event that was cut is no content."""
        content, malformed = self.content, self.malformed
        for name, data in self._events.finish():
            self._take(name, data)
        if self.malformed > malformed:
            self.content = content

    def _may_matter(self, text: bytes) -> bool:
        """Returns False when no event in the text can show anything new, apart from `[DONE]` alone."""
        if text.find(_ERROR_KEY) >= 0:
            return True
        for word in self._shape.words:
            if text.find(word) >= 0:
                return True
        return may_report(text)

    def _take(self, name: bytes, data: bytes | None) -> None:
        self.events += 1
        if data is None:
            self._take_unreadable()
            return
        text = data.strip()
        if text == _DONE:
            self.done = True
        elif text and (not self.content or self._names_matter(name) or self._may_matter(text)):
            try:
                document = orjson.loads(text)
            except orjson.JSONDecodeError:
                try:
                    document = _lenient(text)
                except (ValueError, RecursionError):
                    self._take_unreadable()
                    return
            self._take_signs(self._shape.read(name, document))

    def _names_matter(self, name: bytes) -> bool:
        return name == _ERROR or name in self._shape.words

    def _take_unreadable(self) -> None:
        self.malformed += 1
        self.content = self.content or self.error is None

    def _take_signs(self, signs: Signs) -> None:
        if signs.usage is not None:
            self.usage = later_usage(self.usage, signs.usage)
        if self.done or self.error is not None:
            return
        self.error = signs.error
        self.done = signs.done
        self.content = self.content or (signs.content and signs.error is None)

    def __repr__(self) -> str:
        signs = ("content" * self.content, "done" * self.done, f"{self.error}" * (self.error is not None))
        return f"<{type(self).__name__} {self.events} events {' '.join(filter(None, signs))}>"
