"""More clients than there are files for: normal traffic goes on beside them, and the admin port always answers."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from tests.integration.caller import HOST, Wire, request_bytes
from tests.integration.harness import Lab
from tests.integration.messages import CHAT, says
from tests.integration.scripted import Exchange
from tests.integration.test_open_files import no_more_files

pytestmark = pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits another process")

POLICY: dict[str, Any] = {"version": 1, "providers": {"only": {"connections": {"max": 100}}}}
FLOOD = 600
PAGES = ("/livez", "/readyz", "/metrics", "/status")


def files(count: int) -> Sequence[str]:
    return ("sh", "-c", f'ulimit -n {count} && exec "$@"', "sh")


@asynccontextmanager
async def flood(port: int, count: int, first: bytes = b"") -> AsyncIterator[list[asyncio.StreamWriter]]:
    """Connections that ask nothing, or only begin to."""
    writers = []
    try:
        for _ in range(count):
            _, writer = await asyncio.open_connection(HOST, port)
            writer.write(first)
            writers.append(writer)
        yield writers
    finally:
        for writer in writers:
            writer.transport.abort()


@pytest.mark.parametrize("first", [b"", b"POST /v1/chat/comp"], ids=["silent", "half heads"])
async def test_normal_calls_go_on_beside_a_flood(first: bytes) -> None:
    async with Lab(POLICY, prefix=files(256)) as lab:
        lab["only"].script = says("still here")
        async with lab.wire() as old:
            await old.send(request_bytes("POST", "/v1/chat/completions", body=CHAT))
            assert (await old.answer()).status == 200
            async with flood(lab.proxy.port, FLOOD, first):
                answers = [await lab.chat("m", within=30.0) for _ in range(5)]
                assert {answer.status for answer in answers} == {200}
                clients = (await lab.proxy.status())["clients"]
                assert clients["connected"] <= clients["most"] < FLOOD
                assert clients["sent_away"] > 0


async def test_calls_under_way_outlive_a_flood_and_a_full_table_of_files() -> None:
    ends = asyncio.Event()

    async def held(exchange: Exchange) -> None:
        await ends.wait()
        await says("at last")(exchange)

    async with Lab(POLICY, prefix=files(256)) as lab:
        lab["only"].script = held
        calls = [asyncio.ensure_future(lab.chat("m", within=60.0)) for _ in range(20)]
        await lab.proxy.until(lambda status: status["in_flight"] == 20, within=20.0)
        async with flood(lab.proxy.port, FLOOD):
            await lab.proxy.until(lambda status: status["clients"]["sent_away"] > 20, within=30.0)
            with no_more_files(lab.proxy.process.pid):
                for path in PAGES * 3:
                    assert (await lab.proxy.get(path)).status == 200
        ends.set()
        assert [(await task).status for task in calls] == [200] * 20


async def test_the_admin_port_answers_beside_its_own_idle_clients_when_no_file_is_left() -> None:
    async with Lab(POLICY, prefix=files(256)) as lab, flood(lab.proxy.port, FLOOD), flood(lab.proxy.admin, 100):
        await lab.proxy.until(lambda status: status["clients"]["sent_away"] > 0, within=30.0)
        with no_more_files(lab.proxy.process.pid):
            for path in PAGES * 5:
                assert (await lab.proxy.get(path)).status == 200


async def test_clients_who_come_when_no_file_is_left_wait_and_are_served() -> None:
    async with Lab(POLICY) as lab, AsyncExitStack() as stack:
        lab["only"].script = says("hi")
        async with lab.wire() as warm:
            await warm.send(request_bytes("POST", "/v1/chat/completions", body=CHAT))
            assert (await warm.answer()).status == 200
            with no_more_files(lab.proxy.process.pid):
                late = [await stack.enter_async_context(Wire(lab.proxy.port)) for _ in range(10)]
                for wire in late:
                    await wire.send(request_bytes("POST", "/v1/chat/completions", body=CHAT))
                await lab.proxy.until(lambda status: status["phase"] == "ready")
            assert {(await wire.answer()).status for wire in late} == {200}
        assert "new connections have to wait" in lab.proxy.log()
        assert "ulimit -n" in lab.proxy.log()


@pytest.mark.parametrize(("count", "calls"), [(64, 8), (128, 40), (1024, 60)])
async def test_with_few_files_it_starts_serves_what_they_allow_and_says_so(count: int, calls: int) -> None:
    async with Lab(POLICY, prefix=files(count)) as lab:
        lab["only"].script = says("hi")
        answers = await asyncio.gather(*(lab.chat("m", within=30.0) for _ in range(calls)))
        assert [answer.status for answer in answers] == [200] * calls
        assert (f"only {count} files may be open" in lab.proxy.log()) is (count < 1024)
