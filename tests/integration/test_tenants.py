"""Tenants over the wire: who is held back, by which cap, until when, and that nobody else notices."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.integration.caller import Answer, request_bytes
from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT, CHAT_STREAM, DONE, event, says
from tests.integration.scripted import Exchange

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

SLOW = 0.02
"""Requests a second: one, and then none for fifty seconds."""
POLICY: dict[str, Any] = {
    "version": 1,
    "tenants": {
        "from": [{"header": "x-agent-id"}, {"credential": True}],
        "default": {"rps": SLOW},
        "overrides": {
            "two-*": {"rps": 1000, "concurrency": 2},
            "free-*": {"rps": 1000},
            "tokens-*": {"rps": 1000, "tpm": 600},
            "none-*": {"concurrency": 0},
        },
    },
    "providers": {"alpha": {}, "broken": {}, "crowded": {"limits": {"concurrency": 0}, "timeouts": {"queue": "1ms"}}},
    "routes": [route("m", "alpha"), route("broken", "broken", retry={"attempts": 2, "base": "1ms"})],
}


async def ask(lab: Lab, tenant: str, **headers: str) -> Answer:
    """Sends a chat as this tenant."""
    return await lab.call(body={**CHAT, "max_tokens": 9}, headers=[("x-agent-id", tenant), *headers.items()])


def held_back(answer: Answer, cap: str) -> int:
    """Checks a refusal that names this cap; returns the seconds after which to come again."""
    assert (answer.status, answer.reason, answer.attempts) == (429, "tenant_limit", 0)
    error = answer.json()["error"]
    assert error["type"] == "rate_limit_error"
    assert cap in error["message"]
    seconds = answer.header("retry-after") or ""
    assert seconds.isdigit()
    assert int(seconds) >= 1
    return int(seconds)


async def test_a_runaway_tenant_is_held_and_others_are_not(lab: Lab) -> None:
    answers = await asyncio.gather(*(ask(lab, "wild") for _ in range(20)))
    refused = [answer for answer in answers if answer.status != 200]
    assert len(refused) == 19
    assert all(held_back(answer, "rps: 0.02") <= 50 for answer in refused)
    assert (await ask(lab, "calm")).status == 200
    assert len(lab["alpha"].seen) == 2
    row = await lab.row("tenants", tenant="wild")
    assert (row["refused"], row["in_flight"], row["rps"]) == (19, 0, SLOW)
    assert row["requests_left"] < 1


async def test_no_metric_has_a_tenants_name(lab: Lab) -> None:
    for _ in range(2):
        await ask(lab, "whisperer")
    metrics = (await lab.proxy.get("/metrics")).body.decode()
    assert "whisperer" not in metrics
    assert 'sponson_reason="tenant_limit"' in metrics


async def test_only_so_many_are_in_flight_until_the_last_byte(lab: Lab) -> None:
    more = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.chunk(event("a"))
        await more.wait()
        await exchange.chunk(DONE)
        await exchange.end()

    lab["alpha"].script = script
    headers = [("x-agent-id", "two-1")]
    streams = []
    for number in (1, 2):
        streams.append(asyncio.ensure_future(lab.call(body=CHAT_STREAM, headers=headers)))
        await lab["alpha"].has_seen(number)
    held_back(await ask(lab, "two-1"), "concurrency: 2")
    assert (await lab.row("tenants", tenant="two-1"))["in_flight"] == 2
    more.set()
    assert all(answer.complete for answer in await asyncio.gather(*streams))
    lab["alpha"].script = says("hi")
    assert (await ask(lab, "two-1")).status == 200


async def test_a_tenant_that_leaves_gives_its_place_back(lab: Lab) -> None:
    lab["alpha"].script = says("late", after=30)
    for _ in range(2):
        async with lab.wire() as wire:
            chat = {**CHAT, "max_tokens": 9}
            await wire.send(request_bytes("POST", "/v1/chat/completions", headers=[("x-agent-id", "two-2")], body=chat))
            await lab.proxy.until(lambda status: status["in_flight"] == 1)
            wire.leave()
        await lab.idle()
    assert (await lab.row("tenants", tenant="two-2"))["in_flight"] == 0
    lab["alpha"].script = says("hi")
    assert (await ask(lab, "two-2")).status == 200


async def test_tokens_that_were_used_are_owed(lab: Lab) -> None:
    usage = {"prompt_tokens": 200, "completion_tokens": 110, "total_tokens": 310}

    async def script(exchange: Exchange) -> None:
        await exchange.reply(200, {"id": "c", "object": "chat.completion", "choices": [], "usage": usage})

    lab["alpha"].script = script
    assert (await ask(lab, "tokens-1")).status == 200
    # Ten tokens come a second, ten are there at most: 310 were used.
    assert 2 <= held_back(await ask(lab, "tokens-1"), "tpm: 600") <= 31
    assert (await lab.row("tenants", tenant="tokens-1"))["tokens_left"] < 0


@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "keyed"])
async def test_a_caller_that_leaves_a_stream_owes_what_has_come_of_it(lab: Lab, keyed: bool) -> None:
    tenant = f"tokens-cut-{keyed}"
    headers = [("x-agent-id", tenant), *([("idempotency-key", "cut")] if keyed else [])]

    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.chunk(event("word") * 100)
        await asyncio.sleep(30)

    lab["alpha"].script = script
    async with lab.wire() as wire:
        await wire.send(request_bytes("POST", "/v1/chat/completions", headers=headers, body=CHAT_STREAM))
        await wire.answer(within=1.0)
        wire.leave()
    await lab.idle()
    assert (await lab.row("tenants", tenant=tenant))["tokens_left"] < -50


async def test_what_could_never_go_is_told_so_without_a_time(lab: Lab) -> None:
    answer = await lab.call(body={**CHAT, "max_tokens": 5000}, headers=[("x-agent-id", "tokens-2")])
    assert (answer.status, answer.reason, answer.header("retry-after")) == (429, "tenant_limit", None)
    assert "whole minute" in answer.json()["error"]["message"]
    answer = await ask(lab, "none-1")
    assert (answer.status, answer.reason, answer.header("retry-after")) == (429, "tenant_limit", None)
    assert not lab["alpha"].seen


async def test_a_credential_names_who_brings_no_name_and_is_shown_to_nobody(lab: Lab) -> None:
    async def by(*header: str) -> int:
        return (await lab.call(body=CHAT, headers=[(header[0], header[1])])).status

    assert await by("authorization", "Bearer sk-one-secret") == 200
    assert await by("authorization", "Bearer sk-one-secret") == 429
    assert await by("x-api-key", "sk-one-secret") == 429
    assert await by("authorization", "Bearer sk-other-secret") == 200
    status = (await lab.proxy.get("/status")).body.decode()
    assert status.count('"key-') == 2
    assert "secret" not in status
    assert "secret" not in lab.proxy.log()


async def test_who_brings_neither_is_the_default_tenant(lab: Lab) -> None:
    assert [(await lab.call(body=CHAT)).status for _ in range(2)] == [200, 429]
    assert (await lab.row("tenants", tenant="default"))["refused"] == 1


async def test_retries_and_refusals_below_cost_a_tenant_one_request(lab: Lab) -> None:
    lab["broken"].script = says("well")
    answer = await lab.call(body={**CHAT, "model": "broken"}, headers=[("x-agent-id", "retrying")])
    assert answer.status == 200
    row = await lab.row("tenants", tenant="retrying")
    assert (row["refused"], row["in_flight"]) == (0, 0)
    answer = await lab.call("/crowded/v1/models", method="GET", headers=[("x-agent-id", "free-1")])
    assert (answer.status, answer.reason) == (429, "queue_timeout")
    assert (await lab.row("tenants", tenant="free-1"))["in_flight"] == 0


@pytest.mark.parametrize("name", ["x" * 4000, "\xff\xfe", "caf\xe9"])
async def test_whatever_a_caller_calls_itself_it_is_one_tenant_and_status_can_be_read(lab: Lab, name: str) -> None:
    assert [(await ask(lab, name)).status for _ in range(2)] == [200, 429]
    assert all(len(row["tenant"]) <= 128 for row in (await lab.proxy.status())["tenants"])
