"""SharedCall: one call for several callers; each is answered by itself, and only the last who leaves ends it."""

from __future__ import annotations

import logging

import pytest

from proxy.exchange import CancelCause, Usage
from proxy.observer import Retried
from proxy.outcome import OutcomeKind, Reason, refused
from proxy.stages.recording import LARGEST_KEPT
from proxy.stages.shared_call import SharedCall, stored
from tests.fakes import Ask, FakeUpload, settle
from tests.stages.shared import STREAM, Shared, failed_silently

PLAIN = Ask()
DONE = b"data: [DONE]\n\n"


async def test_all_get_the_same_answer_of_one_call() -> None:
    shared = Shared()
    callers = [await shared.caller(PLAIN) for _ in range(3)]
    shared.script.answer(b"hi")
    for caller in callers:
        outcome = await caller.outcome()
        assert (outcome.kind, outcome.committed) == (OutcomeKind.OK, True)
        assert (caller.reply.status, caller.reply.body, caller.reply.end) == (200, b"hi", "finished")
        assert caller.reply.header(b"x-up") == b"1"
        facts = caller.exchange.facts
        assert (facts.tier, facts.provider, facts.model) == (2, "alpha", "m1")
    assert len(shared.script.works) == 1
    assert [len(caller.exchange.facts.attempts) for caller in callers] == [1, 0, 0]
    assert shared.ledger.held == 0


async def test_who_comes_late_reads_a_stream_from_its_beginning_then_as_it_comes() -> None:
    shared = Shared()
    first = await shared.caller()
    shared.script.begin()
    shared.script.write(b"one ")
    late = await shared.caller()
    assert late.reply.pieces == [b"one "]
    shared.script.write(b"two")
    await settle()
    assert late.reply.pieces == first.reply.pieces == [b"one ", b"two"]
    shared.script.finish()
    assert (await late.outcome()).committed
    assert (await first.outcome()).committed
    assert late.reply.end == first.reply.end == "finished"


async def test_a_failure_is_told_to_each_of_them() -> None:
    shared = Shared()
    callers = [await shared.caller(PLAIN) for _ in range(2)]
    shared.script.end(refused(Reason.QUEUE_FULL, retry_after=3.0))
    found = [await caller.outcome() for caller in callers]
    assert found[0] is not found[1]
    assert [(outcome.reason, outcome.retry_after) for outcome in found] == [(Reason.QUEUE_FULL, 3.0)] * 2
    assert not any(outcome.committed for outcome in found)
    assert not any(caller.reply.started for caller in callers), "whoever stands outside answers them"


async def test_one_has_spent_its_tokens_and_the_others_have_saved_them() -> None:
    shared = Shared()
    callers = [await shared.caller(PLAIN) for _ in range(3)]
    shared.script.work.facts.usage = usage = Usage(input=3, output=4)
    shared.script.answer()
    for caller in callers:
        await caller.outcome()
    assert [caller.exchange.facts.usage for caller in callers] == [usage, None, None]
    assert [caller.exchange.facts.saved for caller in callers] == [None, usage, usage]


async def test_a_break_is_a_break_for_all() -> None:
    shared = Shared()
    callers = [await shared.caller() for _ in range(2)]
    shared.script.begin()
    shared.script.write(b"half")
    shared.script.work.reply.abort()
    broken = failed_silently(OutcomeKind.STREAM_BROKEN)
    broken.committed = True
    shared.script.end(broken)
    for caller in callers:
        assert (await caller.outcome()).kind is OutcomeKind.STREAM_BROKEN
        assert (caller.reply.body, caller.reply.end) == (b"half", "aborted")


async def test_a_bug_in_it_is_everybody_s_and_leaves_a_break_to_be_shown(caplog: pytest.LogCaptureFixture) -> None:
    shared = Shared()
    callers = [await shared.caller() for _ in range(2)]
    shared.script.begin()
    shared.script.write(b"data: 1\n\n")
    await settle()
    with caplog.at_level(logging.CRITICAL):
        shared.script.end(RuntimeError("a bug"))
        await settle()
    for caller in callers:
        outcome = await caller.outcome()
        assert (outcome.kind, outcome.committed) == (OutcomeKind.BUG, False)
        assert caller.exchange.takes_event


async def test_a_bug_of_whoever_is_told_of_the_end_leaves_no_caller_waiting(caplog: pytest.LogCaptureFixture) -> None:
    class Clumsy(Shared):
        def _end(self, call: SharedCall) -> None:
            raise RuntimeError("a bug")

    shared = Clumsy()
    callers = [await shared.caller() for _ in range(2)]
    with caplog.at_level(logging.CRITICAL):
        shared.script.end(failed_silently())
        await settle()
    for caller in callers:
        assert (await caller.outcome()).kind is failed_silently().kind


