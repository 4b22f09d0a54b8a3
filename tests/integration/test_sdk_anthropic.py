"""The official Anthropic client, unchanged but for its address, through the proxy to a simulated provider."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import anthropic
import pytest
import pytest_asyncio
from anthropic.types import MessageParam, TextBlock

from proxy.simulation.provider import ProviderSimulator, SimulatorSettings
from proxy.simulation.provider.settings import AnswerStyle
from tests.integration.harness import Lab, route

pytestmark = pytest.mark.asyncio(loop_scope="module")

T = TypeVar("T")
HELLO = "good day to you"
ASK: list[MessageParam] = [{"role": "user", "content": HELLO}]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sim() -> AsyncIterator[ProviderSimulator]:
    async with ProviderSimulator(SimulatorSettings(answer=AnswerStyle.ECHO, api_keys=("sk-ours",))) as sim:
        yield sim


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(sim: ProviderSimulator) -> AsyncIterator[Lab]:
    claude = {"base_url": sim.base_url, "dialect": "anthropic", "breaker": "off"}
    policy = {
        "version": 1,
        "providers": {"keyed": {**claude, "keys": [{"id": "k", "env": "KEY"}]}, "plain": claude},
        "routes": [
            route("own", "plain", match={"model": "own-*"}, retry={"attempts": 1}),
            route("all", "keyed", match={"path": "/v1/messages"}, retry={"attempts": 1}),
        ],
    }
    async with Lab(policy, env={"KEY": "sk-ours"}) as lab:
        yield lab


@pytest_asyncio.fixture(loop_scope="module")
async def client(lab: Lab) -> AsyncIterator[anthropic.AsyncAnthropic]:
    base_url = f"http://127.0.0.1:{lab.proxy.port}"
    async with anthropic.AsyncAnthropic(base_url=base_url, api_key="sk-callers", max_retries=0) as client:
        yield client


async def in_sync(lab: Lab, use: Callable[[anthropic.Anthropic], T]) -> T:
    """Uses the synchronous client, in a thread."""

    def run() -> T:
        base_url = f"http://127.0.0.1:{lab.proxy.port}"
        with anthropic.Anthropic(base_url=base_url, api_key="sk-callers", max_retries=0) as client:
            return use(client)

    return await asyncio.to_thread(run)


def text_of(message: anthropic.types.Message) -> str:
    """Returns the text of an answer."""
    return "".join(block.text for block in message.content if isinstance(block, TextBlock))


async def test_message(client: anthropic.AsyncAnthropic) -> None:
    answer = await client.messages.create(model="m", max_tokens=50, messages=ASK)
    assert text_of(answer) == HELLO
    assert answer.usage.output_tokens == 4


async def test_message_stream(client: anthropic.AsyncAnthropic) -> None:
    async with client.messages.stream(model="m", max_tokens=50, messages=ASK) as stream:
        text = "".join([piece async for piece in stream.text_stream])
        final = await stream.get_final_message()
    assert (text, text_of(final)) == (HELLO, HELLO)
    assert final.usage.output_tokens == 4


async def test_raw_events(client: anthropic.AsyncAnthropic) -> None:
    stream = await client.messages.create(model="m", max_tokens=50, messages=ASK, stream=True)
    kinds = [event.type async for event in stream]
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")


async def test_sync_message_and_stream(lab: Lab) -> None:
    def use(client: anthropic.Anthropic) -> tuple[str, str]:
        whole = text_of(client.messages.create(model="m", max_tokens=50, messages=ASK))
        with client.messages.stream(model="m", max_tokens=50, messages=ASK) as stream:
            return whole, "".join(stream.text_stream)

    assert await in_sync(lab, use) == (HELLO, HELLO)


ERRORS = [
    ("status=400", anthropic.BadRequestError, "invalid_request_error"),
    ("status=404", anthropic.NotFoundError, "not_found_error"),
    ("status=429", anthropic.RateLimitError, "rate_limit_error"),
    ("status=500", anthropic.InternalServerError, "api_error"),
    ("status=529", anthropic.APIStatusError, "overloaded_error"),
    ("reset", anthropic.InternalServerError, "api_error"),
]


@pytest.mark.parametrize(("fault", "error", "kind"), ERRORS)
async def test_errors_become_the_clients_own(
    client: anthropic.AsyncAnthropic, fault: str, error: type[anthropic.APIStatusError], kind: str
) -> None:
    with pytest.raises(error) as caught:
        await client.messages.create(
            model="own-m",
            max_tokens=50,
            messages=ASK,
            extra_headers={"x-sim-fault": fault, "x-api-key": "sk-ours", "authorization": "Bearer sk-ours"},
        )
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["type"] == "error"
    assert caught.value.body["error"]["type"] == kind


async def test_wrong_key_of_the_caller_is_an_authentication_error(client: anthropic.AsyncAnthropic) -> None:
    with pytest.raises(anthropic.AuthenticationError):
        await client.messages.create(model="own-m", max_tokens=50, messages=ASK)


async def test_our_refusals_become_the_clients_own(lab: Lab) -> None:
    async with anthropic.AsyncAnthropic(
        base_url=f"http://127.0.0.1:{lab.proxy.port}/nowhere", api_key="x", max_retries=0
    ) as lost:
        with pytest.raises(anthropic.NotFoundError):
            await lost.messages.create(model="m", max_tokens=50, messages=ASK)


async def test_broken_stream_raises(client: anthropic.AsyncAnthropic) -> None:
    stream = await client.messages.create(
        model="m", max_tokens=50, messages=ASK, stream=True, extra_headers={"x-sim-fault": "cut=4;by=reset"}
    )
    with pytest.raises(anthropic.APIError):
        async for _ in stream:
            pass
