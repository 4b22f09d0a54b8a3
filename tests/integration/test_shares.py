"""Shares of fleet-wide limits: who is let through, who waits, who is refused."""

from __future__ import annotations

import asyncio

import pytest

from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT, DONE, event, says, streams
from tests.integration.scripted import Exchange

pytestmark = pytest.mark.asyncio(loop_scope="module")

TWO = {"limits": {"concurrency": 20}, "timeouts": {"queue": "8s"}}
ONE = {"limits": {"concurrency": 10}, "timeouts": {"queue": "8s"}}
POLICY = {
    "version": 1,
    "fleet": {"size": {"static": 10}},
    "limits": {"concurrency": 30},
    "providers": {
        "pair": TWO,
        "floored": {"limits": {"concurrency": 19}, "timeouts": {"queue": "8s"}},
        "none": {"limits": {"concurrency": 5}, "timeouts": {"queue": "100ms"}},
        "modelled": {"models": {"rare": {"limits": {"concurrency": 10}}}, "timeouts": {"queue": "8s"}},
        "keyed": {
            "keys": [{"id": "a", "env": "KEY", "concurrency": 10}],
            "timeouts": {"queue": "8s", "quota_wait": "8s"},
        },
        "streamed": ONE,
        "ordered": ONE,
        "full": {**ONE, "queue": {"max": 1}},
        "slow": {**ONE, "timeouts": {"queue": "150ms"}},
        "left": {**ONE, "queue": {"max": 1}},
        "right": {},
        "wide": {},
        "broad": {},
        "waiting": {**ONE, "timeouts": {"queue": "8s"}},
    },
    "routes": [
        route("full", "left", "right"),
        route("timeout", "slow", "right"),
    ],
}
ENV = {"KEY": "sk-k"}


async def crowd(lab: Lab, provider: str, count: int, *, model: str = "m") -> list[int]:
    """Sends so many calls at once; returns their statuses."""
    path, body = f"/{provider}/v1/chat/completions", {**CHAT, "model": model}
    return [answer.status for answer in await asyncio.gather(*(lab.call(path, body) for _ in range(count)))]


@pytest.mark.parametrize(("provider", "share"), [("pair", 2), ("floored", 1)])
async def test_provider_never_has_more_in_flight_than_the_share(lab: Lab, provider: str, share: int) -> None:
    lab[provider].script = says("hi", after=0.1)
    assert await crowd(lab, provider, 4) == [200] * 4
    assert lab[provider].peak == share
    assert (await lab.row("permits", limit=f"provider {provider}"))["size"] == share


async def test_share_of_zero_lets_nothing_through(lab: Lab) -> None:
    answer = await lab.call("/none/v1/chat/completions", CHAT)
    assert (answer.status, answer.reason) == (429, "queue_timeout")
    assert not lab["none"].seen


async def test_model_has_a_share_of_its_own(lab: Lab) -> None:
    lab["modelled"].script = says("hi", after=0.1)
    assert await crowd(lab, "modelled", 3, model="rare") == [200] * 3
    assert lab["modelled"].peak == 1
    lab["modelled"].forget()
    assert await crowd(lab, "modelled", 3, model="common") == [200] * 3
    assert lab["modelled"].peak == 3


async def test_key_has_a_share_of_its_own(lab: Lab) -> None:
    lab["keyed"].script = says("hi", after=0.1)
    assert await crowd(lab, "keyed", 3) == [200] * 3
    assert lab["keyed"].peak == 1


async def test_all_providers_together_have_a_share(lab: Lab) -> None:
    running = peak = 0

    async def script(exchange: Exchange) -> None:
        nonlocal running, peak
        running, peak = running + 1, max(peak, running + 1)
        await asyncio.sleep(0.1)
        running -= 1
        await exchange.reply(200, b"ok")

    lab["wide"].script = lab["broad"].script = script
    results = await asyncio.gather(crowd(lab, "wide", 4), crowd(lab, "broad", 4))
    assert results[0] == results[1] == [200] * 4
    assert peak == 3


async def test_waiter_of_one_provider_holds_nothing_of_another(lab: Lab) -> None:
    lab["waiting"].script = says("hi", after=0.6)
    queue = asyncio.ensure_future(crowd(lab, "waiting", 2))
    await lab.proxy.until(lambda status: any(row["waiting"] == 1 for row in status["queues"]))
    lab["wide"].script = says("quick")
    lab["wide"].forget()
    assert await crowd(lab, "wide", 2) == [200, 200]
    assert not queue.done()
    assert await queue == [200, 200]


