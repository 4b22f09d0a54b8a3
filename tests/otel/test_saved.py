"""What counts as saved."""

from __future__ import annotations

from typing import Any

import pytest

from otel import attributes as a
from otel.instruments import Instruments
from otel.saved import SavedWork, how_answered
from otel.series import Distribution
from proxy.exchange import Facts, Usage
from proxy.observer import CacheUse, ExchangeEvent, Merged, Shared, Sharing, Split, Waited
from proxy.outcome import OutcomeKind
from tests.otel.ended import ARRIVED_AT, an_attempt, an_exchange

JOINED, REPLAYED = Shared(how=Sharing.JOINED), Shared(how=Sharing.REPLAYED)
CARRIED = Merged(callers=3, inputs=5, carries=False, links=((1, 2),))
CARRIER = Merged(callers=3, inputs=5, carries=True, links=((1, 2), (3, 4)))


def facts_of(*events: ExchangeEvent, called: bool = False, **changes: Any) -> Facts:
    attempts = [an_attempt()] if called else []
    return an_exchange(*attempts, events=[(ARRIVED_AT, event) for event in events], **changes).facts


def counted(*several: Facts) -> dict[str, dict[tuple[str, ...], Any]]:
    """Instrument → labels → value; of a histogram how many and their sum."""
    instruments = Instruments(a.GENAI_1_41)
    work = SavedWork(instruments)
    for facts in several:
        work.count(facts)
    return {
        row.name: {
            one.labels: (sum(one.counts), one.sum) if isinstance(one, Distribution) else one.value for one in series
        }
        for row, series in instruments.collect(())
    }


@pytest.mark.parametrize(
    ("facts", "how"),
    [
        (facts_of(cache=CacheUse.HIT), "hit"),
        (facts_of(cache=CacheUse.STALE), "stale"),
        (facts_of(JOINED, cache=CacheUse.SHARED), "shared"),
        (facts_of(JOINED), "joined"),
        (facts_of(REPLAYED), "replayed"),
        (facts_of(JOINED, cache=CacheUse.MISS), "joined"),
        (facts_of(CARRIED), "merged"),
        (facts_of(CARRIED, cache=CacheUse.MISS), "merged"),
    ],
)
def test_whoever_is_answered_without_a_call_has_saved_one(facts: Facts, how: str) -> None:
    assert how_answered(facts) == how
    assert counted(facts)[a.SAVED_CALLS] == {("chat", how): 1}


@pytest.mark.parametrize(
    "facts",
    [
        facts_of(cache=CacheUse.MISS, called=True),
        facts_of(Waited(provider="alpha", seconds=0.1, lacking="permit"), called=True),
        facts_of(CARRIER, called=True),
        facts_of(JOINED, cache=CacheUse.SHARED, called=True),
        facts_of(JOINED, cache=CacheUse.SHARED, kind=OutcomeKind.TOTAL_TIMEOUT),
        facts_of(JOINED, cache=CacheUse.SHARED, kind=OutcomeKind.CLIENT_LEFT),
        facts_of(JOINED, kind=OutcomeKind.UPSTREAM_ERROR),
        facts_of(cache=CacheUse.STALE, called=True),
        facts_of(CARRIED, Split(callers=3, after=OutcomeKind.CALLER_ERROR), called=True),
    ],
)
def test_who_made_a_call_or_was_not_answered_has_saved_none(facts: Facts) -> None:
    assert a.SAVED_CALLS not in counted(facts)


def test_saved_tokens_are_counted_by_how_they_were_saved() -> None:
    found = counted(
        facts_of(cache=CacheUse.HIT, saved=Usage(100, 20)),
        facts_of(cache=CacheUse.HIT, saved=Usage(5, 1)),
        facts_of(JOINED, cache=CacheUse.SHARED, saved=Usage(7, 2, estimated=True)),
        facts_of(cache=CacheUse.STALE, called=True, saved=Usage(3, 4)),
        facts_of(cache=CacheUse.HIT),
    )
    assert found[a.SAVED_TOKENS] == {
        ("chat", "hit", "input", "false"): 105,
        ("chat", "hit", "output", "false"): 21,
        ("chat", "shared", "input", "true"): 7,
        ("chat", "shared", "output", "true"): 2,
        ("chat", "stale", "input", "false"): 3,
        ("chat", "stale", "output", "false"): 4,
    }


def test_requests_are_counted_by_the_part_that_a_cache_had() -> None:
    uses = [CacheUse.HIT, CacheUse.MISS, CacheUse.MISS, CacheUse.STALE, CacheUse.SHARED]
    found = counted(*(facts_of(cache=use) for use in uses), facts_of(JOINED))
    assert found[a.CACHE_REQUESTS] == {
        ("chat", "hit"): 1,
        ("chat", "miss"): 2,
        ("chat", "stale"): 1,
        ("chat", "shared"): 1,
    }


def test_a_refresh_is_counted_by_what_became_of_it_and_saves_nothing() -> None:
    good = facts_of(REPLAYED, cache=CacheUse.REFRESH, called=True)
    bad = facts_of(REPLAYED, cache=CacheUse.REFRESH, kind=OutcomeKind.UPSTREAM_ERROR)
    assert counted(good, bad) == {a.CACHE_REFRESHES: {("chat", "ok"): 1, ("chat", "upstream_error"): 1}}


def test_a_merged_call_is_measured_once() -> None:
    found = counted(facts_of(CARRIER, called=True), facts_of(CARRIED), facts_of(CARRIED))
    assert found[a.MERGE_CALLERS] == {("chat",): (1, 3.0)}
    assert found[a.MERGE_INPUTS] == {("chat",): (1, 5.0)}
    assert found[a.SAVED_CALLS] == {("chat", "merged"): 2}


def test_a_refresh_may_carry_a_merged_call() -> None:
    found = counted(facts_of(REPLAYED, CARRIER, cache=CacheUse.REFRESH, called=True))
    assert found[a.MERGE_CALLERS] == {("chat",): (1, 3.0)}


def test_splits_are_counted_by_what_had_gone_wrong() -> None:
    split = Split(callers=3, after=OutcomeKind.CALLER_ERROR)
    assert counted(facts_of(split, called=True))[a.MERGE_SPLITS] == {("chat", "caller_error"): 1}
