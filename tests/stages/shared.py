"""A call that is answered as a test says, step by step, and the callers who share it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from proxy.decisions.answers import Answers
from proxy.dialects.lookup import operation_of
from proxy.exchange import Exchange
from proxy.outcome import Outcome, OutcomeKind
from proxy.stages.shared_call import SharedCall
from tests.fakes import Ask, FakeClock, FakeReply, answered, make_exchange, settle, with_attempt

EVENTS = b"content-type: text/event-stream\r\n"
STREAM = Ask(stream=True, body=b'{"model":"m1","stream":true}')


class Script:
    """The rest of the pipeline: an attempt is under way; the test writes its answer and lets it end."""

    def __init__(self) -> None:
        self.works: list[Exchange] = []
        self._end: asyncio.Future[Callable[[], Outcome]] | None = None
        self.cancelled = 0

    async def __call__(self, exchange: Exchange) -> Outcome:
        """Waits for the test."""
        self.works.append(exchange)
        exchange.facts.tier, exchange.facts.provider, exchange.facts.model = 2, "alpha", "m1"
        attempt = with_attempt(exchange)
        attempt.sent_bytes, attempt.started_at = 10, 1.0
        self._end = asyncio.get_running_loop().create_future()
        try:
            return (await self._end)()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    @property
    def work(self) -> Exchange:
        """The only call."""
        (work,) = self.works
        return work

    def begin(self, lines: bytes = EVENTS, *, length: int | None = None) -> None:
        """Begins an answer."""
        self.work.reply.start(200, b"OK", lines, length=length)

    def write(self, piece: bytes) -> None:
        """Goes on with it."""
        self.work.reply.write(piece)

    def answer(self, body: bytes = b"hi") -> None:
        """Answers in one piece, and ends in the same step, as a transport does."""

        def last_step() -> Outcome:
            self.work.reply.start(200, b"OK", b"x-up: 1\r\n", length=len(body), body=body)
            return answered()

        assert self._end is not None
        self._end.set_result(last_step)

    def finish(self) -> None:
        """Ends an answer well."""
        self.work.reply.finish()
        self.end(answered())

    def end(self, outcome: Outcome | Exception) -> None:
        """Ends the call."""
        assert self._end is not None
        if isinstance(outcome, Outcome):
            self._end.set_result(lambda: outcome)
        else:
            self._end.set_exception(outcome)


class Shared:
    """One shared call over a script."""

    def __init__(self, *, ledger: Answers | None = None) -> None:
        self.clock = FakeClock()
        self.ledger = ledger or Answers()
        self.script = Script()
        self.ended: list[SharedCall] = []
        self.heard_of_it = 0
        """How many calls had been cancelled when the end was told."""
        self.call: SharedCall | None = None

    async def caller(self, ask: Ask = STREAM, *, deadline_at: float = 2000.0) -> Caller:
        """Somebody comes: the first makes the call, the others join it."""
        caller = Caller(ask, now=self.clock.now(), deadline_at=deadline_at)
        if self.call is None:
            self.call = SharedCall(caller.exchange, self.script, ledger=self.ledger, clock=self.clock, ended=self._end)
        caller.task = asyncio.ensure_future(self.call.serve(caller.exchange))
        await settle()
        return caller

    def _end(self, call: SharedCall) -> None:
        self.ended.append(call)
        self.heard_of_it = self.script.cancelled


class Caller:
    """One of those who share it."""

    task: asyncio.Future[Outcome]

    def __init__(self, ask: Ask, *, now: float, deadline_at: float) -> None:
        self.reply = FakeReply()
        self.exchange = make_exchange(ask, now=now, reply=self.reply)
        self.exchange.deadline_at = deadline_at
        self.exchange.operation = operation_of("/v1/chat/completions")

    async def outcome(self) -> Outcome:
        """How it ended for this one."""
        await settle()
        assert self.task.done(), "it still waits"
        return self.task.result()

    async def leaves(self) -> None:
        """Goes."""
        self.task.cancel()
        await settle()
        assert self.task.cancelled()


def failed_silently(kind: OutcomeKind = OutcomeKind.DISCONNECTED) -> Outcome:
    """A call that was sent and never answered."""
    return Outcome(kind, maybe_executed=True)
