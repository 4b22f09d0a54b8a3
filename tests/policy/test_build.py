from __future__ import annotations

import pytest

from proxy.decisions.breaker import BreakerSettings
from proxy.decisions.deadline import AnswerPaceSettings
from proxy.policy.snapshot import (
    AddressSnapshot,
    AnswerTier,
    AuthScheme,
    ModelSnapshot,
    PolicySnapshot,
    ProviderSnapshot,
    ProviderTier,
    RouteSnapshot,
)
from tests.policy.samples import GOOD, ROUTE, load, provider, provider_problems, route


def test_the_defaults_of_a_provider_are_those_of_the_settings() -> None:
    assert provider() == ProviderSnapshot(
        name="a",
        base_url="http://127.0.0.1:1/v1",
        scheme="http",
        host="127.0.0.1",
        port=1,
        root_path="/v1",
        addresses=(AddressSnapshot(scheme="http", host="127.0.0.1", port=1),),
    )


def test_the_defaults_of_a_route_are_those_of_the_settings() -> None:
    plain = route()
    assert plain == RouteSnapshot(name="chat", match=plain.match, tiers=(ProviderTier(provider="a"),))
    assert plain.match.path == ("/v1/chat/completions",)


def test_the_defaults_of_a_policy_are_those_of_the_settings() -> None:
    policy = load(GOOD)
    assert policy == PolicySnapshot(providers=policy.providers, digest=policy.digest)
    assert policy.routes is None
    assert load(GOOD + "routes: []\n").routes == ()


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("https://api.example", ("https", "api.example", 443, "")),
        ("http://api.example/", ("http", "api.example", 80, "")),
        ("https://api.example:8443/v1/", ("https", "api.example", 8443, "/v1")),
        ("http://[::1]:9/v1beta/openai", ("http", "::1", 9, "/v1beta/openai")),
    ],
)
def test_addresses(url: str, parts: tuple[str, str, int, str]) -> None:
    one = load(f"version: 1\nproviders: {{a: {{base_url: '{url}'}}}}\n").providers[0]
    assert (one.scheme, one.host, one.port, one.root_path) == parts


@pytest.mark.parametrize(
    ("below", "auth"),
    [
        ("", AuthScheme()),
        ("dialect: opaque", AuthScheme()),
        ("dialect: anthropic", AuthScheme(header="x-api-key", prefix="")),
        ("dialect: anthropic\nauth: bearer", AuthScheme()),
        ("auth: x-api-key", AuthScheme(header="x-api-key", prefix="")),
        ("auth: {header: Api-Key}", AuthScheme(header="api-key", prefix="")),
    ],
)
def test_how_a_key_is_sent(below: str, auth: AuthScheme) -> None:
    assert provider(below).auth == auth


def test_keys_and_headers_keep_the_place_of_their_source() -> None:
    one = provider(
        "keys: [{id: k, env: A}, {id: l, file: /b, weight: 2, concurrency: 5, was: m}]\n"
        "headers: {X-Team: search, x-p: {file: /p}}"
    )
    first, second = one.keys
    assert (first.id, first.weight, first.source.env, first.source.place) == ("k", 1.0, "A", "p.yaml:5:25")
    assert (second.weight, second.concurrency, second.was, second.source.file) == (2.0, 5, "m", "/b")
    assert [(name, value.literal, value.file) for name, value in one.headers] == [
        ("x-team", "search", None),
        ("x-p", None, "/p"),
    ]


def test_units_become_seconds_and_bytes() -> None:
    one = provider(
        "key_rest: 2m\nqueue: {max: 1e1, bytes: 1MiB}\nconnections: {max: 7, idle: 500ms}\n"
        "timeouts: {connect: 1s, queue: 0s, quota_wait: 2s, first_byte: 1m30s, "
        "answer: 4s, idle: 5s, stream: 2h}"
    )
    assert one.key_rest_seconds == 120.0
    assert (one.queue.max, one.queue.bytes) == (10, 1 << 20)
    assert (one.connections.max, one.connections.idle_seconds) == (7, 0.5)
    times = one.timeouts
    assert (times.connect, times.queue, times.quota_wait, times.first_byte) == (1.0, 0.0, 2.0, 90.0)
    assert (times.answer, times.idle, times.stream) == (4.0, 5.0, 7200.0)
    assert type(times.first_byte) is float
    assert type(one.queue.bytes) is int


def test_breakers() -> None:
    assert provider("breaker: off").breaker is None
    written = (
        "breaker: {scope: provider, failure_ratio: 0.5, window: {calls: 9, time: 8s}, min_calls: 7, "
        "consecutive: 0, slow: {after: 6s, ratio: 1}, open: {first: 4s, cap: 5s}, probes: 2}"
    )
    assert provider(written).breaker == BreakerSettings(
        failure_ratio=0.5,
        window_calls=9,
        window_seconds=8.0,
        min_calls=7,
        consecutive=0,
        slow_after=6.0,
        slow_ratio=1.0,
        open_first=4.0,
        open_cap=5.0,
        probes=2,
        per_provider=True,
    )


