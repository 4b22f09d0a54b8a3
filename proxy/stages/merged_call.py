"""MergedCall: several requests as one call, in a task of its own, and each one's part of what comes of it.

Nobody's leaving ends it but the last one's. It ends at the latest deadline of its callers; who has an earlier one goes
at that. What it measures is told of the carrier only: the first of those who are still there when it ends; each has
its own part of the tokens. A failure that may be one input's fault, or an answer that cannot be dealt, is nobody's
answer: then each asks by itself, once.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from proxy.clock import Clock
from proxy.decisions.fallback import moves_on
from proxy.decisions.leaving import kind_of_leaving
from proxy.decisions.merging import Batch, Lane, MergeBounds, Parcel
from proxy.dialects.apportioning import shared_out
from proxy.dialects.batchable import Batchable, Dealt, Inputs, deal, joined
from proxy.dialects.splice import with_fields
from proxy.exchange import CancelCause, Exchange
from proxy.fields import Fields, lines_of, pairs_of
from proxy.observer import Merged, Split
from proxy.outcome import Outcome, OutcomeKind, Reason
from proxy.stage import CallNext
from proxy.stages.detached import Waits, run_detached
from proxy.stages.merged_answer import MergedAnswer
from proxy.stages.recording import Ledger, without_cookies
from proxy.stages.shared_call import give
from proxy.tasks import start_task
from proxy.trace_context import link_to

PLAIN: Final = 200
ONES_FAULT: Final = frozenset({400, 413, 422})
"""Statuses that may be about one input alone, or about how many there are."""
_TOO_MUCH: Final = frozenset({Reason.CONTEXT_TOO_LONG, Reason.BODY_TOO_LARGE})
_OF_THE_WHOLE: Final = frozenset({b"etag", b"digest", b"content-digest", b"repr-digest", b"content-md5"})
"""What a head says of the bytes of a body that nobody gets as it came."""
_ACCEPT_ENCODING: Final = b"accept-encoding"


class Caller(Parcel, Waits):
    """A request that may travel with others. `batch` is None while it waits; `call` is None if it goes alone."""

    __slots__ = ("_waiter", "asked", "batch", "batchable", "call", "call_next", "exchange", "gone", "part")

    def __init__(self, exchange: Exchange, batchable: Batchable, asked: Inputs, call_next: CallNext) -> None:
        super().__init__(inputs=len(asked.values), tokens=asked.bound, size=len(exchange.request.body or b""))
        self.exchange = exchange
        self.batchable = batchable
        self.asked = asked
        self.call_next = call_next
        self.batch: Batch[Caller] | None = None
        self.call: MergedCall | None = None
        self.part: bytes | None = None
        self.gone = False
        self._waiter: asyncio.Future[None] | None = None


class MergedCall:
    """A call under way. `ended` is called once, when its outcome is known; `singly`: each caller is to ask itself."""

    __slots__ = ("_answer", "_batchable", "_clock", "_ended", "_lines", "_task", "callers", "outcome", "singly", "work")

    def __init__(
        self,
        callers: Sequence[Caller],
        *,
        ledger: Ledger,
        clock: Clock,
        ended: Callable[[], None],
    ) -> None:
        self.callers = tuple(callers)
        self._batchable = callers[0].batchable
        self._clock = clock
        self._ended = ended
        self._lines = b""
        self._answer = MergedAnswer(ledger)
        self.outcome: Outcome | None = None
        self.singly = False
        self.work = _work(self.callers, self._answer)
        self._task: asyncio.Task[None] | None = None
        for caller in callers:
            caller.call = self

    def __repr__(self) -> str:
        return f"<MergedCall of {len(self.callers)}, {self.outcome or 'under way'}>"

    @property
    def failed(self) -> bool:
        """Whether another tier may be asked instead; what the policy says itself is the last resort."""
        outcome = self.outcome
        if outcome is None or outcome.kind is OutcomeKind.OK:
            return False
        answered = outcome.kind is OutcomeKind.ANSWERED
        return answered or moves_on(outcome, own_key=True, repeatable=True, resendable=True)

    @property
    def undealt(self) -> bool:
        """Whether there was a good answer, of which nobody knows whose part is whose."""
        return self.singly and self.outcome is not None and self.outcome.committed

    @property
    def present(self) -> list[Caller]:
        """The callers who are still there, in order."""
        return [caller for caller in self.callers if not caller.gone]

    def start(self, *, begun: Callable[[], None]) -> None:
        """Makes the call; without room for its bytes, each caller asks by itself. `begun`: it waits no more."""
        if not self._answer.reserve(len(self.work.request.body or b"")):
            self._end(Outcome(OutcomeKind.OK))
            return
        self.work.on_attempt = begun
        self._task = start_task(run_detached(self.work, self.callers[0].call_next, self._end), name="merged call")

    def take_along(self, batch: Batch[Caller], lane: Lane[Caller], bounds: MergeBounds) -> int:
        """Takes others along who wait, just before the call is sent for the first time; returns how many.

        Only where their number changes nothing of what was taken for it: no tokens were reserved, no tier has
        changed the body, and their bytes find room.
        """
        work = self.work
        body = work.request.body
        if batch.begun or self.outcome is not None or work.demand is not None or work.payload is not body:
            return 0
        more = lane.fitting(batch, bounds)
        if not more or not self._answer.reserve(sum(caller.size for caller in more)):
            return 0
        lane.take_along(batch, more)
        for caller in more:
            caller.batch, caller.call = batch, self
        self.callers += tuple(more)
        _join(work, self.callers)
        work.payload = work.request.body
        return len(more)

    def leave(self, caller: Caller) -> None:
        """A caller goes before the end; the last one ends the call."""
        if self.outcome is None and self.present == [caller]:
            self._cancel(caller.exchange)
        caller.gone = True

    def answer(self, caller: Caller) -> Outcome:
        """Answers a caller with its part, or with what has become of the call; after its end, unless `singly`."""
        outcome, answer, exchange = self.outcome, self._answer, caller.exchange
        assert outcome is not None
        if caller.part is None:
            return replace(outcome, committed=False)
        exchange.facts.first_byte_at = self._clock.now()
        give(exchange, answer.status, answer.phrase, self._lines, len(caller.part), caller.part)
        return replace(outcome, committed=True)

    def _cancel(self, exchange: Exchange) -> None:
        """The last caller goes: the call is over at once, whenever its task hears of it."""
        work, now, task = self.work, self._clock.now(), self._task
        work.cancel_cause = exchange.cancel_cause or CancelCause.CLIENT_LEFT
        kind = kind_of_leaving(work)
        for attempt in work.facts.attempts:
            if not attempt.ended_at:
                attempt.kind, attempt.ended_at = kind, now
        self._end(Outcome(kind))
        if task is not None:
            task.cancel()

    def _end(self, outcome: Outcome) -> None:
        """The outcome is known; told once, by whoever knows it first."""
        if self.outcome is not None:
            return
        self.outcome = outcome
        self._task = None
        try:
            dealt = self._dealt(outcome)
            self.singly = dealt is None and (outcome.kind is OutcomeKind.OK or _may_be_ones_fault(outcome))
            self._tell_carrier(outcome)
            if not self.singly:
                self._hand_out(dealt or [None] * len(self.callers))
        except BaseException:
            self.outcome, self.singly = Outcome(OutcomeKind.BUG), False
            raise
        finally:
            self.work.forget_body()
            self._answer.settle()
            self._ended()
            # They know this call: both would wait for the garbage collector.
            callers, self.callers = self.callers, ()
            for caller in callers:
                caller.wake()

    def _dealt(self, outcome: Outcome) -> Sequence[Dealt] | None:
        """Returns what each one gets of the answer; None: there is none, or it is nobody's."""
        answer = self._answer
        if not answer.whole:
            return None
        if outcome.kind is not OutcomeKind.OK:
            # The policy's own answer, or a failure that was passed on: the same to everybody.
            self._lines = without_cookies(answer.lines)
            same = Dealt(body=answer.body)
            return None if _may_be_ones_fault(outcome) else [same] * len(self.callers)
        if answer.status != PLAIN:
            return None
        lasting = (field for field in pairs_of(answer.lines) if field[0].lower() not in _OF_THE_WHOLE)
        self._lines = without_cookies(lines_of(lasting))
        return deal(answer.body, self._batchable, [caller.asked for caller in self.callers])

    def _tell_carrier(self, outcome: Outcome) -> None:
        """Tells one caller of all that was measured."""
        carrier = self.present[0].exchange
        facts, known = carrier.facts, self.work.facts
        facts.attempts = known.attempts
        facts.queued_seconds += known.queued_seconds
        facts.events.extend(known.events)
        if self.singly:
            carrier.note(self._clock.now(), Split(callers=len(self.callers), after=outcome.kind))

    def _hand_out(self, dealt: Sequence[Dealt | None]) -> None:
        """Gives every caller its part of the answer and of the tokens, and tells it who has answered."""
        known = self.work.facts
        given = [sum(caller.asked.tokens) for caller in self.callers]
        made = [part.made if part is not None else 0 for part in dealt]
        usages = shared_out(known.usage, given=given, made=made)
        for caller, part, usage in zip(self.callers, dealt, usages, strict=True):
            if caller.gone:
                continue
            facts = caller.exchange.facts
            facts.tier, facts.provider, facts.model = known.tier, known.provider, known.model
            facts.usage = usage
            caller.part = part.body if part is not None else None
        if known.attempts:
            self._link()

    def _link(self) -> None:
        """Notes who has travelled with whom, of those who are still there."""
        carrier, *others = self.present
        inputs, now = sum(caller.inputs for caller in self.callers), self._clock.now()
        merged = Merged(callers=len(self.callers), inputs=inputs, carries=True, links=_spans(others))
        carrier.exchange.note(now, merged)
        carried = replace(merged, carries=False, links=_spans([carrier]))
        for caller in others:
            caller.exchange.note(now, carried)


