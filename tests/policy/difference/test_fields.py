"""Every setting that a snapshot has is compared: a new one fails here until differences speak of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from proxy.decisions.classification import MatchSettings
from proxy.decisions.deadline import AnswerPaceSettings
from proxy.decisions.tenants import TenantSettings, TenantSource
from proxy.policy.difference.change import Findings
from proxy.policy.difference.compare import differences
from proxy.policy.difference.fields import (
    LONGEST_TEXT,
    Field,
    answer_limit,
    compare,
    compare_values,
    plain,
    seconds,
    source,
)
from proxy.policy.snapshot import (
    AnswerTier,
    HostSnapshot,
    KeySnapshot,
    ModelSnapshot,
    PolicySnapshot,
    ProviderTier,
    RouteSnapshot,
    ValueSource,
)
from tests.policy.samples import load, provider

POLICY = load(
    "version: 1\nlimits: {concurrency: 9}\nproviders:\n"
    "  a: {base_url: 'http://x/v1', keys: [{id: k, env: K, concurrency: 4, rpm: 5, tpm: 6}], "
    "models: {m: {context_tokens: 7, limits: {concurrency: 5, rpm: 5, tpm: 6}}}, "
    "limits: {concurrency: 9, rpm: 5, tpm: 6, adaptive: {}}}\n"
    "  b: {base_url: 'http://y/v1'}\n"
    "routes: [{name: r, tiers: [{provider: a, queue: 1s, quota_wait: 1s, first_byte: 1s, answer: 1s, idle: 1s},"
    " {stale_cache: {max_age: 1h}}, {answer: {}}], lanes: [{max_output: 9, share: 0.2}], "
    "cache: {ttl: 1s, store: {redis: 'redis://h', username: u, password: {env: P}}}, merge: {}}]\n"
    "tenants: {from: [{header: x-a}], default: {rps: 1, concurrency: 1, tpm: 1, context_tokens: 1, class: P1}, "
    "overrides: {b: {too_long: {tier: 2}}}}\n"
)
DERIVED = {"scheme", "host", "port", "root_path"}
"""They come from base_url."""
SILENT = {"was", "digest", "warnings", "place", "index"}
"""Where a thing stands and what it was change nothing by themselves; an index is the instance's, not the policy's."""
WHOLE = {
    "adaptive",
    "breaker",
    "cache_redis",
    "keys",
    "lanes",
    "match",
    "merge",
    "models",
    "password",
    "tenants",
    "tiers",
}
"""Of these not only the parts can be others."""
OTHERS: dict[str, Any] = {
    "query": (("v", "2"),),
    "hosts": (HostSnapshot(host="other.example"),),
    "headers": (("x-a", ValueSource(literal="b")),),
    "models": (ModelSnapshot(name="other"),),
    "adaptive": None,
    "idempotency_header": "x-key",
    "lanes": (),
    "tenants": None,
    "sources": (TenantSource(header=None),),
    "overrides": (("x", TenantSettings(klass="P2")),),
    "too_long_tier": 3,
    "cache_redis": None,
    "merge": None,
    "password": None,
    "max_inputs": 9,
    "normalize": ("case",),
    "ignore": ("user",),
    "inputs": "texts",
    "results": "vectors",
    "keys": (KeySnapshot(id="other", source=ValueSource(env="K")),),
    "breaker": None,
    "slow_after": 7.0,
    "answer_pace": AnswerPaceSettings(),
    "set": (("n", 1),),
    "model": "other",
    "repeatable": True,
    "match": MatchSettings(path=("/x",)),
    "queue": 4.0,
    "quota_wait": 4.0,
    "provider": "b",
    "providers": (),
    "routes": None,
    "tiers": (AnswerTier(),),
    "path": ("/x",),
    "header": (("x-a", ("b",)),),
    "source": ValueSource(file="/k"),
    "literal": "written",
    "env": "OTHER",
    "file": "/k",
}


def other(name: str, value: Any) -> Any:
    """Another value of the same kind."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return f"{value}x"
        case bytes():
            return value + b" "
        case _:
            return OTHERS[name]


