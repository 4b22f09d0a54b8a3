"""Several addresses of one provider: load, ejection, waiting and reloads, seen from both sides of the proxy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.caller import HOST, Answer
from tests.integration.harness import Lab, ProxyProcess
from tests.integration.messages import CHAT, DONE, answers, event, resets, says, streams, when
from tests.integration.scripted import Exchange, ScriptedProvider

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONG = {"first": "60s", "cap": "60s"}
SHORT = {"first": "400ms", "cap": "400ms"}
PATIENT = {"answer": "20s", "queue": "10s"}
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "even": {"timeouts": PATIENT},
        "shared": {"limits": {"concurrency": 3}, "timeouts": PATIENT},
        "narrow": {"connections": {"max": 1}, "timeouts": PATIENT, "breaker": {"consecutive": 1, "open": LONG}},
        "fragile": {"breaker": {"consecutive": 1, "open": LONG}, "timeouts": PATIENT},
        "returns": {"breaker": {"consecutive": 1, "open": SHORT, "probes": 1}, "timeouts": PATIENT},
        "shut": {"breaker": {"consecutive": 1, "open": LONG}, "timeouts": PATIENT},
        "empties": {"limits": {"concurrency": 2}, "breaker": {"consecutive": 1, "open": LONG}, "timeouts": PATIENT},
        "plain": {"breaker": "off"},
        "grows": {"timeouts": PATIENT},
        "watched": {"mode": "observe", "breaker": {"consecutive": 1, "open": LONG}, "timeouts": PATIENT},
    },
}


class Twins:
    """A lab in which every provider has a second address: `lab[name]` is the first, `second[name]` the other."""

    def __init__(self, lab: Lab, second: Mapping[str, ScriptedProvider]) -> None:
        self.lab = lab
        self.second = second

    def of(self, name: str) -> tuple[ScriptedProvider, ScriptedProvider]:
        """Returns both addresses of a provider."""
        return self.lab[name], self.second[name]

    async def ask(self, name: str, *, stream: bool = False, tries: int = 3) -> Answer:
        """Makes one call, for which the proxy may ask so many times."""
        headers = [("x-stainless-retry-count", str(3 - tries))]
        path = f"/{name}/v1/chat/completions"
        return await self.lab.call(path, {**CHAT, "stream": stream}, headers=headers, within=20)

    async def waits(self, name: str) -> None:
        """Returns when somebody waits for this provider."""
        await self.proxy.until(lambda status: any(q["provider"] == name and q["waiting"] for q in status["queues"]))

    async def crowd(self, name: str, number: int) -> list[Answer]:
        """Makes so many calls at once."""
        return await asyncio.gather(*(self.ask(name) for _ in range(number)))

    async def states(self, name: str) -> list[str]:
        """Returns the states of the breakers of the model that the calls ask for, address by address."""
        rows = (await self.proxy.status())["breakers"]
        found = {row["address"]: row["state"] for row in rows if (row["provider"], row["model"]) == (name, "m")}
        return [found.get(f"http://{HOST}:{one.port}", "") for one in self.of(name)]

    @property
    def proxy(self) -> ProxyProcess:
        return self.lab.proxy


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def twins() -> AsyncIterator[Twins]:
    policy = json.loads(json.dumps(POLICY))
    async with AsyncExitStack() as stack:
        second = {name: await stack.enter_async_context(ScriptedProvider()) for name in policy["providers"]}
        for name, provider in policy["providers"].items():
            provider["base_url"] = [f"http://{HOST}:{{port}}/v1", f"http://{HOST}:{second[name].port}/v1"]
        lab = await stack.enter_async_context(Lab(policy))
        yield Twins(lab, second)


async def test_calls_go_to_the_address_that_has_fewer_and_each_hears_its_own_name(twins: Twins) -> None:
    gate = asyncio.Event()
    for one in twins.of("even"):
        one.script = when(gate, says("hi"))
    calls = asyncio.ensure_future(twins.crowd("even", 6))
    await asyncio.gather(*(one.has_seen(3) for one in twins.of("even")))
    gate.set()
    found = await calls
    assert [answer.status for answer in found] == [200] * 6
    assert {answer.provider for answer in found} == {"even"}
    for one in twins.of("even"):
        assert one.peak == 3
        assert {request.header("host") for request in one.seen} == {f"{HOST}:{one.port}"}


async def test_a_limit_is_the_providers_not_an_addresss(twins: Twins) -> None:
    running = peak = 0

    async def script(exchange: Exchange) -> None:
        nonlocal running, peak
        running, peak = running + 1, max(peak, running + 1)
        await asyncio.sleep(0.1)
        running -= 1
        await exchange.reply(200, b"ok")

    for one in twins.of("shared"):
        one.script = script
    assert [answer.status for answer in await twins.crowd("shared", 9)] == [200] * 9
    assert peak == 3
    assert all(one.seen for one in twins.of("shared"))


async def test_a_failing_address_is_ejected_alone_and_a_retry_goes_to_the_other(twins: Twins) -> None:
    first, second = twins.of("fragile")
    first.script = resets
    found = [await twins.ask("fragile") for _ in range(6)]
    assert [answer.status for answer in found] == [200] * 6
    assert len(first.seen) == 1
    assert len(second.seen) == 6
    assert await twins.states("fragile") == ["open", "closed"]


async def test_an_ejected_address_comes_back_by_its_probes(twins: Twins) -> None:
    first, _ = twins.of("returns")
    first.script = answers(503)
    for _ in range(2):
        assert (await twins.ask("returns")).status == 200
    assert (await twins.states("returns"))[0] == "open"
    first.script = says("back")
    first.forget()
    async with asyncio.timeout(10):
        while await twins.states("returns") != ["closed", "closed"]:
            assert (await twins.ask("returns")).status == 200
    assert first.seen


async def test_when_all_are_ejected_calls_are_refused_until_the_first_returns(twins: Twins) -> None:
    for one in twins.of("shut"):
        one.script = answers(500)
    await twins.ask("shut")
    assert await twins.states("shut") == ["open", "open"]
    answer = await twins.ask("shut")
    assert (answer.status, answer.reason, answer.attempts) == (503, "breaker_open", 0)
    assert 50 < int(answer.header("retry-after") or 0) <= 72
    assert sum(len(one.seen) for one in twins.of("shut")) == 2


async def test_who_waits_goes_on_at_the_address_that_is_left(twins: Twins) -> None:
    first, second = twins.of("narrow")
    gate = asyncio.Event()
    first.script, second.script = when(gate, answers(503)), says("hi", after=0.2)
    calls = [asyncio.ensure_future(twins.ask("narrow")) for _ in range(2)]
    await first.has_seen(1)
    await second.has_seen(1)
    calls += [asyncio.ensure_future(twins.ask("narrow")) for _ in range(3)]
    gate.set()
    assert [answer.status for answer in await asyncio.gather(*calls)] == [200] * 5
    assert (len(first.seen), first.peak, second.peak) == (1, 1, 1)


async def test_waiters_are_released_only_when_no_address_is_left(twins: Twins) -> None:
    first, second = twins.of("empties")
    gates = asyncio.Event(), asyncio.Event()
    first.script, second.script = when(gates[0], answers(503)), when(gates[1], answers(503))
    running = [asyncio.ensure_future(twins.ask("empties", tries=1)) for _ in range(2)]
    await first.has_seen(1)
    await second.has_seen(1)
    waiter = asyncio.ensure_future(twins.ask("empties"))
    await twins.waits("empties")
    gates[0].set()
    ended, running_still = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    assert [(await one).status for one in ended] == [503]
    await second.has_seen(2)
    assert await twins.states("empties") == ["open", "closed"]
    late = asyncio.ensure_future(twins.ask("empties"))
    await twins.waits("empties")
    gates[1].set()
    assert [(await one).status for one in (*running_still, waiter)] == [503, 503]
    answer = await late
    assert (answer.status, answer.reason, answer.attempts) == (503, "breaker_open", 0)


async def test_a_stream_ends_at_the_address_at_which_it_began(twins: Twins) -> None:
    for one in twins.of("plain"):
        one.script = streams(event("a"), event("b"), DONE, gap=0.05)
    found = await asyncio.gather(*(twins.ask("plain", stream=True) for _ in range(4)))
    assert all(answer.complete and answer.body.endswith(DONE) for answer in found)
    assert all(one.seen for one in twins.of("plain"))


async def test_an_observed_breaker_ejects_nobody_while_all_are_open(twins: Twins) -> None:
    for one in twins.of("watched"):
        one.script = answers(500)
    for _ in range(2):
        await twins.ask("watched")
    for one in twins.of("watched"):
        one.script = says("hi")
    assert (await twins.ask("watched")).status == 200
    rows = [row for row in (await twins.proxy.status())["observed"] if row["provider"] == "watched"]
    assert rows[0]["would_breaker_open"] >= 1


async def test_an_address_comes_and_goes_by_a_reload_without_a_call_failing(twins: Twins) -> None:
    first, second = twins.of("grows")
    alone = json.loads(json.dumps(twins.lab.policy))
    alone["providers"]["grows"]["base_url"] = f"http://{HOST}:{first.port}/v1"
    for one in (first, second):
        one.script = says("hi", after=0.05)
    both = await twins.crowd("grows", 4)
    twins.proxy.rewrite(alone)
    await revision(twins, 2)
    second.forget()
    one_left = await twins.crowd("grows", 4)
    assert second.seen == []
    twins.proxy.rewrite(twins.lab.policy)
    await revision(twins, 3)
    again = await twins.crowd("grows", 4)
    assert second.seen
    assert {answer.status for answer in (*both, *one_left, *again)} == {200}


async def revision(twins: Twins, wanted: int) -> None:
    """Waits until so many policies have been live."""
    async with asyncio.timeout(10):
        while (await twins.proxy.get("/policy")).json()["revision"] < wanted:
            await asyncio.sleep(0.02)
