"""LangChain's own clients, unchanged but for their address, through the proxy, a fallback happening underneath.

The first tier of every route is overloaded; a simulated provider, or one that calls tools, stands behind it. LangChain
is imported by the fixtures: a run without these tests does not pay for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from pydantic import BaseModel, SecretStr

from proxy.simulation.provider import ProviderSimulator, SimulatorSettings
from proxy.simulation.provider.settings import AnswerStyle
from tests.integration import tool_calls
from tests.integration.harness import Lab, route
from tests.integration.messages import answers

if TYPE_CHECKING:
    from langchain_anthropic import ChatAnthropic
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessageChunk
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings

pytestmark = pytest.mark.asyncio(loop_scope="module")

HELLO = "the ferry leaves at nine"
CALLERS = SecretStr("sk-langchain")
BUSY = ("busy", "busy-claude")


class Ferry(BaseModel):
    """A departure."""

    harbour: str
    hour: int


def timetable(harbour: str) -> str:
    """Looks up when the next ferry leaves a harbour."""
    return f"nine, from {harbour}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab() -> AsyncIterator[Lab]:
    ours = {"keys": [{"id": "k", "env": "KEY"}], "breaker": "off"}
    claude = {"dialect": "anthropic", "base_url": "http://127.0.0.1:{port}"}
    settings = SimulatorSettings(answer=AnswerStyle.ECHO, api_keys=("sk-ours",))
    async with ProviderSimulator(settings) as sim:
        providers = {
            "busy": {"breaker": "off"},
            "next": {**ours, "base_url": f"{sim.base_url}/v1"},
            "tools": ours,
            "busy-claude": {**claude, "breaker": "off"},
            "next-claude": {**claude, **ours, "base_url": sim.base_url},
            "tools-claude": {**claude, **ours},
        }
        routes = [
            tiers("gpt-tools", "busy", "tools"),
            tiers("claude-tools", "busy-claude", "tools-claude"),
            tiers("claude-*", "busy-claude", "next-claude"),
            tiers("*", "busy", "next"),
        ]
        async with Lab({"version": 1, "providers": providers, "routes": routes}, env={"KEY": "sk-ours"}) as lab:
            lab["busy"].script = answers(503)
            lab["busy-claude"].script = answers(529, {"type": "error", "error": {"type": "overloaded_error"}})
            lab["tools"].script = tool_calls.openai
            lab["tools-claude"].script = tool_calls.anthropic
            yield lab


def tiers(model: str, *names: str) -> dict[str, Any]:
    """Returns the route of a model; each of its tiers is tried once."""
    return route(f"to-{names[-1]}", *names, match={"model": model}, retry={"attempts": 1})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chat(lab: Lab) -> AsyncIterator[ChatOpenAI]:
    from langchain_openai import ChatOpenAI

    base_url = f"http://127.0.0.1:{lab.proxy.port}/v1"
    chat = ChatOpenAI(model="gpt-any", base_url=base_url, api_key=CALLERS, max_retries=0)
    yield chat
    chat.root_client.close()
    await chat.root_async_client.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def claude(lab: Lab) -> AsyncIterator[ChatAnthropic]:
    from langchain_anthropic import ChatAnthropic

    base_url = f"http://127.0.0.1:{lab.proxy.port}"
    chat = ChatAnthropic(
        model_name="claude-any", base_url=base_url, api_key=CALLERS, max_retries=0, timeout=None, stop=None
    )
    yield chat
    chat._client.close()
    await chat._async_client.close()


@pytest_asyncio.fixture(loop_scope="module")
async def embeddings(lab: Lab) -> AsyncIterator[OpenAIEmbeddings]:
    from langchain_openai import OpenAIEmbeddings

    base_url = f"http://127.0.0.1:{lab.proxy.port}/v1"
    embeddings = OpenAIEmbeddings(
        model="embed-any", base_url=base_url, api_key=CALLERS, max_retries=0, check_embedding_ctx_length=False
    )
    yield embeddings
    embeddings.client._client.close()
    await embeddings.async_client._client.close()


@pytest_asyncio.fixture(params=["chat", "claude"], loop_scope="module")
async def model(request: pytest.FixtureRequest, chat: ChatOpenAI, claude: ChatAnthropic) -> BaseChatModel:
    """LangChain's model of either provider: what it can be asked is the same for both."""
    return chat if request.param == "chat" else claude


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def falls_back(lab: Lab) -> AsyncIterator[None]:
    """Checks that the first tier was asked, with the caller's own key and none of ours."""
    for name in BUSY:
        lab[name].forget()
    yield
    asked = [request for name in BUSY for request in lab[name].seen]
    assert asked
    assert {request.header("authorization") or request.header("x-api-key") for request in asked} <= {
        f"Bearer {CALLERS.get_secret_value()}",
        CALLERS.get_secret_value(),
    }


