"""Answer: the policy's own words."""

from __future__ import annotations

import pytest

from proxy.outcome import OutcomeKind
from proxy.stages.answer import PolicyAnswer
from tests.fakes import FakeClock, FakeReply, make_exchange


@pytest.mark.parametrize(
    ("status", "phrase"), [(200, b"OK"), (503, b"Service Unavailable"), (499, b""), (202, b"Accepted")]
)
async def test_the_answer_is_the_policys_whole_and_with_the_status_words(status: int, phrase: bytes) -> None:
    reply = FakeReply()
    exchange = make_exchange(reply=reply)
    tier = PolicyAnswer(number=3, status=status, body=b'{"note":"later"}', clock=FakeClock(1234.0))
    outcome = await tier(exchange)
    assert (reply.status, reply.phrase, reply.body, reply.end) == (status, phrase, b'{"note":"later"}', "finished")
    assert reply.header(b"content-type") == b"application/json"
    assert (outcome.kind, outcome.status, outcome.committed) == (OutcomeKind.ANSWERED, status, True)
    assert exchange.facts.first_byte_at == 1234.0


def test_it_is_a_tier_that_asks_no_provider() -> None:
    tier = PolicyAnswer(number=3, status=200, body=b"{}", clock=FakeClock())
    assert (tier.number, tier.provider, tier.own_key) == (3, "", False)
