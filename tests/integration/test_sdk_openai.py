"""The official OpenAI client, unchanged but for its address, through the proxy to a simulated provider."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import openai
import pytest
import pytest_asyncio

from proxy.simulation.provider import ProviderSimulator, SimulatorSettings
from proxy.simulation.provider.settings import AnswerStyle
from tests.integration.harness import Lab, route

pytestmark = pytest.mark.asyncio(loop_scope="module")

T = TypeVar("T")
HELLO = "good day to you"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sim() -> AsyncIterator[ProviderSimulator]:
    async with ProviderSimulator(SimulatorSettings(answer=AnswerStyle.ECHO, api_keys=("sk-ours",))) as sim:
        yield sim


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(sim: ProviderSimulator) -> AsyncIterator[Lab]:
    policy = {
        "version": 1,
        "providers": {
            "keyed": {"base_url": f"{sim.base_url}/v1", "keys": [{"id": "k", "env": "KEY"}], "breaker": "off"},
            "plain": {"base_url": f"{sim.base_url}/v1", "breaker": "off"},
        },
        "routes": [
            route("own", "plain", match={"model": "own-*"}, retry={"attempts": 1}),
            route("all", "keyed", match={"path": "/v1/*"}, retry={"attempts": 1}),
        ],
    }
    async with Lab(policy, env={"KEY": "sk-ours"}) as lab:
        yield lab


@pytest_asyncio.fixture(loop_scope="module")
async def client(lab: Lab) -> AsyncIterator[openai.AsyncOpenAI]:
    base_url = f"http://127.0.0.1:{lab.proxy.port}/v1"
    async with openai.AsyncOpenAI(base_url=base_url, api_key="sk-callers", max_retries=0) as client:
        yield client


async def in_sync(lab: Lab, use: Callable[[openai.OpenAI], T]) -> T:
    """Uses the synchronous client, in a thread."""

    def run() -> T:
        base_url = f"http://127.0.0.1:{lab.proxy.port}/v1"
        with openai.OpenAI(base_url=base_url, api_key="sk-callers", max_retries=0) as client:
            return use(client)

    return await asyncio.to_thread(run)


async def test_chat(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": HELLO}])
    assert answer.choices[0].message.content == HELLO
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 4


async def test_chat_stream(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="m",
        messages=[{"role": "user", "content": HELLO}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == HELLO
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 4


async def test_embeddings(client: openai.AsyncOpenAI) -> None:
    packed = await client.embeddings.create(model="e", input=["x", "y"])
    plain = await client.embeddings.create(model="e", input=["y"], encoding_format="float")
    assert packed.data[1].embedding == pytest.approx(plain.data[0].embedding)


async def test_sync_chat_and_stream(lab: Lab) -> None:
    def use(client: openai.OpenAI) -> tuple[str | None, str]:
        whole = client.chat.completions.create(model="m", messages=[{"role": "user", "content": HELLO}])
        stream = client.chat.completions.create(model="m", messages=[{"role": "user", "content": HELLO}], stream=True)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
        return whole.choices[0].message.content, text

    assert await in_sync(lab, use) == (HELLO, HELLO)


async def test_sync_embeddings_completions_and_models(lab: Lab) -> None:
    def use(client: openai.OpenAI) -> tuple[int, str, list[str]]:
        vectors = client.embeddings.create(model="e", input=["x", "y"]).data
        text = client.completions.create(model="m", prompt=HELLO).choices[0].text
        return len(vectors), text, [model.id for model in client.models.list()]

    assert await in_sync(lab, use) == (2, HELLO, ["sim-chat", "sim-embed"])


async def test_raw_answer_tells_who_answered(client: openai.AsyncOpenAI) -> None:
    raw = await client.chat.completions.with_raw_response.create(
        model="m", messages=[{"role": "user", "content": HELLO}]
    )
    assert raw.headers["x-sponson-provider"] == "keyed"
    assert raw.headers["x-sponson-attempts"] == "1"


ERRORS = [
    ("status=400", openai.BadRequestError),
    ("status=403", openai.PermissionDeniedError),
    ("status=404", openai.NotFoundError),
    ("status=409", openai.ConflictError),
    ("status=422", openai.UnprocessableEntityError),
    ("status=429", openai.RateLimitError),
    ("status=500", openai.InternalServerError),
    ("status=529", openai.InternalServerError),
    ("reset", openai.InternalServerError),
]


@pytest.mark.parametrize(("fault", "error"), ERRORS)
async def test_errors_become_the_clients_own(
    client: openai.AsyncOpenAI, fault: str, error: type[openai.APIStatusError]
) -> None:
    with pytest.raises(error) as caught:
        await client.chat.completions.create(
            model="own-m",
            messages=[{"role": "user", "content": HELLO}],
            extra_headers={"x-sim-fault": fault, "authorization": "Bearer sk-ours"},
        )
    assert caught.value.response.headers["x-sponson-request-id"]
    assert caught.value.body is not None


async def test_wrong_key_of_the_caller_is_an_authentication_error(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.AuthenticationError):
        await client.chat.completions.create(model="own-m", messages=[{"role": "user", "content": HELLO}])


async def test_our_refusals_become_the_clients_own(lab: Lab, client: openai.AsyncOpenAI) -> None:
    async with openai.AsyncOpenAI(
        base_url=f"http://127.0.0.1:{lab.proxy.port}/nowhere", api_key="x", max_retries=0
    ) as lost:
        with pytest.raises(openai.NotFoundError) as caught:
            await lost.chat.completions.create(model="m", messages=[{"role": "user", "content": HELLO}])
    assert caught.value.code == "no_route"


async def test_broken_stream_raises(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="m",
        messages=[{"role": "user", "content": HELLO}],
        stream=True,
        extra_headers={"x-sim-fault": "cut=3;by=reset"},
    )
    with pytest.raises(openai.APIError):
        async for _ in stream:
            pass


async def test_client_that_retries_by_itself_recovers(sim: ProviderSimulator, lab: Lab) -> None:
    sim.set_faults(["status=503,first=1"])
    async with openai.AsyncOpenAI(
        base_url=f"http://127.0.0.1:{lab.proxy.port}/v1", api_key="x", max_retries=1
    ) as patient:
        answer = await patient.chat.completions.create(model="m", messages=[{"role": "user", "content": HELLO}])
    assert answer.choices[0].message.content == HELLO
