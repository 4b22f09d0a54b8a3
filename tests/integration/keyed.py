"""Keyed requests, and what a black-box test says of their answers."""

from __future__ import annotations

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
    """Asks, and leaves without an answer."""
    await lab.chat(model, headers=key(value), within=0.1)
    await lab.proxy.until(lambda status: status["in_flight"] == 0)


def conflict(answer: Answer) -> str:
    """Checks a refusal for a key; returns what it says."""
    assert (answer.status, answer.reason) == (409, "idempotency_conflict")
    assert answer.header("x-should-retry") == "false"
    text: str = answer.json()["error"]["message"]
    return text
