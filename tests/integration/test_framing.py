"""Framing of answers: exactly one, in every version and for answers without a body; connections that live on."""

from __future__ import annotations

import asyncio

import pytest

from tests.integration.caller import Answer, request_bytes
from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT, CHAT_STREAM, DONE, event, says, streams
from tests.integration.scripted import Exchange, Script

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

POLICY = {
    "version": 1,
    "providers": {"alpha": {}, "odd": {"breaker": "off", "timeouts": {"answer": "700ms"}}},
    "routes": [
        route("odd", "odd", retry={"attempts": 1}),
        {"name": "once", "match": {"path": "/v1/once"}, "tiers": [{"provider": "alpha"}], "retry": {"attempts": 1}},
    ],
}
PATH = "/alpha/v1/files"


def sends(*parts: bytes, close: bool = False) -> Script:
    """A provider that writes exactly these bytes."""

    async def script(exchange: Exchange) -> None:
        for part in parts:
            await exchange.send(part)
            await asyncio.sleep(0.005)
        if close:
            exchange.close()

    return script


async def then_another(lab: Lab, first: bytes, *, method: str) -> Answer:
    """Returns the answer to a request; the same connection must serve a second one, its own answer."""
    async with lab.wire() as wire:
        await wire.send(first)
        answer = await wire.answer(method=method)
        lab["alpha"].script = says("second")
        await wire.send(request_bytes("POST", PATH, body=CHAT))
        second = await wire.answer()
        assert second.status == 200
        assert second.json()["choices"][0]["message"]["content"] == "second"
    return answer


