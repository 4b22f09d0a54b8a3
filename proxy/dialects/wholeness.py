"""Owns whether an answer is whole and free of errors, so that it may be given again, and what of its head goes along.

A 200 proves little: errors stand inside of it, streams end early, pages of gateways take the place of JSON. What cannot
be read here (an unknown coding, an unknown stream) is not kept. Sources: RFC 9111 §3, §4.1 and §5.1; RFC 9110 §7.6.1.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import orjson

from proxy.dialects.base import Operation
from proxy.dialects.errors import error_in
from proxy.dialects.sse import EventSplitter
from proxy.fields import lines_of, pairs_of
from proxy.ports import StoredAnswer

LARGEST_UNPACKED: Final = 8 * 1024 * 1024
MOST_PARTS: Final = 200_000
"""Objects and arrays of a body: reading an answer may not hold up everybody else for longer than some 50 ms."""
MOST_LINES: Final = 60_000
"""Lines of a stream, for the same reason: the longest answers have some 20,000 events of three."""
EVENTS: Final = b"text/event-stream"
_ZLIB: Final = zlib.MAX_WBITS
_GZIP: Final = 16 + zlib.MAX_WBITS
_RAW: Final = -zlib.MAX_WBITS
_FORMATS: Final = {b"gzip": (_GZIP,), b"x-gzip": (_GZIP,), b"deflate": (_ZLIB, _RAW)}
"""`deflate` is sent with and without a zlib header."""
_DONE: Final = b"[DONE]"
_OWN_ENDS: Final[dict[str, tuple[str, ...]]] = {
    "messages": ("message_stop",),
    "responses": ("response.completed", "response.incomplete"),
}
"""Types of the events that end a stream, by kind of operation; other streams end with `[DONE]`."""
_ENDED: Final = ("completed", "incomplete")
"""What `status` says of a response that will not change any more."""
_STATES: Final = ("status", "processing_status")
_RUNNING: Final = (
    *("queued", "pending", "validating", "processing", "running", "in_progress", "finalizing"),
    *("canceling", "cancelling"),
)
"""What jobs say while they will still change: who asks again waits for news."""
_OF_ONE_ANSWER: Final = frozenset(
    b"age connection content-length keep-alive proxy-authenticate proxy-authentication-info proxy-connection "
    b"set-cookie set-cookie2 te trailer transfer-encoding upgrade".split()
)
_PREFIXES_OF_ONE_ANSWER: Final = (b"x-ratelimit-", b"anthropic-ratelimit-", b"ratelimit", b"retry-after", b"x-sponson-")
"""Headers that tell how things stood when the answer was given."""


def kept(
    answer: StoredAnswer, *, operation: Operation | None, stream: bool, keyed: frozenset[str]
) -> StoredAnswer | None:
    """Returns an answer as it may be given again, or None.

    `stream`: events were asked for. `keyed` are the headers (lower case) in which those agree who will get it.
    """
    fields = [(name.lower().strip(), value.strip(b" \t")) for name, value in pairs_of(answer.lines)]
    if answer.status != 200 or not _allowed(fields, keyed) or _cut(answer):
        return None
    body = unpacked(answer.body, _values(fields, b"content-encoding"))
    if body is None or not _whole(body, _media_type(fields), operation, stream=stream):
        return None
    lasting = lines_of(field for field in pairs_of(answer.lines) if _lasts(field[0].lower().strip()))
    return replace(answer, lines=lasting)


def with_age(lines: bytes, age: float) -> bytes:
    """Returns the fields of a kept answer with its age, in whole seconds."""
    return b"%bage: %d\r\n" % (lines, max(0, int(age)))


def unpacked(body: bytes, codings: list[bytes]) -> bytes | None:
    """Returns a body without its coding; None for several ones, an unknown one, and a body that is not whole."""
    codings = [coding for coding in codings if coding != b"identity"]
    if not codings or not body:
        return body
    formats = _FORMATS.get(codings[0], ()) if len(codings) == 1 else ()
    for bits in formats:
        plain = _inflated(body, bits)
        if plain is not None:
            return plain
    return None


def _inflated(body: bytes, bits: int) -> bytes | None:
    inflater = zlib.decompressobj(bits)
    try:
        plain = inflater.decompress(body, LARGEST_UNPACKED)
    except zlib.error:
        return None
    return plain if inflater.eof and not inflater.unused_data else None


Pairs = list[tuple[bytes, bytes]]


def _values(fields: Pairs, name: bytes) -> list[bytes]:
    """Returns the members of a list field, in lower case."""
    values = b",".join(value for key, value in fields if key == name)
    return [word for part in values.lower().split(b",") if (word := part.strip(b" \t"))]


def _media_type(fields: Pairs) -> bytes:
    types = [value for name, value in fields if name == b"content-type"]
    return types[0].partition(b";")[0].strip(b" \t").lower() if len(types) == 1 else b""


def _allowed(fields: Pairs, keyed: frozenset[str]) -> bool:
    """Whether the provider lets it be kept, and given to everybody who agrees in these headers."""
    if any(word.partition(b"=")[0].strip(b" \t") == b"no-store" for word in _values(fields, b"cache-control")):
        return False
    return all(name.decode("latin-1") in keyed for name in _values(fields, b"vary"))


def _cut(answer: StoredAnswer) -> bool:
    """Whether fewer bytes have come than were promised; without any, the head alone may have been asked for."""
    return bool(answer.body) and answer.length is not None and answer.length != len(answer.body)


def _lasts(name: bytes) -> bool:
    return name not in _OF_ONE_ANSWER and not name.startswith(_PREFIXES_OF_ONE_ANSWER)


def _whole(body: bytes, media_type: bytes, operation: Operation | None, *, stream: bool) -> bool:
    if (media_type == EVENTS) is not stream:
        return False
    if stream:
        return operation is not None and _ended_well(body, operation)
    if media_type == b"application/json" or media_type.endswith(b"+json"):
        return (not body and operation is None) or _sound(body, operation)
    # Known operations answer with JSON: a page, or a text, is somebody else's.
    return operation is None or (not media_type and _sound(body, operation))


def _ended_well(body: bytes, operation: Operation) -> bool:
    if body.count(b"\n") + body.count(b"\r") > MOST_LINES or _too_many_parts(body):
        return False
    scanner = operation.dialect.scanner(operation)
    scanner.feed(body)
    scanner.finish()
    seen = scanner.content and scanner.done and scanner.error is None and not scanner.malformed
    return seen and _events_sound(body, operation)


def _events_sound(body: bytes, operation: Operation) -> bool:
    """Whether every event can be read and tells of no failure, up to the operation's own end.

    Who passes a stream on looks at few of its events; and `[DONE]` behind a broken one ends no stream of typed events.
    """
    try:
        return _told_well((line[5:] for line in body.splitlines() if line.startswith(b"data:")), operation)
    except orjson.JSONDecodeError:
        pass
    splitter = EventSplitter()
    events = (*splitter.feed(body), *splitter.finish())
    try:
        # One event may stand on several lines.
        return _told_well((data or b"" for _, data in events), operation)
    except orjson.JSONDecodeError:
        return False


def _told_well(texts: Iterable[bytes], operation: Operation) -> bool:
    own_end = _OWN_ENDS.get(operation.kind, ())
    ended = not own_end
    for text in texts:
        text = text.strip()
        if text and text != _DONE:
            document = orjson.loads(text)
            if isinstance(document, dict):
                if _any_failed(document.get("choices")):
                    return False
                ended = ended or document.get("type") in own_end
    return ended


def _too_many_parts(body: bytes) -> bool:
    return len(body) > MOST_PARTS and body.count(b"{") + body.count(b"[") > MOST_PARTS


def _sound(body: bytes, operation: Operation | None) -> bool:
    """Whether a body is whole JSON that tells of no error; one of absurdly many parts is not looked at."""
    if _too_many_parts(body):
        return False
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    if error_in(document) is not None or _running(document):
        return False
    if operation is None:
        return True
    if not isinstance(document, dict):
        # Services for embeddings and ranking answer with bare lists.
        return isinstance(document, list)
    return _settled(document, operation) and not _any_failed(document.get("choices"))


def _running(document: Any) -> bool:
    return isinstance(document, dict) and any(document.get(name) in _RUNNING for name in _STATES)


def _settled(document: dict[str, Any], operation: Operation) -> bool:
    status = document.get("status")
    return operation.kind != "responses" or status is None or status in _ENDED


def _any_failed(choices: Any) -> bool:
    """Whether a choice ended with an error: gateways put a failure after the first content there."""
    members: Iterable[Any] = choices if isinstance(choices, list) else ()
    return any(
        isinstance(choice, dict) and (bool(choice.get("error")) or choice.get("finish_reason") == "error")
        for choice in members
    )
