"""Several addresses: refused before any wait when all are shut, chosen after it, and left whatever happens."""

from __future__ import annotations

import asyncio

import pytest

from proxy.decisions.addresses import Addresses, Hall, Openings, Site, Way
from proxy.exchange import Exchange
from proxy.outcome import Outcome, OutcomeKind, Reason
from proxy.stages.addresses import AddressChoice, AddressGate
from tests.fakes import FakeClock, answered, make_exchange, settle, with_attempt
from tests.scripted import ScriptedTerminal
from tests.stages.world import BREAKER, WatchedBreaker, failed, tripped


class Two:
    """Two addresses of alpha, each with a breaker and a terminal."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.breakers = [WatchedBreaker(), WatchedBreaker()]
        self.sites = [Site((name, 80), 5) for name in ("a", "b")]
        ways = [Way(site=site, breaker=breaker) for site, breaker in zip(self.sites, self.breakers, strict=True)]
        openings = Openings("addresses alpha", Hall())
        openings.reconfigure(ways)
        self.told = 0
        self.addresses = Addresses(openings, ways, on_room=self._told)
        self.terminals = [ScriptedTerminal(), ScriptedTerminal()]
        self.gate = AddressGate(self.addresses, clock=self.clock)
        self.choice = AddressChoice(self.addresses, self.terminals, provider="alpha", clock=self.clock)

    def _told(self) -> None:
        self.told += 1

    @property
    def calls(self) -> list[int]:
        return [len(terminal.calls) for terminal in self.terminals]

    @property
    def load(self) -> list[int]:
        return [site.in_use for site in self.sites]


async def test_calls_go_to_one_after_the_other_and_leave_it_when_they_end() -> None:
    two = Two()
    for _ in range(4):
        await two.choice(make_exchange())
    assert two.calls == [2, 2]
    assert (two.load, two.told) == ([0, 0], 4)


async def test_a_running_call_counts_where_it_is() -> None:
    two, gone = Two(), asyncio.Event()

    async def waits(exchange: Exchange) -> Outcome:
        await gone.wait()
        return answered()

    two.terminals[0] = ScriptedTerminal(waits)
    two.choice = AddressChoice(two.addresses, two.terminals, provider="alpha", clock=two.clock)
    first = asyncio.create_task(two.choice(make_exchange()))
    await settle()
    for _ in range(3):
        await two.choice(make_exchange())
    assert two.calls == [1, 3]
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert two.load == [0, 0]


async def test_another_try_goes_to_an_address_that_has_not_failed_the_request() -> None:
    for name, other in [("a", [0, 1]), ("b", [1, 0])]:
        two, exchange = Two(), make_exchange()
        with_attempt(exchange).address = (name, 80)
        await two.choice(exchange)
        assert two.calls == other


async def test_what_another_provider_failed_at_says_nothing_of_these_addresses() -> None:
    two, exchange = Two(), make_exchange()
    attempt = with_attempt(exchange)
    attempt.address, attempt.provider = ("a", 80), "beta"
    await two.choice(exchange)
    assert two.calls == [1, 0]


async def test_while_one_breaker_lets_go_nobody_is_refused() -> None:
    two = Two()
    tripped(two.breakers[0], two.clock.now())
    terminal = ScriptedTerminal()
    assert (await two.gate(make_exchange(), terminal)).kind is OutcomeKind.OK
    await two.choice(make_exchange())
    assert two.calls == [0, 1]


async def test_when_all_are_open_the_refusal_says_when_the_first_returns() -> None:
    two, terminal = Two(), ScriptedTerminal()
    tripped(two.breakers[1], two.clock.now())
    two.clock.advance(2.0)
    tripped(two.breakers[0], two.clock.now())
    outcome = await two.gate(make_exchange(), terminal)
    assert (outcome.kind, outcome.reason, terminal.calls) == (OutcomeKind.REFUSED, Reason.BREAKER_OPEN, [])
    assert outcome.retry_after == pytest.approx(BREAKER.open_first - 2.0)


async def test_a_failure_is_told_as_it_came() -> None:
    two = Two()
    outcome = failed(503)
    two.choice = AddressChoice(two.addresses, [ScriptedTerminal(outcome)] * 2, provider="alpha", clock=two.clock)
    assert await two.choice(make_exchange()) is outcome
