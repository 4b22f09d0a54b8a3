"""Buckets that are full and refill next to nothing: what a call has cost is then seen in `/status`, to the token."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests.integration.caller import Answer, Headers
from tests.integration.harness import Lab
from tests.integration.messages import DONE, event
from tests.integration.scripted import Exchange, Script

REQUESTS, TOKENS = 1000.0, 100_000.0
"""What a full bucket holds."""
FLEET = 1_000_000
FAST: dict[str, Any] = {"rpm": 60_000, "tpm": 6_000_000, "headroom": 1.0, "burst": "1s"}
SLOW: dict[str, Any] = {"rpm": 6_000, "tpm": 600_000, "headroom": 1.0, "burst": "10000000s"}
"""Of so large a fleet that one instance may have a hundredth of a token a second; yet its buckets are as large."""


SIZE, PROMPT, ALLOWED, WRITTEN = 400, 100, 60, 20
"""Bytes of a body, and the tokens that it has, may be answered with, and is answered with."""
USED = PROMPT + WRITTEN
RESERVED = round(SIZE / 3 + ALLOWED)
JSON: Headers = (("content-type", "application/json"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """What the two buckets of a limit hold."""

    requests: float
    tokens: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a call was answered, and what it has cost by the time that nothing is in flight any more.

    To the hundredth of a request and to the next whole token: less comes back meanwhile.
    """

    answer: Answer | None
    requests: float
    tokens: float

    @property
    def all(self) -> tuple[float, float]:
        """Requests and tokens."""
        return self.requests, self.tokens


async def level(lab: Lab, limit: str) -> Level:
    """Returns what is left of a limit, by its name in `/status`."""
    rows = {row["unit"]: row["left"] for row in (await lab.proxy.status())["quotas"] if row["limit"] == limit}
    return Level(requests=rows["requests"], tokens=rows["tokens"])


async def goes_live(lab: Lab, policy: Mapping[str, Any]) -> None:
    """Puts another policy in place, and waits until it is live."""
    before = (await lab.proxy.get("/policy")).json()["revision"]
    lab.proxy.rewrite(policy)
    async with asyncio.timeout(10):
        while (shown := (await lab.proxy.get("/policy")).json())["revision"] == before:
            assert not shown["problems"], shown["problems"]
            await asyncio.sleep(0.02)


def with_limits(policy: Mapping[str, Any], limits: Mapping[str, Any], *, fleet: int) -> dict[str, Any]:
    """Returns the policy with these limits at every provider that has any."""
    providers = {
        name: {**provider, "limits": {**provider["limits"], **limits}} if "limits" in provider else provider
        for name, provider in policy["providers"].items()
    }
    return {**policy, "providers": providers, "fleet": {"size": {"static": fleet}}}


@asynccontextmanager
async def full(policy: Mapping[str, Any], *, env: Mapping[str, str] | None = None) -> AsyncIterator[Lab]:
    """A lab in which every bucket of a provider with `limits` is full, and stays as it is but for calls."""
    async with Lab(with_limits(policy, FAST, fleet=1), env=env) as lab:
        await lab.proxy.until(lambda status: all(row["left"] == row["capacity"] for row in status["quotas"]))
        await goes_live(lab, with_limits(lab.policy, SLOW, fleet=FLEET))
        yield lab


async def cost(lab: Lab, provider: str, does: Callable[[], Awaitable[Answer | None]]) -> Cost:
    """Does something, and returns what it has cost this provider."""
    limit = f"provider {provider}"
    before = await level(lab, limit)
    answer = await does()
    await lab.idle()
    after = await level(lab, limit)
    spent = round(before.requests - after.requests, 2), round(before.tokens - after.tokens)
    return Cost(answer=answer, requests=spent[0], tokens=spent[1])


def body(model: str, *, stream: bool = False, **fields: Any) -> bytes:
    """Returns a chat of so many bytes."""
    document = {"model": model, "max_tokens": ALLOWED, "stream": stream, **fields, "messages": []}
    message = {"role": "user", "content": ""}
    document["messages"] = [message]
    message["content"] = "x" * (SIZE - len(json.dumps(document)))
    data = json.dumps(document).encode()
    assert len(data) == SIZE
    return data


def usage(**details: int) -> dict[str, Any]:
    """Returns what the call has used."""
    told: dict[str, Any] = {"prompt_tokens": PROMPT, "completion_tokens": WRITTEN, "total_tokens": USED}
    return {**told, "prompt_tokens_details": details} if details else told


def answer_with(**details: int) -> dict[str, Any]:
    """Returns a whole answer, with what it has used."""
    choices = [{"index": 0, "message": {"role": "assistant", "content": "well"}, "finish_reason": "stop"}]
    return {"id": "c", "object": "chat.completion", "model": "m", "choices": choices, "usage": usage(**details)}


def uses(**details: int) -> Script:
    """A provider that answers, and tells what that took: a stream only if it is asked."""

    async def script(exchange: Exchange) -> None:
        asked = exchange.request.json()
        if not asked.get("stream"):
            await exchange.reply(200, answer_with(**details))
            return
        told = json.dumps({"id": "c", "choices": [], "usage": usage(**details)}).encode()
        last = [b"data: " + told + b"\n\n"] if asked.get("stream_options", {}).get("include_usage") else []
        await exchange.stream([event("a"), event("b"), *last, DONE])

    return script


async def ask(lab: Lab, model: str, *, headers: Headers = (), **fields: Any) -> Answer:
    """Sends a chat."""
    return await lab.call(body=body(model, **fields), headers=[*JSON, *headers])


async def costs(lab: Lab, model: str, *, provider: str = "alpha", headers: Headers = (), **fields: Any) -> Any:
    """Sends a chat; returns the answer, and requests and tokens that it has cost."""
    spent = await cost(lab, provider, lambda: ask(lab, model, headers=headers, **fields))
    return spent.answer, spent.all
