"""WebSockets of others' making: the official client, a library with compression, providers behind TLS and on IPv6."""

from __future__ import annotations

import asyncio
import signal
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import openai
import pytest
import trustme
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidStatus

from proxy.simulation.provider import ProviderSimulator, SimulatorSettings
from proxy.simulation.provider.settings import AnswerStyle
from tests.integration.caller import HOST
from tests.integration.harness import Lab, route
from tests.integration.messages import answers
from tests.integration.scripted import ScriptedProvider
from tests.integration.talks import Talks, opened
from tests.websocket.encoding import BINARY, TEXT

SAY: Any = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "one two three"}]}
MIB = 1 << 20


def policy(base_url: str, *, keys: bool = False) -> dict[str, Any]:
    """A provider that is there already, behind one that refuses."""
    real: dict[str, Any] = {"base_url": base_url, "breaker": "off"}
    if keys:
        real["keys"] = [{"id": "k", "env": "REAL_KEY"}]
    return {
        "version": 1,
        "providers": {"down": {"breaker": "off"}, "real": real},
        "routes": [
            route("talk", "real", retry={"attempts": 1}),
            route("tiers", "down", {"provider": "real", "model": "second voice"}, retry={"attempts": 1}),
        ],
    }


async def converses(client: openai.AsyncOpenAI, model: str) -> Any:
    """Holds a conversation; returns its last event."""
    async with client.realtime.connect(model=model) as talk:
        assert (await talk.recv()).type == "session.created"
        await talk.conversation.item.create(item=SAY)
        await talk.response.create()
        words, last = [], None
        async for event in talk:
            if event.type == "response.output_text.delta":
                words.append(event.delta)
            if event.type == "response.done":
                last = event
                break
        assert "".join(words) == "one two three"
        return last


@pytest.mark.parametrize("model", ["talk", "tiers"])
async def test_the_official_client_converses_through_the_proxy(model: str) -> None:
    async with ProviderSimulator(SimulatorSettings(answer=AnswerStyle.ECHO, api_keys=("sk-real",))) as sim:
        async with Lab(policy(f"{sim.base_url}/v1", keys=True), env={"REAL_KEY": "sk-real"}) as lab:
            lab["down"].script = answers(503)
            url = f"http://{HOST}:{lab.proxy.port}/v1"
            async with openai.AsyncOpenAI(base_url=url, api_key="sk-callers", max_retries=0) as client:
                done = await converses(client, model)
            await lab.idle()
            async with asyncio.timeout(5):
                while not lab.proxy.request_lines():
                    await asyncio.sleep(0.01)
            (line,) = lab.proxy.request_lines()
            assert (line["outcome"], line["provider"], line["attempts"]) == ("ok", "real", 1 if model == "talk" else 2)
            assert line["output_tokens"] == done.response.usage.output_tokens > 0
            assert line["input_tokens"] == done.response.usage.input_tokens
        assert sim.requests[-1].model == ("talk" if model == "talk" else "second voice")


async def test_the_official_client_is_told_of_a_refusal() -> None:
    settings = SimulatorSettings(api_keys=("sk-real",))
    async with ProviderSimulator(settings) as sim, Lab(policy(f"{sim.base_url}/v1")) as lab:
        url = f"http://{HOST}:{lab.proxy.port}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="sk-wrong", max_retries=0) as client:
            with pytest.raises(InvalidStatus, match="401"):
                async with client.realtime.connect(model="talk"):
                    pass


@asynccontextmanager
async def echoing(**options: Any) -> AsyncIterator[tuple[Lab, list[tuple[int | None, str | None]]]]:
    """A provider made of a library, which sends back what comes; and how its connections were closed."""
    closed: list[tuple[int | None, str | None]] = []

    async def echo(connection: ServerConnection) -> None:
        with suppress(ConnectionClosed):
            async for message in connection:
                if message == "close me":
                    await connection.close(4010, "as you wish")
                else:
                    await connection.send(message)
        closed.append((connection.close_code, connection.close_reason))

    async with serve(echo, HOST, 0, max_size=None, **options) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with Lab(policy(f"http://{HOST}:{port}/v1")) as lab:
            yield lab, closed


