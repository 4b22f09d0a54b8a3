from __future__ import annotations

import pytest

from tests.policy.samples import GOOD, load, provider


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
