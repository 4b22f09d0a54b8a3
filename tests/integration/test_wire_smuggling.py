"""What a provider receives is what another reader of the caller's bytes finds in them, and nothing else."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.downstream.reference import Read, read_requests
from tests.integration.harness import Lab
from tests.integration.scripted import Exchange, Received

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

POLICY = {"version": 1, "providers": {"alpha": {"base_url": "http://127.0.0.1:{port}"}}}
PATH = b"/alpha/v1/files"
SMUGGLED = b"GET /alpha/v1/smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
HEADS = [
    (b"GET", b"", b""),
    (b"HEAD", b"X-Tag: a\r\nX-Tag: b\r\nX-Empty:\r\n", b""),
    (b"POST", b"Content-Length: 5\r\n", b"hello"),
    (b"POST", b"Content-Length: %d\r\n" % len(SMUGGLED), SMUGGLED),
    (b"POST", b"Transfer-Encoding: chunked\r\n", b"2\r\nhe\r\n3;a=b\r\nllo\r\n0\r\nX-Sum: 1\r\n\r\n"),
    (b"POST", b"Transfer-Encoding: chunked\r\n", b"%x\r\n%b\r\n0\r\n\r\n" % (len(SMUGGLED), SMUGGLED)),
    (b"GET", b"Connection: Upgrade\r\nUpgrade: h2c\r\n", b""),
    (b"POST", b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n", b"abc"),
    (b"PUT", b"Expect: 100-continue\r\nContent-Length: 4\r\n", b"body"),
    (b"DELETE", b"Content-Length: 0\r\nConnection: X-Tag\r\nX-Tag: a\r\n", b""),
]
BITS = [
    b"\r", b"\n", b"\r\n", b"\r\n\r\n", b" ", b"\t", b"\0", b"\xff", b":", b";", b",", b"0", b"5", b"-", b"+",
    b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: x\r\n", b"Host: y\r\n", SMUGGLED,
]  # fmt: skip
STREAMS = 12


def written(choose: random.Random, *, edits: int) -> bytes:
    """Some requests one behind the other, with so many places changed."""
    heads = (choose.choice(HEADS) for _ in range(choose.randrange(2, 6)))
    data = b"".join(
        b"%b %b/%d HTTP/1.1\r\nHost: x\r\n%b\r\n%b" % (method, PATH, number, lines, body)
        for number, (method, lines, body) in enumerate(heads)
    )
    for _ in range(edits):
        at, size = choose.randrange(len(data)), choose.choice([0, 0, 1, 2])
        data = data[:at] + choose.choice(BITS) + data[at + size :]
    return data + b"GET %b/last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % PATH


async def sent(lab: Lab, data: bytes, choose: random.Random, *, bytewise: bool) -> None:
    """Sends it in pieces, and leaves when nothing comes back any more."""
    async with lab.wire() as wire:
        places = range(1, len(data)) if bytewise else sorted(choose.randrange(len(data)) for _ in range(5))
        try:
            for start, end in zip([0, *places], [*places, len(data)], strict=True):
                wire.writer.write(data[start:end])
                await asyncio.sleep(0)
            async with asyncio.timeout(0.4):
                while await wire.reader.read(1 << 16):
                    pass
        except (TimeoutError, ConnectionError):
            pass
    await lab.idle()


def of_caller(request: Read) -> tuple[bytes, bytes, list[bytes], bytes]:
    """What of a request must reach the provider."""
    named = {token.strip().lower() for line in request.all(b"connection") for token in line.split(b",")}
    tags = [] if b"x-tag" in named else request.all(b"x-tag")
    target = request.target[6:] if request.target.startswith(b"/alpha/") else request.target
    return request.method, target, tags + request.all(b"x-empty"), request.body


def of_provider(request: Received) -> tuple[bytes, bytes, list[bytes], bytes]:
    """The same of what reached it; its framing must be one."""
    assert len(request.all("content-length")) + len(request.all("transfer-encoding")) <= 1, request.head
    assert len(request.all("host")) == 1, request.head
    return request.method.encode(), request.target, request.all("x-tag") + request.all("x-empty"), request.body


@pytest.mark.parametrize("bytewise", [False, True], ids=["pieces", "bytewise"])
@pytest.mark.parametrize("edits", [0, 1, 2])
async def test_a_provider_receives_what_was_asked_and_nothing_that_was_hidden_in_it(
    lab: Lab, edits: int, bytewise: bool
) -> None:
    for number in range(STREAMS):
        choose = random.Random(1000 * edits + number)
        data = written(choose, edits=edits)
        lab["alpha"].forget()
        await sent(lab, data, choose, bytewise=bytewise)
        received = [of_provider(request) for request in lab["alpha"].seen]
        expected = [of_caller(request) for request in read_requests(data)]
        assert received == expected[: len(received)], data
        if not edits:
            assert len(received) == len(expected), data


async def test_hundreds_of_requests_at_once_are_answered_in_their_order(lab: Lab) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.reply(200, exchange.request.target + b" " + exchange.request.body)

    lab["alpha"].script = script
    count = 300
    data = b"".join(
        b"POST %b/%d HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (PATH, number, number, b"b" * number)
        for number in range(count)
    )
    async with lab.wire() as wire:
        sending = asyncio.ensure_future(wire.send(data))
        for number in range(count):
            answer = await wire.answer()
            assert answer.body == b"/v1/files/%d %b" % (number, b"b" * number)
        await sending
