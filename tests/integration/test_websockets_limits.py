"""What bounds WebSockets: permits, quotas, breakers, silence, readers that stop, and the longest time."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.integration.harness import Lab, route
from tests.integration.messages import says
from tests.integration.quotas import cost, full
from tests.integration.talks import End, Talks, asks, ends, entered, opened, talking
from tests.websocket.encoding import BINARY, CLOSE, PING, PONG, TEXT, closing, encoded

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "one": {"breaker": "off", "limits": {"concurrency": 1}, "queue": {"max": 1}, "timeouts": {"queue": "30s"}},
        "guarded": {"breaker": {"consecutive": 2, "open": {"first": "60s", "cap": "60s"}}},
        "failing": {"breaker": {"consecutive": 2, "open": {"first": "60s", "cap": "60s"}}},
        "quiet": {"breaker": "off", "timeouts": {"idle": "700ms"}},
        "brief": {"breaker": "off", "timeouts": {"stream": "700ms"}},
        "talk": {"breaker": "off"},
    },
    "routes": [
        *(route(name, name, retry={"attempts": 1}) for name in ("one", "guarded", "failing", "quiet", "brief")),
        route("tiers", {"provider": "one", "queue": "0s"}, "talk", retry={"attempts": 1}),
    ],
}


def path(name: str) -> str:
    """Where a WebSocket of this route is asked for."""
    return f"/v1/realtime?model={name}"


async def test_a_permit_is_held_to_the_end_and_then_the_next_has_its_turn(lab: Lab) -> None:
    talks = Talks(lab["one"])
    async with opened(lab, path("one")) as client, lab.wire() as second, lab.wire() as third:
        provider = await talks.next()
        assert (await lab.proxy.status())["permits_out"] == 1
        await second.send(asks(path("one")) + encoded(TEXT, b"patience", mask=b"1234"))
        await lab.proxy.until(lambda status: any(row["waiting"] == 1 for row in status["queues"]))
        await third.send(asks(path("one")))
        refused = await third.answer(method="GET")
        assert (refused.status, refused.reason) == (429, "queue_full")
        assert len(lab["one"].seen) == 1
        await ends(client, provider)
        other = await talks.next()
        await other.hears(b"patience")
        await ends(await entered(second), other)
    await lab.idle()


async def test_who_leaves_while_it_waits_is_not_waited_for(lab: Lab) -> None:
    talks = Talks(lab["one"])
    async with opened(lab, path("one")) as client:
        provider = await talks.next()
        async with lab.wire() as second:
            await second.send(asks(path("one")))
            await lab.proxy.until(lambda status: any(row["waiting"] == 1 for row in status["queues"]))
            second.leave()
        await lab.proxy.until(lambda status: all(row["waiting"] == 0 for row in status["queues"]))
        await ends(client, provider)
    assert len(lab["one"].seen) == 1


async def test_another_tier_takes_whom_a_permit_keeps_out(lab: Lab) -> None:
    async with talking(lab, provider="one", path=path("tiers")) as (client, _):
        await client.say(b"here")
        async with talking(lab, provider="talk", path=path("tiers")) as (second, provider):
            await second.say(b"there")
            await provider.hears(b"there")


@pytest.mark.parametrize("way", ["break", "close"])
async def test_a_provider_that_fails_in_the_middle_opens_its_breaker(lab: Lab, way: str) -> None:
    name = "guarded" if way == "break" else "failing"
    talks = Talks(lab[name])
    for _ in range(2):
        async with opened(lab, path(name)) as client:
            provider = await talks.next()
            if way == "close":
                await provider.close(1011, "worn out")
                assert (await client.told())[0] == 1011
                await client.close(1011)
            provider.leave()
            await client.over()
    await lab.idle()
    async with lab.wire() as wire:
        await wire.send(asks(path(name)))
        refused = await wire.answer(method="GET")
    assert (refused.status, refused.reason) == (503, "breaker_open")
    assert refused.header("retry-after") is not None
    assert len(lab[name].seen) == 2


async def test_a_request_and_the_tokens_that_were_reported_are_what_it_costs() -> None:
    policy = {
        "version": 1,
        "providers": {"metered": {"limits": {}, "breaker": "off"}},
        "routes": [route("metered", "metered", retry={"attempts": 1})],
    }
    async with full(policy) as lab:
        lab["metered"].script = says("warm")
        await lab.chat("metered")

        async def converse() -> None:
            async with talking(lab, provider="metered", path=path("metered")) as (client, provider):
                for tokens in (30, 12):
                    used = {"total_tokens": tokens, "input_tokens": tokens - 5, "output_tokens": 5}
                    done = {"type": "response.done", "response": {"usage": used}}
                    data = encoded(TEXT, json.dumps(done).encode(), final=True)
                    await provider.write(data[:9])
                    await provider.write(data[9:])
                    await client.frame()
                await ends(client, provider)

        spent = await cost(lab, "metered", converse)
        assert spent.requests == 1.0
        assert spent.tokens == 42


async def test_silence_is_asked_about_and_an_answer_keeps_it_open(lab: Lab) -> None:
    async with talking(lab, provider="quiet", path=path("quiet")) as (client, provider):

        async def answers_three(end: End) -> set[bytes]:
            asked = set()
            for _ in range(3):
                ping = await end.frame()
                assert ping.opcode == PING
                asked.add(ping.payload)
                await end.send(PONG, ping.payload)
            return asked

        assert len(set.union(*await asyncio.gather(answers_three(client), answers_three(provider)))) == 1
        await client.say(b"still here")
        # None of the pongs has passed.
        assert (await provider.answers_pings()).payload == b"still here"
        await provider.say(b"so am I")
        assert (await client.answers_pings()).payload == b"so am I"


async def test_a_provider_that_gives_no_sign_of_life_is_given_up(lab: Lab) -> None:
    async with talking(lab, provider="quiet", path=path("quiet")) as (client, provider):
        while (one := await client.frame()).opcode == PING:
            await client.send(PONG, one.payload)
        assert one.payload == closing(1014, "the provider neither reads nor answers")
        await provider.over()
    await lab.idle()


async def test_a_client_that_gives_no_sign_of_life_is_given_up(lab: Lab) -> None:
    async with talking(lab, provider="quiet", path=path("quiet")) as (client, provider):
        while (one := await provider.frame()).opcode == PING:
            await provider.send(PONG, one.payload)
        assert (one.opcode, one.payload) == (CLOSE, closing(1001))
        await client.over()
    await lab.idle()


@pytest.mark.parametrize("who", ["client", "provider"])
async def test_who_stops_reading_is_given_up_although_the_other_speaks(lab: Lab, who: str) -> None:
    async with talking(lab, provider="quiet", path=path("quiet")) as (client, provider):
        taker, sender = (client, provider) if who == "client" else (provider, client)
        taker.pause()

        async def flood() -> None:
            while True:
                await sender.send(BINARY, bytes(65536))

        flooding = asyncio.create_task(flood())
        await lab.idle()
        flooding.cancel()
        await sender.over()


async def test_the_longest_time_ends_it_for_both(lab: Lab) -> None:
    async with talking(lab, provider="brief", path=path("brief")) as (client, provider):
        assert await client.told() == (1001, b"the longest time for a connection (timeouts.stream) is over")
        assert await provider.told() == (1001, b"")
        provider.leave()
        assert await client.over() == b""
    await lab.idle()


async def test_the_longest_time_cuts_a_frame(lab: Lab) -> None:
    async with talking(lab, provider="brief", path=path("brief")) as (client, provider):
        await provider.write(encoded(TEXT, b"unfinished")[:6])
        assert await client.over() == encoded(TEXT, b"unfinished")[:6]
        assert await provider.told() == (1001, b"")
