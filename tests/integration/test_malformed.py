"""Requests that cannot be understood: 400 in the caller's dialect, nothing echoed, the connection closed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.integration.caller import Answer, request_bytes
from tests.integration.harness import Lab
from tests.integration.messages import answers
from tests.integration.scripted import Exchange

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

OPENAI = b"/alpha/v1/chat/completions"
ANTHROPIC = b"/alpha/v1/messages"
SECRET = b"sk-do-not-repeat"
CHUNKED = b"content-type: application/json\r\ntransfer-encoding: chunked\r\n"
SMUGGLED = b"GET /alpha/v1/smuggled HTTP/1.1\r\nhost: x\r\n\r\n"

BAD_HEADS = {
    "length and chunked": b"content-length: 5\r\ntransfer-encoding: chunked\r\n",
    "two lengths": b"content-length: 5\r\ncontent-length: 6\r\n",
    "length list": b"content-length: 5, 5\r\n",
    "signed length": b"content-length: +5\r\n",
    "hexadecimal length": b"content-length: 0x5\r\n",
    "unknown coding": b"transfer-encoding: xchunked\r\n",
    "chunked not last": b"transfer-encoding: chunked, identity\r\n",
    "coding twice": b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
    "space before colon": b"content-length : 5\r\n",
    "folded line": b"transfer-encoding:\r\n chunked\r\n",
    "bare CR in a value": b"x-note: a\rb\r\ncontent-length: 5\r\n",
    "NUL in a value": b"x-note: a\x00b\r\ncontent-length: 5\r\n",
    "no colon": b"just words\r\ncontent-length: 5\r\n",
    "empty name": b": nothing\r\ncontent-length: 5\r\n",
}
BAD_CHUNKS = {
    "hexadecimal prefix": b"0x5\r\nhello\r\n0\r\n\r\n",
    "negative size": b"-5\r\nhello\r\n0\r\n\r\n",
    "no size": b"\r\nhello\r\n0\r\n\r\n",
    "size too small": b"3\r\nhello\r\n0\r\n\r\n",
    "LF in an extension": b"5;a\nb\r\nhello\r\n0\r\n\r\n",
}
BAD_LINES = {
    "no version": b"POST /alpha/v1/chat/completions\r\n",
    "unknown version": b"POST /alpha/v1/chat/completions HTTP/3.7\r\n",
    "not HTTP at all": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab() -> AsyncIterator[Lab]:
    async with Lab({"version": 1, "providers": {"alpha": {}}}) as lab:
        yield lab
        assert SECRET.decode() not in lab.proxy.log()


async def refused(lab: Lab, data: bytes, *, anthropic: bool = False) -> None:
    """Sends bytes that must be refused, a secret and a second request behind them."""
    async with lab.wire() as wire:
        await wire.send(data + SMUGGLED)
        check(await wire.answer(within=5), anthropic=anthropic)
        assert await wire.closed()
    assert not lab["alpha"].seen


def check(answer: Answer, *, anthropic: bool) -> None:
    """Checks the answer to a malformed request."""
    assert (answer.status, answer.reason, answer.complete) == (400, "bad_request", True), answer
    assert SECRET not in answer.head + answer.body
    assert answer.header("connection") == "close"
    document = answer.json()
    assert document.get("type") == ("error" if anthropic else None)
    assert document["error"]["type"] == "invalid_request_error"
    assert document["error"]["message"]


def request(path: bytes, fields: bytes) -> bytes:
    """Returns a head with a secret and these fields."""
    return b"POST " + path + b" HTTP/1.1\r\nhost: x\r\nauthorization: Bearer " + SECRET + b"\r\n" + fields + b"\r\n"


@pytest.mark.parametrize("fields", BAD_HEADS.values(), ids=BAD_HEADS)
async def test_ambiguous_framing_is_refused_and_nothing_behind_it_is_read(lab: Lab, fields: bytes) -> None:
    await refused(lab, request(OPENAI, fields) + b"hello")


@pytest.mark.parametrize("fields", [BAD_HEADS["two lengths"], BAD_HEADS["unknown coding"], BAD_HEADS["no colon"]])
async def test_ambiguous_framing_on_an_anthropic_path_is_told_in_that_dialect(lab: Lab, fields: bytes) -> None:
    await refused(lab, request(ANTHROPIC, fields) + b"hello", anthropic=True)


@pytest.mark.parametrize("chunks", BAD_CHUNKS.values(), ids=BAD_CHUNKS)
async def test_broken_chunks_are_refused(lab: Lab, chunks: bytes) -> None:
    await refused(lab, request(OPENAI, CHUNKED) + chunks)


@pytest.mark.parametrize("path", [OPENAI, ANTHROPIC], ids=["openai", "anthropic"])
async def test_broken_chunks_after_the_head_are_refused(lab: Lab, path: bytes) -> None:
    async with lab.wire() as wire:
        await wire.send(request(path, CHUNKED) + b"2\r\n{}\r\n")
        await lab.proxy.until(lambda status: status["in_flight"] == 1)
        await wire.send(b"-5\r\nhello\r\n" + SMUGGLED)
        check(await wire.answer(within=5), anthropic=path == ANTHROPIC)
        assert await wire.closed()
    assert not lab["alpha"].seen


@pytest.mark.parametrize("line", BAD_LINES.values(), ids=BAD_LINES)
async def test_bad_request_line_is_refused(lab: Lab, line: bytes) -> None:
    await refused(lab, line + b"host: x\r\nauthorization: Bearer " + SECRET + b"\r\n\r\n")


@pytest.mark.parametrize("line", [b"GET http://elsewhere.test/v1/models HTTP/1.1", b"OPTIONS * HTTP/1.1"])
async def test_target_that_is_no_path_is_refused_with_the_cure(lab: Lab, line: bytes) -> None:
    async with lab.wire() as wire:
        await wire.send(line + b"\r\nhost: x\r\n\r\n")
        answer = await wire.answer()
    assert (answer.status, answer.reason) == (400, "bad_request")
    assert "path" in answer.json()["error"]["message"]
    assert not lab["alpha"].seen


async def test_connect_is_refused_and_what_follows_it_is_not_read(lab: Lab) -> None:
    await refused(lab, b"CONNECT elsewhere.test:443 HTTP/1.1\r\nhost: x\r\n\r\n")


async def test_chunked_coding_in_http_1_0_is_refused(lab: Lab) -> None:
    await refused(lab, b"POST /alpha/v1/x HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n")


async def test_secret_in_a_malformed_line_is_neither_told_nor_logged(lab: Lab) -> None:
    await refused(lab, b"POST /alpha/v1/x HTTP/1.1\r\nauthorization Bearer " + SECRET + b"\r\n\r\n")
    await refused(lab, b"POST /alpha/v1/x?key=" + SECRET + b" HTTP/1.1 " + SECRET + b"\r\n\r\n")
    assert SECRET.decode() not in lab.proxy.log()


@pytest.mark.parametrize("size", [9_000, 20_000, 60_000])
async def test_large_header_value_passes(lab: Lab, size: int) -> None:
    answer = await lab.call(OPENAI, {}, headers=[("x-large", "v" * size)])
    assert answer.status == 200
    assert lab["alpha"].only.header("x-large") == "v" * size


async def test_150_header_lines_and_a_long_query_pass(lab: Lab) -> None:
    lines = [(f"x-{number}", str(number)) for number in range(150)]
    answer = await lab.call(OPENAI + b"?q=" + b"z" * 12_000, {}, headers=lines)
    assert answer.status == 200
    assert {f"x-{number}" for number in range(150)} <= set(lab["alpha"].only.names)


async def test_too_large_a_header_is_refused_without_echo(lab: Lab) -> None:
    async with lab.wire() as wire:
        await wire.send(request_bytes("GET", "/alpha/v1/x", headers=[("x-large", SECRET * 9_000)]))
        answer = await wire.answer(within=5)
        assert (answer.status, answer.reason) == (431, "bad_request")
        assert SECRET not in answer.head + answer.body
        assert await wire.closed()


@pytest.mark.parametrize("body", [b"{not json", b"", b"[1, 2]", b'"text"', b"\xff\xfe\x00", b'{"model": 7}'])
async def test_body_that_is_no_json_object_passes_as_it_is(lab: Lab, body: bytes) -> None:
    lab["alpha"].script = answers(400, {"error": {"message": "what is this?"}})
    answer = await lab.call(OPENAI, body, headers=[("content-type", "application/json")])
    assert lab["alpha"].only.body == body
    assert (answer.status, answer.reason, answer.json()["error"]["message"]) == (400, None, "what is this?")


async def test_body_that_ends_early_reaches_no_provider(lab: Lab) -> None:
    async with lab.wire() as wire:
        await wire.send(request(OPENAI, b"content-type: application/json\r\ncontent-length: 50\r\n") + b'{"model":')
        wire.leave(reset=False)
    assert (await lab.call(OPENAI, {})).status == 200
    assert len(lab["alpha"].seen) == 1


async def test_good_request_after_an_empty_line_is_understood(lab: Lab) -> None:
    async with lab.wire() as wire:
        await wire.send(b"\r\n" + request_bytes("POST", OPENAI, body={}))
        assert (await wire.answer()).status == 200


async def test_providers_garbled_answer_is_not_passed_on(lab: Lab) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 9\r\n\r\nabcdefghi")
        exchange.close()

    lab["alpha"].script = script
    answer = await lab.call("/alpha/v1/files", method="GET")
    assert (answer.status, answer.reason) == (502, "upstream_unreachable")
    assert b"abc" not in answer.body
