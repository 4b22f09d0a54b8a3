"""One attempt's phases against a scripted provider: connecting, sending, limits, and what becomes of the connection."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import cast

import pytest

from proxy.outcome import OutcomeKind
from tests.fakes import CHAT, LIMITS, Ask, FakeUpload, settle
from tests.upstream.peer import OK, PeerWire, answering, until
from tests.upstream.rig import EVENTS_HEAD, JSON_HEAD, ROLE, STREAM, chunk, rigged, with_length

GET = Ask(method="GET", target="/v1/models", headers=(), body=b"")
SILENT_LIMITS = replace(LIMITS, answer=20.0, first_byte=7.0)


async def silent(wire: PeerWire) -> None:
    """Takes the request and says nothing."""
    await wire.gone()


async def test_a_good_connection_goes_back_and_serves_the_next_attempt() -> None:
    async with rigged(answering(OK, OK)) as rig:
        first, attempt = await rig.call()
        assert (first.kind, first.committed, attempt.reused, rig.pool.idle) == (OutcomeKind.OK, True, False, 1)
        second, attempt = await rig.call()
        assert (second.kind, attempt.reused, rig.pool.idle) == (OutcomeKind.OK, True, 1)
        assert (rig.peer.connections, rig.pool.dials, rig.pool.reuses) == (1, 1, 1)
        assert attempt.address == ("127.0.0.1", rig.peer.port)
        assert len(rig.progress.wire) == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\n\r\nok",
        OK + OK,
    ],
    ids=["close", "1.0", "without a length", "two answers at once"],
)
async def test_a_connection_that_is_over_or_dirty_serves_nobody_else(answer: bytes) -> None:
    async with rigged(answering(answer, hold=False)) as rig:
        for number in range(2):
            outcome, attempt = await rig.call()
            assert (outcome.kind, rig.reply.body, attempt.reused) == (OutcomeKind.OK, b"ok", False)
            assert rig.peer.connections == number + 1
        assert not any(kept.usable for kept in rig.pool._idle)


async def test_an_answer_that_came_while_the_connection_was_idle_is_never_the_next_callers() -> None:
    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.body(28)
        await wire.send(OK)
        await spoken.wait()
        await wire.send(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 5\r\n\r\nstale")
        await wire.gone()

    spoken = asyncio.Event()
    async with rigged(script) as rig:
        await rig.call()
        kept = rig.pool._idle[0]
        spoken.set()
        await until(lambda: not kept.usable)
        outcome, attempt = await rig.call()
        assert (outcome.status, rig.reply.body, attempt.reused) == (200, b"ok", False)


async def test_a_timeout_answer_on_a_reused_connection_is_taken_for_a_stale_connection() -> None:
    stale = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n"
    async with rigged(answering(OK, stale)) as rig:
        await rig.call()
        outcome, _ = await rig.call()
        assert (outcome.kind, outcome.maybe_executed, rig.reply.started) == (OutcomeKind.DISCONNECTED, False, False)
    async with rigged(answering(stale)) as rig:
        outcome, _ = await rig.call()
        assert (outcome.kind, outcome.status) == (OutcomeKind.UPSTREAM_ERROR, 408)


async def test_a_deadline_that_has_passed_dials_nobody() -> None:
    async with rigged(answering(OK)) as rig:
        outcome, _ = await rig.call(deadline_at=rig.clock.now())
        assert (outcome.kind, outcome.maybe_executed) == (OutcomeKind.TOTAL_TIMEOUT, False)
        assert rig.peer.connections == 0


HEADS = {
    "get": (GET, b""),
    "get with a body": (Ask(method="GET", headers=(("content-length", "2"),), body=b"{}"), b"content-length: 2"),
    "post": (CHAT, b"content-length: 28"),
    "empty post": (Ask(headers=(("content-length", "0"),), body=b""), b"content-length: 0"),
    "post without a length": (Ask(headers=(), body=b""), b""),
}


@pytest.mark.parametrize("name", HEADS)
async def test_a_request_gets_the_framing_that_it_needs(name: str) -> None:
    ask, framing = HEADS[name]
    heads: list[bytes] = []

    async def script(wire: PeerWire) -> None:
        heads.append(await wire.request())
        await wire.send(OK)

    async with rigged(script) as rig:
        _, attempt = await rig.call(ask)
        assert heads[0].startswith(f"{ask.method} {ask.target} HTTP/1.1\r\nhost: provider.test\r\n".encode())
        found = [line for line in heads[0].split(b"\r\n") if b"length" in line or b"chunked" in line]
        assert found == ([framing] if framing else [])
        assert attempt.sent_bytes == len(heads[0]) + len(ask.body or b"")


@pytest.mark.parametrize("length", [10, None])
async def test_a_body_that_still_arrives_is_passed_on(length: int | None) -> None:
    seen: list[bytes] = []
    size = 10 if length else len(b"5\r\nhello\r\n5\r\nworld\r\n0\r\n\r\n")

    async def script(wire: PeerWire) -> None:
        seen.append(await wire.request())
        seen.append(await wire.body(size))
        await wire.send(OK)
        await wire.gone()

    async with rigged(script) as rig:
        exchange = rig.exchange(Ask(upload=FakeUpload([b"hello", b"world"], length=length)), payload=None)
        outcome = await rig.transport(exchange)
        assert (outcome.kind, exchange.request.upload_taken, rig.pool.idle) == (OutcomeKind.OK, True, 1)
        assert (b"content-length: 10" in seen[0], b"chunked" in seen[0]) == (length == 10, length is None)
        assert seen[1] == (b"helloworld" if length else b"5\r\nhello\r\n5\r\nworld\r\n0\r\n\r\n")


async def test_an_early_answer_to_an_upload_is_relayed_and_ends_the_connection() -> None:
    gate = asyncio.Event()
    body = b'{"error":{"message":"too large"}}'
    async with rigged(answering(with_length(b"HTTP/1.1 413 Content Too Large\r\n", body))) as rig:
        upload = FakeUpload([b"never"], length=99_999_999, gate=gate)
        outcome, _ = await rig.call(Ask(upload=upload), payload=None)
        assert (outcome.kind, rig.reply.status, rig.reply.body) == (OutcomeKind.CALLER_ERROR, 413, body)
        assert rig.pool.idle == 0


async def test_a_good_answer_to_an_upload_that_still_runs_ends_the_connection_too() -> None:
    async with rigged(answering(OK)) as rig:
        upload = FakeUpload([b"never"], length=99_999_999, gate=asyncio.Event())
        outcome, _ = await rig.call(Ask(upload=upload), payload=None)
        assert (outcome.kind, rig.reply.body, rig.pool.idle) == (OutcomeKind.OK, b"ok", 0)


async def test_a_body_of_the_caller_s_that_breaks_off_is_the_caller_s_error() -> None:
    async with rigged(silent) as rig:
        upload = FakeUpload([b"part"], length=100, broken=True)
        outcome, _ = await rig.call(Ask(upload=upload), payload=None)
        assert (outcome.kind, rig.reply.started, rig.pool.idle) == (OutcomeKind.CALLER_ERROR, False, 0)
        assert "body" in outcome.detail


async def test_interim_answers_are_not_the_answer() -> None:
    interim = b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
    async with rigged(answering(interim + OK)) as rig:
        outcome, _ = await rig.call()
        assert (outcome.status, rig.reply.body, rig.pool.idle) == (200, b"ok", 1)


UNCLEAR = {
    "coded chunks": b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "two framings": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
}


@pytest.mark.parametrize("name", UNCLEAR)
async def test_an_answer_whose_framing_is_not_clear_is_none(name: str) -> None:
    async with rigged(answering(UNCLEAR[name])) as rig:
        outcome, _ = await rig.call()
        assert (outcome.kind, outcome.maybe_executed) == (OutcomeKind.BAD_ANSWER, True)
        assert (rig.reply.started, rig.pool.idle) == (False, 0)


@pytest.mark.parametrize(
    "lines",
    [
        b"transfer-encoding: chunked\r\ntransfer-encoding: gzip\r\n",
        b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
    ],
)
async def test_two_lines_of_transfer_coding_are_not_clear(lines: bytes) -> None:
    body = b"2\r\nok\r\n0\r\n\r\n"
    async with rigged(answering(b"HTTP/1.1 200 OK\r\n" + lines + b"\r\n" + body, hold=False)) as rig:
        outcome, _ = await rig.call()
        assert outcome.kind is OutcomeKind.BAD_ANSWER


@pytest.mark.parametrize(
    ("ask", "seconds", "kind"),
    [(STREAM, 7.0, OutcomeKind.FIRST_BYTE_TIMEOUT), (CHAT, 20.0, OutcomeKind.ANSWER_TIMEOUT)],
)
async def test_a_provider_that_does_not_answer_is_given_up_at_the_limit(
    ask: Ask, seconds: float, kind: OutcomeKind
) -> None:
    async with rigged(silent) as rig:
        calling = rig.start(rig.exchange(ask, limits=SILENT_LIMITS))
        await until(lambda: rig.clock.next_due is not None)
        rig.clock.advance(seconds - 0.1)
        await settle()
        assert not calling.done()
        rig.clock.advance(0.1)
        outcome = await calling
        assert (outcome.kind, outcome.maybe_executed, rig.pool.idle) == (kind, True, 0)


async def test_the_exchange_s_deadline_binds_before_the_head() -> None:
    async with rigged(silent) as rig:
        calling = rig.start(rig.exchange(STREAM, limits=SILENT_LIMITS, deadline_at=rig.clock.now() + 3.0))
        await until(lambda: rig.clock.next_due is not None)
        rig.clock.advance(3.0)
        assert (await calling).kind is OutcomeKind.TOTAL_TIMEOUT


async def test_a_head_without_content_does_not_stop_the_wait_for_content() -> None:
    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.send(EVENTS_HEAD + chunk(ROLE))
        await wire.gone()

    async with rigged(script) as rig:
        exchange = rig.exchange(STREAM, limits=SILENT_LIMITS, replaceable=True)
        calling = rig.start(exchange)
        await until(lambda: exchange.attempt is not None and exchange.attempt.status == 200)
        rig.clock.advance(7.0)
        outcome = await calling
        assert (outcome.kind, outcome.committed) == (OutcomeKind.FIRST_BYTE_TIMEOUT, False)
        assert not rig.reply.started


async def test_the_limits_of_one_attempt_do_not_reach_the_next_one_of_its_connection() -> None:
    release = asyncio.Event()

    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.body(28)
        await wire.send(OK)
        await wire.request()
        await release.wait()
        await wire.send(OK)

    async with rigged(script) as rig:
        await rig.call(limits=SILENT_LIMITS)
        rig.clock.advance(15.0)
        exchange = rig.exchange(limits=SILENT_LIMITS)
        calling = rig.start(exchange)
        await until(lambda: bool(cast(int, exchange.attempt and exchange.attempt.sent_bytes)))
        await settle()
        rig.clock.advance(19.0)
        await settle()
        release.set()
        outcome = await calling
        assert (outcome.kind, exchange.attempt and exchange.attempt.reused) == (OutcomeKind.OK, True)


@pytest.mark.parametrize(
    "answer", [b"", JSON_HEAD + b"content-length: 9\r\n\r\npart"], ids=["before the head", "in the body"]
)
async def test_a_cancelled_attempt_ends_its_connection_at_once(answer: bytes) -> None:
    gone, asked = asyncio.Event(), asyncio.Event()

    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.send(answer)
        asked.set()
        await wire.gone()
        gone.set()

    async with rigged(script) as rig:
        calling = rig.start(rig.exchange())
        await asked.wait()
        await asyncio.sleep(0.01)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        async with asyncio.timeout(1.0):
            await gone.wait()
        assert (rig.pool.idle, rig.clock.next_due) == (0, None)
