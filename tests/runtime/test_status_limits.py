"""What `/status` and the gauges show of limits: every bucket, every holder with its age, reserves, adaptive limits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from proxy.decisions.permits import Permit
from proxy.observer import Reading
from proxy.runtime.status import StatusReader
from tests.runtime.shop import Shop

POLICY = """\
version: 1
classes: {P0: {reserved: 0.5}}
providers:
  alpha:
    base_url: http://127.0.0.1:9/v1
    keys: [{id: a1, env: A1, rpm: 60, tpm: 6000}]
    limits: {concurrency: 4, rpm: 120, tpm: 12000, headroom: 1.0, adaptive: {}}
    models: {large: {limits: {rpm: 30}, context_tokens: 1000}}
"""


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    shop = Shop({"A1": "hush"})
    shop.live(POLICY)
    yield shop
    await shop.close()


def reader(shop: Shop) -> StatusReader:
    return StatusReader(shop.kept, shop.clock, admission=shop.admission)


def readings(shop: Shop, name: str) -> list[Reading]:
    return [reading for reading in reader(shop).gauges() if reading.name == name]


async def test_every_bucket_is_shown_with_what_it_holds(shop: Shop) -> None:
    shop.clock.advance(60.0)
    rows = {(row["limit"], row["unit"]): row for row in reader(shop).status()["quotas"]}
    assert set(rows) == {
        ("provider alpha", "requests"),
        ("provider alpha", "tokens"),
        ("key alpha/a1", "requests"),
        ("key alpha/a1", "tokens"),
        ("model alpha/large", "requests"),
    }
    tokens = rows["provider alpha", "tokens"]
    assert (tokens["left"], tokens["capacity"], tokens["per_minute"], tokens["reserved"]) == (1000, 1000, 12000, 500)
    shop.permit("alpha", "large")
    left = {(row["limit"], row["unit"]): row["left"] for row in reader(shop).status()["quotas"]}
    assert (left["provider alpha", "requests"], left["model alpha/large", "requests"]) == (9, 1.5)


async def test_buckets_are_gauges_by_whose_they_are(shop: Shop) -> None:
    found = {tuple(reading.labels): reading.value for reading in readings(shop, "sponson.quota.capacity")}
    assert found[("limit", "provider"), ("provider", "alpha"), ("unit", "requests")] == 10
    assert found[("limit", "key"), ("provider", "alpha"), ("key_id", "a1"), ("unit", "tokens")] == 500
    assert found[("limit", "model"), ("provider", "alpha"), ("model", "large"), ("unit", "requests")] == 2.5
    assert {reading.labels for reading in readings(shop, "sponson.quota.left")} == set(found)


async def test_holders_of_permits_are_shown_with_their_age_the_oldest_first(shop: Shop) -> None:
    old = shop.permit("alpha", "large")
    shop.clock.advance(5.0)
    shop.permit("alpha", "other")
    shown = reader(shop).status()
    assert shown["permits_out"] == 2
    assert [(row["target"], row["key"], row["class"], row["seconds"]) for row in shown["holders"]] == [
        ("alpha/large", "a1", "P1", 5.0),
        ("alpha/other", "a1", "P1", 0.0),
    ]
    old.release(shop.clock.now())
    assert [row["target"] for row in reader(shop).status()["holders"]] == ["alpha/other"]


async def test_what_is_kept_for_p0_is_shown_beside_what_is_used_of_it(shop: Shop) -> None:
    permit: Any = shop.permit("alpha", "large")
    assert isinstance(permit, Permit)
    rows = {row["limit"]: row for row in reader(shop).status()["permits"]}
    assert rows["provider alpha"]["reserved"] == {"P0": {"in_use": 0, "size": 2}}
    assert "reserved" not in rows["connections alpha"]


async def test_adaptive_limits_and_estimates_are_shown(shop: Shop) -> None:
    shown = reader(shop).status()
    assert shown["adaptive"] == [{"provider": "alpha", "size": 4, "share": 4, "lowered": False}]
    assert ("alpha", "large", 0) in {(row["provider"], row["model"], row["reports"]) for row in shown["estimates"]}
    assert "hush" not in str(shown)
