"""Identities: the present one first, then all that renamings may have made of an earlier one."""

from __future__ import annotations

from dataclasses import replace

from proxy.decisions.lanes import LaneSettings
from proxy.policy.identities import of_budget, of_cache, of_key, of_lane, of_provider, of_route, of_server, own_route
from proxy.policy.snapshot import KeySnapshot, RedisSnapshot, RouteSnapshot, ValueSource
from tests.policy.samples import provider

ALPHA = replace(provider(), name="alpha")
GAMMA = replace(ALPHA, name="gamma", was="alpha")
KEY = KeySnapshot(id="k1", source=ValueSource(env="KEY"))
NEW_KEY = replace(KEY, id="k2", was="k1")


def test_what_was_never_renamed_has_one_identity() -> None:
    assert of_provider("line", ALPHA, "m") == (("line", "alpha", "m"),)
    assert of_key("credential", ALPHA, KEY) == (("credential", "alpha", "k1"),)
    assert of_budget(RouteSnapshot(name="chat"), ALPHA) == (("budget", "chat", "alpha"),)


def test_what_belongs_to_a_renamed_provider_had_its_old_name() -> None:
    assert of_provider("line", GAMMA, "m") == (("line", "gamma", "m"), ("line", "alpha", "m"))


def test_a_key_and_its_provider_may_be_renamed_each_alone_or_both() -> None:
    names = [names for _, *names in of_key("key", GAMMA, NEW_KEY)]
    assert names == [["gamma", "k2"], ["gamma", "k1"], ["alpha", "k2"], ["alpha", "k1"]]


def test_a_route_and_its_provider_may_be_renamed_each_alone_or_both() -> None:
    names = [names for _, *names in of_budget(RouteSnapshot(name="talk", was="chat"), GAMMA)]
    assert names == [["talk", "gamma"], ["talk", "alpha"], ["chat", "gamma"], ["chat", "alpha"]]


def test_a_lane_goes_by_its_provider_and_its_route() -> None:
    lane = LaneSettings(max_output=100, share=0.5)
    assert of_lane(GAMMA, RouteSnapshot(name="talk", was="chat"), lane, "m", "keys") == (
        ("line", "gamma", "m", "lane talk/100", "keys"),
        ("line", "gamma", "m", "lane chat/100", "keys"),
        ("line", "alpha", "m", "lane talk/100", "keys"),
        ("line", "alpha", "m", "lane chat/100", "keys"),
    )


def test_the_route_to_one_provider_alone_is_not_that_of_a_route_with_the_same_name() -> None:
    assert of_budget(own_route(ALPHA), ALPHA)[0] != of_budget(RouteSnapshot(name="alpha"), ALPHA)[0]
    assert of_budget(own_route(ALPHA), ALPHA)[0] in of_budget(own_route(GAMMA), GAMMA)


def test_what_belongs_to_a_route_has_its_name() -> None:
    route = RouteSnapshot(name="talk", was="chat")
    assert of_route("idempotency", route) == (("idempotency", "talk"), ("idempotency", "chat"))
    assert of_route("idempotency", own_route(ALPHA)) == (("idempotency", "/alpha"),)


def test_answers_of_each_scope_are_kept_apart() -> None:
    route = RouteSnapshot(name="talk", was="chat")
    assert of_cache(route, "tenant") == (("cache", "talk", "tenant"), ("cache", "chat", "tenant"))
    assert not set(of_cache(route, "tenant")) & set(of_cache(route, "route"))


def test_a_server_goes_by_its_address_and_its_user() -> None:
    server = RedisSnapshot(url="redis://h:6379/0", password=ValueSource(env="P"))
    assert of_server(server) == of_server(replace(server, password=None)) == ("redis cache", "redis://h:6379/0", "")
    assert of_server(server) != of_server(replace(server, username="u"))
