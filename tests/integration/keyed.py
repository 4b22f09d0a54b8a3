"""Keyed requests, and what a black-box test says of their answers."""

from __future__ import annotations

import asyncio

from tests.integration.caller import Answer, Headers, request_bytes
from tests.integration.harness import Lab
from tests.integration.messages import CHAT, CHAT_STREAM

OWN = {"keys": [{"id": "a1", "env": "ALPHA_KEY"}], "breaker": "off"}
"""A provider with a key of ours."""
SECRETS = {"ALPHA_KEY": "sk-alpha"}


def key(value: str, *more: tuple[str, str]) -> Headers:
    """Returns the headers of a keyed request."""
    return [("idempotency-key", value), *more]


def request(*, stream: bool, value: str, model: str = "chat") -> bytes:
    """Returns the bytes of the keyed chat that `Lab.chat` sends."""
    body = {**(CHAT_STREAM if stream else CHAT), "model": model}
    return request_bytes("POST", "/v1/chat/completions", headers=key(value), body=body)


async def leaves(lab: Lab, model: str, value: str) -> None:
    """Asks, and leaves without an answer once a provider has the request."""
    before = _seen(lab)
    call = asyncio.ensure_future(lab.chat(model, headers=key(value)))
    async with asyncio.timeout(5):
        while _seen(lab) == before:
            await asyncio.sleep(0.005)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await lab.proxy.until(lambda status: status["in_flight"] == 0)


def _seen(lab: Lab) -> int:
    return sum(len(provider.seen) for provider in lab.providers.values())


def conflict(answer: Answer) -> str:
    """Checks a refusal for a key; returns what it says."""
    assert (answer.status, answer.reason) == (409, "idempotency_conflict")
    assert answer.header("x-should-retry") == "false"
    text: str = answer.json()["error"]["message"]
    return text
