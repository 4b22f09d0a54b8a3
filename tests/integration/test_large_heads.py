"""Heads beyond all measure: told by their own statuses, in the caller's dialect, to callers that still send."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from proxy.fields import MAX_FIELD, MAX_FIELDS, MAX_HEAD
from tests.integration.caller import Headers, request_bytes
from tests.integration.harness import Lab, route
from tests.integration.messages import answers
from tests.integration.scripted import Exchange

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

POLICY = {
    "version": 1,
    "providers": {"alpha": {"breaker": "off"}},
    "routes": [route("alpha", "alpha", retry={"attempts": 1})],
}
WORD = b"sk-7f3a"
"""Stands in every head here, and in no answer and no log."""
SECRET = b"authorization: Bearer " + WORD + b"\r\n"
PATHS = {"openai": b"/v1/chat/completions", "anthropic": b"/v1/messages"}


def head(path: bytes, lines: bytes, *, end: bytes = b"\r\n") -> bytes:
    """Returns a request's head, or for another `end` its beginning."""
    return b"POST " + path + b" HTTP/1.1\r\nhost: x\r\n" + SECRET + lines + end


LONG = WORD * (MAX_FIELD // len(WORD) + 1)
BODY = b"content-length: 40000000\r\n"
TOO_LARGE: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "target": (414, lambda path: head(path + b"?q=" + LONG, b"")),
    "target without an end": (414, lambda path: b"POST " + path + b"?q=" + LONG * 5),
    "value": (431, lambda path: head(path, b"x-long: " + LONG + b"\r\n" + BODY)),
    "value without an end": (431, lambda path: head(path, b"x-long: " + LONG * 5, end=b"")),
    "name": (431, lambda path: head(path, LONG.replace(b"-", b"x") + b": 1\r\n")),
    "names": (431, lambda path: head(path, b"".join(b"x-%d%b: 1\r\n" % (n, b"n" * 400) for n in range(200)))),
    "lines": (431, lambda path: head(path, b"x: y\r\n" * MAX_FIELDS)),
    "lines without an end": (431, lambda path: head(path, b"x: " + LONG[:-9] + b"\r\n" + LONG[:999] * 400, end=b"")),
}


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("more", [0, 4_000_000], ids=["sends no more", "sends on"])
@pytest.mark.parametrize("name", TOO_LARGE)
async def test_a_caller_is_told_what_is_too_large_though_it_still_sends(
    lab: Lab, name: str, more: int, dialect: str
) -> None:
    status, of = TOO_LARGE[name]
    async with lab.wire() as wire:
        await wire.send(of(PATHS[dialect]))
        for _ in range(more >> 16):
            await wire.send(WORD * 9362)
            await asyncio.sleep(0)
        answer = await wire.answer()
        assert (answer.status, answer.reason, answer.complete) == (status, "bad_request", True)
        assert answer.header("connection") == "close"
        assert await wire.closed()
    document = answer.json()
    # What comes in parts may begin anywhere: nobody knows whose words to use. So much seldom comes as one.
    assert document.get("type") in ({None, "error"} if dialect == "anthropic" else {None})
    assert document["error"]["type"] == "invalid_request_error"
    assert "KiB" in document["error"]["message"]
    assert WORD not in answer.head + answer.body
    assert WORD.decode() not in lab.proxy.log()
    assert not lab["alpha"].seen


async def test_what_comes_behind_a_head_that_is_too_large_is_never_a_request(lab: Lab) -> None:
    async with lab.wire() as wire:
        await wire.send(head(b"/v1/files", b"x-long: " + LONG + b"\r\n") + request_bytes("GET", "/v1/models") * 3)
        assert (await wire.answer()).status == 431
        await wire.send(request_bytes("GET", "/v1/models"))
        assert await wire.closed()
    assert not lab["alpha"].seen


FILES = b"/alpha/v1/files"
AT_THE_LIMIT: dict[str, tuple[bytes, Headers]] = {
    "target": (FILES + b"?q=" + b"t" * (MAX_FIELD - len(FILES) - 3), []),
    "value": (FILES, [("x-long", b"v" * MAX_FIELD)]),
    "lines": (FILES, [(f"x-{number}", "1") for number in range(MAX_FIELDS - 2)]),
    "all": (FILES, [(f"x-{number}", b"v" * 60_000) for number in range(MAX_HEAD // 60_000)]),
}


@pytest.mark.parametrize("name", AT_THE_LIMIT)
async def test_what_is_as_large_as_it_may_be_passes_both_ways(lab: Lab, name: str) -> None:
    target, fields = AT_THE_LIMIT[name]
    lab["alpha"].script = answers(200, {"ok": True}, headers=[*fields][: MAX_FIELDS - 3])
    answer = await lab.call(target, method="GET", headers=fields)
    assert answer.status == 200
    seen = lab["alpha"].only
    assert seen.target == target.removeprefix(b"/alpha")
    for number, (key, value) in enumerate(fields):
        wanted = value if isinstance(value, bytes) else value.encode()
        assert seen.all(str(key)) == [wanted]
        assert number >= MAX_FIELDS - 3 or answer.all(str(key)) == [wanted.decode()]


LARGE_ANSWERS = {
    "phrase": b"HTTP/1.1 200 " + WORD * (MAX_HEAD // 6) + b"\r\ncontent-length: 2\r\n\r\nok",
    "value": b"HTTP/1.1 200 OK\r\nx-long: " + LONG + b"\r\ncontent-length: 2\r\n\r\nok",
    "name": b"HTTP/1.1 200 OK\r\n" + LONG + b": 1\r\ncontent-length: 2\r\n\r\nok",
    "lines": b"HTTP/1.1 200 OK\r\n" + b"x-say: " + WORD + b"\r\n" + b"x: y\r\n" * MAX_FIELDS + b"\r\n",
    "all": b"HTTP/1.1 200 OK\r\n" + (b"x-say: " + WORD * 900 + b"\r\n") * 50 + b"content-length: 2\r\n\r\nok",
    "interim ones": (b"HTTP/1.1 103 Hints\r\nlink: </" + WORD * 90 + b">\r\n\r\n") * 1200
    + b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
}


@pytest.mark.parametrize("name", LARGE_ANSWERS)
@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_with_too_large_a_head_is_a_bad_one_and_not_shown(lab: Lab, name: str, stream: bool) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.send(LARGE_ANSWERS[name])

    lab["alpha"].script = script
    answer = await lab.chat("alpha", stream=stream)
    assert (answer.status, answer.reason) == (502, "upstream_unreachable")
    assert WORD not in answer.head + answer.body
    assert WORD.decode() not in lab.proxy.log()
    lab["alpha"].script = answers(200, {"ok": True})
    assert (await lab.chat("alpha")).status == 200
    assert lab["alpha"].seen[0].connection != lab["alpha"].seen[1].connection
