"""Stages: async shells that surround the rest of the pipeline; `compose` joins them once, at assembly."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from types import FunctionType
from typing import Any, Protocol, cast

from proxy.exchange import Exchange
from proxy.outcome import Outcome

CallNext = Callable[[Exchange], Awaitable[Outcome]]


class Stage(Protocol):
    """One concern around a call. Cleanup is synchronous, so that a cancelled task cannot stop half-way through it."""

    def __call__(self, exchange: Exchange, call_next: CallNext) -> Awaitable[Outcome]:
        """Surrounds `call_next` and gives the outcome once the last byte has been relayed.

        A stage that only does something before the call need not be a coroutine: it returns the call itself.
        """
        ...


def compose(stages: Sequence[Stage], terminal: CallNext) -> CallNext:
    """Joins stages, outermost first, around a terminal.

    Plain functions around bound methods: a call of an object with `__call__`, or of a `partial`, costs several times
    as much, and every request makes a dozen of them.
    """
    call: CallNext = terminal if isinstance(terminal, FunctionType) else cast(Any, terminal).__call__
    for stage in reversed(stages):
        call = _around(stage.__call__, call)
    return call


def _around(run: Callable[[Exchange, CallNext], Awaitable[Outcome]], call_next: CallNext) -> CallNext:
    def call(exchange: Exchange) -> Awaitable[Outcome]:
        return run(exchange, call_next)

    return call
