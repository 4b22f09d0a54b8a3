"""What counts as an error of a span and of a metric, by OpenTelemetry's HTTP conventions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxy.outcome import OutcomeKind

if TYPE_CHECKING:
    from proxy.exchange import Attempt, Facts

_FINE: Final = frozenset({OutcomeKind.OK, OutcomeKind.ANSWERED, OutcomeKind.CALLER_ERROR, OutcomeKind.CLIENT_LEFT})


def request_error(facts: Facts) -> str:
    """Returns the server side's `error.type`, "" for none.

    4xx is no error here, and a caller that leaves is none. An answer that broke after its head is one, in
    spite of its status. What a later attempt made good is none.
    """
    if facts.kind is OutcomeKind.CLIENT_LEFT:
        return ""
    if facts.status >= 500:
        return str(facts.status)
    if facts.status >= 400 or facts.kind in _FINE:
        return ""
    return facts.kind or "_OTHER"


def attempt_error(attempt: Attempt) -> str:
    """Returns the client side's `error.type`, "" for none: 4xx is an error, a caller that leaves is none."""
    if attempt.kind is OutcomeKind.CLIENT_LEFT:
        return ""
    if attempt.status >= 400:
        return str(attempt.status)
    if attempt.kind is OutcomeKind.OK:
        return ""
    return attempt.kind or "_OTHER"
