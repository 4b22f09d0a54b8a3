"""Classification and memory: what a body counts, when it is given back, which may be sent again, and large ones."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence

import orjson
import pytest

from proxy.decisions.bodies import BodyMemory, BodySettings
from proxy.decisions.classification import Router
from proxy.dialects.demand import demand_of, measure
from proxy.exchange import Exchange
from proxy.outcome import Outcome, OutcomeKind, Reason, refused
from proxy.stage import compose
from proxy.stages.classification import MOST_NESTS, Classification
from proxy.stages.observation import ObservationStage
from tests.fakes import Ask, FakeClock, FakeUpload, answered, make_exchange, settle
from tests.scripted import ManualObserver, ScriptedTerminal, Step
from tests.stages.world import make_plan

JSON = (("content-type", "application/json"),)
CHAT = b'{"model":"gpt-x"}'


class Reading:
    """A classification over one route, with a memory of 100 bytes, 50 of which may be sent again."""

    def __init__(self, *script: Step, body_max: int = 1000, body_replay: int = 1000) -> None:
        self.memory = BodyMemory(BodySettings(replay=50, most=100))
        self.seen: list[tuple[int, bool]] = []
        self.terminal = ScriptedTerminal(*script)

        async def call(exchange: Exchange) -> Outcome:
            self.seen.append((self.memory.held, exchange.replayable))
            return await self.terminal(exchange)

        plan = make_plan(call, body_max=body_max)
        plan.body_replay = body_replay
        observation = ObservationStage(ManualObserver(), rescue=lambda exchange, outcome: None, clock=FakeClock())
        router = Router([plan], by_provider={}, default=None)
        self.stage = compose([observation], Classification(router, self.memory))

    async def read(self, *pieces: bytes, gate: asyncio.Event | None = None, length: int | None = None) -> Outcome:
        """Classifies a request with this body."""
        upload = FakeUpload(pieces, gate=gate, length=length)
        return await self.stage(make_exchange(Ask(headers=JSON, upload=upload)))


async def test_a_body_counts_while_its_request_lasts() -> None:
    reading = Reading()
    assert (await reading.read(CHAT)).kind is OutcomeKind.OK
    assert reading.seen == [(len(CHAT), True)]
    assert reading.memory.held == 0


@pytest.mark.parametrize("script", [refused(Reason.QUEUE_FULL), RuntimeError("a bug")], ids=repr)
async def test_it_counts_no_longer_however_the_request_ends(script: Step) -> None:
    reading = Reading(script)
    await reading.read(CHAT)
    assert reading.memory.held == 0


@pytest.mark.parametrize("pieces", [[b"x" * 30, b"x" * 30], [b"x" * 60]], ids=["grown", "at once"])
async def test_a_body_that_is_refused_counts_no_longer(pieces: Sequence[bytes]) -> None:
    reading = Reading(body_max=50)
    gate = asyncio.Event()
    reading_on = asyncio.ensure_future(reading.read(*pieces, gate=gate))
    await settle()
    gate.set()
    assert (await reading_on).reason is Reason.BODY_TOO_LARGE
    assert reading.memory.held == 0


async def test_a_caller_that_leaves_at_any_moment_leaves_nothing_counted() -> None:
    class Slowly(FakeUpload):
        """A body whose every piece is a moment away."""

        @property
        def complete(self) -> bool:
            """Never."""
            return False

        async def read(self) -> bytes:
            """Returns the next piece a moment later."""
            await asyncio.sleep(0)
            return await super().read()

    async def lasts(exchange: Exchange) -> Outcome:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return answered()

    left_with: set[int] = set()
    for moment in range(12):
        reading = Reading(lasts)
        upload = Slowly([CHAT[:5], CHAT[5:]])
        task = asyncio.ensure_future(reading.stage(make_exchange(Ask(headers=JSON, upload=upload))))
        for _ in range(moment):
            await asyncio.sleep(0)
        left_with.add(reading.memory.held)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert reading.memory.held == 0
    assert left_with == {0, 5, len(CHAT)}


async def test_a_body_larger_than_the_routes_replay_is_sent_once() -> None:
    for replay, again in [(len(CHAT), True), (len(CHAT) - 1, False)]:
        reading = Reading(body_replay=replay)
        await reading.read(CHAT)
        assert reading.seen == [(len(CHAT), again)]


async def test_a_body_that_comes_when_memory_is_crowded_is_sent_once() -> None:
    reading = Reading()
    reading.memory.held = 50 - len(CHAT)
    await reading.read(CHAT)
    reading.memory.held += 1
    await reading.read(CHAT)
    assert reading.seen == [(50, True), (51, False)]


@pytest.mark.parametrize("arrived", [True, False], ids=["whole", "arriving"])
async def test_a_body_for_which_there_is_no_room_is_refused_and_told_when_to_come_again(arrived: bool) -> None:
    reading = Reading()
    reading.memory.held = 90
    gate = None if arrived else asyncio.Event()
    task = asyncio.ensure_future(reading.read(CHAT[:9], CHAT[9:], gate=gate))
    await settle()
    if gate is not None:
        gate.set()
    outcome = await task
    assert (outcome.kind, outcome.reason, outcome.retry_after) == (OutcomeKind.REFUSED, Reason.QUEUE_FULL, 1.0)
    assert "memory" in outcome.detail
    assert reading.seen == []
    assert reading.memory.held == 90


async def test_a_body_that_is_alone_is_taken_to_its_end_however_large() -> None:
    reading = Reading()
    gate = asyncio.Event()
    task = asyncio.ensure_future(reading.read(b"x" * 90, b"x" * 90, gate=gate))
    await settle()
    gate.set()
    assert (await task).kind is OutcomeKind.OK
    assert reading.seen == [(180, False)]


async def test_a_body_announced_to_be_too_much_is_refused_unread() -> None:
    reading = Reading()
    reading.memory.held = 90
    outcome = await reading.read(CHAT, gate=asyncio.Event(), length=len(CHAT))
    assert outcome.reason is Reason.QUEUE_FULL


async def test_a_body_that_is_forgotten_counts_no_longer_and_once() -> None:
    counted: list[int] = []

    async def sent(exchange: Exchange) -> Outcome:
        for _ in range(2):
            exchange.forget_body()
            counted.append(reading.memory.held)
        assert (exchange.payload, exchange.document, exchange.request.body) == (None, None, None)
        return answered()

    reading = Reading(sent)
    reading.memory.held = 7
    await reading.read(CHAT)
    assert counted == [7, 7]
    assert reading.memory.held == 7


def large(**rest: object) -> bytes:
    """Returns a chat that is too large to be kept as objects."""
    messages = [{"role": "user", "content": "hello"}] * 3000
    return orjson.dumps({"messages": messages, "max_tokens": 7, "n": 2, "stop": [["x"]], **rest})


async def understood(body: bytes, *, needs_document: bool = False) -> tuple[Outcome, Exchange]:
    """Classifies a chat, on a route that changes it or not."""
    plan = make_plan(ScriptedTerminal(answered()), body_max=1 << 30)
    plan.needs_document = needs_document
    exchange = make_exchange(Ask(headers=JSON, body=body))
    outcome = await Classification(Router([plan], by_provider={}, default=None), BodyMemory())(exchange)
    return outcome, exchange


async def test_of_a_large_body_only_what_tiers_ask_for_is_kept_as_objects() -> None:
    body = large(model="m", stream=True, stream_options={"include_usage": True})
    _, exchange = await understood(body)
    assert exchange.document == {"model": "m", "stream": True, "stream_options": {"include_usage": True}}
    assert (exchange.model, exchange.facts.stream, exchange.request.body) == ("m", True, body)
    _, exchange = await understood(large())
    assert (exchange.document, exchange.model) == ({}, None)


async def test_what_a_large_body_asks_for_is_read_before_its_objects_go() -> None:
    body = large(model="m")
    _, exchange = await understood(body)
    assert demand_of(exchange) == measure(orjson.loads(body), len(body))


async def test_a_small_body_stays_as_it_is_read() -> None:
    _, exchange = await understood(b'{"model":"m","messages":[],"stop":["x"]}')
    assert exchange.document == {"model": "m", "messages": [], "stop": ["x"]}


@pytest.mark.parametrize("body", [large(), large()[:-1], b"[" * 70_000, orjson.dumps(["x" * 70_000])])
@pytest.mark.parametrize("collects", [True, False])
async def test_the_collector_is_as_it_was_after_a_large_body(body: bytes, collects: bool) -> None:
    (gc.enable if collects else gc.disable)()
    try:
        await understood(body)
        assert gc.isenabled() is collects
    finally:
        gc.enable()


async def test_the_collector_does_not_look_at_a_large_body_again_and_again() -> None:
    body = b'{"model":"m","messages":[' + b"[]," * 100_000 + b"[]]}"
    seen: list[str] = []

    def look(phase: str, info: dict[str, int]) -> None:
        seen.append(phase)

    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    gc.callbacks.append(look)
    try:
        await understood(body)
    finally:
        gc.callbacks.remove(look)
        gc.set_threshold(*before)
    # A hundred thousand lists would be worth more than a hundred looks.
    assert seen.count("start") < 10


async def test_a_body_of_millions_of_lists_is_read_by_nobody() -> None:
    flood = b'{"model":"m","messages":[' + b"[]," * MOST_NESTS + b"[]]}"
    outcome, exchange = await understood(flood)
    assert outcome.kind is OutcomeKind.OK
    assert (exchange.document, exchange.request.body) == (None, flood)
    outcome, _ = await understood(flood, needs_document=True)
    assert (outcome.reason, "4 million" in outcome.detail) == (Reason.BAD_REQUEST, True)
    text = b'{"model":"m","messages":[{"role":"user","content":"' + b"[1] " * (MOST_NESTS // 2) + b'"}]}'
    assert len(text) > 2 * MOST_NESTS - 100
    _, exchange = await understood(text + b" " * 200)
    assert exchange.model == "m"
