"""Policies for the tests of differences: random ones, and pairs that differ in one thing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from proxy.policy.difference.change import Difference, Section
from proxy.policy.difference.compare import differences
from proxy.policy.difference.shares import Reload
from proxy.policy.difference.state import fates
from tests.policy.samples import load

PROVIDERS = ("alpha", "beta", "gamma")
ROUTES = ("chat", "rest", "alpha")
KEYS = ("k1", "k2", "k3")
MODELS = ("large", "small")
SECRETS = {f"KEY_{number}": f"secret {number}" for number in range(3)}
RATES = st.sampled_from([None, None, 0, 60])
LIMITS = st.sampled_from([None, 0, 3, 7])
CACHES: tuple[dict[str, Any], ...] = ({"ttl": "5m"}, {"ttl": "1m", "scope": "route", "max_bytes": "1MiB"})
"""In memory: a server would be dialled."""


def written(policy: Mapping[str, Any]) -> str:
    """The policy as a text that is YAML too."""
    return json.dumps(policy)


def reload_of(old: str, new: str) -> Reload:
    """The step between two policies."""
    before, after = load(old), load(new)
    return Reload(old=before, new=after, fates=fates(before, after))


def difference(old: str, new: str) -> Difference:
    """What is said of two policies."""
    return differences(load(old), load(new))


def section(found: Difference, subject: str) -> Section:
    """The section of a thing, as `provider alpha`."""
    (one,) = [section for section in found.sections if section.subject == subject]
    return one


def says(one: Section) -> dict[str, tuple[str, str]]:
    """The values of a section: name → old and new."""
    return {value.name: (value.old, value.new) for value in one.values}


def told(one: Section) -> str:
    """The sentences of a section."""
    return "\n".join([*one.effects, *one.warnings])


def _some(draw: st.DrawFn, **options: st.SearchStrategy[Any]) -> dict[str, Any]:
    drawn = {name: draw(option) for name, option in options.items()}
    return {name: value for name, value in drawn.items() if value is not None}


def _was(draw: st.DrawFn, names: list[str], everything: tuple[str, ...]) -> dict[str, str]:
    """Which names were others before: an old name is nobody's name now, and only once an old name."""
    gone = [name for name in everything if name not in names]
    return {name: old for name, old in zip(draw(st.permutations(names)), gone, strict=False) if draw(st.booleans())}


@st.composite
def _keys(draw: st.DrawFn) -> list[dict[str, Any]]:
    names = draw(st.lists(st.sampled_from(KEYS), unique=True, max_size=2))
    was = _was(draw, names, KEYS)
    return [
        {"id": name, "env": f"KEY_{KEYS.index(name)}"}
        | ({"was": was[name]} if name in was else {})
        | _some(draw, concurrency=LIMITS, rpm=RATES, tpm=RATES)
        for name in names
    ]


@st.composite
def _model(draw: st.DrawFn) -> dict[str, Any]:
    limits = _some(draw, concurrency=LIMITS, rpm=RATES, tpm=RATES)
    return {"limits": limits, **_some(draw, context_tokens=st.sampled_from([None, None, 9]))}


@st.composite
def _provider(draw: st.DrawFn) -> dict[str, Any]:
    models = draw(st.lists(st.sampled_from(MODELS), unique=True, max_size=2))
    ports, path = draw(st.sampled_from([(9,), (10,), (9, 10), (10, 11)])), draw(st.sampled_from(["", "/v1"]))
    urls = [f"http://127.0.0.1:{port}{path}" for port in ports]
    breaker = st.sampled_from([None, "off", {"scope": "provider"}, {"consecutive": 4}])
    timeouts = st.sampled_from([None, {"answer": {"p95": 1.5}}, {"connect": "1s"}])
    return {
        "base_url": urls if len(urls) > 1 else urls[0],
        "keys": draw(_keys()),
        "limits": _some(draw, concurrency=LIMITS, rpm=RATES, tpm=RATES, adaptive=st.sampled_from([None, None, {}])),
        "models": {model: draw(_model()) for model in models},
        **_some(draw, breaker=breaker, timeouts=timeouts, mode=st.sampled_from([None, "observe"])),
    }


@st.composite
def _route(draw: st.DrawFn, providers: list[str]) -> dict[str, Any]:
    tiers = [
        {"provider": name}
        | _some(draw, model=st.sampled_from([None, "large", "huge"]), answer=st.sampled_from([None, {"p95": 2}, "9s"]))
        for name in draw(st.lists(st.sampled_from(providers), min_size=1, max_size=3))
    ]
    match = _some(
        draw,
        path=st.sampled_from([None, "/v1/*", ["/v1/chat/completions", "/v1/x*"], "*"]),
        model=st.sampled_from([None, "gpt-*", ["*-mini", "o?"], "[!g]*"]),
        header=st.sampled_from([None, {"x-task": "research"}]),
    )
    if len(tiers) > 1 and draw(st.booleans()):
        members = {(tier["provider"], tier.get("model")): tier for tier in tiers}
        if len(members) > 1:
            spread = [{"provider": name} | ({"model": model} if model else {}) for name, model in members]
            tiers = [{"spread": spread, "by": draw(st.sampled_from(["remaining", "weight"]))}]
    more = _some(
        draw,
        mode=st.sampled_from([None, "observe"]),
        lanes=st.sampled_from([None, None, [{"max_output": 100, "share": 0.3}]]),
        cache=st.sampled_from([None, None, *CACHES]),
        single_flight=st.sampled_from([None, None, True]),
        merge=st.sampled_from([None, None, {}, {"max": 4, "scope": "route"}]),
        **{"class": st.sampled_from([None, "P0", "P2"])},
    )
    return {"match": match, "tiers": tiers, **more}


TENANTS = st.sampled_from(
    [None, {"from": [{"header": "x-a"}]}, {"default": {"class": "P2"}}, {"overrides": {"a*": {"rps": 1, "tpm": 9}}}]
)
CLASSES = st.sampled_from([None, {"P0": {"reserved": 0.5}}])


@st.composite
def policies(draw: st.DrawFn) -> dict[str, Any]:
    """Any policy of up to three providers and routes, whose names overlap with those of others."""
    names = draw(st.lists(st.sampled_from(PROVIDERS), unique=True, min_size=1, max_size=3))
    was = _was(draw, names, PROVIDERS)
    providers = {name: draw(_provider()) | ({"was": was[name]} if name in was else {}) for name in names}
    policy: dict[str, Any] = {"version": 1, "providers": providers, "limits": _some(draw, concurrency=LIMITS)}
    if draw(st.booleans()):
        routes = draw(st.lists(st.sampled_from(ROUTES), unique=True, max_size=3))
        earlier = _was(draw, routes, ROUTES)
        policy["routes"] = [
            {"name": name, **draw(_route(names))} | ({"was": earlier[name]} if name in earlier else {})
            for name in routes
        ]
    policy |= _some(draw, tenants=TENANTS, classes=CLASSES)
    if draw(st.booleans()):
        policy["mode"] = draw(st.sampled_from(["enforce", "observe"]))
    return policy
