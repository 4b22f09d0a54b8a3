"""Request bodies: the limit, `Expect: 100-continue`, uploads that pass as a stream."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import random

import pytest

from tests.integration.caller import request_bytes
from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT, answers, in_turn, says
from tests.integration.scripted import Exchange

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

LIMIT = 64 * 1024
POLICY = {
    "version": 1,
    "providers": {"alpha": {}, "replay": {}},
    "routes": [
        route("small", "alpha", match={"path": "/small/*"}, body={"max": "64KiB", "replay": "8KiB"}),
        route(
            "replay",
            "replay",
            match={"path": "/replay/*"},
            body={"replay": "8KiB"},
            retry={"attempts": 3, "base": "10ms"},
            repeatable=True,
        ),
    ],
}
CHAT_PATH = "/small/v1/chat/completions"
MESSAGES_PATH = "/small/v1/messages"
EXPECT = ("expect", "100-continue")
MULTIPART = ("content-type", "multipart/form-data; boundary=zzz")


def chat_of(size: int) -> bytes:
    """Returns a chat of exactly this many bytes."""
    frame = b'{"model": "m", "messages": [{"role": "user", "content": ""}]}'
    return frame.replace(b'""', b'"' + b"x" * (size - len(frame)) + b'"')


def chunked(body: bytes, size: int) -> bytes:
    """Returns the body in chunks of this size."""
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


async def test_body_at_the_limit_passes(lab: Lab) -> None:
    body = chat_of(LIMIT)
    assert (await lab.call(CHAT_PATH, body, headers=[("content-type", "application/json")])).status == 200
    assert lab["alpha"].only.body == body


@pytest.mark.parametrize("path", [CHAT_PATH, MESSAGES_PATH], ids=["openai", "anthropic"])
@pytest.mark.parametrize("in_chunks", [False, True], ids=["length", "chunked"])
async def test_body_over_the_limit_gets_413_in_the_callers_dialect(lab: Lab, path: str, in_chunks: bool) -> None:
    body = chat_of(LIMIT + 1)
    headers = [("content-type", "application/json")]
    if in_chunks:
        answer = await lab.call(path, chunked(body, 8192), headers=[*headers, ("transfer-encoding", "chunked")])
    else:
        answer = await lab.call(path, body, headers=headers)
    assert (answer.status, answer.reason) == (413, "body_too_large")
    kind = answer.json()["error"]["type"]
    assert kind == ("request_too_large" if path == MESSAGES_PATH else "invalid_request_error")
    assert not lab["alpha"].seen


async def test_upload_over_the_limit_gets_413(lab: Lab) -> None:
    answer = await lab.call("/small/v1/audio", b"a" * (LIMIT + 1), headers=[MULTIPART])
    assert (answer.status, answer.reason) == (413, "body_too_large")


async def test_chunked_upload_over_the_limit_gets_413(lab: Lab) -> None:
    headers = [MULTIPART, ("transfer-encoding", "chunked")]
    answer = await lab.call("/small/v1/audio", chunked(b"a" * (LIMIT + 1), 8192), headers=headers)
    assert (answer.status, answer.reason) == (413, "body_too_large")


async def test_continue_is_sent_at_once_when_the_body_is_wanted(lab: Lab) -> None:
    body = chat_of(1000)
    head, _, _ = request_bytes("POST", CHAT_PATH, body=body, headers=[EXPECT]).partition(b"\r\n\r\n")
    async with lab.wire() as wire:
        await wire.send(head + b"\r\n\r\n")
        assert await wire.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await wire.send(body)
        answer = await wire.answer()
    assert (answer.status, answer.interim) == (200, [])
    assert lab["alpha"].only.body == body
    assert "expect" not in lab["alpha"].only.names


async def test_continue_is_sent_for_an_upload(lab: Lab) -> None:
    head = request_bytes("POST", "/alpha/v1/audio", headers=[EXPECT, MULTIPART, ("content-length", "5")])
    async with lab.wire() as wire:
        await wire.send(head)
        assert await wire.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await wire.send(b"hello")
        assert (await wire.answer()).status == 200
    assert lab["alpha"].only.body == b"hello"


@pytest.mark.parametrize(
    ("path", "length", "status"),
    [(CHAT_PATH, LIMIT + 1, 413), ("/small/v1/audio", LIMIT + 1, 413), ("/nowhere", 10, 404)],
    ids=["buffered", "streamed", "no route"],
)
async def test_refusal_asks_for_no_body(lab: Lab, path: str, length: int, status: int) -> None:
    head = request_bytes("POST", path, headers=[EXPECT, ("content-length", str(length))])
    async with lab.wire() as wire:
        await wire.send(head)
        answer = await wire.answer(within=5)
    assert (answer.status, answer.interim) == (status, [])
    assert not lab["alpha"].seen


async def test_413_ends_the_connection_only_after_it_could_be_read(lab: Lab) -> None:
    async with lab.wire() as wire:
        await wire.send(request_bytes("POST", CHAT_PATH, headers=[("content-length", str(8 << 20))]))
        for _ in range(64):
            try:
                await wire.send(b"x" * 65536)
            except ConnectionError:
                break
        answer = await wire.answer(within=5)
    assert (answer.status, answer.complete) == (413, True)


def form() -> bytes:
    """Returns a large multipart body with every byte value and text that looks like a boundary."""
    noise = random.Random(7).randbytes(3 << 20)
    file = bytes(range(256)) + b"\r\n--zz\r\n--zzzz--\r\n\x00" + noise
    parts = [
        b'--zzz\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\n\r\n' + file + b"\r\n",
        b'--zzz\r\ncontent-disposition: form-data; name="model"\r\n\r\nwhisper\r\n--zzz--\r\n',
    ]
    return b"".join(parts)


@pytest.mark.parametrize("in_chunks", [False, True], ids=["length", "chunked"])
async def test_multipart_upload_passes_with_the_same_bytes(lab: Lab, in_chunks: bool) -> None:
    body = form()
    if in_chunks:
        headers = [MULTIPART, ("transfer-encoding", "chunked")]
        answer = await lab.call("/alpha/v1/audio/transcriptions", chunked(body, 100_000), headers=headers)
    else:
        answer = await lab.call("/alpha/v1/audio/transcriptions", body, headers=[MULTIPART])
    assert answer.status == 200
    seen = lab["alpha"].only
    assert hashlib.sha256(seen.body).digest() == hashlib.sha256(body).digest()
    assert seen.header("content-type") == MULTIPART[1]
    assert seen.names.count("content-length") == (not in_chunks)


async def test_upload_is_passed_on_while_it_still_comes(lab: Lab) -> None:
    provider = lab["alpha"]
    provider.reads_bodies = False
    first = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        assert await exchange.ears.readexactly(5) == b"begin"
        first.set()
        await exchange.ears.readexactly(3)
        await exchange.reply(200, b"ok")

    provider.script = script
    async with lab.wire() as wire:
        await wire.send(request_bytes("POST", "/alpha/v1/audio", headers=[MULTIPART, ("content-length", "8")]))
        await wire.send(b"begin")
        async with asyncio.timeout(5):
            await first.wait()
        await wire.send(b"end")
        assert (await wire.answer()).body == b"ok"


async def test_uploads_in_single_bytes_arrive_whole(lab: Lab) -> None:
    body = bytes(range(200))
    async with lab.wire() as wire:
        await wire.send(request_bytes("POST", "/alpha/v1/audio", headers=[MULTIPART, ("content-length", "200")]))
        for at in range(len(body)):
            await wire.send(body[at : at + 1])
            await asyncio.sleep(0)
        assert (await wire.answer()).status == 200
    assert lab["alpha"].only.body == body


async def test_packed_request_body_passes_as_it_is(lab: Lab) -> None:
    body = gzip.compress(chat_of(5000))
    headers = [("content-type", "application/json"), ("content-encoding", "gzip")]
    assert (await lab.call("/alpha/v1/chat/completions", body, headers=headers)).status == 200
    assert lab["alpha"].only.body == body
    assert lab["alpha"].only.header("content-encoding") == "gzip"


async def test_retry_sends_the_same_bytes(lab: Lab) -> None:
    lab["replay"].script = in_turn(answers(503), answers(503), says("at last"))
    body = chat_of(8 * 1024)
    headers = [("content-type", "application/json"), ("transfer-encoding", "chunked")]
    answer = await lab.call("/replay/v1/chat/completions", chunked(body, 1000), headers=headers)
    assert (answer.status, answer.attempts) == (200, 3)
    assert [request.body for request in lab["replay"].seen] == [body] * 3


async def test_body_over_the_replay_limit_is_not_sent_again(lab: Lab) -> None:
    lab["replay"].script = in_turn(answers(503), says("too late"))
    body = chat_of(8 * 1024 + 1)
    answer = await lab.call("/replay/v1/chat/completions", body, headers=[("content-type", "application/json")])
    assert (answer.status, answer.attempts) == (503, 1)
    assert answer.json()["error"]["message"] == "this is 503"


async def test_upload_is_not_sent_again(lab: Lab) -> None:
    lab["replay"].script = in_turn(answers(503), says("too late"))
    answer = await lab.call("/replay/v1/audio", b"abc", headers=[MULTIPART])
    assert (answer.status, answer.attempts, len(lab["replay"].seen)) == (503, 1, 1)


async def test_body_above_a_mebibyte_passes_by_default(lab: Lab) -> None:
    body = chat_of(6 << 20)
    answer = await lab.call("/alpha/v1/chat/completions", body, headers=[("content-type", "application/json")])
    assert answer.status == 200
    assert lab["alpha"].only.body == body


async def test_nothing_of_the_models_request_changes_without_need(lab: Lab) -> None:
    body = b'{"z":1.0,"model" : "m","big":12345678901234567890,"a":[],"text":"\\u00e9\\/ caf\xc3\xa9"}  '
    answer = await lab.call("/alpha/v1/chat/completions", body, headers=[("content-type", "application/json")])
    assert answer.status == 200
    assert lab["alpha"].only.body == body
    assert (await lab.call("/alpha/v1/chat/completions", CHAT)).status == 200