def test_limits_of_all_kinds() -> None:
    policy = load(
        GOOD + "    limits: {concurrency: 0}\n    models: {m: {limits: {concurrency: 3}}, gpt-4.1: {}}\n"
        "limits: {concurrency: 400}\nfleet: {size: {static: 4}}\ntelemetry: {log_successes: 0}\n"
    )
    assert policy.concurrency == 400
    assert policy.providers[0].concurrency == 0
    assert policy.providers[0].models == (ModelSnapshot(name="m", concurrency=3), ModelSnapshot(name="gpt-4.1"))
    assert policy.fleet.size == 4
    assert policy.telemetry.log_successes == 0.0


def test_a_match_is_one_pattern_or_many() -> None:
    text = ROUTE.replace("{path: /v1/chat/completions}", "{model: ['gpt-*', o1], header: {X-Task: [a, b], y: c}}")
    routes = load(GOOD + text).routes
    assert routes is not None
    match = routes[0].match
    assert (match.path, match.model) == ((), ("gpt-*", "o1"))
    assert match.header == (("x-task", ("a", "b")), ("y", ("c",)))


def test_tiers() -> None:
    tiers = (
        "[{provider: a, model: m, set: {max_tokens: 5, x: [null, {y: 1.5}]}, queue: 1s, quota_wait: 2s, "
        "first_byte: 3s, answer: 4s, idle: 5s}, {provider: a}, {answer: {status: 503, json: {note: né}}}]"
    )
    routes = load(GOOD + ROUTE.replace("[{provider: a}]", tiers)).routes
    assert routes is not None
    assert routes[0].tiers == (
        ProviderTier(
            provider="a",
            model="m",
            set=(("max_tokens", 5), ("x", [None, {"y": 1.5}])),
            queue_seconds=1.0,
            quota_wait_seconds=2.0,
            first_byte_seconds=3.0,
            answer_seconds=4.0,
            idle_seconds=5.0,
        ),
        ProviderTier(provider="a"),
        AnswerTier(status=503, body='{"note":"né"}'.encode()),
    )


@pytest.mark.parametrize(
    ("answer", "tier"),
    [
        ("{}", AnswerTier()),
        ("{status: 204}", AnswerTier(status=204, body=b"")),
        ("{json: null}", AnswerTier(body=b"null")),
        ("{json: [1, x]}", AnswerTier(body=b'[1,"x"]')),
    ],
)
def test_answers(answer: str, tier: AnswerTier) -> None:
    routes = load(GOOD + ROUTE.replace("{provider: a}", f"{{answer: {answer}}}")).routes
    assert routes is not None
    assert routes[0].tiers == (tier,)


def test_the_rest_of_a_route() -> None:
    one = route(
        "was: old\ntotal: 1m\nretry: {attempts: 5, base: 1s, cap: 2s, budget: 0}\n"
        "body: {max: 1KiB, replay: 5}\nrepeatable: false"
    )
    assert (one.was, one.total_seconds, one.repeatable) == ("old", 60.0, False)
    assert (one.retry.attempts, one.retry.base, one.retry.cap, one.retry.budget) == (5, 1.0, 2.0, 0.0)
    assert (one.body_max, one.body_replay) == (1024, 5)


def test_modes() -> None:
    assert load(GOOD + "mode: observe\n").observe
    assert not load(GOOD + "mode: enforce\n").observe
    assert provider("mode: observe").observe
    assert route("mode: observe").observe


def test_an_answer_limit_that_follows_the_target_keeps_the_fixed_one_as_its_most() -> None:
    times = provider("timeouts: {answer: {p95: 2, plus: 300ms}}").timeouts
    assert (times.answer, times.answer_pace) == (600.0, AnswerPaceSettings(factor=2.0, plus=0.3))
    assert provider("timeouts: {answer: {p95: 1.5}}").timeouts.answer_pace == AnswerPaceSettings()
    routes = load(GOOD + ROUTE.replace("{provider: a}", "{provider: a, answer: {p95: 1}}")).routes
    assert routes is not None
    assert routes[0].tiers == (ProviderTier(provider="a", answer_pace=AnswerPaceSettings(factor=1.0)),)


def test_a_factor_below_the_percentile_itself_is_refused() -> None:
    (line,) = provider_problems("timeouts: {answer: {p95: 0.5, plus: 5s}}")
    assert "providers.a.timeouts.answer.p95: expected a number, 1 or more" in line