def variants(thing: Any) -> Iterator[tuple[str, Any]]:
    """Yields (path, the thing with one field changed), nested things and first items of tuples too."""
    for one in fields(thing):
        if one.name in SILENT | DERIVED:
            continue
        value = getattr(thing, one.name)
        nested = value[0] if isinstance(value, tuple) and value else value
        if is_dataclass(nested):
            for path, changed in variants(nested):
                inner = (changed, *value[1:]) if isinstance(value, tuple) else changed
                yield f"{one.name}.{path}", replace(thing, **{one.name: inner})
            if one.name not in WHOLE:
                continue
        yield one.name, replace(thing, **{one.name: other(one.name, value)})


CHANGES = {path: changed for path, changed in variants(POLICY) if changed.providers and path != "routes"}
IMPOSSIBLE = {"providers.name", "providers.keys.source.literal", "providers.keys.source.file", "routes.tiers.provider"}
IMPOSSIBLE |= {"routes.cache_redis.password.literal", "routes.cache_redis.password.file"}


@pytest.mark.parametrize("path", sorted(CHANGES.keys() - IMPOSSIBLE))
def test_a_setting_that_changes_is_told(path: str) -> None:
    for old, new in ((POLICY, CHANGES[path]), (CHANGES[path], POLICY)):
        assert differences(old, new).sections, path


def test_all_kinds_of_settings_are_among_them() -> None:
    for path in ("fleet.size", "providers.breaker.probes", "providers.timeouts.idle", "routes.retry.base", "observe"):
        assert path in CHANGES
    assert len(CHANGES) > 55


def test_what_stands_elsewhere_is_no_difference() -> None:
    lower = load(
        "# a comment\nversion: 1\nroutes:\n  - {name: r, tiers: [{provider: a}]}\nproviders: {a: {base_url: http://x}}\n"
    )
    upper = load("version: 1\nproviders: {a: {base_url: http://x}}\nroutes: [{name: r, tiers: [{provider: a}]}]\n")
    assert differences(lower, upper).sections == ()


def test_another_answer_and_another_tier_are_told() -> None:
    route = RouteSnapshot(name="r", tiers=(ProviderTier(provider="b"), AnswerTier(body=b"1")))
    old = PolicySnapshot(providers=POLICY.providers, routes=(route,))
    new = replace(old, routes=(replace(route, tiers=(route.tiers[0], AnswerTier(body=b"2"))),))
    (section,) = differences(old, new).sections
    assert [(value.name, value.old) for value in section.values] == [("answer", "one body")]


# Words.


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, "none"), ((), "none"), (True, "true"), (2.0, "2"), (0.25, "0.25"), (7, "7"), (("a", "b"), "a, b")],
)
def test_values_are_written_as_in_yaml(value: object, words: str) -> None:
    assert plain(value) == words


def test_long_and_hidden_text_stays_on_its_line() -> None:
    assert plain("a\nb") == "a\\nb"
    assert plain("x" * 500) == "x" * (LONGEST_TEXT - 1) + "…"


def test_durations_and_answer_limits() -> None:
    assert (seconds(None), seconds(0.3), seconds(90.0)) == ("none", "300ms", "90s")
    assert answer_limit(5.0, None) == "5s"
    assert answer_limit(600.0, AnswerPaceSettings(factor=1.5, plus=5.0)) == "p95 × 1.5 + 5s"


def test_sources_are_named_and_values_never_shown() -> None:
    assert source(ValueSource(env="A")) == "env A"
    assert source(ValueSource(file="/a")) == "file /a"
    old, new = (provider(f"headers: {{x-a: {value}}}\nquery: {{key: {value}}}") for value in ("one", "two"))
    findings = Findings()
    compare_values(findings, "headers", dict(old.headers), dict(new.headers))
    compare_values(findings, "query", dict(old.query), {})
    assert [(v.name, v.old, v.new) for v in findings.values] == [
        ("headers.x-a", "written here", "another value"),
        ("query.key", "written here", "none"),
    ]


def test_only_settings_that_differ_are_noted() -> None:
    findings = Findings()
    first: Field[dict[str, int]] = Field(name="a", read=lambda d: d["a"])
    second: Field[dict[str, int]] = Field(name="b", read=lambda d: d["b"])
    assert compare(findings, [first, second], {"a": 1, "b": 2}, {"a": 1, "b": 3}) == {"b"}
    assert [(v.name, v.old, v.new, v.note) for v in findings.values] == [("b", "2", "3", "new requests")]
