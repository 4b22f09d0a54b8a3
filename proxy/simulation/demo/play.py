"""The order of events: all is well, a provider fails, it recovers, and too many come at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from proxy.clock import Clock
from proxy.simulation.demo.callers import Callers
from proxy.simulation.demo.operations import Operation
from proxy.simulation.demo.providers import Providers
from proxy.simulation.demo.timeline import Timeline

CALM, FAILING, RECOVERED = 0.25, 0.5, 0.25
"""Parts of the length; the wait for breakers to close comes on top."""
CLOSING_SECONDS = 15.0
POLL_SECONDS = 0.1

STEADY: Mapping[Operation, int] = {
    Operation.CHAT: 4,
    Operation.STREAM: 3,
    Operation.EMBEDDINGS: 2,
    Operation.MESSAGES: 2,
}
BURST: Mapping[Operation, int] = {Operation.CHAT: 120, Operation.MESSAGES: 40}
FAILING_PROVIDER = "alpha"
FAULT = "status=503"


class Play:
    """One performance; `say` tells people what comes next."""

    def __init__(
        self, callers: Callers, providers: Providers, timeline: Timeline, *, clock: Clock, say: Callable[[str], None]
    ) -> None:
        self._callers = callers
        self._providers = providers
        self._timeline = timeline
        self._clock = clock
        self._say = say

    async def perform(self, seconds: float) -> None:
        """Runs all of it; `seconds` is its length without the wait for breakers to close."""
        async with self._callers.steady(STEADY):
            self._say(f"{sum(STEADY.values())} callers: {_counted(STEADY)}. All providers are well.")
            await self._clock.sleep(CALM * seconds)
            self._say(f"{FAILING_PROVIDER} fails: it answers 503 to everything. Its work goes to the next tier.")
            await self._providers.fail(FAILING_PROVIDER, FAULT)
            await self._clock.sleep(FAILING * seconds)
            self._say(f"{FAILING_PROVIDER} is well again. The proxy finds out by its next probes.")
            await self._providers.recover(FAILING_PROVIDER)
            await self._until_closed()
            await self._clock.sleep(RECOVERED * seconds)
        self._say(f"A burst: {_counted(BURST)}, all at once. It is more than the shares and the queues hold.")
        await self._callers.burst(BURST)
        self._say("All are answered.")

    async def _until_closed(self) -> None:
        give_up_at = self._clock.now() + CLOSING_SECONDS
        while self._timeline.not_closed and self._clock.now() < give_up_at:
            await self._clock.sleep(POLL_SECONDS)


def _counted(counts: Mapping[Operation, int]) -> str:
    return ", ".join(f"{count} × {operation}" for operation, count in counts.items())
