"""Addresses: several of one provider. A gate before the wait, and the choice of one when the wait is over.

The gate answers at once while every address's breaker is open. The choice stands below admission, where the breaker of
the chosen address is asked: who waits is bound to none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from proxy.clock import Clock
from proxy.decisions.addresses import Addresses
from proxy.exchange import Exchange
from proxy.outcome import Outcome, Reason, refused
from proxy.stage import CallNext


class AddressGate:
    """Lets a call on to the wait while there is an address to which it could go."""

    __slots__ = ("_addresses", "_clock")

    def __init__(self, addresses: Addresses, *, clock: Clock) -> None:
        self._addresses = addresses
        self._clock = clock

    def __call__(self, exchange: Exchange, call_next: CallNext) -> Awaitable[Outcome]:
        """Refuses at once when all breakers are open, until the first may let a call pass again."""
        now = self._clock.now()
        if self._addresses.lets_go(now):
            return call_next(exchange)
        return _refused(self._addresses.retry_after(now))


async def _refused(retry_after: float) -> Outcome:
    return refused(Reason.BREAKER_OPEN, retry_after=retry_after)


class AddressChoice:
    """Sends each call to the address that is chosen for it; a terminal. `calls` are one for each address."""

    __slots__ = ("_addresses", "_calls", "_clock", "_provider")

    def __init__(self, addresses: Addresses, calls: Sequence[CallNext], *, provider: str, clock: Clock) -> None:
        self._addresses = addresses
        self._calls = tuple(calls)
        self._provider = provider
        self._clock = clock

    async def __call__(self, exchange: Exchange) -> Outcome:
        """Makes the call; another try of the same request prefers an address that has not failed it."""
        attempts, provider = exchange.facts.attempts, self._provider
        failed = {attempt.address for attempt in attempts if attempt.provider == provider} if attempts else ()
        stay = self._addresses.enter(self._clock.now(), failed)
        try:
            return await self._calls[stay.index](exchange)
        finally:
            stay.end()
