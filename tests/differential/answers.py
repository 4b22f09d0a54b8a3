"""A grammar of answers in bytes: every place mostly holds what is right, else what a broken provider would write."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

from tests.differential.requests import mostly

SECOND: Final = b"HTTP/1.1 202 Second\r\nContent-Length: 6\r\n\r\nsecond"
JSON: Final = b'{"id":"1","choices":[{"message":{"content":"hi"}}],"usage":{"total_tokens":3}}'
EVENTS: Final = b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\ndata: [DONE]\n\n'
VERSIONS: Final = mostly(
    [b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0"],
    [
        b"HTTP/2.0",
        b"HTTP/1.2",
        b"http/1.1",
        b"HTTP/0.9",
        b"HTTP",
        b"",
        b"ICY",
        b"\r\nHTTP/1.1",
        b" HTTP/1.1",
        b"HTTP/1.10",
    ],
)
CODES: Final = mostly(
    [b"200", b"201", b"404", b"500", b"503", b"302", b"204", b"304", b"429", b"200"],
    [b"101", b"99", b"2000", b"20", b"abc", b"", b"-200", b"+200", b"000", b"600", b"999", b"2 0"],
)
PHRASES: Final = mostly(
    [b" OK", b" ", b" Not quite so \xe9", b"", b" a\tb"], [b" a\rb", b" a\0b", b" \x01", b"OK", b"\tOK", b" a\nx: y"]
)
ENDS: Final = mostly([b"\r\n"], [b"\n", b"\r", b"\r\r\n", b"\n\r", b"\r\n ", b"\0\r\n", b"\r\n\r\n"], odds=30)
COLONS: Final = mostly([b": ", b":", b":\t "], [b" : ", b"\t:", b"", b"::", b"\x0b:", b":\r\n "], odds=25)
NAMES: Final = mostly(
    [b"X-A", b"x-b", b"Server", b"x!#$%&'*+^`|~9", b"Set-Cookie", b"x-sponson-tier", b"Keep-Alive", b"Trailer"],
    [b"X A", b"x\xff", b"", b"(x)", b"x\0", b" x", b"x\x7f", b"x/y"],
)
VALUES: Final = mostly(
    [b"", b"v", b"a b", b"\xff\xfe", b'"q, r"', b"v \t", b"v" * 300, b"a:b"],
    [b"a\0b", b"a\x01b", b"\x7f", b"a\rb", b"a\nb", b"a\x0bb", b"a\r\n b", b"\x1b[0m"],
)
CODINGS: Final = mostly(
    [b"Transfer-Encoding: chunked", b"transfer-encoding:Chunked"],
    [
        b"Transfer-Encoding: xchunked", b"Transfer-Encoding: chunked, identity", b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding: identity", b"Transfer-Encoding : chunked", b"Transfer-Encoding:\r\n chunked",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", b"Transfer-Encoding:", b"Transfer-Encoding: x",
        b"Transfer-Encoding: chunked\r\nContent-Length: 4", b"Content-Length: 4\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: x\r\nContent-Length: 4", b"Transfer-Encoding: chunked\t",
        b"Transfer-Encoding: \x0bchunked",
    ],
)  # fmt: skip
LENGTHS: Final = mostly(
    [b"Content-Length: %d", b"content-length:%d ", b"Content-Length: 0%d"],
    [
        b"Content-Length: +%d", b"Content-Length: -%d", b"Content-Length: %d, %d", b"Content-Length: 0x%d",
        b"Content-Length: %d\r\nContent-Length: %d", b"Content-Length: %d\r\nContent-Length: 0", b"Content-Length:",
        b"Content-Length : %d", b"Content-Length:\r\n %d", b"Content-Length: 9%025d", b"Content-Length: %d.0",
        b"Content-Length: 1_%d", b"Content-Length: " + b"0" * 5000 + b"%d", b"Content-Length: %d\0",
        b"Content-Length: %d;",
    ],
)  # fmt: skip
SIZES: Final = mostly(
    [b"%x", b"%X", b"00%x", b"%x;a=b", b'%x;a="b"'],
    [b"0x%x", b"+%x", b"-%x", b" %x", b"%x ", b"%xg", b"", b"%x;a\nb", b"%x\n", b"f" * 17, b"%x;\0", b"%x_0"],
)
AFTER_DATA: Final = mostly([b"\r\n"], [b"", b"\n", b"x\r\n", b"\r\n\r\n"], odds=30)
FINALS: Final = mostly(
    [b"0\r\n\r\n", b"0\r\nX-T: 1\r\n\r\n"],
    [
        b"",
        b"0\r\n",
        b"0\n\n",
        b"0\r\nx y: 1\r\n\r\n",
        b"0\r\nContent-Length: 9\r\n\r\n",
        b"-0\r\n\r\n",
        b"0\r\n\r\n\r\n",
    ],
)
CONNECTIONS: Final = st.sampled_from(
    [b""] * 10
    + [
        b"Connection: close",
        b"Connection: keep-alive",
        b"connection: x-a, close",
        b"Connection: X-B\r\nConnection: x-a",
    ]
    + [b"Connection: upgrade\r\nUpgrade: h2c", b"Connection: content-length", b"Connection: Transfer-Encoding"]
    + [b"Connection: close, keep-alive"]
)
TYPES: Final = st.sampled_from([b"", b"text/plain", b"application/json", b"application/json", b"text/event-stream"])
INTERIM: Final = st.sampled_from(
    [b""] * 8
    + [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early\r\nLink: <a>\r\n\r\n", b"HTTP/1.1 102 \r\n\r\n" * 20]
    + [b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", b"HTTP/1.1 100 Continue\r\n"]
    + [b"HTTP/1.1 103 Early\r\nContent-Length: 5\r\n\r\n", b"HTTP/1.1 100 C\r\nTransfer-Encoding: chunked\r\n\r\n"]
)
REST: Final = mostly([b""], [b"\r\n", SECOND, b"x", b"HTTP/1.1 100 Continue\r\n\r\n"], odds=20)


@st.composite
def framed(draw: st.DrawFn, data: bytes) -> tuple[bytes, bytes]:
    """The field and the bytes of a body."""
    how = draw(st.sampled_from(["length", "length", "chunks", "chunks", "close"]))
    if how == "close":
        return b"", data
    if how == "length":
        size, line = len(data) + draw(st.sampled_from([0] * 20 + [-1, 1])), draw(LENGTHS)
        return line % ((size,) * (line.count(b"%d") + line.count(b"%0"))), data
    body = b""
    while data:
        part = draw(st.sampled_from([len(data), 1, 7]))
        size_line = draw(SIZES)
        head, data = data[:part], data[part:]
        body += (size_line % len(head) if b"%" in size_line else size_line) + b"\r\n" + head + draw(AFTER_DATA)
        if len(body) > 200 and data:
            head, data = data, b""
            body += b"%x\r\n%b\r\n" % (len(head), head)
    return draw(CODINGS), body + draw(FINALS)


@st.composite
def answer(draw: st.DrawFn) -> bytes:
    """What a provider writes on one connection when it was asked once."""
    kind = draw(TYPES)
    data = {b"application/json": JSON, b"text/event-stream": EVENTS}.get(
        kind, draw(st.sampled_from([b"hello", b"", SECOND]))
    )
    field, body = draw(framed(data))
    lines = [field, draw(CONNECTIONS), b"Content-Type: " + kind if kind else b""]
    lines += [draw(NAMES) + draw(COLONS) + draw(VALUES) for _ in range(draw(st.integers(0, 2)))]
    lines = draw(st.permutations([text for text in lines if text]))
    head = (
        draw(VERSIONS) + b" " + draw(CODES) + draw(PHRASES) + draw(ENDS) + b"".join(one + draw(ENDS) for one in lines)
    )
    return draw(INTERIM) + head + draw(ENDS) + body + draw(REST)
