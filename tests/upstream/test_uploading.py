"""Attempts whose body still arrives: who is at fault when it does not come, or is not taken; early answers."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from typing import Any

import pytest

from proxy.decisions.verdict import Verdict, verdict_of
from proxy.outcome import Outcome, OutcomeKind, Reason
from proxy.upstream.address import Address
from proxy.upstream.dialer import Dialer
from tests.fakes import LIMITS, Ask, FakeUpload, settle
from tests.upstream.peer import RESET_ON_CLOSE, PeerWire, stalled, until
from tests.upstream.rig import Rig, rigged

BRIEF = replace(LIMITS, answer=20.0)
PIECE = bytes(1 << 20)


class Trickle(FakeUpload):
    """Gives its pieces, and then nothing any more."""

    async def read(self) -> bytes:
        """Returns the next piece; waits without end when there is none."""
        if not self._pieces:
            await asyncio.Event().wait()
        return await super().read()


async def silent(wire: PeerWire) -> None:
    """Takes what comes, and says nothing."""
    await wire.gone()


async def deaf(wire: PeerWire) -> None:
    """Takes nothing but the head."""
    await wire.request()
    await asyncio.Event().wait()


async def expired(rig: Rig, upload: FakeUpload, **changes: Any) -> Outcome:
    """The outcome of an attempt whose answer has not begun when its limit passes."""
    exchange = rig.exchange(Ask(upload=upload), payload=None, limits=BRIEF, **changes)
    calling = rig.start(exchange)
    await until(lambda: rig.clock.next_due is not None and not upload._pieces)
    await settle()
    rig.clock.advance(21.0)
    outcome = await calling
    assert (rig.reply.started, rig.pool.idle) == (False, 0)
    return outcome


@pytest.mark.parametrize("length", [100_000, None])
@pytest.mark.parametrize("pieces", [[], [b"part"]], ids=["nothing came", "a part came"])
@pytest.mark.parametrize("deadline", [{}, {"deadline_at": 1015.0}], ids=["limit", "deadline"])
async def test_a_caller_that_stops_sending_is_at_fault_not_its_provider(
    pieces: list[bytes], length: int | None, deadline: dict[str, float]
) -> None:
    async with rigged(silent) as rig:
        outcome = await expired(rig, Trickle(list(pieces), length=length), **deadline)
        assert (outcome.kind, outcome.reason) == (OutcomeKind.CALLER_ERROR, Reason.BAD_REQUEST)
        assert "send it faster" in outcome.detail
        assert verdict_of(outcome) is Verdict.NEUTRAL
        assert not outcome.maybe_executed


async def test_a_provider_that_has_the_whole_body_and_does_not_answer_is_at_fault() -> None:
    async with rigged(silent) as rig:
        outcome = await expired(rig, FakeUpload([b"0123456789"], length=10))
        assert (outcome.kind, outcome.maybe_executed) == (OutcomeKind.ANSWER_TIMEOUT, True)
        assert verdict_of(outcome) is Verdict.FAILURE


async def test_a_provider_that_does_not_take_the_body_is_at_fault() -> None:
    async with rigged(deaf) as rig:
        upload = Trickle([PIECE] * 64, length=1 << 30)
        exchange = rig.exchange(Ask(upload=upload), payload=None, limits=BRIEF)
        calling = rig.start(exchange)
        await until(lambda: rig.clock.next_due is not None)
        assert await stalled(lambda: len(upload._pieces)) > 0
        rig.clock.advance(21.0)
        outcome = await calling
        assert outcome.kind is OutcomeKind.ANSWER_TIMEOUT
        assert verdict_of(outcome) is Verdict.FAILURE


async def test_a_body_that_is_given_up_ends_the_attempt_as_its_callers_error() -> None:
    async with rigged(silent) as rig:
        upload = FakeUpload([b"part"], length=100, broken=True)
        outcome, _ = await rig.call(Ask(upload=upload), payload=None)
        assert (outcome.kind, outcome.reason) == (OutcomeKind.CALLER_ERROR, Reason.BAD_REQUEST)
        assert verdict_of(outcome) is Verdict.NEUTRAL


TOO_MUCH = b'HTTP/1.1 413 No\r\ncontent-type: application/json\r\ncontent-length: 7\r\n\r\n{"e":1}'


class Interrupted(FakeUpload):
    """Before it gives its second piece its provider answers and is gone: nobody has read that yet."""

    def __init__(self, listening: socket.socket, *, resets: bool, length: int | None) -> None:
        super().__init__([PIECE] * 8, length=length)
        self._listening = listening
        self._resets = resets
        self.reads = 0

    async def read(self) -> bytes:
        """Returns the next piece, without a moment in which the answer could be read."""
        self.reads += 1
        if self.reads == 2:
            accepted, _ = self._listening.accept()
            with accepted:
                accepted.sendall(TOO_MUCH)
                if self._resets:
                    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        return await super().read()


@pytest.mark.parametrize("resets", [True, False], ids=["resets", "closes"])
@pytest.mark.parametrize("length", [8 << 20, None], ids=["length", "chunked"])
async def test_an_answer_that_came_before_its_provider_went_is_read_before_more_is_sent(
    length: int | None, resets: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        async with rigged(silent) as rig:
            rig.pool.dialer = Dialer(Address(scheme="http", host="127.0.0.1", port=listening.getsockname()[1]))
            upload = Interrupted(listening, resets=resets, length=length)
            outcome, attempt = await rig.call(Ask(upload=upload), payload=None)
    assert (outcome.kind, outcome.status, attempt.status) == (OutcomeKind.CALLER_ERROR, 413, 413)
    assert rig.reply.body == b'{"e":1}'


def answers_after(size: int) -> Any:
    """Answers when it has read so much of the body, keeps the connection, and reads no more."""

    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.body(size)
        await wire.send(TOO_MUCH)
        await asyncio.Event().wait()

    return script


LARGE = bytes(32 << 20)


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(("size", "kept"), [(1 << 16, 0), (len(LARGE), 1)], ids=["early", "at the end"])
async def test_a_connection_serves_again_only_when_all_of_its_request_was_sent(
    size: int, kept: int, streamed: bool
) -> None:
    """What waits to be sent would stand before the next request, and stay in memory until then."""
    async with rigged(answers_after(size)) as rig:
        if streamed:
            ask, payload = Ask(upload=FakeUpload([PIECE] * 32, length=len(LARGE))), None
        else:
            ask, payload = Ask(), LARGE
        outcome, _ = await rig.call(ask, payload=payload)
        assert (outcome.status, rig.reply.body) == (413, b'{"e":1}')
        assert rig.pool.idle == kept
