"""`mode: observe` over the wire: shares and breakers hold nobody back, and everybody can see what they would do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT, answers, in_turn, says
from tests.integration.scripted import Exchange

pytestmark = pytest.mark.asyncio(loop_scope="module")

NARROW: dict[str, Any] = {
    "limits": {"concurrency": 1},
    "breaker": {"scope": "provider", "consecutive": 3, "open": {"first": "30s", "cap": "60s"}},
}
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "shared": {**NARROW, "mode": "observe"},
        "broken": {**NARROW, "mode": "observe"},
        "keyed": {
            "mode": "observe",
            "keys": [{"id": "a", "env": "KEY", "concurrency": 1}],
            "timeouts": {"quota_wait": "8s"},
        },
        "mixed": NARROW,
        "later": {**NARROW, "mode": "observe", "timeouts": {"queue": "20s"}},
    },
    "routes": [
        route("retried", "broken", retry={"attempts": 2, "base": "1ms"}),
        route("watched", "mixed", mode="observe"),
        route("held", {"provider": "mixed", "queue": "100ms"}),
    ],
}
ENV = {"KEY": "sk-k"}


class Held:
    """A script that answers only when it is told to."""

    def __init__(self) -> None:
        self.end = asyncio.Event()

    async def __call__(self, exchange: Exchange) -> None:
        await self.end.wait()
        await says("hi")(exchange)


async def counted(lab: Lab, provider: str, would: str) -> float:
    """What `/metrics` counted for a provider."""
    text = (await lab.proxy.get("/metrics")).body.decode()
    lines = [line for line in text.splitlines() if line.startswith("sponson_observed_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines if f'"{provider}"' in line and f'"{would}"' in line)


async def observed(lab: Lab, provider: str) -> dict[str, Any]:
    """The row of `/status`."""
    row: dict[str, Any] = await lab.row("observed", provider=provider)
    return row


async def test_more_calls_than_the_share_go_at_once_and_are_told(lab: Lab) -> None:
    held = lab["shared"].script = Held()
    calls = [asyncio.ensure_future(lab.call("/shared/v1/chat/completions", CHAT)) for _ in range(4)]
    await lab["shared"].has_seen(4)
    permits = await lab.row("permits", limit="provider shared")
    assert (permits["in_use"], permits["size"]) == (4, 1)
    held.end.set()
    done = await asyncio.gather(*calls)
    assert [answer.status for answer in done] == [200] * 4
    told = [(await lab.proxy.line_of(answer)).get("would") for answer in done]
    assert sorted(told, key=str) == [None, ["would_wait"], ["would_wait"], ["would_wait"]]
    assert (await observed(lab, "shared"))["would_wait"] == 3
    assert await counted(lab, "shared", "would_wait") == 3


async def test_an_open_breaker_lets_calls_through_and_a_retry_too(lab: Lab) -> None:
    broken = lab["broken"]
    broken.script = answers(500)
    assert (await lab.call("/broken/v1/chat/completions", CHAT)).status == 500
    assert len(broken.seen) == 3
    assert (await lab.row("breakers", provider="broken"))["state"] == "open"
    broken.forget()
    broken.script = in_turn(answers(500), says("hi"))
    answer = await lab.chat("retried")
    assert (answer.status, len(broken.seen)) == (200, 2)
    assert (await lab.proxy.line_of(answer))["would"] == ["would_breaker_open"]
    row = await lab.row("breakers", provider="broken")
    assert row["state"] == "open"
    assert row["would_refuse"] == (await observed(lab, "broken"))["would_breaker_open"] == 2


async def test_a_key_above_its_share_is_used(lab: Lab) -> None:
    held = lab["keyed"].script = Held()
    calls = [asyncio.ensure_future(lab.call("/keyed/v1/chat/completions", CHAT)) for _ in range(3)]
    await lab["keyed"].has_seen(3)
    assert (await lab.row("keys", provider="keyed"))["in_use"] == 3
    held.end.set()
    assert [answer.status for answer in await asyncio.gather(*calls)] == [200] * 3


async def test_a_resting_key_is_still_waited_for(lab: Lab) -> None:
    lab["keyed"].forget()
    lab["keyed"].script = in_turn(answers(429, headers=[("retry-after", "1")]), says("hi"))
    answer = await lab.call("/keyed/v1/chat/completions", CHAT)
    assert answer.status == 200
    assert (await lab.proxy.line_of(answer))["queued_ms"] > 0


async def test_beside_an_observed_route_the_others_are_held_to_the_share(lab: Lab) -> None:
    held = lab["mixed"].script = Held()
    first = asyncio.ensure_future(lab.chat("held"))
    await lab["mixed"].has_seen(1)
    second = asyncio.ensure_future(lab.chat("watched"))
    await lab["mixed"].has_seen(2)
    third = await lab.chat("held")
    assert (third.status, third.reason) == (429, "queue_timeout")
    held.end.set()
    answers = await asyncio.gather(first, second)
    assert [answer.status for answer in answers] == [200, 200]
    assert (await lab.proxy.line_of(answers[1]))["would"] == ["would_wait"]


async def change_mode(lab: Lab, provider: str, mode: str) -> None:
    """Rewrites the policy and waits until it is in force."""
    revision = (await lab.proxy.get("/policy")).json()["revision"]
    lab.policy["providers"][provider]["mode"] = mode
    lab.proxy.rewrite(lab.policy)
    async with asyncio.timeout(10):
        while (await lab.proxy.get("/policy")).json()["revision"] == revision:
            await asyncio.sleep(0.02)


async def test_a_reload_to_enforce_counts_what_is_out_and_one_to_observe_frees_who_waits(lab: Lab) -> None:
    held = lab["later"].script = Held()
    path = "/later/v1/chat/completions"
    calls = [asyncio.ensure_future(lab.call(path, CHAT)) for _ in range(2)]
    await lab["later"].has_seen(2)
    await change_mode(lab, "later", "enforce")
    waiting = asyncio.ensure_future(lab.call(path, CHAT))
    await lab.proxy.until(lambda status: any(row["waiting"] == 1 for row in status["queues"]))
    permits = await lab.row("permits", limit="provider later")
    assert (permits["in_use"], permits["size"]) == (2, 1)
    await change_mode(lab, "later", "observe")
    await lab["later"].has_seen(3)
    held.end.set()
    assert [answer.status for answer in await asyncio.gather(*calls, waiting)] == [200] * 3
