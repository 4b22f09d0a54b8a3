"""What callers make of answers, against a simulated provider in the proxy's place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from proxy.clock import SystemClock
from proxy.simulation.demo.callers import Callers
from proxy.simulation.demo.operations import Operation
from proxy.simulation.provider import ProviderSimulator, SimulatorSettings


@pytest.fixture
async def provider() -> AsyncIterator[ProviderSimulator]:
    async with ProviderSimulator(SimulatorSettings(name="alpha")) as simulator:
        yield simulator


@pytest.fixture
async def callers(provider: ProviderSimulator) -> AsyncIterator[Callers]:
    async with aiohttp.ClientSession() as session:
        yield Callers(session, provider.base_url, SystemClock())


async def test_whole_answers_of_every_operation_are_ok(callers: Callers) -> None:
    await callers.burst(dict.fromkeys(Operation, 2))
    assert sorted(sample.operation for sample in callers.samples) == sorted([*Operation] * 2)
    assert all(sample.ok and sample.burst and sample.expected for sample in callers.samples)
    assert all(0 < sample.first_byte_seconds <= sample.seconds for sample in callers.samples)
    assert callers.in_flight == 0


@pytest.mark.parametrize("fault", ["cut=3", "cut=3,by=end", "reset", "error-in-200", "status=503"])
async def test_answers_that_are_not_whole_are_not_ok(provider: ProviderSimulator, callers: Callers, fault: str) -> None:
    provider.set_faults([fault])
    await callers.burst({Operation.STREAM: 1, Operation.CHAT: 1})
    assert [sample.ok or sample.expected for sample in callers.samples] == [False, False]


async def test_steady_callers_finish_what_they_began(provider: ProviderSimulator, callers: Callers) -> None:
    async with callers.steady({Operation.CHAT: 2, Operation.EMBEDDINGS: 1}):
        while len(callers.samples) < 6:
            await asyncio.sleep(0.01)
    assert all(sample.ok for sample in callers.samples)
    assert len(callers.samples) == provider.stats().received
    assert {sample.operation for sample in callers.samples} == {Operation.CHAT, Operation.EMBEDDINGS}
