"""A provider with rate limits over real sockets: what counts, what is refused, and how both are told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proxy.simulation.provider import ProviderSimulator, Refill, SimulatorSettings, TokenRule
from tests.simulation.provider.wire import CHAT, MESSAGE, STREAM, Answer, call, chat

PROMPT = 5
"""Tokens of the prompt in `CHAT`: four characters each."""


def limited(**settings: Any) -> ProviderSimulator:
    return ProviderSimulator(SimulatorSettings(**settings))


async def keyed(sim: ProviderSimulator, key: str, body: Any = None, target: str = "/v1/chat/completions") -> Answer:
    return await call(sim.port, target, body or CHAT, [("Authorization", f"Bearer {key}")])


async def test_every_answer_of_a_model_tells_the_limits_in_its_dialect() -> None:
    async with limited(rpm=60, tpm=10_000) as sim:
        openai = await chat(sim.port, body={**STREAM, "max_tokens": 100})
        assert (openai.headers["x-ratelimit-limit-requests"], openai.headers["x-ratelimit-limit-tokens"]) == (
            "60",
            "10000",
        )
        assert openai.headers["x-ratelimit-remaining-requests"] == "59"
        assert int(openai.headers["x-ratelimit-remaining-tokens"]) in range(10_000 - PROMPT - 100, 10_000)
        assert openai.headers["x-ratelimit-reset-tokens"].endswith("s")
        anthropic = await call(sim.port, "/v1/messages", MESSAGE)
        assert anthropic.headers["anthropic-ratelimit-requests-limit"] == "60"
        assert anthropic.headers["anthropic-ratelimit-tokens-reset"].endswith("Z")
        models = await call(sim.port, "/v1/models")
        assert not any("ratelimit" in name for name in models.headers)


async def test_a_call_above_a_keys_limit_gets_429_and_other_keys_do_not() -> None:
    async with limited(api_keys=("k1", "k2"), key_rpm=1) as sim:
        statuses = [(await keyed(sim, key)).status for key in ("k1", "k2", "nobody")]
        assert statuses == [200, 200, 401]
        refused = await keyed(sim, "k1")
        assert refused.status == 429
        assert (refused.json["error"]["type"], refused.json["error"]["code"]) == ("requests", "rate_limit_exceeded")
        assert 0 < int(refused.headers["retry-after-ms"]) <= 60_000
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert refused.headers["x-ratelimit-remaining-requests"] == "0"
        by_key = sim.stats().by_key
        assert {key: (counts.requests, counts.refusals) for key, counts in by_key.items()} == {
            "k1": (1, 1),
            "k2": (1, 0),
        }


async def test_the_account_limits_all_keys_together() -> None:
    async with limited(api_keys=("k1", "k2"), rpm=1) as sim:
        assert [(await keyed(sim, key)).status for key in ("k1", "k2")] == [200, 429]


async def test_anthropic_refuses_in_its_own_shape() -> None:
    async with limited(rpm=1) as sim:
        await call(sim.port, "/v1/messages", MESSAGE)
        refused = await call(sim.port, "/v1/messages", MESSAGE)
        assert (refused.status, refused.json["error"]["type"]) == (429, "rate_limit_error")
        assert int(refused.headers["retry-after"]) >= 1
        assert "retry-after-ms" not in refused.headers
        assert refused.headers["anthropic-ratelimit-requests-remaining"] == "0"


async def test_after_the_wait_that_is_told_the_call_fits() -> None:
    async with limited(rpm=600, window_seconds=0.1) as sim:
        answers = [await chat(sim.port) for _ in range(2)]
        if (refused := answers[-1]).status == 429:
            await asyncio.sleep(int(refused.headers["retry-after-ms"]) / 1000)
            answers.append(await chat(sim.port))
        assert answers[-1].status == 200


async def test_the_prompt_and_the_callers_maximum_count_at_arrival() -> None:
    async with limited(tpm=1000, refill=Refill.WINDOW, output_tokens=10) as sim:
        assert (await chat(sim.port, body={**CHAT, "max_tokens": 300, "n": 2})).status == 200
        assert sim.stats().counted_tokens == PROMPT + 600
        refused = await chat(sim.port, body={**CHAT, "max_completion_tokens": 500})
        assert (refused.status, refused.json["error"]["type"]) == (429, "tokens")
        assert (await chat(sim.port)).status == 200
        assert sim.requests[-1].tokens == PROMPT + 10
        assert sim.stats().counted_tokens == PROMPT + 600 + PROMPT + 10


async def test_what_is_used_counts_even_beyond_the_limit() -> None:
    async with limited(tpm=60, count_tokens=TokenRule.USED, output_tokens=100) as sim:
        assert (await chat(sim.port, body=STREAM)).status == 200
        refused = await chat(sim.port)
        assert refused.status == 429
        assert sim.stats().counted_tokens == PROMPT + 100
        assert PROMPT < int(refused.headers["retry-after"]) <= 51, "the debt is waited for, a token a second"


async def test_a_call_larger_than_the_limit_gets_no_time_to_come_back() -> None:
    async with limited(tpm=100) as sim:
        refused = await chat(sim.port, body={**CHAT, "max_tokens": 101})
        assert (refused.status, "retry-after" in refused.headers) == (429, False)
        assert refused.json["error"]["message"].startswith("Request too large for m on tokens per min (TPM)")


async def test_counting_tokens_costs_nothing_and_vectors_cost_their_input() -> None:
    async with limited(rpm=1, tpm=1000) as sim:
        assert (await call(sim.port, "/v1/messages/count_tokens", CHAT)).status == 200
        assert (await call(sim.port, "/v1/embeddings", {"model": "e", "input": ["abcd", "abcd"]})).status == 200
        assert sim.stats().counted_tokens == 2
        assert (await chat(sim.port)).status == 429


async def test_a_request_that_a_fault_ends_uses_nothing() -> None:
    async with limited(rpm=1) as sim:
        assert (await chat(sim.port, "status=503")).status == 503
        assert (await chat(sim.port)).status == 200


async def test_fixed_windows_refuse_until_the_next_one() -> None:
    async with limited(rpm=2, refill=Refill.WINDOW) as sim:
        answers = [await chat(sim.port) for _ in range(3)]
        assert [answer.status for answer in answers] == [200, 200, 429]
        assert 0 < int(answers[-1].headers["retry-after-ms"]) <= 60_000


async def test_allowed_and_counted_tokens_stand_side_by_side() -> None:
    async with limited(api_keys=("k1", "k2"), key_tpm=60_000) as sim:
        await keyed(sim, "k1")
        shown = (await call(sim.port, "/sim/stats")).json
        assert shown["by_key"] == {"k1": {"requests": 1, "tokens": PROMPT + 16, "refusals": 0}}
        assert shown["counted_tokens"] == PROMPT + 16
        assert shown["allowed_tokens"] > 0
        sim.reset_stats()
        assert sim.stats().by_key == {}
        assert sim.stats().counted_tokens == 0


@pytest.mark.parametrize("rule", TokenRule)
async def test_what_is_counted_is_what_usage_says(rule: TokenRule) -> None:
    async with limited(tpm=10_000, count_tokens=rule) as sim:
        usage = [(await chat(sim.port, body={**CHAT, "n": n})).json["usage"]["total_tokens"] for n in (1, 3)]
        assert sim.stats().counted_tokens == sum(usage)
