"""What was sent of an attempt, and how long its body is kept."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.outcome import OutcomeKind
from proxy.upstream.dialer import Dialer
from proxy.upstream.wire import UpstreamConnection
from tests.fakes import CHAT, Ask, FakeUpload
from tests.upstream.peer import OK, PeerWire, answering, until
from tests.upstream.rig import EVENTS_HEAD, JSON_HEAD, LAST_CHUNK, STREAM, WORD, Rig, chunk, rigged, with_length

UPLOAD = Ask(upload=FakeUpload([b"hello"], length=5))


class Ledger:
    """Notes what is given back."""

    def __init__(self) -> None:
        self.given: list[int] = []

    def give_back(self, size: int) -> None:
        """These bytes are not needed any more."""
        self.given.append(size)


class Dropped(Dialer):
    """Its connections end before anything can be written."""

    async def dial(self, seconds: float, *, spare: bool = False) -> UpstreamConnection:
        """Returns a connection that is over."""
        connection = await super().dial(seconds)
        connection.abort()
        return connection


async def until_gone(wire: PeerWire) -> None:
    await wire.gone()


@pytest.mark.parametrize(("ask", "payload"), [(CHAT, CHAT.body), (UPLOAD, None)], ids=["whole", "upload"])
async def test_nothing_was_sent_on_a_connection_that_was_lost_before(ask: Ask, payload: bytes | None) -> None:
    async with rigged(until_gone) as rig:
        rig.pool.dialer = Dropped(rig.peer.address)
        exchange = rig.exchange(ask, payload=payload, replayable=False)
        outcome = await rig.transport(exchange)
        assert (outcome.kind, outcome.maybe_executed) == (OutcomeKind.DISCONNECTED, False)
        assert exchange.attempt is not None
        assert (exchange.attempt.sent_bytes, exchange.request.upload_taken) == (0, False)
        assert exchange.payload is payload


async def kept_until(rig: Rig, **changes: Any) -> tuple[list[int], bool]:
    """Makes a call of 28 bytes; returns what was given back before the stage above does, and whether they are kept."""
    ledger = Ledger()
    exchange = rig.exchange(STREAM, bodies=ledger, body_bytes=28, **changes)
    await rig.transport(exchange)
    assert (exchange.request.body is None) is (exchange.payload is None)
    return ledger.given, exchange.payload is not None


async def test_a_body_that_cannot_be_sent_again_goes_when_it_was_sent() -> None:
    async with rigged(answering(b"HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n")) as rig:
        assert await kept_until(rig, replayable=False) == ([28], False)


async def test_a_body_that_may_be_sent_again_stays_while_nothing_is_committed() -> None:
    async with rigged(answering(b"HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n")) as rig:
        assert await kept_until(rig) == ([], True)


async def test_a_body_goes_once_the_answer_has_begun() -> None:
    """While a stream runs for an hour nobody needs what was asked."""

    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.send(EVENTS_HEAD + chunk(WORD))
        await wire.gone()

    ledger = Ledger()
    async with rigged(script) as rig:
        exchange = rig.exchange(STREAM, bodies=ledger, body_bytes=28)
        calling = rig.start(exchange)
        await until(lambda: rig.reply.body == WORD)
        assert (ledger.given, exchange.payload, exchange.request.body) == ([28], None, None)
        calling.cancel()


async def test_a_body_goes_once() -> None:
    async with rigged(answering(EVENTS_HEAD + chunk(WORD) + LAST_CHUNK)) as rig:
        assert await kept_until(rig, replayable=False) == ([28], False)


async def test_a_small_answer_leaves_the_body_to_whoever_counted_it() -> None:
    async with rigged(answering(with_length(JSON_HEAD, b"{}"), OK)) as rig:
        assert await kept_until(rig) == ([], True)
