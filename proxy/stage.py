"""Stages: async shells that surround the rest of the pipeline; `compose` joins them once, at assembly."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

from proxy.exchange import Exchange
from proxy.outcome import Outcome

CallNext = Callable[[Exchange], Awaitable[Outcome]]


class Stage(Protocol):
    """One concern around a call. Cleanup is synchronous, so that a cancelled task cannot stop half-way through it."""

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Outcome:
        """Surrounds `call_next` and returns the outcome once the last byte has been relayed."""
        ...


def compose(stages: Sequence[Stage], terminal: CallNext) -> CallNext:
    """Joins stages, outermost first, around a terminal; returns the terminal itself where there are none."""
    call = terminal
    for stage in reversed(stages):
        call = partial(stage, call_next=call)
    return call
