"""Equal requests at the same time: one call, whoever leaves; each with its own deadline, and no failure outlives it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.integration.caller import Answer, Headers, Wire, request_bytes
from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT, answers, closes, event, hangs, in_turn, resets, says, when
from tests.integration.scripted import Exchange, Script

WAIT = 30.0
PATH = "/v1/chat/completions"
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "alpha": {"breaker": "off"},
        "hasty": {"breaker": "off", "timeouts": {"queue": "0s", "quota_wait": "0s"}},
        "one": {"breaker": "off", "limits": {"concurrency": 1}, "timeouts": {"queue": "60s"}},
        "beta": {"breaker": "off"},
    },
    "routes": [
        route("flight", "alpha", single_flight=True, retry={"attempts": 1}),
        route("kept", "alpha", cache={"ttl": "1h"}, retry={"attempts": 1}),
        route("apart", "alpha", cache={"ttl": "1h"}, single_flight=False, retry={"attempts": 1}),
        route("tiers", "alpha", "beta", single_flight=True, retry={"attempts": 1}),
        route("again", "alpha", single_flight=True, retry={"attempts": 3, "base": "10ms"}),
        route("waits", "one", single_flight=True, retry={"attempts": 1}),
        route("short", "hasty", single_flight=True, total="4s", retry={"attempts": 1}),
    ],
}

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]


def used(answer: Answer) -> str | None:
    """Returns what part the cache, or an equal call, had."""
    return answer.header("x-sponson-cache")


def question(model: str, case: str, **more: Any) -> dict[str, Any]:
    """Returns the body of a test's own question."""
    return {**CHAT, "model": model, "case": case, **more}


async def joins(lab: Lab) -> int:
    """Returns how many have joined a call so far."""
    count: int = (await lab.proxy.status())["single_flight"]["joined"]
    return count


async def crowd(
    lab: Lab, model: str, case: str, count: int, *, headers: Headers = (), **more: Any
) -> list[asyncio.Task[Answer]]:
    """Lets so many ask at once; returns once all but the first have joined its call."""
    before = await joins(lab)
    body = question(model, case, **more)
    asked = [asyncio.create_task(lab.call(PATH, body, headers=headers, within=WAIT)) for _ in range(count)]
    await lab.proxy.until(lambda status: status["single_flight"]["joined"] == before + count - 1, within=WAIT)
    return asked


async def test_many_are_one_call_and_one_of_them_pays(lab: Lab) -> None:
    gate = asyncio.Event()
    lab["alpha"].script = when(gate, says("hi"))
    asked = await crowd(lab, "flight", "many", 30)
    assert (await lab.proxy.status())["permits_out"] <= 1
    gate.set()
    told = await asyncio.gather(*asked)
    assert {(answer.status, answer.body) for answer in told} == {(200, told[0].body)}
    assert sorted(str(used(answer)) for answer in told) == ["None", *["shared"] * 29]
    assert len({answer.header("x-sponson-request-id") for answer in told}) == 30
    assert len(lab["alpha"].seen) == 1
    lines = [await lab.proxy.line_of(answer) for answer in told]
    assert [line.get("input_tokens") for line in lines].count(5) == 1
    assert [line.get("saved_input_tokens") for line in lines].count(5) == 29
    assert sum(answer.attempts for answer in told) == 1


async def test_what_has_ended_is_joined_by_nobody(lab: Lab) -> None:
    lab["alpha"].script = says("hi")
    body = question("flight", "ended")
    assert [used(await lab.call(PATH, body)) for _ in range(3)] == [None] * 3
    assert len(lab["alpha"].seen) == 3


async def test_a_cache_without_it_lets_everybody_ask(lab: Lab) -> None:
    gate, before = asyncio.Event(), await joins(lab)
    lab["alpha"].script = when(gate, says("hi"))
    asked = [asyncio.ensure_future(lab.call(PATH, question("apart", "all"))) for _ in range(3)]
    await lab["alpha"].has_seen(3, within=WAIT)
    gate.set()
    assert [used(answer) for answer in await asyncio.gather(*asked)] == ["miss"] * 3
    assert used(await lab.call(PATH, question("apart", "all"))) == "hit"
    assert await joins(lab) == before


