"""Idempotency: the same key and request, under way or answered of late, is the same answer (`semantics.md` §6a).

A request without a key passes; so it does in `mode: observe`, where a conflict is refused as ever: what is turned off
there are limits, and a key is the caller's own wish.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from proxy.clock import Clock
from proxy.decisions.idempotency import (
    CONFLICTS,
    NO_MARK,
    Conflict,
    IdempotencySettings,
    NoKey,
    credential_of,
    fate_of,
    mark_of,
    name_of,
    read_key,
    was_sent,
)
from proxy.exchange import Exchange
from proxy.observer import Shared, Sharing
from proxy.outcome import Outcome, OutcomeKind, Reason, refused
from proxy.ports import AnswerStore, Fate, Remembered, StoredAnswer
from proxy.stage import CallNext
from proxy.stages.recording import Ledger
from proxy.stages.shared_call import SharedCall, give, stored
from proxy.trace_context import link_to


class Answered(AnswerStore, Ledger, Protocol):
    """What is known of requests that have ended, and who counts what is recorded of those that have not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flight:
    """A keyed call under way, and what its request looks like."""

    call: SharedCall
    mark: bytes


class KeyedCalls:
    """The keyed calls of the process that are under way, and how often each way of repeating one was met."""

    __slots__ = ("conflicts", "flights", "joined", "replayed")

    def __init__(self) -> None:
        self.flights: dict[bytes, _Flight] = {}
        self.joined = self.replayed = self.conflicts = 0

    def __repr__(self) -> str:
        return f"<KeyedCalls {len(self.flights)} under way>"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyScope:
    """Within what a key holds: `route` is a value of its own for each route.

    `credentials`: the headers that tell callers apart, where what they bring goes along. `deduplicates`: whoever the
    route asks knows by itself what it has executed.
    """

    route: bytes
    credentials: Sequence[str] = ()
    deduplicates: bool = False


class IdempotencyStage:
    """Answers a key that is known; runs a new one so that others can join it."""

    __slots__ = ("_answers", "_calls", "_clock", "_header", "_scope", "_settings")

    def __init__(
        self, settings: IdempotencySettings, scope: KeyScope, *, calls: KeyedCalls, answers: Answered, clock: Clock
    ) -> None:
        self._settings = settings
        self._scope = scope
        self._calls = calls
        self._answers = answers
        self._clock = clock
        self._header = "" if settings.all_required else settings.headers[0]

    def __call__(self, exchange: Exchange, call_next: CallNext) -> Awaitable[Outcome]:
        """Passes a request that has no key and needs none."""
        if self._header and self._header not in exchange.request.fields.shape.first:
            return call_next(exchange)
        return self._keyed(exchange, call_next)

    async def _keyed(self, exchange: Exchange, call_next: CallNext) -> Outcome:
        if exchange.request.switch is not None:
            # A conversation is no answer that could be given again.
            return await call_next(exchange)
        key = read_key(self._settings.headers, exchange.request.fields)
        if isinstance(key, NoKey):
            return refused(Reason.BAD_REQUEST, detail=key.detail)
        exchange.idempotency_key = key
        name, mark = self._name(exchange, key), mark_of(exchange.request)
        flight = self._calls.flights.get(name)
        if flight is not None:
            call = flight.call
            if (conflict := _conflict(mark, flight.mark)) or (conflict := _unshared(call)):
                return self._refused(conflict)
            self._calls.joined += 1
            exchange.note(self._clock.now(), Shared(how=Sharing.JOINED, link=link_to(call.work.facts.trace)))
            return await call.serve(exchange)
        known = self._answers.find(name, self._clock.now())
        if known is not None:
            return self._again(exchange, mark, known)
        call = SharedCall(
            exchange,
            call_next,
            ledger=self._answers,
            clock=self._clock,
            ended=partial(self._ended, name, mark),
        )
        self._calls.flights[name] = _Flight(call=call, mark=mark)
        return await call.serve(exchange)

    def _name(self, exchange: Exchange, key: str) -> bytes:
        scope = self._scope
        parts = [scope.route, _bytes(exchange.facts.tenant), _bytes(key)]
        if scope.credentials:
            parts.extend(credential_of(exchange.request.fields, scope.credentials))
        return name_of(parts)

    def _again(self, exchange: Exchange, mark: bytes, known: Remembered) -> Outcome:
        """Gives a known answer once more, without a call."""
        if conflict := _conflict(mark, known.mark):
            return self._refused(conflict)
        if known.answer is None:
            return self._refused(CONFLICTS[known.fate])
        self._calls.replayed += 1
        return _give(exchange, known.answer, self._clock.now())

    def _ended(self, name: bytes, mark: bytes, call: SharedCall) -> None:
        """Remembers what became of a keyed call; where surely nothing was executed, its key is free again."""
        del self._calls.flights[name]
        work, outcome = call.work, call.outcome
        assert outcome is not None
        fate = fate_of(
            outcome,
            repeatable=work.repeatable or self._scope.deduplicates,
            sent=was_sent(work.facts.attempts),
        )
        if fate is None:
            return
        known = Remembered(mark=mark, fate=fate)
        if fate is Fate.ANSWERED:
            answer = stored(call)
            known = replace(known, answer=answer, fate=fate if answer is not None else Fate.TOO_LARGE)
        self._answers.remember(name, known, seconds=self._settings.keep, now=self._clock.now())

    def _refused(self, conflict: Conflict) -> Outcome:
        self._calls.conflicts += 1
        return refused(Reason.IDEMPOTENCY_CONFLICT, detail=conflict.value)


def _conflict(mark: bytes, known: bytes) -> Conflict | None:
    if mark == NO_MARK or known == NO_MARK:
        return Conflict.UNREAD
    return None if mark == known else Conflict.OTHER_REQUEST


def _unshared(call: SharedCall) -> Conflict | None:
    return None if call.joinable else Conflict.TOO_LARGE


def _give(exchange: Exchange, answer: StoredAnswer, now: float) -> Outcome:
    facts = exchange.facts
    facts.tier, facts.provider, facts.model = answer.tier, answer.provider, answer.model
    facts.first_byte_at, facts.saved = now, answer.usage
    exchange.note(now, Shared(how=Sharing.REPLAYED))
    give(exchange, answer.status, answer.phrase, answer.lines, answer.length, answer.body)
    return Outcome(OutcomeKind.OK, status=answer.status, committed=True)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
