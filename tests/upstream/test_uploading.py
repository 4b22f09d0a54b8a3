"""Attempts whose body still arrives: who is at fault when it does not come, or is not taken."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from proxy.decisions.verdict import Verdict, verdict_of
from proxy.outcome import Outcome, OutcomeKind, Reason
from tests.fakes import LIMITS, Ask, FakeUpload, settle
from tests.upstream.peer import PeerWire, stalled, until
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