def library(lab: Lab, **options: Any) -> connect:
    """A library's connection to the proxy."""
    return connect(f"ws://{HOST}:{lab.proxy.port}/v1/realtime?model=talk", max_size=None, **options)


@pytest.mark.parametrize("compression", ["deflate", None])
async def test_a_library_speaks_with_itself_packed_or_not(compression: str | None) -> None:
    async with echoing(compression=compression, subprotocols=["realtime"]) as (lab, closed):
        talk: ClientConnection
        async with library(lab, compression=compression, subprotocols=["other", "realtime"]) as talk:
            assert talk.subprotocol == "realtime"
            packed = [extension.name for extension in talk.protocol.extensions]
            assert packed == (["permessage-deflate"] if compression else [])
            for message in ("a", "ü" * 100_000, bytes(range(256)) * 4096, "x" * (5 * MIB), b""):
                await talk.send(message)
                assert await talk.recv() == message
            await talk.send(["be", "", "gin"])
            assert await talk.recv() == "begin"
            await (await talk.ping(b"are you there"))
            await talk.close(4009, "done")
        async with asyncio.timeout(10):
            while not closed:
                await asyncio.sleep(0.01)
        assert closed == [(4009, "done")]


async def test_a_library_is_told_with_which_code_the_other_closes() -> None:
    async with echoing() as (lab, closed), library(lab) as talk:
        await talk.send("close me")
        with pytest.raises(ConnectionClosed):
            await talk.recv()
        assert (talk.close_code, talk.close_reason) == (4010, "as you wish")
        async with asyncio.timeout(10):
            while not closed:
                await asyncio.sleep(0.01)
        assert closed == [(4010, "as you wish")]


@asynccontextmanager
async def secure() -> AsyncIterator[tuple[Lab, ScriptedProvider]]:
    """A provider behind TLS, and a proxy that trusts it."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    async with ScriptedProvider(tls=context) as provider:
        with authority.cert_pem.tempfile() as trusted:
            written = policy(f"https://localhost:{provider.port}/v1")
            async with Lab(written, env={"SSL_CERT_FILE": trusted}, flags=["--drain", "1s"]) as lab:
                yield lab, provider


async def test_a_provider_behind_tls_is_told_all_that_others_are() -> None:
    async with secure() as (lab, there):
        talks = Talks(there)
        async with opened(lab) as client:
            provider = await talks.next()
            big = bytes(range(256)) * (12 * 1024)
            sending = asyncio.gather(client.send(BINARY, big), provider.send(BINARY, big))
            await client.hears(big, opcode=BINARY)
            await provider.hears(big, opcode=BINARY)
            await sending
            await client.write(client.encoded(TEXT, b"last words"))
            client.leave()
            await provider.hears(b"last words")
            assert (await provider.told())[0] == 1001
            await provider.over()
        async with opened(lab) as client:
            provider = await talks.next()
            await provider.close(4011, "over")
            assert await client.told() == (4011, b"over")
            await client.close(4011)
            assert (await provider.told())[0] == 4011
            provider.leave()
            await client.over()
        async with opened(lab) as client:
            provider = await talks.next()
            provider.leave()
            assert (await client.told())[0] == 1014
        async with opened(lab) as client:
            provider = await talks.next()
            await client.say(b"hi")
            await provider.hears(b"hi")
            lab.proxy.signal(signal.SIGTERM)
            assert (await client.told())[0] == 1001
            assert (await provider.told())[0] == 1001
            assert await lab.proxy.exited(within=10) == 0


async def test_a_provider_on_ipv6_is_one_like_any_other() -> None:
    provider = ScriptedProvider()
    server = await asyncio.get_running_loop().create_server(provider._protocol, "::1", 0)
    async with server, Lab(policy(f"http://[::1]:{server.sockets[0].getsockname()[1]}/v1")) as lab:
        talks = Talks(provider)
        async with opened(lab) as client:
            end = await talks.next()
            await client.say(b"six")
            await end.hears(b"six")
            await end.close(1000)
            assert await client.told() == (1000, b"")
            await client.close(1000)
            assert await end.told() == (1000, b"")
            end.leave()
