"""SharedCall: one run of the rest of the pipeline, for every caller who wants the same (`semantics.md` §6a).

It runs in a task of its own, into a recording; every caller, the first one too, reads that. Nobody's leaving ends it
but the last one's. What it measures (attempts, waits, tokens) is told of one caller only: the first of those who are
still there when it ends.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from proxy.clock import Clock, Timer
from proxy.decisions.leaving import kind_of_leaving
from proxy.exchange import Attempt, CancelCause, Exchange, ReaderGone, Reply
from proxy.observer import CacheUse
from proxy.outcome import Outcome, OutcomeKind
from proxy.ports import StoredAnswer
from proxy.stage import CallNext
from proxy.stages.detached import run_detached
from proxy.stages.recording import Ledger, Reader, Recording
from proxy.tasks import start_task

STALL_SECONDS: Final = 30.0
"""How long a caller may take nothing of its answer, where no attempt runs whose idle limit says it."""


class SharedCall:
    """A call under way. `ended` is called once, when its outcome is known: nobody may join it after that."""

    __slots__ = ("_clock", "_ended", "_task", "outcome", "recording", "work")

    def __init__(
        self,
        exchange: Exchange,
        call_next: CallNext,
        *,
        ledger: Ledger,
        clock: Clock,
        ended: Callable[[SharedCall], None],
    ) -> None:
        self._clock = clock
        self._ended = ended
        self.recording = Recording(ledger, exchange.operation)
        self.work = spun_off(exchange, self.recording)
        self.outcome: Outcome | None = None
        self._task: asyncio.Task[None] | None = start_task(
            run_detached(self.work, call_next, self._end), name="shared call"
        )

    def __repr__(self) -> str:
        return f"<SharedCall {self.outcome or 'under way'}, {self.recording}>"

    @property
    def joinable(self) -> bool:
        """Whether its answer is still here from its first byte."""
        return self.recording.kept and self.outcome is None

    async def serve(self, exchange: Exchange, *, other: bool = False) -> Outcome:
        """Answers one caller; returns once its last byte was passed on. A caller that leaves is cancelled here.

        `other`: somebody else made the call, whose cookies this one does not get.
        """
        reader = self.recording.enter(exchange, other=other)
        timer = self._bound(reader)
        try:
            outcome = await self._read(reader, timer)
        except ReaderGone:
            outcome = Outcome(OutcomeKind.CLIENT_LEFT, committed=True)
        finally:
            if timer is not None:
                timer.cancel()
            self._leave(reader)
        return outcome

    def _end(self, outcome: Outcome) -> None:
        """The outcome is known; told once, by whoever knows it first."""
        if self.outcome is not None:
            return
        self.outcome = outcome
        self._task = None
        self.work.forget_body()
        if self.recording.readers:
            self._tell_all(self.recording.readers[0].exchange)
        self.recording.settle()
        try:
            self._ended(self)
        finally:
            # Whatever befalls those who look at the answer: its callers wait for it.
            self.recording.wake()

    async def _read(self, reader: Reader, timer: Timer | None) -> Outcome:
        exchange, recording = reader.exchange, self.recording
        while not recording.started and self.outcome is None:
            await reader.news()
            if self._is_late(exchange):
                return Outcome(OutcomeKind.TOTAL_TIMEOUT)
        self._tell(reader)
        if not recording.started:
            return self._told()
        exchange.facts.first_byte_at = self._clock.now()
        if recording.whole and not reader.at:
            give(exchange, recording.status, recording.phrase, reader.lines, recording.length, recording.body)
            return await self._outcome(reader)
        exchange.reply.start(recording.status, recording.phrase, reader.lines, length=recording.length)
        if exchange.facts.stream and timer is not None:
            timer.cancel()
        if not await self._pass_on(reader):
            exchange.reply.abort()
            return Outcome(OutcomeKind.TOTAL_TIMEOUT, status=recording.status, committed=True)
        if recording.finished:
            exchange.reply.finish()
        elif recording.aborted:
            exchange.reply.abort()
        return await self._outcome(reader)

    async def _pass_on(self, reader: Reader) -> bool:
        """Passes the body on as it comes, to its end or break; False when this caller's own deadline has passed."""
        exchange, recording = reader.exchange, self.recording
        while True:
            while (piece := reader.next()) is not None:
                exchange.reply.write(piece)
                if exchange.reply.paused:
                    await self._drained(exchange)
            if recording.finished or recording.aborted or self.outcome is not None:
                return True
            if not exchange.facts.stream and self._is_late(exchange):
                return False
            await reader.news()

    async def _outcome(self, reader: Reader) -> Outcome:
        while self.outcome is None:
            await reader.news()
        return self._told()

    def _told(self) -> Outcome:
        """Returns the outcome as one caller's own: each is answered, and may change it, by itself."""
        assert self.outcome is not None
        recording = self.recording
        return replace(self.outcome, committed=recording.finished or recording.aborted)

    def _bound(self, reader: Reader) -> Timer | None:
        """Watches a deadline that comes before the call's own, which the call itself keeps."""
        due = reader.exchange.deadline_at
        return self._clock.call_at(due, reader.wake) if due < self.work.deadline_at else None

    def _is_late(self, exchange: Exchange) -> bool:
        return exchange.deadline_at < self.work.deadline_at and self._clock.now() >= exchange.deadline_at

    async def _drained(self, exchange: Exchange) -> None:
        """Waits for a slow caller; one that has stopped reading is let go, before the call is ended for it."""

        def stalled() -> None:
            exchange.cancel_cause = exchange.cancel_cause or CancelCause.STALLED
            exchange.reply.abort()

        timer = self._clock.call_at(self._clock.now() + self._patience(), stalled)
        try:
            await exchange.reply.drain()
        finally:
            timer.cancel()

    def _patience(self) -> float:
        """Who is alone may take as long as the attempt allows; of several, nobody may end it for the others."""
        attempt = self.work.attempt
        seconds = attempt.limits.idle if attempt is not None else STALL_SECONDS
        return seconds if len(self.recording.readers) == 1 else seconds / 2

    def _tell(self, reader: Reader) -> None:
        """Tells a caller who answers it; the first one also of the attempts so far."""
        facts, known = reader.exchange.facts, self.work.facts
        facts.tier, facts.provider, facts.model = known.tier, known.provider, known.model
        if facts.cache is None or known.cache is CacheUse.STALE:
            facts.cache = known.cache
        if self.outcome is None and self.recording.readers[0] is reader:
            facts.attempts = known.attempts

    def _tell_all(self, exchange: Exchange) -> None:
        """Tells one caller of everything that was measured."""
        facts, known = exchange.facts, self.work.facts
        facts.tier, facts.provider, facts.model = known.tier, known.provider, known.model
        facts.attempts, facts.usage, facts.queued_seconds = known.attempts, known.usage, known.queued_seconds
        facts.saved = known.saved
        facts.events.extend(known.events)

    def _leave(self, reader: Reader) -> None:
        exchange, recording, known = reader.exchange, self.recording, self.work.facts
        if self.outcome is not None and exchange.facts.usage is None:
            # Another one is told what the call has spent.
            exchange.facts.saved = known.usage or known.saved
        scanner = recording.scanner
        if scanner is not None and not reader.behind:
            exchange.takes_event, exchange.told_error = scanner.between_events, scanner.error is not None
            exchange.answered = scanner.done and not exchange.told_error
        if self.outcome is None and len(recording.readers) == 1:
            self._cancel(exchange)
        elif self.outcome is None:
            # They are told of somebody who is still there at the end.
            exchange.facts.attempts = []
        recording.leave(reader)

    def _cancel(self, exchange: Exchange) -> None:
        """The last caller has gone: the call is over at once, whenever its task hears of it."""
        work, now = self.work, self._clock.now()
        work.cancel_cause = exchange.cancel_cause or CancelCause.CLIENT_LEFT
        work.answered, work.told_error = exchange.answered, exchange.told_error
        kind = kind_of_leaving(work)
        for attempt in work.facts.attempts:
            if not attempt.ended_at:
                attempt.kind, attempt.ended_at = kind, now
                self._measure(attempt)
        task = self._task
        if work.answered:
            self.recording.finish()
        self._end(Outcome(kind, status=self.recording.status, committed=work.answered or work.told_error))
        if task is not None:
            task.cancel()

    def _measure(self, attempt: Attempt) -> None:
        """Says what has come of an answer that is cut: who counts it does not wait for its task."""
        scanner = self.recording.scanner
        attempt.answer_bytes = self.recording.size
        if scanner is not None and attempt.usage is None:
            attempt.usage = self.work.facts.usage = scanner.usage


def stored(call: SharedCall) -> StoredAnswer | None:
    """Returns the answer of a call that has ended, to be given again; None when it is not whole any more."""
    recording, facts = call.recording, call.work.facts
    if not recording.whole:
        return None
    return StoredAnswer(
        status=recording.status,
        phrase=recording.phrase,
        lines=recording.lines,
        body=recording.body,
        length=recording.length,
        provider=facts.provider,
        model=facts.model,
        tier=facts.tier,
        usage=facts.usage,
    )


def give(exchange: Exchange, status: int, phrase: bytes, lines: bytes, length: int | None, body: bytes) -> None:
    """Answers in one go; without a body, with the length that the head promised (HEAD, 304)."""
    if body:
        exchange.reply.start(status, phrase, lines, length=len(body), body=body)
    else:
        exchange.reply.start(status, phrase, lines, length=length)
        exchange.reply.finish()


def spun_off(exchange: Exchange, reply: Reply) -> Exchange:
    """Returns an exchange that goes on where this one stands, and takes its body along."""
    work = copy.copy(exchange)
    work.request, work.facts = copy.copy(exchange.request), copy.copy(exchange.facts)
    work.facts.events = []
    work.reply = reply
    exchange.body_bytes = 0
    exchange.forget_body()
    return work
