"""Classes over the wire: whose call goes first is decided by the tenant, the route, and the caller's own word."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.integration.harness import Lab
from tests.integration.messages import CHAT, says
from tests.integration.scripted import Exchange

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

PATH = "/v1/chat/completions"
POLICY: dict[str, Any] = {
    "version": 1,
    "tenants": {
        "from": [{"header": "x-agent-id"}],
        "overrides": {"batch-*": {"class": "P2"}, "urgent-*": {"class": "P0"}},
    },
    "providers": {"alpha": {"limits": {"concurrency": 1}, "timeouts": {"queue": "30s"}}},
    "routes": [
        {
            "name": "open",
            "match": {"header": {"x-open": "1"}},
            "class_from_header": True,
            "tiers": [{"provider": "alpha"}],
        },
        {"name": "idle", "match": {"header": {"x-idle": "1"}}, "class": "P2", "tiers": [{"provider": "alpha"}]},
        {"name": "plain", "match": {"path": PATH}, "tiers": [{"provider": "alpha"}]},
    ],
}


async def waiting(lab: Lab, count: int) -> None:
    """Returns when so many calls wait."""
    await lab.proxy.until(lambda status: sum(queue["waiting"] for queue in status["queues"]) == count)


async def order(lab: Lab, *calls: dict[str, str]) -> list[int]:
    """Lets these calls wait behind one that holds the only place; returns the order in which they then go."""
    end = asyncio.Event()

    async def holding(exchange: Exchange) -> None:
        await end.wait()
        await says("first")(exchange)

    lab["alpha"].script = holding
    tasks = [asyncio.ensure_future(lab.call(PATH, {**CHAT, "n": 1}))]
    await lab["alpha"].has_seen(1)
    for number, headers in enumerate(calls):
        tasks.append(asyncio.ensure_future(lab.call(PATH, {**CHAT, "seed": number}, headers=list(headers.items()))))
        await waiting(lab, number + 1)
    lab["alpha"].script = says("hi")
    end.set()
    assert {answer.status for answer in await asyncio.gather(*tasks)} == {200}
    return [request.json()["seed"] for request in lab["alpha"].seen[1:]]


async def test_a_tenants_class_comes_before_the_routes(lab: Lab) -> None:
    plain: dict[str, str] = {}
    assert await order(lab, {"x-agent-id": "batch-1"}, plain, {"x-agent-id": "urgent-1"}) == [2, 1, 0]


async def test_a_route_has_a_class_and_a_tenants_comes_before_it(lab: Lab) -> None:
    idle = {"x-idle": "1"}
    assert await order(lab, idle, {}, {**idle, "x-agent-id": "urgent-1"}) == [2, 1, 0]


async def test_a_caller_may_lower_its_class_and_not_raise_it(lab: Lab) -> None:
    low, high, wrong = ({"x-sponson-class": name} for name in ("P2", "P0", "first"))
    assert await order(lab, low, {}, high, wrong) == [1, 2, 3, 0]


async def test_where_the_route_lets_it_a_caller_may_raise_its_class_unless_its_tenant_has_one(lab: Lab) -> None:
    raised = {"x-open": "1", "x-sponson-class": "P0"}
    assert await order(lab, {}, {**raised, "x-agent-id": "batch-1"}, raised) == [2, 0, 1]


async def test_the_word_goes_no_further(lab: Lab) -> None:
    await lab.call(PATH, CHAT, headers=[("x-sponson-class", "P2")])
    assert lab["alpha"].seen[0].header("x-sponson-class") is None