FAILURES: dict[str, Script] = {
    "503": answers(503),
    "429": answers(429, headers=[("retry-after", "1")]),
    "400": answers(400),
    "reset": resets,
    "closed": closes,
    "error in a 200": answers(200, {"error": {"message": "worn out", "type": "server_error"}}),
}


@pytest.mark.parametrize("name", FAILURES)
@pytest.mark.parametrize("model", ["flight", "kept"])
async def test_a_failure_is_told_to_those_who_waited_and_to_nobody_after(lab: Lab, model: str, name: str) -> None:
    gate = asyncio.Event()
    lab["alpha"].script = in_turn(when(gate, FAILURES[name]), says("good"))
    asked = await crowd(lab, model, name, 4)
    gate.set()
    told = await asyncio.gather(*asked)
    assert len(lab["alpha"].seen) == 1
    assert len({(answer.status, answer.reason) for answer in told}) == 1
    assert not [answer for answer in told if b"good" in answer.body]
    after = await lab.call(PATH, question(model, name))
    assert (after.status, b"good" in after.body, used(after)) == (200, True, "miss" if model == "kept" else None)


async def test_retries_and_fallbacks_are_made_once_for_all(lab: Lab) -> None:
    gate = asyncio.Event()
    lab["alpha"].script = in_turn(when(gate, answers(503)), answers(503), says("hi"))
    asked = await crowd(lab, "again", "retries", 5)
    gate.set()
    assert {answer.status for answer in await asyncio.gather(*asked)} == {200}
    assert len(lab["alpha"].seen) == 3
    gate.clear()
    lab["alpha"].script, lab["beta"].script = when(gate, answers(503)), says("instead")
    asked = await crowd(lab, "tiers", "fallbacks", 5)
    gate.set()
    told = await asyncio.gather(*asked)
    assert {(answer.status, answer.tier, answer.provider) for answer in told} == {(200, 2, "beta")}
    assert (len(lab["alpha"].seen), len(lab["beta"].seen)) == (4, 1)


async def leaders(lab: Lab, wire: Wire, body: dict[str, Any]) -> None:
    """Lets the first one ask, and waits until its question is on its way."""
    await wire.send(request_bytes("POST", PATH, body=body))
    await lab["alpha"].has_seen(1, within=WAIT)


@pytest.mark.parametrize("reset", [True, False], ids=["reset", "closed"])
@pytest.mark.parametrize("model", ["flight", "kept"])
async def test_the_first_one_leaves_and_nothing_changes(lab: Lab, model: str, reset: bool) -> None:
    gate = asyncio.Event()
    lab["alpha"].script = when(gate, says("hi"))
    body, before = question(model, f"first leaves {reset}"), await joins(lab)
    async with lab.wire() as leader:
        await leaders(lab, leader, body)
        asked = [asyncio.ensure_future(lab.call(PATH, body)) for _ in range(3)]
        await lab.proxy.until(lambda status: status["single_flight"]["joined"] == before + 3, within=WAIT)
        leader.leave(reset=reset)
        await lab.proxy.until(lambda status: status["in_flight"] == 3, within=WAIT)
    gate.set()
    told = await asyncio.gather(*asked)
    assert {(answer.status, used(answer), answer.complete) for answer in told} == {(200, "shared", True)}
    assert (len(lab["alpha"].seen), lab["alpha"].left_at) == (1, [])
    lines = [await lab.proxy.line_of(answer) for answer in told]
    assert [line.get("input_tokens") for line in lines].count(5) == 1, "one of those who are still there pays"


async def test_the_last_one_who_leaves_ends_the_call(lab: Lab) -> None:
    lab["alpha"].script = hangs
    body = question("flight", "last leaves")
    async with lab.wire() as one, lab.wire() as other:
        await leaders(lab, one, body)
        before = await joins(lab)
        await other.send(request_bytes("POST", PATH, body=body))
        await lab.proxy.until(lambda status: status["single_flight"]["joined"] == before + 1, within=WAIT)
        one.leave()
        await lab.proxy.until(lambda status: status["in_flight"] == 1, within=WAIT)
        assert lab["alpha"].left_at == []
        other.leave()
        await lab["alpha"].was_left(within=WAIT)
    await lab.idle()
    lab["alpha"].script = says("hi")
    assert (await lab.call(PATH, body)).status == 200


