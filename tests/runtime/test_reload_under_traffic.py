"""A hundred reloads under traffic with streams: no request fails, and the provider never sees more than the share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.policy.source import read_policy
from tests.runtime.places import mounted, moved_in
from tests.runtime.traffic import Callers, CountingProvider, LocalProxy

SHARE = 4
CALLERS = 10
RELOADS = 100
PART = RELOADS // 2
INVALID_EVERY = 10
TORN_EVERY = 7
SETTLED_SECONDS = 20.0


def policy(port: int, revision: int) -> str:
    """A policy that differs from its neighbours in much, but not in the share."""
    return f"""\
version: 1
providers:
  alpha:
    base_url: http://127.0.0.1:{port}/v1
    headers: {{x-revision: "{revision}"}}
    limits: {{concurrency: {SHARE}}}
    models: {{m{revision % 3}: {{limits: {{concurrency: {SHARE}}}}}}}
    queue: {{max: {100 + revision}}}
    timeouts: {{first_byte: {30 + revision}s, queue: 60s}}
    breaker: {{consecutive: {5 + revision % 5}, scope: {"provider" if revision % 2 else "target"}}}
    connections: {{idle: {20 + revision % 5}s}}
routes:
  - name: chat
    match: {{path: "/v1/*"}}
    tiers: [{{provider: alpha}}]
    retry: {{attempts: {1 + revision % 3}}}
"""


def invalid(port: int, revision: int) -> str:
    """The same with a limit that is none."""
    return policy(port, revision).replace(f"concurrency: {SHARE}", "concurrency: -1", 1)


class Operator:
    """Changes the policy again and again, and waits each time until the proxy has made up its mind."""

    def __init__(self, proxy: LocalProxy, place: Path, port: int) -> None:
        self.proxy = proxy
        self.place = place
        self.port = port
        self.good = 1
        self.bad = 0
        self.torn = 0

    async def change(self, number: int, put: Callable[[str], None]) -> None:
        """Makes one change: most are good, one in ten is bad, some are written in two parts."""
        state = self.proxy.keeper.state
        if number % INVALID_EVERY == 0:
            rejected = state.rejected
            put(invalid(self.port, number))
            self.bad += 1
            await self._until(lambda: state.rejected > rejected)
            return
        if number % TORN_EVERY == 0 and not (self.place / "..data").exists():
            await self._write_torn(policy(self.port, number))
        else:
            put(policy(self.port, number))
        self.good += 1
        digest = read_policy(self.place).digest
        await self._until(lambda: state.digest == digest)

    async def _write_torn(self, text: str) -> None:
        """Writes in place, in two parts; the first one alone says less, but is no policy."""
        self.torn += 1
        cut = text.index("routes:") + 4
        with (self.place / "policy.yaml").open("w") as file:
            file.write(text[:cut])
            file.flush()
            await asyncio.sleep(0.01)
            file.write(text[cut:])

    async def _until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(SETTLED_SECONDS):
            while not holds():
                self.proxy.keeper.ask()
                await asyncio.sleep(0.01)


@asynccontextmanager
async def running(place: Path, port: int) -> AsyncIterator[tuple[LocalProxy, Callers]]:
    """A proxy under traffic."""
    proxy = LocalProxy(place)
    callers = Callers(await proxy.start())
    callers.start(CALLERS)
    try:
        yield proxy, callers
        await callers.stop()
    finally:
        await proxy.stop()


async def check(operator: Operator, callers: Callers, provider: CountingProvider) -> None:
    """Nothing failed, nothing was exceeded, and the last policy is the one that works."""
    state = operator.proxy.keeper.state
    assert callers.failures == []
    assert min(callers.succeeded.values()) > PART, "hardly any traffic"
    assert provider.peak <= SHARE
    assert provider.peak == SHARE, "the share was never used"
    assert state.revision >= operator.good
    assert state.rejected >= operator.bad == PART // INVALID_EVERY
    assert provider.revisions[-1] == str(PART + 1)
    assert len(set(provider.revisions)) > PART // 2, "requests hardly met the reloads"
    assert operator.proxy.places_used == 0
    assert operator.proxy.admission.waiting == 0


@pytest.fixture
async def provider() -> AsyncIterator[CountingProvider]:
    provider = CountingProvider()
    yield provider
    await provider.stop()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("by_swap", [False, True], ids=["files", "swaps"])
async def test_reloads_under_traffic_cost_no_request_and_exceed_no_limit(
    tmp_path: Path, provider: CountingProvider, by_swap: bool
) -> None:
    port = await provider.start()
    versions = iter(range(1_000_000))

    def put(text: str) -> None:
        if by_swap:
            mounted(tmp_path, f"v{next(versions)}", text)
        else:
            moved_in(tmp_path / "policy.yaml", text)

    put(policy(port, 0))
    async with running(tmp_path, port) as (proxy, callers):
        operator = Operator(proxy, tmp_path, port)
        for number in range(1, PART + 2):
            await operator.change(number, put)
        await asyncio.sleep(0.2)
    assert operator.torn > 0 or by_swap
    await check(operator, callers, provider)
