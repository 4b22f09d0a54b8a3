"""Who asks for WebSockets: tenants and their caps, classes, and routes that only observe."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.integration.harness import Lab, route
from tests.integration.talks import Talks, asks, ends, opened

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

POLICY: dict[str, Any] = {
    "version": 1,
    "tenants": {"from": [{"header": "x-team"}], "overrides": {"small": {"concurrency": 1}}},
    "providers": {
        "talk": {"breaker": "off"},
        "watched": {"breaker": "off", "limits": {"concurrency": 1}, "timeouts": {"queue": "0s"}},
    },
    "routes": [
        route("talk", "talk", class_from_header=True),
        route("watched", "watched", mode="observe"),
    ],
}
SMALL = [("x-team", "small")]


async def test_a_tenants_cap_counts_those_that_are_open(lab: Lab) -> None:
    talks = Talks(lab["talk"])
    for _ in range(2):
        async with opened(lab, headers=SMALL) as client, lab.wire() as second:
            provider = await talks.next()
            assert (await lab.row("tenants", tenant="small"))["in_flight"] == 1
            await second.send(asks(headers=SMALL))
            refused = await second.answer(method="GET")
            assert (refused.status, refused.reason) == (429, "tenant_limit")
            async with opened(lab, headers=[("x-team", "other")]) as other:
                await ends(other, await talks.next())
            await ends(client, provider)
        await lab.proxy.until(lambda status: status["in_flight"] == 0)


async def test_a_class_is_the_callers_to_say(lab: Lab) -> None:
    talks = Talks(lab["talk"])
    count = len(lab.proxy.request_lines()) + 1
    async with opened(lab, headers=[("x-sponson-class", "P0")]) as client:
        await ends(client, await talks.next())
    async with asyncio.timeout(5):
        while len(lab.proxy.request_lines()) < count:
            await asyncio.sleep(0.01)
    assert lab.proxy.request_lines()[-1]["class"] == "P0"


async def test_where_limits_only_observe_more_are_open_than_they_allow(lab: Lab) -> None:
    talks = Talks(lab["watched"])
    async with AsyncExitStack() as stack:
        pairs = []
        for _ in range(3):
            client = await stack.enter_async_context(opened(lab, "/v1/realtime?model=watched"))
            pairs.append((client, await talks.next()))
        for number, (client, provider) in enumerate(pairs):
            await client.say(b"%d" % number)
            await provider.hears(b"%d" % number)
        for client, provider in pairs:
            await ends(client, provider)
    await lab.idle()
