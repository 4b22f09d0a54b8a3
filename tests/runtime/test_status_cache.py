"""/status and gauges of caches, refreshes and shared calls: counts and bytes, never what they are of."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from otel import attributes as a
from otel.instruments import Instruments
from proxy.decisions.cached import Cached
from proxy.ports import StoredAnswer
from proxy.runtime.kept_state import KeptState
from proxy.runtime.status_cache import cache_gauges, cache_status
from proxy.stages.refreshing import Refreshes
from proxy.stages.response_cache import CacheCounts
from proxy.stages.shared_call import SharedCall
from proxy.stages.single_flight import Flights
from proxy.store.cache import StoreStatistics
from proxy.store.server import Trouble
from tests.fakes import FakeClock, counting_bits

ANSWER = StoredAnswer(
    status=200, phrase=b"OK", lines=b"x: hush\r\n", body=b"hush-hush", length=9, provider="alpha", model="m", tier=1
)
MEBIBYTE = 1024 * 1024


class Server:
    """A store outside that is down."""

    def statistics(self) -> StoreStatistics:
        """Says so."""
        errors = {Trouble.CONNECTION: 3}
        return StoreStatistics(up=False, pending=2, pending_bytes=9, written=5, dropped=4, late=1, errors=errors)


@pytest.fixture
def kept() -> KeptState:
    """Two routes with caches, one of them outside."""
    kept = KeptState()
    for route in ("near", "far"):
        kept.get(("cache counts", route), CacheCounts)
    kept.get(("cache", "near", "tenant"), lambda: Cached(MEBIBYTE))
    kept.get(("redis cache", "redis://store:6379/0", None), Server)
    kept.get(("refreshes",), lambda: Refreshes(FakeClock(), counting_bits))
    kept.get(("flights",), Flights)
    return kept


def row(kept: KeptState, route: str) -> dict[str, Any]:
    (found,) = [row for row in cache_status(kept, 0.0)["caches"] if row["route"] == route]
    return cast("dict[str, Any]", found)


def gauges(kept: KeptState, now: float = 0.0) -> dict[tuple[str, ...], float]:
    return {
        (one.name.removeprefix("sponson."), *(value for _, value in one.labels)): one.value
        for one in cache_gauges(kept, now)
    }


def test_where_nothing_is_kept_there_is_nothing() -> None:
    assert cache_status(KeptState(), 0.0) == {
        "caches": [],
        "cache_servers": [],
        "refreshes": {"running": 0, "started": 0},
        "single_flight": {"running": 0, "joined": 0},
    }
    assert gauges(KeptState()) == {}


def test_what_has_become_of_requests_and_answers(kept: KeptState) -> None:
    counts = kept.get(("cache counts", "far"), CacheCounts)
    counts.hits, counts.stale, counts.misses, counts.bypassed, counts.kept, counts.refused = 1, 2, 3, 4, 5, 6
    assert row(kept, "far") == {
        "route": "far", "store": "redis",
        "hits": 1, "stale": 2, "misses": 3, "bypassed": 4, "kept": 5, "refused": 6,
    }  # fmt: skip
    shown = gauges(kept)
    assert (shown["cache.bypassed", "far"], shown["cache.bypassed", "near"]) == (4, 0)
    assert (shown["cache.offered", "far", "kept"], shown["cache.offered", "far", "refused"]) == (5, 6)
    assert ("cache.entries", "far") not in shown


def test_a_store_in_memory_shows_what_it_holds_now(kept: KeptState) -> None:
    store = kept.get(("cache", "near", "tenant"), lambda: Cached(MEBIBYTE))
    store.keep(b"name", ANSWER, owner="hush", seconds=10.0, now=0.0)
    held = row(kept, "near")
    assert (held["store"], held["entries"], held["bytes"], held["max"]) == ("memory", 1, store.held, MEBIBYTE)
    store.reconfigure(0)
    assert (row(kept, "near")["entries"], row(kept, "near")["evicted"]) == (0, 1)
    assert gauges(kept)["cache.evictions", "near"] == 1
    assert "hush" not in json.dumps(cache_status(kept, 0.0))


def test_what_is_due_is_shown_no_more(kept: KeptState) -> None:
    store = kept.get(("cache", "near", "tenant"), lambda: Cached(MEBIBYTE))
    store.keep(b"name", ANSWER, owner="t", seconds=10.0, now=0.0)
    assert gauges(kept, 9.0)["cache.entries", "near"] == 1
    assert gauges(kept, 11.0)["cache.entries", "near"] == gauges(kept, 11.0)["cache.size", "near"] == 0


def test_a_cache_that_no_policy_uses_is_not_shown(kept: KeptState) -> None:
    kept.begin()
    kept.get(("cache counts", "near"), CacheCounts)
    kept.get(("cache", "near", "route"), lambda: Cached(2 * MEBIBYTE))
    kept.commit(1.0)
    shown = cache_status(kept, 1.0)
    assert [(row["route"], row["max"]) for row in shown["caches"]] == [("near", 2 * MEBIBYTE)]
    assert shown["cache_servers"] == []


def test_a_server_shows_whether_it_is_there_and_what_was_lost(kept: KeptState) -> None:
    assert cache_status(kept, 0.0)["cache_servers"] == [
        {
            "server": "redis://store:6379/0", "up": False, "pending": 2, "pending_bytes": 9, "written": 5,
            "dropped": 4, "late": 1, "errors": {"connection": 3},
        }
    ]  # fmt: skip
    shown, name = gauges(kept), "redis://store:6379/0"
    assert (shown["cache.store.up", name], shown["cache.store.written", name]) == (0, 5)
    assert (shown["cache.store.lost", name, "late"], shown["cache.store.lost", name, "dropped"]) == (1, 4)
    assert shown["cache.store.errors", name, "connection"] == 3


def test_two_users_of_one_server_are_told_apart(kept: KeptState) -> None:
    kept.get(("redis cache", "redis://store:6379/0", "b"), Server)
    names = [server["server"] for server in cache_status(kept, 0.0)["cache_servers"]]
    assert names == ["redis://store:6379/0", "redis://b@store:6379/0"]


def test_calls_that_others_may_join_are_counted(kept: KeptState) -> None:
    flights = kept.get(("flights",), Flights)
    flights.calls[b"name", "P1"] = cast("SharedCall", None)
    flights.joined = 7
    assert cache_status(kept, 0.0)["single_flight"] == {"running": 1, "joined": 7}
    assert gauges(kept)["shared.active",] == 1
    assert gauges(kept)["cache.refreshing",] == 0


def test_the_table_of_instruments_knows_every_reading(kept: KeptState) -> None:
    readings = list(cache_gauges(kept, 0.0))
    known = {row.name: len(series) for row, series in Instruments(a.GENAI_1_41).collect(readings)}
    assert sum(known.values()) == len(readings)
