from __future__ import annotations

import pytest

from tests.policy.samples import GOOD, ROUTE, problem, problems, provider_problems, route_problems


def only(lines: list[str]) -> str:
    (line,) = lines
    return line


def test_an_unknown_name_has_the_place_of_the_name_and_the_nearest_one() -> None:
    text = "version: 1\nproviders:\n  a:\n    base_ulr: http://x/v1\n"
    assert problem(text) == "p.yaml:4:5: providers.a.base_ulr: unknown name (did you mean base_url?)"


def test_a_wrong_value_has_the_place_of_the_value() -> None:
    assert only(provider_problems("limits: {concurrency: -3}")) == (
        "p.yaml:5:27: providers.a.limits.concurrency: expected a whole number, 0 or more, found -3"
    )


def test_a_name_without_a_near_one_gets_the_list() -> None:
    assert only(provider_problems("queue: {speed: 1}")).endswith("unknown name; known here: bytes, max")
    assert only(problems(GOOD + "classes: {P1: {x: 1}}\n")).endswith("unknown name: there are none here")


def test_a_name_one_level_too_high_is_found_below() -> None:
    assert only(provider_problems("first_byte: 5s")).endswith("unknown name (did you mean timeouts.first_byte?)")


def test_a_missing_name_stands_with_its_section() -> None:
    assert problem("version: 1\nproviders:\n  a: {}\n") == "p.yaml:3:3: providers.a.base_url: is required"
    assert problems("mode: enforce\n") == [
        "p.yaml:1:1: providers: is required",
        "p.yaml:1:1: version: is required",
    ]


@pytest.mark.parametrize(
    ("below", "words"),
    [
        ("limits: {concurrency: 010}", 'found "010" (numbers have no leading zeros, colons or underscores)'),
        ("limits: {concurrency: 1:30}", 'found "1:30" (numbers have'),
        ("limits: {concurrency: 1_000}", 'found "1_000" (numbers have'),
        ("limits: {concurrency: .nan}", "expected a whole number, 0 or more, found .nan"),
        ("limits: {concurrency: .inf}", "expected a whole number, 0 or more, found .inf"),
        ("limits: {concurrency: no}", 'expected a whole number, 0 or more, found "no"'),
        ("limits: {concurrency: 1.5}", "expected a whole number, 0 or more, found 1.5"),
        ("limits: {concurrency: true}", "expected a whole number, 0 or more, found true"),
        ("limits: {concurrency: '10'}", 'found "10" (remove the quotes)'),
        ("limits: {concurrency: }", "expected a whole number, 0 or more, found nothing"),
        ("limits: {concurrency: 1e300}", "expected a smaller number"),
        ("limits: [5]", "expected a mapping, found a list"),
        ("limits: 5", "expected a mapping, found 5"),
        ("timeouts: {connect: fast}", 'expected a duration such as 250ms, 5s, 10m or 1h, found "fast"'),
        ("timeouts: {connect: 5}", "found 5 (add a unit, such as 5s)"),
        ("timeouts: {connect: 0s}", 'expected a duration above zero, found "0s"'),
        ("queue: {bytes: 64KB}", 'expected a size such as 64KiB, 1MiB or a number of bytes, found "64KB"'),
        ("breaker: {failure_ratio: 40}", "expected a number from 0 to 1, found 40"),
        ("breaker: {failure_ratio: .nan}", "finite"),
        ("breaker: on", 'expected off, found "on"'),
        ("breaker: false", "expected off, found false"),
        ("dialect: opeanai", "expected openai or anthropic or opaque"),
        ("dialect: opeanai", "(did you mean openai?)"),
        ("was: 5", "expected a name"),
        ("query: {api-version: 5}", "expected text, found 5 (put it in quotes)"),
        ("propagate_trace: yes", 'expected true or false, found "yes" (did you mean true?)'),
        ("keys: {id: a}", "expected a list, found a mapping"),
        ("timeouts: {answer: [1]}", "expected a duration"),
    ],
)
def test_what_was_expected_and_what_was_found(below: str, words: str) -> None:
    assert words in only(provider_problems(below))


