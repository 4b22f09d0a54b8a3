"""The bytes that the benchmark exchanges, and a reader that cuts a connection into HTTP/1.1 messages.

Each request carries a mark that its answer repeats, so that an answer given to the wrong caller is noticed.
Sizes: request body 1 KiB, answer body 0.7 KB, streams of 51 events (the last is `[DONE]`) of 250 bytes.
"""

from __future__ import annotations

REQUEST_BODY_BYTES = 1024
ANSWER_BODY_BYTES = 700
EVENT_COUNT = 51
EVENT_BYTES = 250
EVENT_GAP_SECONDS = 0.020
END_OF_CHUNKS = b"0\r\n\r\n"
PATH = "/v1/chat/completions"

_MARK = b"%010d"
_MARK_FIELD = b'"user":"'
_MARK_BYTES = 10
_FILLER = b"the quick brown fox jumps over the lazy dog and carries on "
_HELD = b"\x00"


class MessageReader:
    """Reads one HTTP/1.1 message after another from pieces of any size; bodies by length or by chunks."""

    __slots__ = ("_length", "_pending", "body", "head")

    def __init__(self) -> None:
        self._pending = b""
        self._length: int | None = 0
        self.head = b""
        self.body = b""

    def feed(self, data: bytes) -> bool:
        """Take what arrived; true once `head` and `body` hold a whole message."""
        self._pending = self._pending + data if self._pending else data
        if not self.head and not self._take_head():
            return False
        return self._take_chunks() if self._length is None else self._take_sized(self._length)

    def forget(self) -> None:
        """Make room for the next message; bytes that came after this one are kept."""
        self.head = self.body = b""

    @property
    def status(self) -> int:
        """The status code of a response whose head has been read."""
        return int(self.head[9:12])

    def _take_head(self) -> bool:
        end = self._pending.find(b"\r\n\r\n")
        if end < 0:
            return False
        self.head, self._pending = self._pending[: end + 2], self._pending[end + 4 :]
        lowered = self.head.lower()
        if b"\r\ntransfer-encoding: chunked\r\n" in lowered:
            self._length = None
        else:
            self._length = int(field(lowered, b"content-length") or 0)
        return True

    def _take_sized(self, length: int) -> bool:
        if len(self._pending) < length:
            return False
        self.body, self._pending = self._pending[:length], self._pending[length:]
        return True

    def _take_chunks(self) -> bool:
        while True:
            line_end = self._pending.find(b"\r\n")
            if line_end < 0:
                return False
            size = int(self._pending[:line_end].split(b";")[0], 16)
            start = line_end + 2
            if len(self._pending) < start + size + 2:
                return False
            self.body += self._pending[start : start + size]
            self._pending = self._pending[start + size + 2 :]
            if size == 0:
                return True


def field(lowered_head: bytes, name: bytes) -> bytes | None:
    """The value of a header field in a head that is all lower case, or None."""
    start = lowered_head.find(b"\r\n" + name + b":")
    if start < 0:
        return None
    start += len(name) + 3
    return lowered_head[start : lowered_head.find(b"\r\n", start)].strip()


def find_mark(body: bytes) -> bytes | None:
    """The mark of a request body, or None where it has none."""
    start = body.find(_MARK_FIELD)
    return None if start < 0 else body[start + len(_MARK_FIELD) :][:_MARK_BYTES]


def mark_of(number: int) -> bytes:
    """The mark of the request with this number."""
    return _MARK % number


