from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from proxy.simulation.provider import ProviderSimulator, SimulatorSettings
from proxy.simulation.provider.settings import AnswerStyle

SAY = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a b c"}]}


async def test_the_official_client_holds_a_conversation() -> None:
    async with ProviderSimulator(SimulatorSettings(answer=AnswerStyle.ECHO, api_keys=("sk-1",))) as sim:
        client = openai.AsyncOpenAI(base_url=f"{sim.base_url}/v1", api_key="sk-1")
        async with client, client.realtime.connect(model="voice") as talk:
            assert (await talk.recv()).type == "session.created"
            await talk.conversation.item.create(item=SAY)  # type: ignore[arg-type]
            await talk.response.create()
            seen: list[Any] = []
            async for event in talk:
                seen.append(event)
                if event.type == "response.done":
                    break
        assert "".join(event.delta for event in seen if event.type == "response.output_text.delta") == "a b c"
        assert seen[-1].response.usage.total_tokens == 6
        assert sim.requests[0].model == "voice"


async def test_what_is_no_event_is_complained_of_and_the_session_goes_on() -> None:
    async with ProviderSimulator() as sim, connect(f"ws://127.0.0.1:{sim.port}/v1/realtime") as talk:
        await talk.recv()
        for message in ("{", "[]", b"bytes", '{"type": "odd"}'):
            await talk.send(message)
            assert json.loads(await talk.recv())["type"] == "error"


async def test_a_session_takes_a_place_and_gives_it_back() -> None:
    async with ProviderSimulator(SimulatorSettings(concurrency=1)) as sim:
        url = f"ws://127.0.0.1:{sim.port}/v1/realtime"
        async with connect(url):
            with pytest.raises(InvalidStatus):
                await connect(url)
        async with connect(url) as talk:
            assert json.loads(await talk.recv())["type"] == "session.created"


async def test_a_key_may_be_offered_as_a_subprotocol() -> None:
    async with ProviderSimulator(SimulatorSettings(api_keys=("sk-1",))) as sim:
        url = f"ws://127.0.0.1:{sim.port}/v1/realtime"
        async with connect(url, subprotocols=["realtime", "openai-insecure-api-key.sk-1"]) as talk:  # type: ignore[list-item]
            assert talk.subprotocol == "realtime"
        with pytest.raises(InvalidStatus):
            await connect(url)
