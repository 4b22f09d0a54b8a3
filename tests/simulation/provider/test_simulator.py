"""Start, stop, and a listener that refuses and comes back."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest

from proxy.simulation.provider import ProviderSimulator, SettingsError, SimulatorSettings, parse_fault
from proxy.simulation.provider.group import SimulatorGroup
from tests.simulation.provider.wire import CHAT, call, chat, connection, read_answer, request


async def refused(port: int) -> bool | None:
    """Tells whether connections are refused; None while the listener is just changing."""
    try:
        async with connection(port):
            return False
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:
        return None


async def until_refused(port: int, wanted: bool) -> None:
    async with asyncio.timeout(5):
        while await refused(port) is not wanted:
            await asyncio.sleep(0.01)


async def test_a_refusing_provider_comes_back_on_the_same_port() -> None:
    async with ProviderSimulator() as sim:
        port = sim.port
        for _ in range(3):
            sim.set_faults(["refuse"])
            await until_refused(port, True)
            sim.set_faults([])
            await until_refused(port, False)
            assert (await chat(port)).status == 200
        assert sim.port == port


async def test_a_refusal_ends_with_its_window() -> None:
    settings = SimulatorSettings(faults=(parse_fault("refuse,from=50ms,to=300ms"),))
    async with ProviderSimulator(settings) as sim:
        assert (await chat(sim.port)).status == 200
        await until_refused(sim.port, True)
        await until_refused(sim.port, False)


async def test_refusing_closes_idle_connections_and_lets_a_running_answer_end() -> None:
    settings = SimulatorSettings(tokens_per_second=100, output_tokens=20)
    async with (
        ProviderSimulator(settings) as sim,
        connection(sim.port) as (idle, idle_writer),
        connection(sim.port) as (busy, busy_writer),
    ):
        idle_writer.write(request("/v1/models"))
        await read_answer(idle)
        busy_writer.write(request("/v1/chat/completions", {**CHAT, "stream": True}))
        await busy.readuntil(b"\r\n\r\n")
        sim.set_faults(["refuse"])
        assert await asyncio.wait_for(idle.read(), 5) == b""
        assert b"[DONE]" in await asyncio.wait_for(busy.read(), 5)


async def test_stopping_ends_open_requests_and_frees_the_port() -> None:
    sim = ProviderSimulator()
    async with sim:
        port = sim.port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request("/v1/chat/completions", CHAT, [("x-sim-fault", "silence")]))
        await asyncio.sleep(0.05)
        assert sim.stats().in_flight == 1
    assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.close()
    await writer.wait_closed()
    assert sim.requests[-1].ended == "stopped"
    assert await refused(port)


async def test_stopping_while_refusing_frees_the_port() -> None:
    async with ProviderSimulator() as sim:
        sim.set_faults(["refuse"])
        await until_refused(sim.port, True)
    async with ProviderSimulator(SimulatorSettings(port=sim.port)) as again:
        assert (await chat(again.port)).status == 200


async def test_a_taken_port_is_an_error_and_leaves_nothing_behind() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            async with ProviderSimulator(SimulatorSettings(port=port)):
                pass
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def test_both_loopback_families_work() -> None:
    async with ProviderSimulator(SimulatorSettings(host="::1")) as sim:
        assert sim.base_url == f"http://[::1]:{sim.port}"
        reader, writer = await asyncio.open_connection("::1", sim.port)
        writer.write(request("/health"))
        assert (await read_answer(reader)).status == 200
        writer.close()
        await writer.wait_closed()


def test_it_runs_inside_its_context_only() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        _ = ProviderSimulator().port


def two(*faults: str) -> list[SimulatorSettings]:
    read = tuple(map(parse_fault, faults))
    return [SimulatorSettings(name=name, faults=read) for name in ("alpha", "beta")]


async def test_a_group_has_faults_for_each_and_a_control_address() -> None:
    group = SimulatorGroup(two("status=503,provider=beta"), control=("127.0.0.1", 0))
    async with group:
        alpha, beta = group.providers["alpha"], group.providers["beta"]
        assert ((await chat(alpha.port)).status, (await chat(beta.port)).status) == (200, 503)
        control = group.control_port
        assert control is not None
        await call(control, "/alpha/sim/faults", ["refuse"])
        await until_refused(alpha.port, True)
        assert (await call(control, "/alpha/health")).json == {"status": "ok", "provider": "alpha"}
        assert (await call(control, "/beta/sim/stats")).json["received"] == 1
        await call(control, "/alpha/sim/faults", method="DELETE")
        await until_refused(alpha.port, False)


@pytest.mark.parametrize(
    ("build", "part"),
    [
        (lambda: [SimulatorSettings(), SimulatorSettings()], "same name"),
        (lambda: two("reset,provider=gamma"), "no provider is named gamma"),
    ],
)
def test_a_group_that_cannot_be_meant_is_refused(build: Callable[[], list[SimulatorSettings]], part: str) -> None:
    with pytest.raises(SettingsError, match=part):
        SimulatorGroup(build())
