from __future__ import annotations

import pytest

from proxy.policy.support import NOT_YET
from tests.policy.samples import (
    GOOD,
    ROUTE,
    load,
    problems,
    provider,
    provider_problems,
    route,
    route_problems,
)

DNS = "fleet: {max_size: 20, size: {dns: x}}\n"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (DNS, "fleet.size.dns"),
        ("fleet: {max_size: 20, size: {endpoints: x}}\n", "fleet.size.endpoints"),
        ("fleet: {max_size: 20, size: {leases: true}}\n", "fleet.size.leases"),
        ("fleet: {on_loss: zero}\n", "fleet.on_loss"),
        ("fleet: {guarantee: strict}\n", "fleet.guarantee"),
        ("fleet: {raise_delay: 5s}\n", "fleet.raise_delay"),
        ("fleet: {stale_after: 16s}\n", "fleet.stale_after"),
        ("intercept: {hosts: {a.example: terminate}, other: tunnel}\n", "intercept"),
        ("batches: local\n", "batches"),
        ("telemetry: {task_header: x-task}\n", "telemetry.task_header"),
        ("telemetry: {content: true}\n", "telemetry.content"),
    ],
)
def test_what_is_not_built_yet_at_the_top(text: str, path: str) -> None:
    assert [line.partition(" ")[2] for line in problems(GOOD + text)] == [f"{path}: is not supported yet"]


@pytest.mark.parametrize(
    ("below", "path"),
    [
        ("queue_metric: {url: http://vllm:8000/metrics, name: 'vllm:waiting'}", "queue_metric"),
        ("models: {m: {price: {input: 3, output: 15}}}", "models.m.price"),
    ],
)
def test_what_is_not_built_yet_of_a_provider(below: str, path: str) -> None:
    (line,) = provider_problems(below)
    assert line.endswith(f": providers.a.{path}: is not supported yet")
    assert line.startswith("p.yaml:5:")


def test_what_is_not_built_yet_of_a_route() -> None:
    (line,) = route_problems("dead_letter: true")
    assert line.endswith(": routes.0.dead_letter: is not supported yet")


def test_what_is_not_built_yet_of_a_tier() -> None:
    (line,) = problems(GOOD + ROUTE.replace("[{provider: a}]", "[{later: {keep: 24h}}]"))
    assert ": routes.0.tiers.0.later: is not supported yet" in line


def test_defaults_may_be_written() -> None:
    assert load(
        GOOD
        + "mode: enforce\nfleet: {size: {static: 2}, max_size: 20, on_loss: safe_share, guarantee: bounded}\n"
        + "classes: {P0: {reserved: 0}, P1: {}, P2: {idle_below: 0.7, promote_after: 5m, queue: 10m}}\n"
        + "telemetry: {content: false}\n"
    )
    assert provider("mode: enforce")
    assert route("dead_letter: false")


def test_a_wrong_value_of_an_unbuilt_name_is_still_wrong() -> None:
    assert [line.partition(" ")[2] for line in provider_problems("queue_metric: many\nhosts: 5")] == [
        'providers.a.queue_metric: expected a mapping, found "many"',
        "providers.a.hosts: expected a list, found 5",
    ]


def test_the_list_has_no_line_twice() -> None:
    patterns = [gap.pattern for gap in NOT_YET]
    assert len(patterns) == len(set(patterns))
