"""Official clients, unchanged but for their address, cannot tell a kept answer from a new one; LangChain neither.

The provider is the simulator, which answers by echo; how many requests it got tells who has asked it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import anthropic
import openai
import pytest
import pytest_asyncio
from anthropic.types import MessageParam, TextBlock
from openai.types.chat import ChatCompletionMessageParam
from pydantic import BaseModel, SecretStr

from proxy.simulation.provider import ProviderSimulator, SimulatorSettings
from proxy.simulation.provider.settings import AnswerStyle
from tests.integration.harness import Lab, route

pytestmark = pytest.mark.asyncio(loop_scope="module")

T = TypeVar("T")
CACHE = {"ttl": "1h", "scope": "route"}


class Ferry(BaseModel):
    """A departure."""

    harbour: str
    hour: int


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sim() -> AsyncIterator[ProviderSimulator]:
    async with ProviderSimulator(SimulatorSettings(answer=AnswerStyle.ECHO, api_keys=("sk-ours",))) as sim:
        yield sim


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(sim: ProviderSimulator) -> AsyncIterator[Lab]:
    ours = {"keys": [{"id": "k", "env": "KEY"}], "breaker": "off"}
    policy = {
        "version": 1,
        "providers": {
            "claude": {**ours, "base_url": sim.base_url, "dialect": "anthropic"},
            "alpha": {**ours, "base_url": f"{sim.base_url}/v1"},
        },
        "routes": [
            route("messages", "claude", match={"path": "/v1/messages*"}, cache=CACHE),
            route("embeddings", "alpha", match={"path": "/v1/embeddings"}, cache=CACHE, merge={"window": "5ms"}),
            route("all", "alpha", match={"path": "/v1/*"}, cache=CACHE),
        ],
    }
    async with Lab(policy, env={"KEY": "sk-ours"}) as lab:
        yield lab


class Counts:
    """How often the cache has answered, and not, since this was last asked."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._before = (0, 0)

    async def since(self) -> tuple[int, int]:
        """Returns hits and misses."""
        rows = (await self._lab.proxy.status())["caches"]
        now = sum(row["hits"] for row in rows), sum(row["misses"] for row in rows)
        before, self._before = self._before, now
        return now[0] - before[0], now[1] - before[1]


@pytest_asyncio.fixture(loop_scope="module")
async def counts(lab: Lab) -> Counts:
    counts = Counts(lab)
    await counts.since()
    return counts


@pytest_asyncio.fixture(loop_scope="module")
async def client(lab: Lab) -> AsyncIterator[openai.AsyncOpenAI]:
    base_url = f"http://127.0.0.1:{lab.proxy.port}/v1"
    async with openai.AsyncOpenAI(base_url=base_url, api_key="sk-callers", max_retries=0) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="module")
async def claude(lab: Lab) -> AsyncIterator[anthropic.AsyncAnthropic]:
    base_url = f"http://127.0.0.1:{lab.proxy.port}"
    async with anthropic.AsyncAnthropic(base_url=base_url, api_key="sk-callers", max_retries=0) as client:
        yield client


def says(text: str) -> list[ChatCompletionMessageParam]:
    """Returns a question."""
    return [{"role": "user", "content": text}]


def asks(text: str) -> list[MessageParam]:
    """Returns a question."""
    return [{"role": "user", "content": text}]


def text_of(message: anthropic.types.Message) -> str:
    """Returns the text of an answer."""
    return "".join(block.text for block in message.content if isinstance(block, TextBlock))


async def test_chat(client: openai.AsyncOpenAI, counts: Counts) -> None:
    one, other = [await client.chat.completions.create(model="m", messages=says("good day")) for _ in range(2)]
    assert await counts.since() == (1, 1)
    assert one == other
    assert other.choices[0].message.content == "good day"


async def test_raw_answer_tells_where_it_comes_from(client: openai.AsyncOpenAI) -> None:
    create = client.chat.completions.with_raw_response.create
    raw = [await create(model="m", messages=says("raw")) for _ in range(2)]
    assert [one.headers["x-sponson-cache"] for one in raw] == ["miss", "hit"]
    assert [one.headers["x-sponson-attempts"] for one in raw] == ["1", "0"]
    assert raw[0].parse() == raw[1].parse()


@pytest.mark.parametrize("usage", [True, False])
async def test_chat_stream(client: openai.AsyncOpenAI, counts: Counts, usage: bool) -> None:
    more: dict[str, Any] = {"stream_options": {"include_usage": True}} if usage else {}

    async def chunks() -> list[Any]:
        stream = await client.chat.completions.create(model="m", messages=says("a stream of it"), stream=True, **more)
        return [chunk async for chunk in stream]

    one, other = await chunks(), await chunks()
    assert await counts.since() == (1, 1)
    assert one == other
    assert "".join(chunk.choices[0].delta.content or "" for chunk in other if chunk.choices) == "a stream of it"
    assert [chunk.usage is not None for chunk in other][-1] is usage


async def test_streams_at_once_are_one(lab: Lab, client: openai.AsyncOpenAI, counts: Counts) -> None:
    async def text() -> str:
        stream = await client.chat.completions.create(model="m", messages=says("all at once"), stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])

    before = (await lab.proxy.status())["single_flight"]["joined"]
    assert await asyncio.gather(*(text() for _ in range(12))) == ["all at once"] * 12
    joined = (await lab.proxy.status())["single_flight"]["joined"] - before
    hits, misses = await counts.since()
    assert (hits + misses, misses - joined) == (12, 1)


