from __future__ import annotations

import pytest

from tests.policy.samples import (
    GOOD,
    ROUTE,
    load,
    problem,
    problems,
    provider,
    provider_problems,
    route,
    route_problems,
)

CACHE = "    cache: {ttl: 5m}\n"


def tiers(written: str, below: str = "") -> str:
    """A policy whose only route has these tiers."""
    return GOOD + ROUTE.replace("[{provider: a}]", f"[{written}]") + below


def test_a_kept_answer_needs_a_cache() -> None:
    assert problem(tiers("{provider: a}, {stale_cache: {max_age: 1h}}")) == (
        "p.yaml:8:29: routes.0.tiers.1.stale_cache: there is nothing to give: "
        "the route has no cache (add `cache: {ttl: 5m}` to it)"
    )
    assert load(tiers("{provider: a}, {stale_cache: {max_age: 1h}}", CACHE))


def test_a_kept_answer_stands_in_for_what_has_failed() -> None:
    assert problem(tiers("{stale_cache: {max_age: 1h}}, {provider: a}", CACHE)) == (
        "p.yaml:8:14: routes.0.tiers.0.stale_cache: "
        "nothing has failed yet: put it after the tiers that it stands in for"
    )


def test_rules_speak_up_whatever_else_is_wrong() -> None:
    lines = problems(tiers("{provider: nope}, {stale_cache: {max_age: old}}", "    merge: {inputs: x, max: 0}\n"))
    assert [line.split(": ")[1] for line in lines] == [
        "routes.0.tiers.0.provider",
        "routes.0.tiers.1.stale_cache",
        "routes.0.tiers.1.stale_cache.max_age",
        "routes.0.merge.inputs",
        "routes.0.merge.max",
    ]


@pytest.mark.parametrize(("one", "other"), [("inputs", "results"), ("results", "inputs")])
def test_inputs_and_results_are_named_together(one: str, other: str) -> None:
    (line,) = route_problems(f"merge: {{{one}: x}}")
    assert line.startswith(f"p.yaml:9:13: routes.0.merge.{one}: needs {other}, too")
    assert route("merge: {inputs: x, results: y}").merge


def test_the_inputs_of_merging_are_the_question_of_a_cache() -> None:
    (line,) = route_problems("cache: {ttl: 5m, ignore: [user, texts]}\nmerge: {inputs: texts, results: vectors}")
    assert (
        line == 'p.yaml:9:37: routes.0.cache.ignore.1: "texts" is the question itself: it has the inputs (merge.inputs)'
    )
    assert route("cache: {ttl: 5m, ignore: [texts]}\nmerge: {}")


@pytest.mark.parametrize("named", ["{}", "{env: A, file: b}"])
def test_a_password_has_one_source(named: str) -> None:
    (line,) = route_problems(f"cache: {{ttl: 5m, store: {{redis: 'redis://h', password: {named}}}}}")
    assert line.endswith("expected exactly one of env, file")


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("{warm: 101}", "101 is above max (100): so many there never are"),
        ("{warm: 3, max: 2}", "3 is above max (2): so many there never are"),
        ("{warm: 3, idle: 0s}", "idle is 0s: no connection is kept, so none can be ready"),
    ],
)
def test_connections_that_cannot_be_ready(written: str, why: str) -> None:
    (line,) = provider_problems(f"connections: {written}")
    assert line == f"p.yaml:5:25: providers.a.connections.warm: {why}"


@pytest.mark.parametrize("written", ["{warm: 100}", "{warm: 2, max: 2}", "{idle: 0s}", "{warm: 0, idle: 0s}"])
def test_connections_that_can(written: str) -> None:
    assert provider(f"connections: {written}")


def test_wrong_values_are_told_of_once() -> None:
    assert len(provider_problems("connections: {warm: many, max: few, idle: never}")) == 3
    assert len(route_problems("merge: {inputs: 5, results: x}\ncache: 5")) == 2


# Words: what is misspelt has its suggestion, and no password is ever shown.


@pytest.mark.parametrize(
    ("below", "told"),
    [
        ("cache: {tll: 5m}", "cache.tll: unknown name (did you mean ttl?)"),
        (
            "cache: {ttl: 5m, scope: tenants}",
            'expected tenant or route or credential, found "tenants" (did you mean tenant?)',
        ),
        ("cache: {ttl: 5m, normalize: [cases]}", "(did you mean case?)"),
        ("cache: {ttl: 300}", "(add a unit, such as 300s)"),
        ("cache: {ttl: 5m, store: redis}", "cache.store: expected memory or {redis: ADDRESS}, found some other text"),
        ("cache: {ttl: 5m, store: {reddis: 'redis://h'}}", "(did you mean redis?)"),
        ("cache: {ttl: 5m, ignore: [model]}", "cache.ignore.0: expected a field that changes no answer"),
        ("single_fligth: true", "(did you mean single_flight?)"),
        ("merge: {windw: 5ms}", "(did you mean window?)"),
        (
            "merge: {window: 5s}",
            'expected a duration of at most 1s, such as 5ms: the first of several requests waits so long, found "5s"',
        ),
        ("merge: {scope: any}", "expected tenant or route or credential"),
    ],
)
def test_a_slip_has_its_cure(below: str, told: str) -> None:
    (line,) = route_problems(below)
    assert told in line


@pytest.mark.parametrize(
    "store",
    [
        "hunter2",
        "redis://default:hunter2",
        "{redis: 'redis://:hunter2@h'}",
        "{redis: 'redis://default:hunter2'}",
        "{redis: 'redis//hunter2'}",
        "{redis: 'redis://h', HUNTER2hunter2: x}",
        "{redis: 'redis://h', password: !hunter2 x}",
        "{redis: 'redis://h?password=hunter2'}",
        "{redis: 'redis://h', password: hunter2}",
        "{redis: 'redis://h', password: {hunter2: x}}",
        "{redis: 'redis://h', password: {env: 'hunter2!'}}",
        "{redis: 'redis://h', password: [hunter2]}",
        "{redis: 'redis://h', password: {env: [hunter2]}}",
    ],
)
def test_no_password_is_ever_shown(store: str) -> None:
    lines = route_problems(f"cache: {{ttl: 5m, store: {store}}}")
    assert lines
    assert not any("hunter2" in line for line in lines)
