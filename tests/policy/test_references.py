from __future__ import annotations

import pytest

from tests.policy.samples import GOOD, ROUTE, load, problem, problems, provider, provider_problems


def test_an_unknown_provider_has_the_nearest_name_or_the_list() -> None:
    text = GOOD + "  beta: {base_url: 'http://b.example'}\n" + ROUTE
    assert problem(text.replace("{provider: a}", "{provider: bta}")) == (
        'p.yaml:9:24: routes.0.tiers.0.provider: no provider "bta" (did you mean beta?)'
    )
    assert problem(text.replace("{provider: a}", "{provider: nope}")).endswith('"nope"; known: a, beta')


def test_members_of_a_spread_are_providers() -> None:
    lines = problems(GOOD + ROUTE.replace("{provider: a}", "{spread: [{provider: a}, {provider: nope}]}"))
    assert any("tiers.0.spread.1.provider: no provider" in line for line in lines)


def test_references_are_checked_when_other_fields_are_wrong() -> None:
    text = (
        "version: 2\nproviders:\n  a:\n    base_ulr: http://x/v1\n    timeouts: {connect: fast}\n"
        "routes:\n  - name: r\n    tiers: [{provider: nope, fist_byte: 1s}]\n"
    )
    places = [line.split(" ")[0] for line in problems(text)]
    assert places == ["p.yaml:1:10:", "p.yaml:4:5:", "p.yaml:5:25:", "p.yaml:8:24:", "p.yaml:8:30:"]


def test_route_names_and_key_ids_are_unique() -> None:
    route = "  - {name: chat, match: {path: /x}, tiers: [{provider: a}]}\n"
    assert problem(GOOD + ROUTE + route) == (
        'p.yaml:9:12: routes.1.name: "chat" is defined twice; first at p.yaml:6:11'
    )
    (line,) = provider_problems("keys: [{id: k, env: A}, {id: k, env: B}]")
    assert line.endswith('providers.a.keys.1.id: "k" is defined twice; first at p.yaml:5:17')


def test_ids_of_different_providers_may_be_equal() -> None:
    other = "  b: {base_url: 'http://b.example', keys: [{id: k, env: B}]}\n"
    assert len(load(GOOD + "    keys: [{id: k, env: A}]\n" + other).providers) == 2


@pytest.mark.parametrize("wrong", ["{id: k}", "{id: k, env: A, file: b}"])
def test_a_key_has_one_source(wrong: str) -> None:
    (line,) = provider_problems(f"keys: [{wrong}]")
    assert line.endswith("expected exactly one of env, file")


def test_a_named_header_has_one_source() -> None:
    assert len(provider_problems("headers: {x: {}, y: {env: A, file: b}}")) == 2
    assert provider("headers: {x: {env: A}, y: {file: b}}").headers[0][1].env == "A"


def test_an_old_name_must_be_gone_and_wanted_once() -> None:
    other = "  b: {base_url: 'http://b.example', was: %s}\n"
    assert problem(GOOD + other % "a").endswith('providers.b.was: "a" still exists: it keeps its own state')
    assert problem(GOOD + "    was: old\n" + other % "old").endswith('"old" was renamed already at p.yaml:5:10')
    (line,) = provider_problems("keys: [{id: k, env: A}, {id: l, env: B, was: k}]")
    assert "still exists" in line
    assert "still exists" in problem(GOOD + ROUTE + "    was: chat\n")


def test_slow_is_below_first_byte() -> None:
    (line,) = provider_problems("breaker: {slow: {after: 30s}}")
    assert line.startswith("p.yaml:5:29: providers.a.breaker.slow.after: must be below first_byte (30s)")
    assert provider_problems("breaker: {slow: {after: 8s}}\ntimeouts: {first_byte: 8s}")
    assert provider("breaker: {slow: {after: 30s}}\ntimeouts: {first_byte: 31s}").breaker


def test_an_open_breaker_has_its_first_time_below_the_cap() -> None:
    (line,) = provider_problems("breaker: {open: {first: 90s}}")
    assert line.endswith("first (90s) is above cap (1m)")


def test_the_largest_size_is_required_unless_static() -> None:
    lines = problems(GOOD + "fleet: {size: {dns: x}}\n")
    assert "p.yaml:5:1: fleet.max_size: is required unless the size is static" in lines
    assert load(GOOD + "fleet: {size: {static: 3}}\n").fleet.size == 3


def test_a_size_is_known_one_way() -> None:
    assert problem(GOOD + "fleet: {size: {}}\n").endswith("expected exactly one of static, dns, endpoints, leases")
    lines = problems(GOOD + "fleet: {max_size: 9, size: {static: 1, dns: x}}\n")
    assert any("fleet.size.dns: expected exactly one" in line for line in lines)


def test_a_tier_after_an_answer_is_never_reached() -> None:
    text = GOOD + ROUTE.replace("[{provider: a}]", "[{answer: {}}, {provider: a}, {provider: a}]")
    assert problems(text) == [
        "p.yaml:8:27: routes.0.tiers.1: is never reached: routes.0.tiers.0 always answers",
        "p.yaml:8:42: routes.0.tiers.2: is never reached: routes.0.tiers.0 always answers",
    ]


def test_a_timeout_named_answer_ends_nothing() -> None:
    assert load(GOOD + ROUTE.replace("[{provider: a}]", "[{provider: a, answer: 5s}, {provider: a}]"))


def test_an_answer_without_body_has_none() -> None:
    text = GOOD + ROUTE.replace("[{provider: a}]", "[{answer: {status: 204, json: {}}}]")
    assert problem(text).endswith("answer.json: an answer with status 204 has no body")


def test_headers_that_follow_from_what_is_sent() -> None:
    assert [line.split(": ")[1] for line in provider_problems("headers: {Host: x, Content-Length: '5'}")] == [
        "providers.a.headers.Host",
        "providers.a.headers.Content-Length",
    ]


def test_a_credential_is_not_written_into_a_header() -> None:
    (line,) = provider_problems("headers: {Authorization: 'Bearer x'}")
    assert line.endswith("expected {env: NAME} or {file: PATH}")
    assert provider("headers: {Authorization: {env: A}}").headers[0][0] == "authorization"


def test_header_names_differ_by_more_than_case() -> None:
    (line,) = provider_problems("headers: {X-A: '1', x-a: '2'}")
    assert "headers.x-a: is defined twice; first at p.yaml:5:15" in line
