"""Failing answers too large or too slow to keep, and breaks of answers whose length was promised."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from proxy.exchange import Credential
from proxy.outcome import OutcomeKind
from tests.fakes import CHAT, Ask, FakeUpload
from tests.upstream.peer import PeerWire, Script, answering
from tests.upstream.rig import EVENTS_HEAD, STREAM, WORD, chunk, rigged, with_length

LARGE = b"x" * 200_000
HELD: dict[str, Any] = {"replaceable": True}
OURS = Credential(key_id="k1", header=(b"authorization", b"Bearer sk-ours"))


def large(status: int) -> Script:
    return answering(with_length(b"HTTP/1.1 %d Oh\r\ncontent-type: text/html\r\nx-up: 1\r\n" % status, LARGE))


@pytest.mark.parametrize("status", [500, 503, 429])
async def test_a_large_failing_answer_to_an_upload_is_passed_on_whole_because_nothing_can_replace_it(
    status: int,
) -> None:
    async with rigged(large(status)) as rig:
        upload = FakeUpload([b"0123456789"], length=10)
        outcome, _ = await rig.call(Ask(upload=upload), payload=None, **HELD)
        assert (outcome.status, outcome.committed) == (status, True)
        assert (rig.reply.status, rig.reply.body, rig.reply.end) == (status, LARGE, "finished")
        assert (b"content-type", b"text/html") in rig.reply.headers


@pytest.mark.parametrize("status", [401, 402, 403])
async def test_a_large_rejection_of_the_caller_s_own_credential_is_passed_on_whole(status: int) -> None:
    async with rigged(large(status)) as rig:
        outcome, _ = await rig.call(**HELD)
        assert (outcome.kind, outcome.committed) == (OutcomeKind.CREDENTIAL_REJECTED, True)
        assert (rig.reply.status, rig.reply.body, rig.reply.end) == (status, LARGE, "finished")


async def test_a_slow_rejection_of_the_caller_s_own_credential_is_passed_on_whole() -> None:
    body = b'{"error":{"message":"your key is bad"}}'
    slow = asyncio.Event()

    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.send(with_length(b"HTTP/1.1 401 No\r\ncontent-type: application/json\r\n", body)[:-30])
        await slow.wait()
        await wire.send(body[-30:])
        await wire.gone()

    async with rigged(script) as rig:
        calling = rig.start(rig.exchange(CHAT, **HELD))
        async with asyncio.timeout(10.0):
            while not rig.reply.started:
                await asyncio.sleep(0.01)
        slow.set()
        outcome = await calling
        assert (outcome.status, outcome.committed, rig.reply.body) == (401, True, body)


@pytest.mark.parametrize(("status", "changes"), [(401, {"credential": OURS}), (500, {"credential": OURS}), (500, {})])
async def test_a_large_failing_answer_that_another_may_replace_is_kept_without_its_body(
    status: int, changes: dict[str, Any]
) -> None:
    async with rigged(large(status)) as rig:
        outcome, _ = await rig.call(**HELD, **changes)
        assert (outcome.status, outcome.committed, rig.reply.started) == (status, False, False)
        assert outcome.answer is not None
        assert (outcome.answer.status, outcome.answer.body) == (status, b"")
        assert outcome.answer.lines == b"x-up: 1\r\n"


SPENT = b'{"error":{"message":"pay first","type":"insufficient_quota","code":"insufficient_quota"}}'
LATER = b'{"error":{"code":429,"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"17s"}]}}'
PACKED: dict[str, tuple[bytes, Callable[[bytes], bytes]]] = {
    "gzip": (b"content-encoding: gzip", gzip.compress),
    "deflate": (b"Content-Encoding: Deflate", zlib.compress),
    "not at all": (b"content-encoding: identity", bytes),
}


@pytest.mark.parametrize("coding", PACKED)
async def test_what_a_packed_error_says_is_understood_and_passes_on_as_it_came(coding: str) -> None:
    line, pack = PACKED[coding]
    head = b"HTTP/1.1 429 No\r\ncontent-type: application/json\r\n" + line + b"\r\n"
    for body, fault, after in ((pack(SPENT), True, None), (pack(LATER), False, 17.0)):
        async with rigged(answering(with_length(head, body))) as rig:
            outcome, _ = await rig.call(**HELD, credential=OURS)
            assert (outcome.kind, outcome.key_fault) == (OutcomeKind.RATE_LIMITED, fault)
            assert outcome.retry_after == after
            assert outcome.answer is not None
            assert outcome.answer.body == body
            assert line + b"\r\n" in outcome.answer.lines


@pytest.mark.parametrize("body", [gzip.compress(b" " * (1 << 24) + SPENT), b"\x1f\x8b\x08 broken", b"", SPENT])
async def test_a_packed_error_that_cannot_be_read_is_an_error_all_the_same(body: bytes) -> None:
    head = b"HTTP/1.1 429 No\r\ncontent-encoding: gzip\r\n"
    async with rigged(answering(with_length(head, body))) as rig:
        outcome, _ = await rig.call(**HELD, credential=OURS)
        assert (outcome.kind, outcome.key_fault, outcome.retry_after) == (OutcomeKind.RATE_LIMITED, False, None)
        assert outcome.answer is not None
        assert outcome.answer.body == body


@pytest.mark.parametrize("reset", [False, True], ids=["fin", "reset"])
async def test_no_event_of_our_own_is_put_into_a_stream_whose_length_was_promised(reset: bool) -> None:
    """An event that fills the promised length up would make a cut answer whole."""

    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.body(28)
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n"
        await wire.send(head % (len(WORD) + 5000) + WORD)
        await wire.seen()
        if reset:
            wire.reset()

    async with rigged(script) as rig:
        outcome, _ = await rig.call(STREAM)
        assert (outcome.kind, outcome.committed) == (OutcomeKind.STREAM_BROKEN, True)
        assert (rig.reply.body, rig.reply.length, rig.reply.end) == (WORD, len(WORD) + 5000, "aborted")


async def test_a_stream_without_a_length_tells_of_its_break() -> None:
    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.body(28)
        await wire.send(EVENTS_HEAD + chunk(WORD))
        await wire.seen()

    async with rigged(script) as rig:
        await rig.call(STREAM)
        assert b'"upstream_unreachable"' in rig.reply.body
