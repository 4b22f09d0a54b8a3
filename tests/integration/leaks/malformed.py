"""Requests that are none, or that nobody can take at their word: a mark stands in the line that is wrong."""

from __future__ import annotations

from collections.abc import Iterator

from tests.integration.caller import request_bytes
from tests.integration.leaks.marks import HEADERS, OFFER, PROMPT, QUERY, mark

M = mark("malformed").encode()
PATH = f"/next/v1/chat/completions{QUERY}"
GOOD = request_bytes("POST", PATH, headers=HEADERS, body={"model": "m", **PROMPT})
CHUNKED = request_bytes("POST", PATH, headers=[*HEADERS, ("transfer-encoding", "chunked")], body=b"")
JSON = [*HEADERS, ("content-type", "application/json")]
LONG = M * 20_000


def _line(line: bytes) -> bytes:
    """A request with this field."""
    return GOOD.replace(b"\r\n", b"\r\n" + line + b"\r\n", 1)


def _start(line: bytes, *fields: bytes) -> bytes:
    """A request with this first line and nothing but these fields."""
    return b"\r\n".join([line, *(fields or [b"host: x"]), b"", b""])


def _body(data: bytes, *more: tuple[str, str]) -> bytes:
    return request_bytes("POST", PATH, headers=[*JSON, *more], body=data)


REQUESTS = {
    "space before the colon": _line(b"authorization : Bearer " + M),
    "no colon": _line(M),
    "no name": _line(b": " + M),
    "mark in a name": _line(M + b"(): x"),
    "folded line": _line(b"x-a: b\r\n " + M),
    "bare CR": _line(b"x-a: b\r" + M),
    "NUL": _line(b"x-a: b\0" + M),
    "length": _line(b"content-length: " + M),
    "coding": _line(b"transfer-encoding: " + M),
    "second host": _line(b"host: " + M),
    "account in the host": GOOD.replace(b"host: proxy.test", b"host: me:" + M + b"@proxy.test"),
    "expectation": _line(b"expect: " + M),
    "too long a field": _line(b"x-long: " + LONG),
    "too long a target": _start(b"GET /next/v1/models?key=" + LONG + b" HTTP/1.1"),
    "space in the target": GOOD.replace(b" HTTP/1.1", b" " + M + b" HTTP/1.1", 1),
    "control in the target": GOOD.replace(b" HTTP/1.1", b"\x01" + M + b" HTTP/1.1", 1),
    "version": GOOD.replace(b" HTTP/1.1", b" HTTP/" + M, 1),
    "method": GOOD.replace(b"POST", M, 1),
    "absolute target": _start(b"GET http://me:" + M + b"@elsewhere.test/v1/models HTTP/1.1"),
    "tunnel": _start(b"CONNECT me:" + M + b"@elsewhere.test:443 HTTP/1.1"),
    "asterisk": _start(b"OPTIONS * HTTP/1.1", b"host: x", b"authorization: Bearer " + M),
    "hops": _start(b"OPTIONS /next/v1/models HTTP/1.1", b"host: x", b"max-forwards: " + M),
    "trace": _start(b"TRACE /next/v1/models HTTP/1.1", b"host: x", b"authorization: Bearer " + M),
    "old version": _start(b"POST /next/v1/models HTTP/1.0", b"transfer-encoding: chunked", b"x: " + M),
    "not HTTP": b"\x16\x03\x01\x02\x00\x01\x00" + M + b"\r\n\r\n",
    "words": M + b"\r\n\r\n",
    "chunk size": CHUNKED + M + b"\r\n",
    "chunk extension": CHUNKED + b"2;x=" + M + b"\n{}\r\n0\r\n\r\n",
    "trailer": CHUNKED + b"2\r\n{}\r\n0\r\nauthorization " + M + b"\r\n\r\n",
    "second request in a body": GOOD[:-20] + b"\r\n\r\n" + GOOD,
    "no JSON": _body(b'{"model": "m", "x": ' + M + b"}"),
    "no object": _body(b'["' + M + b'"]'),
    "no text": _body(b'{"model": "' + M + b'\xff"}'),
    "no gzip": _body(b"\x1f\x8b" + M, ("content-encoding", "gzip")),
    "unknown coding of the body": _body(M, ("content-encoding", "x-" + mark("coding"))),
    "keys for idempotency": _line(b"idempotency-key: " + M + b"\r\nidempotency-key: " + M),
    "no WebSocket": _start(
        b"GET /next/v1/realtime?api_key=" + M + b" HTTP/1.1",
        b"host: x",
        b"connection: upgrade",
        b"upgrade: websocket",
        b"sec-websocket-protocol: " + OFFER.encode(),
    ),
    "WebSocket with a wrong key": _start(
        b"GET /next/v1/realtime HTTP/1.1",
        b"host: x",
        b"connection: upgrade",
        b"upgrade: websocket",
        b"sec-websocket-version: 13",
        b"sec-websocket-key: " + M,
        b"sec-websocket-protocol: " + OFFER.encode(),
    ),
}


def halves(data: bytes) -> Iterator[bytes]:
    """Yields the request in two reads: the mark is split."""
    at = data.find(M) + len(M) // 2 if M in data else len(data) // 2
    yield data[:at]
    yield data[at:]
