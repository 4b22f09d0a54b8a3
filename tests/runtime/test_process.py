"""The whole process under a clock that is moved by hand: its probes in every phase, its beat, and how it ends."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from proxy.observer import GaugeSource, Observer, Observers
from proxy.policy.load import load_policy
from proxy.runtime.lifecycle import KILLED, Phase, Signals
from proxy.runtime.process import BEAT_LIMIT_SECONDS, FAILED, FLUSH_SECONDS, TICK_SECONDS, Process
from proxy.settings import ProcessSettings
from proxy.trace_context import Sampler
from tests.fakes import FakeClock, settle
from tests.ports import free_port

PROBES = ("livez", "readyz", "startupz")


async def done(seconds: float) -> None:
    """A flush that has nothing to do."""


class FakeTelemetry:
    """Counts nothing; notes how long the flush may take."""

    def __init__(self) -> None:
        self.observer: Observer = Observers([])
        self.sampler = Sampler(ratio=0.0)
        self.flush: Callable[[float], Awaitable[None]] = done
        self.flushed: list[float] = []

    def watch(self, source: GaugeSource) -> None:
        """Nobody looks."""

    def prometheus(self) -> tuple[str, bytes]:
        """Returns an empty page."""
        return "text/plain", b""

    def start(self) -> None:
        """Nothing is exported."""

    async def shutdown(self, seconds: float) -> None:
        """Notes it."""
        self.flushed.append(seconds)
        await self.flush(seconds)


class Running:
    """A process, its clock, and what asks its admin port."""

    def __init__(self, process: Process, clock: FakeClock, telemetry: FakeTelemetry) -> None:
        self.process = process
        self.clock = clock
        self.telemetry = telemetry
        self.signals = Signals()

    async def probes(self) -> tuple[int, ...]:
        """The status of each probe."""
        async with aiohttp.ClientSession(f"http://{self.process.settings.admin}") as session:
            found = []
            for name in PROBES:
                async with session.get(f"/{name}") as answer:
                    found.append(answer.status)
        return tuple(found)

    def stop(self) -> asyncio.Task[int]:
        """Begins to end."""
        return asyncio.create_task(self.process.stop(self.signals))


@asynccontextmanager
async def running(folder: Path, *, drain: float = 25.0) -> AsyncIterator[Running]:
    """A process that is ready."""
    policy = folder / "policy.yaml"
    policy.write_text("version: 1\nproviders: {alpha: {base_url: 'http://127.0.0.1:9/v1'}}\n")
    data, admin = (f"127.0.0.1:{free_port()}" for _ in range(2))
    clock, telemetry = FakeClock(), FakeTelemetry()
    settings = ProcessSettings(policy=policy, drain_seconds=drain, listen=data, admin=admin)
    process = Process(settings, load_policy, telemetry=telemetry, clock=clock)
    threshold = gc.get_threshold()
    try:
        assert process.phase is Phase.STARTING
        await process.start()
        yield Running(process, clock, telemetry)
    finally:
        gc.set_threshold(*threshold)
        await ended(process, clock)


async def ended(process: Process, clock: FakeClock) -> None:
    """Ends a process that a test has left."""
    if process.phase is Phase.EXITED:
        return
    ending = asyncio.create_task(process.stop(Signals()))
    await clock.run(process.settings.drain_seconds + 1.0)
    await ending


async def test_probes_in_every_phase(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        assert await here.probes() == (200, 200, 200)
        ending = here.stop()
        await settle()
        assert await here.probes() == (200, 503, 200)
        await here.clock.run(30.0)
        assert await ending == 0
        assert here.process.phase is Phase.EXITED
        with pytest.raises(aiohttp.ClientConnectionError):
            await here.probes()


async def test_it_is_not_live_while_it_has_not_beaten_for_five_seconds(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.clock.run(1.0)
        here.clock.seconds += BEAT_LIMIT_SECONDS - 2 * TICK_SECONDS
        assert await here.probes() == (200, 200, 200)
        here.clock.seconds += 2 * TICK_SECONDS
        assert await here.probes() == (503, 200, 200)
        await here.clock.run(2 * TICK_SECONDS)
        assert await here.probes() == (200, 200, 200)


@pytest.mark.parametrize(("drain", "flush"), [(25.0, FLUSH_SECONDS), (10.0, FLUSH_SECONDS), (2.0, 0.4), (0.0, 0.0)])
async def test_the_flush_takes_a_small_part_of_a_short_shutdown(tmp_path: Path, drain: float, flush: float) -> None:
    async with running(tmp_path, drain=drain) as here:
        ending = here.stop()
        await here.clock.run(30.0)
        assert await ending == 0
        assert here.telemetry.flushed == [pytest.approx(flush)]


async def test_a_second_signal_does_not_wait_for_the_flush(tmp_path: Path) -> None:
    async def hangs(seconds: float) -> None:
        await asyncio.Event().wait()

    async with running(tmp_path) as here:
        here.telemetry.flush = hangs
        ending = here.stop()
        await here.clock.run(30.0)
        assert not ending.done()
        here.signals.kill.set()
        assert await ending == KILLED
        here.telemetry.flush = done


async def test_a_bug_while_it_ends_is_no_good_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def fails(seconds: float) -> None:
        raise RuntimeError("a bug")

    async with running(tmp_path) as here:
        here.telemetry.flush = fails
        ending = here.stop()
        await here.clock.run(30.0)
        assert await ending == FAILED
        assert "task end failed" in caplog.text
        here.telemetry.flush = done
