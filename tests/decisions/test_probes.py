"""The leases of one half-open time."""

from __future__ import annotations

import pytest

from proxy.decisions.breaker import Breaker, BreakerSettings
from proxy.decisions.probes import Probes
from proxy.decisions.ticket import Ticket
from proxy.decisions.verdict import Verdict

BREAKER = Breaker(BreakerSettings(), first_byte=30.0, jitter=lambda: 0.0)


def a_lease(probes: Probes, *, started_at: float = 0.0) -> Ticket:
    ticket = Ticket(BREAKER, 1, probe=True, stream=False)
    ticket.started_at = started_at
    probes.running.append(ticket)
    return ticket


def test_never_more_run_than_successes_are_missing() -> None:
    probes = Probes()
    first, _ = a_lease(probes), a_lease(probes)
    assert probes.free(3)
    assert not probes.free(2)
    probes.ended(first, Verdict.SUCCESS)
    assert probes.free(3)
    a_lease(probes)
    assert not probes.free(3)
    assert repr(probes) == "<Probes 2 running, 1 good, 0 neutral>"


@pytest.mark.parametrize("verdict", [Verdict.FAILURE, Verdict.REJECTED])
def test_one_failure_is_enough(verdict: Verdict) -> None:
    probes = Probes()
    probes.ended(a_lease(probes, started_at=1.0), Verdict.SUCCESS)
    assert probes.ended(a_lease(probes, started_at=1.0), verdict) is Verdict.FAILURE


@pytest.mark.parametrize("verdict", [Verdict.SUCCESS, Verdict.HEALTHY])
def test_a_sign_of_life_is_a_success(verdict: Verdict) -> None:
    probes = Probes()
    assert probes.ended(a_lease(probes, started_at=1.0), verdict) is None
    assert probes.successes == 1


def test_three_that_say_nothing_say_enough_however_many_are_good() -> None:
    probes = Probes()
    verdicts = (Verdict.NEUTRAL, Verdict.SUCCESS, Verdict.NEUTRAL, Verdict.SUCCESS, Verdict.NEUTRAL)
    said = [probes.ended(a_lease(probes, started_at=1.0), verdict) for verdict in verdicts]
    assert said == [None, None, None, None, Verdict.NEUTRAL]


@pytest.mark.parametrize(("verdict", "started_at"), [(Verdict.NOT_RECORDED, 1.0), (Verdict.NEUTRAL, 0.0)])
def test_a_lease_that_was_refused_here_or_never_started_is_as_if_it_had_not_been(
    verdict: Verdict, started_at: float
) -> None:
    probes = Probes()
    for _ in range(10):
        assert probes.ended(a_lease(probes, started_at=started_at), verdict) is None
    assert (len(probes), probes.successes, probes.neutral) == (0, 0, 0)


def test_only_a_lease_on_the_wire_can_be_overdue() -> None:
    probes = Probes()
    a_lease(probes)
    late = a_lease(probes, started_at=100.0)
    assert probes.overdue(129.9, first_byte=30.0, answer=600.0) is None
    assert probes.overdue(130.0, first_byte=30.0, answer=600.0) is late


def test_the_next_half_open_time_begins_anew() -> None:
    probes = Probes()
    probes.ended(a_lease(probes, started_at=1.0), Verdict.NEUTRAL)
    probes.ended(a_lease(probes, started_at=1.0), Verdict.SUCCESS)
    a_lease(probes)
    probes.clear()
    assert (len(probes), probes.successes, probes.neutral) == (0, 0, 0)
