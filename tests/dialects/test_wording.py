"""The sentences that callers read."""

from __future__ import annotations

import pytest

from proxy.dialects.wording import MAX_CHARACTERS, advice, sentence, status_of
from proxy.outcome import STATUS, Reason


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_a_fault_and_a_cure(reason: Reason) -> None:
    fault, _, cure = advice(reason).partition(". ")
    assert fault
    assert cure.endswith(".")
    assert status_of(reason.value) == STATUS[reason]


def test_unknown_reasons_have_words_too() -> None:
    assert advice("stream_broken").endswith("Try again.")
    assert status_of("stream_broken") == 500


def test_a_given_message_wins() -> None:
    assert sentence("queue_full", "Ask Bob.") == "Ask Bob."
    assert sentence("queue_full", "") == advice("queue_full")


def test_messages_are_bounded_and_encodable() -> None:
    text = sentence("bad_request", "\ud800" * 10_000)
    assert text == "?" * MAX_CHARACTERS
