"""Admission: the only waiting room. Permit and key are held around the whole call and come back whatever happens."""

from __future__ import annotations

import asyncio

import pytest

from proxy.decisions.admission import Admission
from proxy.decisions.deadline import WaitLimits
from proxy.exchange import Credential, Exchange
from proxy.observer import Waited
from proxy.outcome import Outcome, OutcomeKind, Reason
from proxy.stages.admission import AdmissionStage, Terms
from tests.fakes import Ask, FakeClock, answered, make_exchange, settle
from tests.scripted import ScriptedTerminal
from tests.stages.world import WAITS, Provider, failed


class Bench:
    """One admission stage and calls that hold their permit until they are let go."""

    def __init__(self, *, share: int = 1, keys: str = "", waits: WaitLimits = WAITS) -> None:
        self.clock = FakeClock()
        self.admission = Admission()
        self.provider = Provider("alpha", self.clock, self.admission, share=share, keys=keys)
        self.stage = AdmissionStage(self.admission, self.provider.line, limits=waits, clock=self.clock)
        self.running: list[tuple[Exchange, asyncio.Event]] = []

    def start(self, exchange: Exchange | None = None, outcome: Outcome | None = None) -> asyncio.Task[Outcome]:
        """Starts a call."""

        async def call(exchange: Exchange) -> Outcome:
            let_go = asyncio.Event()
            self.running.append((exchange, let_go))
            await let_go.wait()
            return outcome or answered()

        target = exchange if exchange is not None else make_exchange()
        target.facts.provider = "alpha"
        return asyncio.ensure_future(self.stage(target, call))

    async def let_go(self) -> None:
        """Ends the oldest running call."""
        self.running.pop(0)[1].set()
        await settle()

    async def tick(self, seconds: float) -> None:
        """Lets time pass."""
        self.clock.advance(seconds)
        self.admission.tick(self.clock.now())
        await settle()


async def test_a_permit_is_held_from_the_call_to_its_last_byte() -> None:
    bench = Bench()
    task = bench.start()
    await settle()
    assert bench.provider.places.used == 1
    await bench.let_go()
    assert task.result().kind is OutcomeKind.OK
    assert bench.provider.places.used == 0


async def test_waiters_go_in_their_order_when_a_permit_comes_free_and_their_wait_is_told() -> None:
    bench = Bench()
    exchanges = [make_exchange() for _ in range(3)]
    tasks = [bench.start(exchange) for exchange in exchanges]
    await settle()
    assert [exchange for exchange, _ in bench.running] == exchanges[:1]
    bench.clock.advance(2.0)
    await bench.let_go()
    assert [exchange for exchange, _ in bench.running] == exchanges[1:2]
    assert bench.provider.places.used == 1
    bench.clock.advance(3.0)
    await bench.let_go()
    await bench.let_go()
    assert all(task.done() for task in tasks)
    assert [exchange.facts.queued_seconds for exchange in exchanges] == [0.0, 2.0, 5.0]
    assert exchanges[0].facts.events == []
    assert exchanges[2].facts.events == [(1005.0, Waited(provider="alpha", seconds=5.0, lacking="permit"))]


async def test_a_higher_class_goes_first() -> None:
    bench = Bench()
    first = bench.start()
    await settle()
    later = [make_exchange(Ask(klass=klass)) for klass in ("P2", "P1", "P0")]
    tasks = [bench.start(exchange) for exchange in later]
    await settle()
    order = []
    for _ in range(4):
        order.append(bench.running[0][0].facts.klass)
        await bench.let_go()
    assert order == ["P1", "P0", "P1", "P2"]
    assert all(task.done() for task in [first, *tasks])


async def test_waiting_too_long_is_refused_as_what_was_missing_and_the_call_is_never_made() -> None:
    bench = Bench()
    bench.start()
    await settle()
    waiting = bench.start()
    await settle()
    await bench.tick(9.9)
    assert not waiting.done()
    await bench.tick(0.2)
    outcome = waiting.result()
    assert (outcome.kind, outcome.reason) == (OutcomeKind.REFUSED, Reason.QUEUE_TIMEOUT)
    assert outcome.retry_after is not None
    assert outcome.retry_after >= 1.0
    assert len(bench.running) == 1
    await bench.let_go()


async def test_the_deadline_binds_the_wait() -> None:
    bench = Bench()
    bench.start()
    await settle()
    exchange = make_exchange()
    exchange.deadline_at = bench.clock.now() + 3.0
    waiting = bench.start(exchange)
    await settle()
    await bench.tick(3.1)
    assert waiting.result().kind is OutcomeKind.REFUSED
    await bench.let_go()


