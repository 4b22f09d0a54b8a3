"""A terminal that ends calls as a script says, and an observer that keeps what it is told."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, cast

from proxy.exchange import Exchange
from proxy.observer import ProcessEvent
from proxy.outcome import Outcome, OutcomeKind
from proxy.stage import CallNext

Step = Outcome | Exception | Callable[[Exchange], Awaitable[Outcome]]


class ScriptedTerminal:
    """Answers calls by a script: an outcome, an exception to raise, or a coroutine function; the last one repeats."""

    def __init__(self, *script: Step) -> None:
        self._script = list(script) or [Outcome(OutcomeKind.OK, status=200, committed=True)]
        self.calls: list[Exchange] = []

    async def __call__(self, exchange: Exchange) -> Outcome:
        """Makes the next step of the script."""
        self.calls.append(exchange)
        step = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        if isinstance(step, Outcome):
            return step
        if isinstance(step, Exception):
            raise step
        return await step(exchange)


@dataclass(slots=True)
class ManualObserver:
    """Keeps what it is told."""

    exchanges: list[Exchange] = field(default_factory=list)
    events: list[ProcessEvent] = field(default_factory=list)

    def ended(self, exchange: Exchange) -> None:
        """Keeps the exchange."""
        self.exchanges.append(exchange)

    def happened(self, event: ProcessEvent) -> None:
        """Keeps the event."""
        self.events.append(event)


def within(call: CallNext) -> tuple[object, Any]:
    """Returns the stage that a composed call runs, and what it surrounds."""
    inside = inspect.getclosurevars(cast(FunctionType, call)).nonlocals
    return inside["run"].__self__, getattr(inside["call_next"], "__self__", inside["call_next"])
