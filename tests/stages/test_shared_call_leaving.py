"""The last caller of a shared call leaves: it ends at once, and whoever is told of it knows what it has come to."""

from __future__ import annotations

import pytest

from proxy.exchange import CancelCause, Usage
from proxy.outcome import OutcomeKind
from proxy.stages.shared_call import SharedCall, stored
from tests.fakes import make_exchange, settle
from tests.stages.shared import Shared

DONE = b"data: [DONE]\n\n"


@pytest.mark.parametrize("cause", [CancelCause.CLIENT_LEFT, CancelCause.DRAIN])
async def test_the_last_who_leaves_ends_it_at_once(cause: CancelCause) -> None:
    shared = Shared()
    callers = [await shared.caller() for _ in range(2)]
    for caller in callers:
        caller.exchange.cancel_cause = cause
        caller.task.cancel()
    await settle()
    assert shared.script.cancelled == 1
    (call,) = shared.ended
    kind = OutcomeKind.DRAINED if cause is CancelCause.DRAIN else OutcomeKind.CLIENT_LEFT
    assert call.outcome is not None
    assert (call.outcome.kind, call.work.cancel_cause) == (kind, cause)
    assert not call.joinable
    (attempt,) = callers[1].exchange.facts.attempts
    assert attempt.kind is kind
    assert attempt.ended_at >= attempt.started_at
    assert shared.ledger.held == 0


async def test_the_last_who_leaves_is_told_what_has_come_until_then() -> None:
    shared = Shared()
    caller = await shared.caller()
    shared.script.begin()
    shared.script.write(piece := b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}\n\n')
    await caller.leaves()
    (attempt,) = caller.exchange.facts.attempts
    assert (attempt.answer_bytes, attempt.usage) == (len(piece), caller.exchange.facts.usage)
    assert attempt.usage == Usage(input=7, output=2)


async def test_it_is_over_in_the_step_in_which_the_last_one_leaves() -> None:
    shared = Shared()
    caller = await shared.caller()
    await caller.leaves()
    assert (len(shared.ended), shared.script.cancelled) == (1, 1)
    assert shared.heard_of_it == 0, "nobody could join before its task had heard of it"


async def test_who_leaves_before_the_call_has_taken_a_step_leaves_nothing() -> None:
    shared = Shared()
    exchange = make_exchange()
    call = SharedCall(exchange, shared.script, ledger=shared.ledger, clock=shared.clock, ended=shared.ended.append)
    serving = call.serve(exchange)
    serving.send(None)
    serving.close()
    await settle()
    assert shared.ended == [call]
    assert shared.script.works == []


async def test_who_leaves_after_the_last_event_has_had_all_of_it() -> None:
    shared = Shared()
    caller = await shared.caller()
    shared.script.begin()
    shared.script.write(b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n')
    shared.script.write(DONE)
    await settle()
    await caller.leaves()
    assert caller.exchange.answered
    (call,) = shared.ended
    assert call.outcome is not None
    assert call.outcome.kind is OutcomeKind.OK
    answer = stored(call)
    assert answer is not None
    assert answer.body.endswith(DONE)


@pytest.mark.parametrize(
    "last",
    [
        b'data: {"error":{"message":"busy","type":"overloaded_error"}}\n\n',
        b'data: {"error":{"message":"busy","type":"overloaded_error"}}\n\n' + DONE,
    ],
)
async def test_who_leaves_after_the_provider_s_error_has_had_a_failure(last: bytes) -> None:
    shared = Shared()
    caller = await shared.caller()
    shared.script.begin()
    shared.script.write(b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n' + last)
    await settle()
    await caller.leaves()
    assert (caller.exchange.answered, caller.exchange.told_error) == (False, True)
    (call,) = shared.ended
    assert call.outcome is not None
    assert (call.outcome.kind, call.outcome.committed) == (OutcomeKind.ERROR_IN_ANSWER, True)
    assert stored(call) is None