async def test_the_first_may_leave_while_another_stays_who_is_told_of_the_attempt() -> None:
    shared = Shared()
    first, second, third = [await shared.caller() for _ in range(3)]
    shared.script.begin()
    await first.leaves()
    assert first.exchange.facts.attempts == []
    assert shared.script.cancelled == 0
    work = shared.script.work
    work.facts.usage, work.facts.queued_seconds = Usage(input=1), 2.0
    work.note(1.0, Retried(provider="alpha", tier=1, after=OutcomeKind.DISCONNECTED, delay=0.0, other_key=False))
    shared.script.write(b"x")
    shared.script.finish()
    await second.outcome()
    await third.outcome()
    assert [len(caller.exchange.facts.attempts) for caller in (second, third)] == [1, 0]
    assert [caller.exchange.facts.usage for caller in (second, third)] == [Usage(input=1), None]
    assert [caller.exchange.facts.queued_seconds for caller in (second, third)] == [2.0, 0.0]
    assert [len(caller.exchange.facts.events) for caller in (second, third)] == [1, 0]


async def test_who_leaves_between_events_could_be_told_and_within_one_not() -> None:
    for piece, takes in [(b"data: 1\n\n", True), (b"data: 1\n", False)]:
        shared = Shared()
        caller = await shared.caller()
        shared.script.begin()
        shared.script.write(piece)
        await settle()
        await caller.leaves()
        assert (caller.exchange.takes_event, caller.exchange.answered) == (takes, False)


async def test_a_caller_s_own_deadline_ends_its_wait_and_not_the_call() -> None:
    shared = Shared()
    first = await shared.caller(PLAIN)
    hurried = await shared.caller(PLAIN, deadline_at=shared.clock.now() + 5.0)
    await shared.clock.run(6.0)
    outcome = await hurried.outcome()
    assert (outcome.kind, outcome.committed) == (OutcomeKind.TOTAL_TIMEOUT, False)
    assert not first.task.done()
    shared.script.answer()
    assert (await first.outcome()).kind is OutcomeKind.OK
    assert shared.clock.next_due is None


async def test_its_deadline_cuts_a_body_but_no_stream() -> None:
    for ask, end in [(PLAIN, "aborted"), (STREAM, "finished")]:
        shared = Shared()
        await shared.caller(ask)
        hurried = await shared.caller(ask, deadline_at=shared.clock.now() + 5.0)
        shared.script.begin(b"")
        shared.script.write(b"some")
        await shared.clock.run(6.0)
        shared.script.finish()
        await hurried.outcome()
        assert hurried.reply.end == end


async def test_a_caller_that_stops_reading_is_let_go_and_the_others_go_on() -> None:
    shared = Shared()
    first, stalled = await shared.caller(), await shared.caller()
    stalled.reply.paused = True
    shared.script.begin()
    shared.script.write(b"x")
    await settle()
    await shared.clock.run(16.0)
    assert stalled.exchange.cancel_cause is CancelCause.STALLED
    assert stalled.reply.end == "aborted"
    stalled.reply.resume(gone=True)
    assert (await stalled.outcome()).kind is OutcomeKind.CLIENT_LEFT
    shared.script.finish()
    assert (await first.outcome()).kind is OutcomeKind.OK


async def test_a_caller_that_catches_up_in_time_misses_nothing() -> None:
    shared = Shared()
    await shared.caller()
    slow = await shared.caller()
    slow.reply.paused = True
    shared.script.begin()
    for piece in (b"a", b"b", b"c"):
        shared.script.write(piece)
    await settle()
    assert slow.reply.pieces == [b"a"]
    slow.reply.resume()
    await settle()
    assert slow.reply.pieces == [b"a", b"b", b"c"]
    await shared.clock.run(60.0)
    assert slow.exchange.cancel_cause is None


async def test_one_that_is_too_large_serves_those_who_are_there_and_is_not_kept() -> None:
    shared = Shared()
    callers = [await shared.caller(PLAIN) for _ in range(2)]
    shared.script.begin(b"", length=LARGEST_KEPT + 1)
    shared.script.write(b"x" * (LARGEST_KEPT + 1))
    assert shared.call is not None
    assert not shared.call.joinable
    shared.script.finish()
    for caller in callers:
        assert (await caller.outcome()).kind is OutcomeKind.OK
        assert len(caller.reply.body) == LARGEST_KEPT + 1
    assert stored(shared.call) is None


async def test_an_answer_without_a_body_keeps_the_length_that_was_promised() -> None:
    shared = Shared()
    caller = await shared.caller(Ask(method="HEAD", body=b""))
    shared.script.begin(b"", length=99)
    shared.script.finish()
    await caller.outcome()
    assert (caller.reply.length, caller.reply.body, caller.reply.end) == (99, b"", "finished")
    assert shared.call is not None
    answer = stored(shared.call)
    assert answer is not None
    assert answer.length == 99


async def test_the_call_takes_the_body_along_and_gives_it_back_once() -> None:
    class Ledger:
        given = 0

        def give_back(self, size: int) -> None:
            self.given += size

    shared = Shared()
    ledger = Ledger()
    caller = await shared.caller(PLAIN)
    work = shared.script.work
    work.bodies, work.body_bytes = ledger, 7
    assert caller.exchange.request.body is None
    assert work.request.body == work.payload == PLAIN.body
    caller.exchange.forget_body()
    assert (ledger.given, work.request.body) == (0, PLAIN.body)
    shared.script.answer()
    await caller.outcome()
    caller.exchange.forget_body()
    assert (ledger.given, work.request.body) == (7, None)


async def test_a_body_that_still_arrives_goes_along_too() -> None:
    shared = Shared()
    upload = FakeUpload([b"x"])
    await shared.caller(Ask(upload=upload))
    assert shared.script.work.request.upload is upload
