from __future__ import annotations

from proxy.policy.load import load_policy
from tests.policy.samples import GOOD, ROUTE, files, problems


def test_sections_join_by_name_and_routes_follow_each_other() -> None:
    policy = load_policy(
        files(
            a=GOOD + ROUTE + "telemetry: {log_successes: 0.5}\n",
            b="version: 1\nproviders: {b: {base_url: 'http://127.0.0.1:2'}}\n",
            c="routes: [{name: other, match: {path: /x}, tiers: [{provider: b}]}]\ntelemetry: {content: false}\n",
        )
    )
    assert [provider.name for provider in policy.providers] == ["a", "b"]
    assert [route.name for route in policy.routes or ()] == ["chat", "other"]
    assert policy.telemetry.log_successes == 0.5


def test_a_name_that_two_files_define_has_both_places() -> None:
    assert problems(
        GOOD, q="providers:\n  b: {base_url: 'http://b.example'}\n  a: {base_url: 'http://a.example'}\n"
    ) == ["q.yaml:3:3: providers.a: is defined twice; first at p.yaml:3:3"]


def test_routes_of_two_files_need_different_names() -> None:
    assert problems(GOOD + ROUTE, q=ROUTE) == [
        'q.yaml:2:11: routes.1.name: "chat" is defined twice; first at p.yaml:6:11'
    ]


def test_single_values_stand_once_but_the_version() -> None:
    assert problems(GOOD + "mode: enforce\n", q="version: 1\nmode: enforce\n") == [
        "q.yaml:2:1: mode: is defined twice; first at p.yaml:5:1"
    ]
    assert problems(GOOD, q="version: 2\n") == ["q.yaml:1:1: version: is defined twice; first at p.yaml:1:1"]


def test_every_file_must_be_a_mapping() -> None:
    assert problems(GOOD, q="- a\n") == ["q.yaml:1:1: policy: expected a mapping with version and providers"]


def test_problems_keep_the_name_of_their_file() -> None:
    assert problems(GOOD, q="routes:\n  - {name: r, tiers: [{provider: nope}]}\n", r="fleet: {size: 3}\n") == [
        'q.yaml:2:34: routes.0.tiers.0.provider: no provider "nope"; known: a',
        "r.yaml:1:15: fleet.size: expected a mapping, found 3",
    ]


def test_the_first_file_may_lack_what_another_has() -> None:
    policy = load_policy(files(a=ROUTE, b=GOOD))
    assert len(policy.providers) == 1
    assert len(policy.routes or ()) == 1
