"""What a call tells its breaker on its way."""

from __future__ import annotations

import pytest

from proxy.decisions.ticket import Ticket
from proxy.decisions.verdict import Verdict


class Recorder:
    """An issuer that writes down what it is told; taking note of time ends the ticket that is `overdue`."""

    def __init__(self) -> None:
        self.told: list[tuple[str, object]] = []
        self.overdue: Ticket | None = None

    def tick(self, now: float) -> None:
        self.told.append(("tick", now))
        if self.overdue is not None:
            self.overdue.ended = True

    def watch(self, ticket: Ticket) -> None:
        self.told.append(("watch", ticket.started_at))

    def took(self, ticket: Ticket, now: float) -> None:
        self.told.append(("took", now - ticket.started_at))

    def settle(self, ticket: Ticket, verdict: Verdict, now: float, *, retry_after: float | None) -> None:
        self.told.append((verdict.value, retry_after))


@pytest.fixture
def breaker() -> Recorder:
    return Recorder()


def test_only_streams_are_watched_for_slowness(breaker: Recorder) -> None:
    Ticket(breaker, 1, probe=False, stream=True).on_wire(1000.0)
    Ticket(breaker, 1, probe=False, stream=False).on_wire(1001.0)
    assert breaker.told == [("watch", 1000.0)]


def test_it_starts_once(breaker: Recorder) -> None:
    ticket = Ticket(breaker, 1, probe=False, stream=True)
    ticket.on_wire(1000.0)
    ticket.on_wire(1005.0)
    assert ticket.started_at == 1000.0
    assert breaker.told == [("watch", 1000.0)]


def test_it_ends_once_and_time_is_taken_note_of_before(breaker: Recorder) -> None:
    ticket = Ticket(breaker, 1, probe=False, stream=False)
    ticket.end(Verdict.FAILURE, 1010.0, retry_after=7.0)
    ticket.end(Verdict.NEUTRAL, 1011.0)
    assert breaker.told == [("tick", 1010.0), ("failure", 7.0)]


def test_a_streaming_probe_succeeds_with_its_first_content(breaker: Recorder) -> None:
    ticket = Ticket(breaker, 1, probe=True, stream=True)
    ticket.on_wire(1000.0)
    ticket.first_content(1001.0)
    ticket.end(Verdict.FAILURE, 1002.0)
    assert [what for what, _ in breaker.told if what != "tick"] == ["watch", "success"]


@pytest.mark.parametrize(("probe", "stream"), [(True, False), (False, True), (False, False)])
def test_first_content_ends_nothing_else(breaker: Recorder, probe: bool, stream: bool) -> None:
    ticket = Ticket(breaker, 1, probe=probe, stream=stream)
    ticket.on_wire(1000.0)
    ticket.first_content(1001.0)
    assert not ticket.ended
    assert ticket.content


@pytest.mark.parametrize(("verdict", "told"), [(Verdict.SUCCESS, [("took", 100.0)]), (Verdict.FAILURE, [])])
def test_a_probe_that_time_has_ended_is_not_judged_by_its_late_end(
    breaker: Recorder, verdict: Verdict, told: list[tuple[str, object]]
) -> None:
    ticket = Ticket(breaker, 1, probe=True, stream=False)
    ticket.on_wire(1000.0)
    breaker.overdue = ticket
    ticket.end(verdict, 1100.0)
    assert breaker.told == [("tick", 1100.0), *told]
    assert repr(ticket) == "<Ticket probe of generation 1 ended>"


def test_an_ended_ticket_does_not_start(breaker: Recorder) -> None:
    ticket = Ticket(breaker, 1, probe=False, stream=True)
    ticket.end(Verdict.NOT_RECORDED, 1000.0)
    ticket.on_wire(1001.0)
    ticket.first_content(1002.0)
    assert ("watch", 1001.0) not in breaker.told
    assert not ticket.started_at
