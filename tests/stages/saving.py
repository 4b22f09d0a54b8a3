"""A route with a cache over a script: who asks, what is kept, and what the rest of the pipeline was asked."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from proxy.decisions.answers import Answers
from proxy.decisions.cacheability import CacheSettings
from proxy.dialects.lookup import operation_of
from proxy.exchange import Exchange
from proxy.observer import ProcessEvent
from proxy.outcome import Outcome
from proxy.ports import Found, StoredAnswer
from proxy.stage import compose
from proxy.stages.observation import ObservationStage
from proxy.stages.refreshing import Refreshes
from proxy.stages.response_cache import CacheCounts, CacheParts, ResponseCacheStage
from proxy.stages.single_flight import Flights, SingleFlightStage
from tests.fakes import Ask, FakeClock, FakeReply, counting_bits, make_exchange, settle
from tests.stages.shared import Script

JSON = b"content-type: application/json\r\n"
BODY = b'{"choices":[]}'
SETTINGS = CacheSettings(ttl=10.0, stale_while_revalidate=20.0)


class Shelf:
    """A store without bounds."""

    def __init__(self) -> None:
        self.kept: dict[bytes, tuple[StoredAnswer, float, str, float]] = {}

    async def find(self, name: bytes, now: float) -> Found | None:
        """Finds what was kept."""
        if (entry := self.kept.get(name)) is None:
            return None
        answer, at, _, seconds = entry
        return Found(answer=answer, age=now - at) if now - at <= seconds else None

    def keep(self, name: bytes, answer: StoredAnswer, *, owner: str, seconds: float, now: float) -> None:
        """Keeps."""
        self.kept[name] = (answer, now, owner, seconds)


class ByBody:
    """Requests with the same body are equal; one without a body shares nothing."""

    keyed = frozenset[str]()

    def name(self, exchange: Exchange) -> bytes:
        """The body."""
        return exchange.request.body or b""


class FirstTier(Script):
    """Answers as a route's first tier; `tier` is another one."""

    tier = 1

    async def __call__(self, exchange: Exchange) -> Outcome:
        """Waits for the test."""
        try:
            return await super().__call__(exchange)
        finally:
            exchange.facts.tier = self.tier

    def answer(self, body: bytes = BODY, lines: bytes = JSON) -> None:
        """Answers in one piece."""
        self.work.facts.tier = self.tier
        self.begin(lines, length=len(body))
        self.write(body)
        self.finish()


@dataclass
class Seen:
    """An observer that remembers."""

    ended_ones: list[Exchange] = field(default_factory=list)

    def ended(self, exchange: Exchange) -> None:
        """Remembers."""
        self.ended_ones.append(exchange)

    def happened(self, event: ProcessEvent) -> None:
        """Takes no notice."""


class Saved:
    """The two stages of a route, as assembly puts them together."""

    def __init__(self, settings: CacheSettings = SETTINGS, *, joins: bool = True, most_refreshes: int = 2) -> None:
        self.clock = FakeClock()
        self.shelf, self.counts, self.flights = Shelf(), CacheCounts(), Flights()
        self.ledger, self.seen = Answers(), Seen()
        self.refreshes = Refreshes(self.clock, counting_bits, most=most_refreshes)
        self.script = FirstTier()
        names = ByBody()
        parts = CacheParts(
            store=self.shelf,
            counts=self.counts,
            refreshes=self.refreshes,
            seconds=30.0,
            refresh=ObservationStage(self.seen, rescue=lambda exchange, outcome: None, clock=self.clock),
        )
        self.cache = ResponseCacheStage(settings, names, parts=parts, clock=self.clock)
        flight = SingleFlightStage(
            self.flights, names.name, ledger=self.ledger, clock=self.clock, joins=joins, keep=self.cache.keep
        )
        self.call = compose([self.cache, flight], self.script)

    def exchange(self, body: bytes = b"{}", *, deadline: float = 100.0, **rest: object) -> Exchange:
        """A request that has just come."""
        exchange = make_exchange(Ask(body=body, **rest), now=self.clock.now())  # type: ignore[arg-type]
        exchange.operation = operation_of("/v1/chat/completions")
        exchange.deadline_at = self.clock.now() + deadline
        return exchange

    async def ask(self, body: bytes = b"{}", **rest: object) -> tuple[Exchange, asyncio.Future[Outcome]]:
        """Somebody comes, and gets as far as it can."""
        exchange = self.exchange(body, **rest)  # type: ignore[arg-type]
        task = asyncio.ensure_future(self.call(exchange))
        await settle()
        return exchange, task

    async def kept(self, body: bytes = b"{}", *, answer: bytes = BODY) -> None:
        """An answer is kept."""
        _, task = await self.ask(body)
        self.script.answer(answer)
        await task
        self.script.works.clear()

    @property
    def at_rest(self) -> bool:
        """Whether nothing is left of what has run."""
        return not (self.flights.calls or self.refreshes.running or self.ledger.held)


def body_of(exchange: Exchange) -> bytes:
    """What its caller got."""
    assert isinstance(exchange.reply, FakeReply)
    return exchange.reply.body


def header_of(exchange: Exchange, name: bytes) -> bytes | None:
    """A field of the head that its caller got."""
    assert isinstance(exchange.reply, FakeReply)
    return exchange.reply.header(name)
