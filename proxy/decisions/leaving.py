"""Leaving: what a cancelled exchange was, by the word of who cancelled it."""

from __future__ import annotations

from proxy.exchange import CancelCause, Exchange
from proxy.outcome import OutcomeKind


def kind_of_leaving(exchange: Exchange) -> OutcomeKind:
    """Returns the outcome of a cancelled exchange.

    A caller that leaves after a stream's last event had all of it; one that leaves after an error event of the
    provider's does so because of that.
    """
    if exchange.cancel_cause is CancelCause.DRAIN:
        return OutcomeKind.DRAINED
    if exchange.told_error:
        return OutcomeKind.ERROR_IN_ANSWER
    return OutcomeKind.OK if exchange.answered else OutcomeKind.CLIENT_LEFT
