"""A grammar of requests in bytes: every place mostly holds what is right, else what an attacker would write there."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

FORBIDDEN: Final = b"GET /forbidden HTTP/1.1\r\nHost: p\r\n\r\n"
LAST: Final = b"GET /last HTTP/1.1\r\nHost: p\r\nConnection: close\r\n\r\n"


def mostly(right: list[bytes], wrong: list[bytes], *, odds: int = 12) -> st.SearchStrategy[bytes]:
    """Chooses what is right `odds` times as often as what is wrong."""
    return st.sampled_from(right * (odds * len(wrong) // len(right) + 1) + wrong)


METHODS: Final = mostly(
    [b"POST", b"GET", b"PUT", b"HEAD", b"DELETE", b"PATCH", b"OPTIONS", b"PURGE", b"M-SEARCH"],
    [b"post", b"CONNECT", b"TRACE", b"GOT", b"GET\t", b"G(T", b"\x00GET", b"PRI", b"DESCRIBE", b"PLAY", b""],
)
TARGETS: Final = mostly(
    [
        b"/a",
        b"/v1/chat/completions",
        b"/v1/x%2Fy?q=%zz&&r",
        b"//b/../c",
        b"/*",
        b"/?",
        b"/v1/models/m:go;p=1,2",
        b'/{}|^`"<>',
    ],
    [
        b"*",
        b"http://p/a",
        b"a",
        b"/a b",
        b"/a\tb",
        b"/a\x7f",
        b"/\x01",
        b"/e\xc3\xa9",
        b"/a\rb",
        b"",
        b"?q",
        b"p:80",
        b"/a#f",
    ],
)
VERSIONS: Final = mostly(
    [b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0"],
    [
        b"HTTP/1.2",
        b"HTTP/2.0",
        b"HTTP/0.9",
        b"http/1.1",
        b"HTTP/1.10",
        b"HTTP/01.1",
        b"HTTP/1",
        b"HTTP/1.1 x",
        b"",
    ],
)
SPACES: Final = mostly([b" "], [b"  ", b"\t", b"", b" \t", b"\x0b", b"\xa0"], odds=20)
ENDS: Final = mostly([b"\r\n"], [b"\n", b"\r", b"\r\r\n", b"\n\r", b"\r\n\r\n", b"\x85", b"\r\n ", b"\0\r\n"], odds=30)
COLONS: Final = mostly(
    [b": ", b":", b":\t ", b":  "], [b" :", b"\t: ", b"", b"=", b"::", b"\x0b:", b":\x0c", b":\r\n "], odds=25
)
NAMES: Final = mostly(
    [b"X-A", b"accept", b"x_b", b"X.c", b"x!#$%&'*+^`|~9", b"User-Agent", b"content-type", b"X-A"],
    [b"X A", b"x\xff", b"", b"(x)", b"x/y", b"x\0", b" x", b"x\x7f", b"\xef\xbb\xbfx", b'"x"'],
)
VALUES: Final = mostly(
    [b"", b"v", b"a b", b"\xff\xfe", b"caf\xc3\xa9", b'"q, r"', b"v \t", b"x" * 300, b",,", b"a:b", b"chunked"],
    [b"a\0b", b"a\x01b", b"\x7f", b"a\rb", b"a\nb", b"a\x0bb", b"\x1b[0m", b"a\r\n b", b"a\r\n\tContent-Length: 3"],
)
HOSTS: Final = mostly(
    [b"Host: p", b"host:p:80", b"HOST:", b"Host: [::1]:8", b"Host: a%20b.c ", b"hOsT:\tp-1_~"],
    [b"X: y", b"Host: a\r\nHost: b", b"Host: a b", b"Host: u@p", b"Host: p/x", b"Host: p?x", b"Host: a:b:c",
     b"Host: [x]",
     b"Host: p\\x", b"Host : p", b"Host: %zz", b"Host: p:80\0", b"Ho st: p", b"Host: \xff",
     b"Host: p\r\nhost: p"],
)  # fmt: skip
CHUNKED: Final = mostly(
    [b"Transfer-Encoding: chunked", b"transfer-encoding:Chunked", b"TRANSFER-ENCODING:\t CHUNKED "],
    [b"Transfer-Encoding: xchunked", b"Transfer-Encoding: chunked, identity",
     b"Transfer-Encoding: gzip, chunked",
     b"Transfer-Encoding: identity", b"Transfer-Encoding: chunked, chunked", b"Transfer-Encoding: ,chunked",
     b"Transfer-Encoding: chunked,", b"Transfer-Encoding: chunked;q=1", b"Transfer-Encoding: \x0bchunked",
     b"Transfer-Encoding : chunked", b"Transfer-Encoding:\r\n chunked", b"Transfer-Encoding\t: chunked",
     b"Transfer-Encoding:",
     b" Transfer-Encoding: chunked", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
     b"Transfer-Encoding: chunke\xd4",
     b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
     b"Transfer-Encoding: x\r\nTransfer-Encoding: chunked",
     b"Transfer-Encoding: chunked\r\nContent-Length: 4", b"Content-Length: 4\r\nTransfer-Encoding: chunked",
     b"Transfer-Encoding: \"chunked\"", b"Transfer_Encoding: chunked", b"Transfer-Encoding: chun ked",
     b"Transfer-Encoding: chunked\0"],
)  # fmt: skip
SIZES: Final = mostly(
    [b"%x", b"%X", b"000%x", b"%x", b"%x;a", b'%x;a="b;c"', b"%x;a=b;c=d"],
    [b"0x%x", b"+%x", b"-%x", b" %x", b"%x\t", b"%xg", b"", b"%x;a\nb", b"%x;a\rb", b"%x\n", b"%x,", b"%x;\0",
     b"%x_0",
     b"f" * 17, b"1" + b"0" * 16, b"%x\x0b", b"%x;a=\"\r\n", b"%x:", b"%x ;a"],
)  # fmt: skip
DATA: Final = st.sampled_from(
    [b"hello", b'{"model":"m","stream":true}', b"0\r\n\r\n", FORBIDDEN, b"\r\n", b"\xff\0\n", b"x" * 70]
)
KINDS: Final = st.sampled_from([b"", b"", b"Content-Type: application/json"])
AFTER_DATA: Final = mostly([b"\r\n"], [b"", b"\n", b"\r", b"x\r\n", b"\r\n\r\n", b" \r\n"], odds=30)
LAST_CHUNKS: Final = mostly(
    [b"0\r\n", b"000\r\n", b"0;x=y\r\n"],
    [b"0\n", b"0", b"-0\r\n", b"0x0\r\n", b"0 \r\n", b"00\r", b"0;\n\r\n"],
    odds=20,
)
TRAILERS: Final = mostly(
    [b"", b"", b"X-T: 1\r\n", b"a:\r\nb: \xff\r\n"],
    [
        b"Content-Length: 3\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"transfer-encoding: x\r\n",
        b"x y: 1\r\n",
        b"x\r\n",
        b"x: a\r\n b\r\n",
        b"x: \0\r\n",
        b"x: y\n",
        b": z\r\n",
        b"x : y\r\n",
    ],
)
FINALS: Final = mostly([b"\r\n"], [b"\n", b"\r", b"", b"\r\r\n", b"\r\n\r\n"], odds=20)
LENGTHS: Final = mostly(
    [b"Content-Length: %d", b"content-length:%d", b"Content-Length:\t0%d ", b"CONTENT-LENGTH: %d\t"],
    [b"Content-Length: +%d", b"Content-Length: -%d", b"Content-Length: %d, %d",
     b"Content-Length: %d\r\nContent-Length: %d",
     b"Content-Length: %d\r\nContent-Length: 0", b"Content-Length: 0x%d", b"Content-Length: %d.0",
     b"Content-Length: %d %d",
     b"Content-Length: ", b"Content-Length: %d,", b"Content-Length: 1_%d", b"Content-Length : %d",
     b"Content-Length:\r\n %d",
     b"Content-Length: \x0b%d", b"Content-Length: 99999999999999999999%d",
     b"Content-Length: 18446744073709551616", b"Content-Length: " + b"0" * 5000 + b"%d", b"Content_Length: %d",
     b"Content-Length: \xd9\xa3", b"Content-Length: %d;", b"Content-Length: \"%d\"", b"Content-Length: %d\0",
     b"Content-Length: %de0"],
)  # fmt: skip
CONNECTIONS: Final = st.sampled_from(
    [b""] * 12 + [
        b"Connection: keep-alive", b"Connection: close", b"Connection: x-a",
        b"Connection: Host, Content-Length",
        b"Connection: transfer-encoding", b"Connection: Upgrade\r\nUpgrade: h2c",
        b"Upgrade: h2c\r\nconnection: x-a,upgrade",
        b"Upgrade: TLS/1.0", b"Connection: upgrade", b"Expect: 100-continue", b"Expect: x, 100-Continue",
        b"TE: trailers",
        b"Trailer: X-T", b"Keep-Alive: timeout=1", b"Proxy-Connection: close", b"Connection:\xff, ,;",
        b"Connection: close, keep-alive",
    ]
)  # fmt: skip


@st.composite
def chunked(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """The field and the bytes of a body in chunks."""
    body = b""
    for _ in range(draw(st.integers(0, 3))):
        data = draw(DATA)
        size = draw(SIZES)
        body += (size % len(data) if b"%" in size else size) + b"\r\n" + data + draw(AFTER_DATA)
    return draw(CHUNKED), body + draw(LAST_CHUNKS) + draw(TRAILERS) + draw(FINALS)


@st.composite
def measured(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """The field and the bytes of a body with a length."""
    data, line = draw(DATA), draw(LENGTHS)
    size = len(data) + draw(st.sampled_from([0] * 20 + [-1, 1, 4]))
    return line % ((size,) * line.count(b"%d")), data


BODIES: Final = st.one_of(st.just((b"", b"")), measured(), chunked())


@st.composite
def request(draw: st.DrawFn) -> bytes:
    """One request."""
    line = draw(METHODS) + draw(SPACES) + draw(TARGETS) + draw(SPACES) + draw(VERSIONS) + draw(ENDS)
    field, body = draw(BODIES)
    lines = [draw(HOSTS), field, draw(CONNECTIONS), draw(KINDS)]
    lines += [draw(NAMES) + draw(COLONS) + draw(VALUES) for _ in range(draw(st.integers(0, 3)))]
    lines = draw(st.permutations([text for text in lines if text]))
    return line + b"".join(text + draw(ENDS) for text in lines) + draw(FINALS) + body


@st.composite
def conversation(draw: st.DrawFn) -> bytes:
    """What a caller sends: some requests, and perhaps the last of the connection behind them."""
    asked = draw(st.lists(request(), min_size=1, max_size=3))
    glue = mostly([b""], [b"\r\n", b"\n", b" ", b"\0", b"x"], odds=10)
    return b"".join(one + draw(glue) for one in asked) + draw(st.sampled_from([LAST, FORBIDDEN + LAST, b""]))