@pytest.mark.parametrize(
    ("below", "words"),
    [
        ("repeatable: 1", "expected true or false, found 1"),
        ("total: 99999h", "expected a duration of at most 8784h"),
        ("retry: {attempts: 0}", "expected a whole number, 1 or more, found 0"),
    ],
)
def test_routes_likewise(below: str, words: str) -> None:
    assert words in only(route_problems(below))


@pytest.mark.parametrize(
    "tier",
    [
        "{provider: a, model: 5}",
        "{provider: a, answer: soon}",
        "{answer: {status: 100}}",
        "{answer: []}",
        "{}",
        "5",
        "x",
        "[]",
    ],
)
def test_an_alternative_gives_one_line_for_one_fault(tier: str) -> None:
    text = GOOD + ROUTE.replace("[{provider: a}]", f"[{tier}]")
    assert problem(text).startswith("p.yaml:8:13: routes.0.tiers.0") or ":8:" in problem(text)


def test_names_of_two_kinds_of_tier_do_not_go_together() -> None:
    text = GOOD + ROUTE.replace("[{provider: a}]", "[{answer: {}, first_byte: 5s}]")
    assert problem(text).endswith("first_byte: does not go together with the other names here")


def test_a_bad_name_of_a_provider_stands_at_the_name() -> None:
    for name in ("v1", "sponson", "Alpha", "1a", "a_b"):
        line = only(problems(GOOD + f"  {name}: {{base_url: 'http://x.example'}}\n"))
        assert line.startswith(f"p.yaml:5:3: providers.{name}: expected a name")


def test_an_empty_list_or_section_that_must_not_be() -> None:
    assert problem("version: 1\nproviders: {}\n") == "p.yaml:2:12: providers: expected at least one entry"
    assert only(problems(GOOD + "routes: [{name: x, tiers: []}]\n")).endswith("expected at least one entry")


@pytest.mark.parametrize(
    "below",
    [
        "keys: [sk-very-secret]",
        "keys: [{id: a, env: sk-very-secret}]",
        "keys: [{id: a, env: X, weight: sk-very-secret}]",
        "headers: {authorization: sk-very-secret}",
        'headers: {x: "sk-very-secret\\t"}',
        "auth: sk-very-secret",
        "query: sk-very-secret",
        "keys: [{sk-very-secret}]",
        "keys: [{id: a, env: A, sk-very-secret: b}]",
        "keys: [{id: a, env: !sk-very-secret }]",
        "keys: [{id: a, env: *sk-very-secret }]",
        "headers: {x: {sk-very-secret: b}}",
        "headers: {'Bearer sk-very-secret': x}",
        "headers: {x: !sk-very-secret [1]}",
        "auth: {sk-very-secret: x}",
    ],
)
def test_what_may_be_a_secret_is_never_repeated(below: str) -> None:
    assert "sk-very" not in "\n".join(provider_problems(below))


def test_a_misspelt_name_where_secrets_stand_is_told() -> None:
    lines = provider_problems("keys: [{id: a, enviroment: A}]")
    assert any("keys.0.enviroment: unknown name" in line for line in lines)


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("http://me:secret@x.example", "without credentials"),
        ("https://x.example/v1?key=secret", "use query for parameters"),
        ("https://x.example/v1#secret", "use query for parameters"),
        ("x.example/v1?key=secret", "an http or https address"),
    ],
)
def test_credentials_in_an_address_are_not_repeated(address: str, told: str) -> None:
    line = problem(f"version: 1\nproviders: {{a: {{base_url: '{address}'}}}}\n")
    assert told in line
    assert "secret" not in line


def test_long_text_is_cut() -> None:
    assert len(only(provider_problems(f"dialect: {'x' * 5000}"))) < 300


def test_a_large_number_is_refused_whatever_its_form() -> None:
    for number in ("9" * 90, "9" * 5000, "0x" + "f" * 5000, "1e400"):
        assert "expected" in only(provider_problems(f"limits: {{concurrency: {number}}}"))
        assert "expected" in only(provider_problems(f"breaker: {{failure_ratio: {number}}}"))
