"""A retry stage over a script, and outcomes that keys meet."""

from __future__ import annotations

import asyncio

from proxy.decisions.retry import RetryBudget, RetrySettings
from proxy.exchange import Exchange
from proxy.observer import Retried
from proxy.outcome import Outcome
from proxy.stages.retry import RetryStage
from tests.fakes import FakeClock, make_exchange
from tests.scripted import ScriptedTerminal, Step
from tests.stages.world import WatchedBreaker, failed, ring_of

SETTINGS = RetrySettings(attempts=3, base=1.0, cap=4.0)


class Loop:
    """A retry stage over a script, run while time passes."""

    def __init__(
        self, *script: Step, keys: str = "", settings: RetrySettings = SETTINGS, longest_rest: float = 30.0
    ) -> None:
        self.clock = FakeClock()
        self.terminal = ScriptedTerminal(*script)
        self.ring = ring_of(keys.split()) if keys else None
        self.budget = RetryBudget(settings.budget)
        self.breaker = WatchedBreaker()
        self.stage = RetryStage(
            settings,
            budget=self.budget,
            breaker=self.breaker,
            ring=self.ring,
            longest_rest=longest_rest,
            clock=self.clock,
        )
        self.exchange = make_exchange()
        self.exchange.attempts_left = settings.attempts
        self.exchange.deadline_at = self.clock.now() + 600.0
        self.exchange.facts.provider, self.exchange.facts.tier = "alpha", 1

    async def run(self, seconds: float = 60.0) -> Outcome:
        """Runs it to its end."""
        task = asyncio.ensure_future(self.stage(self.exchange, self.terminal))
        await self.clock.run(seconds)
        assert task.done(), "still not decided"
        return task.result()

    @property
    def calls(self) -> int:
        """How often the tier was called."""
        return len(self.terminal.calls)

    @property
    def retried(self) -> list[Retried]:
        """What was noted."""
        return [event for _, event in self.exchange.facts.events if isinstance(event, Retried)]


def rejected() -> Outcome:
    """The outcome of a key of ours that the provider does not take."""
    outcome = failed(401)
    outcome.key_fault = True
    return outcome


def trying(*outcomes: Outcome) -> Step:
    """Calls that take the keys a, b, c, d in turn, as admission would, and end in these ways."""
    left = list(outcomes)

    async def call(exchange: Exchange) -> Outcome:
        exchange.tried_keys = {*(exchange.tried_keys or ()), *"abcd"[: len(exchange.tried_keys or ()) + 1]}
        return left.pop(0)

    return call