def _filled(before: bytes, after: bytes, total_bytes: int) -> bytes:
    """`before` + filler + `after`, exactly `total_bytes` long once the held place has become a mark."""
    held = (before + after).count(_HELD)
    missing = total_bytes - len(before) - len(after) - held * (_MARK_BYTES - 1)
    return before + (_FILLER * (missing // len(_FILLER) + 1))[:missing] + after


def _parts(template: bytes) -> tuple[bytes, bytes]:
    before, _, after = template.partition(_HELD)
    return before, after


def _request(*, stream: bool) -> bytes:
    body = _filled(
        b'{"model":"bench-large",'
        + _MARK_FIELD
        + _HELD
        + b'","temperature":0.2,"max_tokens":256,'
        + (b'"stream":true,' if stream else b"")
        + b'"messages":[{"role":"system","content":"Answer briefly."},{"role":"user","content":"',
        b'"}]}',
        REQUEST_BODY_BYTES,
    )
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n"
        "Content-Type: application/json\r\nUser-Agent: sponson-bench/1\r\n"
        "Authorization: Bearer sk-bench-caller\r\nX-Agent-Id: agent-7\r\n"
        f"Content-Length: {REQUEST_BODY_BYTES}\r\n\r\n"
    )  # fmt: skip
    return head.encode() + body


def _answer_body() -> bytes:
    return _filled(
        b'{"id":"chatcmpl-' + _HELD + b'","object":"chat.completion","created":1700000000,'
        b'"model":"bench-large","choices":[{"index":0,"message":{"role":"assistant","content":"',
        b'"},"finish_reason":"stop"}],"usage":{"prompt_tokens":212,"completion_tokens":83,"total_tokens":295}}',
        ANSWER_BODY_BYTES,
    )


def _event(index: int) -> bytes:
    if index == EVENT_COUNT - 1:
        return b"data: [DONE]\n\n"
    role = b'"role":"assistant",' if index == 0 else b""
    finish = b'"stop"' if index == EVENT_COUNT - 2 else b"null"
    return _filled(
        b'data: {"id":"chatcmpl-' + _HELD + b'","object":"chat.completion.chunk","created":1700000000,'
        b'"model":"bench-large","choices":[{"index":0,"delta":{' + role + b'"content":"',
        b'"},"finish_reason":' + finish + b"}]}\n\n",
        EVENT_BYTES,
    )


def _answer_head(framing: bytes, media_type: bytes) -> bytes:
    return (
        b"HTTP/1.1 200 OK\r\nDate: Tue, 14 Nov 2023 22:13:20 GMT\r\nServer: bench\r\n"
        b"Content-Type: " + media_type + b"\r\nX-Request-Id: req_8f14e45fceea167a\r\n"
        b"X-Ratelimit-Limit-Requests: 100000\r\nX-Ratelimit-Remaining-Requests: 99999\r\n" + framing + b"\r\n\r\n"
    )


_PLAIN_REQUEST = _parts(_request(stream=False))
_STREAM_REQUEST = _parts(_request(stream=True))
_ANSWER_BODY = _parts(_answer_body())
_ANSWER_HEAD = _answer_head(b"Content-Length: %d" % ANSWER_BODY_BYTES, b"application/json")
_EVENTS = [_event(index) for index in range(EVENT_COUNT)]
_CHUNKS = [
    _parts(b"%x\r\n" % (len(event) + event.count(_HELD) * (_MARK_BYTES - 1)) + event + b"\r\n") for event in _EVENTS
]
STREAM_HEAD = _answer_head(b"Transfer-Encoding: chunked", b"text/event-stream")


def request(mark: bytes, *, stream: bool) -> bytes:
    """Head and body of one request."""
    before, after = _STREAM_REQUEST if stream else _PLAIN_REQUEST
    return before + mark + after


def answer_body(mark: bytes) -> bytes:
    """The body of the answer that belongs to a request without `stream`."""
    before, after = _ANSWER_BODY
    return before + mark + after


def answer(mark: bytes) -> bytes:
    """Head and body of that answer."""
    return _ANSWER_HEAD + answer_body(mark)


def stream_chunk(mark: bytes, index: int) -> bytes:
    """One event of a stream, framed as one HTTP chunk."""
    before, after = _CHUNKS[index]
    return before + mark + after if after else before


def stream_body(mark: bytes) -> bytes:
    """The body of a whole stream, without its chunk framing."""
    return b"".join(_EVENTS).replace(_HELD, mark)
