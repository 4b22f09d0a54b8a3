"""Half-open: probes are leases that end once, by one of five ways."""

from __future__ import annotations

import pytest

from proxy.decisions.breaker import BreakerSettings
from proxy.decisions.verdict import Verdict, verdict_of
from proxy.outcome import Outcome
from tests.decisions.target import (
    CLOSED,
    FAILED,
    GOOD,
    HALF_OPEN,
    KEY,
    LEFT,
    LIMITED,
    LOCAL,
    OPEN,
    OTHER_4XX,
    K,
    Target,
)


def test_at_most_so_many_probes_are_in_flight() -> None:
    target = Target()
    target.half_open()
    probes = [target.start() for _ in range(3)]
    assert all(probe.probe for probe in probes)
    assert target.refuses()
    assert target.breaker.retry_after(target.now) >= 1.0


def test_probes_that_all_succeed_close_it() -> None:
    target = Target()
    target.half_open()
    target.call(GOOD, 2)
    assert target.state is HALF_OPEN
    target.call(GOOD)
    assert target.state is CLOSED
    assert target.whys[-1] == "probes_ok"


def test_every_half_open_begins_anew() -> None:
    target = Target()
    target.half_open()
    target.call(GOOD, 2)
    target.call(FAILED)
    target.passes(target.breaker.retry_after(target.now))
    target.call(GOOD, 2)
    assert target.state is HALF_OPEN
    target.call(GOOD)
    assert target.state is CLOSED


def test_a_caller_error_shows_that_the_server_lives() -> None:
    target = Target(BreakerSettings(probes=1))
    target.half_open()
    target.call(OTHER_4XX)
    assert target.state is CLOSED


@pytest.mark.parametrize("outcome", [FAILED, LIMITED, Outcome(K.STREAM_BROKEN, status=200)], ids=repr)
def test_the_first_failing_probe_opens_it_again(outcome: Outcome) -> None:
    target = Target()
    target.half_open()
    target.call(GOOD, 2)
    target.call(outcome)
    assert target.state is OPEN
    assert target.whys[-1] == "probe_failed"


def test_a_streaming_probe_succeeds_with_its_first_content() -> None:
    target = Target(BreakerSettings(probes=1))
    target.half_open()
    probe = target.start(stream=True)
    probe.first_content(target.now)
    assert target.state is CLOSED
    probe.end(Verdict.FAILURE, target.now)
    assert target.breaker.statistics(target.now).failures == 0


def test_a_429_with_retry_after_keeps_a_half_open_breaker_open_as_long_as_told() -> None:
    target = Target()
    target.half_open()
    target.call(Outcome(K.RATE_LIMITED, status=429, retry_after=200.0))
    assert target.breaker.retry_after(target.now) == 200.0


@pytest.mark.parametrize("stream", [True, False])
def test_a_probe_that_says_nothing_fails_at_its_deadline(stream: bool) -> None:
    target = Target()
    target.half_open()
    probe = target.start(stream=stream)
    target.passes(29.9)
    assert target.state is HALF_OPEN
    target.passes(0.1)
    assert target.state is OPEN
    assert probe.ended
    assert target.breaker.statistics(target.now).probes_running == 0


def test_a_success_after_the_deadline_does_not_count_where_no_ticker_ran() -> None:
    target = Target(BreakerSettings(probes=1))
    target.half_open()
    probe = target.start()
    target.now += 31.0
    probe.end(Verdict.SUCCESS, target.now)
    assert target.state is OPEN


def test_content_after_the_deadline_does_not_count_either() -> None:
    target = Target(BreakerSettings(probes=1))
    target.half_open()
    probe = target.start(stream=True)
    target.now += 31.0
    probe.first_content(target.now)
    assert target.state is OPEN


def test_a_probe_without_a_stream_has_more_time_where_long_answers_are_known() -> None:
    target = Target()
    long = target.start()
    target.passes(100.0)
    long.end(Verdict.SUCCESS, target.now)
    target.half_open()
    target.start()
    target.passes(149.9)
    assert target.state is HALF_OPEN
    target.passes(0.1)
    assert target.whys[-1] == "probe_failed"


@pytest.mark.parametrize("verdict", [Verdict.FAILURE, Verdict.HEALTHY, Verdict.GIVEN_UP])
def test_only_good_answers_give_a_probe_more_time(verdict: Verdict) -> None:
    target = Target(BreakerSettings(failure_ratio=1.0))
    long = target.start()
    target.passes(100.0)
    long.end(verdict, target.now)
    target.half_open()
    target.start()
    target.passes(30.0)
    assert target.state is OPEN


