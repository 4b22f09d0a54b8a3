from __future__ import annotations

import pytest

from proxy.policy.load import load_policy
from proxy.policy.source import PolicyBytes
from tests.policy.samples import GOOD, ROUTE, load, provider


def warnings(*matches: str) -> tuple[str, ...]:
    """The warnings of routes with these matches, named r0, r1, …"""
    lines = [f"  - {{name: r{n}, match: {m}, tiers: [{{provider: a}}]}}\n" for n, m in enumerate(matches)]
    return load(GOOD + "routes:\n" + "".join(lines)).warnings


def test_a_path_that_no_request_has() -> None:
    assert warnings("{path: [/v1/x, v1/chat]}") == (
        'p.yaml:6:38: routes.0.match.path.1: can match nothing: paths begin with /, "v1/chat" does not',
    )
    assert "are the proxy's own" in warnings("{path: /sponson/x}")[0]


@pytest.mark.parametrize("earlier", ["{}", "{path: '*'}", "{path: '/v1/*'}", "{path: [/y, /v1/x]}", "{path: /v1/x}"])
def test_a_route_behind_one_that_takes_everything(earlier: str) -> None:
    (line,) = warnings(earlier, "{path: /v1/x, model: m}")
    assert line == 'p.yaml:7:12: routes.1.name: is never reached: route "r0" takes all of its requests before'


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("{path: /v1/x, model: m}", "{path: /v1/x}"),
        ("{path: /v1/x}", "{path: '/v1/*'}"),
        ("{model: '*'}", "{path: /v1/x}"),
        ("{header: {x-task: a}}", "{header: {x-task: b}}"),
        ("{header: {x-task: a}}", "{}"),
        ("{path: /v1/x}", "{path: [/v1/x, /v1/y]}"),
    ],
)
def test_a_route_that_still_gets_something(earlier: str, later: str) -> None:
    assert warnings(earlier, later) == ()


def test_headers_cover_by_name_and_value() -> None:
    assert warnings("{header: {x-task: 're*'}}", "{header: {X-Task: research, x-other: y}}")


def test_a_breaker_that_no_ratio_opens() -> None:
    (line,) = load(GOOD + "    breaker: {window: {calls: 10}}\n").warnings
    assert line.startswith("p.yaml:5:31: providers.a.breaker.window.calls: min_calls (20) is above window.calls (10)")
    assert provider("breaker: {window: {calls: 10}, min_calls: 10}")


def test_a_policy_without_faults_has_no_warnings() -> None:
    assert load(GOOD).warnings == ()


SHARES = """\
version: 1
fleet: {size: {static: 40}}
limits: {concurrency: 39}
providers:
  a:
    base_url: http://x/v1
    keys: [{id: k, env: K, concurrency: 10}]
    limits: {concurrency: 16}
    models: {m: {limits: {concurrency: 3}}}
"""


def test_a_limit_of_less_than_one_place_an_instance_is_warned_of_where_it_stands() -> None:
    data = PolicyBytes(files=(("p.yaml", SHARES.encode()),))
    told = load_policy(data).warnings
    assert [line.split(":")[1] for line in told] == ["3", "7", "8", "9"]
    assert all("SPONSON_INSTANCE_INDEX" in line for line in told)
    assert load_policy(data, instance_index=0).warnings == ()


def test_a_policy_that_observes_everything_says_that_it_holds_nobody_back() -> None:
    (line,) = load(GOOD + ROUTE + "mode: observe\n").warnings
    assert line.startswith("p.yaml:9:7: mode: observe: no share and no breaker holds any call back")


def test_a_mode_that_is_stricter_than_the_one_above_it_has_no_effect() -> None:
    enforced = "    mode: enforce\n"
    lines = load(GOOD + enforced + ROUTE + enforced + "mode: observe\n").warnings[:2]
    assert [line.partition(" ")[2] for line in lines] == [
        "providers.a.mode: has no effect: the policy observes, and the most lenient mode holds",
        "routes.0.mode: has no effect: the policy observes, and the most lenient mode holds",
    ]
    (line,) = load(GOOD + "    mode: observe\n" + ROUTE + enforced).warnings
    assert line.endswith("routes.0.mode: has no effect: all of its providers observe, and the most lenient mode holds")


@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_a_mode_that_has_an_effect_is_no_warning(mode: str) -> None:
    other = "  b:\n    base_url: http://127.0.0.1:2/v1\n"
    two = ROUTE.replace("[{provider: a}]", "[{provider: a}, {provider: b}]")
    assert load(GOOD + f"    mode: {mode}\n" + other + two + "    mode: enforce\n").warnings == ()
    assert load(GOOD + "    mode: enforce\n" + ROUTE + f"    mode: {mode}\n").warnings == ()


MANY = GOOD.replace("version: 1\n", "version: 1\nfleet: {size: {static: 2}}\n") + "    limits: {concurrency: 800}\n"


def told(text: str) -> list[str]:
    """The warnings, the place and path of each included."""
    return list(load(text).warnings)


def test_a_share_above_the_connections_is_warned_of_where_they_are_counted() -> None:
    assert told(MANY + "    connections: {max: 100}\n") == [
        "p.yaml:7:24: providers.a.connections.max: "
        "100 is below the share of 400 of limits.concurrency: only 100 calls run at once"
    ]
    assert told(MANY) == [
        "p.yaml:6:27: providers.a.limits.concurrency: "
        "a share of 400 is above connections.max (100): only 100 calls run at once"
    ]


@pytest.mark.parametrize("below", ["models: {m: {limits: {concurrency: 300}}}", "keys: [{id: k, concurrency: 300}]"])
def test_without_a_limit_of_the_provider_those_of_its_models_and_keys_are_held_against_its_connections(
    below: str,
) -> None:
    below = below.replace("id: k", "id: k, env: K")
    (line,) = told(GOOD + f"    {below}\n")
    assert line.endswith("concurrency: a share of 300 is above connections.max (100): only 100 calls run at once")
    (line,) = told(GOOD + f"    {below}\n    connections: {{max: 20}}\n")
    assert line.startswith("p.yaml:6:24: providers.a.connections.max: 20 is below the share of 300 of ")
    assert not any("connections" in line for line in told(GOOD + f"    {below}\n    limits: {{concurrency: 50}}\n"))


def test_connections_of_all_addresses_are_counted_together() -> None:
    text = MANY.replace("http://127.0.0.1:1/v1", "[http://127.0.0.1:1/v1, http://127.0.0.1:2/v1]")
    assert told(text)[0].endswith(
        "a share of 400 is above connections.max (100 at each of 2 addresses): only 200 calls run at once"
    )
    assert told(text + "    connections: {max: 200}\n") == []


@pytest.mark.parametrize("more", ["    connections: {max: 400}\n", "    mode: observe\n", "mode: observe\n"])
def test_a_share_that_connections_do_not_bind_is_no_warning(more: str) -> None:
    assert [line for line in told(MANY + more) if "connections" in line] == []