async def test_invoke(model: BaseChatModel) -> None:
    answer = await model.ainvoke(HELLO)
    assert answer.text == HELLO
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["output_tokens"] == 5
    assert (await asyncio.to_thread(model.invoke, [("system", "be brief"), ("human", HELLO)])).text == HELLO


async def test_stream(model: BaseChatModel) -> None:
    pieces = [piece.text async for piece in model.astream(HELLO)]
    assert len([piece for piece in pieces if piece]) > 1
    assert "".join(pieces) == HELLO
    assert "".join(await asyncio.to_thread(lambda: [piece.text for piece in model.stream(HELLO)])) == HELLO


async def test_usage_of_a_stream_is_told(chat: ChatOpenAI) -> None:
    pieces = [piece async for piece in chat.astream(HELLO, stream_usage=True)]
    told = [piece.usage_metadata for piece in pieces if piece.usage_metadata]
    assert [usage["output_tokens"] for usage in told] == [5]


async def test_batch_is_dealt_out_in_order(model: BaseChatModel) -> None:
    asks: list[Any] = [f"ferry number {n}" for n in range(12)]
    assert [answer.text for answer in await model.abatch(asks, {"max_concurrency": 4})] == asks
    assert [answer.text for answer in await asyncio.to_thread(model.batch, asks[:4])] == asks[:4]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_tool_call(model: BaseChatModel, stream: bool) -> None:
    name = "gpt-tools" if hasattr(model, "root_client") else "claude-tools"
    bound = model.bind_tools([timetable]).bind(model=name)
    if stream:
        pieces: list[AIMessageChunk] = [piece async for piece in bound.astream("when?")]  # type: ignore[misc]
        calls = sum(pieces[1:], pieces[0]).tool_calls
    else:
        calls = (await bound.ainvoke("when?")).tool_calls
    assert [(call["name"], call["args"]) for call in calls] == [("timetable", tool_calls.ARGUMENTS)]


@pytest.mark.parametrize("method", ["json_schema", "json_mode"])
async def test_structured_output(chat: ChatOpenAI, method: Any) -> None:
    wanted = Ferry(harbour="Oban", hour=9)
    asked = chat.with_structured_output(Ferry, method=method)
    assert await asked.ainvoke(wanted.model_dump_json()) == wanted
    assert await asyncio.to_thread(asked.invoke, wanted.model_dump_json()) == wanted


async def test_embeddings(embeddings: OpenAIEmbeddings) -> None:
    many = await embeddings.aembed_documents([f"pier {n}" for n in range(20)])
    one = await asyncio.to_thread(embeddings.embed_query, "pier 7")
    assert len(many) == 20
    assert many[7] == pytest.approx(one)
    assert many[8] != pytest.approx(one)


async def test_when_no_tier_helps_the_error_is_the_clients_own(lab: Lab, chat: ChatOpenAI, claude: Any) -> None:
    import anthropic
    import openai

    lab["tools"].script, lab["tools-claude"].script = answers(500), answers(500)
    try:
        with pytest.raises(openai.InternalServerError):
            await chat.bind_tools([timetable]).bind(model="gpt-tools").ainvoke("when?")
        with pytest.raises(anthropic.InternalServerError):
            await claude.bind_tools([timetable]).bind(model="claude-tools").ainvoke("when?")
    finally:
        lab["tools"].script, lab["tools-claude"].script = tool_calls.openai, tool_calls.anthropic