def _work(callers: Sequence[Caller], answer: MergedAnswer) -> Exchange:
    """Returns an exchange of its own for the whole, made of the first caller's; the answer is to come unpacked."""
    first = callers[0].exchange
    work = copy.copy(first)
    work.reply = answer
    work.facts = facts = copy.copy(first.facts)
    facts.events, facts.attempts, facts.queued_seconds = [], [], 0.0
    request = work.request = copy.copy(first.request)
    request.fields = _unpacked(request.fields)
    work.payload = work.demand = None
    work.body_bytes = 0
    work.alike = b""
    _join(work, callers)
    return work


def _join(work: Exchange, callers: Sequence[Caller]) -> None:
    """Makes the whole's body of all callers' inputs."""
    first = callers[0].exchange
    document, body = first.document, first.request.body
    assert document is not None
    assert body is not None
    values = {callers[0].batchable.inputs: joined([caller.asked for caller in callers])}
    work.request.body = with_fields(body, document, values)
    work.document = {**document, **values}
    work.deadline_at = max(caller.exchange.deadline_at for caller in callers)
    work.replayable = all(caller.exchange.replayable for caller in callers)
    work.facts.request_bytes = len(work.request.body)


def _unpacked(fields: Fields) -> Fields:
    if "accept-encoding" not in fields.shape.first:
        return fields
    names = fields.shape.names
    lines = [
        b"identity" if name.rstrip().lower() == _ACCEPT_ENCODING else line
        for name, line in zip(names, fields.lines, strict=True)
    ]
    return Fields(fields.shape, lines)


def _may_be_ones_fault(outcome: Outcome) -> bool:
    """Whether one input alone, or how many they are, may be to blame."""
    if outcome.kind is OutcomeKind.ANSWERED:
        return False
    if outcome.local:
        never = outcome.reason is Reason.QUOTA_EXHAUSTED and outcome.retry_after is None
        return never or outcome.reason in _TOO_MUCH
    return outcome.status in ONES_FAULT


def _spans(callers: Sequence[Caller]) -> tuple[tuple[int, int], ...]:
    links = (link_to(caller.exchange.facts.trace) for caller in callers)
    return tuple(link for link in links if link is not None)
