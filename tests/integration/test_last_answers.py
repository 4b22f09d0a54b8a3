"""What is told when every tier has failed, and what of one tier never reaches another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT, answers, resets

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

SECRET = "sk-for-alpha-alone"
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "alpha": {"auth": {"header": "X-Acme-Key"}, "breaker": "off"},
        "keyed": {"keys": [{"id": "k1", "env": "KEYED_KEY"}]},
        "open": {"breaker": "off"},
    },
    "routes": [
        route("to-keyed", "alpha", "keyed", retry={"attempts": 1}),
        route("to-open", "alpha", "open", retry={"attempts": 1}),
    ],
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab() -> AsyncIterator[Lab]:
    async with Lab(POLICY, env={"KEYED_KEY": "sk-keyed"}) as lab:
        yield lab
        assert SECRET not in lab.proxy.log()


@pytest.mark.parametrize("tier", ["keyed", "open"])
@pytest.mark.parametrize("name", ["x-acme-key", "X-ACME-KEY"])
async def test_credential_in_a_providers_own_header_reaches_that_provider_alone(lab: Lab, name: str, tier: str) -> None:
    lab["alpha"].script = answers(500)
    answer = await lab.chat(f"to-{tier}", headers=[(name, SECRET)])
    assert (answer.status, answer.provider) == (200, tier)
    assert lab["alpha"].only.header("x-acme-key") == SECRET
    assert SECRET.encode() not in lab[tier].only.head


async def test_earlier_answer_that_is_relayed_bears_its_own_provider_and_tier(lab: Lab) -> None:
    lab["alpha"].script = answers(500, {"error": {"message": "from alpha"}})
    lab["open"].script = resets
    answer = await lab.chat("to-open")
    assert (answer.status, answer.json()) == (500, {"error": {"message": "from alpha"}})
    assert (answer.provider, answer.tier, answer.attempts) == ("alpha", 1, 2)
    line = await lab.proxy.line_of(answer)
    assert (line["provider"], line["tier"], line["attempts"]) == ("alpha", 1, 2)


async def counted(lab: Lab, *labels: str) -> float:
    """Sums what `/metrics` counted of refusals with these words."""
    lines = (await lab.proxy.get("/metrics")).body.decode().splitlines()
    rows = [
        line for line in lines if line.startswith("sponson_refusals_total") and all(word in line for word in labels)
    ]
    return sum(float(row.rsplit(" ", 1)[1]) for row in rows)


@pytest.mark.parametrize(
    ("path", "kind"), [("/v1/messages", "error"), ("/v1/chat/completions", None), ("/anything", None)]
)
async def test_malformed_request_has_an_id_a_log_line_and_is_counted(lab: Lab, path: str, kind: str | None) -> None:
    before = await counted(lab, "bad_request")
    async with lab.wire() as wire:
        await wire.send(f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization : Bearer {SECRET}\r\n\r\n".encode())
        answer = await wire.answer()
        assert await wire.closed()
    assert (answer.status, answer.reason, answer.header("connection")) == (400, "bad_request", "close")
    assert answer.json().get("type") == kind
    line = await lab.proxy.line_of(answer)
    assert (line["status"], line["outcome"], line["reason"]) == (400, "refused", "bad_request")
    async with asyncio.timeout(5):
        while await counted(lab, "bad_request") != before + 1:
            await asyncio.sleep(0.02)
    assert (await lab.call("/open/v1/chat/completions", CHAT)).status == 200
