"""What a cancelled exchange was."""

from __future__ import annotations

import pytest

from proxy.decisions.leaving import kind_of_leaving
from proxy.exchange import CancelCause
from proxy.outcome import OutcomeKind
from tests.fakes import make_exchange


@pytest.mark.parametrize(
    ("cause", "answered", "kind"),
    [
        (CancelCause.CLIENT_LEFT, False, OutcomeKind.CLIENT_LEFT),
        (CancelCause.CLIENT_LEFT, True, OutcomeKind.OK),
        (CancelCause.STALLED, False, OutcomeKind.CLIENT_LEFT),
        (CancelCause.DRAIN, False, OutcomeKind.DRAINED),
        (CancelCause.DRAIN, True, OutcomeKind.DRAINED),
        (None, False, OutcomeKind.CLIENT_LEFT),
    ],
)
def test_who_leaves_after_the_last_event_had_the_whole_answer(
    cause: CancelCause | None, answered: bool, kind: OutcomeKind
) -> None:
    exchange = make_exchange()
    exchange.cancel_cause, exchange.answered = cause, answered
    assert kind_of_leaving(exchange) is kind


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize(
    ("cause", "kind"),
    [(CancelCause.CLIENT_LEFT, OutcomeKind.ERROR_IN_ANSWER), (CancelCause.DRAIN, OutcomeKind.DRAINED)],
)
def test_who_leaves_after_the_provider_s_error_leaves_because_of_it(
    cause: CancelCause, answered: bool, kind: OutcomeKind
) -> None:
    exchange = make_exchange()
    exchange.cancel_cause, exchange.answered, exchange.told_error = cause, answered, True
    assert kind_of_leaving(exchange) is kind
