"""The cores that `difference/state.py` tells of are those that assembly asks for, keeps, makes and puts aside."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings

from proxy.policy.difference.state import address, asking, cores, fates, named_models, renamings
from tests.policy.difference.policies import SECRETS, policies, written
from tests.policy.samples import load, provider
from tests.runtime.shop import Shop

ONE = "version: 1\nproviders: {alpha: {base_url: 'http://127.0.0.1:9/v1'}}\n"


def used(shop: Shop) -> dict[tuple[Any, ...], Any]:
    """The cores that the live policy asked for."""
    return {identity: core for identity, core, in_use in shop.kept.all(object) if in_use}


async def cores_of_both(old: str, new: str) -> tuple[dict[tuple[Any, ...], Any], dict[tuple[Any, ...], Any]]:
    """The cores in use before and after a reload."""
    shop = Shop(dict(SECRETS))
    try:
        shop.live(old)
        before = used(shop)
        shop.live(new)
        return before, used(shop)
    finally:
        await shop.close()


@settings(deadline=None, max_examples=150)
@given(policies(), policies())
def test_what_is_said_of_cores_is_what_a_reload_does(old: dict[str, Any], new: dict[str, Any]) -> None:
    before, after = asyncio.run(cores_of_both(written(old), written(new)))
    assert {identity for identity, *_ in cores(load(written(old)))} == set(before)
    assert {identity for identity, *_ in cores(load(written(new)))} == set(after)
    found = fates(load(written(old)), load(written(new)))
    earlier, later = set(map(id, before.values())), set(map(id, after.values()))
    for identity, core in after.items():
        origin = found.origins.get(identity)
        assert core is before[origin] if origin is not None else id(core) not in earlier, identity
    assert found.anew == set(after) - set(found.origins)
    assert found.aside == {identity for identity, core in before.items() if id(core) not in later}


def test_equal_policies_keep_everything() -> None:
    found = fates(load(ONE), load(ONE))
    assert found.anew == found.aside == frozenset()
    assert found.kept("breaker", "alpha") == [("breaker", "alpha", "http://127.0.0.1:9", "other")]


def test_another_address_begins_and_leaves_breakers_and_pool() -> None:
    found = fates(load(ONE), load(ONE.replace(":9", ":10")))
    assert found.begun("pool") == [("pool", "alpha", "http://127.0.0.1:10")]
    assert found.left("breaker") == [("breaker", "alpha", "http://127.0.0.1:9", "other")]
    assert found.kept("room") == [("room", "alpha")]


def test_an_address_has_its_port_and_brackets_around_ipv6() -> None:
    assert address(provider()) == "http://127.0.0.1:1"
    assert address(load(ONE.replace("127.0.0.1:9", "[::1]")).providers[0]) == "http://[::1]:80"


def test_models_are_named_by_limits_and_by_tiers() -> None:
    policy = load(
        "version: 1\nproviders: {a: {base_url: 'http://x', models: {m: {}}}, b: {base_url: 'http://x'}}\n"
        "routes: [{name: r, tiers: [{provider: a, model: n}, {provider: a, model: m}, {provider: b}]}]\n"
    )
    assert named_models(policy, "a") == ("m", "n")
    assert named_models(policy, "b") == ()
    assert [tier.model for _, tier in asking(policy, "a")] == ["n", "m"]


def test_was_counts_only_where_the_name_is_new() -> None:
    old, new = load(ONE), load(ONE.replace("{alpha: {", "{beta: {was: alpha, "))
    assert renamings(old.providers, new.providers) == {"alpha": "beta"}
    assert renamings(new.providers, new.providers) == {}