async def test_permit_is_held_to_the_last_byte_of_a_stream(lab: Lab) -> None:
    lab["streamed"].script = streams(event("a"), event("b"), event("c"), DONE, gap=0.05)
    body = {**CHAT, "stream": True}
    answers = await asyncio.gather(*(lab.call("/streamed/v1/chat/completions", body) for _ in range(3)))
    assert all(answer.complete and answer.body.endswith(DONE) for answer in answers)
    assert lab["streamed"].peak == 1


async def test_waiters_go_in_the_order_of_their_arrival(lab: Lab) -> None:
    lab["ordered"].script = says("hi", after=0.05)
    calls = []
    for number in range(5):
        calls.append(asyncio.ensure_future(lab.call(f"/ordered/v1/x?n={number}", CHAT)))
        await asyncio.sleep(0.01)
    assert {answer.status for answer in await asyncio.gather(*calls)} == {200}
    assert [request.target for request in lab["ordered"].seen] == [f"/v1/x?n={number}".encode() for number in range(5)]


async def test_full_queue_refuses_at_once(lab: Lab) -> None:
    lab["full"].script = says("hi", after=0.5)
    path = "/full/v1/chat/completions"
    served = asyncio.ensure_future(crowd(lab, "full", 2))
    await lab.proxy.until(lambda s: any(q["provider"] == "full" and q["waiting"] == 1 for q in s["queues"]))
    answer = await lab.call(path, CHAT)
    assert (answer.status, answer.reason, answer.attempts) == (429, "queue_full", 0)
    assert not served.done()
    assert answer.json()["error"]["type"] == "rate_limit_error"
    assert int(answer.header("retry-after") or 0) >= 1
    assert await served == [200, 200]


async def test_waiting_too_long_is_a_queue_timeout(lab: Lab) -> None:
    lab["slow"].script = says("hi", after=0.8)
    first = asyncio.ensure_future(lab.call("/slow/v1/chat/completions", CHAT))
    await lab["slow"].has_seen(1)
    answer = await lab.call("/slow/v1/chat/completions", CHAT)
    assert (answer.status, answer.reason, answer.attempts) == (429, "queue_timeout", 0)
    assert answer.seconds > 0.14
    assert not first.done()
    assert int(answer.header("retry-after") or 0) >= 1
    assert (await first).status == 200
    assert len(lab["slow"].seen) == 1


async def test_full_queue_sends_the_call_to_the_next_tier(lab: Lab) -> None:
    lab["left"].script = says("left", after=0.5)
    served = asyncio.ensure_future(crowd(lab, "left", 2))
    await lab.proxy.until(lambda s: any(q["provider"] == "left" and q["waiting"] == 1 for q in s["queues"]))
    answer = await lab.chat("full")
    assert (answer.status, answer.provider, answer.tier, answer.attempts) == (200, "right", 2, 1)
    assert not served.done()
    assert await served == [200, 200]


async def test_waiting_too_long_sends_the_call_to_the_next_tier(lab: Lab) -> None:
    lab["slow"].forget()
    lab["slow"].script = says("slow", after=0.8)
    first = asyncio.ensure_future(lab.call("/slow/v1/chat/completions", CHAT))
    await lab["slow"].has_seen(1)
    answer = await lab.chat("timeout")
    assert (answer.status, answer.provider, answer.tier) == (200, "right", 2)
    assert (await first).status == 200


async def test_refusals_of_ours_never_count_against_a_provider(lab: Lab) -> None:
    breakers = (await lab.proxy.status())["breakers"]
    assert {row["state"] for row in breakers} == {"closed"}
    assert sum(row["failures"] for row in breakers) == 0


async def share_of(index: str) -> int:
    """Returns the share of the instance with this index, of a limit of 7 for three."""
    providers = {"alpha": {"limits": {"concurrency": 7}}}
    policy = {"version": 1, "fleet": {"size": {"static": 3}}, "providers": providers}
    async with Lab(policy, env={"SPONSON_INSTANCE_INDEX": index}) as lab:
        size: int = (await lab.row("permits", limit="provider alpha"))["size"]
        return size


async def test_shares_of_the_instances_add_up_to_the_limit() -> None:
    shares = await asyncio.gather(*map(share_of, "012"))
    assert sum(shares) == 7
    assert max(shares) - min(shares) == 1
