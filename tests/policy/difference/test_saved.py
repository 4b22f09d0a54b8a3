from __future__ import annotations

import pytest

from proxy.policy.difference.change import Section
from tests.policy.difference.policies import difference, says, section, told
from tests.policy.samples import GOOD

HEAD = GOOD + "  b: {base_url: 'http://b.example/v1'}\nroutes:\n  - name: r\n"
REDIS = "cache: {ttl: 5m, store: {redis: 'redis://h'%s}}"


def policy(below: str, *, tiers: str = "{provider: a}") -> str:
    """A policy whose route has these lines."""
    return HEAD + f"    tiers: [{tiers}]\n" + "".join(f"    {line}\n" for line in below.splitlines())


def found(old: str, new: str, **tiers: str) -> Section:
    """The section of the route when these lines of it change."""
    return section(difference(policy(old, **tiers), policy(new, **tiers)), "route r")


def test_a_cache_that_comes_and_goes() -> None:
    come, gone = found("", "cache: {ttl: 5m}"), found("cache: {ttl: 5m}", "")
    assert says(come) == {"cache": ("off", "ttl 5m, scope tenant, in memory"), "single_flight": ("false", "true")}
    assert "the cache begins empty" in told(come)
    assert "put aside for 10 minutes, in case the cache comes back" in told(gone)


def test_a_cache_on_a_server_that_comes_and_goes() -> None:
    come, gone = found("", REDIS % ""), found(REDIS % "", "")
    assert says(come)["cache"] == ("off", "ttl 5m, scope tenant, in redis://h:6379/0")
    assert "begins with the answers that the server has of it" in told(come)
    assert "stay on the server until their time is over" in told(gone)


def test_times() -> None:
    one = found("cache: {ttl: 5m}", "cache: {ttl: 1m, stale_while_revalidate: 10m}")
    assert says(one) == {"cache.ttl": ("5m", "1m"), "cache.stale_while_revalidate": ("0s", "10m")}
    assert told(one) == "answers that are kept are as fresh as the new times say, and stay as long as they were to"


def test_what_requests_are_the_same() -> None:
    one = found("cache: {ttl: 5m}", "cache: {ttl: 5m, normalize: [case], ignore: [user, metadata]}")
    assert says(one) == {"cache.normalize": ("none", "case"), "cache.ignore": ("none", "user, metadata")}
    assert told(one) == "answers that are kept are given where a request is the same by the new rules, too"


def test_room() -> None:
    one = found("cache: {ttl: 5m}", "cache: {ttl: 5m, max_bytes: 1MiB}")
    assert says(one) == {"cache.max_bytes": ("64MiB", "1MiB")}
    assert [value.note for value in one.values] == ["next decision"]
    assert told(one) == "answers that are kept stay, as far as there is room for them"


def test_another_scope_begins_empty() -> None:
    one = found("cache: {ttl: 5m}", "cache: {ttl: 1m, scope: credential}")
    assert says(one) == {"cache.ttl": ("5m", "1m"), "cache.scope": ("tenant", "credential")}
    assert told(one) == "another scope begins empty: answers that are kept by the old one are not given any more"


@pytest.mark.parametrize("new", [REDIS % "", REDIS % ", username: v"])
def test_another_store_has_other_answers(new: str) -> None:
    old = "cache: {ttl: 5m}" if new == REDIS % "" else REDIS % ", username: u"
    assert told(found(old, new)).startswith("another store begins with what it has")


def test_a_password_is_named_and_makes_no_other_store() -> None:
    one = found(REDIS % ", password: {env: A}", REDIS % ", password: {file: /p}")
    assert says(one) == {"cache.store.password": ("env A", "file /p")}
    assert told(one) == ""


def test_the_same_password_at_another_place_is_no_difference() -> None:
    old, new = policy(REDIS % ", password: {env: A}"), policy(REDIS % ",   password: {env: A}")
    assert difference(old, new).sections == ()