async def test_sync_clients(lab: Lab, counts: Counts) -> None:
    def use() -> tuple[Any, str, list[float]]:
        base_url = f"http://127.0.0.1:{lab.proxy.port}/v1"
        with openai.OpenAI(base_url=base_url, api_key="sk-callers", max_retries=0) as client:
            whole = client.chat.completions.create(model="m", messages=says("in sync"))
            stream = client.chat.completions.create(model="m", messages=says("in sync"), stream=True)
            text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
            return whole, text, client.embeddings.create(model="e", input=["in sync"]).data[0].embedding

    one = await asyncio.to_thread(use)
    assert await counts.since() == (0, 3)
    assert await asyncio.to_thread(use) == one
    assert await counts.since() == (3, 0)
    assert one[1] == "in sync"


async def test_embeddings_and_lists(client: openai.AsyncOpenAI, counts: Counts) -> None:
    for packed in ({}, {"encoding_format": "float"}):
        one, other = [await client.embeddings.create(model="e", input=["x", "y"], **packed) for _ in range(2)]  # type: ignore[arg-type]
        assert one == other
        assert len(one.data) == 2
    assert await counts.since() == (2, 2)
    listed = [[model.id async for model in client.models.list()] for _ in range(2)]
    assert listed[0] == listed[1] != []


async def test_an_error_is_raised_and_not_given_again(client: openai.AsyncOpenAI) -> None:
    create = client.chat.completions.create
    with pytest.raises(openai.BadRequestError):
        await create(model="m", messages=says("at fault"), extra_headers={"x-sim-fault": "status=400"})
    assert (await create(model="m", messages=says("at fault"))).choices[0].message.content == "at fault"
    broken = await create(
        model="m", messages=says("cut in the middle"), stream=True, extra_headers={"x-sim-fault": "cut=3;by=reset"}
    )
    with pytest.raises(openai.APIError):
        async for _ in broken:
            pass
    stream = await create(model="m", messages=says("cut in the middle"), stream=True)
    text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
    assert text == "cut in the middle"


async def test_messages(claude: anthropic.AsyncAnthropic, counts: Counts) -> None:
    one, other = [await claude.messages.create(model="m", max_tokens=50, messages=asks("a message")) for _ in range(2)]
    assert await counts.since() == (1, 1)
    assert one == other
    assert text_of(other) == "a message"


async def test_message_streams(claude: anthropic.AsyncAnthropic, counts: Counts) -> None:
    async def streamed() -> tuple[str, anthropic.types.Message]:
        async with claude.messages.stream(model="m", max_tokens=50, messages=asks("a longer message")) as stream:
            text = "".join([piece async for piece in stream.text_stream])
            return text, await stream.get_final_message()

    one, other = await streamed(), await streamed()
    assert await counts.since() == (1, 1)
    assert one == other
    assert (other[0], text_of(other[1])) == ("a longer message",) * 2
    assert (await streamed())[1].usage == one[1].usage


async def test_sync_messages(lab: Lab, counts: Counts) -> None:
    def use(ask: Callable[[anthropic.Anthropic], T]) -> T:
        base_url = f"http://127.0.0.1:{lab.proxy.port}"
        with anthropic.Anthropic(base_url=base_url, api_key="sk-callers", max_retries=0) as client:
            return ask(client)

    def both(client: anthropic.Anthropic) -> tuple[str, str]:
        whole = text_of(client.messages.create(model="m", max_tokens=50, messages=asks("in sync")))
        with client.messages.stream(model="m", max_tokens=50, messages=asks("in sync")) as stream:
            return whole, "".join(stream.text_stream)

    assert [await asyncio.to_thread(use, both) for _ in range(2)] == [("in sync", "in sync")] * 2
    assert await counts.since() == (2, 2)


async def test_langchain(lab: Lab, counts: Counts) -> None:
    from langchain_anthropic import ChatAnthropic
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings

    here, key = f"http://127.0.0.1:{lab.proxy.port}", SecretStr("sk-langchain")
    chat = ChatOpenAI(model="m", base_url=f"{here}/v1", api_key=key, max_retries=0)
    talks = ChatAnthropic(model_name="m", base_url=here, api_key=key, max_retries=0, timeout=None, stop=None)
    embeds = OpenAIEmbeddings(
        model="e", base_url=f"{here}/v1", api_key=key, max_retries=0, check_embedding_ctx_length=False
    )
    try:
        for model in (chat, talks):
            told = [await model.ainvoke("a chain") for _ in range(2)]
            assert [answer.text for answer in told] == ["a chain"] * 2
            assert told[0].usage_metadata == told[1].usage_metadata
            streamed = [[piece.text async for piece in model.astream("a chain of it")] for _ in range(2)]
            assert streamed[0] == streamed[1]
            assert "".join(streamed[0]) == "a chain of it"
        assert await counts.since() == (4, 4)
        wanted = Ferry(harbour="Oban", hour=9)
        shaped = chat.with_structured_output(Ferry, method="json_schema")
        assert [await shaped.ainvoke(wanted.model_dump_json()) for _ in range(2)] == [wanted] * 2
        vectors = [await embeds.aembed_documents(["pier 1", "pier 2"]) for _ in range(2)]
        assert vectors[0] == vectors[1]
        assert (await counts.since())[0] == 2
    finally:
        chat.root_client.close()
        await chat.root_async_client.close()
        talks._client.close()
        await talks._async_client.close()
        embeds.client._client.close()
        await embeds.async_client._client.close()
