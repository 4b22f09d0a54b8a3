from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from proxy.decisions.cacheability import CacheSettings
from proxy.decisions.merging import MergeSettings
from proxy.policy.schema.saved import THE_QUESTION, Cache, Merge, RedisStore, split_redis


def cache(**more: object) -> Cache:
    """A cache that says this and no more."""
    return Cache.model_validate({"ttl": "5m", **more})


def refused(kind: type[Cache | Merge], value: object) -> str:
    """The only thing that is said of a value."""
    with pytest.raises(ValidationError) as caught:
        kind.model_validate(value)
    (one,) = caught.value.errors()
    return one["msg"]


def test_the_documented_surface() -> None:
    one = cache(
        stale_while_revalidate="10m", scope="tenant", normalize=["space", "case"], ignore=["user"], max_bytes="64MiB"
    )
    assert (str(one.ttl), str(one.stale_while_revalidate), one.store) == ("5m", "10m", "memory")
    merge = Merge.model_validate({"window": "5ms", "max": 8, "inputs": "x", "results": "y", "scope": "route"})
    assert (str(merge.window), merge.scope) == ("5ms", "route")


def test_the_documented_defaults() -> None:
    one, settings = cache(), CacheSettings(ttl=300.0)
    assert (one.scope, one.store, int(one.max_bytes)) == (settings.scope, "memory", settings.max_bytes)
    assert (list(one.normalize), list(one.ignore), float(one.stale_while_revalidate)) == ([], [], 0.0)
    merge, default = Merge.model_validate({}), MergeSettings()
    assert (float(merge.window), merge.max, merge.scope) == (default.window, default.max, default.scope)


@pytest.mark.parametrize("name", sorted(THE_QUESTION))
def test_the_question_itself_is_not_ignored(name: str) -> None:
    assert "the question itself is never ignored" in refused(Cache, {"ttl": "5m", "ignore": [name]})


@pytest.mark.parametrize("field", ["user", "metadata", "safety_identifier", "Model"])
def test_other_fields_may_be_ignored(field: str) -> None:
    assert cache(ignore=[field]).ignore == [field]


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"ttl": "0s"},
        {"ttl": 5},
        {"ttl": "5m", "scope": "world"},
        {"ttl": "5m", "normalize": ["spaces"]},
        {"ttl": "5m", "ignore": "user"},
        {"ttl": "5m", "ignore": [""]},
        {"ttl": "5m", "max_bytes": "many"},
        {"ttl": "5m", "store": "redis"},
        {"ttl": "5m", "store": None},
        {"ttl": "5m", "store": ["memory"]},
        {"ttl": "5m", "store": {}},
        {"ttl": "5m", "store": {"redis": "redis://h", "password": None}},
    ],
)
def test_what_is_no_cache_is_one_fault(wrong: dict[str, Any]) -> None:
    assert refused(Cache, wrong)


@pytest.mark.parametrize("window", ["1s", "1ms", "1000ms", "0.5s"])
def test_a_window_is_short(window: str) -> None:
    assert Merge.model_validate({"window": window})


@pytest.mark.parametrize(("window", "why"), [("5s", "at most 1s"), ("1001ms", "at most 1s"), ("0s", "above zero")])
def test_a_window_that_nobody_means(window: str, why: str) -> None:
    assert why in refused(Merge, {"window": window})


# The address of a store.


@pytest.mark.parametrize(
    "url",
    [
        "redis://h",
        "redis://h/",
        "redis://h:6380/3",
        "rediss://cache.example:6379/0",
        "redis://127.0.0.1:6379",
        "redis://[::1]:6379/15",
    ],
)
def test_addresses(url: str) -> None:
    store = cache(store={"redis": url}).store
    assert isinstance(store, RedisStore)
    assert store.redis == url


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://h:6379", "an address such as redis://host:6379/0"),
        ("h:6379", "an address such as redis://host:6379/0"),
        ("redis://", "an address such as"),
        ("redis://h:0", "an address such as"),
        ("redis://h:99999", "an address such as"),
        ("redis://h:port", "an address such as"),
        ("redis://h/name", "an address such as"),
        ("redis://h/0/1", "an address such as"),
        ("redis://h/-1", "an address such as"),
        ("redis://h/123456", "an address such as"),
        ("redis://[::1", "an address such as"),
        ("redis:// h", "an address such as"),
        ("redis://h\n", "an address such as"),
        ("redis://hé", "an address such as"),
        (6379, "an address such as"),
        ("redis://:secret@h", "without credentials: name the password beside it, by env or file"),
        ("redis://user:secret@h:6379/0", "without credentials: name the password beside it, by env or file"),
        ("redis://h?password=secret", "without ? and #"),
        ("redis://h#0", "without ? and #"),
    ],
)
def test_what_is_no_address(url: object, why: str) -> None:
    said = refused(Cache, {"ttl": "5m", "store": {"redis": url}})
    assert why in said
    assert "secret" not in said


@given(st.text())
def test_any_text_is_an_address_or_none(text: str) -> None:
    for value in (text, f"redis://{text}"):
        parts = split_redis(value)
        assert parts is None or (parts.hostname and (parts.path.strip("/") or "0").isdecimal())


@pytest.mark.parametrize("written", ["hunter2", 5, True, ["hunter2"]])
def test_a_password_is_named(written: object) -> None:
    said = refused(Cache, {"ttl": "5m", "store": {"redis": "redis://h", "password": written}})
    assert said == "expected {env: NAME} or {file: PATH}: a secret is named, never written here"