@pytest.mark.parametrize(
    "script",
    [
        sends(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"),
        sends(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", b"he", b"llo"),
        sends(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"2\r\nhe\r\n", b"3\r\nllo\r\n0\r\n\r\n"),
        sends(b"HTTP/1.1 200 OK\r\n\r\n", b"he", b"llo", close=True),
        sends(b"HTTP/1.0 200 OK\r\n\r\nhello", close=True),
    ],
    ids=["length", "slow length", "chunked", "until close", "1.0"],
)
async def test_answer_has_exactly_one_framing(lab: Lab, script: Script) -> None:
    lab["alpha"].script = script
    answer = await then_another(lab, request_bytes("GET", PATH), method="GET")
    assert (answer.status, answer.body, answer.complete) == (200, b"hello", True)
    assert len(answer.all("content-length")) + len(answer.all("transfer-encoding")) == 1


async def test_illegal_double_framing_never_passes(lab: Lab) -> None:
    lab["odd"].script = sends(
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n", b"5\r\nhello\r\n0\r\n\r\n"
    )
    answer = await lab.chat("odd")
    if answer.status == 200:
        assert (answer.body, answer.complete) == (b"hello", True)
        assert len(answer.all("content-length")) + len(answer.all("transfer-encoding")) == 1
    else:
        assert (answer.status, answer.reason) == (502, "upstream_unreachable")
    await lab.chat("odd")
    assert lab["odd"].seen[1].connection != lab["odd"].seen[0].connection


async def test_head_keeps_the_length_and_has_no_body(lab: Lab) -> None:
    lab["alpha"].script = sends(b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n")
    answer = await then_another(lab, request_bytes("HEAD", PATH), method="HEAD")
    assert (answer.status, answer.all("content-length"), answer.body) == (200, ["5000"], b"")


async def test_illegal_body_of_a_head_is_never_the_next_answer(lab: Lab) -> None:
    lab["alpha"].script = sends(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello")
    answer = await then_another(lab, request_bytes("HEAD", PATH), method="HEAD")
    assert answer.status == 200


CHUNKED_204 = b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    "rest", [b"\r\n", b"content-length: 0\r\n\r\n", CHUNKED_204], ids=["bare", "length", "chunked"]
)
async def test_204_has_neither_length_nor_chunks(lab: Lab, rest: bytes) -> None:
    lab["alpha"].script = sends(b"HTTP/1.1 204 No Content\r\n" + rest)
    answer = await then_another(lab, request_bytes("POST", PATH, body=CHAT), method="POST")
    assert answer.status == 204
    assert (answer.header("content-length"), answer.header("transfer-encoding")) == (None, None)


async def test_304_keeps_the_length_and_has_no_body(lab: Lab) -> None:
    lab["alpha"].script = sends(b'HTTP/1.1 304 Not Modified\r\netag: "e"\r\ncontent-length: 77\r\n\r\n')
    answer = await then_another(lab, request_bytes("GET", PATH, headers=[("if-none-match", '"e"')]), method="GET")
    assert (answer.status, answer.header("etag"), answer.header("content-length")) == (304, '"e"', "77")


TOLD = {
    "length": (b"content-length: 321\r\n", ["321"]),
    "packed": (b"content-encoding: gzip\r\ncontent-length: 321\r\n", ["321"]),
    "part": (b"content-range: bytes 0-320/999\r\ncontent-length: 321\r\n", ["321"]),
    "chunked": (b"content-encoding: br\r\ntransfer-encoding: chunked\r\n", []),
    "neither": (b"content-type: text/event-stream\r\n", []),
}
WITHOUT_BODY = [("HEAD", code) for code in (200, 206, 302, 304, 404, 416, 429, 503)] + [("GET", 304), ("POST", 304)]


@pytest.mark.parametrize("told", TOLD)
@pytest.mark.parametrize(("method", "status"), WITHOUT_BODY)
async def test_what_an_answer_without_a_body_tells_of_one_stays(lab: Lab, method: str, status: int, told: str) -> None:
    lines, lengths = TOLD[told]
    lab["alpha"].script = sends(b"HTTP/1.1 %d Said\r\n%b\r\n" % (status, lines))
    route = "/v1/once" if status > 400 else PATH
    answer = await then_another(lab, request_bytes(method, route), method=method)
    assert (answer.status, answer.all("content-length"), answer.all("transfer-encoding")) == (status, lengths, [])
    for line in lines.split(b"\r\n")[:-1]:
        name, _, value = line.decode().partition(": ")
        assert name in ("content-length", "transfer-encoding") or answer.all(name) == [value]


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD"])
@pytest.mark.parametrize("told", TOLD)
async def test_204_tells_of_no_body(lab: Lab, method: str, told: str) -> None:
    lab["alpha"].script = sends(b"HTTP/1.1 204 Gone Well\r\n%b\r\n" % TOLD[told][0])
    answer = await then_another(lab, request_bytes(method, PATH), method=method)
    assert (answer.status, answer.all("content-length"), answer.all("transfer-encoding")) == (204, [], [])


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("status", [205, 206, 226, 299])
async def test_any_other_good_answer_has_the_body_that_it_has(lab: Lab, status: int, chunked: bool) -> None:
    framed = b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" if chunked else b"content-length: 3\r\n\r\nabc"
    lab["alpha"].script = sends(b"HTTP/1.1 %d Said\r\ncontent-range: bytes 0-2/9\r\n%b" % (status, framed))
    answer = await then_another(lab, request_bytes("GET", PATH, headers=[("range", "bytes=0-2")]), method="GET")
    assert (answer.status, answer.body, answer.complete) == (status, b"abc", True)
    assert answer.all("content-range") == ["bytes 0-2/9"]
    assert lab["alpha"].seen[0].all("range") == [b"bytes=0-2"]


@pytest.mark.parametrize("interim", [b"102 Processing", b"103 Early Hints\r\nlink: <a>", b"100 Continue"])
async def test_interim_answers_are_not_the_answer(lab: Lab, interim: bytes) -> None:
    final = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"
    lab["alpha"].script = sends(b"HTTP/1.1 " + interim + b"\r\n\r\n", final)
    answer = await then_another(lab, request_bytes("POST", PATH, body=CHAT), method="POST")
    assert (answer.status, answer.body) == (200, b"hello")


async def test_nothing_of_an_interim_answer_is_seen_in_the_final_one(lab: Lab) -> None:
    interim = b"HTTP/1.1 %d Soon\r\nx-soon: 1\r\nset-cookie: soon=1\r\nconnection: x-late\r\n\r\n"
    final = b"HTTP/1.1 200 OK\r\nx-late: 1\r\ncontent-length: 5\r\n\r\nhello"
    lab["alpha"].script = sends(*(interim % code for code in (100, 102, 103, 150, 199)), final)
    answer = await then_another(lab, request_bytes("POST", PATH, body=CHAT), method="POST")
    assert (answer.status, answer.body, answer.interim, answer.header("x-late")) == (200, b"hello", [], "1")
    assert (answer.header("x-soon"), answer.header("set-cookie")) == (None, None)


async def test_interim_answers_are_no_answer_however_many_come(lab: Lab) -> None:
    async def script(exchange: Exchange) -> None:
        while True:
            await exchange.send(b"HTTP/1.1 103 Early Hints\r\n\r\n")
            await asyncio.sleep(0.02)

    lab["odd"].script = script
    answer = await lab.chat("odd")
    assert (answer.status, answer.reason, answer.interim) == (504, "answer_timeout", [])


async def test_nobody_switches_to_what_nobody_asked_for(lab: Lab) -> None:
    switch = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: %b\r\nconnection: upgrade\r\n\r\n"
    for protocol in (b"websocket", b"h2c"):
        lab["odd"].script = sends(switch % protocol + b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        answer = await lab.chat("odd")
        assert (answer.status, answer.reason) == (502, "upstream_unreachable")


TRAILERS = b"x-sum: 1\r\nset-cookie: late=1\r\nx-sponson-provider: nobody\r\n\r\n"


@pytest.mark.parametrize("status", [200, 400, 503])
@pytest.mark.parametrize("at_once", [True, False])
async def test_trailers_of_an_answer_end_here(lab: Lab, status: int, at_once: bool) -> None:
    head = b"HTTP/1.1 %d Said\r\nTrailer: x-sum, set-cookie\r\ntransfer-encoding: chunked\r\n\r\n" % status
    parts = [head, b"5\r\nhello\r\n", b"0\r\n" + TRAILERS]
    lab["alpha"].script = sends(*([b"".join(parts)] if at_once else parts))
    answer = await then_another(lab, request_bytes("POST", "/v1/once", headers=[("te", "trailers")]), method="POST")
    assert (answer.status, answer.body, answer.complete) == (status, b"hello", True)
    names = {name.decode().lower() for name, _ in answer.headers}
    assert not names & {"trailer", "x-sum", "set-cookie"}
    assert answer.all("x-sponson-provider") == ["alpha"]
    assert "te" not in lab["alpha"].seen[0].names


async def test_a_length_in_a_trailer_is_a_break_that_can_be_seen(lab: Lab) -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"
    lab["odd"].script = sends(head, b"0\r\ncontent-length: 9\r\n\r\n")
    answer = await lab.chat("odd")
    assert answer.status == 502 or not answer.complete
    await lab.chat("odd")
    assert lab["odd"].seen[1].connection != lab["odd"].seen[0].connection


def old(path: str, *, keep: bool = False, body: bytes = b'{"model":"m"}') -> bytes:
    """Returns an HTTP/1.0 request, without a Host."""
    fields = b"Connection: keep-alive\r\n" if keep else b""
    kind = b"content-type: application/json\r\n"
    return b"POST %b HTTP/1.0\r\n%b%bcontent-length: %d\r\n\r\n%b" % (path.encode(), fields, kind, len(body), body)


@pytest.mark.parametrize("keep", [False, True])
async def test_http_1_0_client_is_never_sent_chunks(lab: Lab, keep: bool) -> None:
    lab["alpha"].script = sends(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n", b"0\r\n\r\n")
    async with lab.wire() as wire:
        await wire.send(old(PATH, keep=keep))
        answer = await wire.answer()
        assert (answer.status, answer.body, answer.header("transfer-encoding")) == (200, b"hello", None)
        if answer.header("content-length") is None:
            assert await wire.closed()


async def test_http_1_0_client_gets_events_one_by_one(lab: Lab) -> None:
    go = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.chunk(event("one"))
        async with asyncio.timeout(5):
            await go.wait()
        await exchange.chunk(event("two") + DONE)
        await exchange.end()

    lab["alpha"].script = script
    async with lab.wire() as wire:
        await wire.send(old("/alpha/v1/chat/completions", body=b'{"model":"m","stream":true}'))
        answer = await wire.answer(on_piece=lambda data: go.set())
        assert answer.header("transfer-encoding") is None
        assert answer.body == event("one") + event("two") + DONE
        assert await wire.closed()


async def test_http_1_0_client_with_keep_alive_may_go_on(lab: Lab) -> None:
    async with lab.wire() as wire:
        for _ in range(2):
            await wire.send(old(PATH, keep=True))
            answer = await wire.answer()
            assert (answer.status, (answer.header("connection") or "").lower()) == (200, "keep-alive")


async def test_connection_serves_many_requests(lab: Lab) -> None:
    async with lab.wire() as wire:
        for number in range(20):
            lab["alpha"].script = says(str(number))
            await wire.send(request_bytes("POST", PATH, body=CHAT))
            answer = await wire.answer()
            assert answer.json()["choices"][0]["message"]["content"] == str(number)
    assert lab["alpha"].accepted <= lab["alpha"].seen[-1].connection + 1


async def test_pipelined_requests_are_answered_in_order(lab: Lab) -> None:
    async def script(exchange: Exchange) -> None:
        await asyncio.sleep(0.05 if exchange.number == 0 else 0)
        await exchange.reply(200, exchange.request.target)

    lab["alpha"].script = script
    async with lab.wire() as wire:
        await wire.send(b"".join(request_bytes("GET", f"{PATH}/{number}") for number in range(3)))
        bodies = [(await wire.answer(method="GET")).body for _ in range(3)]
    assert bodies == [b"/v1/files/0", b"/v1/files/1", b"/v1/files/2"]


async def test_connection_close_is_granted(lab: Lab) -> None:
    async with lab.wire() as wire:
        await wire.send(request_bytes("POST", PATH, headers=[("connection", "close")], body=CHAT))
        answer = await wire.answer()
        assert (answer.status, answer.header("connection")) == (200, "close")
        assert await wire.closed()


async def test_stream_leaves_the_connection_usable(lab: Lab) -> None:
    lab["alpha"].script = streams(event("a"), event("b"), DONE)
    request = request_bytes("POST", "/alpha/v1/chat/completions", body=CHAT_STREAM)
    answer = await then_another(lab, request, method="POST")
    assert (answer.body, answer.complete) == (event("a") + event("b") + DONE, True)
