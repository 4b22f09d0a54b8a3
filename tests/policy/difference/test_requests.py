"""Examples of requests that go elsewhere: routed as the proxy routes, found in every kind of change."""

from __future__ import annotations

import asyncio
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.policy.difference.requests import MOST_SAMPLES, Routing, Sample, _filled, moves, samples
from tests.policy.difference.policies import SECRETS, policies, written
from tests.policy.samples import load
from tests.runtime.shop import Shop

BASE = """\
version: 1
providers: {alpha: {base_url: 'http://127.0.0.1:9/v1'}, beta: {base_url: 'http://127.0.0.1:10/v1'}}
routes:
  - {name: chat, match: {path: /v1/chat/completions, model: "gpt-*"}, tiers: [{provider: alpha}]}
  - {name: mini, match: {path: "/v1/chat/*", model: "*-mini"}, tiers: [{provider: beta}]}
"""
BARE = (
    "version: 1\nproviders: {alpha: {base_url: 'http://127.0.0.1:9/v1'}, beta: {base_url: 'http://127.0.0.1:9/v1'}}\n"
)


def moved(old: str, new: str) -> dict[tuple[str, str], str]:
    """From where, to where → an example."""
    return {(move.old, move.new): str(move.example) for move in moves(load(old), load(new))}


async def taken_by(policy: str, asked: list[Sample]) -> list[str | None]:
    """The names of the plans that a really assembled policy has for these requests."""
    shop = Shop(dict(SECRETS))
    router = shop.assemble(policy).router
    plans = [router.candidates(one.path, dict(one.headers)).choose(one.model) for one in asked]
    await shop.close()
    return [plan.name if plan is not None else None for plan in plans]


@settings(deadline=None, max_examples=60)
@given(policies(), policies())
def test_requests_are_routed_as_the_proxy_routes_them(one: dict[str, Any], other: dict[str, Any]) -> None:
    policy = written(one)
    asked = list(islice(samples(load(policy), load(written(other))), 200))
    routing = Routing(load(policy))
    said = [routing.destination(sample)[1] or None for sample in asked]
    assert said == asyncio.run(taken_by(policy, asked))


@settings(deadline=None, max_examples=60)
@given(policies(), policies())
def test_an_example_goes_where_it_is_said_to_go(one: dict[str, Any], other: dict[str, Any]) -> None:
    old, new = load(written(one)), load(written(other))
    for move in moves(old, new):
        for policy, said in ((old, move.old), (new, move.new)):
            kind, name = Routing(policy).destination(move.example)
            assert said == {"route": f"route {name}", "provider": f"{name} alone", "nothing": "404 no_route"}[kind]


@given(st.lists(st.sampled_from(["a", "/", "*", "?", "[ab]", "[!a-y]"]), max_size=6), st.text("ab", max_size=3))
def test_a_filled_pattern_is_matched_by_it(parts: list[str], star: str) -> None:
    pattern = "".join(parts)
    assert fnmatchcase(_filled(pattern, star), pattern)


def test_equal_policies_move_nothing() -> None:
    assert moved(BASE, BASE) == {}


def test_routes_in_another_order_move_what_both_match() -> None:
    head, chat, mini = BASE.rpartition("  - {name: chat")[0], *BASE.splitlines()[3:]
    assert moved(BASE, f"{head}{mini}\n{chat}\n") == {
        ("route chat", "route mini"): "/v1/chat/completions, model gpt-x-mini"
    }


def test_a_route_that_goes_leaves_its_requests_to_others_or_to_nobody() -> None:
    without = "".join(line for line in BASE.splitlines(keepends=True) if "name: chat" not in line)
    assert moved(BASE, without) == {
        ("route chat", "404 no_route"): "/v1/chat/completions, model gpt-x",
        ("route chat", "route mini"): "/v1/chat/completions, model gpt-x-mini",
    }


def test_a_new_first_route_takes_from_those_below_it() -> None:
    new = BASE.replace("routes:\n", "routes:\n  - {name: all, match: {path: '*'}, tiers: [{provider: beta}]}\n")
    assert set(moved(BASE, new)) == {
        ("404 no_route", "route all"),
        ("alpha alone", "route all"),
        ("beta alone", "route all"),
        ("route chat", "route all"),
        ("route mini", "route all"),
    }


def test_a_renamed_route_is_no_move() -> None:
    assert moved(BASE, BASE.replace("name: chat", "name: talk, was: chat")) == {}


def test_a_renamed_provider_takes_its_path_with_it() -> None:
    new = BASE.replace("{alpha: {", "{gamma: {was: alpha, ").replace("provider: alpha", "provider: gamma")
    assert moved(BASE, new) == {
        ("alpha alone", "404 no_route"): "/alpha/v1/chat/completions",
        ("404 no_route", "gamma alone"): "/gamma/v1/chat/completions",
    }


def test_without_routes_the_first_provider_decides() -> None:
    other = BARE.replace("alpha", "x").replace("beta", "alpha").replace("x:", "beta:")
    assert moved(BARE, other) == {("alpha alone", "beta alone"): "/v1/chat/completions"}
    assert moved(BARE, BASE)[("alpha alone", "404 no_route")] == "/v1/chat/completions"


def test_headers_are_part_of_an_example() -> None:
    new = BASE.replace('model: "gpt-*"}', 'model: "gpt-*", header: {x-task: "re*"}}')
    assert moved(BASE, new)[("route chat", "404 no_route")] == "/v1/chat/completions, model gpt-x"
    sample = Sample(path="/v1/chat/completions", model="gpt-x", headers=(("x-task", "rex"),))
    assert sample in set(samples(load(BASE), load(new)))
    assert str(sample) == "/v1/chat/completions, model gpt-x, x-task: rex"


def test_hundreds_of_routes_are_looked_at_for_a_bounded_number_of_requests() -> None:
    many = "".join(
        f"  - {{name: r{n}, match: {{model: ['m{n}-*', '*-{n}']}}, tiers: [{{provider: alpha}}]}}\n" for n in range(150)
    )
    old = load(BASE + many)
    assert len(list(islice(samples(old, old), MOST_SAMPLES + 1))) > MOST_SAMPLES
    assert moves(old, load(BASE)) != []
    assert moves(old, old) == []
