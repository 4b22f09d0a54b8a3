"""The official clients, unchanged, directly against the simulator."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anthropic
import openai
import pytest

from proxy.simulation.provider import ProviderSimulator, SimulatorSettings
from proxy.simulation.provider.settings import AnswerStyle


@pytest.fixture
async def sim() -> AsyncIterator[ProviderSimulator]:
    settings = SimulatorSettings(answer=AnswerStyle.ECHO, api_keys=("k",))
    async with ProviderSimulator(settings) as running:
        yield running


@pytest.fixture
async def openai_client(sim: ProviderSimulator) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{sim.base_url}/v1", api_key="k", max_retries=0) as client:
        yield client


@pytest.fixture
async def anthropic_client(sim: ProviderSimulator) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=sim.base_url, api_key="k", max_retries=0) as client:
        yield client


async def test_openai_chat_and_stream(openai_client: openai.AsyncOpenAI) -> None:
    answer = await openai_client.chat.completions.create(model="m", messages=[{"role": "user", "content": "good day"}])
    assert answer.choices[0].message.content == "good day"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 2
    stream = await openai_client.chat.completions.create(
        model="m",
        messages=[{"role": "user", "content": "good day"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "good day"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 2


async def test_openai_embeddings_completions_and_models(openai_client: openai.AsyncOpenAI) -> None:
    one = await openai_client.embeddings.create(model="e", input="x")
    two = await openai_client.embeddings.create(model="e", input=["y", "x"], encoding_format="float")
    assert one.data[0].embedding == pytest.approx(two.data[1].embedding)
    completion = await openai_client.completions.create(model="m", prompt="good day")
    assert completion.choices[0].text == "good day"
    assert [model.id async for model in openai_client.models.list()] == ["sim-chat", "sim-embed"]


async def test_openai_takes_batches(openai_client: openai.AsyncOpenAI) -> None:
    completion = await openai_client.completions.create(model="m", prompt=["one", "two words"], n=2)
    assert [choice.text for choice in completion.choices] == ["one", "one", "two words", "two words"]
    assert [choice.index for choice in completion.choices] == [0, 1, 2, 3]
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (1 + 3, 6)
    moderation = await openai_client.moderations.create(input=["one", "two"])
    alone = await openai_client.moderations.create(input="two")
    assert moderation.results[1] == alone.results[0] != moderation.results[0]
    assert moderation.results[0].category_scores.violence <= 1


async def test_openai_errors_are_understood(sim: ProviderSimulator, openai_client: openai.AsyncOpenAI) -> None:
    async def ask(fault: str) -> None:
        await openai_client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "x"}], extra_headers={"x-sim-fault": fault}
        )

    with pytest.raises(openai.RateLimitError) as limited:
        await ask("status=429;retry-after=2")
    assert limited.value.code == "rate_limit_exceeded"
    with pytest.raises(openai.InternalServerError):
        await ask("status=503")
    with pytest.raises(openai.APIConnectionError):
        await ask("reset")
    stranger = openai_client.with_options(api_key="other")
    with pytest.raises(openai.AuthenticationError):
        await stranger.models.list()


async def test_anthropic_message_and_stream(anthropic_client: anthropic.AsyncAnthropic) -> None:
    messages: list[anthropic.types.MessageParam] = [{"role": "user", "content": "good day"}]
    answer = await anthropic_client.messages.create(model="m", max_tokens=50, messages=messages)
    assert answer.content[0].type == "text"
    assert answer.content[0].text == "good day"
    assert answer.stop_reason == "end_turn"
    async with anthropic_client.messages.stream(model="m", max_tokens=1, messages=messages) as stream:
        texts = [text async for text in stream.text_stream]
        final = await stream.get_final_message()
    assert texts == ["good"]
    assert (final.stop_reason, final.usage.output_tokens) == ("max_tokens", 1)


async def test_anthropic_errors_are_understood(anthropic_client: anthropic.AsyncAnthropic) -> None:
    messages: list[anthropic.types.MessageParam] = [{"role": "user", "content": "x"}]
    with pytest.raises(anthropic.APIStatusError) as overloaded:
        await anthropic_client.messages.create(
            model="m", max_tokens=5, messages=messages, extra_headers={"x-sim-fault": "status=529"}
        )
    assert overloaded.value.status_code == 529
    assert overloaded.value.type == "overloaded_error"
    async with anthropic_client.messages.stream(
        model="m", max_tokens=5, messages=messages, extra_headers={"x-sim-fault": "error-in-200=after"}
    ) as stream:
        with pytest.raises(anthropic.APIStatusError):
            await stream.get_final_message()


async def test_a_rate_limit_is_one_to_both_clients_and_openais_waits_as_long_as_it_is_told() -> None:
    limited = SimulatorSettings(rpm=600, window_seconds=0.1)
    messages: list[anthropic.types.MessageParam] = [{"role": "user", "content": "x"}]
    async with ProviderSimulator(SimulatorSettings(rpm=1)) as sim:
        async with openai.AsyncOpenAI(base_url=f"{sim.base_url}/v1", api_key="k", max_retries=0) as client:
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
            with pytest.raises(openai.RateLimitError, match="requests per min"):
                await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
        async with anthropic.AsyncAnthropic(base_url=sim.base_url, api_key="k", max_retries=0) as other:
            with pytest.raises(anthropic.RateLimitError, match="1 requests per minute"):
                await other.messages.create(model="m", max_tokens=5, messages=messages)
    async with (
        ProviderSimulator(limited) as sim,
        openai.AsyncOpenAI(base_url=f"{sim.base_url}/v1", api_key="k", max_retries=2) as client,
    ):
        for _ in range(3):
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
