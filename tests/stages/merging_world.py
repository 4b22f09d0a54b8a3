"""A route that merges, over a provider that is answered by hand: who asks, what was asked, and what came of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from proxy.decisions.answers import Answers
from proxy.decisions.merging import MergeSettings
from proxy.dialects.lookup import operation_of
from proxy.exchange import Exchange, Usage
from proxy.outcome import KeptAnswer, Outcome, OutcomeKind
from proxy.stages.merging import MergeLanes, MergeScope, MergingStage
from proxy.trace_context import TraceContext
from tests.fakes import Ask, FakeClock, FakeReply, answered, make_exchange, settle, with_attempt

WINDOW = 0.005
JSON = b"content-type: application/json\r\netag: x\r\nset-cookie: a=b\r\n"
EMBEDDINGS = "/v1/embeddings"


class Asked:
    """A call that has reached the provider's side, and waits for the test."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.body: dict[str, Any] = json.loads(exchange.request.body or b"")
        self.end: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.cancelled = False

    @property
    def inputs(self) -> list[Any]:
        """What it asks."""
        value = self.body["input"]
        return value if isinstance(value, list) else [value]

    def begins(self) -> None:
        """Its waits in admission are over."""
        attempt = with_attempt(self.exchange)
        attempt.sent_bytes, attempt.started_at = 10, 1.0
        if self.exchange.on_attempt is not None:
            self.exchange.on_attempt()

    def answers(self, *, tokens: int | None = None) -> None:
        """Answers each input with its own text, in another order than asked."""
        count = tokens if tokens is not None else 10 * len(self.inputs)
        data = [{"object": "embedding", "index": i, "embedding": text} for i, text in enumerate(self.inputs)]
        whole = {
            "object": "list",
            "model": "m1",
            "data": data[::-1],
            "usage": {"prompt_tokens": count, "total_tokens": count},
        }
        self.gives(json.dumps(whole).encode(), usage=Usage(count))

    def gives(self, body: bytes, *, usage: Usage | None = None, lines: bytes = JSON) -> None:
        """Answers with these bytes."""
        exchange = self.exchange
        if not exchange.facts.attempts:
            self.begins()
        facts = exchange.facts
        facts.attempts[-1].usage = facts.usage = usage
        exchange.reply.start(200, b"OK", lines, length=len(body), body=body)
        self.end.set_result(answered())

    def fails(self, status: int, kind: OutcomeKind = OutcomeKind.CALLER_ERROR, **rest: Any) -> None:
        """Fails with an answer that is kept."""
        kept = KeptAnswer(status=status, phrase=b"No", lines=JSON, body=b'{"error":{}}')
        self.end.set_result(Outcome(kind, status=status, answer=kept, **rest))


class Merging:
    """One route's stage; `asked` are the calls below it, in order."""

    def __init__(self, *, window: float = WINDOW, most: int = 8, ledger: Answers | None = None, **scope: Any) -> None:
        self.clock = FakeClock()
        self.ledger = ledger or Answers()
        self.lanes = MergeLanes()
        self.settings = MergeSettings(window=window, max=most)
        self.scope: dict[str, Any] = {"route": b"r", "most": 2048, **scope}
        self.stage = self.new_stage()
        self.asked: list[Asked] = []
        self.came = 0

    def new_stage(self) -> MergingStage:
        """The stage of another policy with the same route."""
        return MergingStage(
            self.settings, MergeScope(**self.scope), lanes=self.lanes, ledger=self.ledger, clock=self.clock
        )

    async def below(self, exchange: Exchange) -> Outcome:
        """The rest of the pipeline."""
        asked = Asked(exchange)
        self.asked.append(asked)
        exchange.facts.tier, exchange.facts.provider, exchange.facts.model = 1, "alpha", "m1"
        try:
            return await asked.end
        except asyncio.CancelledError:
            asked.cancelled = True
            raise

    async def caller(self, value: Any = "x", **rest: Any) -> Caller:
        """Somebody asks."""
        caller = Caller(self, value, **rest)
        await settle()
        return caller

    async def busy(self) -> Caller:
        """Somebody asks first, and is under way: those who come now wait for each other."""
        first = await self.caller("first")
        self.asked[-1].begins()
        return first

    async def passes(self, seconds: float = WINDOW) -> None:
        """Time passes."""
        self.clock.advance(seconds)
        await settle()

    @property
    def idle(self) -> bool:
        """Whether nothing is left of anybody."""
        lanes = [lane for lane in self.lanes.lanes.values() if lane.core.busy or lane.timer is not None]
        return not lanes and not self.ledger.held

    def sizes(self) -> list[int]:
        """How many inputs each call had."""
        return [len(asked.inputs) for asked in self.asked]