async def test_who_leaves_while_all_wait_for_a_permit_costs_nobody_anything(lab: Lab) -> None:
    gate = asyncio.Event()
    lab["one"].script = when(gate, says("hi"))
    running = asyncio.ensure_future(lab.call(PATH, question("waits", "running")))
    await lab["one"].has_seen(1, within=WAIT)
    body, before = question("waits", "waiting"), await joins(lab)
    async with lab.wire() as leader:
        await leader.send(request_bytes("POST", PATH, body=body))
        await lab.proxy.until(lambda status: sum(row["waiting"] for row in status["queues"]) == 1, within=WAIT)
        stays = asyncio.ensure_future(lab.call(PATH, body))
        await lab.proxy.until(lambda status: status["single_flight"]["joined"] == before + 1, within=WAIT)
        leader.leave()
        await lab.proxy.until(lambda status: status["in_flight"] == 2, within=WAIT)
    assert sum(row["waiting"] for row in (await lab.proxy.status())["queues"]) == 1
    gate.set()
    assert [(await call).status for call in (running, stays)] == [200, 200]
    assert len(lab["one"].seen) == 2


async def test_classes_are_not_joined(lab: Lab) -> None:
    gate, body = asyncio.Event(), question("flight", "classes")
    lab["alpha"].script = when(gate, says("hi"))
    first = asyncio.ensure_future(lab.call(PATH, body))
    await lab["alpha"].has_seen(1, within=WAIT)
    lower = [asyncio.ensure_future(lab.call(PATH, body, headers=[("x-sponson-class", "P2")])) for _ in range(2)]
    await lab["alpha"].has_seen(2, within=WAIT)
    gate.set()
    assert {answer.status for answer in await asyncio.gather(first, *lower)} == {200}
    assert len(lab["alpha"].seen) == 2


@pytest.mark.parametrize("header", [("cache-control", "no-store"), ("x-sponson-cache", "bypass")], ids=lambda h: h[1])
async def test_who_wants_to_share_nothing_asks_alone(lab: Lab, header: tuple[str, str]) -> None:
    gate, body = asyncio.Event(), question("kept", header[1])
    lab["alpha"].script = when(gate, says("hi"))
    asked = [asyncio.ensure_future(lab.call(PATH, body, headers=headers)) for headers in ((), [header], [header])]
    await lab["alpha"].has_seen(3, within=WAIT)
    gate.set()
    assert sorted(str(used(answer)) for answer in await asyncio.gather(*asked)) == ["None", "None", "miss"]


async def test_who_has_much_more_time_is_not_timed_out_with_who_has_little(lab: Lab) -> None:
    gate = asyncio.Event()
    lab["hasty"].script = in_turn(hangs, when(gate, says("hi")))
    first = asyncio.create_task(lab.call(PATH, question("short", "own")))
    await lab["hasty"].has_seen(1, within=WAIT)
    # More than half of the time that the first one has.
    await asyncio.sleep(2.5)
    second = asyncio.create_task(lab.call(PATH, question("short", "own")))
    await lab["hasty"].has_seen(2, within=WAIT)
    late = await first
    gate.set()
    in_time = await second
    assert (late.status, late.reason) == (504, "total_timeout")
    assert (in_time.status, in_time.reason) == (200, None)


async def test_a_flood_of_joins_and_leaves_leaves_nothing(lab: Lab) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        for number in range(20):
            await exchange.chunk(event(f"{number} "))
            await asyncio.sleep(0.005)
        await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.end()

    lab["alpha"].script = script

    async def comes(number: int) -> None:
        body = question("kept", f"flood {number % 3}", stream=True)
        async with lab.wire() as wire:
            await wire.send(request_bytes("POST", PATH, body=body))
            if number % 4:
                await wire.reader.readuntil(b"\n\n")
            if number % 4 > 2:
                await wire.reader.readuntil(b"[DONE]")
            wire.leave(reset=bool(number % 2))

    await asyncio.gather(*(comes(number) for number in range(60)))
    await lab.idle()
    await lab.proxy.until(
        lambda status: status["single_flight"]["running"] == status["bodies"]["bytes"] == 0, within=WAIT
    )
    assert (await lab.proxy.status())["idempotency"]["bytes"] == 0
