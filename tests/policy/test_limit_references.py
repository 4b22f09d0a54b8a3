from __future__ import annotations

import pytest

from tests.policy.samples import GOOD, ROUTE, load, problem, problems, provider_problems, route_problems

ADDRESSES = "version: 1\nproviders: {a: {base_url: [%s]}}\n"


def spread(members: str) -> str:
    """A policy whose only tier spreads over these."""
    return GOOD + ROUTE.replace("[{provider: a}]", f"[{{spread: [{members}]}}]")


def test_all_addresses_of_a_provider_have_the_same_path() -> None:
    assert problems(ADDRESSES % "'http://a/v1', 'http://b/v1/', 'http://c/v2', 'http://d'") == [
        "p.yaml:2:59: providers.a.base_url.2: all addresses of a provider must have the same path: "
        "expected /v1, as at p.yaml:2:28",
        "p.yaml:2:74: providers.a.base_url.3: all addresses of a provider must have the same path: "
        "expected /v1, as at p.yaml:2:28",
    ]
    assert "expected none, as at" in problem(ADDRESSES % "'http://a', 'http://c/v2'")


@pytest.mark.parametrize("again", ["http://a.example", "http://A.example:80/", "https://a.example:80"])
def test_an_address_is_listed_once(again: str) -> None:
    line = problem(ADDRESSES % f"'http://a.example', '{again}'")
    assert line.endswith("providers.a.base_url.1: is listed twice; first at p.yaml:2:28")


def test_addresses_that_are_none_are_told_once() -> None:
    (line,) = problems(ADDRESSES % "'http://a/v1', 'ftp://b'")
    assert "expected an http or https address" in line


def test_one_equal_is_no_spread() -> None:
    assert problem(spread("{provider: a}")).endswith(
        "tiers.0.spread: expected at least two equals: a single one is a tier of its own, {provider: NAME}"
    )


def test_equals_are_different_targets() -> None:
    line = problem(spread("{provider: a, model: m}, {provider: a}, {provider: a, model: m, weight: 2}"))
    assert "tiers.0.spread.2: is the same as the equal at p.yaml:8:23" in line
    assert load(spread("{provider: a, model: m}, {provider: a}")).routes


def test_an_equals_weight_is_above_zero() -> None:
    assert "spread.1.weight: expected a number above 0, found 0" in problem(
        spread("{provider: a, model: m}, {provider: a, weight: 0}")
    )


def test_lanes_leave_something_for_longer_answers() -> None:
    (line,) = route_problems("lanes: [{max_output: 10, share: 0.5}, {max_output: 20, share: 0.5}]")
    assert line.endswith("routes.0.lanes: shares add up to 1: expected less than 1, longer answers need a part, too")
    (line,) = route_problems("lanes: [{max_output: 10, share: 1}]")
    assert line.endswith("lanes.0.share: expected a number between 0 and 1: longer answers need a part, too, found 1")


@pytest.mark.parametrize("second", [20, 19])
def test_lanes_go_from_short_to_long(second: int) -> None:
    (line,) = route_problems(f"lanes: [{{max_output: 20, share: 0.1}}, {{max_output: {second}, share: 0.1}}]")
    assert line.endswith("lanes.1.max_output: expected more than the 20 at p.yaml:9:26: from short to long")


def test_a_tier_for_what_is_too_long_that_no_route_has() -> None:
    tenants = "tenants: {from: [{header: x}], default: {too_long: {tier: 2}}, overrides: {b: {too_long: {tier: 3}}}}\n"
    assert [line.partition(" ")[2] for line in problems(GOOD + ROUTE + tenants)] == [
        "tenants.default.too_long.tier: no route has 2 tiers: the most are 1, at p.yaml:8:12",
        "tenants.overrides.b.too_long.tier: no route has 3 tiers: the most are 1, at p.yaml:8:12",
    ]
    assert problems(GOOD + tenants)[0].endswith("no route has 2 tiers: without routes there is one")


def test_a_key_has_one_origin() -> None:
    (line,) = route_problems("idempotency: {header: x-a, from: [x-b]}")
    assert line.endswith(
        "idempotency.header: expected either header or from, not both: the key is in one header, or made of several"
    )
    (line,) = route_problems("idempotency: {from: [x-b, X-B]}")
    assert line.endswith("idempotency.from.1: is listed twice; first at p.yaml:9:26")
    (line,) = route_problems("idempotency: {from: []}")
    assert line.endswith("idempotency.from: expected at least one entry")
    (line,) = route_problems("idempotency: {from: ['a b']}")
    assert "expected the name of a header" in line


@pytest.mark.parametrize("name", ["Authorization", "content-length", "x-api-key"])
def test_a_key_does_not_travel_as_something_else(name: str) -> None:
    (line,) = provider_problems(f"idempotency_header: {name}")
    assert "idempotency_header: has a meaning of its own" in line


def test_a_keys_header_has_no_other_value() -> None:
    (line,) = provider_problems("headers: {X-Key: a}\nidempotency_header: x-key")
    assert line.endswith("idempotency_header: has another value already, at p.yaml:5:15")


@pytest.mark.parametrize(("value", "fine"), [("0.5", True), ("1", False), ("0", False), ("1.5", False)])
def test_a_decrease_is_a_real_one(value: str, fine: bool) -> None:
    below = f"limits: {{adaptive: {{decrease: {value}}}}}"
    if fine:
        assert load(GOOD + f"    {below}\n").providers[0].adaptive
    else:
        assert "limits.adaptive.decrease: expected a number between 0 and 1" in provider_problems(below)[0]


@pytest.mark.parametrize("written", ["{header: Authorization}", "{from: [x-job, cookie]}", "{header: content-length}"])
def test_an_idempotency_key_is_no_credential_and_no_header_of_ours(written: str) -> None:
    (line,) = route_problems(f"idempotency: {written}")
    assert "has a meaning of its own: expected a header that callers make for their keys" in line