class Caller:
    """One who asks, and what it gets."""

    def __init__(  # noqa: PLR0913 - each may differ from all others in any of these
        self,
        world: Merging,
        value: Any = "x",
        *,
        path: str = EMBEDDINGS,
        field: str = "input",
        deadline: float = 100.0,
        tenant: str = "default",
        klass: str = "P1",
        headers: Sequence[tuple[str, str]] = (),
        stage: MergingStage | None = None,
        body: bytes | None = None,
        key: str | None = None,
        **rest: Any,
    ) -> None:
        world.came += 1
        self.value = value
        self.reply = FakeReply()
        self.body = body if body is not None else json.dumps({"model": "m1", field: value, **rest}).encode()
        ask = Ask(target=path, body=self.body, klass=klass, headers=headers)
        exchange = self.exchange = make_exchange(ask, now=world.clock.now(), reply=self.reply)
        exchange.document = json.loads(self.body)
        exchange.model = "m1"
        exchange.operation = operation_of(path)
        exchange.dialect = exchange.operation.dialect if exchange.operation is not None else None
        exchange.idempotency_key = key
        exchange.deadline_at = world.clock.now() + deadline
        exchange.facts.tenant = tenant
        self.span = (world.came, 7)
        exchange.facts.trace = TraceContext(
            trace_id=world.came, span_id=7, parent_span_id=0, sampled=True, tracestate="", remote=False
        )
        chosen = stage or world.stage
        self.task = asyncio.ensure_future(_run(chosen, exchange, world))

    @property
    def done(self) -> bool:
        """Whether it was answered, in some way."""
        return self.task.done()

    @property
    def outcome(self) -> Outcome:
        """How it ended for this one."""
        assert self.task.done(), "it still waits"
        return self.task.result()

    @property
    def answer(self) -> dict[str, Any]:
        """What it got."""
        assert self.reply.end == "finished"
        found = json.loads(self.reply.body)
        assert isinstance(found, dict)
        return found

    @property
    def texts(self) -> list[Any]:
        """What it got of the embeddings, by their index."""
        data = sorted(self.answer["data"], key=lambda one: one["index"])
        assert [one["index"] for one in data] == list(range(len(data)))
        return [one["embedding"] for one in data]

    async def leaves(self) -> None:
        """Goes."""
        self.task.cancel()
        await settle()


async def _run(stage: MergingStage, exchange: Exchange, world: Merging) -> Outcome:
    return await stage(exchange, world.below)


async def merged(world: Merging, *values: Any, **rest: Any) -> tuple[list[Caller], Asked]:
    """Several who travel together, and their call."""
    await world.busy()
    callers = [await world.caller(value, **rest) for value in values]
    await world.passes()
    asked = world.asked[-1]
    assert asked.exchange not in [caller.exchange for caller in callers]
    asked.begins()
    return callers, asked


async def over(world: Merging) -> None:
    """The one who came first is answered, too; then nothing is left."""
    world.asked[0].answers()
    await settle()
    assert world.idle, world.lanes.lanes


def events(caller: Caller) -> list[object]:
    """What was noted of a caller."""
    return [event for _, event in caller.exchange.facts.events]
