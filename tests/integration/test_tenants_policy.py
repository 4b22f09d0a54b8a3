"""Tenants and the policy: what a reload changes at once and what it leaves, and what `mode: observe` tells."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.integration.caller import Answer
from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT

TENANTS: dict[str, Any] = {
    "from": [{"header": "x-agent-id"}],
    "default": {"rps": 0.02, "concurrency": 4, "context_tokens": 100},
}
POLICY: dict[str, Any] = {
    "version": 1,
    "tenants": TENANTS,
    "providers": {"alpha": {}},
    "routes": [route("m", "alpha")],
}
LONG = {"model": "m", "messages": [{"role": "user", "content": "word " * 2000}]}


async def ask(lab: Lab, tenant: str, body: Any = CHAT) -> Answer:
    """Sends a request as this tenant."""
    return await lab.call(body=body, headers=[("x-agent-id", tenant)])


async def reload(lab: Lab, tenants: dict[str, Any] | None) -> None:
    """Puts another section of tenants in force, or none."""
    revision = (await lab.proxy.get("/policy")).json()["revision"]
    lab.policy.pop("tenants", None)
    if tenants is not None:
        lab.policy["tenants"] = tenants
    lab.proxy.rewrite(lab.policy)
    async with asyncio.timeout(10):
        while (await lab.proxy.get("/policy")).json()["revision"] == revision:
            await asyncio.sleep(0.02)


async def test_a_reload_refills_nothing_and_changed_caps_act_at_once() -> None:
    async with Lab(POLICY) as lab:
        assert [(await ask(lab, "a")).status for _ in range(2)] == [200, 429]
        await reload(lab, {**TENANTS, "default": {"rps": 0.02, "concurrency": 5}})
        assert (await ask(lab, "a")).status == 429
        assert (await ask(lab, "a", LONG)).reason == "tenant_limit"
        await reload(lab, None)
        assert [(await ask(lab, "a")).status for _ in range(3)] == [200] * 3
        await reload(lab, TENANTS)
        assert (await ask(lab, "a")).status == 429
        await reload(lab, {**TENANTS, "overrides": {"a": {"rps": 0}}})
        assert (await ask(lab, "a")).header("retry-after") is None
        assert (await ask(lab, "b")).status == 200


async def test_observed_everybody_goes_and_everybody_can_see_who_would_not() -> None:
    policy = {**POLICY, "tenants": {**TENANTS, "mode": "observe"}}
    async with Lab(policy) as lab:
        answers = [await ask(lab, "a") for _ in range(3)]
        answers.append(await ask(lab, "b", LONG))
        assert [answer.status for answer in answers] == [200] * 4
        told = [(await lab.proxy.line_of(answer)).get("would") for answer in answers]
        assert told == [None, ["would_tenant_limit"], ["would_tenant_limit"], ["would_context_too_long"]]
        rows = [await lab.row("tenants", tenant=name) for name in "ab"]
        assert [(row["would_tenant_limit"], row["would_context_too_long"]) for row in rows] == [(2, 0), (0, 1)]
        assert [row["refused"] for row in rows] == [0, 0]
        metrics = (await lab.proxy.get("/metrics")).body.decode()
        lines = [line for line in metrics.splitlines() if line.startswith("sponson_observed_total{")]
        counts = {would: line.rpartition(" ")[2] for line in lines for would in ("tenant", "context") if would in line}
        assert {would: float(count) for would, count in counts.items()} == {"tenant": 2.0, "context": 1.0}
