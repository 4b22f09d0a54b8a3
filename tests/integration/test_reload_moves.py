"""A provider moves, changes its key, or goes, while a stream of it runs, one call waits and another one backs off."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.integration.caller import Answer
from tests.integration.harness import Lab, route
from tests.integration.messages import DONE, event, said
from tests.integration.scripted import Exchange

OLD, NEW = "sk-of-the-old-house", "sk-of-the-new-house"
ENV = {"OLD_KEY": OLD, "NEW_KEY": NEW}
KEYS = [{"id": "house", "env": "OLD_KEY"}]
PATIENT = {"timeouts": {"queue": "60s", "quota_wait": "60s"}, "breaker": "off"}
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "here": {"keys": KEYS, "limits": {"concurrency": 1}, **PATIENT},
        "shaky": {"keys": KEYS, **PATIENT},
        "there": {"keys": [{"id": "other", "env": "NEW_KEY"}]},
    },
    "routes": [route("one", "here"), route("again", "shaky", retry={"attempts": 2})],
}


class Move:
    """Calls under way at the old place; `go_on` lets its stream end."""

    def __init__(self, lab: Lab, *, again: int) -> None:
        self.lab = lab
        self._again = again
        self.go_on = asyncio.Event()
        lab["here"].script = lab["there"].script = self._answers
        lab["shaky"].script = self._fails_first
        self.calls: dict[str, asyncio.Task[Answer]] = {}

    async def _answers(self, exchange: Exchange) -> None:
        if not exchange.request.json().get("stream"):
            await exchange.reply(200, said("hi"))
            return
        await exchange.begin()
        await exchange.chunk(event("begun"))
        await self.go_on.wait()
        await exchange.chunk(event("ended") + DONE)
        await exchange.end()

    async def _fails_first(self, exchange: Exchange) -> None:
        if exchange.number:
            await exchange.reply(200, said("hi"))
        else:
            await exchange.reply(503, {"error": {"message": "not yet"}}, headers=[("retry-after", str(self._again))])

    async def begin(self) -> None:
        """Begins a stream, a call that waits behind it, and one that waits until it is tried again."""
        self.calls["stream"] = asyncio.create_task(self.lab.chat("one", stream=True))
        await self.lab["here"].has_seen(1)
        self.calls["waits"] = asyncio.create_task(self.lab.chat("one"))
        await self.lab.proxy.until(lambda status: any(row["waiting"] for row in status["queues"]))
        self.calls["tried again"] = asyncio.create_task(self.lab.chat("again"))
        await self.lab["shaky"].has_seen(1)

    async def live(self, policy: dict[str, Any]) -> None:
        """Puts a policy in place, and waits until it is live."""
        self.lab.proxy.rewrite(policy)
        async with asyncio.timeout(20):
            while (await self.lab.proxy.get("/policy")).json()["revision"] < 2:
                await asyncio.sleep(0.02)

    async def ends_well(self) -> None:
        """Lets the stream end: every call gets its whole answer."""
        assert not any(call.done() for call in self.calls.values())
        self.go_on.set()
        for name, call in self.calls.items():
            answer = await call
            assert (name, answer.status, answer.complete) == (name, 200, True)
        assert b"ended" in self.calls["stream"].result().body

    def keys_at(self, name: str) -> list[str]:
        """The keys that a place has seen, in order."""
        return [(request.header("authorization") or "").removeprefix("Bearer ") for request in self.lab[name].seen]


@asynccontextmanager
async def moving() -> AsyncIterator[Move]:
    """Calls under way; what backs off does so for as long as a reload may take on a machine as slow as this one is."""
    began = time.monotonic()
    async with Lab(POLICY, env=ENV) as lab:
        move = Move(lab, again=max(3, math.ceil(4 * (time.monotonic() - began))))
        await move.begin()
        yield move


async def test_a_secret_for_another_address_never_reaches_the_old_one() -> None:
    async with moving() as move:
        lab = move.lab
        providers = dict(lab.policy["providers"])
        moved = {"base_url": providers["there"]["base_url"], "keys": [{"id": "house", "env": "NEW_KEY"}]}
        providers |= {name: {**providers[name], **moved} for name in ("here", "shaky")}
        await move.live({**lab.policy, "providers": providers})
        fresh = asyncio.create_task(lab.chat("again"))
        await lab["there"].has_seen(1)
        await move.ends_well()
        assert (await fresh).status == 200
        assert move.keys_at("here") == [OLD, OLD]
        assert move.keys_at("shaky") == [OLD, OLD]
        assert move.keys_at("there") == [NEW]


async def test_a_new_secret_for_the_same_address_is_used_by_who_waits() -> None:
    async with moving() as move:
        lab = move.lab
        providers = dict(lab.policy["providers"])
        for name, key in {"here": "house", "shaky": "another"}.items():
            providers[name] = {**providers[name], "keys": [{"id": key, "env": "NEW_KEY"}]}
        await move.live({**lab.policy, "providers": providers})
        await move.ends_well()
        assert move.keys_at("here") == [OLD, NEW]
        assert move.keys_at("shaky") == [OLD, NEW]


async def test_what_is_gone_answers_those_who_were_there_and_nobody_else() -> None:
    async with moving() as move:
        lab = move.lab
        routes = [route(name, "there") for name in ("one", "again")]
        await move.live({**lab.policy, "providers": {"there": lab.policy["providers"]["there"]}, "routes": routes})
        assert (await lab.chat("one")).provider == "there"
        await move.ends_well()
        assert move.keys_at("here") == move.keys_at("shaky") == [OLD, OLD]
        assert move.keys_at("there") == [NEW]
