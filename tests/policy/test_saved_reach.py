from __future__ import annotations

import pytest

from proxy.policy.saved_reach import MERGED
from tests.policy.samples import GOOD, load

CHAT = "/v1/chat/completions"


def told(below: str, *, tiers: str = "{provider: a}", path: str = CHAT) -> list[str]:
    """The warnings of a route with these lines, tiers and path."""
    text = f"routes:\n  - name: r\n    match: {{path: {path}}}\n    tiers: [{tiers}]\n"
    return [
        line.partition(" ")[2]
        for line in load(GOOD + text + "".join(f"    {one}\n" for one in below.split("\n"))).warnings
    ]


@pytest.mark.parametrize(
    ("more", "tiers", "why"),
    [
        ("repeatable: false", "{provider: a}", "the route's requests are not repeatable"),
        ("mode: enforce", "{answer: {}}", "its first tier asks nobody"),
    ],
)
def test_what_is_never_repeated_is_neither_kept_nor_joined(more: str, tiers: str, why: str) -> None:
    assert told(f"cache: {{ttl: 5m}}\n{more}", tiers=tiers) == [f"routes.0.cache: keeps nothing: {why}"]
    assert told(f"single_flight: true\n{more}", tiers=tiers) == [f"routes.0.single_flight: joins nothing: {why}"]
    assert len(told(f"cache: {{ttl: 5m}}\nsingle_flight: true\n{more}", tiers=tiers)) == 2
    assert told(f"single_flight: false\n{more}", tiers=tiers) == []


@pytest.mark.parametrize("below", ["cache: {ttl: 5m}", "cache: {ttl: 5m}\nrepeatable: true", "single_flight: true"])
def test_what_saves_work_is_no_warning(below: str) -> None:
    assert told(below) == []


def test_a_server_has_its_own_bounds() -> None:
    assert told("cache: {ttl: 5m, max_bytes: 1MiB, store: {redis: 'redis://h'}}") == [
        "routes.0.cache.max_bytes: has no effect: the answers are kept by the Redis server, which has its own bounds"
    ]
    assert told("cache: {ttl: 5m, store: {redis: 'redis://h'}}") == []
    assert told("cache: {ttl: 5m, max_bytes: 1MiB}") == []


def test_no_room_keeps_nothing() -> None:
    assert told("cache: {ttl: 5m, max_bytes: 0}") == [
        "routes.0.cache.max_bytes: keeps nothing: there is no room for any answer"
    ]


@pytest.mark.parametrize(("section", "path"), [("cache: {ttl: 5m, %s}", CHAT), ("merge: {%s}", "/v1/embeddings")])
def test_tenants_that_there_are_not_are_not_kept_apart(section: str, path: str) -> None:
    (line,) = told(section % "scope: tenant", path=path)
    name = section.partition(":")[0]
    assert (
        line == f"routes.0.{name}.scope: has no effect: the policy has no tenants, so that all callers are one tenant"
    )
    assert told(section % "scope: route", path=path) == told(section % "", path=path) == []
    text = f"routes: [{{name: r, match: {{path: {path}}}, tiers: [{{provider: a}}], {section % 'scope: tenant'}}}]\n"
    assert load(GOOD + text + "tenants: {from: [{header: x-a}]}\n").warnings == ()


STALE = "{provider: a}, {stale_cache: {max_age: %s}}"


@pytest.mark.parametrize(
    ("cache", "age", "warned"),
    [
        ("{ttl: 5m}", "5m", True),
        ("{ttl: 5m}", "5m1s", False),
        ("{ttl: 5m, stale_while_revalidate: 1h}", "1h", True),
        ("{ttl: 5m, stale_while_revalidate: 1h}", "2h", False),
    ],
)
def test_an_age_that_is_given_before_anybody_is_asked(cache: str, age: str, warned: bool) -> None:
    lines = told(f"cache: {cache}", tiers=STALE % age)
    assert [line.partition(": ")[2][:18] for line in lines] == ["gives next to noth"] * warned


def test_a_second_tier_of_kept_answers() -> None:
    last = ", {stale_cache: {max_age: %s}}"
    assert told("cache: {ttl: 5m}", tiers=STALE % "2h" + last % "2h") == [
        "routes.0.tiers.2.stale_cache: gives nothing: an earlier stale_cache tier gives all answers of this age"
    ]
    assert told("cache: {ttl: 5m}", tiers=STALE % "2h" + last % "3h") == []


@pytest.mark.parametrize(
    "path", [CHAT, "/v1/messages", "/v1/responses", f"['{CHAT}', /v1/x]", "/v1/rerank", "embeddings/"]
)
def test_paths_whose_requests_cannot_travel_together(path: str) -> None:
    (line,) = (one for one in told("merge: {}", path=path) if "merge" in one)
    assert line.startswith("routes.0.merge: can match nothing: ")
    assert line.endswith("elsewhere name inputs and results")
    assert not any(
        "can match nothing" in one for one in told("merge: {inputs: x, results: y}", path=path) if "merge" in one
    )


def test_an_endpoint_that_is_not_known_merges_only_what_may_be_repeated() -> None:
    declared = "merge: {inputs: documents, results: results}"
    (line,) = told(declared, path="/v1/vectors")
    assert line == (
        "routes.0.merge.inputs: merges nothing on paths that are not known: a call that is split asks twice; "
        "say repeatable: true"
    )
    assert told(f"{declared}\nrepeatable: true", path="/v1/vectors") == []
    assert told(declared, path="/v1/embeddings") == []
    assert told(declared, path="/v1/*") == []


@pytest.mark.parametrize(
    "path",
    [
        *(f"/v1/{name}" for name in sorted(MERGED)),
        "/v1/*",
        "/v1/chat/*",
        f"['{CHAT}', /v1/embeddings]",
        "/x/embeddings",
    ],
)
def test_paths_whose_requests_can(path: str) -> None:
    assert told("merge: {}", path=path) == []


def test_a_route_that_takes_any_path_may_merge() -> None:
    assert load(GOOD + "routes: [{name: r, tiers: [{provider: a}], merge: {}}]\n").warnings == ()


def test_merging_of_one_and_of_none() -> None:
    assert told("merge: {max: 1}", path="/v1/embeddings") == [
        "routes.0.merge.max: merges nothing: one input is one call"
    ]
    assert told("merge: {}", path="/v1/embeddings", tiers="{answer: {}}") == [
        "routes.0.merge: merges nothing: its first tier asks nobody"
    ]
