from __future__ import annotations

import pytest

from proxy.decisions.cacheability import CacheSettings
from proxy.decisions.merging import MergeSettings
from proxy.policy.snapshot import AnswerTier, ProviderTier, RedisSnapshot, StaleTier, ValueSource
from tests.policy.samples import GOOD, ROUTE, load, provider, route


def redis(store: str) -> RedisSnapshot:
    """The server of a route whose answers are kept so."""
    found = route(f"cache: {{ttl: 5m, store: {store}}}").cache_redis
    assert found is not None
    return found


def test_a_route_saves_nothing_unless_told() -> None:
    one = route()
    assert (one.cache, one.cache_redis, one.single_flight, one.merge) == (None, None, False, None)


def test_a_cache_in_memory() -> None:
    one = route(
        "cache: {ttl: 5m, stale_while_revalidate: 10m, scope: route, normalize: [case, space, case], "
        "ignore: [user, metadata, user], max_bytes: 1MiB, store: memory}"
    )
    assert one.cache == CacheSettings(
        ttl=300.0,
        stale_while_revalidate=600.0,
        scope="route",
        normalize=("case", "space"),
        ignore=("user", "metadata"),
        max_bytes=1 << 20,
    )
    assert one.cache_redis is None
    assert route("cache: {ttl: 5m}").cache == CacheSettings(ttl=300.0)


@pytest.mark.parametrize(
    ("below", "joins"),
    [
        ("cache: {ttl: 5m}", True),
        ("cache: {ttl: 5m}\nsingle_flight: false", False),
        ("single_flight: true", True),
        ("merge: {}", False),
    ],
)
def test_equal_calls_are_joined_where_a_cache_is_on_unless_told(below: str, joins: bool) -> None:
    assert route(below).single_flight is joins


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ("redis://h", "redis://h:6379/0"),
        ("redis://H/", "redis://h:6379/0"),
        ("redis://h:6380/03", "redis://h:6380/3"),
        ("rediss://h:6379/0", "rediss://h:6379/0"),
        ("redis://[::1]", "redis://[::1]:6379/0"),
    ],
)
def test_a_server_has_one_name_however_it_is_written(written: str, url: str) -> None:
    assert redis(f"{{redis: '{written}'}}") == RedisSnapshot(url=url)


def test_a_password_is_a_source_with_its_place() -> None:
    found = redis("{redis: 'redis://h', username: u, password: {env: P}}")
    assert (found.username, found.password) == ("u", ValueSource(env="P", place="p.yaml:9:79"))
    assert redis("{redis: 'redis://h', password: {file: /p}}").password == ValueSource(file="/p", place="p.yaml:9:67")


def test_merging() -> None:
    assert route("merge: {}").merge == MergeSettings()
    assert route("merge: {window: 20ms, max: 32, inputs: texts, results: vectors, scope: credential}").merge == (
        MergeSettings(window=0.02, max=32, inputs="texts", results="vectors", scope="credential")
    )


def test_a_kept_answer_is_a_tier() -> None:
    text = ROUTE.replace("[{provider: a}]", "[{provider: a}, {stale_cache: {max_age: 1h}}, {answer: {}}]")
    (one,) = load(GOOD + text + "    cache: {ttl: 5m}\n").routes or ()
    assert one.tiers == (ProviderTier(provider="a"), StaleTier(max_age_seconds=3600.0), AnswerTier())
    assert list(one.asked()) == [ProviderTier(provider="a")]


def test_connections_kept_ready_and_the_most_inputs_of_a_call() -> None:
    assert (provider().connections.warm, provider().max_inputs) == (0, None)
    one = provider("connections: {warm: 3}\nmax_inputs: 64")
    assert (one.connections.warm, one.max_inputs) == (3, 64)
