"""Tunnels over sockets: byte for byte, bounded, ended as either side ends them; and clients that use them."""

from __future__ import annotations

import asyncio
import signal
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import openai
import pytest
import trustme

from tests.integration.caller import HOST, Wire
from tests.integration.forwards import Forward, echo, forward, lists, peer
from tests.integration.harness import ProxyProcess
from tests.integration.messages import CHAT, says
from tests.integration.scripted import Exchange, ScriptedProvider
from tests.ports import free_port


async def test_bytes_pass_untouched_and_half_closes_too() -> None:
    sent = bytes(range(256)) * 4096
    async with peer(echo) as port, forward(lists(port)) as here, Wire(here.port) as wire:
        head = await here.connect(wire, f"{HOST}:{port}")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert b"content-length" not in head.lower()
        assert b"transfer-encoding" not in head.lower()
        reading = asyncio.ensure_future(wire.reader.read(-1))
        await wire.send(sent)
        wire.writer.write_eof()
        async with asyncio.timeout(20):
            assert await reading == sent + b"in all %d" % len(sent)
        status = await here.lab.proxy.until(lambda status: status["in_flight"] == 0)
        assert status["permits"]
        (line,) = [line for line in here.lab.proxy.request_lines() if line["method"] == "CONNECT"]
        assert (line["outcome"], line["provider"], line["model"], line["status"]) == ("ok", "a", "tunnel", 200)


async def test_what_comes_with_the_head_is_not_lost() -> None:
    async with peer(echo) as port, forward(lists(port)) as here, Wire(here.port) as wire:
        await wire.send(f"CONNECT {HOST}:{port} HTTP/1.1\r\nhost: x\r\n\r\nearly".encode())
        wire.writer.write_eof()
        async with asyncio.timeout(10):
            said = await wire.reader.read(-1)
        # A client that ends its half before it is answered has left.
        assert said == b"" or said.endswith(b"earlyin all 5")
        async with Wire(here.port) as other:
            await other.send(f"CONNECT {HOST}:{port} HTTP/1.1\r\nhost: x\r\n\r\nearly".encode())
            async with asyncio.timeout(10):
                await other.reader.readuntil(b"\r\n\r\nearly")


async def test_a_provider_that_refuses_is_told_before_there_is_a_tunnel() -> None:
    port = free_port()
    async with forward(lists(port, breaker={"consecutive": 2}, timeouts={"connect": "1s"})) as here:
        found = [(await here.ask(f"{HOST}:{port}", None, method="CONNECT")).reason for _ in range(3)]
        assert found == ["upstream_unreachable", "upstream_unreachable", "breaker_open"]


async def test_tunnels_have_permits_and_no_more_than_these() -> None:
    policy = lists(0, connections={"max": 2}, timeouts={"queue": "50ms"})
    async with peer(echo) as port:
        policy["providers"]["a"]["hosts"] = [f"{HOST}:{port}"]
        async with forward(policy) as here, Wire(here.port) as one, Wire(here.port) as two:
            for wire in (one, two):
                assert b" 200 " in await here.connect(wire, f"{HOST}:{port}")
            third = await here.ask(f"{HOST}:{port}", None, method="CONNECT")
            assert (third.status, third.reason) == (429, "queue_timeout")
            one.leave()
            await here.lab.proxy.until(lambda status: status["in_flight"] == 1)
            async with Wire(here.port) as next_one:
                assert b" 200 " in await here.connect(next_one, f"{HOST}:{port}")


