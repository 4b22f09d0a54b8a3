"""A second signal ends the proxy at once, in every phase, with the documented code; SIGHUP ends it in none."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.integration.drains import BEGUN, WITHOUT_CALL, Case, between, policy
from tests.integration.harness import Lab
from tests.integration.messages import says
from tests.integration.unreachable import full_listener

KILLED = 128 + signal.SIGTERM
PHASES = {**WITHOUT_CALL, **BEGUN}
LONG = ["--linger", "60s", "--drain", "120s"]
"""No test waits for so long: what ends in time was ended by the second signal."""


@asynccontextmanager
async def draining(phase: str, first: signal.Signals) -> AsyncIterator[Case]:
    """A caller in this phase, and a proxy that was asked to end."""
    with full_listener() as hole:
        async with Lab(policy(hole, connect="60s", base="900ms"), flags=LONG) as lab, lab.wire() as wire:
            case = Case(lab=lab, wire=wire)
            await PHASES[phase](case)
            lab.proxy.signal(first)
            await lab.proxy.until(lambda status: status["phase"] == "draining")
            yield case


@pytest.mark.parametrize("phase", PHASES)
async def test_a_second_signal_ends_it_at_once(phase: str) -> None:
    async with draining(phase, signal.SIGTERM) as case:
        case.lab.proxy.signal(signal.SIGTERM)
        assert await case.lab.proxy.exited(within=10) == KILLED
        case.resume()
        assert not (await case.answer()).complete
        assert "a second signal" in case.lab.proxy.log()
        assert "Traceback" not in case.lab.proxy.log()


@pytest.mark.parametrize(
    ("first", "second"),
    [(signal.SIGINT, signal.SIGINT), (signal.SIGINT, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT)],
)
async def test_sigint_and_sigterm_are_one(first: signal.Signals, second: signal.Signals) -> None:
    async with draining("mid-stream", first) as case:
        case.lab.proxy.signal(second)
        assert await case.lab.proxy.exited(within=10) == KILLED


async def test_sighup_during_the_drain_changes_nothing() -> None:
    async with draining("before the head", signal.SIGTERM) as case:
        case.lab.proxy.signal(signal.SIGHUP)
        case.lab["one"].script = says("hi")
        assert (await case.lab.chat("queueing")).status == 200
        await case.go_on()
        assert (await case.answer()).complete
        case.lab.proxy.signal(signal.SIGTERM)
        assert await case.lab.proxy.exited(within=10) == KILLED


async def test_sighup_looks_at_the_policy_and_ends_nothing() -> None:
    with full_listener() as hole:
        async with Lab(policy(hole)) as lab, lab.wire() as wire:
            case = Case(lab=lab, wire=wire)
            for _ in range(3):
                lab.proxy.signal(signal.SIGHUP)
                await between(case)
            assert lab.proxy.process.poll() is None