def test_who_shares_more_than_before_is_told() -> None:
    shared = "all tenants share answers now: one may be given what another has asked for"
    assert found("", "cache: {ttl: 5m, scope: route}").warnings == (shared,)
    assert found("cache: {ttl: 5m}", "cache: {ttl: 5m, scope: route}").warnings == (shared,)
    assert found("cache: {ttl: 5m, scope: route}", "cache: {ttl: 5m}").warnings == ()
    assert found("cache: {ttl: 5m, scope: route}", "cache: {ttl: 6m, scope: route}").warnings == ()
    together = "requests of all tenants may travel together now, in one call"
    assert found("merge: {}", "merge: {scope: route}").warnings == (together,)
    assert found("merge: {scope: route}", "").warnings == ()


def test_joining() -> None:
    one = found("", "single_flight: true")
    assert says(one) == {"single_flight": ("false", "true")}
    assert told(one) == "calls that are joined already end together"
    assert says(found("cache: {ttl: 5m}", "cache: {ttl: 5m}\nsingle_flight: false")) == {
        "single_flight": ("true", "false")
    }


def test_merging() -> None:
    assert says(found("", "merge: {}")) == {"merge": ("off", "window 5ms, max 8, scope tenant")}
    one = found("merge: {}", "merge: {window: 9ms, max: 4, inputs: x, results: y}")
    assert says(one) == {
        "merge.window": ("5ms", "9ms"),
        "merge.max": ("8", "4"),
        "merge.inputs": ("by the path", "x"),
        "merge.results": ("by the path", "y"),
    }
    assert told(one) == "requests that gather at the reload go together as they came"


# Tiers and names.


OTHERS = "the first tier's answers are others now: those that are kept are not given any more"


@pytest.mark.parametrize(
    ("tiers", "others"),
    [
        ("{provider: b}", True),
        ("{provider: a, model: m}", True),
        ("{provider: a, set: {n: 1}}", True),
        ("{spread: [{provider: a}, {provider: b}]}", True),
        ("{provider: b}, {provider: a}", True),
        ("{provider: a}, {provider: b}", False),
        ("{provider: a, idle: 1s}", False),
    ],
)
def test_another_first_tier_has_other_answers(tiers: str, others: bool) -> None:
    old, new = policy("cache: {ttl: 5m}"), policy("cache: {ttl: 5m}", tiers=tiers)
    assert (OTHERS in told(section(difference(old, new), "route r"))) is others
    assert OTHERS not in told(section(difference(policy(""), policy("", tiers=tiers)), "route r"))


@pytest.mark.parametrize(
    ("line", "others"),
    [
        ("headers: {x-a: b}", True),
        ("query: {v: '2'}", True),
        ("keys: [{id: k, env: K}]", True),
        ("dialect: opaque", True),
        ("limits: {rpm: 5}", False),
        ("max_inputs: 5", False),
    ],
)
def test_another_service_behind_the_first_tier_has_other_answers(line: str, others: bool) -> None:
    old = policy("cache: {ttl: 5m}")
    found = difference(old, old.replace("  b: {", f"    {line}\n  b: {{"))
    sentences = [effect for one in found.sections if one.subject == "route r" for effect in one.effects]
    assert sentences == [OTHERS] * others


def test_headers_that_a_route_is_chosen_by_tell_requests_apart() -> None:
    old, new = (policy(f"cache: {{ttl: 5m}}\nmatch: {{header: {{{name}: b}}}}") for name in ("x-a", "x-b"))
    words = "other headers tell requests apart now: answers that are kept are not given any more"
    assert words in told(section(difference(old, new), "route r"))
    assert words not in told(section(difference(old, old.replace(": b}", ": c}")), "route r"))


def test_a_tier_of_kept_answers() -> None:
    old, new = (
        policy("cache: {ttl: 5m}", tiers=f"{{provider: a}}, {{stale_cache: {{max_age: {age}}}}}")
        for age in ("1h", "2h")
    )
    one = section(difference(old, new), "route r")
    assert says(one) == {"tiers": ("a, stale answer up to 1h", "a, stale answer up to 2h")}
    assert "stay as long as they were to" in told(one)


def test_a_renamed_route_keeps_its_cache() -> None:
    old = policy("cache: {ttl: 5m}")
    one = section(difference(old, old.replace("name: r\n", "name: s\n    was: r\n")), "route s")
    assert "keeps its cache: answers that are kept are given under the new name, too" in told(one)