async def test_a_full_room_refuses_at_once() -> None:
    bench = Bench()
    tasks = [bench.start() for _ in range(1 + bench.provider.room.max_waiters)]
    await settle()
    outcome = await bench.start()
    assert outcome.reason is Reason.QUEUE_FULL
    assert outcome.retry_after is not None
    for _ in tasks:
        await bench.let_go()
    assert all(task.result().kind is OutcomeKind.OK for task in tasks)


async def test_a_call_gets_a_key_with_its_permit_and_another_one_when_it_comes_again() -> None:
    bench = Bench(keys="a1 a2")
    exchange = make_exchange()
    used: list[str] = []

    async def call(exchange: Exchange) -> Outcome:
        assert exchange.credential is not None
        used.append(exchange.credential.key_id)
        return failed(429)

    for _ in range(2):
        await bench.stage(exchange, call)
        assert exchange.credential is None
    assert sorted(used) == ["a1", "a2"]
    assert exchange.tried_keys == {"a1", "a2"}


async def test_a_429_rests_its_key_and_the_next_call_waits_for_it() -> None:
    bench = Bench(keys="a1")
    limited = Outcome(OutcomeKind.RATE_LIMITED, status=429, retry_after=20.0)
    await bench.stage(make_exchange(), ScriptedTerminal(limited))
    exchange = make_exchange()
    waiting = bench.start(exchange)
    await settle()
    assert not bench.running
    await bench.tick(20.1)
    assert bench.running
    await bench.let_go()
    assert waiting.result().kind is OutcomeKind.OK
    ((_, event),) = exchange.facts.events
    assert isinstance(event, Waited)
    assert (event.provider, event.lacking) == ("alpha", "key")
    assert event.seconds == pytest.approx(20.1)


async def test_keys_that_rest_longer_than_may_be_waited_are_told_at_once() -> None:
    bench = Bench(keys="a1", waits=WaitLimits(queue=10.0, quota_wait=5.0))
    limited = Outcome(OutcomeKind.RATE_LIMITED, status=429, retry_after=20.0)
    await bench.stage(make_exchange(), ScriptedTerminal(limited))
    outcome = await bench.start()
    assert outcome.reason is Reason.KEYS_RESTING
    assert outcome.retry_after == pytest.approx(20.0)


async def test_a_rejected_key_is_parked_and_without_another_one_no_call_is_made() -> None:
    bench = Bench(keys="a1")
    rejected = Outcome(OutcomeKind.CREDENTIAL_REJECTED, status=401, key_fault=True)
    await bench.stage(make_exchange(), ScriptedTerminal(rejected))
    outcome = await bench.start()
    assert (outcome.kind, outcome.reason) == (OutcomeKind.REFUSED, Reason.KEYS_UNUSABLE)
    assert not bench.running


HERE, ELSEWHERE = ("https://here:443",), ("https://elsewhere:443", "https://here:443")


@pytest.mark.parametrize(
    ("audience", "known", "sent"),
    [
        (HERE, {"k": b"old"}, b"new"),
        (ELSEWHERE, {"k": b"old", "other": b"oldest"}, b"old"),
        (ELSEWHERE, {"gone": b"old"}, b"old"),
    ],
    ids=["renewed", "moved", "moved under another id"],
)
async def test_a_key_that_was_renewed_for_other_addresses_is_not_sent_to_these(
    audience: tuple[str, ...], known: dict[str, bytes], sent: bytes
) -> None:
    bench = Bench(keys="k")
    ring = bench.provider.line.ring
    assert ring is not None
    ring.keys[0].renew(Credential(key_id="k", header=(b"x-key", b"new"), audience=audience), "another secret")
    ours = {name: Credential(key_id=name, header=(b"x-key", value), audience=HERE) for name, value in known.items()}
    terms = Terms(audience=(*HERE,), credentials=ours)
    stage = AdmissionStage(bench.admission, bench.provider.line, limits=WAITS, clock=bench.clock, terms=terms)
    seen: list[bytes] = []

    async def call(exchange: Exchange) -> Outcome:
        assert exchange.credential is not None
        seen.append(exchange.credential.line)
        return Outcome(OutcomeKind.RATE_LIMITED, retry_after=30.0)

    await stage(make_exchange(), call)
    assert seen == [b"x-key: " + sent + b"\r\n"]
    # What the old secret met says nothing about the new one.
    assert (ring.statistics(bench.clock.now())[0].rests_for > 0) is (sent == b"new")


async def test_a_bug_below_gives_the_permit_back() -> None:
    bench = Bench(keys="a1")
    exchange = make_exchange()
    with pytest.raises(LookupError):
        await bench.stage(exchange, ScriptedTerminal(LookupError()))
    assert bench.provider.places.used == 0
    assert exchange.credential is None
