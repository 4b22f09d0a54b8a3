"""Sponson with `merge` before the simulated provider, and the official client: everybody gets what is its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import openai

from proxy.simulation.provider import Latency, ProviderSimulator, SimulatorSettings
from proxy.simulation.provider.settings import AnswerStyle
from tests.integration.harness import ProxyProcess

CALLERS = 24
Ask = Callable[[openai.AsyncOpenAI, str], Awaitable[Any]]


async def vector(client: openai.AsyncOpenAI, text: str) -> list[float]:
    answer = await client.embeddings.create(model="m", input=text, dimensions=6)
    (found,) = answer.data
    assert found.index == 0
    return found.embedding


async def plain_vector(client: openai.AsyncOpenAI, text: str) -> list[float]:
    answer = await client.embeddings.create(model="m", input=[text], dimensions=6, encoding_format="float")
    return answer.data[0].embedding


async def token_vector(client: openai.AsyncOpenAI, text: str) -> list[float]:
    answer = await client.embeddings.create(model="m", input=list(text.encode()), dimensions=6)
    return answer.data[0].embedding


async def two_vectors(client: openai.AsyncOpenAI, text: str) -> list[list[float]]:
    answer = await client.embeddings.create(model="m", input=[text, f"{text}, again"], dimensions=6)
    assert sorted(each.index for each in answer.data) == [0, 1]
    return [each.embedding for each in sorted(answer.data, key=lambda each: each.index)]


async def completion(client: openai.AsyncOpenAI, text: str) -> str:
    answer = await client.completions.create(model="m", prompt=text)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == len(text.split())
    return answer.choices[0].text


async def two_completions(client: openai.AsyncOpenAI, text: str) -> list[tuple[int, str]]:
    answer = await client.completions.create(model="m", prompt=[text], n=2)
    return sorted((choice.index, choice.text) for choice in answer.choices)


async def scores(client: openai.AsyncOpenAI, text: str) -> list[dict[str, Any]]:
    answer = await client.moderations.create(model="m", input=text)
    return [result.category_scores.to_dict() for result in answer.results]


def policy(model: ProviderSimulator) -> dict[str, Any]:
    paths = ["/v1/embeddings", "/v1/completions", "/v1/moderations"]
    return {
        "version": 1,
        "providers": {
            "alpha": {"base_url": f"{model.base_url}/v1", "limits": {"concurrency": 1}, "queue": {"max": 500}}
        },
        "routes": [
            {
                "name": "merged",
                "match": {"path": paths},
                "tiers": [{"provider": "alpha", "queue": "60s"}],
                "merge": {"window": "100ms", "max": 8},
            }
        ],
    }


@asynccontextmanager
async def merging(**changes: Any) -> AsyncIterator[tuple[ProviderSimulator, openai.AsyncOpenAI, openai.AsyncOpenAI]]:
    """The model, a client of Sponson, and one of the model itself."""
    settings = SimulatorSettings(answer=AnswerStyle.ECHO, latency=Latency(low=0.02), input_cost=0.05, **changes)
    async with (
        ProviderSimulator(settings) as model,
        ProxyProcess(policy(model)) as sponson,
        openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{sponson.port}/v1", api_key="k", max_retries=0) as client,
        openai.AsyncOpenAI(base_url=f"{model.base_url}/v1", api_key="k", max_retries=0) as direct,
    ):
        yield model, client, direct


ASKS: list[Ask] = [vector, plain_vector, token_vector, two_vectors, completion, two_completions, scores]


async def asked(client: openai.AsyncOpenAI, texts: list[str], *, asks: list[Ask] = ASKS) -> list[Any]:
    """Asks for everything of every text at once; what fails is returned too."""
    calls = [ask(client, text) for text in texts for ask in asks]
    return await asyncio.gather(*calls, return_exceptions=True)


async def test_what_travels_together_is_dealt_to_whom_it_belongs() -> None:
    texts = [f"text number {number}" for number in range(CALLERS)]
    async with merging(shuffle=True) as (model, client, direct):
        given, stats = await asked(client, texts), model.stats()
        assert given == await asked(direct, texts)
    assert stats.inputs == CALLERS * (len(ASKS) + 1)
    assert stats.received < CALLERS * len(ASKS)
    assert 1 < stats.most_inputs <= 8


async def test_poison_spoils_nobody_elses_call() -> None:
    texts = [f"text number {number}{' arsenic' if number in (3, 17) else ''}" for number in range(CALLERS)]
    asks: list[Ask] = [vector, completion, scores]
    async with merging(poison="arsenic") as (_, client, direct):
        given, alone = await asked(client, texts, asks=asks), await asked(direct, texts, asks=asks)
    spoilt = [isinstance(got, openai.BadRequestError) for got in given]
    assert spoilt == ["arsenic" in text for text in texts for _ in asks]
    assert [got for got in given if not isinstance(got, Exception)] == [
        got for got in alone if not isinstance(got, Exception)
    ]


async def test_more_inputs_than_the_model_takes_are_asked_one_by_one() -> None:
    texts = [f"text number {number}" for number in range(CALLERS)]
    async with merging(max_inputs=1) as (model, client, direct):
        given = await asked(client, texts, asks=[vector])
        assert model.stats().by_status["400"] > 0
        assert given == await asked(direct, texts, asks=[vector])


async def test_tokens_are_told_to_each_and_are_the_models_own_together() -> None:
    async with merging() as (model, client, _):
        asked = (client.embeddings.create(model="m", input="word " * (1 + number)) for number in range(CALLERS))
        usages = [answer.usage for answer in await asyncio.gather(*asked)]
        counted = model.stats().counted_tokens
    assert sum(usage.prompt_tokens for usage in usages) == counted
    assert all(usage.prompt_tokens == usage.total_tokens > 0 for usage in usages)
    assert [usage.total_tokens for usage in usages] == sorted(usage.total_tokens for usage in usages)
