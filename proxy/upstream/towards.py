"""The terminal of a provider that forwarded requests reach at other addresses than those of its `base_url`, too."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

from proxy.exchange import Exchange
from proxy.outcome import Outcome
from proxy.stage import CallNext


class Towards:
    """Asks the address that an exchange is meant for; most are for the provider's `own`."""

    __slots__ = ("_others", "_own")

    def __init__(self, own: CallNext, others: Mapping[str, CallNext]) -> None:
        self._own = own
        self._others = dict(others)

    def __call__(self, exchange: Exchange) -> Awaitable[Outcome]:
        """Makes one upstream call."""
        towards = exchange.towards
        return (self._own if towards is None else self._others.get(towards, self._own))(exchange)