@pytest.mark.parametrize("reset", [True, False])
async def test_who_leaves_is_told_to_the_other_side(reset: bool) -> None:
    left = asyncio.Event()

    async def waits(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.read(100):
                pass
        except ConnectionError:
            pass
        left.set()
        writer.close()

    async with peer(waits) as port, forward(lists(port)) as here, Wire(here.port) as wire:
        await here.connect(wire, f"{HOST}:{port}")
        await wire.send(b"x")
        wire.leave(reset=reset)
        async with asyncio.timeout(10):
            await left.wait()


async def test_a_break_of_the_provider_s_is_a_break() -> None:
    async def breaks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        Exchange(None, 0, None, writer).reset()  # type: ignore[arg-type]

    async with peer(breaks) as port, forward(lists(port)) as here, Wire(here.port) as wire:
        await here.connect(wire, f"{HOST}:{port}")
        await wire.send(b"x")
        with pytest.raises(ConnectionResetError):
            async with asyncio.timeout(10):
                await wire.reader.read()


async def test_a_drain_shows_a_break_and_leaves_nothing() -> None:
    port = free_port()
    async with peer(echo) as there:
        flags = ["--forward", f"{HOST}:{port}", "--linger", "0s", "--drain", "1s"]
        policy = lists(there, base_url=f"http://{HOST}:{there}/v1")
        async with ProxyProcess(policy, flags=flags) as proxy, Wire(port) as wire:
            await wire.send(f"CONNECT {HOST}:{there} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
            await wire.reader.readuntil(b"\r\n\r\n")
            proxy.signal(signal.SIGTERM)
            with pytest.raises(ConnectionResetError):
                async with asyncio.timeout(10):
                    await wire.reader.read()
            assert await proxy.exited(within=20) == 0


# TLS, end to end.


@asynccontextmanager
async def secure() -> AsyncIterator[tuple[Forward, ScriptedProvider, ssl.SSLContext]]:
    """A provider behind TLS by its name, and a client's context that trusts it; the proxy does not."""
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(client)
    async with ScriptedProvider(tls=server) as provider, forward(lists(provider.port)) as here:
        provider.script = says("through")
        yield here, provider, client


async def test_the_openai_sdk_by_its_proxy() -> None:
    async with secure() as (here, provider, client):
        web = openai.DefaultAsyncHttpxClient(proxy=f"http://{HOST}:{here.port}", verify=client)
        async with openai.AsyncOpenAI(
            api_key="sk-mine", base_url=f"https://localhost:{provider.port}/v1", http_client=web, max_retries=0
        ) as sdk:
            answer = await sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
        assert answer.choices[0].message.content == "through"
        assert provider.only.header("authorization") == "Bearer sk-mine"
        # Nobody on the way has seen or changed a byte.
        assert "via" not in provider.only.names


async def test_aiohttp_by_its_proxy() -> None:
    async with secure() as (here, provider, client), aiohttp.ClientSession() as session:
        url, way = f"https://localhost:{provider.port}/v1/chat/completions", f"http://{HOST}:{here.port}"
        async with session.post(url, json=CHAT, proxy=way, ssl=client) as answer:
            assert answer.status == 200
            assert (await answer.json())["choices"]


async def test_curl_by_the_environment() -> None:
    async with forward({"version": 1, "providers": {"a": {}}}) as here:
        here.lab["a"].script = says("a")
        try:
            curl = await asyncio.create_subprocess_exec(
                "curl", "-sS", "-d", "{}", "-H", "content-type: application/json", here.url("a"),
                env={"http_proxy": f"http://{HOST}:{here.port}", "PATH": "/usr/local/bin:/usr/bin:/bin"},
                stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
        except FileNotFoundError:
            pytest.skip("there is no curl")
        out, _ = await curl.communicate()
        assert b'"choices"' in out


async def test_another_name_in_the_hello_is_cut_off_before_the_provider_sees_a_byte() -> None:
    seen = bytearray()

    async def listens(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(100):
                seen.extend(data)
        except ConnectionError:
            pass
        writer.close()

    async with peer(listens) as port, forward(lists(port)) as here, Wire(here.port) as wire:
        await here.connect(wire, f"localhost:{port}")
        out = ssl.MemoryBIO()
        tls = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), out, server_hostname="evil.example")
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        hello = out.read()
        for at in range(0, len(hello), 100):
            await wire.send(hello[at : at + 100])
        with pytest.raises(ConnectionResetError):
            async with asyncio.timeout(10):
                await wire.reader.read()
        await here.lab.idle()
        assert bytes(seen) == b""
        (line,) = [line for line in here.lab.proxy.request_lines() if line["method"] == "CONNECT"]
        assert line["reason"] == "misdirected"
