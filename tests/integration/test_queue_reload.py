"""A reload while calls wait, each provider in another way: who waits keeps its place, its time and its policy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.caller import Answer
from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT, said
from tests.integration.scripted import Exchange

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATIENT = {"queue": "60s", "quota_wait": "60s"}
ONE = {"limits": {"concurrency": 1}, "timeouts": PATIENT}
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "raised": ONE,
        "lowered": {**ONE, "limits": {"concurrency": 3}},
        "gone": ONE,
        "old": ONE,
        "shorter": {**ONE, "queue": {"max": 3}},
        "hastier": ONE,
        "keyed": {"keys": [{"id": "a", "env": "KEY_A"}], "timeouts": PATIENT},
    },
    "routes": [route("some-model", "raised")],
}


def changed(policy: dict[str, Any]) -> dict[str, Any]:
    """The policy that goes live while calls wait."""
    providers = dict(policy["providers"])
    providers["raised"] = {**providers["raised"], "limits": {"concurrency": 3}}
    providers["lowered"] = {**providers["lowered"], "limits": {"concurrency": 1}}
    del providers["gone"]
    providers["new"] = {**providers.pop("old"), "was": "old"}
    providers["shorter"] = {**providers["shorter"], "queue": {"max": 1}}
    providers["hastier"] = {**providers["hastier"], "timeouts": {"queue": "50ms"}}
    keys = [*providers["keyed"]["keys"], {"id": "b", "env": "KEY_B"}]
    providers["keyed"] = {**providers["keyed"], "keys": keys}
    return {**policy, "providers": providers}


class Door:
    """A provider whose calls end when they are told to, one at a time."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.lab = lab
        self.name = name
        self.provider = lab[name]
        self.provider.script = self.script
        self.ends = asyncio.Semaphore(0)
        self.calls: list[asyncio.Task[Answer]] = []

    async def script(self, exchange: Exchange) -> None:
        """Answers when it may."""
        await self.ends.acquire()
        await exchange.reply(200, said("done"))

    def call(self, name: str = "") -> asyncio.Task[Answer]:
        """One more call, which says which one it is."""
        target = f"/{name or self.name}/v1/x?n={len(self.calls)}"
        self.calls.append(asyncio.ensure_future(self.lab.call(target, CHAT, within=60)))
        return self.calls[-1]

    async def waiting(self, count: int, name: str = "") -> None:
        """Waits until so many wait."""
        rows = (name or self.name, count)
        await self.lab.proxy.until(lambda s: rows in [(row["provider"], row["waiting"]) for row in s["queues"]])

    async def fills(self, running: int) -> None:
        """Lets so many run, and two wait behind them."""
        for _ in range(running):
            self.call()
        await self.provider.has_seen(running)
        for number in (1, 2):
            self.call()
            await self.waiting(number)

    async def ends_well(self) -> None:
        """Lets all end; nobody's call has failed."""
        for _ in self.calls:
            self.ends.release()
        assert {answer.status for answer in await asyncio.gather(*self.calls)} <= {200}

    @property
    def order(self) -> list[int]:
        """The numbers of the calls, as they came to the provider."""
        return [int(request.target.rpartition(b"=")[2]) for request in self.provider.seen]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def doors() -> AsyncIterator[dict[str, Door]]:
    """At each provider some run and two wait; then another policy has gone live."""
    async with Lab(POLICY, env={"KEY_A": "sk-a", "KEY_B": "sk-b"}) as lab:
        doors = {name: Door(lab, name) for name in POLICY["providers"]}
        for name, door in doors.items():
            if name != "keyed":
                await door.fills(3 if name == "lowered" else 1)
        await keys_rest(doors["keyed"])
        lab.proxy.rewrite(changed(lab.policy))
        async with asyncio.timeout(20):
            while (await lab.proxy.get("/policy")).json()["revision"] != 2:
                await asyncio.sleep(0.02)
        yield doors
        for door in doors.values():
            await door.ends_well()


async def keys_rest(door: Door) -> None:
    """The provider's only key is told to rest for longer than this takes."""

    async def limited(exchange: Exchange) -> None:
        await exchange.reply(429, {}, headers=[("retry-after", "50")])

    door.provider.script = limited
    await door.lab.call("/keyed/v1/x", CHAT, headers=[("x-stainless-retry-count", "9")])
    door.provider.script = door.script
    door.provider.forget()
    door.call()
    await door.waiting(1)


async def test_a_limit_that_is_raised_lets_who_waits_go_at_once(doors: dict[str, Door]) -> None:
    door = doors["raised"]
    await door.provider.has_seen(3)
    # Both go at once, each on a connection of its own: which of them the provider sees first, nobody decides.
    assert sorted(door.order) == [0, 1, 2]
    await door.ends_well()


async def test_a_limit_under_what_is_in_use_lets_nobody_go_until_use_has_fallen(doors: dict[str, Door]) -> None:
    door = doors["lowered"]
    for _ in range(2):
        door.ends.release()
    await door.lab.proxy.until(lambda s: ("provider lowered", 1, 1) in permits(s))
    await door.waiting(2)
    assert len(door.provider.seen) == 3
    door.ends.release()
    await door.provider.has_seen(4)
    assert door.provider.active == 1
    await door.ends_well()
    assert door.order[3:] == [3, 4]


async def test_who_waits_for_a_provider_that_is_gone_still_gets_its_answer(doors: dict[str, Door]) -> None:
    door = doors["gone"]
    assert (await door.lab.call("/gone/v1/x", CHAT)).status == 404
    door.ends.release()
    await door.provider.has_seen(2)
    await door.ends_well()
    assert door.order == [0, 1, 2]
    assert {answer.provider for answer in (call.result() for call in door.calls)} == {"gone"}


async def test_who_waits_under_an_old_name_goes_before_who_comes_under_the_new_one(doors: dict[str, Door]) -> None:
    door = doors["old"]
    door.call("new")
    await door.waiting(3, "new")
    assert len(door.provider.seen) == 1
    await door.ends_well()
    assert door.order == [0, 1, 2, 3]
    assert [call.result().provider for call in door.calls] == ["old", "old", "old", "new"]
    assert door.provider.peak == 1


async def test_a_queue_that_is_shorter_now_turns_only_newcomers_away(doors: dict[str, Door]) -> None:
    door = doors["shorter"]
    answer = await door.lab.call("/shorter/v1/x", CHAT)
    assert (answer.status, answer.reason) == (429, "queue_full")
    await door.waiting(2)
    await door.ends_well()


async def test_who_waits_keeps_the_time_that_it_was_given(doors: dict[str, Door]) -> None:
    door = doors["hastier"]
    answer = await door.lab.call("/hastier/v1/x", CHAT)
    assert (answer.status, answer.reason) == (429, "queue_timeout")
    await door.waiting(2)
    await door.ends_well()


async def test_a_key_that_is_added_serves_who_waits_for_one_that_rests(doors: dict[str, Door]) -> None:
    door = doors["keyed"]
    await door.provider.has_seen(1)
    assert door.provider.seen[0].header("authorization") == "Bearer sk-b"
    await door.ends_well()


def permits(status: Any) -> list[tuple[str, int, int]]:
    """Limits with what is used of them, and their sizes."""
    return [(row["limit"], row["in_use"], row["size"]) for row in status["permits"]]
