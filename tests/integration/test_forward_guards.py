"""What the forward proxy must never become: a way to this machine by a name, or back to itself."""

from __future__ import annotations

import asyncio
import socket
import ssl

import pytest

from tests.integration.caller import HOST, Wire, call, request_bytes
from tests.integration.forwards import echo, forward, lists, peer
from tests.integration.harness import ProxyProcess
from tests.integration.scripted import ScriptedProvider
from tests.ports import free_port


async def test_a_name_without_a_port_leads_to_nothing_of_this_machine() -> None:
    async with forward({"version": 1, "providers": {"a": {"hosts": ["localhost"]}}}) as here:
        for method, target in (("CONNECT", "localhost:443"), ("GET", "https://localhost/v1/models")):
            answer = await here.ask(target, None, method=method)
            assert (answer.status, answer.reason) == (403, "forbidden_target")
            assert "list its host and port" in answer.body.decode()


@pytest.mark.parametrize("method", ["CONNECT", "GET"])
async def test_a_listed_way_back_to_this_process_is_a_loop(method: str) -> None:
    port = free_port()
    policy = {"version": 1, "providers": {"a": {"base_url": "http://127.0.0.1:9/v1", "hosts": [f"{HOST}:{port}"]}}}
    async with ProxyProcess(policy, flags=["--forward", f"{HOST}:{port}", "--linger", "0s"]) as proxy:
        target = f"{HOST}:{port}" if method == "CONNECT" else f"http://{HOST}:{port}/v1/models"
        answer = await call(port, target, None, method=method)
        assert answer.status in (400, 508)
        if method == "CONNECT":
            assert answer.reason == "loop_detected"
        await proxy.until(lambda status: status["in_flight"] == 0)


async def test_a_tunnel_with_a_body_is_refused() -> None:
    async with peer(echo) as port, forward(lists(port)) as here:
        for framing in (("content-length", "4"), ("transfer-encoding", "chunked")):
            answer = await here.ask(f"{HOST}:{port}", b"", method="CONNECT", headers=[framing])
            assert (answer.status, answer.reason) == (400, "bad_request")


async def test_a_refused_request_ends_no_other_one() -> None:
    async with ScriptedProvider() as other, forward({"version": 1, "providers": {"a": {}}}) as here:
        async with Wire(here.port) as wire:
            await wire.send(request_bytes("GET", f"http://{HOST}:{other.port}/v1/models"))
            assert (await wire.answer(method="GET")).status == 403
            await wire.send(request_bytes("GET", here.url("a", "/v1/models")))
            assert (await wire.answer(method="GET")).status == 200
        assert other.accepted == 0


async def test_a_hello_that_never_becomes_whole_is_not_held_for_ever() -> None:
    out = ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    half = out.read()[:50]
    async with peer(echo) as port, forward(lists(port)) as here, Wire(here.port) as wire:
        await here.connect(wire, f"localhost:{port}")
        await wire.send(half)
        async with asyncio.timeout(15):
            assert await wire.reader.readexactly(50) == half


async def test_a_half_hello_at_the_end_is_passed_on() -> None:
    async with peer(echo) as port, forward(lists(port)) as here, Wire(here.port) as wire:
        await here.connect(wire, f"localhost:{port}")
        await wire.send(b"\x16\x03\x01\x02")
        wire.writer.write_eof()
        async with asyncio.timeout(15):
            assert await wire.reader.read(-1) == b"\x16\x03\x01\x02in all 4"


async def test_silence_ends_a_tunnel_and_gives_its_permit_back() -> None:
    policy = lists(0, timeouts={"answer": "300ms", "idle": "300ms"})
    async with peer(echo) as port:
        policy["providers"]["a"]["hosts"] = [f"{HOST}:{port}"]
        async with forward(policy) as here, Wire(here.port) as wire:
            await here.connect(wire, f"{HOST}:{port}")
            async with asyncio.timeout(15):
                assert await wire.reader.read(-1) == b""
            await here.lab.idle()


async def test_a_client_that_reads_nothing_holds_nothing() -> None:
    async def floods(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                writer.write(bytes(65536))
                await writer.drain()
        except ConnectionError:
            writer.close()

    policy = lists(0, timeouts={"idle": "500ms"})
    async with peer(floods) as port:
        policy["providers"]["a"]["hosts"] = [f"{HOST}:{port}"]
        async with forward(policy) as here:
            lazy = socket.create_connection((HOST, here.port))
            lazy.sendall(f"CONNECT {HOST}:{port} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
            async with asyncio.timeout(20):
                while not (lines := here.lab.proxy.request_lines()):
                    await asyncio.sleep(0.02)
            lazy.close()
            (line,) = lines
            assert line["outcome"] == "client_left"