def test_a_stream_tells_nothing_of_answers_in_one_piece_and_a_streaming_probe_has_no_more_time() -> None:
    for known in (False, True):
        target = Target()
        long = target.start(stream=not known)
        long.first_content(target.now)
        target.passes(100.0)
        long.end(Verdict.SUCCESS, target.now)
        target.half_open()
        target.start(stream=known)
        target.passes(30.0)
        assert target.state is OPEN


def test_a_probe_has_never_more_time_than_its_answer() -> None:
    target = Target()
    target.breaker.reconfigure(target.breaker.settings, first_byte=30.0, answer=120.0)
    long = target.start()
    target.passes(100.0)
    long.end(Verdict.SUCCESS, target.now)
    target.half_open()
    target.start()
    target.passes(119.9)
    assert target.state is HALF_OPEN
    target.passes(0.1)
    assert target.state is OPEN


def test_long_answers_are_forgotten_after_an_hour() -> None:
    target = Target()
    for seconds in (200.0, 100.0):
        long = target.start()
        target.passes(seconds)
        long.end(Verdict.SUCCESS, target.now)
    target.passes(3500.1)
    target.half_open()
    target.start()
    target.passes(30.0)
    assert target.state is OPEN


def test_a_provider_whose_answers_are_always_slower_than_the_first_byte_limit_comes_back() -> None:
    target = Target()
    target.half_open()
    probes = [target.start() for _ in range(3)]
    target.passes(45.0)
    assert target.state is OPEN
    for probe in probes:
        probe.end(Verdict.SUCCESS, target.now)
    target.passes(target.breaker.retry_after(target.now))
    again = [target.start() for _ in range(3)]
    target.passes(45.0)
    for probe in again:
        probe.end(Verdict.SUCCESS, target.now)
    assert target.state is CLOSED


def test_waiting_for_a_permit_does_not_use_a_probes_time_up() -> None:
    target = Target()
    target.half_open()
    probe = target.breaker.acquire(target.now, stream=True)
    assert probe is not None
    target.passes(40.0)
    probe.on_wire(target.now)
    target.passes(29.0)
    assert target.state is HALF_OPEN


def test_a_locally_refused_probe_gives_its_place_back_without_verdict() -> None:
    target = Target(BreakerSettings(probes=1))
    target.half_open()
    for _ in range(50):
        probe = target.breaker.acquire(target.now, stream=True)
        assert probe is not None
        probe.end(verdict_of(LOCAL), target.now)
    assert target.state is HALF_OPEN


def test_a_probe_whose_caller_leaves_the_queue_gives_its_place_back_without_verdict() -> None:
    target = Target(BreakerSettings(probes=1))
    target.half_open()
    for _ in range(50):
        probe = target.breaker.acquire(target.now, stream=True)
        assert probe is not None
        probe.end(verdict_of(LEFT), target.now)
    assert target.state is HALF_OPEN


@pytest.mark.parametrize("outcome", [LEFT, KEY], ids=repr)
def test_three_neutral_probes_open_it_again_for_as_long_as_before(outcome: Outcome) -> None:
    target = Target()
    target.half_open()
    target.call(outcome, 2)
    assert target.state is HALF_OPEN
    target.call(outcome)
    assert target.whys[-1] == "probe_neutral"
    assert [change.open_seconds for change in target.changes if change.new is OPEN] == [30.0, 30.0]


def test_neutral_probes_of_an_earlier_half_open_are_forgotten() -> None:
    target = Target()
    target.half_open()
    target.call(LEFT, 2)
    target.call(FAILED)
    target.passes(target.breaker.retry_after(target.now))
    target.call(LEFT, 2)
    assert target.state is HALF_OPEN


def test_an_idle_half_open_breaker_waits_for_its_next_call() -> None:
    target = Target()
    target.half_open()
    target.passes(6 * 86400.0)
    assert target.state is HALF_OPEN
    target.call(GOOD, 3)
    assert target.state is CLOSED


def test_time_alone_moves_open_to_half_open() -> None:
    target = Target()
    target.call(FAILED, 10)
    target.passes(30.0)
    assert target.breaker.state is HALF_OPEN
    assert target.whys == ["consecutive", "waited"]
